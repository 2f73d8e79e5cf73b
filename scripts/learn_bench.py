#!/usr/bin/env python3
"""Measures `omnidraft learn` and `omnidraft export`: rows to results/learn/rows.json, and a page made of them.

  python3 scripts/learn_bench.py logs --target runs/models/qwen05 --drafter runs/models/smollm2 --task DATA/gsm8k
  python3 scripts/learn_bench.py round-trip --target runs/models/qwen --drafter runs/models/smollm2 --task DATA/gsm8k --python PYTHON
  python3 scripts/learn_bench.py page

`logs`: a server answers prompts and gives log-probabilities; the answers are written as three kinds of log, a drafter
learns from each of them, and another learns beside a server. Then servers that do not learn draft with each, for
prompts that none has seen.

`round-trip`: answers of a target are recorded, learnt from and exported; the drafter before and after drafts here and in
transformers (assisted generation across vocabularies), and llama.cpp reads the exported file. PYTHON is one with torch,
transformers, gguf and llama-cpp-python, as scripts/peers/setup.sh makes it; where llama-cpp-python is missing, its part
is left out.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

from serve_bench import Server, counts, prompts, table, text_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "results" / "learn"


def bytes_of_letters():
    """The bytes that the letters of a byte-level vocabulary stand for: printable ones for themselves, the others, in
    their order, from 256 on."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def ids_of_bytes(folder):
    """The id of each token of a byte-level tokenizer, by its bytes."""
    file = json.loads((pathlib.Path(folder) / "tokenizer.json").read_text())
    letters = bytes_of_letters()
    ids = {bytes(letters[c] for c in token): number for token, number in file["model"]["vocab"].items()}
    return ids | {token["content"].encode(): token["id"] for token in file.get("added_tokens", [])}


def by_ids(answer, ids):
    """An answer as vLLM gives it where `return_tokens_as_token_ids` is asked for."""
    answer = json.loads(json.dumps(answer))
    for position in answer["choices"][0]["logprobs"]["content"]:
        for entry in [position, *position["top_logprobs"]]:
            entry["token"] = f"token_id:{ids[bytes(entry['bytes'])]}"
    return answer


def asked(server, prompts_, clients, **options):
    """Answers to all prompts, in their order; prompt i has seed i."""
    def one(numbered):
        number, prompt = numbered
        return server.ask(prompt, seed=number, **options)

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        return list(pool.map(one, enumerate(prompts_)))


def printed(command):
    """Runs a command; what it printed."""
    print("$", shlex.join(map(str, command)), file=sys.stderr)
    done = subprocess.run(list(map(str, command)), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def learnt(text):
    """First and last row of the table that `omnidraft learn` prints."""
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in text.split("\n") if line.startswith("|")]
    head, rows = rows[0], rows[2:]
    return [dict(zip(head, row)) for row in (rows[0], rows[-1])]


def drafting(args, drafter, held_out, *more, temperature, state=None):
    """What a drafter does for prompts that nothing has learnt from: counts of each answer."""
    options = ["--state", state] if state else []
    with Server(args.omnidraft, "--target", args.target, "--drafter", drafter, "--no-learn", "-k", args.k, *options,
                *shlex.split(args.engine), *more) as server:
        answers = asked(server, held_out, args.clients, temperature=temperature, max_tokens=args.max_tokens)
        return [counts(answer) for answer in answers], server


