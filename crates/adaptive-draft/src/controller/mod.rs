//! The controller. It decides about drafting, the weights that draft, and learning, by the seconds
//! that each has cost.
//!
//! | question | decided | by |
//! |---|---|---|
//! | Is the next answer speculated, and with which weights? | before an answer | the [`Worth`](worth::Worth) of each [`Way`]: the share of plain decoding's time that its answers saved |
//! | Does speculation continue in this answer? | before a round | the answer's loss so far ([`Answer`]) |
//! | Is the next update taken? | before an answer | the drafter's gain by learning, compared with the cost of an update ([`Learning`](learning::Learning)) |
//! | May a way be tried that is expected to lose? | before an answer | the loss of the last answers ([`Guard`](guard::Guard)) |
//!
//! If the learning code can do so, it compares the learner with the frozen weights on the same text
//! ([`Agreed`]). Measured times would need a hundred answers to distinguish them.
//!
//! Savings are relative to plain decoding of the same tokens at the same time. A plain step is a
//! round without a draft: one forward of the target that emits one token. Speculated answers have
//! some, and their time is the unit of the costs of longer rounds ([`Steps`](steps::Steps)).
//!
//! The controller reads no clock and draws nothing at random: the caller passes seconds, and the
//! same seconds lead to the same decisions. No decision depends on the target's draws in the round
//! or answer that it is made for, so the distribution of the output does not change.

mod answer;
mod guard;
mod learning;
mod pairs;
mod policy;
mod steps;
mod worth;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use answer::{Answer, RoundCost};
pub use pairs::Agreed;
pub use policy::Controlled;

use guard::Guard;
use learning::Learning;
use pairs::Pairs;
use steps::Steps;
use worth::Worth;

/// Number of first answers, in which trials may lose any amount of time.
const FIRST: u64 = 8;
/// Largest share of all time that trials of other ways than the best may lose.
const EXPLORE: f64 = 0.006;
/// Largest amount of time saved up for trials, in mean answers.
const MOST_EXPLORING: f64 = 1.0;
/// Assumed loss of a way that was never taken, in shares of an answer.
const UNKNOWN: f64 = 0.1;
/// Least assumed loss of a trial. It limits trials between two ways that seem equal.
const LEAST_LOSS: f64 = 0.02;
/// Largest assumed loss of a trial, in shares of an answer, unless reading the prompt alone takes
/// the drafter longer.
const MOST_LOSS: f64 = 0.4;
/// Loss in consecutive answers, in mean answers, after which a way no longer counts as saving.
const TRIP: f64 = 0.2;
/// Number of answers over which the time of a mean answer is averaged.
const MEMORY: f64 = 32.0;

/// Way of making an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Way {
    /// Plain decoding: the target alone.
    Plain,
    /// Looked-up text, without the drafter.
    Copies,
    /// Drafts by the frozen weights: those that the drafter had at first.
    Frozen,
    /// Drafts by the drafter's present weights, which may learn.
    Learner,
}

impl Way {
    /// True if the drafter drafts.
    pub fn drafts(self) -> bool {
        matches!(self, Self::Frozen | Self::Learner)
    }
}

/// Choices and bounds of a controller.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ControllerConfig {
    /// True if text may be looked up.
    pub copies: bool,
    /// True if the drafter learns.
    pub learns: bool,
    /// True if the drafter can draft with its frozen weights, too.
    pub frozen: bool,
    /// Least speed over any 32 answers after the first 8, relative to plain decoding.
    pub floor: f64,
    /// Largest share of the time of the last answers, up to 31 of them, that learning may take
    /// after the first 8.
    pub share: f64,
}

impl Default for ControllerConfig {
    fn default() -> Self {
        Self {
            copies: false,
            learns: true,
            frozen: true,
            floor: 0.98,
            share: 0.06,
        }
    }
}

/// Seconds of a stream, with the time that plain decoding would have taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ledger {
    /// Number of answers.
    pub answers: u64,
    /// Number of answers without any draft or copy.
    pub rested: u64,
    /// Number of tokens of all answers.
    pub tokens: u64,
    /// Seconds that plain decoding would have taken: the measured time of plain steps times the
    /// number of tokens.
    pub plain: f64,
    /// Seconds of all rounds.
    pub rounds: f64,
    /// Seconds in which the drafter read prompts.
    pub prefill: f64,
    /// Seconds of updates, and of recording for them.
    pub learning: f64,
    /// Number of updates.
    pub updates: u64,
}

