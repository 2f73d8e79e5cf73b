//! Jobs in one process.
#![allow(missing_docs)]

use crate::support;

use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};

use jobs::{JobsError, Progress, exit, run_local, status};
use support::{Run, assert_timed_alone, fine, id, options, two_stages, until, write_manifest};

#[test]
fn one_worker_keeps_the_order() {
    let run = Run::new(two_stages(2));
    let summary = run.run(&options(1), &fine);
    assert_eq!(summary.exit_code(), exit::COMPLETE);
    assert_eq!(
        run.events(),
        [
            "started stream/seed=0",
            "finished stream/seed=0",
            "started stream/seed=1",
            "finished stream/seed=1",
            "started held-out/seed=0",
            "finished held-out/seed=0",
            "started held-out/seed=1",
            "finished held-out/seed=1",
        ]
    );
}

#[test]
fn timed_jobs_are_alone_and_others_are_not() {
    let run = Run::new(two_stages(6));
    let begun = AtomicUsize::new(0);
    let summary = run.run(&options(4), &|job, _| {
        if job.id.stage() == "stream" {
            begun.fetch_add(1, Ordering::SeqCst);
            until("all workers have a job", || {
                begun.load(Ordering::SeqCst) >= 4
            });
        }
        Ok(())
    });
    assert_eq!(summary.finished.len(), 12, "{summary:?}");
    assert_timed_alone(&run.log());
}

#[test]
fn what_a_job_starts_from_is_complete_and_known() {
    let run = Run::new(two_stages(3));
    run.run(&options(3), &|job, context| {
        assert_eq!(context.folder().id(), &job.id);
        match context.needed() {
            Some(needed) => {
                assert_eq!(needed.id().cell(), job.id.cell());
                let result = fs::read_to_string(needed.path().join("result")).unwrap();
                assert_eq!(result, needed.id().to_string());
            }
            None => assert_eq!(job.id.stage(), "stream"),
        }
        context.progress(Progress {
            done: 3,
            of: 10,
            ..Progress::default()
        });
        Ok(())
    });
    let events = run.events();
    assert!(
        events.contains(&"held-out/seed=2 3/10".to_owned()),
        "{events:?}"
    );
}

#[test]
fn resume_is_a_set_difference() {
    let run = Run::new(two_stages(3));
    run.run(&options(1), &|job, _| match job.id.cell() {
        "seed=1" => Err("no".to_owned()),
        _ => Ok(()),
    });
    // The folder as a killed process leaves it.
    let killed = id("held-out", "seed=2");
    let killed = run.jobs.iter().find(|job| job.id == killed).unwrap();
    let folder = run.folder("held-out", "seed=2");
    write_manifest(&folder, killed, "running");
    let before = run.log().len();

    let summary = run.run(&options(1), &fine);
    let names: Vec<_> = summary.finished.iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        ["stream/seed=1", "held-out/seed=1", "held-out/seed=2"]
    );
    assert_eq!(summary.skipped.len(), 3);
    assert_eq!(run.log().len() - before, 6);

    let summary = run.run(&options(2), &fine);
    assert_eq!((summary.finished.len(), summary.skipped.len()), (0, 6));
}

#[test]
fn a_failure_stops_only_what_follows_from_it() {
    let run = Run::new(two_stages(2));
    let summary = run.run(&options(1), &|job, _| match job.id.to_string().as_str() {
        "stream/seed=0" => Err("out of memory\nbecause of the model".to_owned()),
        _ => Ok(()),
    });
    assert_eq!(summary.exit_code(), exit::FAILED);
    let blocked = "blocked held-out/seed=0: it starts from stream/seed=0, which failed";
    let events = run.events();
    assert!(events.contains(&blocked.to_owned()), "{events:?}");
    assert_eq!(summary.finished.len(), 2);
    let error = run.folder("stream", "seed=0").join("error.txt");
    assert_eq!(
        fs::read_to_string(error).unwrap(),
        "out of memory\nbecause of the model\n"
    );

    let report = status(run.root.path()).unwrap();
    assert_eq!(report.failed[0].message, "out of memory");
    let counts: Vec<_> = report
        .stages
        .iter()
        .map(|s| (s.stage.as_str(), s.complete, s.running, s.failed, s.waiting))
        .collect();
    assert_eq!(counts, [("stream", 1, 0, 1, 0), ("held-out", 1, 0, 0, 1)]);
}

#[test]
fn without_keep_going_nothing_starts_after_a_failure() {
    let run = Run::new(two_stages(3));
    let mut options = options(1);
    options.keep_going = false;
    let summary = run.run(&options, &|job, _| match job.id.cell() {
        "seed=1" => Err("no".to_owned()),
        _ => Ok(()),
    });
    assert_eq!(summary.finished.len(), 1);
    assert_eq!(summary.failed.len(), 1);
    // The blocked job starts from the failed one.
    assert_eq!(summary.blocked.len(), 1);
    assert_eq!(summary.left.len(), 3);
}

#[test]
fn a_panic_is_a_failure() {
    let run = Run::new(two_stages(2));
    let summary = run.run(&options(2), &|job, _| {
        assert_ne!(job.id.to_string(), "stream/seed=1", "boom");
        Ok(())
    });
    let (failed, message) = &summary.failed[0];
    assert_eq!(failed, &id("stream", "seed=1"));
    assert!(
        message.starts_with("the program panicked") && message.contains("boom"),
        "{message}"
    );
    assert_eq!(summary.finished.len(), 2);
}

#[test]
fn a_job_that_does_not_say_complete_failed() {
    let run = Run::new(two_stages(1));
    let runner = |_: &jobs::JobSpec, _: &jobs::JobContext<'_>| Ok::<(), String>(());
    let summary = run_local(&run.root, &run.jobs, &options(1), &runner, &|_| {}).unwrap();
    assert_eq!(summary.failed.len(), 1);
    assert!(summary.failed[0].1.contains("manifest"), "{summary:?}");
    assert_eq!(summary.blocked.len(), 1);
}

#[test]
fn a_stage_alone_needs_the_one_before() {
    let mut run = Run::new(two_stages(2));
    let all = run.jobs.clone();
    run.jobs.retain(|job| job.id.stage() == "held-out");
    let summary = run.run(&options(1), &fine);
    assert_eq!(summary.exit_code(), exit::BLOCKED);
    assert!(
        run.events()[0].ends_with("is not complete: run the stage `stream` first"),
        "{summary:?}"
    );
    assert!(run.log().is_empty());

    run.jobs = all.clone();
    run.jobs.truncate(2);
    run.run(&options(1), &fine);
    run.jobs = all[2..].to_vec();
    assert_eq!(run.run(&options(1), &fine).finished.len(), 2);
}

#[test]
fn refusals_come_before_the_first_job() {
    let mut run = Run::new(two_stages(2));
    run.run(&options(1), &fine);
    fs::remove_dir_all(run.folder("stream", "seed=0")).unwrap();
    let before = run.log().len();
    run.jobs[3].hash = "edited".to_owned();
    let runner = |_: &jobs::JobSpec, _: &jobs::JobContext<'_>| Err("started".to_owned());
    let error = run_local(&run.root, &run.jobs, &options(1), &runner, &|_| {}).unwrap_err();
    assert!(matches!(error, JobsError::Edited { .. }), "{error}");
    assert_eq!(run.log().len(), before);
}

#[test]
fn status_of_no_run_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let error = status(dir.path()).unwrap_err();
    assert!(matches!(error, JobsError::NoRun { .. }), "{error}");
}
