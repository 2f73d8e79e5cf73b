#!/usr/bin/env python3
"""Numbers of these runs from their rows, with nothing of the program: a check on `omnidraft report`, and the
commands behind the figures that LOG.md quotes.

    pip install pyarrow numpy
    python3 results/recompute.py check [NAME ...]            acceptance, tokens a round, counted and modelled speeds of
                                                             pages, all without a name, against their report.csv
    python3 results/recompute.py cells NAME STAGE            every arm in every cell of the grid, seeds together
    python3 results/recompute.py over NAME STAGE ARM OTHER   speed over speed, by task and of the means over tasks
    python3 results/recompute.py window NAME FROM [TO]       streamed acceptance, by rounds and by prompts
    python3 results/recompute.py code NAME STAGE ARM         the code column by where its prompts come from
    python3 results/recompute.py recovery NAME ARM OTHER     drift: prompts until 95% of a plateau for good, for several windows
    python3 results/recompute.py caches NAME                 n-grams when the stream ends
    python3 results/recompute.py costs NAME STAGE            parts of a round in plain steps
    python3 results/recompute.py learning NAME               the share of learning, the prompt's prefill in and out
    python3 results/recompute.py by_quarter NAME             tokens a second by quarter of a stream that plain decoding answers, too
    python3 results/recompute.py by_task NAME                the same, an arm a line
    python3 results/recompute.py prompts_share NAME          what reading the prompt takes, and what it leaves to gain
    python3 results/recompute.py by_segment NAME             the same by segment, where task and target change
    python3 results/recompute.py kinds NAME                  the same by what rounds did: drafted, copied, both, neither
    python3 results/recompute.py positions NAME ...          what a forward of the target over several positions takes
    python3 results/recompute.py curve NAME ARM OTHER        tokens a round of two arms by 32 streamed prompts, and held out
    python3 results/recompute.py what_learnt NAME            what arms learnt from, and whether all of it is charged
    python3 results/recompute.py agreement NAME              how often learner and frozen weights agree with the target
    python3 results/recompute.py never_slower NAME           speed over plain decoding over every 32 prompts in a row
    python3 results/recompute.py break_even NAME ARM OTHER   answers until what learning took is won back
    python3 results/recompute.py drafted NAME STAGE ARM      draft tokens of the drafter a round, beside tokens a round
    python3 results/recompute.py answers NAME STAGE          plain answers cut, different ones, arms' that are equal

Acceptance is the mean over rounds that proposed. Speed is tokens a second over plain decoding's, totals; `e2e` has
prefill and learning in. Intervals: 95%, bootstrap, 4000 draws of seeds and prompts. A mean over tasks is the mean of
their speeds, a ratio of two means is the ratio of these.
"""

import collections
import csv
import itertools
import json
import pathlib
import sys
import tomllib

import numpy as np
import pyarrow.parquet as pq

HERE = pathlib.Path(__file__).parent
PAPER = HERE.parent / "experiments" / "paper"
DRAWS = 4000


def load(name, stage, table="prompts"):
    """Rows of a stage, each with its cell's coordinates but the seed as `at`."""
    rows = []
    for path in sorted((HERE / name / stage).glob(f"*/{table}.parquet")):
        cell = json.loads((path.parent / "manifest.json").read_text())["cell"]
        at = ", ".join(value for axis, value in cell["coordinates"] if axis != "seed")
        rows += [row | {"at": at, "seed": cell["seed"]} for row in pq.ParquetFile(path).read().to_pylist()]
    return rows


def acceptance(rows):
    judged = [row for row in rows if row["judged_rounds"]]
    weight = sum(row["judged_rounds"] for row in judged)
    return sum(row["acceptance_rate"] * row["judged_rounds"] for row in judged) / weight if weight else float("nan")


def grouped(rows, *keys):
    groups = collections.defaultdict(list)
    for row in rows:
        groups[tuple(row[key] for key in keys)].append(row)
    return groups


def grids(rows, end_to_end=False):
    """Tokens and seconds of a cell by seed and prompt, for every arm: axes seed, prompt, (tokens, seconds)."""
    seeds = sorted({row["seed"] for row in rows})
    prompts = sorted({(row["segment"], row["prompt_id"]) for row in rows})
    found = {}
    for row in rows:
        grid = found.setdefault(row["arm"], np.zeros((len(seeds), len(prompts), 2)))
        seconds = row["seconds"] + (row["prefill_s"] + row["learn_s"] if end_to_end else 0.0)
        at = seeds.index(row["seed"]), prompts.index((row["segment"], row["prompt_id"]))
        grid[at] += (row["new_tokens"], seconds)
    return found


def draws(grid, rng, seeds=True):
    """Weights of the rows of a grid in every draw; the first draw is the data."""
    count = lambda n: np.vstack([np.ones(n), rng.multinomial(n, np.full(n, 1 / n), DRAWS)])
    by_seed = count(grid.shape[0]) if seeds else np.ones((DRAWS + 1, grid.shape[0]))
    return by_seed, count(grid.shape[1])


