//! The paper's claims against our numbers.

use super::{Source, few_seeds, joined, with_arm};
use crate::model::{Entry, Number, Table};
use crate::paper::{Claim, PaperData, Where};
use crate::spec;
use results::{Estimate, Metric};
use std::slice;

/// Verdict on a claim. An effect smaller than s, the smallest one that counts, is no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The interval of the ratio lies above 1 + s.
    Holds,
    /// The interval of the ratio lies below 1 / (1 + s).
    DoesNotHold,
    /// The interval of the ratio lies between the two.
    Level,
    /// The interval crosses one of these two bounds, or there is none.
    CannotTell,
    /// There are no rows, or no rule, to judge it by.
    Unchecked(&'static str),
}

/// The verdict on a claim in a group of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    pub claim: String,
    /// Title of the metric; its name if there is no such metric.
    pub metric: String,
    /// The group; `None` for all groups together.
    pub group: Option<String>,
    /// Ratio of the side that should have more to the other.
    pub ratio: Option<Number>,
    pub seeds: usize,
    /// Number of distinct prompts.
    pub prompts: usize,
    pub verdict: Verdict,
}

impl Verdict {
    /// The verdict of a ratio that should be above 1; `smallest` is the smallest effect that
    /// counts, as a share.
    pub fn of(ratio: &Estimate, smallest: f64) -> Self {
        let (most, least) = (1.0 + smallest, 1.0 / (1.0 + smallest));
        match ratio.interval() {
            Some(interval) if interval.low > most => Self::Holds,
            Some(interval) if interval.high < least => Self::DoesNotHold,
            Some(interval) if interval.low >= least && interval.high <= most => Self::Level,
            _ => Self::CannotTell,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Holds => "holds",
            Self::DoesNotHold => "does not hold",
            Self::Level => "level",
            Self::CannotTell => "cannot tell",
            Self::Unchecked(why) => why,
        }
    }
}

/// The rule in words, with the smallest effect that counts.
fn lead(smallest: f64) -> String {
    let percent = format!("{}%", (100.0 * smallest * 1e6).round() / 1e6);
    format!(
        "Rule: the ratio of the side that should have more to the other, on the same prompts and seeds. An \
         effect below {percent} counts as none: a claim holds where the 95% interval lies above {:.4}, does \
         not hold where it lies below {:.4}, the two sides are level where it lies between these, and all \
         else cannot be told. With one seed the interval is over prompts alone, and a count at the end of its \
         stream has none: it is judged as it is. Different tasks have different prompts. A trend is judged by its last value over its first, and does not hold where a \
         step on the way goes down by the same rule.",
        1.0 + smallest,
        1.0 / (1.0 + smallest),
    )
}

/// The verdicts on every claim in every group that it applies to. Claims about arms that the page
/// does not have are left out.
pub fn judged(source: &Source, paper: &PaperData) -> Vec<Judged> {
    let has = |arm: &&str| {
        let at = with_arm(&Where::new(), arm);
        source.estimates.arm(&at).is_some()
    };
    let applies = |claim: &&Claim| match claim.rule() {
        // A trend is judged by its ends.
        Some((_, "arm", arms)) => arms.first().is_none_or(has) && arms.last().is_none_or(has),
        _ => true,
    };
    let claims = paper.claim.iter().filter(applies);
    claims.flat_map(|claim| of_claim(source, claim)).collect()
}

/// The table of verdicts; `None` if there are none.
pub fn table(paper: &PaperData, judged: &[Judged], smallest: f64) -> Option<Table> {
    let counted = |count: usize| match count {
        0 => Entry::missing("–"),
        count => Entry::count(count),
    };
    let row = |judged: &Judged| {
        let group = judged.group.as_deref();
        let group = group.unwrap_or("all, ratio of means");
        vec![
            ("claim", Entry::text(&judged.claim)),
            ("metric", Entry::text(&judged.metric)),
            ("group", Entry::text(group)),
            ("ratio", Entry::or_dash(judged.ratio.clone())),
            ("seeds", counted(judged.seeds)),
            ("prompts", counted(judged.prompts)),
            ("verdict", Entry::text(judged.words())),
        ]
    };
    Table::of(
        "claims",
        format!("Claims of the paper ({})", paper.source),
        lead(smallest),
        judged.iter().map(row).collect(),
    )
}

impl Judged {
    /// The verdict in words, with a note if there is one seed only.
    fn words(&self) -> String {
        let verdict = self.verdict.as_str();
        match few_seeds(self.seeds) {
            Some(few) if self.seeds == 1 => format!("{verdict}, {few}"),
            _ => verdict.to_owned(),
        }
    }
}

