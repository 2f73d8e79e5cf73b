//! The tables of a page.

pub mod claims;
pub mod drift;
pub mod main;
pub mod merges;
pub mod missing;
pub mod ngrams;
pub mod positions;
pub mod provenance;
pub mod quality;
pub mod ratios;
pub mod stream;
pub mod sweep;

use crate::estimates::Estimates;
use crate::model::{Entry, Number};
use crate::paper::Where;
use crate::root::Stage;
use crate::spec::Experiment;
use results::{Estimate, Metric};

/// The data that tables are made from.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub experiment: &'a Experiment,
    /// The stage of the tables.
    pub stage: &'a Stage,
    pub estimates: &'a Estimates,
}

/// Numbers that a place's estimates are drawn from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Drawn {
    pub seeds: usize,
    /// Number of distinct prompts.
    pub prompts: usize,
}

/// A minus sign with the width of a plus sign.
const MINUS: &str = "\u{2212}";

impl Source<'_> {
    pub fn axis(&self, axis: &str) -> Vec<String> {
        self.estimates.axis(axis, self.stage)
    }

    pub fn row_axes(&self) -> &[String] {
        &self.experiment.report.rows
    }

    /// Axes of the rows, then that of the columns.
    pub fn axes(&self) -> Vec<String> {
        let columns = self.column_axis().map(str::to_owned);
        self.row_axes().iter().cloned().chain(columns).collect()
    }

    /// Rows of a table: one per place, with a column per metric that has the entries of `entry`.
    pub fn by_metric<'b>(
        &self,
        axes: &'b [String],
        places: &[Where],
        metrics: &[Metric],
        entry: impl Fn(Metric, &Where) -> Entry,
    ) -> Vec<Vec<(&'b str, Entry)>> {
        let row = |at: &Where| {
            let mut row = self.labels(axes, at);
            for &metric in metrics {
                row.push((metric.title(), entry(metric, at)));
            }
            row
        };
        places.iter().map(row).collect()
    }

    /// Axis of the columns, if it has values.
    pub fn column_axis(&self) -> Option<&str> {
        let axis = self.experiment.report.columns.as_deref()?;
        (!self.axis(axis).is_empty()).then_some(axis)
    }

    /// Values of the column axis; one empty value without such an axis.
    pub fn columns(&self) -> Vec<Where> {
        let at = |axis: &str, value: String| Where::from([(axis.to_owned(), value)]);
        match self.column_axis() {
            Some(axis) => self.axis(axis).into_iter().map(|v| at(axis, v)).collect(),
            None => vec![Where::new()],
        }
    }

    /// The rows of a table: every combination of the given axes that is planned or found.
    pub fn places(&self, axes: &[String]) -> Vec<Where> {
        let mut places = vec![Where::new()];
        for axis in axes {
            let values = self.axis(axis);
            let longer = |place: &Where| {
                let with = |value: &String| {
                    let mut place = place.clone();
                    place.insert(axis.clone(), value.clone());
                    place
                };
                values.iter().map(with).collect::<Vec<_>>()
            };
            places = places.iter().flat_map(longer).collect();
        }
        places.retain(|place| self.exists(place));
        places
    }

    /// True if a place is planned or found.
    pub fn exists(&self, at: &Where) -> bool {
        let planned = self.stage.planned.iter().any(|cell| {
            let agrees = |(axis, value): (&String, &String)| {
                let own = cell.coordinates.iter().find(|(name, _)| name == axis);
                self.estimates.of_arms(axis) || own.is_some_and(|(_, own)| own == value)
            };
            at.iter().all(agrees)
        });
        planned || self.estimates.matching(at).next().is_some()
    }

    /// The entries of a place on the given axes, each with its axis.
    pub fn labels<'b>(&self, axes: &'b [String], at: &Where) -> Vec<(&'b str, Entry)> {
        let mut labels = Vec::new();
        for axis in axes {
            let value = at.get(axis).map_or("", String::as_str);
            let text = match axis.as_str() {
                "segment" => self.segment_title(value),
                _ => value.to_owned(),
            };
            labels.push((axis.as_str(), Entry::text(text)));
        }
        labels
    }

    /// `2 code`: a segment's number with its content.
    pub fn segment_title(&self, number: &str) -> String {
        let at = Where::from([("segment".to_owned(), number.to_owned())]);
        let Some(stratum) = self.estimates.matching(&at).next() else {
            return number.to_owned();
        };
        let tasks = self.axis("task").len() > 1;
        let targets = self.axis("target").len() > 1;
        let mut words = vec![number];
        let named = |axis: &str| stratum.at.get(axis).map(String::as_str);
        words.extend(named("task").filter(|_| tasks || !targets));
        words.extend(named("target").filter(|_| targets));
        words.join(" ")
    }

    pub fn column_title(&self, column: &Where) -> String {
        match column.iter().next() {
            Some((axis, value)) if axis == "segment" => self.segment_title(value),
            Some((_, value)) => value.clone(),
            None => "value".to_owned(),
        }
    }

    /// The titles of the columns.
    pub fn column_titles(&self) -> Vec<String> {
        let title = |column: &Where| self.column_title(column);
        self.columns().iter().map(title).collect()
    }

    pub fn entry(&self, metric: Metric, at: &Where) -> Entry {
        match self.estimates.value(metric, at) {
            Some(estimate) => Entry::number(self.number(metric, &estimate, at)),
            None => Entry::missing(self.absent(metric, at)),
        }
    }

    /// Like [`Self::entry`], without the paper's value, which is shown in the metric's own table.
    pub fn bare_entry(&self, metric: Metric, at: &Where) -> Entry {
        let mut entry = self.entry(metric, at);
        entry.forget_paper();
        entry
    }

    /// Reason for which there is no value.
    pub fn absent(&self, metric: Metric, at: &Where) -> &'static str {
        if self.estimates.matching(at).next().is_none() {
            "missing"
        } else if metric.is_timed() && !self.stage.spec.exclusive {
            "not timed"
        } else {
            "–"
        }
    }

    /// A number of a metric with its interval, the paper's value and its origin.
    pub fn number(&self, metric: Metric, estimate: &Estimate, at: &Where) -> Number {
        let paper = self.experiment.paper_data.as_ref();
        let paper = paper.and_then(|data| data.value(&self.known(at), metric));
        let against = paper.map(|paper| {
            let difference = estimate.value - paper;
            let sign = if difference < 0.0 { MINUS } else { "+" };
            let decimals = metric.decimals();
            format!(
                "paper {}, {sign}{:.decimals$}",
                metric.format(paper),
                difference.abs()
            )
        });
        Number {
            metric: metric.name().to_owned(),
            paper,
            against,
            ..self.estimated(
                estimate,
                at,
                &|value| metric.format(value),
                metric.decimals(),
            )
        }
    }

    /// A number with its interval and its origin.
    pub fn estimated(
        &self,
        estimate: &Estimate,
        at: &Where,
        format: &dyn Fn(f64) -> String,
        decimals: usize,
    ) -> Number {
        // A point is not an interval: the reference of a speedup is 1 by definition.
        let interval = estimate.interval();
        let interval = interval.filter(|interval| interval.low != interval.high);
        Number {
            interval: interval.map(|i| format!("{:.decimals$}–{:.decimals$}", i.low, i.high)),
            bounds: interval.map(|i| (i.low, i.high)),
            source: self.source(at),
            cell: self.cell(at),
            ..Number::plain(estimate.value, format(estimate.value))
        }
    }

    /// A ratio with its interval, with a note if there are few seeds.
    pub fn ratio(&self, ratio: &Estimate, at: &Where) -> Number {
        let mut number = self.estimated(ratio, at, &|value| format!("{value:.2}"), 2);
        let few = few_seeds(self.drawn(at).seeds);
        if let (Some(interval), Some(few)) = (&mut number.interval, few) {
            interval.push_str(", ");
            interval.push_str(few);
        }
        number
    }

    pub fn drawn(&self, at: &Where) -> Drawn {
        let strata = || self.estimates.matching(at);
        Drawn {
            seeds: strata().map(|stratum| stratum.seeds).max().unwrap_or(0),
            prompts: strata().map(|stratum| stratum.prompts).sum(),
        }
    }

    /// Coordinates of a place, with those that all of its strata share.
    fn known(&self, at: &Where) -> Where {
        let mut strata = self.estimates.matching(at);
        let mut shared = strata
            .next()
            .map(|first| first.at.clone())
            .unwrap_or_default();
        for stratum in strata {
            shared.retain(|axis, value| stratum.at.get(axis) == Some(value));
        }
        shared.extend(at.clone());
        shared
    }

    /// Description of the rows of a place's numbers.
    fn source(&self, at: &Where) -> String {
        let filter: Vec<String> = at.iter().map(|(axis, v)| format!("{axis}={v}")).collect();
        let Drawn { seeds, prompts } = self.drawn(at);
        let strata = self.estimates.matching(at);
        let cells: usize = strata.map(|stratum| stratum.cells.len()).sum();
        format!(
            "{}, split={}: {}, {} of {}",
            filter.join(", "),
            self.estimates.split.as_str(),
            counted(prompts, "prompt"),
            counted(seeds, "seed"),
            counted(cells, "cell"),
        )
    }

    fn cell(&self, at: &Where) -> Option<String> {
        let stratum = self.estimates.matching(at).next()?;
        stratum.cells.first().cloned()
    }
}

/// Note beside an interval from few seeds, which is too narrow.
pub fn few_seeds(seeds: usize) -> Option<&'static str> {
    match seeds {
        1 => Some("one seed"),
        2 => Some("two seeds"),
        _ => None,
    }
}

/// `1 prompt`, `2 prompts`.
pub fn counted(count: usize, noun: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}

pub fn with_arm(at: &Where, arm: &str) -> Where {
    let mut at = at.clone();
    at.insert("arm".to_owned(), arm.to_owned());
    at
}

/// The union of both sets of coordinates.
pub fn joined(a: &Where, b: &Where) -> Where {
    let mut joined = a.clone();
    joined.extend(b.clone());
    joined
}
