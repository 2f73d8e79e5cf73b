//! Reader of GGUF files: typed keys that describe a model, then tensors under llama.cpp's names.

use std::collections::BTreeMap;

use crate::file::OpenFile;
use crate::safetensors::apart;
use crate::tensor::{StoredTensor, count};
use crate::{Encoding, WeightsError};

const FORMAT: &str = "GGUF";
pub(crate) const MAGIC: &[u8] = b"GGUF";
/// Largest number of dimensions of a tensor.
const DIMENSIONS: u32 = 4;
/// Largest length, in bytes, of a name of a tensor or key, and of a text that is kept.
const LONGEST_TEXT: u64 = 1 << 20;
/// Default alignment of the tensors, in bytes.
pub(crate) const ALIGNMENT: u64 = 32;
/// Number of bytes of a file that are read at once.
const WINDOW: usize = 64 << 10;

/// Value of a key of a GGUF file.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum GgufValue {
    /// An integer of any width.
    Int(i128),
    /// A number.
    Float(f64),
    /// A boolean.
    Bool(bool),
    /// A text.
    Text(String),
    /// A list of integers, numbers or booleans (1 for true).
    Numbers(Vec<f64>),
    /// A list of texts, such as a vocabulary. They stay in the file; [`TensorFiles::texts`] reads
    /// them.
    ///
    /// [`TensorFiles::texts`]: crate::TensorFiles::texts
    Texts {
        /// Number of texts.
        count: u64,
        /// Offset of the first one in the file, in bytes.
        at: u64,
    },
}

/// Keys and tensors of a file.
pub(crate) struct Contents {
    pub(crate) keys: BTreeMap<String, GgufValue>,
    pub(crate) tensors: BTreeMap<String, StoredTensor>,
}

/// Reader that moves forward, a window at a time, and never beyond the end of the file.
struct Reader<'a> {
    file: &'a OpenFile,
    /// Offset of the next byte.
    at: u64,
    window: Vec<u8>,
    window_at: u64,
}

impl<'a> Reader<'a> {
    fn at(file: &'a OpenFile, at: u64) -> Self {
        Self {
            file,
            at,
            window: Vec::new(),
            window_at: at,
        }
    }

    fn bad(&self, message: impl Into<String>) -> WeightsError {
        self.file.malformed(FORMAT, message)
    }

    fn left(&self) -> u64 {
        self.file.len - self.at
    }

    /// Skips `len` bytes.
    fn skip(&mut self, len: u64) -> Result<(), WeightsError> {
        if len > self.left() {
            let message = format!(
                "it ends at byte {}, where {len} more are expected",
                self.file.len
            );
            return Err(self.bad(message));
        }
        self.at += len;
        Ok(())
    }