/// The metric for judging a claim about `metric` on a page that shows `shown`: if nothing is timed,
/// a claim about speed is judged by the speed that is shown.
pub fn of_the_page(metric: Metric, shown: &[Metric]) -> Metric {
    if metric != Metric::Speedup || shown.contains(&metric) {
        return metric;
    }
    let speeds = [Metric::CountedSpeedup, Metric::ModelledSpeedup];
    let other = speeds.into_iter().find(|speed| shown.contains(speed));
    other.unwrap_or(metric)
}

fn of_claim(source: &Source, claim: &Claim) -> Vec<Judged> {
    let Some((metric, axis, steps)) = claim.rule() else {
        return vec![unchecked(claim, "", "no rule to check it by")];
    };
    let Some(metric) = Metric::parse(metric) else {
        return vec![unchecked(claim, metric, "no such metric")];
    };
    let report = &source.experiment.report;
    let metric = of_the_page(metric, &spec::metrics(report));
    let smallest = report.smallest_effect;
    // Groups: all places on the page's axes except the compared axis and the arm.
    let axes = report.rows.iter().chain(&report.columns);
    let axes: Vec<String> = axes
        .filter(|name| **name != axis && *name != "arm" && !claim.at.contains_key(*name))
        .cloned()
        .collect();
    let at_step = |group: &Where, step: &str| {
        let mut at = joined(group, &claim.at);
        at.insert(axis.to_owned(), step.to_owned());
        at
    };
    // The verdict on the mean of some groups, each given by its places at all steps.
    let judged = |group: Option<String>, at: &Where, groups: &[Vec<Where>]| -> Option<Judged> {
        let mean = |step: usize| {
            let places = groups.iter().filter_map(|places| places.get(step));
            source.estimates.mean(metric, places)
        };
        let last = steps.len().saturating_sub(1);
        let ratio = mean(last)?.over(&mean(0)?)?;
        let mut way = (0..last).filter_map(|step| mean(step + 1)?.over(&mean(step)?));
        let verdict = |ratio: &Estimate| Verdict::of(ratio, smallest);
        let falls = way.any(|step| verdict(&step) == Verdict::DoesNotHold);
        let drawn = groups.iter().filter_map(|places| places.last());
        let drawn: Vec<_> = drawn.map(|above| source.drawn(above)).collect();
        Some(Judged {
            claim: claim.text.clone(),
            metric: metric.title().to_owned(),
            group,
            ratio: Some(source.ratio(&ratio, at)),
            seeds: drawn.iter().map(|own| own.seeds).max().unwrap_or(0),
            prompts: drawn.iter().map(|own| own.prompts).sum(),
            verdict: match falls {
                true => Verdict::DoesNotHold,
                false => verdict(&ratio),
            },
        })
    };
    let mut rows = Vec::new();
    let mut measured = Vec::new();
    for group in source.places(&axes) {
        let places: Vec<Where> = steps.iter().map(|step| at_step(&group, step)).collect();
        let Some(above) = places.last().filter(|above| source.exists(above)) else {
            continue;
        };
        let name: Vec<&str> = group.values().map(String::as_str).collect();
        let name = Some(name.join(", "));
        match judged(name.clone(), above, slice::from_ref(&places)) {
            Some(row) => {
                rows.push(row);
                measured.push(places);
            }
            None => rows.push(Judged {
                group: name,
                ..unchecked(claim, metric.title(), "cannot tell: not measured")
            }),
        }
    }
    // A claim without any measurement has one row.
    if measured.is_empty() && rows.len() > 1 {
        rows.truncate(1);
        if let Some(row) = rows.first_mut() {
            row.group = Some("all".to_owned());
        }
    }
    if measured.len() > 1 {
        rows.extend(judged(None, &claim.at, &measured));
    }
    if rows.is_empty() {
        rows.push(unchecked(claim, metric.title(), "cannot tell: not run"));
    }
    rows
}

fn unchecked(claim: &Claim, metric: &str, why: &'static str) -> Judged {
    Judged {
        claim: claim.text.clone(),
        metric: metric.to_owned(),
        group: Some(String::new()),
        ratio: None,
        seeds: 0,
        prompts: 0,
        verdict: Verdict::Unchecked(why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_of_speed_are_judged_by_the_speed_that_is_shown() {
        let (clock, counted) = (Metric::Speedup, Metric::CountedSpeedup);
        for (claimed, shown, judged) in [
            (clock, &[clock, counted][..], clock),
            (clock, &[Metric::Acceptance, counted], counted),
            (clock, &[Metric::ModelledSpeedup], Metric::ModelledSpeedup),
            (clock, &[Metric::Acceptance], clock),
            (Metric::Acceptance, &[counted], Metric::Acceptance),
        ] {
            assert_eq!(of_the_page(claimed, shown), judged, "{shown:?}");
        }
    }
}
