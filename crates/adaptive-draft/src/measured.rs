//! Costs measured while decoding.

use serde::{Deserialize, Serialize};
use spec_decode::RoundOutcome;

use crate::Costs;

/// Number of rounds after which a measurement has weight 1/e.
const MEMORY: f64 = 1000.0;
/// Weight of the given costs, in rounds; and least number of forwards of a fit.
const PRIOR: f64 = 8.0;
/// Weight of a measurement that was made before any round, in rounds.
const AT_START: f64 = 32.0;
/// Number of rounds after which 1/e of a change of the machine's pace is left to follow.
const PACE_MEMORY: f64 = 10.0;
/// Largest measurement that counts, in multiples of the usual seconds.
const MOST: f64 = 3.0;

/// Running sums of the seconds of rounds, by length.
///
/// A machine has slow periods. A length measured in one would look expensive, would be avoided, and
/// so would not be measured again. All sums therefore follow the machine's pace, which each round
/// shows for its own length, that of drafts apart from the rest. A round counts as at most three times its usual seconds.
///
/// Decisions based on them depend on the machine, so two runs may decide differently. The
/// distribution of the output does not change, since no decision depends on the target's draws in
/// the round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Sums")]
pub struct MeasuredCosts {
    /// Rounds and seconds by number of drafted tokens, from 1.
    draft: Vec<[f64; 2]>,
    /// Rounds and seconds by positions of the target's forward, from 1.
    verify: Vec<[f64; 2]>,
    rest: [f64; 2],
}

/// The sums as a file has them.
#[derive(Deserialize)]
struct Sums {
    draft: Vec<[f64; 2]>,
    verify: Vec<[f64; 2]>,
    rest: [f64; 2],
}

impl TryFrom<Sums> for MeasuredCosts {
    type Error = String;

    fn try_from(written: Sums) -> Result<Self, String> {
        for sum in written
            .draft
            .iter()
            .chain(&written.verify)
            .chain([&written.rest])
            .flatten()
        {
            if !(sum.is_finite() && *sum >= 0.0) {
                return Err(format!("measured costs with the sum {sum}"));
            }
        }
        Ok(Self {
            draft: written.draft,
            verify: written.verify,
            rest: written.rest,
        })
    }
}

impl MeasuredCosts {
    /// Adds a round.
    pub fn observe(&mut self, outcome: &RoundOutcome) {
        let timings = &outcome.timings;
        let at = outcome.proposed() + outcome.alternatives;
        let expected = usual(&self.verify, at);
        let judged = (timings.target + timings.verify).min(MOST * expected);
        let rest = (timings.translate + timings.commit).min(MOST * usual(&[self.rest], 0));
        let pace = |ratio: f64| match ratio > 0.0 {
            true => ratio.powf(1.0 / PACE_MEMORY),
            false => 1.0,
        };
        let judging = pace(judged / expected);
        let last = outcome.draft.len().checked_sub(1);
        let drafted = last.map(|last| timings.draft.min(MOST * usual(&self.draft, last)));
        // Drafts have a pace of their own where their length is known. Those measured before the
        // first round cost less than those of rounds, which begin with tokens that the drafter has
        // not read; if only the lengths that rounds have had followed, the others would look cheap.
        let known = last.and_then(|last| mean(self.draft.get(last)?));
        let drafting = match (drafted, known) {
            (Some(drafted), Some(known)) => pace(drafted / known),
            _ => judging,
        };
        let all = self.verify.iter_mut().chain([&mut self.rest]);
        let all = all.map(|sum| (sum, judging));
        for ([rounds, seconds], pace) in all.chain(self.draft.iter_mut().map(|sum| (sum, drafting)))
        {
            *rounds *= KEEP;
            *seconds *= KEEP * pace;
        }
        if let Some((last, drafted)) = last.zip(drafted) {
            add(&mut self.draft, last, 1.0, drafted);
        }
        add(&mut self.verify, at, 1.0, judged);
        self.rest[0] += 1.0;
        self.rest[1] += rest;
    }

    /// Adds the seconds of drafting so many tokens, at least 1, as they were measured before any
    /// round. They weigh as much as some rounds.
    pub fn observe_draft(&mut self, tokens: usize, seconds: f64) {
        add(&mut self.draft, tokens.saturating_sub(1), AT_START, seconds);
    }

