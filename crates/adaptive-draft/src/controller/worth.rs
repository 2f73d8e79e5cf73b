//! Estimate of the saving of one way of making answers.

use serde::{Deserialize, Serialize};

/// Number of answers made this way after which one has weight 1/e.
const MEMORY: f64 = 24.0;
/// Number of answers made in any way after which one has weight 1/e.
const FADES: f64 = 128.0;
/// Prior standard deviation between answers, and the prior's weight in answers.
const SPREAD: f64 = 0.15;
const PRIOR: f64 = 4.0;
/// Least standard deviation assumed between answers.
const LEAST_SPREAD: f64 = 0.03;
/// Number of standard errors added to the mean.
const HOPES: f64 = 2.0;
/// Weight of the estimate after a change, in answers.
const DOUBTED: f64 = 2.0;
/// Number of answers from which an estimate is one, and their weight when the first has faded.
const KNOWN: u64 = 2;
const KNOWN_WEIGHT: f64 = 1.75;

/// Share of plain decoding's time that answers saved, as a running mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Worth {
    /// Weight of the answers, their mean, and the sum of squares about the mean.
    weight: f64,
    mean: f64,
    squares: f64,
    /// Number of the answers, however long ago.
    answers: u64,
    /// Sum of the squares that are due to chance alone.
    chance: f64,
    /// Loss since the best moment, in mean answers; and the weight of those answers.
    fall: f64,
    falling: f64,
}

impl Worth {
    pub(super) fn mean(&self) -> f64 {
        self.mean
    }

    /// The same estimate with another mean.
    pub(super) fn with_mean(&self, mean: f64) -> Self {
        Self {
            mean,
            ..self.clone()
        }
    }

    /// True if more of the first answers should be made this way. `copies` is the share that copies
    /// save. A way that clearly saves less need not be tried again, however low the weight that
    /// [trips](Self::trips) have left it.
    pub(super) fn is_unknown(&self, copies: f64) -> bool {
        // The same answer says what copies would have saved, so one is enough to tell.
        let tells = self.answers >= KNOWN || copies > 0.0;
        self.weight < KNOWN_WEIGHT && !(tells && self.mean + self.doubt() < copies)
    }

    /// One standard error of the mean.
    pub(super) fn doubt(&self) -> f64 {
        let variance = (self.squares + PRIOR * SPREAD * SPREAD) / (self.weight + PRIOR);
        (variance / self.weight.max(1e-3)).sqrt()
    }

    /// Standard deviation of the savings of answers, without chance within an answer. It is larger
    /// if the last answers have lost.
    pub(super) fn spread(&self) -> f64 {
        let squares = (self.squares - self.chance).max(0.0);
        let variance = (squares + PRIOR * SPREAD * SPREAD) / (self.weight + PRIOR);
        variance.sqrt().max(LEAST_SPREAD) + self.fall
    }

    /// Optimistic estimate of the saving.
    pub(super) fn hope(&self) -> f64 {
        self.mean + HOPES * self.doubt()
    }

    /// Reduces the weight of earlier answers, because an answer was made in this or another way.
    pub(super) fn pass(&mut self) {
        self.fade(1.0 - 1.0 / FADES);
    }

    /// Adds an answer that saved `saved`, with the variance `chance` due to chance in its rounds.
    pub(super) fn add(&mut self, saved: f64, chance: f64, weight: f64) {
        self.fade(1.0 - 1.0 / MEMORY);
        self.weight += weight;
        self.answers += 1;
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

    /// True if more than `most` was lost since the best moment. Then earlier answers are forgotten.
    pub(super) fn trips(&mut self, most: f64) -> bool {
        if self.fall <= most {
            return false;
        }
        self.mean = self.mean.min(-self.fall / self.falling);
        self.weight = self.weight.min(self.falling);
        (self.fall, self.falling) = (0.0, 0.0);
        true
    }

    /// Reduces the weight of the estimate after a change.
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
