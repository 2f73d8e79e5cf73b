//! Tensors as files of a family keep them, in exchange for tensors as the rest of the project knows
//! them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use crate::names::{Stored, canonical, expected_tensors, stored};
use crate::{Checkpoint, HostTensor, LmConfig, LmError};

/// Every projection by itself, under the names of [`expected_tensors`]; what does not belong to the
/// text model is left out.
pub(crate) fn from_stored(
    config: &LmConfig,
    file: BTreeMap<String, HostTensor>,
    origin: &Path,
) -> Result<BTreeMap<String, HostTensor>, LmError> {
    let mut tensors = BTreeMap::new();
    for (name, tensor) in file {
        if let Some(name) = canonical(config, &name) {
            tensors.insert(name.into_owned(), tensor);
        }
    }
    let mut taken_apart = Vec::new();
    for (name, shape) in expected_tensors(config) {
        let Stored {
            name: whole,
            rows,
            of,
        } = stored(config, &name);
        let Some(rows) = rows else {
            continue;
        };
        let Some(tensor) = tensors.get(&whole) else {
            continue;
        };
        let expected = vec![of, shape[1]];
        if tensor.shape != expected {
            return Err(LmError::Shape {
                path: origin.to_owned(),
                tensor: whole,
                found: tensor.shape.clone(),
                expected,
            });
        }
        let data = tensor.data[rows.start * shape[1]..rows.end * shape[1]].to_vec();
        tensors.insert(name, HostTensor { shape, data });
        taken_apart.push(whole);
    }
    for whole in taken_apart {
        tensors.remove(&whole);
    }
    Ok(tensors)
}

/// The tensors of a checkpoint as files of its family keep them.
pub(crate) fn to_stored(checkpoint: &Checkpoint) -> Cow<'_, BTreeMap<String, HostTensor>> {
    let config = &checkpoint.config;
    let names = || expected_tensors(config).into_iter();
    if names().all(|(name, _)| stored(config, &name).rows.is_none()) {
        return Cow::Borrowed(&checkpoint.tensors);
    }
    let mut tensors: BTreeMap<String, HostTensor> = BTreeMap::new();
    for (name, _) in names() {
        let Some(tensor) = checkpoint.tensors.get(&name) else {
            continue;
        };
        // Parts come in the order of their rows.
        match tensors.entry(stored(config, &name).name) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(tensor.clone());
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let whole = entry.get_mut();
                whole.shape[0] += tensor.shape[0];
                whole.data.extend_from_slice(&tensor.data);
            }
        }
    }
    Cow::Owned(tensors)
}
