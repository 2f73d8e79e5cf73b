//! The n-gram term L_N-gram (section 3.2, Eq. 4) and its variants.

pub(crate) mod approximate_kl;
pub(crate) mod nll;

/// Losses of the draft tokens of an n-gram. All but the last are [`ngram_likelihood`](crate::ngram_likelihood).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum NgramLoss {
    /// Negative log-likelihood of the draft tokens, the paper's.
    Nll,
    /// The same with the target's p(t) in the place of `lambda` (section 3.2: a lambda that is
    /// verified; point-wise KL without its constant p(t) ln p(t)).
    Pointwise,
    /// The same with `lambda` p(t).
    ScaledPointwise,
    /// KL through Eq. 2.
    // By `approximate_kl`.
    ApproximateKl,
}
