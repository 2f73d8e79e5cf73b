//! Low-rank adaptation (LoRA): a frozen matrix `W` is used as `W + alpha / rank * B A`.
//!
//! A drafter that serves several targets keeps one [`Adapter`] for each of them. For decoding,
//! adapters are merged into dense weights ([`Checkpoint::merge`](crate::Checkpoint::merge)), so
//! that decoding costs no more than without them. Files are those of Hugging Face PEFT.

mod adapter;
mod projection;

pub use adapter::{ADAPTER_CONFIG, ADAPTER_WEIGHTS, Adapted, Adapter, adapted};
pub use projection::{Projection, Projections};

use std::ops::Range;

use crate::host::{Mat, MatMut, Store, multiply};
use crate::{LmConfig, LmError, first_of_last};

/// Adapted matrices, rank and scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoraConfig {
    /// Inner dimension of `B A`, at least 1.
    pub rank: usize,
    /// `B A` is scaled by `alpha / rank`.
    pub alpha: f64,
    /// Adapted matrices of every adapted block, at least one.
    pub projections: Projections,
    /// Number of last blocks that are adapted; 0 for all blocks.
    pub blocks: usize,
}

impl LoraConfig {
    /// The factor of `B A`.
    pub fn scale(&self) -> f32 {
        (self.alpha / self.rank as f64) as f32
    }

    /// `to += alpha / rank * b a`.
    ///
    /// # Shapes
    /// - `to`: `[out, in]`
    /// - `b`: `[out, rank]`
    /// - `a`: `[rank, in]`
    ///
    /// # Panics
    /// If the shapes do not fit each other or the rank is 0, which is a fault of the caller.
    pub fn add_product(&self, to: &mut [f32], b: &[f32], a: &[f32]) {
        let (out, input) = (b.len() / self.rank, a.len() / self.rank);
        let scale = self.scale();
        let scaled: Vec<f32> = b.iter().map(|x| x * scale).collect();
        multiply(
            MatMut::new(to, input),
            Store::Add,
            Mat::new(&scaled, out, self.rank),
            Mat::new(a, self.rank, input),
        );
    }

    /// Indices of the adapted blocks of a model.
    pub fn layers(&self, config: &LmConfig) -> Range<usize> {
        let first = match self.blocks {
            0 => 0,
            blocks => config.num_layers.saturating_sub(blocks),
        };
        first..config.num_layers
    }

    /// Checks that the shape of a model admits the rank.
    ///
    /// # Errors
    /// [`LmError::Rank`] if the rank is 0 or larger than the smaller side of an adapted matrix;
    /// [`LmError::NoProjections`] without any; [`LmError::Blocks`] for more blocks than there are.
    pub fn check(&self, config: &LmConfig) -> Result<(), LmError> {
        if self.blocks > 0 {
            first_of_last(config, self.blocks)?;
        }
        if self.projections.is_empty() {
            return Err(LmError::NoProjections);
        }
        for projection in self.projections.iter() {
            let (out, input) = projection.shape(config);
            let limit = out.min(input);
            if !(1..=limit).contains(&self.rank) {
                return Err(LmError::Rank {
                    rank: self.rank,
                    limit,
                    projection: projection.name(),
                });
            }
        }
        Ok(())
    }

    /// Number of parameters of an adapter for a model of this shape.
    pub fn num_params(&self, config: &LmConfig) -> usize {
        let sides = |p: Projection| {
            let (out, input) = p.shape(config);
            out + input
        };
        let sides: usize = self.projections.iter().map(sides).sum();
        self.layers(config).len() * self.rank * sides
    }
}
