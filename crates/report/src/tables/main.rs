//! The main tables: all metrics in an overview, then one table per metric with intervals and the
//! paper's values.

use super::{Source, joined};
use crate::model::{Entry, Head, Number, Table};
use crate::names::sentence;
use crate::paper::Where;
use results::Metric;

/// The overview (if a table cell has several metrics) and the table of every metric.
pub fn tables(source: &Source, metrics: &[Metric]) -> Vec<Table> {
    if source.column_axis().is_none() {
        return vec![values(source, metrics)];
    }
    let mut tables = Vec::new();
    if metrics.len() > 1 {
        tables.push(overview(source, metrics));
    }
    tables.extend(metrics.iter().map(|&metric| of_metric(source, metric)));
    tables
}

/// The table without a column axis: one column per metric.
fn values(source: &Source, metrics: &[Metric]) -> Table {
    let axes = source.row_axes();
    let entry = |metric, at: &Where| source.entry(metric, at);
    let (head, rows) = source.by_metric(axes, &source.places(axes), metrics, entry);
    Table {
        id: "values".to_owned(),
        title: "Values".to_owned(),
        lead: "What each column means stands at the end of the page.".to_owned(),
        head,
        rows,
    }
}

fn overview(source: &Source, metrics: &[Metric]) -> Table {
    let names: Vec<&str> = metrics.iter().map(|metric| metric.title()).collect();
    let of_place = |place: &Where| {
        let mut row = source.labels(source.row_axes(), place);
        for column in source.columns() {
            row.push(numbers(source, metrics, &joined(place, &column)));
        }
        row
    };
    let places = source.places(source.row_axes());
    Table {
        id: "overview".to_owned(),
        title: "At a glance".to_owned(),
        lead: format!("Each entry: {}.", names.join(" · ")),
        head: heads(source, false),
        rows: places.iter().map(of_place).collect(),
    }
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

fn of_metric(source: &Source, metric: Metric) -> Table {
    let columns = source.columns();
    let of_place = |place: &Where| {
        let mut row = source.labels(source.row_axes(), place);
        let places: Vec<Where> = columns.iter().map(|column| joined(place, column)).collect();
        row.extend(places.iter().map(|at| source.entry(metric, at)));
        if columns.len() > 1 {
            let mean = source.estimates.mean(metric, places.iter());
            row.push(Entry::or_dash(
                mean.map(|mean| source.number(metric, &mean, place)),
            ));
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
    Table {
        id: metric.name().to_owned(),
        title: sentence(metric.title()),
        lead,
        head: heads(source, columns.len() > 1),
        rows: places.iter().map(of_place).collect(),
    }
}

fn heads(source: &Source, with_mean: bool) -> Vec<Head> {
    let mut heads = Source::heads(source.row_axes());
    heads.extend(source.column_heads());
    if with_mean {
        heads.push(Head::numbers("mean"));
    }
    heads
}
