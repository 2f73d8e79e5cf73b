//! A run of jobs that only write traces.
#![allow(dead_code, missing_docs)]

#[cfg(unix)]
#[cfg(unix)]
pub mod site;

use std::fs::OpenOptions;
use std::io::Write;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use jobs::{
    Checks, Event, EventKind, JobContext, JobId, JobSpec, LocalOptions, Need, RootRecord, RunRoot,
    Summary, run_local,
};
use results::BuildInfo;
use serde_json::json;

pub fn id(stage: &str, cell: &str) -> JobId {
    JobId::new(stage, cell).unwrap()
}

/// Cells `seed=0` to `seed=N-1`, each with a job in `stream` and a timed one in `held-out`.
pub fn two_stages(cells: usize) -> Vec<JobSpec> {
    let job = |stage: &str, cell: usize| JobSpec {
        id: id(stage, &format!("seed={cell}")),
        hash: format!("{stage}-{cell}"),
        needs: None,
        exclusive: false,
        prompts: Some(10),
        coordinates: vec![("seed".to_owned(), cell.to_string())],
    };
    let streams = (0..cells).map(|cell| job("stream", cell));
    let held_out = (0..cells).map(|cell| JobSpec {
        needs: Some(Need {
            id: id("stream", &format!("seed={cell}")),
            hash: format!("stream-{cell}"),
        }),
        exclusive: true,
        ..job("held-out", cell)
    });
    streams.chain(held_out).collect()
}

pub fn checks() -> Checks {
    Checks {
        build: BuildInfo {
            git_commit: "c0ffee".to_owned(),
            ..BuildInfo::unknown("0.2.0")
        },
        accept_other_build: false,
        hash_of: |_| None,
    }
}

pub fn options(workers: usize) -> LocalOptions {
    LocalOptions {
        workers: NonZeroUsize::new(workers).unwrap(),
        poll: Duration::from_millis(20),
        ..LocalOptions::new(checks())
    }
}

pub fn record(jobs: &[JobSpec]) -> RootRecord {
    RootRecord::new("demo", "hash", jobs.to_vec())
}

pub fn claim(root: &RunRoot, jobs: &[JobSpec]) {
    root.claim(&record(jobs), jobs, &checks()).unwrap();
}

/// Writes a manifest with this status.
pub fn write_manifest(folder: &Path, job: &JobSpec, status: &str) {
    let manifest = json!({"schema": 2, "status": status, "config_sha256": job.hash,
        "build": {"version": "0.2.0", "git_commit": "c0ffee"}});
    results::write_atomically(
        &folder.join("manifest.json"),
        manifest.to_string().as_bytes(),
    )
    .unwrap();
}

/// Appends a line to a file that several processes write.
pub fn trace(file: &Path, line: &str) {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(file)
        .unwrap();
    file.write_all(format!("{line}\n").as_bytes()).unwrap();
}

pub fn traces(file: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// A job that pauses twice for `pause`, and writes its start and end to `log` and a result to its
/// folder.
pub fn work(job: &JobSpec, folder: &Path, log: &Path, pause: Duration) {
    trace(log, &format!("start {}", job.id));
    write_manifest(folder, job, "running");
    std::fs::write(folder.join("half"), "half").unwrap();
    std::thread::sleep(pause);
    assert!(!folder.join("result").exists(), "the folder was not empty");
    std::fs::write(folder.join("result"), job.id.to_string()).unwrap();
    std::thread::sleep(pause);
    std::fs::remove_file(folder.join("half")).unwrap();
    trace(log, &format!("end {}", job.id));
    write_manifest(folder, job, "complete");
}

/// Waits until a test is true.
pub fn until(what: &str, mut test: impl FnMut() -> bool) {
    let start = Instant::now();
    while !test() {
        assert!(start.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A run in a temporary folder.
pub struct Run {
    _dir: tempfile::TempDir,
    pub root: RunRoot,
    pub log: PathBuf,
    pub jobs: Vec<JobSpec>,
    pub events: Mutex<Vec<String>>,
}

impl Run {
    pub fn new(jobs: Vec<JobSpec>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = RunRoot::new(dir.path().join("run"));
        claim(&root, &jobs);
        Self {
            root,
            log: dir.path().join("log"),
            _dir: dir,
            jobs,
            events: Mutex::default(),
        }
    }

    pub fn folder(&self, stage: &str, cell: &str) -> PathBuf {
        self.root.folder(&id(stage, cell)).path().to_path_buf()
    }

    /// Runs all jobs; an error that `before` returns is the job's failure.
    pub fn run(
        &self,
        options: &LocalOptions,
        before: &(dyn Fn(&JobSpec, &JobContext<'_>) -> Result<(), String> + Sync),
    ) -> Summary {
        let runner = |job: &JobSpec, context: &JobContext<'_>| {
            before(job, context)?;
            work(
                job,
                context.folder().path(),
                &self.log,
                Duration::from_millis(5),
            );
            Ok::<(), String>(())
        };
        run_local(&self.root, &self.jobs, options, &runner, &|e| self.note(e)).unwrap()
    }

    fn note(&self, event: &Event) {
        let id = &event.id;
        let text = match &event.kind {
            EventKind::Planned { .. } => return,
            EventKind::Finished(_) => format!("finished {id}"),
            EventKind::Failed(message) => format!("failed {id}: {message}"),
            EventKind::Blocked(reason) => format!("blocked {id}: {reason}"),
            EventKind::Waiting(what) => format!("waiting {id}: {what}"),
            EventKind::Skipped => format!("skipped {id}"),
            EventKind::Started => format!("started {id}"),
            EventKind::Progress(progress) => format!("{id} {}/{}", progress.done, progress.of),
            _ => unreachable!(),
        };
        self.events.lock().unwrap().push(text);
    }

    pub fn events(&self) -> Vec<String> {
        std::mem::take(&mut self.events.lock().unwrap())
    }

    /// Starts and ends of jobs in the order in which they happened.
    pub fn log(&self) -> Vec<String> {
        traces(&self.log)
    }
}

pub fn fine(_: &JobSpec, _: &JobContext<'_>) -> Result<(), String> {
    Ok(())
}

/// Asserts that no timed job (of the stage `held-out`) ran beside another.
pub fn assert_timed_alone(log: &[String]) {
    let mut running: Vec<&str> = Vec::new();
    for line in log {
        let (what, job) = line.split_once(' ').unwrap();
        if what == "start" {
            let timed = job.starts_with("held-out");
            let beside_timed = running.iter().any(|job| job.starts_with("held-out"));
            assert!(
                running.is_empty() || !(timed || beside_timed),
                "{job} beside {running:?}"
            );
            running.push(job);
        } else {
            running.retain(|other| *other != job);
        }
    }
}
