#!/usr/bin/env python3
"""Tests of record_trace.py: its rows from a stand-in server equal those of transformers.

    python scripts/test_record_trace.py [path of omnidraft]

Runs on models/L and an embedded stream, from the repository's root. The stand-in answers POST /v1/completions as vLLM
does (tokens by id, ends included), as other servers do (tokens as text, the end left out, `echo`) and as llama-cpp-python
does (text alone, special tokens without a name, the opening token not echoed, repetition punished). With the program's
path, `omnidraft trace verify` also compares the file with this repository's own engine.
"""

import http.server
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import record_trace

PROGRAM = sys.argv.pop(1) if len(sys.argv) > 1 else None
MODEL, DATA = "models/L", "datasets/mini-chat/train.jsonl"
LIMIT, ANSWER, TAIL = 3, 40, 6


def top_of(logits, top):
    """The K most probable tokens of a row of logits, lower ids first where two are alike, and the rest's mass."""
    logits = logits.astype(np.float64)
    log_probs = logits - (logits.max() + math.log(np.exp(logits - logits.max()).sum()))
    order = np.lexsort((np.arange(len(logits)), -logits))[:top]
    return order, log_probs[order], min(max(1.0 - np.exp(log_probs[order]).sum(), 0.0), 1.0)


class Local:
    """The model behind the stand-in, and what a recording of it must be."""

    def __init__(self):
        import torch
        from transformers import AutoModelForCausalLM

        self.torch = torch
        torch.set_num_threads(1)
        self.model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32).eval()

    def answer(self, ids, stop):
        """Tokens of answer and tail, the number of the former, and a row a token."""
        path, rows, cache, ended, feed = [], [], None, None, ids
        more = lambda: path[-1] in stop or len(path) < ended + TAIL
        with self.torch.no_grad():
            while ended is None or (path[-2:-1] == [] or path[-2] not in stop) and more():
                out = self.model(self.torch.tensor([feed]), past_key_values=cache, use_cache=True)
                cache, logits = out.past_key_values, out.logits[0, -1].numpy()
                path.append(int(logits.argmax()))
                rows.append(top_of(logits, 16))
                feed = path[-1:]
                if ended is None and (path[-1] in stop or len(path) >= ANSWER):
                    ended = len(path)
        return path, ended, rows

    def record(self, text):
        le = lambda values, kind: np.asarray(values, dtype=kind).tobytes()
        for line in list(open(DATA, encoding="utf-8"))[:LIMIT]:
            record = json.loads(line)
            prompt = text.render(text.fit(record["prompt"]))
            ids = text.encode(prompt)
            path, ended, rows = self.answer(ids, set(text.stop()))
            yield {
                "id": record["id"],
                "prompt": prompt,
                "prompt_ids": le(ids, "<u4"),
                "answer_ids": le(path[:ended], "<u4"),
                "tail_ids": le(path[ended:], "<u4"),
                "top_ids": b"".join(le(row[0], "<u4") for row in rows),
                "values": b"".join(le(np.minimum(row[1], 0.0), "<f2") for row in rows),
                "rest": le([row[2] for row in rows], "<f4"),
            }


def arguments(out, *extra):
    common = ["--task", "mini-chat", "--data", DATA, "--limit", str(LIMIT), "--top", "16"]
    return [*common, "--max-tokens", str(ANSWER), "--tail", str(TAIL), "--out", str(out), *extra]


def record(words):
    old, sys.argv = sys.argv, ["record_trace.py", *words]
    try:
        record_trace.main()
    finally:
        sys.argv = old


def rows(path):
    import pyarrow.parquet as pq

    return pq.read_table(path).to_pylist()


class StandIn(http.server.BaseHTTPRequestHandler):
    """One model behind the ways of answering; `self.server.manner` picks one, `self.server.short` answers less."""

    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        model, text = self.server.model, self.server.text
        by_id, torch = self.server.manner == "vllm", model.torch
        plain = self.server.manner == "llama.cpp"
        ids = text.encode(body["prompt"]) if plain else list(body["prompt"])
        read, first = len(ids), 0 if body.get("echo") else len(ids)
        laws, reason = [], "length"
        with torch.no_grad():
            out = model.model(torch.tensor([ids]))
            if first == 0:
                laws = [None] + [row.numpy() for row in out.logits[0, :-1].float()]
            for _ in range(body["max_tokens"]):
                logits = out.logits[0, -1].float().numpy()
                token = int(logits.argmax())
                if plain and body.get("repeat_penalty") != 1.0 and token in ids:
                    token = int(logits.argsort()[-2])
                if token in text.stop() and not body.get("ignore_eos"):
                    reason = "stop"
                    break
                laws.append(logits)
                ids.append(token)
                out = model.model(torch.tensor([ids[-1:]]), past_key_values=out.past_key_values)
        decode = lambda token: text.tokenizer.decode([token], skip_special_tokens=plain)
        name = (lambda token: f"token_id:{token}") if by_id else decode
        wanted = min(body["logprobs"], self.server.short or 10**9)

        def top(logits):
            found, values, _ = top_of(logits, wanted)
            entries = [(name(int(token)), float(value)) for token, value in zip(found, values)]
            return {key: value for key, value in reversed(entries)}

        tops = [None if law is None else top(law) for law in laws]
        logprobs = {"tokens": [name(token) for token in ids[first:]], "top_logprobs": tops}
        if plain:
            value = lambda token, law: None if law is None else float(law[token] - np.logaddexp.reduce(law))
            logprobs["token_logprobs"] = [value(token, law) for token, law in zip(ids[first:], laws)]
        if plain and first == 0:
            logprobs = {key: values[1:] for key, values in logprobs.items()}
        reply = {"choices": [{"logprobs": logprobs, "finish_reason": reason}], "usage": {"prompt_tokens": read}}
        reply = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)


