//! Training of the last blocks of a model, on states that the decoding engine has already computed.

use std::ops::{Deref, DerefMut};

use distill_loss::{Graded, Objective};
use lm::host::Products;
use lm::{AdamW, AdamWConfig, Checkpoint, LmError, LoraConfig, Tail};

use crate::Trainer;
use crate::layout::Layout;
use crate::pass::Sequence;
use crate::trainer::has_moments_of;

/// The last blocks of a decoder and its last norm in training, with their AdamW state. The blocks
/// below them and the output head are frozen, so a pass begins with the residual stream that enters
/// the first trained block.
///
/// The gradient is that of the whole model with all other weights frozen. Instead of the weights,
/// [adapters](Self::with_adapter) may be trained.
///
/// Steps, optimiser and adapters are those of a [`Trainer`] that has only these blocks. It has no
/// embedding, so passes begin with states, and its [`Trainer::checkpoint`] is not a whole model.
pub struct TailTrainer {
    /// A trainer whose layout has only these blocks.
    inner: Trainer,
    /// The trained weights, as they were at the start.
    first: Vec<f32>,
}

impl TailTrainer {
    /// Starts from the last `blocks` blocks of `checkpoint` with a fresh optimiser.
    ///
    /// # Errors
    /// [`LmError::Blocks`] for no blocks, or more than there are; missing or misshapen tensors;
    /// [`LmError::NotTrainable`].
    pub fn new(
        checkpoint: &Checkpoint,
        blocks: usize,
        optimizer: AdamWConfig,
    ) -> Result<Self, LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        let layout = Layout::tail(&checkpoint.config, blocks)?;
        let inner = Trainer::of_layout(layout, checkpoint, AdamW::new(optimizer))?;
        let first = inner.weights[..inner.layout.learns].to_vec();
        Ok(Self { inner, first })
    }

    /// Trains adapters of the last `lora.blocks` blocks of `checkpoint` and freezes its weights, as
    /// [`Trainer::with_adapter`].
    ///
    /// # Errors
    /// The errors of [`TailTrainer::new`] and [`LoraConfig::check`].
    pub fn with_adapter(
        checkpoint: &Checkpoint,
        optimizer: AdamWConfig,
        lora: LoraConfig,
        seed: u64,
    ) -> Result<Self, LmError> {
        let Self { inner, first } = Self::new(checkpoint, lora.blocks, optimizer)?;
        let inner = inner.adapt(lora, seed)?;
        Ok(Self { inner, first })
    }

    /// Continues with saved blocks and their optimiser.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] for blocks of another model or another number of them, and for
    /// moments of another model; missing or misshapen tensors. Nothing is changed on an error.
    pub fn load(&mut self, tail: &Tail, optimizer: AdamW) -> Result<(), LmError> {
        let layout = &self.inner.layout;
        let same = tail.config == layout.config && tail.first == layout.first;
        let fits = same && !self.inner.adapts();
        if !fits || !has_moments_of(&optimizer, layout.learns) {
            return Err(LmError::OtherModel);
        }
        tail.check("(tail in memory)".as_ref())?;
        for (name, _, at) in layout.tensors() {
            if let Some(tensor) = tail.tensors.get(name) {
                self.inner.weights[at].copy_from_slice(&tensor.data);
            }
        }
        self.inner.optimizer = optimizer;
        Ok(())
    }

    /// Sets the number format of products with weights, as [`Trainer::with_products`].
    pub fn with_products(self, products: Products) -> Self {
        let inner = self.inner.with_products(products);
        Self { inner, ..self }
    }

    /// The present blocks, with the adapter in training merged.
    pub fn tail(&self) -> Tail {
        self.tail_of(&self.inner.merged())
    }

    /// Overwrites `tail` with the result of [`tail`](Self::tail), which saves fresh pages.
    ///
    /// # Errors
    /// A tail of another model or of another number of blocks.
    pub fn write_tail(&self, tail: &mut Tail) -> Result<(), LmError> {
        let layout = &self.inner.layout;
        if tail.config != layout.config || tail.first != layout.first {
            return Err(LmError::OtherModel);
        }
        tail.check("(tail in memory)".as_ref())?;
        layout.write(&self.inner.merged(), &mut tail.tensors);
        Ok(())
    }

    /// The gradient accumulated since the last step, under the names of the weights. It is zero
    /// while an adapter is trained instead ([`Trainer::adapter_gradient`]).
    pub fn gradient(&self) -> Tail {
        match self.inner.adapts() {
            true => self.tail_of(&vec![0.0; self.inner.layout.len]),
            false => self.tail_of(&self.inner.summed_gradient()),
        }
    }

    fn tail_of(&self, flat: &[f32]) -> Tail {
        let layout = &self.inner.layout;
        Tail {
            config: layout.config.clone(),
            first: layout.first,
            tensors: layout.unflatten(flat),
        }
    }

    /// Forward and backward pass over ragged sequences. Gradients add up until
    /// [`Trainer::step`].
    ///
    /// # Shapes
    /// - `states`: `[positions, hidden_size]` for each sequence, the residual stream that enters
    ///   the first of the blocks, from the first position of the text on
    ///
    /// # Errors
    /// States that are not a whole number of rows, or more rows than the model's context; columns
    /// outside the vocabulary.
    pub fn accumulate(
        &mut self,
        states: &[&[f32]],
        objective: &dyn Objective,
    ) -> Result<Graded, LmError> {
        self.pass(states, objective, true)
    }

    /// Forward pass only. Returns the sums that the objective reports.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate).
    pub fn evaluate(
        &mut self,
        states: &[&[f32]],
        objective: &dyn Objective,
    ) -> Result<Graded, LmError> {
        self.pass(states, objective, false)
    }

    /// As [`evaluate`](Self::evaluate), with the weights from the start of the training.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate).
    pub fn evaluate_first(
        &mut self,
        states: &[&[f32]],
        objective: &dyn Objective,
    ) -> Result<Graded, LmError> {
        self.inner.merge();
        self.swap_first();
        let graded = self.pass(states, objective, false);
        self.swap_first();
        graded
    }

    fn swap_first(&mut self) {
        let learns = self.first.len();
        self.inner.weights[..learns].swap_with_slice(&mut self.first);
    }

    fn pass(
        &mut self,
        states: &[&[f32]],
        objective: &dyn Objective,
        learn: bool,
    ) -> Result<Graded, LmError> {
        let width = self.config().hidden_size;
        if let Some(odd) = states.iter().find(|rows| rows.len() % width != 0) {
            return Err(LmError::States {
                found: odd.len(),
                width,
            });
        }
        let rows = states.iter().copied();
        let sequences: Vec<_> = rows.map(|rows| Sequence::States { rows, width }).collect();
        self.inner.pass(&sequences, objective, learn)
    }
}

impl Deref for TailTrainer {
    type Target = Trainer;

    fn deref(&self) -> &Trainer {
        &self.inner
    }
}

impl DerefMut for TailTrainer {
    fn deref_mut(&mut self) -> &mut Trainer {
        &mut self.inner
    }
}
