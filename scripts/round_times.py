#!/usr/bin/env python3
"""Where the time of a speculative round goes, per arm, from the raw rows of a results folder.

    pip install polars
    python3 scripts/round_times.py runs/quickstart
"""

import sys

import polars as pl

PARTS = ["draft_s", "translate_s", "verify_s", "commit_s"]


def main(folder: str) -> None:
    rounds = pl.read_parquet(f"{folder}/rounds.parquet").filter(pl.col("phase") == "test")
    prompts = pl.read_parquet(f"{folder}/prompts.parquet").filter(pl.col("phase") == "test")
    plain = prompts.filter(pl.col("arm") == "autoregressive")
    step = 1e3 * plain["seconds"].sum() / plain["new_tokens"].sum()
    table = (
        rounds.group_by("segment", "arm")
        .agg(
            pl.len().alias("rounds"),
            pl.col("emitted").mean().round(2).alias("tokens/round"),
            *[(1e3 * pl.col(part).mean()).round(3).alias(part.replace("_s", " ms")) for part in PARTS],
        )
        .sort("segment", "arm")
    )
    with pl.Config(tbl_rows=-1, tbl_cols=-1, tbl_width_chars=120):
        print(table)
    print(f"plain decoding: {step:.3f} ms a token")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
