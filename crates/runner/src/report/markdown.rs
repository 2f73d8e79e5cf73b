//! The speedup table as Markdown, in the layout of the paper's Table 1.

use super::data::RunData;
use super::learning::LearningRow;
use super::table::{TableRow, table_phase};
use crate::results::{HeadRow, Phase, StepLatency};
use std::collections::BTreeSet;

/// Text of `report/table.md`, also what a terminal is shown.
pub fn table_markdown(
    data: &RunData,
    rows: &[TableRow],
    learning: &[LearningRow],
    notes: &[String],
) -> String {
    let mut text = format!("# {}: acceptance rate and speedup\n\n", data.manifest.name);
    for note in notes {
        text.push_str(&format!("> {note}\n"));
    }
    if !notes.is_empty() {
        text.push('\n');
    }
    text.push_str(
        "Each cell: acceptance rate, measured speedup over plain decoding of the same target.\n\n",
    );
    text.push_str(&overview(data, rows));
    text.push_str("\n## With intervals\n\n");
    text.push_str(&details(rows));
    if let Some(caches) = caches(data) {
        text.push_str("\n## N-gram cache after the stream\n\n");
        text.push_str(&caches);
    }
    if !learning.is_empty() {
        text.push_str("\n## Time spent learning\n\n");
        text.push_str(&time_spent_learning(learning));
    }
    if let Some(heads) = heads(data) {
        text.push_str("\n## Acceptance heads, last quarter of the stream\n\n");
        text.push_str(&heads);
    }
    text.push_str("\n## How to read it\n\n");
    for line in footer(data, rows) {
        text.push_str(&format!("- {line}\n"));
    }
    text
}

/// Rows target x method, one column per task.
fn overview(data: &RunData, rows: &[TableRow]) -> String {
    let tasks = distinct(rows.iter().map(|row| row.task.as_str()));
    let mut header = vec!["target", "method"];
    header.extend(&tasks);
    let mut cells = Vec::new();
    for target in distinct(rows.iter().map(|row| row.target.as_str())) {
        let of_target: Vec<_> = rows.iter().filter(|row| row.target == target).collect();
        let label = target_label(data, target);
        let methods = distinct(of_target.iter().map(|row| row.method.as_str()));
        for (index, method) in methods.into_iter().enumerate() {
            let of_method: Vec<_> = of_target
                .iter()
                .filter(|row| row.method == method)
                .collect();
            let mut line = vec![
                if index == 0 {
                    label.clone()
                } else {
                    String::new()
                },
                method_label(of_method[0]),
            ];
            line.extend(tasks.iter().map(|task| {
                of_method
                    .iter()
                    .find(|row| row.task == *task)
                    .map_or_else(|| "-".to_owned(), |row| cell(row))
            }));
            cells.push(line);
        }
    }
    aligned(&header, &cells, 2)
}

fn target_label(data: &RunData, target: &str) -> String {
    if data.manifest.padding.contains_key(target) {
        format!("{target} (padded)")
    } else {
        target.to_owned()
    }
}

fn cell(row: &TableRow) -> String {
    format!(
        "{} {}",
        decimals(row.acceptance_rate, 2),
        row.speedup
            .map_or_else(|| "-".to_owned(), |speedup| format!("{speedup:.2}x"))
    )
}

fn details(rows: &[TableRow]) -> String {
    let header = [
        "target",
        "task",
        "method",
        "prompts",
        "acceptance",
        "drafted/step",
        "tokens/step",
        "bytes/step",
        "n-gram hits/step",
        "speedup",
        "95% interval",
        "modelled",
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.target.clone(),
                row.task.clone(),
                method_label(row),
                row.prompts.to_string(),
                decimals(row.acceptance_rate, 3),
                decimals(row.draft_length, 2),
                decimals(row.block_efficiency, 2),
                decimals(row.bytes_per_step, 2),
                decimals(row.ngram_hits, 2),
                times(row.speedup),
                row.interval.map_or_else(
                    || "-".to_owned(),
                    |interval| format!("{:.2}-{:.2}", interval.low, interval.high),
                ),
                times(row.modelled),
            ]
        })
        .collect();
    aligned(&header, &cells, 3)
}

