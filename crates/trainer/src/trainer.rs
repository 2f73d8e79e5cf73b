//! A decoder in training: accumulators of gradients, adapters, steps.

use std::borrow::Cow;

use cpu_engine::Vectors;
use distill_loss::{Graded, Objective};
use lm::host::{Products, RotaryTables};
use lm::{
    AdamW, AdamWConfig, Adapter, Checkpoint, LmConfig, LmError, LoraConfig, ModelError, Moments,
    check_call,
};
use rayon::prelude::*;

use crate::activations::{Activations, clear};
use crate::elementwise;
use crate::layout::Layout;
use crate::low_rank::LowRank;
use crate::pass::{Gradients, Pack, Sequence, Shared};

/// Number of gradient accumulators by default.
const DEFAULT_LANES: usize = 2;

/// Largest number of tokens of sequences that go through the decoder together; a longer sequence
/// goes alone. At this size packing the weights for a product costs little beside the product.
/// Products of bf16 take half the time, so they need more tokens.
fn tokens_together(products: Products) -> usize {
    match products {
        Products::F32 => 512,
        Products::Bf16 => 2048,
    }
}

/// A decoder in training, with its AdamW state.
pub struct Trainer {
    pub(crate) layout: Layout,
    pub(crate) weights: Vec<f32>,
    pub(crate) optimizer: AdamW,
    lanes: Vec<Lane>,
    rope: RotaryTables,
    vectors: Vectors,
    products: Products,
    /// The adapter that is trained instead of the weights. The weights then hold the merged
    /// matrices.
    low_rank: Option<LowRank>,
    /// Rows of the output head for every subset of the last objective. They are kept because fresh
    /// pages in every pass are expensive.
    gathered: Vec<Vec<f32>>,
    /// Columns of these rows. While the head is frozen, rows of the same columns need not be
    /// gathered again.
    gathered_of: Vec<Vec<u32>>,
}

/// Trained state of one adapter: its values and the history of their optimiser.
#[derive(Clone, Debug)]
pub struct AdapterState {
    values: Vec<f32>,
    optimizer: AdamW,
}

/// One gradient accumulator. It adds up the sequences assigned to it in their order.
#[derive(Default)]
struct Lane {
    gradients: Gradients,
    kept: Activations,
    /// Indices of its sequences in the current pass.
    work: Vec<usize>,
    graded: Vec<(usize, Graded)>,
}

impl Trainer {
    /// Starts from `checkpoint` with a fresh optimiser.
    ///
    /// # Errors
    /// Missing or misshapen tensors; [`LmError::NotTrainable`].
    pub fn new(checkpoint: &Checkpoint, optimizer: AdamWConfig) -> Result<Self, LmError> {
        Self::resume(checkpoint, AdamW::new(optimizer))
    }

