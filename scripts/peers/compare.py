#!/usr/bin/env python3
"""Times the CPU engine and its peers on the same random checkpoints, in one interleaved run.

    cargo build --release --locked
    scripts/peers/setup.sh                       # once: llama.cpp, transformers
    python3 scripts/peers/compare.py --quick     # does it work?
    python3 scripts/peers/compare.py             # an hour or two; writes results/peers

Writes rows.jsonl (a line a measurement, kept if the run is interrupted), manifest.json and table.md.
"""

import argparse
import datetime
import json
import os
import pathlib
import random
import signal
import sys
import tempfile
import time

import agreement
import manifest
import report
from engines import BITS, CALLS, WEIGHTS, Bench, Failed, variants, weights_read

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHAPES = ["llama-68m", "llama-242m", "tinyllama-1.1b"]
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
QUICK = {"shapes": SHAPES[:2], "repetitions": 2, "seconds": 0.5}
FULL = {"shapes": SHAPES, "repetitions": 5, "seconds": 4.0}


def arguments():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )

    def names(known):
        def split(text):
            found = text.split(",")
            unknown = [name for name in found if name not in known]
            if unknown:
                raise argparse.ArgumentTypeError(f"{unknown[0]}: one of {', '.join(known)}")
            return found

        return split

    parser.add_argument("--shapes", type=names(SHAPES), help=f"default: {','.join(SHAPES)}")
    parser.add_argument("--engines", type=names(list(WEIGHTS)), default=list(WEIGHTS), help="default: all")
    parser.add_argument("--bits", type=int, nargs="+", choices=BITS, default=BITS, help="default: all")
    parser.add_argument("--repetitions", type=int, help=f"rounds (default: {FULL['repetitions']})")
    parser.add_argument("--seconds", type=float, help="of each measurement of a process (default: 4)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--context", type=int, default=128, help="tokens before a call, and of a prompt")
    parser.add_argument("--out", type=pathlib.Path, help="default: results/peers; with --quick a folder that is removed")
    parser.add_argument("--quick", action="store_true", help="small shapes, little time: does it work?")
    parser.add_argument("--no-check", action="store_true", help="do not compare logits first")
    parser.add_argument("--prepare", action="store_true", help="write checkpoints and GGUF files, then stop")
    parser.add_argument("--table", action="store_true", help="rebuild table.md from the rows in --out, then stop")
    parser.add_argument("--binary", type=pathlib.Path, default=target / "release" / "omnidraft")
    parser.add_argument(
        "--peers", type=pathlib.Path, default=CACHE / "omnidraft" / "peers", help="the folder given to setup.sh"
    )
    args = parser.parse_args()
    for name, value in (QUICK if args.quick else FULL).items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    if args.table or not args.quick:
        args.out = args.out or ROOT / "results" / "peers"
    if args.repetitions < 1 or args.threads < 1 or args.context < 1 or args.seconds < 0:
        parser.error("--repetitions, --threads and --context must be at least 1, --seconds at least 0")
    return args


def say(text):
    print(text, file=sys.stderr, flush=True)


class Journal:
    """Rows on disk as soon as they are known."""

    def __init__(self, path):
        self.rows = []
        self.file = path.open("x")

    def write(self, row):
        now = datetime.datetime.now(datetime.timezone.utc)
        row = {"time": now.isoformat(timespec="milliseconds")} | row
        self.rows.append(row)
        self.file.write(json.dumps(row) + "\n")
        self.file.flush()


def prepare(bench, args):
    folders = {}
    for shape in args.shapes:
        say(f"checkpoint {shape}")
        folders[shape] = bench.checkpoint(shape)
        if "llama.cpp" in args.engines:
            bench.convert(folders[shape])
    return folders