def logs(args):
    """Learning from three kinds of log of the same answers, beside learning while they are given."""
    stream, held_out = prompts(args.task)[: args.prompts], prompts(args.task, "test")[: args.held_out]
    ids, rows = ids_of_bytes(args.target), []
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        models = ["--target", args.target, "--drafter", args.drafter]
        asking = {"temperature": args.temperature, "max_tokens": args.max_tokens, "logprobs": True, "top_logprobs": 20}
        with Server(args.omnidraft, *models, "--no-learn", "-k", args.k, *shlex.split(args.engine)) as server:
            answers = asked(server, stream, args.clients, **asking)
        kinds = {
            "OpenAI's form, 20 log-probabilities": lambda request, answer: {"request": request, "response": answer},
            "vLLM's form, tokens by their ids": lambda request, answer: {"request": request, "response": by_ids(answer, ids)},
            "text alone": lambda request, answer: {**request, "answer": text_of(answer)},
        }
        ways = [("nothing", None, [])]
        for number, (kind, line) in enumerate(kinds.items()):
            file, state = place / f"{number}.jsonl", place / f"state{number}"
            with file.open("w") as out:
                for prompt, answer in zip(stream, answers):
                    request = {"messages": [{"role": "user", "content": prompt}], "temperature": args.temperature}
                    out.write(json.dumps(line(request, answer)) + "\n")
            text = printed([args.omnidraft, "learn", "--no-progress", "--from", file, *models, "--state", state,
                            "--threads", 2, "--held-out", args.replayed, "-k", args.k])
            ways.append((kind, state, learnt(text)))
        state = place / "live"
        with Server(args.omnidraft, *models, "--state", state, "--learn-every", 2, "-k", args.k, "--no-controller",
                    *shlex.split(args.engine)) as server:
            asked(server, stream, 1, temperature=args.temperature, max_tokens=args.max_tokens)
        ways.append(("live, beside a server", state, []))
        for way, state, replayed in ways:
            found, server = drafting(args, args.drafter, held_out, temperature=args.temperature, state=state)
            rows.append({"way": way, "answers": 0 if way == "nothing" else len(stream), "replayed": replayed, "found": found})
            print(way, sum(a["tokens"] for a in found) / sum(a["rounds"] for a in found), file=sys.stderr)
        write("logs", rows, args, server)


def assist(args):
    """Assisted generation of transformers, as a process of its own: prints counts of each answer, for each drafter."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    torch.set_num_threads(2)

    def load(folder):
        file = {"gguf_file": "model.gguf"} if (pathlib.Path(folder) / "model.gguf").is_file() else {}
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16, **file).eval()
        return model, transformers.AutoTokenizer.from_pretrained(folder)

    target, text = load(args.target)
    forward, calls = target.forward, []

    def counted(*values, **named):
        calls.append(1)
        return forward(*values, **named)

    target.forward = counted
    found = {}
    for drafter in args.drafters:
        model, own = load(drafter)
        model.generation_config.num_assistant_tokens = args.k
        model.generation_config.num_assistant_tokens_schedule = "constant"
        model.generation_config.assistant_confidence_threshold = 0.0
        found[drafter] = []
        for prompt in json.loads(pathlib.Path(args.prompts).read_text()):
            row = text.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True,
                                           return_tensors="pt", return_dict=True)
            calls.clear()
            with torch.inference_mode():
                out = target.generate(**row, max_new_tokens=args.max_tokens, do_sample=False, assistant_model=model,
                                      tokenizer=text, assistant_tokenizer=own)
            tokens = out.shape[1] - row["input_ids"].shape[1]
            found[drafter].append({"tokens": tokens, "rounds": len(calls)})
    print(json.dumps({"version": f"transformers {transformers.__version__}, torch {torch.__version__}", "found": found}))


def round_trip(args):
    """Recorded, learnt from, exported: the drafter before and after, here and in two other programs."""
    task = pathlib.Path(args.task)
    held_out = prompts(args.task, "test")[: args.held_out]
    with tempfile.TemporaryDirectory() as place:
        place = pathlib.Path(place)
        trace, state, folder, file = place / "answers.parquet", place / "state", place / "learnt", place / "learnt.gguf"
        printed([args.omnidraft, "trace", "record", "--no-progress", "--target", args.target, "--task", task.name,
                 "--data-dir", task.resolve().parent, "--split", "train", "--limit", args.prompts, "--max-tokens", args.max_tokens, "--tail", 8,
                 "--together", 16, "--out", trace, *shlex.split(args.engine)])
        text = printed([args.omnidraft, "learn", "--no-progress", "--from", trace, "--target", args.target, "--drafter", args.drafter,
                        "--state", state, "--threads", 2, "--held-out", args.replayed, "-k", args.k])
        printed([args.omnidraft, "export", state, "--to", "hf", "--out", folder])
        printed([args.omnidraft, "export", state, "--to", "gguf", "--out", file])
        rows = []
        for way, drafter in (("as downloaded", args.drafter), ("learnt, exported", folder)):
            found, server = drafting(args, drafter, held_out, temperature=0)
            rows.append({"program": "omnidraft", "drafter": way, "found": found})
        few = held_out[: args.elsewhere]
        (place / "prompts.json").write_text(json.dumps(few))
        peer = json.loads(printed([args.python, __file__, "assist", "--target", args.target, "--prompts", place / "prompts.json", "-k", args.k,
                                   "--max-tokens", args.max_tokens, "--drafters", args.drafter, folder]).split("\n")[-2])
        for way, drafter in (("as downloaded", args.drafter), ("learnt, exported", folder)):
            rows.append({"program": peer["version"], "drafter": way, "found": peer["found"][str(drafter)]})
        rows.append({"program": "llama.cpp", "drafter": "learnt, exported", "text": spoken(args, file, held_out[0])})
        write("round-trip", [{"replayed": learnt(text)}, *rows], args, server)


def spoken(args, file, question):
    """What llama.cpp says with an exported file, or None where it is not installed."""
    have = subprocess.run([args.python, "-c", "import llama_cpp"], capture_output=True)
    if have.returncode != 0:
        print("llama-cpp-python is not installed: the file is not read by llama.cpp", file=sys.stderr)
        return None
    code = ("import json, sys, llama_cpp\n"
            "model = llama_cpp.Llama(sys.argv[1], n_ctx=512, n_threads=2, verbose=False)\n"
            "made = model.create_completion(sys.argv[2], max_tokens=48, temperature=0.0, top_k=0, top_p=1.0, min_p=0.0, repeat_penalty=1.0)\n"
            "print(json.dumps({'version': llama_cpp.__version__, 'text': made['choices'][0]['text']}))")
    return json.loads(printed([args.python, "-c", code, file, question]).strip().split("\n")[-1])


def write(name, rows, args, server):
    """Keeps rows, with how they came about."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "rows.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    options = shlex.join(f"--{key.replace('_', '-')}={value}" for key, value in sorted(vars(args).items())
                         if key not in ("run", "name", "omnidraft", "python", "task"))
    known[name] = {"date": datetime.date.today().isoformat(),
                   "command": f"python3 scripts/learn_bench.py {name} --task DATA/{pathlib.Path(args.task).name} {options}",
                   **server.built, "load": round(os.getloadavg()[0], 1), "rows": rows}
    path.write_text(json.dumps(known, indent=1) + "\n")
    page(args)


