//! Acceptance of proposed tokens, by their position in the draft.

use results::{JudgedRound, Split};
use std::collections::BTreeMap;

/// Number of positions that are counted, each by itself; later ones are in no count.
pub const MOST: usize = 8;

/// Counts of an arm's rounds in a segment and split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions {
    pub arm: String,
    pub segment: u32,
    pub split: Split,
    /// Of the first position, the second and so on.
    pub counts: [Judged; MOST],
}

/// Counts of one position.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Judged {
    /// Rounds whose draft had this position, all tokens before it accepted.
    pub judged: u64,
    /// Number of these in which it was accepted too.
    pub accepted: u64,
}

impl Judged {
    /// The sum of two counts.
    pub fn and(self, other: Self) -> Self {
        Self {
            judged: self.judged + other.judged,
            accepted: self.accepted + other.accepted,
        }
    }

    /// The acceptance rate of the position, `None` where it was never judged.
    pub fn rate(self) -> Option<f64> {
        (self.judged > 0).then(|| self.accepted as f64 / self.judged as f64)
    }
}

/// Counts by arm, segment and split, in this order. A round verifies its proposals one after the
/// other and stops at the first that is not accepted.
pub fn positions(rounds: &[JudgedRound]) -> Vec<Positions> {
    let mut all: BTreeMap<(&str, u32, &str), Positions> = BTreeMap::new();
    for round in rounds {
        let key = (round.arm.as_str(), round.segment, round.split.as_str());
        let own = all.entry(key).or_insert_with(|| Positions {
            arm: round.arm.clone(),
            segment: round.segment,
            split: round.split,
            counts: [Judged::default(); MOST],
        });
        let judged = round.proposed.min(round.accepted.saturating_add(1));
        for (place, count) in (0..judged).zip(&mut own.counts) {
            count.judged += 1;
            count.accepted += u64::from(place < round.accepted);
        }
    }
    all.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn round(arm: &str, proposed: u32, accepted: u32) -> JudgedRound {
        JudgedRound {
            arm: arm.to_owned(),
            proposed,
            accepted,
            ..JudgedRound::default()
        }
    }

    #[test]
    fn a_position_is_judged_where_all_before_it_stood() {
        let rounds = [
            round("a", 3, 3),
            round("a", 3, 1),
            round("a", 1, 0),
            round("a", 0, 0),
            round("b", 20, 20),
        ];
        let found = positions(&rounds);
        let counts = |at: usize| -> Vec<(u64, u64)> {
            let own = found[at].counts.iter();
            own.map(|count| (count.judged, count.accepted)).collect()
        };
        assert_eq!(counts(0)[..4], [(3, 2), (2, 1), (1, 1), (0, 0)]);
        assert_eq!(counts(1), [(1, 1); MOST]);
        assert_eq!(found[0].counts[0].rate(), Some(2.0 / 3.0));
        assert_eq!(found[0].counts[3].rate(), None);
    }
}
