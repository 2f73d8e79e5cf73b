//! Files of weights and adapters, with their optimisers and running means.

use std::collections::BTreeMap;
use std::path::Path;

use lm::{
    AdamW, AdamWConfig, Adapter, Checkpoint, EMBEDDING, HostTensor, LmConfig, Moments, StoredType,
    Tail, first_of_last, in_layer, read_safetensors, write_safetensors,
};

use super::names::{create_named, named_folders};
use crate::error::{OnlineError, Result};
use crate::weights::{Gradients, LearntWeights};

const WEIGHTS: &str = "weights.safetensors";
const OPTIMIZER: &str = "optimizer.safetensors";
const MEAN: &str = "mean.safetensors";

/// Weights by name.
type Tensors = BTreeMap<String, HostTensor>;

/// Writes one training into a folder of its name in `root`, in f32: the adapter of `trainer`, for
/// the model `base`, or its weights. `mean` is the running mean of the weights.
pub(crate) fn save(
    root: &Path,
    name: &str,
    trainer: &Gradients,
    base: &str,
    mean: Option<&Tensors>,
) -> Result<()> {
    let folder = &create_named(root, name)?;
    let write =
        |file, tensors: &Tensors| write_safetensors(&folder.join(file), tensors, StoredType::F32);
    match trainer.adapter() {
        Some(adapter) => adapter.save(folder, base)?,
        None => write(WEIGHTS, trainer.weights().tensors())?,
    }
    if let Some(mean) = mean {
        write(MEAN, mean)?;
    }
    Ok(write(OPTIMIZER, &of_optimizer(trainer.optimizer()))?)
}

/// Loads the weights called `name`, or the only ones, of the last `blocks` blocks of a model (0 for
/// all), with their optimiser and their running mean, if there is one.
pub(crate) fn load_weights(
    root: &Path,
    name: &str,
    model: &LmConfig,
    blocks: usize,
    optimizer: AdamWConfig,
) -> Result<(LearntWeights, AdamW, Option<LearntWeights>)> {
    let mut all = named_folders(root)?;
    if all.len() > 1 {
        all.retain(|(own, _)| own == name);
    }
    let [(_, folder)] = all.as_slice() else {
        return Err(OnlineError::NoWeights {
            folder: root.to_owned(),
            name: name.to_owned(),
        });
    };
    let weights = read_weights(&folder.join(WEIGHTS), model, Some(blocks))?;
    let mean = load_mean(folder, model, Some(blocks))?;
    Ok((weights, load_optimizer(folder, optimizer)?, mean))
}

/// Loads the running mean of the last `blocks` blocks, or of any part; `None` if there is none.
pub(crate) fn load_mean(
    folder: &Path,
    model: &LmConfig,
    blocks: Option<usize>,
) -> Result<Option<LearntWeights>> {
    let path = folder.join(MEAN);
    path.is_file()
        .then(|| read_weights(&path, model, blocks))
        .transpose()
}

/// The last weights in a folder, of any part of a model.
pub(crate) fn load_last(folder: &Path, model: &LmConfig) -> Result<LearntWeights> {
    read_weights(&folder.join(WEIGHTS), model, None)
}

/// Number of updates of the optimiser whose file lies beside weights or an adapter.
pub(crate) fn updates(folder: &Path) -> Result<u64> {
    Ok(load_optimizer(folder, AdamWConfig::default())?.steps())
}

/// Weights of the last `blocks` blocks, 0 for all of them; `None` accepts any part.
fn read_weights(path: &Path, model: &LmConfig, blocks: Option<usize>) -> Result<LearntWeights> {
    let tensors = read_safetensors(path)?;
    let found = blocks_of(&tensors, model);
    let blocks = blocks.unwrap_or(found);
    if found != blocks {
        return Err(OnlineError::OtherBlocks {
            path: path.to_owned(),
            found,
            wanted: blocks,
        });
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

/// Number of last blocks that these tensors belong to; 0 for all weights.
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

/// An adapter from the files of [`save`].
pub(crate) struct SavedAdapter {
    pub(crate) name: String,
    pub(crate) adapter: Adapter,
    pub(crate) optimizer: AdamW,
    /// Running mean of the drafter's weights with this adapter.
    pub(crate) mean: Option<LearntWeights>,
}

/// Every adapter in `root`.
pub(crate) fn load_adapters(
    root: &Path,
    model: &LmConfig,
    optimizer: AdamWConfig,
) -> Result<Vec<SavedAdapter>> {
    let mut found = Vec::new();
    for (name, folder) in named_folders(root)? {
        let adapter = Adapter::load(&folder, model)?;
        let blocks = adapter.config.blocks;
        found.push(SavedAdapter {
            name,
            adapter,
            optimizer: load_optimizer(&folder, optimizer)?,
            mean: load_mean(&folder, model, Some(blocks))?,
        });
    }
    Ok(found)
}

fn of_optimizer(optimizer: &AdamW) -> Tensors {
    let flat = |data: Vec<f32>| HostTensor {
        shape: vec![data.len()],
        data,
    };
    let steps = HostTensor::whole(optimizer.steps());
    let mut tensors = BTreeMap::from([("steps".to_owned(), steps)]);
    if let Some(moments) = optimizer.moments() {
        tensors.insert("first".into(), flat(moments.first.clone()));
        tensors.insert("second".into(), flat(moments.second.clone()));
    }
    tensors
}

fn load_optimizer(folder: &Path, config: AdamWConfig) -> Result<AdamW> {
    let path = folder.join(OPTIMIZER);
    let mut tensors = read_safetensors(&path)?;
    let steps = tensors.remove("steps").and_then(|t| t.to_whole());
    let Some(steps) = steps else {
        return Err(OnlineError::NoSteps(path));
    };
    let mut take = |name: &str| tensors.remove(name).map(|t| t.data);
    let moments = take("first").zip(take("second"));
    let moments = moments.map(|(first, second)| Moments { first, second });
    Ok(AdamW::resume(config, steps, moments))
}
