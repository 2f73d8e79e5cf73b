//! Counts of rounds and responses, each figure defined once.

use vocab_align::{DraftId, TargetId};

use ngram_cache::Kind;

use crate::translate::{Proposal, is_looked_up};
use crate::verify::{Origin, Score};

/// Wall-clock seconds of the parts of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Timings {
    /// Look-up of earlier text, drafter forwards (pending context included), masking and sampling.
    pub draft: f64,
    /// Draft to target tokens.
    pub translate: f64,
    /// The target's forward, and fetching its logits from a device.
    pub target: f64,
    /// Acceptance tests and sampling on the host.
    pub verify: f64,
    /// Cache rollback, re-tokenisation, n-gram insertion, teacher recording.
    pub commit: f64,
}

impl Timings {
    /// Sum of the parts.
    pub fn total(&self) -> f64 {
        self.draft + self.translate + self.target + self.verify + self.commit
    }

    /// Adds another round's parts.
    pub fn add(&mut self, other: &Self) {
        self.draft += other.draft;
        self.translate += other.translate;
        self.target += other.target;
        self.verify += other.verify;
        self.commit += other.commit;
    }
}

/// Result of one round. The default is a round that drafted and emitted nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoundOutcome {
    /// Number of the round in the response, from 0.
    pub round: usize,
    /// The drafted tokens: at most k, and up to two more that complete an n-gram.
    pub draft: Vec<DraftId>,
    /// The m proposed target tokens: looked-up ones, then the translation of the draft.
    pub proposals: Vec<Proposal>,
    /// Number of leading proposals that the target accepted. It is counted before a stop token or
    /// the token limit cuts the round short.
    pub accepted: usize,
    /// Target tokens appended to the response: the accepted ones, one more (bonus, residual or group
    /// token), and those drawn after it as far as it was scored as an alternative; cut after a stop
    /// token (which is kept) and at the token limit.
    pub emitted: Vec<TargetId>,
    /// Origin of the token after the accepted ones.
    pub origin: Origin,
    /// Scores of the verified proposals ([`Verdict::scores`](crate::Verdict::scores)).
    pub scores: Vec<Score>,
    /// Number of tokens of alternatives that were scored.
    pub alternatives: usize,
    /// Number of bytes of text of the emitted tokens; special tokens have none.
    pub emitted_bytes: usize,
    /// Number of n-grams that were new to the cache.
    pub inserted: usize,
    /// Seconds.
    pub timings: Timings,
}

impl RoundOutcome {
    /// m, the number of proposed target tokens.
    pub fn proposed(&self) -> usize {
        self.proposals.len()
    }

    /// Number of proposals that were merged n-grams.
    pub fn ngrams_proposed(&self) -> usize {
        count_ngrams(&self.proposals)
    }

    /// Number of proposals that were looked up. They come first.
    pub fn looked_up(&self) -> usize {
        let copied = |p: &&Proposal| is_looked_up(p);
        self.proposals.iter().take_while(copied).count()
    }

    /// Number of n-gram hits: accepted proposals that were merged n-grams.
    pub fn ngrams_accepted(&self) -> usize {
        count_ngrams(&self.proposals[..self.accepted.min(self.proposals.len())])
    }

    /// Accepted over proposed tokens; `None` if nothing was proposed.
    pub fn acceptance(&self) -> Option<f64> {
        let proposed = self.proposed();
        (proposed > 0).then(|| self.accepted as f64 / proposed as f64)
    }

    /// Mean acceptance probability of the scored proposals; `None` without any.
    pub fn expected_acceptance(&self) -> Option<f64> {
        let sum: f64 = self.scores.iter().map(|score| score.acceptance()).sum();
        (!self.scores.is_empty()).then(|| sum / self.scores.len() as f64)
    }
}

fn count_ngrams(proposals: &[Proposal]) -> usize {
    proposals.iter().filter(|p| p.kind == Kind::Ngram).count()
}

/// Sums over rounds, and the figures of the tables.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// Number of rounds, each with exactly one target forward.
    pub rounds: usize,
    /// Number of rounds with proposals.
    pub proposing_rounds: usize,
    /// Number of drafted tokens.
    pub drafted: usize,
    /// Number of proposed target tokens.
    pub proposed: usize,
    /// Number of accepted proposals.
    pub accepted: usize,
    /// Number of target tokens appended to responses.
    pub emitted: usize,
    /// Number of bytes of text appended to responses.
    pub emitted_bytes: usize,
    /// Number of merged n-grams among the proposals.
    pub ngrams_proposed: usize,
    /// Number of merged n-grams among the accepted proposals.
    pub ngrams_accepted: usize,
    /// Number of n-grams that were new to the cache.
    pub inserted: usize,
    /// Seconds.
    pub timings: Timings,
    acceptance_sum: f64,
}