impl std::fmt::Display for Ledger {
    /// Text for users: `saved 41.0 s so far, learning cost 3.0 s`.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = if self.saved() < 0.0 { "lost" } else { "saved" };
        let (seconds, learning) = (self.saved().abs(), self.learning);
        write!(
            f,
            "{word} {seconds:.1} s so far, learning cost {learning:.1} s"
        )
    }
}

impl Ledger {
    /// Seconds saved so far in comparison with plain decoding, after the cost of learning; negative
    /// if they are lost.
    pub fn saved(&self) -> f64 {
        self.plain - self.rounds - self.prefill - self.learning
    }

    /// Share of all seconds that learning took, in `[0, 1]`.
    pub fn share_of_learning(&self) -> f64 {
        let all = self.rounds + self.prefill + self.learning;
        if all > 0.0 { self.learning / all } else { 0.0 }
    }

    fn add(&mut self, other: &Self) {
        self.answers += other.answers;
        self.rested += other.rested;
        self.tokens += other.tokens;
        self.plain += other.plain;
        self.rounds += other.rounds;
        self.prefill += other.prefill;
        self.learning += other.learning;
        self.updates += other.updates;
    }
}

/// Present state of the decisions for one target.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Standing {
    /// The way that is expected to be the best.
    pub way: Way,
    /// True if an answer that has something to teach would be learnt from.
    pub learns: bool,
    /// Seconds so far.
    pub ledger: Ledger,
}

/// Estimates for the drafter with one target.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Known {
    task: String,
    steps: Steps,
    ways: BTreeMap<Way, Worth>,
    pairs: Pairs,
    learning: Learning,
    ledger: Ledger,
    /// Seconds of a mean answer by plain decoding, and number of answers in the mean.
    mean: f64,
    answers: u64,
    /// Mean seconds in which the drafter reads a prompt, and number of answers in the mean: those
    /// that it drafted in.
    #[serde(default)]
    reading: f64,
    #[serde(default)]
    drafted: u64,
}

/// Controller of one drafter. It keeps separate estimates for each target.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Controller {
    config: ControllerConfig,
    /// Name of the target in use.
    target: String,
    known: BTreeMap<String, Known>,
    guard: Guard,
    /// Seconds that may be lost to trials of other ways than the best.
    exploring: f64,
    answers: u64,
}

impl Controller {
    /// A controller without any estimates.
    pub fn new(config: ControllerConfig) -> Self {
        Self {
            config,
            target: String::new(),
            known: BTreeMap::new(),
            guard: Guard::default(),
            exploring: 0.0,
            answers: 0,
        }
    }

    /// Its choices and bounds.
    pub fn config(&self) -> ControllerConfig {
        self.config
    }

    /// Sets other choices and bounds. Estimates are kept, but those of copies that are switched off.
    pub fn reconfigure(&mut self, config: ControllerConfig) {
        if !config.copies {
            // Copies that are off are no measure for the drafter.
            for known in self.known.values_mut() {
                known.ways.remove(&Way::Copies);
            }
        }
        self.config = config;
    }

    /// Switches to `target` with prompts of `task`. Estimates for other targets are kept. After a
    /// change of task, estimates of the previous one count little.
    pub fn turn_to(&mut self, target: &str, task: &str) {
        target.clone_into(&mut self.target);
        let known = self.of(target);
        if known.task == task {
            return;
        }
        if !known.task.is_empty() {
            known.ways.values_mut().for_each(Worth::doubt_all);
            known.learning.drift();
            known.pairs.doubt();
        }
        task.clone_into(&mut known.task);
    }

