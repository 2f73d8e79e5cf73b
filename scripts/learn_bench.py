#!/usr/bin/env python3
"""Measures what a drafter learns from traffic, and what of it arrives in other programs: rows to a file, and a page
made of them.

  python3 scripts/learn_bench.py --quick                  # both commands with the models here: does it work?
  python3 scripts/learn_bench.py logs --target runs/models/qwen05 --drafter runs/models/smollm2 \
      --task gsm8k --data-dir DATA
  python3 scripts/learn_bench.py round-trip --target runs/models/qwen05 --drafter runs/models/smollm2 \
      --task gsm8k --data-dir DATA --trace traces/qwen05-gsm8k-train.parquet \
      --held-out-trace traces/qwen05-gsm8k-test.parquet
  python3 scripts/learn_bench.py page

`logs` asks a server on loopback, writes logs as OpenAI's and vLLM's servers give them and one of text alone, and
lets the drafter learn from each; beside it learns a server that is asked the same prompts. `round-trip` lets the
drafter learn from recorded answers, exports it, and counts in transformers and here how much of its drafts is
accepted; llama.cpp has to say what this program says.

Python 3.11 with pyarrow; `round-trip` needs transformers (--python) and llama-cpp-python (--llama-python), as
scripts/peers/setup.sh installs them. Each step is kept in --out when it is done: an interrupted run is started once
more and goes on there, with the same options and the same omnidraft.
"""

import argparse
import collections
import concurrent.futures
import datetime
import hashlib
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.append(str(pathlib.Path(__file__).resolve().parent / "peers"))

from methods_peer import stops
from serve_bench import counts, text_of
from serve_process import Server

ROOT = pathlib.Path(__file__).resolve().parent.parent
HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache"))
RESAMPLES = 2000
# Requests at a time where order does not matter: weights are read once for all.
TOGETHER = 8
# Seconds that a server may take for an update of its drafter, after which it is taken to hang.
UPDATE_SECONDS = 600
# Shapes of a log, and how the page calls them.
LOGS = {"openai": "OpenAI-shaped", "vllm": "vLLM-shaped", "text": "text alone"}
BEFORE = "as it is"


def say(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    """The program, the arguments, and the folder in which steps are kept."""

    def __init__(self, args, options):
        self.args, self.out = args, args.out / args.name
        steps, file = self.out / "steps", self.out / "made-with.json"
        steps.mkdir(parents=True, exist_ok=True)
        made = {"options": options, "omnidraft_sha256": hashlib.sha256(args.omnidraft.read_bytes()).hexdigest()}
        # Rows of steps that were made in two ways would stand below one command.
        if (json.loads(file.read_text()) != made) if file.exists() else any(steps.iterdir()):
            sys.exit(f"{self.out}: its steps were made with other options or another omnidraft, or do not say with which\n"
                     "hint: choose another --out, or remove that folder")
        write(file, json.dumps(made, indent=1) + "\n")

    def step(self, name, make):
        """The result of a step; it is made if it is not there yet."""
        file = self.out / "steps" / f"{name}.json"
        if not file.exists():
            say(name)
            write(file, json.dumps(make()))
        return json.loads(file.read_text())

    def fresh(self, name):
        """A folder or file of a step that is made from its beginning."""
        path = self.out / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        return path

    def omnidraft(self, *arguments):
        return run([self.args.omnidraft, "--no-progress", *arguments])

    def learn(self, logs, state, *more):
        """Lets the drafter learn; the rows of the table that the command prints, and the lines about its logs."""
        args = self.args
        done = self.omnidraft("learn", "--from", *logs, "--target", args.target, "--drafter", args.drafter,
                              "--state", state, "-k", args.k, "--threads", args.threads, *more)
        return {"points": points(done.stdout), "notes": done.stderr.strip().splitlines()}

    def server(self, drafter, *more):
        args = self.args
        return Server(args.omnidraft, "--target", args.target, "--drafter", drafter, "--weights", args.weights,
                      "--draft-weights", "f32", "-k", args.k, "--threads", args.threads, *more)

    def served(self, drafter, asked, temperature, *more):
        """What a server that does not learn counts of its answers, prompt by prompt."""
        with self.server(drafter, "--no-learn", "--parallel", TOGETHER, *more) as server:
            def one(numbered):
                seed, record = numbered
                answer = server.ask(record["prompt"], temperature=temperature, seed=seed, max_tokens=self.args.max_tokens)
                return {"prompt": record["id"], **counts(answer), "text": digest(text_of(answer))}

            return list(together(one, enumerate(asked)))


def together(ask, requests):
    """Replies in the order of the requests. What is asked beside another request changes no answer of a server that
    does not learn."""
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        yield from pool.map(ask, requests)


def run(command):
    command = list(map(str, command))
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr.strip()}")
    return done


