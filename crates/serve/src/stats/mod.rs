//! Counters of a server, and their output as JSON and for Prometheus.

mod prometheus;

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use adaptive_draft::{Answer, Controller, ControllerConfig, HeadReport, Standing, Way};
use online::{AnswerSums, ArmState, STRIDE};
use serde_json::{Value, json};
use spec_decode::{RoundOutcome, Totals};

use crate::remote::Traffic;

pub use prometheus::About;

/// Factor by which earlier steps fade, per step, in the estimate of the speedup.
const MEMORY: f64 = 0.998;
/// Weight of a new measurement of a plain step.
const FRESH: f64 = 0.3;
/// Weight of a new calibration error of a head.
const FRESH_HEAD: f64 = 0.05;

/// One step of the decode thread: a round of all sequences.
#[derive(Debug, Default, Clone)]
pub(crate) struct Step {
    /// True if nothing but one sequence was decoded.
    pub(crate) alone: bool,
    /// The target, if there is only one sequence.
    pub(crate) target: Option<usize>,
    pub(crate) forwards: usize,
    pub(crate) seconds: f64,
    /// Seconds of these for reading prompts and for measuring a plain step.
    pub(crate) prompt_seconds: f64,
    pub(crate) draft_seconds: f64,
    pub(crate) target_seconds: f64,
    pub(crate) drafting_rounds: usize,
    pub(crate) tokens: usize,
}

impl Step {
    /// Adds a round of one sequence.
    pub(crate) fn add(&mut self, drafting: bool, outcome: &RoundOutcome) {
        self.tokens += outcome.emitted.len();
        self.drafting_rounds += usize::from(drafting);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Sums over answers with the drafter since the state was new, by target.
    targets: BTreeMap<String, AnswerSums>,
    /// Costs and savings of answers.
    controller: Option<Controller>,
    /// True if the controller is in use; otherwise it is only kept.
    controlled: bool,
    plain_step: BTreeMap<usize, f64>,
    requests: BTreeMap<u16, u64>,
    steps: u64,
    forwards: u64,
    step_seconds: f64,
    draft_seconds: f64,
    target_seconds: f64,
    plain_answers: u64,
    plain_tokens: u64,
    tokens: u64,
    pub(crate) cancelled: u64,
    pub(crate) failed: u64,
    running: usize,
    waiting: usize,
    examples: u64,
    dropped: u64,
    update_seconds: f64,
    pub(crate) update_failures: u64,
    loss: f64,
    /// Bytes of the examples that each learner replays.
    pub(crate) replayed: BTreeMap<String, usize>,
    /// True for targets whose acceptance head decides where drafts end.
    pub(crate) by_head: BTreeMap<String, bool>,
    /// Mean absolute difference between predicted and true acceptance of new tokens, by target.
    calibration: BTreeMap<String, f64>,
    saves: u64,
    save_failures: u64,
    saved_bytes: u64,
    /// Number of KV caches for drafts of other servers.
    pub(crate) sessions: usize,
    /// Traffic with all remote targets.
    traffic: Traffic,
    /// Fading sums of seconds and tokens of steps with a single drafting sequence, by target.
    alone: BTreeMap<usize, (f64, f64)>,
}

impl Counters {
    /// The controller, if it is in use.
    fn controller(&mut self) -> Option<&mut Controller> {
        self.controller.as_mut().filter(|_| self.controlled)
    }

    /// The decisions for a target, if a controller is in use.
    fn standing(&self, target: &str) -> Option<Standing> {
        self.controller
            .as_ref()
            .filter(|_| self.controlled)?
            .standing(target)
    }
}

/// Counters that all threads share.
#[derive(Debug)]
pub struct Stats {
    counters: Mutex<Counters>,
    started: Instant,
}

impl Stats {
    /// Continues with the sums and the controller of a state.
    pub(crate) fn new(known: &ArmState) -> Self {
        let counters = Counters {
            targets: known.answers.clone(),
            controller: known.controller.clone(),
            ..Counters::default()
        };
        Self {
            counters: Mutex::new(counters),
            started: Instant::now(),
        }
    }

    /// Continues under a controller with these settings.
    pub(crate) fn control(&self, config: ControllerConfig) {
        let mut counters = self.counters();
        counters.controlled = true;
        let controller = &mut counters.controller;
        match controller {
            Some(controller) => controller.reconfigure(config),
            None => *controller = Some(Controller::new(config)),
        }
    }