def check(bench, args, folders, journal):
    """False if an engine computes something else."""
    fine = True
    for shape, folder in folders.items():
        for row in agreement.compare(bench, variants(args.engines, args.bits), folder):
            journal.write({"kind": "agreement", "shape": shape} | row)
            problem = agreement.wrong(row)
            fine = fine and problem is None
            found = problem or (
                f"largest difference {row['max_difference']:.2g} of deviation {row['deviation']:.2g},"
                f" greedy token the same at {row['same_greedy']} of {row['positions']}"
            )
            say(f"{shape} {row['engine']} {row['weights']}: {found}")
    return fine


def rounds(bench, args, folders, journal):
    # The order changes from round to round, so that none always runs after the same neighbour.
    shuffle = random.Random(0).shuffle
    for number in range(1, args.repetitions + 1):
        for shape, folder in folders.items():
            groups = variants(args.engines, args.bits)
            bits = list(dict.fromkeys(v.bits for v in groups))
            shuffle(bits)
            order = []
            for size in bits:
                group = [v for v in groups if v.bits == size]
                shuffle(group)
                order += group
            for variant in order:
                one(bench, variant, number, shape, folder, journal)


def one(bench, variant, number, shape, folder, journal):
    about = {"round": number, "shape": shape, "engine": variant.engine}
    about |= {"weights": variant.weights, "bits": variant.bits}
    if hasattr(os, "getloadavg"):
        # Above the threads of the measurements themselves: something else ran too.
        about["load"] = round(os.getloadavg()[0], 2)
    start = time.monotonic()
    try:
        found = bench.measure(variant, folder)
    except Failed as failure:
        journal.write({"kind": "failed"} | about | {"error": str(failure)})
        say(f"round {number} {shape} {variant}: {failure}")
        return
    read = weights_read(folder, variant.bits)
    for row in found:
        if row["measure"] == "decode" and "weights_gb_per_s" not in row:
            row["weights_gb_per_s"] = read / row["ms"] / 1e6
        journal.write({"kind": "time"} | about | row)
    ms = {(row["measure"], row["tokens"]): row["ms"] for row in found}
    calls = " ".join(f"{ms['verify', m]:.2f}" for m in CALLS)
    say(
        f"round {number} {shape} {variant}: {1e3 / ms['decode', 1]:.1f} tokens/s, calls {calls} ms,"
        f" prefill {ms['prefill', bench.context]:.1f} ms ({time.monotonic() - start:.0f} s)"
    )


def write_table(args, rows):
    stated = json.loads((args.out / "manifest.json").read_text())
    (args.out / "table.md").write_text(report.table(rows, stated))
    for line in report.targets_table(report.Rows(rows), stated["context"]):
        print(line)


def measure(bench, args, folders):
    """The whole comparison, into --out."""
    args.out.mkdir(parents=True, exist_ok=True)
    try:
        journal = Journal(args.out / "rows.jsonl")
    except FileExistsError:
        sys.exit(f"{args.out} has rows of an earlier run\nhint: remove it, or name another --out")
    stated = manifest.collect(args, bench)
    (args.out / "manifest.json").write_text(json.dumps(stated, indent=2) + "\n")
    try:
        if not args.no_check and not check(bench, args, folders, journal):
            sys.exit("the engines do not compute the same function: timings would not compare the same work")
        rounds(bench, args, folders, journal)
    except Failed as failure:
        sys.exit(str(failure))
    except KeyboardInterrupt:
        say("interrupted: the table has the rounds so far")
    write_table(args, journal.rows)


def main():
    args = arguments()
    if args.table:
        return write_table(args, report.read_rows(args.out / "rows.jsonl"))
    bench = Bench(args.binary, args.peers, args.threads, args.context, args.seconds)
    needed = ["llama.cpp"] if args.prepare else args.engines
    if missing := bench.missing(needed):
        sys.exit(f"{missing} is missing\nhint: cargo build --release --locked; scripts/peers/setup.sh {args.peers}")
    try:
        folders = prepare(bench, args)
    except Failed as failure:
        sys.exit(str(failure))
    if args.prepare:
        return None
    # Also when started in the background, where interrupts are ignored.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        args.out = args.out or pathlib.Path(folder)
        measure(bench, args, folders)


if __name__ == "__main__":
    main()
