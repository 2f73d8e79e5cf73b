//! Chains in files: their score and their counts in one list.

use serde::{Deserialize, Serialize};

use super::{Chain, Score};

/// A chain as it is written.
#[derive(Serialize, Deserialize)]
pub(super) struct Counts {
    score: Score,
    counts: Vec<f64>,
}

impl From<Chain> for Counts {
    fn from(mut chain: Chain) -> Self {
        Self {
            score: chain.score,
            counts: chain.counts().map(|count| *count).collect(),
        }
    }
}

impl TryFrom<Counts> for Chain {
    type Error = String;

    fn try_from(written: Counts) -> Result<Self, String> {
        let mut chain = Self::new(written.score);
        let (found, expected) = (written.counts.len(), chain.counts().count());
        if found != expected {
            return Err(format!("a chain of {found} counts, expected {expected}"));
        }
        for (place, count) in chain.counts().zip(written.counts) {
            if !(count.is_finite() && count >= 0.0) {
                return Err(format!("a chain with the count {count}"));
            }
            *place = count;
        }
        Ok(chain)
    }
}

impl Chain {
    /// All counts, in the order of a file.
    pub(super) fn counts(&mut self) -> impl Iterator<Item = &mut f64> {
        let pairs = self.next.iter_mut().flatten();
        let judged = self.judged.iter_mut().flatten().flatten();
        self.first.iter_mut().chain(pairs).chain(judged)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BINS;
    use super::*;
    use crate::Label;

    fn seen(score: Score) -> Chain {
        let mut chain = Chain::new(score);
        for i in 0..50_usize {
            let label = |accepted| Some(Label { accepted, ends: 1 });
            let third = 1.0 / (1 + i) as f64;
            chain.observe([i % BINS, i * 7 % BINS], &[label(third), None]);
        }
        chain
    }

    #[test]
    fn chains_come_back_to_the_bit() {
        let chains = [seen(Score::Head), seen(Score::Position)];
        let text = serde_json::to_string(&chains).unwrap();
        assert_eq!(serde_json::from_str::<Vec<Chain>>(&text).unwrap(), chains);
    }

    #[test]
    fn damage_is_named() {
        let whole = serde_json::to_value(seen(Score::Confidence)).unwrap();
        let damaged = |change: &dyn Fn(&mut Vec<serde_json::Value>)| {
            let mut value = whole.clone();
            change(value["counts"].as_array_mut().unwrap());
            let read = serde_json::from_value::<Chain>(value);
            read.unwrap_err().to_string()
        };
        let short = damaged(&|counts| counts.truncate(5));
        assert!(short.contains("a chain of 5 counts"), "{short}");
        let negative = damaged(&|counts| counts[3] = (-1.0).into());
        assert!(negative.contains("the count -1"), "{negative}");
        let mut other = whole.clone();
        other["score"] = "luck".into();
        assert!(serde_json::from_value::<Chain>(other).is_err());
    }
}
