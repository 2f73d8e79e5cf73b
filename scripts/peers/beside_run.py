#!/usr/bin/env python3
"""Answers the streamed prompts of a finished run with every method of transformers or llama.cpp, and sets them beside
the run's arms.

    OMNIDRAFT_PYTHON=VENV/bin/python omnidraft run experiments/real/pair-torch.toml --data-dir DATA --out runs/pair
    VENV/bin/python scripts/peers/beside_run.py runs/pair --target runs/models/qwen --drafter SmolLM2=runs/models/smollm2 \\
        --data-dir DATA --dtype bfloat16 --device cuda
    VENV/bin/python scripts/peers/beside_run.py runs/pair --peer llama.cpp --target runs/models/qwen \\
        --drafter 0.5B=runs/models/qwen05 --data-dir DATA
    VENV/bin/python scripts/peers/beside_run.py runs/pair --table       # the table again, from its rows

Target, prompts, longest answer, temperature and threads are those of the run; both models of transformers are on the device.
A prompt that the run shortened, as it does most news, is shortened here in the same way (shorten.py), by the target's
`omnidraft.json`. A prompt whose number of tokens is not that of the run's row is an error, before anything is timed.
llama.cpp is its own server, as setup.sh compiles it; it reads the models' GGUF files, and leaves out drafters of another
vocabulary than the target's, for which it does not draft. Seconds are those of a whole answer, prompt and learning
included. Writes RUN/peers.jsonl, a line for each task, seed and method with the seconds of each prompt, RUN/peers.json,
and RUN/peers.md. Rows of other peers, tasks and seeds stay, and those that are made again until all of their task and
seed are there. Intervals resample prompts.
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
import shorten

HERE = pathlib.Path(__file__).resolve().parent
PLAIN = "autoregressive"
RESAMPLED = 2000
# Settings of the run that a peer is given, once for all prompts.
SETTINGS = ["max_new_tokens", "temperature", "threads"]
# The program's limit of a prompt, where neither the model's folder nor half of its context has a lower one.
LONGEST_PROMPT = 2048
# A message by which the words of a template are found.
PROBE = "omnidraft-prompt-probe"


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
    peers = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "omnidraft" / "peers"
    parser.add_argument("--llama-server", type=pathlib.Path, default=peers / "llama-server", help="the program that setup.sh compiles")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, help="default: as many as the run's `decode.threads`")
    parser.add_argument("--table", action="store_true", help="rebuild peers.md from the rows, then stop")
    args = parser.parse_args()
    if not (args.table or args.target):
        parser.error("--target is missing")
    return args


def streamed(run, wanted):
    """Of each wanted task and seed: of each arm, its rows of the stream in order, of a cell that was stopped those of the
    prompts that every arm has answered. And the folder of the cell, with the target."""
    found, places = collections.defaultdict(lambda: collections.defaultdict(dict)), collections.defaultdict(set)
    for folder in sorted(run.glob("stream/*")):
        for row in rows_of(folder):
            cell = row["task"], row["seed"]
            if row["split"] == "train" and wanted(*cell):
                found[cell][row["arm"]][row["prompt_index"]] = row
                places[cell].add((folder, row["target"], row["segment"]))
    if not found:
        sys.exit(f"{run}: no streamed prompt of these tasks and seeds\nhint: the folder of a run has stream/CELL/prompts.parquet")
    for (task, seed), of_cell in places.items():
        # Their prompts have the same numbers, so that one's rows would stand for the other's.
        if len(of_cell) > 1:
            sys.exit(f"{run}: {task}, seed {seed}, is streamed more than once: in several segments, by several targets, or in several cells")
    answered = {cell: sorted(set.intersection(*map(set, arms.values()))) for cell, arms in found.items()}
    rows = {cell: {arm: [rows[i] for i in answered[cell]] for arm, rows in arms.items()} for cell, arms in found.items()}
    return rows, {cell: (folder, target) for cell, ((folder, target, _),) in places.items()}


def whole(first, value):
    """An arm of a published manifest with what it has in common with the first one."""
    if not (isinstance(value, dict) and list(value) == ["same but"] and isinstance(first, dict)):
        return value
    return first | {key: whole(first.get(key), other) for key, other in value["same but"].items()}


def configured(folder):
    """The configuration of a cell, and its arms."""
    config = json.loads((folder / "manifest.json").read_text())["config"]
    return config, [whole(config["arms"][0], arm) for arm in config["arms"]]


def settings(run, places):
    """How these cells decoded plainly, which has to be the same in all of them."""
    found = []
    for folder, target in places.values():
        _, arms = configured(folder)
        plain = next((arm for arm in arms if arm["name"] == PLAIN), None)
        if plain is None:
            sys.exit(f"{folder}: no arm {PLAIN}")
        found.append({"target": target} | {key: plain["decode"][key] for key in SETTINGS})
    for key in found[0]:
        values = sorted({one[key] for one in found})
        if len(values) > 1:
            sys.exit(f"{run}: cells differ in {key}: {', '.join(map(str, values))}\nhint: name one with --task and --seed")
    return found[0]


def rows_of(cell):
    file, journal = cell / "prompts.parquet", cell / "prompts.jsonl"
    if file.exists():
        import pyarrow.parquet as parquet

        return parquet.read_table(file).to_pylist()
    return [json.loads(line) for line in journal.open()] if journal.exists() else []


def longest_prompt(model, arms):
    """The most tokens that the run let a prompt of this model have; None if its folder does not say."""
    def content(name):
        file = model / name
        return json.loads(file.read_text()) if file.is_file() else {}

    options, positions = content("omnidraft.json"), content("config.json").get("max_position_embeddings")
    # The run then read names of special tokens in a prompt as text. transformers does not.
    if options.get("prompt_markers") == "text":
        return None
    most = options.get("max_prompt_tokens")
    if most is None:
        if positions is None:
            return None
        most = min(max(positions // 2, 1), LONGEST_PROMPT)
    decodes = [arm["decode"] for arm in arms if arm["decode"].get("context")]
    rooms = [max(decode["context"] - decode["max_new_tokens"] - decode["k"], 1) for decode in decodes]
    return min([most, *rooms])


def reading(place, model):
    """How a cell read its prompts: the messages before each, variables of the template, and the most tokens."""
    folder, target = place
    config, arms = configured(folder)
    asked = config["models"]["targets"][target]
    asked = asked if isinstance(asked, dict) else {}
    before = [{"role": "system", "content": asked["system"]}] if "system" in asked else []
    return before, asked.get("chat_template_kwargs", {}), longest_prompt(model, arms)


def asked(tokenizer, folder, task, rows, how):
    """The prompts as token ids, as the run gave them to the target."""
    before, variables, most = how

    def templated(prompt, **form):
        messages = [*before, {"role": "user", "content": prompt}]
        return tokenizer.apply_chat_template(messages, add_generation_prompt=True, **form, **variables)

    def ids_of(prompt):
        return templated(prompt, return_dict=True)["input_ids"]

    def alone():
        words = templated(PROBE, tokenize=False).split(PROBE)
        if len(words) != 2:
            raise ValueError(f"the template shows a message {len(words) - 1} times")
        return len(tokenizer("".join(words), add_special_tokens=False)["input_ids"])

    texts = {}
    with (folder / task / "train.jsonl").open() as file:
        for record in map(json.loads, file):
            texts[record["id"]] = record["prompt"]
    found = []
    for row in rows:
        text = texts[row["prompt_id"]]
        ids = ids_of(text)
        if most is not None and len(ids) > most:
            try:
                ids = ids_of(shorten.shortened(text, most, lambda part: len(ids_of(part)), alone))
            except ValueError as error:
                sys.exit(f"{row['prompt_id']}: {error}")
        if len(ids) != row["prompt_tokens"]:
            said = f"{row['prompt_id']}: the run read {row['prompt_tokens']} tokens, transformers makes {len(ids)}"
            sys.exit(said + "\nhint: data, tokenizer, template and omnidraft.json have to be those of the run")
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
        command += ["--llama-server", args.llama_server] if args.peer == "llama.cpp" else []
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


def write(file, text):
    """Writes a file as a whole."""
    part = file.with_name(file.name + ".part")
    part.write_text(text)
    part.replace(file)


def table(args):
    rows = read(args.run / "peers.jsonl")
    made = {(row["task"], row["seed"]) for row in rows}
    cells, _ = streamed(args.run, lambda *cell: cell in made)
    calls = json.loads((args.run / "peers.json").read_text())
    lines = ["# Streamed prompts in omnidraft and in its peers", ""]
    for call in calls:
        place = f"{call['machine'].get('Model name', 'unknown processor')}, {call['gpu']}"
        packages = {"transformers": ["transformers", "torch"], "llama.cpp": ["llama.cpp"]}[call["peer"]]
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
    if args.peer == "llama.cpp" and not args.llama_server.exists():
        sys.exit(f"{args.llama_server} is missing\nhint: scripts/peers/setup.sh, or name the program with --llama-server")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import transformers

    cells, places = streamed(
        args.run, lambda task, seed: (not args.task or task in args.task) and (not args.seed or seed in args.seed)
    )
    decode = settings(args.run, places)
    args.threads = args.threads or decode["threads"]
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
    if args.peer == "llama.cpp":
        call["versions"] |= {"llama.cpp": manifest.llama_server(args.llama_server)}
    tokenizer = transformers.AutoTokenizer.from_pretrained(args.target)
    # All of them before anything is written: a prompt that the tokenizer takes apart in another way ends this.
    first = {cell: arms[PLAIN][: args.prompts] for cell, arms in cells.items()}
    prompts = {
        (task, seed): asked(tokenizer, args.data_dir, task, rows, reading(places[task, seed], args.target))
        for (task, seed), rows in first.items()
    }
    stated, file = args.run / "peers.json", args.run / "peers.jsonl"
    calls, before = json.loads(stated.read_text()) if stated.exists() else [], read(file)
    state = lambda found: write(stated, json.dumps(found, indent=2) + "\n")
    made, done = [], set()

    def keep(rows):
        """Writes rows of this call beside those that were there, but those of cells that are done. Whenever it is
        interrupted, no row is without its call."""
        old = [row for row in before if row["engine"] != args.peer or (row["task"], row["seed"]) not in done]
        # Rows of before they said so may be of any call of their engine.
        still = {row.get("call", row["engine"]) for row in old}
        state(calls + [call])
        write(file, "".join(json.dumps(row) + "\n" for row in old + rows))
        state([one for one in calls if {one["started"], one["peer"]} & still] + [call])

    for (task, seed), ids in prompts.items():
        own = []
        had = any((row["engine"], row["task"], row["seed"]) == (args.peer, task, seed) for row in before)
        plain = [[int(i) for i in row["answer"].split()] for row in first[task, seed]]
        for row in answered(args, decode, ids):
            answers = row.pop("answers")
            row |= {"tokens_each": list(map(len, answers)), "equal": sum(a == b for a, b in zip(answers, plain))}
            own.append({"task": task, "seed": seed, "engine": args.peer, "call": now} | row)
            rate = row["tokens"] / row["seconds"]
            print(f"{task}, seed {seed}, {row['method']}: {rate:.1f} tokens/s", file=sys.stderr, flush=True)
            # A part is better than nothing, and worse than all methods of an earlier call.
            if not had:
                keep(made + own)
        made += own
        done.add((task, seed))
        keep(made)
    table(args)


if __name__ == "__main__":
    main()
