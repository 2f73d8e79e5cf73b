//! Special tokens that a target emitted, and if they could be learnt.

use std::collections::BTreeMap;

use distill_loss::Special;
use results::SpecialInfo;
use serde::{Deserialize, Serialize};
use spec_decode::Pair;

/// Numbers of times that each token was emitted in a streamed answer, and that it was learnt. A
/// special token without a counterpart in the drafter's vocabulary cannot be learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Specials {
    /// Counts by name: for targets of one drafter, equal names are equal tokens.
    counts: BTreeMap<String, (u64, u64)>,
}

impl Specials {
    /// Adds the tokens of one answer; logs once if one cannot be learnt.
    pub(super) fn add(&mut self, arm: &str, pair: &Pair, specials: &[Special]) {
        for Special { token, learnt } in specials {
            let name = pair.target.content(*token).unwrap_or_default();
            let count = self.counts.entry(name.to_owned()).or_default();
            count.0 += 1;
            count.1 += u64::from(*learnt);
            if count.0 == 1 && !learnt {
                tracing::info!(
                    arm,
                    token = name,
                    "a special token of the target is not learnt"
                );
            }
        }
    }

    /// The list for the manifest.
    pub(super) fn list(&self, arm: &str) -> Vec<SpecialInfo> {
        let counts = self.counts.iter();
        counts
            .map(|(token, &(emitted, learnt))| SpecialInfo {
                arm: arm.to_owned(),
                token: token.clone(),
                emitted,
                learnt,
            })
            .collect()
    }
}
