//! What arms learnt, on disk: adapters or weights, optimisers, n-gram caches.
//!
//! ```text
//! state/ARM/drafter/weights.safetensors, optimizer.safetensors         all weights, or last blocks
//! state/ARM/drafter/mean.safetensors                                   their running mean, if it decodes
//! state/ARM/drafter/NAME/adapter_model.safetensors, ...                an adapter a folder
//! state/ARM/ngrams-DRAFTER-TARGET.bin                                  by names of vocabularies
//! state/ARM/heads/NAME/head.safetensors                                acceptance head and its training
//! state/ARM/heads/NAME/chains.txt                                      what throughput rules have seen
//! state/ARM/controller.json                                            what has cost and saved how many seconds
//! state/ARM/lookup.txt                                                 texts to look up in, what that was worth
//! state/ARM/texts-VOCABULARY.bin                                       texts with an automaton to look up in
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use lm::{
    AdamW, AdamWConfig, Adapter, Checkpoint, EMBEDDING, HostTensor, LmConfig, Moments, StoredType,
    Tail, first_of_last, in_layer, read_safetensors, write_safetensors,
};
use ngram_cache::NgramCache;
use sha2::{Digest, Sha256};
use spec_decode::Pair;
use vocab_align::{TokenId, Vocabulary};

use super::weights::LearntWeights;

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const MEAN: &str = "mean.safetensors";
const NAME: &str = "name.txt";
const CACHES: &str = "ngrams-";

/// Folder of an arm inside a job's state folder.
pub(super) fn arm_folder(root: &Path, arm: &str) -> PathBuf {
    root.join(file_name(arm))
}

/// A name any file system takes, for a folder of what belongs to `name`; different names stay different by the digits at the end.
pub fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let readable: String = name.chars().map(plain).take(40).collect();
    let digest = Sha256::digest(name.as_bytes());
    let digits: String = digest.iter().take(4).map(|b| format!("{b:02x}")).collect();
    format!("{readable}-{digits}")
}

/// Weights by name.
type Tensors = BTreeMap<String, HostTensor>;

/// What learns of the weights, in f32, with the optimiser.
pub(super) fn save_weights(folder: &Path, weights: &Tensors, optimizer: &AdamW) -> Result<()> {
    create(folder)?;
    write_safetensors(&folder.join(WEIGHTS), weights, StoredType::F32)?;
    save_optimizer(folder, optimizer)
}

/// What [`save_weights`] wrote of the last `blocks` blocks of a model; 0 for all weights.
pub(super) fn load_weights(
    folder: &Path,
    model: &LmConfig,
    blocks: usize,
    optimizer: AdamWConfig,
) -> Result<(LearntWeights, AdamW)> {
    let weights = read_weights(&folder.join(WEIGHTS), model, Some(blocks))?;
    Ok((weights, load_optimizer(folder, optimizer)?))
}

/// The running mean of the weights.
pub(super) fn save_mean(folder: &Path, mean: &Tensors) -> Result<()> {
    let path = folder.join(MEAN);
    Ok(write_safetensors(&path, mean, StoredType::F32)?)
}

/// What [`save_mean`] wrote of the last `blocks` blocks; `None` if it was not called.
pub(super) fn load_mean(
    folder: &Path,
    model: &LmConfig,
    blocks: usize,
) -> Result<Option<LearntWeights>> {
    let path = folder.join(MEAN);
    path.is_file()
        .then(|| read_weights(&path, model, Some(blocks)))
        .transpose()
}

/// What decodes of what [`save_weights`] and [`save_mean`] wrote, whatever it is of a model, with whether
/// it is the mean.
pub(super) fn load_decoding(folder: &Path, model: &LmConfig) -> Result<(LearntWeights, bool)> {
    let mean = folder.join(MEAN);
    let is_mean = mean.is_file();
    let path = if is_mean { mean } else { folder.join(WEIGHTS) };
    Ok((read_weights(&path, model, None)?, is_mean))
}

/// Whether [`save_weights`] wrote into a folder.
pub(super) fn has_weights(folder: &Path) -> bool {
    folder.join(WEIGHTS).is_file()
}

/// Updates that the optimiser beside weights or an adapter took.
pub(super) fn updates(folder: &Path) -> Result<u64> {
    Ok(load_optimizer(folder, AdamWConfig::default())?.state().0)
}

