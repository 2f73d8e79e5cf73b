//! The main tables: all metrics in an overview, then one table per metric with intervals and the
//! paper's values.

use super::{Source, joined};
use crate::model::{Entry, Number, Table};
use crate::names::sentence;
use crate::paper::Where;
use results::Metric;

/// The overview (if a table cell has several metrics) and the table of every metric.
pub fn tables(source: &Source, metrics: &[Metric]) -> Vec<Table> {
    if source.column_axis().is_none() {
        return values(source, metrics).into_iter().collect();
    }
    let mut tables = Vec::new();
    if metrics.len() > 1 {
        tables.extend(overview(source, metrics));
    }
    for &metric in metrics {
        tables.extend(of_metric(source, metric));
    }
    tables
}

/// The table without a column axis: one column per metric.
fn values(source: &Source, metrics: &[Metric]) -> Option<Table> {
    let axes = source.row_axes();
    let entry = |metric, at: &Where| source.entry(metric, at);
    Table::of(
        "values",
        "Values",
        "What each column means stands at the end of the page.",
        source.by_metric(axes, &source.places(axes), metrics, entry),
    )
}

fn overview(source: &Source, metrics: &[Metric]) -> Option<Table> {
    let names: Vec<&str> = metrics.iter().map(|metric| metric.title()).collect();
    let (titles, columns) = (source.column_titles(), source.columns());
    let of_place = |place: &Where| {
        let mut row = source.labels(source.row_axes(), place);
        for (title, column) in titles.iter().zip(&columns) {
            let entry = numbers(source, metrics, &joined(place, column));
            row.push((title.as_str(), entry));
        }
        row
    };
    let places = source.places(source.row_axes());
    Table::of(
        "overview",
        "At a glance",
        format!("Each entry: {}.", names.join(" · ")),
        places.iter().map(of_place).collect(),
    )
}

/// The metrics of one place side by side, without intervals.
fn numbers(source: &Source, metrics: &[Metric], at: &Where) -> Entry {
    let number = |&metric: &Metric| match source.estimates.value(metric, at) {
        Some(estimate) => Number {
            interval: None,
            against: None,
            ..source.number(metric, &estimate, at)
        },
        None => Number {
            metric: metric.name().to_owned(),
            ..Number::plain(f64::NAN, "–".to_owned())
        },
    };
    let numbers: Vec<Number> = metrics.iter().map(number).collect();
    if numbers.iter().all(|number| number.value.is_nan()) {
        let reason = metrics
            .first()
            .map_or("–", |&metric| source.absent(metric, at));
        return Entry::missing(reason);
    }
    Entry::Numbers { numbers }
}

fn of_metric(source: &Source, metric: Metric) -> Option<Table> {
    let (titles, columns) = (source.column_titles(), source.columns());
    let of_place = |place: &Where| {
        let mut row = source.labels(source.row_axes(), place);
        let places: Vec<Where> = columns.iter().map(|column| joined(place, column)).collect();
        for (title, at) in titles.iter().zip(&places) {
            row.push((title.as_str(), source.entry(metric, at)));
        }
        if columns.len() > 1 {
            let mean = source.estimates.mean(metric, places.iter());
            let mean = mean.map(|mean| source.number(metric, &mean, place));
            row.push(("mean", Entry::or_dash(mean)));
        }
        row
    };
    let places = source.places(source.row_axes());
    let mut lead = format!("{}.", sentence(metric.definition()));
    if let (true, Some(axis)) = (columns.len() > 1, source.column_axis()) {
        lead.push_str(&format!(
            " Mean: the arithmetic mean of the row's values, one a {axis}."
        ));
    }
    Table::of(
        metric.name(),
        sentence(metric.title()),
        lead,
        places.iter().map(of_place).collect(),
    )
}
