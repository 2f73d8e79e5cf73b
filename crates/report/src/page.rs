//! Building the page of an experiment's root folder.

use crate::ReportError;
use crate::beside::{never_switched, stream_stage};
use crate::estimates::Estimates;
use crate::figure::{Drawing, Figure};
use crate::figures::{
    cache_figure, curves_figure, drift_figure, frequencies_figure, hits_figure, losses_figure,
    plain_rates, saved_figure, speed_figure, sweep_figures,
};
use crate::model::{FigurePart, Page, Section, Table};
use crate::render::table_markdown;
use crate::root::{Missing, Stage, Wanted};
use crate::spec::{self, Experiment};
use crate::streams::Streams;
use crate::tables::claims::Judged;
use crate::tables::{
    Source, claims, counted, drift, main, merges, missing, ngrams, positions, provenance, quality,
    ratios, stream, sweep,
};
use experiment::FigureName;
use results::{Metric, RecordedTarget, Split, TorchTarget};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A page with its figures.
#[derive(Debug, Clone)]
pub struct Built {
    /// The page.
    pub page: Page,
    /// Its figures.
    pub drawings: Vec<Drawing>,
    /// The experiment that was read.
    pub experiment: Experiment,
    /// The verdicts on the paper's claims.
    pub judged: Vec<Judged>,
}

impl Built {
    /// The tables of the page.
    pub fn tables(&self) -> impl Iterator<Item = &Table> {
        self.page
            .sections
            .iter()
            .filter_map(|section| match section {
                Section::Table(table) => Some(table),
                Section::Figure(_) => None,
            })
    }

    /// The first table as Markdown with its lead, as a summary of the page.
    pub fn first_table(&self) -> String {
        let first = self.tables().next();
        first.map_or_else(String::new, |table| {
            format!("{}\n{}\n", table_markdown(table), table.lead)
        })
    }
}

/// Builds the page of a root folder.
///
/// # Errors
/// A folder without an experiment, an unknown name in its report section, a damaged cell, or no
/// complete cell.
pub fn build(root: &Path) -> Result<Built, ReportError> {
    let experiment = spec::read(root)?;
    let Some(spec) = spec::table_stage(&experiment) else {
        return Err(ReportError::NotARoot {
            dir: root.to_path_buf(),
        });
    };
    let wants = |figure: FigureName| experiment.report.figures.contains(&figure);
    let ngrams = wants(FigureName::Frequencies) || wants(FigureName::Merges);
    let wanted = Wanted { text: true, ngrams };
    let stage = Stage::read(root, &experiment, spec, wanted)?;
    let streamed = stream_stage(root, &experiment, &stage, ngrams)?;
    if stage.cells.is_empty() {
        return Err(ReportError::Empty {
            dir: root.to_path_buf(),
            message: format!(
                "none of the {} of stage {} is complete",
                counted(stage.missing.len(), "cell"),
                spec.name
            ),
        });
    }
    let shown = spec::metrics(&experiment.report);
    let mut metrics: BTreeSet<Metric> = shown.iter().copied().collect();
    metrics.extend(quality::METRICS);
    let claims_of_paper = experiment.paper_data.iter().flat_map(|paper| &paper.claim);
    metrics.extend(claims_of_paper.filter_map(|claim| Metric::parse(claim.rule()?.0)));
    if wants(FigureName::Ngrams) {
        metrics.extend(ngrams::METRICS);
    }
    if wants(FigureName::Positions) {
        metrics.insert(positions::LENGTH);
    }
    let estimates = Estimates::new(&experiment, &stage, &metrics);
    let source = Source {
        experiment: &experiment,
        stage: &stage,
        estimates: &estimates,
    };
    check_axes(root, &source)?;
    let mut tables = main::tables(&source, &shown);
    tables.extend(ratios::table(&source, &shown));
    let mut judged = Vec::new();
    if let Some(paper) = &experiment.paper_data {
        judged = claims::judged(&source, paper);
        let smallest = experiment.report.smallest_effect;
        tables.extend(claims::table(paper, &judged, smallest));
    }
    tables.extend(sweep::table(&source, &shown));
    if wants(FigureName::Ngrams) {
        tables.extend(ngrams::table(&source));
    }
    if wants(FigureName::Positions) {
        tables.extend(positions::table(&source));
    }
    tables.extend(quality::table(&source));

    let streaming = streamed.as_ref().unwrap_or(&stage);
    let mut figures = Vec::new();
    let sets = Streams::of_stage(&experiment, streaming);
    for (number, set) in sets.iter().enumerate() {
        let suffix = suffix(number);
        let plain = plain_rates(&stage, set);
        let window = crate::curves::window(&set.segments);
        let never_switched = never_switched(root, &experiment, set, window)?;
        let recoveries = drift::recoveries(set, &never_switched, window);
        tables.extend(drift::table(
            &recoveries,
            &format!("recovery{suffix}"),
            &set.of,
        ));
        tables.extend(stream::tables(set, &suffix));
        let paper = experiment.paper_data.as_ref();
        let drawn = [
            (
                FigureName::Curves,
                curves_figure(set, paper, &experiment.report),
            ),
            (FigureName::Speed, speed_figure(set, &plain)),
            (FigureName::Saved, saved_figure(set, &plain)),
            (
                FigureName::Drift,
                drift_figure(set, &recoveries, &never_switched),
            ),
            (FigureName::Losses, losses_figure(set)),
            (FigureName::Cache, cache_figure(set)),
            (FigureName::Hits, hits_figure(set)),
        ];
        for (name, figure) in drawn {
            if wants(name) {
                figures.extend(figure.map(|figure| (format!("{name}{suffix}"), figure)));
            }
        }
    }
    if wants(FigureName::Frequencies) {
        let figure = frequencies_figure(&experiment, streaming);
        figures.extend(figure.map(|figure| ("frequencies".to_owned(), figure)));
    }
    if wants(FigureName::Merges) {
        tables.extend(merges::table(&experiment, streaming));
    }
    if wants(FigureName::Sweep) {
        for (number, figure) in sweep_figures(&source, &shown).into_iter().enumerate() {
            figures.push((format!("sweep{}", suffix(number)), figure));
        }
    }
    let stages: Vec<&Stage> = streamed.iter().chain([&stage]).collect();
    let absent: Vec<&Missing> = stages.iter().flat_map(|stage| &stage.missing).collect();
    tables.extend(missing::table(&absent));

    let warnings = warnings(&experiment, &stage, &absent, &shown, &figures);
    let drawings = figures
        .iter()
        .map(|(id, figure)| Drawing::new(figure.scene(), id))
        .collect::<Result<Vec<_>, ReportError>>()?;
    let mut defined = metrics.clone();
    defined.retain(|metric| !quality::FRESH_SPEEDS.contains(metric) || quality::modelled(&source));
    let page = Page {
        title: experiment.title().to_owned(),
        lead: lead(&experiment, &stage, &estimates),
        warnings,
        sections: sections(tables, &figures, &drawings),
        definitions: provenance::definitions(&experiment, &stage, &defined)?,
        provenance: provenance::rows(&experiment, &stages, &estimates),
    };
    Ok(Built {
        page,
        drawings,
        experiment,
        judged,
    })
}

