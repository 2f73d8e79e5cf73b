#!/usr/bin/env python3
"""Answers prompts with one peer, every method it has, in a process of its own; methods.py and beside_run.py start it.
Prints a line of JSON with tokens, seconds and answers for each method, as soon as it has them.
"""

import argparse
import http.client
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time


# A target as llama.cpp's users have it.
GGUF = "model.gguf"


def timed(prompts, answer):
    """Every prompt once, behind one that is not counted: what is set up at the first call."""
    answer(prompts[0])
    each, answers = [], []
    for ids in prompts:
        start = time.perf_counter()
        answers.append(answer(ids))
        each.append(time.perf_counter() - start)
    return {"tokens": sum(map(len, answers)), "seconds": sum(each), "each": each, "answers": answers}


def stops(folder):
    """Tokens that end an answer: those of the model's configuration and those that its owner adds."""
    found = set()
    for name in ("config.json", "generation_config.json"):
        file = folder / name
        of_file = json.loads(file.read_text()).get("eos_token_id") if file.exists() else None
        found |= set(of_file if isinstance(of_file, list) else [of_file]) - {None}
    return sorted(found)


def transformers_methods(args, prompts):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    # As in our worker: cuDNN plans its attention anew for every length of the cache, which takes longer than a forward.
    if hasattr(torch.backends.cuda, "enable_cudnn_sdp"):
        torch.backends.cuda.enable_cudnn_sdp(False)

    def load(folder):
        file = {"gguf_file": GGUF} if (folder / GGUF).is_file() else {}
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, args.dtype), **file)
        return model.to(args.device).eval()

    def tokenizer(folder):
        return transformers.AutoTokenizer.from_pretrained(folder)

    target, text = load(args.target), tokenizer(args.target)
    # How the owner would draw, penalties and all, is not what is compared. Every method here starts from no settings.
    target.generation_config = transformers.GenerationConfig(eos_token_id=stops(args.target) or None, pad_token_id=0)
    rule = {"do_sample": False} if args.temperature == 0 else {"do_sample": True, "temperature": args.temperature, "top_k": 0}

    def answer(**more):
        def one(ids):
            row = torch.tensor([ids], device=args.device)
            mask = torch.ones_like(row)
            with torch.inference_mode():
                out = target.generate(row, attention_mask=mask, max_new_tokens=args.max_tokens, **rule, **more)
            return out[0, len(ids) :].tolist()

        return one

    yield {"method": "plain", "drafter": None} | timed(prompts, answer())
    yield {"method": "prompt lookup", "drafter": None} | timed(prompts, answer(prompt_lookup_num_tokens=args.k))
    for name, folder in args.drafter:
        drafter, own = load(folder), tokenizer(folder)
        # As it decides by default. And as we draft: so many tokens a round.
        for method, schedule in [("assisted generation, its own lengths", None), ("assisted generation", "constant")]:
            fresh = transformers.GenerationConfig()
            if schedule:
                fresh.num_assistant_tokens, fresh.num_assistant_tokens_schedule = args.k, schedule
                fresh.assistant_confidence_threshold = 0.0
            drafter.generation_config = fresh
            kind = "universal, strings" if args.temperature == 0 else "universal, TLI"
            both = answer(assistant_model=drafter, tokenizer=text, assistant_tokenizer=own)
            yield {"method": f"{method} ({kind})", "drafter": name} | timed(prompts, both)


class Server:
    """llama.cpp's own program for one target, with the options of one method. It answers one prompt at a time and keeps
    nothing of an earlier one."""

    def __init__(self, args, room, more):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [args.llama_server, "-m", gguf(args.target), "-c", room, "-t", args.threads, "-tb", args.threads, "-np", 1]
        command += ["--host", "127.0.0.1", "--port", port, "--cache-ram", 0, *more]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=self.log)
        self.connection = http.client.HTTPConnection("127.0.0.1", port)

    def __enter__(self):
        while True:
            try:
                self.connection.request("GET", "/health")
                answer = self.connection.getresponse()
                answer.read()
                if answer.status == 200:
                    return self
            except OSError:
                self.connection.close()
            if self.process.poll() is not None:
                self.log.seek(0)
                raise SystemExit(f"llama-server: exit {self.process.returncode}\n{self.log.read()[-2000:]}")
            time.sleep(0.1)

    def __exit__(self, *_):
        self.connection.close()
        self.process.terminate()
        self.process.wait()
        self.log.close()

    def complete(self, request):
        self.connection.request("POST", "/completion", json.dumps(request), {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        said = json.loads(answer.read())
        if answer.status != 200:
            raise SystemExit(f"llama-server: {said}")
        return said


def vocabulary(folder):
    """Tokens of a model; llama.cpp drafts for no other vocabulary than the drafter's."""
    return json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]


def gguf(folder):
    return folder / GGUF if (folder / GGUF).is_file() else folder / "F32.gguf"


def llama_methods(args, prompts):
    room = max(map(len, prompts)) + args.max_tokens + 64
    request = {"n_predict": args.max_tokens, "temperature": args.temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 0}
    request |= {"repeat_penalty": 1.0, "cache_prompt": False, "return_tokens": True}

    def method(name, drafter, *more):
        with Server(args, room, more) as server:
            return {"method": name, "drafter": drafter} | timed(prompts, lambda ids: server.complete(request | {"prompt": ids})["tokens"])

    yield method("plain", None)
    # By default it looks for the last 12 tokens, which answers as short as these seldom repeat.
    yield method("prompt lookup", None, "--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", 3, "--spec-ngram-simple-size-m", args.k)
    for name, folder in args.drafter:
        if vocabulary(folder) != vocabulary(args.target):
            continue
        drafting = ["--spec-type", "draft-simple", "-md", gguf(folder), "-td", args.threads, "-tbd", args.threads]
        yield method("drafting, its own lengths", name, *drafting)
        yield method("drafting", name, *drafting, "--spec-draft-n-max", args.k)


ENGINES = {"transformers": transformers_methods, "llama.cpp": llama_methods}


def main():
    def named(text):
        name, _, folder = text.partition("=")
        return name, pathlib.Path(folder)

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engine", choices=ENGINES)
    parser.add_argument("--target", type=pathlib.Path, required=True)
    parser.add_argument("--drafter", type=named, action="append", default=[])
    parser.add_argument("--prompts", type=pathlib.Path, required=True)
    parser.add_argument("--max-tokens", type=int, required=True)
    parser.add_argument("-k", type=int, required=True)
    parser.add_argument("--temperature", type=float, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--device", default="cpu", help="of transformers' models")
    parser.add_argument("--llama-server", type=pathlib.Path, help="the program that setup.sh compiles")
    args = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    prompts = json.loads(args.prompts.read_text())
    for row in ENGINES[args.engine](args, prompts):
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