/// Weights of the last `blocks` blocks, 0 for all of them; of whatever there is, where that is not said.
fn read_weights(path: &Path, model: &LmConfig, blocks: Option<usize>) -> Result<LearntWeights> {
    let mut tensors = BTreeMap::new();
    read_safetensors(path, &mut tensors)?;
    let found = blocks_of(&tensors, model);
    let blocks = blocks.unwrap_or(found);
    if found != blocks {
        let named = |blocks: usize| match blocks {
            0 => "all weights".to_owned(),
            1 => "the last block".to_owned(),
            blocks => format!("the last {blocks} blocks"),
        };
        bail!(
            "{}: holds {}, and {} are to learn\nhint: learn.blocks = {found} goes on with it",
            path.display(),
            named(found),
            named(blocks)
        );
    }
    let config = model.clone();
    if blocks == 0 {
        let weights = Checkpoint { config, tensors };
        weights.check(path)?;
        return Ok(LearntWeights::Whole(weights));
    }
    let tail = Tail {
        first: first_of_last(model, blocks)?,
        config,
        tensors,
    };
    tail.check(path)?;
    Ok(LearntWeights::Tail(tail))
}

/// How many of the last blocks these tensors are of; 0 for all weights.
fn blocks_of(tensors: &Tensors, model: &LmConfig) -> usize {
    if tensors.contains_key(EMBEDDING) {
        return 0;
    }
    let is_there = |layer: &usize| {
        let prefix = in_layer(*layer, "");
        tensors.keys().any(|name| name.starts_with(&prefix))
    };
    (0..model.num_layers).filter(is_there).count()
}

/// One adapter, in f32, with its optimiser.
pub(super) fn save_adapter(
    folder: &Path,
    name: &str,
    adapter: &Adapter,
    base: &str,
    optimizer: &AdamW,
) -> Result<()> {
    write_name(folder, name)?;
    adapter.save(folder, base, StoredType::F32)?;
    save_optimizer(folder, optimizer)
}

/// An adapter as [`save_adapter`] and [`save_mean`] left it.
pub(super) struct SavedAdapter {
    pub(super) name: String,
    pub(super) adapter: Adapter,
    pub(super) optimizer: AdamW,
    /// Running mean of the drafter's weights with it.
    pub(super) mean: Option<LearntWeights>,
}