/// An axis of the page without any variation is an error, not an empty table.
fn check_axes(root: &Path, source: &Source) -> Result<(), ReportError> {
    let report = &source.experiment.report;
    let rows = report.rows.iter().map(|axis| ("report.rows", axis));
    let columns = report.columns.iter().map(|axis| ("report.columns", axis));
    for (key, axis) in rows.chain(columns) {
        if source.axis(axis).is_empty() {
            return Err(ReportError::Unknown {
                path: root.join(results::EXPERIMENT_FILE),
                key: key.to_owned(),
                value: axis.clone(),
                allowed: source.estimates.axes().join(", "),
            });
        }
    }
    Ok(())
}

/// End of the names of a set's tables and figures: nothing for the first one, `-2`, `-3`.
fn suffix(number: usize) -> String {
    match number {
        0 => String::new(),
        number => format!("-{}", number + 1),
    }
}

fn lead(experiment: &Experiment, stage: &Stage, estimates: &Estimates) -> String {
    let prompts: usize = estimates.strata.iter().map(|stratum| stratum.prompts).sum();
    let split = match estimates.split {
        Split::Test => "held-out prompts, drafters and caches frozen",
        Split::Train => "prompts of the stream itself, learning included",
    };
    format!(
        "Experiment {}, stage {}: {prompts} {split}, {}. Every number is computed from the rows of the runs.",
        experiment.name,
        stage.spec.name,
        counted(stage.seeds().len(), "seed"),
    )
}

/// Notes about recorded targets.
fn recorded(stage: &Stage, metrics: &[Metric]) -> Vec<String> {
    let cells = stage.cells.iter();
    let targets: BTreeMap<_, _> = cells.flat_map(|cell| &cell.manifest.recorded).collect();
    let timed = stage.spec.exclusive && metrics.iter().any(|metric| metric.is_timed());
    let one = |(name, target): (&String, &RecordedTarget)| {
        let time = match timed {
            true => " Its steps take no time: measured speeds are not those of a target.",
            false => "",
        };
        format!("Target {name} is recorded: {}.{time}", target.source)
    };
    targets.into_iter().map(one).collect()
}

