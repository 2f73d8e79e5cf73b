//! `[report]`, read and checked against the rest of the file.

use std::path::Path;

use crate::load::{Faults, Node, read_or_default};
use crate::report::ReportConfig;
use crate::summary::Experiment;

/// Axes of a page besides those of the grid.
const COORDINATES: [&str; 5] = ["arm", "target", "task", "stage", "segment"];

/// Reads the section; the path of the paper's file becomes relative to the working directory.
pub(crate) fn read(root: &Node, file: &Path, faults: &mut Faults) -> Option<ReportConfig> {
    let mut report: ReportConfig = read_or_default(root.at("report"), "report", faults)?;
    if report.paper.is_none() && !report.paper_names.is_empty() {
        let key = "report.paper_names";
        let message = "there is no report.paper whose names these stand for";
        faults.add(root.place_at(key), key, message);
    }
    if let Some(paper) = &mut report.paper {
        let place = root.place_at("report.paper");
        let from = match place {
            Some(place) if place.line.is_some() => Path::new(&*place.source).parent(),
            Some(_) => None,
            None => file.parent(),
        };
        *paper = from.unwrap_or(Path::new("")).join(&paper);
        if !paper.is_file() {
            let message = format!("{}: no such file", paper.display());
            faults.add(place, "report.paper", message);
        }
    }
    Some(report)
}

/// Reports stages, axes and arms that do not exist, a smallest effect outside `[0, 1)`, and missing
/// or empty names of metrics. If no stage is named, the last one is filled in.
pub(crate) fn check(experiment: &mut Experiment, root: &Node, faults: &mut Faults) {
    let mut fault = |key: &str, message: String| {
        let path: Vec<&str> = key.split('.').collect();
        faults.add(root.nearest_place(&path), key, message);
    };
    let report = &experiment.report;
    let stages: Vec<&str> = experiment
        .stages
        .iter()
        .map(|stage| stage.name.as_str())
        .collect();
    if let Some(stage) = report
        .stage
        .as_deref()
        .filter(|stage| !stages.contains(stage))
    {
        let message = format!("there is no stage `{stage}` (one of {})", stages.join(", "));
        fault("report.stage", message);
    }
    let mut known: Vec<&str> = COORDINATES.to_vec();
    let axes = experiment.axes.iter().map(|axis| axis.name.as_str());
    known.extend(axes.filter(|axis| !COORDINATES.contains(axis)));
    let rows = report.rows.iter().enumerate();
    let rows = rows.map(|(i, name)| (format!("report.rows.{i}"), name));
    let columns = report
        .columns
        .iter()
        .map(|name| ("report.columns".to_owned(), name));
    for (key, name) in rows.chain(columns) {
        if !known.contains(&name.as_str()) {
            let message = format!("there is no axis `{name}` (one of {})", known.join(", "));
            fault(&key, message);
        }
    }
    // Rows are of arms, also where the list of rows does not say so.
    if let Some(name) = report.columns.as_ref()
        && (name == "arm" || report.rows.contains(name))
    {
        fault("report.columns", format!("`{name}` is an axis of the rows"));
    }
    if !(0.0..1.0).contains(&report.smallest_effect) {
        let message = format!(
            "{} is not a share from 0 to below 1",
            report.smallest_effect
        );
        fault("report.smallest_effect", message);
    }
    if report.cell.is_empty() {
        fault("report.cell", "at least one metric is needed".to_owned());
    }
    for (i, metric) in report.cell.iter().enumerate() {
        if metric.trim().is_empty() {
            fault(
                &format!("report.cell.{i}"),
                "the name of a metric is empty".to_owned(),
            );
        }
    }
    let shown = report.arms.iter().enumerate();
    let shown = shown.map(|(i, name)| (format!("report.arms.{i}"), name));
    let pairs = report.ratios.iter().enumerate();
    let pairs = pairs.flat_map(|(i, (above, below))| {
        let key = |side| format!("report.ratios.{i}.{side}");
        [(key(0), above), (key(1), below)]
    });
    for (key, name) in shown.chain(pairs) {
        if experiment.arms_named(name).next().is_none() {
            let names: Vec<&str> = experiment
                .arms
                .iter()
                .map(|arm| arm.name.as_str())
                .collect();
            fault(
                &key,
                format!("there is no arm `{name}` (one of {})", names.join(", ")),
            );
        }
    }
    if experiment.report.stage.is_none() {
        let last = experiment.stages.last();
        experiment.report.stage = last.map(|stage| stage.name.clone());
    }
}
