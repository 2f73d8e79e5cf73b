//! Jobs through a real Slurm, which a script of the repository starts.
#![cfg(unix)]
#![allow(missing_docs)]

use crate::support;

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use jobs::{
    Batch, JobCommand, JobContext, JobSpec, JobsError, RunRoot, Slurm, SlurmOptions, Submission,
    exit, run_local, status,
};
use serde_json::json;
use support::cluster::{Cluster, is_installed};
use support::{assert_timed_alone, checks, options, traces, two_stages, work};

const CELLS: usize = 4;

/// The test program in the role of `omnidraft`: runs one job of the run that its arguments name.
fn job(arguments: &[String]) -> i32 {
    let value = |name: &str| {
        let at = arguments.iter().position(|word| word == name).unwrap();
        arguments[at + 1].clone()
    };
    let root = RunRoot::new(value("--out"));
    let id = support::id(&value("--stage"), &value("--cell"));
    let jobs = two_stages(CELLS);
    let job: Vec<JobSpec> = jobs.into_iter().filter(|job| job.id == id).collect();
    let log = root.path().with_extension("log");
    let runner = |job: &JobSpec, context: &JobContext<'_>| {
        let is_bad = job.id.to_string() == "stream/seed=2";
        if is_bad && !root.path().with_extension("mended").exists() {
            return Err("the model is missing");
        }
        work(
            job,
            context.folder().path(),
            &log,
            Duration::from_millis(50),
        );
        Ok(())
    };
    let summary = run_local(&root, &job, &options(1), &runner, &|_| {}).unwrap();
    for (id, message) in summary.failed.iter().chain(&summary.blocked) {
        eprintln!("{id}: {message}");
    }
    i32::from(summary.exit_code())
}

/// Entry of the inner test programs, each with its arguments in the environment.
#[test]
fn job_of_the_other_test() {
    if let Ok(arguments) = env::var("JOBS_TEST_ARGUMENTS") {
        let arguments: Vec<String> = arguments.lines().map(str::to_owned).collect();
        std::process::exit(job(&arguments));
    }
}

/// A program that takes `job FILE --stage ...` and starts this test program again.
fn program(folder: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let path = folder.join("omni'draft");
    let test = env::current_exe().unwrap();
    let text = format!(
        "#!/bin/sh\nJOBS_TEST_ARGUMENTS=$(printf '%s\\n' \"$@\") exec {} --exact \
         slurm::job_of_the_other_test --nocapture\n",
        jobs::quote(test.to_str().unwrap())
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

struct Site {
    root: RunRoot,
    folder: PathBuf,
    programs: PathBuf,
}

impl Site {
    fn submit(&self, options: serde_json::Value) -> Result<Submission, JobsError> {
        let jobs = two_stages(CELLS);
        let record = support::record(&jobs);
        let states = self.root.claim(&record, &jobs, &checks()).unwrap();
        let command = JobCommand {
            program: program(&self.folder),
            file: self.folder.join("demo.toml"),
            folder: self.folder.clone(),
            extra: Vec::new(),
        };
        let options = SlurmOptions::new(options.as_object().unwrap()).unwrap();
        Slurm::new(options)
            .with_programs(&self.programs)
            .submit(&Batch {
                root: &self.root,
                name: "demo",
                jobs: &jobs,
                states: &states,
                command: &command,
                checks: &checks(),
            })
    }

    /// Waits until Slurm's queue is empty.
    fn wait(&self) {
        let start = Instant::now();
        loop {
            let queue = Command::new(self.programs.join("squeue"))
                .args(["-h", "-r"])
                .output();
            let queue = queue.unwrap();
            assert!(queue.status.success());
            if queue.stdout.is_empty() {
                return;
            }
            let queue = String::from_utf8_lossy(&queue.stdout);
            assert!(
                start.elapsed() < Duration::from_secs(90),
                "still queued:\n{queue}"
            );
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Complete, failed and waiting jobs of each stage.
    fn counts(&self) -> Vec<(usize, usize, usize)> {
        let report = status(self.root.path()).unwrap();
        let counts = report
            .stages
            .iter()
            .map(|s| (s.complete, s.failed, s.waiting));
        counts.collect()
    }
}

/// Programs that address the Slurm in `cluster`, whatever the environment of this process.
fn programs(folder: &Path, cluster: &Cluster) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let programs = folder.join("bin");
    fs::create_dir(&programs).unwrap();
    for name in ["sbatch", "squeue", "scancel", "scontrol"] {
        let path = programs.join(name);
        let conf = jobs::quote(cluster.conf().to_str().unwrap());
        fs::write(
            &path,
            format!("#!/bin/sh\nSLURM_CONF={conf} exec {name} \"$@\"\n"),
        )
        .unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    programs
}

#[test]
fn stages_failures_and_reruns_on_a_real_slurm() {
    if !is_installed() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let cluster = Cluster::start(dir.path().join("slurm"));
    let folder = dir.path().join("50% of it's");
    fs::create_dir(&folder).unwrap();
    let site = Site {
        root: RunRoot::new(folder.join("run")),
        programs: programs(dir.path(), &cluster),
        folder,
    };

    // After a refusal nothing is recorded as submitted.
    let error = site.submit(json!({"partition": "nowhere"})).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
    assert!(!site.root.slurm().join("submitted.json").exists());

    // One job fails; the job that needs it is cancelled, and the others go on.
    let submission = site.submit(json!({"time": 5})).unwrap();
    assert_eq!(submission.submitted, 2 * CELLS);
    let again = site.submit(json!({"time": 5})).unwrap();
    assert_eq!(again.submitted, 0, "all of it is in the queue: {again:?}");
    site.wait();
    assert_eq!(site.counts(), [(CELLS - 1, 1, 0), (CELLS - 1, 0, 1)]);
    let logs: Vec<String> = fs::read_dir(site.root.slurm_logs())
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(logs.len(), 2 * CELLS - 1, "{logs:?}");
    let ended = "seed=2 ended with exit code 1";
    assert!(
        logs.iter()
            .any(|log| log.contains(ended) && log.contains("the model is missing"))
    );

    // The same command again submits the failed job and the one that needs it, and no other.
    fs::write(site.root.path().with_extension("mended"), "").unwrap();
    let submission = site.submit(json!({"time": 5})).unwrap();
    assert_eq!(
        (submission.submitted, submission.complete),
        (2, 2 * CELLS - 2)
    );
    site.wait();
    assert_eq!(site.counts(), [(CELLS, 0, 0), (CELLS, 0, 0)]);
    let log = traces(&site.root.path().with_extension("log"));
    assert_eq!(log.len(), 4 * CELLS, "each job once: {log:?}");
    assert_timed_alone(&log);
    assert_eq!(site.submit(json!({})).unwrap().complete, 2 * CELLS);
    assert_eq!(exit::COMPLETE, 0);
}
