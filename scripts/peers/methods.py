#!/usr/bin/env python3
"""Times whole answers, prompt included, of `omnidraft` and of its peers: the same target, the same drafter, the
same prompts, one interleaved run.

    cargo build --release --locked
    scripts/peers/setup.sh                                  # once: llama.cpp and transformers
    python3 scripts/peers/methods.py --quick                # does it work? a minute
    python3 scripts/peers/methods.py --task gsm8k --data-dir DATA
    python3 scripts/peers/methods.py --temperature 0.7      # sampled: transformers uses TLI then
    python3 scripts/peers/methods.py --learn 500            # and a drafter that learnt from so many training prompts
    python3 scripts/peers/methods.py --target runs/models/smollm2 --weights int8 --max-tokens 128 --learn 150 \
        --task gsm8k --data-dir DATA --out results/peers-real        # a GGUF file, as experiments/models/real.toml gets it
    python3 scripts/peers/methods.py --target runs/models/qwen --drafter SmolLM2=runs/models/smollm2 --weights int8 \
        --dtype bfloat16 --max-tokens 64 --prompts 6 --rounds 3 --task gsm8k --data-dir DATA --out results/peers-pair

Target and drafter get inner columns that change no output and cost what others cost, as in
experiments/models/zoo.toml; every engine reads the same padded files. A target that is a GGUF file stays as it is, and
so does its drafter: llama.cpp reads the file's own blocks, transformers what they unpack to, in `--dtype`, and
`omnidraft` packs them as `--weights` says. llama.cpp takes part where the target is a GGUF file, or a Llama with a
byte-level tokenizer. Writes rows.jsonl (a line a method, round and engine), manifest.json and table.md.
"""

import argparse
import collections
import datetime
import hashlib
import json
import os
import pathlib
import random
import shutil
import statistics
import sys
import tempfile

import manifest
from engines import Bench, Failed
from report import read_rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
ENGINES = ["ours", "transformers", "llama.cpp"]
PLAIN = "plain"
# What `omnidraft import` calls the weights of its folders.
GGUF = "model.gguf"


def arguments():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)

    def named(text):
        name, _, folder = text.rpartition("=")
        folder = pathlib.Path(folder)
        return name or folder.name, folder

    parser.add_argument("--target", type=pathlib.Path, default=ROOT / "models" / "L")
    parser.add_argument("--drafter", type=named, action="append", metavar="[NAME=]DIR", help="default: models/D; repeatable")
    parser.add_argument("--target-columns", type=int, default=12288, help="inner columns that are added to every MLP")
    parser.add_argument("--drafter-columns", type=int, default=3072)
    parser.add_argument("--learn", type=int, default=0, metavar="PROMPTS", help="adds the first drafter, behind a stream of so many")
    parser.add_argument("--task", default="mini-math")
    parser.add_argument("--data-dir", type=pathlib.Path, help="where the task is, unless it is embedded")
    parser.add_argument("--prompts", type=int, default=25, help="held-out ones")
    parser.add_argument("--warm", type=int, default=10, help="prompts before them, for what adapts lengths; not counted")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("-k", type=int, default=4, help="draft tokens a round")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--weights", default="f32", help="how omnidraft stores weights")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="what transformers computes in")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "results" / "peers-methods")
    parser.add_argument("--quick", action="store_true", help="three prompts, one round, nothing kept")
    parser.add_argument("--table", action="store_true", help="rebuild table.md from the rows in --out, then stop")
    parser.add_argument("--binary", type=pathlib.Path, default=target / "release" / "omnidraft")
    parser.add_argument("--peers", type=pathlib.Path, default=CACHE / "omnidraft" / "peers", help="the folder given to setup.sh")
    args = parser.parse_args()
    args.drafter = args.drafter or [("D", ROOT / "models" / "D")]
    if args.quick:
        args.prompts, args.rounds, args.learn = 3, 1, min(args.learn, 20)
    return args


def say(text):
    print(text, file=sys.stderr, flush=True)


