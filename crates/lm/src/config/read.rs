//! Reader of `config.json` into [`LmConfig`].

use std::path::Path;

use serde_json::Value;

use super::families::{Family, Windows, known_model_types};
use super::keys::{HARMLESS, Keys, MOST};
use super::read_rope::{Span, read_ropes};
use super::{Activation, Biases, Block, Layer, LmConfig, Rotary};
use crate::LmError;

/// Keys of the file of a model that contains other models besides its text model.
const BESIDE_TEXT: &[&str] = &[
    "boi_token_index",
    "eoi_token_index",
    "image_token_id",
    "image_token_index",
    "mm_tokens_per_image",
    "vision_config",
];

impl LmConfig {
    /// Parses the text of a `config.json`. `path` is used only in messages.
    ///
    /// # Errors
    /// As [`from_file`](Self::from_file).
    pub fn from_json(text: &str, path: &Path) -> Result<Self, LmError> {
        let error = |message: String| LmError::Config {
            path: path.to_owned(),
            key: String::new(),
            message,
        };
        // Some editors write a byte order mark in front.
        let file = serde_json::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
        let file: Value = file.map_err(|e| error(format!("is no JSON: {e}")))?;
        let object = file.as_object();
        let object = object.ok_or_else(|| error("must be an object".into()))?;
        let keys = Keys::new(path, "", object);
        refuse_quantised(&keys)?;
        let model_type: String = keys.need("model_type")?;
        if let Some(family) = Family::named(&model_type) {
            let mut config = read(&keys, family)?;
            read_tokens(&keys, &mut config)?;
            keys.finish(HARMLESS)?;
            return Ok(config);
        }
        let Some(family) = Family::nested_in(&model_type) else {
            let known = known_model_types();
            let message = format!("model_type `{model_type}` is not supported ({known} are)");
            return Err(error(message));
        };
        let inner = keys.object("text_config")?;
        let inner = inner.ok_or_else(|| keys.error("text_config", "is missing"))?;
        refuse_quantised(&inner)?;
        let mut config = read(&inner, family)?;
        if inner.get::<bool>("tie_word_embeddings")?.is_none() {
            let outer = keys.get("tie_word_embeddings")?;
            config.tie_word_embeddings = outer.unwrap_or(config.tie_word_embeddings);
        }
        read_tokens(&inner, &mut config)?;
        inner.finish(HARMLESS)?;
        read_tokens(&keys, &mut config)?;
        keys.get::<bool>("tie_word_embeddings")?;
        keys.finish(&[HARMLESS, BESIDE_TEXT].concat())?;
        Ok(config)
    }
}

/// Refuses files whose weights are quantised, and names the method.
fn refuse_quantised(keys: &Keys<'_>) -> Result<(), LmError> {
    for key in ["quantization_config", "quantization", "compression_config"] {
        if let Some(settings) = keys.get::<Value>(key)? {
            let method = settings["quant_method"].as_str().unwrap_or("unnamed");
            return Err(keys.error(
                key,
                format!("weights quantised by `{method}` cannot be read; f32, bf16 and f16 can"),
            ));
        }
    }
    Ok(())
}

/// Reads the tokens that open and end a text, as far as the object has them.
fn read_tokens(keys: &Keys<'_>, config: &mut LmConfig) -> Result<(), LmError> {
    let bos = keys.get::<i64>("bos_token_id")?;
    let bos = bos.and_then(|id| u32::try_from(id).ok());
    config.bos_token_id = bos.or(config.bos_token_id);
    let key = "eos_token_id";
    let ids = match keys.get::<Value>(key)? {
        None => return Ok(()),
        Some(Value::Array(ids)) => ids,
        Some(id) => vec![id],
    };
    for id in ids {
        let number = id.as_i64();
        let number = number.ok_or_else(|| keys.error(key, format!("{id} is no token id")))?;
        // -1 means none. The tokens of the text model and of the whole model count together.
        if let Ok(id) = u32::try_from(number)
            && !config.eos_token_ids.contains(&id)
        {
            config.eos_token_ids.push(id);
        }
    }
    Ok(())
}

/// Largest number of blocks. Each takes names and tables.
const MOST_LAYERS: usize = 4096;

