//! A metric over the values of a sweep, with its intervals.

use super::MAX_COLUMNS;
use crate::figure::{ArmStyle, Figure, Legend, Line, Mark, Panel, PanelRow, other_style};
use crate::paper::Where;
use crate::tables::ratios::with_arm;
use crate::tables::sweep::{Family, families};
use crate::tables::{Source, joined};
use results::{ArmInfo, Metric};

/// Every family that was swept over: a row a metric, a panel a column of the page, a line for what
/// else the rows tell apart. `None` without sweeps.
pub fn sweep_figures(source: &Source, metrics: &[Metric]) -> Vec<(String, Figure)> {
    let families = families(source);
    let figure =
        |family: &Family| Some((family.name.to_owned(), of_family(source, family, metrics)?));
    families.iter().filter_map(figure).collect()
}

fn of_family(source: &Source, family: &Family, metrics: &[Metric]) -> Option<Figure> {
    let (key, words) = first_key(family)?;
    let axes: Vec<String> = source
        .row_axes()
        .iter()
        .filter(|axis| !source.estimates.of_arms(axis))
        .cloned()
        .collect();
    let places = source.places(&axes);
    let columns: Vec<Where> = source
        .columns()
        .into_iter()
        .filter(|column| column.keys().all(|axis| !source.estimates.of_arms(axis)))
        .collect();
    let columns = if columns.is_empty() {
        vec![Where::new()]
    } else {
        columns
    };
    let others = other_values(family, &key);
    let mut series: Vec<(String, Where, String)> = Vec::new();
    for place in &places {
        for other in &others {
            let named = place.values().map(String::as_str).chain([other.as_str()]);
            let name: Vec<&str> = named.filter(|word| !word.is_empty()).collect();
            series.push((name.join(", "), place.clone(), other.clone()));
        }
    }
    let mut rows = Vec::new();
    let mut best: Option<String> = None;
    for block in columns.chunks(MAX_COLUMNS) {
        for &metric in metrics {
            let panels: Vec<Panel> = block
                .iter()
                .map(|column| {
                    let drawn = series
                        .iter()
                        .enumerate()
                        .map(|(number, (_, place, other))| {
                            let at = joined(place, column);
                            let arms = variants(family, &key, &words, other);
                            series_line(source, metric, &at, &arms, other_style(number))
                        });
                    let (lines, marks): (Vec<Line>, Vec<Vec<Mark>>) = drawn.flatten().unzip();
                    Panel {
                        title: source.column_axis().map(|_| source.column_title(column)),
                        x: (0.5, words.len() as f64 + 0.5),
                        lines,
                        marks: marks.concat(),
                        words: words
                            .iter()
                            .enumerate()
                            .map(|(at, word)| ((at + 1) as f64, word.clone()))
                            .collect(),
                        ..Panel::default()
                    }
                })
                .collect();
            if best.is_none() {
                best = message(&panels, &words, metric, family.name, &key);
            }
            if panels.iter().any(|panel| !panel.lines.is_empty()) {
                let unit = metric.unit();
                rows.push(PanelRow {
                    y_label: match unit {
                        "" => metric.title().to_owned(),
                        unit => format!("{} ({unit})", metric.title()),
                    },
                    from_zero: false,
                    log: false,
                    reference: None,
                    panels,
                });
            }
        }
    }
    let named = series
        .iter()
        .enumerate()
        .filter(|(_, (name, ..))| !name.is_empty());
    let legend = named.map(|(number, (name, ..))| Legend {
        label: name.clone(),
        style: other_style(number),
    });
    (!rows.is_empty()).then(|| Figure {
        title: best.unwrap_or_else(|| format!("{} over {key}", family.name)),
        legend: legend.collect(),
        rows,
        x_label: key,
        log_x: false,
        caption: vec![format!(
            "{} on the prompts of the tables. Bands: 95% intervals over prompts and seeds; they are paired, so neighbours differ more surely than the bands suggest.",
            family.name
        )],
    })
}

/// The first key swept over with its values in order.
fn first_key(family: &Family) -> Option<(String, Vec<String>)> {
    let key = family
        .arms
        .first()?
        .swept_from
        .as_ref()?
        .values
        .first()?
        .0
        .clone();
    let mut words: Vec<String> = Vec::new();
    for arm in &family.arms {
        let values = arm.swept_from.iter().flat_map(|swept| &swept.values);
        for (_, value) in values.filter(|(own, _)| *own == key) {
            if !words.contains(value) {
                words.push(value.clone());
            }
        }
    }
    Some((key, words))
}

/// The values of the other keys, in words; one empty text where there are none.
fn other_values(family: &Family, key: &str) -> Vec<String> {
    let mut others: Vec<String> = Vec::new();
    for arm in &family.arms {
        let other = other_of(arm, key);
        if !others.contains(&other) {
            others.push(other);
        }
    }
    others
}

fn other_of(arm: &ArmInfo, key: &str) -> String {
    let values = arm.swept_from.iter().flat_map(|swept| &swept.values);
    let words = values
        .filter(|(own, _)| own != key)
        .map(|(k, v)| format!("{k} = {v}"));
    words.collect::<Vec<_>>().join(", ")
}

/// The arm at each value of the key, where there is one.
fn variants<'a>(
    family: &'a Family,
    key: &str,
    words: &[String],
    other: &str,
) -> Vec<Option<&'a str>> {
    let at = |word: &String| {
        let arm = family.arms.iter().find(|arm| {
            let mut values = arm.swept_from.iter().flat_map(|swept| &swept.values);
            values.any(|(k, v)| k == key && v == word) && other_of(arm, key) == other
        });
        arm.map(|arm| arm.name.as_str())
    };
    words.iter().map(at).collect()
}

fn series_line(
    source: &Source,
    metric: Metric,
    at: &Where,
    arms: &[Option<&str>],
    style: ArmStyle,
) -> Option<(Line, Vec<Mark>)> {
    let mut line = Line {
        style,
        pieces: vec![Vec::new()],
        bands: vec![Vec::new()],
    };
    let mut marks = Vec::new();
    for (index, arm) in arms.iter().enumerate() {
        let Some(estimate) = arm.and_then(|arm| source.estimates.value(metric, &with_arm(at, arm)))
        else {
            continue;
        };
        let (x, y) = ((index + 1) as f64, estimate.value);
        line.pieces.iter_mut().for_each(|piece| piece.push((x, y)));
        if let Some(interval) = estimate.interval() {
            let point = (x, interval.low, interval.high);
            line.bands.iter_mut().for_each(|band| band.push(point));
        }
        marks.push(Mark {
            x,
            y,
            color: style.color,
        });
    }
    (!marks.is_empty()).then_some((line, marks))
}

/// Where the first metric is best, line by line.
fn message(
    panels: &[Panel],
    words: &[String],
    metric: Metric,
    name: &str,
    key: &str,
) -> Option<String> {
    let mut counts = vec![0usize; words.len()];
    let mut lines = 0;
    for piece in panels
        .iter()
        .flat_map(|panel| &panel.lines)
        .flat_map(|line| &line.pieces)
    {
        let best = piece.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        if let Some(count) = counts.get_mut(best.0 as usize - 1) {
            *count += 1;
        }
        lines += 1;
    }
    let (at, count) = counts
        .iter()
        .enumerate()
        .max_by_key(|(at, count)| (**count, usize::MAX - at))?;
    let word = words.get(at)?;
    Some(format!(
        "{name}: {} is best at {key} = {word} in {count} of {lines}",
        metric.title()
    ))
}