    /// Begins an answer of a target under control; `None` without a controller.
    pub(crate) fn open(&self, target: &str) -> Option<Answer> {
        let mut counters = self.counters();
        let controller = counters.controller()?;
        controller.turn_to(target, "");
        Some(controller.open())
    }

    /// Ends an answer under control; `rejected` is the number of its rejected proposals. Returns
    /// true if it is to be learnt from.
    pub(crate) fn close(&self, answer: Answer, rejected: usize) -> bool {
        let mut counters = self.counters();
        let controller = counters.controller();
        controller.is_some_and(|controller| controller.close(answer, rejected))
    }

    /// Tells the controller something, if one is in use.
    pub(crate) fn tell(&self, act: impl FnOnce(&mut Controller)) {
        if let Some(controller) = self.counters().controller() {
            act(controller);
        }
    }

    /// The counters, which no other thread reads or changes meanwhile.
    pub(crate) fn counters(&self) -> MutexGuard<'_, Counters> {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the seconds of a plain step, measured at the start and again while one answer runs.
    pub(crate) fn plain_step(&self, target: usize, seconds: f64) {
        let mut counters = self.counters();
        let known = counters.plain_step.entry(target).or_insert(seconds);
        *known += FRESH * (seconds - *known);
    }

    pub(crate) fn traffic(&self, traffic: Traffic) {
        let mut counters = self.counters();
        for (sum, own) in counters.traffic.iter_mut().zip(traffic) {
            *sum += own;
        }
    }

    pub(crate) fn load(&self, running: usize, waiting: usize) {
        let mut counters = self.counters();
        (counters.running, counters.waiting) = (running, waiting);
    }

    pub(crate) fn step(&self, step: &Step) {
        let mut counters = self.counters();
        counters.steps += 1;
        counters.forwards += step.forwards as u64;
        counters.step_seconds += step.seconds;
        counters.draft_seconds += step.draft_seconds;
        counters.target_seconds += step.target_seconds;
        counters.tokens += step.tokens as u64;
        // With drafts of other servers the seconds are not those of one sequence.
        if let (true, 1, Some(target)) = (step.alone, step.drafting_rounds, step.target) {
            let (seconds, tokens) = counters.alone.entry(target).or_default();
            *seconds = *seconds * MEMORY + step.seconds - step.prompt_seconds;
            *tokens = *tokens * MEMORY + step.tokens as f64;
        }
    }

    /// Records an answer; `given` is the number of tokens that were sent to its client.
    pub(crate) fn answer(&self, target: &str, totals: &Totals, given: usize, drafting: bool) {
        let mut counters = self.counters();
        if !drafting {
            counters.plain_answers += 1;
            counters.plain_tokens += given as u64;
            return;
        }
        let sums = counters.targets.entry(target.to_owned()).or_default();
        sums.add(totals, given);
    }

    pub(crate) fn request(&self, status: u16) {
        *self.counters().requests.entry(status).or_default() += 1;
    }

    pub(crate) fn example(&self, taken: bool) {
        let mut counters = self.counters();
        match taken {
            true => counters.examples += 1,
            false => counters.dropped += 1,
        }
    }

    /// Counts an example as dropped that was taken before.
    pub(crate) fn example_displaced(&self) {
        let mut counters = self.counters();
        counters.examples = counters.examples.saturating_sub(1);
        counters.dropped += 1;
    }

    pub(crate) fn update(&self, target: &str, loss: f64, seconds: f64) {
        let mut counters = self.counters();
        let sums = counters.targets.entry(target.to_owned()).or_default();
        sums.updates = sums.updates.saturating_add(1);
        counters.loss = loss;
        counters.update_seconds += seconds;
    }

    pub(crate) fn head_step(&self, target: &str, report: &HeadReport) {
        let mut counters = self.counters();
        let sums = counters.targets.entry(target.to_owned()).or_default();
        sums.head_steps = sums.head_steps.saturating_add(1);
        let found = report.calibration_error;
        if found.is_finite() {
            let known = counters
                .calibration
                .entry(target.to_owned())
                .or_insert(found);
            *known += FRESH_HEAD * (found - *known);
        }
    }

