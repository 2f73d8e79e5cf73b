"""Do the engines compute the same function? Logits of the longest call, compared with ours in f32."""

import array
import pathlib
import statistics
import sys
import tempfile

from engines import CALLS, Failed, Variant

# In f32, as a share of the logits' standard deviation. Weights in 4 bits differ by more than 1;
# a 16-bit KV cache (llama.cpp) by up to 0.02 in 22 layers.
MOST = 0.05


def read(file):
    values = array.array("f")
    values.frombytes(pathlib.Path(file).read_bytes())
    if sys.byteorder == "big":
        values.byteswap()
    return values


def greedy(values):
    width = len(values) // max(CALLS)
    rows = [values[i : i + width] for i in range(0, len(values), width)]
    return [max(range(width), key=row.__getitem__) for row in rows]


def compare(bench, variants, folder):
    """Rows, one a variant; the reference is ours in f32."""
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "logits"
        bench.logits(Variant("ours", 32), folder, file)
        reference = read(file)
        spread = statistics.pstdev(reference)
        tokens = greedy(reference)
        for variant in variants:
            if variant == Variant("ours", 32):
                continue
            row = {"engine": variant.engine, "weights": variant.weights, "bits": variant.bits}
            try:
                bench.logits(variant, folder, file)
            except Failed as failure:
                yield row | {"error": str(failure)}
                continue
            found = read(file)
            if len(found) != len(reference):
                yield row | {"error": f"{len(found)} logits instead of {len(reference)}"}
                continue
            if any(value != value for value in found):
                yield row | {"error": "logits are not numbers"}
                continue
            difference = max(abs(a - b) for a, b in zip(found, reference))
            yield row | {
                "max_difference": difference,
                "deviation": spread,
                "same_greedy": sum(a == b for a, b in zip(greedy(found), tokens)),
                "positions": len(tokens),
            }


def wrong(row):
    """Why timings beside this row would compare different work; None if they do not."""
    if "error" in row:
        return row["error"]
    if row["bits"] == 32 and row["max_difference"] > MOST * row["deviation"]:
        return f"logits differ by {row['max_difference']:.2g}, their deviation is {row['deviation']:.2g}"
    return None
