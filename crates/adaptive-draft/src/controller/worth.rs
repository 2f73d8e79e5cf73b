//! What a way of making answers has been worth.

use serde::{Deserialize, Serialize};

/// Answers made this way after which one counts 1/e.
const MEMORY: f64 = 24.0;
/// Answers made any way after which one counts 1/e.
const FADES: f64 = 128.0;
/// Standard deviation between answers before any was seen, and its weight in answers.
const SPREAD: f64 = 0.15;
const PRIOR: f64 = 4.0;
/// Answers are never taken to be more alike than that.
const LEAST_SPREAD: f64 = 0.03;
/// Standard errors above the mean that are hoped for.
const HOPES: f64 = 2.0;
/// Weight of what was found before something changed.
const DOUBTED: f64 = 2.0;

/// The share of plain decoding's time that answers saved: a running mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Worth {
    /// Weight of the answers, their sum, and the sum of squares about the mean.
    weight: f64,
    mean: f64,
    squares: f64,
    /// Sum of the squares that chance alone accounts for.
    chance: f64,
    /// What was lost since the best moment, in mean answers; and what those answers weigh.
    fall: f64,
    falling: f64,
}

impl Worth {
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// The same answers with another mean.
    pub(super) fn with_mean(&self, mean: f64) -> Self {
        Self {
            mean,
            ..self.clone()
        }
    }

    pub(super) fn weight(&self) -> f64 {
        self.weight
    }

    /// One standard error of the mean.
    pub(super) fn doubt(&self) -> f64 {
        let variance = (self.squares + PRIOR * SPREAD * SPREAD) / (self.weight + PRIOR);
        (variance / self.weight.max(1e-3)).sqrt()
    }

    /// Standard deviation of what answers save, chance within an answer aside; larger where the last
    /// ones have lost.
    pub(super) fn spread(&self) -> f64 {
        let squares = (self.squares - self.chance).max(0.0);
        let variance = (squares + PRIOR * SPREAD * SPREAD) / (self.weight + PRIOR);
        variance.sqrt().max(LEAST_SPREAD) + self.fall
    }

    /// What it may be worth at best.
    pub(super) fn hope(&self) -> f64 {
        self.mean + HOPES * self.doubt()
    }

    /// An answer was made, this way or another.
    pub(super) fn pass(&mut self) {
        self.fade(1.0 - 1.0 / FADES);
    }

    /// Takes in an answer that saved so much, of which chance in its rounds accounts for a variance.
    pub(super) fn add(&mut self, saved: f64, chance: f64, weight: f64) {
        self.fade(1.0 - 1.0 / MEMORY);
        self.weight += weight;
        let step = saved - self.mean;
        self.mean += step * weight / self.weight;
        self.squares += weight * step * (saved - self.mean);
        self.chance += weight * chance;
        self.fall -= saved * weight;
        self.falling += weight;
        if self.fall <= 0.0 {
            (self.fall, self.falling) = (0.0, 0.0);
        }
    }

    /// Whether more than `most` was lost since the best moment. Then what was before is forgotten.
    pub(super) fn trips(&mut self, most: f64) -> bool {
        if self.fall <= most {
            return false;
        }
        self.mean = self.mean.min(-self.fall / self.falling);
        self.weight = self.weight.min(self.falling);
        (self.fall, self.falling) = (0.0, 0.0);
        true
    }

    /// Something has changed: what was found is believed little.
    pub(super) fn doubt_all(&mut self) {
        self.fade((DOUBTED / self.weight.max(DOUBTED)).min(1.0));
        (self.fall, self.falling) = (0.0, 0.0);
    }

    fn fade(&mut self, keep: f64) {
        self.weight *= keep;
        self.squares *= keep;
        self.chance *= keep;
    }
}
