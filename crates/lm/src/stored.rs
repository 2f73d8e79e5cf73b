//! A model in files, whose weights are read when they are needed.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;

use weights::{Encoding, Format, StoredTensor, TensorFiles, WeightsError};

use crate::names::{EMBEDDING, HEAD, canonical, expected_tensors, fused};
use crate::source::{RowBuffer, TensorSource};
use crate::{LmConfig, LmError, gguf};

const CONFIG: &str = "config.json";

/// A model folder whose weights stay in their files: safetensors, PyTorch's, or GGUF. Headers are
/// read and checked at once, values only on demand.
#[derive(Debug)]
pub struct StoredCheckpoint {
    config: LmConfig,
    files: TensorFiles,
    /// Places of all tensors of the architecture.
    places: BTreeMap<String, Place>,
}

/// Place of a tensor of the architecture in the files.
#[derive(Clone, Debug)]
struct Place {
    /// Name in the files.
    stored: String,
    /// Index of its first row, since several projections may be stored as one.
    first: usize,
    /// Number of its rows.
    rows: usize,
    /// Width of the heads whose rows llama.cpp has permuted; `None` if rows are in order.
    permuted: Option<usize>,
    /// Excess of stored values over ours.
    above: f32,
}

impl StoredCheckpoint {
    /// Opens a model folder: `config.json`, and weights in any format that [`TensorFiles::open`]
    /// finds. With GGUF weights `config.json` may be missing, because their keys describe the
    /// model.
    ///
    /// # Errors
    /// A configuration that is missing or not supported; files that are malformed; tensors that are
    /// missing, leftover, misshapen or of a type that is not read. Each error names the file.
    pub fn open(folder: &Path) -> Result<Self, LmError> {
        let files = TensorFiles::open(folder);
        let config = Self::config_of(folder, files.as_ref().ok())?;
        Self::of(folder, config, files?)
    }

    /// Opens a GGUF file, or all parts of a model by the name of any of them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_gguf(file: &Path) -> Result<Self, LmError> {
        let files = TensorFiles::of_file(Format::Gguf, file)?;
        let config = gguf::config(&files)?;
        Self::of(file, config, files)
    }

    /// Reads the configuration of a model folder, with weights or without. Unlike
    /// [`open`](Self::open), it does not compare a tied output head with the embedding.
    ///
    /// # Errors
    /// A configuration that is missing, malformed or not supported.
    pub fn read_config(folder: &Path) -> Result<LmConfig, LmError> {
        // The headers of files in other formats do not affect the configuration.
        let gguf = || TensorFiles::open(folder).ok();
        let looked_at = weights::has_gguf(folder);
        Self::config_of(folder, looked_at.then(gguf).flatten().as_ref())
    }

    fn config_of(folder: &Path, files: Option<&TensorFiles>) -> Result<LmConfig, LmError> {
        let path = folder.join(CONFIG);
        match files.filter(|files| files.format() == Format::Gguf) {
            Some(files) if !path.exists() => gguf::config(files),
            Some(files) => {
                let mut config = LmConfig::from_file(&path)?;
                for id in gguf::ends(files) {
                    if !config.eos_token_ids.contains(&id) {
                        config.eos_token_ids.push(id);
                    }
                }
                Ok(config)
            }
            None => LmConfig::from_file(&path),
        }
    }

    fn of(folder: &Path, mut config: LmConfig, files: TensorFiles) -> Result<Self, LmError> {
        gguf::check_factors(&files, &config)?;
        let heads = gguf::permuted_heads(&files, &config)?;
        let norm_offset = gguf::norm_offset(&files, &config);
        // Vision models put a prefix before the names of their text model.
        let in_files = files.tensors().map(|(name, _)| name);
        let names: BTreeMap<String, String> = in_files
            .filter_map(|name| Some((canonical(&config, name)?.into_owned(), name.to_owned())))
            .collect();
        let of_head = match files.format() {
            Format::Gguf => [gguf::stored_name(&config, EMBEDDING), gguf::HEAD.to_owned()],
            _ => [EMBEDDING.to_owned(), HEAD.to_owned()],
        };
        let [embedding, head] = of_head.map(|name| names.get(&name));
        if let (true, Some(embedding), Some(head)) = (config.tie_word_embeddings, embedding, head) {
            // As in transformers 5: a separate head counts, whatever the configuration says.
            config.tie_word_embeddings = equal(&files, embedding, head)?;
        }
        let mut places = BTreeMap::new();
        for (name, shape) in expected_tensors(&config) {
            let mut candidates = candidates(&config, &name, &shape);
            if files.format() == Format::Gguf {
                for (stored, ..) in &mut candidates {
                    *stored = gguf::stored_name(&config, stored);
                }
            }
            let found = candidates.into_iter().find_map(|(stored, first, whole)| {
                let own = names.get(&stored).cloned();
                let found = own.or_else(|| files.get(&stored).is_some().then_some(stored))?;
                Some((found, first, whole))
            });
            let Some((stored, first, whole)) = found else {
                return Err(LmError::missing(folder, name));
            };
            check_shape(&files, &stored, &whole)?;
            files.encoding(&stored)?;
            let rotated = name.contains("self_attn.q_proj") || name.contains("self_attn.k_proj");
            let permuted = heads.filter(|_| rotated);
            let place = Place {
                stored,
                first,
                rows: shape.first().copied().unwrap_or(1),
                permuted,
                above: match name.ends_with("norm.weight") {
                    true => norm_offset,
                    false => 0.0,
                },
            };
            places.insert(name, place);
        }
        let of = Self {
            config,
            files,
            places,
        };
        of.check_leftover()?;
        Ok(of)
    }

    /// Refuses tensors that are never read. They change nothing here but might elsewhere.
    fn check_leftover(&self) -> Result<(), LmError> {
        let used: BTreeSet<&str> = self.places.values().map(|p| p.stored.as_str()).collect();
        let tied = self.config.tie_word_embeddings;
        let computed = |name: &str| {
            let Some(own) = canonical(&self.config, name) else {
                return true;
            };
            // A tied head equals the embedding, value by value, and factors are those of the
            // rotation.
            name == gguf::ROPE_FACTORS || tied && [HEAD, gguf::HEAD].contains(&&*own)
        };
        let names = self.files.tensors().map(|(name, _)| name);
        let mut leftover = names.filter(|name| !used.contains(name) && !computed(name));
        let Some(first) = leftover.next() else {
            return Ok(());
        };
        Err(LmError::LeftoverTensors {
            path: self.files.path_of(first),
            count: 1 + leftover.count(),
            first: first.to_owned(),
        })
    }

    /// The files.
    pub fn files(&self) -> &TensorFiles {
        &self.files
    }

    /// Encoding of the largest tensor; `None` without tensors, or if it is one that is not read.
    pub fn encoding(&self) -> Option<Encoding> {
        let tensors = self.files.tensors();
        let size = |tensor: &StoredTensor| tensor.rows().saturating_mul(tensor.width());
        let largest = tensors.max_by_key(|(_, tensor)| size(tensor))?;
        largest.1.encoding.clone().ok()
    }

    fn place(&self, name: &str) -> Result<&Place, LmError> {
        let place = self.places.get(name);
        place.ok_or_else(|| LmError::missing("(model in files)", name))
    }
}

