//! Weights of a folder, in any format.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::file::OpenFile;
use crate::tensor::{RowBuffer, StoredTensor};
use crate::{Encoding, GgufValue, WeightsError, gguf, safetensors, torch};

/// Format of the files with weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// `model.safetensors`, or shards and `model.safetensors.index.json`.
    Safetensors,
    /// `pytorch_model.bin`, or shards and `pytorch_model.bin.index.json`.
    Torch,
    /// A `.gguf` file, or parts that are numbered `-00001-of-00003`.
    Gguf,
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Safetensors => "safetensors",
            Self::Torch => "PyTorch",
            Self::Gguf => "GGUF",
        })
    }
}

/// Tensors of one or several files, by name.
#[derive(Debug)]
pub struct TensorFiles {
    format: Format,
    files: Vec<OpenFile>,
    /// Tensors by name, each with the index of the file that holds it.
    tensors: BTreeMap<String, (usize, StoredTensor)>,
    keys: BTreeMap<String, GgufValue>,
}

/// Index of a sharded model: `model.safetensors.index.json` and the like.
#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl TensorFiles {
    /// Opens the weights of a model folder and reads their headers. Safetensors are preferred, then
    /// PyTorch's files, then GGUF; of each, one file to an index and its shards, which may be what
    /// was there before.
    ///
    /// # Errors
    /// None of these is there; a file is missing, malformed or cut short; a tensor is in two files;
    /// an index names files outside the folder.
    pub fn open(folder: &Path) -> Result<Self, WeightsError> {
        for (format, name) in [
            (Format::Safetensors, "model.safetensors"),
            (Format::Torch, "pytorch_model.bin"),
        ] {
            // A broken link counts as present: another format must not silently take its place.
            let file = folder.join(name);
            if file.exists() || file.is_symlink() {
                return Self::of(format, [file]);
            }
            let index = folder.join(format!("{name}.index.json"));
            if index.exists() || index.is_symlink() {
                return Self::indexed(format, &index);
            }
        }
        let files = gguf_files(folder)?;
        if files.is_empty() {
            return Err(WeightsError::NoWeights {
                path: folder.to_owned(),
            });
        }
        Self::of(Format::Gguf, files)
    }

    /// Opens one file, or all parts of a GGUF file by the name of any of them.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_file(format: Format, file: &Path) -> Result<Self, WeightsError> {
        match format {
            Format::Gguf => Self::of(format, gguf_parts(file)),
            _ => Self::of(format, [file.to_owned()]),
        }
    }

    fn indexed(format: Format, path: &Path) -> Result<Self, WeightsError> {
        let folder = path.parent().unwrap_or(Path::new("."));
        OpenFile::open(path)?;
        let text = std::fs::read(path).map_err(WeightsError::io(path))?;
        // Some editors write a byte order mark in front.
        let text = text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(&text);
        let index: Index =
            serde_json::from_slice(text).map_err(|error| WeightsError::Malformed {
                path: path.to_owned(),
                format: "index",
                message: format!("weight_map: {error}"),
            })?;
        let names: BTreeSet<&String> = index.weight_map.values().collect();
        let plain = |name: &str| {
            let mut parts = Path::new(name).components();
            let first = parts.next();
            matches!(first, Some(std::path::Component::Normal(_))) && parts.next().is_none()
        };
        if let Some(name) = names.iter().find(|name| !plain(name)) {
            return Err(WeightsError::Escape {
                path: path.to_owned(),
                file: (*name).clone(),
            });
        }
        let files = Self::of(format, names.into_iter().map(|name| folder.join(name)))?;
        for (tensor, file) in &index.weight_map {
            let found = files.tensors.get(tensor);
            if found.is_none_or(|(at, _)| files.files[*at].path != folder.join(file)) {
                return Err(WeightsError::Tensor(format!(
                    "{}: tensor `{tensor}` is not in `{file}`, where the index says it is",
                    path.display()
                )));
            }
        }
        Ok(files)
    }

    fn of(format: Format, paths: impl IntoIterator<Item = PathBuf>) -> Result<Self, WeightsError> {
        let mut of = Self {
            format,
            files: Vec::new(),
            tensors: BTreeMap::new(),
            keys: BTreeMap::new(),
        };
        for path in paths {
            let file = OpenFile::open(&path)?;
            let tensors = match format {
                Format::Safetensors => safetensors::tensors(&file)?,
                Format::Torch => torch::tensors(&file)?,
                Format::Gguf => {
                    let contents = gguf::contents(&file)?;
                    // The keys of the first part describe the whole model.
                    if of.files.is_empty() {
                        of.keys = contents.keys;
                    }
                    contents.tensors
                }
            };
            let at = of.files.len();
            of.files.push(file);
            for (name, tensor) in tensors {
                if let Some((first, _)) = of.tensors.get(&name) {
                    return Err(WeightsError::Tensor(format!(
                        "tensor `{name}` is in two files: {} and {}",
                        of.files[*first].path.display(),
                        path.display()
                    )));
                }
                of.tensors.insert(name, (at, tensor));
            }
        }
        of.check_parts()?;
        Ok(of)
    }

    /// Checks that all parts are there if a file says that it is one of several.
    fn check_parts(&self) -> Result<(), WeightsError> {
        let found = self.files.len();
        match (self.keys.get("split.count"), self.files.first()) {
            (Some(GgufValue::Int(count)), Some(first)) if *count > found as i128 => {
                Err(WeightsError::Parts {
                    path: first.path.clone(),
                    count: *count,
                    found,
                })
            }
            _ => Ok(()),
        }
    }

    /// Format of the files.
    pub fn format(&self) -> Format {
        self.format
    }

    /// Total size of all files, in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.len).sum()
    }

    /// Paths of the files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| file.path.as_path())
    }

    /// Every tensor with its name, in order of names.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, &StoredTensor)> {
        self.tensors
            .iter()
            .map(|(name, (_, tensor))| (name.as_str(), tensor))
    }

    /// Keys of a GGUF file; empty in other formats.
    pub fn keys(&self) -> &BTreeMap<String, GgufValue> {
        &self.keys
    }

    /// The list of texts under a key of a GGUF file, such as its vocabulary; `None` if there is
    /// none.
    ///
    /// # Errors
    /// A file that cannot be read any more; texts that are not UTF-8.
    pub fn texts(&self, key: &str) -> Result<Option<Vec<String>>, WeightsError> {
        match (self.keys.get(key), self.files.first()) {
            (Some(GgufValue::Texts { count, at }), Some(file)) => {
                gguf::texts(file, *count, *at).map(Some)
            }
            _ => Ok(None),
        }
    }

    /// The tensor of this name, if there is one.
    pub fn get(&self, name: &str) -> Option<&StoredTensor> {
        self.tensors.get(name).map(|(_, tensor)| tensor)
    }

    /// The file that holds a tensor; empty if there is no such tensor.
    pub fn path_of(&self, name: &str) -> PathBuf {
        let found = self.find(name);
        found.map_or_else(|_| PathBuf::new(), |(file, _)| file.path.clone())
    }

    /// Encoding of a tensor.
    ///
    /// # Errors
    /// No such tensor; a type that is not read.
    pub fn encoding(&self, name: &str) -> Result<Encoding, WeightsError> {
        let (file, tensor) = self.find(name)?;
        let encoding = tensor.encoding.clone();
        encoding.map_err(|dtype| WeightsError::dtype(&file.path, name, &dtype))
    }

    /// Reads `rows` of a tensor as f32, row after row. A row is an entry of the outermost
    /// dimension.
    ///
    /// # Errors
    /// No such tensor or rows; a type that is not read; a file that cannot be read any more.
    pub fn rows<'a>(
        &self,
        name: &str,
        rows: Range<usize>,
        buffer: &'a mut RowBuffer,
    ) -> Result<&'a [f32], WeightsError> {
        let encoding = self.encoding(name)?;
        let (file, tensor) = self.find(name)?;
        if rows.start > rows.end || rows.end > tensor.rows() {
            let path = &file.path;
            return Err(WeightsError::beyond(path, name, tensor.rows(), rows));
        }
        tensor.read(file, encoding, rows, buffer)
    }

    fn find(&self, name: &str) -> Result<(&OpenFile, &StoredTensor), WeightsError> {
        match self.tensors.get(name) {
            Some((file, tensor)) => Ok((&self.files[*file], tensor)),
            None => Err(WeightsError::Tensor(format!("there is no tensor `{name}`"))),
        }
    }
}

