"""How every engine is measured: the same tokens, calls and repetitions as `omnidraft bench`."""

import time

# Fewest samples of every figure.
MIN_SAMPLES = 5
# Bytes read between samples, so that no engine finds its weights in a cache: ours measures memory
# bandwidth there.
EVICTED = 256 << 20


def token_ids(count, vocab):
    return [i * 7919 % vocab for i in range(count)]


def measure(engine, context, calls, seconds):
    """Milliseconds of every sample, by measurement and tokens.

    `engine` has `vocab`, `truncate(length)` and `forward(ids, last_only)`, which returns once the
    logits are in host memory.
    """
    import numpy

    ids = token_ids(context + max(calls), engine.vocab)
    evicted = numpy.ones(EVICTED // 4, dtype=numpy.float32)

    def prompt():
        engine.truncate(0)
        begin = time.perf_counter()
        engine.forward(ids[:context], last_only=True)
        return time.perf_counter() - begin

    def call(m):
        best = float("inf")
        # The faster of two: the first finds the caches full of something else.
        for _ in range(2):
            engine.truncate(context)
            begin = time.perf_counter()
            engine.forward(ids[context : context + m], last_only=False)
            best = min(best, time.perf_counter() - begin)
        return best

    report = {}
    for name, tokens in [("decode", [1]), ("verify", calls), ("prefill", [context])]:
        times = {m: [] for m in tokens}
        prompt()
        start = time.perf_counter()
        samples = 0
        while samples < MIN_SAMPLES or time.perf_counter() - start < seconds:
            for m in tokens:
                times[m].append(1e3 * (prompt() if name == "prefill" else call(m)))
            evicted.sum()
            samples += 1
        report[name] = times
    return report


def logits(engine, context, calls):
    """Logits of the longest call after the context, flat."""
    ids = token_ids(context + max(calls), engine.vocab)
    engine.truncate(0)
    engine.forward(ids[:context], last_only=True)
    return engine.forward(ids[context:], last_only=False)