def digest(folder):
    """Of the weights: other ones under the same name are another model."""
    file = folder / (GGUF if (folder / GGUF).is_file() else "model.safetensors")
    return hashlib.sha256(file.read_bytes()).hexdigest()[:8]


def copy_texts(folder, out):
    """All of a model folder but its weights."""
    out.mkdir(parents=True, exist_ok=True)
    for file in folder.iterdir():
        if file.suffix in {".json", ".jinja"}:
            shutil.copy(file, out)


def padded(folder, columns, models):
    """A copy with more inner columns in every MLP, whose outputs are multiplied by zero."""
    out = models / f"{folder.name}-{columns}-{digest(folder)}"
    if (out / "model.safetensors").exists():
        return out
    config = json.loads((folder / "config.json").read_text())
    inner = config["intermediate_size"]
    config["intermediate_size"] = inner + columns
    data = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), memoryview(data)[8 + size :]
    parts, entries, at = [], {}, 0
    for name, entry in header.items():
        if name == "__metadata__":
            entries[name] = entry
            continue
        begin, end = entry["data_offsets"]
        shape, values = list(entry["shape"]), body[begin:end]
        if ".mlp." in name:
            rows = shape[0]
            width = (end - begin) // rows
            lines = [bytes(values[i * width : (i + 1) * width]) for i in range(rows)]
            if "down_proj" in name:
                lines = [line + bytes(columns * width // inner) for line in lines]
                shape[1] += columns
            else:
                lines += [lines[i % inner] for i in range(columns)]
                shape[0] += columns
            values = b"".join(lines)
        parts.append(bytes(values))
        entries[name] = {"dtype": entry["dtype"], "shape": shape, "data_offsets": [at, at + len(values)]}
        at += len(values)
    copy_texts(folder, out)
    (out / "config.json").write_text(json.dumps(config, indent=2))
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    part = out / "model.safetensors.part"
    with part.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.writelines(parts)
    # Last: its presence says that the folder is complete.
    part.rename(out / "model.safetensors")
    return out


# Of every experiment here: one cell.
HEAD = """
name = "methods"
[grid]
seed = [1]
target = ["T"]
task = ["{task}"]
[models]
drafter = "{drafter}"
targets.T = "{target}"
"""
LEARN = """
[stage.stream]
prompts = {{ train = {learn} }}
# What is learnt is kept where a stage goes on from it.
[stage.end]
from = "stream"
prompts = {{ test = 1 }}
[decode]
max_new_tokens = {max_tokens}
threads = {threads}
weights = "{weights}"
[learn]
replay = 16
[[arm]]
preset = "L_DM+L_N-gram"
"""


def run(bench, args, experiment, more, place):
    """Runs an experiment into `place`/run."""
    file = place / "methods.toml"
    file.write_text((HEAD + experiment).format(**vars(args) | more))
    command = [bench.binary, "--no-progress", "run", file, "--out", place / "run"]
    bench.run(command + (["--data-dir", args.data_dir] if args.data_dir else []))


def learnt_by(bench, args):
    """A digest of what decides what is learnt, beside both models: the experiment, its prompts and the program."""
    prompts = (args.data_dir or ROOT / "datasets") / args.task / "train.jsonl"
    experiment = (HEAD + LEARN).format(**vars(args) | {"drafter": "", "target": ""})
    parts = [experiment.encode(), prompts.read_bytes(), bench.binary.read_bytes()]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).hexdigest()[:8]


def learnt(bench, args, name, folder, out):
    """The drafter behind a stream of training prompts, as a folder of Hugging Face's layout."""
    if not (out / "model.safetensors").exists():
        say(f"{name} learns from {args.learn} prompts")
        with tempfile.TemporaryDirectory() as place:
            place = pathlib.Path(place)
            models = {"drafter": folder.resolve(), "target": args.target.resolve()}
            run(bench, args, LEARN, models, place)
            (weights,) = (place / "run").glob("stream/*/state/*/drafter/weights.safetensors")
            copy_texts(folder, out)
            shutil.copy(weights, out / "model.safetensors.part")
            (out / "model.safetensors.part").rename(out / "model.safetensors")
    return out


# What adapts to the pair, lengths and copies, has seen some prompts, as where a program goes on running. Weights stay.
WARM = """
[stage.warm]
on_stream = "learning"
prompts = {{ train = {warm} }}
"""
ANSWERS = """
[stage.answers]
{start}
exclusive = true
prompts = {{ test = {prompts} }}
[decode]
k = {k}
temperature = {temperature}
max_new_tokens = {max_tokens}
threads = {threads}
weights = "{weights}"
# Whatever else the machine makes of both models, a copy or a draft is as long as pays.
costs = {{ measured = true }}
{arms}
"""
# The name of a method, and its arm. Arms with a drafter are run for every drafter.
OURS = {
    PLAIN: 'preset = "autoregressive"',
    "prompt lookup": 'preset = "prompt-lookup"',
    "prompt lookup, as far as pays": 'preset = "stream-lookup"',
    "string-level drafts": 'preset = "SpD_DM"\nset = { "decode.verify" = "slem" }',
    "tokens of both vocabularies (TLI)": 'preset = "SpD_DM"',
    "exact, n-grams of the vocabularies": 'preset = "static n-grams"\nset = { "decode.verify" = "exact" }',
    "tokens of both vocabularies, as many as pay": 'preset = "SpD_DM"\nset = { "decode.policy" = "throughput", "decode.k" = 8, "decode.score" = "position" }',
    "exact, lookup and drafter": 'preset = "L_DM+L_N-gram+lookup"\nset = { "learn.objective" = "none", "cache.use" = "static" }',
}
ALONE = [PLAIN, "prompt lookup", "prompt lookup, as far as pays"]
READ = "import json, sys, pyarrow.parquet as p; print(json.dumps(p.read_table(sys.argv[1]).to_pylist()))"


def ours(bench, args, target, drafter, place, methods):
    """Rows of one run of these arms, and the prompts it asked with their greedy answers."""
    arms = "\n".join(f'[[arm]]\nname = "{name}"\n{OURS[name]}' for name in methods)
    warm = args.warm and any(name not in ALONE for name in methods)
    more = {"drafter": drafter, "target": target, "arms": arms, "start": 'from = "warm"' if warm else ""}
    run(bench, args, (WARM if warm else "") + ANSWERS, more, place)
    (file,) = (place / "run").glob("answers/*/prompts.parquet")
    rows = json.loads(bench.run([bench.python, "-c", READ, file]))
    found, answers = collections.defaultdict(lambda: {"tokens": 0, "seconds": 0.0}), {}
    for row in rows:
        one = found[row["arm"]]
        one["tokens"] += row["new_tokens"]
        one["seconds"] += row["seconds"] + row["prefill_s"] + row["learn_s"]
        if row["arm"] == PLAIN:
            answers[row["prompt_id"]] = row["prompt_index"], [int(i) for i in row["answer"].split()]
    shutil.rmtree(place / "run")
    answers = sorted((index, name, ids) for name, (index, ids) in answers.items())
    return found, [(name, ids) for _, name, ids in answers]


def asked(bench, args, target, ids):
    """The prompts as token ids, as `omnidraft` gives them to the target."""
    folder = args.data_dir if args.data_dir else ROOT / "datasets"
    texts = {}
    for line in (folder / args.task / "test.jsonl").read_text().splitlines():
        record = json.loads(line)
        texts[record["id"]] = record["prompt"]
    found = []
    for name in ids:
        command = [bench.binary, "--no-progress", "generate", "--json", "--target", target, "--weights", args.weights]
        found.append(json.loads(bench.run([*command, "--max-tokens", 1, "--prompt", texts[name]]))[0]["prompt_ids"])
    return found


def peer(bench, args, engine, target, drafters, prompts, place):
    file = place / "prompts.json"
    file.write_text(json.dumps(prompts))
    command = [bench.python, HERE / "methods_peer.py", engine, "--target", target, "--prompts", file]
    command += ["--dtype", args.dtype] if engine == "transformers" else []
    command += ["--llama-server", bench.peers / "llama-server"] if engine == "llama.cpp" else []
    command += ["--max-tokens", args.max_tokens, "-k", args.k, "--temperature", args.temperature, "--threads", args.threads]
    for name, folder in drafters:
        command += ["--drafter", f"{name}={folder}"]
    return [json.loads(line) for line in bench.run(command).splitlines()]


def taking_part(args, real):
    """The engines that can read the target."""
    llama = json.loads((args.target / "config.json").read_text())["model_type"] == "llama"
    if real or llama or "llama.cpp" not in args.engines:
        return args.engines
    say("llama.cpp is left out: a target that is no Llama is not written as GGUF")
    return [engine for engine in args.engines if engine != "llama.cpp"]


def measure(bench, args, engines, real, journal):
    models = bench.peers / "padded"
    target = args.target.resolve() if real else padded(args.target, args.target_columns, models)
    named = list(args.drafter)
    if args.learn:
        name, folder = named[0]
        what = f"{name}-{args.target.name}-{args.task}-{args.learn}"
        out = models / f"{what}-{digest(folder)}{digest(args.target)}{learnt_by(bench, args)}"
        named.append((f"{name}, learnt", learnt(bench, args, name, folder, out)))
    drafters = [(name, folder.resolve() if real else padded(folder, args.drafter_columns, models)) for name, folder in named]
    engines = list(engines)
    if "llama.cpp" in engines and not real:
        bench.run([bench.python, HERE / "gguf_files.py", target, "F32"])
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        say("which prompts")
        _, answers = ours(bench, args, target, drafters[0][1], place, [PLAIN])
        prompts = asked(bench, args, target, [name for name, _ in answers])
        greedy = [ids for _, ids in answers]
        shuffle = random.Random(0).shuffle
        for number in range(1, args.rounds + 1):
            shuffle(engines)
            for engine in engines:
                if engine == "ours":
                    found = []
                    for place_of, (name, drafter) in enumerate(drafters):
                        rows, _ = ours(bench, args, target, drafter, place, OURS)
                        found += [
                            {"method": method, "drafter": None if method in ALONE else name} | row
                            for method, row in rows.items()
                            if place_of == 0 or method not in ALONE
                        ]
                else:
                    found = peer(bench, args, engine, target, drafters, prompts, place)
                load = round(os.getloadavg()[0], 2)
                for row in found:
                    row.pop("each", None)
                    said = row.pop("answers", None)
                    if said is not None and args.temperature == 0:
                        row["equal_answers"] = sum(a == b for a, b in zip(said, greedy))
                    row = {"round": number, "engine": engine, "load": load} | row
                    row["tokens_per_s"] = row["tokens"] / row["seconds"]
                    journal.append(row)
                    say(f"round {number} {engine}, {row['method']} {row['drafter'] or ''}: {row['tokens_per_s']:.0f} tokens/s")


def table(rows, stated):
    """Medians over rounds, and quotients within a round."""
    by = collections.defaultdict(dict)
    for row in rows:
        by[row["engine"], row["method"], row["drafter"]][row["round"]] = row
    # Fewer than asked for where a run was interrupted; a round counts where all engines had their turn.
    complete = set.intersection(*map(set, by.values())) if by else set()
    if not {row["engine"] for row in rows} >= set(stated.get("engines", [])):
        complete = set()
    by = {key: {number: own[number] for number in sorted(complete)} for key, own in by.items() if complete}
    plain = {engine: by.get((engine, PLAIN, None), {}) for engine in ENGINES}

    def over(own, base):
        found = [own[r]["tokens_per_s"] / base[r]["tokens_per_s"] for r in own if r in base]
        return f"{statistics.median(found):.2f}" if found else ""

    lines = [
        "# Whole answers beside peers",
        "",
        f"`{stated['command']}` at {stated['commit'][:7]}. Prompts: the first {stated['prompts']} held-out ones of"
        f" {stated['task']}, answers of at most {stated['max_tokens']} tokens at temperature {stated['temperature']:g},"
        f" {stated['threads']} threads, {stated['machine'].get('Model name', 'unknown processor')}. {stated['stored']}"
        " Seconds are those of prompt, answer and learning. Medians of"
        f" {len(complete)} interleaved rounds, least to most; quotients are taken within a round.",
        "",
        "| engine | method | drafter | tokens/s | over its own plain | over plain transformers | over plain llama.cpp | answers as plain |",
        "|:--|:--|:--|--:|--:|--:|--:|--:|",
    ]
    for (engine, method, drafter), own in sorted(by.items(), key=lambda item: (ENGINES.index(item[0][0]), item[0][1] != PLAIN)):
        speeds = sorted(row["tokens_per_s"] for row in own.values())
        equal = {row.get("equal_answers") for row in own.values()}
        equal = f"{equal.pop()} of {stated['prompts']}" if len(equal) == 1 and None not in equal else ""
        lines.append(
            f"| {engine} | {method} | {drafter or ''} | {statistics.median(speeds):.0f} ({speeds[0]:.0f} to {speeds[-1]:.0f})"
            f" | {over(own, plain[engine])} | {over(own, plain['transformers'])} | {over(own, plain['llama.cpp'])} | {equal} |"
        )
    return "\n".join(lines) + "\n"


def write_table(out):
    text = table(read_rows(out / "rows.jsonl"), json.loads((out / "manifest.json").read_text()))
    (out / "table.md").write_text(text)
    print(text)


class Journal:
    """Rows on disk as soon as they are known."""

    def __init__(self, path):
        self.file = path.open("x")

    def append(self, row):
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()


def main():
    args = arguments()
    if args.table:
        return write_table(args.out)
    bench = Bench(args.binary, args.peers, args.threads, 0, 0)
    needed = [bench.binary, bench.python] + ([bench.peers / "llama-server"] if "llama.cpp" in args.engines else [])
    missing = next((path for path in needed if not path.exists()), None)
    if missing:
        sys.exit(f"{missing} is missing\nhint: cargo build --release --locked; scripts/peers/setup.sh {args.peers}")
    now = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    options = ["--target", manifest.inside(args.target), "--task", args.task, "--prompts", args.prompts, "--warm", args.warm]
    for name, folder in args.drafter:
        options += ["--drafter", f"{name}={manifest.inside(folder)}"]
    options += ["--learn", args.learn] if args.learn else []
    options += ["--max-tokens", args.max_tokens, "-k", args.k, "--temperature", args.temperature]
    options += ["--rounds", args.rounds, "--threads", args.threads]
    options += ["--weights", args.weights] if args.weights != "f32" else []
    options += ["--dtype", args.dtype] if args.dtype != "float32" else []
    options += ["--engines", *args.engines] if args.engines != ENGINES else []
    real = (args.target / GGUF).is_file()
    # A GGUF file stays as it is, and so does its drafter.
    options += [] if real else ["--target-columns", args.target_columns, "--drafter-columns", args.drafter_columns]
    stated = {"started": now, "command": " ".join(map(str, ["scripts/peers/methods.py", *options]))}
    stated |= manifest.program(bench) | {"machine": manifest.machine(), "versions": manifest.versions(bench)}
    keys = ["task", "prompts", "max_tokens", "k", "temperature", "rounds", "threads"]
    stated |= {key: vars(args)[key] for key in keys}
    stated["engines"] = taking_part(args, real)
    blocks = "blocks of the file" if real else "f32"
    stated["stored"] = f"Weights: {args.weights} in omnidraft, {args.dtype} in transformers, {blocks} in llama.cpp."
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) if args.quick else args.out
        out.mkdir(parents=True, exist_ok=True)
        try:
            journal = Journal(out / "rows.jsonl")
        except FileExistsError:
            sys.exit(f"{out}: holds rows\nhint: choose another --out, or --table")
        (out / "manifest.json").write_text(json.dumps(stated, indent=2) + "\n")
        try:
            measure(bench, args, stated["engines"], real, journal)
        except Failed as failure:
            sys.exit(str(failure))
        write_table(out)


if __name__ == "__main__":
    main()