    /// Continues with a saved optimiser.
    ///
    /// # Errors
    /// Missing or misshapen tensors; moments of another model; [`LmError::NotTrainable`].
    pub fn resume(checkpoint: &Checkpoint, optimizer: AdamW) -> Result<Self, LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        Self::of_layout(Layout::new(&checkpoint.config)?, checkpoint, optimizer)
    }

    /// A trainer of the tensors of a checkpoint that are in a layout.
    pub(crate) fn of_layout(
        layout: Layout,
        checkpoint: &Checkpoint,
        optimizer: AdamW,
    ) -> Result<Self, LmError> {
        let weights = layout.flatten(checkpoint)?;
        if !has_moments_of(&optimizer, layout.learns) {
            return Err(LmError::OtherModel);
        }
        let config = &checkpoint.config;
        let trainer = Self {
            rope: RotaryTables::of_positions(config, config.max_context(), config.max_context()),
            layout,
            weights,
            optimizer,
            lanes: Vec::new(),
            vectors: Vectors::widest(),
            products: Products::default(),
            low_rank: None,
            gathered: Vec::new(),
            gathered_of: Vec::new(),
        };
        Ok(trainer.with_lanes(DEFAULT_LANES))
    }

    /// Continues with saved weights and their optimiser, as [`resume`](Self::resume) does.
    ///
    /// # Errors
    /// [`LmError::OtherModel`] for weights or moments of another model; missing or misshapen
    /// tensors. Nothing is changed on an error.
    pub fn load(&mut self, checkpoint: &Checkpoint, optimizer: AdamW) -> Result<(), LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        let layout = &self.layout;
        let fits = checkpoint.config == layout.config && self.low_rank.is_none();
        if !fits || !has_moments_of(&optimizer, layout.learns) {
            return Err(LmError::OtherModel);
        }
        self.weights = layout.flatten(checkpoint)?;
        self.optimizer = optimizer;
        Ok(())
    }

    /// Trains adapters of `checkpoint` and freezes its weights. The first adapter has no effect
    /// yet; `seed` draws its `A`.
    ///
    /// # Errors
    /// Those of [`Trainer::new`] and [`LoraConfig::check`].
    pub fn with_adapter(
        checkpoint: &Checkpoint,
        optimizer: AdamWConfig,
        lora: LoraConfig,
        seed: u64,
    ) -> Result<Self, LmError> {
        Self::new(checkpoint, optimizer)?.adapt(lora, seed)
    }

    /// Trains adapters of the present weights, as [`with_adapter`](Self::with_adapter).
    pub(crate) fn adapt(mut self, lora: LoraConfig, seed: u64) -> Result<Self, LmError> {
        self.low_rank = Some(LowRank::new(&self.layout, lora, &self.weights, seed)?);
        let lanes = self.lanes.len();
        Ok(self.with_lanes(lanes))
    }

    /// Sets the number of gradient accumulators, each as large as the trained values. It is also
    /// the largest number of threads that a pass can use. Another number adds in another order and
    /// therefore gives other bits.
    pub fn with_lanes(mut self, lanes: usize) -> Self {
        self.lanes.resize_with(lanes.max(1), Lane::default);
        let trained = self.low_rank.as_ref();
        let trained = trained.map_or(self.layout.learns, LowRank::len);
        for lane in &mut self.lanes {
            lane.gradients.weights = vec![0.0; trained];
        }
        self
    }

    /// Sets the number format of products with weights, except those of attention and of adapters.
    /// The default is f32.
    pub fn with_products(self, products: Products) -> Self {
        Self { products, ..self }
    }

    /// True if adapters are trained.
    pub(crate) fn adapts(&self) -> bool {
        self.low_rank.is_some()
    }

    /// The adapter in training, if there is one.
    pub fn adapter(&self) -> Option<Adapter> {
        self.low_rank.as_ref().map(|l| l.name(&l.values))
    }

    /// The gradient of the adapter accumulated since the last step, under the names of its tensors.
    pub fn adapter_gradient(&self) -> Option<Adapter> {
        let low_rank = self.low_rank.as_ref();
        low_rank.map(|l| l.name(&self.summed_gradient()))
    }

    /// An adapter without effect yet, for [`swap_adapter`](Self::swap_adapter); `None` if weights
    /// are trained. `seed` draws its `A`.
    pub fn fresh_adapter(&self, seed: u64) -> Option<AdapterState> {
        let low_rank = self.low_rank.as_ref()?;
        Some(AdapterState {
            values: low_rank.fresh(seed),
            optimizer: AdamW::new(self.optimizer.config()),
        })
    }

    /// A saved adapter with its optimiser, for [`swap_adapter`](Self::swap_adapter).
    ///
    /// # Errors
    /// An adapter or moments of another shape.
    pub fn saved_adapter(
        &self,
        adapter: &Adapter,
        optimizer: AdamW,
    ) -> Result<AdapterState, LmError> {
        let low_rank = self.low_rank.as_ref().ok_or(LmError::OtherModel)?;
        let values = low_rank.flatten(&self.layout.config, adapter)?;
        if !has_moments_of(&optimizer, values.len()) {
            return Err(LmError::OtherModel);
        }
        Ok(AdapterState { values, optimizer })
    }

    /// Exchanges the adapter in training for `state`, which receives the one trained so far. The
    /// swap itself copies nothing; the weights are merged before the next pass.
    ///
    /// # Errors
    /// A state of another trainer. Nothing is changed then.
    pub fn swap_adapter(&mut self, state: &mut AdapterState) -> Result<(), LmError> {
        match &mut self.low_rank {
            Some(low_rank) if low_rank.len() == state.values.len() => {
                std::mem::swap(&mut low_rank.values, &mut state.values);
                std::mem::swap(&mut self.optimizer, &mut state.optimizer);
                low_rank.stale = true;
                Ok(())
            }
            _ => Err(LmError::OtherModel),
        }
    }

    /// Shape of the model.
    pub fn config(&self) -> &LmConfig {
        &self.layout.config
    }

    /// Number of steps and moments, for saving.
    pub fn optimizer(&self) -> &AdamW {
        &self.optimizer
    }

    /// The weights under their Hugging Face names, with the adapter in training merged.
    pub fn checkpoint(&self) -> Checkpoint {
        self.checkpoint_of(&self.merged())
    }

    /// The flat weights, with the adapter in training merged.
    pub(crate) fn merged(&self) -> Cow<'_, [f32]> {
        match &self.low_rank {
            Some(low_rank) if low_rank.stale => {
                let mut weights = self.weights.clone();
                low_rank.merge_into(&mut weights);
                Cow::Owned(weights)
            }
            _ => Cow::Borrowed(&self.weights),
        }
    }

    /// Merges the adapter in training into the weights, unless they include it already.
    pub(crate) fn merge(&mut self) {
        if let Some(low_rank) = self.low_rank.as_mut().filter(|l| l.stale) {
            low_rank.merge_into(&mut self.weights);
            low_rank.stale = false;
        }
    }

    fn checkpoint_of(&self, weights: &[f32]) -> Checkpoint {
        Checkpoint {
            config: self.layout.config.clone(),
            tensors: self.layout.unflatten(weights),
        }
    }

    /// Overwrites `checkpoint` with the result of [`checkpoint`](Self::checkpoint), which saves
    /// fresh pages.
    ///
    /// # Errors
    /// A checkpoint of another shape.
    pub fn write_checkpoint(&self, checkpoint: &mut Checkpoint) -> Result<(), LmError> {
        checkpoint.check("(checkpoint in memory)".as_ref())?;
        if checkpoint.config != self.layout.config {
            return Err(LmError::OtherModel);
        }
        self.layout.write(&self.merged(), &mut checkpoint.tensors);
        Ok(())
    }

    /// The gradient accumulated since the last step, under the names of the weights. It is zero
    /// while an adapter is trained instead ([`adapter_gradient`](Self::adapter_gradient)).
    pub fn gradient(&self) -> Checkpoint {
        if self.low_rank.is_some() {
            return self.checkpoint_of(&vec![0.0; self.layout.len]);
        }
        self.checkpoint_of(&self.summed_gradient())
    }

    /// Forward and backward pass over ragged sequences. Gradients add up until
    /// [`step`](Self::step).
    ///
    /// # Errors
    /// Token ids, or columns of the objective, outside the vocabulary; sequences longer than the
    /// model's context.
    pub fn accumulate(
        &mut self,
        sequences: &[&[u32]],
        objective: &dyn Objective,
    ) -> Result<Graded, LmError> {
        self.pass(&self.of_ids(sequences)?, objective, true)
    }

    /// Forward pass only. Returns the sums that the objective reports.
    ///
    /// # Errors
    /// As [`accumulate`](Self::accumulate).
    pub fn evaluate(
        &mut self,
        sequences: &[&[u32]],
        objective: &dyn Objective,
    ) -> Result<Graded, LmError> {
        self.pass(&self.of_ids(sequences)?, objective, false)
    }

    /// Sequences of tokens, checked against the vocabulary.
    fn of_ids<'a>(&self, sequences: &[&'a [u32]]) -> Result<Vec<Sequence<'a>>, LmError> {
        self.check_ids(sequences)?;
        Ok(sequences.iter().map(|ids| Sequence::Ids(ids)).collect())
    }

    pub(crate) fn pass(
        &mut self,
        sequences: &[Sequence<'_>],
        objective: &dyn Objective,
        learn: bool,
    ) -> Result<Graded, LmError> {
        self.check(sequences, objective)?;
        self.deal(sequences);
        self.merge();
        let d = self.layout.config.hidden_size;
        let columns = objective.columns();
        let head_learns = self.layout.head.end <= self.layout.learns;
        let dense = learn && head_learns && self.low_rank.is_none();
        if head_learns || self.gathered_of != columns {
            let head = &self.weights[self.layout.head.clone()];
            self.gathered.resize_with(columns.len(), Vec::new);
            for (rows, ids) in self.gathered.iter_mut().zip(columns) {
                rows.clear();
                for id in ids {
                    rows.extend_from_slice(&head[*id as usize * d..][..d]);
                }
            }
            self.gathered_of = match head_learns {
                true => Vec::new(),
                false => columns.to_vec(),
            };
        }
        let gathered = &self.gathered[..];
        let most = tokens_together(self.products);
        let shared = Shared {
            layout: &self.layout,
            weights: &self.weights,
            rope: &self.rope,
            vectors: self.vectors,
            products: self.products,
            gathered,
            objective,
            low_rank: self.low_rank.as_ref(),
        };
        self.lanes.par_iter_mut().for_each(|lane| {
            lane.graded.clear();
            let of_subsets = &mut lane.gradients.gathered;
            if dense {
                of_subsets.resize_with(gathered.len(), Vec::new);
                for (grads, rows) in of_subsets.iter_mut().zip(gathered) {
                    clear(grads, rows.len());
                }
            }
            let mut work = lane.work.drain(..).peekable();
            while let Some(index) = work.next() {
                let mut pack = Pack::default();
                pack.push(index, sequences[index]);
                while let Some(next) =
                    work.next_if(|next| pack.rows() + sequences[*next].len() <= most)
                {
                    pack.push(next, sequences[next]);
                }
                let gradients = learn.then_some(&mut lane.gradients);
                let graded = shared.run(&pack, &mut lane.kept, gradients);
                lane.graded.extend(graded);
            }
            if dense {
                let d_head = &mut lane.gradients.weights[self.layout.head.clone()];
                for (ids, rows) in columns.iter().zip(&lane.gradients.gathered) {
                    for (id, row) in ids.iter().zip(rows.chunks_exact(d)) {
                        elementwise::add(&mut d_head[*id as usize * d..][..d], row);
                    }
                }
            }
        });
        let mut graded: Vec<_> = self.lanes.iter().flat_map(|lane| &lane.graded).collect();
        graded.sort_by_key(|(index, _)| *index);
        let mut total = Graded::default();
        for (_, one) in graded {
            total.add(*one);
        }
        Ok(total)
    }

    /// Assigns sequences to accumulators, the longest first, so that all have about the same number
    /// of tokens.
    fn deal(&mut self, sequences: &[Sequence<'_>]) {
        let mut order: Vec<usize> = (0..sequences.len()).collect();
        order.sort_by_key(|index| std::cmp::Reverse(sequences[*index].len()));
        let mut load = vec![0; self.lanes.len()];
        for index in order {
            let length = sequences[index].len();
            let lightest = load.iter().enumerate().min_by_key(|(_, tokens)| **tokens);
            let Some((lane, _)) = lightest.filter(|_| length > 0) else {
                continue;
            };
            load[lane] += length;
            self.lanes[lane].work.push(index);
        }
    }

    /// Checks that all tokens are in the vocabulary.
    fn check_ids(&self, sequences: &[impl AsRef<[u32]>]) -> Result<(), LmError> {
        for ids in sequences {
            check_call(ids.as_ref(), 0, usize::MAX, self.layout.config.vocab_size)?;
        }
        Ok(())
    }

    fn check(&self, sequences: &[Sequence<'_>], objective: &dyn Objective) -> Result<(), LmError> {
        let config = &self.layout.config;
        self.check_ids(objective.columns())?;
        let longest = sequences.iter().map(Sequence::len).max().unwrap_or(0);
        if longest > config.max_context() {
            return Err(ModelError::ContextFull {
                needed: longest,
                max_len: config.max_context(),
            }
            .into());
        }
        Ok(())
    }

    pub(crate) fn summed_gradient(&self) -> Vec<f32> {
        let mut lanes = self.lanes.iter().map(|lane| &lane.gradients.weights);
        let mut sum = lanes.next().cloned().unwrap_or_default();
        for lane in lanes {
            elementwise::add(&mut sum, lane);
        }
        sum
    }

    /// Drops the accumulated gradient.
    pub fn clear_gradient(&mut self) {
        for lane in &mut self.lanes {
            lane.gradients.weights.fill(0.0);
        }
    }

    /// Takes one AdamW step with learning rate `lr` on the accumulated gradient, which is then
    /// cleared. Returns the global norm of the gradient before clipping.
    ///
    /// # Errors
    /// A gradient that is not finite; the weights stay as they were.
    pub fn step(&mut self, lr: f64) -> Result<f64, LmError> {
        let Some((first, others)) = self.lanes.split_first_mut() else {
            return Err(LmError::Device("a trainer without lanes".into()));
        };
        let sum = &mut first.gradients.weights;
        for lane in others.iter_mut() {
            elementwise::add(sum, &lane.gradients.weights);
            lane.gradients.weights.fill(0.0);
        }
        let weights = match &mut self.low_rank {
            Some(low_rank) => &mut low_rank.values[..],
            None => &mut self.weights[..self.layout.learns],
        };
        let norm = self.optimizer.step_flat(weights, sum, lr);
        sum.fill(0.0);
        if let Some(low_rank) = &mut self.low_rank {
            low_rank.merge_into(&mut self.weights);
            low_rank.stale = false;
        }
        norm
    }
}

/// True if an optimiser has no history yet, or one of `len` values.
pub(crate) fn has_moments_of(optimizer: &AdamW, len: usize) -> bool {
    let fits = |m: &Moments| m.first.len() == len && m.second.len() == len;
    optimizer.moments().is_none_or(fits)
}
