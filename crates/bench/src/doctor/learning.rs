//! Costs of learning on this machine, and the gain that it needs to pay.

use anyhow::Result;
use lm::{Checkpoint, WeightType};
use serde::Serialize;

use super::measure::{DecodingRun, Measured};
use super::model::best;
use crate::bench::learn::Updates;

/// Number of parameters from which a drafter learns in its last blocks only, as in `serve`.
const LARGE: usize = 50_000_000;
/// Number of blocks that learn then.
const LAST: usize = 2;
/// Number of columns over which distributions are compared then: about as many as are probable at
/// some position of an answer, or sampled from the others.
const LIKELY: usize = 4000;
/// Number of answers per update.
const TOGETHER: usize = 2;
/// Assumed rises of the acceptance rate.
const RISES: [f64; 3] = [0.05, 0.1, 0.2];

/// Cost of learning, and its possible gains.
#[derive(Debug, Clone, Serialize)]
pub struct Learning {
    /// Number of last blocks that learn; 0 for all.
    pub blocks: usize,
    /// Number of columns that are compared.
    pub columns: usize,
    /// Numbers of tokens of the prompt and of the answer that were learnt from.
    pub prompt: usize,
    pub tokens: usize,
    /// Seconds of learning an answer, including packing the new weights.
    pub seconds: f64,
    /// Share of the time of a plain answer.
    pub share: f64,
    /// Gains at higher acceptance rates.
    pub gains: Vec<Gain>,
}

/// Gain from a rise of the acceptance rate.
#[derive(Debug, Clone, Serialize)]
pub struct Gain {
    /// Increase of the probability that a proposed token is accepted.
    pub rise: f64,
    /// Speedup over plain decoding, without the cost of learning.
    pub speed: f64,
    /// Seconds saved per answer, compared with the draft length that is fastest now.
    pub saved: f64,
}

/// Times updates of a drafter on random answers of the measured size. `fastest` is the fastest of
/// the measured draft lengths, `shared` the number of draft tokens that the target has as well.
///
/// # Errors
/// A drafter that cannot learn.
pub fn measure(
    drafter: &Checkpoint,
    weights: WeightType,
    measured: &Measured,
    fastest: &DecodingRun,
    shared: usize,
) -> Result<Learning> {
    let config = &drafter.config;
    let plain = &measured.plain;
    let answers = plain.answers.len().max(1);
    let (asked, answered) = (measured.prompt_tokens / answers, plain.tokens() / answers);
    let large = config.num_params() >= LARGE;
    let (blocks, columns) = match large {
        true => (LAST.min(config.num_layers), LIKELY.min(shared)),
        false => (0, shared),
    };
    let prompt = asked.min(config.max_position_embeddings / 2);
    let left = config.max_position_embeddings - prompt;
    let tokens = answered.clamp(2, left.max(2));
    let updates = Updates {
        responses: TOGETHER,
        tokens,
        prompt,
        shared: columns.max(1),
        rank: 0,
        blocks,
        bf16: false,
        weights,
        updates: 3,
    };
    let report = updates.measure(drafter)?;
    let seconds = (report.update_s + report.pack_s) / TOGETHER as f64;
    let round = fastest.round_cost(plain);
    let rate = round.rate_of(fastest.tokens_a_round());
    let now = fastest.tokens_a_round() / round.cost;
    let (rounds, a_token) = (measured.rounds(), plain.seconds_a_token());
    let gain = |rise: f64| {
        let (_, speed) = best(&rounds, (rate + rise).min(1.0))?;
        let saved = answered as f64 * a_token * (1.0 / now - 1.0 / speed);
        Some(Gain { rise, speed, saved })
    };
    Ok(Learning {
        blocks,
        columns,
        prompt,
        tokens,
        seconds,
        share: seconds / (a_token * answered as f64),
        gains: RISES.into_iter().filter_map(gain).collect(),
    })
}

impl Learning {
    /// Description for people.
    pub fn text(&self) -> String {
        let what = match self.blocks {
            0 => "all weights".to_owned(),
            blocks => format!("the last {blocks} blocks"),
        };
        let mut text = format!(
            "learning from an answer ({what}, {} tokens after {}, {} columns): {:.3} s, {:.1}% of a plain answer\n",
            self.tokens,
            self.prompt,
            self.columns,
            self.seconds,
            100.0 * self.share,
        );
        for gain in &self.gains {
            text.push_str(&format!(
                "  where it adds {:.2} to that probability: {:.2}x, {:.3} s saved an answer{}\n",
                gain.rise,
                gain.speed,
                gain.saved,
                match gain.saved > 0.0 {
                    true => format!(
                        ", an update is paid back after {:.1} answers",
                        self.seconds / gain.saved
                    ),
                    false => String::new(),
                },
            ));
        }
        text
    }
}
