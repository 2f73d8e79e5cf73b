"""The comparison table from the rows, and the targets of the project with what was measured."""

import json
import statistics

from engines import CALLS, WEIGHTS

NAMES = {32: "32 bits", 16: "16 bits", 8: "8 bits", 4: "4 bits"}
# Decoding speed over llama.cpp's with weights of the same size; cost of 5 and of 9 tokens over one.
SPEED = {16: 1.3, 8: 1.3, 4: 1.1, 32: 1.2}
RATIOS = {16: (1.25, 1.5), 8: (1.25, 1.5), 4: (1.5, 2.0)}
# Too small for the ratios to mean anything: other costs than reading weights show.
NO_RATIOS = ["llama-68m"]


class Rows:
    """Times by variant, measurement and tokens, one a round."""

    def __init__(self, rows):
        self.rows = rows
        self.times = {}
        for row in rows:
            if row["kind"] == "time":
                key = (row["shape"], row["engine"], row["bits"], row["measure"], row["tokens"])
                self.times.setdefault(key, {})[row["round"]] = row
        self.shapes = list(dict.fromkeys(key[0] for key in self.times))

    def of(self, shape, engine, bits, measure, tokens, field="ms"):
        rounds = self.times.get((shape, engine, bits, measure, tokens), {})
        return {number: row[field] for number, row in rounds.items()}

    def over(self, above, below):
        """Quotients within a round, of rounds that have both."""
        return [above[number] / below[number] for number in above if number in below]

    def ratio(self, shape, engine, bits, tokens):
        times = (self.of(shape, engine, bits, "verify", m) for m in (tokens, 1))
        return self.over(*times)

    def bandwidth(self, shape):
        return [
            row["memory_gb_per_s"]
            for row in self.rows
            if row["kind"] == "time" and row["shape"] == shape and "memory_gb_per_s" in row
        ]


def spread(values, digits):
    """Median, and least to most."""
    values = list(values)
    if not values:
        return "-"
    middle = f"{statistics.median(values):.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{digits}f}-{max(values):.{digits}f})"


def share(rows, shape, engine, bits):
    """Weights read a second while decoding, as a share of the memory bandwidth of the same round:
    in percent."""
    speed = rows.of(shape, engine, bits, "decode", 1, "weights_gb_per_s")
    memory = {}
    for row in rows.rows:
        if row["kind"] == "time" and row["shape"] == shape and "memory_gb_per_s" in row:
            memory.setdefault(row["round"], []).append(row["memory_gb_per_s"])
    memory = {number: statistics.median(values) for number, values in memory.items()}
    return [100 * quotient for quotient in rows.over(speed, memory)]


