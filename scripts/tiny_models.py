#!/usr/bin/env python3
"""Makes tiny random models.

Of architectures that the PyTorch worker holds or refuses, with the logits that a plain forward of transformers gives,
for the tests of crates/torch-engine:

    python3 -m venv ~/venv-hf && ~/venv-hf/bin/pip install torch 'transformers>=5' numpy
    ~/venv-hf/bin/python scripts/tiny_models.py --out DIR               # all of them
    ~/venv-hf/bin/python scripts/tiny_models.py --out DIR mixtral bloom # some

A folder DIR/NAME holds the checkpoint, `ids.json` with the tokens of a text and `rows.f32` with its rows of logits,
little-endian f32. Windows are shorter than the text. Names of QUANTISED, which are made only where they are asked for,
want the package of their format too.

Or stand-ins of published models: two narrow layers with random weights, and all else, vocabulary and tokenizer
included, as published. They run where the model itself would be too large, and say nothing sensible:

    ~/venv-hf/bin/python scripts/tiny_models.py --out runs/stand-ins --like FOLDER   # config.json and tokenizer files
    ~/venv-hf/bin/python scripts/tiny_models.py --out runs/stand-ins --paper FOLDER  # the models of the paper

--paper takes FOLDER/configs/NAME/config.json and FOLDER/tokenizers/TOKENIZER for each model of PAPER below.
"""

import argparse
import json
import math
import pathlib
import shutil
import sys
import tempfile
import zlib

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

