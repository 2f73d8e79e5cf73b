//! Comparison of two arms at the end of the stream, for titles that state only what the rows
//! support.

use super::one_seed;
use crate::estimates::extent;
use crate::names::{axis, readable, sentence};
use crate::paper::PaperData;
use crate::streams::{METHOD, Streams, over};
use crate::tables::claims::Verdict;
use results::bootstrap::{Group, Series};
use results::{Answer, Estimate, Metric};

/// Maximum ratio of two arms' mean draft lengths at which their acceptance rates can be compared.
const ALIKE: f64 = 1.15;

/// Two arms that are compared.
#[derive(Debug, Clone, Copy)]
pub struct ArmPair<'a> {
    /// Name of the arm that is expected to have more.
    pub above: &'a str,
    /// Name of the other arm.
    pub below: &'a str,
}

/// The arms that a figure of the stream compares: those of the first claim of the paper with both
/// arms present, else the paper's method and the direct loss alone, else the first of the page's
/// `ratios` with both present, else the last learning arm and one that does not learn.
pub fn pair<'a>(
    streams: &'a Streams,
    paper: Option<&'a PaperData>,
    ratios: &'a [(String, String)],
) -> Option<ArmPair<'a>> {
    let drawn = |arm: &str| streams.drafting().any(|own| own == arm);
    let claims = paper.into_iter().flat_map(|paper| &paper.claim);
    let orders = claims.filter_map(|claim| claim.order.as_ref());
    let pairs = orders
        .filter(|order| order.axis == "arm")
        .map(|order| ArmPair {
            above: &order.above,
            below: &order.below,
        });
    let usual = ArmPair {
        above: METHOD,
        below: "L_DM",
    };
    let ratios = ratios.iter();
    let ratios = ratios.map(|(above, below)| ArmPair { above, below });
    let known = pairs.chain([usual]).chain(ratios);
    let mut known = known.filter(|pair| drawn(pair.above) && drawn(pair.below));
    known.next().or_else(|| {
        Some(ArmPair {
            above: streams.learning().last().copied()?,
            below: streams.untrained()?,
        })
    })
}

/// The metric for comparing the arms of a figure: acceptance rate if there are several and their
/// drafts are equally long (up to [`ALIKE`]), else tokens per round, which long drafts do not
/// lower. Arms that look drafts up are left aside.
pub fn comparable(streams: &Streams) -> Metric {
    let drafting = streams.drafting();
    let arms: Vec<&str> = drafting.filter(|arm| !streams.looks_up(arm)).collect();
    let lengths = arms
        .iter()
        .filter_map(|arm| over(Metric::DraftLength, streams.answers(arm)));
    let (least, most) = extent(lengths);
    match arms.len() {
        2.. if most <= ALIKE * least => Metric::Acceptance,
        _ => Metric::TokensPerRound,
    }
}

/// The ratio of two arms in the last quarter of a segment's stream, with resampled prompts and
/// seeds.
fn at_the_end(streams: &Streams, metric: Metric, pair: ArmPair, segment: u32) -> Option<Estimate> {
    let last = |arm: &str| -> Vec<(u64, &Answer)> {
        let seeds = streams.by_seed(arm, segment).into_iter().flatten();
        let last = seeds.flat_map(|(seed, all)| {
            let own = all.iter().skip(all.len() - all.len().div_ceil(4));
            own.map(move |answer| (*seed, *answer))
        });
        last.collect()
    };
    let (above, below) = (last(pair.above), last(pair.below));
    let members = above.iter().chain(&below);
    let group = Group::new(
        &format!("end of stream {segment}"),
        members.map(|(seed, answer)| (*seed, answer.row.key())),
    );
    let series = [&above, &below].map(|answers| {
        let mut series = Series::default();
        for (seed, answer) in answers {
            if let Some(sums) = metric.sums(answer) {
                group.push(&mut series, *seed, &answer.row.key(), sums);
            }
        }
        series
    });
    let mut found = group.estimate(&series).into_iter();
    let (above, below) = (found.next()??, found.next()??);
    above.over(&below)
}

/// The comparison in words: for one stream the ratio and its interval, for several the numbers of
/// streams by result.
pub fn said(streams: &Streams, metric: Metric, pair: ArmPair, smallest: f64) -> Option<String> {
    let segments = streams.segments.iter();
    let ratios: Vec<Estimate> = segments
        .filter_map(|segment| at_the_end(streams, metric, pair, segment.index))
        .collect();
    let what = format!(
        "{}, {} over {}, last quarter of the stream",
        sentence(axis(metric)),
        readable(pair.above),
        readable(pair.below)
    );
    if let [only] = ratios.as_slice() {
        let interval = only.interval().map_or(String::new(), |interval| {
            format!(" ({:.2}–{:.2})", interval.low, interval.high)
        });
        let seed = one_seed(streams);
        return Some(format!("{what}: {:.2}{interval}{seed}", only.value));
    }
    let count = |wanted: Verdict| {
        let verdicts = ratios.iter().map(|ratio| Verdict::of(ratio, smallest));
        verdicts.filter(|verdict| *verdict == wanted).count()
    };
    let mut words = vec![format!(
        "more in {} of {}",
        count(Verdict::Holds),
        ratios.len()
    )];
    for (verdict, said) in [
        (Verdict::Level, "level in"),
        (Verdict::DoesNotHold, "less in"),
        (Verdict::CannotTell, "open in"),
    ] {
        if count(verdict) > 0 {
            words.push(format!("{said} {}", count(verdict)));
        }
    }
    let seed = one_seed(streams);
    (!ratios.is_empty()).then(|| format!("{what}: {}{seed}", words.join(", ")))
}

/// Values of an arm in the first and the last quarter of the stream, mean over streams.
pub fn from_to(streams: &Streams, metric: Metric, arm: &str) -> Option<(f64, f64)> {
    let mut ends: Vec<(f64, f64)> = Vec::new();
    for segment in &streams.segments {
        let (mut first, mut last) = (Vec::new(), Vec::new());
        for seed in streams.streams(arm, segment.index) {
            let quarter = seed.len().div_ceil(4);
            first.extend(seed.iter().take(quarter).copied());
            last.extend(seed.iter().rev().take(quarter).copied());
        }
        if let Some(pair) = over(metric, first).zip(over(metric, last)) {
            ends.push(pair);
        }
    }
    let count = ends.len() as f64;
    let sums = ends
        .iter()
        .fold((0.0, 0.0), |(a, b), (first, last)| (a + first, b + last));
    (!ends.is_empty()).then(|| (sums.0 / count, sums.1 / count))
}
