//! Writing models and other tensors as safetensors.
//!
//! Every file is written under a temporary name, synced, and moved to its place, so that neither an
//! interrupted program nor a power failure leaves half a file under the name of a whole one.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use serde_json::json;
use weights::{Encoding, Format, TensorFiles};

use crate::names::{self, expected_tensors};
use crate::source::{RowBuffer, TensorSource};
use crate::{Checkpoint, HostTensor, LmError, StoredType, saturated_half};

const ONE_FILE: &str = "model.safetensors";
const INDEX: &str = "model.safetensors.index.json";
/// Number of values that are read, encoded and written at once.
pub(crate) const AT_ONCE: usize = 1 << 20;

/// Destination of written values.
type Sink<'a> = dyn FnMut(&[f32]) -> Result<(), LmError> + 'a;

impl StoredType {
    fn encoding(self) -> Encoding {
        match self {
            Self::F32 => Encoding::F32,
            Self::Bf16 => Encoding::Bf16,
            Self::F16 => Encoding::F16,
        }
    }

    /// The value that is read back after `x` was written.
    pub fn rounded(self, x: f32) -> f32 {
        match self {
            Self::F32 => x,
            Self::Bf16 => half::bf16::from_f32(x).to_f32(),
            Self::F16 => saturated_half(x).to_f32(),
        }
    }

    /// Name of the type in `config.json`.
    pub fn torch_name(self) -> &'static str {
        match self {
            Self::F32 => "float32",
            Self::Bf16 => "bfloat16",
            Self::F16 => "float16",
        }
    }
}

/// A file that is being written under a temporary name. One that is not finished is removed.
pub(crate) struct Part {
    /// Path of the file once it is finished.
    pub(crate) path: PathBuf,
    /// Its temporary path.
    pub(crate) part: PathBuf,
    to: BufWriter<File>,
    is_kept: bool,
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_kept {
            // The earlier error is the one to report.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

impl Part {
    pub(crate) fn new(path: &Path) -> Result<Self, LmError> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let file = File::create(&part).map_err(LmError::io(&part))?;
        Ok(Self {
            path: path.to_owned(),
            part,
            to: BufWriter::with_capacity(1 << 20, file),
            is_kept: false,
        })
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), LmError> {
        self.to.write_all(bytes).map_err(LmError::io(&self.part))
    }

    /// Hands the written bytes to the operating system, so that the file can be read under its
    /// temporary name.
    pub(crate) fn flush(&mut self) -> Result<(), LmError> {
        self.to.flush().map_err(LmError::io(&self.part))
    }

    /// Moves the file to its place, with all of its content on the disk.
    pub(crate) fn finish(mut self) -> Result<(), LmError> {
        self.flush()?;
        let synced = self.to.get_ref().sync_all();
        synced.map_err(LmError::io(&self.part))?;
        std::fs::rename(&self.part, &self.path).map_err(LmError::io(&self.path))?;
        self.is_kept = true;
        sync_folder(self.path.parent().unwrap_or(Path::new(".")))
    }
}

/// Syncs the names in a folder to the disk. Nothing is done on systems where folders cannot be
/// opened.
fn sync_folder(folder: &Path) -> Result<(), LmError> {
    let folder = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    match cfg!(unix) {
        true => {
            let opened = File::open(folder).map_err(LmError::io(folder))?;
            opened.sync_all().map_err(LmError::io(folder))
        }
        false => Ok(()),
    }
}

pub(crate) fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), LmError> {
    let mut part = Part::new(path)?;
    part.write(bytes)?;
    part.finish()
}

/// Writes one safetensors file: the header, then the values of each tensor as `values` passes them
/// to its sink.
fn write_file(
    path: &Path,
    tensors: &[(String, Vec<usize>)],
    stored: StoredType,
    mut values: impl FnMut(&str, &mut Sink<'_>) -> Result<(), LmError>,
) -> Result<(), LmError> {
    let mut header = serde_json::Map::new();
    header.insert("__metadata__".into(), json!({ "format": "pt" }));
    let dtype = stored.encoding().to_string().to_uppercase();
    let mut end = 0;
    for (name, shape) in tensors {
        let start = end;
        end += bytes_of(shape, stored);
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": [start, end] });
        header.insert(name.clone(), entry);
    }
    let mut header = serde_json::Value::from(header).to_string().into_bytes();
    // Values start at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    let mut part = Part::new(path)?;
    part.write(&(header.len() as u64).to_le_bytes())?;
    part.write(&header)?;
    let mut bytes = Vec::new();
    for (name, _) in tensors {
        values(name, &mut |values: &[f32]| {
            for values in values.chunks(AT_ONCE) {
                bytes.clear();
                let is_written = stored.encoding().encode(values, &mut bytes);
                debug_assert!(is_written, "{stored:?}");
                part.write(&bytes)?;
            }
            Ok(())
        })?;
    }
    part.finish()
}

/// Writes tensors to one safetensors file through a temporary file.
///
/// # Errors
/// A file that cannot be written.
pub fn write_safetensors(
    path: &Path,
    tensors: &BTreeMap<String, HostTensor>,
    stored: StoredType,
) -> Result<(), LmError> {
    let shapes: Vec<_> = tensors
        .iter()
        .map(|(name, t)| (name.clone(), t.shape.clone()))
        .collect();
    write_file(path, &shapes, stored, |name, sink| {
        match tensors.get(name) {
            Some(tensor) => sink(&tensor.data),
            None => Ok(()),
        }
    })
}

/// Reads every tensor of one safetensors file, as f32.
///
/// # Errors
/// A file that is missing, malformed, or holds a value that is no finite number, as the weights of
/// a diverged training do.
pub fn read_safetensors(path: &Path) -> Result<BTreeMap<String, HostTensor>, LmError> {
    let files = TensorFiles::of_file(Format::Safetensors, path)?;
    let mut buffer = weights::RowBuffer::default();
    let mut tensors = BTreeMap::new();
    for (name, tensor) in files.tensors() {
        let data = files.rows(name, 0..tensor.rows(), &mut buffer)?.to_vec();
        if let Some(at) = data.iter().position(|x| !x.is_finite()) {
            return Err(LmError::NotFinite {
                path: path.to_owned(),
                tensor: name.to_owned(),
                value: data[at],
                at,
            });
        }
        let shape = tensor.shape.clone();
        tensors.insert(name.to_owned(), HostTensor { shape, data });
    }
    Ok(tensors)
}

impl Checkpoint {
    /// Writes `model.safetensors`, then `config.json`, each through a temporary file that is
    /// synced. An interrupted write leaves the previous files whole, and a folder with a new
    /// `config.json` has the weights that belong to it.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(&self, folder: &Path, stored: StoredType) -> Result<(), LmError> {
        write_model(self, folder, stored, u64::MAX)
    }
}

