//! Hugging Face checkpoints: `config.json` and one or several safetensors files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use safetensors::tensor::{Dtype, SafeTensors, TensorView};

use crate::names::{HEAD, expected_tensors};
use crate::{LmConfig, LmError};

/// A tensor on the host, row-major, in f32.
#[derive(Clone, Debug, PartialEq)]
pub struct HostTensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// `shape.product()` values.
    pub data: Vec<f32>,
}

/// Storage type of a written checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredType {
    /// Four bytes a weight, exact.
    F32,
    /// Two bytes a weight, rounded to nearest even.
    Bf16,
}

/// A model as the project passes it around: files, engines and trainers all convert from and to
/// this. Tensors carry Hugging Face names; exactly those the configuration implies are present.
#[derive(Clone, Debug, PartialEq)]
pub struct Checkpoint {
    /// Shape of the model.
    pub config: LmConfig,
    /// Weights by Hugging Face name.
    pub tensors: BTreeMap<String, HostTensor>,
}

impl Checkpoint {
    /// Loads a model folder: `config.json` and `model.safetensors`, or the shards that
    /// `model.safetensors.index.json` lists.
    ///
    /// # Errors
    /// Missing, leftover, misshapen or unreadable tensors, each named with its file.
    pub fn load(folder: &Path) -> Result<Self, LmError> {
        let config = LmConfig::from_file(&folder.join("config.json"))?;
        let mut tensors = BTreeMap::new();
        for file in weight_files(folder)? {
            read_safetensors(&file, &mut tensors)?;
        }
        let tensors = crate::fused::from_stored(&config, tensors, folder)?;
        let checkpoint = Self { config, tensors };
        checkpoint.check(folder)?;
        Ok(checkpoint)
    }

    /// Checks that exactly the tensors the configuration implies are there, in the right shapes.
    pub fn check(&self, origin: &Path) -> Result<(), LmError> {
        let expected = expected_tensors(&self.config);
        for (name, shape) in &expected {
            let tensor = self
                .tensors
                .get(name)
                .ok_or_else(|| LmError::MissingTensor {
                    path: origin.to_owned(),
                    tensor: name.clone(),
                })?;
            if tensor.shape != *shape || tensor.data.len() != shape.iter().product::<usize>() {
                return Err(LmError::Shape {
                    path: origin.to_owned(),
                    tensor: name.clone(),
                    found: tensor.shape.clone(),
                    expected: shape.clone(),
                });
            }
        }
        if self.tensors.len() > expected.len() {
            let known: std::collections::BTreeSet<_> =
                expected.iter().map(|(name, _)| name).collect();
            let mut leftover = self.tensors.keys().filter(|name| !known.contains(name));
            let first = leftover.next().cloned().unwrap_or_default();
            return Err(LmError::LeftoverTensors {
                path: origin.to_owned(),
                count: 1 + leftover.count(),
                first,
            });
        }
        Ok(())
    }

    /// Writes `config.json` and `model.safetensors`; the weights go to a temporary file first, so
    /// that an interrupted write leaves the previous file whole.
    pub fn save(&self, folder: &Path, stored: StoredType) -> Result<(), LmError> {
        std::fs::create_dir_all(folder).map_err(LmError::io(folder))?;
        let config_path = folder.join("config.json");
        let mut config = self.config.to_json();
        config["torch_dtype"] = match stored {
            StoredType::F32 => "float32",
            StoredType::Bf16 => "bfloat16",
        }
        .into();
        write_atomically(&config_path, format!("{config:#}\n").as_bytes())?;
        let tensors = crate::fused::to_stored(self);
        write_safetensors(&folder.join("model.safetensors"), &tensors, stored)
    }

    /// The named tensor.
    ///
    /// # Errors
    /// [`LmError::MissingTensor`].
    pub fn tensor(&self, name: &str) -> Result<&HostTensor, LmError> {
        self.tensors
            .get(name)
            .ok_or_else(|| LmError::MissingTensor {
                path: PathBuf::from("(checkpoint in memory)"),
                tensor: name.to_owned(),
            })
    }

    /// The output head `[vocab_size, hidden_size]`: its own tensor or the tied embedding.
    pub fn head(&self) -> Result<&HostTensor, LmError> {
        let name = if self.config.tie_word_embeddings {
            crate::names::EMBEDDING
        } else {
            HEAD
        };
        self.tensor(name)
    }
}

fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, LmError> {
    let index_path = folder.join("model.safetensors.index.json");
    if !index_path.exists() {
        return Ok(vec![folder.join("model.safetensors")]);
    }
    let text = std::fs::read_to_string(&index_path).map_err(LmError::io(&index_path))?;
    let malformed = |message: String| LmError::Config {
        path: index_path.clone(),
        key: "weight_map".into(),
        message,
    };
    let index: serde_json::Value =
        serde_json::from_str(&text).map_err(|e| malformed(e.to_string()))?;
    let map = index["weight_map"]
        .as_object()
        .ok_or_else(|| malformed("must be an object from tensor name to file name".into()))?;
    let mut names = std::collections::BTreeSet::new();
    for (tensor, file) in map {
        let file = file
            .as_str()
            .ok_or_else(|| malformed(format!("`{tensor}` has no file name")))?;
        names.insert(file.to_owned());
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}

/// Reads every tensor of one safetensors file as f32 into `into`.
pub fn read_safetensors(
    path: &Path,
    into: &mut BTreeMap<String, HostTensor>,
) -> Result<(), LmError> {
    let bytes = std::fs::read(path).map_err(LmError::io(path))?;
    let file = SafeTensors::deserialize(&bytes).map_err(|e| LmError::Safetensors {
        path: path.to_owned(),
        message: e.to_string(),
    })?;
    for (name, view) in file.tensors() {
        let data = to_f32(&view).ok_or_else(|| LmError::Dtype {
            path: path.to_owned(),
            tensor: name.clone(),
            dtype: format!("{:?}", view.dtype()),
        })?;
        into.insert(
            name,
            HostTensor {
                shape: view.shape().to_vec(),
                data,
            },
        );
    }
    Ok(())
}

fn to_f32(view: &TensorView<'_>) -> Option<Vec<f32>> {
    let bytes = view.data();
    let pairs = || {
        bytes
            .chunks_exact(2)
            .map(|b| u16::from_le_bytes([b[0], b[1]]))
    };
    match view.dtype() {
        Dtype::F32 => Some(
            bytes
                .chunks_exact(4)
                .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
        ),
        Dtype::BF16 => Some(pairs().map(|b| half::bf16::from_bits(b).to_f32()).collect()),
        Dtype::F16 => Some(pairs().map(|b| half::f16::from_bits(b).to_f32()).collect()),
        _ => None,
    }
}

/// Writes tensors to one safetensors file through a temporary file.
pub fn write_safetensors(
    path: &Path,
    tensors: &BTreeMap<String, HostTensor>,
    stored: StoredType,
) -> Result<(), LmError> {
    let dtype = match stored {
        StoredType::F32 => Dtype::F32,
        StoredType::Bf16 => Dtype::BF16,
    };
    let failed = |message: String| LmError::Safetensors {
        path: path.to_owned(),
        message,
    };
    let encoded: Vec<(&String, &HostTensor, Vec<u8>)> = tensors
        .iter()
        .map(|(name, t)| (name, t, encode(&t.data, stored)))
        .collect();
    let views = encoded
        .iter()
        .map(|(name, t, bytes)| Ok((*name, TensorView::new(dtype, t.shape.clone(), bytes)?)))
        .collect::<Result<Vec<_>, safetensors::SafeTensorError>>()
        .map_err(|e| failed(e.to_string()))?;
    let metadata = std::collections::HashMap::from([("format".to_owned(), "pt".to_owned())]);
    let bytes = safetensors::serialize(views, Some(metadata)).map_err(|e| failed(e.to_string()))?;
    write_atomically(path, &bytes)
}

fn encode(data: &[f32], stored: StoredType) -> Vec<u8> {
    match stored {
        StoredType::F32 => data.iter().flat_map(|x| x.to_le_bytes()).collect(),
        StoredType::Bf16 => data
            .iter()
            .flat_map(|x| half::bf16::from_f32(*x).to_le_bytes())
            .collect(),
    }
}

pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), LmError> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    std::fs::write(&part, bytes).map_err(LmError::io(&part))?;
    std::fs::rename(&part, path).map_err(LmError::io(path))
}