    /// Like [`observe_draft`](Self::observe_draft), of a forward of the target over so many
    /// positions.
    pub fn observe_forward(&mut self, positions: usize, seconds: f64) {
        add(
            &mut self.verify,
            positions.saturating_sub(1),
            AT_START,
            seconds,
        );
    }

    /// Costs in steps of the target. `given` is the prior for lengths that few rounds had.
    pub fn costs(&self, given: &Costs) -> Costs {
        // One step is the unit in which the measured forwards cost what `given` says.
        let seen = |cost: &dyn Fn(usize) -> f64, sums: &[[f64; 2]]| -> f64 {
            let each = sums.iter().enumerate();
            each.map(|(i, [rounds, _])| rounds * cost(i + 1)).sum()
        };
        let expected = seen(&|n| given.verify(n), &self.verify);
        let seconds: f64 = self.verify.iter().map(|[_, seconds]| seconds).sum();
        if expected <= 0.0 || seconds <= 0.0 {
            return given.clone();
        }
        let step = seconds / expected;
        // The cost of a length that few rounds had is estimated from the length before it, plus the
        // given rise or the measured one, whichever is more. Given costs of another machine may be
        // too low for long drafts, which would then be made until the estimate is corrected.
        //
        // Longer forwards take no less time: where means fall, by chance, their lengths share a mean
        // (isotonic regression). With the largest mean so far in its place, one length that was
        // measured too high made all longer ones seem to cost no more than it.
        let list = |sums: &[[f64; 2]], known: usize, cost: &dyn Fn(usize) -> f64| -> Vec<f64> {
            let slope = slope(sums) / step;
            let mut shared: Vec<Shared> = Vec::new();
            for i in 0..(sums.len() + 2).max(known) {
                let guess = match shared.last() {
                    Some(before) => before.mean + (cost(i + 1) - cost(i)).max(slope),
                    None => cost(1),
                };
                let [rounds, seconds] = sums.get(i).copied().unwrap_or_default();
                let rounds = rounds + PRIOR;
                let mut last = Shared {
                    lengths: 1,
                    mean: (seconds / step + PRIOR * guess) / rounds,
                    rounds,
                };
                while let Some(before) = shared.pop_if(|before| before.mean > last.mean) {
                    last = before.with(&last);
                }
                shared.push(last);
            }
            let each = shared.into_iter();
            each.flat_map(|own| std::iter::repeat_n(own.mean, own.lengths))
                .collect()
        };
        let (drafts, positions) = (given.draft.len(), given.verify.len());
        Costs {
            draft: list(&self.draft, drafts, &|n| given.draft(n)),
            verify: list(&self.verify, positions, &|n| given.verify(n)),
            round: (self.rest[1] / step + PRIOR * given.round) / (self.rest[0] + PRIOR),
        }
    }
}

/// Neighbouring lengths that share a mean.
struct Shared {
    lengths: usize,
    mean: f64,
    rounds: f64,
}

impl Shared {
    fn with(&self, other: &Self) -> Self {
        let rounds = self.rounds + other.rounds;
        Self {
            lengths: self.lengths + other.lengths,
            mean: (self.mean * self.rounds + other.mean * other.rounds) / rounds,
            rounds,
        }
    }
}

/// Forwards of one model in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Forwards {
    /// Number of forwards that were asked for.
    pub calls: usize,
    /// Number of passes over the weights for them: one per forward if all sequences share the
    /// weights, one per sequence if none do.
    pub passes: usize,
    /// Number of sequences of all forwards.
    pub sequences: usize,
    /// Number of tokens of all forwards.
    pub tokens: usize,
    /// Seconds, including the work done for each token.
    pub seconds: f64,
}

/// A step in which each of several sequences makes a round.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SharedStep {
    /// The drafter's forwards.
    pub draft: Forwards,
    /// The target's.
    pub verify: Forwards,
    /// Seconds of verification and commit of all sequences.
    pub rest: f64,
}

