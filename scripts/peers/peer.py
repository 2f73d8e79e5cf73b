#!/usr/bin/env python3
"""Measures one engine with one kind of weights in a process of its own; compare.py starts it.
Prints one JSON object: milliseconds of every sample, by measurement and tokens.
"""

import argparse
import ctypes
import json
import os
import pathlib

import protocol


class LlamaCpp:
    """llama.cpp through the low-level interface of llama-cpp-python, with its default settings."""

    def __init__(self, folder, weights, threads, room):
        import llama_cpp

        self.api = llama_cpp
        # Kept: the library calls it until the end.
        self.silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(self.silent, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        file = folder / f"{weights}.gguf"
        model = llama_cpp.llama_model_load_from_file(
            str(file).encode(), llama_cpp.llama_model_default_params()
        )
        if not model:
            raise SystemExit(f"{file}: llama.cpp cannot load it")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = room
        params.n_threads = threads
        params.n_threads_batch = threads
        self.context = llama_cpp.llama_init_from_model(model, params)
        if not self.context:
            raise SystemExit(f"{file}: no context of {room} tokens")
        self.memory = llama_cpp.llama_get_memory(self.context)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        self.batch = llama_cpp.llama_batch_init(room, 0, 1)
        self.length = 0

    def truncate(self, length):
        if length < self.length:
            if not self.api.llama_memory_seq_rm(self.memory, 0, length, -1):
                raise SystemExit("llama.cpp cannot cut its cache back")
            self.length = length

    def forward(self, ids, last_only):
        import numpy

        batch, count = self.batch, len(ids)
        batch.n_tokens = count
        for i, token in enumerate(ids):
            batch.token[i] = token
            batch.pos[i] = self.length + i
            batch.n_seq_id[i] = 1
            batch.seq_id[i][0] = 0
            batch.logits[i] = not last_only or i + 1 == count
        status = self.api.llama_decode(self.context, batch)
        if status:
            raise SystemExit(f"llama_decode: {status}")
        self.length += count
        rows = 1 if last_only else count
        # Waits for the result, as a program that reads it must.
        pointer = self.api.llama_get_logits(self.context)
        return numpy.ctypeslib.as_array(pointer, shape=(rows * self.vocab,))


class Transformers:
    """Hugging Face transformers on torch, not compiled, with a cache that grows."""

    def __init__(self, folder, weights, threads, room):
        import torch
        import transformers

        self.torch = torch
        torch.set_num_threads(threads)
        dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[weights]
        self.model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype).eval()
        self.new_cache = lambda: transformers.DynamicCache(config=self.model.config)
        self.cache = self.new_cache()
        self.vocab = self.model.config.vocab_size

    def truncate(self, length):
        if length == 0:
            self.cache = self.new_cache()
        elif length < self.cache.get_seq_length():
            # A negative number is how many to remove.
            self.cache.crop(length - self.cache.get_seq_length())

    def forward(self, ids, last_only):
        with self.torch.inference_mode():
            output = self.model(
                self.torch.tensor([ids]),
                past_key_values=self.cache,
                use_cache=True,
                logits_to_keep=1 if last_only else 0,
            )
        return output.logits.flatten()


ENGINES = {"llama.cpp": LlamaCpp, "transformers": Transformers}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--model", type=pathlib.Path, required=True)
    parser.add_argument("--weights", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--calls", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--logits", type=pathlib.Path, help="write logits instead of timing")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    calls = [int(m) for m in args.calls.split(",")]
    engine = ENGINES[args.engine](args.model, args.weights, args.threads, args.context + max(calls))
    if args.logits:
        found = protocol.logits(engine, args.context, calls)
        # bfloat16 of torch has no counterpart in numpy.
        found = found.float().numpy() if hasattr(found, "float") else found
        args.logits.write_bytes(found.astype("<f4").tobytes())
        return
    print(json.dumps(protocol.measure(engine, args.context, calls, args.seconds)))


if __name__ == "__main__":
    main()
