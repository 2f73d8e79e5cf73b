#!/usr/bin/env python3
"""Makes the goldens of crates/lm/tests/golden: what Hugging Face transformers computes with tiny
models of every architecture, rotation and window that this project reads.

    python3 -m venv ~/venv-hf && ~/venv-hf/bin/pip install torch 'transformers>=5' numpy
    ~/venv-hf/bin/python scripts/make_goldens.py               # all of them
    ~/venv-hf/bin/python scripts/make_goldens.py llama-yarn    # some
    ~/venv-hf/bin/python scripts/make_goldens.py --check       # writes nothing; 1 if a file would change

A model's weights are not stored: both sides compute them from the names of the tensors (`weight`
below, `golden::weights` in crates/lm/tests/support). A folder holds

    config.json   as files on the hub have it, with keys that may be left out left out
    saved.json    the same configuration as transformers writes it
    golden.json   tokens, the rows of logits that are kept, the greedy continuation, numbers of the
                  gradient of the next-token loss of those models that can be trained
    logits.npy    those rows, f32

All calls are made at the full length `context`, what follows the tokens that count being padding:
some rotations depend on the length of a call, and this project fixes it when a decoder is built.
"""

import argparse
import json
import pathlib
import sys

import numpy as np
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM

ROOT = pathlib.Path(__file__).resolve().parent.parent / "crates" / "lm" / "tests" / "golden"
MASK = (1 << 64) - 1
VOCAB = 61
PROMPT = 9
# Positions whose logits are kept, beside the last one.
ROWS = [0, 1, 5, 11, 12, 13, 20, 31, 32, 33, 40, 47]
PROJECTIONS = 4
# Two implementations in f32 may differ by less than this; the greedy continuation must not depend on it.
LEAD = 4e-3
# And it must not be one token over and over.
VARIETY = 4

TINY = {
    "hidden_size": 32,
    "intermediate_size": 52,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": None,
}


def tiny(model_type, context=48, train=False, without=(), prefix="", **keys):
    config = {"model_type": model_type} | TINY | keys
    for key in without:
        del config[key]
    return {"config": config, "context": context, "train": train, "prefix": prefix}


def factors(count, first, step):
    return [first + step * i for i in range(count)]