/// Reads the numbers of heads of queries and of keys, and the width of a head.
fn read_heads(
    keys: &Keys<'_>,
    family: &Family,
    hidden_size: usize,
) -> Result<(usize, usize, usize), LmError> {
    let queries = keys.count("num_attention_heads", family.heads)?;
    // A null means as many as there are query heads, whatever the default of an absent key is.
    let default = family.kv_heads.filter(|_| !keys.has("num_key_value_heads"));
    let of_keys = keys.count("num_key_value_heads", Some(default.unwrap_or(queries)))?;
    if !queries.is_multiple_of(of_keys) {
        let message = format!("{of_keys} does not divide num_attention_heads = {queries}");
        return Err(keys.error("num_key_value_heads", message));
    }
    let width = family.head_dim.unwrap_or(hidden_size / queries);
    let width = keys.count("head_dim", Some(width))?;
    if !width.is_multiple_of(2) {
        let message = format!("{width} is odd; rotary embeddings need pairs");
        return Err(keys.error("head_dim", message));
    }
    if queries * width > MOST {
        let message = format!("{queries} of them, {width} wide, are more than any model has");
        return Err(keys.error("num_attention_heads", message));
    }
    Ok((queries, of_keys, width))
}

fn read_eps(keys: &Keys<'_>, family: &Family) -> Result<f64, LmError> {
    let eps: f64 = keys.get("rms_norm_eps")?.unwrap_or(family.eps);
    match eps.is_finite() && eps >= 0.0 {
        true => Ok(eps),
        false => Err(keys.error("rms_norm_eps", format!("{eps} is no small number"))),
    }
}

/// Reads the decoder of an object, without its tokens.
fn read(keys: &Keys<'_>, family: &Family) -> Result<LmConfig, LmError> {
    let hidden_size = keys.count("hidden_size", None)?;
    let num_layers = keys.count("num_hidden_layers", None)?;
    if num_layers > MOST_LAYERS {
        let message = format!("{num_layers} is more than {MOST_LAYERS}, which no model has");
        return Err(keys.error("num_hidden_layers", message));
    }
    let (num_heads, num_kv_heads, head_dim) = read_heads(keys, family, hidden_size)?;
    let max_positions = Some(family.max_positions);
    let span = Span {
        head_dim,
        max_positions: keys.count("max_position_embeddings", max_positions)?,
    };
    check_neutral(keys, family)?;
    let (rope, local_rope) = read_ropes(keys, family, span)?;
    let [attention_cap, logit_cap] = read_caps(keys, family)?;
    let scale = |key| -> Result<f32, LmError> {
        let found = if family.multipliers {
            keys.positive(key)?
        } else {
            None
        };
        Ok(found.unwrap_or(1.0) as f32)
    };
    Ok(LmConfig {
        architecture: family.architecture,
        hidden_size,
        intermediate_size: keys.count("intermediate_size", None)?,
        num_layers,
        num_heads,
        num_kv_heads,
        head_dim,
        vocab_size: keys.count("vocab_size", family.vocab_size)?,
        max_position_embeddings: span.max_positions,
        rms_norm_eps: read_eps(keys, family)?,
        norm_offset: family.norm_offset,
        rope,
        local_rope,
        embedding_scale: match family.gemma {
            Some(_) => (hidden_size as f64).sqrt() as f32,
            None => scale("embedding_multiplier")?,
        },
        logit_divisor: scale("logits_scaling")?,
        logit_cap,
        block: Block {
            norms: family.norms,
            qk_norm: family.qk_norm,
            biases: read_biases(keys, family)?,
            activation: read_activation(keys, family)?,
            attention_scale: read_attention_scale(keys, family, head_dim)?,
            attention_cap,
            residual_scale: scale("residual_multiplier")?,
        },
        layers: read_layers(keys, family, num_layers)?,
        tie_word_embeddings: keys.get("tie_word_embeddings")?.unwrap_or(family.tied),
        bos_token_id: None,
        eos_token_ids: Vec::new(),
    })
}

