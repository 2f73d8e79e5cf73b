//! Writer of GGUF: the head of a file, which describes its keys and tensors. The values follow it,
//! tensor after tensor.

use crate::gguf::{ALIGNMENT, MAGIC};
use crate::{Encoding, WeightsError};

/// Version of the format that is written.
const VERSION: u32 = 3;

/// Value of a key, in the width that other programs expect.
#[derive(Clone, Debug, PartialEq)]
pub enum GgufEntry {
    /// A count, a size or a token.
    Int(u32),
    /// A number.
    Float(f32),
    /// A boolean.
    Flag(bool),
    /// A text.
    Text(String),
    /// A list of texts.
    Texts(Vec<String>),
    /// A list of small numbers, such as token types.
    Ints(Vec<i32>),
}

impl From<u32> for GgufEntry {
    fn from(value: u32) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for GgufEntry {
    fn from(value: &str) -> Self {
        Self::Text(value.to_owned())
    }
}

/// Description of a tensor to write.
#[derive(Clone, Debug, PartialEq)]
pub struct GgufTensor {
    /// Its name.
    pub name: String,
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Encoding of its values.
    pub encoding: Encoding,
}

/// GGML's number of an encoding; `None` for one that is not written.
fn number(encoding: Encoding) -> Option<u32> {
    match encoding {
        Encoding::F32 => Some(0),
        Encoding::F16 => Some(1),
        Encoding::Q8_0 => Some(8),
        _ => None,
    }
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// Header of a list: type and number of its entries.
fn list(to: &mut Vec<u8>, kind: u32, len: usize) {
    to.extend(9_u32.to_le_bytes());
    to.extend(kind.to_le_bytes());
    to.extend((len as u64).to_le_bytes());
}

impl GgufEntry {
    fn write(&self, to: &mut Vec<u8>) {
        let mut kind = |kind: u32| to.extend(kind.to_le_bytes());
        match self {
            Self::Int(value) => {
                kind(4);
                to.extend(value.to_le_bytes());
            }
            Self::Float(value) => {
                kind(6);
                to.extend(value.to_le_bytes());
            }
            Self::Flag(value) => {
                kind(7);
                to.push(u8::from(*value));
            }
            Self::Text(value) => {
                kind(8);
                text(to, value);
            }
            Self::Texts(values) => {
                list(to, 8, values.len());
                values.iter().for_each(|value| text(to, value));
            }
            Self::Ints(values) => {
                list(to, 5, values.len());
                values
                    .iter()
                    .for_each(|value| to.extend(value.to_le_bytes()));
            }
        }
    }
}

/// Number of padding bytes after `written` bytes of values, so that the next tensor is aligned.
pub fn gguf_padding(written: u64) -> usize {
    (written.next_multiple_of(ALIGNMENT) - written) as usize
}

/// The head of a GGUF file with these keys and tensors, padded up to the values of the first
/// tensor. The caller pads the values of each tensor by [`gguf_padding`].
///
/// # Errors
/// A tensor of an encoding that is not written, or whose rows are not whole blocks of it.
pub fn gguf_head(
    keys: &[(String, GgufEntry)],
    tensors: &[GgufTensor],
) -> Result<Vec<u8>, WeightsError> {
    let mut head = MAGIC.to_vec();
    head.extend(VERSION.to_le_bytes());
    head.extend((tensors.len() as u64).to_le_bytes());
    head.extend((keys.len() as u64).to_le_bytes());
    for (key, value) in keys {
        text(&mut head, key);
        value.write(&mut head);
    }
    let mut start = 0_u64;
    for GgufTensor {
        name,
        shape,
        encoding,
    } in tensors
    {
        let whole = shape
            .last()
            .is_some_and(|width| width.is_multiple_of(encoding.block().values));
        let bytes = crate::tensor::count(shape).and_then(|values| encoding.bytes(values));
        let (Some(kind), Some(bytes), true) = (number(*encoding), bytes, whole) else {
            return Err(WeightsError::Tensor(format!(
                "tensor `{name}` of shape {shape:?} cannot be written in {encoding}"
            )));
        };
        text(&mut head, name);
        head.extend((shape.len() as u32).to_le_bytes());
        // GGML lists dimensions from the innermost one.
        for size in shape.iter().rev() {
            head.extend((*size as u64).to_le_bytes());
        }
        head.extend(kind.to_le_bytes());
        head.extend(start.to_le_bytes());
        let end = start + bytes as u64;
        start = end + gguf_padding(end) as u64;
    }
    let padding = gguf_padding(head.len() as u64);
    head.resize(head.len() + padding, 0);
    Ok(head)
}