/// Notes about targets that workers decoded: their rows differ in the last bits with the number of
/// rows, so that greedy answers of two arms may part at a tie.
fn workers(stage: &Stage) -> Vec<String> {
    let cells = stage.cells.iter();
    let targets: BTreeMap<_, _> = cells.flat_map(|cell| &cell.manifest.torch).collect();
    let one = |(name, target): (&String, &TorchTarget)| {
        format!(
            "Target {name} was decoded by a worker: {} in {} on {}, torch {}, transformers {}.",
            target.architecture, target.dtype, target.device, target.torch, target.transformers
        )
    };
    targets.into_iter().map(one).collect()
}

fn warnings(
    experiment: &Experiment,
    stage: &Stage,
    missing: &[&Missing],
    metrics: &[Metric],
    figures: &[(String, Figure)],
) -> Vec<String> {
    let mut warnings = Vec::new();
    if !missing.is_empty() {
        warnings.push(format!(
            "Incomplete: {} of the plan missing, listed at the end. The numbers are of the others.",
            match missing.len() {
                1 => "1 cell is".to_owned(),
                count => format!("{count} cells are"),
            }
        ));
    }
    warnings.extend(recorded(stage, metrics));
    warnings.extend(workers(stage));
    if !stage.spec.exclusive && metrics.iter().any(|metric| metric.is_timed()) {
        warnings.push(format!(
            "Stage {} is not exclusive, so its times mean nothing and no speed is shown.",
            stage.spec.name
        ));
    }
    if !experiment.arms.iter().any(|arm| arm.is_plain) {
        warnings.push("No arm decodes plainly: there is nothing to be faster than.".to_owned());
    }
    let shown = stage.split();
    let unread = |cell: &crate::root::Cell| {
        let mut answers = cell.answers.iter();
        answers.any(|answer| answer.row.split == shown && answer.text.is_none())
    };
    if stage.cells.iter().any(unread) {
        warnings.push(
            "The text of some answers was not recorded: nothing is said of loops and fresh text."
                .to_owned(),
        );
    }
    if stage.seeds().len() == 1 {
        warnings.push("One seed: intervals are over prompts alone.".to_owned());
    }
    let is_table = |name: &FigureName| {
        use FigureName::{Merges, Ngrams, Positions};
        matches!(name, Merges | Ngrams | Positions)
    };
    let drawn = |name: &FigureName| figures.iter().any(|(id, _)| *id == name.to_string());
    let wanted = experiment.report.figures.iter();
    let absent: Vec<String> = wanted
        .filter(|name| !is_table(name) && !drawn(name))
        .map(FigureName::to_string)
        .collect();
    if !absent.is_empty() {
        warnings.push(format!(
            "Not drawn, for lack of rows to draw from: {}.",
            absent.join(", ")
        ));
    }
    if absent.iter().any(|name| name == "speed" || name == "saved") {
        warnings.push(
            "Speed over the stream is drawn where rounds are counted, or where answers are timed and so is plain \
             decoding: of the same prompts, or of held-out ones with models that cost the same."
                .to_owned(),
        );
    }
    warnings
}

/// Tables of the page, then figures, then the description of streams and gaps.
fn sections(
    tables: Vec<Table>,
    figures: &[(String, Figure)],
    drawings: &[Drawing],
) -> Vec<Section> {
    const LATE: [&str; 6] = [
        "recovery", "caches", "learning", "heads", "merges", "missing",
    ];
    let late = |table: &Table| LATE.iter().any(|name| table.id.starts_with(name));
    let (after, before): (Vec<Table>, Vec<Table>) = tables.into_iter().partition(late);
    let drawn = figures.iter().zip(drawings).map(|((id, figure), drawing)| {
        Section::Figure(FigurePart {
            id: id.clone(),
            title: heading(id).to_owned(),
            message: figure.title.clone(),
            svg: inline(&drawing.svg),
        })
    });
    let before = before.into_iter().map(Section::Table);
    before
        .chain(drawn)
        .chain(after.into_iter().map(Section::Table))
        .collect()
}

/// Heading of a figure, by the stem of its files.
fn heading(id: &str) -> &'static str {
    match id.split('-').next().unwrap_or(id) {
        "curves" => "Over the stream",
        "speed" => "Speed over the stream",
        "saved" => "Saved since the stream began",
        "drift" => "Across switches",
        "losses" => "Losses",
        "cache" => "Growth of the caches",
        "hits" => "N-gram hits",
        "frequencies" => "Use of n-grams",
        _ => "Over the sweep",
    }
}

/// An SVG for inclusion in an HTML page, which needs no namespace.
fn inline(svg: &str) -> String {
    svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1)
}
