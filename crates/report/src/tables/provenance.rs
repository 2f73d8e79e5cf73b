//! Origin of a page's numbers: experiment, machine, program; the end of every page.

use super::counted;
use crate::ReportError;
use crate::estimates::{Estimates, extent};
use crate::paper::{implied_overhead, implied_price};
use crate::root::{Cell, Stage};
use crate::spec::Experiment;
use results::bootstrap::RESAMPLES;
use results::{Metric, StepLatency};
use std::collections::{BTreeMap, BTreeSet};

/// Terms and definitions for a page.
pub fn definitions(
    experiment: &Experiment,
    stage: &Stage,
    metrics: &BTreeSet<Metric>,
) -> Result<Vec<(String, String)>, ReportError> {
    let mut terms = vec![
        entry(
            "round",
            "draft, translate, one forward of the target, accept or reject",
        ),
        entry(
            "cell",
            "one combination of the grid's values with one seed, in one stage; a folder of its own",
        ),
    ];
    let shown = Metric::ALL.into_iter().filter(|own| metrics.contains(own));
    terms.extend(shown.map(|metric| entry(metric.title(), metric.definition())));
    terms.push(entry("interval", interval_rule(stage)));
    terms.push(entry(
        "mean over tasks",
        "the arithmetic mean of the values of the tasks; a ratio over tasks is the ratio of these means",
    ));
    if metrics.contains(&Metric::ModelledSpeedup) {
        let sources: BTreeSet<String> = stage
            .cells
            .iter()
            .flat_map(|cell| {
                let targets: BTreeSet<&String> =
                    cell.answers.iter().map(|a| &a.row.target).collect();
                let latency = |target: &&String| {
                    let latency = StepLatency::paper();
                    format!("{target}: c = {:.4}, {}", latency.ratio(), latency.source)
                };
                targets.iter().map(latency).collect::<Vec<_>>()
            })
            .collect();
        let sources: Vec<String> = sources.into_iter().collect();
        terms.push(entry(
            "prices of the models",
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
        let names = paper.names.iter();
        let names: Vec<String> = names.map(|(ours, own)| format!("{ours}: {own}")).collect();
        terms.push(entry("the paper's names", names.join("; ")));
    }
    Ok(terms)
}

fn entry(name: &str, text: impl Into<String>) -> (String, String) {
    (name.to_owned(), text.into())
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
    let (name, hash) = (&experiment.name, &experiment.hash);
    let files = format!("{name}, file and includes sha256 {hash}");
    let mut rows = vec![entry("experiment", files)];
    if let Some(paper) = &experiment.paper_data {
        let note = paper.note.iter().map(|note| format!("; {note}"));
        let note: String = note.collect();
        rows.push(entry("paper", format!("{}{note}", paper.source)));
    }
    for stage in stages {
        rows.push((format!("stage {}", stage.spec.name), of_stage(stage)));
    }
    let prompts: usize = estimates.strata.iter().map(|stratum| stratum.prompts).sum();
    rows.push(entry(
        "tables",
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
    let programs = distinct(cells(), |cell| {
        let build = &cell.manifest.build;
        let (version, commit) = (&build.version, build.short_commit());
        format!("{version} at commit {commit}, {}", build.rustc)
    });
    rows.push(entry("programs", programs));
    if !timed.is_empty() {
        let machines = distinct(timed.iter().copied(), |cell| {
            let mut machine = cell.manifest.machine.clone();
            machine.bandwidth_gbs = None;
            machine.summary()
        });
        rows.push(entry("machines of the timed cells", machines));
        let speeds: Vec<f64> = timed
            .iter()
            .filter_map(|cell| cell.manifest.machine.bandwidth_gbs)
            .collect();
        let (low, high) = extent(speeds.iter().copied());
        if !speeds.is_empty() {
            let cells = counted(speeds.len(), "cell");
            let measured = format!("{low:.1} to {high:.1} GB/s over {cells}");
            rows.push(entry("memory bandwidth measured", measured));
        }
    }
    let padding = padding(&timed);
    if !padding.is_empty() {
        rows.push(entry("cost padding", padding));
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