/// Cost of a round for one of several sequences that are decoded together.
///
/// A pass over the weights serves the tokens of all sequences. It costs `a`, of which each of `n`
/// sequences pays an `n`th, and `b` for every token; `a` and `b` are fitted to the observed steps.
/// Decisions based on them depend on the machine, as with [`MeasuredCosts`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SharedCosts {
    draft: Fit,
    verify: Fit,
    /// Number of rounds, and the seconds of their rest.
    rest: [f64; 2],
}

impl SharedCosts {
    /// Adds a step.
    pub fn observe(&mut self, step: &SharedStep) {
        self.draft.observe(&step.draft);
        self.verify.observe(&step.verify);
        self.rest.iter_mut().for_each(|sum| *sum *= KEEP);
        self.rest[0] += step.verify.sequences as f64;
        self.rest[1] += step.rest;
    }

    /// Costs in steps of the target for one of `sequences`; `None` until a few drafts and forwards
    /// were seen.
    pub fn costs(&self, sequences: usize) -> Option<Costs> {
        let of = |fit: &Fit, tokens: f64| {
            let (pass, token) = fit.line()?;
            Some(pass * fit.passes_of(sequences) + token * tokens)
        };
        let step = of(&self.verify, 1.0).filter(|step| *step > 0.0)?;
        // A token is drafted by a forward of its own.
        Some(Costs {
            draft: vec![of(&self.draft, 1.0)? / step],
            verify: vec![1.0, of(&self.verify, 2.0)? / step],
            round: self.rest[1] / self.rest[0].max(1.0) / step,
        })
    }
}

/// Weight of a measurement after another one.
const KEEP: f64 = 1.0 - 1.0 / MEMORY;

/// Cosine between passes and tokens above which their prices are not distinguished.
const ALIKE: f64 = 0.9995;

/// Sums for a least-squares fit of the seconds of forwards by passes and tokens.
#[derive(Clone, Debug, Default, PartialEq)]
struct Fit {
    calls: f64,
    passes: f64,
    sequences: f64,
    passes_squared: f64,
    passes_tokens: f64,
    tokens_squared: f64,
    passes_seconds: f64,
    tokens_seconds: f64,
}

impl Fit {
    fn observe(&mut self, seen: &Forwards) {
        let (passes, tokens) = (seen.passes as f64, seen.tokens as f64);
        for (sum, new) in [
            (&mut self.calls, seen.calls as f64),
            (&mut self.passes, passes),
            (&mut self.sequences, seen.sequences as f64),
            (&mut self.passes_squared, passes * passes),
            (&mut self.passes_tokens, passes * tokens),
            (&mut self.tokens_squared, tokens * tokens),
            (&mut self.passes_seconds, passes * seen.seconds),
            (&mut self.tokens_seconds, tokens * seen.seconds),
        ] {
            *sum = *sum * KEEP + new;
        }
    }

    /// Number of passes over the weights that each of `sequences` pays for: between one for all and
    /// one each, as in the observed forwards.
    fn passes_of(&self, sequences: usize) -> f64 {
        let (passes, crowd) = (self.passes / self.calls, self.sequences / self.calls);
        let apart = match crowd > 1.0 {
            true => ((passes - 1.0) / (crowd - 1.0)).max(0.0),
            false => 0.0,
        };
        let sequences = sequences.max(1) as f64;
        (1.0 + apart * (sequences - 1.0)) / sequences
    }

    /// Seconds of a pass and of a token, neither negative; `None` with less than a few forwards. If
    /// all forwards had about the same number of tokens, the two cannot be distinguished, and the
    /// pass gets all of the time.
    fn line(&self) -> Option<(f64, f64)> {
        if self.calls < PRIOR {
            return None;
        }
        let (pp, pt, tt) = (self.passes_squared, self.passes_tokens, self.tokens_squared);
        let (ps, ts) = (self.passes_seconds, self.tokens_seconds);
        let of_passes = (ps / pp, 0.0);
        let determinant = pp * tt - pt * pt;
        if determinant <= (1.0 - ALIKE * ALIKE) * pp * tt {
            return Some(of_passes);
        }
        let pass = (ps * tt - ts * pt) / determinant;
        let token = (ts * pp - ps * pt) / determinant;
        Some(match (pass < 0.0, token < 0.0) {
            (_, true) => of_passes,
            (true, false) => (0.0, ts / tt),
            (false, false) => (pass, token),
        })
    }
}

