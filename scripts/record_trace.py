#!/usr/bin/env python3
"""Records the greedy answers of a served target as a trace, the file that `omnidraft trace record` writes.

    scripts/record_trace.py --url http://HOST:8000/v1 --tokenizer DIR --task gsm8k --data gsm8k/train.jsonl --out F

It asks a server of the OpenAI kind for completions with log-probabilities: vLLM (`--server vllm`: token ids in the
answer, ends included) or any other (`--server openai`: tokens come as text, and rows that are missing, those of the end
of the text, are asked for by `echo`). A model that transformers reads needs no server: `omnidraft trace record --target
torch:DIR`.

Prompts are sent as token ids, or as text where a server takes no ids (`--prompts text`); `--body` adds fields, such as
`{"repeat_penalty": 1.0}` where a server punishes repetition unless told not to (llama-cpp-python).

Needs numpy, pyarrow and transformers. An interrupted call goes on when it is typed again.
docs/traces.md describes the file.
"""

import argparse
import hashlib
import json
import pathlib
import pickle
import sys
import time
import urllib.request

import numpy as np

COLUMNS = ["id", "prompt", "prompt_ids", "answer_ids", "tail_ids", "top_ids", "values", "rest"]
EOS = ["</s>", "<eos>", "[EOS]", "<|eos|>", "<|end_of_text|>", "<|endoftext|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"]
END_OF_TURN = ["<|eot_id|>", "<|im_end|>", "<end_of_turn>", "<|eot|>", "<|end|>", "<|endofturn|>"]
GROUP = 16


def fail(message, hint=None):
    sys.exit(f"error: {message}" + (f"\nhint: {hint}" if hint else ""))


