#!/usr/bin/env python3
"""Verification modes over temperatures: one page from the raw rows of several runs of
experiments/lossless-*.toml.

    pip install polars
    python3 scripts/lossless_table.py results/lossless-?/* results/exact-cost-? > table.md

Per cell: tokens / bytes per target forward, and speedup over plain decoding (totals of the held-out
prompts); runs without plain decoding have no such table. Last, `exact` against `paper` with the learnt drafter: the ratio of their tokens per
forward, with a 95% paired bootstrap interval over prompts.
"""

import json
import random
import sys

import polars as pl

PLAIN = "autoregressive"
EXACT = "exact, after"
PAPER = "L_DM + λ L_N-gram"
ROWS = [
    (f"{mode}, {when}", PAPER if (mode, when) == ("paper", "after") else f"{mode}, {when}")
    for when in ("before", "after")
    for mode in ("tli", "slem", "paper", "exact")
]


def totals(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.group_by("arm", "task").agg(
        pl.col("acceptance_rate").mean().alias("acceptance"),
        (pl.col("new_tokens").sum() / pl.col("rounds").sum()).alias("tokens"),
        (pl.col("new_bytes").sum() / pl.col("rounds").sum()).alias("bytes"),
        (
            (pl.col("new_tokens").sum() / pl.col("seconds").sum())
            / (pl.col("baseline_tokens").sum() / pl.col("baseline_s").sum())
        ).alias("speedup"),
    )


def ratio(rows: pl.DataFrame, tasks: list[str]) -> tuple[int, float, float, float]:
    """Prompts, tokens per forward of exact over paper, and a 95% interval."""
    pick = rows.filter(pl.col("task").is_in(tasks))
    key = ["task", "prompt_index"]
    both = (
        pick.filter(pl.col("arm") == EXACT)
        .join(pick.filter(pl.col("arm") == PAPER), on=key, suffix="_p")
        .select("new_tokens", "rounds", "new_tokens_p", "rounds_p")
        .rows()
    )

    def value(sample):
        t, r, tp, rp = (sum(column) for column in zip(*sample))
        return (t / r) / (tp / rp)

    rng = random.Random(1)
    draws = sorted(value(rng.choices(both, k=len(both))) for _ in range(2000))
    return len(both), value(both), draws[50], draws[1949]


def main(folders: list[str]) -> None:
    runs = []
    for folder in folders:
        with open(f"{folder}/manifest.json", encoding="utf-8") as file:
            manifest = json.load(file)
        rows = pl.read_parquet(f"{folder}/prompts.parquet").filter(pl.col("phase") == "test")
        target = next(iter(manifest["config"]["models"]["targets"]))
        runs.append((target, manifest["config"]["decode"]["temperature"], rows, folder))
    runs.sort(key=lambda run: run[:2])
    ratios = []
    for target, temperature, rows, _ in runs:
        tasks = rows["task"].unique(maintain_order=True).to_list()
        for name, some in [(task, [task]) for task in tasks] + [("all", tasks)]:
            ratios.append((target, temperature, name, *ratio(rows, some)))
        if rows.filter(pl.col("arm") == PLAIN).is_empty():
            continue
        table = totals(rows)
        print(f"## Target {target}, temperature {temperature}\n")
        print("| mode | " + " | ".join(tasks) + " |")
        print("|:--|" + "--:|" * len(tasks))
        for label, arm in ROWS:
            cells = []
            for task in tasks:
                row = table.filter((pl.col("arm") == arm) & (pl.col("task") == task)).row(0, named=True)
                cells.append(
                    f"{row['acceptance']:.2f} {row['tokens']:.2f} {row['bytes']:.1f} {row['speedup']:.2f}x"
                )
            print(f"| {label} | " + " | ".join(cells) + " |")
        print()
    print("## Tokens per forward of `exact` over those of `paper`, learnt drafter and cache\n")
    print("| target | temperature | task | prompts | ratio | 95% interval |")
    print("|:--|--:|:--|--:|--:|--:|")
    for target, temperature, task, prompts, value, low, high in ratios:
        print(f"| {target} | {temperature} | {task} | {prompts} | {value:.3f} | {low:.3f}-{high:.3f} |")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
