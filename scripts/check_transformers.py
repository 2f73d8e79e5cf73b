#!/usr/bin/env python3
"""Checks that Hugging Face transformers reads the shipped models as this project does: the same
token ids for 20 rendered prompts, and the same greedy continuation of each, token by token (f32). Of a folder
that `omnidraft import` made, transformers reads the GGUF file itself, tokenizer included.

    python3 -m venv ~/venv-hf && ~/venv-hf/bin/pip install torch transformers jinja2 gguf accelerate
    cargo build --release --locked
    ~/venv-hf/bin/python scripts/check_transformers.py                 # every folder of models/
    ~/venv-hf/bin/python scripts/check_transformers.py models/L --tokens 64
    ~/venv-hf/bin/python scripts/check_transformers.py runs/models/smollm2        # a GGUF file

Exit status 1 if anything differs, 2 if nothing could be compared.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoTokenizer

ROOT = pathlib.Path(__file__).resolve().parent.parent
STREAMS = ["mini-math", "mini-code", "mini-chat", "mini-news"]


def prompts(count):
    """The first prompts of each embedded test stream, in turn."""
    streams = []
    for name in STREAMS:
        lines = (ROOT / "datasets" / name / "test.jsonl").read_text().splitlines()
        streams.append([json.loads(line)["prompt"] for line in lines])
    return [prompt for group in zip(*streams) for prompt in group][:count]


def ours(binary, folder, prompt, tokens):
    command = [binary, "--no-progress", "generate", "--json", "--temperature", "0", "--target", folder]
    command += ["--max-tokens", str(tokens), "--prompt", prompt]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{folder}: {done.stderr.strip()}")
    answer = json.loads(done.stdout)[0]
    return answer["prompt_ids"], answer["target_ids"]


def theirs(model, ids, tokens):
    """Greedy tokens, stop token included, and the smallest lead of a token over the next best."""
    stop = model.generation_config.eos_token_id or model.config.eos_token_id
    stop = set(stop if isinstance(stop, list) else [stop])
    state, step, out, lead = None, torch.tensor([ids]), [], float("inf")
    while len(out) < tokens:
        result = model(step, past_key_values=state, use_cache=True)
        state, logits = result.past_key_values, result.logits[0, -1]
        best = logits.topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        out.append(best.indices[0].item())
        if out[-1] in stop:
            break
        step = torch.tensor([[out[-1]]])
    return out, lead


def check(binary, folder, texts, tokens):
    file = {"gguf_file": "model.gguf"} if (folder / "model.gguf").is_file() else {}
    tokenizer = AutoTokenizer.from_pretrained(folder, **file)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
    same_prompts = same_answers = generated = 0
    lead = float("inf")
    for number, text in enumerate(texts):
        if tokenizer.chat_template:
            message = [{"role": "user", "content": text}]
            rendered = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
            wanted = tokenizer(rendered, add_special_tokens=False)["input_ids"]
        else:
            wanted = tokenizer(text)["input_ids"]
        prompt_ids, answer = ours(binary, folder, text, tokens)
        if prompt_ids == wanted:
            same_prompts += 1
        else:
            show("prompt", number, wanted, prompt_ids)
        expected, margin = theirs(model, prompt_ids, tokens)
        generated += len(expected)
        lead = min(lead, margin)
        if answer == expected:
            same_answers += 1
        else:
            show("continuation", number, expected, answer)
    return [folder.name, model.config.model_type, len(texts), same_prompts, same_answers, generated, f"{lead:.1e}"]


def show(what, number, expected, found):
    at = next((i for i, (a, b) in enumerate(zip(expected, found)) if a != b), min(len(expected), len(found)))
    print(
        f"  {what} {number} differs at token {at}: transformers {expected[at:at + 5]}, omnidraft {found[at:at + 5]}",
        file=sys.stderr,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=pathlib.Path)
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--binary", type=pathlib.Path, default=ROOT / "target/release/omnidraft")
    options = parser.parse_args()
    if not options.binary.is_file():
        print(f"{options.binary}: no such program; build it, or name it with --binary", file=sys.stderr)
        sys.exit(2)
    shipped = sorted(path.parent for path in (ROOT / "models").glob("*/model.safetensors"))
    folders = options.folders or shipped
    texts = prompts(options.prompts)
    if not folders or not texts:
        print("no model folder or no prompt", file=sys.stderr)
        sys.exit(2)
    torch.manual_seed(0)
    with torch.inference_mode():
        rows = [check(options.binary, folder, texts, options.tokens) for folder in folders]
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, f32, greedy\n")
    print("| model | type | prompts | same prompt ids | same continuation | tokens | smallest lead of a logit |")
    print("|---|---|--:|--:|--:|--:|--:|")
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    if any(row[2] != row[3] or row[2] != row[4] for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
