//! One answer under the controller.

use super::steps::{Steps, Sums};
use super::{Ledger, Way};
use crate::Replay;

/// Number of standard errors added to the expected saving. Speculation stops if not even that saves
/// anything.
const HOPES: f64 = 0.5;
/// Number of rounds of an answer after which an observation has weight 1/e.
const MEMORY: f64 = 64.0;
/// Prior variance of a round's saving, in squared plain steps, and the prior's weight in rounds.
const CHANCE: f64 = 1.2;
const PRIOR: f64 = 8.0;
/// Number of standard errors beyond which an answer counts as unlike the others.
const UNLIKE: f64 = 2.0;
/// Least prior spread of the saving of a trial, and of speculation that is tried again in an
/// answer, so that their own rounds decide.
const OPEN: f64 = 0.3;
/// Number of tokens after which stopped speculation is tried again. It doubles every time.
const LOOKS_AGAIN: f64 = 48.0;
/// Largest share of the time that plain steps between speculated rounds may lose.
const SAMPLING: f64 = 0.002;
/// Least share of its time that such a step is assumed to lose.
const LEAST_LOSS: f64 = 0.03;
/// Least number of rounds between two such steps; and the number while few steps were seen.
const SPACING: usize = 8;
const FIRST_SPACING: usize = 4;
/// Number of plain steps that count as few.
const FEW: f64 = 24.0;

/// Cost of a round, in seconds and tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundCost {
    /// Number of positions of the target's forward: one, the proposals, and the alternatives.
    pub positions: usize,
    /// Number of tokens that the drafter drafted.
    pub drafted: usize,
    /// Number of tokens that were emitted.
    pub tokens: usize,
    /// Seconds of the drafter.
    pub draft: f64,
    /// Seconds of everything else.
    pub rest: f64,
}

impl From<&spec_decode::RoundOutcome> for RoundCost {
    fn from(outcome: &spec_decode::RoundOutcome) -> Self {
        Self {
            positions: 1 + outcome.proposed() + outcome.alternatives,
            drafted: outcome.draft.len(),
            tokens: outcome.emitted.len(),
            draft: outcome.timings.draft,
            rest: outcome.timings.total() - outcome.timings.draft,
        }
    }
}

/// An answer in progress. It is given the times of its rounds and decides about the next one.
#[derive(Clone, Debug)]
pub struct Answer {
    pub(super) target: String,
    way: Way,
    pub(super) tried: bool,
    records: bool,
    steps: Steps,
    pub(super) sums: Sums,
    /// Share of plain decoding's time that answers like this one save.
    worth: f64,
    /// Prior of this answer's saving, before its rounds are seen: mean and standard deviation.
    belief: (f64, f64),
    /// Savings of its speculated rounds, in plain steps; older rounds fade.
    saved: Saved,
    /// Savings of all its speculated rounds, from which the variance by chance is estimated.
    chance: Saved,
    /// Number of tokens to decode plainly before speculation is tried again; `None` while it is not
    /// stopped.
    rests: Option<f64>,
    pause: f64,
    /// Number of plain steps that are due, from answer to answer, and number of rounds since the last
    /// one.
    due: f64,
    since: usize,
    /// Tokens and seconds so far, without those of plain decoding.
    pub(super) ledger: Ledger,
    /// Seconds of its rounds, with those of disturbed ones limited.
    settled: f64,
    /// The rounds that copies alone would have needed for the answer.
    copies: Option<Replay>,
}

impl Answer {
    pub(super) fn new(
        target: &str,
        (way, tried): (Way, bool),
        steps: Steps,
        (worth, spread): (f64, f64),
        records: bool,
    ) -> Self {
        Self {
            target: target.to_owned(),
            way,
            tried,
            records,
            due: steps.due(),
            steps,
            sums: Sums::default(),
            worth,
            belief: match tried {
                true => (worth.max(0.0), spread.max(OPEN)),
                false => (worth.max(0.0), spread),
            },
            saved: Saved::default(),
            chance: Saved::default(),
            rests: None,
            pause: LOOKS_AGAIN,
            since: 0,
            ledger: Ledger {
                answers: 1,
                rested: u64::from(way == Way::Plain),
                ..Ledger::default()
            },
            settled: 0.0,
            copies: None,
        }
    }

    /// The way in which the answer is made.
    pub fn way(&self) -> Way {
        self.way
    }

    /// True if the target's output is to be recorded for learning.
    pub fn records(&self) -> bool {
        self.records
    }

    /// Adds the seconds in which the drafter read the prompt.
    pub fn read(&mut self, seconds: f64) {
        self.ledger.prefill += seconds;
    }

    /// Adds seconds of recording for learning, which are not part of [rounds](Self::observe).
    pub fn recorded(&mut self, seconds: f64) {
        self.ledger.learning += seconds;
    }

    /// Adds the rounds that copies alone would have needed for this answer. They show the worth of
    /// copies without a trial. `replay` is not called if copies did make the answer.
    pub fn would_copy(&mut self, replay: impl FnOnce() -> Replay) {
        if self.way != Way::Copies {
            self.copies = Some(replay());
        }
    }

    /// Number of plain steps that are due.
    pub(super) fn due(&self) -> f64 {
        self.due
    }

