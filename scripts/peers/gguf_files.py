#!/usr/bin/env python3
"""Writes a checkpoint in Hugging Face layout (a Llama, one bf16 safetensors file) as GGUF, the format of
llama.cpp: F32 and BF16 from the stored values, Q8_0 and Q4_0 by llama.cpp's own quantiser. A byte-level
BPE in tokenizer.json goes along, so that llama.cpp's servers can be asked by text; a folder without one
gives a file without a vocabulary. Runs in the environment of setup.sh; compare.py starts it. Files that
exist are kept.

    gguf_files.py FOLDER F32 BF16 Q8_0 Q4_0
"""

import ctypes
import json
import pathlib
import sys

import gguf
import llama_cpp
import numpy

# Names of a block's tensors there and here.
BLOCK = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
OUTSIDE = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
QUANTISED = {
    "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
}


def tensors(file):
    """Names and bf16 bit patterns of a safetensors file."""
    with open(file, "rb") as opened:
        size = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(size))
    header.pop("__metadata__", None)
    data = numpy.memmap(file, dtype=numpy.uint8, mode="r", offset=8 + size)
    for name, entry in sorted(header.items()):
        if entry["dtype"] != "BF16":
            raise SystemExit(f"{file}: {name} is {entry['dtype']}, BF16 was expected")
        begin, end = entry["data_offsets"]
        yield name, data[begin:end].view("<u2").reshape(entry["shape"])


def renamed(name):
    stem = name.removesuffix(".weight")
    if stem in OUTSIDE:
        return f"{OUTSIDE[stem]}.weight"
    _, _, block, rest = stem.split(".", 3)
    return f"blk.{block}.{BLOCK[rest]}.weight"


def neighbours(rows, heads):
    """Rows of a query or key projection, whose rotary pairs are the halves of a head, in the order in
    which they are neighbours."""
    count, width = rows.shape
    return rows.reshape(heads, 2, count // heads // 2, width).swapaxes(1, 2).reshape(count, width)


def add_tokenizer(writer, folder, config):
    """The vocabulary, its merges and its special tokens; rows that no token has are unused ones."""
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    model, added = tokenizer["model"], tokenizer["added_tokens"]
    if model["type"] != "BPE" or "ByteLevel" not in json.dumps(tokenizer["pre_tokenizer"]):
        raise SystemExit(f"{folder}: the tokenizer is no byte-level BPE")
    tokens = [f"[unused{i}]" for i in range(config["vocab_size"])]
    kinds = [gguf.TokenType.UNUSED] * len(tokens)
    for token, i in model["vocab"].items():
        tokens[i], kinds[i] = token, gguf.TokenType.NORMAL
    for token in added:
        tokens[token["id"]] = token["content"]
        kinds[token["id"]] = gguf.TokenType.CONTROL if token["special"] else gguf.TokenType.USER_DEFINED
    writer.add_tokenizer_model("gpt2")
    # Runs of at most three digits, as Llama 3 cuts text, or single digits, as Qwen2 does.
    writer.add_tokenizer_pre("llama-bpe" if "{1,3}" in json.dumps(tokenizer["pre_tokenizer"]) else "qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(kinds)
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in model["merges"]])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])
    # The chat template writes what stands in front.
    writer.add_add_bos_token(False)


def write(folder, kind, path):
    config = json.loads((folder / "config.json").read_text())
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_vocab_size(config["vocab_size"])
    if (folder / "tokenizer.json").exists():
        add_tokenizer(writer, folder, config)
    else:
        writer.add_tokenizer_model("no_vocab")
    bf16 = gguf.GGMLQuantizationType.BF16
    writer.add_file_type({"F32": gguf.LlamaFileType.ALL_F32, "BF16": gguf.LlamaFileType.MOSTLY_BF16}[kind])
    for name, values in tensors(folder / "model.safetensors"):
        if name.endswith("q_proj.weight"):
            values = neighbours(values, heads)
        elif name.endswith("k_proj.weight"):
            values = neighbours(values, kv_heads)
        if kind == "BF16" and values.ndim == 2:
            writer.add_tensor(renamed(name), numpy.ascontiguousarray(values).view(numpy.uint8), raw_dtype=bf16)
        else:
            wide = values.astype(numpy.uint32) << 16
            writer.add_tensor(renamed(name), wide.view(numpy.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def quantise(source, kind, path):
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = QUANTISED[kind]
    # Every matrix alike, as the other engines store them: the default keeps the head in more bits.
    params.pure = True
    status = llama_cpp.llama_model_quantize(str(source).encode(), str(path).encode(), ctypes.byref(params))
    if status:
        raise SystemExit(f"{path}: llama_model_quantize: {status}")


def main(folder, kinds):
    folder = pathlib.Path(folder)
    silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    # F32 first: the quantiser reads it.
    for kind in sorted(kinds, key=["F32", "BF16", "Q8_0", "Q4_0"].index):
        path = folder / f"{kind}.gguf"
        if path.exists():
            continue
        part = folder / f"{kind}.gguf.part"
        if kind in QUANTISED:
            source = folder / "F32.gguf"
            if not source.exists():
                main(folder, ["F32"])
            quantise(source, kind, part)
        else:
            write(folder, kind, part)
        part.rename(path)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:])
