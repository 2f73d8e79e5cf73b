//! Estimates of every metric of every arm in every group, with the replicates for intervals.

use crate::paper::Where;
use crate::root::Stage;
use crate::spec::{Experiment, shows};
use results::bootstrap::{Estimate, Group, Series};
use results::{Answer, Metric, Split};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The answers that share every coordinate but the seed; prompts and seeds are resampled within it.
#[derive(Debug)]
pub struct Stratum {
    /// Value on every axis but `arm`, and but `seed` unless the page has that axis.
    pub at: Where,
    /// Folders of its cells, relative to the root.
    pub cells: Vec<String>,
    pub seeds: usize,
    /// Number of distinct prompts.
    pub prompts: usize,
    values: HashMap<(String, Metric), Estimate>,
}

/// All strata of a stage.
#[derive(Debug)]
pub struct Estimates {
    /// In order of the grid.
    pub strata: Vec<Stratum>,
    /// The split that they are computed on.
    pub split: Split,
    arms: Vec<ShownArm>,
}

/// An arm of the page. If every key that it was swept over is an axis of the page, it has the name
/// of the swept arm and stands at its values on those axes.
#[derive(Debug)]
struct ShownArm {
    name: String,
    shown_as: String,
    values: Where,
}

impl Estimates {
    /// The estimates of a stage: on its held-out prompts if it has any, else on its stream.
    pub fn new(experiment: &Experiment, stage: &Stage, metrics: &BTreeSet<Metric>) -> Self {
        let split = stage.split();
        let report = &experiment.report;
        let axes = report.rows.iter().chain(&report.columns);
        let by_seed = axes.into_iter().any(|axis| axis == "seed");
        let mut order: Vec<Where> = Vec::new();
        let mut groups: HashMap<Where, Vec<(usize, &Answer)>> = HashMap::new();
        // Strata of jobs that differ in the seed alone: several where a job streams segments.
        let mut jobs: HashMap<Vec<&(String, String)>, BTreeSet<Where>> = HashMap::new();
        for (number, cell) in stage.cells.iter().enumerate() {
            let coordinates = cell.manifest.cell.coordinates.iter();
            let job: Vec<_> = coordinates.filter(|(axis, _)| axis != "seed").collect();
            let strata = jobs.entry(job).or_default();
            for answer in cell
                .answers
                .iter()
                .filter(|answer| answer.row.split == split)
            {
                let mut at: Where = cell.manifest.cell.coordinates.iter().cloned().collect();
                if !by_seed {
                    at.remove("seed");
                }
                for axis in ["task", "target", "segment", "stage"] {
                    if let Some(value) = cell.value_on(axis, answer) {
                        at.insert(axis.to_owned(), value);
                    }
                }
                let group = groups.entry(at.clone()).or_default();
                if group.is_empty() {
                    order.push(at.clone());
                }
                strata.insert(at);
                group.push((number, answer));
            }
        }
        // Strata of the same prompts have the same draws, named after the first of them, so that
        // what is compared or averaged over them is paired.
        let mut names: HashMap<_, String> = HashMap::new();
        let strata = order.into_iter().map(|at| {
            let answers = groups.remove(&at).unwrap_or_default();
            let prompts = ["task", "segment", "stage"].map(|axis| at.get(axis).cloned());
            let name = names.entry(prompts).or_insert_with(|| {
                let each = at.iter().map(|(axis, value)| format!("{axis}={value}"));
                each.collect::<Vec<_>>().join(",")
            });
            let mut several = jobs.values().filter(|strata| strata.len() > 1);
            let shared = several.any(|strata| strata.contains(&at));
            stratum(stage, at, (name, shared), &answers, metrics)
        });
        Self {
            strata: strata.collect(),
            split,
            arms: shown_arms(experiment),
        }
    }

    /// True if an arm has a value of the metric somewhere.
    pub fn has(&self, metric: Metric) -> bool {
        let mut values = self.strata.iter().flat_map(|stratum| stratum.values.keys());
        values.any(|(_, own)| *own == metric)
    }

    /// The strata that agree with `at`, the arm aside.
    pub fn matching<'a>(&'a self, at: &'a Where) -> impl Iterator<Item = &'a Stratum> {
        let agrees = |stratum: &&Stratum| {
            let mut axes = at.iter().filter(|(axis, _)| !self.of_arms(axis));
            axes.all(|(axis, value)| stratum.at.get(axis) == Some(value))
        };
        self.strata.iter().filter(agrees)
    }

    /// The value at a place of the table: the arithmetic mean over the strata that agree with it;
    /// `None` if one of them has none or if there is no such arm.
    pub fn value(&self, metric: Metric, at: &Where) -> Option<Estimate> {
        let arm = self.arm(at)?;
        let found: Option<Vec<&Estimate>> = self
            .matching(at)
            .map(|stratum| stratum.value(arm, metric))
            .collect();
        Estimate::mean(&found?)
    }

    /// The values of an axis in the order of the grid, including planned ones without rows; arms in
    /// the order of the experiment.
    pub fn axis(&self, axis: &str, stage: &Stage) -> Vec<String> {
        if self.of_arms(axis) {
            return self.arm_axis(axis);
        }
        let cells = stage.planned.iter().flat_map(|cell| &cell.coordinates);
        let planned = cells
            .filter(|(name, _)| name == axis)
            .map(|(_, value)| value);
        let found = self.strata.iter().filter_map(|own| own.at.get(axis));
        let values = distinct(planned.chain(found)).into_iter();
        values.cloned().collect()
    }

