//! Data of other stages for a page: the stream that its cells started from, and streams that never
//! switched.

use crate::ReportError;
use crate::curves::{Curve, curves};
use crate::root::{Stage, Wanted};
use crate::spec::Experiment;
use crate::streams::{Segment, Streams};
use crate::tables::drift::plateau;
use results::{Metric, Split, StageSpec};
use std::path::Path;

/// The stage that figures of the stream are drawn from; `None` if it is `stage`, that of the
/// tables. Candidates are the stages that its cells start from, back along the chain, then all
/// others: the first one with rows of a stream, or with missing cells, is taken.
///
/// # Errors
/// A damaged cell.
pub fn stream_stage(
    root: &Path,
    experiment: &Experiment,
    stage: &Stage,
    ngrams: bool,
) -> Result<Option<Stage>, ReportError> {
    if stage.has(Split::Train) {
        return Ok(None);
    }
    let mut candidates: Vec<&StageSpec> = Vec::new();
    let mut from = stage.spec.from.as_deref();
    while let Some(spec) = from.and_then(|name| experiment.stage(name)) {
        // A cycle of stages ends where it began.
        if candidates.iter().any(|seen| seen.name == spec.name) {
            break;
        }
        candidates.push(spec);
        from = spec.from.as_deref();
    }
    let others = experiment.stages.iter();
    candidates.extend(others.filter(|other| other.name != stage.spec.name));
    let wanted = Wanted {
        text: false,
        ngrams,
    };
    for spec in candidates {
        let candidate = Stage::read(root, experiment, spec, wanted)?;
        if candidate.has(Split::Train) || !candidate.missing.is_empty() {
            return Ok(Some(candidate));
        }
    }
    Ok(None)
}

/// An arm that saw only the task and target of one segment of a drift.
#[derive(Debug, Clone)]
pub struct NeverSwitched {
    /// Its acceptance rate; `segment` is that of the drift.
    pub curve: Curve,
    /// Its acceptance rate over the last quarter of its stream.
    pub plateau: f64,
}

/// Finds arms that saw only the task and target of one segment of a drift, in all stages of the
/// experiment. Averages are over `window` prompts.
///
/// # Errors
/// A damaged cell.
pub fn never_switched(
    root: &Path,
    experiment: &Experiment,
    set: &Streams,
    window: usize,
) -> Result<Vec<NeverSwitched>, ReportError> {
    let mut found = Vec::new();
    if !set.continual {
        return Ok(found);
    }
    // A stage that starts from another one has seen that one's stream.
    for spec in experiment.stages.iter().filter(|s| s.from.is_none()) {
        let stage = Stage::read(root, experiment, spec, Wanted::default())?;
        let others = Streams::of_stage(experiment, &stage);
        for other in others.iter().filter(|other| !other.continual) {
            for curve in curves(other, Metric::Acceptance, window) {
                let plateau = plateau(other, &curve.arm, curve.segment, window);
                let seen = other.segments.iter().find(|own| own.index == curve.segment);
                let (Some(plateau), Some(seen)) = (plateau, seen) else {
                    continue;
                };
                let same = |own: &&Segment| own.place() == seen.place();
                for segment in set.segments.iter().filter(same) {
                    let mut curve = curve.clone();
                    curve.segment = segment.index;
                    curve.points.retain(|(at, _)| *at <= segment.prompts);
                    found.push(NeverSwitched { curve, plateau });
                }
            }
        }
    }
    Ok(found)
}
