//! Origin of a page's numbers: experiment, machine, program; the end of every page.

use super::counted;
use crate::ReportError;
use crate::estimates::Estimates;
use crate::paper::{implied_overhead, implied_price};
use crate::root::{Cell, Stage};
use crate::spec::Experiment;
use results::Metric;
use results::bootstrap::RESAMPLES;
use std::collections::{BTreeMap, BTreeSet};

/// Terms and definitions for a page.
///
/// # Errors
/// As [`implied_price`].
pub fn definitions(
    experiment: &Experiment,
    stage: &Stage,
    metrics: &BTreeSet<Metric>,
) -> Result<Vec<(String, String)>, ReportError> {
    let mut terms = vec![
        (
            "round".to_owned(),
            "draft, translate, one forward of the target, accept or reject".to_owned(),
        ),
        (
            "cell".to_owned(),
            "one combination of the grid's values with one seed, in one stage; a folder of its own"
                .to_owned(),
        ),
    ];
    let shown = Metric::ALL
        .into_iter()
        .filter(|metric| metrics.contains(metric));
    terms.extend(shown.map(|m| (m.title().to_owned(), m.definition().to_owned())));
    terms.push(("interval".to_owned(), interval_rule(stage)));
    terms.push((
        "mean over tasks".to_owned(),
        "the arithmetic mean of the values of the tasks; a ratio over tasks is the ratio of these means"
            .to_owned(),
    ));
    if metrics.contains(&Metric::ModelledSpeedup) {
        let sources: BTreeSet<String> = stage
            .cells
            .iter()
            .flat_map(|cell| {
                let targets: BTreeSet<&String> = cell.answers.iter().map(|a| &a.target).collect();
                let latency = |target: &&String| {
                    let latency = cell.manifest.latency(target);
                    format!("{target}: c = {:.4}, {}", latency.ratio(), latency.source)
                };
                targets.iter().map(latency).collect::<Vec<_>>()
            })
            .collect();
        let sources: Vec<String> = sources.into_iter().collect();
        terms.push((
            "prices of the models".to_owned(),
            format!(
                "{}; o = {:.3}, so that a round of four drafted tokens costs {:.3} steps in the paper's Table 1, where the steps of its Table 8 come to {:.3}",
                sources.join("; "),
                implied_overhead()?,
                implied_price()?,
                implied_price()? - implied_overhead()?,
            ),
        ));
    }
    if let Some(paper) = &experiment.paper_data
        && !paper.names.is_empty()
    {
        let names = paper
            .names
            .iter()
            .map(|(ours, paper)| format!("{ours}: {paper}"));
        terms.push((
            "the paper's names".to_owned(),
            names.collect::<Vec<_>>().join("; "),
        ));
    }
    Ok(terms)
}

fn interval_rule(stage: &Stage) -> String {
    let seeds = if stage.seeds().len() == 1 {
        "one seed: the interval is over prompts alone"
    } else {
        "seeds and prompts are both drawn with replacement, the same draws for every arm; with few seeds it is rather too narrow than too wide"
    };
    format!("the middle 95% of {RESAMPLES} bootstrap replicates; {seeds}")
}

