//! Results and costs of a stream: n-gram caches, learning, acceptance heads.

use crate::model::{Entry, Table};
use crate::streams::{Streams, over};
use results::{HeadRow, Metric};

/// The tables of a set of streams that are not empty.
pub fn tables(streams: &Streams, suffix: &str) -> Vec<Table> {
    let all = [
        caches(streams, suffix),
        learning(streams, suffix),
        heads(streams, suffix),
    ];
    all.into_iter().flatten().collect()
}

/// Size of every arm's cache at the end of a segment's stream, mean over seeds (Table 4).
fn caches(streams: &Streams, suffix: &str) -> Option<Table> {
    let mut rows = Vec::new();
    for segment in &streams.segments {
        for arm in &streams.arms {
            let seeds = streams.streams(&arm.name, segment.index);
            let last: Vec<_> = seeds.iter().filter_map(|seed| seed.last()).collect();
            let count = last.len().max(1) as f64;
            let counts = || last.iter().map(|answer| &answer.row);
            let ngrams = counts().map(|c| f64::from(c.cache_ngrams)).sum::<f64>() / count;
            let bytes = counts().map(|c| c.cache_bytes as f64).sum::<f64>() / count;
            if ngrams > 0.0 {
                rows.push(vec![
                    ("stream", Entry::text(&segment.title)),
                    ("arm", Entry::text(&arm.name)),
                    ("prompts", Entry::count(segment.prompts)),
                    ("n-grams", Entry::printed(Some(ngrams), 0, "")),
                    ("MB", Entry::printed(Some(bytes / 1e6), 3, "")),
                    ("bytes/n-gram", Entry::printed(Some(bytes / ngrams), 1, "")),
                ]);
            }
        }
    }
    Table::of(
        format!("caches{suffix}"),
        "N-gram caches after the stream",
        "Entries and memory when the stream ends, mean over seeds.",
        rows,
    )
}

/// The costs of learning; `None` if times are not valid or no arm learnt.
fn learning(streams: &Streams, suffix: &str) -> Option<Table> {
    let mut rows = Vec::new();
    for segment in &streams.segments {
        for arm in streams.arms.iter().filter(|_| streams.timed) {
            let updates: Vec<f64> = streams
                .updates(&arm.name, segment.index)
                .map(|update| update.seconds)
                .collect();
            let seeds = streams.streams(&arm.name, segment.index);
            let answers = || seeds.iter().flat_map(|seed| seed.iter().copied());
            let learn: f64 = answers().map(|a| a.row.learn_s).sum();
            if updates.is_empty() {
                continue;
            }
            let decode: f64 = answers().map(|a| a.row.seconds).sum();
            let mean = updates.iter().sum::<f64>() / updates.len() as f64;
            let metric = |metric: Metric, decimals: usize, unit: &str| {
                Entry::printed(over(metric, answers()), decimals, unit)
            };
            rows.push(vec![
                ("stream", Entry::text(&segment.title)),
                ("arm", Entry::text(&arm.name)),
                ("decoding s", Entry::printed(Some(decode), 1, "")),
                ("learning s", Entry::printed(Some(learn), 1, "")),
                ("share", metric(Metric::LearningShare, 3, "")),
                ("updates", Entry::count(updates.len())),
                ("ms/update", Entry::printed(Some(1e3 * mean), 1, "")),
                ("speedup", metric(Metric::Speedup, 2, "x")),
                ("end to end", metric(Metric::SpeedupEndToEnd, 2, "x")),
            ]);
        }
    }
    Table::of(
        format!("learning{suffix}"),
        "Time spent learning",
        "On the stream, all seeds together. Learning: seconds for which it held the stream up; an \
         update on a thread of its own may take longer than that.",
        rows,
    )
}

/// Predictions of every arm's head for draft tokens before it was trained on them, in the last
/// quarter of its training steps, seeds pooled.
fn heads(streams: &Streams, suffix: &str) -> Option<Table> {
    let mut rows = Vec::new();
    for segment in &streams.segments {
        for arm in &streams.arms {
            let own: Vec<&HeadRow> = streams.heads(&arm.name, segment.index).collect();
            let last = |seed: &u64| {
                let own: Vec<&HeadRow> = own.iter().copied().filter(|r| r.seed == *seed).collect();
                own.get(own.len() - own.len().div_ceil(4)..)
                    .unwrap_or_default()
                    .to_vec()
            };
            let recent: Vec<&HeadRow> = streams.seeds.iter().flat_map(last).collect();
            let tokens: f64 = recent.iter().map(|row| f64::from(row.fresh)).sum();
            if tokens == 0.0 {
                continue;
            }
            let mean = |value: fn(&HeadRow) -> f64| {
                let weighed = recent.iter().filter(|row| row.fresh > 0);
                let sum: f64 = weighed.map(|row| f64::from(row.fresh) * value(row)).sum();
                Entry::printed(Some(sum / tokens), 3, "")
            };
            rows.push(vec![
                ("stream", Entry::text(&segment.title)),
                ("arm", Entry::text(&arm.name)),
                ("turns", Entry::count(own.len())),
                ("judged tokens", Entry::printed(Some(tokens), 0, "")),
                ("cross-entropy", mean(|row| row.fresh_loss)),
                ("predicted", mean(|row| row.predicted)),
                ("accepted", mean(|row| row.accepted)),
                ("calibration error", mean(|row| row.calibration_error)),
            ]);
        }
    }
    Table::of(
        format!("heads{suffix}"),
        "Acceptance heads, last quarter of the stream",
        "On draft tokens the head was not yet trained on, seeds pooled.",
        rows,
    )
}
