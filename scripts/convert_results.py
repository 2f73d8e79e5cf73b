#!/usr/bin/env python3
"""Published runs of layout 1 (a folder with several seeds and tasks) into layout 2 (a folder per cell).

    pip install pyarrow
    mkdir old && git archive ece5313 results | tar -x -C old
    python3 scripts/convert_results.py old/results results [NAME ...]

Run once, on 2026-11-22; kept to show what became of the rows. Of every experiment in `EXPERIMENTS` it writes
`experiment.json` and `STAGE/CELL/` with `manifest.json` and the tables. What the old runs did not record:

- `answer` is empty: only `tokens_hash` was kept.
- `ngrams_proposed` and `judged_rounds` of a prompt are summed from its rounds, `acceptance_rate` computed again.
- Times of stages that were not timed are 0, their rounds are left out, and their updates too unless `keep_updates`.
- A manifest holds the old configuration under `config.config`; such a cell cannot be run again by its manifest. Start
  and end are those of the whole old run. The hashes of the learnt states are one hash over all of the old run's.
"""

import hashlib
import itertools
import json
import pathlib
import sys
import tomllib

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

EXPERIMENT_FILES = pathlib.Path("experiments")

# Names of arms, where a preset or the file of today has another one.
ARMS = {"+ N-gram_pp": "N-gram_pp", "L_DM + λ L_N-gram": "L_DM+L_N-gram", "Eq. 5 of Throughput": "Head"}
ARMS |= {f"{rule} of Throughput": rule for rule in ("Heuristic", "Confidence", "Entropy")}
SWEPT = {f"k = {k} of Throughput": ("constant", "decode.k", str(k)) for k in (1, 2, 3, 4, 6, 8)}
RANKS = {f"rank {rank}": ("LoRA", "learn.lora.rank", str(rank)) for rank in (8, 16, 32, 64, 128)}
REPLAYED = {f"{n} replayed": ("replayed", "learn.replay", str(n)) for n in (8, 16)}


def both(folder):
    return [(f"table1-{target}/{folder}", {}) for target in "LQ"]


# Of every experiment: its file today, and of every stage the old folders with coordinates that they do not name
# themselves. A stage called stream is not timed unless `timed` says so; the others start from `from`.
EXPERIMENTS = {
    "table1": {
        "file": "table1.toml",
        "figures": ["curves", "cache", "hits"],
        "stages": {"stream": both("stream"), "held-out": both("held-out")},
    },
    "table2": {
        "file": "table2.toml",
        "swept": SWEPT,
        "stages": {s: [(f"table2/{s}", {})] for s in ("stream", "held-out")},
    },
    "table5": {
        "file": "table5.toml",
        "stages": {
            s: [(f"table5/{s}", {"decode.k": "3"}), (f"table5/k4-{s}", {"decode.k": "4"})]
            for s in ("stream", "held-out")
        },
    },
    "table6": {
        "file": "table6.toml",
        "keep_updates": True,
        "stages": {
            s: [(f"table6/{s}", {"decode.temperature": "0.01"}), (f"table6/T1-{s}", {"decode.temperature": "1.0"})]
            for s in ("stream", "held-out")
        },
    },
    "table12": {
        "file": "table12.toml",
        "swept": RANKS,
        "stages": {s: [(f"table12/{s}", {})] for s in ("stream", "held-out")},
    },
    "figure5": {"file": "figure5.toml", "keep_updates": True, "stages": {"stream": [("figure5", {})]}},
    "figure6": {"file": "figure6.toml", "keep_updates": True, "stages": {"stream": [("figure6", {})]}},
    "gsm8k-long": {
        "file": "ablations/gsm8k-long.toml",
        "arms": {"LK + λ L_N-gram": "LK + L_N-gram"},
        "stages": {
            "stream": [(f"gsm8k-long/{f}", {}) for f in ("L-stream-reverse-kl", "L-stream", "Q-stream")],
            "held-out": [(f"gsm8k-long/{t}-held-out", {}) for t in "LQ"],
        },
    },
    "adaptive-cross": {
        "file": "ablations/adaptive-cross.toml",
        "swept": SWEPT,
        "stages": {s: [(f"adaptive-cross/{s}", {})] for s in ("stream", "held-out")},
    },
    "adaptive-cross-free": {
        "file": "ablations/adaptive-cross.toml",
        "title": "Adaptive drafting across vocabularies, n-grams never held together",
        "swept": SWEPT,
        "stages": {s: [(f"adaptive-cross/{s}-free", {})] for s in ("stream", "held-out")},
    },
    "lora-switch": {
        "file": "ablations/lora-switch.toml",
        "keep_updates": True,
        "stages": {"stream": [("lora-switch", {})]},
    },
    "learning-cost": {
        "file": "ablations/learning-cost.toml",
        "arms": {"LK + λ L_N-gram": "LK"},
        "swept": REPLAYED,
        "timed": ["stream"],
        "keep_updates": True,
        "stages": {"stream": [("learning-cost", {})]},
    },
}

