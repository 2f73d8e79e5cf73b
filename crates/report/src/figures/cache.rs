//! Size of the n-gram cache and how fast it grows (Figure 9).

use super::{
    Quantity, Stretch, legend, multiples, over_stream, push_piece, seeds_note, stretches, style_of,
};
use crate::curves::Band;
use crate::figure::{Figure, Line};
use crate::streams::Streams;

/// Entries and growth rate of every arm that caches. `None` when none does.
pub fn cache_figure(streams: &Streams) -> Option<Figure> {
    let caches = |arm: &&str| {
        streams.segments.iter().any(|segment| {
            let seeds = streams.streams(arm, segment.index);
            let mut answers = seeds.iter().flat_map(|seed| seed.iter());
            answers.any(|answer| answer.measured.counts.cache_ngrams > 0)
        })
    };
    let arms: Vec<&str> = streams
        .drafting()
        .map(|arm| arm.name.as_str())
        .filter(caches)
        .collect();
    let quantities = [
        Quantity::new("n-grams in the cache", true, |arm, stretch| {
            line(streams, arm, stretch, |entries, _| entries)
        }),
        Quantity::new("n-grams per 1000 tokens", true, |arm, stretch| {
            line(streams, arm, stretch, |entries, tokens| {
                1000.0 * entries / tokens.max(1.0)
            })
        }),
    ];
    let rows = multiples(&stretches(streams), &arms, &quantities)?;
    let caption = format!(
        "Growth rate: entries of the cache / tokens generated so far. {}",
        seeds_note(streams)
    );
    let title = largest(streams, &arms);
    Some(over_stream(
        streams,
        title,
        legend(streams, &arms),
        rows,
        caption,
    ))
}

/// The largest cache, and how its growth slowed.
fn largest(streams: &Streams, arms: &[&str]) -> String {
    let mut found: Option<(f64, f64, &str)> = None;
    for arm in arms {
        for &seed in &streams.seeds {
            for stretch in stretches(streams) {
                let values = values(streams, arm, seed, &stretch, |entries, _| entries);
                let (half, last) = (values.get(values.len() / 2), values.last());
                if let (Some(&half), Some(&last)) = (half, last)
                    && found.is_none_or(|(largest, ..)| last > largest)
                {
                    found = Some((last, half, arm));
                }
            }
        }
    }
    match found {
        Some((last, half, arm)) if last > 0.0 => format!(
            "The cache of {arm} grows to {last:.0} n-grams, {:.0}% of them in the first half",
            100.0 * half / last
        ),
        _ => "Growth of the n-gram cache".to_owned(),
    }
}

/// One arm's line: mean over seeds with a band.
fn line(
    streams: &Streams,
    arm: &str,
    stretch: &Stretch,
    quantity: fn(f64, f64) -> f64,
) -> Option<Line> {
    let seeds: Vec<Vec<f64>> = streams
        .seeds
        .iter()
        .map(|&seed| values(streams, arm, seed, stretch, quantity))
        .filter(|values| !values.is_empty())
        .collect();
    let length = seeds.iter().map(Vec::len).min()?;
    let points: Vec<(usize, Band)> = (0..length)
        .filter_map(|at| {
            let values: Vec<_> = seeds.iter().map(|values| values.get(at).copied()).collect();
            Some((at + 1, Band::of(&values)?))
        })
        .collect();
    let mut line = Line {
        style: style_of(streams, arm),
        pieces: Vec::new(),
        bands: Vec::new(),
    };
    push_piece(&mut line, streams, &points, 0);
    Some(line)
}

/// The quantity after each prompt of a stretch, from entries and tokens generated so far.
fn values(
    streams: &Streams,
    arm: &str,
    seed: u64,
    stretch: &Stretch,
    quantity: fn(f64, f64) -> f64,
) -> Vec<f64> {
    let mut tokens = 0.0;
    let mut values = Vec::new();
    for &segment in &stretch.segments {
        for answer in streams.stream(arm, segment, seed) {
            let counts = &answer.measured.counts;
            tokens += f64::from(counts.new_tokens);
            values.push(quantity(f64::from(counts.cache_ngrams), tokens));
        }
    }
    values
}
