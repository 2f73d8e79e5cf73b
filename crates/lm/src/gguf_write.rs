//! Writer of a model as a GGUF file in the layout of llama.cpp's own converter.
//! [`gguf`](crate::gguf) reverses it when it reads such a file.

use std::ops::Range;
use std::path::Path;

use serde_json::Value;
use weights::{Encoding, GgufEntry, GgufTensor, gguf_head, gguf_padding};

use crate::config::{Architecture, RopeScaling};
use crate::gguf::{ROPE_FACTORS, divisors, permuted_row, stored_name};
use crate::names::expected_tensors;
use crate::source::{RowBuffer, TensorSource};
use crate::write::{AT_ONCE, Part};
use crate::{LmConfig, LmError, StoredCheckpoint};

/// Version of the layout of quantised blocks.
const QUANTIZATION_VERSION: u32 = 2;

/// Keys of a file, in the order in which they are written.
type Keys = Vec<(String, GgufEntry)>;

/// Storage type of the matrices of a GGUF file. Norms and biases are always in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GgufType {
    /// Half precision.
    F16,
    /// Eight bits with a scale per 32 values; half precision if rows are not whole blocks.
    Q8_0,
}

impl GgufType {
    fn encoding(self, width: usize) -> Encoding {
        match self {
            Self::Q8_0 if width.is_multiple_of(Encoding::Q8_0.block().values) => Encoding::Q8_0,
            _ => Encoding::F16,
        }
    }

    /// llama.cpp's number for files whose matrices are mostly of this type.
    fn file_type(self) -> u32 {
        match self {
            Self::F16 => 1,
            Self::Q8_0 => 7,
        }
    }
}

/// Writes a model as a GGUF file, a few rows at a time. `others` are further keys: its name, its
/// tokenizer. Before the file is moved to its place it is read again, and its keys must describe
/// the same model.
///
/// # Errors
/// [`LmError::NotGguf`], which names the part that cannot be written; a file that cannot be
/// written; errors of the source.
pub fn write_gguf(
    source: &dyn TensorSource,
    path: &Path,
    stored: GgufType,
    others: Keys,
) -> Result<(), LmError> {
    source.check()?;
    let config = source.config();
    let mut keys = keys(config, stored)?;
    keys.extend(others);
    let mut part = Part::new(path)?;
    fill(source, stored, &keys, &mut part)?;
    part.finish()
}

fn fill(
    source: &dyn TensorSource,
    stored: GgufType,
    keys: &[(String, GgufEntry)],
    part: &mut Part,
) -> Result<(), LmError> {
    let config = source.config();
    let (tensors, names) = tensors(config, stored);
    part.write(&gguf_head(keys, &tensors)?)?;
    for (tensor, own) in tensors.iter().zip(&names) {
        write_tensor(source, own.as_deref(), tensor, part)?;
    }
    part.flush()?;
    same(config, &StoredCheckpoint::open_gguf(&part.part)?)
}

/// Checks, without the weights, that the model can be written.
///
/// # Errors
/// [`LmError::NotGguf`].
pub fn check_gguf(config: &LmConfig) -> Result<(), LmError> {
    keys(config, GgufType::F16).map(drop)
}

fn unwritten(what: impl Into<String>) -> LmError {
    LmError::NotGguf { what: what.into() }
}

/// The keys that describe the model's computation.
fn keys(config: &LmConfig, stored: GgufType) -> Result<Keys, LmError> {
    // llama.cpp has the same names for these.
    let name = config.model_type();
    if !["llama", "qwen2", "qwen3"].contains(&name) {
        let what = format!("model_type `{name}` (llama, qwen2 and qwen3 are)");
        return Err(unwritten(what));
    }
    let biases = config.block.biases;
    let of_family = config.architecture == Architecture::Qwen2;
    if biases.out || biases.mlp || biases.qkv != of_family {
        return Err(unwritten(format!(
            "a `{name}` whose projections have biases"
        )));
    }
    let mut keys = vec![
        ("general.architecture".to_owned(), name.into()),
        ("general.type".to_owned(), "model".into()),
        ("general.file_type".to_owned(), stored.file_type().into()),
        (
            "general.quantization_version".to_owned(),
            QUANTIZATION_VERSION.into(),
        ),
    ];
    let mut add = |key: &str, value: GgufEntry| keys.push((format!("{name}.{key}"), value));
    let sizes = [
        ("block_count", config.num_layers),
        ("context_length", config.max_position_embeddings),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("attention.head_count", config.num_heads),
        ("attention.head_count_kv", config.num_kv_heads),
    ];
    for (key, size) in sizes {
        add(key, count(size)?);
    }
    add("rope.freq_base", GgufEntry::Float(config.rope.theta as f32));
    add(
        "attention.layer_norm_rms_epsilon",
        GgufEntry::Float(config.rms_norm_eps as f32),
    );
    if config.head_dim * config.num_heads != config.hidden_size {
        add("attention.key_length", count(config.head_dim)?);
        add("attention.value_length", count(config.head_dim)?);
    }
    if name == "llama" {
        add("vocab_size", count(config.vocab_size)?);
        add("rope.dimension_count", count(config.rope.dims)?);
    }
    match &config.rope.scaling {
        // Llama 3's scaling is a tensor of factors.
        RopeScaling::Default | RopeScaling::Llama3 { .. } => {}
        RopeScaling::Linear { factor } => {
            add("rope.scaling.type", "linear".into());
            add("rope.scaling.factor", GgufEntry::Float(*factor as f32));
        }
        _ => {
            let mut json = config.to_json();
            let name = json["rope_scaling"]["rope_type"].take();
            return Err(unwritten(format!("rope_scaling of type {name}")));
        }
    }
    Ok(keys)
}

