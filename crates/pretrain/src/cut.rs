//! Cutting of a finished model to some of its blocks. Training then repairs it.

use std::path::{Path, PathBuf};

use lm::{Checkpoint, LmConfig, StoredCheckpoint, TensorSource};
use serde::{Deserialize, Serialize};

use crate::Recipe;
use crate::error::{PretrainError, Result};

/// Prefix of the names of a block's tensors; the block's number follows it.
const BLOCK: &str = "model.layers.";
/// Number of last blocks that a cut keeps by default. They determine the next token most directly.
const LAST: usize = 2;

/// A model folder, and the blocks to keep.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CutRecipe {
    /// The folder, relative to the recipe, or a model of the hub (`hf:owner/name`).
    pub from: PathBuf,
    /// Blocks to keep, in rising order, counted from 0: `model.layers` of them. Default: the first
    /// ones and the last two.
    #[serde(default)]
    pub blocks: Option<Vec<usize>>,
}

impl CutRecipe {
    /// The `kept` blocks to keep of a model with `held` blocks.
    pub(crate) fn blocks(&self, kept: usize, held: usize) -> Result<Vec<usize>> {
        let fault = |text: String| Err(PretrainError::Fault(text));
        // First: of a model that has not as many, the usual blocks would be a list without end.
        if kept > held {
            return fault(format!(
                "model.layers = {kept}, but the model of train.cut has {held} blocks"
            ));
        }
        let last = LAST.min(kept);
        let usual = || (0..kept - last).chain(held - last..held);
        let blocks = self.blocks.clone().unwrap_or_else(|| usual().collect());
        let rising = blocks.windows(2).all(|pair| pair[0] < pair[1]);
        match (blocks.last(), rising) {
            _ if blocks.len() != kept => fault(format!(
                "train.cut.blocks names {} blocks, but model.layers = {kept}",
                blocks.len()
            )),
            (_, false) => fault("train.cut.blocks must rise".to_owned()),
            (Some(last), _) if *last >= held => fault(format!(
                "train.cut.blocks: there is no block {last}: the model has {held}"
            )),
            _ => Ok(blocks),
        }
    }

    /// The shape of the model that remains. `[model]` and `tokenizer.vocab_size` of the recipe must
    /// describe it.
    pub(crate) fn config(&self, recipe: &Recipe, (bos, eos): (u32, u32)) -> Result<LmConfig> {
        let folder = hub::local_folder(&self.from).map_err(PretrainError::cut)?;
        let whole = StoredCheckpoint::read_config(&folder).map_err(PretrainError::cut)?;
        let blocks = self.blocks(recipe.model.layers, whole.num_layers)?;
        let described = recipe.lm_config(bos, eos)?;
        let (own, told) = (whole.to_json(), described.to_json());
        for (key, name) in [
            ("model_type", "model.architecture"),
            ("hidden_size", "model.hidden_size"),
            ("intermediate_size", "model.intermediate_size"),
            ("num_attention_heads", "model.heads"),
            ("num_key_value_heads", "model.kv_heads"),
            ("tie_word_embeddings", "model.tied"),
            ("rope_theta", "model.rope_theta"),
            ("vocab_size", "tokenizer.vocab_size"),
        ] {
            if own.get(key) != told.get(key) {
                return Err(PretrainError::Fault(format!(
                    "{name} is {}, but {} in the model of train.cut",
                    told[key], own[key]
                )));
            }
        }
        Ok(LmConfig {
            num_layers: blocks.len(),
            layers: blocks.iter().map(|block| whole.layer(*block)).collect(),
            max_position_embeddings: described.max_position_embeddings,
            bos_token_id: described.bos_token_id,
            eos_token_ids: described.eos_token_ids,
            ..whole
        })
    }

    /// The weights of the model that remains.
    pub(crate) fn weights(&self, config: &LmConfig) -> Result<Checkpoint> {
        let folder = hub::local_folder(&self.from).map_err(PretrainError::cut)?;
        let stored = StoredCheckpoint::open(&folder).map_err(PretrainError::cut)?;
        let blocks = self.blocks(config.num_layers, stored.config().num_layers)?;
        let whole = Checkpoint::of(&stored).map_err(PretrainError::cut)?;
        let cut = Checkpoint {
            config: config.clone(),
            tensors: whole
                .tensors
                .into_iter()
                .filter_map(|(name, tensor)| Some((renamed(&name, &blocks)?, tensor)))
                .collect(),
        };
        cut.check(&folder).map_err(PretrainError::cut)?;
        Ok(cut)
    }

    /// Name of the model, for cards.
    pub(crate) fn name(&self) -> String {
        let name = Path::new(&self.from).file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// Name of a tensor after the cut; `None` if its block is removed.
fn renamed(name: &str, blocks: &[usize]) -> Option<String> {
    let Some((block, rest)) = name
        .strip_prefix(BLOCK)
        .and_then(|behind| behind.split_once('.'))
    else {
        return Some(name.to_owned());
    };
    let block: usize = block.parse().ok()?;
    let place = blocks.iter().position(|kept| *kept == block)?;
    Some(format!("{BLOCK}{place}.{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(blocks: Option<&[usize]>) -> CutRecipe {
        CutRecipe {
            from: PathBuf::from("m"),
            blocks: blocks.map(<[usize]>::to_vec),
        }
    }

    #[test]
    fn the_first_blocks_and_the_last_two_stay() {
        let usual = |kept, held| cut(None).blocks(kept, held).unwrap();
        assert_eq!(usual(8, 30), [0, 1, 2, 3, 4, 5, 28, 29]);
        assert_eq!(usual(2, 30), [28, 29]);
        assert_eq!(usual(1, 30), [29]);
        assert_eq!(usual(3, 3), [0, 1, 2]);
        let own = cut(Some(&[1, 4])).blocks(2, 5).unwrap();
        assert_eq!(own, [1, 4]);
    }

    #[test]
    fn blocks_that_are_not_there_are_refused() {
        for (blocks, kept, words) in [
            (Some(&[1, 1][..]), 2, "train.cut.blocks must rise"),
            (Some(&[1, 5]), 2, "there is no block 5: the model has 5"),
            (Some(&[1, 2]), 3, "names 2 blocks, but model.layers = 3"),
            (
                None,
                6,
                "model.layers = 6, but the model of train.cut has 5",
            ),
            (None, usize::MAX, "but the model of train.cut has 5"),
        ] {
            let error = cut(blocks).blocks(kept, 5).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn tensors_of_kept_blocks_are_counted_anew() {
        let name = |old: &str| renamed(old, &[0, 12]);
        assert_eq!(name("model.norm.weight").unwrap(), "model.norm.weight");
        let kept = name("model.layers.12.mlp.up_proj.weight").unwrap();
        assert_eq!(kept, "model.layers.1.mlp.up_proj.weight");
        assert_eq!(name("model.layers.1.mlp.up_proj.weight"), None);
    }
}