impl Totals {
    /// Adds one round.
    pub fn add(&mut self, outcome: &RoundOutcome) {
        self.rounds += 1;
        if let Some(rate) = outcome.acceptance() {
            self.proposing_rounds += 1;
            self.acceptance_sum += rate;
        }
        self.drafted += outcome.draft.len();
        self.proposed += outcome.proposed();
        self.accepted += outcome.accepted;
        self.emitted += outcome.emitted.len();
        self.emitted_bytes += outcome.emitted_bytes;
        self.ngrams_proposed += outcome.ngrams_proposed();
        self.ngrams_accepted += outcome.ngrams_accepted();
        self.inserted += outcome.inserted;
        self.timings.add(&outcome.timings);
    }

    /// Adds the rounds of another response.
    pub fn merge(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.proposing_rounds += other.proposing_rounds;
        self.acceptance_sum += other.acceptance_sum;
        self.drafted += other.drafted;
        self.proposed += other.proposed;
        self.accepted += other.accepted;
        self.emitted += other.emitted;
        self.emitted_bytes += other.emitted_bytes;
        self.ngrams_proposed += other.ngrams_proposed;
        self.ngrams_accepted += other.ngrams_accepted;
        self.inserted += other.inserted;
        self.timings.add(&other.timings);
    }

    /// Acceptance rate of the paper: accepted / proposed, averaged over the rounds with proposals.
    /// The bonus or residual token counts on neither side. 0 without such rounds.
    pub fn acceptance_rate(&self) -> f64 {
        ratio(self.acceptance_sum, self.proposing_rounds)
    }

    /// Block efficiency: emitted target tokens per target forward, including the bonus or residual
    /// token and those after it in an alternative. Prefill counts on neither side. Plain decoding has 1.
    pub fn block_efficiency(&self) -> f64 {
        ratio(self.emitted as f64, self.rounds)
    }

    /// Bytes of text per target forward: a block efficiency that is comparable across target
    /// vocabularies, whose tokens differ in length.
    pub fn bytes_per_forward(&self) -> f64 {
        ratio(self.emitted_bytes as f64, self.rounds)
    }
}

fn ratio(sum: f64, count: usize) -> f64 {
    if count == 0 { 0.0 } else { sum / count as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(kinds: &[Kind], accepted: usize, emitted: u32) -> RoundOutcome {
        let proposal = |(position, &kind): (usize, &Kind)| Proposal {
            target: TargetId(position as u32),
            span: position..position + 1,
            kind,
        };
        RoundOutcome {
            round: 0,
            draft: kinds.iter().map(|_| DraftId(0)).collect(),
            proposals: kinds.iter().enumerate().map(proposal).collect(),
            accepted,
            emitted: (0..emitted).map(TargetId).collect(),
            origin: Origin::Residual,
            scores: vec![Score::new(0.9, 0.3), Score::new(0.1, 0.4)],
            alternatives: 0,
            emitted_bytes: 4 * emitted as usize,
            inserted: 1,
            timings: Timings {
                draft: 1.0,
                ..Timings::default()
            },
        }
    }

    #[test]
    fn figures_by_hand() {
        use Kind::{Direct, Ngram};
        let mut totals = Totals::default();
        totals.add(&round(&[Direct, Ngram, Ngram, Direct], 2, 3));
        totals.add(&round(&[Direct], 0, 1));
        totals.add(&round(&[], 0, 1));
        // Means over proposing rounds: (2/4 + 0/1) / 2.
        assert_eq!(totals.acceptance_rate(), 0.25);
        assert_eq!((totals.accepted, totals.proposed), (2, 5));
        assert_eq!(totals.block_efficiency(), 5.0 / 3.0);
        assert_eq!(totals.bytes_per_forward(), 20.0 / 3.0);
        assert_eq!((totals.ngrams_proposed, totals.ngrams_accepted), (2, 1));
        assert_eq!((totals.inserted, totals.drafted), (3, 5));
        assert_eq!(totals.timings.total(), 3.0);
        let mut twice = totals.clone();
        twice.merge(&totals);
        assert_eq!(twice.acceptance_rate(), totals.acceptance_rate());
        assert_eq!(
            (twice.rounds, twice.emitted, twice.emitted_bytes),
            (6, 10, 40)
        );
        assert_eq!(Totals::default().acceptance_rate(), 0.0);
    }

    #[test]
    fn expected_acceptance_is_the_mean_of_the_clipped_ratios() {
        let expected = round(&[Kind::Direct; 2], 1, 2).expected_acceptance();
        assert!((expected.unwrap_or(0.0) - 0.625).abs() < 1e-15);
    }
}
