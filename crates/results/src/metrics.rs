//! The measured quantities, each with one name, unit, estimator and definition.
//!
//! Every metric is a ratio of sums over prompts, or a ratio of two such ratios, so that a group's
//! value follows from its sums: a long answer weighs more than a short one, and prompts can be
//! resampled without the rounds.

use crate::Finish;
use crate::measure::{Answer, Sums, ratio};

/// A metric of the table.
struct Definition {
    name: &'static str,
    title: &'static str,
    /// Empty for a share or a mean of shares.
    unit: &'static str,
    decimals: usize,
    /// True if it needs times, which are valid only in exclusive stages.
    timed: bool,
    definition: &'static str,
    /// The contribution of an answer to the metric's sums; `None` if it has none.
    sums: fn(&Answer) -> Option<Sums>,
}

macro_rules! metrics {
    ($($metric:ident, $definition:literal { $($field:ident: $value:expr,)+ })+) => {
        /// A quantity of a table.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Metric {
            $(#[doc = $definition] $metric,)+
        }

        impl Metric {
            /// All metrics, in the order of the documentation.
            pub const ALL: [Self; TABLE.len()] = [$(Self::$metric,)+];
        }

        const TABLE: &[Definition] = &[$(Definition { definition: $definition, $($field: $value,)+ },)+];
    };
}

