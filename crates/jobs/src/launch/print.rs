//! Command lines for other schedulers.

use super::{Batch, Submission, quote, word};
use crate::{CellState, JobsError};

/// The command lines of the jobs that are not complete, also of those that a process is running, in
/// an order in which they can run one after the other. Lines that begin with `#` between stages
/// name the stages that must be completed before.
///
/// # Errors
/// A path or argument that cannot stand in a command line.
pub fn print_jobs(batch: &Batch<'_>) -> Result<Submission, JobsError> {
    let folder = word(&batch.command.folder)?;
    let jobs: Vec<_> = batch.jobs.iter().zip(batch.states).collect();
    let mut submission = Submission::default();
    for jobs in jobs.chunk_by(|(a, _), (b, _)| a.id.stage() == b.id.stage()) {
        let Some((first, _)) = jobs.first() else {
            continue;
        };
        let stage = first.id.stage();
        let jobs = jobs.iter().copied();
        let (complete, open): (Vec<_>, Vec<_>) =
            jobs.partition(|(_, state)| **state == CellState::Complete);
        submission.submitted += open.len();
        submission.complete += complete.len();
        let text = &mut submission.text;
        *text += &format!("# Stage {stage}: {} to do", open.len());
        if !complete.is_empty() {
            *text += &format!(", {} complete", complete.len());
        }
        let need = open.iter().find_map(|(job, _)| job.needs.as_ref());
        if let Some(need) = need {
            let before = need.id.stage();
            *text += &format!("; each starts from the same cell of {before}, to be finished first");
        }
        if open.iter().any(|(job, _)| job.exclusive) {
            *text += "; timed, so one at a time on a machine with nothing else";
        }
        *text += "\n";
        for (job, _) in open {
            let line = batch
                .command
                .line(batch.root, stage, &quote(job.id.cell()))?;
            *text += &format!("cd {folder} && {line}\n");
        }
    }
    Ok(submission)
}
