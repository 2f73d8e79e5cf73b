//! Launchers: printed command lines, and Slurm with stand-ins for its programs.
#![cfg(unix)]
#![allow(missing_docs)]

use crate::support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use jobs::{Batch, CellLock, CellState, JobCommand, JobsError, Slurm, print_jobs};
use support::site::Site;
use support::{checks, id};

#[test]
fn lines_for_any_scheduler() {
    let site = Site::new(2);
    let line = |stage: &str, cell: &str| {
        format!(
            "cd /data && '/opt/omni draft/omnidraft' job /data/demo.toml --stage {stage} --cell {cell} \
             --out DIR/run --set 'decode.k=[1, 2]'"
        )
    };
    site.submit_with(print_jobs).unwrap();
    site.complete("stream", "seed=0");
    let submission = site.submit_with(print_jobs).unwrap();
    assert_eq!((submission.submitted, submission.complete), (3, 1));
    let expected = [
        "# Stage stream: 1 to do, 1 complete".to_owned(),
        line("stream", "seed=1"),
        "# Stage held-out: 2 to do; each starts from the same cell of stream, to be finished first; \
         timed, so one at a time on a machine with nothing else"
            .to_owned(),
        line("held-out", "seed=0"),
        line("held-out", "seed=1"),
    ];
    let text = site.anonymous(&submission.text);
    assert_eq!(text.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn a_line_that_is_two_is_refused() {
    let site = Site::new(1);
    let record = support::record(&site.jobs);
    let states = site.root.claim(&record, &site.jobs, &checks()).unwrap();
    let command = JobCommand {
        program: PathBuf::from("/omnidraft"),
        file: PathBuf::from("/demo.toml"),
        folder: PathBuf::from("/"),
        extra: vec!["a\nb".to_owned()],
    };
    let batch = Batch {
        root: &site.root,
        name: "demo",
        jobs: &site.jobs,
        states: &states,
        command: &command,
        checks: &checks(),
    };
    let error = print_jobs(&batch).unwrap_err();
    assert!(matches!(error, JobsError::BadWord { .. }), "{error}");
    assert!(site.slurm.submit(&batch).is_err());
    assert!(site.slurm_files().is_empty());
}

#[test]
fn arrays_chained_by_their_tasks() {
    let site = Site::new(3);
    let submission = site.submit().unwrap();
    assert_eq!(submission.submitted, 6);
    assert_eq!(
        submission.text,
        "stream: 3 submitted as 41_[0-2]\nheld-out: 3 submitted as 42_[0-2], each alone on its node\n"
    );
    let options = "--open-mode=append --partition=long --requeue --time=01:00:00";
    assert_eq!(
        site.calls(),
        [
            format!(
                "sbatch --parsable --job-name=demo-stream --array=0-2 \
                 --output=DIR/run/slurm/logs/stream-%A_%a.log {options} DIR/run/slurm/0001-stream.sh"
            ),
            format!(
                "sbatch --parsable --job-name=demo-held-out --array=0-2 \
                 --output=DIR/run/slurm/logs/held-out-%A_%a.log {options} --exclusive \
                 --dependency=aftercorr:41 --kill-on-invalid-dep=yes DIR/run/slurm/0002-held-out.sh"
            ),
        ]
    );
    assert_eq!(
        site.slurm_files(),
        [
            "0001-stream.cells",
            "0001-stream.sh",
            "0002-held-out.cells",
            "0002-held-out.sh",
            "submitted.json"
        ]
    );
    assert!(
        site.root.slurm_logs().is_dir(),
        "without it Slurm starts no task"
    );
}

#[test]
fn the_batch_script() {
    let site = Site::new(2);
    site.submit().unwrap();
    let read = |name: &str| fs::read_to_string(site.root.slurm().join(name)).unwrap();
    assert_eq!(read("0001-stream.cells"), "seed=0\nseed=1\n");
    assert_eq!(
        site.anonymous(&read("0001-stream.sh")),
        r#"#!/bin/sh
# Stage stream of demo: task N does the cell in line N + 1 of the list. Submitted with
#   sbatch --parsable --job-name=demo-stream --array=0-1 --output=DIR/run/slurm/logs/stream-%A_%a.log --open-mode=append --partition=long --requeue --time=01:00:00 DIR/run/slurm/0001-stream.sh
cells=DIR/run/slurm/0001-stream.cells
cd /data || exit 2
cell=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" "$cells")
if [ -z "$cell" ]; then
    echo "task $SLURM_ARRAY_TASK_ID has no line in $cells" >&2
    exit 2
fi
echo "$cell on $(hostname), task ${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID"
'/opt/omni draft/omnidraft' job /data/demo.toml --stage stream --cell "$cell" --out DIR/run --set 'decode.k=[1, 2]'
status=$?
[ "$status" -eq 0 ] || echo "$cell ended with exit code $status" >&2
exit "$status"
"#
    );
    let script = site.root.slurm().join("0001-stream.sh");
    let syntax = Command::new("sh").arg("-n").arg(&script).status().unwrap();
    assert!(syntax.success());
}

#[test]
fn only_what_failed_is_submitted_again() {
    let site = Site::new(3);
    site.submit().unwrap();
    site.calls();
    // Job 0 is complete, 1 runs, 2 failed, and its dependent task was cancelled.
    site.complete("stream", "seed=0");
    site.queue("41_1|RUNNING|None\n42_0|PENDING|Resources\n42_1|PENDING|Dependency\n");
    let submission = site.submit().unwrap();
    assert_eq!(
        (submission.submitted, submission.queued, submission.complete),
        (2, 3, 1)
    );
    let calls = site.calls();
    assert!(
        calls[0].contains("--job-name=demo-stream --array=0 "),
        "{calls:?}"
    );
    assert!(
        calls[1].contains("--array=0 ") && calls[1].contains("aftercorr:43 "),
        "{calls:?}"
    );
    let read = |name: &str| fs::read_to_string(site.root.slurm().join(name)).unwrap();
    assert_eq!(read("0003-stream.cells"), "seed=2\n");
    assert_eq!(read("0004-held-out.cells"), "seed=2\n");

    // With all jobs in the queue, the same command submits nothing.
    site.queue(
        "41_1|RUNNING|None\n42_0|PENDING|Resources\n42_1|PENDING|Dependency\n43_0|PENDING|None\n\
         44_0|PENDING|Dependency\n",
    );
    let submission = site.submit().unwrap();
    assert_eq!((submission.submitted, submission.queued), (0, 5));
    assert!(site.calls().is_empty());
}

#[test]
fn a_dependant_whose_twin_is_gone_is_cancelled_and_submitted_again() {
    let site = Site::new(2);
    site.submit().unwrap();
    site.calls();
    site.complete("stream", "seed=1");
    site.queue("42_0|PENDING|DependencyNeverSatisfied\n42_1|PENDING|Resources\n");
    let submission = site.submit().unwrap();
    assert_eq!((submission.submitted, submission.queued), (2, 1));
    let calls = site.calls();
    assert_eq!(calls[0], "scancel 42_0");
    assert!(
        calls[2].contains("--array=0 ") && calls[2].contains("aftercorr:43 "),
        "{calls:?}"
    );
}

#[test]
fn dependants_keep_the_number_of_their_twin_in_an_older_array() {
    let site = Site::new(3);
    let all = site.jobs.clone();
    let mut streams = site;
    streams.jobs = all[..3].to_vec();
    streams.submit().unwrap();
    streams.queue("41_0|RUNNING|None\n41_1|RUNNING|None\n41_2|PENDING|None\n");
    streams.jobs.extend([all[3].clone(), all[5].clone()]);
    let submission = streams.submit().unwrap();
    assert_eq!((submission.submitted, submission.queued), (2, 3));
    let calls = streams.calls();
    assert!(
        calls[1].contains("--array=0,2 ") && calls[1].contains("aftercorr:41 "),
        "{calls:?}"
    );
    let cells = fs::read_to_string(streams.root.slurm().join("0002-held-out.cells")).unwrap();
    assert_eq!(cells, "seed=0\n\nseed=2\n");
}

#[test]
fn a_stage_alone_waits_for_the_queue_or_is_blocked() {
    let mut site = Site::new(2);
    let all = site.jobs.clone();
    site.jobs = all[..1].to_vec();
    site.submit().unwrap();
    site.queue("41_0|RUNNING|None\n");
    // Of the stage before, one job is in the queue and one was never submitted.
    site.jobs = all[2..].to_vec();
    let submission = site.submit().unwrap();
    assert_eq!(submission.submitted, 1);
    let calls = site.calls();
    assert!(calls[1].contains("aftercorr:41 "), "{calls:?}");
    assert_eq!(submission.blocked.len(), 1);
    assert!(
        submission.blocked[0]
            .1
            .contains("submit the stage `stream` too"),
        "{submission:?}"
    );
}

#[test]
fn jobs_of_other_processes_are_left_to_them() {
    let site = Site::new(2);
    let folder = site.root.folder(&id("stream", "seed=0"));
    site.submit_with(print_jobs).unwrap();
    fs::create_dir_all(folder.path()).unwrap();
    let _lock = CellLock::try_take(&folder).unwrap().unwrap();
    let submission = site.submit().unwrap();
    assert_eq!((submission.running, submission.submitted), (1, 2));
    assert!(
        submission.blocked[0].1.contains("outside of Slurm"),
        "{submission:?}"
    );
}

#[test]
fn a_refusal_keeps_what_was_taken_and_leaves_nothing_of_the_rest() {
    let site = Site::new(2);
    fs::write(site.path("refuse-2"), "").unwrap();
    let error = site.submit().unwrap_err();
    assert_eq!(
        error.to_string(),
        "sbatch refused: sbatch: error: invalid partition"
    );
    assert!(error.hint().unwrap().contains("[launcher.slurm]"));
    let files = ["0001-stream.cells", "0001-stream.sh", "submitted.json"];
    assert_eq!(site.slurm_files(), files);
    site.calls();

    site.queue("41_0|PENDING|None\n41_1|PENDING|None\n");
    let submission = site.submit().unwrap();
    assert_eq!((submission.submitted, submission.queued), (2, 2));
    assert!(site.calls()[0].contains("--dependency=aftercorr:41 "));
}

#[test]
fn a_first_refusal_leaves_no_script() {
    let site = Site::new(2);
    fs::write(site.path("refuse-1"), "").unwrap();
    assert!(site.submit().is_err());
    assert!(site.slurm_files().is_empty());
}

#[test]
fn without_slurm_the_program_is_named() {
    let mut site = Site::new(1);
    site.slurm = Slurm::default().with_programs(Path::new("/nowhere"));
    let error = site.submit().unwrap_err();
    assert!(
        error.to_string().starts_with("`sbatch` was not found"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("--print-jobs"));
    assert!(site.slurm_files().is_empty());
}

#[test]
fn a_silent_queue_is_no_empty_queue() {
    let site = Site::new(2);
    site.submit().unwrap();
    site.calls();
    fs::write(site.path("no-squeue"), "").unwrap();
    let error = site.submit().unwrap_err();
    assert!(error.to_string().starts_with("squeue refused"), "{error}");
    assert!(site.calls().is_empty());
}

#[test]
fn two_submissions_at_once_are_refused() {
    let site = Site::new(1);
    fs::create_dir_all(site.root.slurm()).unwrap();
    let lock = fs::File::create(site.root.slurm().join("lock")).unwrap();
    lock.try_lock().unwrap();
    let record = support::record(&site.jobs);
    fs::write(site.root.record(), serde_json::to_string(&record).unwrap()).unwrap();
    assert!(matches!(
        site.submit().unwrap_err(),
        JobsError::Submitting { .. }
    ));
    // Closing the file would not release the lock if another test is just starting a program, which
    // has the file open for a moment.
    lock.unlock().unwrap();
    assert_eq!(site.submit().unwrap().submitted, 2);
    assert_eq!(
        CellState::Todo,
        jobs::inspect(&site.root, &site.jobs[0], &checks()).unwrap()
    );
}