LONG = {"short_factor": factors(4, 1.0, 0.1), "long_factor": factors(4, 1.5, 1.25)}
LONG_PHI = {"short_factor": factors(3, 1.0, 0.05), "long_factor": factors(3, 1.2, 1.5)}
GEMMA = {
    "num_hidden_layers": 4,
    "sliding_window": 12,
    "query_pre_attn_scalar": 16,
    "hidden_activation": "gelu_pytorch_tanh",
}
GEMMA3 = GEMMA | {"rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 3}

MODELS = {
    # Llama and what may be changed about it.
    "llama": tiny("llama", train=True, without=["head_dim"], rms_norm_eps=1e-5),
    "llama-heads": tiny("llama", train=True, without=["num_key_value_heads"], hidden_size=36, num_attention_heads=3, head_dim=10),
    "llama-biases": tiny("llama", train=True, attention_bias=True, mlp_bias=True),
    "llama-linear": tiny("llama", train=True, rope_scaling={"type": "linear", "factor": 4.0}),
    "llama-dynamic": tiny(
        "llama", max_position_embeddings=32, rope_scaling={"type": "dynamic", "factor": 2.0}
    ),
    "llama-yarn": tiny(
        "llama",
        train=True,
        rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    ),
    "llama-yarn-fine": tiny(
        "llama",
        train=True,
        rope_theta=500.0,
        rope_scaling={
            "rope_type": "yarn",
            "factor": 3.0,
            "original_max_position_embeddings": 24,
            "beta_fast": 8.0,
            "beta_slow": 0.5,
            "truncate": False,
            "mscale": 1.0,
            "mscale_all_dim": 0.5,
        },
    ),
    "llama-longrope": tiny(
        "llama",
        original_max_position_embeddings=32,
        rope_scaling={"rope_type": "longrope", "factor": 2.0} | LONG,
    ),
    "llama-llama3": tiny(
        "llama",
        train=True,
        rope_theta=500.0,
        rope_scaling={
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 16,
        },
    ),
    "llama-gelu": tiny("llama", hidden_act="gelu"),
    "llama-gelu-tanh": tiny("llama", hidden_act="gelu_new"),
    "llama-relu": tiny("llama", hidden_act="relu"),
    "smollm2": tiny("llama", train=True, tie_word_embeddings=True, rope_theta=1e5, rope_interleaved=False),
    "smollm3": tiny("smollm3", train=True, num_hidden_layers=4, without=["head_dim"]),
    "smollm3-window": tiny(
        "smollm3",
        train=True,
        num_hidden_layers=3,
        no_rope_layers=[1, 0, 1],
        use_sliding_window=True,
        sliding_window=10,
        tie_word_embeddings=False,
    ),
    "mistral": tiny("mistral", train=True, sliding_window=None, head_dim=12),
    "mistral-window": tiny("mistral", train=True, sliding_window=12, without=["head_dim"]),
    # A window narrower than the rows that one task of the engine takes together.
    "mistral-narrow": tiny("mistral", train=True, sliding_window=2, num_attention_heads=2),
    "qwen2": tiny("qwen2", train=True, tie_word_embeddings=True, without=["head_dim"]),
    "qwen2-window": tiny(
        "qwen2", train=True, num_hidden_layers=3, use_sliding_window=True, sliding_window=12, max_window_layers=1
    ),
    "qwen2-layer-types": tiny(
        "qwen2",
        train=True,
        use_sliding_window=True,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    ),
    "qwen2-yarn": tiny(
        "qwen2",
        train=True,
        max_position_embeddings=32,
        rope_scaling={"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
    ),
    "qwen3": tiny("qwen3", train=True, head_dim=16, rope_theta=1e6),
    "qwen3-window": tiny(
        "qwen3",
        train=True,
        attention_bias=True,
        use_sliding_window=True,
        sliding_window=12,
        max_window_layers=1,
    ),
    "phi3-window": tiny("phi3", train=True, without=["head_dim"], sliding_window=11),
    "phi3-partial": tiny("phi3", train=True, without=["head_dim"], partial_rotary_factor=0.5),
    "phi3-long": tiny(
        "phi3",
        without=["head_dim"],
        original_max_position_embeddings=32,
        partial_rotary_factor=0.75,
        rope_scaling={"type": "longrope"} | LONG_PHI,
    ),
    "phi3-short": tiny(
        "phi3",
        context=30,
        without=["head_dim"],
        original_max_position_embeddings=32,
        partial_rotary_factor=0.75,
        rope_scaling={"type": "longrope"} | LONG_PHI,
        sliding_window=None,
    ),
    "gemma2": tiny("gemma2", **GEMMA),
    "gemma2-uncapped": tiny(
        "gemma2",
        **(GEMMA | {"query_pre_attn_scalar": 24}),
        attn_logit_softcapping=None,
        final_logit_softcapping=5.0,
        tie_word_embeddings=False,
    ),
    "gemma3": tiny(
        "gemma3_text", **GEMMA3, rope_scaling={"rope_type": "linear", "factor": 8.0}
    ),
    "gemma3-nested": tiny("gemma3_text", **GEMMA3, prefix="language_model."),
    "olmo2": tiny("olmo2", rope_theta=5e5, without=["head_dim"]),
    "granite": tiny(
        "granite",
        without=["head_dim"],
        attention_multiplier=0.25,
        residual_multiplier=0.22,
        embedding_multiplier=3.0,
        logits_scaling=1.5,
        mlp_bias=True,
    ),
}


def mix(x):
    """SplitMix64."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def uniform(name, count):
    """Numbers in [-1, 1) that depend on a name and their index alone: multiples of 2^-23."""
    seed = 0xCBF29CE484222325
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x100000001B3) & MASK
    return np.array([(mix(seed ^ i) >> 40) / 2.0**23 - 1.0 for i in range(count)])


def weight(name, shape, norm):
    """A tensor of a golden model, in f32 that bf16 holds; `norm` is what norms are near."""
    numbers = uniform(name, int(np.prod(shape)))
    if len(shape) == 2:
        numbers *= 2.0 / np.sqrt(float(shape[1]))
    elif name.endswith("norm.weight"):
        numbers = norm + 0.25 * numbers
    else:
        numbers *= 0.25
    return torch.tensor(numbers).reshape(shape).float().bfloat16().float()


def build(spec):
    config = AutoConfig.for_model(**spec["config"])
    config._attn_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config).float().eval()
    norm = 0.0 if config.model_type.startswith("gemma") else 1.0
    tied = config.tie_word_embeddings
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            assert not (tied and name == "lm_head.weight"), name
            parameter.copy_(weight(name, tuple(parameter.shape), norm))
    return model, config


def padded(ids, length):
    return torch.tensor([list(ids) + [0] * (length - len(ids))])


def continuation(model, ids, context):
    """Greedy tokens up to the context, and the smallest lead of one over the next best."""
    ids, lead = list(ids), float("inf")
    while len(ids) < context:
        with torch.no_grad():
            row = model(padded(ids, context), use_cache=False).logits[0, len(ids) - 1]
        best = row.topk(2)
        lead = min(lead, (best.values[0] - best.values[1]).item())
        ids.append(best.indices[0].item())
    return ids[PROMPT:], lead


def gradient(model, ids):
    """Mean next-token loss, and by tensor the length of its gradient and some projections of it."""
    model.zero_grad()
    logits = model(torch.tensor([ids]), use_cache=False).logits[0, :-1]
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]))
    loss.backward()
    tensors = {}
    for name, parameter in model.named_parameters():
        grad = parameter.grad.double().flatten().numpy()
        along = [float(grad @ uniform(f"{name}#{i}", grad.size)) for i in range(PROJECTIONS)]
        tensors[name] = {"norm": float(np.linalg.norm(grad)), "along": along}
    return {"loss": loss.item(), "tensors": tensors}


def make(name, spec):
    torch.manual_seed(0)
    model, config = build(spec)
    context = spec["context"]
    for attempt in range(200):
        numbers = uniform(f"{name} tokens {attempt}", context)
        ids = [int((x + 1.0) / 2.0 * VOCAB) for x in numbers]
        greedy, lead = continuation(model, ids[:PROMPT], context)
        if lead > LEAD and len(set(greedy)) >= VARIETY:
            break
    else:
        sys.exit(f"{name}: no prompt has a clear continuation")
    with torch.no_grad():
        logits = model(torch.tensor([ids]), use_cache=False).logits[0].numpy()
    rows = [row for row in ROWS if row < context - 1] + [context - 1]
    golden = {
        "transformers": transformers.__version__,
        "prefix": spec["prefix"],
        "context": context,
        "token_ids": ids,
        "rows": rows,
        "prompt": PROMPT,
        "greedy": greedy,
    }
    if spec["train"]:
        golden["gradient"] = gradient(model, ids)
    written = spec["config"]
    saved = json.loads(config.to_json_string())
    if spec["prefix"]:
        inner = {key: value for key, value in written.items() if key != "eos_token_id"}
        written = {
            "model_type": "gemma3",
            "architectures": ["Gemma3ForConditionalGeneration"],
            "eos_token_id": written["eos_token_id"],
            "text_config": inner,
            "vision_config": {"model_type": "siglip_vision_model"},
        }
    return {
        "config.json": text(written),
        "saved.json": text(saved),
        "golden.json": text(golden),
        "logits.npy": npy(logits[rows]),
    }, lead


def text(value):
    lines = json.dumps(value, indent=1, sort_keys=True)
    return (compact(lines) + "\n").encode()


def compact(lines):
    """Lists of numbers on one line."""
    import re

    return re.sub(r"\[[-0-9.e,\s+]*\]", lambda found: " ".join(found.group().split()), lines)


def npy(array):
    import io

    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(array, dtype=np.float32))
    return file.getvalue()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="goldens to make (default: all)")
    parser.add_argument("--check", action="store_true", help="write nothing, say what would change")
    args = parser.parse_args()
    unknown = set(args.names) - set(MODELS)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(MODELS)}")
    changed = []
    for name in args.names or MODELS:
        files, lead = make(name, MODELS[name])
        folder = ROOT / name
        for file, content in files.items():
            path = folder / file
            if path.exists() and path.read_bytes() == content:
                continue
            changed.append(str(path))
            if not args.check:
                folder.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        size = sum(map(len, files.values()))
        print(f"{name}: {size} bytes, smallest lead {lead:.4f}")
    if args.check and changed:
        sys.exit("would change: " + ", ".join(changed))


if __name__ == "__main__":
    main()