TOKENS = 24
TINY = {
    "vocab_size": 67,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
HEADS = {"head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = {
    "kv_lora_rank": 16,
    "q_lora_rank": 12,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "num_key_value_heads": 4,
}
WINDOW = {"sliding_window": 8}
GPT = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
MIXED = {"layer_types": ["sliding_attention", "full_attention"]}
STATES = {"state_size": 8, "conv_kernel": 4, "expand": 2}

# By name: the type of the model, and its settings beside those of TINY.
MODELS = {
    # Experts.
    "qwen3-moe": ("qwen3_moe", HEADS | EXPERTS),
    "mixtral": ("mixtral", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "mixtral-window": ("mixtral", WINDOW | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "gpt-oss": ("gpt_oss", HEADS | WINDOW | MIXED | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    "deepseek-v3": (
        "deepseek_v3",
        LATENT
        | {
            "n_routed_experts": 8,
            "n_group": 2,
            "topk_group": 1,
            "num_experts_per_tok": 2,
            "n_shared_experts": 1,
            "moe_intermediate_size": 24,
            "first_k_dense_replace": 1,
        },
    ),
    "llama4": (
        "llama4_text",
        HEADS
        | {
            "num_local_experts": 2,
            "intermediate_size_mlp": 48,
            "attention_chunk_size": 8,
            "no_rope_layers": [1, 0],
            "layer_types": ["chunked_attention", "full_attention"],
        },
    ),
    "olmoe": ("olmoe", {"num_experts": 4, "num_experts_per_tok": 2}),
    "granite-moe": ("granitemoe", {"num_local_experts": 4, "num_experts_per_tok": 2}),
    # Other attention, other positions.
    "cohere": ("cohere", {}),
    "cohere2": ("cohere2", WINDOW | MIXED),
    "falcon": ("falcon", {"new_decoder_architecture": False, "multi_query": True, "alibi": False}),
    "falcon-alibi": ("falcon", {"alibi": True, "multi_query": False, "parallel_attn": False}),
    "gpt-neox": ("gpt_neox", {}),
    "bloom": ("bloom", {"n_layer": 2, "n_head": 4}),
    "mpt": ("mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2, "max_seq_len": 64, "expansion_ratio": 2}),
    "gpt2": ("gpt2", GPT),
    "gptj": ("gptj", GPT | {"rotary_dim": 4}),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "starcoder2": ("starcoder2", WINDOW),
    "glm4": ("glm4", HEADS),
    "exaone4": ("exaone4", WINDOW | {"sliding_window_pattern": 2} | MIXED),
    "stablelm": ("stablelm", {}),
    "nemotron": ("nemotron", {}),
    "gemma3n": (
        "gemma3n_text",
        HEADS
        | WINDOW
        | {
            "num_hidden_layers": 4,
            "intermediate_size": [48] * 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "num_kv_shared_layers": 2,
            "vocab_size_per_layer_input": 67,
            "hidden_size_per_layer_input": 8,
            "laurel_rank": 4,
            "activation_sparsity_pattern": [0.0] * 4,
        },
    ),
    # A model of text and images.
    "gemma3-image": (
        "gemma3",
        {
            "text_config": TINY | HEADS | WINDOW | MIXED,
            "vision_config": {
                "hidden_size": 16,
                "intermediate_size": 16,
                "num_hidden_layers": 1,
                "num_attention_heads": 2,
                "image_size": 8,
                "patch_size": 4,
            },
            "mm_tokens_per_image": 4,
            "image_token_index": 66,
        },
    ),
    # States from which no token can be taken.
    "mamba": ("mamba", STATES),
    "mamba2": ("mamba2", STATES | {"num_heads": 8, "head_dim": 8, "n_groups": 1, "chunk_size": 8}),
    "jamba": (
        "jamba",
        {
            "num_experts": 2,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "use_mamba_kernels": False,
        },
    ),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
    "qwen3-next": (
        "qwen3_next",
        EXPERTS
        | {
            "layer_types": ["linear_attention", "full_attention"],
            "shared_expert_intermediate_size": 24,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "head_dim": 8,
        },
    ),
    "rwkv": ("rwkv", {"attention_hidden_size": 32, "context_length": 64}),
    "bert": ("bert", {"is_decoder": False}),
}

# Formats of quantised checkpoints: what makes one, a function that its package is asked for, or `packed` below.
QUANTISED = {
    "torchao-int8": lambda: torchao("Int8WeightOnlyConfig"),
    "torchao-int8-activations": lambda: torchao("Int8DynamicActivationInt8WeightConfig"),
    # One scale for the activations of all tokens of a call.
    "torchao-int8-calls": lambda: torchao("Int8DynamicActivationInt8WeightConfig", "PerTensor"),
    "bitsandbytes-nf4": lambda: transformers.BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    "bitsandbytes-int8": lambda: transformers.BitsAndBytesConfig(load_in_8bit=True),
    "bitsandbytes-int8-rows": lambda: transformers.BitsAndBytesConfig(load_in_8bit=True, llm_int8_threshold=0.0),
    "compressed-tensors": {
        "format": "pack-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "all": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32},
            }
        },
    },
    "gptq": {"bits": 4, "group_size": 32, "desc_act": False, "sym": True},
    "awq": {"bits": 4, "group_size": 32, "version": "gemm", "zero_point": True},
}
# Columns of a matrix with one scale, and the order of eight numbers of AWQ in a word.
GROUP, AWQ_ORDER = 32, [0, 2, 4, 6, 1, 3, 5, 7]

# The models of the paper, with the tokenizer of each.
PAPER = {
    "llama-68m": "llama-2",
    "llama-160m": "llama-2",
    "vicuna-7b": "llama-2",
    "llama-3-8b": "llama-3",
    "qwen2-7b": "qwen2",
    "qwen2.5-7b": "qwen2.5",
    "qwen2.5-14b": "qwen2.5",
    "qwen2.5-32b": "qwen2.5",
}
# Files that go with a tokenizer.
TOKENIZER = [
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "generation_config.json",
]
# Of a stand-in: layers, columns of a head, and the least number of heads.
LAYERS, HEAD, LEAST_HEADS = 2, 8, 4


def build(name):
    kind, settings = MODELS[name]
    config = AutoConfig.for_model(kind, **(TINY | settings))
    torch.manual_seed(0)
    return randomise(AutoModelForCausalLM.from_config(config).float().eval())


def randomise(model):
    embeddings = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    with torch.no_grad():
        for parameter in model.parameters():
            # As random as trained ones: the usual first weights are so small that all rows look alike.
            if id(parameter) in embeddings:
                parameter.normal_(0.0, 1.0)
            elif parameter.dim() > 1:
                parameter.normal_(0.0, 1.0 / math.sqrt(parameter.shape[-1]))
    return model


def torchao(name, granularity=None):
    from torchao import quantization

    keys = {"granularity": getattr(quantization, granularity)()} if granularity else {}
    return transformers.TorchAoConfig(getattr(quantization, name)(**keys))


def words(numbers, order=range(8)):
    """Eight numbers of 4 bits in each word of 32, along the last axis."""
    numbers = numbers.unflatten(-1, (-1, 8))
    word = sum(numbers[..., column] << 4 * place for place, column in enumerate(order))
    return (word - (word >> 31 << 32)).int()


def packed(weight, method):
    """The tensors that store a matrix in 4 bits."""
    groups = weight.unflatten(-1, (-1, GROUP))
    scales = groups.abs().amax(-1) / 7
    numbers = (groups / scales[..., None]).round().long().flatten(1) + 8
    zeros = torch.full(scales.T.shape, 8)
    if method == "compressed-tensors":
        shape = torch.tensor(weight.shape)
        return {"weight_packed": words(numbers), "weight_scale": scales, "weight_shape": shape}
    if method == "gptq":
        groups = torch.arange(weight.shape[1]).int() // GROUP
        # It stores zeros less one.
        parts = {"qweight": words(numbers).T, "qzeros": words(zeros - 1), "g_idx": groups}
    else:
        parts = {"qweight": words(numbers.T, AWQ_ORDER), "qzeros": words(zeros, AWQ_ORDER)}
    return parts | {"scales": scales.T.half()}


def quantise(name, folder):
    """Makes a quantised checkpoint of a Llama, and loads it as any other."""
    made = QUANTISED[name]
    made = made if isinstance(made, dict) else made()
    torch.manual_seed(0)
    config = AutoConfig.for_model("llama", **(TINY | {"hidden_size": 64, "intermediate_size": 96}))
    model = randomise(AutoModelForCausalLM.from_config(config).float())
    if isinstance(made, dict):
        model.config.quantization_config = {"quant_method": name} | made
        model.config.dtype = "float32" if name == "compressed-tensors" else "float16"
        model.config.architectures = [type(model).__name__]
        model.config.save_pretrained(folder)
        tensors = {}
        for key, weight in model.state_dict().items():
            path, _, _ = key.rpartition(".")
            parts = packed(weight, name) if path.endswith("_proj") else {"weight": weight}
            tensors |= {f"{path}.{part}": tensor.contiguous() for part, tensor in parts.items()}
        save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    else:
        with tempfile.TemporaryDirectory() as plain:
            model.save_pretrained(plain)
            keys = {"quantization_config": made, "dtype": torch.float32, "device_map": "cpu"}
            AutoModelForCausalLM.from_pretrained(plain, **keys).save_pretrained(folder)
    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto", device_map="cpu").eval()


def make(name, out):
    folder = out / name
    if name in QUANTISED:
        folder.mkdir(parents=True, exist_ok=True)
        model = quantise(name, folder)
    else:
        model = build(name)
        model.save_pretrained(folder)
    ids = [(7 * i * i + 3 * i + 5) % 61 + 3 for i in range(TOKENS)]
    with torch.no_grad():
        rows = model(torch.tensor([ids]), use_cache=False).logits[0].float()
    (folder / "ids.json").write_text(json.dumps(ids))
    (folder / "rows.f32").write_bytes(rows.contiguous().numpy().astype("<f4").tobytes())


def narrow(config):
    """A configuration with fewer layers and narrower ones; queries still share keys as they do in the original."""
    for key in ["hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"]:
        if not isinstance(config.get(key), int):
            sys.exit(f"config.json: {key} is missing, so it is not known how to make this model narrower")
    heads, width = config["num_attention_heads"], config["hidden_size"]
    sharing = heads // (config.get("num_key_value_heads") or heads)
    keys = max(1, LEAST_HEADS // sharing)
    hidden = HEAD * sharing * keys
    layers = min(LAYERS, config["num_hidden_layers"])
    cut = config | {
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": max(HEAD, hidden * config["intermediate_size"] // width // HEAD * HEAD),
        "num_attention_heads": sharing * keys,
        "num_key_value_heads": keys,
        "dtype": "bfloat16",
    }
    cut.pop("torch_dtype", None)
    if "head_dim" in cut:
        cut["head_dim"] = HEAD
    if "layer_types" in cut:
        cut["layer_types"] = cut["layer_types"][:layers]
    return cut


def stand_in(config, tokenizer, folder):
    """A model of a configuration in the folder `config`, made narrower, with the tokenizer of another folder."""
    cut = narrow(json.loads((config / "config.json").read_text()))
    files = [tokenizer / name for name in TOKENIZER if (tokenizer / name).exists()]
    if not files:
        sys.exit(f"{tokenizer}: no files of a tokenizer")
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(cut, indent=2) + "\n"
    (folder / "config.json").write_text(text)
    # Models of one shape differ: the seed is the name.
    torch.manual_seed(zlib.crc32(folder.name.encode()))
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder))
    randomise(model.float()).to(torch.bfloat16).save_pretrained(folder)
    # Saving wrote it anew, with keys that the original does not have.
    (folder / "config.json").write_text(text)
    for file in files:
        shutil.copyfile(file, folder / file.name)


def stand_ins(args):
    for folder in args.like:
        stand_in(folder, folder, args.out / folder.resolve().name)
    if args.paper:
        for name in chosen(args.names, PAPER):
            stand_in(args.paper / "configs" / name, args.paper / "tokenizers" / PAPER[name], args.out / name)


def chosen(names, known):
    unknown = set(names) - set(known)
    if unknown:
        sys.exit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return names or known


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="models to make (default: all)")
    parser.add_argument("--out", required=True, type=pathlib.Path, metavar="DIR", help="folder for them")
    parser.add_argument("--paper", type=pathlib.Path, metavar="FOLDER", help="stand-ins of the paper's models")
    parser.add_argument(
        "--like", nargs="+", default=[], type=pathlib.Path, metavar="FOLDER", help="stand-ins of models in folders"
    )
    args = parser.parse_args()
    if args.paper or args.like:
        try:
            return stand_ins(args)
        except OSError as error:
            sys.exit(str(error))
    for name in chosen(args.names, MODELS | QUANTISED) if args.names else MODELS:
        try:
            make(name, args.out)
        except Exception as error:
            # A release of transformers may lack an architecture; the test says which are missing.
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)


if __name__ == "__main__":
    main()