    /// Begins an answer of the present target.
    pub fn open(&mut self) -> Answer {
        let mut known = self.known.remove(&self.target).unwrap_or_default();
        let (way, tried) = self.choose(&known);
        let allowed = self.config.learns && self.may_learn(&known);
        // Plain decoding proposes nothing, so nothing is rejected and there is nothing to learn.
        let teaches = allowed && way != Way::Plain && known.hopes();
        let records = teaches && known.learning.takes_turn();
        let answer = known.open(&self.target, (way, tried), records);
        self.known.insert(self.target.clone(), known);
        answer
    }

    /// Begins an answer that changes no estimates and teaches nothing. It is made in the best way
    /// and must not be [closed](Self::close).
    pub fn open_held_out(&self) -> Answer {
        let known = self.known.get(&self.target).cloned().unwrap_or_default();
        let way = match known.answers {
            0 => known.available(self.config).next().unwrap_or(Way::Plain),
            _ => known.best(self.config).0,
        };
        known.open(&self.target, (way, false), false)
    }

    /// Ends an answer, of whose proposals `rejected` were rejected. Returns true if its recording
    /// is to be learnt from. An answer without a rejection has nothing to teach; and nothing is
    /// learnt if copies save more than the drafter ever will.
    pub fn close(&mut self, answer: Answer, rejected: usize) -> bool {
        let config = self.config;
        let first = self.answers < FIRST;
        let mut known = self.known.remove(&answer.target).unwrap_or_default();
        known.steps.close(&answer.sums, answer.due());
        let (plain, lost) = (answer.plain(&known.steps), answer.lost(&known.steps));
        let way = answer.way();
        known.ledger.add(&answer.ledger(&known.steps));
        known.answers += 1;
        known.mean += (plain - known.mean) / MEMORY.min(known.answers as f64);
        if way.drafts() {
            let read = answer.ledger.prefill;
            known.drafted += 1;
            known.reading += (read - known.reading) / MEMORY.min(known.drafted as f64);
        }
        if plain > 0.0 {
            let weight = (plain / known.mean).clamp(0.1, 4.0);
            // One answer says at most that all of plain decoding's time was lost: a short answer
            // after a long prompt must not condemn a way.
            let saved = (-lost / plain).max(-1.0);
            known.observe(way, (saved, answer.chance(), weight), config);
            if let Some(saved) = answer.copies_save(&known.steps) {
                let copies = known.ways.entry(Way::Copies).or_default();
                copies.add(saved, 0.0, weight);
            }
        }
        known.learning.pass();
        if answer.records() {
            known.learning.recording_took(answer.ledger.learning);
        }
        known.learning.weigh(known.mean, known.copies());
        let teaches = rejected > 0;
        let learns = answer.records() && teaches && known.hopes();
        if answer.records() && !learns {
            // If nothing was rejected, the next answer takes the turn. Without hopes, none does.
            known.learning.drop_recording(!teaches);
        }
        self.answers += 1;
        let best = known.best(config).1.max(0.0);
        self.exploring += EXPLORE * answer.seconds();
        if answer.tried {
            self.exploring -= (lost + best * plain).max(LEAST_LOSS * plain);
        }
        self.exploring = self.exploring.min(MOST_EXPLORING * known.mean);
        self.guard.pass(lost, plain, first);
        self.guard.charge(answer.ledger.learning);
        self.known.insert(answer.target, known);
        learns
    }

    /// Drops an answer whose seconds say nothing about it: one that failed, or that shared its time
    /// with others. `learns` is true if its recording is learnt from all the same.
    pub fn leave(&mut self, answer: &Answer, learns: bool) {
        let known = self.of(&answer.target);
        if answer.records() && !learns {
            known.learning.drop_recording(true);
        }
        if answer.tried {
            // What it lost is not known, but it must not be tried again for nothing.
            let lost = UNKNOWN * known.mean;
            self.exploring -= lost;
        }
    }

    /// Drops the recording of an answer for this target that was to be learnt from when it was
    /// [closed](Self::close), but gave no example.
    pub fn drop_recording(&mut self, target: &str) {
        self.of(target).learning.drop_recording(true);
    }

    /// Adds an update for this target that took `seconds`. `agreed` is the drafters' agreement with
    /// its texts before the update.
    pub fn learnt(&mut self, target: &str, seconds: f64, agreed: Option<Agreed>) {
        let frozen = self.config.frozen;
        let known = self.of(target);
        if let Some(agreed) = agreed.filter(|_| frozen) {
            known.compare(agreed);
        }
        known.learning.learnt(seconds);
        known.ledger.learning += seconds;
        known.ledger.updates += 1;
        self.guard.charge(seconds);
    }

