"""The engines of the comparison: what each calls its weights, and how a process of it is started."""

import dataclasses
import json
import os
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
MEASURES = ["decode", "verify", "prefill"]
CALLS = [1, 2, 3, 5, 8, 9, 16]
# Bits of a weight, and each engine's name for weights of about so many.
WEIGHTS = {
    "ours": {32: "f32", 16: "bf16", 8: "int8", 4: "int4"},
    "llama.cpp": {32: "F32", 16: "BF16", 8: "Q8_0", 4: "Q4_0"},
    "transformers": {32: "f32", 16: "bf16"},
}
BITS = [32, 16, 8, 4]
# Of the peers' formats; a block of 32 weights has a scale of two bytes.
BYTES_PER_WEIGHT = {32: 4.0, 16: 2.0, 8: 34 / 32, 4: 18 / 32}


class Failed(Exception):
    """A process that measured nothing."""


@dataclasses.dataclass(frozen=True)
class Variant:
    engine: str
    bits: int

    @property
    def weights(self):
        return WEIGHTS[self.engine][self.bits]

    def __str__(self):
        return f"{self.engine} {self.weights}"


def variants(engines, sizes=BITS):
    """Variants of about the same size next to each other, so that they meet the same machine."""
    return [Variant(e, bits) for bits in sizes for e in engines if bits in WEIGHTS[e]]


@dataclasses.dataclass
class Bench:
    """Where everything is, and how it is measured."""

    binary: pathlib.Path
    peers: pathlib.Path
    threads: int
    context: int
    seconds: float

    @property
    def python(self):
        return self.peers / "venv" / "bin" / "python"

    def missing(self, engines):
        """A file that has to be made first."""
        needed = [self.binary]
        needed += [self.python] if {"llama.cpp", "transformers"} & set(engines) else []
        return next((path for path in needed if not path.exists()), None)

    def checkpoint(self, shape):
        """The random checkpoint all engines read; written once."""
        folder = self.peers / "checkpoints" / shape
        if not (folder / "model.safetensors").exists():
            self.run([self.binary, "--no-progress", "bench", "checkpoint", "--shape", shape, "--out", folder])
        return folder

    def convert(self, folder):
        """The checkpoint as GGUF in all kinds of weights; written once."""
        self.run([self.python, HERE / "gguf_files.py", folder, *WEIGHTS["llama.cpp"].values()])

    def measure(self, variant, folder):
        """One process: rows without time and round, for `ours` one process a measurement."""
        if variant.engine == "ours":
            return [row for measure in MEASURES for row in self.measure_ours(variant, folder, measure)]
        report = json.loads(self.run(self.peer(variant, folder)))
        return [
            {"measure": measure, "tokens": int(m), "ms": median(times), "samples": len(times)}
            for measure, by_tokens in report.items()
            for m, times in by_tokens.items()
        ]

    def measure_ours(self, variant, folder, measure):
        command = self.ours(variant, folder, measure) + ["--json", "--seconds", self.seconds]
        report = json.loads(self.run(command))
        keys = ["memory_gb_per_s", "weights_gb_per_s", "kernels"]
        rest = {key: report[key] for key in keys}
        return [
            {"measure": measure, "tokens": int(m), "ms": ms} | rest for m, ms in report["ms"].items()
        ]

    def logits(self, variant, folder, file):
        """Writes the logits of the longest call as little-endian f32."""
        if variant.engine == "ours":
            self.run(self.ours(variant, folder, "logits") + ["--out", file])
        else:
            self.run(self.peer(variant, folder) + ["--logits", file])

    def ours(self, variant, folder, command):
        arguments = ["--model", folder, "--weights", variant.weights]
        arguments += ["--threads", self.threads, "--context", self.context]
        return [self.binary, "--no-progress", "bench", command, *arguments]

    def peer(self, variant, folder):
        arguments = ["--model", folder, "--weights", variant.weights, "--context", self.context]
        arguments += ["--calls", ",".join(map(str, CALLS)), "--seconds", self.seconds]
        return [self.python, HERE / "peer.py", variant.engine, *arguments, "--threads", self.threads]

    def run(self, command):
        """Standard output of a command that is given `threads` threads."""
        threads = ["OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"]
        environment = os.environ | {name: str(self.threads) for name in threads}
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
        if done.returncode:
            last = done.stderr.strip().splitlines()[-3:]
            raise Failed(f"{pathlib.Path(command[0]).name}, status {done.returncode}: {' / '.join(last)}")
        return done.stdout


def median(values):
    """As in `omnidraft bench`: the upper of the two in the middle."""
    return sorted(values)[len(values) // 2]


def weights_read(folder, bits):
    """Bytes of the matrices one forward reads in a peer's format."""
    config = json.loads((folder / "config.json").read_text())
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    wide = config["num_attention_heads"] * config["head_dim"]
    narrow = config["num_key_value_heads"] * config["head_dim"]
    block = hidden * (2 * wide + 2 * narrow + 3 * inner)
    count = config["num_hidden_layers"] * block + hidden * config["vocab_size"]
    return count * BYTES_PER_WEIGHT[bits]