/// Every adapter in `folder`.
pub(super) fn load_adapters(
    folder: &Path,
    model: &LmConfig,
    optimizer: AdamWConfig,
) -> Result<Vec<SavedAdapter>> {
    let mut found = Vec::new();
    for (name, folder) in named_folders(folder)? {
        let adapter = Adapter::load(&folder, model)?;
        let blocks = adapter.config.blocks;
        found.push(SavedAdapter {
            name,
            adapter,
            optimizer: load_optimizer(&folder, optimizer)?,
            mean: load_mean(&folder, model, blocks)?,
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
    let mut tensors = BTreeMap::from([("steps".to_owned(), flat(limbs(steps)))]);
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

/// Pieces of a number, of 16 bits each: all of them exact in f32.
const LIMBS: usize = 4;

fn limbs(n: u64) -> Vec<f32> {
    let limb = |i: usize| f32::from((n >> (16 * i)) as u16);
    (0..LIMBS).map(limb).collect()
}

fn number(limbs: &[f32]) -> u64 {
    let parts = limbs.iter().enumerate();
    parts.map(|(i, x)| (*x as u64 & 0xffff) << (16 * i)).sum()
}

fn load_optimizer(folder: &Path, config: AdamWConfig) -> Result<AdamW> {
    let path = folder.join(OPTIMIZER);
    let mut tensors = BTreeMap::new();
    read_safetensors(&path, &mut tensors)?;
    let steps = match tensors.remove("steps").map(|t| t.data) {
        Some(limbs) if limbs.len() == LIMBS => number(&limbs),
        _ => bail!("{}: tensor `steps` is missing", path.display()),
    };
    let mut take = |name: &str| tensors.remove(name).map(|t| t.data);
    let moments = match (take("first"), take("second")) {
        (Some(first), Some(second)) => vec![Moments { first, second }],
        _ => Vec::new(),
    };
    Ok(AdamW::resume(config, steps, moments))
}

/// A name for a vocabulary that depends on its tokens alone: the first half of a SHA-256 over kind,
/// length and bytes (of special tokens, the name) of every id, hexadecimal.
pub(super) fn vocabulary_name<I: TokenId>(vocabulary: &Vocabulary<I>) -> String {
    let mut hasher = Sha256::new();
    for id in (0..vocabulary.len() as u32).map(I::new) {
        let (kind, bytes) = match (vocabulary.bytes(id), vocabulary.content(id)) {
            (Some(bytes), _) => (1, bytes),
            (None, Some(name)) => (2, name.as_bytes()),
            (None, None) => (0, &[][..]),
        };
        hasher.update([kind]);
        hasher.update((bytes.len() as u32).to_le_bytes());
        hasher.update(bytes);
    }
    let digest = hasher.finalize();
    digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
}

/// File of the n-grams between two vocabularies.
pub fn cache_name(pair: &Pair) -> String {
    let (draft, target) = (vocabulary_name(&pair.draft), vocabulary_name(&pair.target));
    format!("{CACHES}{draft}-{target}.bin")
}

/// Writes the caches of one drafter, which are found by the fingerprint of the target's vocabulary,
/// under names that other programs find as well.
pub(super) fn save_caches(
    folder: &Path,
    pairs: &[&Pair],
    caches: &BTreeMap<u64, NgramCache>,
) -> Result<()> {
    create(folder)?;
    for (fingerprint, cache) in caches {
        if let Some(pair) = pairs
            .iter()
            .find(|pair| pair.target.fingerprint() == *fingerprint)
        {
            cache.save(folder.join(cache_name(pair)))?;
        }
    }
    Ok(())
}

/// What [`save_caches`] wrote for these pairs.
///
/// # Errors
/// A file that is damaged or belongs to none of the pairs: its n-grams would be lost in silence.
pub(super) fn load_caches(folder: &Path, pairs: &[&Pair]) -> Result<BTreeMap<u64, NgramCache>> {
    let known: BTreeMap<String, &Pair> = pairs.iter().map(|p| (cache_name(p), *p)).collect();
    let mut caches = BTreeMap::new();
    for path in entries(folder)? {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned());
        let Some(name) = name.filter(|name| name.starts_with(CACHES)) else {
            continue;
        };
        let Some(pair) = known.get(&name) else {
            bail!(
                "{}: n-grams between other vocabularies than those of this job, whose file would be {}",
                path.display(),
                known.keys().cloned().collect::<Vec<_>>().join(" or ")
            );
        };
        let cache = NgramCache::load(&path)?;
        cache
            .check_bytes(&pair.draft, &pair.target)
            .with_context(|| path.display().to_string())?;
        caches.insert(pair.target.fingerprint(), cache);
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

/// Folders in `folder` with the names they stand for, as [`write_name`] left them; none where there
/// is no such folder.
pub(super) fn named_folders(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let named = |folder: PathBuf| {
        let path = folder.join(NAME);
        let name = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        Ok((name, folder))
    };
    entries(folder)?.into_iter().map(named).collect()
}

/// Makes the folder that stands for `name`.
pub(super) fn write_name(folder: &Path, name: &str) -> Result<()> {
    create(folder)?;
    let path = folder.join(NAME);
    std::fs::write(&path, name).with_context(|| path.display().to_string())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let read = |e| anyhow!("{}: {e}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(read)?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|e| Ok(e?.path())).collect();
    let mut paths = paths.map_err(read)?;
    paths.sort();
    Ok(paths)
}

pub(super) fn create(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_as_they_were_written() {
        let folder = tempfile::tempdir().unwrap();
        for steps in [0, 65_535, 1 << 24, (1 << 40) + 12_345, u64::MAX] {
            let optimizer = AdamW::resume(AdamWConfig::default(), steps, Vec::new());
            save_optimizer(folder.path(), &optimizer).unwrap();
            let read = load_optimizer(folder.path(), AdamWConfig::default()).unwrap();
            assert_eq!(read.state().0, steps);
        }
    }

    #[test]
    fn names_become_file_names_that_stay_apart() {
        let name = file_name("L_DM + λ L_N-gram");
        assert!(name.starts_with("L-DM"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        assert_ne!(file_name("a b"), file_name("a-b"));
        assert_eq!(file_name("a b"), file_name("a b"));
    }
}