def rates(grid, weights):
    sums = np.einsum("ds,dp,spk->dk", *weights, grid)
    return sums[:, 0] / sums[:, 1]


def shown(values):
    low, high = np.nanpercentile(values[1:], [2.5, 97.5])
    return f"{values[0]:.3f} [{low:.3f}-{high:.3f}]"


def whole(first, value):
    """An arm of a published manifest with what it has in common with the first one."""
    if not (isinstance(value, dict) and list(value) == ["same but"] and isinstance(first, dict)):
        return value
    own = {key: whole(first.get(key), other) for key, other in value["same but"].items()}
    return first | own


def paper(table):
    return tomllib.loads((PAPER / f"{table}.toml").read_text())["value"]


def prices():
    """c of the paper's Table 8, and what a round of its Table 1 costs beside its steps."""
    steps = {value["where"]["model"]: value["step_s"] for value in paper("table8")}
    c = steps["Llama-68M"] / steps["Llama3-8B"]
    cells = [value for value in paper("table1") if value["where"]["arm"] in ("SpD_DM", "L_DM")]
    rounds = [(1 + 4 * value["acceptance"]) / value["speedup"] for value in cells]
    return c, sum(rounds) / len(rounds) - (1 + 4 * c)


def read(name, stage):
    """Prompts of a stage's cells with what metrics need: price, plain answer, forwards, and values on every axis."""
    default, overhead = prices()
    rows = []
    for path in sorted((HERE / name / stage).glob("*/prompts.parquet")):
        manifest = json.loads((path.parent / "manifest.json").read_text())
        cell, arms = manifest["cell"], manifest["config"]["arms"]
        decode = {arm["name"]: arm["decode"] for arm in (whole(arms[0], arm) for arm in arms)}
        plain_arms = {arm["name"] for arm in manifest["arms"] if arm["is_plain"]}
        table = pq.ParquetFile(path).read().to_pylist()
        key = lambda row: (row["segment"], row["split"], row["prompt_index"])
        plain = {key(row): row for row in table if row["arm"] in plain_arms}
        for row in table:
            steps = manifest.get("latencies", {}).get(row["target"])
            copies = decode.get(row["arm"], {}).get("draft") == "prompt-lookup"
            own = {"segment": str(row["segment"] + 1), "stage": stage, "seed": str(cell["seed"])}
            own |= {"arm": row["arm"], "task": row["task"], "target": row["target"]}
            rows.append(row | {
                "axes": dict(cell["coordinates"]) | own,
                "c": steps["draft_s"] / steps["target_s"] if steps else default,
                "o": overhead,
                "forwards": 0 if copies else row["draft_tokens"],
                "plain": plain.get(key(row)),
            })
    splits = {row["split"] for row in rows}
    shown = "test" if "test" in splits else "train"
    return [row for row in rows if row["split"] == shown]


def known(value):
    return value is not None and value == value


def ratio(pairs):
    above, below = (sum(values) for values in zip(*pairs)) if pairs else (0, 0)
    return above / below if below else float("nan")


def counted(rows):
    rows = [row for row in rows if row["plain"] and known(row.get("cost")) and known(row["plain"].get("cost"))]
    own = ratio([(row["new_tokens"], row["cost"]) for row in rows])
    return own / ratio([(row["plain"]["new_tokens"], row["plain"]["cost"]) for row in rows])


def modelled(row):
    return row["rounds"] + row["c"] * row["forwards"]


def implied(row):
    return modelled(row) + row["o"] * min(row["judged_rounds"], row["forwards"])


METRICS = {
    "acceptance": acceptance,
    "tokens_per_round": lambda rows: ratio([(row["new_tokens"], row["rounds"]) for row in rows]),
    "counted_speedup": counted,
    "modelled_speedup": lambda rows: ratio([(row["new_tokens"], modelled(row)) for row in rows]),
    "implied_speedup": lambda rows: ratio([(row["new_tokens"], implied(row)) for row in rows]),
}


