//! The metric of a page's claims over the values of a sweep, with intervals.

use super::{MAX_COLUMNS, reference_legend};
use crate::estimates::distinct;
use crate::figure::{Figure, Legend, Line, Mark, Panel, PanelRow, other_style};
use crate::names::{axis, plain_level, readable, sentence};
use crate::paper::Where;
use crate::tables::claims::{Verdict, of_the_page};
use crate::tables::ratios::speed_of;
use crate::tables::sweep::{Family, families, swept, values};
use crate::tables::with_arm;
use crate::tables::{Source, few_seeds, joined};
use results::{Estimate, Metric};

/// A figure per swept family: one panel per column of the page, one line per combination of the
/// other axes. Empty without sweeps.
pub fn sweep_figures(source: &Source, metrics: &[Metric]) -> Vec<Figure> {
    let families = families(source);
    let figure = |family: &Family| of_family(source, family, metrics);
    families.iter().filter_map(figure).collect()
}

fn of_family(source: &Source, family: &Family, metrics: &[Metric]) -> Option<Figure> {
    let (key, words) = first_key(family)?;
    let of_arms = |axis: &String| source.estimates.of_arms(axis);
    let mut axes = source.row_axes().to_vec();
    axes.retain(|axis| !of_arms(axis));
    let places = source.places(&axes);
    let mut columns = source.columns();
    columns.retain(|column| !column.keys().any(of_arms));
    if columns.is_empty() {
        columns.push(Where::new());
    }
    let others = distinct(family.arms.iter().map(|arm| values(arm, &key)));
    let mut series: Vec<(String, Where, String)> = Vec::new();
    for place in &places {
        for other in &others {
            let named = place.values().map(String::as_str).chain([other.as_str()]);
            let name: Vec<&str> = named.filter(|word| !word.is_empty()).collect();
            series.push((name.join(", "), place.clone(), other.clone()));
        }
    }
    let metric = claimed(source, family, metrics)?;
    let smallest = source.experiment.report.smallest_effect;
    // The estimates of the arms at the values of the key, with the values' positions.
    let measured = |at: &Where, other: &str| -> Vec<(usize, Estimate)> {
        let estimate = |(index, word): (usize, &String)| {
            let arm = family.arms.iter().find(|arm| {
                swept(arm).any(|(k, v)| *k == key && v == word) && values(arm, &key) == other
            })?;
            let at = with_arm(at, &arm.name);
            Some((index, source.estimates.value(metric, &at)?))
        };
        words.iter().enumerate().filter_map(estimate).collect()
    };
    let mut rows = Vec::new();
    let mut ranked = Vec::new();
    for block in columns.chunks(MAX_COLUMNS) {
        let mut panels = Vec::new();
        for column in block {
            let mut panel = Panel {
                title: source
                    .column_axis()
                    .map(|_| readable(&source.column_title(column))),
                x: (0.5, words.len() as f64 + 0.5),
                words: words
                    .iter()
                    .enumerate()
                    .map(|(at, word)| ((at + 1) as f64, word.clone()))
                    .collect(),
                ..Panel::default()
            };
            for (number, (_, place, other)) in series.iter().enumerate() {
                let found = measured(&joined(place, column), other);
                if found.is_empty() {
                    continue;
                }
                let style = other_style(number);
                let points = found.iter().map(|(at, own)| ((at + 1) as f64, own));
                let band = points.clone().filter_map(|(x, own)| {
                    let interval = own.interval()?;
                    Some((x, interval.low, interval.high))
                });
                panel.lines.push(Line {
                    style,
                    pieces: vec![points.clone().map(|(x, own)| (x, own.value)).collect()],
                    bands: vec![band.collect()],
                });
                panel.marks.extend(points.map(|(x, own)| Mark {
                    x,
                    y: own.value,
                    color: style.color,
                }));
                ranked.extend(best(found, smallest));
            }
            panels.push(panel);
        }
        rows.push(PanelRow {
            y_label: axis(metric).to_owned(),
            from_zero: true,
            reference: plain_level(metric),
            panels,
        });
    }
    rows.retain(|row| row.panels.iter().any(|panel| !panel.lines.is_empty()));
    let named = series
        .iter()
        .enumerate()
        .filter(|(_, (name, ..))| !name.is_empty() && series.len() > 1);
    let mut legend: Vec<Legend> = named
        .map(|(number, (name, ..))| Legend {
            label: readable(name),
            style: other_style(number),
        })
        .collect();
    if plain_level(metric).is_some() {
        legend.push(reference_legend("plain decoding"));
    }
    let seeds = match few_seeds(source.stage.seeds().len()) {
        Some(few) => format!(", {few}"),
        None => String::new(),
    };
    (!rows.is_empty()).then(|| Figure {
        title: message(&ranked, &words, metric, &readable(family.name), &readable(&key)),
        legend,
        rows,
        x_label: readable(&key),
        log: false,
        caption: format!(
            "{} on the prompts of the tables. Bands: 95% intervals{seeds}. They are paired, so neighbours may differ more surely than the bands suggest; a best value counts where the interval of its ratio to the second best lies above 1 by the page's smallest effect.",
            sentence(&readable(family.name))
        ),
    })
}

