#!/usr/bin/env python3
"""Keep what scripts/gpu_check.sh found on a GPU, and make the page of it. Needs Python alone.

    python3 scripts/gpu_check.py keep OUT/results.jsonl --run 2 --commit 88897087 --date 2026-11-26
    python3 scripts/gpu_check.py page           # results/gpu-h100/README.md from rows.jsonl beside it
    python3 scripts/gpu_check.py page --check   # exit 1 if the page is not what the rows give

`keep` appends a run to rows.jsonl, without paths of the machine and without what failed parts printed at length.
"""

import argparse
import json
import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "results" / "gpu-h100"
FIELDS = ("part", "rc", "s", "command", "result", "text", "stderr")
NO_RESULT = {"skipped": "no time was left", "124": "stopped at its limit"}
# Of a machine: what it is, not where.
MACHINE = ("gpu", "cores", "cpu", "libc")


def plain(value):
    """A value without paths of the machine and escape sequences of a terminal, and with six digits at most."""
    if isinstance(value, str):
        value = re.sub(r"\x1b\[[0-9;]*m", "", value)
        value = re.sub(r"/\S*/programs/", "", value)
        return re.sub(r"/tmp/tmp\.\w+/", "", value)
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return value


def keep(args):
    rows = [json.loads(line) for line in args.results.read_text().splitlines()]
    kept = [{"run": args.run, "commit": args.commit, "date": args.date}]
    for row in rows:
        row = plain({key: row[key] for key in FIELDS if key in row})
        row["command"] = " ".join(row["command"].split())[:300]
        if row["part"] == "machine":
            row["command"] = "nvidia-smi, /proc/cpuinfo"
            row["result"] = {key: row["result"][key] for key in MACHINE}
        if row["rc"] in ("skipped", "127"):
            row = {key: row[key] for key in ("part", "rc", "command")}
        if "stderr" in row:
            row["stderr"] = row["stderr"][-600:]
        if not row.get("result"):
            row.pop("result", None)
        kept.append(row)
    args.folder.mkdir(parents=True, exist_ok=True)
    file = args.folder / "rows.jsonl"
    before = file.read_text().splitlines() if file.exists() else []
    if any(json.loads(line).get("run") == args.run for line in before):
        sys.exit(f"{file}: run {args.run} is there already")
    file.write_text("".join(line + "\n" for line in before + [json.dumps(row, separators=(",", ":")) for row in kept]))


def table(head, lines):
    """A table in Markdown; the first column is text, the others numbers."""
    rule = [":--"] + ["--:"] * (len(head) - 1)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in [head, rule, *lines]) + "\n"


def number(value, digits=3):
    return "–" if value is None else f"{value:.{digits}g}" if value < 100 else f"{value:.0f}"


def found(rows):
    """Every JSON object that a part printed, with its row."""
    for row in rows:
        result = row.get("result")
        for each in result if isinstance(result, list) else [result]:
            if isinstance(each, dict):
                yield row, each


def calls(rows):
    """What a table of calls shows: name, milliseconds with all logits, greedily, share of the memory's speed."""
    ceiling = [each["sum_gb_per_s"] for _, each in found(rows) if each.get("ceilings")]
    for row, each in found(rows):
        if each.get("engine") == "torch" and "ms" in each:
            name = "PyTorch, " + ("CUDA graphs" if each["graphs"] else "eager")
            memory = ceiling[0] if ceiling else None
            yield each["shape"], each["weights"], name, each, memory
        elif each.get("command") in ("verify", "device"):
            name = {"before": "this engine, the build before"}.get(row["part"].split("-")[0], "this engine")
            tasks = re.search(r"-(\d+)-tasks$", row["part"])
            if tasks:
                name += f", {tasks[1]} launches a submission"
            yield each["model"], each["weights"], name, each, each["memory_gb_per_s"]


def tables_of_calls(rows):
    everything = [row for row in calls(rows) if not row[3].get("prefill")]
    for key, title in (
        ("ms", "All logits on the host"),
        ("greedy_ms", "The most probable tokens alone on the host"),
        ("launched_ms", "The same, launched call by call instead of replayed"),
    ):
        of_key = [row for row in everything if row[3].get(key)]
        if not of_key:
            continue
        counts = sorted({int(m) for row in of_key for m in row[3][key]})
        lines = []
        for shape, weights, name, each, memory in sorted(of_key, key=lambda row: row[:3]):
            # It is given for the call that brings least to the host.
            least = each.get("greedy_ms") or each["ms"]
            speed = each["weights_gb_per_s"] * least["1"] / each[key]["1"]
            lines.append(
                [f"{shape} {weights}, {name}"]
                + [number(each[key].get(str(m))) for m in counts]
                + [f"{speed:.0f}", f"{100 * speed / memory:.0f}%" if memory else "–"]
            )
        yield f"{title}:\n\n" + table(
            ["milliseconds by tokens of a call", *counts, "GB/s at 1", "of the memory's"], lines
        )