/// Splits the name of a part of a GGUF file into the prefix that all parts share, the part's
/// number, and the number of parts.
fn part_of(name: &str) -> Option<(&str, &str, &str)> {
    let (stem, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = stem.rsplit_once('-')?;
    let digits = |text: &str| text.len() == 5 && text.bytes().all(|b| b.is_ascii_digit());
    (digits(number) && digits(count)).then_some((stem, number, count))
}

/// All parts, in order, of the model that a file is a part of by its name
/// (`NAME-00001-of-00003.gguf`). A file with another name is its own only part.
fn gguf_parts(file: &Path) -> Vec<PathBuf> {
    let name = file.file_name().map(|name| name.to_string_lossy());
    let parts = name
        .as_deref()
        .and_then(part_of)
        .and_then(|(stem, _, count)| {
            let most: usize = count.parse().ok().filter(|count| *count > 0)?;
            let part = |number| file.with_file_name(format!("{stem}-{number:05}-of-{count}.gguf"));
            Some((1..=most).map(part).collect())
        });
    parts.unwrap_or_else(|| vec![file.to_owned()])
}

/// True if a folder holds GGUF files.
pub fn has_gguf(folder: &Path) -> bool {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names = entries.map(|entry| entry.file_name());
    names.any(|name| name.to_string_lossy().ends_with(".gguf"))
}

/// The GGUF files of a folder: one, or all parts of one model.
fn gguf_files(folder: &Path) -> Result<Vec<PathBuf>, WeightsError> {
    let entries = std::fs::read_dir(folder).map_err(WeightsError::io(folder))?;
    let mut names = Vec::new();
    for entry in entries {
        let name = entry.map_err(WeightsError::io(folder))?.file_name();
        let name = name.to_string_lossy().into_owned();
        if name.ends_with(".gguf") {
            names.push(name);
        }
    }
    names.sort_unstable();
    let stem = |name: &str| {
        let (stem, _, count) = part_of(name)?;
        Some((stem.to_owned(), count.to_owned()))
    };
    let other = |name: &&String| stem(name).is_none() || stem(name) != stem(&names[0]);
    if names.len() > 1
        && let Some(other) = names[1..].iter().find(other)
    {
        return Err(WeightsError::Ambiguous {
            path: folder.to_owned(),
            first: names[0].clone(),
            second: other.clone(),
        });
    }
    Ok(names.into_iter().map(|name| folder.join(name)).collect())
}