def page(name):
    """Every value of these metrics on a page: metric, labels of its row, column, printed value, value of the rows."""
    experiment = json.loads((HERE / name / "experiment.json").read_text())
    report = experiment["report"]
    stage = report.get("stage") or experiment["stages"][-1]["name"]
    down = list(report["rows"]) + ([] if "arm" in report["rows"] else ["arm"])
    across = report.get("columns")
    swept = {arm["name"]: arm["swept_from"] for arm in experiment["arms"] if arm.get("swept_from")}
    rows = read(name, stage)
    for row in rows:
        found = swept.get(row["arm"])
        # Where every key of a sweep is an axis of the page, its arms stand under the name that was swept.
        if found and all(key in down or key == across for key, _ in found["values"]):
            row["axes"] |= {key: value for key, value in found["values"]} | {"arm": found["arm"]}
    arms = {key for found in swept.values() for key, _ in found["values"]} | {"arm"}
    by_seed = "seed" in down or across == "seed"
    axes = [axis for row in rows for axis in row["axes"] if axis not in arms and (by_seed or axis != "seed")]
    axes = sorted(set(axes))
    shown = [axis for axis in [*down, across] if axis]
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        place = tuple(row["axes"].get(axis, "") for axis in shown)
        groups[place][tuple(row["axes"].get(axis) for axis in axes)].append(row)
    values = lambda metric, place: np.mean([METRICS[metric](own) for own in groups[place].values()])
    # A segment is labelled with what it streams as well.
    label = lambda axis, text: text.split(" ")[0] if axis == "segment" else text
    for line in csv.DictReader((HERE / name / "report" / "report.csv").open()):
        metric, table = line["metric"], line["table"]
        if metric not in METRICS or table not in (metric, "values"):
            continue
        row = tuple(label(axis, text) for axis, text in zip(down, line["row"].split(" / ")))
        columns = [place[-1] for place in groups if place[:-1] == row] if across else []
        if not across:
            own = values(metric, row)
        elif line["column"] == "mean":
            own = np.mean([values(metric, (*row, column)) for column in columns])
        else:
            own = values(metric, (*row, label(across, line["column"])))
        yield metric, line["row"], line["column"], float(line["value"]), own


def check(*names):
    # A page without a table of numbers has none to compare.
    names = names or sorted(path.parent.parent.name for path in HERE.glob("*/report/report.csv"))
    wrong = total = 0
    for name in names:
        values = list(page(name))
        off = [value for value in values if not abs(value[3] - value[4]) <= 2e-6 * max(1.0, abs(value[3]))]
        total, wrong = total + len(values), wrong + len(off)
        print(f"  {name:24} {len(values):4} values, {len(off)} wrong")
        for metric, row, column, printed, own in itertools.islice(off, 5):
            print(f"    {metric} of {row}, {column}: the page has {printed}, the rows {own:.6f}")
    print(f"{total} values of {len(names)} pages, {wrong} wrong")
    if wrong or not total:
        sys.exit(1)


def cells(name, stage):
    for (at, segment, split), rows in grouped(load(name, stage), "at", "segment", "split").items():
        print(f"{at or f'segment {segment + 1}'}, {split}")
        plain, plain_e2e = grids(rows), grids(rows, True)
        weights = draws(next(iter(plain.values())), np.random.default_rng(1))
        for (arm,), own in grouped(rows, "arm").items():
            rounds = sum(row["rounds"] for row in own)
            text = f"  {arm:32} n={len(own):5} acceptance {acceptance(own):.3f}"
            text += f" tokens/round {sum(row['new_tokens'] for row in own) / rounds:.2f}"
            text += f" hits/round {sum(row['ngram_hits'] for row in own) / rounds:.2f}"
            if "autoregressive" in plain and own[0]["seconds"]:
                speed = rates(plain[arm], weights) / rates(plain["autoregressive"], weights)
                e2e = rates(plain_e2e[arm], weights) / rates(plain_e2e["autoregressive"], weights)
                text += f" speedup {shown(speed)} e2e {e2e[0]:.2f}"
            print(text)


def over(name, stage, arm, other):
    print(f"{arm} over {other}: speed over speed; in brackets with seeds and prompts drawn; last, prompts alone")
    for end_to_end in (False, True):
        rng = np.random.default_rng(1)
        speeds = {True: ([], []), False: ([], [])}
        for (at,), rows in grouped(load(name, stage), "at").items():
            grid = grids(rows, end_to_end)
            text = f"  {at:24}"
            for seeds in speeds:
                weights = draws(grid[arm], rng, seeds)
                plain = rates(grid["autoregressive"], weights)
                pair = [rates(grid[label], weights) / plain for label in (arm, other)]
                for values, found in zip(speeds[seeds], pair):
                    values.append(found)
                text += f" {shown(pair[0] / pair[1])}"
            print(text)
        mean = {seeds: [np.mean(values, axis=0) for values in pair] for seeds, pair in speeds.items()}
        text = " ".join(shown(own / another) for own, another in mean.values())
        of_ratios = np.mean([a[0] / b[0] for a, b in zip(*speeds[True])])
        own, another = (values[0] for values in mean[True])
        print(f"  {'end to end' if end_to_end else 'decoding'}: means {own:.3f} and {another:.3f}, ratio {text}")
        print(f"    mean of ratios {of_ratios:.3f}")


def window(name, start, end="1000000"):
    rows = [row for row in load(name, "stream") if row["split"] == "train"]
    rows = [row for row in rows if int(start) <= row["prompt_index"] < int(end)]
    for (at, segment, arm), own in grouped(rows, "at", "segment", "arm").items():
        judged = [row["acceptance_rate"] for row in own if row["judged_rounds"]]
        seeds = [acceptance(rows) for rows in grouped(own, "seed").values()]
        text = f"  {at or f'segment {segment + 1}':28} {arm:32} rounds {acceptance(own):.3f}"
        text += f" (deviation over seeds {np.std(seeds, ddof=1):.3f})" if len(seeds) > 1 else ""
        print(f"{text} prompts {np.mean(judged):.3f}")


