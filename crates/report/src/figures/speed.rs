//! Speed of an arm while it learns, and time saved since the start of the stream (Figures 2 to 4).
//!
//! In timed cells, an answer takes the seconds of its decoding, of its prefill, and of the delay by
//! learning. In other cells its rounds are counted at `decode.costs`, in which learning costs
//! nothing.

use super::{
    Quantity, by_arm, by_segment, curve_line, legend, line_of, multiples, one_seed, over_stream,
    reference_legend, running, seeds_note, who,
};
use crate::curves::{Band, curves_by, window};
use crate::estimates::extent;
use crate::figure::{Figure, Level, Mark, reference_style};
use crate::names::{listed, readable};
use crate::root::{Cell, Stage};
use crate::streams::{Place, Segment, Streams, other_axes};
use results::{Answer, Split, Sums};
use std::collections::BTreeMap;

/// Tokens and seconds of plain decoding of held-out prompts, the reference if the stream was not
/// decoded plainly.
pub type PlainRates = BTreeMap<Place, (f64, f64)>;

/// The speeds of plain decoding in a stage's timed held-out rows, of cells that decoded as those of
/// the streams did.
pub fn plain_rates(stage: &Stage, streams: &Streams) -> PlainRates {
    let mut rates = PlainRates::new();
    let alike = |cell: &&Cell| streams.decoding.contains(&cell.decoding());
    for cell in stage.cells.iter().filter(alike) {
        let other = other_axes(&cell.manifest.cell.coordinates);
        let plain =
            |answer: &&Answer| answer.row.split == Split::Test && answer.is_plain && answer.timed;
        for Answer { row, .. } in cell.answers.iter().filter(plain) {
            let place = (row.task.clone(), row.target.clone(), other.clone());
            let (tokens, seconds) = rates.entry(place).or_default();
            *tokens += f64::from(row.new_tokens);
            *seconds += row.all_seconds();
        }
    }
    rates
}

/// The source of plain decoding's speed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    /// The same prompts of the stream, decoded plainly and timed.
    OfTheStream,
    /// Timed held-out prompts.
    HeldOut,
    /// Costs of a round: nothing is timed.
    Counted,
}

impl Plain {
    /// `None` if there is nothing to compare times with, or rows lack their costs.
    fn of(streams: &Streams, rates: &PlainRates) -> Option<Self> {
        let mut answers = streams.drafting().flat_map(|arm| streams.answers(arm));
        if !streams.timed {
            let costs = answers.all(|answer| answer.row.cost.is_some());
            return costs.then_some(Self::Counted);
        }
        let both = answers.all(|answer| answer.plain.is_some());
        let mut segments = streams.segments.iter();
        let stands_in = !streams.cheaper && segments.all(|s| rate_of(rates, s).is_some());
        match (both, stands_in) {
            (true, _) => Some(Self::OfTheStream),
            (false, true) => Some(Self::HeldOut),
            (false, false) => None,
        }
    }

    /// The caption of the figure about the reference.
    fn caption(self) -> &'static str {
        match self {
            Self::OfTheStream => {
                "By the clock, prefill and learning in; plain decoding answered the same prompts."
            }
            Self::HeldOut => {
                "By the clock, prefill and learning in. Plain decoding did not answer the stream: the mean speed of its held-out answers of the same task stands in for it."
            }
            Self::Counted => {
                "Not timed: rounds counted at the costs of the experiment (decode.costs), in which learning costs nothing."
            }
        }
    }
}

fn rate_of(rates: &PlainRates, segment: &Segment) -> Option<(f64, f64)> {
    let rate = rates.get(&segment.place()).copied();
    rate.filter(|(_, seconds)| *seconds > 0.0)
}

/// Tokens of an answer and its duration: seconds, or plain steps.
fn speed(plain: Plain, answer: &Answer) -> Option<Sums> {
    let tokens = f64::from(answer.row.new_tokens);
    match plain {
        Plain::Counted => {
            let cost = answer.row.cost?;
            Some(Sums::of(tokens * answer.plain_step, cost))
        }
        _ => Some(Sums::of(tokens, answer.row.all_seconds())),
    }
}

