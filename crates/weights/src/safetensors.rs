//! Reader of safetensors headers: a length, then JSON with the place of each tensor.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, Visitor};

use crate::file::OpenFile;
use crate::tensor::{StoredTensor, count};
use crate::{Encoding, WeightsError};

const FORMAT: &str = "safetensors";
/// Largest size of a header in bytes, as the format defines it.
const LONGEST_HEADER: u64 = 100_000_000;
/// Largest number of dimensions of a tensor.
const DIMENSIONS: usize = 8;
/// Size of the header's length, in bytes.
const LENGTH: u64 = 8;

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: (u64, u64),
}

/// A header: tensors by unique name, and the writer's metadata.
struct Header {
    tensors: BTreeMap<String, Entry>,
    /// Free text of the writer. For a tensor that was left out because another one is equal, it
    /// maps the name to that of the other.
    metadata: BTreeMap<String, String>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Entries;
        impl<'de> Visitor<'de> for Entries {
            type Value = Header;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of tensors")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
                let (mut tensors, mut metadata) = (BTreeMap::new(), None);
                while let Some(name) = map.next_key::<String>()? {
                    if name == "__metadata__" {
                        metadata = map.next_value()?;
                        continue;
                    }
                    let entry = map.next_value()?;
                    if tensors.insert(name.clone(), entry).is_some() {
                        return Err(A::Error::custom(format!("tensor `{name}` is there twice")));
                    }
                }
                let metadata = metadata.unwrap_or_default();
                Ok(Header { tensors, metadata })
            }
        }
        deserializer.deserialize_map(Entries)
    }
}

/// Reads the descriptions of a file's tensors.
pub(crate) fn tensors(file: &OpenFile) -> Result<BTreeMap<String, StoredTensor>, WeightsError> {
    let bad = |message: String| file.malformed(FORMAT, message);
    let length = file.bytes(FORMAT, 0, LENGTH)?;
    let length = length.try_into().map(u64::from_le_bytes).unwrap_or(0);
    if length > LONGEST_HEADER {
        return Err(bad(format!("a header of {length} bytes")));
    }
    let header = file.bytes(FORMAT, LENGTH, length)?;
    let Header {
        tensors: entries,
        metadata,
    } = serde_json::from_slice(&header).map_err(|e| bad(e.to_string()))?;
    let (start, room) = (LENGTH + length, file.len - LENGTH - length);
    let mut taken = Vec::with_capacity(entries.len());
    let mut tensors = BTreeMap::new();
    for (name, entry) in entries {
        let (first, end) = entry.data_offsets;
        if first > end || end > room {
            return Err(bad(format!(
                "tensor `{name}` is at {first}..{end}, and the file holds {room} bytes of tensors"
            )));
        }
        if entry.shape.len() > DIMENSIONS {
            let dimensions = entry.shape.len();
            return Err(bad(format!("tensor `{name}` has {dimensions} dimensions")));
        }
        let encoding = match entry.dtype.as_str() {
            "F32" => Ok(Encoding::F32),
            "F16" => Ok(Encoding::F16),
            "BF16" => Ok(Encoding::Bf16),
            _ => Err(entry.dtype),
        };
        if let Ok(encoding) = encoding {
            let bytes = count(&entry.shape).and_then(|values| encoding.bytes(values));
            if bytes.map(|bytes| bytes as u64) != Some(end - first) {
                return Err(bad(format!(
                    "tensor `{name}` of shape {:?} has {} bytes",
                    entry.shape,
                    end - first
                )));
            }
        }
        taken.push((first, end, name.clone()));
        let tensor = StoredTensor {
            shape: entry.shape,
            encoding,
            offset: start + first,
            strides: None,
        };
        tensors.insert(name, tensor);
    }
    apart(taken).map_err(bad)?;
    for (left_out, kept) in metadata {
        if let Some(tensor) = tensors.get(&kept).cloned() {
            tensors.entry(left_out).or_insert(tensor);
        }
    }
    Ok(tensors)
}

/// Checks that byte ranges do not overlap.
pub(crate) fn apart(mut ranges: Vec<(u64, u64, String)>) -> Result<(), String> {
    ranges.retain(|(first, end, _)| first < end);
    ranges.sort_unstable();
    let overlap = ranges.windows(2).find(|pair| pair[0].1 > pair[1].0);
    match overlap {
        Some([one, other]) => Err(format!("tensors `{}` and `{}` overlap", one.2, other.2)),
        _ => Ok(()),
    }
}
