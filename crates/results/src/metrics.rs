//! The measured quantities, each defined once: one name, one unit, one estimator, one sentence.
//!
//! Every metric is a ratio of sums over prompts, or a ratio of two such ratios, so that a group's
//! value is that of its sums: a long answer weighs more than a short one, and prompts can be drawn
//! again without going back to the rounds.

/// A quantity of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Metric {
    /// Acceptance rate.
    Acceptance,
    /// Tokens generated per forward of the target.
    TokensPerRound,
    /// Draft tokens per round.
    DraftLength,
    /// Bytes of text per round.
    BytesPerRound,
    /// Accepted n-gram tokens per round.
    HitsPerRound,
    /// Accepted n-gram tokens per answer.
    HitsPerResponse,
    /// Share of proposed n-gram tokens that were accepted.
    NgramAcceptance,
    /// Share of n-grams among proposed tokens.
    NgramShare,
    /// Acceptance of the proposed tokens that are no n-grams.
    OtherAcceptance,
    /// Share of proposed ends that were accepted.
    EndAcceptance,
    /// Share of ends that were drafted.
    EndsDrafted,
    /// Speedup of decoding.
    Speedup,
    /// Speedup with prefill and learning in.
    SpeedupEndToEnd,
    /// Speedup that named step latencies would give.
    ModelledSpeedup,
    /// The same at what a round costs in the paper's Table 1.
    ImpliedSpeedup,
    /// Speedup at the configured costs of a round.
    CountedSpeedup,
    /// Tokens per second of decoding.
    TokensPerSecond,
    /// Acceptance rate of fresh rounds.
    FreshAcceptance,
    /// Modelled speedup of fresh rounds.
    FreshModelledSpeedup,
    /// The same at what a round costs in the paper's Table 1.
    FreshImpliedSpeedup,
    /// Share of fresh rounds.
    FreshShare,
    /// Share of looping tokens.
    Looping,
    /// Share of answers cut by the limit.
    Cut,
    /// Share of different answers.
    Distinct,
    /// Share of the time spent learning.
    LearningShare,
    /// Entries of the n-gram cache.
    CacheNgrams,
    /// Memory of the n-gram cache.
    CacheMegabytes,
}

/// How a metric is written and explained.
struct Description {
    name: &'static str,
    title: &'static str,
    unit: &'static str,
    decimals: usize,
    definition: &'static str,
}

impl Metric {
    /// All metrics, in the order of the documentation.
    pub const ALL: [Self; 27] = [
        Self::Acceptance,
        Self::TokensPerRound,
        Self::DraftLength,
        Self::BytesPerRound,
        Self::HitsPerRound,
        Self::HitsPerResponse,
        Self::NgramAcceptance,
        Self::NgramShare,
        Self::OtherAcceptance,
        Self::EndAcceptance,
        Self::EndsDrafted,
        Self::Speedup,
        Self::SpeedupEndToEnd,
        Self::ModelledSpeedup,
        Self::ImpliedSpeedup,
        Self::CountedSpeedup,
        Self::TokensPerSecond,
        Self::FreshAcceptance,
        Self::FreshModelledSpeedup,
        Self::FreshImpliedSpeedup,
        Self::FreshShare,
        Self::Looping,
        Self::Cut,
        Self::Distinct,
        Self::LearningShare,
        Self::CacheNgrams,
        Self::CacheMegabytes,
    ];

