//! `[learn]`: online learning of the drafter.

use distill_loss::{DirectLoss, NgramLoss};
use lm::LoraConfig;
use lm::host::Products;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};

use super::{LoraSettings, Wrong, is_default, or_none, wrong};

/// Online learning of the drafter (Algorithm 2).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LearnConfig {
    /// The loss that the drafter minimises on the stream.
    pub objective: ObjectiveName,
    /// Number of prompts between updates, at least 1: the paper's I, and the batch size.
    pub every: usize,
    /// Constant learning rate of AdamW, at least 0.
    pub lr: f64,
    /// L_DM, the loss at directly mapped tokens (Eq. 3-4), with `objective = "hybrid"`. q is the
    /// drafter's distribution, p the target's.
    #[serde(with = "or_none")]
    #[schemars(schema_with = "names::<DirectLoss>")]
    pub direct: Option<DirectLoss>,
    /// L_N-gram, the loss at n-grams (Eq. 3-4), with `objective = "hybrid"`. An n-gram is a target
    /// token that several draft tokens spell.
    #[serde(with = "or_none")]
    #[schemars(schema_with = "names::<NgramLoss>")]
    pub ngram: Option<NgramLoss>,
    /// Weight of L_N-gram relative to L_DM (Eq. 3), at least 0.
    pub lambda: f64,
    /// Learns end-of-turn and other special tokens that both vocabularies have. Their loss is the
    /// negative log-likelihood whatever `direct` is, because an untrained drafter gives them no
    /// mass.
    pub ends: bool,
    /// Restricts the comparison of the two distributions to the columns that the target gives at
    /// least this probability at some position of an answer, those of the emitted tokens, and a
    /// sample of the others, which takes a fraction of the work; 0 compares all columns. N-grams are
    /// learnt in these columns, their own and a sample of the drafter's others. At least 0 and below
    /// 1; not with `ngram = "approximate-kl"`.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0.0))]
    pub likely: f64,
    /// Number of columns sampled from the others, with `likely`. Each is weighted by the number of
    /// other columns per sampled one.
    #[serde(skip_serializing_if = "is_usual_sample")]
    #[schemars(extend("default" = 1024))]
    pub sampled: usize,
    /// Temperature with `objective = "alm"`, above 0.
    pub tau: f64,
    /// Number of earlier answers that every update replays; 0 for none.
    pub replay: usize,
    /// Number of latest answers that `replay` draws from, at least `replay`.
    pub replay_window: usize,
    /// Decay of the moving average of the weights that decoding uses, at least 0 and below 1; 0
    /// decodes with the last weights.
    pub ema: f64,
    /// Runs updates on a thread of their own while decoding goes on with the last weights. The
    /// prompt at which new weights take effect then depends on the machine, so such runs cannot be
    /// reproduced exactly.
    pub asynchronous: bool,
    /// Number of last blocks of the drafter that are trained, together with its final norm, on the
    /// block inputs that drafting recorded: the blocks below are not run again, and only the
    /// trained ones are repacked. 0 trains all weights. With `lora`, the adapters of these blocks
    /// are trained. Not with a padded drafter or on a GPU.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub blocks: usize,
    /// Number of tokens after which a part of an unfinished answer is learned from, repeatedly; 0
    /// learns from answers when they end. A part counts towards `every` as an answer does. Not with
    /// `asynchronous` or a padded drafter.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pub within: usize,
    /// Number format of the factors of matrix products in an update: `"bf16"` takes about half the
    /// time on processors with bf16 dot products.
    #[serde(skip_serializing_if = "is_default")]
    #[schemars(extend("default" = "f32"))]
    pub products: Products,
    /// Low-rank adapters, trained in place of all weights.
    pub lora: LoraSettings,
}

/// The schema of a loss that may be `"none"`.
fn names<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    or_none::schema::<T>(generator, "No such term.")
}

/// Default number of sampled columns.
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

/// A training objective of the drafter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObjectiveName {
    /// No objective: the drafter does not change.
    #[default]
    None,
    /// L_DM + lambda L_N-gram (Eq. 3), configured by `direct`, `ngram` and `lambda`.
    Hybrid,
    /// Approximate likelihood matching over aligned chunks of text.
    Alm,
}

impl LearnConfig {
    /// The adapters that are trained; `None` if the weights are trained.
    pub fn adapters(&self) -> Option<LoraConfig> {
        let lora = &self.lora;
        (lora.rank > 0).then_some(LoraConfig {
            rank: lora.rank,
            alpha: lora.alpha,
            projections: lora.projections,
            blocks: self.blocks,
        })
    }

    /// The invalid keys, each with its error.
    pub fn wrongs(&self) -> Vec<(String, String)> {
        let least = |value: f64| value >= 0.0;
        let ema = self.ema;
        let likely = self.likely;
        let below = "must be 0 or more and below 1";
        let numbers = [
            ("lr", self.lr, least(self.lr), "must be 0 or more"),
            (
                "lambda",
                self.lambda,
                least(self.lambda),
                "must be 0 or more",
            ),
            ("tau", self.tau, self.tau > 0.0, "must be positive"),
            ("ema", ema, (0.0..1.0).contains(&ema), below),
            ("likely", likely, (0.0..1.0).contains(&likely), below),
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
