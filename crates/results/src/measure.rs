//! What one prompt adds to every metric: the only place where rows become numbers of a table.

use crate::metrics::Metric;
use crate::{Finish, PromptRow, text::TextFacts};

/// The numbers of a prompt's row that metrics are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counts {
    /// As in [`PromptRow`].
    pub new_tokens: u32,
    /// As in [`PromptRow`].
    pub new_bytes: u32,
    /// As in [`PromptRow`].
    pub rounds: u32,
    /// As in [`PromptRow`].
    pub draft_tokens: u32,
    /// As in [`PromptRow`].
    pub proposed: u32,
    /// As in [`PromptRow`].
    pub accepted: u32,
    /// As in [`PromptRow`].
    pub ngrams_proposed: u32,
    /// As in [`PromptRow`].
    pub ngram_hits: u32,
    /// As in [`PromptRow`].
    pub ends_proposed: Option<u32>,
    /// As in [`PromptRow`].
    pub ends_accepted: Option<u32>,
    /// As in [`PromptRow`].
    pub cost: Option<f64>,
    /// As in [`PromptRow`].
    pub acceptance_rate: f64,
    /// As in [`PromptRow`].
    pub judged_rounds: u32,
    /// As in [`PromptRow`].
    pub seconds: f64,
    /// As in [`PromptRow`].
    pub prefill_s: f64,
    /// As in [`PromptRow`].
    pub learn_s: f64,
    /// As in [`PromptRow`].
    pub cache_ngrams: u32,
    /// As in [`PromptRow`].
    pub cache_bytes: u64,
    /// Whether a limit ended the answer.
    pub cut: bool,
}

impl From<&PromptRow> for Counts {
    fn from(row: &PromptRow) -> Self {
        Self {
            new_tokens: row.new_tokens,
            new_bytes: row.new_bytes,
            rounds: row.rounds,
            draft_tokens: row.draft_tokens,
            proposed: row.proposed,
            accepted: row.accepted,
            ngrams_proposed: row.ngrams_proposed,
            ngram_hits: row.ngram_hits,
            ends_proposed: row.ends_proposed,
            ends_accepted: row.ends_accepted,
            cost: row.cost,
            acceptance_rate: row.acceptance_rate,
            judged_rounds: row.judged_rounds,
            seconds: row.seconds,
            prefill_s: row.prefill_s,
            learn_s: row.learn_s,
            cache_ngrams: row.cache_ngrams,
            cache_bytes: row.cache_bytes,
            cut: row.finish == Finish::Length,
        }
    }
}

/// Everything a metric may ask about a prompt.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Measured {
    /// The prompt's own numbers.
    pub counts: Counts,
    /// Those of plain decoding of the same prompt in the same cell.
    pub plain: Option<Counts>,
    /// Facts of the answer's text.
    pub text: Option<TextFacts>,
    /// Whether this is plain decoding itself.
    pub is_plain: bool,
    /// Whether the cell's times mean anything.
    pub timed: bool,
    /// Whether the arm's draft tokens were looked up, which takes no forward of a drafter.
    pub looks_up: bool,
    /// c of the modelled speedups: [`StepLatency::ratio`](crate::StepLatency::ratio).
    pub latency_ratio: f64,
    /// o of the implied speedup: what a round that drafts costs in steps of the target, beside its
    /// own step and those of the drafter.
    pub round_overhead: f64,
    /// Entries of the n-gram cache when the cell's last prompt was done.
    pub end_ngrams: u32,
    /// Bytes of the n-gram cache when the cell's last prompt was done.
    pub end_bytes: u64,
}

impl Measured {
    /// What `rounds` cost in steps of the target if only steps cost time: one each, and c for every
    /// forward of the drafter, of which a drafted token takes one and a copied token none.
    fn steps(&self, rounds: u32, drafted: u32) -> f64 {
        f64::from(rounds) + self.latency_ratio * f64::from(self.forwards(drafted))
    }

    /// The same with o for every round that drafted. Rows do not say which rounds those are where others
    /// copied: they are the ones that proposed, but no more than there were forwards.
    fn dearer_steps(&self, rounds: u32, proposing: u32, drafted: u32) -> f64 {
        let drafting = proposing.min(self.forwards(drafted));
        self.steps(rounds, drafted) + self.round_overhead * f64::from(drafting)
    }

    fn forwards(&self, drafted: u32) -> u32 {
        if self.looks_up { 0 } else { drafted }
    }
}

/// A ratio of sums, over another one where there is a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sums {
    /// Numerator.
    pub above: f64,
    /// Denominator.
    pub below: f64,
    /// Numerator of the reference.
    pub base_above: f64,
    /// Denominator of the reference.
    pub base_below: f64,
}

impl Sums {
    /// A ratio without a reference.
    pub fn of(above: f64, below: f64) -> Self {
        Self {
            above,
            below,
            base_above: 1.0,
            base_below: 1.0,
        }
    }

    /// Nothing summed yet.
    pub fn zero() -> Self {
        Self {
            above: 0.0,
            below: 0.0,
            base_above: 0.0,
            base_below: 0.0,
        }
    }

    /// Adds another prompt's sums `times` over.
    pub fn add(&mut self, other: &Self, times: f64) {
        self.above += times * other.above;
        self.below += times * other.below;
        self.base_above += times * other.base_above;
        self.base_below += times * other.base_below;
    }

