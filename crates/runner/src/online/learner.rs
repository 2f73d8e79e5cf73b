//! The drafter's updates (Algorithm 2): a buffer of lessons, one optimiser step when it is full.

use std::time::Instant;

use anyhow::Result;
use burn::tensor::{Device, Int, Tensor, TensorData};
use distill_loss::{HybridLoss, negative_log_likelihood, reverse_kl};
use lm::{AdamW, AdamWConfig, Checkpoint, Transformer};
use vocab_align::{Alignment, TokenId};

use super::lesson::Lesson;
use crate::config::LearnConfig;

/// Numbers of one update.
#[derive(Clone, Copy, Debug)]
pub struct Update {
    /// Updates of this drafter before this one.
    pub number: u32,
    /// Prompts it has learned from, this update's included.
    pub prompts_seen: u32,
    /// `L_DM + lambda * L_N-gram`.
    pub loss: f64,
    /// Mean `L_DM`, nats; NaN without positions.
    pub direct: f64,
    /// Mean `L_N-gram`, nats; NaN without tokens.
    pub ngram: f64,
    /// Positions of `L_DM`.
    pub direct_positions: usize,
    /// Tokens of `L_N-gram`.
    pub ngram_tokens: usize,
    /// Gradient norm before clipping.
    pub grad_norm: f64,
    /// Wall time.
    pub seconds: f64,
}

/// A drafter that learns.
pub struct Learner {
    model: Option<Transformer>,
    optimizer: AdamW,
    config: LearnConfig,
    lambda: Option<f64>,
    buffer: Vec<Lesson>,
    updates: u32,
    prompts: u32,
    device: Device,
}

impl Learner {
    /// Starts from `checkpoint`. `lambda` weighs the n-gram term; `None` leaves it out (the arm
    /// L_DM).
    pub fn new(checkpoint: &Checkpoint, config: LearnConfig, lambda: Option<f64>) -> Result<Self> {
        let device = Device::flex().autodiff();
        let model = Transformer::from_checkpoint(checkpoint, &device)?;
        let optimizer = AdamW::new(AdamWConfig {
            weight_decay: config.weight_decay,
            max_grad_norm: Some(config.max_grad_norm),
            ..AdamWConfig::default()
        });
        Ok(Self {
            model: Some(model),
            optimizer,
            config,
            lambda,
            buffer: Vec::new(),
            updates: 0,
            prompts: 0,
            device,
        })
    }

    /// Adds a lesson; with the `every`-th one, takes a step and returns the new weights.
    ///
    /// # Errors
    /// Losses or gradients that are not finite.
    pub fn push(
        &mut self,
        lesson: Lesson,
        alignment: &Alignment,
    ) -> Result<Option<(Update, Checkpoint)>> {
        self.buffer.push(lesson);
        if self.buffer.len() < self.config.every {
            Ok(None)
        } else {
            self.flush(alignment)
        }
    }

    /// Takes a step on whatever is buffered, if anything.
    ///
    /// # Errors
    /// As [`push`](Self::push).
    pub fn flush(&mut self, alignment: &Alignment) -> Result<Option<(Update, Checkpoint)>> {
        if self.buffer.is_empty() {
            return Ok(None);
        }
        let lessons = std::mem::take(&mut self.buffer);
        self.prompts += lessons.len() as u32;
        let began = Instant::now();
        let Some(model) = self.model.take() else {
            anyhow::bail!("the drafter's weights were lost in a failed update");
        };
        let (loss, batch) = self.loss(&model, &lessons, alignment)?;
        let Some(total) = loss.total(self.lambda.unwrap_or_default()) else {
            self.model = Some(model);
            return Ok(None);
        };
        let grads = total.backward();
        let (model, grad_norm) = self.optimizer.step(model, &grads, self.config.lr)?;
        let weights = model.to_checkpoint()?;
        self.model = Some(model);
        let scalar =
            |x: Option<Tensor<1>>| x.map_or(f64::NAN, |x| f64::from(x.into_scalar::<f32>()));
        let update = Update {
            number: self.updates,
            prompts_seen: self.prompts,
            loss: scalar(Some(total)),
            direct: scalar(loss.direct),
            ngram: scalar(loss.ngram),
            direct_positions: batch.direct_rows.len(),
            ngram_tokens: batch.ngram_rows.len(),
            grad_norm,
            seconds: began.elapsed().as_secs_f64(),
        };
        self.updates += 1;
        anyhow::ensure!(
            update.loss.is_finite(),
            "the distillation loss is {}; lower learn.lr",
            update.loss
        );
        Ok(Some((update, weights)))
    }

    fn loss(
        &self,
        model: &Transformer,
        lessons: &[Lesson],
        alignment: &Alignment,
    ) -> Result<(HybridLoss, Batch)> {
        let batch = Batch::new(lessons, self.lambda.is_some());
        let device = &self.device;
        let shape = [lessons.len(), batch.width];
        let input = Tensor::<2, Int>::from_data(TensorData::new(batch.ids.clone(), shape), device);
        let hidden = model
            .hidden(input)
            .reshape([lessons.len() * batch.width, model.config().hidden_size]);
        let ints = |values: &[i64]| {
            Tensor::<1, Int>::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
        };
        let direct = if batch.direct_rows.is_empty() {
            None
        } else {
            let columns: Vec<i64> = alignment
                .pairs()
                .iter()
                .map(|(draft, _)| i64::from(draft.get()))
                .collect();
            let rows = hidden.clone().select(0, ints(&batch.direct_rows));
            let student = model.logits_of(rows, ints(&columns));
            let shape = [batch.direct_rows.len(), columns.len()];
            let teacher =
                Tensor::<2>::from_data(TensorData::new(batch.teacher.clone(), shape), device);
            Some(reverse_kl(student, teacher)?)
        };
        let ngram = if batch.ngram_rows.is_empty() {
            None
        } else {
            let student = model.logits(hidden.select(0, ints(&batch.ngram_rows)));
            Some(negative_log_likelihood(student, ints(&batch.ngram_labels))?)
        };
        Ok((HybridLoss::new(direct, ngram), batch))
    }
}

/// Lessons padded on the right to one width; rows index the flattened `[lessons * width]`.
struct Batch {
    width: usize,
    ids: Vec<i64>,
    direct_rows: Vec<i64>,
    teacher: Vec<f32>,
    ngram_rows: Vec<i64>,
    ngram_labels: Vec<i64>,
}

impl Batch {
    fn new(lessons: &[Lesson], with_ngrams: bool) -> Self {
        let width = lessons.iter().map(|l| l.ids.len()).max().unwrap_or(0);
        let mut batch = Self {
            width,
            ids: Vec::with_capacity(width * lessons.len()),
            direct_rows: Vec::new(),
            teacher: Vec::new(),
            ngram_rows: Vec::new(),
            ngram_labels: Vec::new(),
        };
        for (i, lesson) in lessons.iter().enumerate() {
            let start = i * width;
            batch
                .ids
                .extend(lesson.ids.iter().map(|id| i64::from(id.get())));
            batch.ids.resize(start + width, 0);
            for (position, row) in &lesson.direct {
                batch.direct_rows.push((start + position) as i64);
                batch.teacher.extend(row.log_probs());
            }
            if with_ngrams {
                for position in &lesson.ngram {
                    batch.ngram_rows.push((start + position - 1) as i64);
                    batch
                        .ngram_labels
                        .push(i64::from(lesson.ids[*position].get()));
                }
            }
        }
        batch
    }
}