/// Tokens per second, or counted speedup over plain decoding, over the number of prompts; `None` if
/// rows lack the data.
pub fn speed_figure(streams: &Streams, rates: &PlainRates) -> Option<Figure> {
    let plain = Plain::of(streams, rates)?;
    let window = window(&streams.segments);
    let arms: Vec<&str> = streams
        .arms
        .iter()
        .filter(|arm| !arm.is_plain || plain == Plain::OfTheStream)
        .map(|arm| arm.name.as_str())
        .collect();
    let curves = curves_by(streams, &arms, window, &|answer| speed(plain, answer));
    let label = match plain {
        Plain::Counted => "counted speed over plain",
        _ => "tokens a second, end to end",
    };
    let zero = plain != Plain::Counted;
    let mut quantity = Quantity::new(label, zero, |panel, series, segments| {
        let line = curve_line(streams, &curves, series, segments);
        panel.lines.extend(line);
        if plain == Plain::HeldOut {
            let rates = segments.iter().filter_map(|own| rate_of(rates, own));
            panel.levels.extend(rates.map(|(tokens, seconds)| Level {
                y: tokens / seconds,
                x: None,
                color: reference_style().color,
                dash: (5.0, 4.0),
            }));
        }
    });
    quantity.reference = (plain == Plain::Counted).then_some(1.0);
    let series = by_arm(streams, &arms);
    let rows = multiples(&by_segment(streams), &series, &[quantity])?;
    let mut legend = legend(&series);
    match plain {
        Plain::Counted => legend.push(reference_legend("plain decoding")),
        Plain::HeldOut => legend.push(reference_legend("plain decoding of held-out prompts")),
        Plain::OfTheStream => {}
    }
    let caption = format!(
        "Averages over the last {window} prompts. {} {}{}",
        plain.caption(),
        seeds_note(streams),
        who(&arms),
    );
    let title = at_the_end(streams, plain, rates);
    let title = title.unwrap_or_else(|| "Speed over the stream".to_owned());
    Some(over_stream(streams, title, legend, rows, caption))
}

/// Speedup of one arm in the last quarter of the stream over plain decoding of the same quarter, or
/// its substitute.
fn at_the_end(streams: &Streams, plain: Plain, rates: &PlainRates) -> Option<String> {
    let arm = streams.method()?;
    let plainly = streams.arms.iter().find(|arm| arm.is_plain);
    let quarter = |arm: &str, segment: u32| -> Vec<&Answer> {
        let seeds = streams.streams(arm, segment).into_iter();
        let last = seeds.flat_map(|seed| seed.iter().rev().take(seed.len().div_ceil(4)));
        last.copied().collect()
    };
    let of = |arm: &str, segment: u32| {
        let answers = quarter(arm, segment).into_iter();
        Sums::total(answers.filter_map(|answer| speed(plain, answer)))
    };
    let ratios = streams.segments.iter().filter_map(|segment| {
        let below = match plain {
            Plain::Counted => 1.0,
            Plain::OfTheStream => of(&plainly?.name, segment.index)?,
            Plain::HeldOut => {
                let (tokens, seconds) = rate_of(rates, segment)?;
                tokens / seconds
            }
        };
        Some((segment, of(arm, segment.index)? / below))
    });
    let ratios: Vec<(&Segment, f64)> = ratios.collect();
    let what = match plain {
        Plain::Counted => "counted",
        _ => "by the clock, learning in",
    };
    let values = match ratios.len() {
        0 => return None,
        1..=4 => listed(
            &ratios
                .iter()
                .map(|(segment, ratio)| format!("{} {ratio:.2}", readable(&segment.title)))
                .collect::<Vec<_>>(),
        ),
        count => {
            let (least, most) = extent(ratios.iter().map(|ratio| ratio.1));
            format!("{least:.2} to {most:.2} in {count} streams")
        }
    };
    Some(format!(
        "Speed of {} over plain decoding's in the last quarter of the stream, {what}: {values}{}",
        readable(arm),
        one_seed(streams)
    ))
}

