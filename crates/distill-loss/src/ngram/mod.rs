//! The n-gram term L_N-gram (section 3.2, Eq. 4) and its variants.

pub(crate) mod approximate_kl;
pub(crate) mod nll;

/// How the spelling of a target token by several draft tokens is taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NgramLoss {
    /// [`ngram_likelihood`](crate::ngram_likelihood) of every n-gram alike, the paper's.
    Nll,
    /// The same, weighted by the target's probability `p(t)` of the token in lambda's place
    /// (section 3.2: a lambda that is verified; point-wise KL without its constant
    /// `p(t) ln p(t)`).
    Pointwise,
    /// [`approximate_kl`](crate::approximate_kl) through Eq. 2.
    ApproximateKl,
}