def write(path, text):
    """Writes a file as a whole."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.rename(path)


def lines(path):
    return [json.loads(line) for line in path.read_text().split("\n") if line.strip()]


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def records(args, split):
    folder = args.data_dir if args.data_dir else ROOT / "datasets"
    return lines(folder / args.task / f"{split}.jsonl")


def points(table):
    """The rows of the table that `learn` prints: an estimate is its value and the ends of its interval."""
    found = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells[0].isdigit():
            numbers = [[float(x) for x in re.findall(r"\d+\.\d+", cell)] for cell in cells[1:]]
            found.append({"answers": int(cells[0]), "loss": numbers[0], "acceptance": numbers[1],
                          "tokens_a_round": numbers[2], "over_before": numbers[3]})
    return found


def trace_rows(path):
    """Ids, texts and tokens of the prompts of a trace."""
    import pyarrow.parquet

    rows = pyarrow.parquet.read_table(path, columns=["id", "prompt", "prompt_ids"]).to_pylist()
    text = lambda value: value.decode() if isinstance(value, bytes) else value
    ids = lambda value: [int.from_bytes(value[i:i + 4], "little") for i in range(0, len(value), 4)]
    return [{"id": text(row["id"]), "text": text(row["prompt"]), "ids": ids(row["prompt_ids"])} for row in rows]


# --- logs ---------------------------------------------------------------------------------------------


class Names:
    """Numbers of a target's tokens by their bytes; its tokenizer has to work on bytes."""

    def __init__(self, folder):
        read = json.loads((folder / "tokenizer.json").read_text())
        # The characters by which byte-level tokenizers write bytes.
        shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [byte for byte in range(256) if byte not in shown]
        byte_of = {chr(byte): byte for byte in shown} | {chr(256 + i): byte for i, byte in enumerate(rest)}
        self.by_bytes = {bytes(byte_of[c] for c in name): number for name, number in read["model"]["vocab"].items()
                         if all(c in byte_of for c in name)}
        self.special = {token["content"]: token["id"] for token in read["added_tokens"]}

    def number(self, entry):
        return self.special[entry["token"]] if entry["token"] in self.special else self.by_bytes[bytes(entry["bytes"])]


def ask(bench, file, asked, ids):
    """Answers of the target alone from both endpoints, a line each; lines that are there stay."""
    args, known = bench.args, lines(file) if file.exists() else []
    if len(known) == len(asked):
        return known
    with bench.server(args.drafter, "--no-learn", "--parallel", TOGETHER) as server, file.open("a") as out:
        def both(numbered):
            seed, record = numbered
            same = {"temperature": args.temperature, "seed": seed, "max_tokens": args.max_tokens, "drafter": False}
            chat = {"messages": [{"role": "user", "content": record["prompt"]}], "logprobs": True,
                    "top_logprobs": args.top, **same}
            text = {"prompt": ids[record["id"]], "logprobs": args.top, **same}
            replies = [json.loads(server.request("POST", f"/v1/{path}", body))
                       for path, body in (("chat/completions", chat), ("completions", text))]
            return {"id": record["id"], "prompt": record["prompt"], "ids": text["prompt"], "chat": replies[0], "text": replies[1]}

        for row in together(both, list(enumerate(asked))[len(known):]):
            out.write(json.dumps(row) + "\n")
            out.flush()
    return lines(file)


def openai_line(args, row, _):
    """As a client that keeps what it sent and what it got."""
    request = {"model": "target", "temperature": args.temperature, "logprobs": True, "top_logprobs": args.top,
               "messages": [{"role": "user", "content": row["prompt"]}]}
    return {"request": request, "response": row["chat"]}


def vllm_line(args, row, names):
    """As vLLM's completions with `return_token_ids` and `return_tokens_as_token_ids`."""
    content = row["chat"]["choices"][0]["logprobs"]["content"]
    numbers = [names.number(entry) for entry in content]
    name = lambda entry: f"token_id:{names.number(entry)}"
    top = [{name(other): other["logprob"] for other in entry["top_logprobs"]} for entry in content]
    own = row["text"]["choices"][0]
    choice = {"index": 0, "text": own["text"], "finish_reason": own["finish_reason"], "stop_reason": None,
              "prompt_token_ids": row["ids"], "token_ids": numbers,
              "logprobs": {"tokens": [name(entry) for entry in content], "top_logprobs": top,
                           "token_logprobs": own["logprobs"]["token_logprobs"],
                           "text_offset": own["logprobs"]["text_offset"]}}
    request = {"model": "target", "prompt": row["ids"], "temperature": args.temperature, "logprobs": args.top,
               "max_tokens": args.max_tokens, "return_token_ids": True, "return_tokens_as_token_ids": True}
    return {"request": request, "response": {"object": "text_completion", "model": "target", "choices": [choice]}}


def text_line(args, row, _):
    # Most answers are cut, and where one ends is learnt, too.
    reason = row["chat"]["choices"][0]["finish_reason"]
    return {"prompt": row["prompt"], "answer": text_of(row["chat"]), "temperature": args.temperature, "finish_reason": reason}


SHAPED = {"openai": openai_line, "vllm": vllm_line, "text": text_line}


