#!/usr/bin/env python3
"""Measures `omnidraft serve`: rows to a file, and a page made of them.

  python3 scripts/serve_bench.py greedy --prompts 200
  python3 scripts/serve_bench.py law --samples 8000
  python3 scripts/serve_bench.py stream --requests 500
  python3 scripts/serve_bench.py load --clients 1 4 16 --seconds 600
  python3 scripts/serve_bench.py remote --delays 0 10 50
  python3 scripts/serve_bench.py pays --target runs/models/qwen --drafter runs/models/smollm2 --task DATA/gsm8k
  python3 scripts/serve_bench.py beside
  python3 scripts/serve_bench.py memory --seconds 300
  python3 scripts/serve_bench.py page

Nothing but Python's own library is needed. Servers are started on free loopback ports and ended
again. A measurement replaces earlier rows of its name in results/serve/rows.json.
"""

import argparse
import asyncio
import concurrent.futures
import datetime
import http.client
import json
import math
import os
import pathlib
import random
import shlex
import tempfile
import threading
import time

from serve_picture import picture
from serve_process import ROOT, Server, prompts

OUT = ROOT / "results" / "serve"


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def counts(answer):
    usage = answer["usage"]
    details = usage["completion_tokens_details"]
    return {
        "tokens": usage["completion_tokens"],
        "rounds": details["rounds"],
        "drafted": details["drafted_tokens"],
        "accepted": details["accepted_tokens"],
    }


def summed(all_counts):
    return {key: sum(one[key] for one in all_counts) for key in all_counts[0]}


def write(name, rows, args, server):
    """Keeps rows, with how they came about; `server` is one that they were measured with."""
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "rows.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    def option(key, value):
        text = shlex.join(map(str, value if isinstance(value, list) else [value]))
        # What begins with a dash would be taken for an option of its own.
        return f"--{key.replace('_', '-')}{'=' if str(value).startswith('-') else ' '}{text}"

    options = [option(key, value) for key, value in sorted(vars(args).items())
               if key not in ("run", "name", "omnidraft") and value != ""]
    known[name] = {
        "date": datetime.date.today().isoformat(),
        "command": f"python3 scripts/serve_bench.py {args.name} {' '.join(options)}",
        "server": server.command,
        **server.built,
        "load": round(os.getloadavg()[0], 1),
        "rows": rows,
    }
    # Other measurements are in the same file: it is there as a whole or as it was.
    part = path.with_name(path.name + ".part")
    part.write_text(json.dumps(known, indent=1) + "\n")
    part.replace(path)
    page(args)


def greedy(args):
    """Greedy answers against plain decoding while the drafter learns."""
    models = ["--target", args.target, "--drafter", args.drafter, "--parallel", 4]
    every = [p for task in args.tasks for p in prompts(task)]
    random.Random(0).shuffle(every)
    every = every[: args.prompts]
    with Server(args.omnidraft, *models, "--learn-every", 2, *args.more.split()) as server:
        def both(prompt):
            drafted = server.ask(prompt, max_tokens=args.max_tokens)
            plain = server.ask(prompt, max_tokens=args.max_tokens, drafter=False)
            return text_of(drafted) == text_of(plain), counts(drafted)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = list(pool.map(both, every))
        sums = summed([c for _, c in found])
        updates = sum(v for k, v in server.metrics().items() if k.startswith("omnidraft_updates_total"))
        row = {"prompts": len(found), "equal": sum(equal for equal, _ in found), "updates": updates, **sums}
        write(args.rows, [row], args, server)


def chi_square_tail(x, freedom):
    """P(X > x): the regularised upper incomplete gamma function, by series or continued fraction."""
    a, x = freedom / 2, x / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        n = a
        while term > total * 1e-15:
            n += 1
            term *= x / n
            total += term
        return 1 - scale * total
    b, c = x + 1 - a, 1e300
    d = 1 / b
    h = d
    for i in range(1, 1000):
        an = -i * (i - a)
        b += 2
        d = 1 / (an * d + b)
        c = b + an / c
        h *= d * c
        if abs(d * c - 1) < 1e-14:
            break
    return scale * h