def shape_table(rows, shape, context):
    calls = " / ".join(map(str, CALLS))
    lines = [
        f"| weights | engine | decode, tokens/s | % of memory | ms of {calls} tokens | 5 over 1 | 9 over 1 | prefill, tokens/s |",
        "|:--|:--|--:|--:|--:|--:|--:|--:|",
    ]
    for bits in NAMES:
        for engine in WEIGHTS:
            decode = rows.of(shape, engine, bits, "decode", 1).values()
            if not decode:
                continue
            times = [rows.of(shape, engine, bits, "verify", m).values() for m in CALLS]
            prefill = rows.of(shape, engine, bits, "prefill", context).values()
            cells = [
                WEIGHTS[engine][bits],
                engine,
                spread([1e3 / ms for ms in decode], 1),
                spread(share(rows, shape, engine, bits), 0),
                " / ".join(f"{statistics.median(t):.2f}" if t else "-" for t in times),
                spread(rows.ratio(shape, engine, bits, 5), 2),
                spread(rows.ratio(shape, engine, bits, 9), 2),
                spread([1e3 * context / ms for ms in prefill], 0),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return lines


def targets(rows, context):
    """Each target with what was measured: (shape, what, bound, values, met)."""
    for shape in rows.shapes:
        for bits, least in SPEED.items():
            ours, theirs = (rows.of(shape, e, bits, "decode", 1) for e in ("ours", "llama.cpp"))
            names = WEIGHTS["ours"][bits], WEIGHTS["llama.cpp"][bits]
            what = f"decode, {names[0]} over llama.cpp {names[1]}"
            yield shape, what, f">= {least}", rows.over(theirs, ours), lambda x, least=least: x >= least
        for bits, bounds in RATIOS.items():
            for tokens, most in zip((5, 9), bounds):
                if shape not in NO_RATIOS:
                    what = f"{tokens} tokens over 1, {WEIGHTS['ours'][bits]}"
                    found = rows.ratio(shape, "ours", bits, tokens)
                    yield shape, what, f"<= {most}", found, lambda x, most=most: x <= most
        ours, theirs = (rows.of(shape, e, 16, "prefill", context) for e in ("ours", "llama.cpp"))
        what = "prefill, bf16 over llama.cpp BF16"
        yield shape, what, ">= 1", rows.over(theirs, ours), lambda x: x >= 1


def targets_table(rows, context):
    lines = ["| shape | target | asked | measured | met |", "|:--|:--|--:|--:|:--|"]
    for shape, what, bound, values, holds in targets(rows, context):
        met = "-" if not values else "yes" if holds(statistics.median(values)) else "no"
        lines.append(f"| {shape} | {what} | {bound} | {spread(values, 2)} | {met} |")
    return lines


def agreement_table(rows):
    found = [row for row in rows if row["kind"] == "agreement"]
    if not found:
        return []
    lines = [
        "",
        "## The same function",
        "",
        "Largest difference of a logit from ours in f32, as a share of the logits' standard deviation, and how",
        "many positions have the same greedy token (random weights: the best two are often close).",
        "",
        "| shape | engine | weights | largest difference | same greedy token |",
        "|:--|:--|:--|--:|--:|",
    ]
    for row in found:
        cells = [row["shape"], row["engine"], row["weights"]]
        if "error" in row:
            cells += [row["error"], "-"]
        else:
            cells.append(f"{row['max_difference'] / row['deviation']:.2g}")
            cells.append(f"{row['same_greedy']} of {row['positions']}")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def table(rows, manifest):
    """Markdown."""
    read = Rows(rows)
    context = manifest["context"]
    done = len({row["round"] for row in rows if row["kind"] == "time"})
    machine = manifest["machine"].get("Model name", "unknown processor")
    lines = [
        "# The CPU engine and its peers",
        "",
        f"{machine}, {manifest['threads']} threads, context {context}; medians of {done} rounds"
        " (least-most), every engine once a round. Written by `scripts/peers/compare.py`; what is measured and what",
        "is not comparable: `scripts/peers/README.md`. Rows: `rows.jsonl`; versions: `manifest.json`.",
    ]
    load = [row["load"] for row in rows if row["kind"] == "time" and "load" in row]
    if load:
        lines += ["", f"Load average before each process: {spread(load, 1)}; above {manifest['threads']}, something else ran too."]
    for shape in read.shapes:
        memory = spread(read.bandwidth(shape), 1)
        lines += ["", f"## {shape}", "", f"Memory bandwidth in the same run: {memory} GB/s.", ""]
        lines += shape_table(read, shape, context)
    lines += ["", "## Targets", ""] + targets_table(read, context)
    lines += agreement_table(rows)
    failed = [row for row in rows if row["kind"] == "failed"]
    if failed:
        lines += ["", "## Failed", ""]
        lines += [f"- round {r['round']}, {r['shape']}, {r['engine']} {r['weights']}: {r['error']}" for r in failed]
    return "\n".join(lines) + "\n"


def read_rows(file):
    """Rows of an earlier run; the last line may have been cut short."""
    rows = []
    for line in file.read_text().splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            break
    return rows
