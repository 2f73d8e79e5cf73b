#!/usr/bin/env python3
"""Time a decode step of a Llama shape in PyTorch: one to 33 tokens after a context, on a GPU.

    python3 scripts/torch_decode_step.py llama-3-8b tinyllama-1.1b --context 128

Needs torch alone. Random bf16 weights, a KV cache written in place, scaled_dot_product_attention, and with
--graphs the whole step as one CUDA graph. Prints a line of JSON a shape as soon as it is known: milliseconds by
tokens with all logits on the host (`ms`) and with the most probable tokens alone (`greedy_ms`), and the gigabytes of
weights a second of one token. `omnidraft bench verify` times the calls of `ms`.
"""

import argparse
import json
import statistics
import time

import torch
import torch.nn.functional as F

# Layers, hidden, inner, heads, key heads, vocabulary: those of crates/lm/src/shapes.rs.
SHAPES = {
    "llama-68m": (2, 768, 3072, 12, 12, 32000),
    "llama-242m": (12, 1024, 2816, 16, 8, 49152),
    "tinyllama-1.1b": (22, 2048, 5632, 32, 4, 32000),
    "llama-2-7b": (32, 4096, 11008, 32, 32, 32000),
    "llama-3-8b": (32, 4096, 14336, 32, 8, 128256),
}
# Tokens of the calls.
ROWS = (1, 2, 3, 5, 8, 9, 16, 17, 33)


class Model:
    """A decoder without anything that decoding does not need."""

    def __init__(self, shape, room, device):
        self.layers, d, inner, self.heads, self.kv, vocab = SHAPES[shape]
        self.dim = d // self.heads
        kind = {"device": device, "dtype": torch.bfloat16}
        matrix = lambda rows, columns: torch.randn(rows, columns, **kind) / columns**0.5
        self.table, self.head = matrix(vocab, d), matrix(vocab, d)
        self.blocks = [
            (matrix((self.heads + 2 * self.kv) * self.dim, d), matrix(d, self.heads * self.dim),
             matrix(2 * inner, d), matrix(d, inner))
            for _ in range(self.layers)
        ]
        self.norm = torch.ones(d, **kind)
        self.cache = torch.zeros(self.layers, 2, 1, self.kv, room, self.dim, **kind)
        self.cos, self.sin = torch.ones(room, self.dim, **kind), torch.zeros(room, self.dim, **kind)
        self.read = sum(t.numel() for block in self.blocks for t in block) + self.head.numel()

    def rotated(self, x, at):
        a, b = x.chunk(2, -1)
        return x * self.cos[at] + torch.cat((-b, a), -1) * self.sin[at]

    def step(self, ids, at, seen):
        """Logits of `ids` at positions `at`, which see `seen` ([tokens, room])."""
        x = self.table[ids]
        for (qkv, out, gate_up, down), (keys, values) in zip(self.blocks, self.cache):
            normed = F.rms_norm(x, x.shape[-1:], self.norm)
            q, k, v = (normed @ qkv.T).view(len(ids), -1, self.dim).transpose(0, 1)[None].split(
                [self.heads, self.kv, self.kv], 1)
            keys.index_copy_(2, at, self.rotated(k, at))
            values.index_copy_(2, at, v)
            mixed = F.scaled_dot_product_attention(
                self.rotated(q, at), keys, values, attn_mask=seen, enable_gqa=True)
            x = x + mixed[0].transpose(0, 1).reshape(len(ids), -1) @ out.T
            gate, up = (F.rms_norm(x, x.shape[-1:], self.norm) @ gate_up.T).chunk(2, -1)
            x = x + (F.silu(gate) * up) @ down.T
        return (F.rms_norm(x, x.shape[-1:], self.norm) @ self.head.T).float()


def timed(call, device, seconds, fetch):
    """Median milliseconds of a call, what `fetch` takes of its result on the host included."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)
    for _ in range(3):
        call()
    wait()
    times, end = [], time.perf_counter() + seconds
    while len(times) < 5 or time.perf_counter() < end:
        began = time.perf_counter()
        fetch(call()).cpu()
        times.append(1e3 * (time.perf_counter() - began))
    return statistics.median(times)


def measure(shape, model, context, seconds, graphs, device):
    ms, greedy_ms = {}, {}
    for m in ROWS:
        ids = torch.arange(m, device=device)
        at = torch.arange(context, context + m, device=device)
        seen = torch.arange(context + max(ROWS), device=device)[None] <= at[:, None]
        call = lambda: model.step(ids, at, seen)
        if graphs:
            side = torch.cuda.Stream()
            with torch.cuda.stream(side):
                call()
            torch.cuda.current_stream().wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                logits = call()
            call = lambda: (graph.replay(), logits)[1]
        ms[m] = timed(call, device, seconds, lambda logits: logits)
        greedy_ms[m] = timed(call, device, seconds, lambda logits: logits.argmax(-1))
    return {
        "engine": "torch", "version": torch.__version__, "graphs": graphs, "shape": shape,
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu", "context": context,
        "weights": "bf16", "ms": ms, "greedy_ms": greedy_ms, "weights_gb_per_s": 2e-6 * model.read / greedy_ms[1],
    }


def ceilings(device):
    """Gigabytes a second of a copy (read and written) and of a sum (read), and milliseconds of a projection."""
    wait = torch.cuda.synchronize if device == "cuda" else (lambda: None)

    def mean_ms(call, times=20):
        found = []
        for _ in range(5):
            wait()
            began = time.perf_counter()
            for i in range(times):
                call(i)
            wait()
            found.append(1e3 * (time.perf_counter() - began) / times)
        return statistics.median(found)

    size = 2**30 if device == "cuda" else 2**26
    source = torch.randn(size // 4, device=device)
    target = torch.empty_like(source)
    copy = 2e-6 * size / mean_ms(lambda _: target.copy_(source))
    total = 1e-6 * size / mean_ms(lambda _: source.sum())
    # More matrices than the caches hold.
    matrices = [torch.randn(14336, 4096, device=device).bfloat16() for _ in range(8 if device == "cuda" else 1)]
    by_rows = {}
    for m in (1, 5, 16, 64, 512):
        x = torch.randn(m, 4096, device=device).bfloat16()
        by_rows[m] = mean_ms(lambda i: x @ matrices[i % len(matrices)].T, 40 if device == "cuda" else 2)
    return {
        "ceilings": True, "copy_gb_per_s": copy, "sum_gb_per_s": total, "matrix": "14336 x 4096 bf16",
        "matrix_mb": 2 * 14336 * 4096 / 1e6, "matrix_ms": by_rows,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shapes", nargs="+", choices=SHAPES)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=0.5, help="seconds a call")
    parser.add_argument("--graphs", action="store_true", help="replay CUDA graphs")
    parser.add_argument("--both", action="store_true", help="with graphs and without, one after the other")
    parser.add_argument("--ceilings", action="store_true", help="time a copy, a sum and plain projections first")
    parser.add_argument("--cpu", action="store_true", help="on the processor, to try the script")
    args = parser.parse_args()
    device = "cpu" if args.cpu else "cuda"
    show = lambda row: print(json.dumps(row), flush=True)
    with torch.no_grad():
        if args.ceilings:
            show(ceilings(device))
        for shape in args.shapes:
            model = Model(shape, args.context + max(ROWS), device)
            for graphs in (True, False) if args.both else (args.graphs,):
                try:
                    show(measure(shape, model, args.context, args.seconds, graphs, device))
                except RuntimeError as error:
                    show({"engine": "torch", "shape": shape, "graphs": graphs, "failed": str(error)[:600]})
            del model


if __name__ == "__main__":
    main()