def g_test(one, other):
    """G, degrees of freedom and p-value of two samples; outcomes seen less than ten times are one."""
    table = {}
    for i, sample in enumerate((one, other)):
        for text, n in sample.items():
            key = text if one.get(text, 0) + other.get(text, 0) >= 10 else None
            table.setdefault(key, [0, 0])[i] += n
    total = sum(map(sum, table.values()))
    columns = [sum(row[i] for row in table.values()) for i in (0, 1)]
    g = 0.0
    for row in table.values():
        for i in (0, 1):
            if row[i]:
                g += 2 * row[i] * math.log(row[i] * total / (sum(row) * columns[i]))
    freedom = len(table) - 1
    return g, freedom, chi_square_tail(g, freedom)


def sample(server, prompt, samples, seed, **options):
    seen = {}
    for i in range(samples // 16):
        options = {"temperature": 1, **options}
        answer = server.ask(prompt, top_k=4, n=16, max_tokens=4, seed=seed + i, **options)
        for choice in answer["choices"]:
            text = choice["message"]["content"]
            seen[text] = seen.get(text, 0) + 1
    return seen


def law(args):
    """Texts through the server, drafted, against such without drafts: here, and with the target elsewhere."""
    rows = []
    with Server(args.omnidraft, "--target", args.target, "--drafter", args.drafter,
                "--expose-logits", "--learn-every", 4) as here:
        far = Server(args.omnidraft, "--target", f"http://127.0.0.1:{here.port}", "--drafter", args.drafter,
                     "--learn-every", 4)
        with far:
            for number, prompt in enumerate(prompts("mini-chat", "test")[: args.prompts]):
                plain = sample(here, prompt, args.samples, 10**6, drafter=False)
                for where, server in (("here", here), ("elsewhere", far)):
                    drafted = sample(server, prompt, args.samples, 0)
                    g, freedom, p = g_test(drafted, plain)
                    rows.append({"prompt": number, "target": where, "samples": args.samples,
                                 "texts": len(set(drafted) | set(plain)), "G": g, "freedom": freedom, "p": p})
                # What a wrong law looks like: the same test at another temperature.
                warm = sample(here, prompt, args.samples, 0, temperature=1.2)
                g, freedom, p = g_test(warm, plain)
                rows.append({"prompt": number, "target": "here, T = 1.2", "samples": args.samples,
                             "texts": len(set(warm) | set(plain)), "G": g, "freedom": freedom, "p": p})
            write("law", rows, args, here)


def stream(args):
    """Acceptance by hundred requests; a kill in the middle; another target and back."""
    every = prompts(args.task) + prompts(args.task, "test")
    rows = []
    with tempfile.TemporaryDirectory() as state:
        models = ["--drafter", args.drafter, "--state", state, "--save-every", args.save_minutes]
        first = ["--target", args.target, *models]

        def run(server, target, begin, end, event=""):
            for start in range(begin, end, 100):
                found = [counts(server.ask(every[i % len(every)], max_tokens=args.max_tokens))
                         for i in range(start, min(start + 100, end))]
                sums = summed(found)
                updates = sum(v for k, v in server.metrics().items()
                              if k.startswith("omnidraft_updates_total") and f'"{target}"' in k)
                rows.append({"target": target, "from": start, "to": start + len(found), "event": event,
                             "updates": updates, **sums})
                event = ""

        half = args.requests // 2
        name, other = pathlib.Path(args.target).name, pathlib.Path(args.second).name
        server = Server(args.omnidraft, *first)
        run(server, name, 0, half)
        at_kill = server.metrics()
        server.kill()
        current = pathlib.Path(state, "current")
        age = time.time() - current.stat().st_mtime if current.exists() else None
        server = Server(args.omnidraft, *first)
        kept = server.metrics()
        answers = f'omnidraft_answers_total{{target="{name}"}}'
        event = f"kill -9; state {'none' if age is None else f'{age:.0f} s old'}, {kept.get(answers, 0):.0f} of {at_kill[answers]:.0f} answers in it"
        run(server, name, half, args.requests, event)
        server.stop()
        with Server(args.omnidraft, "--target", args.second, *models) as second:
            run(second, other, 0, 100, "another target")
        with Server(args.omnidraft, *first) as back:
            run(back, name, 0, 100, "and back, on the first prompts")
            write("stream", rows, args, back)


def pays(args):
    """Seconds by hundred requests while the drafter learns, plain answers among them; a kill in the middle."""
    every = prompts(args.task)
    rows, half = [], args.requests // 2
    with tempfile.TemporaryDirectory() as state:
        command = [args.omnidraft, "--target", args.target, "--drafter", args.drafter, "--state", state,
                   "--save-every", args.save_minutes, *args.more.split()]

        def ask(server, number, **options):
            began = time.time()
            answer = server.ask(every[number % len(every)], max_tokens=args.max_tokens, **options)
            return {**counts(answer), "seconds": time.time() - began}

        def run(server, begin, end, event=""):
            for start in range(begin, end, args.step):
                drafted, plain = [], []
                for number in range(start, min(start + args.step, end)):
                    drafted.append(ask(server, number))
                    # Other prompts, from the end of the task: what was read once is not read again.
                    if number % args.plain == args.plain - 1:
                        plain.append(ask(server, -1 - number // args.plain, drafter=False))
                plain, metrics = summed(plain), server.metrics()
                total = lambda name: sum(v for k, v in metrics.items() if k.startswith(f"omnidraft_{name}{{"))
                rows.append({"from": start, "to": start + len(drafted), "event": event, **summed(drafted),
                             "plain_tokens": plain["tokens"], "plain_seconds": plain["seconds"],
                             "saved": total("saved_seconds"), "learning": total("learning_seconds_total"),
                             "updates": total("updates_total"), "rested": total("rested_answers_total")})
                event = ""

        server = Server(*command)
        run(server, 0, half)
        before = server.metrics()
        server.kill()
        current = pathlib.Path(state, "current")
        age = time.time() - current.stat().st_mtime if current.exists() else None
        server = Server(*command)
        answers = f'omnidraft_answers_total{{target="{pathlib.Path(args.target).name}"}}'
        kept, had = server.metrics().get(answers, 0), before[answers]
        event = f"kill -9; state {'none' if age is None else f'{age:.0f} s old'}, {kept:.0f} of {had:.0f} answers in it"
        with server:
            run(server, half, args.requests, event)
            if args.picture:
                picture(server, every[args.requests:args.requests + 2], args.picture, tokens=args.max_tokens)
            write(args.rows, rows, args, server)


def beside(args):
    """Answers of a target here, alone and beside those of a target behind a delay."""
    rows = []
    every = prompts(args.task, "test")[: args.prompts]
    with Server(args.omnidraft, "--target", args.target, "--drafter", args.drafter, "--expose-logits", "--no-learn") as there:
        proxy = Delay(there.port, args.delay)
        proxy.start()
        proxy.ready.wait()
        # Two processes share the machine: what the other one computes is part of the second row.
        with Server(args.omnidraft, "--target", f"http://127.0.0.1:{proxy.port}/", "--target", f"here={args.target}",
                    "--drafter", args.drafter, "--no-learn") as server:
            far = json.loads(server.request("GET", "/v1/models"))["data"][0]["id"]
            for others in (0, args.clients):
                stop = threading.Event()

                def ask_far(number):
                    tokens = 0
                    while not stop.is_set():
                        answer = server.ask(every[number % len(every)], model=far, max_tokens=args.max_tokens)
                        tokens += counts(answer)["tokens"]
                    return tokens

                with concurrent.futures.ThreadPoolExecutor(max(1, others)) as pool:
                    began = time.time()
                    asked = [pool.submit(ask_far, i) for i in range(others)]
                    found, latencies = [], []
                    try:
                        for prompt in every:
                            at = time.time()
                            found.append(counts(server.ask(prompt, model="here", max_tokens=args.max_tokens)))
                            latencies.append(time.time() - at)
                        seconds = time.time() - began
                    finally:
                        # The pool waits for its clients, after an error as well.
                        stop.set()
                    elsewhere = sum(future.result() for future in asked) / (time.time() - began)
                sums = summed(found)
                rows.append({"delay_ms": args.delay, "others": others, "prompts": len(every), **sums,
                             "seconds": seconds, "p50": sorted(latencies)[len(latencies) // 2],
                             "elsewhere_per_second": elsewhere})
            write("beside", rows, args, server)


def memory(args):
    """Resident memory while clients ask and the drafter learns."""
    rows = []
    every = prompts(args.task)
    for budget in args.examples_mb:
        with Server(args.omnidraft, "--target", args.target, "--drafter", args.drafter,
                    "--parallel", args.clients, "--examples-mb", budget, *args.more.split()) as server:
            began = time.time()
            until = began + args.seconds
            answers = [0] * args.clients

            def client(number):
                order = random.Random(number)
                while time.time() < until:
                    server.ask(order.choice(every), max_tokens=args.max_tokens, user=str(number))
                    answers[number] += 1

            with concurrent.futures.ThreadPoolExecutor(args.clients) as pool:
                clients = [pool.submit(client, number) for number in range(args.clients)]
                for part in range(1, 11):
                    seen = []
                    while time.time() < began + args.seconds * part / 10:
                        time.sleep(min(1.0, args.seconds / 100))
                        seen.append(server.memory())
                    metrics = server.metrics()
                    rows.append({"examples_mb": budget, "seconds": args.seconds * part / 10, "answers": sum(answers),
                                 "updates": sum(v for k, v in metrics.items() if k.startswith("omnidraft_updates_total")),
                                 "replay_mib": metrics["omnidraft_replay_bytes"] / 2**20,
                                 "memory": sum(seen) / len(seen), "memory_most": max(seen)})
                for future in clients:
                    future.result()
            write("memory", rows, args, server)


def load(args):
    """Clients that ask without a pause."""
    rows = []
    every = prompts(args.task)
    for clients in args.clients:
        more = ["--parallel", max(args.clients), *args.more.split()]
        with Server(args.omnidraft, "--target", args.target, "--drafter", args.drafter, *more) as server:
            server.ask(every[0], max_tokens=args.max_tokens)
            until = time.time() + args.seconds
            memory = [(time.time(), server.memory())]

            def client(number):
                seen, order = [], random.Random(number)
                while time.time() < until:
                    began = time.time()
                    answer = server.ask(order.choice(every), max_tokens=args.max_tokens, user=str(number),
                                        drafter=args.drafts != "no")
                    seen.append((time.time() - began, counts(answer)))
                return seen

            def watch():
                while time.time() < until:
                    time.sleep(args.seconds / 20)
                    memory.append((time.time(), server.memory()))

            began = time.time()
            with concurrent.futures.ThreadPoolExecutor(clients + 1) as pool:
                watching = pool.submit(watch)
                found = list(pool.map(client, range(clients)))
                watching.result()
            seconds = time.time() - began
            latencies = sorted(latency for seen in found for latency, _ in seen)
            tokens = [sum(c["tokens"] for _, c in seen) for seen in found]
            metrics = server.metrics()
            steps = metrics["omnidraft_steps_total"]
            third = max(1, len(memory) // 3)
            rows.append({
                "target": args.target, "more": args.more, "clients": clients, "seconds": round(seconds, 1),
                "answers": len(latencies),
                "tokens_per_second": sum(tokens) / seconds,
                "slowest_client": min(tokens) / seconds,
                "p50": latencies[len(latencies) // 2], "p95": latencies[int(len(latencies) * 0.95)],
                "tokens_per_round": summed([c for seen in found for _, c in seen])["tokens"]
                / summed([c for seen in found for _, c in seen])["rounds"],
                "draft_share": metrics["omnidraft_draft_seconds_total"] / metrics["omnidraft_step_seconds_total"],
                "target_share": metrics["omnidraft_target_seconds_total"] / metrics["omnidraft_step_seconds_total"],
                "step_ms": 1000 * metrics["omnidraft_step_seconds_total"] / steps,
                "memory_third": sorted(m for _, m in memory[third: 2 * third] or memory)[0],
                "memory_end": memory[-1][1],
                "load": round(os.getloadavg()[0], 1),
            })
            write(args.rows, rows, args, server)


class Delay(threading.Thread):
    """Passes bytes on, `milliseconds` of a round trip later: half of it in each direction."""

    def __init__(self, port, milliseconds):
        super().__init__(daemon=True)
        self.to, self.delay, self.ready = port, milliseconds / 2000, threading.Event()

    def run(self):
        asyncio.run(self.serve())

    async def serve(self):
        server = await asyncio.start_server(self.connected, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await server.serve_forever()

    async def connected(self, reader, writer):
        to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(self.copy(reader, to_writer), self.copy(to_reader, writer))

    async def copy(self, reader, writer):
        loop, queue = asyncio.get_running_loop(), asyncio.Queue()

        async def late():
            while True:
                due, data = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                if not data:
                    writer.close()
                    return
                writer.write(data)
                await writer.drain()

        sending = asyncio.create_task(late())
        try:
            while data := await reader.read(1 << 16):
                queue.put_nowait((loop.time() + self.delay, data))
        except ConnectionError:
            pass
        queue.put_nowait((loop.time() + self.delay, b""))
        try:
            await sending
        except ConnectionError:
            pass


def stream_seconds(port, prompt, tokens, temperature):
    """Seconds of an answer without drafts that the target's own server streams, and its tokens."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    body = {"messages": [{"role": "user", "content": prompt}], "temperature": temperature, "max_tokens": tokens,
            "stream": True, "stream_options": {"include_usage": True}, "drafter": False}
    began = time.time()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json"})
    lines = connection.getresponse().read().decode().splitlines()
    seconds = time.time() - began
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return seconds, chunks[-1]["usage"]["completion_tokens"]


def remote(args):
    """The drafter here, the target behind a delay."""
    rows = []
    every = prompts(args.task, "test")[: args.prompts]
    there = Server(args.omnidraft, "--target", args.target, "--drafter", args.drafter, "--expose-logits", "--no-learn")
    with there:
        for delay in args.delays:
            proxy = Delay(there.port, delay)
            proxy.start()
            proxy.ready.wait()
            arguments = ["--target", f"http://127.0.0.1:{proxy.port}", "--drafter", args.drafter,
                         "--state", args.state, "-k", args.k] if args.state else [
                         "--target", f"http://127.0.0.1:{proxy.port}", "--drafter", args.drafter, "-k", args.k]
            with Server(args.omnidraft, *arguments) as here:
                # The drafter learns first, as it would in use.
                for prompt in prompts(args.task)[: args.warm]:
                    here.ask(prompt, max_tokens=args.max_tokens)
                for way in ("drafted here", "token by token", "streamed plainly"):
                    compared = delay == args.delays[0] and way != "streamed plainly" and args.temperature == 0
                    before, seconds = here.metrics(), 0.0
                    tokens = rounds = equal = 0
                    for prompt in every:
                        if way == "streamed plainly":
                            took, count = stream_seconds(proxy.port, prompt, args.max_tokens, args.temperature)
                            seconds, tokens = seconds + took, tokens + count
                            continue
                        # The plain answers that texts are compared with are not part of the time.
                        began = time.time()
                        answer = here.ask(prompt, max_tokens=args.max_tokens, drafter=way == "drafted here",
                                          temperature=args.temperature)
                        seconds += time.time() - began
                        tokens += answer["usage"]["completion_tokens"]
                        rounds += answer["usage"]["completion_tokens_details"]["rounds"]
                        equal += text_of(answer) == text_of(there.ask(prompt, max_tokens=args.max_tokens, drafter=False)) if compared else 0
                    after = here.metrics()
                    moved = lambda name: after[name] - before[name]
                    calls = moved("omnidraft_remote_calls_total")
                    row = {"delay_ms": delay, "temperature": args.temperature, "way": way, "k": args.k, "prompts": len(every), "tokens": tokens,
                           "rounds": rounds, "tokens_per_second": tokens / seconds}
                    if compared:
                        row.update(equal=equal)
                    if calls:
                        row["sent_per_round"] = moved("omnidraft_remote_sent_bytes_total") / calls
                        row["received_per_round"] = moved("omnidraft_remote_received_bytes_total") / calls
                    rows.append(row)
                    write(args.rows, rows, args, there)


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]) + "\n"


def page(_):
    """The page, from the rows."""
    known = json.loads((OUT / "rows.json").read_text())
    parts = ["# The server, measured\n",
             "Made by `python3 scripts/serve_bench.py page` from [rows.json](rows.json); no number is typed. What is\n"
             "measured, and how a server is used: [docs/serve.md](../../docs/serve.md). The models are this project's small ones\n"
             "where no other is named; `runs/llama-68m` is a random one, written by `omnidraft bench checkpoint --shape llama-68m`,\n"
             "with the tokenizer files of `models/L` beside it. `load` is the machine's load when a measurement ended: where it is above the number of\n"
             "cores, seconds are those of a shared machine. A server without `--threads` had one thread where its date is before\n"
             "2026-11-30, and has one a core since.\n"]

    def part(name, title, text):
        if name in known:
            it = known[name]
            # What is said of these rows alone goes with them when they are measured again.
            parts.append(f"## {title}\n\n{text}{it.get('note', '')}\n")
            built = f"omnidraft {it['version']} of commit `{it['commit']}`; {it['machine']}" if "commit" in it \
                else f"{it['version']}, commit and machine not recorded"
            parts.append(f"{it['date']}, load {it['load']}; {built}\n\n```sh\n{it['command']}\n# {it['server']}\n```\n")
            return it["rows"]
        return None

    for name in sorted(name for name in known if name.startswith("greedy")):
        rows = part(name, f"Greedy answers while the drafter learns{name[6:].replace('-', ', ', 1)}",
                    "Every prompt is asked twice at temperature 0: with the drafter, which learns meanwhile, and without it.")
        parts.append(table(["prompts", "equal texts", "updates meanwhile", "tokens", "tokens a round"],
                           [[r["prompts"], r["equal"], f"{r['updates']:.0f}", r["tokens"], f"{r['tokens'] / r['rounds']:.2f}"] for r in rows]))
    rows = part("law", "The law of answers",
                "Texts of four tokens at T = 1, each among the four most probable ones, drafted against undrafted, while the\ndrafter learns: a G-test, texts seen less than ten times together. The last row of a prompt is a wrong law, which\nthe test has to find.")
    if rows:
        parts.append(table(["prompt", "target", "samples each", "different texts", "G", "degrees of freedom", "p"],
                           [[r["prompt"], r["target"], r["samples"], r["texts"], f"{r['G']:.1f}", r["freedom"], f"{r['p']:.2g}"] for r in rows]))
    rows = part("stream", "A stream of requests",
                "Accepted of drafted tokens, and tokens a round, by hundreds of requests. Prompts are those of the task, all of them\nbefore one comes again.")
    if rows:
        parts.append(table(["target", "requests", "acceptance", "tokens a round", "updates", ""],
                           [[r["target"], f"{r['from']}-{r['to']}", f"{r['accepted'] / max(1, r['drafted']):.3f}",
                             f"{r['tokens'] / r['rounds']:.2f}", f"{r['updates']:.0f}", r["event"]] for r in rows]))
    for name in sorted(known):
        if not name.startswith("load"):
            continue
        rows = part(name, f"Load: {name[4:].strip('-') or 'the small models'}",
                    "Clients that ask without a pause; seconds of an answer at the median and at 95%; MiB resident after a third of the\ntime and at its end; shares of a step that drafting, with reading prompts, and\nthe target take.")
        parts.append(table(["clients", "seconds", "answers", "tokens/s", "slowest client's", "p50 s", "p95 s", "tokens a round",
                            "step ms", "drafting", "target", "MiB", "MiB at the end"],
                           [[r["clients"], r["seconds"], r["answers"], f"{r['tokens_per_second']:.0f}", f"{r['slowest_client']:.0f}",
                             f"{r['p50']:.2f}", f"{r['p95']:.2f}", f"{r['tokens_per_round']:.2f}", f"{r['step_ms']:.1f}",
                             f"{r['draft_share']:.0%}", f"{r['target_share']:.0%}",
                             f"{r['memory_third']:.0f}", f"{r['memory_end']:.0f}"] for r in rows]))
    for name in sorted(name for name in known if name.startswith("pays")):
        rows = part(name, f"Seconds while the drafter learns: {name[4:].strip('-') or 'two models'}",
                    "One client asks; answers without the drafter, to other prompts of the same task, stand between its requests. Tokens a\n"
                    "second are the client's, prefill and learning in. *Saved* and *learning* are what the server itself counts, since it was\n"
                    "first started.")
        if not rows:
            continue
        speed = lambda r: r["tokens"] / r["seconds"]
        plain = lambda r: r["plain_tokens"] / r["plain_seconds"]
        parts.append(table(["requests", "tokens/s", "plain", "over plain", "tokens a round", "updates", "rested answers", "saved s", "learning s", ""],
                           [[f"{r['from']}-{r['to']}", f"{speed(r):.1f}", f"{plain(r):.1f}", f"{speed(r) / plain(r):.2f}x",
                             f"{r['tokens'] / r['rounds']:.2f}", f"{r['updates']:.0f}", f"{r['rested']:.0f}", f"{r['saved']:.1f}",
                             f"{r['learning']:.1f}", r["event"]] for r in rows]))
    for name in ("remote", "remote-warm"):
        rows = part(name, "A target elsewhere" + (", above temperature 0" if name != "remote" else ""),
                    "Tokens a second with a round trip so much longer. *Drafted here*: a round trip a round, after learning; *token by\ntoken*: the same without drafts; *streamed plainly*: the target's own server decodes without a drafter and streams, which\npays the delay once an answer. Bytes are those of bodies. Texts are compared with the target's own where the delay is\nleast.")
        if not rows:
            continue
        parts.append(table(["delay ms", "T", "way", "tokens/s", "tokens a round", "bytes sent a round", "bytes back", "equal texts"],
                           [[r["delay_ms"], r.get("temperature", 0.0), r["way"], f"{r['tokens_per_second']:.1f}",
                             f"{r['tokens'] / r['rounds']:.2f}" if r["rounds"] else "",
                             f"{r.get('sent_per_round', 0):.0f}", f"{r.get('received_per_round', 0):.0f}",
                             f"{r['equal']} of {r['prompts']}" if "equal" in r else ""] for r in rows]))
    rows = part("beside", "A target here beside one elsewhere",
                "One client asks the target here, in the second row beside clients of a target behind a delay that the same\nserver serves. Its answers do not wait for replies from elsewhere; what they share is the processor.")
    if rows:
        parts.append(table(["delay ms", "clients of the target elsewhere", "answers here", "tokens/s here", "p50 s here", "tokens/s elsewhere"],
                           [[r["delay_ms"], r["others"], r["prompts"], f"{r['tokens'] / r['seconds']:.1f}", f"{r['p50']:.2f}",
                             f"{r['elsewhere_per_second']:.1f}"] for r in rows]))
    rows = part("memory", "Memory while learning",
                "Resident MiB, mean and most of a tenth of the time. What grows is what is kept to be learnt from again: at most 256\nanswers, and at most `--examples-mb`.")
    if rows:
        parts.append(table(["--examples-mb", "until s", "answers", "updates", "replayed MiB", "MiB", "most"],
                           [[r["examples_mb"], f"{r['seconds']:.0f}", r["answers"], f"{r['updates']:.0f}", f"{r['replay_mib']:.1f}",
                             f"{r['memory']:.0f}", f"{r['memory_most']:.0f}"] for r in rows]))
    (OUT / "README.md").write_text("\n".join(parts))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--omnidraft", default=str(ROOT / "target/release/omnidraft"))
    commands = parser.add_subparsers(dest="name", required=True)

    def command(function, *options):
        it = commands.add_parser(function.__name__, help=function.__doc__)
        it.set_defaults(run=function)
        for name, default in options:
            many = isinstance(default, list)
            it.add_argument(f"--{name}", default=default, nargs="+" if many else None,
                            type=type(default[0] if many else default))

    models = [("target", "models/L"), ("drafter", "models/D"), ("max-tokens", 48)]
    command(greedy, *models, ("prompts", 200), ("tasks", ["mini-math", "mini-chat", "mini-code", "mini-news"]), ("more", "-k 4"), ("rows", "greedy"))
    command(law, *models, ("samples", 8000), ("prompts", 3))
    command(stream, *models, ("second", "models/Q"), ("requests", 500), ("task", "mini-math"), ("save-minutes", 0.25))
    command(load, *models, ("clients", [1, 4, 16]), ("seconds", 600.0), ("task", "mini-math"), ("more", "-k 4"), ("drafts", "yes"), ("rows", "load"))
    command(remote, *models, ("delays", [0.0, 10.0, 50.0]), ("prompts", 20), ("warm", 200), ("task", "mini-math"), ("k", 6), ("state", ""), ("temperature", 0.0), ("rows", "remote"))
    command(pays, *models, ("requests", 300), ("step", 50), ("plain", 5), ("task", "mini-math"), ("save-minutes", 1.0), ("more", "--threads 2"), ("picture", ""), ("rows", "pays"))
    command(beside, *models, ("delay", 200.0), ("prompts", 40), ("clients", 2), ("task", "mini-math"))
    command(memory, *models, ("clients", 8), ("seconds", 300.0), ("examples-mb", [128, 16]), ("task", "mini-math"), ("more", "-k 4"))
    command(page)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