def prompt_ids(bench, asked, split):
    """The prompts in the target's template, as tokens: recorded, with an answer of one token."""
    folder = bench.fresh(f"asked-{split}")
    (folder / "asked").mkdir(parents=True)
    for name in ("train", "test"):
        (folder / "asked" / f"{name}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in asked))
    trace = folder / "asked.parquet"
    args = bench.args
    bench.omnidraft("trace", "record", "--target", args.target, "--task", "asked", "--data-dir", folder, "--split", "train",
                    "--limit", len(asked), "--max-tokens", 1, "--top", 1, "--tail", 1,
                    "--weights", args.weights, "--threads", args.threads, "--out", trace)
    return {row["id"]: row["ids"] for row in trace_rows(trace)}


def live(bench, asked, state):
    """A server answers the same prompts and learns. It is given the time for every update."""
    args, found = bench.args, []
    more = ["--state", state, "--learn-every", 2, "--no-controller", "--parallel", 1]
    with bench.server(args.drafter, *more) as server:
        total = lambda name: sum(v for key, v in server.metrics().items() if key.startswith(f"omnidraft_{name}"))
        for seed, record in enumerate(asked):
            answer = server.ask(record["prompt"], temperature=args.temperature, seed=seed, max_tokens=args.max_tokens)
            found.append({"prompt": record["id"], **counts(answer)})
            # An update that comes too late would be one that is left out.
            until = time.monotonic() + UPDATE_SECONDS
            while total("updates_total") < (seed + 1) // 2:
                if time.monotonic() > until:
                    sys.exit(f"{record['id']}: no update of the drafter in {UPDATE_SECONDS} seconds after this answer")
                time.sleep(0.2)
        return {"answers": found, "updates": total("updates_total"), "command": server.command, "built": server.built}


def measure_logs(bench):
    args = bench.args
    asked = {"train": records(args, "train")[: args.learn], "test": records(args, "test")[: args.prompts]}
    names, rows = Names(args.target), []
    for split, of_split in asked.items():
        ids = bench.step(f"prompt-ids-{split}", lambda: prompt_ids(bench, of_split, split))
        # A prompt that is too long for the target's settings is not recorded, and not asked.
        of_split[:] = [record for record in of_split if record["id"] in ids]
        answers = ask(bench, bench.out / f"answers-{split}.jsonl", of_split, ids)
        both = [(row["chat"]["choices"][0], row["text"]["choices"][0]) for row in answers]
        own = lambda chat: [entry["logprob"] for entry in chat["logprobs"]["content"]]
        equal = sum(chat["message"]["content"] == text["text"] and own(chat) == text["logprobs"]["token_logprobs"] for chat, text in both)
        rows.append({"kind": "log", "split": split, "answers": len(answers), "both_endpoints_equal": equal,
                     "tokens": sum(len(own(chat)) for chat, _ in both),
                     "ended": sum(chat["finish_reason"] == "stop" for chat, _ in both)})
        for shape, line in SHAPED.items():
            file = bench.out / f"{shape}-{split}.jsonl"
            if not file.exists():
                write(file, "".join(json.dumps(line(args, row, names)) + "\n" for row in answers))
    log = lambda shape, split: bench.out / f"{shape}-{split}.jsonl"
    states = {}
    for shape in SHAPED:
        learn = lambda: bench.learn([log(shape, "train")], bench.fresh(f"state-{shape}"), "--held-out-from", log(shape, "test"))
        done = bench.step(f"learn-{shape}", learn)
        states[shape] = bench.out / f"state-{shape}"
        rows += [{"kind": "learnt", "from": shape, **point} for point in done["points"]]
        rows += [{"kind": "note", "from": shape, "text": note.replace(str(bench.out) + "/", "")} for note in done["notes"]]
    done = bench.step("learn-live", lambda: live(bench, asked["train"], bench.fresh("state-live")))
    states["live"] = bench.out / "state-live"
    rows += [{"kind": "streamed", "updates": done["updates"], "command": done["command"], **one} for one in done["answers"]]

    def replayed():
        # What the live drafter makes of the recorded answers stands in the row before anything is learnt.
        copy = bench.fresh("state-copy")
        shutil.copytree(states["live"], copy)
        return bench.learn([log("openai", "train")], copy, "--held-out-from", log("openai", "test"), "--limit", 1)

    rows.append({"kind": "learnt", "from": "live", **bench.step("replay-live", replayed)["points"][0], "answers": len(asked["train"])})
    for name in [BEFORE, *states]:
        more = ["--state", states[name]] if name != BEFORE else []
        served = bench.step(f"served-{name.replace(' ', '-')}", lambda: bench.served(args.drafter, asked["test"], args.temperature, *more))
        rows += [{"kind": "served", "drafter": name, **one} for one in served]
    return rows, done["built"]


# --- round trip ---------------------------------------------------------------------------------------


def recorded(bench, given, split, limit):
    """A trace: the given one, or one that is recorded now."""
    if given:
        return given
    args, file = bench.args, bench.out / f"{split}.parquet"
    more = ["--data-dir", args.data_dir] if args.data_dir else []
    # A recording that was interrupted goes on.
    bench.step(f"trace-{split}", lambda: bench.omnidraft(
        "trace", "record", "--target", args.target, "--task", args.task, "--split", split, "--limit", limit, "--seed", 1,
        "--max-tokens", args.max_tokens, "--weights", args.weights, "--threads", args.threads, "--out", file, *more).args)
    return file


def exported(bench, state, name, form, *more):
    """Exports what a state learnt; what the command says of it."""
    out = bench.fresh(name)
    return bench.omnidraft("export", state, "--to", form, "--out", out, *more).stdout.strip().replace(f"{bench.out}/", "")


def peer(python, name, job):
    """Runs a peer of this file in a process of its own, under a Python that has it."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "job.json"
        file.write_text(json.dumps(job, default=str))
        return json.loads(run([python, HERE / "learn_bench.py", "peer", name, file]).stdout.splitlines()[-1])


def spoken(bench, folder, asked):
    """Greedy answers of a model that decodes alone here: tokens of prompt and answer, and the text."""
    args, found = bench.args, []
    for record in asked:
        said = bench.omnidraft("generate", "--json", "--target", folder, "--temperature", 0, "--max-tokens", args.spoken_tokens,
                               "--threads", args.threads, "--prompt", record["prompt"])
        answer = json.loads(said.stdout)[0]
        found.append({"prompt": record["id"], "prompt_ids": answer["prompt_ids"], "ids": answer["target_ids"], "text": answer["text"]})
    return found


def compared(engine, model, ours, theirs):
    """Rows on whether a peer says what was said here."""
    rows = []
    for own, other in zip(ours, theirs):
        pairs = enumerate(itertools.zip_longest(own["ids"], other["ids"]))
        at = next((i for i, (a, b) in pairs if a != b), None)
        row = {"kind": "spoken", "engine": engine, "model": model, "prompt": own["prompt"], "tokens": len(own["ids"]),
               "equal_tokens": len(own["ids"]) if at is None else at}
        if at is not None and at < len(other["leads"]):
            row["lead"] = other["leads"][at]
        rows.append(row | {key: other[key] for key in ("same_prompt_tokens",) if key in other})
    return rows


def measure_round_trip(bench):
    args, rows = bench.args, []
    train = recorded(bench, args.trace, "train", args.learn)
    test = recorded(bench, args.held_out_trace, "test", args.prompts)
    by_id = {record["id"]: record for record in records(args, "test")}
    asked = [{"id": row["id"], "ids": row["ids"], "prompt": by_id[row["id"]]["prompt"]} for row in trace_rows(test)[: args.prompts]]

    learn = lambda: bench.learn([train], bench.fresh("state"), "--held-out-from", test, "--limit", args.learn, "--passes", args.passes)
    done = bench.step("learn", learn)
    rows += [{"kind": "learnt", "from": "trace", **point} for point in done["points"]]
    # The same way out for a drafter that has not changed.
    bench.step("learn-nothing", lambda: bench.learn(
        [train], bench.fresh("state-nothing"), "--limit", 1, "--held-out", 0, "--learning-rate", 0))
    for name, state, form, more in [("learnt", "state", "hf", []), ("learnt.gguf", "state", "gguf", []),
                                    ("learnt-q8.gguf", "state", "gguf", ["--type", "q8_0"]),
                                    ("original", "state-nothing", "hf", []), ("original.gguf", "state-nothing", "gguf", [])]:
        said = bench.step(f"export-{name}", lambda: exported(bench, bench.out / state, name, form, *more))
        path = bench.out / name
        size = sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
        rows.append({"kind": "export", "name": name, "said": said, "bytes": size})

    drafters = [(BEFORE, args.drafter, []), ("exported", bench.out / "learnt", [])]
    for name, folder, more in [*drafters, ("state", args.drafter, ["--state", bench.out / "state"])]:
        served = bench.step(f"ours-{name.replace(' ', '-')}", lambda: bench.served(folder, asked, 0, *more))
        rows += [{"kind": "assisted", "engine": "omnidraft", "drafter": name, **one} for one in served]
    job = {"target": args.target, "k": args.k, "max_tokens": args.max_tokens, "threads": args.threads, "prompts": asked}
    for name, folder, _ in drafters:
        theirs = bench.step(f"transformers-{name.replace(' ', '-')}", lambda: peer(args.python, "assisted", job | {"drafter": folder}))
        rows += [{"kind": "assisted", "engine": "transformers", "drafter": name, **one} for one in theirs]

    few = asked[: args.spoken]
    gguf = args.drafter / "model.gguf"
    speakers = [("learnt, F16", bench.out / "learnt", bench.out / "learnt.gguf"), ("original, F16", bench.out / "original", bench.out / "original.gguf")]
    if gguf.exists():
        speakers.append(("original as downloaded", args.drafter, gguf))
    for name, folder, file in speakers:
        key = name.replace(", ", "-").replace(" ", "-")
        ours = bench.step(f"speak-{key}", lambda: spoken(bench, folder, few))
        job = {"folder": folder, "file": file, "stops": stops(folder), "threads": args.threads, "tokens": args.spoken_tokens, "prompts": ours}
        theirs = bench.step(f"speak-{key}-llama", lambda: peer(args.llama_python, "llama", job))
        rows += compared("llama.cpp", name, ours, theirs)
        if file != gguf:
            theirs = bench.step(f"speak-{key}-transformers", lambda: peer(args.python, "alone", job))
            rows += compared("transformers", name, ours, theirs)
    # Eight bits round more than a tie: it has to load and to answer.
    ours = bench.step("speak-learnt-F16", lambda: None)
    job = {"file": bench.out / "learnt-q8.gguf", "stops": stops(bench.out / "learnt"), "threads": args.threads, "tokens": args.spoken_tokens, "prompts": ours}
    rows += compared("llama.cpp", "learnt, Q8_0", ours, bench.step("speak-learnt-q8-llama", lambda: peer(args.llama_python, "llama", job)))

    def built():
        with bench.server(args.drafter, "--no-learn") as server:
            return server.built

    return rows, bench.step("built", built)


# --- peers, each in a process of its own --------------------------------------------------------------


def load(folder):
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    folder = pathlib.Path(folder)
    file = {"gguf_file": "model.gguf"} if (folder / "model.gguf").is_file() else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **file).eval()
    return model, transformers.AutoTokenizer.from_pretrained(folder)


def assisted(job):
    """Universal assisted generation of transformers, greedy: what of the candidates is accepted, prompt by prompt."""
    import torch
    from transformers import GenerationConfig
    from transformers.generation import candidate_generator

    torch.set_num_threads(job["threads"])
    (target, text), (drafter, own) = load(job["target"]), load(job["drafter"])
    # How the owner would draw is not what is counted: none of its settings but the ends.
    target.generation_config = GenerationConfig(eos_token_id=stops(pathlib.Path(job["target"])) or None, pad_token_id=0)
    fresh = GenerationConfig()
    fresh.num_assistant_tokens, fresh.num_assistant_tokens_schedule = job["k"], "constant"
    fresh.assistant_confidence_threshold = 0.0
    drafter.generation_config = fresh
    rounds, kind = [], candidate_generator.AssistedCandidateGeneratorDifferentTokenizers
    told = kind.update_candidate_strategy

    def counted(self, input_ids, scores, num_matches):
        rounds.append((scores.shape[1] - 1, int(num_matches)))
        return told(self, input_ids, scores, num_matches)

    # Called once a round, with the scores of all candidates and one more.
    kind.update_candidate_strategy = counted
    found = []
    for record in job["prompts"]:
        row = torch.tensor([record["ids"]])
        rounds.clear()
        with torch.inference_mode():
            out = target.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=job["max_tokens"], do_sample=False,
                                  assistant_model=drafter, tokenizer=text, assistant_tokenizer=own)
        ids = out[0, row.shape[1]:].tolist()
        found.append({"prompt": record["id"], "tokens": len(ids), "rounds": len(rounds),
                      "drafted": sum(drafted for drafted, _ in rounds), "accepted": sum(accepted for _, accepted in rounds)})
    return found


def greedy(forward, stops, tokens):
    """Tokens of a greedy answer, and each one's lead over the next best."""
    ids, leads, step = [], [], None
    while len(ids) < tokens and (not ids or ids[-1] not in stops):
        best, lead = forward(step)
        ids.append(best)
        leads.append(lead)
        step = [best]
    return ids, leads


def alone(job):
    import torch

    torch.set_num_threads(job["threads"])
    model, _ = load(job["folder"])
    found = []
    for record in job["prompts"]:
        state = None

        def forward(step):
            nonlocal state
            with torch.inference_mode():
                result = model(torch.tensor([step or record["prompt_ids"]]), past_key_values=state, use_cache=True)
            state = result.past_key_values
            best = result.logits[0, -1].topk(2)
            return best.indices[0].item(), (best.values[0] - best.values[1]).item()

        ids, leads = greedy(forward, job["stops"], job["tokens"])
        found.append({"ids": ids, "leads": leads})
    return found


def llama(job):
    import ctypes

    import llama_cpp
    import numpy

    from peer import LlamaCpp

    file = pathlib.Path(job["file"])
    room = max(len(record["prompt_ids"]) for record in job["prompts"]) + job["tokens"]
    model = LlamaCpp(file.parent, file.stem, job["threads"], room)
    vocabulary = llama_cpp.llama_model_get_vocab(llama_cpp.llama_get_model(model.context))

    def same_tokens(ids):
        """True if its tokenizer takes the prompt's text apart into the same tokens."""
        text, array = ctypes.create_string_buffer(1 << 16), (llama_cpp.llama_token * len(ids))(*ids)
        size = llama_cpp.llama_detokenize(vocabulary, array, len(ids), text, len(text), False, True)
        again = (llama_cpp.llama_token * (2 * len(ids) + 16))()
        count = llama_cpp.llama_tokenize(vocabulary, text.raw[:size], size, again, len(again), False, True)
        return list(again[:count]) == ids

    found = []
    for record in job["prompts"]:
        model.truncate(0)

        def forward(step):
            logits = model.forward(step or record["prompt_ids"], True)
            second, best = numpy.argsort(logits)[-2:]
            return int(best), float(logits[best] - logits[second])

        ids, leads = greedy(forward, job["stops"], job["tokens"])
        found.append({"ids": ids, "leads": leads, "same_prompt_tokens": same_tokens(record["prompt_ids"])})
    return found


PEERS = {"assisted": assisted, "alone": alone, "llama": llama}


# --- the page -----------------------------------------------------------------------------------------


def estimates(groups, of):
    """Quotients of sums over prompts by group, with resampled ones; the same prompts are drawn for all groups."""
    prompts = sorted({row["prompt"] for rows in groups.values() for row in rows})
    by = {name: {row["prompt"]: of(row) for row in rows} for name, rows in groups.items()}
    draws = random.Random(0)
    drawn = [prompts, *(draws.choices(prompts, k=len(prompts)) for _ in range(RESAMPLES))]

    def quotient(own, sample):
        above, below = (sum(own[prompt][i] for prompt in sample) for i in (0, 1))
        return above / below if below else 0.0

    return {name: [quotient(own, sample) for sample in drawn] for name, own in by.items()}


def shown(values):
    ordered = sorted(values[1:])
    low, high = ordered[len(ordered) * 25 // 1000], ordered[len(ordered) * 975 // 1000]
    return f"{values[0]:.3f} ({low:.3f}–{high:.3f})"


def over(values, base):
    return shown([a / b if b else 0.0 for a, b in zip(values, base)])


def drafting_table(first, groups):
    """Accepted of proposed tokens and tokens a round; quotients of tokens a round over the group of the same program
    whose drafter is as it is."""
    share = estimates(groups, lambda row: (row["accepted"], row["drafted"]))
    length = estimates(groups, lambda row: (row["tokens"], row["rounds"]))
    body = []
    for name, rows in groups.items():
        base = name[:-1] + (BEFORE,)
        body.append([*name, len(rows), shown(share[name]), shown(length[name]), over(length[name], length[base]) if name != base else "-"])
    return table([*first, "prompts", "accepted of proposed", "tokens a round", "over before"], body)


def table(head, body):
    rows = ["| " + " | ".join(head) + " |", "|" + "|".join("--:" if i else ":--" for i in range(len(head))) + "|"]
    return "\n".join(rows + ["| " + " | ".join(map(str, row)) + " |" for row in body]) + "\n"


def estimate(values):
    return "-" if not values else f"{values[0]:.3f} ({values[1]:.3f}–{values[2]:.3f})" if len(values) == 3 else f"{values[0]:.3f}"


def grouped(rows, *keys):
    found = collections.defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return dict(found)


def of_kind(rows, kind):
    return [row for row in rows if row["kind"] == kind]


def logs_page(stated, rows):
    logs = {row["split"]: row for row in of_kind(rows, "log")}
    learnt = grouped(of_kind(rows, "learnt"), "from")
    streamed = of_kind(rows, "streamed")
    before = learnt[("openai",)][0]
    body = []
    for (name,), own in learnt.items():
        first, last = own[0] if name != "live" else before, own[-1]
        body.append([LOGS.get(name, "learning live"), estimate(first["acceptance"]), estimate(last["acceptance"]),
                     estimate(first["tokens_a_round"]), estimate(last["tokens_a_round"]), estimate(last["over_before"]) if name != "live" else "-"])
    names = {BEFORE: "as it is", "live": "learning live", **LOGS}
    served = {(names[name],): own for (name,), own in grouped(of_kind(rows, "served"), "drafter").items()}
    options, train, test = stated["options"], logs["train"], logs["test"]
    return [
        "## From logs of one's own traffic\n",
        f"A server on loopback answered {train['answers']} prompts of {options['task']} to learn from and {test['answers']} held-out ones with"
        f" the target alone, drawn at T = {options['temperature']:g}, at most {options['max_tokens']} tokens each"
        f" ({train['tokens']} and {test['tokens']} tokens; {train['ended']} and {test['ended']} answers ended by themselves). Both"
        f" endpoints gave the same answer with the same log-probabilities to {train['both_endpoints_equal'] + test['both_endpoints_equal']} of"
        f" {train['answers'] + test['answers']} prompts. Of each answer there are three lines: as OpenAI's chat endpoint gives it, with the"
        f" {options['top']} most probable tokens at each place; as vLLM's completions endpoint does, with numbers in the place of tokens;"
        " and prompt and text alone. `omnidraft learn` goes through each log once.\n",
        "Held-out answers replayed, as the command prints it. A draft is accepted as far as it is the recorded text, which was drawn:"
        " that is less than verification would accept. In the vLLM-shaped log the prompt is tokens, so the drafter reads the target's"
        " template; in the others it reads the question in its own. *Learning live*: a server was asked the same prompts with"
        f" learning on, an update every two answers, {streamed[0]['updates']:.0f} updates; its state goes through the OpenAI-shaped log.\n",
        table(["learnt from", "acceptance before", "after", "tokens a round before", "after", "over before"], body),
        "The same states in use: a server with learning off is asked the held-out prompts, and draws at the same temperature, so that"
        " verification accepts by the target's distribution. Each server draws answers of its own.\n",
        drafting_table(["drafter"], served),
        *(f"- `{row['from']}`: {row['text']}\n" for row in of_kind(rows, "note")),
    ]


def told(row):
    """The name of an export, and what the command said of it, in a line."""
    said = [" ".join(line.split()) for line in row["said"].splitlines() if line.strip()]
    return row["name"], "; ".join([said[0].removeprefix(f"{row['name']}: "), *said[1:]])


def round_trip_page(stated, rows):
    options = stated["options"]
    learnt = of_kind(rows, "learnt")
    body = [[row["answers"], estimate(row["loss"]), estimate(row["acceptance"]), estimate(row["tokens_a_round"]), estimate(row["over_before"])] for row in learnt]
    spoken_body = []
    for (engine, model), own in grouped(of_kind(rows, "spoken"), "engine", "model").items():
        parted = [row for row in own if row["equal_tokens"] < row["tokens"]]
        leads = ", ".join(f"{row['lead']:.1e}" for row in parted if "lead" in row)
        prompts = sum(row.get("same_prompt_tokens", False) for row in own)
        spoken_body.append([model, engine, len(own), prompts if "same_prompt_tokens" in own[0] else "-", len(own) - len(parted),
                            f"{sum(row['equal_tokens'] for row in own)} of {sum(row['tokens'] for row in own)}", leads or "-"])
    return [
        "## The round trip\n",
        f"`omnidraft learn` goes {options['passes']} time{'s' if options['passes'] > 1 else ''} through {learnt[-1]['answers'] // options['passes']}"
        f" recorded answers to {options['task']}, then `omnidraft export` writes the drafter for transformers and for llama.cpp.\n",
        table(["answers learnt from", "loss", "acceptance, held out", "tokens a round", "over before"], body),
        *(f"- `{name}`: {said}\n" for row in of_kind(rows, "export") for name, said in [told(row)]),
        f"\nThe held-out prompts, greedy, {options['k']} draft tokens a round, at most {options['max_tokens']} tokens an answer. In transformers:"
        " universal assisted generation, all in f32. Here: `serve` with learning off in its mode `exact`, the target in"
        f" {options['weights']}; *exported* has the weights of the export and no n-grams but those of the vocabularies, *state* is what `serve` goes on with.\n",
        drafting_table(["program", "drafter"], grouped(of_kind(rows, "assisted"), "engine", "drafter")),
        "The drafter as a model of its own, greedy: what other programs say beside what this one says, token by token. *Lead* is that"
        " of the other program's token over its next best where they part. llama.cpp's tokenizer is given the prompt's text. With"
        " quantised weights (*as downloaded*, *Q8_0*) llama.cpp rounds what it multiplies them with to eight bits, too; here they"
        " are unpacked and multiplied in f32. There answers may part.\n",
        table(["model", "program", "prompts", "same prompt tokens", "same answers", "tokens before they part", "lead there"], spoken_body),
    ]


PAGES = {"logs": logs_page, "round-trip": round_trip_page}


def page(args):
    """The page, from the rows."""
    known = collections.defaultdict(list)
    for row in lines(args.out / "rows.jsonl"):
        known[row.pop("measurement")].append(row)
    parts = ["# Learning from traffic, measured\n",
             "Made by `python3 scripts/learn_bench.py page` from [rows.jsonl](rows.jsonl); no number is typed. How a drafter learns from a log:"
             " [docs/learn.md](../../docs/learn.md); how it is taken elsewhere: [docs/export.md](../../docs/export.md). Intervals (95%)"
             " resample held-out prompts; quotients of two drafters are taken on the same resampled prompts.\n"]
    for name, make in PAGES.items():
        if name in known:
            stated, *rows = known[name]
            body = make(stated, rows)
            parts += [body[0], f"{stated['date']}; omnidraft {stated['built']['version']} of commit `{stated['built']['commit']}`;"
                      f" {stated['built']['machine']}{''.join(', ' + key + ' ' + value for key, value in stated['versions'].items())}\n\n"
                      f"```sh\n{stated['command']}\n```\n", *body[1:]]
    text = "\n".join(parts)
    write(args.out / "README.md", text)
    print(text)


def versions(args):
    found = {}
    for python, modules in ((args.python, ["torch", "transformers"]), (args.llama_python, ["llama_cpp"])):
        for module in modules:
            done = subprocess.run([python, "-c", f"import {module}; print({module}.__version__)"], capture_output=True, text=True)
            found |= {module: done.stdout.strip()} if done.returncode == 0 else {}
    return found


def inside(value):
    """A path as a reader has it: below the repository, or by its last part."""
    if not isinstance(value, pathlib.Path):
        return value
    value = value.relative_to(ROOT) if value.is_relative_to(ROOT) else value
    return f"DIR/{value.name}" if value.is_absolute() else str(value)


def measured(args, measure, needed):
    """Runs a measurement; its rows take the place of earlier ones of its name."""
    given = {key: value for key, value in vars(args).items() if key in needed and value is not None}
    # In full, since folders of one name may hold different models; pages say less.
    exact = {key: str(value.resolve()) if isinstance(value, pathlib.Path) else value for key, value in given.items()}
    bench = Bench(args, exact)
    options = {key: inside(value) for key, value in given.items()}
    rows, built = measure(bench)
    option = lambda key: f"-{key}" if len(key) == 1 else f"--{key.replace('_', '-')}"
    command = " ".join([f"python3 scripts/learn_bench.py {args.name}", *(f"{option(key)} {value}" for key, value in options.items())])
    stated = {"kind": "stated", "date": datetime.date.today().isoformat(), "command": command, "options": options, "built": built,
              "versions": versions(args) if args.name == "round-trip" else {}}
    file = args.out / "rows.jsonl"
    kept = [row for row in lines(file) if row["measurement"] != args.name] if file.exists() else []
    found = kept + [{"measurement": args.name, **row} for row in [stated, *rows]]
    write(file, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in found))
    page(args)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    commands = parser.add_subparsers(dest="name")
    peers = CACHE / "omnidraft" / "peers" / "venv" / "bin" / "python"
    shared = ["target", "drafter", "task", "data_dir", "learn", "prompts", "max_tokens", "k", "weights", "threads"]
    needed = {"logs": [*shared, "temperature", "top"],
              "round-trip": [*shared, "passes", "trace", "held_out_trace", "spoken", "spoken_tokens"]}
    measures = {"logs": measure_logs, "round-trip": measure_round_trip}
    # GGUF takes tokenizers that work on bytes: L, which drafts for D here.
    small = {"logs": ("L", "D"), "round-trip": ("D", "L")}
    for name, numbers in (("logs", (64, 24)), ("round-trip", (100, 24))):
        it = commands.add_parser(name)
        it.add_argument("--target", type=pathlib.Path, default=ROOT / "models" / small[name][0])
        it.add_argument("--drafter", type=pathlib.Path, default=ROOT / "models" / small[name][1])
        it.add_argument("--task", default="mini-math")
        it.add_argument("--data-dir", type=pathlib.Path, help="folder of the task, unless it is embedded")
        it.add_argument("--learn", type=int, default=numbers[0], help="answers to learn from")
        it.add_argument("--prompts", type=int, default=numbers[1], help="held-out ones")
        it.add_argument("--max-tokens", type=int, default=96)
        it.add_argument("-k", type=int, default=4)
        it.add_argument("--weights", default="int8", help="weights of the target here")
        it.add_argument("--threads", type=int, default=2)
        it.add_argument("--out", type=pathlib.Path, default=ROOT / "runs" / "learn-bench")
        it.add_argument("--omnidraft", type=pathlib.Path, default=target / "release" / "omnidraft")
        it.add_argument("--python", default=sys.executable, help="with torch and transformers")
        it.add_argument("--llama-python", default=str(peers), help="with llama-cpp-python")
        if name == "logs":
            it.add_argument("--temperature", type=float, default=0.7)
            it.add_argument("--top", type=int, default=20, help="log-probabilities at each place")
        else:
            it.add_argument("--passes", type=int, default=1)
            it.add_argument("--trace", type=pathlib.Path, help="recorded answers to learn from")
            it.add_argument("--held-out-trace", type=pathlib.Path)
            it.add_argument("--spoken", type=int, default=5, help="prompts that the drafter answers by itself")
            it.add_argument("--spoken-tokens", type=int, default=48)
    commands.add_parser("page").add_argument("--out", type=pathlib.Path, default=ROOT / "runs" / "learn-bench")
    one = commands.add_parser("peer")
    one.add_argument("peer", choices=PEERS)
    one.add_argument("job", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true", help="both commands with the models here and few prompts; nothing is kept")
    given = sys.argv[1:]
    # Names of models and files are those of the repository.
    os.chdir(ROOT)
    args = parser.parse_args([] if "--quick" in given else given)
    if args.name == "peer":
        print(json.dumps(PEERS[args.peer](json.loads(args.job.read_text()))))
    elif args.name == "page":
        page(args)
    elif args.name:
        args.out.mkdir(parents=True, exist_ok=True)
        measured(args, measures[args.name], needed[args.name])
    elif "--quick" in given:
        few = ["--learn", "8", "--prompts", "4", "--max-tokens", "24"]
        with tempfile.TemporaryDirectory() as folder:
            for name in measures:
                more = ["--spoken", "2", "--spoken-tokens", "16"] if name == "round-trip" else []
                rest = [word for word in given if word != "--quick"]
                args = parser.parse_args([name, *few, *more, "--out", folder, *rest])
                measured(args, measures[name], needed[name])
    else:
        parser.print_help()


if __name__ == "__main__":
    main()
