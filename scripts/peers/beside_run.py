#!/usr/bin/env python3
"""Answers the streamed prompts of a finished run with every method of transformers, and sets both beside each other.

    OMNIDRAFT_PYTHON=VENV/bin/python omnidraft run experiments/real/pair-torch.toml --data-dir DATA --out runs/pair
    VENV/bin/python scripts/peers/beside_run.py runs/pair --target runs/models/qwen --drafter SmolLM2=runs/models/smollm2 \\
        --data-dir DATA --dtype bfloat16 --device cuda
    VENV/bin/python scripts/peers/beside_run.py runs/pair --table       # the table again, from its rows

Target, prompts, longest answer and temperature are those of the run; both models of transformers are on the device.
Seconds are those of a whole answer, prompt and learning included. Writes RUN/transformers.jsonl, a line for each task
and method with the seconds of each prompt, and RUN/transformers.md. Intervals resample prompts.
"""

import argparse
import collections
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

import manifest

HERE = pathlib.Path(__file__).resolve().parent
PLAIN = "autoregressive"
RESAMPLED = 2000


def arguments():
    def named(text):
        name, _, folder = text.rpartition("=")
        folder = pathlib.Path(folder)
        return name or folder.name, folder

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=pathlib.Path, help="folder of a run with arm `autoregressive`")
    parser.add_argument("--target", type=pathlib.Path, help="model folder of the run's target")
    parser.add_argument("--drafter", type=named, action="append", default=[], metavar="[NAME=]DIR")
    parser.add_argument("--data-dir", type=pathlib.Path, default=HERE.parents[1] / "datasets")
    parser.add_argument("--task", nargs="+", help="default: all of the run")
    parser.add_argument("--prompts", type=int, help="the first ones of each task; default: all")
    parser.add_argument("-k", type=int, default=4, help="draft tokens a round, where transformers is told")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="rebuild transformers.md from the rows, then stop")
    args = parser.parse_args()
    if not (args.table or args.target):
        parser.error("--target is missing")
    return args


def streamed(run):
    """Of each task: of each arm, its rows of the stream in order. Of a cell that was stopped, the prompts that every arm has
    answered."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    for cell in sorted(run.glob("stream/*")):
        for row in rows_of(cell):
            if row["split"] == "train":
                found[row["task"]][row["arm"]][row["prompt_index"]] = row
    if not found:
        sys.exit(f"{run}: no streamed prompt\nhint: the folder of a run has stream/CELL/prompts.parquet")
    answered = {task: sorted(set.intersection(*map(set, arms.values()))) for task, arms in found.items()}
    return {task: {arm: [rows[i] for i in answered[task]] for arm, rows in arms.items()} for task, arms in found.items()}


def rows_of(cell):
    file, journal = cell / "prompts.parquet", cell / "prompts.jsonl"
    if file.exists():
        import pyarrow.parquet as parquet

        return parquet.read_table(file).to_pylist()
    return [json.loads(line) for line in journal.open()] if journal.exists() else []


def asked(tokenizer, folder, task, rows):
    """The prompts as token ids, as the run gave them to the target."""
    texts = {}
    with (folder / task / "train.jsonl").open() as file:
        for record in map(json.loads, file):
            texts[record["id"]] = record["prompt"]
    found = []
    for row in rows:
        message = [{"role": "user", "content": texts[row["prompt_id"]]}]
        ids = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)["input_ids"]
        if len(ids) != row["prompt_tokens"]:
            sys.exit(f"{row['prompt_id']}: the run read {row['prompt_tokens']} tokens, transformers makes {len(ids)}")
        found.append(ids)
    return found


def answered(args, decode, prompts):
    """A row a method, as it ends."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(prompts, file)
        file.flush()
        command = [sys.executable, HERE / "methods_peer.py", "transformers", "--target", args.target, "--prompts", file.name]
        command += ["--max-tokens", decode["max_new_tokens"], "-k", args.k, "--temperature", decode["temperature"]]
        command += ["--threads", args.threads, "--dtype", args.dtype, "--device", args.device]
        for name, folder in args.drafter:
            command += ["--drafter", f"{name}={folder}"]
        with subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                yield json.loads(line)
        if process.returncode:
            sys.exit(f"methods_peer.py: exit {process.returncode}")


def speeds(rows, plain, seed=0):
    """Tokens a second, and the quotient over `plain` with its interval: both are (tokens, seconds) of the same prompts."""
    def rate(pairs):
        return sum(tokens for tokens, _ in pairs) / sum(seconds for _, seconds in pairs)

    draw, count = random.Random(seed), len(rows)
    drawn = []
    for _ in range(RESAMPLED):
        chosen = [draw.randrange(count) for _ in range(count)]
        drawn.append(rate([rows[i] for i in chosen]) / rate([plain[i] for i in chosen]))
    drawn.sort()
    return rate(rows), rate(rows) / rate(plain), drawn[int(0.025 * RESAMPLED)], drawn[int(0.975 * RESAMPLED) - 1]


