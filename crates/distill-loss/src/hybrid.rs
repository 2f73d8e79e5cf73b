//! The hybrid objective L = L_DM + lambda * L_N-gram (section 3.2).

use burn::tensor::Tensor;

/// The paper's lambda, fixed at this value in all its experiments.
pub const PAPER_LAMBDA: f64 = 0.2;

/// Both terms of one batch, each averaged over its own positions; `None` where a batch has none.
#[derive(Clone, Debug)]
pub struct HybridLoss {
    /// Mean of L_DM, nats.
    pub direct: Option<Tensor<1>>,
    /// Mean of L_N-gram, nats.
    pub ngram: Option<Tensor<1>>,
}

impl HybridLoss {
    /// Averages per-position terms.
    pub fn new(direct: Option<Tensor<1>>, ngram: Option<Tensor<1>>) -> Self {
        let mean = |term: Tensor<1>| (term.dims()[0] > 0).then(|| term.mean());
        Self {
            direct: direct.and_then(mean),
            ngram: ngram.and_then(mean),
        }
    }

    /// `L_DM + lambda * L_N-gram`; `None` if neither term has a position.
    pub fn total(&self, lambda: f64) -> Option<Tensor<1>> {
        match (self.direct.clone(), self.ngram.clone()) {
            (Some(direct), Some(ngram)) => Some(direct + ngram.mul_scalar(lambda)),
            (Some(direct), None) => Some(direct),
            (None, Some(ngram)) => Some(ngram.mul_scalar(lambda)),
            (None, None) => None,
        }
    }
}