    /// Adds `seconds` of other learning for this target, such as the training of an acceptance
    /// head.
    pub fn spent(&mut self, target: &str, seconds: f64) {
        self.of(target).ledger.learning += seconds;
        self.guard.charge(seconds);
    }

    /// Present state of the decisions for a target; `None` if it has no answer.
    pub fn standing(&self, target: &str) -> Option<Standing> {
        let known = self.known.get(target).filter(|known| known.answers > 0)?;
        Some(Standing {
            way: known.best(self.config).0,
            learns: self.config.learns && known.learning.is_worth() && self.may_learn(known),
            ledger: known.ledger,
        })
    }

    /// Seconds with all targets together.
    pub fn ledger(&self) -> Ledger {
        let mut all = Ledger::default();
        self.known.values().for_each(|known| all.add(&known.ledger));
        all
    }

    fn of(&mut self, target: &str) -> &mut Known {
        self.known.entry(target.to_owned()).or_default()
    }

    /// The way of the next answer, and true if it is a trial.
    fn choose(&self, known: &Known) -> (Way, bool) {
        let config = self.config;
        let (best, saves) = known.best(config);
        if self.answers < FIRST {
            let copies = known.copies();
            let is_unknown = |way: &Way| match (known.ways.get(way), way) {
                (Some(_), Way::Copies) => false,
                (worth, _) => worth.is_none_or(|worth| worth.is_unknown(copies)),
            };
            if let Some(way) = known.available(config).find(is_unknown) {
                return (way, false);
            }
        }
        let hope = |way: Way| match (known.ways.get(&way), way) {
            // A trial of copies adds nothing: each answer shows what they would have saved.
            (Some(worth), Way::Copies) => worth.mean(),
            (Some(worth), _) => worth.hope().max(known.expected(way, config)),
            (None, _) => 1.0,
        };
        let others = known.available(config).filter(|way| *way != best);
        let other = others.max_by(|a, b| hope(*a).total_cmp(&hope(*b)));
        if let Some(other) = other.filter(|other| hope(*other) > saves) {
            let lost = match known.ways.get(&other) {
                Some(_) => saves - known.expected(other, config),
                None => UNKNOWN,
            };
            let lost = lost.max(LEAST_LOSS) * known.mean;
            // Speculation that loses is stopped within the answer. Little is lost then but the time
            // in which the drafter reads the prompt.
            let reading = if other.drafts() { known.reading } else { 0.0 };
            let lost = lost.min((MOST_LOSS * known.mean).max(reading));
            // A loss relative to the best way may still be a saving relative to plain decoding.
            let behind = lost - saves * known.mean;
            if self.exploring >= lost && self.allows(behind, known) {
                return (other, true);
            }
        }
        let doubtful = || known.ways.get(&best).is_none_or(|w| w.mean() < w.doubt());
        match best != Way::Plain && !self.allows(0.0, known) && doubtful() {
            true => (Way::Plain, false),
            false => (best, false),
        }
    }

    /// True if so many seconds may be lost.
    fn allows(&self, seconds: f64, known: &Known) -> bool {
        let share = 1.0 - self.config.floor;
        self.answers < FIRST || self.guard.allows(seconds, known.mean, share)
    }

    fn may_learn(&self, known: &Known) -> bool {
        let cost = known.learning.cost();
        if self.answers < FIRST {
            return known.learning.within_first(known.mean);
        }
        let saves = known.best(self.config).1 * known.mean;
        self.guard.has_share(cost, self.config.share) && self.allows(cost - saves, known)
    }
}

impl Known {
    /// Begins an answer that is made in this way; `tried` is true for a trial.
    fn open(&self, target: &str, (way, tried): (Way, bool), records: bool) -> Answer {
        let worth = self.ways.get(&way).cloned().unwrap_or_default();
        let worth = (worth.mean(), worth.spread());
        Answer::new(target, (way, tried), self.steps.clone(), worth, records)
    }

