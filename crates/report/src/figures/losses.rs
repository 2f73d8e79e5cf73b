//! Loss terms of the updates over prompts seen.

use super::{Quantity, Stretch, legend, multiples, over_stream, stretches, style_of, thin};
use crate::figure::{Figure, Line};
use crate::streams::Streams;
use results::UpdateRow;
use std::collections::BTreeMap;

/// A loss term; `None` where an update had nothing of it.
type Term = fn(&UpdateRow) -> Option<f64>;

const DIRECT: Term = |row| (row.dm_positions > 0 && row.loss_dm.is_finite()).then_some(row.loss_dm);
const NGRAM: Term =
    |row| (row.ngram_tokens > 0 && row.loss_ngram.is_finite()).then_some(row.loss_ngram);

/// Both loss terms of every arm that learnt. `None` when none did.
pub fn losses_figure(streams: &Streams) -> Option<Figure> {
    let arms: Vec<&str> = streams
        .drafting()
        .map(|arm| arm.name.as_str())
        .filter(|arm| streams.learnt(arm))
        .collect();
    let first = streams.segments.first()?.index;
    let updates = arms
        .iter()
        .map(|arm| streams.updates(arm, first).count())
        .max()?;
    let window = (updates / streams.seeds.len().max(1) / 20).clamp(1, 25);
    let term = |label, term: Term| {
        Quantity::new(label, true, move |arm: &str, stretch: &Stretch| {
            line(streams, arm, stretch, term, window)
        })
    };
    let quantities = [
        term("direct loss (nats/position)", DIRECT),
        term("n-gram loss (nats/token)", NGRAM),
    ];
    let rows = multiples(&stretches(streams), &arms, &quantities)?;
    let points = match window {
        1 => "One point per update.".to_owned(),
        _ => format!("Averages over the last {window} updates."),
    };
    let caption = format!(
        "Direct: on directly mapped tokens. N-gram: on the draft tokens that spell accepted n-grams. {points} {}",
        super::seeds_note(streams)
            .split(';')
            .next()
            .unwrap_or_default()
            .trim_end_matches('.')
            .to_owned()
            + "."
    );
    let title = falls(streams, &arms);
    Some(over_stream(
        streams,
        title,
        legend(streams, &arms),
        rows,
        caption,
    ))
}

/// From where to where the direct loss went: means over the first and the last tenth of updates.
fn falls(streams: &Streams, arms: &[&str]) -> String {
    let mut words = Vec::new();
    for arm in arms.iter().rev().take(2) {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for segment in &streams.segments {
            let mut values: Vec<(u32, f64)> = streams
                .updates(arm, segment.index)
                .filter_map(|row| Some((row.update, DIRECT(row)?)))
                .collect();
            values.sort_by_key(|value| value.0);
            let tenth = values.len().div_ceil(10);
            first.extend(values.iter().take(tenth).map(|value| value.1));
            last.extend(values.iter().rev().take(tenth).map(|value| value.1));
        }
        let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
        if !first.is_empty() {
            words.push(format!(
                "{arm} from {:.2} to {:.2}",
                mean(&first),
                mean(&last)
            ));
        }
    }
    if words.is_empty() {
        return "Training losses".to_owned();
    }
    format!("Direct loss over the stream: {}", words.join(", "))
}

/// Trailing averages of a term, mean over seeds at equal update numbers, a piece per segment.
fn line(
    streams: &Streams,
    arm: &str,
    stretch: &Stretch,
    term: Term,
    window: usize,
) -> Option<Line> {
    let mut pieces = Vec::new();
    for &segment in &stretch.segments {
        let mut by_update: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
        for row in streams.updates(arm, segment) {
            if let Some(value) = term(row) {
                let (seen, sum, count) = by_update.entry(row.update).or_default();
                *seen += f64::from(row.prompts_seen);
                *sum += value;
                *count += 1.0;
            }
        }
        let means = by_update.into_values().map(|(x, y, n)| (x / n, y / n));
        let means: Vec<(f64, f64)> = means.collect();
        if !means.is_empty() {
            pieces.push(thin(&trailing(&means, window)));
        }
    }
    (!pieces.is_empty()).then(|| Line {
        style: style_of(streams, arm),
        pieces,
        bands: Vec::new(),
    })
}

fn trailing(points: &[(f64, f64)], window: usize) -> Vec<(f64, f64)> {
    let average = |(at, point): (usize, &(f64, f64))| {
        let recent = points
            .iter()
            .take(at + 1)
            .skip((at + 1).saturating_sub(window));
        let values: Vec<f64> = recent.map(|point| point.1).collect();
        (point.0, values.iter().sum::<f64>() / values.len() as f64)
    };
    points.iter().enumerate().map(average).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_averages_start_short() {
        let points = [(1.0, 4.0), (2.0, 2.0), (3.0, 0.0)];
        assert_eq!(trailing(&points, 2), [(1.0, 4.0), (2.0, 3.0), (3.0, 1.0)]);
        assert_eq!(trailing(&points, 1), points);
    }
}