def code(name, stage, arm):
    rows = [row for row in load(name, stage) if row["task"] == "mbpp_humaneval"]
    for (at,), cell in grouped(rows, "at").items():
        for source in ("humaneval", "mbpp"):
            own = [row for row in cell if row["prompt_id"].startswith(source)]
            grid = grids(own)
            weights = draws(grid[arm], np.random.default_rng(1))
            speed = rates(grid[arm], weights) / rates(grid["autoregressive"], weights)
            mine = [row for row in own if row["arm"] == arm]
            prompts = len({row["prompt_id"] for row in own})
            text = f"  {at:24} {source:10} {prompts:3} prompts acceptance {acceptance(mine):.3f}"
            print(f"{text} speedup {shown(speed)}")


def for_good(windows, level, width):
    """The end of the first window at a level from which on none stays below it for as many prompts as a window has."""
    reached, below = None, 0
    for end, found in windows:
        below = 0 if found >= level else below + 1
        if not below:
            reached = reached or end
        elif below >= width:
            reached = None
    return reached


def recovery(name, arm, other):
    """Seeds pooled at each position, as the report does: rounds of a trailing window."""
    rows = [row for row in load(name, "stream") if row["split"] == "train"]
    pools = {}
    for (segment, label), own in grouped(rows, "segment", "arm").items():
        by_index = grouped(own, "prompt_index")
        pools[segment, label] = [by_index[(i,)] for i in range(len(by_index))]
    rate = lambda pool: acceptance([row for rows in pool for row in rows])
    for segment in sorted({segment for segment, _ in pools} - {0}):
        plateau = {a: rate(pools[segment, a][-(len(pools[segment, a]) // 4):]) for a in (arm, other)}
        common = min(plateau.values())
        for width in (25, 37, 50):
            text = []
            for label, own in plateau.items():
                pool = pools[segment, label]
                windows = [(end, rate(pool[end - width : end])) for end in range(width, len(pool) + 1)]
                prompts = lambda level: for_good(windows, 0.95 * level, width)
                text.append(f"{label}: common {prompts(common)}, own {prompts(own)} (plateau {own:.3f})")
            print(f"  segment {segment + 1} window {width}: {'; '.join(text)}")


def caches(name):
    for (at, arm), rows in grouped(load(name, "stream"), "at", "arm").items():
        last = [max(own, key=lambda row: row["prompt_index"]) for own in grouped(rows, "seed").values()]
        ngrams = np.mean([row["cache_ngrams"] for row in last])
        if ngrams:
            size = np.mean([row["cache_bytes"] for row in last]) / ngrams
            prompts = last[0]["prompt_index"] + 1
            print(f"  {at:28} {arm:20} {prompts} prompts, {ngrams:.0f} n-grams, {size:.0f} bytes each")


def costs(name, stage):
    """Parts of a round over a plain step, the latter of the same cells."""
    prompts, rounds = load(name, stage), load(name, stage, "rounds")
    for (at,), rows in grouped(prompts, "at").items():
        plain = [row for row in rows if row["arm"] == "autoregressive"]
        step = sum(row["seconds"] for row in plain) / sum(row["new_tokens"] for row in plain)
        for (arm,), own in grouped([row for row in rounds if row["at"] == at], "arm").items():
            parts = ("draft", "translate", "verify", "commit")
            mean = {part: 1e-6 * np.mean([row[f"{part}_us"] for row in own]) / step for part in parts}
            drafted = np.mean([row["draft_tokens"] for row in own])
            text = ", ".join(f"{part} {value:.3f}" for part, value in mean.items())
            print(f"  {at:24} {arm:20} draft step {mean['draft'] / drafted:.3f}; round: {text}")


def learning(name):
    for (arm,), own in grouped(load(name, "stream"), "arm").items():
        total = lambda key: sum(row[key] for row in own)
        busy, learn = total("seconds"), total("learn_s")
        with_prefill = busy + total("prefill_s") + learn
        text = f"of decoding and learning {learn / (busy + learn):.3f}"
        print(f"  {arm:28} {text}, prefill in {learn / with_prefill:.3f}")


def by_quarter(name):
    """Whole seconds of the streamed prompts, prefill and learning included, beside plain decoding of the same prompts; then
    the means of tasks. A Markdown table."""
    whole = lambda rows: sum(row["seconds"] + row["prefill_s"] + row["learn_s"] for row in rows)
    speed = lambda rows: sum(row["new_tokens"] for row in rows) / whole(rows)
    stream = grouped(load(name, "stream"), "at", "arm")
    heads = ["target, task", "arm", "prompts", "tokens/s", "over plain", "1st quarter", "2nd", "3rd", "4th"]
    heads += ["tokens a round", "learning, share", "seconds saved"]
    print("| " + " | ".join(heads) + " |\n|:--|:--|" + "--:|" * 10)
    means = {}
    for (at, arm), own in stream.items():
        plain = stream[at, "autoregressive"]
        length = 1 + max(row["prompt_index"] for row in own)
        part = lambda rows, i: [r for r in rows if 4 * r["prompt_index"] // length == i]
        over = [speed(own) / speed(plain), *(speed(part(own, i)) / speed(part(plain, i)) for i in range(4))]
        means.setdefault((at.split(", ")[0], arm), []).append(over)
        row = [f"{len(own)}", f"{speed(own):.1f}", *(f"{x:.2f}x" for x in over)]
        row += [f"{sum(r['new_tokens'] for r in own) / sum(r['rounds'] for r in own):.2f}"]
        row += [f"{sum(r['learn_s'] for r in own) / whole(own):.2f}", f"{whole(plain) - whole(own):.0f}"]
        print("| " + " | ".join([at, arm, *row]) + " |")
    for (target, arm), rows in means.items():
        if len(rows) > 1:
            row = ["–", "–", *(f"{np.mean(column):.2f}x" for column in zip(*rows)), "–", "–", "–"]
            print("| " + " | ".join([f"{target}, mean of tasks", arm, *row]) + " |")


def prompts_share(name):
    """What reading the prompt takes of whole seconds (the prompt, decoding, learning), by task; speedups over plain decoding of the
    same prompts, without and with it; and plain decoding's whole seconds over those of its prompts, which no way of decoding can
    exceed. A Markdown table."""
    parts = lambda rows: [sum(row[key] for row in rows) for key in ("prefill_s", "seconds", "learn_s")]
    heads = ["target, task", "arm", "prompt tokens", "answer tokens", "prompt, share", "decoding over plain", "over plain", "at most"]
    print("| " + " | ".join(heads) + " |\n|:--|:--|" + "--:|" * (len(heads) - 2))
    stream = grouped(load(name, "stream"), "at", "arm")
    for (at, arm), own in stream.items():
        mean = lambda key: sum(row[key] for row in own) / len(own)
        (read, decoded, learnt), plain = parts(own), parts(stream[at, "autoregressive"])
        row = [f"{mean('prompt_tokens'):.0f}", f"{mean('new_tokens'):.0f}", f"{read / (read + decoded + learnt):.2f}"]
        row += [f"{plain[1] / decoded:.2f}x", f"{sum(plain) / (read + decoded + learnt):.2f}x", f"{sum(plain) / plain[0]:.2f}x"]
        print("| " + " | ".join([at, arm, *row]) + " |")


def by_segment(name):
    """An arm under a change of task and target, segment by segment: tokens a second, over plain decoding of the same prompts in
    each half, share of learning, how its answers were made, seconds saved. A Markdown table."""
    whole = lambda rows: sum(row["seconds"] + row["prefill_s"] + row["learn_s"] for row in rows)
    speed = lambda rows: sum(row["new_tokens"] for row in rows) / whole(rows)
    parts = grouped(load(name, "stream"), "segment", "arm")
    heads = ["segment", "answers", "arm", "tokens/s", "over plain", "first half", "second half", "learning, share"]
    print("| " + " | ".join([*heads, "drafted by", "seconds saved"]) + " |\n|--:|:--|:--|" + "--:|" * 5 + ":--|--:|")
    for (segment, arm), own in parts.items():
        plain = parts[segment, "autoregressive"]
        numbers = sorted({r["prompt_index"] for r in own})
        place = {number: 2 * n // len(numbers) for n, number in enumerate(numbers)}
        half = lambda rows, i: [r for r in rows if place[r["prompt_index"]] == i]
        ways = {}
        for row in own:
            ways[row.get("way")] = ways.get(row.get("way"), 0) + 1
        made = ", ".join(f"{way}: {count}" for way, count in sorted(ways.items(), key=lambda w: -w[1]) if way)
        row = [f"{speed(own):.1f}", f"{speed(own) / speed(plain):.2f}x"]
        row += [f"{speed(half(own, i)) / speed(half(plain, i)):.2f}x" for i in (0, 1)]
        row += [f"{sum(r['learn_s'] for r in own) / whole(own):.2f}", made or "-", f"{whole(plain) - whole(own):.0f}"]
        answers = f"{len(own)} of {own[0]['target']}, {own[0]['task']}"
        print("| " + " | ".join([f"{segment + 1}", answers, arm, *row]) + " |")


def kinds(name):
    """Rounds of a stream by what they did, segment by segment: their share, and tokens a second within rounds (drafting,
    translating, verifying, committing). A Markdown table."""
    parts = ("draft_us", "translate_us", "verify_us", "commit_us")
    kind = lambda row: {(0, 0): "neither", (0, 1): "drafted", (1, 0): "copied", (1, 1): "both"}[
        row["looked_up"] > 0, row["draft_tokens"] > 0]
    print("| segment | arm | rounds | share | tokens a round | tokens/s |\n|--:|:--|:--|--:|--:|--:|")
    for (segment, arm), rows in grouped(load(name, "stream", "rounds"), "segment", "arm").items():
        for which in ("drafted", "copied", "both", "neither"):
            own = [row for row in rows if kind(row) == which]
            if own:
                tokens, time = sum(r["emitted"] for r in own), sum(r[part] for r in own for part in parts) / 1e6
                print(f"| {segment + 1} | {arm} | {which} | {len(own) / len(rows):.2f} | {tokens / len(own):.2f} | {tokens / time:.1f} |")


def positions(*names):
    """The target's forward over so many positions, verification in, over a plain step of the same cell: the median of the
    stream's rounds that had as many, if there are twenty. With the kernels that the processor has. NAME:SEED is one seed of a
    run whose seeds ran on different machines. A Markdown table."""
    widths = range(1, 10)
    heads = ["run", "target", "kernels", "plain step, ms", *map(str, widths)]
    print("| " + " | ".join(heads) + " |\n|:--|:--|:--|" + "--:|" * (len(heads) - 3))
    for name, _, seed in (name.partition(":") for name in names):
        wanted = lambda rows: [row for row in rows if seed in ("", str(row["seed"]))]
        manifests = sorted((HERE / name / "stream").glob("*/manifest.json"))
        kernels = {json.loads(path.read_text())["machine"]["kernels"] for path in manifests}
        plain = [row for row in wanted(load(name, "stream")) if row["arm"] == "autoregressive"]
        step = lambda rows: sum(row["seconds"] for row in rows) / sum(row["new_tokens"] for row in rows)
        steps = {at: step(rows) for at, rows in grouped(plain, "at", "seed").items()}
        taken = collections.defaultdict(list)
        for row in wanted(load(name, "stream", "rounds")):
            taken[1 + row["proposed"] + (row.get("alternatives") or 0)].append(1e-6 * row["verify_us"] / steps[row["at"], row["seed"]])
        target = " ".join(sorted({row["target"] for row in plain}))
        medians = [f"{np.median(taken[width]):.2f}" if len(taken[width]) >= 20 else "\u2013" for width in widths]
        label = f"{name}, seed {seed}" if seed else name
        print("| " + " | ".join([label, target, " ".join(sorted(kernels)), f"{1e3 * step(plain):.1f}", *medians]) + " |")


def curve(name, arm, other, width="32"):
    """Tokens a round of two arms over every so many streamed prompts and on the held-out ones, all seeds together, and their
    ratio under the same draws of seeds and prompts. A Markdown table."""
    width, rng = int(width), np.random.default_rng(0)
    parts = {}
    for row in load(name, "stream"):
        parts.setdefault((row["at"], f"{row['prompt_index'] // width * width + 1} to "
                          f"{(row['prompt_index'] // width + 1) * width}"), []).append(row)
    for row in load(name, "held-out"):
        parts.setdefault((row["at"], "held out"), []).append(row)
    print(f"| target, task | prompts | {arm} | {other} | ratio |\n|:--|:--|--:|--:|--:|")
    for (at, window), rows in parts.items():
        seeds = sorted({row["seed"] for row in rows})
        index = {key: i for i, key in enumerate(sorted({row["prompt_id"] for row in rows}))}
        sums = {which: np.zeros((len(seeds), len(index), 2)) for which in (arm, other)}
        for row in rows:
            if row["arm"] in sums:
                sums[row["arm"]][seeds.index(row["seed"]), index[row["prompt_id"]]] += row["new_tokens"], row["rounds"]
        if not all(grid.any() for grid in sums.values()):
            continue
        rate = lambda grid, weights: np.divide(*np.einsum("spx,sp->x", grid, weights))
        ones = np.ones((len(seeds), len(index)))
        found = []
        for _ in range(DRAWS):
            drawn = [rng.multinomial(n, np.full(n, 1 / n)) for n in ones.shape]
            weights = np.outer(*drawn)
            found.append(rate(sums[arm], weights) / rate(sums[other], weights))
        low, high = np.nanpercentile(found, [2.5, 97.5])
        own, its = (rate(sums[which], ones) for which in (arm, other))
        print(f"| {at} | {window} | {own:.3f} | {its:.3f} | {own / its:.3f} ({low:.3f}–{high:.3f}) |")


def by_task(name):
    """An arm a line, a task a column: tokens a second, over plain decoding, the same in the last quarter, learning's share of
    the time. A Markdown table."""
    whole = lambda rows: sum(row["seconds"] + row["prefill_s"] + row["learn_s"] for row in rows)
    speed = lambda rows: sum(row["new_tokens"] for row in rows) / whole(rows)
    stream = grouped(load(name, "stream"), "at", "arm")
    tasks, arms = (list(dict.fromkeys(key[i] for key in stream)) for i in (0, 1))
    print("| " + " | ".join(["arm", *tasks]) + " |\n|:--|" + "--:|" * len(tasks))
    for arm in arms:
        cells = []
        for at in tasks:
            own, plain = stream[at, arm], stream[at, "autoregressive"]
            length = 1 + max(row["prompt_index"] for row in own)
            last = lambda rows: [r for r in rows if 4 * r["prompt_index"] // length == 3]
            share = sum(r["learn_s"] for r in own) / whole(own)
            over = speed(own) / speed(plain), speed(last(own)) / speed(last(plain))
            cells.append(f"{speed(own):.1f} · {over[0]:.2f}x · {over[1]:.2f}x · {share:.2f}")
        print("| " + " | ".join([arm, *cells]) + " |")


def what_learnt(name):
    """Of arms that learn: the answers learnt from, whether updates are charged to rows, and what copies had of the accepted
    tokens. A Markdown table."""
    heads = ["target, task", "arm", "answers", "learnt from", "updates", "their seconds", "charged", "over plain, all charged"]
    print("| " + " | ".join(heads + ["accepted in rounds that copied"]) + " |\n|:--|:--|" + "--:|" * 7)
    whole = lambda rows: sum(row["seconds"] + row["prefill_s"] + row["learn_s"] for row in rows)
    stream = grouped(load(name, "stream"), "at", "arm")
    updates = grouped(load(name, "stream", "updates"), "at", "arm")
    rounds = grouped(load(name, "stream", "rounds"), "at", "arm")
    for (at, arm), steps in updates.items():
        own, plain = stream[at, arm], stream[at, "autoregressive"]
        seconds, charged = sum(u["seconds"] for u in steps), sum(r["learn_s"] for r in own)
        tokens = sum(r["new_tokens"] for r in own) / sum(r["new_tokens"] for r in plain)
        all_charged = tokens * whole(plain) / (whole(own) + max(0.0, seconds - charged))
        accepted = lambda rows: sum(r["accepted"] for r in rows)
        copied = accepted([r for r in rounds[at, arm] if r["looked_up"]]) / accepted(rounds[at, arm])
        taught = sum(max(u["prompts_seen"] for u in of) for of in grouped(steps, "seed").values())
        row = [f"{len(own)}", f"{taught}", f"{len(steps)}", f"{seconds:.1f}", f"{charged:.1f}"]
        print("| " + " | ".join([at, arm, *row, f"{all_charged:.2f}x", f"{copied:.2f}"]) + " |")


def agreement(name):
    """Of arms whose last blocks learn: the share of positions at which the drafter agrees with the target before it learns
    from them, and that of the weights it had at first, at the same positions. Over all updates but the first, and over the
    last half of them; intervals resample updates. A Markdown table."""
    heads = ["target, task", "arm", "updates", "positions", "frozen weights", "learner", "difference", "last half: frozen weights", "learner", "difference"]
    print("| " + " | ".join(heads) + " |\n|:--|:--|" + "--:|" * (len(heads) - 2))
    rng = np.random.default_rng(0)
    for (at, arm), rows in grouped(load(name, "stream", "updates"), "at", "arm").items():
        rows = sorted((r for r in rows if known(r.get("agreed"))), key=lambda r: r["update"])
        if not rows:
            continue
        all_of = np.array([(r["dm_positions"], r["agreed_first"], r["agreed"]) for r in rows])
        cells = [f"{len(rows)}", f"{all_of[:, 0].sum():.0f}"]
        for own in (all_of, all_of[len(all_of) // 2 :]):
            mean = lambda of: np.average(of[:, 1:], axis=0, weights=of[:, 0])
            drawn = [np.diff(mean(own[rng.integers(len(own), size=len(own))]))[0] for _ in range(DRAWS)]
            (first, learner), (low, high) = mean(own), np.percentile(drawn, [2.5, 97.5])
            cells += [f"{first:.3f}", f"{learner:.3f}", f"{learner - first:+.3f} ({low:+.3f} to {high:+.3f})"]
        print("| " + " | ".join([at, arm, *cells]) + " |")


def never_slower(name, width="32", first="8"):
    """Speed over plain decoding of the same prompts, prefill and learning in, over every `width` prompts in a row after the
    `first` ones, at the same places in all seeds' streams: the least and the mean of them; the least in the stream of one
    seed; and over all of these prompts, with an interval (95%) that resamples seeds and prompts. Of answers that differ in
    length, as drawn ones do, the seconds after the prompt count as for an answer of plain decoding's length; those of the
    prompt are there once, however long the answer. A Markdown table."""
    width, first = int(width), int(first)
    heads = ["target, task", "arm", "seeds", "prompts", f"least of every {width}", "mean", "least in one seed", f"the first {first}"]
    heads += ["after these", "all", "plain answers", "speed of these", "learning, s"]
    print("| " + " | ".join(heads) + " |\n|:--|:--|" + "--:|" * (len(heads) - 2))
    stream = grouped(load(name, "stream"), "at", "arm")
    each = lambda row, tokens: row["prefill_s"] + (row["seconds"] + row["learn_s"]) / row["new_tokens"] * tokens
    place = lambda row: (row["seed"], row["segment"], row["prompt_index"])
    rng = np.random.default_rng(0)
    speed = lambda cost: cost[:, 0].sum() / cost[:, 1].sum()

    def spread(costs):
        costs = [cost for cost in costs if len(cost)]
        if not costs:
            return "–"

        def draw():
            seeds = [costs[i] for i in rng.integers(len(costs), size=len(costs))]
            return speed(np.concatenate([cost[rng.integers(len(cost), size=len(cost))] for cost in seeds]))

        low, high = np.percentile([draw() for _ in range(DRAWS)], [2.5, 97.5])
        return f"{speed(np.concatenate(costs)):.3f}x ({low:.3f}–{high:.3f})"

    for (at, arm), rows in stream.items():
        plain = {place(row): row for row in stream[at, "autoregressive"]}
        seeds = [sorted(own, key=place) for own in grouped(rows, "seed").values()]

        def costs(own):
            of = [(plain[place(row)], row) for row in own]
            return np.array([(each(p, p["new_tokens"]), each(row, p["new_tokens"])) for p, row in of]).reshape(-1, 2)

        streams = [costs(own) for own in seeds]
        if (shortest := min(map(len, streams))) < first + width:
            sys.exit(f"{name}: {at}, {arm}: a stream of {shortest} prompts has no {width} after the first {first}\nhint: never_slower {name} WIDTH FIRST")
        runs = lambda cost: [speed(cost[i : i + width]) for i in range(first, len(cost) - width + 1)]
        together, alone = runs(sum(streams)), [min(runs(cost)) for cost in streams]
        rested = [costs([row for row in own if row.get("way") == "plain"]) for own in seeds]
        row = [len(seeds), len(rows), f"{min(together):.3f}x", f"{np.mean(together):.3f}x", f"{min(alone):.3f}x"]
        row += [f"{speed(np.concatenate([cost[:first] for cost in streams])):.3f}x", spread([cost[first:] for cost in streams])]
        row += [f"{speed(np.concatenate(streams)):.3f}x", sum(map(len, rested)), spread(rested)]
        print("| " + " | ".join([at, arm, *map(str, row), f"{sum(r['learn_s'] for r in rows):.1f}"]) + " |")


def break_even(name, arm, other):
    """Answers by the frozen drafter after which what `arm` spent on a stream more than `other` is won back, the mean of its
    seeds."""
    whole = lambda rows: sum(row["seconds"] + row["prefill_s"] + row["learn_s"] for row in rows)
    stream = grouped(load(name, "stream"), "at", "arm")
    held_out = grouped(load(name, "held-out"), "at", "arm")
    heads = ["target, task", "streamed", "seconds more on the stream", "seconds saved an answer", "answers to break even"]
    print("| " + " | ".join(heads) + " |\n|:--|" + "--:|" * 4)
    for at in sorted({at for at, _ in stream}):
        seeds = len({row["seed"] for row in stream[at, arm]})
        more = (whole(stream[at, arm]) - whole(stream[at, other])) / seeds
        frozen = held_out[at, arm], held_out[at, other]
        saved = (whole(frozen[1]) - whole(frozen[0])) / len(frozen[0])
        streamed = len(stream[at, arm]) // seeds
        print(f"| {at} | {streamed} | {more:.1f} | {saved:.2f} | {more / saved:.0f} |")


def drafted(name, stage, arm):
    """Copies are no draft tokens of the drafter, but for `prompt-lookup`, which has no other. A Markdown table."""
    print("| run | target, task | arm | drafter's tokens a round | tokens a round |\n|:--|:--|:--|--:|--:|")
    rows = [row for row in load(name, stage) if row["arm"] == arm]
    held_out = [row for row in rows if row["split"] == "test"]
    for (at,), own in grouped(held_out or rows, "at").items():
        total = lambda key: sum(row[key] for row in own)
        rounds = total("rounds")
        print(f"| {name} | {at} | {arm} | {total('draft_tokens') / rounds:.2f} | {total('new_tokens') / rounds:.2f} |")


def answers(name, stage):
    """By the hashes of the answers, a seed at a time, means over seeds."""
    for (at,), rows in grouped(load(name, stage), "at").items():
        plain = {(r["seed"], r["prompt_id"]): r for r in rows if r["arm"] == "autoregressive"}
        cut = np.mean([row["finish"] == "length" for row in plain.values()])
        seeds = grouped(plain.values(), "seed").values()
        distinct = np.mean([len({row["tokens_hash"] for row in own}) for own in seeds])
        same = lambda own: np.mean([r["tokens_hash"] == plain[r["seed"], r["prompt_id"]]["tokens_hash"] for r in own])
        shares = {arm: same(own) for (arm,), own in grouped(rows, "arm").items() if arm != "autoregressive"}
        count = len(plain) // len(seeds)
        print(f"  {at:24} cut {cut:.2f}, {distinct:.1f} different of {count}; equal to plain decoding's:")
        print("    " + ", ".join(f"{arm} {share:.2f}" for arm, share in shares.items()))


if __name__ == "__main__":
    command, *arguments = sys.argv[1:] or ["help"]
    commands = {f.__name__: f for f in (cells, over, window, code, recovery, caches, costs, learning, answers)}
    commands |= {f.__name__: f for f in (by_quarter, by_task, prompts_share, by_segment, kinds, positions, curve, what_learnt, agreement, never_slower, break_even, drafted, check)}
    if command not in commands:
        sys.exit(__doc__)
    commands[command](*arguments)