/// Seconds by which one more token or position lengthens a forward: the slope of a line through the
/// means of all lengths, weighted by their rounds; at least 0, and 0 if all had one length.
fn slope(sums: &[[f64; 2]]) -> f64 {
    let sum = |of: &dyn Fn(usize, f64, f64) -> f64| -> f64 {
        let each = sums.iter().enumerate();
        each.map(|(i, [rounds, seconds])| of(i, *rounds, *seconds))
            .sum()
    };
    let rounds = sum(&|_, rounds, _| rounds).max(1e-9);
    let length = sum(&|i, rounds, _| i as f64 * rounds) / rounds;
    let spread = sum(&|i, rounds, _| rounds * (i as f64 - length).powi(2));
    let rise = sum(&|i, _, seconds| seconds * (i as f64 - length));
    if spread > 1e-9 {
        (rise / spread).max(0.0)
    } else {
        0.0
    }
}

/// Mean seconds of the length with this index or, if few rounds had it, of all lengths. Infinite as
/// long as too little is known.
fn usual(sums: &[[f64; 2]], at: usize) -> f64 {
    let all = [0, 1].map(|what| sums.iter().map(|sum| sum[what]).sum());
    let own = sums.get(at).copied();
    let found = own.iter().chain([&all]).find_map(mean);
    found.unwrap_or(f64::INFINITY)
}

/// Mean seconds of these rounds; `None` if there are few.
fn mean([rounds, seconds]: &[f64; 2]) -> Option<f64> {
    (*rounds >= PRIOR && *seconds > 0.0).then(|| seconds / rounds)
}

/// Adds so many rounds of `seconds` each.
pub(crate) fn add(sums: &mut Vec<[f64; 2]>, at: usize, rounds: f64, seconds: f64) {
    if sums.len() <= at {
        sums.resize(at + 1, [0.0; 2]);
    }
    sums[at][0] += rounds;
    sums[at][1] += rounds * seconds;
}

#[cfg(test)]
mod tests {
    use super::*;
    use spec_decode::{Proposal, Timings};
    use vocab_align::{DraftId, TargetId};

    fn round(drafted: usize) -> RoundOutcome {
        RoundOutcome {
            draft: vec![DraftId(0); drafted],
            proposals: (0..drafted)
                .map(|i| Proposal {
                    target: TargetId(0),
                    span: i..i + 1,
                    kind: ngram_cache::Kind::Direct,
                })
                .collect(),
            emitted: vec![TargetId(0)],
            timings: Timings {
                draft: 0.002 * drafted as f64,
                target: 0.02 + 0.001 * drafted as f64,
                commit: 0.001,
                ..Timings::default()
            },
            ..RoundOutcome::default()
        }
    }

    #[test]
    fn sums_come_back_to_the_bit_and_wrong_ones_are_refused() {
        let mut measured = MeasuredCosts::default();
        for drafted in 0..5 {
            measured.observe(&round(drafted));
        }
        let text = serde_json::to_string(&measured).unwrap();
        assert_eq!(
            serde_json::from_str::<MeasuredCosts>(&text).unwrap(),
            measured
        );
        let negative = r#"{"draft": [], "verify": [[1.0, -0.5]], "rest": [0.0, 0.0]}"#;
        let error = serde_json::from_str::<MeasuredCosts>(negative).unwrap_err();
        assert!(error.to_string().contains("the sum -0.5"), "{error}");
    }

    #[test]
    fn what_was_measured_before_the_first_round_counts_at_once() {
        let mut measured = MeasuredCosts::default();
        for positions in [1, 2, 4, 8] {
            measured.observe_forward(positions, 0.05 * (1.0 + 0.3 * (positions - 1) as f64));
        }
        measured.observe_draft(1, 0.005);
        measured.observe_draft(4, 0.02);
        let costs = measured.costs(&Costs::default());
        costs.check().unwrap();
        // The defaults say 1.3 for eight positions and 0.3 for four drafted tokens.
        let steps = |cost: f64| cost / costs.verify(1);
        assert!((2.7..3.3).contains(&steps(costs.verify(8))), "{costs:?}");
        assert!((4.5..6.5).contains(&steps(costs.verify(16))), "{costs:?}");
        assert!((0.36..0.44).contains(&steps(costs.draft(4))), "{costs:?}");
    }

