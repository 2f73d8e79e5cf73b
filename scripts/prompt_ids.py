#!/usr/bin/env python3
"""The ids that transformers feeds a model, for prompts in the model's chat template.

    scripts/prompt_ids.py FOLDER PROMPTS.jsonl [--limit N]

FOLDER has tokenizer.json and tokenizer_config.json; every line of PROMPTS.jsonl has a `prompt`. Writes
FOLDER/prompt_ids.jsonl, a line {"prompt": .., "ids": [..]} a prompt: `apply_chat_template` of one user message with
the generation prompt, or the ids of the plain text where the tokenizer has no template.

    OMNIDRAFT_PROMPT_IDS=PARENT cargo test --release -p models --test all prompt_ids -- --nocapture

compares every folder under PARENT that has such a file. `--make TOKENIZER --config CONFIG.json` fills FOLDER first,
from a tokenizer's folder and a model's configuration, `--template NAME` with one of several templates, `none` for
plain text.
"""

import argparse
import json
import pathlib
import shutil

from transformers import AutoTokenizer


def fill(folder, tokenizer, config, template):
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(tokenizer / "tokenizer.json", folder / "tokenizer.json")
    shutil.copyfile(config, folder / "config.json")
    settings = json.loads((tokenizer / "tokenizer_config.json").read_text())
    if template == "none":
        settings.pop("chat_template", None)
    elif template is not None:
        named = {entry["name"]: entry["template"] for entry in settings["chat_template"]}
        settings["chat_template"] = named[template]
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))


def ids_of(tokenizer, prompt):
    if not tokenizer.chat_template:
        return tokenizer(prompt)["input_ids"]
    message = [{"role": "user", "content": prompt}]
    ids = tokenizer.apply_chat_template(message, add_generation_prompt=True)
    return ids if isinstance(ids, list) else ids["input_ids"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("prompts", type=pathlib.Path, nargs="+")
    parser.add_argument("--limit", type=int, help="prompts of every file, evenly spread")
    parser.add_argument("--make", type=pathlib.Path, metavar="TOKENIZER")
    parser.add_argument("--config", type=pathlib.Path)
    parser.add_argument("--template")
    args = parser.parse_args()
    if args.make:
        fill(args.folder, args.make, args.config, args.template)
    tokenizer = AutoTokenizer.from_pretrained(args.folder)
    with open(args.folder / "prompt_ids.jsonl", "w") as out:
        for path in args.prompts:
            prompts = [json.loads(line)["prompt"] for line in path.open()]
            step = max(1, len(prompts) // args.limit) if args.limit else 1
            for prompt in prompts[::step][: args.limit]:
                out.write(json.dumps({"prompt": prompt, "ids": ids_of(tokenizer, prompt)}) + "\n")


if __name__ == "__main__":
    main()
