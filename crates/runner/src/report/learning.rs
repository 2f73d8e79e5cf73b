//! What learning costs: its share of the stream's wall time, and speedups with and without it.

use super::csv::{Csv, number};
use super::data::RunData;
use crate::results::Phase;
use crate::results::stats::Timing;

/// Columns of `report/learning.csv`.
const COLUMNS: [&str; 11] = [
    "stream",
    "method",
    "prompts",
    "decode_s",
    "prefill_s",
    "learn_s",
    "learning_share",
    "updates",
    "update_s",
    "speedup_without_learning",
    "speedup_with_learning",
];

/// One learning arm on one stream, seeds together.
#[derive(Debug, Clone, PartialEq)]
pub struct LearningRow {
    /// The segment.
    pub stream: String,
    /// Arm.
    pub method: String,
    /// Answers, repetitions with other seeds counted.
    pub prompts: usize,
    /// Seconds of decoding.
    pub decode: f64,
    /// Seconds of prefill.
    pub prefill: f64,
    /// Seconds for which learning held the stream up.
    pub learn: f64,
    /// Updates.
    pub updates: usize,
    /// Mean seconds of an update, wherever it ran.
    pub update: Option<f64>,
    /// Speedup on the stream, decoding alone.
    pub without: Option<f64>,
    /// The same with the seconds of learning added.
    pub with: Option<f64>,
}

impl LearningRow {
    /// Learning over everything the arm did on the stream.
    pub fn share(&self) -> f64 {
        self.learn / (self.decode + self.prefill + self.learn)
    }
}

/// Rows by stream and arm; none where nothing learnt.
pub fn learning_rows(data: &RunData) -> Vec<LearningRow> {
    let mut rows = Vec::new();
    for segment in &data.segments {
        for arm in &data.arms {
            let streams = data.streams(&arm.name, segment.index, Phase::Train);
            let prompts: Vec<_> = streams.into_iter().flatten().collect();
            let learn: f64 = prompts.iter().map(|row| row.learn_s).sum();
            let own = |arm_name: &str, index: u32| arm_name == arm.name && index == segment.index;
            let updates: Vec<f64> = data
                .updates
                .iter()
                .filter(|update| own(&update.arm, update.segment))
                .map(|update| update.seconds)
                .collect();
            if updates.is_empty() || learn <= 0.0 {
                continue;
            }
            let timings: Option<Vec<Timing>> = prompts.iter().map(|row| data.timing(row)).collect();
            let total = timings.map(|timings| {
                let mut total = Timing::default();
                timings.iter().for_each(|timing| total.add(timing));
                total
            });
            let with_learning = total.map(|total| Timing {
                seconds: total.seconds + learn,
                ..total
            });
            rows.push(LearningRow {
                stream: segment.title.clone(),
                method: arm.name.clone(),
                prompts: prompts.len(),
                decode: prompts.iter().map(|row| row.seconds).sum(),
                prefill: prompts.iter().map(|row| row.prefill_s).sum(),
                learn,
                updates: updates.len(),
                update: Some(updates.iter().sum::<f64>() / updates.len() as f64),
                without: total.and_then(|total| total.speedup()),
                with: with_learning.and_then(|total| total.speedup()),
            });
        }
    }
    rows
}

/// `report/learning.csv`.
pub fn learning_csv(rows: &[LearningRow]) -> String {
    let mut csv = Csv::new(&COLUMNS);
    for row in rows {
        csv.row([
            row.stream.clone(),
            row.method.clone(),
            row.prompts.to_string(),
            number(Some(row.decode)),
            number(Some(row.prefill)),
            number(Some(row.learn)),
            number(Some(row.share())),
            row.updates.to_string(),
            number(row.update),
            number(row.without),
            number(row.with),
        ]);
    }
    csv.into_text()
}
