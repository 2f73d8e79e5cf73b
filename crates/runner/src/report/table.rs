//! The speedup table: one row per target, task and method.

use super::csv::{Csv, number};
use super::data::{RunData, key};
use crate::results::stats::{
    BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED, Interval, Timing, Totals, bootstrap_speedup,
    modelled_speedup, speedup,
};
use crate::results::{Phase, PromptRow};
use std::collections::BTreeMap;

/// Columns of `report/table.csv`.
pub const TABLE_COLUMNS: [&str; 14] = [
    "target",
    "task",
    "method",
    "temperature",
    "prompts",
    "acceptance_rate",
    "block_efficiency",
    "bytes_per_step",
    "ngram_hits",
    "speedup_measured",
    "speedup_low",
    "speedup_high",
    "speedup_modelled",
    "draft_length",
];

/// One row of the speedup table. An undefined quantity is `None`.
#[derive(Debug, Clone, PartialEq)]
pub struct TableRow {
    /// Target model.
    pub target: String,
    /// Task.
    pub task: String,
    /// Arm.
    pub method: String,
    /// Whether this is plain decoding, the reference.
    pub reference: bool,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Distinct prompts.
    pub prompts: usize,
    /// Accepted / proposed, mean over steps.
    pub acceptance_rate: Option<f64>,
    /// Generated tokens per step.
    pub block_efficiency: Option<f64>,
    /// Draft tokens per step.
    pub draft_length: Option<f64>,
    /// Bytes of text per step.
    pub bytes_per_step: Option<f64>,
    /// Accepted n-grams per step.
    pub ngram_hits: Option<f64>,
    /// Measured speedup over plain decoding.
    pub speedup: Option<f64>,
    /// 95% interval of the measured speedup; the reference has none.
    pub interval: Option<Interval>,
    /// Speedup modelled from block efficiency and step latencies.
    pub modelled: Option<f64>,
}

/// The phase the table is made from: held-out prompts when there are any, else the stream.
pub fn table_phase(data: &RunData) -> Phase {
    if data.prompts.iter().any(|row| row.phase == Phase::Test) {
        Phase::Test
    } else {
        Phase::Train
    }
}

/// Rows by target, then task (both in order of appearance), then arm.
pub fn table_rows(data: &RunData) -> Vec<TableRow> {
    let phase = table_phase(data);
    let mut targets: Vec<(&str, Vec<&str>)> = Vec::new();
    for row in data.prompts.iter().filter(|row| row.phase == phase) {
        let at = targets.iter().position(|(name, _)| *name == row.target);
        let at = at.unwrap_or_else(|| {
            targets.push((&row.target, Vec::new()));
            targets.len() - 1
        });
        if !targets[at].1.contains(&row.task.as_str()) {
            targets[at].1.push(&row.task);
        }
    }
    let mut rows = Vec::new();
    for (target, tasks) in targets {
        for task in tasks {
            for arm in &data.arms {
                let prompts: Vec<&PromptRow> = data
                    .prompts
                    .iter()
                    .filter(|row| row.phase == phase && row.arm == arm.name)
                    .filter(|row| row.target == target && row.task == task)
                    .collect();
                if !prompts.is_empty() {
                    rows.push(table_row(data, arm, &prompts));
                }
            }
        }
    }
    rows
}

fn table_row(data: &RunData, arm: &super::data::Arm, rows: &[&PromptRow]) -> TableRow {
    let totals = Totals::of(rows.iter().copied());
    let timings = timings_by_prompt(data, rows);
    let (target, task) = (rows[0].target.clone(), rows[0].task.clone());
    let ratio = data.manifest.latency(&target).ratio();
    let distinct: std::collections::BTreeSet<_> = rows.iter().map(|row| key(row)).collect();
    TableRow {
        target,
        task,
        method: arm.name.clone(),
        reference: arm.plain,
        temperature: arm.temperature,
        prompts: distinct.len(),
        acceptance_rate: totals.acceptance_rate(),
        block_efficiency: totals.block_efficiency(),
        draft_length: totals.draft_length().filter(|_| !arm.plain),
        bytes_per_step: totals.bytes_per_step(),
        ngram_hits: totals.ngram_hits_per_step(),
        speedup: speedup(&timings),
        interval: if arm.plain {
            None
        } else {
            bootstrap_speedup(&timings, BOOTSTRAP_RESAMPLES, BOOTSTRAP_SEED)
        },
        modelled: totals
            .block_efficiency()
            .zip(totals.draft_length())
            .map(|(efficiency, k)| modelled_speedup(efficiency, k, ratio)),
    }
}

/// One timing per prompt, repetitions with other seeds summed: prompts are what the bootstrap draws, and
/// repetitions of a prompt are not independent of each other.
fn timings_by_prompt(data: &RunData, rows: &[&PromptRow]) -> Vec<Timing> {
    let mut by_prompt: BTreeMap<_, Timing> = BTreeMap::new();
    for row in rows {
        if let Some(timing) = data.timing(row) {
            by_prompt.entry(key(row)).or_default().add(&timing);
        }
    }
    by_prompt.into_values().collect()
}

/// `report/table.csv`.
pub fn table_csv(rows: &[TableRow]) -> String {
    let mut csv = Csv::new(&TABLE_COLUMNS);
    for row in rows {
        csv.row([
            row.target.clone(),
            row.task.clone(),
            row.method.clone(),
            row.temperature.map_or_else(String::new, |t| t.to_string()),
            row.prompts.to_string(),
            number(row.acceptance_rate),
            number(row.block_efficiency),
            number(row.bytes_per_step),
            number(row.ngram_hits),
            number(row.speedup),
            number(row.interval.map(|interval| interval.low)),
            number(row.interval.map(|interval| interval.high)),
            number(row.modelled),
            number(row.draft_length),
        ]);
    }
    csv.into_text()
}