/// Size of every arm's cache when a segment's stream ends (Table 4), seeds averaged; `None` where no arm caches.
fn caches(data: &RunData) -> Option<String> {
    let header = [
        "stream",
        "method",
        "prompts",
        "n-grams",
        "MB",
        "bytes/n-gram",
    ];
    let mut cells = Vec::new();
    for segment in &data.segments {
        for arm in &data.arms {
            let streams = data.streams(&arm.name, segment.index, Phase::Train);
            let last: Vec<_> = streams.iter().filter_map(|rows| rows.last()).collect();
            let count = last.len().max(1) as f64;
            let ngrams = last.iter().map(|r| f64::from(r.cache_ngrams)).sum::<f64>() / count;
            let bytes = last.iter().map(|r| r.cache_bytes as f64).sum::<f64>() / count;
            if ngrams > 0.0 {
                cells.push(vec![
                    segment.title.clone(),
                    arm.name.clone(),
                    segment.prompts.to_string(),
                    format!("{ngrams:.0}"),
                    format!("{:.3}", bytes / 1e6),
                    format!("{:.1}", bytes / ngrams),
                ]);
            }
        }
    }
    (!cells.is_empty()).then(|| aligned(&header, &cells, 2))
}

fn time_spent_learning(rows: &[LearningRow]) -> String {
    let header = [
        "stream",
        "method",
        "prompts",
        "decoding s",
        "learning s",
        "share",
        "updates",
        "ms/update",
        "speedup",
        "with learning",
    ];
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            vec![
                row.stream.clone(),
                row.method.clone(),
                row.prompts.to_string(),
                format!("{:.1}", row.decode),
                format!("{:.1}", row.learn),
                format!("{:.1}%", 100.0 * row.share()),
                row.updates.to_string(),
                decimals(row.update.map(|s| 1e3 * s), 1),
                times(row.without),
                times(row.with),
            ]
        })
        .collect();
    let mut text = aligned(&header, &cells, 2);
    text.push_str(
        "\nOn the stream, all seeds together. Learning: seconds for which it held the stream up, as a share of decoding, prefill and learning; an update on its own thread may take longer than that. Speedups are those of the stream, where plain decoding was timed beside it.\n",
    );
    text
}

/// What every arm's head said of draft tokens before it was trained on them, in the last quarter of its steps, seeds
/// pooled; `None` where no arm trained one.
fn heads(data: &RunData) -> Option<String> {
    let header = [
        "stream",
        "method",
        "steps",
        "judged tokens",
        "cross-entropy",
        "predicted",
        "accepted",
        "calibration error",
    ];
    let mut cells = Vec::new();
    for segment in &data.segments {
        for arm in &data.arms {
            let own = |row: &&HeadRow| row.arm == arm.name && row.segment == segment.index;
            let steps = data.heads.iter().filter(own).count();
            let last = |seed: &u64| {
                let rows: Vec<_> = data
                    .heads
                    .iter()
                    .filter(own)
                    .filter(|r| r.seed == *seed)
                    .collect();
                rows[rows.len() - rows.len().div_ceil(4)..].to_vec()
            };
            let rows: Vec<&HeadRow> = data
                .seeds
                .iter()
                .flat_map(last)
                .filter(|r| r.fresh > 0)
                .collect();
            let tokens: f64 = rows.iter().map(|row| f64::from(row.fresh)).sum();
            if tokens == 0.0 {
                continue;
            }
            let mean = |value: fn(&HeadRow) -> f64| {
                let sum: f64 = rows
                    .iter()
                    .map(|row| f64::from(row.fresh) * value(row))
                    .sum();
                format!("{:.3}", sum / tokens)
            };
            cells.push(vec![
                segment.title.clone(),
                arm.name.clone(),
                steps.to_string(),
                tokens.to_string(),
                mean(|row| row.fresh_loss),
                mean(|row| row.predicted),
                mean(|row| row.accepted),
                mean(|row| row.calibration_error),
            ]);
        }
    }
    (!cells.is_empty()).then(|| aligned(&header, &cells, 2))
}

fn method_label(row: &TableRow) -> String {
    if row.reference {
        format!("{} (reference)", row.method)
    } else {
        row.method.clone()
    }
}

