//! Files of an array: a batch script, and a list with one cell per line.

use std::fs;
use std::path::PathBuf;

use super::super::{Batch, absolute, quote, word};
use super::arrays::Array;
use crate::files::entries;
use crate::{JobsError, RunRoot};
use results::write_atomically;

/// The two files of an array. Their names have a unique number: Slurm reads the list when a task
/// starts, which may be after the next submission.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) script: PathBuf,
    pub(super) cells: PathBuf,
}

impl Files {
    /// Unused names. The caller holds the submission lock.
    pub(super) fn next(root: &RunRoot, stage: &str) -> Result<Self, JobsError> {
        let number = |name: &std::ffi::OsString| {
            let name = name.to_string_lossy();
            name.split_once('-')?.0.parse::<u32>().ok()
        };
        let names = entries(&root.slurm())?;
        let last = names.iter().filter_map(number).max().unwrap_or(0);
        let path = |end: &str| {
            let name = format!("{:04}-{stage}.{end}", last + 1);
            root.slurm().join(name)
        };
        Ok(Self {
            script: path("sh"),
            cells: path("cells"),
        })
    }

    pub(super) fn write(
        &self,
        batch: &Batch<'_>,
        array: &Array,
        command: &str,
    ) -> Result<(), JobsError> {
        let script = self.text(batch, array, command)?;
        write_atomically(&self.cells, list(array).as_bytes())?;
        Ok(write_atomically(&self.script, script.as_bytes())?)
    }

    /// Removes the files of a refused submission.
    pub(super) fn remove(&self) {
        // The refusal is the error to report.
        let _ = fs::remove_file(&self.script);
        let _ = fs::remove_file(&self.cells);
    }

    fn text(&self, batch: &Batch<'_>, array: &Array, command: &str) -> Result<String, JobsError> {
        let folder = word(&batch.command.folder)?;
        let cells = quote(&absolute(&self.cells)?);
        let stage = &array.stage;
        let job = batch.command.line(batch.root, stage, "\"$cell\"")?;
        Ok(format!(
            r#"#!/bin/sh
# Stage {stage} of {name}: task N does the cell in line N + 1 of the list. Submitted with
#   {command}
cells={cells}
cd {folder} || exit 2
cell=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$cells")
if [ -z "$cell" ]; then
    echo "task $SLURM_ARRAY_TASK_ID has no line in $cells" >&2
    exit 2
fi
echo "$cell on $(hostname), task ${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
{job}
status=$?
[ "$status" -eq 0 ] || echo "$cell ended with exit code $status" >&2
exit "$status"
"#,
            name = batch.name.replace(['\n', '\r'], " "),
        ))
    }
}

/// The cells by line; a number without a task has an empty line.
fn list(array: &Array) -> String {
    let mut text = String::new();
    let mut line = 0;
    for (&task, id) in &array.tasks {
        while line < task {
            text.push('\n');
            line += 1;
        }
        text += id.cell();
        text.push('\n');
        line += 1;
    }
    text
}

/// Pattern of the log files' names. Slurm replaces what begins with `%`.
pub(super) fn log_pattern(root: &RunRoot, stage: &str) -> Result<String, JobsError> {
    let logs = absolute(&root.slurm_logs())?;
    if logs.contains('\\') {
        return Err(JobsError::BadWord {
            word: logs,
            problem: "has a backslash, which Slurm reads in its own way",
        });
    }
    Ok(format!("{}/{stage}-%A_%a.log", logs.replace('%', "%%")))
}

/// Ascending numbers in Slurm's notation: `0-3,7`.
pub(super) fn ranges(numbers: impl Iterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let text = runs.iter().map(|(first, last)| {
        if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        }
    });
    text.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_short() {
        let text = |numbers: &[u32]| ranges(numbers.iter().copied());
        assert_eq!(text(&[0, 1, 2, 3, 7, 9, 10]), "0-3,7,9-10");
        assert_eq!(text(&[5]), "5");
        assert_eq!(text(&[]), "");
    }

    #[test]
    fn logs_keep_signs_of_percent() {
        let pattern = log_pattern(&RunRoot::new("/a/50%A"), "stream").unwrap();
        assert_eq!(pattern, "/a/50%%A/slurm/logs/stream-%A_%a.log");
        assert!(log_pattern(&RunRoot::new("/a\\b"), "stream").is_err());
    }
}