/// Seconds (or plain steps) that an arm has saved compared with plain decoding since the start of
/// the stream; `None` if rows lack the data.
pub fn saved_figure(streams: &Streams, rates: &PlainRates) -> Option<Figure> {
    let plain = Plain::of(streams, rates)?;
    let arms: Vec<&str> = streams.drafting().collect();
    let unit = match plain {
        Plain::Counted => "plain steps saved",
        _ => "seconds saved",
    };
    let mut quantity = Quantity::new(unit, false, |panel, series, segments| {
        let Some(points) = saved(streams, plain, rates, &series.arm, segments) else {
            return;
        };
        let pieces = [(points.as_slice(), 0)];
        panel.lines.push(line_of(streams, series.style, pieces));
        let even = break_even(&points).filter(|(at, _)| *at > 1);
        panel.marks.extend(even.map(|(at, y)| Mark {
            x: at as f64,
            y,
            color: series.style.color,
        }));
    });
    quantity.reference = Some(0.0);
    let series = by_arm(streams, &arms);
    let stretches = by_segment(streams);
    let rows = multiples(&stretches, &series, &[quantity])?;
    let mut legend = legend(&series);
    legend.push(reference_legend("plain decoding"));
    let caption = format!(
        "Sum over the prompts so far of what plain decoding takes less what the arm takes. Dots: break-even, from which on the sum stays above zero; none where it is there from the first prompt or never. {} {}{}",
        plain.caption(),
        seeds_note(streams),
        who(&arms),
    );
    let title = streams.method().and_then(|arm| {
        let ends = stretches.iter().filter_map(|stretch| {
            let points = saved(streams, plain, rates, arm, &stretch.segments)?;
            Some((stretch, break_even(&points), *points.last()?))
        });
        let ends: Vec<_> = ends.collect();
        let words: Vec<String> = ends
            .iter()
            .map(|(stretch, even, (prompts, _))| {
                let even = match even {
                    Some((1, _)) => "from the first prompt".to_owned(),
                    Some((at, _)) => format!("after {at} prompts"),
                    None => format!("not within {prompts} prompts"),
                };
                format!("{} {even}", stretch.title.clone().unwrap_or_default())
            })
            .collect();
        let even = ends.iter().filter(|(_, even, _)| even.is_some()).count();
        let said = match words.len() {
            0 => return None,
            1..=4 => words.join(", "),
            count => format!("in {even} of {count} streams"),
        };
        let counted = match plain {
            Plain::Counted => ", counted",
            _ => "",
        };
        Some(format!(
            "Break-even of {} with plain decoding{counted}: {said}{}",
            readable(arm),
            one_seed(streams)
        ))
    });
    let title = title.unwrap_or_else(|| "Saved since the stream began".to_owned());
    Some(over_stream(streams, title, legend, rows, caption))
}

/// Seconds (or plain steps) that an arm has saved after each prompt of some segments, mean over
/// seeds with minimum and maximum; `None` if an answer lacks the data.
fn saved(
    streams: &Streams,
    plain: Plain,
    rates: &PlainRates,
    arm: &str,
    segments: &[&Segment],
) -> Option<Vec<(usize, Band)>> {
    running(streams, arm, segments, |sum, answer, segment| {
        let tokens = f64::from(answer.row.new_tokens);
        *sum += match plain {
            Plain::Counted => tokens - answer.row.cost? / answer.plain_step,
            Plain::OfTheStream => {
                let plain = answer.plain.as_ref()?;
                plain.seconds + plain.prefill_s - answer.row.all_seconds()
            }
            Plain::HeldOut => {
                let (plain_tokens, plain_seconds) = rate_of(rates, segment)?;
                tokens * plain_seconds / plain_tokens - answer.row.all_seconds()
            }
        };
        Some(*sum)
    })
}

/// The prompt, from 1, from which the saving stays at or above zero, and the saving then; `None` if
/// it is negative at the end.
fn break_even(points: &[(usize, Band)]) -> Option<(usize, f64)> {
    let owed = points.iter().rposition(|(_, band)| band.mean < 0.0);
    let first = owed.map_or(0, |at| at + 1);
    points.get(first).map(|(at, band)| (*at, band.mean))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn break_even_is_the_last_time_that_the_sum_becomes_positive() {
        let points = |sums: &[f64]| -> Vec<(usize, Band)> {
            let band = |(at, mean): (usize, &f64)| {
                let band = Band {
                    mean: *mean,
                    low: *mean,
                    high: *mean,
                };
                (at + 1, band)
            };
            sums.iter().enumerate().map(band).collect()
        };
        let even = |sums: &[f64]| break_even(&points(sums)).map(|(at, _)| at);
        assert_eq!(even(&[-1.0, 0.5, -0.5, 1.0, 2.0]), Some(4));
        assert_eq!(even(&[1.0, 2.0]), Some(1));
        assert_eq!(even(&[1.0, -2.0]), None);
        assert_eq!(even(&[]), None);
    }
}
