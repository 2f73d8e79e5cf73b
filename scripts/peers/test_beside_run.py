#!/usr/bin/env python3
"""Tests of how beside_run.py reads a run's prompts. They need no package and no model:

    python3 scripts/peers/test_beside_run.py

The cases of shortening are those of crates/models/tests/template.rs and jinja.rs, with the answers that these expect.
"""

import json
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import beside_run
import shorten

NEWS = pathlib.Path(__file__).resolve().parents[2] / "datasets/mini-news/test.jsonl"
INSTRUCTION = "\n\nSummarize the above article in 1 sentence."


def words_around(before, behind):
    """Tokens of a prompt in a template, where a token is a word."""
    return lambda text: len((before + text + behind).split())


def fit(prompt, most, count=words_around("<|user|>\n", "\n<|assistant|>\n")):
    return shorten.shortened(prompt, most, count, lambda: count(""))


class Shortening(unittest.TestCase):
    def test_head_and_last_part_stay(self):
        self.assertEqual(fit("one two three four five six\n\nSummarize it.", 6), "one two\n\nSummarize it.")
        self.assertEqual(fit("One two three four five six. How many now?", 8), "One two three How many now?")
        self.assertEqual(fit("one two three four five six seven", 8), "one two three four five six")
        self.assertEqual(fit("one two", 8), "one two")

    def test_news_fits_and_wastes_no_room(self):
        prompts = [json.loads(line)["prompt"] for line in NEWS.read_text().splitlines()[:5]]
        for most in range(2, 60):
            for prompt in prompts:
                found = fit(prompt, most)
                used = len(found.split()) + 2
                self.assertLessEqual(used, most)
                if most >= 16:
                    self.assertTrue(found.endswith(INSTRUCTION))
                    head = found.removesuffix(INSTRUCTION)
                    self.assertTrue(head and prompt.startswith(head))
                    self.assertEqual(used, most)

    def test_a_long_word_is_cut_between_characters(self):
        self.assertEqual(fit("ééééééé", 7, lambda text: len(text.encode())), "ééé")

    def test_the_template_alone_may_be_too_long(self):
        with self.assertRaisesRegex(ValueError, "takes 2 tokens, the longest prompt has 1"):
            fit("a b c", 1)

    def test_separators_of_files_are_no_white_space(self):
        self.assertEqual(shorten.word_ends("a\x1cb c d"), [3, 5])
        self.assertEqual(shorten.word_ends("  ab"), [1, 2, 3])


class Words:
    """A tokenizer whose tokens are words, with a template."""

    def apply_chat_template(self, messages, add_generation_prompt, tokenize=True, return_dict=False, mark="e"):
        assert add_generation_prompt
        for message in messages:
            assert message["content"], "an empty message"
        said = "".join(f"{message['role'][0]} {message['content']} {mark} " for message in messages) + "a"
        return {"input_ids": said.split()} if tokenize else said

    def __call__(self, text, add_special_tokens):
        assert not add_special_tokens
        return {"input_ids": text.split()}


class Prompts(unittest.TestCase):
    def asked(self, how, tokens, prompt="one two three four five six\n\nSum up."):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "news").mkdir()
            (folder / "news/train.jsonl").write_text(json.dumps({"id": "n", "prompt": prompt}) + "\n")
            rows = [{"prompt_id": "n", "prompt_tokens": tokens}]
            return [" ".join(ids) for ids in beside_run.asked(Words(), folder, "news", rows, how)]

    def test_long_ones_are_shortened_and_counted(self):
        self.assertEqual(self.asked(([], {}, 7), 7), ["u one two Sum up. e a"])
        self.assertEqual(self.asked(([], {}, 11), 11), ["u one two three four five six Sum up. e a"])
        system = [{"role": "system", "content": "Be brief."}]
        self.assertEqual(self.asked((system, {"mark": "x"}, 11), 11), ["s Be brief. x u one two Sum up. x a"])

    def test_another_number_of_tokens_is_an_error(self):
        for most, tokens in [(7, 6), (8, 7), (None, 7), (2, 2)]:
            with self.assertRaises(SystemExit):
                self.asked(([], {}, most), tokens)


class Reading(unittest.TestCase):
    def reading(self, targets, arms, files):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            config = {"arms": arms, "models": {"targets": targets}}
            (folder / "manifest.json").write_text(json.dumps({"config": config}))
            for name, content in files.items():
                (folder / name).write_text(json.dumps(content))
            return beside_run.reading((folder, "qwen"), folder)

    def test_the_longest_prompt_is_that_of_model_and_context(self):
        arm = lambda context: {"decode": {"max_new_tokens": 128, "k": 4, "context": context}}
        plain = {"name": "plain", "decode": {"max_new_tokens": 128, "k": 4}}
        own, half = {"omnidraft.json": {"max_prompt_tokens": 384}}, {"config.json": {"max_position_embeddings": 1000}}
        far = {"config.json": {"max_position_embeddings": 32768}}
        text = {"omnidraft.json": {"max_prompt_tokens": 384, "prompt_markers": "text"}}
        for arms, files, most in [
            ([plain], own, 384),
            ([plain], own | half, 384),
            ([plain], half, 500),
            ([plain], far, 2048),
            ([plain], text, None),
            ([plain], {}, None),
            ([plain, arm(300), arm(400)], own, 168),
            ([plain, {"same but": {"decode": {"same but": {"context": 300}}}}], own, 168),
            ([arm(100)], own, 1),
        ]:
            self.assertEqual(self.reading({"qwen": "DIR"}, arms, files), ([], {}, most))

    def test_a_model_may_have_a_system_message_and_variables(self):
        target = {"path": "DIR", "system": "Be brief.", "chat_template_kwargs": {"enable_thinking": False}}
        before, variables, _ = self.reading({"qwen": target}, [{"decode": {}}], {})
        self.assertEqual(before, [{"role": "system", "content": "Be brief."}])
        self.assertEqual(variables, {"enable_thinking": False})


if __name__ == "__main__":
    unittest.main()
