//! The paper's claims against our numbers.

use super::ratios::{Compared, ratio, ratio_of_means};
use super::{Drawn, Source, few_seeds, joined, with_arm};
use crate::model::{Entry, Head, Number, Table};
use crate::paper::{Claim, PaperData, Where};
use crate::spec::Shown as _;
use results::{Estimate, Metric};

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
    let head = [
        Head::words("claim"),
        Head::words("metric"),
        Head::words("group"),
        Head::numbers("ratio"),
        Head::numbers("seeds"),
        Head::numbers("prompts"),
        Head::words("verdict"),
    ];
    let counted = |count: usize| match count {
        0 => Entry::missing("–"),
        count => Entry::count(count),
    };
    let row = |judged: &Judged| {
        let group = judged.group.as_deref();
        let ratio = judged.ratio.clone();
        vec![
            Entry::text(&judged.claim),
            Entry::text(&judged.metric),
            Entry::text(group.unwrap_or("all, ratio of means")),
            Entry::or_dash(ratio),
            counted(judged.seeds),
            counted(judged.prompts),
            Entry::text(judged.words()),
        ]
    };
    (!judged.is_empty()).then(|| Table {
        id: "claims".to_owned(),
        title: format!("Claims of the paper ({})", paper.source),
        lead: lead(smallest),
        head: head.to_vec(),
        rows: judged.iter().map(row).collect(),
    })
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
    let metric = of_the_page(metric, &source.experiment.metrics());
    let smallest = source.experiment.report.smallest_effect;
    // Groups: all places on the page's axes except the compared axis and the arm.
    let report = &source.experiment.report;
    let axes = report.rows.iter().chain(&report.columns);
    let axes: Vec<String> = axes
        .filter(|name| **name != axis && *name != "arm" && !claim.at.contains_key(*name))
        .cloned()
        .collect();
    let side = |group: &Where, value: &str| {
        let mut at = joined(group, &claim.at);
        at.insert(axis.to_owned(), value.to_owned());
        at
    };
    let judged = |group: Option<String>, ratio: &Estimate, at: &Where, drawn: Drawn| Judged {
        claim: claim.text.clone(),
        metric: metric.title().to_owned(),
        group,
        ratio: Some(source.ratio(ratio, at)),
        seeds: drawn.seeds,
        prompts: drawn.prompts,
        verdict: Verdict::of(ratio, smallest),
    };
    let mut rows = Vec::new();
    // The compared places of all groups: the ends, and the steps on the way.
    let mut pairs = Vec::new();
    let mut ways: Vec<Vec<Compared>> = vec![Vec::new(); steps.len().saturating_sub(1)];
    for group in source.places(&axes) {
        let ends = steps.first().zip(steps.last());
        let Some((first, last)) = ends else { continue };
        let (above, below) = (side(&group, last), side(&group, first));
        if !source.exists(&above) {
            continue;
        }
        let name: Vec<&str> = group.values().map(String::as_str).collect();
        let way = steps.iter().zip(steps.iter().skip(1));
        let way = way.map(|(before, after)| Compared {
            above: side(&group, after),
            below: side(&group, before),
        });
        let way: Vec<Compared> = way.collect();
        match ratio(source, metric, &above, &below) {
            Some(ratio) => {
                let drawn = source.drawn(&above);
                let mut row = judged(Some(name.join(", ")), &ratio, &above, drawn);
                if way
                    .iter()
                    .any(|step| falls(source, metric, std::slice::from_ref(step)))
                {
                    row.verdict = Verdict::DoesNotHold;
                }
                rows.push(row);
                pairs.push(Compared { above, below });
                for (steps, step) in ways.iter_mut().zip(way) {
                    steps.push(step);
                }
            }
            None => {
                rows.push(Judged {
                    group: Some(name.join(", ")),
                    ..unchecked(claim, metric.title(), "cannot tell: not measured")
                });
            }
        }
    }
    // A claim without any measurement has one row.
    if pairs.is_empty() && rows.len() > 1 {
        rows.truncate(1);
        if let Some(row) = rows.first_mut() {
            row.group = Some("all".to_owned());
        }
    }
    if pairs.len() > 1
        && let Some(ratio) = ratio_of_means(source, metric, &pairs)
    {
        let each = pairs.iter().map(|pair| source.drawn(&pair.above));
        let drawn = each.fold(Drawn::default(), |all, own| Drawn {
            seeds: all.seeds.max(own.seeds),
            prompts: all.prompts + own.prompts,
        });
        let mut row = judged(None, &ratio, &claim.at, drawn);
        if ways.iter().any(|step| falls(source, metric, step)) {
            row.verdict = Verdict::DoesNotHold;
        }
        rows.push(row);
    }
    if rows.is_empty() {
        rows.push(unchecked(claim, metric.title(), "cannot tell: not run"));
    }
    rows
}

/// True if a step of a trend goes down significantly, by the rule of [`Verdict::DoesNotHold`].
fn falls(source: &Source, metric: Metric, step: &[Compared]) -> bool {
    let smallest = source.experiment.report.smallest_effect;
    let ratio = ratio_of_means(source, metric, step);
    ratio.is_some_and(|ratio| Verdict::of(&ratio, smallest) == Verdict::DoesNotHold)
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