def table_of_rounds(rows):
    lines = []
    for row, each in found(rows):
        if "round_ms" not in each:
            continue
        launched = ", launched" if row["part"].endswith("-launched") else ""
        worker = re.match(r"round-worker-(.*)-T", row["part"])
        target = f"{worker[1]} in a worker of PyTorch" if worker else each["target"]
        lines.append([
            f"{target}, {each['drafter']}, {each['weights']}{launched}", f"{each['temperature']:g}", each["k"], each["rounds"],
            number(each["round_ms"]), number(each["target_ms"]), number(each["drafter_ms"]), f"{100 * each['outside_share']:.1f}%",
            number(each["accepted_per_round"], 2), f"{each['fetched_bytes_per_round']:.0f}",
        ])
    head = ["target, drafter, weights", "T", "k", "rounds", "ms a round", "target", "drafter", "outside both", "accepted", "bytes fetched"]
    return table(head, lines) if lines else ""


def table_of_prompts(rows):
    lines = []
    for _, each in found(rows):
        times = each["ms"] if each.get("command") == "prefill" else each.get("prefill_ms")
        for tokens, ms in sorted((times or {}).items(), key=lambda item: int(item[0])):
            lines.append([f"{each['model']} {each['weights']}", tokens, number(ms), f"{1e3 * int(tokens) / ms:.0f}"])
    return table(["model", "tokens of the prompt", "ms", "tokens a second"], lines) if lines else ""


def tables_of_passes(rows):
    for _, each in found(rows):
        passes = each.get("passes") or []
        if not passes:
            continue
        names = [step["name"] for step in passes[0]["steps"]]
        lines = []
        for timed in passes:
            kinds = sum(step["ms"] for step in timed["steps"])
            lines.append(
                [f"{timed['rows']} rows, cubes of {timed['cubes'][1]} x {timed['cubes'][0]} outputs", timed["launches"], number(timed["ms"]), number(kinds)]
                + [number(step["ms"]) for step in timed["steps"]]
            )
        launches = ["launches", "", "", ""] + [step["launches"] for step in passes[0]["steps"]]
        yield f"{each['model']} {each['weights']}:\n\n" + table(["pass", "launches", "ms", "all kinds", *names], [launches, *lines])


def table_of_kernels(rows):
    lines = []
    for _, each in found(rows):
        if each.get("command") == "kernels":
            lines.append([
                f"{each['outputs']} x {each['inputs']} {each['weights']}", each["rows"], each["units"],
                f"{each['groups']} x {each['per_group']}", number(each["us"]), f"{each['weights_gb_per_s']:.0f}",
                number(each["first_s"], 2),
            ])
    head = ["matrix", "rows", "units", "outputs of a cube", "us", "GB/s of weights", "s of the first launch"]
    return table(head, lines) if lines else ""


def table_of_checks(rows):
    lines = []
    for row in rows:
        part = row["part"]
        if part.startswith(("promise-", "rest-", "goldens-")):
            said = {"0": "passed", "127": "the test program was missing there"} | NO_RESULT
            lines.append([f"test `{part.split('-', 1)[1]}`", said.get(row["rc"], "failed")])
        elif part == "lawtest" and row["rc"] == "0":
            for mode in row["result"]["modes"]:
                lines.append([
                    f"greedy answers, `{mode['verify']}`",
                    f"{mode['equal']} of {row['result']['prompts']} equal plain decoding's, {mode['different']} do not",
                ])
        elif part == "loop":
            said = {"0": "ran to its end"} | NO_RESULT
            lines.append(["the loop, learning included", said.get(row["rc"], "failed")])
    return table(["what", "outcome"], lines)


def not_done(rows):
    said = {"127": "its program was missing there"} | NO_RESULT
    parts = {}
    for row in rows:
        if row["rc"] != "0":
            parts.setdefault(said.get(row["rc"], f"exit {row['rc']}"), []).append(row["part"])
    return "".join(f"Parts without a result ({why}): {', '.join(names)}.\n" for why, names in parts.items())


