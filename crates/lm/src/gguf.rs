//! Names of a model's parts in llama.cpp, and the changes that it makes to their values.

use serde_json::{Value, json};
use weights::{Format, GgufValue, TensorFiles};

use super::gguf_keys::{Keys, fault};
use crate::config::{Norms, Rope, RopeScaling};
use crate::{LmConfig, LmError};

/// The output head.
pub(crate) const HEAD: &str = "output.weight";
/// Divisors of the rotary frequencies by their scaling. They follow from `config.json` too.
pub(crate) const ROPE_FACTORS: &str = "rope_freqs.weight";

/// Parts of a block, by Hugging Face's and by llama.cpp's name.
const PARTS: [(&str, &str); 12] = [
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("input_layernorm", "attn_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
    ("self_attn.qkv_proj", "attn_qkv"),
];

/// Norms of a block that has them before and after attention and MLP.
const NORMS_AROUND: [(&str, &str); 3] = [
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
];

/// Architectures whose tensors keep their values in a GGUF file, except for the order of rows and
/// the unit of norms, with the `model_type` of each.
const KNOWN: [(&str, &str); 4] = [
    ("llama", "llama"),
    ("qwen2", "qwen2"),
    ("qwen3", "qwen3"),
    ("gemma3", "gemma3_text"),
];
/// Number of blocks of the one Gemma 3 whose `query_pre_attn_scalar` is the width of the model over
/// its number of heads, and not the width of a head.
const GEMMA3_27B_BLOCKS: i64 = 62;

/// llama.cpp's name of the tensor `name`; `name` itself if it is not known.
pub(crate) fn stored_name(config: &LmConfig, name: &str) -> String {
    let part = |name: &str| {
        let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
        let (part, kind) = rest.rsplit_once('.')?;
        let around = NORMS_AROUND
            .iter()
            .filter(|_| config.block.norms == Norms::Around);
        let (_, stored) = around.chain(&PARTS).find(|(ours, _)| *ours == part)?;
        Some(format!("blk.{layer}.{stored}.{kind}"))
    };
    match name {
        crate::EMBEDDING => "token_embd.weight".into(),
        crate::FINAL_NORM => "output_norm.weight".into(),
        crate::HEAD => HEAD.into(),
        other => part(other).unwrap_or_else(|| other.to_owned()),
    }
}

/// llama.cpp's name of the architecture, and its `model_type`.
fn architecture(files: &TensorFiles) -> Result<(&'static str, &'static str), LmError> {
    let key = "general.architecture";
    let Some(GgufValue::Text(name)) = files.keys().get(key) else {
        return Err(fault(files, key, "is missing"));
    };
    let known = KNOWN.into_iter().find(|(known, _)| known == name);
    known.ok_or_else(|| {
        let names = KNOWN.map(|(name, _)| name).join(", ");
        fault(
            files,
            key,
            format!("`{name}` is not read from GGUF ({names} are)"),
        )
    })
}

/// Excess of the norms' weights in a file over ours: llama.cpp's converter adds the 1 to norms that
/// multiply by `1 + weight`.
pub(crate) fn norm_offset(files: &TensorFiles, config: &LmConfig) -> f32 {
    match files.format() {
        Format::Gguf => 1.0 - config.unit_norm(),
        _ => 0.0,
    }
}

/// Width of the heads whose query and key rows are in llama.cpp's order; `None` if rows are in
/// ours. In models that llama.cpp calls llama, its converter interleaves the two halves of a head,
/// so that the two dimensions of a rotated pair are neighbours.
pub(crate) fn permuted_heads(
    files: &TensorFiles,
    config: &LmConfig,
) -> Result<Option<usize>, LmError> {
    if files.format() != Format::Gguf {
        return Ok(None);
    }
    Ok((architecture(files)?.0 == "llama").then_some(config.head_dim))
}

/// The row of a permuted tensor that is our row `row`.
pub(crate) fn permuted_row(row: usize, head: usize) -> usize {
    let (start, within) = (row / head * head, row % head);
    let half = head / 2;
    start + within % half * 2 + within / half
}

/// Tokens that the keys of a GGUF file name as ends of an answer; none for other files.
pub(crate) fn ends(files: &TensorFiles) -> Vec<u32> {
    let keys = Keys { files, model: "" };
    let ends = keys.ends();
    let ids = ends.as_array().into_iter().flatten();
    ids.filter_map(|id| u32::try_from(id.as_u64()?).ok())
        .collect()
}

/// Reads the configuration that a file's keys describe.
pub(crate) fn config(files: &TensorFiles) -> Result<LmConfig, LmError> {
    let (model, model_type) = architecture(files)?;
    let keys = Keys { files, model };
    keys.check()?;
    let path = files.paths().next().unwrap_or("".as_ref());
    let embedding = files.get("token_embd.weight").map(|tensor| tensor.rows());
    let mut json = json!({
        "model_type": model_type,
        "hidden_size": keys.needed("embedding_length")?,
        "intermediate_size": keys.needed("feed_forward_length")?,
        "num_hidden_layers": keys.needed("block_count")?,
        "num_attention_heads": keys.needed("attention.head_count")?,
        "num_key_value_heads": keys.number("attention.head_count_kv"),
        "head_dim": keys.head_dim(),
        "vocab_size": embedding.ok_or_else(|| LmError::missing(path, "token_embd.weight"))?,
        "max_position_embeddings": keys.needed("context_length")?,
        "rms_norm_eps": keys.real("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.real("rope.freq_base").unwrap_or(10_000.0),
        "tie_word_embeddings": files.get(HEAD).is_none(),
        "bos_token_id": keys.token("bos_token_id"),
        "eos_token_id": keys.ends(),
    });
    keys.needed("attention.layer_norm_rms_epsilon")?;
    keys.windows(&mut json)?;
    if model == "gemma3" {
        let width = |key: &str| keys.number(key).as_i64().unwrap_or(0);
        json["query_pre_attn_scalar"] = match keys.number("block_count").as_i64() {
            Some(GEMMA3_27B_BLOCKS) => {
                let heads = width("attention.head_count").max(1);
                (width("embedding_length") / heads).into()
            }
            _ => keys.needed("attention.key_length")?,
        };
    }
    if let Some(scaling) = keys.scaling()? {
        json["rope_scaling"] = scaling;
    }
    let config = LmConfig::from_json(&json.to_string(), path)?;
    match files.get(ROPE_FACTORS) {
        None => Ok(config),
        Some(_) => scaled(files, json),
    }
}

/// The configuration with Llama 3's frequency scaling. A GGUF file has only the resulting factors,
/// so the parameters of all published models are taken if they give the same factors.
fn scaled(files: &TensorFiles, mut json: Value) -> Result<LmConfig, LmError> {
    let path = files.paths().next().unwrap_or("".as_ref());
    if !json["rope_scaling"].is_null() {
        return Err(fault(
            files,
            ROPE_FACTORS,
            "is beside another scaling of the rotation (rope.scaling.*), and only one is read; put the model's config.json beside the file",
        ));
    }
    let mut buffer = weights::RowBuffer::default();
    let count = files.get(ROPE_FACTORS).map_or(0, |tensor| tensor.rows());
    let factors = files.rows(ROPE_FACTORS, 0..count, &mut buffer)?;
    let largest = factors.iter().copied().fold(1.0, f32::max);
    json["rope_scaling"] = json!({
        "rope_type": "llama3",
        "factor": largest,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    });
    let config = LmConfig::from_json(&json.to_string(), path)?;
    match scales_by(&config, factors) {
        true => Ok(config),
        false => Err(fault(
            files,
            ROPE_FACTORS,
            "is not the scaling of a published Llama 3 model; put the model's config.json beside the file",
        )),
    }
}

/// Checks that the factors of the rotation in a GGUF file are those of its configuration.
pub(crate) fn check_factors(files: &TensorFiles, config: &LmConfig) -> Result<(), LmError> {
    let Some(tensor) = files
        .get(ROPE_FACTORS)
        .filter(|_| files.format() == Format::Gguf)
    else {
        return Ok(());
    };
    let mut buffer = weights::RowBuffer::default();
    let factors = files.rows(ROPE_FACTORS, 0..tensor.rows(), &mut buffer)?;
    match scales_by(config, factors) {
        true => Ok(()),
        false => Err(fault(
            files,
            ROPE_FACTORS,
            "is not the scaling that config.json names",
        )),
    }
}

/// True if the scaling of the rotation divides the frequencies by these factors.
fn scales_by(config: &LmConfig, factors: &[f32]) -> bool {
    let divisors = divisors(config);
    let mut pairs = divisors.iter().zip(factors);
    divisors.len() == factors.len()
        && pairs.all(|(divisor, factor)| (divisor / f64::from(*factor) - 1.0).abs() < 1e-4)
}

/// Divisors of the rotary frequencies by their scaling.
pub(crate) fn divisors(config: &LmConfig) -> Vec<f64> {
    let plain = Rope {
        scaling: RopeScaling::Default,
        ..config.rope.clone()
    };
    let context = config.max_position_embeddings;
    let (before, after) = (plain.frequencies(context), config.rope.frequencies(context));
    let pairs = before.iter().zip(&after);
    pairs.map(|(before, after)| before / after).collect()
}