    #[test]
    fn measured_costs_approach_what_rounds_took() {
        let given = Costs {
            draft: vec![0.5],
            verify: vec![1.0, 1.05, 1.1, 1.15],
            round: 0.0,
        };
        let mut measured = MeasuredCosts::default();
        assert_eq!(measured.costs(&given), given);
        for i in 0..4000 {
            measured.observe(&round(i % 4));
        }
        let found = measured.costs(&given);
        assert!(found.check().is_ok(), "{found:?}");
        for drafted in 1..4 {
            let expected = 0.1 * drafted as f64;
            assert!((found.draft(drafted) - expected).abs() < 0.05, "{found:?}");
            let expected = 1.0 + 0.05 * drafted as f64;
            assert!((found.verify(1 + drafted) - expected).abs() < 0.01);
        }
        assert!((found.round - 0.05).abs() < 0.01, "{}", found.round);
    }

    #[test]
    fn a_length_that_was_measured_too_high_does_not_set_the_cost_of_longer_ones() {
        let mut measured = MeasuredCosts::default();
        for (positions, times, step) in [(1, 20, 1.0), (2, 2, 1.6), (3, 20, 1.1), (4, 20, 1.2)] {
            for _ in 0..times {
                measured.observe_forward(positions, 0.05 * step);
            }
        }
        let costs = measured.costs(&Costs::default());
        costs.check().unwrap();
        let steps = |positions: usize| costs.verify(positions) / costs.verify(1);
        assert!((1.05..1.2).contains(&steps(3)), "{costs:?}");
        assert!((1.15..1.25).contains(&steps(4)), "{costs:?}");
    }

    #[test]
    fn longer_forwards_than_any_seen_cost_more() {
        let given = Costs {
            draft: vec![0.1],
            verify: vec![1.0, 1.25, 1.25],
            round: 0.0,
        };
        let mut measured = MeasuredCosts::default();
        for _ in 0..1000 {
            let mut flat = round(2);
            flat.timings.target = 0.025;
            measured.observe(&flat);
        }
        let steep = Costs {
            verify: vec![1.0, 1.25, 1.25, 1.5],
            ..given.clone()
        };
        for (costs, least) in [(&given, 1.24), (&steep, 3.5)] {
            let found = measured.costs(costs);
            assert!(found.check().is_ok(), "{found:?}");
            assert!(found.verify(13) > least, "{found:?}");
        }
        assert!((measured.costs(&given).draft(9) - 0.9).abs() < 0.1);
    }

    #[test]
    fn unseen_lengths_rise_as_the_seen_ones_did() {
        // Costs of a machine on which positions are free, measured on one where each takes a
        // twentieth of a step.
        let given = Costs {
            draft: vec![0.1],
            verify: vec![1.0, 1.0],
            round: 0.0,
        };
        let mut measured = MeasuredCosts::default();
        for i in 0..400 {
            measured.observe(&round(i % 4));
        }
        let found = measured.costs(&given);
        found.check().unwrap();
        let rise = (found.verify(13) - found.verify(4)) / found.verify(1) / 9.0;
        assert!((0.04..0.06).contains(&rise), "{rise}: {found:?}");
    }

    #[test]
    fn a_length_that_was_made_in_a_slow_spell_does_not_stay_dear() {
        let given = Costs {
            draft: vec![0.1],
            verify: vec![1.0, 1.05, 1.1, 1.15, 1.2],
            round: 0.0,
        };
        let mut measured = MeasuredCosts::default();
        for i in 0..1000 {
            // Four tokens are drafted in the first rounds only, when all takes half as long again.
            let slow = i < 300;
            let mut outcome = round(if slow && i % 2 == 0 { 4 } else { 2 });
            let timings = &mut outcome.timings;
            for seconds in [&mut timings.draft, &mut timings.target, &mut timings.commit] {
                *seconds *= if slow { 1.5 } else { 1.0 };
            }
            measured.observe(&outcome);
        }
        let found = measured.costs(&given);
        let steps = |cost: f64| cost / found.verify(3);
        assert!(
            (steps(found.verify(5)) - 24.0 / 22.0).abs() < 0.03,
            "{found:?}"
        );
        assert!(
            (steps(found.draft(4)) - 8.0 / 22.0).abs() < 0.03,
            "{found:?}"
        );
    }