/// Rows of the provenance block.
pub fn rows(
    experiment: &Experiment,
    stages: &[&Stage],
    estimates: &Estimates,
) -> Vec<(String, String)> {
    let mut rows = vec![(
        "experiment".to_owned(),
        match &experiment.hash {
            Some(hash) => format!("{}, file and includes sha256 {hash}", experiment.name),
            None => experiment.name.clone(),
        },
    )];
    if let Some(paper) = &experiment.paper_data {
        let note = paper
            .note
            .as_ref()
            .map_or(String::new(), |note| format!("; {note}"));
        rows.push(("paper".to_owned(), format!("{}{note}", paper.source)));
    }
    for stage in stages {
        rows.push((format!("stage {}", stage.spec.name), of_stage(stage)));
    }
    let prompts: usize = estimates.strata.iter().map(|stratum| stratum.prompts).sum();
    rows.push((
        "tables".to_owned(),
        format!(
            "{} in {} of the {} split",
            counted(prompts, "prompt"),
            counted(estimates.strata.len(), "group"),
            estimates.split.as_str()
        ),
    ));
    let cells = || stages.iter().flat_map(|stage| &stage.cells);
    let timed: Vec<&Cell> = cells()
        .filter(|cell| cell.manifest.cell.exclusive)
        .collect();
    rows.push((
        "programs".to_owned(),
        distinct(cells(), |cell| {
            let build = &cell.manifest.build;
            format!(
                "{} at commit {}, {}",
                build.version,
                build.short_commit(),
                build.rustc
            )
        }),
    ));
    if !timed.is_empty() {
        let machines = distinct(timed.iter().copied(), |cell| {
            let mut machine = cell.manifest.machine.clone();
            machine.bandwidth_gbs = None;
            machine.summary()
        });
        rows.push(("machines of the timed cells".to_owned(), machines));
        let speeds: Vec<f64> = timed
            .iter()
            .filter_map(|cell| cell.manifest.machine.bandwidth_gbs)
            .collect();
        let low = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        let high = speeds.iter().copied().fold(0.0, f64::max);
        if !speeds.is_empty() {
            rows.push((
                "memory bandwidth measured".to_owned(),
                format!(
                    "{low:.1} to {high:.1} GB/s over {}",
                    counted(speeds.len(), "cell")
                ),
            ));
        }
    }
    let padding = padding(&timed);
    if !padding.is_empty() {
        rows.push(("cost padding".to_owned(), padding));
    }
    rows
}

fn of_stage(stage: &Stage) -> String {
    let seeds: Vec<String> = stage.seeds().iter().map(u64::to_string).collect();
    let done = stage.cells.len();
    let mut text = format!(
        "{done} of {} complete; seeds {}",
        counted(done + stage.missing.len(), "cell"),
        seeds.join(", ")
    );
    if let Some(from) = &stage.spec.from {
        text.push_str(&format!("; starts from stage {from}"));
    }
    text.push_str(if stage.spec.exclusive {
        "; timed, each cell alone on its machine"
    } else {
        "; not timed"
    });
    text
}

/// The different texts of cells with their counts, in descending order.
fn distinct<'a>(cells: impl Iterator<Item = &'a Cell>, text: impl Fn(&Cell) -> String) -> String {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for cell in cells {
        *counts.entry(text(cell)).or_default() += 1;
    }
    let mut counts: Vec<(String, usize)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    let several = counts.len() > 1;
    let one = |(text, count): (String, usize)| {
        if several {
            format!("{text} ({})", counted(count, "cell"))
        } else {
            text
        }
    };
    counts.into_iter().map(one).collect::<Vec<_>>().join("; ")
}

/// Measured step times of padded targets, the mean over timed cells.
fn padding(timed: &[&Cell]) -> String {
    let mut targets: BTreeMap<&str, Vec<&results::Padding>> = BTreeMap::new();
    for cell in timed {
        for (target, padding) in &cell.manifest.padding {
            targets.entry(target).or_default().push(padding);
        }
    }
    let one = |(target, paddings): (&str, Vec<&results::Padding>)| {
        let mean = |value: fn(&results::Padding) -> f64| {
            paddings.iter().map(|p| value(p)).sum::<f64>() / paddings.len().max(1) as f64
        };
        format!(
            "{target}: steps cost what others cost and outputs stay; drafter {:.3} ms, target {:.2} ms, five tokens at once {:.2} target steps",
            1e3 * mean(|p| p.steps.draft_s),
            1e3 * mean(|p| p.steps.target_s),
            mean(|p| p.steps.verify_s / p.steps.target_s),
        )
    };
    targets.into_iter().map(one).collect::<Vec<_>>().join("; ")
}