    /// The next `len` bytes, as a view into the window, which must be at least as large.
    fn view(&mut self, len: usize) -> Result<&[u8], WeightsError> {
        let start = self.at;
        self.skip(len as u64)?;
        let window_end = self.window_at + self.window.len() as u64;
        if start < self.window_at || self.at > window_end {
            let len = (WINDOW as u64).min(self.file.len - start);
            self.window = self.file.bytes(FORMAT, start, len)?;
            self.window_at = start;
        }
        let from = (start - self.window_at) as usize;
        Ok(&self.window[from..from + len])
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], WeightsError> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.view(N)?);
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, WeightsError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, WeightsError> {
        self.take().map(u64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, WeightsError> {
        let len = self.u64()?;
        if len > LONGEST_TEXT {
            return Err(self.bad(format!("a text of {len} bytes")));
        }
        let bytes = match usize::try_from(len) {
            Ok(len) if len <= WINDOW => self.view(len)?.to_vec(),
            _ => {
                let start = self.at;
                self.skip(len)?;
                self.file.bytes(FORMAT, start, len)?
            }
        };
        String::from_utf8(bytes).map_err(|_| self.bad("a text that is not UTF-8"))
    }

    fn value(&mut self, kind: u32) -> Result<GgufValue, WeightsError> {
        Ok(match kind {
            0 => GgufValue::Int(self.take::<1>()?[0].into()),
            1 => GgufValue::Int((self.take::<1>()?[0] as i8).into()),
            2 => GgufValue::Int(u16::from_le_bytes(self.take()?).into()),
            3 => GgufValue::Int(i16::from_le_bytes(self.take()?).into()),
            4 => GgufValue::Int(self.u32()?.into()),
            5 => GgufValue::Int(i32::from_le_bytes(self.take()?).into()),
            6 => GgufValue::Float(f32::from_le_bytes(self.take()?).into()),
            7 => GgufValue::Bool(self.take::<1>()?[0] != 0),
            8 => GgufValue::Text(self.text()?),
            9 => self.list()?,
            10 => GgufValue::Int(self.u64()?.into()),
            11 => GgufValue::Int(i64::from_le_bytes(self.take()?).into()),
            12 => GgufValue::Float(f64::from_le_bytes(self.take()?)),
            other => return Err(self.bad(format!("a value of unknown type {other}"))),
        })
    }

    /// Reads a list. Numbers are kept; of texts only their place in the file.
    fn list(&mut self) -> Result<GgufValue, WeightsError> {
        let (kind, len) = (self.u32()?, self.u64()?);
        // Every entry takes at least one byte, so a longer list cannot exist.
        if len > self.left() {
            return Err(self.bad(format!("a list of {len} entries")));
        }
        if kind == 8 {
            let at = self.at;
            for _ in 0..len {
                let bytes = self.u64()?;
                self.skip(bytes)?;
            }
            return Ok(GgufValue::Texts { count: len, at });
        }
        // Before its entries are read: lists in lists can be nested deeper than the stack allows.
        if kind == 9 {
            return Err(self.bad("a list of lists"));
        }
        let mut numbers = Vec::new();
        for _ in 0..len {
            numbers.push(match self.value(kind)? {
                GgufValue::Int(value) => value as f64,
                GgufValue::Float(value) => value,
                GgufValue::Bool(value) => f64::from(u8::from(value)),
                _ => return Err(self.bad("a list of texts and numbers")),
            });
        }
        Ok(GgufValue::Numbers(numbers))
    }
}

/// Encoding of a tensor type, or its name if it is not read.
fn encoding(kind: u32) -> Result<Encoding, String> {
    Ok(match kind {
        0 => Encoding::F32,
        1 => Encoding::F16,
        2 => Encoding::Q4_0,
        3 => Encoding::Q4_1,
        6 => Encoding::Q5_0,
        7 => Encoding::Q5_1,
        8 => Encoding::Q8_0,
        10 => return Err("Q2_K".to_owned()),
        11 => return Err("Q3_K".to_owned()),
        12 => Encoding::Q4K,
        13 => Encoding::Q5K,
        14 => Encoding::Q6K,
        30 => Encoding::Bf16,
        other => return Err(format!("GGML type {other}")),
    })
}

/// Reads the `count` texts that begin at byte `at` of a file whose keys have been read.
pub(crate) fn texts(file: &OpenFile, count: u64, at: u64) -> Result<Vec<String>, WeightsError> {
    let mut reader = Reader::at(file, at);
    let mut texts = Vec::new();
    for _ in 0..count {
        texts.push(reader.text()?);
    }
    Ok(texts)
}

/// Reads keys and tensors of a file.
pub(crate) fn contents(file: &OpenFile) -> Result<Contents, WeightsError> {
    let mut reader = Reader::at(file, 0);
    let magic: [u8; 4] = reader.take()?;
    if magic != *MAGIC {
        return Err(reader.bad("it does not begin with `GGUF`"));
    }
    let version = reader.u32()?;
    if (1..=3).contains(&version.swap_bytes()) {
        let message = "it is big-endian, and only little-endian files are read";
        return Err(reader.bad(message));
    }
    if !(2..=3).contains(&version) {
        return Err(reader.bad(format!("version {version}; 2 and 3 are read")));
    }
    let (tensor_count, key_count) = (reader.u64()?, reader.u64()?);
    let mut keys = BTreeMap::new();
    for _ in 0..key_count {
        let key = reader.text()?;
        let kind = reader.u32()?;
        let value = reader.value(kind)?;
        if keys.insert(key.clone(), value).is_some() {
            return Err(reader.bad(format!("key `{key}` is there twice")));
        }
    }
    let alignment = match keys.get("general.alignment") {
        None => ALIGNMENT,
        Some(GgufValue::Int(n)) if *n > 0 && *n <= 1 << 20 => *n as u64,
        Some(_) => return Err(reader.bad("general.alignment is no alignment")),
    };
    let mut tensors = BTreeMap::new();
    for _ in 0..tensor_count {
        let (name, tensor) = described(&mut reader)?;
        if tensors.insert(name.clone(), tensor).is_some() {
            return Err(reader.bad(format!("tensor `{name}` is there twice")));
        }
    }
    place(&reader, alignment, &mut tensors)?;
    Ok(Contents { keys, tensors })
}

/// Reads the description of a tensor. Its offset still counts from the start of the tensors.
fn described(reader: &mut Reader<'_>) -> Result<(String, StoredTensor), WeightsError> {
    let name = reader.text()?;
    let dimensions = reader.u32()?;
    if dimensions > DIMENSIONS {
        return Err(reader.bad(format!("tensor `{name}` has {dimensions} dimensions")));
    }
    let mut shape = Vec::new();
    for _ in 0..dimensions {
        let size = usize::try_from(reader.u64()?);
        shape.push(size.map_err(|_| reader.bad(format!("tensor `{name}` is too large")))?);
    }
    // GGML lists dimensions from the innermost one.
    shape.reverse();
    let encoding = encoding(reader.u32()?);
    let tensor = StoredTensor {
        shape,
        encoding,
        offset: reader.u64()?,
        strides: None,
    };
    Ok((name, tensor))
}

/// Converts offsets to offsets in the file, and checks them.
fn place(
    reader: &Reader<'_>,
    alignment: u64,
    tensors: &mut BTreeMap<String, StoredTensor>,
) -> Result<(), WeightsError> {
    let start = reader.at.next_multiple_of(alignment);
    let mut taken = Vec::with_capacity(tensors.len());
    for (name, tensor) in tensors {
        let offset = start.checked_add(tensor.offset);
        let Ok(encoding) = tensor.encoding else {
            tensor.offset = offset.unwrap_or(u64::MAX);
            continue;
        };
        let whole = tensor.width().is_multiple_of(encoding.block().values);
        let bytes = count(&tensor.shape).and_then(|values| encoding.bytes(values));
        let end = offset
            .zip(bytes)
            .and_then(|(at, bytes)| at.checked_add(bytes as u64));
        match (offset, end) {
            (Some(offset), Some(end)) if end <= reader.file.len && whole => {
                tensor.offset = offset;
                taken.push((offset, end, name.clone()));
            }
            _ => {
                return Err(reader.bad(format!(
                    "tensor `{name}` of shape {:?} in {encoding} does not lie in the file's {} bytes",
                    tensor.shape, reader.file.len
                )));
            }
        }
    }
    apart(taken).map_err(|message| reader.bad(message))
}