fn count(size: usize) -> Result<GgufEntry, LmError> {
    let size = u32::try_from(size).map_err(|_| unwritten(format!("a size of {size}")))?;
    Ok(size.into())
}

/// The tensors of a file, with the name of each in memory; `None` for the factors of the rotation.
fn tensors(config: &LmConfig, stored: GgufType) -> (Vec<GgufTensor>, Vec<Option<String>>) {
    let each = expected_tensors(config).into_iter().map(|(own, shape)| {
        let tensor = GgufTensor {
            name: stored_name(config, &own),
            encoding: match shape.as_slice() {
                [_, width] => stored.encoding(*width),
                _ => Encoding::F32,
            },
            shape,
        };
        (tensor, Some(own))
    });
    let (mut tensors, mut names): (Vec<_>, Vec<_>) = each.unzip();
    if matches!(config.rope.scaling, RopeScaling::Llama3 { .. }) {
        tensors.push(GgufTensor {
            name: ROPE_FACTORS.to_owned(),
            shape: vec![config.rope.dims / 2],
            encoding: Encoding::F32,
        });
        names.push(None);
    }
    (tensors, names)
}

fn write_tensor(
    source: &dyn TensorSource,
    own: Option<&str>,
    tensor: &GgufTensor,
    part: &mut Part,
) -> Result<(), LmError> {
    let config = source.config();
    let (mut bytes, mut written) = (Vec::new(), 0);
    let mut read = 0;
    let mut put = |values: &[f32]| {
        // A block of integers would turn them into zeros.
        if let Some(at) = values.iter().position(|value| !value.is_finite()) {
            return Err(LmError::NotFinite {
                path: part.path.clone(),
                tensor: tensor.name.clone(),
                value: values[at],
                at: read + at,
            });
        }
        read += values.len();
        bytes.clear();
        if !tensor.encoding.encode(values, &mut bytes) {
            return Err(unwritten(format!("a tensor in {}", tensor.encoding)));
        }
        written += bytes.len() as u64;
        part.write(&bytes)
    };
    match own {
        None => {
            let factors = divisors(config).into_iter().map(|divisor| divisor as f32);
            put(&factors.collect::<Vec<_>>())?;
        }
        Some(own) => {
            let rotated = own.contains("self_attn.q_proj") || own.contains("self_attn.k_proj");
            let head =
                (rotated && config.architecture == Architecture::Llama).then_some(config.head_dim);
            let width: usize = tensor.shape.iter().skip(1).product();
            let rows = tensor.shape.first().copied().unwrap_or(1);
            let step = (AT_ONCE / width.max(1)).max(1);
            // Whole heads, because their rows are permuted.
            let step = head.map_or(step, |head| step.next_multiple_of(head));
            let (mut buffer, mut turned) = (RowBuffer::default(), Vec::new());
            for start in (0..rows).step_by(step) {
                let some = start..rows.min(start + step);
                let values = source.rows(own, some.clone(), &mut buffer)?;
                match head {
                    None => put(values)?,
                    Some(head) => put(permuted(values, some, head, &mut turned))?,
                }
            }
        }
    }
    let padding = gguf_padding(written);
    part.write(&[0; 32][..padding])
}

/// Rows of whole heads, permuted to llama.cpp's order.
fn permuted<'a>(
    values: &[f32],
    rows: Range<usize>,
    head: usize,
    to: &'a mut Vec<f32>,
) -> &'a [f32] {
    let width = values.len() / rows.len().max(1);
    to.clear();
    to.resize(values.len(), 0.0);
    for row in rows.clone() {
        let from = (row - rows.start) * width;
        let at = (permuted_row(row, head) - rows.start) * width;
        to[at..at + width].copy_from_slice(&values[from..from + width]);
    }
    to
}

/// Compares the written file with the configuration. An error names a key that GGUF cannot express.
fn same(config: &LmConfig, read: &StoredCheckpoint) -> Result<(), LmError> {
    // Tokens at the ends of a text are keys of the tokenizer.
    let ends = ["bos_token_id", "eos_token_id"];
    let (meant, found) = (config.to_json(), read.config().to_json());
    let (Value::Object(meant), Value::Object(found)) = (meant, found) else {
        return Err(unwritten("its configuration"));
    };
    for (key, value) in &meant {
        let other = found.get(key).unwrap_or(&Value::Null);
        if value != other && !ends.contains(&key.as_str()) {
            return Err(unwritten(format!(
                "`{key}` of its configuration: a GGUF file says {other}, not {value}"
            )));
        }
    }
    let new = found.keys().find(|key| !meant.contains_key(*key));
    new.map_or(Ok(()), |key| {
        Err(unwritten(format!(
            "its configuration, which has no `{key}`"
        )))
    })
}
