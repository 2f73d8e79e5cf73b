//! Reader of PyTorch files: a zip archive with a pickle that describes tensors, and their storages.

mod pickle;
mod zip;

use std::collections::BTreeMap;

use crate::file::OpenFile;
use crate::tensor::{StoredTensor, count, dense};
use crate::{Encoding, WeightsError};
use pickle::{Storage, View};

const FORMAT: &str = "PyTorch";
/// Largest size of a pickle in bytes. It allows names and shapes of a million tensors.
const LONGEST_PICKLE: u64 = 256 << 20;

/// Reads the descriptions of the tensors of a file that `torch.save` wrote.
pub(crate) fn tensors(file: &OpenFile) -> Result<BTreeMap<String, StoredTensor>, WeightsError> {
    let entries = zip::entries(file)?;
    let bad = |message: String| file.malformed(FORMAT, message);
    let name = entries
        .keys()
        .find(|name| *name == "data.pkl" || name.ends_with("/data.pkl"))
        .ok_or_else(|| bad("there is no data.pkl in the archive".into()))?;
    let root = name.strip_suffix("data.pkl").unwrap_or_default();
    let entry = &entries[name];
    if entry.len > LONGEST_PICKLE {
        return Err(bad(format!("a pickle of {} bytes", entry.len)));
    }
    if let Some(order) = entries.get(&format!("{root}byteorder")) {
        let order = file.bytes(FORMAT, order.offset, order.len.min(8))?;
        if order != b"little" {
            return Err(bad("its numbers are not little-endian".into()));
        }
    }
    let pickle = file.bytes(FORMAT, entry.offset, entry.len)?;
    let views = pickle::tensors(&pickle).map_err(|fault| match fault {
        pickle::Fault::Global(global) => WeightsError::Global {
            path: file.path.clone(),
            global,
        },
        pickle::Fault::Malformed(message) => bad(message),
    })?;
    let mut tensors = BTreeMap::new();
    for (name, view) in views {
        let storage = entries.get(&format!("{root}data/{}", view.storage.key));
        let entry = storage.ok_or_else(|| {
            bad(format!(
                "tensor `{name}` lies in storage `{}`, which is not in the archive",
                view.storage.key
            ))
        })?;
        let tensor = placed(&view, entry).map_err(|m| bad(format!("tensor `{name}` {m}")))?;
        tensors.insert(name, tensor);
    }
    Ok(tensors)
}

/// The tensor of a view, with its values' place in the file.
fn placed(view: &View, entry: &zip::Entry) -> Result<StoredTensor, String> {
    let View {
        storage: Storage { dtype, values, .. },
        offset,
        shape,
        strides,
    } = view;
    let tensor = |encoding, offset| StoredTensor {
        shape: shape.clone(),
        encoding,
        offset,
        strides: (!dense((shape, strides))).then(|| strides.clone()),
    };
    let encoding = match &**dtype {
        "FloatStorage" => Encoding::F32,
        "HalfStorage" => Encoding::F16,
        "BFloat16Storage" => Encoding::Bf16,
        other => return Ok(tensor(Err(other.to_owned()), entry.offset)),
    };
    let size = encoding.block().bytes;
    if values.checked_mul(size).map(|bytes| bytes as u64) != Some(entry.len) {
        let len = entry.len;
        return Err(format!(
            "lies in a storage of {values} values and {len} bytes"
        ));
    }
    if shape.len() != strides.len() {
        return Err(format!("has shape {shape:?} and strides {strides:?}"));
    }
    let repeats = shape
        .iter()
        .zip(strides)
        .any(|(size, stride)| *size > 1 && *stride == 0);
    if repeats || count(shape).is_none_or(|values_seen| values_seen > *values) {
        return Err(format!(
            "of shape {shape:?} repeats values of its storage of {values}"
        ));
    }
    let last = shape
        .iter()
        .zip(strides)
        .try_fold(*offset, |last, (size, stride)| {
            last.checked_add(size.saturating_sub(1).checked_mul(*stride)?)
        });
    let empty = shape.contains(&0);
    if !empty && last.is_none_or(|last| last >= *values) {
        return Err(format!("reaches beyond its storage of {values} values"));
    }
    let offset = if empty { 0 } else { offset * size };
    Ok(tensor(Ok(encoding), entry.offset + offset as u64))
}