    pub(crate) fn saved(&self, bytes: Option<u64>) {
        let mut counters = self.counters();
        match bytes {
            Some(bytes) => {
                counters.saves += 1;
                counters.saved_bytes = bytes;
            }
            None => counters.save_failures += 1,
        }
    }

    /// Number of answers with the drafter since the state was new.
    pub(crate) fn answers(&self) -> u64 {
        let counters = self.counters();
        let answers = counters.targets.values().map(|own| own.answers);
        answers.fold(0, u64::saturating_add)
    }

    /// Puts the sums and the controller into a state.
    pub(crate) fn write_into(&self, known: &mut ArmState) {
        let counters = self.counters();
        known.answers.clone_from(&counters.targets);
        known.controller.clone_from(&counters.controller);
    }

    /// Speedup estimate: seconds of plain decoding over seconds with the drafter for the same
    /// tokens, from steps with a single sequence; `None` if there was none.
    fn speedup(counters: &Counters) -> Option<f64> {
        let of = |(target, (seconds, tokens)): (&usize, &(f64, f64))| {
            let plain = counters.plain_step.get(target)?;
            Some([tokens * plain, *seconds])
        };
        let sums = counters.alone.iter().filter_map(of);
        let [plain, drafted] = sums.fold([0.0; 2], |[a, b], [c, d]| [a + c, b + d]);
        (drafted > 0.0).then(|| plain / drafted)
    }

    /// Lines for people: one for each target, and one more for each that a controller decides
    /// about.
    pub fn summary(&self) -> Vec<String> {
        let counters = self.counters();
        let line = |(name, sums): (&String, &AnswerSums)| {
            let share = 100.0 * sums.accepted as f64 / sums.proposed.max(1) as f64;
            let length = sums.tokens as f64 / sums.rounds.max(1) as f64;
            format!(
                "{name}: {} answers with the drafter, {share:.1} % of drafted tokens accepted, {length:.2} tokens a round, {} updates",
                sums.answers, sums.updates
            )
        };
        let lines = counters.targets.iter().map(line);
        let standings = counters.targets.keys();
        let standings = standings.filter_map(|name| Some((name, counters.standing(name)?)));
        let stands = standings.map(|(name, standing)| {
            let word = |on: bool| if on { "on" } else { "rests" };
            format!(
                "{name}: {}; speculation {}, learning {}",
                standing.ledger,
                word(standing.way != Way::Plain),
                word(standing.learns)
            )
        });
        lines.chain(stands).collect()
    }

    /// All counters, for the page.
    pub(crate) fn to_json(&self) -> Value {
        let counters = self.counters();
        let targets: BTreeMap<&String, Value> = counters
            .targets
            .iter()
            .map(|(name, sums)| {
                let ratio = |a: u64, b: u64| (b > 0).then(|| a as f64 / b as f64);
                let value = json!({
                    "answers": sums.answers,
                    "acceptance": ratio(sums.accepted, sums.proposed),
                    "tokens_per_round": ratio(sums.tokens, sums.rounds),
                    "ngrams_accepted": sums.ngrams,
                    "updates": sums.updates,
                    "history": sums.history,
                    "seconds": counters.standing(name).map(|standing| json!({
                        "saved": standing.ledger.saved(),
                        "learning": standing.ledger.learning,
                        "share_of_learning": standing.ledger.share_of_learning(),
                        "rested_answers": standing.ledger.rested,
                        "speculates": standing.way != Way::Plain,
                        "learns": standing.learns,
                    })),
                });
                (name, value)
            })
            .collect();
        json!({
            "targets": targets,
            "answers_per_point": STRIDE,
            "running": counters.running,
            "waiting": counters.waiting,
            "tokens": counters.tokens,
            "step_seconds": counters.step_seconds,
            "speedup_estimate": Self::speedup(&counters),
            "examples": counters.examples,
            "uptime_seconds": self.started.elapsed().as_secs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_speedup_is_that_of_steps_alone() {
        let stats = Stats::new(&ArmState::default());
        stats.plain_step(0, 1.0);
        let step = |alone| Step {
            alone,
            target: Some(0),
            seconds: 2.0,
            drafting_rounds: 1,
            tokens: 4,
            ..Step::default()
        };
        // It also scored drafts of another server.
        stats.step(&step(false));
        assert_eq!(stats.to_json()["speedup_estimate"], Value::Null);
        stats.step(&step(true));
        assert_eq!(stats.to_json()["speedup_estimate"], 2.0);
    }
}