def sha256(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


class Text:
    """A tokenizer with its template and its budget."""

    def __init__(self, folder, max_prompt_tokens):
        from transformers import AutoTokenizer

        self.folder = pathlib.Path(folder)
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.chat = bool(self.tokenizer.chat_template)
        self.config = self.json("config.json")
        options = self.json("omnidraft.json")
        positions = self.config.get("max_position_embeddings", 2048)
        self.positions = positions
        self.budget = max_prompt_tokens or options.get("max_prompt_tokens") or min(max(positions // 2, 1), 2048)

    def json(self, name):
        path = self.folder / name
        return json.loads(path.read_text()) if path.is_file() else {}

    def stop(self):
        listed = self.json("generation_config.json").get("eos_token_id", self.config.get("eos_token_id"))
        stop = set(listed if isinstance(listed, list) else [listed] if listed is not None else [])
        known = self.tokenizer.get_added_vocab()
        for names in EOS, END_OF_TURN:
            ids = [known[name] for name in names if name in known]
            stop.update(sorted(ids)[:1])
        if not stop & set(known.values()) and self.tokenizer.eos_token_id is not None:
            stop.add(self.tokenizer.eos_token_id)
        return sorted(stop)

    def render(self, prompt):
        if not self.chat:
            return prompt
        messages = [{"role": "user", "content": prompt}]
        return self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)

    def encode(self, text):
        return self.tokenizer(text, add_special_tokens=not self.chat)["input_ids"]

    def count(self, prompt):
        return len(self.encode(self.render(prompt)))

    def fit(self, prompt):
        """The prompt within the budget: its first part and its last paragraph, as omnidraft shortens it."""
        if self.count(prompt) <= self.budget:
            return prompt
        needed = self.count("")
        if needed > self.budget:
            fail(f"the template alone takes {needed} of {self.budget} tokens")
        tail, trimmed = "", prompt.rstrip()
        for separator in "\n\n", "\n", ". ":
            at = trimmed.rfind(separator)
            if at >= 0:
                candidate = prompt[at + 1 if separator == ". " else at :]
                if self.count(candidate) <= needed + (self.budget - needed) // 2:
                    tail = candidate
                    break
        head = prompt[: len(prompt) - len(tail)]
        cuts = [i for i in range(1, len(head)) if head[i].isspace() and not head[i - 1].isspace()]
        cuts = cuts or list(range(1, len(head)))
        best, low, high = tail.lstrip(), 0, len(cuts)
        while low < high:
            middle = (low + high) // 2
            candidate = head[: cuts[middle]] + tail
            if self.count(candidate) <= self.budget:
                best, low = candidate, middle + 1
            else:
                high = middle
        return best


class Recording:
    """The partial file, and the parquet file that it becomes."""

    def __init__(self, out, info):
        self.out, self.part, self.info = pathlib.Path(out), pathlib.Path(f"{out}.pypart"), info
        if self.out.exists():
            fail(f"{out}: there is such a file already", "remove it, or give another --out")
        self.rows, end = [], 0
        if self.part.exists():
            with self.part.open("rb") as file:
                if pickle.load(file) != info:
                    fail(f"{self.part}: begun with other settings", "finish it with its own, or remove it")
                end = file.tell()
                try:
                    while True:
                        self.rows.append(pickle.load(file))
                        end = file.tell()
                except (EOFError, pickle.UnpicklingError):
                    pass
            print(f"goes on behind {len(self.rows)} prompts", file=sys.stderr)
        self.file = self.part.open("r+b" if end else "wb")
        self.file.truncate(end)
        self.file.seek(end)
        if not end:
            pickle.dump(info, self.file)
        self.ids = {row[0] for row in self.rows}
        self.prompts = {row[2] for row in self.rows}

    def push(self, name, prompt, prompt_ids, answer, tail, rows):
        """`rows`: a position each, `(ids, values, rest)`, the answer's token first."""
        le = lambda values, kind: np.asarray(values, dtype=kind).tobytes()
        fields = [name.encode(), prompt.encode(), le(prompt_ids, "<u4"), le(answer, "<u4"), le(tail, "<u4")]
        fields.append(b"".join(le(row[0], "<u4") for row in rows))
        fields.append(b"".join(le(np.minimum(row[1], 0.0), "<f2") for row in rows))
        fields.append(le([row[2] for row in rows], "<f4"))
        self.rows.append(fields)
        self.ids.add(fields[0])
        self.prompts.add(fields[2])
        pickle.dump(fields, self.file)
        self.file.flush()

    def finish(self):
        import pyarrow as pa
        import pyarrow.parquet as pq

        def checksum(fields):
            return hashlib.sha256(b"".join(len(f).to_bytes(8, "little") + f for f in fields)).digest()

        types = [pa.string(), pa.string()] + [pa.binary()] * 7
        fields = [pa.field(name, kind, nullable=False) for name, kind in zip(COLUMNS + ["sha256"], types)]
        schema = pa.schema(fields)
        columns = [[row[i].decode() if i < 2 else row[i] for row in self.rows] for i in range(len(COLUMNS))]
        columns.append([checksum(row) for row in self.rows])
        arrays = [pa.array(column, kind) for column, kind in zip(columns, types)]
        temporary = pathlib.Path(f"{self.out}.tmp")
        options = dict(compression="zstd", compression_level=9, use_dictionary=False, store_schema=False)
        with pq.ParquetWriter(temporary, schema, **options) as writer:
            writer.write_table(pa.Table.from_arrays(arrays, schema=schema), row_group_size=GROUP)
            writer.add_key_value_metadata({"omnidraft.trace": json.dumps(self.info)})
        temporary.rename(self.out)
        self.file.close()
        self.part.unlink()


class Server:
    def __init__(self, args, text, vocab):
        self.args, self.text, self.vocab = args, text, vocab
        self.spelled = {}
        for token in range(vocab if args.server == "openai" else 0):
            self.spelled.setdefault(text.tokenizer.decode([token]), []).append(token)

    def ask(self, ids, **options):
        prompt = ids if self.args.prompts == "ids" else self.text.tokenizer.decode(ids)
        body = {"model": self.args.model_name, "prompt": prompt, "temperature": 0, "logprobs": self.args.top, **options}
        body |= self.args.body
        if self.args.server == "vllm":
            body |= {"return_tokens_as_token_ids": True, "ignore_eos": True, "skip_special_tokens": False}
        request = urllib.request.Request(
            f"{self.args.url}/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=self.args.timeout) as reply:
                reply = json.load(reply)
                choice, read = reply["choices"][0], (reply.get("usage") or {}).get("prompt_tokens", len(ids))
        except (OSError, ValueError, KeyError, IndexError) as error:
            fail(f"{self.args.url}: {error}", "the server must answer POST /completions with log-probabilities")
        if read != len(ids):
            fail(
                f"{self.args.url}: the server reads {read} tokens where {self.args.tokenizer} has {len(ids)}",
                "it has another tokenizer, or puts a token in front; send ids (--prompts ids) if it takes them",
            )
        return choice

    def token(self, name):
        if isinstance(name, dict):
            return name["id"]
        if name.startswith("token_id:"):
            return int(name.removeprefix("token_id:"))
        found = self.spelled.get(name, [])
        if len(found) != 1:
            fail(
                f"{self.args.url}: {len(found)} tokens of the vocabulary are written {name!r}",
                "use a server that names tokens by id (--server vllm)",
            )
        return found[0]

    def row(self, where, chosen, own, top):
        """`(ids, log-probabilities, rest)` of one position, the chosen token with its own value first."""
        named = top.items() if isinstance(top, dict) else [(entry, entry["logprob"]) for entry in top or []]
        # Texts that several tokens share, broken characters, tell nothing apart: they belong to the rest.
        known = self.args.server == "vllm" or not isinstance(top, dict)
        law = {self.token(n): v for n, v in named if known or len(self.spelled.get(n, [])) == 1}
        if own is not None:
            law[chosen] = own
        if law.get(chosen, 0.0) < max(law.values()):
            best = max(law, key=law.get)
            fail(
                f"{self.args.url}: {where}: token {chosen} was chosen, {best} was more probable",
                'the server does not decode greedily; perhaps it punishes repetition: --body \'{"repeat_penalty": 1.0}\'',
            )
        # Names that several tokens share stand once where a server answers with a table: their mass is in the rest.
        if len(named) < self.args.top and (known or len(law) == len(named)):
            fail(
                f"{self.args.url}: {where}: {len(named)} log-probabilities came, {self.args.top} were asked for",
                "lower --top, or raise the server's limit (vLLM: --max-logprobs)",
            )
        order = sorted(law, key=lambda token: (token != chosen, -law[token], token))
        values = np.array([law[token] for token in order], dtype=np.float64)
        # A token that came without an id of its own leaves its place to one of no probability.
        free = (t for t in range(self.vocab) if t not in law)
        while len(order) < self.args.top:
            order.append(next(free))
            values = np.append(values, -np.inf)
        if chosen not in law:
            fail(f"{self.args.url}: {where}: the chosen token is not among the most probable ones")
        order, values = order[: self.args.top], values[: self.args.top]
        return np.array(order), values, min(max(1.0 - np.exp(values).sum(), 0.0), 1.0)

    def rows(self, choice, start, where, fed=()):
        """Chosen tokens and rows from position `start` of what came; the first ones are `fed`."""
        given = choice.get("logprobs") or {}
        tokens, tops = given.get("tokens", []), given.get("top_logprobs") or []
        if len(tops) < len(tokens):
            fail(f"{self.args.url}: {where}: {len(tops)} rows for {len(tokens)} tokens")
        own = given.get("token_logprobs") or [None] * len(tokens)
        came = list(zip(tokens, own, tops))[start:]
        # What was fed is known; only the rest must be told by its name.
        ids = [fed[i] if i < len(fed) else self.token(token) for i, (token, _, _) in enumerate(came)]
        return ids, [self.row(where, token, value, top) for token, (_, value, top) in zip(ids, came)]

    def answer(self, prompt_ids, info):
        stop = set(info["stop"])
        where = f"prompt of {len(prompt_ids)} tokens"
        choice = self.ask(prompt_ids, max_tokens=info["max_tokens"] + info["tail"])
        path, rows = self.rows(choice, 0, where)
        end = next((i + 1 for i, token in enumerate(path) if token in stop), None)
        if end is None and choice.get("finish_reason") == "stop":
            # The end itself did not come: it is read as part of a prompt, with one token behind it.
            end = len(path) + 1
            stopped = [self.text.tokenizer.eos_token_id] if self.text.tokenizer.eos_token_id in stop else list(stop)
            fed = prompt_ids + path + stopped[:1]
            echoed = self.ask(fed, max_tokens=1, echo=True)
            tokens = (echoed.get("logprobs") or {}).get("tokens", [])
            # Some leave the token out that opens every text; some write special tokens as nothing.
            names = [self.text.tokenizer.decode([token]) for token in fed]
            same = lambda out: all(came in ("", name) for came, name in zip(tokens, names[out:]))
            left_out = next((out for out in (0, 1) if len(tokens) >= len(fed) - out and same(out)), None)
            if left_out is None:
                fail(
                    f"{self.args.url}: {where}: {len(tokens)} log-probabilities came, {len(fed)} were asked for",
                    "the server does not echo its prompt, so it cannot say how probable the end was; vLLM does not need to",
                )
            behind = len(fed) - left_out
            if self.args.server == "openai" and any(len(self.spelled.get(name, [])) != 1 for name in tokens[behind:]):
                # What came behind the end has no name: as if nothing had come.
                echoed["logprobs"] = {key: values[:behind] for key, values in echoed["logprobs"].items()}
            more_ids, more_rows = self.rows(echoed, len(fed) - 1 - left_out, where, fed[-1:])
            path, rows = path + more_ids, rows + more_rows
            if len(path) == end and path[-1] in stop:
                # Nothing came behind the end, and nothing of it is said: judged as the end again.
                path, rows = path + path[-1:], rows + rows[-1:]
        kept = min(end or info["max_tokens"], info["max_tokens"])
        if end is None and len(path) < info["max_tokens"]:
            fail(f"{self.args.url}: {where}: {len(path)} tokens came, {info['max_tokens']} were asked for")
        last = min(len(path), kept + (1 if end == kept else info["tail"]))
        if end is not None:
            last = min(last, end + 1)
        return path[:kept], path[kept:last], rows[:last]


def prompts_of(args):
    records = [json.loads(line) for line in open(args.data, encoding="utf-8") if line.strip()]
    if args.ids:
        file, name = args.ids.rsplit(":", 1)
        by_id = {record["id"]: record for record in records}
        records = [by_id[i] for i in json.loads(pathlib.Path(file).read_text())[name]]
    return records[: args.limit]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", required=True, help="up to and with /v1")
    parser.add_argument("--tokenizer", required=True, metavar="DIR")
    parser.add_argument("--model-name", default="default")
    parser.add_argument("--server", choices=["vllm", "openai"], default="vllm")
    parser.add_argument("--vocab", type=int, help="rows of the model's head [default: config.json, or the tokenizer]")
    parser.add_argument("--prompts", choices=["ids", "text"], default="ids", help="how prompts are sent")
    parser.add_argument("--body", type=json.loads, default={}, metavar="JSON", help="more fields of every request")
    parser.add_argument("--timeout", type=float, default=600)
    parser.add_argument("--data", required=True, help="JSON lines with id and prompt")
    parser.add_argument("--ids", metavar="FILE:LIST", help="only the ids of a list of a split file")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--task", required=True)
    parser.add_argument("--split", choices=["train", "test"], default="train")
    parser.add_argument("--top", type=int, default=64, help="K")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--tail", type=int, default=72)
    parser.add_argument("--max-prompt-tokens", type=int)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    if args.temperature != 0:
        fail("--temperature: above 0 an answer is one of many, so only greedy answers can be replayed")
    text = Text(args.tokenizer, args.max_prompt_tokens)
    vocab = args.vocab or text.config.get("vocab_size") or len(text.tokenizer)
    if not 0 < args.top < vocab:
        fail(f"--top {args.top}: the vocabulary has {vocab} tokens, and a server gives no logits of all of them")
    target = Server(args, text, vocab)
    info = {
        "format": 1,
        "source": {"model": {"name": args.model_name, "sha256": "", "weights": f"served by {args.server}"}},
        "task": args.task,
        "split": args.split,
        "tokenizer_sha256": sha256(text.folder / "tokenizer.json"),
        "template": "chat" if text.chat else "plain",
        "max_prompt_tokens": text.budget,
        "vocab_size": vocab,
        "context": text.positions,
        "stop": text.stop(),
        "max_tokens": args.max_tokens,
        "tail": args.tail,
        "top": args.top,
        "values": "log_probs",
        "temperature": 0.0,
        "program": "record_trace.py",
    }
    recording, began, tokens = Recording(args.out, info), time.time(), 0
    records = prompts_of(args)
    for done, record in enumerate(records, 1):
        if record["id"].encode() in recording.ids:
            continue
        prompt = text.render(text.fit(record["prompt"]))
        ids = text.encode(prompt)
        if np.asarray(ids, dtype="<u4").tobytes() in recording.prompts:
            continue
        answer, tail, rows = target.answer(ids, info)
        recording.push(record["id"], prompt, ids, answer, tail, rows)
        tokens += len(rows)
        if sys.stderr.isatty():
            rate = tokens / (time.time() - began)
            left = (time.time() - began) / done * (len(records) - done)
            size = recording.file.tell() / 1e6
            line = f"\r{done} of {len(records)} prompts, {rate:.0f} tokens/s, {size:.1f} MB, ETA {left:.0f} s "
            print(line, end="", file=sys.stderr)
    recording.finish()
    size = pathlib.Path(args.out).stat().st_size
    print(f"{args.out}: {len(recording.rows)} prompts, {size} bytes")


if __name__ == "__main__":
    main()
