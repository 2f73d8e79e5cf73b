//! Size and growth of the n-gram cache (Figure 9).

use super::{
    Quantity, legend, line_of, merged, multiples, one_seed, over_stream, running, seeds_note,
};
use crate::figure::Figure;
use crate::names::readable;
use crate::streams::Streams;

/// Maximum relative difference, at the end of each segment, of two caches that are drawn as one.
const ALIKE: f64 = 0.01;

/// Entries and growth rate of every arm with a cache; `None` if there is none.
pub fn cache_figure(streams: &Streams) -> Option<Figure> {
    let caches = |arm: &&str| {
        let mut answers = streams.answers(arm);
        answers.any(|answer| answer.row.cache_ngrams > 0)
    };
    let arms: Vec<&str> = streams.drafting().filter(caches).collect();
    let (arms, alike) = apart(streams, &arms);
    let (stretches, series) = merged(streams, &arms);
    // From the numbers of entries and of generated tokens so far.
    let quantity = |label, of: fn(f64, f64) -> f64| {
        Quantity::new(label, true, move |panel, series, segments| {
            let points = running(streams, &series.arm, segments, |tokens, answer, _| {
                *tokens += f64::from(answer.row.new_tokens);
                Some(of(f64::from(answer.row.cache_ngrams), *tokens))
            });
            if let Some(points) = points {
                let pieces = [(points.as_slice(), 0)];
                panel.lines.push(line_of(streams, series.style, pieces));
            }
        })
    };
    let quantities = [
        quantity("n-grams in the cache", |entries, _| entries),
        quantity("n-grams per 1000 tokens", |entries, tokens| {
            1000.0 * entries / tokens.max(1.0)
        }),
    ];
    let rows = multiples(&stretches, &series, &quantities)?;
    let alike: Vec<String> = alike
        .iter()
        .map(|(arm, others)| {
            let others: Vec<String> = others.iter().map(|other| readable(other)).collect();
            let (arm, others) = (readable(arm), others.join("; "));
            format!(" Drawn: {arm}. Within 1% of its size in the end: {others}.")
        })
        .collect();
    let caption = format!(
        "Growth rate: entries of the cache / tokens generated so far. {}{}",
        seeds_note(streams),
        alike.concat()
    );
    let title = largest(streams, &arms);
    Some(over_stream(streams, title, legend(&series), rows, caption))
}

/// Arms whose lines can be distinguished; and those among them that hide others, each with the arms
/// that its line hides.
fn apart<'a>(streams: &Streams, arms: &[&'a str]) -> (Vec<&'a str>, Vec<(&'a str, Vec<&'a str>)>) {
    let mut kept: Vec<(&str, Vec<&str>)> = Vec::new();
    for &arm in arms {
        let hidden_by = kept.iter_mut().find(|(other, _)| {
            streams.segments.iter().all(|segment| {
                let ends = [arm, *other].map(|arm| end(streams, arm, segment.index));
                match ends {
                    [Some((_, own)), Some((_, other))] => (own - other).abs() <= ALIKE * other,
                    [None, None] => true,
                    _ => false,
                }
            })
        });
        match hidden_by {
            Some((_, hidden)) => hidden.push(arm),
            None => kept.push((arm, Vec::new())),
        }
    }
    let arms = kept.iter().map(|(arm, _)| *arm).collect();
    kept.retain(|(_, hidden)| !hidden.is_empty());
    (arms, kept)
}

/// Entries in the middle and at the end of a segment's stream, mean over seeds.
fn end(streams: &Streams, arm: &str, segment: u32) -> Option<(f64, f64)> {
    let seeds = streams.streams(arm, segment);
    let entries = |at: fn(usize) -> usize| {
        let sizes = seeds.iter().filter_map(|seed| {
            let answer = seed.get(at(seed.len()))?;
            Some(f64::from(answer.row.cache_ngrams))
        });
        let sizes: Vec<f64> = sizes.collect();
        (!sizes.is_empty()).then(|| sizes.iter().sum::<f64>() / sizes.len() as f64)
    };
    entries(|length| length / 2).zip(entries(|length| length.saturating_sub(1)))
}

/// The figure's title: the largest cache, and the share of it that the first half of a stream made.
fn largest(streams: &Streams, arms: &[&str]) -> String {
    let mut found: Option<(f64, f64, String)> = None;
    for arm in arms {
        for segment in &streams.segments {
            if let Some((half, last)) = end(streams, arm, segment.index)
                && found.as_ref().is_none_or(|(largest, ..)| last > *largest)
            {
                found = Some((last, half, readable(&segment.title)));
            }
        }
    }
    match found {
        // In a stream of several segments the cache had entries before the last one.
        Some((last, half, of)) if last > 0.0 && !streams.continual => format!(
            "The largest cache, {of}, grows to {last:.0} n-grams, {:.0}% of them in the first half{}",
            100.0 * half / last,
            one_seed(streams)
        ),
        Some((last, ..)) if last > 0.0 => {
            format!(
                "The largest cache grows to {last:.0} n-grams{}",
                one_seed(streams)
            )
        }
        _ => "Growth of the n-gram cache".to_owned(),
    }
}