    /// The ratio; `None` where it is not defined.
    pub fn value(&self) -> Option<f64> {
        let value = (self.above / self.below) / (self.base_above / self.base_below);
        value.is_finite().then_some(value)
    }

    /// The ratio of a whole group.
    pub fn total<'a>(items: impl IntoIterator<Item = &'a Self>) -> Option<f64> {
        let mut sums = Self::zero();
        for item in items {
            sums.add(item, 1.0);
        }
        sums.value()
    }
}

impl Metric {
    /// What one prompt adds to the metric's sums; `None` where it says nothing about it.
    pub fn sums(self, prompt: &Measured) -> Option<Sums> {
        let Measured {
            counts,
            plain,
            text,
            ..
        } = prompt;
        let share = |above: f64, below: f64| Some(Sums::of(above, below));
        let tokens = f64::from(counts.new_tokens);
        let rounds = f64::from(counts.rounds);
        let drafted = f64::from(counts.draft_tokens);
        let hits = f64::from(counts.ngram_hits);
        let (proposed, ngrams) = (
            f64::from(counts.proposed),
            f64::from(counts.ngrams_proposed),
        );
        if self.is_timed() && !prompt.timed {
            return None;
        }
        match self {
            Self::Acceptance => {
                let judged = f64::from(counts.judged_rounds);
                let rate = counts.acceptance_rate;
                (judged > 0.0 && rate.is_finite()).then(|| Sums::of(rate * judged, judged))
            }
            Self::TokensPerRound => share(tokens, rounds),
            Self::DraftLength if prompt.is_plain => None,
            Self::DraftLength => share(drafted, rounds),
            Self::BytesPerRound => share(f64::from(counts.new_bytes), rounds),
            Self::HitsPerRound if prompt.is_plain => None,
            Self::HitsPerRound => share(hits, rounds),
            Self::HitsPerResponse if prompt.is_plain => None,
            Self::HitsPerResponse => share(hits, 1.0),
            Self::NgramAcceptance => share(hits, ngrams),
            Self::NgramShare => share(ngrams, proposed),
            Self::OtherAcceptance => share(f64::from(counts.accepted) - hits, proposed - ngrams),
            Self::EndAcceptance | Self::EndsDrafted if prompt.is_plain => None,
            Self::EndAcceptance => share(
                f64::from(counts.ends_accepted?),
                f64::from(counts.ends_proposed?),
            ),
            Self::EndsDrafted if counts.cut => None,
            Self::EndsDrafted => share(f64::from(counts.ends_accepted?), 1.0),
            Self::Speedup => {
                let plain = plain.as_ref()?;
                Some(Sums {
                    above: tokens,
                    below: counts.seconds,
                    base_above: f64::from(plain.new_tokens),
                    base_below: plain.seconds,
                })
            }
            Self::SpeedupEndToEnd => {
                let plain = plain.as_ref()?;
                Some(Sums {
                    above: tokens,
                    below: counts.seconds + counts.prefill_s + counts.learn_s,
                    base_above: f64::from(plain.new_tokens),
                    base_below: plain.seconds + plain.prefill_s,
                })
            }
            Self::ModelledSpeedup => {
                let steps = prompt.steps(counts.rounds, counts.draft_tokens);
                share(tokens, steps)
            }
            Self::ImpliedSpeedup => {
                let (rounds, proposing) = (counts.rounds, counts.judged_rounds);
                let steps = prompt.dearer_steps(rounds, proposing, counts.draft_tokens);
                share(tokens, steps)
            }
            Self::CountedSpeedup => {
                let plain = plain.as_ref()?;
                Some(Sums {
                    above: tokens,
                    below: counts.cost?,
                    base_above: f64::from(plain.new_tokens),
                    base_below: plain.cost?,
                })
            }
            Self::TokensPerSecond => share(tokens, counts.seconds),
            Self::FreshAcceptance => {
                let fresh = text.as_ref()?.fresh?;
                share(fresh.acceptance, f64::from(fresh.fresh))
            }
            Self::FreshShare => {
                let fresh = text.as_ref()?.fresh?;
                share(f64::from(fresh.fresh), f64::from(fresh.rounds))
            }
            Self::FreshModelledSpeedup => {
                let fresh = text.as_ref()?.fresh?;
                let steps = prompt.steps(fresh.all_fresh, fresh.drafted);
                share(f64::from(fresh.tokens), steps)
            }
            Self::FreshImpliedSpeedup => {
                let fresh = text.as_ref()?.fresh?;
                let steps = prompt.dearer_steps(fresh.all_fresh, fresh.fresh, fresh.drafted);
                share(f64::from(fresh.tokens), steps)
            }
            Self::Looping => {
                let text = text.as_ref()?;
                share(f64::from(text.repeated), f64::from(text.tokens))
            }
            Self::Cut => share(f64::from(u8::from(counts.cut)), 1.0),
            Self::Distinct => share(1.0 / f64::from(text.as_ref()?.copies.max(1)), 1.0),
            Self::LearningShare if prompt.is_plain => None,
            Self::LearningShare => share(
                counts.learn_s,
                counts.seconds + counts.prefill_s + counts.learn_s,
            ),
            Self::CacheNgrams if prompt.is_plain => None,
            Self::CacheNgrams => share(f64::from(prompt.end_ngrams), 1.0),
            Self::CacheMegabytes if prompt.is_plain => None,
            Self::CacheMegabytes => share(prompt.end_bytes as f64 / 1e6, 1.0),
        }
    }
}
