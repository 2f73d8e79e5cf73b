//! The paper's claims against our numbers.

use super::ratios::{ratio, ratio_of_means, with_arm};
use super::{Source, joined};
use crate::model::{Entry, Head, Table};
use crate::paper::{Claim, Order, PaperData, Trend, Where};
use results::{Estimate, Metric};

/// What our numbers say of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval of the ratio lies above 1.
    Holds,
    /// The interval of the ratio lies below 1.
    DoesNotHold,
    /// It does neither, or there is none.
    CannotTell,
}

impl Verdict {
    /// The verdict of a ratio that should be above 1.
    pub fn of(ratio: &Estimate) -> Self {
        match ratio.interval() {
            Some(interval) if interval.low > 1.0 => Self::Holds,
            Some(interval) if interval.high < 1.0 => Self::DoesNotHold,
            _ => Self::CannotTell,
        }
    }

    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::CannotTell => "cannot tell",
        }
    }
}

const LEAD: &str = "Rule: the ratio of the side that should have more to the other, on the same \
    prompts and seeds; a claim holds where its 95% interval lies above 1, does not hold where it lies \
    below 1, and cannot be told otherwise. A trend is judged by its last value over its first, and \
    does not hold where a step on the way clearly goes down.";

/// Every claim in every group it applies to; `None` without claims.
pub fn table(source: &Source, paper: &PaperData) -> Option<Table> {
    let mut rows = Vec::new();
    for claim in &paper.claim {
        rows.extend(of_claim(source, claim));
    }
    let head = [
        Head::words("claim"),
        Head::words("metric"),
        Head::words("group"),
        Head::numbers("ratio"),
        Head::words("verdict"),
    ];
    (!rows.is_empty()).then(|| Table {
        id: "claims".to_owned(),
        title: format!("Claims of the paper ({})", paper.source),
        lead: LEAD.to_owned(),
        head: head.to_vec(),
        rows,
    })
}

fn of_claim(source: &Source, claim: &Claim) -> Vec<Vec<Entry>> {
    let (metric, axis, steps) = match (&claim.order, &claim.trend) {
        (
            Some(Order {
                metric,
                axis,
                above,
                below,
            }),
            _,
        ) => (metric, axis, vec![below.clone(), above.clone()]),
        (
            None,
            Some(Trend {
                metric,
                axis,
                values,
            }),
        ) => (metric, axis, values.clone()),
        (None, None) => return vec![unchecked(claim, "", "no rule to check it by")],
    };
    let Some(metric) = Metric::parse(metric) else {
        return vec![unchecked(claim, metric, "no such metric")];
    };
    // Groups: every place on the page's axes but the compared one and the arm.
    let report = &source.experiment.report;
    let axes = report.rows.iter().chain(&report.columns);
    let axes: Vec<String> = axes
        .filter(|name| *name != axis && *name != "arm" && !claim.at.contains_key(*name))
        .cloned()
        .collect();
    let side = |group: &Where, value: &str| {
        let mut at = joined(group, &claim.at);
        if axis == "arm" {
            return with_arm(&at, value);
        }
        at.insert(axis.clone(), value.to_owned());
        at
    };
    let mut rows = Vec::new();
    let mut pairs = Vec::new();
    for group in source.places(&axes) {
        let ends = steps.first().zip(steps.last());
        let Some((first, last)) = ends else { continue };
        let (above, below) = (side(&group, last), side(&group, first));
        if !source.exists(&above) {
            continue;
        }
        let name: Vec<&str> = group.values().map(String::as_str).collect();
        let places: Vec<Where> = steps.iter().map(|value| side(&group, value)).collect();
        match ratio(source, metric, &above, &below) {
            Some(ratio) => {
                let verdict = if falls(source, metric, &places) {
                    Verdict::DoesNotHold
                } else {
                    Verdict::of(&ratio)
                };
                rows.push(row(
                    source,
                    claim,
                    metric,
                    &name.join(", "),
                    &ratio,
                    &above,
                    verdict,
                ));
                pairs.push((above, below));
            }
            None => {
                let mut row = unchecked(claim, metric.title(), "cannot tell: not measured");
                if let Some(entry) = row.get_mut(2) {
                    *entry = Entry::text(name.join(", "));
                }
                rows.push(row);
            }
        }
    }
    // What is measured nowhere is said once.
    if pairs.is_empty() && rows.len() > 1 {
        rows.truncate(1);
        if let Some(entry) = rows.first_mut().and_then(|row| row.get_mut(2)) {
            *entry = Entry::text("all");
        }
    }
    if pairs.len() > 1
        && let Some(ratio) = ratio_of_means(source, metric, &pairs)
    {
        let verdict = Verdict::of(&ratio);
        let at = claim.at.clone();
        rows.push(row(
            source,
            claim,
            metric,
            "all, ratio of means",
            &ratio,
            &at,
            verdict,
        ));
    }
    if rows.is_empty() {
        rows.push(unchecked(claim, metric.title(), "cannot tell: not run"));
    }
    rows
}

/// Whether a step of a trend clearly goes down.
fn falls(source: &Source, metric: Metric, places: &[Where]) -> bool {
    places.windows(2).any(|pair| {
        let [below, above] = pair else { return false };
        let step = ratio(source, metric, above, below);
        step.is_some_and(|step| Verdict::of(&step) == Verdict::DoesNotHold)
    })
}

fn row(
    source: &Source,
    claim: &Claim,
    metric: Metric,
    group: &str,
    ratio: &Estimate,
    at: &Where,
    verdict: Verdict,
) -> Vec<Entry> {
    vec![
        Entry::text(&claim.text),
        Entry::text(metric.title()),
        Entry::text(group),
        Entry::number(source.estimated(ratio, at, &|v| format!("{v:.2}"), 2)),
        Entry::text(verdict.as_str()),
    ]
}

fn unchecked(claim: &Claim, metric: &str, why: &str) -> Vec<Entry> {
    vec![
        Entry::text(&claim.text),
        Entry::text(metric),
        Entry::text(""),
        Entry::missing("–"),
        Entry::text(why),
    ]
}