/// Checks keys that have the same neutral value in all published models. Another value might change
/// results.
fn check_neutral(keys: &Keys<'_>, family: &Family) -> Result<(), LmError> {
    // Phi-4-mini has these keys, but its own code does not read them.
    for key in ["full_attn_mod", "interpolate_factor"] {
        if let Some(found) = keys.get::<f64>(key)?.filter(|found| *found != 1.0) {
            return Err(keys.error(key, format!("{found} is not supported, only 1")));
        }
    }
    if family.windows == Windows::Never {
        return Ok(());
    }
    // Gemma 2 gives its window under two names.
    let key = "sliding_window_size";
    let (first, second) = (
        keys.get::<usize>("sliding_window")?,
        keys.get::<usize>(key)?,
    );
    match second.filter(|_| first != second) {
        None => Ok(()),
        Some(second) => Err(keys.error(key, format!("{second} is not sliding_window"))),
    }
}

fn read_biases(keys: &Keys<'_>, family: &Family) -> Result<Biases, LmError> {
    let attention = keys.get("attention_bias")?.unwrap_or(false);
    let mlp = keys.get("mlp_bias")?.unwrap_or(false);
    // Qwen2 has its biases whatever this key says.
    if attention && !family.attention_bias && !family.qkv_bias {
        let message = format!("is not supported for {}", family.model_type);
        return Err(keys.error("attention_bias", message));
    }
    if mlp && !family.mlp_bias {
        let message = format!("is not supported for {}", family.model_type);
        return Err(keys.error("mlp_bias", message));
    }
    Ok(Biases {
        qkv: family.qkv_bias || attention,
        out: family.attention_bias && attention,
        mlp,
    })
}

fn read_activation(keys: &Keys<'_>, family: &Family) -> Result<Activation, LmError> {
    let (key, default) = family.activation;
    if key != "hidden_act" {
        // An older name, which transformers does not read either.
        keys.get::<String>("hidden_act")?;
    }
    let Some(name) = keys.get::<String>(key)? else {
        return Ok(default);
    };
    match name.as_str() {
        "silu" | "swish" => Ok(Activation::Silu),
        "gelu" | "gelu_python" => Ok(Activation::Gelu),
        "gelu_pytorch_tanh" | "gelu_new" | "gelu_python_tanh" => Ok(Activation::GeluTanh),
        "relu" => Ok(Activation::Relu),
        other => {
            let known = "silu, gelu, gelu_pytorch_tanh and relu are";
            Err(keys.error(key, format!("`{other}` is not supported, {known}")))
        }
    }
}

fn read_attention_scale(keys: &Keys<'_>, family: &Family, head_dim: usize) -> Result<f32, LmError> {
    if family.gemma.is_some() {
        let scalar = keys.positive("query_pre_attn_scalar")?.unwrap_or(256.0);
        return Ok((1.0 / scalar.sqrt()) as f32);
    }
    if family.multipliers {
        let multiplier = keys.positive("attention_multiplier")?;
        return Ok(multiplier.unwrap_or(1.0) as f32);
    }
    // Computed in f32, as the engine has always rounded it.
    Ok(1.0 / (head_dim as f32).sqrt())
}

/// Reads the soft caps of scores and of logits.
fn read_caps(keys: &Keys<'_>, family: &Family) -> Result<[Option<f32>; 2], LmError> {
    let Some(defaults) = family.gemma else {
        return Ok([None; 2]);
    };
    let bidirectional = keys.get("use_bidirectional_attention")?;
    if bidirectional == Some(true) {
        let message = "positions that see what follows them are not supported";
        return Err(keys.error("use_bidirectional_attention", message));
    }
    let names = ["attn_logit_softcapping", "final_logit_softcapping"];
    let mut caps = [None; 2];
    for ((key, default), cap) in names.into_iter().zip(defaults).zip(&mut caps) {
        let found = if keys.has(key) {
            keys.positive(key)?
        } else {
            default
        };
        *cap = found.map(|x| x as f32);
    }
    Ok(caps)
}