    /// The arithmetic mean of the values at some places; `None` if one of them has none.
    pub fn mean<'a>(
        &self,
        metric: Metric,
        places: impl Iterator<Item = &'a Where>,
    ) -> Option<Estimate> {
        let values: Option<Vec<Estimate>> = places.map(|at| self.value(metric, at)).collect();
        Estimate::mean(&values?.iter().collect::<Vec<_>>())
    }

    /// True for an axis of arms: their name, or a key that they were swept over.
    pub fn of_arms(&self, axis: &str) -> bool {
        axis == "arm" || self.arms.iter().any(|arm| arm.values.contains_key(axis))
    }

    pub fn arm(&self, at: &Where) -> Option<&str> {
        let wanted = at.get("arm")?;
        let agrees = |arm: &&ShownArm| {
            let mut values = arm.values.iter();
            arm.shown_as == *wanted
                && values.all(|(axis, own)| at.get(axis).is_none_or(|value| value == own))
        };
        let shown = self.arms.iter().find(agrees);
        let by_name = || self.arms.iter().find(|arm| arm.name == *wanted);
        shown.or_else(by_name).map(|arm| arm.name.as_str())
    }

    /// All axes that have values.
    pub fn axes(&self) -> Vec<String> {
        let of_strata = self.strata.iter().flat_map(|stratum| stratum.at.keys());
        let of_arms = self.arms.iter().flat_map(|arm| arm.values.keys());
        let mut axes: BTreeSet<String> = of_strata.chain(of_arms).cloned().collect();
        axes.insert("arm".to_owned());
        axes.into_iter().collect()
    }

    fn arm_axis(&self, axis: &str) -> Vec<String> {
        let has_rows = |arm: &&ShownArm| {
            let mut values = self.strata.iter().flat_map(|stratum| stratum.values.keys());
            values.any(|(name, _)| *name == arm.name)
        };
        let shown = self.arms.iter().filter(has_rows);
        let values = distinct(shown.filter_map(|arm| match axis {
            "arm" => Some(&arm.shown_as),
            key => arm.values.get(key),
        }));
        values.into_iter().cloned().collect()
    }
}

/// The different values, in the order in which they first occur.
pub(crate) fn distinct<T: PartialEq>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut found = Vec::new();
    for value in values {
        if !found.contains(&value) {
            found.push(value);
        }
    }
    found
}

/// The least and the largest value; infinite, the least above the largest, if there are none.
pub(crate) fn extent(values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let widened = |(low, high): (f64, f64), value: f64| (low.min(value), high.max(value));
    let none = (f64::INFINITY, f64::NEG_INFINITY);
    values.into_iter().fold(none, widened)
}

fn shown_arms(experiment: &Experiment) -> Vec<ShownArm> {
    let report = &experiment.report;
    let is_axis = |key: &String| report.rows.contains(key) || report.columns.as_ref() == Some(key);
    let shown = |arm: &&results::ArmInfo| shows(experiment, &arm.name);
    let arm = |arm: &results::ArmInfo| {
        let swept = arm.swept_from.as_ref();
        let swept = swept.filter(|swept| swept.values.iter().all(|(key, _)| is_axis(key)));
        ShownArm {
            name: arm.name.clone(),
            shown_as: swept.map_or(&arm.name, |swept| &swept.arm).clone(),
            values: swept.map_or_else(Where::new, |swept| swept.values.iter().cloned().collect()),
        }
    };
    experiment.arms.iter().filter(shown).map(arm).collect()
}

impl Stratum {
    pub fn value(&self, arm: &str, metric: Metric) -> Option<&Estimate> {
        self.values.get(&(arm.to_owned(), metric))
    }
}

fn stratum(
    stage: &Stage,
    at: Where,
    (name, shared): (&str, bool),
    answers: &[(usize, &Answer)],
    metrics: &BTreeSet<Metric>,
) -> Stratum {
    let seed = |cell: usize| stage.cells.get(cell).map_or(0, |c| c.manifest.cell.seed);
    let members = answers.iter().map(|(cell, a)| (seed(*cell), a.row.key()));
    let mut group = Group::new(name, members);
    if shared {
        group.share_seeds();
    }
    let mut series: BTreeMap<(&str, Metric), Series> = BTreeMap::new();
    for (cell, answer) in answers {
        let key = answer.row.key();
        for &metric in metrics {
            if let Some(sums) = metric.sums(answer) {
                let series = series.entry((&answer.row.arm, metric)).or_default();
                group.push(series, seed(*cell), &key, sums);
            }
        }
    }
    let (keys, series): (Vec<_>, Vec<_>) = series.into_iter().unzip();
    let estimates = keys.into_iter().zip(group.estimate(&series));
    let values = estimates.filter_map(|((arm, metric), estimate)| {
        estimate.map(|estimate| ((arm.to_owned(), metric), estimate))
    });
    let cells = distinct(answers.iter().map(|(cell, _)| *cell)).into_iter();
    let cells = cells.filter_map(|cell| Some(stage.cells.get(cell)?.path.clone()));
    Stratum {
        cells: cells.collect(),
        seeds: group.seeds(),
        prompts: group.prompts(),
        values: values.collect(),
        at,
    }
}