TEXT, U32, U64, F64 = pa.string(), pa.uint32(), pa.uint64(), pa.float64()
PROMPTS = {
    "arm": TEXT, "seed": U64, "segment": U32, "split": TEXT, "task": TEXT, "target": TEXT, "prompt_index": U32,
    "prompt_id": TEXT, "prompt_tokens": U32, "new_tokens": U32, "new_bytes": U32, "rounds": U32, "draft_tokens": U32,
    "proposed": U32, "accepted": U32, "ngrams_proposed": U32, "ngram_hits": U32, "acceptance_rate": F64,
    "judged_rounds": U32, "seconds": F64, "prefill_s": F64, "learn_s": F64, "cache_ngrams": U32, "cache_bytes": U64,
    "finish": TEXT, "answer": TEXT, "tokens_hash": TEXT,
}  # fmt: skip
ROUNDS = {
    "arm": TEXT, "segment": U32, "split": TEXT, "prompt_index": U32, "round": U32, "draft_tokens": U32,
    "proposed": U32, "accepted": U32, "emitted": U32, "emitted_bytes": U32, "ngrams_proposed": U32,
    "ngrams_accepted": U32, "expected_acceptance": F64, "draft_us": U32, "translate_us": U32, "verify_us": U32,
    "commit_us": U32,
}  # fmt: skip
UPDATES = {
    "arm": TEXT, "seed": U64, "segment": U32, "update": U32, "prompts_seen": U32, "loss": F64, "loss_dm": F64,
    "loss_ngram": F64, "dm_positions": U32, "ngram_tokens": U32, "grad_norm": F64, "seconds": F64,
}  # fmt: skip
HEADS = {
    "arm": TEXT, "seed": U64, "segment": U32, "step": U32, "prompts_seen": U32, "examples": U32, "loss": F64,
    "fresh": U32, "fresh_loss": F64, "predicted": F64, "accepted": F64, "calibration_error": F64, "seconds": F64,
}  # fmt: skip