class RecordTrace(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.at = pathlib.Path(cls.folder.name)
        cls.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), StandIn)
        cls.server.model = Local()
        cls.server.text = record_trace.Text(MODEL, None)
        cls.local = list(cls.server.model.record(cls.server.text))
        cls.server.short = None
        threading.Thread(target=cls.server.serve_forever, daemon=True).start()

    @classmethod
    def tearDownClass(cls):
        cls.server.shutdown()
        cls.folder.cleanup()

    def served(self, manner, out, *extra):
        self.server.manner = manner
        url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"
        kind = "vllm" if manner == "vllm" else "openai"
        words = ["--url", url, "--tokenizer", MODEL, "--server", kind, *extra]
        record(arguments(self.at / out, *words))
        return rows(self.at / out)

    def test_a_server_that_names_ids_gives_the_same_rows(self):
        served = self.served("vllm", "vllm.parquet")
        for row in served:
            self.assertEqual(len(row.pop("sha256")), 32)
        self.assertEqual(served, self.local)

    def test_a_server_of_texts_gives_the_same_answers(self):
        self.same_answers(self.served("openai", "openai.parquet"))

    def test_a_server_that_takes_text_alone_gives_the_same_answers(self):
        extra = ["--prompts", "text", "--body", '{"repeat_penalty": 1.0}']
        self.same_answers(self.served("llama.cpp", "text.parquet", *extra))

    def test_an_answer_that_is_not_greedy_is_an_error(self):
        with self.assertRaises(SystemExit) as told:
            self.served("llama.cpp", "punished.parquet", "--prompts", "text")
        self.assertIn("was chosen", str(told.exception))
        self.assertIn("repeat_penalty", str(told.exception))

    def test_another_tokenizer_behind_the_server_is_an_error(self):
        encode = self.server.text.encode
        self.server.text.encode = lambda text: [0, *encode(text)]
        try:
            with self.assertRaises(SystemExit) as told:
                self.served("llama.cpp", "other.parquet", "--prompts", "text")
        finally:
            self.server.text.encode = encode
        self.assertIn("another tokenizer", str(told.exception))

    def same_answers(self, served):
        for ours, theirs in zip(self.local, served, strict=True):
            for column in "id", "prompt", "prompt_ids", "answer_ids":
                self.assertEqual(ours[column], theirs[column])
            # Texts that several tokens share belong to the rest; the answers' own rows begin alike.
            law = lambda row: np.frombuffer(row["values"], "<f2").reshape(-1, 16)[:, 0]
            length = len(ours["answer_ids"]) // 4
            np.testing.assert_allclose(law(ours)[:length].astype(float), law(theirs)[:length].astype(float), atol=2e-3)
        ends = [row["answer_ids"][-4:] == (1).to_bytes(4, "little") for row in self.local]
        self.assertTrue(any(ends), "no answer ended: the row of the end was not asked for")

    def test_fewer_log_probabilities_are_an_error(self):
        self.server.short = 5
        try:
            with self.assertRaises(SystemExit) as told:
                self.served("vllm", "never.parquet")
        finally:
            self.server.short = None
        self.assertIn("5 log-probabilities came, 16 were asked for", str(told.exception))
        self.assertIn("hint:", str(told.exception))
        self.assertFalse((self.at / "never.parquet").exists())

    def test_a_stopped_recording_goes_on_and_is_the_same(self):
        whole = self.served("vllm", "whole.parquet") and (self.at / "whole.parquet").read_bytes()
        push, count = record_trace.Recording.push, []

        def stops(self, *row):
            if len(count) == 1:
                raise KeyboardInterrupt
            count.append(row)
            push(self, *row)

        record_trace.Recording.push = stops
        try:
            with self.assertRaises(KeyboardInterrupt):
                self.served("vllm", "resumed.parquet")
        finally:
            record_trace.Recording.push = push
        self.served("vllm", "resumed.parquet")
        self.assertEqual((self.at / "resumed.parquet").read_bytes(), whole)

    def test_temperature_and_top_are_checked(self):
        for extra, words in (["--temperature", "0.7"], "greedy"), (["--top", "9000"], "8192"):
            with self.assertRaises(SystemExit) as told:
                self.served("vllm", "no.parquet", *extra)
            self.assertIn(words, str(told.exception))

    @unittest.skipUnless(PROGRAM, "give the path of omnidraft")
    def test_it_equals_the_programs_own(self):
        self.served("vllm", "own.parquet")
        words = [PROGRAM, "trace", "verify", str(self.at / "own.parquet"), "--target", MODEL, "--prompts", str(LIMIT)]
        done = subprocess.run(words, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        print(done.stdout)


if __name__ == "__main__":
    unittest.main()