def table(args):
    file = args.run / "transformers.jsonl"
    rows = [json.loads(line) for line in file.open()] if file.exists() else []
    tasks = streamed(args.run)
    stated = json.loads((args.run / "transformers.json").read_text())
    place = f"{stated['machine'].get('Model name', 'unknown processor')}, {stated['gpu']}"
    versions = f"transformers {stated['versions']['transformers']}, torch {stated['versions']['torch']}"
    theirs = f"Both models of transformers are on {stated['device']} in {stated['dtype']}." if rows else "No method of transformers was timed."
    lines = ["# Streamed prompts in omnidraft and in transformers", ""]
    lines += [
        f"`{stated['command']}`; {place}, {versions}. {theirs}"
        " Seconds are those of prompt, answer and learning; brackets hold 95% of resampled prompts.",
        "",
        "| task | prompts | engine | method | drafter | tokens/s | over plain omnidraft | over plain transformers | answers as plain |",
        "|:--|--:|:--|:--|:--|--:|--:|--:|--:|",
    ]
    for task, arms in tasks.items():
        theirs = [row for row in rows if row["task"] == task]
        found, prompts = [], len(theirs[0]["each"]) if theirs else None
        for arm, own in arms.items():
            own = own[:prompts]
            pairs = [(row["new_tokens"], row["seconds"] + row["prefill_s"] + row["learn_s"]) for row in own]
            equal = sum(row["answer"] == plain["answer"] for row, plain in zip(own, arms[PLAIN]))
            found.append(("omnidraft", arm, "", pairs, equal))
        for row in theirs:
            pairs = list(zip(row["tokens_each"], row["each"]))
            found.append(("transformers", row["method"], row["drafter"] or "", pairs, row["equal"]))
        plain = {engine: pairs for engine, method, _, pairs, _ in found if method in (PLAIN, "plain")}
        bases = [plain[engine] if engine in plain else None for engine in ("omnidraft", "transformers")]
        for engine, method, drafter, pairs, equal in found:
            over = [speeds(pairs, base) if base else None for base in bases]
            cells = " | ".join("{1:.2f} ({2:.2f} to {3:.2f})".format(*it) if it else "-" for it in over)
            lines.append(f"| {task} | {len(pairs)} | {engine} | {method} | {drafter} | {over[0][0]:.1f} | {cells} | {equal} |")
    text = "\n".join(lines) + "\n"
    (args.run / "transformers.md").write_text(text)
    print(text)


def gpu():
    said = manifest.output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return said.splitlines()[0] if said else "no GPU"


def main():
    args = arguments()
    if args.table:
        return table(args)
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    manifests = [json.loads(file.read_text()) for file in sorted(args.run.glob("stream/*/manifest.json"))]
    decode = manifests[0]["config"]["arms"][0]["decode"]
    options = [args.run.name, "--target", manifest.inside(args.target)]
    for name, folder in args.drafter:
        options += ["--drafter", f"{name}={manifest.inside(folder)}"]
    options += ["--task", *args.task] if args.task else []
    options += ["--prompts", args.prompts] if args.prompts else []
    options += ["-k", args.k, "--dtype", args.dtype, "--device", args.device, "--threads", args.threads]
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    stated = {"started": now, "command": " ".join(map(str, ["scripts/peers/beside_run.py", *options]))}
    stated |= {"machine": manifest.machine(), "gpu": gpu(), "device": args.device, "dtype": args.dtype}
    stated |= {"versions": {"transformers": transformers.__version__, "torch": torch.__version__}}
    (args.run / "transformers.json").write_text(json.dumps(stated, indent=2) + "\n")
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.target)
    with (args.run / "transformers.jsonl").open("w") as file:
        for task, arms in streamed(args.run).items():
            if args.task and task not in args.task:
                continue
            first = arms[PLAIN][: args.prompts]
            plain = [[int(i) for i in row["answer"].split()] for row in first]
            for row in answered(args, decode, asked(tokenizer, args.data_dir, task, first)):
                answers = row.pop("answers")
                row |= {"tokens_each": list(map(len, answers)), "equal": sum(a == b for a, b in zip(answers, plain))}
                file.write(json.dumps({"task": task} | row) + "\n")
                file.flush()
                print(f"{task}, {row['method']}: {row['tokens'] / row['seconds']:.1f} tokens/s", file=sys.stderr, flush=True)
    table(args)


if __name__ == "__main__":
    main()