def page_of(rows):
    runs, current = [], None
    for row in rows:
        if "run" in row:
            current = (row, [])
            runs.append(current)
        else:
            current[1].append(row)
    text = """# On a GPU

Made by `python3 scripts/gpu_check.py page` from [rows.jsonl](rows.jsonl); no number is typed. `scripts/gpu_check.sh` ran on a
machine with a GPU, whose programs were built elsewhere, in one go and within a limit of time: a part that came to nothing
is named. Models have random weights; a shape is that of the model it is named after. A call reads the given number of tokens
after 128 that are in the cache. *GB/s at 1* is the bytes of weights that a call reads over the time of one token, and its share is of what
the device reads of a large buffer in the same process (for PyTorch, what a sum reads). PyTorch runs the same shape with
bf16 weights, its own attention and, with CUDA graphs, the whole step as one graph. A round drafts k tokens and verifies them; random
models accept next to nothing, so its time is that of the work, not a speed of decoding. A commit with a `+` is that commit with
changes that were committed after the run.
"""
    for head, of_run in reversed(runs):
        machine = next((row["result"] for row in of_run if row["part"] == "machine"), None)
        text += f"\n## Run {head['run']}: {head['date']}, commit `{head['commit']}`\n\n"
        if machine:
            gpu = machine["gpu"]
        if machine and isinstance(gpu, dict):
            text += (
                f"{gpu['name']}, driver {gpu['driver_version']}, memory at {gpu['clocks.mem']}, at most {gpu['clocks.max.sm']} and "
                f"{gpu['power.limit']}, PCIe {gpu['pcie.link.gen.current']} x{gpu['pcie.link.width.current']}; {machine['cores']} cores of {machine['cpu'][0]}, {' '.join(machine['libc'])}.\n\n"
            )
        text += table_of_checks(of_run) + "\n" + not_done(of_run) + "\n### A call\n\n"
        text += "\n".join(tables_of_calls(of_run))
        sections = [("### A prompt", table_of_prompts(of_run)), ("### A round", table_of_rounds(of_run))]
        passes = list(tables_of_passes(of_run))
        if passes:
            said = (
                "Milliseconds by the clock of the device: of a pass that is launched call by call, of all kinds of launches together, and "
                "of each kind by itself, with what passes between two launches.\n\n"
            )
            sections.append(("### Where a pass goes", said + "\n".join(passes)))
        kernels = table_of_kernels(of_run)
        if kernels:
            said = (
                "One projection after the other on matrices that no cache holds, by the clock of the device. Units share the inputs of an "
                "output; the first launch compiles the kernel.\n\n"
            )
            sections.append(("### Divisions of a projection", said + kernels))
        for title, section in sections:
            if section:
                text += f"\n{title}\n\n{section}"
        ceilings = next((each for _, each in found(of_run) if each.get("ceilings")), None)
        if ceilings:
            lines = [[m, number(ms), f"{ceilings['matrix_mb'] / ms:.0f}"] for m, ms in ceilings["matrix_ms"].items()]
            text += (
                f"\n### The card, by PyTorch\n\nA copy moves {ceilings['copy_gb_per_s']:.0f} GB/s, a sum reads "
                f"{ceilings['sum_gb_per_s']:.0f}. A matrix of {ceilings['matrix']} times so many rows:\n\n"
            ) + table(["rows", "ms", "GB/s of the matrix"], lines)
    return text


def page(args):
    rows = [json.loads(line) for line in (args.folder / "rows.jsonl").read_text().splitlines()]
    file, text = args.folder / "README.md", page_of(rows)
    if args.check:
        if not file.exists() or file.read_text() != text:
            sys.exit(f"{file} is not what its rows give: `python3 scripts/gpu_check.py page` makes it")
        return
    file.write_text(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where rows and page are")
    commands = parser.add_subparsers(dest="command", required=True)
    keeps = commands.add_parser("keep", help="append a run")
    keeps.add_argument("results", type=Path)
    keeps.add_argument("--run", type=int, required=True)
    keeps.add_argument("--commit", required=True, help="of the program")
    keeps.add_argument("--date", required=True)
    keeps.set_defaults(does=keep)
    pages = commands.add_parser("page", help="make the page")
    pages.add_argument("--check", action="store_true")
    pages.set_defaults(does=page)
    args = parser.parse_args()
    args.does(args)


if __name__ == "__main__":
    main()