    /// The available ways other than plain decoding.
    fn available(&self, config: ControllerConfig) -> impl Iterator<Item = Way> {
        let frozen = config.frozen && self.learning.has_learnt();
        // Without frozen weights to draft with, a comparison with them decides nothing.
        let gain = self.pairs.gain().filter(|_| frozen);
        let all = [
            (Way::Learner, gain.is_none_or(|gain| gain >= 0.0)),
            (Way::Frozen, frozen && gain.is_none_or(|gain| gain < 0.0)),
            (Way::Copies, config.copies),
        ];
        all.into_iter()
            .filter(|(_, there)| *there)
            .map(|(way, _)| way)
    }

    /// The way that saved most, and its share.
    fn best(&self, config: ControllerConfig) -> (Way, f64) {
        let seen = self
            .available(config)
            .filter_map(|way| Some((way, self.ways.get(&way)?.mean())));
        let none = (Way::Plain, 0.0);
        seen.fold(none, |best, own| if own.1 > best.1 { own } else { best })
    }

    /// Expected saving of a way. For the learner it is more than the mean if it has learnt since.
    fn expected(&self, way: Way, config: ControllerConfig) -> f64 {
        let mean = self.ways.get(&way).map_or(0.0, Worth::mean);
        // After a comparison with the frozen weights the mean already includes what was learnt.
        match way == Way::Learner && config.learns && self.pairs.gain().is_none() {
            true => mean.max(self.learning.expected()),
            false => mean,
        }
    }

    /// Share of plain decoding's time that copies save; 0 if they save nothing.
    fn copies(&self) -> f64 {
        self.ways
            .get(&Way::Copies)
            .map_or(0.0, Worth::mean)
            .max(0.0)
    }

    /// False if copies save more than the drafter will after some learning.
    fn hopes(&self) -> bool {
        self.copies() == 0.0 || self.learning.is_worth()
    }

    /// Adds an answer that saved a share of plain decoding's time.
    fn observe(
        &mut self,
        way: Way,
        (saved, chance, weight): (f64, f64, f64),
        config: ControllerConfig,
    ) {
        self.ways.values_mut().for_each(Worth::pass);
        if way == Way::Plain {
            return;
        }
        let drafts = way.drafts();
        let gain = self.pairs.gain().filter(|_| drafts);
        // If learner and frozen weights were compared, the estimate of one follows from that of the
        // other.
        let (known_by, faster) = match (gain, way) {
            (Some(gain), Way::Learner) => (Way::Frozen, -gain),
            _ => (way, 0.0),
        };
        let worth = self.ways.entry(known_by).or_default();
        worth.add(saved_by(saved, faster), chance, weight);
        let fell = worth.trips(TRIP);
        if drafts {
            self.learning.observe(way == Way::Learner, saved, weight);
        }
        self.even();
        // Until it has learnt, learner and frozen weights are the same.
        if way == Way::Learner && config.learns && !self.learning.has_learnt() {
            let same = self.ways[&Way::Learner].clone();
            self.ways.insert(Way::Frozen, same);
        }
        if fell && drafts && gain.is_none() {
            self.learning.drift();
        }
    }

    /// Adds the drafters' agreement with a text.
    fn compare(&mut self, agreed: Agreed) {
        self.pairs.add(agreed);
        self.even();
        let Some(frozen) = self.ways.get(&Way::Frozen).map(Worth::mean) else {
            return;
        };
        let more = saved_by(frozen, agreed.gain()) - frozen;
        self.learning.compare(frozen, more, agreed.weight());
    }

    /// Sets the learner's worth to that of the frozen weights, with its gain applied.
    fn even(&mut self) {
        if let (Some(gain), Some(frozen)) = (self.pairs.gain(), self.ways.get(&Way::Frozen)) {
            let learner = frozen.with_mean(saved_by(frozen.mean(), gain));
            self.ways.insert(Way::Learner, learner);
        }
    }
}

/// Share of plain decoding's time that answers which saved `saved` would save if they made tokens
/// `exp(gain)` times as fast.
fn saved_by(saved: f64, gain: f64) -> f64 {
    1.0 - (1.0 - saved) * (-gain).exp()
}