    /// The metric of a name in an experiment file.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Name in experiment files and CSV.
    pub fn name(self) -> &'static str {
        self.describe().name
    }

    /// Name in tables.
    pub fn title(self) -> &'static str {
        self.describe().title
    }

    /// Unit; empty for a share or a mean of shares.
    pub fn unit(self) -> &'static str {
        self.describe().unit
    }

    /// Decimals in tables.
    pub fn decimals(self) -> usize {
        self.describe().decimals
    }

    /// The definition, as pages and documentation print it.
    pub fn definition(self) -> &'static str {
        self.describe().definition
    }

    /// Whether it is made of times, which only mean something in exclusive stages.
    pub fn is_timed(self) -> bool {
        use Metric::{LearningShare, Speedup, SpeedupEndToEnd, TokensPerSecond};
        matches!(
            self,
            Speedup | SpeedupEndToEnd | TokensPerSecond | LearningShare
        )
    }

    /// Whether it needs the text of answers.
    pub fn needs_text(self) -> bool {
        use Metric::{
            Distinct, FreshAcceptance, FreshImpliedSpeedup, FreshModelledSpeedup, FreshShare,
            Looping,
        };
        matches!(
            self,
            FreshAcceptance
                | FreshModelledSpeedup
                | FreshImpliedSpeedup
                | FreshShare
                | Looping
                | Distinct
        )
    }

    /// A value with its unit, as tables print it: `0.33`, `1.58x`, `41.2`.
    pub fn format(self, value: f64) -> String {
        let unit = match self.unit() {
            "x" => "x",
            _ => "",
        };
        format!("{value:.*}{unit}", self.decimals())
    }

    fn describe(self) -> Description {
        let of = |name, title, unit, decimals, definition| Description {
            name,
            title,
            unit,
            decimals,
            definition,
        };
        match self {
            Self::Acceptance => of(
                "acceptance",
                "acceptance",
                "",
                2,
                "accepted / proposed target tokens, mean over the rounds that proposed; the target's own token is not counted",
            ),
            Self::TokensPerRound => of(
                "tokens_per_round",
                "tokens/round",
                "tokens",
                2,
                "tokens generated / forwards of the target after the prompt, the target's own token counted; 1 for plain decoding",
            ),
            Self::DraftLength => of(
                "draft_length",
                "drafted/round",
                "tokens",
                2,
                "draft tokens / rounds, before translation",
            ),
            Self::BytesPerRound => of(
                "bytes_per_round",
                "bytes/round",
                "bytes",
                1,
                "bytes of text generated / rounds, which compares targets whose tokens differ in length",
            ),
            Self::HitsPerRound => of(
                "hits_per_round",
                "hits/round",
                "tokens",
                2,
                "accepted target tokens that came from the n-gram cache / rounds",
            ),
            Self::HitsPerResponse => of(
                "hits_per_response",
                "hits/response",
                "tokens",
                2,
                "accepted target tokens that came from the n-gram cache / answers",
            ),
            Self::NgramAcceptance => of(
                "ngram_acceptance",
                "n-gram acceptance",
                "",
                2,
                "accepted / proposed target tokens of those that came from the n-gram cache, totals",
            ),
            Self::NgramShare => of(
                "ngram_share",
                "n-grams of proposed",
                "",
                3,
                "proposed target tokens that came from the n-gram cache / proposed target tokens, totals",
            ),
            Self::OtherAcceptance => of(
                "other_acceptance",
                "other acceptance",
                "",
                2,
                "accepted / proposed target tokens of those that did not come from the n-gram cache, totals",
            ),
            Self::EndAcceptance => of(
                "end_acceptance",
                "end acceptance",
                "",
                2,
                "accepted / proposed tokens that end a text or turn, totals",
            ),
            Self::EndsDrafted => of(
                "ends_drafted",
                "ends drafted",
                "",
                2,
                "accepted proposals that end a text or turn / answers that such a token ended: how many ends came for free",
            ),
            Self::Speedup => of(
                "speedup",
                "speedup",
                "x",
                2,
                "tokens a second of decoding over tokens a second of plain decoding, totals over the same prompts; prefill and learning apart",
            ),
            Self::SpeedupEndToEnd => of(
                "speedup_end_to_end",
                "end to end",
                "x",
                2,
                "as speedup, with the seconds of prefill on both sides and those for which learning held the stream up",
            ),
            Self::ModelledSpeedup => of(
                "modelled_speedup",
                "modelled",
                "x",
                2,
                "tokens / (rounds + c drafter forwards), c = latency of a drafter step over one of a target step: the speedup if only steps cost time and verifying cost as much as one step; a drafted token takes one forward, a copied one none",
            ),
            Self::ImpliedSpeedup => of(
                "implied_speedup",
                "modelled, implied",
                "x",
                2,
                "as modelled, with o more for every round that drafted: what the rounds of the paper's Table 1 cost above their steps, (1 + 4 acceptance) / speedup - (1 + 4 c) with c of its Table 8, mean over the 16 cells of SpD_DM and L_DM; o is the same for every number of draft tokens, which is what the paper's Table 5 says of 3 and 4",
            ),
            Self::CountedSpeedup => of(
                "counted_speedup",
                "counted",
                "x",
                2,
                "tokens / what their rounds cost at `decode.costs`, over the same of plain decoding of the same prompts: a speedup without a clock, by drafted tokens and verified positions",
            ),
            Self::TokensPerSecond => of(
                "tokens_per_s",
                "tokens/s",
                "tokens/s",
                1,
                "tokens generated / seconds of decoding",
            ),
            Self::FreshAcceptance => of(
                "fresh_acceptance",
                "acceptance, fresh",
                "",
                2,
                "acceptance over fresh rounds; a round is fresh when none of its judged tokens (the accepted ones and the target's replacement of the first rejected one) ends a 4-gram that stood in the answer so far or lies in an 8-gram of another prompt's answer in the same cell and arm; long accepted runs must pass for every token, so it errs on the low side",
            ),
            Self::FreshModelledSpeedup => of(
                "fresh_modelled_speedup",
                "modelled, fresh",
                "x",
                2,
                "the modelled speedup over fresh rounds alone; a round that proposed nothing is fresh when the token that it committed is",
            ),
            Self::FreshImpliedSpeedup => of(
                "fresh_implied_speedup",
                "implied, fresh",
                "x",
                2,
                "the same at the implied price of a round",
            ),
            Self::FreshShare => of(
                "fresh_share",
                "fresh",
                "",
                2,
                "fresh rounds / rounds that proposed",
            ),
            Self::Looping => of(
                "looping",
                "looping",
                "",
                2,
                "share of generated tokens that end a 4-gram which already stood in the same answer",
            ),
            Self::Cut => of(
                "cut",
                "cut",
                "",
                2,
                "share of answers that the token limit or the context ended",
            ),
            Self::Distinct => of(
                "distinct",
                "distinct",
                "",
                2,
                "different answers / answers, within a cell and arm",
            ),
            Self::LearningShare => of(
                "learning_share",
                "learning",
                "",
                3,
                "seconds for which learning held the stream up / seconds of decoding, prefill and learning",
            ),
            Self::CacheNgrams => of(
                "cache_ngrams",
                "n-grams",
                "entries",
                0,
                "entries of the n-gram cache after the last prompt",
            ),
            Self::CacheMegabytes => of(
                "cache_mb",
                "cache MB",
                "MB",
                3,
                "memory of the n-gram cache after the last prompt, 10^6 bytes",
            ),
        }
    }
}