    /// True if the next round is speculated.
    pub fn speculates(&self) -> bool {
        if self.way == Way::Plain || self.rests.is_some() {
            return false;
        }
        let spacing = match self.steps.seen() + self.sums.plain()[0] < FEW {
            true => return self.since + 1 < FIRST_SPACING,
            false => SPACING,
        };
        self.due < 1.0 || self.since + 1 < spacing
    }

    /// Adds a round.
    pub fn observe(&mut self, round: &RoundCost) {
        let plain = round.drafted == 0 && round.positions <= 1;
        let step = self.steps.plain_step(&self.sums);
        let expected = step * self.steps.ratio(round.positions);
        let rest = self.steps.settled(round.rest, expected);
        let draft = self.steps.settled(round.draft, expected.max(step));
        self.sums.add(round.positions, rest);
        if plain && self.rests.is_none() && self.way != Way::Plain {
            self.sums.beside(rest);
        }
        self.ledger.tokens += round.tokens as u64;
        self.ledger.rounds += round.draft + round.rest;
        self.settled += draft + rest;
        self.since = if plain { 0 } else { self.since + 1 };
        if self.way == Way::Plain {
            return;
        }
        let step = self.steps.plain_step(&self.sums);
        if let Some(left) = &mut self.rests {
            *left -= round.tokens as f64;
            // An answer that is only a trial has been observed long enough.
            if *left <= 0.0 && !self.tried && self.worth > 0.0 {
                (self.rests, self.saved) = (None, Saved::default());
                self.belief = (0.0, self.belief.1.max(OPEN));
            }
            return;
        }
        if plain {
            self.due = (self.due - 1.0).max(0.0);
            return;
        }
        let loses = (self.worth.max(0.0)).clamp(LEAST_LOSS, 1.0);
        self.due += SAMPLING * (draft + rest) / (step * loses).max(1e-12);
        self.due = self.due.min(2.0);
        let saved = round.tokens as f64 - (draft + rest) / step.max(1e-12);
        self.chance.add(saved, round.tokens as f64, 1.0);
        self.saved
            .add(saved, round.tokens as f64, 1.0 - 1.0 / MEMORY);
        if self.saved.hope(self.belief) < 0.0 {
            self.rests = Some(self.pause);
            self.pause *= 2.0;
        }
    }

    /// The part of the variance of the answer's saving that is due to chance in its rounds.
    pub(super) fn chance(&self) -> f64 {
        let steps = (self.ledger.tokens as f64).max(1.0);
        self.chance.rounds * self.chance.variance() / (steps * steps)
    }

    /// Seconds of the answer, including the drafter's reading of the prompt.
    pub(super) fn seconds(&self) -> f64 {
        self.ledger.rounds + self.ledger.prefill
    }

    /// Seconds that plain decoding would have taken, without disturbances.
    pub(super) fn plain(&self, steps: &Steps) -> f64 {
        match self.way {
            Way::Plain => self.settled,
            _ => steps.plain_step(&self.sums) * self.ledger.tokens as f64,
        }
    }

    /// Share of plain decoding's time that copies alone would have saved, if that is known.
    pub(super) fn copies_save(&self, steps: &Steps) -> Option<f64> {
        let copies = self.copies.as_ref()?;
        let cost: f64 = copies
            .rounds()
            .map(|(positions, count)| steps.ratio(positions) * count as f64)
            .sum();
        (copies.tokens() > 0).then(|| 1.0 - cost / copies.tokens() as f64)
    }

    /// Seconds lost in comparison with plain decoding.
    pub(super) fn lost(&self, steps: &Steps) -> f64 {
        self.settled + self.ledger.prefill - self.plain(steps)
    }

    pub(super) fn ledger(&self, steps: &Steps) -> Ledger {
        // A disturbance of the rounds would have disturbed plain decoding, too.
        let disturbed = self.ledger.rounds - self.settled;
        Ledger {
            plain: self.plain(steps) + disturbed,
            ..self.ledger
        }
    }
}

/// Savings of rounds, in plain steps.
#[derive(Clone, Copy, Debug, Default)]
struct Saved {
    rounds: f64,
    tokens: f64,
    sum: f64,
    squares: f64,
}

impl Saved {
    fn add(&mut self, saved: f64, tokens: f64, keep: f64) {
        self.rounds = keep * self.rounds + 1.0;
        self.tokens = keep * self.tokens + tokens;
        self.sum = keep * self.sum + saved;
        self.squares = keep * self.squares + saved * saved;
    }

    /// Variance of the saving of one round.
    fn variance(&self) -> f64 {
        let own = self.squares - self.sum * self.sum / self.rounds.max(1.0);
        (own.max(0.0) + PRIOR * CHANCE) / (self.rounds + PRIOR)
    }

    /// Estimate of the share that the answer saves, from these rounds and the prior, plus some
    /// standard errors.
    fn hope(&self, (mean, spread): (f64, f64)) -> f64 {
        let seen = self.tokens * self.tokens / (self.rounds * self.variance()).max(1e-12);
        let share = self.sum / self.tokens.max(1.0);
        // For an answer that is unlike the others, the prior counts less.
        let unlike = (share - mean).abs() - UNLIKE / seen.max(1e-12).sqrt();
        let before = spread.max(unlike).powi(-2);
        let together = (before * mean + seen * share) / (before + seen);
        together + HOPES * (before + seen).sqrt().recip()
    }
}
