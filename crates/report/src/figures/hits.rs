//! How often the n-gram cache helps, and how often its tokens are accepted (Figure 8).

use super::{Quantity, curve_line, legend, multiples, over_stream, rate, seeds_note, stretches};
use crate::curves::{curves, window};
use crate::figure::Figure;
use crate::streams::{Streams, over};
use results::Metric;

/// Hits a response and the acceptance of n-grams over the stream. `None` where no arm proposes any.
pub fn hits_figure(streams: &Streams) -> Option<Figure> {
    let window = window(&streams.segments);
    let hits = curves(streams, Metric::HitsPerResponse, window);
    let accepted = curves(streams, Metric::NgramAcceptance, window);
    let arms: Vec<&str> = streams
        .drafting()
        .map(|arm| arm.name.as_str())
        .filter(|arm| accepted.iter().any(|curve| curve.arm == *arm))
        .collect();
    let quantities = [
        Quantity::new("n-gram hits a response", true, |arm, stretch| {
            curve_line(streams, &hits, arm, stretch)
        }),
        Quantity::new("acceptance of n-grams", true, |arm, stretch| {
            curve_line(streams, &accepted, arm, stretch)
        }),
    ];
    let rows = multiples(&stretches(streams), &arms, &quantities)?;
    let caption = format!(
        "Averages over the last {window} prompts. Hits: accepted target tokens that came from the cache. {}",
        seeds_note(streams)
    );
    let title = title(streams, &arms);
    Some(over_stream(
        streams,
        title,
        legend(streams, &arms),
        rows,
        caption,
    ))
}

/// Hits in the first and the last quarter of the streams.
fn title(streams: &Streams, arms: &[&str]) -> String {
    let words = arms.iter().rev().take(2).filter_map(|arm| {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for segment in &streams.segments {
            for seed in streams.streams(arm, segment.index) {
                let quarter = seed.len().div_ceil(4);
                first.extend(seed.iter().take(quarter).copied());
                last.extend(seed.iter().rev().take(quarter).copied());
            }
        }
        let hits = |answers: Vec<_>| over(Metric::HitsPerResponse, answers);
        Some(format!(
            "{arm} from {} to {}",
            rate(hits(first)?),
            rate(hits(last)?)
        ))
    });
    let words: Vec<String> = words.collect();
    format!(
        "N-gram hits a response over the stream: {}",
        words.join(", ")
    )
}
