"""A worker without torch: the real one (SOURCE, which the test puts in front) with a toy for a model.

A row of the toy is a function of all tokens that it follows, in exact numbers, so that the program's half of the
protocol can be tested bit for bit. The name of the model says what goes wrong.
"""

import array
import os
import runpy
import signal
import struct
import sys
import time

real = runpy.run_path(SOURCE, run_name="worker")
VOCAB = 23


def row(ids):
    seed = 1
    for token in ids:
        seed = (seed * 1103515245 + token + 12345) % 2**31
    logits = [float((seed >> 8) * (column + 3) % 1009) / 8 for column in range(VOCAB)]
    if ids[-1] == 0:
        logits[5] = logits[9] = 1e4
    if ids[-1] == 1:
        logits[3] = float("nan")
    return logits


def best(logits):
    largest = max(logits)
    possible = all(logit == logit for logit in logits)
    return logits.index(largest) if possible else -1


class Toy:
    def __init__(self, options):
        self.options = options
        self.read, self.kept = {}, {}
        fault = options["model"]
        if fault.startswith("{"):
            import json

            given = json.loads(fault)
            raise real["Refused"](given.pop("code"), given.pop("message"), **given)
        if fault == "torch":
            raise MemoryError("loading wants 16 GiB")

    def facts(self):
        return {
            "vocab_size": VOCAB,
            "max_len": self.options["max_len"] or 1600,
            "architecture": "Toy",
            "model_type": "toy",
            "dtype": self.options["dtype"],
            "device": self.options["device_map"],
            "parameters": 0,
            "memory_bytes": 0,
            "attention": "none",
            "truncation_error": 0.0,
            "threads": os.getpid(),
            "python": sys.version.split()[0],
            "torch": "none",
            "transformers": "none",
        }

    def begin(self, body):
        (number,) = struct.unpack("<I", body)
        assert number not in self.read
        self.read[number] = []
        return b""

    def end(self, body):
        (number,) = struct.unpack("<I", body)
        del self.read[number]
        return b""

    def forward(self, body):
        numbers = struct.unpack(f"<{len(body) // 4}I", body)
        number, keep, wanted, fetch = numbers[:4]
        self.fail(numbers[4:])
        ids = self.read[number][:keep]
        assert len(ids) == keep and len(numbers) > 4 and len(numbers) <= 4 + 512
        rows = []
        for token in numbers[4:]:
            ids.append(token)
            rows.append(row(ids))
        self.read[number] = ids
        self.kept[number] = rows[len(rows) - wanted :]
        return self.rows(struct.pack("<III", number, 0, wanted)) if fetch else b""

    def fail(self, ids):
        fault = self.options["model"]
        if ids[-1] != 22:
            return
        if fault == "exits":
            print("this is printed", flush=True)
            print("a library says why", file=sys.stderr, flush=True)
            os._exit(7)
        if fault == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if fault == "hangs":
            print("waits for something", file=sys.stderr, flush=True)
            time.sleep(600)
        if fault == "memory":
            raise MemoryError("a call wants 16 GiB")
        if fault == "raises":
            raise ValueError("tokens of another kind\nsecond line")
        if fault == "short":
            self.rows = lambda body: b"1234"

    def best(self, body):
        (number,) = struct.unpack("<I", body)
        return array.array("q", [best(logits) for logits in self.kept[number]]).tobytes()

    def rows(self, body):
        number, start, end = struct.unpack("<III", body)
        return array.array("f", [logit for logits in self.kept[number][start:end] for logit in logits])


if FAULT == "version":
    real["main"](Toy, version=99)
elif FAULT == "silent":
    print("no greeting, but a text that is longer than one")
else:
    real["main"](Toy)
