//! `[learn]`: what the drafter learns from, and how.

use distill_loss::{DirectLoss, NgramLoss, Terms};
use lm::LoraConfig;
use lm::host::Products;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{LoraSettings, Wrong, is_default, or_none, wrong};

/// Online learning of the drafter (Algorithm 2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LearnConfig {
    /// What the drafter minimises while it streams.
    pub objective: ObjectiveName,
    /// Prompts between updates, at least 1: the paper's I, and the batch size.
    pub every: usize,
    /// Constant learning rate of AdamW, 0 or more.
    pub lr: f64,
    /// For `objective = "hybrid"`: L_DM, the term at directly mapped tokens (Eq. 3-4). q is the
    /// drafter's distribution, p the target's.
    #[serde(with = "or_none")]
    #[schemars(schema_with = "names::<DirectLoss>")]
    pub direct: Option<DirectLoss>,
    /// For `objective = "hybrid"`: L_N-gram, the term at n-grams (Eq. 3-4): target tokens that several
    /// draft tokens spell.
    #[serde(with = "or_none")]
    #[schemars(schema_with = "names::<NgramLoss>")]
    pub ngram: Option<NgramLoss>,
    /// Weight of L_N-gram beside L_DM (Eq. 3), 0 or more.
    pub lambda: f64,
    /// Whether ends of turns, and other special tokens that both vocabularies have, are learnt: by
    /// their likelihood, whatever `direct` is, for a drafter gives them no mass to begin with.
    pub ends: bool,
    /// Compare the two distributions on the columns to which the target gives at least this probability
    /// at some position of an answer, on those of the tokens it emitted, and on a sample of the others:
    /// a fraction of the work of all, which 0 asks for. From 0 and below 1; not for
    /// `ngram = "approximate-kl"`.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0.0))]
    pub likely: f64,
    /// With `likely`: columns that are drawn from the others, each of which stands for as many as there
    /// are others to a drawn one.
    #[serde(skip_serializing_if = "is_usual_sample")]
    #[schemars(extend("default" = 1024))]
    pub sampled: usize,
    /// For `objective = "alm"`: its temperature, above 0.
    pub tau: f64,
    /// Earlier answers that every update learns from once more; 0 for none.
    pub replay: usize,
    /// Latest answers that `replay` draws from, at least as many.
    pub replay_window: usize,
    /// Decay of the running mean of weights that decodes, from 0 and below 1; 0 decodes with the
    /// last weights.
    pub ema: f64,
    /// An update runs on its own thread while decoding goes on with the last weights. From which
    /// prompt on the new weights decode then depends on the machine: such runs do not repeat.
    pub asynchronous: bool,
    /// Last blocks of the drafter that learn, with its last norm, from what entered them while it
    /// drafted: nothing below them is run again, and only they are packed anew. 0 for all weights. With
    /// `lora` their adapters learn. Not with padding of the drafter, or on a graphics device.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub blocks: usize,
    /// Tokens after which a part of an answer is learnt from before it ends, again and again; 0: answers
    /// are learnt from when they end. A part counts among `every` as an answer does. Not with
    /// `asynchronous`, or a drafter that costs padding.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub within: usize,
    /// What products of an update multiply: `"bf16"` takes about half the time on processors that
    /// multiply pairs of such numbers.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "f32"))]
    pub products: Products,
    /// Low-rank adapters instead of all weights.
    pub lora: LoraSettings,
}

/// The names of a term, `"none"` among them.
fn names<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    or_none::schema::<T>(generator, "No such term.")
}

/// Columns that are sampled unless `sampled` says otherwise.
const SAMPLED: usize = 1024;

fn is_usual_sample(number: &usize) -> bool {
    *number == SAMPLED
}

impl Default for LearnConfig {
    fn default() -> Self {
        Self {
            objective: ObjectiveName::None,
            every: 8,
            lr: 1e-3,
            direct: Some(DirectLoss::ReverseKl),
            ngram: Some(NgramLoss::Nll),
            lambda: distill_loss::PAPER_LAMBDA,
            ends: true,
            likely: 0.0,
            sampled: SAMPLED,
            tau: 1.0,
            replay: 0,
            replay_window: 64,
            ema: 0.0,
            asynchronous: false,
            blocks: 0,
            within: 0,
            products: Products::F32,
            lora: LoraSettings::default(),
        }
    }
}

/// What the drafter minimises.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveName {
    /// Nothing: the drafter stays as it is.
    #[default]
    None,
    /// L_DM + lambda L_N-gram (Eq. 3), as `direct`, `ngram` and `lambda` say.
    Hybrid,
    /// Approximate likelihood matching over aligned chunks of text.
    Alm,
}

/// Settings of a learner that name no loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NothingToLearn {
    /// It does not learn at all.
    #[error("learn.objective is \"none\": nothing to learn from")]
    Objective,
    /// Both terms are switched off.
    #[error("learn.direct and learn.ngram are both \"none\": nothing to learn from")]
    Terms,
}

impl LearnConfig {
    /// The losses these settings name.
    ///
    /// # Errors
    /// There is none.
    pub fn terms(&self) -> Result<Terms, NothingToLearn> {
        match self.objective {
            ObjectiveName::None => return Err(NothingToLearn::Objective),
            ObjectiveName::Alm => return Ok(Terms::Alm { tau: self.tau }),
            ObjectiveName::Hybrid => {}
        }
        if self.direct.is_none() && self.ngram.is_none() {
            return Err(NothingToLearn::Terms);
        }
        Ok(Terms::Hybrid {
            direct: self.direct,
            ngram: self.ngram,
            lambda: self.lambda,
        })
    }

    /// The adapters that are trained; `None` where weights learn.
    pub fn adapters(&self) -> Option<LoraConfig> {
        self.lora.adapters(self.blocks)
    }

    /// What is wrong, by key.
    pub(crate) fn wrongs(&self) -> Vec<Wrong> {
        let least = |value: f64| value >= 0.0;
        let ema = self.ema;
        let likely = self.likely;
        let numbers = [
            ("lr", self.lr, least(self.lr), "must be 0 or more"),
            (
                "lambda",
                self.lambda,
                least(self.lambda),
                "must be 0 or more",
            ),
            ("tau", self.tau, self.tau > 0.0, "must be positive"),
            ("ema", ema, (0.0..1.0).contains(&ema), "is outside 0..1"),
            (
                "likely",
                likely,
                (0.0..1.0).contains(&likely),
                "is outside 0..1",
            ),
        ];
        let mut wrongs: Vec<Wrong> = numbers
            .into_iter()
            .filter(|(_, value, good, _)| !(*good && value.is_finite()))
            .map(|(key, value, _, fault)| {
                wrong(&format!("learn.{key}"), format!("{value} {fault}"))
            })
            .collect();
        wrongs.extend(self.lora.wrongs());
        if self.likely > 0.0 && self.ngram == Some(NgramLoss::ApproximateKl) {
            let message = "learn.ngram = \"approximate-kl\" compares all columns; must be 0";
            wrongs.push(wrong("learn.likely", message));
        }
        if self.within > 0 && self.asynchronous {
            let message = format!(
                "parts of {} tokens are learnt from on the spot; must be 0 beside learn.asynchronous",
                self.within
            );
            wrongs.push(wrong("learn.within", message));
        }
        if self.every == 0 {
            wrongs.push(wrong("learn.every", "must be at least 1"));
        }
        if self.replay > self.replay_window {
            let message = format!(
                "{} draws more than learn.replay_window = {} holds",
                self.replay, self.replay_window
            );
            wrongs.push(wrong("learn.replay", message));
        }
        wrongs
    }
}