/// What was measured, on what, and how each number is defined.
fn footer(data: &RunData, rows: &[TableRow]) -> Vec<String> {
    let manifest = &data.manifest;
    let prompts = match table_phase(data) {
        Phase::Test => "held-out test prompts, drafter and cache frozen",
        Phase::Train => "prompts of the stream itself",
    };
    let mut lines = vec![
        format!(
            "Draft length k = {}, temperature T = {}, {}; {prompts}.",
            values(data.arms.iter().filter(|arm| !arm.plain).filter_map(|arm| arm.draft_length).map(|k| k.to_string())),
            values(data.arms.iter().filter_map(|arm| arm.temperature).map(|t| t.to_string())),
            seeds(&data.seeds),
        ),
        "Acceptance: accepted / proposed target tokens, mean over speculative steps; the target's own token is not counted.".to_owned(),
        "Tokens/step: generated tokens per target forward, the target's own token included; bytes/step: bytes of their text. N-gram hits: accepted tokens from the n-gram cache per step.".to_owned(),
        "Speedup: tokens per second of the method over tokens per second of plain decoding, totals over the same prompts, decoding time only (prefill and learning are recorded apart).".to_owned(),
        "95% interval: paired bootstrap over prompts.".to_owned(),
    ];
    for target in distinct(rows.iter().map(|row| row.target.as_str())) {
        if let Some(padding) = manifest.padding.get(target) {
            let steps = &padding.steps;
            let (target_idle, draft_idle) = padding.idle();
            lines.push(format!(
                "{target} is padded with {}{}, which change no output and cost what others cost: drafter step {:.3} ms / target step {:.3} ms = {:.3}, five tokens at once {:.2} target steps, measured as the run began (paper, A100: {:.3}).",
                target_idle,
                if draft_idle.is_none() {
                    String::new()
                } else {
                    format!(", the drafter with {draft_idle}")
                },
                1e3 * steps.draft_s,
                1e3 * steps.target_s,
                steps.ratio(),
                steps.verify_s / steps.target_s,
                StepLatency::paper().ratio(),
            ));
        }
        let latency = manifest.latency(target);
        lines.push(format!(
            "Modelled for {target}: tokens/step / (1 + k c), c = {:.4}: {}.",
            latency.ratio(),
            latency.source
        ));
    }
    lines.push(format!(
        "Machine: {}. Commit {}, {}, config {}, started {}.",
        manifest.machine.summary(),
        manifest.build.short_commit(),
        manifest.build.rustc,
        manifest.config_sha256.get(..8).unwrap_or("unknown"),
        manifest.started,
    ));
    lines
}

fn seeds(seeds: &[u64]) -> String {
    let list = seeds.iter().map(u64::to_string).collect::<Vec<_>>();
    let word = if seeds.len() == 1 { "seed" } else { "seeds" };
    format!("{word} {}", list.join(", "))
}

/// The different values in order, `unknown` without any.
fn values(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    match distinct(items.iter().map(String::as_str)).as_slice() {
        [] => "unknown".to_owned(),
        distinct => distinct.join(", "),
    }
}

fn distinct<'a>(items: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    items.filter(|item| seen.insert(*item)).collect()
}

fn decimals(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"))
}

fn times(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |v| format!("{v:.2}x"))
}

/// A Markdown table padded so that it reads as plain text; the first `left` columns are left-aligned.
fn aligned(header: &[&str], rows: &[Vec<String>], left: usize) -> String {
    let escape = |text: &str| text.replace('|', "\\|");
    let header: Vec<String> = header.iter().map(|text| escape(text)).collect();
    let rows: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|text| escape(text)).collect())
        .collect();
    let width = |column: usize| {
        std::iter::once(&header)
            .chain(&rows)
            .map(|row| row[column].chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(column, (text, &width))| {
            if column < left {
                format!(" {text:<width$} ")
            } else {
                format!(" {text:>width$} ")
            }
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule: Vec<String> = widths
        .iter()
        .enumerate()
        .map(|(column, &width)| {
            let dashes = "-".repeat(width);
            if column < left {
                format!(":{dashes}-")
            } else {
                format!("-{dashes}:")
            }
        })
        .collect();
    let mut text = line(&header);
    text.push_str(&format!("|{}|\n", rule.join("|")));
    for row in &rows {
        text.push_str(&line(row));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_bars_are_escaped() {
        let text = aligned(
            &["method", "x"],
            &[vec!["a|b".to_owned(), "1".to_owned()]],
            1,
        );
        assert_eq!(
            text,
            "| method |   x |\n|:-------|----:|\n| a\\|b   |   1 |\n"
        );
    }
}