/// Reads windows and rotations of the layers. Equal ones at the end are listed once.
fn read_layers(keys: &Keys<'_>, family: &Family, count: usize) -> Result<Vec<Layer>, LmError> {
    let window = match family.windows {
        Windows::Never => None,
        _ if keys.has("sliding_window") => keys.get::<usize>("sliding_window")?,
        _ => family.window,
    };
    if window == Some(0) {
        return Err(keys.error("sliding_window", "must be at least 1"));
    }
    let switched = match family.windows {
        Windows::Above | Windows::Unrotated => keys.get("use_sliding_window")?.unwrap_or(false),
        _ => true,
    };
    let window = window.filter(|_| switched);
    let rotated = read_rotated(keys, family, count)?;
    if family.windows == Windows::Unrotated {
        // Files copy this key from a related family; the layers without rotation determine the
        // windows.
        keys.get::<usize>("max_window_layers")?;
    }
    let windowed: Vec<bool> = match family.windows {
        Windows::Never => vec![false; count],
        Windows::All => vec![true; count],
        Windows::Above => {
            let first = keys.get("max_window_layers")?.unwrap_or(28_usize);
            (0..count).map(|layer| layer >= first).collect()
        }
        Windows::AllBut { pattern } => {
            let pattern = keys.count("sliding_window_pattern", Some(pattern))?;
            (0..count)
                .map(|layer| !(layer + 1).is_multiple_of(pattern))
                .collect()
        }
        Windows::Unrotated => rotated.iter().map(|rotated| !rotated).collect(),
    };
    let windowed = read_layer_types(keys, family, count, window)?.unwrap_or(windowed);
    let local = family.local_rope().is_some();
    let mut layers: Vec<Layer> = windowed
        .into_iter()
        .zip(rotated)
        .map(|(windowed, rotated)| Layer {
            window: window.filter(|_| windowed),
            rotary: match (rotated, windowed && local) {
                (false, _) => Rotary::None,
                (true, true) => Rotary::Local,
                (true, false) => Rotary::Global,
            },
        })
        .collect();
    while layers.len() > 1 && layers[layers.len() - 1] == layers[layers.len() - 2] {
        layers.pop();
    }
    Ok(layers)
}

/// Reads `layer_types`: true for each layer with a window. `None` if the file leaves it out, or
/// if the family's layers are all alike.
fn read_layer_types(
    keys: &Keys<'_>,
    family: &Family,
    count: usize,
    window: Option<usize>,
) -> Result<Option<Vec<bool>>, LmError> {
    let Some(types) = keys.get::<Vec<String>>("layer_types")? else {
        return Ok(None);
    };
    let wrong = |message: String| Err(keys.error("layer_types", message));
    if types.len() != count {
        let found = types.len();
        return wrong(format!(
            "names {found} layers, num_hidden_layers is {count}"
        ));
    }
    let known = ["full_attention", "sliding_attention"];
    if let Some(other) = types.iter().find(|kind| !known.contains(&kind.as_str())) {
        return wrong(format!(
            "`{other}` is not supported ({} are)",
            known.join(" and ")
        ));
    }
    let windowed: Vec<bool> = types.iter().map(|kind| kind == known[1]).collect();
    // Families whose layers are all alike do not read the list; it must agree with them.
    if matches!(family.windows, Windows::Never | Windows::All) {
        let wanted = family.windows == Windows::All && window.is_some();
        return match windowed.iter().all(|windowed| *windowed == wanted) {
            true => Ok(None),
            false => wrong(format!(
                "names other layers than a model of type {} has",
                family.model_type
            )),
        };
    }
    // Gemma's windowed layers have a separate rotation, with or without a window.
    if windowed.contains(&true) && window.is_none() && family.local_rope().is_none() {
        return wrong("names layers with a window, but there is none".into());
    }
    Ok(Some(windowed))
}

/// Reads which layers are rotated: true for each layer that is.
fn read_rotated(keys: &Keys<'_>, family: &Family, count: usize) -> Result<Vec<bool>, LmError> {
    if family.windows != Windows::Unrotated {
        return Ok(vec![true; count]);
    }
    let interval = keys.count("no_rope_layer_interval", Some(4))?;
    let Some(list) = keys.get::<Vec<usize>>("no_rope_layers")? else {
        let by_interval = (0..count).map(|layer| !(layer + 1).is_multiple_of(interval));
        return Ok(by_interval.collect());
    };
    if list.len() != count || list.iter().any(|rotated| *rotated > 1) {
        let message = format!("must be {count} times 0 or 1, 1 for layers with rotation");
        return Err(keys.error("no_rope_layers", message));
    }
    Ok(list.into_iter().map(|rotated| rotated == 1).collect())
}