def sha256(value):
    """The hash of a JSON value as the program writes it: keys sorted, no spaces."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def column(table, name, values):
    at = table.schema.get_field_index(name)
    return table.append_column(name, values) if at < 0 else table.set_column(at, name, values)


def zeroed(table, names):
    for name in names:
        table = column(table, name, pa.array([0.0] * len(table), F64))
    return table


def write_table(path, table, schema):
    """One row group of required columns; a dictionary where values come again."""
    fields = pa.schema([pa.field(name, kind, nullable=False) for name, kind in schema.items()])
    table = table.select(list(schema)).cast(fields).combine_chunks()
    again = [name for name in schema if 2 * pc.count_distinct(table[name]).as_py() < len(table)]
    pq.write_table(
        table, path, compression="zstd", compression_level=19, use_dictionary=again, write_statistics=False,
        store_schema=False, row_group_size=max(len(table), 1),
    )  # fmt: skip


class OldRun:
    """A folder of layout 1."""

    def __init__(self, root, folder, extra, names):
        self.folder, self.extra, self.names = folder, extra, names
        self.path = root / folder
        self.manifest = json.loads((self.path / "manifest.json").read_text())
        assert self.manifest["schema"] == 1 and self.manifest["status"] == "complete", folder
        self.continual = self.manifest["streams"] == "continual"
        self.rounds = self.read("rounds")
        self.prompts = self.with_rounds(self.read("prompts"))
        self.tasks = {r["segment"]: (r["target"], r["task"]) for r in self.places()}

    def read(self, name):
        if not (self.path / f"{name}.parquet").exists():
            return None
        table = pq.read_table(self.path / f"{name}.parquet")
        for field in table.schema:
            if not (pa.types.is_integer(field.type) or pa.types.is_floating(field.type)):
                table = column(table, field.name, table[field.name].cast(TEXT))
        arms = [self.names.get(arm, arm) for arm in table["arm"].to_pylist()]
        table = column(table, "arm", pa.array(arms, TEXT))
        if "phase" in table.column_names:
            table = table.rename_columns(["split" if c == "phase" else c for c in table.column_names])
        return table

    def places(self):
        return self.prompts.group_by(["segment", "target", "task"]).aggregate([]).to_pylist()

    def with_rounds(self, prompts):
        """The columns of a prompt that its rounds tell; those the old rows had must come out the same."""
        keys = ["arm", "seed", "segment", "split", "prompt_index"]
        old = ["acceptance_rate", "proposed", "accepted", "ngram_hits", "new_tokens"]
        judged = pc.greater(self.rounds["proposed"], 0)
        share = pc.divide(self.rounds["accepted"].cast(F64), self.rounds["proposed"].cast(F64))
        rounds = column(self.rounds, "share", pc.if_else(judged, share, pa.scalar(None, F64)))
        sums = rounds.group_by(keys, use_threads=False).aggregate(
            [("share", "mean"), ("share", "count"), ("ngrams_proposed", "sum"), ("ngrams_accepted", "sum"),
             ("proposed", "sum"), ("accepted", "sum"), ("emitted", "sum")]
        )  # fmt: skip
        of = {tuple(row[k] for k in keys): row for row in sums.to_pylist()}
        rates, weights, ngrams = [], [], []
        for row in prompts.select([*keys, *old]).to_pylist():
            own = of.pop(tuple(row[k] for k in keys), None)
            rate, before = own["share_mean"] if own else None, row["acceptance_rate"]
            assert (rate is None and before != before) or abs(rate - before) < 1e-12, row
            if own:
                found = [own[f"{name}_sum"] for name in ("proposed", "accepted", "ngrams_accepted", "emitted")]
                assert found == [row[name] for name in old[1:]], row
            rates.append(float("nan") if rate is None else rate)
            weights.append(own["share_count"] if own else 0)
            ngrams.append(own["ngrams_proposed_sum"] if own else 0)
        assert not of, "rounds without a prompt"
        prompts = column(prompts, "acceptance_rate", pa.array(rates, F64))
        prompts = column(prompts, "judged_rounds", pa.array(weights, U32))
        prompts = column(prompts, "ngrams_proposed", pa.array(ngrams, U32))
        return column(prompts, "answer", pa.array([""] * len(prompts), TEXT))

    def cells(self, axes):
        """Coordinates and segments of every cell; a continual run is a cell per seed."""
        for seed in self.manifest["seeds"]:
            for segments in [set(self.tasks)] if self.continual else [{s} for s in sorted(self.tasks)]:
                target, task = self.tasks[min(segments)]
                known = {"target": target, "task": task, "seed": str(seed)} | self.extra
                yield tuple((axis, known[axis]) for axis in axes), seed, segments

    def rows(self, name, seed, segments):
        """A table's rows of one cell, with the cell's own segment numbers."""
        table = getattr(self, name) if name in ("prompts", "rounds") else self.read(name)
        if table is None:
            return None
        own = pc.and_(pc.equal(table["seed"], seed), pc.is_in(table["segment"], pa.array(segments, U32)))
        table = table.filter(own)
        return table if self.continual else column(table, "segment", pa.array([0] * len(table), U32))


def micros(rounds):
    for part in ("draft", "translate", "verify", "commit"):
        seconds = rounds[f"{part}_s"]
        rounds = column(rounds, f"{part}_us", pc.round(pc.multiply(seconds, 1e6)).cast(U32))
    return column(rounds, "expected_acceptance", pc.round(rounds["expected_acceptance"], 4))


def inputs(run, seed, segments):
    """What the cell read of what the run read; learnt states, which were never published, as one entry."""
    targets, tasks = ({run.tasks[s][i] for s in segments} for i in (0, 1))
    own = []
    for entry in run.manifest["inputs"]:
        words = entry["name"].split()
        stream = entry["role"] == "stream" and words[0] in tasks and entry["name"].endswith(f"(seed {seed})")
        if entry["role"] in {"drafter", *targets} or stream and entry["rows"]:
            own.append(entry)
    states = [entry for entry in run.manifest["inputs"] if entry["role"] == "state"]
    if states:
        digest = hashlib.sha256("".join(entry["sha256"] for entry in states).encode()).hexdigest()
        name = f"learnt states of all cells of the old run, {len(states)} files, hash of their hashes"
        size = sum(entry["bytes"] for entry in states)
        own.append({"role": "state", "name": name, "sha256": digest, "bytes": size, "rows": None})
    return own


def included(path):
    """Title, grid, arms and report of an experiment file with what it includes."""
    own = tomllib.loads(path.read_text())
    merged = {}
    for part in [included(path.parent / name) for name in own.get("include", [])] + [own]:
        merged |= {key: part[key] for key in ("title", "grid", "arm") if key in part}
        merged["report"] = merged.get("report", {}) | part.get("report", {})
    return merged


def arm_info(name, old, swept):
    return {
        "name": name,
        "is_plain": old["name"] == "autoregressive",
        "k": old["draft_length"],
        "temperature": old["temperature"],
        "swept_from": {"arm": swept[0], "values": [list(swept[1:])]} if swept else None,
    }


def page(spec, file, arms):
    """The report section of today's file, without arms that the old run lacks, and the paper's numbers."""
    given = file["report"]
    known = {arm["name"] for arm in arms} | {arm["swept_from"]["arm"] for arm in arms if arm["swept_from"]}
    report = {
        "stage": given.get("stage"),
        "rows": given["rows"],
        "columns": given.get("columns"),
        "cell": given["cell"],
        "ratios": [pair for pair in given.get("ratios", []) if set(pair) <= known],
        "paper": None,
        "figures": spec.get("figures", given.get("figures", [])),
        "formats": given["formats"],
    }
    data = None
    if "paper" in given:
        paper = EXPERIMENT_FILES / "paper" / pathlib.Path(given["paper"]).name
        report["paper"] = str(paper)
        data = tomllib.loads(paper.read_text())
    return report, data


def convert(name, spec, old, new):
    file = included(EXPERIMENT_FILES / spec["file"])
    axes = list(file["grid"])
    swept = spec.get("swept", {})
    labels = {was: f"{arm} ({key.rsplit('.')[-1]} = {value})" for was, (arm, key, value) in swept.items()}
    names = ARMS | spec.get("arms", {}) | labels
    arms, models, cells = {}, {"targets": {}}, {}
    for stage, folders in spec["stages"].items():
        cells[stage] = {}
        for folder, extra in folders:
            run = OldRun(old, folder, extra, names)
            answered = set(run.prompts["arm"].to_pylist())
            own = {}
            for arm in run.manifest["arms"]:
                label = names.get(arm["name"], arm["name"])
                if label in answered or stage != "stream":
                    own[label] = arm_info(label, arm, swept.get(arm["name"]))
            for label, info in own.items():
                # An axis may change an arm's k or temperature: the cells have their own.
                arms.setdefault(label, info)
            if stage == file["report"].get("stage", stage):
                config = run.manifest["config"]["models"]
                models = config | {"targets": models["targets"] | config["targets"]}
            for coordinates, seed, segments in run.cells(axes):
                cells[stage].setdefault(coordinates, []).append((run, list(own.values()), seed, segments))
    families = [arm.get("name", arm.get("preset")) for arm in file["arm"]]
    family = lambda arm: arm["swept_from"]["arm"] if arm["swept_from"] else arm["name"]
    arms = sorted(arms.values(), key=lambda arm: families.index(family(arm)))
    values = {axis: [] for axis in axes}
    for coordinates in itertools.chain.from_iterable(cells.values()):
        for axis, value in coordinates:
            if value not in values[axis]:
                values[axis].append(value)
    report, paper = page(spec, file, arms)
    experiment = {
        "converted_from": "schema 1",
        "title": spec.get("title", file["title"]),
        "axes": [{"name": axis, "values": own} for axis, own in values.items()],
        "stages": [],
        "arms": arms,
        "models": models,
        "report": report,
        "paper_data": paper,
    }
    jobs, hashes = [], {}
    experiment_hash = sha256({"name": name} | experiment)
    for stage in spec["stages"]:
        timed = stage != "stream" or stage in spec.get("timed", [])
        source = "stream" if stage != "stream" else None
        grid = itertools.product(*([(axis, value) for value in values[axis]] for axis in axes))
        planned = [coordinates for coordinates in grid if coordinates in cells[stage]]
        for coordinates in planned:
            cell = ",".join(f"{axis}={value}" for axis, value in coordinates)
            info = {
                "experiment": name, "experiment_sha256": experiment_hash, "stage": stage, "name": cell,
                "coordinates": [list(c) for c in coordinates], "seed": cells[stage][coordinates][0][2],
                "exclusive": timed, "from": source,
            }  # fmt: skip
            job = {"stage": stage, "cell": cell}
            digest, prompts = write_cell(new / name / stage / cell, info, cells[stage][coordinates], spec)
            hashes[stage, cell] = job["hash"] = digest
            if source:
                job["needs"] = {"stage": source, "cell": cell, "hash": hashes[source, cell]}
            jobs.append(job | {"exclusive": timed, "prompts": prompts, "coordinates": info["coordinates"]})
        experiment["stages"].append({"name": stage, "from": source, "exclusive": timed})
    experiment["cells"] = [{key: job[key] for key in ("stage", "cell", "coordinates")} for job in jobs]
    head = {"schema": 1, "name": name, "hash": experiment_hash, "jobs": jobs}
    write_json(new / name / "experiment.json", head | experiment)


def write_cell(to, info, parts, spec):
    """Writes one cell, of one old run or, where arms were run one by one, of several."""
    to.mkdir(parents=True)
    run, _, seed, segments = parts[0]
    timed = info["exclusive"]
    tables = {}
    for name in ("prompts", "rounds", "updates", "heads"):
        found = [rows for part, _, s, segs in parts if (rows := part.rows(name, s, segs)) is not None]
        tables[name] = pa.concat_tables(found) if found else None
    counts = {name: len(table) if table is not None else 0 for name, table in tables.items()}
    counts = {name: counts[name] for name in ("rounds", "prompts", "updates", "heads")}
    prompts = tables["prompts"]
    if not timed:
        prompts = zeroed(prompts, ["seconds", "prefill_s", "learn_s"])
        tables["updates"] = zeroed(tables["updates"], ["seconds"]) if spec.get("keep_updates") else None
        tables["heads"] = tables["heads"] and zeroed(tables["heads"], ["seconds"])
    write_table(to / "prompts.parquet", prompts, PROMPTS)
    if timed:
        write_table(to / "rounds.parquet", micros(tables["rounds"]), ROUNDS)
    for name, schema in (("updates", UPDATES), ("heads", HEADS)):
        if tables[name] is not None and len(tables[name]):
            write_table(to / f"{name}.parquet", tables[name], schema)
    sources = [{"folder": p.folder, "argv": p.manifest["argv"], "config": p.manifest["config"]} for p, *_ in parts]
    config = {"converted_from": "schema 1", "stage": info["stage"], "cell": info["name"], "seed": seed} | sources[0]
    if sources[1:]:
        config["also"] = [source | {"build": p.manifest["build"]} for source, (p, *_) in zip(sources[1:], parts[1:])]
    manifest = run.manifest
    targets = {run.tasks[segment][0] for segment in segments}
    digest = sha256(config)
    arms = {arm["name"]: arm for _, own, *_ in parts for arm in own}
    write_json(to / "manifest.json", {
        "schema": 2, "status": "complete", "error": None, "cell": info, "config": config, "config_sha256": digest,
        "arms": list(arms.values()), "latencies": manifest["latencies"],
        "padding": {t: p for t, p in manifest.get("padding", {}).items() if t in targets},
        "build": manifest["build"], "machine": manifest["machine"], "inputs": inputs(run, seed, segments),
        "started": manifest["started"], "finished": manifest["finished"], "seconds": None, "rows": counts,
    })  # fmt: skip
    index = prompts.group_by(["segment", "split", "prompt_index"]).aggregate([])
    return digest, len(index)


def main():
    old, new, *names = sys.argv[1:]
    for name in names or EXPERIMENTS:
        convert(name, EXPERIMENTS[name], pathlib.Path(old), pathlib.Path(new))
        print(name)


if __name__ == "__main__":
    main()
