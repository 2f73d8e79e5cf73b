//! The best value of every sweep.

use super::{Source, with_arm};
use crate::estimates::extent;
use crate::model::{Entry, Table};
use crate::paper::Where;
use crate::spec::shows;
use results::{ArmInfo, Estimate, Metric};

/// A swept arm with its values.
#[derive(Debug)]
pub struct Family<'a> {
    /// The arm that was swept.
    pub name: &'a str,
    /// Its variants in the experiment's order.
    pub arms: Vec<&'a ArmInfo>,
}

pub fn families<'a>(source: &Source<'a>) -> Vec<Family<'a>> {
    let mut families: Vec<Family> = Vec::new();
    for arm in &source.experiment.arms {
        let Some(swept) = &arm.swept_from else {
            continue;
        };
        if !shows(source.experiment, &arm.name) {
            continue;
        }
        match families.iter_mut().find(|family| family.name == swept.arm) {
            Some(family) => family.arms.push(arm),
            None => families.push(Family {
                name: &swept.arm,
                arms: vec![arm],
            }),
        }
    }
    families.retain(|family| family.arms.len() > 1);
    families
}

/// The keys that an arm was swept over, with their values.
pub fn swept(arm: &ArmInfo) -> impl Iterator<Item = &(String, String)> {
    arm.swept_from.iter().flat_map(|swept| &swept.values)
}

/// `decode.k = 4, learn.lambda = 0.2`, without the key `but`.
pub fn values(arm: &ArmInfo, but: &str) -> String {
    let own = swept(arm).filter(|(key, _)| key != but);
    let words: Vec<String> = own.map(|(key, value)| format!("{key} = {value}")).collect();
    words.join(", ")
}

impl<'a> Family<'a> {
    /// The variants, ordered by descending value of a metric at a place.
    pub fn ranked(
        &self,
        source: &Source,
        metric: Metric,
        at: &Where,
    ) -> Vec<(&'a ArmInfo, Estimate)> {
        let measured = self.arms.iter().filter_map(|arm| {
            let at = with_arm(at, &arm.name);
            Some((*arm, source.estimates.value(metric, &at)?))
        });
        let mut ranked: Vec<(&ArmInfo, Estimate)> = measured.collect();
        ranked.sort_by(|a, b| b.1.value.total_cmp(&a.1.value));
        ranked
    }

    /// The keys whose value in `arm` is the minimum or the maximum of the sweep; keys with text
    /// values have none.
    pub fn border(&self, arm: &ArmInfo) -> Vec<String> {
        let at_border = |(key, value): &&(String, String)| {
            let all = self.arms.iter().flat_map(|arm| swept(arm));
            let all = all.filter(|(k, _)| k == key);
            let Some(all) = all
                .map(|(_, v)| v.parse().ok())
                .collect::<Option<Vec<f64>>>()
            else {
                return false;
            };
            let Ok(value) = value.parse::<f64>() else {
                return false;
            };
            let (low, high) = extent(all);
            low < high && (value <= low || value >= high)
        };
        let own = swept(arm).filter(at_border);
        own.map(|(key, _)| key.clone()).collect()
    }
}

/// Best values by family, group and metric; `None` without sweeps.
pub fn table(source: &Source, metrics: &[Metric]) -> Option<Table> {
    let mut axes = source.row_axes().to_vec();
    axes.retain(|axis| axis != "arm");
    axes.extend(source.column_axis().map(str::to_owned));
    let mut rows = Vec::new();
    for family in families(source) {
        for at in source.places(&axes) {
            for &metric in metrics {
                let Some(best) = best(source, &family, metric, &at) else {
                    continue;
                };
                let mut row = vec![("arm swept", Entry::text(family.name))];
                row.extend(source.labels(&axes, &at));
                row.push(("metric", Entry::text(metric.title())));
                row.extend(best);
                rows.push(row);
            }
        }
    }
    Table::of(
        "sweep",
        "Best values of the sweeps",
        "The value with the most of the metric, chosen after the fact: the best of several is \
         flattered by chance. `second best` says how far ahead it is, paired. A best value at the \
         border of the sweep may not be the best there is; a draft of one token lies at none where \
         plain decoding, which drafts nothing, has less of the metric.",
        rows,
    )
}

/// The key of the draft length.
const LENGTH: &str = "decode.k";

/// True if this is the sweep's draft of one token, below which there is only plain decoding.
fn drafts_one(arm: &ArmInfo) -> bool {
    swept(arm).any(|(key, value)| key == LENGTH && value == "1")
}

/// True if plain decoding was measured here and has less of the metric.
fn plain_is_less(source: &Source, metric: Metric, at: &Where, best: &Estimate) -> bool {
    let plain = source.experiment.arms.iter().filter(|arm| arm.is_plain);
    plain
        .filter_map(|arm| {
            let at = with_arm(at, &arm.name);
            source.estimates.value(metric, &at)
        })
        .any(|plain| plain.value < best.value)
}

fn best(
    source: &Source,
    family: &Family,
    metric: Metric,
    at: &Where,
) -> Option<[(&'static str, Entry); 4]> {
    let ranked = family.ranked(source, metric, at);
    let (arm, first) = ranked.first()?;
    let place = with_arm(at, &arm.name);
    let ahead = ranked.get(1).and_then(|(_, second)| first.over(second));
    let mut border = family.border(arm);
    if drafts_one(arm) && plain_is_less(source, metric, at, first) {
        border.retain(|key| key != LENGTH);
    }
    let border = match border.as_slice() {
        [] => String::new(),
        keys => format!("at the border of {}", keys.join(", ")),
    };
    let ahead = ahead.map(|ratio| source.ratio(&ratio, &place));
    let value = source.number(metric, first, &place);
    Some([
        ("best at", Entry::text(values(arm, ""))),
        ("value", Entry::number(value)),
        ("over second best", Entry::or_dash(ahead)),
        ("border", Entry::text(border)),
    ])
}