def rate(found, above, below):
    """A sum over a sum."""
    return sum(one[above] for one in found) / max(1, sum(one[below] for one in found))


def over(found, before, resamples=2000):
    """Tokens a round over those of the drafter before, with an interval (95%) that resamples prompts."""
    rng, n = random.Random(0), len(found)
    value = lambda rows, of: rate([of[i] for i in rows], "tokens", "rounds")
    ratios = []
    for _ in range(resamples):
        rows = [rng.randrange(n) for _ in range(n)]
        ratios.append(value(rows, found) / value(rows, before))
    ratios.sort()
    whole = range(n)
    return f"{value(whole, found) / value(whole, before):.2f} ({ratios[resamples // 40]:.2f}–{ratios[-resamples // 40]:.2f})"


def page(_):
    """The page, from the rows."""
    known = json.loads((OUT / "rows.json").read_text())
    parts = ["# Learning from logs, and drafters elsewhere\n",
             "Made by `python3 scripts/learn_bench.py page` from [rows.json](rows.json). How the commands are used:\n"
             "[learning](../../docs/learn.md), [export](../../docs/export.md). The drafter is SmolLM2-135M-Instruct, whose last two blocks\n"
             "learn. Held-out prompts are of the test half of the task, which nothing has learnt from. Intervals (95%) resample them.\n"]

    def part(name, title, text):
        it = known[name]
        parts.append(f"## {title}\n\n{text}\n\n{it['date']}, load {it['load']}; omnidraft {it['version']} of commit `{it['commit']}`; "
                     f"{it['machine']}\n\n```sh\n{it['command']}\n```\n")
        return it["rows"]

    if "logs" in known:
        rows = part("logs", "Three kinds of log, and learning live",
                    "A server answered prompts of GSM8K above temperature 0 and gave log-probabilities. The same answers were written as\n"
                    "three logs, and a drafter learnt from each; another learnt beside a server that answered the same prompts. Then servers\n"
                    "that do not learn drafted with each drafter, at the same temperature: draft tokens that verification accepted, and tokens\n"
                    "a round.")
        before = rows[0]["found"]
        parts.append(table(["learnt from", "answers", "acceptance", "tokens a round", "over before"],
                           [[r["way"], r["answers"], f"{rate(r['found'], 'accepted', 'drafted'):.3f}",
                             f"{rate(r['found'], 'tokens', 'rounds'):.2f}", "" if r is rows[0] else over(r["found"], before)] for r in rows]))
        parts.append("What `omnidraft learn` itself prints of the tenth of the answers that it holds out. There a draft is accepted as far as\nit is the recorded text, "
                     "which is less than verification accepts above temperature 0:\n")
        cells = [[r["way"], one["answers learnt from"], one["acceptance, held out"], one["tokens a round, held out"]]
                 for r in rows for one in r["replayed"]]
        parts.append(table(["log", "answers", "acceptance", "tokens a round"], cells))
    if "round-trip" in known:
        rows = part("round-trip", "Recorded, learnt, exported",
                    "Answers of Qwen2.5-Coder-1.5B-Instruct to prompts of GSM8K were recorded; the drafter learnt from them and was exported,\n"
                    "as a folder and as a GGUF file. Greedy answers to held-out prompts, with the same number of draft tokens a round: in\n"
                    "`omnidraft serve --no-learn`, and by assisted generation of transformers, which hands drafts over as text where the\n"
                    "vocabularies differ. A round is a forward of the target; here reading the prompt is none, there the first has it.")
        cells, before = [], {}
        for r in rows:
            if "found" not in r:
                continue
            before.setdefault(r["program"], r["found"])
            cells.append([r["program"], r["drafter"], len(r["found"]), f"{rate(r['found'], 'tokens', 'rounds'):.2f}",
                          "" if before[r["program"]] is r["found"] else over(r["found"], before[r["program"]])])
        parts.append(table(["program", "drafter", "prompts", "tokens a round", "over before"], cells))
        for r in rows:
            if r.get("text"):
                parts.append(f"llama-cpp-python {r['text']['version']} reads the exported file. What it says to the first held-out question, greedily and\nwithout a template:\n\n"
                             f"```text\n{r['text']['text'].strip()}\n```\n")
    (OUT / "README.md").write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--omnidraft", default=str(ROOT / "target/release/omnidraft"))
    commands = parser.add_subparsers(dest="name", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--target", required=True)
    common.add_argument("--drafter", default="runs/models/smollm2")
    common.add_argument("--task", default="datasets/mini-math")
    common.add_argument("--prompts", type=int, default=128, help="answers to learn from")
    common.add_argument("--held-out", type=int, default=48, help="prompts to draft for")
    common.add_argument("--replayed", type=float, default=0.1, help="share of the recorded answers that is not learnt from")
    common.add_argument("--max-tokens", type=int, default=96)
    common.add_argument("-k", type=int, default=4)
    common.add_argument("--clients", type=int, default=4)
    common.add_argument("--engine", default="--weights int8 --threads 2")
    own = commands.add_parser("logs", parents=[common], help=logs.__doc__)
    own.add_argument("--temperature", type=float, default=0.7)
    own.set_defaults(run=logs)
    own = commands.add_parser("round-trip", parents=[common], help=round_trip.__doc__)
    own.add_argument("--python", default=sys.executable)
    own.add_argument("--elsewhere", type=int, default=12, help="held-out prompts that transformers answers")
    own.set_defaults(run=round_trip)
    own = commands.add_parser("assist", help=assist.__doc__)
    own.add_argument("--target", required=True)
    own.add_argument("--drafters", nargs="+", required=True)
    own.add_argument("--prompts", required=True)
    own.add_argument("--max-tokens", type=int, required=True)
    own.add_argument("-k", type=int, required=True)
    own.set_defaults(run=assist)
    commands.add_parser("page", help=page.__doc__).set_defaults(run=page)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
