//! How fast an arm recovers after the stream switches task or target.

use super::csv::{Csv, number};
use super::data::RunData;
use crate::results::stats::Totals;
use crate::results::{Phase, PromptRow};

/// Share of the plateau that counts as recovered.
pub const RECOVERED_SHARE: f64 = 0.95;

/// Recovery of one arm in one segment after the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    /// Arm.
    pub method: String,
    /// Segment number.
    pub segment: u32,
    /// Title of the segment before and of this one, `a -> b`.
    pub switch: String,
    /// Acceptance rate over the segment's last quarter.
    pub plateau: f64,
    /// Acceptance rate over the segment's first window.
    pub start: f64,
    /// Prompts of the segment until the trailing average reached 95% of the plateau. The window's own length when
    /// the first full window was already there.
    pub prompts: Option<usize>,
    /// Length of the trailing window in prompts.
    pub window: usize,
}

/// Recovery of every speculative arm in every segment after the first, seeds pooled. Empty without drift.
pub fn recoveries(data: &RunData, window: usize) -> Vec<Recovery> {
    if !data.has_drift() {
        return Vec::new();
    }
    let mut recoveries = Vec::new();
    for pair in data.segments.windows(2) {
        for arm in data.arms.iter().filter(|arm| !arm.plain) {
            let streams = data.streams(&arm.name, pair[1].index, Phase::Train);
            let pooled = pool(&streams);
            if let Some((plateau, start, prompts)) = recovery(&pooled, window) {
                recoveries.push(Recovery {
                    method: arm.name.clone(),
                    segment: pair[1].index,
                    switch: format!("{} → {}", pair[0].title, pair[1].title),
                    plateau,
                    start,
                    prompts,
                    window,
                });
            }
        }
    }
    recoveries
}

/// Sums over seeds at each position of the segment.
fn pool(streams: &[Vec<&PromptRow>]) -> Vec<Totals> {
    let length = streams.iter().map(Vec::len).min().unwrap_or(0);
    (0..length)
        .map(|at| Totals::of(streams.iter().map(|rows| rows[at])))
        .collect()
}

/// (plateau, acceptance of the first window, prompts until recovered) of a segment; `None` when the segment is
/// shorter than a window or nothing was drafted.
fn recovery(prompts: &[Totals], window: usize) -> Option<(f64, f64, Option<usize>)> {
    if prompts.len() < window || window == 0 {
        return None;
    }
    let quarter = (prompts.len() / 4).max(window);
    let plateau = acceptance(&prompts[prompts.len() - quarter..])?;
    let start = acceptance(&prompts[..window])?;
    let recovered = (window..=prompts.len()).find(|&seen| {
        acceptance(&prompts[seen - window..seen])
            .is_some_and(|rate| rate >= RECOVERED_SHARE * plateau)
    });
    Some((plateau, start, recovered))
}

fn acceptance(prompts: &[Totals]) -> Option<f64> {
    let mut total = Totals::default();
    for prompt in prompts {
        total.merge(prompt);
    }
    total.acceptance_rate()
}

/// `drift_recovery.csv`.
pub fn recovery_csv(recoveries: &[Recovery]) -> String {
    let mut csv = Csv::new(&[
        "segment",
        "switch",
        "method",
        "start_acceptance",
        "plateau_acceptance",
        "recovery_prompts",
        "window",
    ]);
    for row in recoveries {
        csv.row([
            row.segment.to_string(),
            row.switch.clone(),
            row.method.clone(),
            number(Some(row.start)),
            number(Some(row.plateau)),
            row.prompts.map_or_else(String::new, |n| n.to_string()),
            row.window.to_string(),
        ]);
    }
    csv.into_text()
}

/// Lines for the caption: one per switch, `a → b: SpD_DM ≤ 8 · L_DM 40`.
pub fn recovery_lines(recoveries: &[Recovery]) -> Vec<String> {
    let mut lines: Vec<(u32, String)> = Vec::new();
    for row in recoveries {
        let prompts = match row.prompts {
            Some(n) if n == row.window => format!("≤ {n}"),
            Some(n) => n.to_string(),
            None => "never".to_owned(),
        };
        let entry = format!("{} {prompts}", row.method);
        match lines.last_mut() {
            Some((segment, line)) if *segment == row.segment => {
                line.push_str(&format!(" · {entry}"));
            }
            _ => lines.push((row.segment, format!("{}: {entry}", row.switch))),
        }
    }
    lines.into_iter().map(|(_, line)| line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Finish;

    fn totals(rate: f64) -> Totals {
        Totals::of([&PromptRow {
            arm: "L_DM".into(),
            seed: 0,
            segment: 1,
            phase: Phase::Train,
            task: "b".into(),
            target: "t".into(),
            prompt_index: 0,
            prompt_id: "0".into(),
            prompt_tokens: 5,
            new_tokens: 20,
            new_bytes: 80,
            rounds: 10,
            draft_tokens: 40,
            proposed: 40,
            accepted: 0,
            ngram_hits: 0,
            acceptance_rate: rate,
            seconds: 1.0,
            prefill_s: 0.0,
            learn_s: 0.0,
            baseline_s: 1.0,
            baseline_tokens: 20,
            cache_ngrams: 0,
            cache_bytes: 0,
            finish: Finish::Length,
            tokens_hash: String::new(),
        }])
    }

    #[test]
    fn recovery_by_hand() {
        // 0.1 for four prompts, 0.2 for four, then 0.4 for eight. Plateau (last quarter): 0.4, threshold 0.38.
        // Windows of two: prompts 8 and 9 average 0.3, prompts 9 and 10 average 0.4: recovered after 10.
        let rates = [[0.1; 4], [0.2; 4], [0.4; 4], [0.4; 4]].concat();
        let prompts: Vec<_> = rates.into_iter().map(totals).collect();
        let (plateau, start, recovered) = recovery(&prompts, 2).unwrap();
        assert!((plateau - 0.4).abs() < 1e-12);
        assert!((start - 0.1).abs() < 1e-12);
        assert_eq!(recovered, Some(10));
    }

    #[test]
    fn no_drop_is_recovered_after_the_first_window() {
        let prompts = vec![totals(0.3); 12];
        assert_eq!(recovery(&prompts, 3).map(|r| r.2), Some(Some(3)));
    }

    #[test]
    fn a_segment_shorter_than_a_window_has_no_recovery() {
        assert_eq!(recovery(&[totals(0.3)], 2), None);
        assert_eq!(recovery(&[], 0), None);
        assert_eq!(recovery(&vec![totals(f64::NAN); 4], 2), None);
    }
}
