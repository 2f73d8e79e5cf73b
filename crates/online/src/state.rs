//! What arms learnt, on disk: adapters or weights, optimisers, n-gram caches.
//!
//! ```text
//! state/ARM/drafter/weights.safetensors, optimizer.safetensors         all weights trained
//! state/ARM/drafter/mean.safetensors                                   their running mean, if it decodes
//! state/ARM/drafter/NAME/adapter_model.safetensors, ...                an adapter a folder
//! state/ARM/ngrams-DRAFTER-TARGET.bin                                  by vocabularies
//! state/ARM/head.safetensors                                           acceptance head and its training
//! state/ARM/chains.txt                                                 what throughput rules have seen
//! state/ARM/lookup.txt                                                 texts to look up in, what that was worth
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use lm::{
    AdamW, AdamWConfig, Adapter, Checkpoint, HostTensor, LmConfig, Moments, StoredType,
    read_safetensors, write_safetensors,
};
use ngram_cache::NgramCache;
use sha2::{Digest, Sha256};

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const MEAN: &str = "mean.safetensors";
const NAME: &str = "name.txt";

/// Folder of an arm inside a job's state folder.
pub(super) fn arm_folder(root: &Path, arm: &str) -> PathBuf {
    root.join(file_name(arm))
}

/// A name any file system takes; different names stay different by the digits at the end.
pub(super) fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let readable: String = name.chars().map(plain).take(40).collect();
    let digest = Sha256::digest(name.as_bytes());
    let digits: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{readable}-{digits}")
}

/// All weights, in f32, with the optimiser.
pub(super) fn save_weights(folder: &Path, weights: &Checkpoint, optimizer: &AdamW) -> Result<()> {
    create(folder)?;
    write_safetensors(&folder.join(WEIGHTS), &weights.tensors, StoredType::F32)?;
    save_optimizer(folder, optimizer)
}

/// What [`save_weights`] wrote.
pub(super) fn load_weights(
    folder: &Path,
    model: &LmConfig,
    optimizer: AdamWConfig,
) -> Result<(Checkpoint, AdamW)> {
    let weights = read_weights(&folder.join(WEIGHTS), model)?;
    Ok((weights, load_optimizer(folder, optimizer)?))
}

/// The running mean of the weights.
pub(super) fn save_mean(folder: &Path, mean: &Checkpoint) -> Result<()> {
    let path = folder.join(MEAN);
    Ok(write_safetensors(&path, &mean.tensors, StoredType::F32)?)
}

/// What [`save_mean`] wrote; `None` if it was not called.
pub(super) fn load_mean(folder: &Path, model: &LmConfig) -> Result<Option<Checkpoint>> {
    let path = folder.join(MEAN);
    path.is_file()
        .then(|| read_weights(&path, model))
        .transpose()
}

fn read_weights(path: &Path, model: &LmConfig) -> Result<Checkpoint> {
    let mut tensors = BTreeMap::new();
    read_safetensors(path, &mut tensors)?;
    let weights = Checkpoint {
        config: model.clone(),
        tensors,
    };
    weights.check(path)?;
    Ok(weights)
}

/// One adapter, in f32, with its optimiser.
pub(super) fn save_adapter(
    folder: &Path,
    name: &str,
    adapter: &Adapter,
    base: &str,
    optimizer: &AdamW,
) -> Result<()> {
    create(folder)?;
    adapter.save(folder, base, StoredType::F32)?;
    let path = folder.join(NAME);
    std::fs::write(&path, name).with_context(|| path.display().to_string())?;
    save_optimizer(folder, optimizer)
}

/// An adapter as [`save_adapter`] and [`save_mean`] left it.
pub(super) struct SavedAdapter {
    pub(super) name: String,
    pub(super) adapter: Adapter,
    pub(super) optimizer: AdamW,
    /// Running mean of the drafter's weights with it.
    pub(super) mean: Option<Checkpoint>,
}

/// Every adapter in `folder`.
pub(super) fn load_adapters(
    folder: &Path,
    model: &LmConfig,
    optimizer: AdamWConfig,
) -> Result<Vec<SavedAdapter>> {
    let mut found = Vec::new();
    for folder in entries(folder)? {
        let path = folder.join(NAME);
        let name = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        found.push(SavedAdapter {
            name,
            adapter: Adapter::load(&folder, model)?,
            optimizer: load_optimizer(&folder, optimizer)?,
            mean: load_mean(&folder, model)?,
        });
    }
    Ok(found)
}

fn save_optimizer(folder: &Path, optimizer: &AdamW) -> Result<()> {
    let (steps, moments) = optimizer.state();
    let flat = |data: Vec<f32>| HostTensor {
        shape: vec![data.len()],
        data,
    };
    // Halves of 16 bits are exact in f32.
    let halves = vec![(steps >> 16) as f32, (steps & 0xffff) as f32];
    let mut tensors = BTreeMap::from([("steps".to_owned(), flat(halves))]);
    if let [moments] = moments {
        tensors.insert("first".into(), flat(moments.first.clone()));
        tensors.insert("second".into(), flat(moments.second.clone()));
    }
    Ok(write_safetensors(
        &folder.join(OPTIMIZER),
        &tensors,
        StoredType::F32,
    )?)
}

fn load_optimizer(folder: &Path, config: AdamWConfig) -> Result<AdamW> {
    let path = folder.join(OPTIMIZER);
    let mut tensors = BTreeMap::new();
    read_safetensors(&path, &mut tensors)?;
    let steps = match tensors.remove("steps").map(|t| t.data) {
        Some(halves) if halves.len() == 2 => ((halves[0] as u64) << 16) + halves[1] as u64,
        _ => bail!("{}: tensor `steps` is missing", path.display()),
    };
    let mut take = |name: &str| tensors.remove(name).map(|t| t.data);
    let moments = match (take("first"), take("second")) {
        (Some(first), Some(second)) => vec![Moments { first, second }],
        _ => Vec::new(),
    };
    Ok(AdamW::resume(config, steps, moments))
}

/// Writes the caches of one drafter, by the fingerprint of the target's vocabulary.
pub(super) fn save_caches(
    folder: &Path,
    drafter: u64,
    caches: &BTreeMap<u64, NgramCache>,
) -> Result<()> {
    create(folder)?;
    for (target, cache) in caches {
        cache.save(folder.join(format!("ngrams-{drafter:016x}-{target:016x}.bin")))?;
    }
    Ok(())
}

/// What [`save_caches`] wrote for this drafter.
pub(super) fn load_caches(folder: &Path, drafter: u64) -> Result<BTreeMap<u64, NgramCache>> {
    let prefix = format!("ngrams-{drafter:016x}-");
    let mut caches = BTreeMap::new();
    for path in entries(folder)? {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let digits = name.as_deref().and_then(|n| {
            let digits = n.strip_prefix(&prefix)?.strip_suffix(".bin")?;
            u64::from_str_radix(digits, 16).ok()
        });
        if let Some(target) = digits {
            caches.insert(target, NgramCache::load(&path)?);
        }
    }
    Ok(caches)
}

/// Every file of a state folder, in the order of their names.
pub(super) fn files(root: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for path in entries(root)? {
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |e| anyhow!("{}: {e}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(read)?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|e| Ok(e?.path())).collect();
    let mut paths = paths.map_err(read)?;
    paths.sort();
    Ok(paths)
}

fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_file_names_that_stay_apart() {
        let name = file_name("L_DM + λ L_N-gram");
        assert!(name.starts_with("L-DM"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        assert_ne!(file_name("a b"), file_name("a-b"));
        assert_eq!(file_name("a b"), file_name("a b"));
    }
}
