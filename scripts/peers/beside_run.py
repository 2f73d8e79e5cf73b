#!/usr/bin/env python3
"""Answers the streamed prompts of a finished run with every method of transformers or llama.cpp, and sets them beside
the run's arms.

    OMNIDRAFT_PYTHON=VENV/bin/python omnidraft run experiments/real/pair-torch.toml --data-dir DATA --out runs/pair
    VENV/bin/python scripts/peers/beside_run.py runs/pair --target runs/models/qwen --drafter SmolLM2=runs/models/smollm2 \\
        --data-dir DATA --dtype bfloat16 --device cuda
    VENV/bin/python scripts/peers/beside_run.py runs/pair --peer llama.cpp --target runs/models/qwen --data-dir DATA
    VENV/bin/python scripts/peers/beside_run.py runs/pair --table       # the table again, from its rows

Target, prompts, longest answer and temperature are those of the run; both models of transformers are on the device.
llama.cpp decodes the target's GGUF file, plainly: its Python package has no drafting by another model, and its prompt
lookup takes seconds a token where the vocabulary is large. Seconds are those of a whole answer, prompt and learning
included. Writes RUN/peers.jsonl, a line for each task, seed and method with the seconds of each prompt, RUN/peers.json,
and RUN/peers.md. Rows of other peers, tasks and seeds stay. Intervals resample prompts.
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
    parser.add_argument("--peer", choices=["transformers", "llama.cpp"], default="transformers")
    parser.add_argument("--task", nargs="+", help="default: all of the run")
    parser.add_argument("--seed", type=int, nargs="+", help="default: all of the run")
    parser.add_argument("--prompts", type=int, help="the first ones of each task; default: all")
    parser.add_argument("-k", type=int, default=4, help="draft tokens a round, where transformers is told")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--table", action="store_true", help="rebuild peers.md from the rows, then stop")
    args = parser.parse_args()
    if not (args.table or args.target):
        parser.error("--target is missing")
    return args


def streamed(run):
    """Of each task and seed: of each arm, its rows of the stream in order. Of a cell that was stopped, the prompts that
    every arm has answered."""
    found = collections.defaultdict(lambda: collections.defaultdict(dict))
    for cell in sorted(run.glob("stream/*")):
        for row in rows_of(cell):
            if row["split"] == "train":
                found[row["task"], row["seed"]][row["arm"]][row["prompt_index"]] = row
    if not found:
        sys.exit(f"{run}: no streamed prompt\nhint: the folder of a run has stream/CELL/prompts.parquet")
    answered = {cell: sorted(set.intersection(*map(set, arms.values()))) for cell, arms in found.items()}
    return {cell: {arm: [rows[i] for i in answered[cell]] for arm, rows in arms.items()} for cell, arms in found.items()}


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
        command = [sys.executable, HERE / "methods_peer.py", args.peer, "--target", args.target, "--prompts", file.name]
        command += ["--max-tokens", decode["max_new_tokens"], "-k", args.k, "--temperature", decode["temperature"]]
        command += ["--threads", args.threads, "--dtype", args.dtype, "--device", args.device]
        command += ["--no-lookup"] if args.peer == "llama.cpp" else []
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


def read(file):
    return [json.loads(line) for line in file.open()] if file.exists() else []


def table(args):
    rows, cells = read(args.run / "peers.jsonl"), streamed(args.run)
    calls = json.loads((args.run / "peers.json").read_text())
    lines = ["# Streamed prompts in omnidraft and in its peers", ""]
    for call in calls:
        place = f"{call['machine'].get('Model name', 'unknown processor')}, {call['gpu']}"
        packages = {"transformers": ["transformers", "torch"], "llama.cpp": ["llama-cpp-python"]}[call["peer"]]
        versions = ", ".join(f"{name} {call['versions'][name]}" for name in packages)
        stored = "the blocks of the file" if call["peer"] == "llama.cpp" else f"{call['dtype']} on {call['device']}"
        lines += [f"- `{call['command']}`; {place}; {versions}; weights: {stored}."]
    lines += [
        "",
        "Seconds are those of prompt, answer and learning. Each method of a peer is compared with plain decoding of the"
        " prompts that it answered; brackets hold 95% of resampled prompts.",
        "",
        "| task | prompts | engine | method | drafter | tokens/s | over plain omnidraft | over its own plain | answers as plain |",
        "|:--|--:|:--|:--|:--|--:|--:|--:|--:|",
    ]
    methods, asked = collections.defaultdict(list), {}
    for row in rows:
        methods[row["task"], row["engine"], row["method"], row["drafter"] or ""].append(row)
        cell = row["task"], row["seed"]
        asked[cell] = max(asked.get(cell, 0), len(row["each"]))

    def ours(task, arm, counts):
        """Rows of an arm, of the first prompts of each seed."""
        return [row for seed, count in counts.items() for row in cells[task, seed][arm][:count]]

    def pairs(own):
        return [(row["new_tokens"], row["seconds"] + row["prefill_s"] + row["learn_s"]) for row in own]

    for task in dict.fromkeys(task for task, _ in cells):
        counts = {seed: count for (of, seed), count in asked.items() if of == task}
        if not counts:
            continue
        found, own = [], pairs(ours(task, PLAIN, counts))
        plain = ours(task, PLAIN, counts)
        for arm in next(arms for (of, _), arms in cells.items() if of == task):
            rows_of_arm = ours(task, arm, counts)
            equal = sum(row["answer"] == other["answer"] for row, other in zip(rows_of_arm, plain))
            found.append(("omnidraft", arm, "", pairs(rows_of_arm), own, own, equal))
        for (of, engine, method, drafter), parts in methods.items():
            if of != task:
                continue
            beside = pairs(ours(task, PLAIN, {part["seed"]: len(part["each"]) for part in parts}))
            each = [pair for part in parts for pair in zip(part["tokens_each"], part["each"])]
            base = methods.get((task, engine, "plain", ""), [])
            base = [pair for part in base for pair in zip(part["tokens_each"], part["each"])]
            found.append((engine, method, drafter, each, beside, base, sum(part["equal"] for part in parts)))
        for engine, method, drafter, each, beside, base, equal in found:
            over = [speeds(each, plain) if len(plain) == len(each) else None for plain in (beside, base)]
            columns = " | ".join("{1:.2f} ({2:.2f} to {3:.2f})".format(*it) if it else "-" for it in over)
            rate = sum(tokens for tokens, _ in each) / sum(seconds for _, seconds in each)
            lines.append(f"| {task} | {len(each)} | {engine} | {method} | {drafter} | {rate:.1f} | {columns} | {equal} |")
    text = "\n".join(lines) + "\n"
    (args.run / "peers.md").write_text(text)
    print(text)


def gpu():
    said = manifest.output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader")
    return said.splitlines()[0] if said else "no GPU"


def main():
    args = arguments()
    if args.table:
        return table(args)
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    manifests = [json.loads(file.read_text()) for file in sorted(args.run.glob("stream/*/manifest.json"))]
    decode = manifests[0]["config"]["arms"][0]["decode"]
    options = [args.run.name, "--peer", args.peer, "--target", manifest.inside(args.target)]
    for name, folder in args.drafter:
        options += ["--drafter", f"{name}={manifest.inside(folder)}"]
    options += ["--task", *args.task] if args.task else []
    options += ["--seed", *args.seed] if args.seed else []
    options += ["--prompts", args.prompts] if args.prompts else []
    options += ["-k", args.k, "--dtype", args.dtype, "--device", args.device, "--threads", args.threads]
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    call = {"started": now, "command": " ".join(map(str, ["scripts/peers/beside_run.py", *options])), "peer": args.peer}
    call |= {"machine": manifest.machine(), "gpu": gpu(), "device": args.device, "dtype": args.dtype}
    call |= {"versions": manifest.packages(sys.executable)}
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.target)
    cells = {
        cell: arms
        for cell, arms in streamed(args.run).items()
        if (not args.task or cell[0] in args.task) and (not args.seed or cell[1] in args.seed)
    }
    stated, file = args.run / "peers.json", args.run / "peers.jsonl"
    kept = [row for row in read(file) if row["engine"] != args.peer or (row["task"], row["seed"]) not in cells]
    calls = json.loads(stated.read_text()) if stated.exists() else []
    still = {row["engine"] for row in kept}
    stated.write_text(json.dumps([old for old in calls if old["peer"] in still] + [call], indent=2) + "\n")
    with file.open("w") as out:
        out.writelines(json.dumps(row) + "\n" for row in kept)
        for (task, seed), arms in cells.items():
            first = arms[PLAIN][: args.prompts]
            plain = [[int(i) for i in row["answer"].split()] for row in first]
            for row in answered(args, decode, asked(tokenizer, args.data_dir, task, first)):
                answers = row.pop("answers")
                row |= {"tokens_each": list(map(len, answers)), "equal": sum(a == b for a, b in zip(answers, plain))}
                out.write(json.dumps({"task": task, "seed": seed, "engine": args.peer} | row) + "\n")
                out.flush()
                rate = row["tokens"] / row["seconds"]
                print(f"{task}, seed {seed}, {row['method']}: {rate:.1f} tokens/s", file=sys.stderr, flush=True)
    table(args)


if __name__ == "__main__":
    main()