metrics! {
    Acceptance,
        "accepted / proposed target tokens, mean over the rounds that proposed; the target's own token is not counted" {
        name: "acceptance", title: "acceptance", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let judged = f64::from(answer.row.judged_rounds);
            let rate = answer.row.acceptance_rate;
            (judged > 0.0 && rate.is_finite()).then(|| Sums::of(rate * judged, judged))
        },
    }
    TokensPerRound,
        "tokens generated / forwards of the target after the prompt, the target's own token counted; 1 for plain \
        decoding" {
        name: "tokens_per_round", title: "tokens/round", unit: "tokens", decimals: 2, timed: false,
        sums: |answer| ratio(answer.row.new_tokens, answer.row.rounds),
    }
    DraftLength, "draft tokens / rounds, before translation" {
        name: "draft_length", title: "drafted/round", unit: "tokens", decimals: 2, timed: false,
        sums: |answer| {
            let row = answer.drafted()?;
            ratio(row.draft_tokens, row.rounds)
        },
    }
    BytesPerRound, "bytes of text generated / rounds, which compares targets whose tokens differ in length" {
        name: "bytes_per_round", title: "bytes/round", unit: "bytes", decimals: 1, timed: false,
        sums: |answer| ratio(answer.row.new_bytes, answer.row.rounds),
    }
    HitsPerRound, "accepted target tokens that came from the n-gram cache / rounds" {
        name: "hits_per_round", title: "hits/round", unit: "tokens", decimals: 2, timed: false,
        sums: |answer| {
            let row = answer.drafted()?;
            ratio(row.ngram_hits, row.rounds)
        },
    }
    HitsPerResponse, "accepted target tokens that came from the n-gram cache / answers" {
        name: "hits_per_response", title: "hits/response", unit: "tokens", decimals: 2, timed: false,
        sums: |answer| ratio(answer.drafted()?.ngram_hits, 1),
    }
    NgramAcceptance, "accepted / proposed target tokens of those that came from the n-gram cache, totals" {
        name: "ngram_acceptance", title: "n-gram acceptance", unit: "", decimals: 2, timed: false,
        sums: |answer| ratio(answer.row.ngram_hits, answer.row.ngrams_proposed),
    }
    NgramShare, "proposed target tokens that came from the n-gram cache / proposed target tokens, totals" {
        name: "ngram_share", title: "n-grams of proposed", unit: "", decimals: 3, timed: false,
        sums: |answer| ratio(answer.row.ngrams_proposed, answer.row.proposed),
    }
    OtherAcceptance, "accepted / proposed target tokens of those that did not come from the n-gram cache, totals" {
        name: "other_acceptance", title: "other acceptance", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let row = &answer.row;
            let others = |all: u32, ngrams: u32| f64::from(all) - f64::from(ngrams);
            let proposed = others(row.proposed, row.ngrams_proposed);
            ratio(others(row.accepted, row.ngram_hits), proposed)
        },
    }
    EndAcceptance, "accepted / proposed tokens that end a text or turn, totals" {
        name: "end_acceptance", title: "end acceptance", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let row = answer.drafted()?;
            ratio(row.ends_accepted?, row.ends_proposed?)
        },
    }
    EndsDrafted,
        "accepted proposals that end a text or turn / answers that such a token ended: how many ends came for free" {
        name: "ends_drafted", title: "ends drafted", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let row = answer.drafted()?;
            let ended = row.finish == Finish::End;
            ratio(row.ends_accepted.filter(|_| ended)?, 1)
        },
    }
    Speedup,
        "tokens a second of decoding over tokens a second of plain decoding, totals over the same prompts; prefill \
        and learning apart" {
        name: "speedup", title: "speedup", unit: "x", decimals: 2, timed: true,
        sums: |answer| {
            let plain = answer.plain.as_ref()?;
            let own = Sums::of(answer.row.new_tokens.into(), answer.row.seconds);
            Some(own.over(plain.new_tokens.into(), plain.seconds))
        },
    }
    SpeedupEndToEnd,
        "as speedup, with the seconds of prefill on both sides and those for which learning held the stream up" {
        name: "speedup_end_to_end", title: "end to end", unit: "x", decimals: 2, timed: true,
        sums: |answer| {
            let plain = answer.plain.as_ref()?;
            let own = Sums::of(answer.row.new_tokens.into(), answer.row.all_seconds());
            Some(own.over(plain.new_tokens.into(), plain.seconds + plain.prefill_s))
        },
    }
    ModelledSpeedup,
        "tokens / (rounds + c drafter forwards), c = latency of a drafter step over one of a target step: the speedup \
        if only steps cost time and verifying cost as much as one step; a drafted token takes one forward, a copied \
        one none" {
        name: "modelled_speedup", title: "modelled", unit: "x", decimals: 2, timed: false,
        sums: |answer| {
            let row = &answer.row;
            ratio(row.new_tokens, answer.steps(row.rounds, row.draft_tokens))
        },
    }
    ImpliedSpeedup,
        "as modelled, with o more for every round that drafted: what the rounds of the paper's Table 1 cost above \
        their steps, (1 + 4 acceptance) / speedup - (1 + 4 c) with c of its Table 8, mean over the 16 cells of \
        SpD_DM and L_DM; o is the same for every number of draft tokens, which is what the paper's Table 5 says of 3 \
        and 4" {
        name: "implied_speedup", title: "modelled, implied", unit: "x", decimals: 2, timed: false,
        sums: |answer| {
            let row = &answer.row;
            let steps = answer.dearer_steps(row.rounds, row.judged_rounds, row.draft_tokens);
            ratio(row.new_tokens, steps)
        },
    }
    CountedSpeedup,
        "tokens / what their rounds cost at `decode.costs`, over the same of plain decoding of the same prompts: a \
        speedup without a clock, by drafted tokens and verified positions" {
        name: "counted_speedup", title: "counted", unit: "x", decimals: 2, timed: false,
        sums: |answer| {
            let plain = answer.plain.as_ref()?;
            let own = Sums::of(answer.row.new_tokens.into(), answer.row.cost?);
            Some(own.over(plain.new_tokens.into(), plain.cost?))
        },
    }
    TokensPerSecond, "tokens generated / seconds of decoding" {
        name: "tokens_per_s", title: "tokens/s", unit: "tokens/s", decimals: 1, timed: true,
        sums: |answer| ratio(answer.row.new_tokens, answer.row.seconds),
    }
    FreshAcceptance,
        "acceptance over fresh rounds; a round is fresh when none of its judged tokens (the accepted ones and the \
        target's replacement of the first rejected one) ends a 4-gram that stood in the answer so far or lies in an \
        8-gram of another prompt's answer in the same cell and arm; long accepted runs must pass for every token, so \
        it errs on the low side" {
        name: "fresh_acceptance", title: "acceptance, fresh", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let fresh = answer.text?.fresh?;
            ratio(fresh.acceptance, fresh.fresh)
        },
    }
    FreshModelledSpeedup,
        "the modelled speedup over fresh rounds alone; a round that proposed nothing is fresh when the token that it \
        committed is" {
        name: "fresh_modelled_speedup", title: "modelled, fresh", unit: "x", decimals: 2, timed: false,
        sums: |answer| {
            let fresh = answer.text?.fresh?;
            ratio(fresh.tokens, answer.steps(fresh.all_fresh, fresh.drafted))
        },
    }
    FreshImpliedSpeedup, "the same at the implied price of a round" {
        name: "fresh_implied_speedup", title: "implied, fresh", unit: "x", decimals: 2, timed: false,
        sums: |answer| {
            let fresh = answer.text?.fresh?;
            let steps = answer.dearer_steps(fresh.all_fresh, fresh.fresh, fresh.drafted);
            ratio(fresh.tokens, steps)
        },
    }
    FreshShare, "fresh rounds / rounds that proposed" {
        name: "fresh_share", title: "fresh", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let fresh = answer.text?.fresh?;
            ratio(fresh.fresh, fresh.rounds)
        },
    }
    Looping, "share of generated tokens that end a 4-gram which already stood in the same answer" {
        name: "looping", title: "looping", unit: "", decimals: 2, timed: false,
        sums: |answer| {
            let text = answer.text?;
            ratio(text.repeated, text.tokens)
        },
    }
    Cut, "share of answers that the token limit or the context ended" {
        name: "cut", title: "cut", unit: "", decimals: 2, timed: false,
        sums: |answer| ratio(u8::from(answer.row.finish == Finish::Length), 1),
    }
    Distinct, "different answers / answers, within a cell and arm" {
        name: "distinct", title: "distinct", unit: "", decimals: 2, timed: false,
        sums: |answer| ratio(1.0 / f64::from(answer.text?.copies.max(1)), 1),
    }
    LearningShare, "seconds for which learning held the stream up / seconds of decoding, prefill and learning" {
        name: "learning_share", title: "learning", unit: "", decimals: 3, timed: true,
        sums: |answer| {
            let row = answer.drafted()?;
            ratio(row.learn_s, row.all_seconds())
        },
    }
    CacheNgrams, "entries of the n-gram cache after the last prompt" {
        name: "cache_ngrams", title: "n-grams", unit: "entries", decimals: 0, timed: false,
        sums: |answer| {
            answer.drafted()?;
            ratio(answer.end_ngrams, 1)
        },
    }
    CacheMegabytes, "memory of the n-gram cache after the last prompt, 10^6 bytes" {
        name: "cache_mb", title: "cache MB", unit: "MB", decimals: 3, timed: false,
        sums: |answer| {
            answer.drafted()?;
            ratio(answer.end_bytes as f64 / 1e6, 1)
        },
    }
}

impl Metric {
    /// The metric with this name in an experiment file.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Name in experiment files and CSV.
    pub fn name(self) -> &'static str {
        self.define().name
    }

    /// Name in tables.
    pub fn title(self) -> &'static str {
        self.define().title
    }

    /// Number of decimals in tables.
    pub fn decimals(self) -> usize {
        self.define().decimals
    }

    /// The definition, as shown on pages and in the documentation.
    pub fn definition(self) -> &'static str {
        self.define().definition
    }

    /// True if it needs times, which are valid only in exclusive stages.
    pub fn is_timed(self) -> bool {
        self.define().timed
    }

    /// A value with its unit as in tables: `0.33`, `1.58x`, `41.2`.
    pub fn format(self, value: f64) -> String {
        let unit = match self.define().unit {
            "x" => "x",
            _ => "",
        };
        format!("{value:.*}{unit}", self.decimals())
    }

    /// The contribution of an answer to the metric's sums; `None` if it has none.
    pub fn sums(self, answer: &Answer) -> Option<Sums> {
        if self.is_timed() && !answer.timed {
            return None;
        }
        (self.define().sums)(answer)
    }

    fn define(self) -> &'static Definition {
        &TABLE[self as usize]
    }
}
