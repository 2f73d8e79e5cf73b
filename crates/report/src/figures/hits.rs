//! Hit rate of the n-gram cache, and acceptance rate of its tokens (Figure 8).

use super::compare::from_to;
use super::{Quantity, legend, merged, multiples, one_seed, over_stream, seeds_note};
use crate::curves::{curves, window};
use crate::figure::Figure;
use crate::names::readable;
use crate::streams::{METHOD, Streams, over};
use results::Metric;

/// Minimum share of the maximum hits per answer for which an arm is drawn.
const FEW: f64 = 0.1;

/// Hits per answer and acceptance rate of n-grams over the stream; `None` if no arm proposes any.
pub fn hits_figure(streams: &Streams) -> Option<Figure> {
    let window = window(&streams.segments);
    let hits = curves(streams, Metric::HitsPerResponse, window);
    let accepted = curves(streams, Metric::NgramAcceptance, window);
    let of = |arm: &str| over(Metric::HitsPerResponse, streams.answers(arm)).unwrap_or(0.0);
    let most = streams.drafting().map(of).fold(0.0, f64::max);
    let (arms, few): (Vec<&str>, Vec<&str>) = streams
        .drafting()
        .filter(|arm| accepted.iter().any(|curve| curve.arm == *arm))
        .partition(|arm| of(arm) >= FEW * most);
    let (stretches, series) = merged(streams, &arms);
    let quantities = [
        Quantity::of_curves("n-gram hits an answer", true, streams, &hits),
        Quantity::of_curves("acceptance of n-grams", true, streams, &accepted),
    ];
    let rows = multiples(&stretches, &series, &quantities)?;
    let few: Vec<String> = few
        .iter()
        .map(|arm| format!(" Not drawn: {}, {:.2} an answer.", readable(arm), of(arm)))
        .collect();
    let caption = format!(
        "Averages over the last {window} prompts. Hits: accepted target tokens that came from the cache. {}{}",
        seeds_note(streams),
        few.concat()
    );
    let title = title(streams, &arms);
    Some(over_stream(streams, title, legend(&series), rows, caption))
}

/// Hits of the paper's method, or else of the last arm, in the first and the last quarter of the
/// streams.
fn title(streams: &Streams, arms: &[&str]) -> String {
    let method = arms.iter().find(|arm| **arm == METHOD);
    let ends = method.or(arms.last()).and_then(|arm| {
        let (first, last) = from_to(streams, Metric::HitsPerResponse, arm)?;
        Some((readable(arm), first, last))
    });
    match ends {
        Some((arm, first, last)) => format!(
            "N-gram hits an answer, first and last quarter of the stream: {arm} {first:.2} and {last:.2}{}",
            one_seed(streams)
        ),
        None => "N-gram hits an answer over the stream".to_owned(),
    }
}
