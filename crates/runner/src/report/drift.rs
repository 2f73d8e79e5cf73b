//! How fast an arm recovers after the stream switches task or target.

use super::csv::{Csv, number};
use super::data::RunData;
use crate::results::stats::Totals;
use crate::results::{Phase, PromptRow};

/// Share of a plateau that counts as recovered.
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
    /// Plateau that all arms are held to: the lowest of the arms that learn (of all, where none does). By their
    /// own plateaus, an arm that ends higher would seem to recover later.
    pub common: f64,
    /// Prompts of the segment until the trailing average reached 95% of the common plateau. The window's own
    /// length when the first full window was already there.
    pub prompts: Option<usize>,
    /// The same for the arm's own plateau.
    pub own_prompts: Option<usize>,
    /// Length of the trailing window in prompts.
    pub window: usize,
}

/// Recovery of every speculative arm in every segment after the first, seeds pooled. Empty without drift.
pub fn recoveries(data: &RunData, window: usize) -> Vec<Recovery> {
    if !data.has_drift() {
        return Vec::new();
    }
    let learns = |arm: &str| data.updates.iter().any(|update| update.arm == arm);
    let anyone_learns = !data.updates.is_empty();
    let mut recoveries = Vec::new();
    for pair in data.segments.windows(2) {
        let mut measured = Vec::new();
        for arm in data.arms.iter().filter(|arm| !arm.plain) {
            let streams = data.streams(&arm.name, pair[1].index, Phase::Train);
            let prompts = pool(&streams);
            if let Some(ends) = ends(&prompts, window) {
                measured.push((arm, prompts, ends));
            }
        }
        let held = measured
            .iter()
            .filter(|(arm, ..)| !anyone_learns || learns(&arm.name));
        let common = held
            .map(|(.., (_, plateau))| *plateau)
            .fold(f64::INFINITY, f64::min);
        for (arm, prompts, (start, plateau)) in measured {
            recoveries.push(Recovery {
                method: arm.name.clone(),
                segment: pair[1].index,
                switch: format!("{} → {}", pair[0].title, pair[1].title),
                plateau,
                start,
                common,
                prompts: recovered(&prompts, window, common),
                own_prompts: recovered(&prompts, window, plateau),
                window,
            });
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

/// Acceptance over the first window and over the last quarter of a segment; `None` when the segment is shorter than
/// a window or nothing was drafted.
fn ends(prompts: &[Totals], window: usize) -> Option<(f64, f64)> {
    if prompts.len() < window || window == 0 {
        return None;
    }
    let quarter = (prompts.len() / 4).max(window);
    let plateau = acceptance(&prompts[prompts.len() - quarter..])?;
    Some((acceptance(&prompts[..window])?, plateau))
}

/// Prompts until the average of a trailing window reaches 95% of `plateau`.
fn recovered(prompts: &[Totals], window: usize, plateau: f64) -> Option<usize> {
    (window..=prompts.len()).find(|&seen| {
        acceptance(&prompts[seen - window..seen])
            .is_some_and(|rate| rate >= RECOVERED_SHARE * plateau)
    })
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
        "common_plateau",
        "recovery_prompts",
        "own_plateau_prompts",
        "window",
    ]);
    for row in recoveries {
        csv.row([
            row.segment.to_string(),
            row.switch.clone(),
            row.method.clone(),
            number(Some(row.start)),
            number(Some(row.plateau)),
            number(Some(row.common)),
            row.prompts.map_or_else(String::new, |n| n.to_string()),
            row.own_prompts.map_or_else(String::new, |n| n.to_string()),
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
        // Half that plateau: prompts 5 and 6 average 0.2.
        let rates = [[0.1; 4], [0.2; 4], [0.4; 4], [0.4; 4]].concat();
        let prompts: Vec<_> = rates.into_iter().map(totals).collect();
        let (start, plateau) = ends(&prompts, 2).unwrap();
        assert!((plateau - 0.4).abs() < 1e-12);
        assert!((start - 0.1).abs() < 1e-12);
        assert_eq!(recovered(&prompts, 2, plateau), Some(10));
        assert_eq!(recovered(&prompts, 2, 0.2), Some(6));
        assert_eq!(recovered(&prompts, 2, 0.9), None);
    }

    #[test]
    fn no_drop_is_recovered_after_the_first_window() {
        let prompts = vec![totals(0.3); 12];
        assert_eq!(recovered(&prompts, 3, 0.3), Some(3));
    }

    #[test]
    fn a_segment_shorter_than_a_window_has_no_recovery() {
        assert_eq!(ends(&[totals(0.3)], 2), None);
        assert_eq!(ends(&[], 0), None);
        assert_eq!(ends(&vec![totals(f64::NAN); 4], 2), None);
    }
}
