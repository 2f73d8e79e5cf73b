//! What a page needs beside the stage of its tables: the stream it started from, and streams that
//! never switched.

use crate::ReportError;
use crate::curves::window;
use crate::root::{Stage, Wanted};
use crate::spec::{Experiment, StageSpec};
use crate::streams::{Segment, Streams};
use crate::tables::drift::plateau;
use results::Split;
use std::path::Path;

/// The stage that figures of the stream are drawn from, where it is not that of the tables: the one
/// its cells start from, and so on, else the first with a stream.
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
        // A circle ends where it began.
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

/// Plateaus of arms that only ever saw the task and target of a segment of a drift: arm, segment,
/// acceptance. They are looked for in all stages of the experiment.
///
/// # Errors
/// A damaged cell.
pub fn never_switched(
    root: &Path,
    experiment: &Experiment,
    set: &Streams,
) -> Result<Vec<(String, u32, f64)>, ReportError> {
    let mut found = Vec::new();
    if !set.continual {
        return Ok(found);
    }
    let wanted = Wanted {
        text: false,
        ngrams: false,
    };
    for spec in &experiment.stages {
        let stage = Stage::read(root, experiment, spec, wanted)?;
        let others = Streams::of_stage(experiment, &stage);
        for other in others.iter().filter(|other| !other.continual) {
            let window = window(&other.segments);
            for segment in &set.segments {
                let same =
                    |own: &&Segment| own.task == segment.task && own.target == segment.target;
                for own in other.segments.iter().filter(same) {
                    for arm in set.drafting() {
                        let value = plateau(other, &arm.name, own.index, window);
                        found.extend(value.map(|value| (arm.name.clone(), segment.index, value)));
                    }
                }
            }
        }
    }
    Ok(found)
}