/// The metric that is drawn: that of the paper's first claim about an arm of the sweep, else of its
/// first claim, else the page's first speed, else its first metric.
fn claimed(source: &Source, family: &Family, metrics: &[Metric]) -> Option<Metric> {
    let claims = source.experiment.paper_data.iter().flat_map(|p| &p.claim);
    let claims = claims.filter_map(|claim| {
        let (name, _, arms) = claim.rule()?;
        Some((of_the_page(Metric::parse(name)?, metrics), arms))
    });
    let claims: Vec<(Metric, Vec<&str>)> = claims.collect();
    let named = |(_, arms): &&(Metric, Vec<&str>)| {
        let mut own = family.arms.iter();
        own.any(|arm| arms.contains(&arm.name.as_str()))
    };
    let of_family = claims.iter().find(named).or(claims.first());
    let claimed = of_family.map(|(metric, _)| *metric);
    claimed.or_else(|| speed_of(source, metrics))
}

/// Position of the best value, and true if it is significantly above the second best.
fn best(mut values: Vec<(usize, Estimate)>, smallest: f64) -> Option<(usize, bool)> {
    values.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
    let (index, first) = values.first()?;
    let ahead = values.get(1).and_then(|(_, second)| first.over(second));
    let surely = ahead.is_some_and(|ratio| Verdict::of(&ratio, smallest) == Verdict::Holds);
    Some((*index, surely))
}

/// The first swept key, with its values in order.
fn first_key(family: &Family) -> Option<(String, Vec<String>)> {
    let (key, _) = swept(family.arms.first()?).next()?;
    let values = family.arms.iter().flat_map(|arm| swept(arm));
    let own = values.filter(|(own, _)| own == key);
    let words = distinct(own.map(|(_, value)| value.clone()));
    Some((key.clone(), words))
}

/// The best values, each with the number of its lines; significantly best ones are counted
/// separately.
fn message(
    ranked: &[(usize, bool)],
    words: &[String],
    metric: Metric,
    name: &str,
    key: &str,
) -> String {
    let what = format!("{}, {}", sentence(axis(metric)), name);
    let lines = ranked.len();
    let sure: Vec<usize> = ranked
        .iter()
        .filter_map(|(at, surely)| surely.then_some(*at))
        .collect();
    let values = words.iter().enumerate().filter_map(|(at, word)| {
        let count = sure.iter().filter(|own| **own == at).count();
        (count > 0).then(|| format!("{word} in {count}"))
    });
    let values: Vec<String> = values.collect();
    match (values.as_slice(), lines - sure.len()) {
        ([], 1) => format!("{what}: the best {key} is not clearly above the next best"),
        ([], _) => {
            format!("{what}: the best {key} is not clearly above the next best in any of {lines}")
        }
        (values, 0) => format!("{what}: best {key} {} of {lines}", values.join(", ")),
        (values, open) => format!(
            "{what}: best {key} {} of {lines}, not clear in {open}",
            values.join(", ")
        ),
    }
}