/// Writes a model folder, a few rows at a time. Weights are written in files of at most `shard`
/// bytes (except for larger tensors), with an index if there are several, and `config.json` is
/// written last.
///
/// # Errors
/// A folder that cannot be written; those of the source.
pub fn write_model(
    source: &dyn TensorSource,
    folder: &Path,
    stored: StoredType,
    shard: u64,
) -> Result<(), LmError> {
    std::fs::create_dir_all(folder).map_err(LmError::io(folder))?;
    let shards = shards(source, stored, shard);
    let several = shards.len() > 1;
    let mut map = serde_json::Map::new();
    for (i, tensors) in shards.iter().enumerate() {
        let file = match several {
            true => format!("model-{:05}-of-{:05}.safetensors", i + 1, shards.len()),
            false => ONE_FILE.to_owned(),
        };
        write_file(&folder.join(&file), tensors, stored, |name, sink| {
            copy(source, name, sink)
        })?;
        map.extend(
            tensors
                .iter()
                .map(|(name, _)| (name.clone(), file.clone().into())),
        );
    }
    // Weights of an earlier model must not be read instead: readers prefer one file to an index.
    let index = folder.join(INDEX);
    if several {
        let size: usize = shards
            .iter()
            .flatten()
            .map(|(_, shape)| bytes_of(shape, stored))
            .sum();
        let text = json!({ "metadata": { "total_size": size }, "weight_map": map });
        write_atomically(&index, format!("{text:#}\n").as_bytes())?;
    }
    let earlier = match several {
        true => folder.join(ONE_FILE),
        false => index,
    };
    if earlier.exists() {
        std::fs::remove_file(&earlier).map_err(LmError::io(&earlier))?;
    }
    let mut config = source.config().to_json();
    config["torch_dtype"] = stored.torch_name().into();
    write_atomically(
        &folder.join("config.json"),
        format!("{config:#}\n").as_bytes(),
    )
}

fn bytes_of(shape: &[usize], stored: StoredType) -> usize {
    shape.iter().product::<usize>() * stored.encoding().block().bytes
}

/// The tensors of each file, in order of names, as a `BTreeMap` has them.
fn shards(
    source: &dyn TensorSource,
    stored: StoredType,
    most: u64,
) -> Vec<Vec<(String, Vec<usize>)>> {
    let config = source.config();
    let mut tensors: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, shape) in expected_tensors(config) {
        // Projections that files of the family store as one follow each other, row after row.
        let whole = tensors.entry(names::stored(config, &name));
        whole
            .and_modify(|whole| whole[0] += shape[0])
            .or_insert(shape);
    }
    let mut shards = vec![Vec::new()];
    let mut size = 0;
    for (name, shape) in tensors {
        let bytes = bytes_of(&shape, stored) as u64;
        if size > 0 && size + bytes > most {
            shards.push(Vec::new());
            size = 0;
        }
        size += bytes;
        if let Some(shard) = shards.last_mut() {
            shard.push((name, shape));
        }
    }
    shards
}

/// Passes the rows of a stored tensor to `sink`: those of each of its parts, in their order.
fn copy(source: &dyn TensorSource, name: &str, sink: &mut Sink<'_>) -> Result<(), LmError> {
    let config = source.config();
    let mut buffer = RowBuffer::default();
    let parts = expected_tensors(config).into_iter();
    for (own, shape) in parts.filter(|(own, _)| names::stored(config, own) == name) {
        let (count, width) = (
            shape.first().copied().unwrap_or(1),
            shape.iter().skip(1).product::<usize>(),
        );
        let step = (AT_ONCE / width.max(1)).max(1);
        for start in (0..count).step_by(step) {
            sink(source.rows(&own, start..count.min(start + step), &mut buffer)?)?;
        }
    }
    Ok(())
}