/// Possible places of a tensor: the name, the first row, and the shape of the whole stored tensor.
fn candidates(config: &LmConfig, name: &str, shape: &[usize]) -> Vec<(String, usize, Vec<usize>)> {
    let mut candidates = vec![(name.to_owned(), 0, shape.to_vec())];
    if name == EMBEDDING && config.tie_word_embeddings {
        // Of two names for one tensor, some writers keep the other one.
        candidates.push((HEAD.to_owned(), 0, shape.to_vec()));
    }
    candidates.extend(fused(config, name).map(|(whole, first, rows)| {
        let mut shape = shape.to_vec();
        shape[0] = rows;
        (whole, first, shape)
    }));
    candidates
}

/// Number of rows that are compared at once.
const COMPARED: usize = 256;

/// True if two tensors hold the same values.
fn equal(files: &TensorFiles, one: &str, other: &str) -> Result<bool, LmError> {
    let shape = |name: &str| files.get(name).map(|tensor| tensor.shape.clone());
    if shape(one) != shape(other) {
        return Ok(false);
    }
    let rows = files.get(one).map_or(0, |tensor| tensor.rows());
    let (mut first, mut second) = Default::default();
    for start in (0..rows).step_by(COMPARED) {
        let some = start..rows.min(start + COMPARED);
        let values = files.rows(one, some.clone(), &mut first)?;
        if values != files.rows(other, some, &mut second)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn check_shape(files: &TensorFiles, stored: &str, expected: &[usize]) -> Result<(), LmError> {
    let found = files.get(stored).map(|tensor| tensor.shape.clone());
    match found {
        Some(found) if found == expected => Ok(()),
        found => Err(LmError::Shape {
            path: files.path_of(stored),
            tensor: stored.to_owned(),
            found: found.unwrap_or_default(),
            expected: expected.to_vec(),
        }),
    }
}

impl TensorSource for StoredCheckpoint {
    fn config(&self) -> &LmConfig {
        &self.config
    }

    fn rows<'a>(
        &'a self,
        name: &str,
        rows: Range<usize>,
        buffer: &'a mut RowBuffer,
    ) -> Result<&'a [f32], LmError> {
        let place = self.place(name)?;
        if rows.end > place.rows {
            let path = self.files.path_of(&place.stored);
            return Err(WeightsError::beyond(&path, name, place.rows, rows).into());
        }
        let stored = |rows: Range<usize>| place.first + rows.start..place.first + rows.end;
        let RowBuffer { stored: read, own } = buffer;
        let Some(head) = place.permuted else {
            let values = self.files.rows(&place.stored, stored(rows), read)?;
            if place.above == 0.0 {
                return Ok(values);
            }
            own.clear();
            own.extend(values.iter().map(|value| value - place.above));
            return Ok(own);
        };
        // All heads to which the rows belong.
        let heads = rows.start / head * head..rows.end.next_multiple_of(head);
        let values = self
            .files
            .rows(&place.stored, stored(heads.clone()), read)?;
        let width = values.len() / heads.len().max(1);
        own.clear();
        for row in rows {
            let at = gguf::permuted_row(row, head) - heads.start;
            own.extend_from_slice(&values[at * width..(at + 1) * width]);
        }
        Ok(own)
    }

    fn is_bf16(&self, name: &str) -> Option<bool> {
        match self.files.encoding(&self.place(name).ok()?.stored) {
            Ok(Encoding::Bf16) => Some(true),
            _ => None,
        }
    }
}