    #[test]
    fn a_minute_of_sleep_is_not_a_cost() {
        let mut measured = MeasuredCosts::default();
        for i in 0..200 {
            measured.observe(&round(i % 4));
        }
        let before = measured.costs(&Costs::default());
        // The last draft is the first one of its length.
        for drafted in [0, 2, 3, 7] {
            let mut long = round(drafted);
            long.timings.draft += 60.0;
            long.timings.target += 60.0;
            long.timings.commit += 60.0;
            measured.observe(&long);
        }
        let after = measured.costs(&Costs::default());
        for (was, is) in [
            (before.verify(1), after.verify(1)),
            (before.verify(4), after.verify(4)),
            (before.verify(8), after.verify(8)),
            (before.draft(3), after.draft(3)),
            (before.draft(8), after.draft(8)),
            (before.round, after.round),
        ] {
            assert!((is / was - 1.0).abs() < 0.3, "{was} {is}: {after:?}");
        }
    }

    /// Steps of several sequences whose passes take `a`, and `b` per token: one pass for all, or
    /// one each.
    fn shared(sequences: &[usize], drafted: &[usize], apart: bool) -> SharedCosts {
        let mut costs = SharedCosts::default();
        let steps = sequences
            .iter()
            .flat_map(|n| drafted.iter().map(move |k| (*n, *k)));
        for (n, k) in steps.cycle().take(400) {
            let forwards = |calls: usize, tokens: usize, a: f64, b: f64| {
                let passes = if apart { calls * n } else { calls };
                Forwards {
                    calls,
                    passes,
                    sequences: calls * n,
                    tokens,
                    seconds: a * passes as f64 + b * tokens as f64,
                }
            };
            costs.observe(&SharedStep {
                draft: forwards(k, k * n, 0.002, 0.0005),
                verify: forwards(1, n * (k + 1), 0.02, 0.001),
                rest: 0.003 * n as f64,
            });
        }
        costs
    }

    #[test]
    fn sequences_together_share_what_a_pass_costs() {
        for apart in [false, true] {
            let costs = shared(&[1, 3, 8], &[1, 2, 6], apart);
            for n in [1, 4, 16] {
                let share = if apart { 1.0 } else { 1.0 / f64::from(n) };
                let own = |a: f64, b: f64, tokens: f64| a * share + b * tokens;
                let step = own(0.02, 0.001, 1.0);
                let found = costs.costs(n as usize).unwrap();
                found.check().unwrap();
                let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-6, "{apart} {n}: {a} {b}");
                close(found.verify(1), 1.0);
                close(found.verify(5), own(0.02, 0.001, 5.0) / step);
                close(found.draft(3), 3.0 * own(0.002, 0.0005, 1.0) / step);
                close(found.round, 0.003 / step);
            }
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_not_guessed() {
        assert_eq!(SharedCosts::default().costs(4), None);
        // With one number of sequences and one length, the observed time is returned and a token
        // has no price of its own.
        let found = shared(&[4], &[3], false).costs(4).unwrap();
        found.check().unwrap();
        assert!((found.verify(2) - 1.0).abs() < 1e-9);
        let step = (0.02 + 0.016) / 4.0;
        assert!((found.draft(1) * step - 0.004 / 4.0).abs() < 1e-9);
        // Longer forwards that took less time are noise, and a few steps are too few.
        let mut odd = SharedCosts::default();
        for step in 0..20 {
            assert_eq!(odd.costs(2).is_some(), step > 8);
            let (tokens, seconds) = if step % 2 == 0 { (2, 0.03) } else { (8, 0.01) };
            let forwards = Forwards {
                calls: 1,
                passes: 1,
                sequences: 2,
                tokens,
                seconds,
            };
            odd.observe(&SharedStep {
                draft: forwards,
                verify: forwards,
                rest: 0.0,
            });
        }
        let found = odd.costs(2).unwrap();
        found.check().unwrap();
        assert_eq!(found.verify(2), 1.0);
    }
}
