//! The direct-mapping term L_DM (section 3.2, Eq. 4) and what may take its place. All are on-policy:
//! the rows are those of answers which speculative decoding itself produced (as in GKD, Agarwal et
//! al., arXiv 2306.13649, and online speculative decoding, Liu et al., arXiv 2310.07177).

pub(crate) mod acceptance;
pub(crate) mod forward_kl;
pub(crate) mod nll;
pub(crate) mod reverse_kl;

/// Losses between the drafter's distribution q on the shared tokens and the target's, p.
// Their names in experiment files are those of the variants; their documentation there is this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "schema",
    derive(serde::Serialize, serde::Deserialize, schemars::JsonSchema),
    serde(rename_all = "kebab-case")
)]
pub enum DirectLoss {
    /// KL(q || p), the paper's.
    ReverseKl,
    /// KL(p || q).
    ForwardKl,
    /// Negative log-likelihood of the emitted token.
    Nll,
    /// The rejection rate.
    Acceptance,
    /// The negative logarithm of the acceptance rate.
    LogAcceptance,
}

impl DirectLoss {
    /// True if the target's distribution is read, not only the emitted token.
    pub fn reads_law(self) -> bool {
        self != Self::Nll
    }

    /// Grades one row, by [`reverse_kl`](crate::reverse_kl), [`forward_kl`](crate::forward_kl),
    /// [`negative_log_likelihood`](crate::negative_log_likelihood), [`acceptance`](crate::acceptance) or
    /// [`log_acceptance`](crate::log_acceptance).
    ///
    /// # Shapes
    /// - `logits`: `[shared]`, replaced by `weight` times the gradient
    /// - `teacher`: `[shared]`, log-probabilities, overwritten; any length for [`Self::Nll`]
    /// - `label`: column of the emitted token, read by [`Self::Nll`] only
    ///
    /// # Panics
    /// If lengths differ or the label read is no column.
    pub fn grade(self, logits: &mut [f32], teacher: &mut [f32], label: usize, weight: f64) -> f64 {
        match self {
            Self::ReverseKl => reverse_kl::reverse_kl(logits, teacher, weight),
            Self::ForwardKl => forward_kl::forward_kl(logits, teacher, weight),
            Self::Nll => nll::negative_log_likelihood(logits, label, weight),
            Self::Acceptance => acceptance::acceptance(logits, teacher, weight),
            Self::LogAcceptance => acceptance::log_acceptance(logits, teacher, weight),
        }
    }
}
