//! One answer under control.

use super::steps::{Steps, Sums};
use super::{Ledger, Way};

/// Speculation stops where not even so many standard errors more would save anything.
const HOPES: f64 = 0.5;
/// Rounds of an answer after which one counts 1/e.
const MEMORY: f64 = 64.0;
/// Variance of what a round saves, in plain steps, before any was seen, and its weight in rounds.
const CHANCE: f64 = 1.2;
const PRIOR: f64 = 8.0;
/// Standard errors beyond which an answer is not like others.
const UNLIKE: f64 = 2.0;
/// Spread of what answers save where only the next rounds can tell.
const OPEN: f64 = 0.3;
/// Tokens after which speculation that has stopped looks again; twice as many every time.
const LOOKS_AGAIN: f64 = 48.0;
/// Share of the time that plain steps in between may lose.
const SAMPLING: f64 = 0.004;
/// Least part of its time that such a step is taken to lose.
const LEAST_LOSS: f64 = 0.03;
/// Rounds between two such steps at least; and while few of them were seen.
const SPACING: usize = 8;
const FIRST_SPACING: usize = 4;
/// So many are few.
const FEW: f64 = 32.0;

/// Seconds and tokens of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundCost {
    /// Positions of the target's forward: one and the proposals.
    pub positions: usize,
    /// Tokens that the drafter drafted.
    pub drafted: usize,
    /// Tokens that were emitted.
    pub tokens: usize,
    /// Seconds of the drafter.
    pub draft: f64,
    /// Seconds of everything else.
    pub rest: f64,
}

impl From<&spec_decode::RoundOutcome> for RoundCost {
    fn from(outcome: &spec_decode::RoundOutcome) -> Self {
        Self {
            positions: 1 + outcome.proposed(),
            drafted: outcome.draft.len(),
            tokens: outcome.emitted.len(),
            draft: outcome.timings.draft,
            rest: outcome.timings.total() - outcome.timings.draft,
        }
    }
}

/// An answer in the making: it is told what rounds take and says how they go on.
#[derive(Clone, Debug)]
pub struct Answer {
    target: String,
    way: Way,
    tried: bool,
    records: bool,
    steps: Steps,
    sums: Sums,
    /// Share of plain decoding's time that answers like this one save.
    worth: f64,
    /// What is believed of this answer before its rounds are seen: mean and standard deviation.
    belief: (f64, f64),
    /// What its speculated rounds saved, in plain steps.
    saved: Saved,
    /// The same of all of them, for what it says of chance.
    chance: Saved,
    /// Tokens to make without drafts before speculation looks again; `None` while it does not rest.
    rests: Option<f64>,
    pause: f64,
    /// Plain steps that are due, and rounds since the last one.
    due: f64,
    since: usize,
    tokens: usize,
    seconds: f64,
    /// The same, disturbed rounds as if they were not much so.
    settled: f64,
    prefill: f64,
    recording: f64,
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
            due: 0.0,
            since: 0,
            tokens: 0,
            seconds: 0.0,
            settled: 0.0,
            prefill: 0.0,
            recording: 0.0,
        }
    }

    /// How it is made.
    pub fn way(&self) -> Way {
        self.way
    }

    /// Whether what the target says is to be recorded, to be learnt from.
    pub fn records(&self) -> bool {
        self.records
    }

    /// Takes in the seconds in which the drafter read the prompt.
    pub fn read(&mut self, seconds: f64) {
        self.prefill += seconds;
    }

    /// Takes in seconds of recording what is learnt from, which [rounds](Self::observe) do not hold.
    pub fn recorded(&mut self, seconds: f64) {
        self.recording += seconds;
    }

    /// Whether the next round is speculated.
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

    /// Takes in a round.
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
        self.tokens += round.tokens;
        self.seconds += round.draft + round.rest;
        self.settled += draft + rest;
        self.since = if plain { 0 } else { self.since + 1 };
        if self.way == Way::Plain {
            return;
        }
        let step = self.steps.plain_step(&self.sums);
        if let Some(left) = &mut self.rests {
            *left -= round.tokens as f64;
            // Who only tries has seen enough.
            if *left <= 0.0 && !self.tried && self.worth > 0.0 {
                (self.rests, self.saved) = (None, Saved::default());
                self.belief = (0.0, self.belief.1.max(OPEN));
            }
            return;
        }
        if plain {
            self.due -= 1.0;
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

    /// The part of the variance of what it saved that is due to chance in its rounds.
    pub(super) fn chance(&self) -> f64 {
        let steps = (self.tokens as f64).max(1.0);
        self.chance.rounds * self.chance.variance() / (steps * steps)
    }

    pub(super) fn target(&self) -> &str {
        &self.target
    }

    pub(super) fn sums(&self) -> &Sums {
        &self.sums
    }

    pub(super) fn was_tried(&self) -> bool {
        self.tried
    }

    pub(super) fn recording(&self) -> f64 {
        self.recording
    }

    /// Seconds of the answer, reading the prompt with the drafter included.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds + self.prefill
    }

    /// Seconds that plain decoding would have taken, disturbances aside.
    pub(super) fn plain(&self, steps: &Steps) -> f64 {
        match self.way {
            Way::Plain => self.settled,
            _ => steps.plain_step(&self.sums) * self.tokens as f64,
        }
    }

    /// Seconds that were lost against plain decoding.
    pub(super) fn lost(&self, steps: &Steps) -> f64 {
        self.settled + self.prefill - self.plain(steps)
    }

    pub(super) fn ledger(&self, steps: &Steps) -> Ledger {
        // What disturbed the rounds would have disturbed plain decoding, too.
        let disturbed = self.seconds - self.settled;
        Ledger {
            answers: 1,
            rested: u64::from(self.way == Way::Plain),
            tokens: self.tokens as u64,
            plain: self.plain(steps) + disturbed,
            rounds: self.seconds,
            prefill: self.prefill,
            learning: self.recording,
            updates: 0,
        }
    }
}

/// What rounds saved, in plain steps.
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

    /// Of one round.
    fn variance(&self) -> f64 {
        let own = self.squares - self.sum * self.sum / self.rounds.max(1.0);
        (own.max(0.0) + PRIOR * CHANCE) / (self.rounds + PRIOR)
    }

    /// The share that the answer saves, by these rounds and what was believed before them, and some
    /// standard errors more.
    fn hope(&self, (mean, spread): (f64, f64)) -> f64 {
        let seen = self.tokens * self.tokens / (self.rounds * self.variance()).max(1e-12);
        let share = self.sum / self.tokens.max(1.0);
        // An answer that is nothing like the others is no reason to go on as with them.
        let unlike = (share - mean).abs() - UNLIKE / seen.max(1e-12).sqrt();
        let before = spread.max(unlike).powi(-2);
        let together = (before * mean + seen * share) / (before + seen);
        together + HOPES * (before + seen).sqrt().recip()
    }
}
