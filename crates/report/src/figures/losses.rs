//! Loss terms of the updates over prompts seen.

use super::{Quantity, Series, by_arm, legend, multiples, one_seed, over_stream, stretches, thin};
use crate::figure::{Figure, Line};
use crate::names::listed;
use crate::streams::{Segment, Streams};
use results::UpdateRow;
use std::collections::BTreeMap;

/// A loss term; `None` if an update had no positions of it or if it is not finite.
type Term = fn(&UpdateRow) -> Option<f64>;

const DIRECT: Term = |row| (row.dm_positions > 0 && row.loss_dm.is_finite()).then_some(row.loss_dm);
const NGRAM: Term =
    |row| (row.ngram_tokens > 0 && row.loss_ngram.is_finite()).then_some(row.loss_ngram);

/// Both loss terms of every learning arm, each divided by its own start, since losses have
/// different units; `None` if no arm learnt.
pub fn losses_figure(streams: &Streams) -> Option<Figure> {
    let arms = streams.learning();
    let first = streams.segments.first()?.index;
    let updates = arms
        .iter()
        .map(|arm| streams.updates(arm, first).count())
        .max()?;
    let window = (updates / streams.seeds.len().max(1) / 20).clamp(1, 25);
    let term = |label, term: Term| {
        Quantity::new(label, true, move |panel, series, segments| {
            let line = line(streams, series, segments, term, window);
            panel.lines.extend(line);
        })
    };
    let quantities = [
        term("direct loss / its start", DIRECT),
        term("n-gram loss / its start", NGRAM),
    ];
    let series = by_arm(streams, &arms);
    let rows = multiples(&stretches(streams), &series, &quantities)?;
    let points = match window {
        1 => "One point per update.".to_owned(),
        _ => format!("Averages over the last {window} updates."),
    };
    let seeds = match streams.seeds.len() {
        1 => "One seed.".to_owned(),
        seeds => format!("Lines: mean over {seeds} seeds."),
    };
    let caption = format!(
        "Direct: on directly mapped tokens. N-gram: on the draft tokens that spell accepted n-grams. Every loss over its first value, since they have different units: how far one falls says nothing against another. {points} {seeds}",
    );
    let title = falls(streams, &arms);
    let legend = legend(&series);
    Some(over_stream(streams, title, legend, rows, caption))
}

/// Means of a term over the first update of every seed, and over the last tenth of an arm's updates
/// in a segment.
fn ends(streams: &Streams, arm: &str, segment: u32, term: Term) -> Option<(f64, f64)> {
    let mut values: Vec<(u32, f64)> = streams
        .updates(arm, segment)
        .filter_map(|row| Some((row.update, term(row)?)))
        .collect();
    values.sort_by_key(|value| value.0);
    let update = values.first()?.0;
    let (mut first, mut last) = (Vec::new(), Vec::new());
    first.extend(values.iter().filter(|value| value.0 == update));
    last.extend(values.iter().rev().take(values.len().div_ceil(10)));
    let mean = |values: &[&(u32, f64)]| {
        values.iter().map(|value| value.1).sum::<f64>() / values.len() as f64
    };
    Some((mean(&first), mean(&last)))
}

/// The share of its start to which every term fell, over arms and segments.
fn falls(streams: &Streams, arms: &[&str]) -> String {
    let said = |name: &str, term: Term| {
        let (mut least, mut most) = (f64::INFINITY, 0.0f64);
        for arm in arms {
            for segment in &streams.segments {
                if let Some((first, last)) = ends(streams, arm, segment.index, term)
                    && first > 0.0
                {
                    (least, most) = (least.min(last / first), most.max(last / first));
                }
            }
        }
        (least <= most).then(|| {
            let percent = |share: f64| format!("{:.0}", 100.0 * share);
            match (percent(least), percent(most)) {
                (least, most) if least == most => format!("{name} losses fall to {most}%"),
                (least, most) => format!("{name} losses fall to {least}–{most}%"),
            }
        })
    };
    let words: Vec<String> = [said("direct", DIRECT), said("n-gram", NGRAM)]
        .into_iter()
        .flatten()
        .collect();
    match words.is_empty() {
        true => "Training losses".to_owned(),
        false => format!(
            "Over the stream {} of where they begin{}",
            listed(&words),
            one_seed(streams)
        ),
    }
}

/// Trailing averages of a term divided by its start, mean over seeds at equal update numbers, one
/// piece per segment.
fn line(
    streams: &Streams,
    series: &Series,
    segments: &[&Segment],
    term: Term,
    window: usize,
) -> Option<Line> {
    let mut pieces = Vec::new();
    for segment in segments {
        let mut by_update: BTreeMap<u32, (f64, f64, f64)> = BTreeMap::new();
        let Some((start, _)) = ends(streams, &series.arm, segment.index, term) else {
            continue;
        };
        for row in streams.updates(&series.arm, segment.index) {
            if let Some(value) = term(row) {
                let (seen, sum, count) = by_update.entry(row.update).or_default();
                *seen += f64::from(row.prompts_seen);
                *sum += value / start;
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
        pieces,
        ..Line::new(series.style)
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
