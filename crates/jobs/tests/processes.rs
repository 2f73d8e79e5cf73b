//! Several processes on one run. The test program starts itself as the other processes.
#![allow(missing_docs)]

use crate::support;

use std::collections::BTreeMap;
use std::env;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use jobs::{JobContext, JobSpec, RunRoot, run_local, status};
use support::{
    Run, assert_timed_alone, fine, id, options, traces, two_stages, until, work, write_manifest,
};

const ROOT: &str = "JOBS_TEST_ROOT";
const CELLS: usize = 5;

/// The other process: runs all jobs of the run that the environment names. Without it, nothing is
/// tested.
#[test]
fn other_process() {
    let Some(root) = env::var_os(ROOT) else {
        return;
    };
    let root = RunRoot::new(root);
    let number = |name: &str| env::var(name).unwrap().parse::<u64>().unwrap();
    let pause = Duration::from_millis(number("JOBS_TEST_PAUSE"));
    let log = root.path().with_extension("log");
    let runner = |job: &JobSpec, context: &JobContext<'_>| {
        if context.needed().is_some() {
            assert!(context.needed().unwrap().path().join("result").exists());
        }
        work(job, context.folder().path(), &log, pause);
        Ok::<(), String>(())
    };
    let options = options(number("JOBS_TEST_WORKERS") as usize);
    let jobs = two_stages(CELLS);
    support::claim(&root, &jobs);
    let summary = run_local(&root, &jobs, &options, &runner, &|_| {}).unwrap();
    assert_eq!(
        summary.finished.len() + summary.skipped.len(),
        jobs.len(),
        "{summary:?}"
    );
}

fn spawn(root: &Path, workers: usize, pause_ms: u64) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "processes::other_process", "--nocapture"])
        .env(ROOT, root)
        .env("JOBS_TEST_WORKERS", workers.to_string())
        .env("JOBS_TEST_PAUSE", pause_ms.to_string())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Number of starts of each job.
fn starts(log: &[String]) -> BTreeMap<&str, usize> {
    let mut starts = BTreeMap::new();
    for job in log.iter().filter_map(|line| line.strip_prefix("start ")) {
        *starts.entry(job).or_default() += 1;
    }
    starts
}

#[test]
fn three_processes_do_every_job_once() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    let children: Vec<Child> = (0..3).map(|_| spawn(&root, 2, 15)).collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let log = traces(&root.with_extension("log"));
    let starts = starts(&log);
    assert_eq!(starts.len(), 2 * CELLS);
    assert!(starts.values().all(|&n| n == 1), "{starts:?}");
    assert_timed_alone(&log);
}

#[test]
fn a_killed_process_loses_its_job_to_another() {
    let run = Run::new(two_stages(CELLS));
    let mut child = spawn(run.root.path(), 1, 60_000);
    let log = run.root.path().with_extension("log");
    until("the other process starts", || !traces(&log).is_empty());
    let half = run.folder("stream", "seed=0").join("half");
    until("it writes", || half.exists());

    let report = status(run.root.path()).unwrap();
    assert_eq!(report.running.len(), 1);
    let holder = format!("process {} on ", child.id());
    assert!(report.running[0].holder.starts_with(&holder), "{report}");

    let summary = std::thread::scope(|scope| {
        scope.spawn(|| {
            until("other work is done", || run.log().len() > 1);
            child.kill().unwrap();
            child.wait().unwrap();
        });
        run.run(&options(1), &fine)
    });
    assert_eq!(summary.finished.len(), 2 * CELLS);
    let events = run.events();
    assert!(
        events[0].starts_with("waiting stream/seed=0: process "),
        "{events:?}"
    );
    assert_eq!(events[1], "started stream/seed=1", "other work comes first");
    assert!(!half.exists(), "what the killed process left is gone");
}

#[test]
fn waiting_jobs_of_a_timed_one_say_so() {
    let run = Run::new(two_stages(CELLS));
    let mut streamed = Run::new(two_stages(CELLS));
    streamed.root = run.root.clone();
    streamed.jobs.truncate(CELLS);
    streamed.run(&options(2), &fine);
    // Only timed jobs are left for the other process.
    let mut child = spawn(run.root.path(), 1, 300);
    let log = run.root.path().with_extension("log");
    until("a timed job runs", || {
        traces(&log)
            .iter()
            .any(|line| line.starts_with("start held-out"))
    });
    let summary = run.run(&options(1), &fine);
    assert!(child.wait().unwrap().success());
    // Beside the jobs that were complete before, those that the other process did.
    assert!(summary.skipped.len() > CELLS, "{summary:?}");
    let events = run.events();
    let waits = |line: &String| line.ends_with("jobs of other processes to end");
    assert!(events.iter().any(waits), "{events:?}");
}

#[test]
fn twenty_kills_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("run");
    // A fixed sequence of pauses, so that the test is repeatable.
    let mut seed = 7u64;
    for _ in 0..20 {
        let mut child = spawn(&root, 2, 12);
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        std::thread::sleep(Duration::from_millis(2 + (seed >> 33) % 70));
        child.kill().unwrap();
        child.wait().unwrap();
    }
    let mut child = spawn(&root, 2, 1);
    assert!(child.wait().unwrap().success());
    let run = RunRoot::new(&root);
    for job in two_stages(CELLS) {
        let folder = run.folder(&job.id);
        let mut names: Vec<_> = std::fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["lock", "manifest.json", "result"], "{}", job.id);
        let result = std::fs::read_to_string(folder.path().join("result")).unwrap();
        assert_eq!(result, job.id.to_string());
    }
    let report = status(&root).unwrap();
    assert!(
        report.stages.iter().all(|stage| stage.complete == CELLS),
        "{report}"
    );
}

#[test]
fn status_counts_prompts_and_strangers() {
    let run = Run::new(two_stages(2));
    let folder = run.root.folder(&id("stream", "seed=0"));
    std::fs::create_dir_all(folder.path()).unwrap();
    let _lock = jobs::CellLock::try_take(&folder).unwrap().unwrap();
    let row = |split: &str, prompt: u32, arm: &str| {
        format!(r#"{{"arm":"{arm}","segment":0,"split":"{split}","prompt_index":{prompt}}}"#)
    };
    let mut lines = vec![
        row("train", 0, "a"),
        row("train", 0, "b"),
        row("train", 1, "a"),
    ];
    lines.extend([row("test", 0, "a"), r#"{"arm":"b","seg"#.to_owned()]);
    std::fs::write(folder.journal(), lines.join("\n")).unwrap();
    let other = run.root.folder(&id("stream", "seed=9"));
    std::fs::create_dir_all(other.path()).unwrap();
    write_manifest(other.path(), &run.jobs[0], "complete");

    let report = status(run.root.path()).unwrap();
    assert_eq!(report.running[0].prompts_done, 3);
    let text = report.to_string();
    let lines: Vec<&str> = text.lines().skip(2).collect();
    assert_eq!(lines[0], "stage     complete  running  failed  waiting");
    assert_eq!(lines[1], "stream           0        1       0        1");
    assert_eq!(lines[2], "held-out         0        0       0        2");
    assert!(
        lines[4].starts_with("running  stream/seed=0: 3/10 prompts (process "),
        "{text}"
    );
    assert_eq!(lines[5], "not part of the experiment: stream/seed=9");
    assert!(
        serde_json::to_string(&report)
            .unwrap()
            .contains("\"prompts_done\":3")
    );
}
