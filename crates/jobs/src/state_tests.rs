use super::*;
use crate::RootRecord;
use crate::spec::tests::job;
use results::{BuildInfo, ResultsError, write_atomically};
use serde_json::json;
use std::fs;

struct Run {
    _dir: tempfile::TempDir,
    root: RunRoot,
    job: JobSpec,
    checks: Checks,
}

impl Run {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self {
            root: RunRoot::new(dir.path().join("runs/demo")),
            _dir: dir,
            job: JobSpec {
                hash: "aaa".to_owned(),
                ..job("stream/seed=1", None)
            },
            checks: Checks {
                build: BuildInfo {
                    git_commit: "c0ffee".to_owned(),
                    ..BuildInfo::unknown("0.2.0")
                },
                accept_other_build: false,
                hash_of: |_| None,
            },
        }
    }

    fn folder(&self) -> JobFolder {
        self.root.folder(&self.job.id)
    }

    fn manifest(&self, status: &str) -> serde_json::Value {
        json!({"schema": 2, "status": status, "config_sha256": "aaa",
            "build": {"version": "0.2.0", "git_commit": "c0ffee"}, "rows": {"prompts": 3}})
    }

    fn write(&self, manifest: &serde_json::Value) {
        self.folder().create().unwrap();
        write_atomically(&self.folder().manifest(), manifest.to_string().as_bytes()).unwrap();
    }

    fn state(&self) -> Result<CellState, JobsError> {
        inspect(&self.root, &self.job, &self.checks)
    }

    fn refusal(&self) -> JobsError {
        let error = self.state().unwrap_err();
        assert!(error.hint().is_some());
        error
    }

    fn record(&self, name: &str) -> RootRecord {
        RootRecord::new(name, "hash", vec![self.job.clone()])
    }
}

#[test]
fn states_from_disk() {
    let run = Run::new();
    assert_eq!(run.state().unwrap(), CellState::Todo);
    run.folder().create().unwrap();
    assert_eq!(run.state().unwrap(), CellState::Todo);
    let lock = CellLock::try_take(&run.folder()).unwrap().unwrap();
    assert!(matches!(run.state().unwrap(), CellState::Running { .. }));
    run.write(&run.manifest("running"));
    assert!(matches!(run.state().unwrap(), CellState::Running { .. }));
    drop(lock);
    assert_eq!(run.state().unwrap(), CellState::Unfinished);
    run.write(&run.manifest("interrupted"));
    assert_eq!(run.state().unwrap(), CellState::Unfinished);
    run.write(&run.manifest("failed"));
    assert!(matches!(run.state().unwrap(), CellState::Failed { .. }));
    let mut noted = run.manifest("failed");
    noted["error"] = json!("disk full");
    run.write(&noted);
    let failed = CellState::Failed {
        message: "disk full".to_owned(),
    };
    assert_eq!(run.state().unwrap(), failed);
    fs::write(run.folder().error(), "\nno such model\nbecause\n").unwrap();
    let failed = CellState::Failed {
        message: "no such model".to_owned(),
    };
    assert_eq!(run.state().unwrap(), failed);
    run.write(&run.manifest("complete"));
    assert_eq!(run.state().unwrap(), CellState::Complete);
    // Complete although its process still holds the lock.
    let _lock = CellLock::try_take(&run.folder()).unwrap().unwrap();
    assert_eq!(run.state().unwrap(), CellState::Complete);
}

#[test]
fn rows_without_a_manifest_are_a_job_cut_short() {
    let run = Run::new();
    run.folder().create().unwrap();
    fs::write(run.folder().journal(), "{").unwrap();
    assert_eq!(run.state().unwrap(), CellState::Unfinished);
}

#[test]
fn an_edited_experiment_is_refused_unless_the_cell_failed() {
    let mut run = Run::new();
    run.job.hash = "bbb".to_owned();
    for status in ["complete", "running", "interrupted"] {
        run.write(&run.manifest(status));
        let error = run.refusal();
        assert!(
            matches!(error, JobsError::Edited { .. }),
            "{status}: {error}"
        );
        assert!(error.to_string().contains("stream/seed=1"), "{error}");
        assert!(error.hint().unwrap().contains("--out"));
    }
    run.write(&run.manifest("failed"));
    assert!(matches!(run.state().unwrap(), CellState::Failed { .. }));
    // Whoever tries it again holds its lock.
    let _lock = CellLock::try_take(&run.folder()).unwrap().unwrap();
    let tried = inspect_own(&run.root, &run.job, &run.checks).unwrap();
    assert!(matches!(tried, CellState::Failed { .. }));
}

#[test]
fn another_program_is_refused() {
    let mut run = Run::new();
    let mut manifest = run.manifest("complete");
    manifest["build"]["git_commit"] = json!("badcafe");
    run.write(&manifest);
    assert!(matches!(run.refusal(), JobsError::OtherBuild { .. }));
    run.checks.accept_other_build = true;
    assert_eq!(run.state().unwrap(), CellState::Complete);

    manifest["build"]["version"] = json!("0.1.0");
    run.write(&manifest);
    let error = run.refusal();
    assert!(error.to_string().contains("version 0.1.0"), "{error}");

    // Nothing but the number is read of another layout.
    run.write(&json!({"schema": 1}));
    let error = run.refusal();
    assert!(
        error
            .to_string()
            .contains("layout 1, this is version 0.2.0, layout 2"),
        "{error}"
    );
}

#[test]
fn a_damaged_manifest_is_named() {
    let run = Run::new();
    run.folder().create().unwrap();
    fs::write(run.folder().manifest(), "{\"schema\": 2,\n").unwrap();
    let error = run.refusal();
    assert!(
        error.to_string().contains("manifest.json, line 2"),
        "{error}"
    );
}

#[test]
fn claiming_writes_the_record_once_all_is_checked() {
    let mut run = Run::new();
    let record = run.record("demo");
    let jobs = std::slice::from_ref(&run.job);
    let claim = |record: &RootRecord| run.root.claim(record, jobs, &run.checks);
    assert_eq!(claim(&record).unwrap(), [CellState::Todo]);
    assert_eq!(run.root.read_record().unwrap(), Some(record.clone()));

    let error = claim(&run.record("other")).unwrap_err();
    assert!(
        matches!(error, JobsError::OtherExperiment { .. }),
        "{error}"
    );

    run.write(&run.manifest("complete"));
    run.job.hash = "bbb".to_owned();
    let edited = run.record("demo");
    // Also if other jobs are to run: the page has them all.
    for jobs in [&edited.jobs[..], &[]] {
        let refused = run.root.claim(&edited, jobs, &run.checks);
        assert!(matches!(refused.unwrap_err(), JobsError::Edited { .. }));
    }
    assert_eq!(run.root.read_record().unwrap(), Some(record));
}

#[test]
fn a_folder_of_something_else_is_left_alone() {
    let run = Run::new();
    fs::create_dir_all(run.root.path()).unwrap();
    fs::write(run.root.path().join("thesis.tex"), "x").unwrap();
    let record = run.record("demo");
    let error = run
        .root
        .claim(&record, &record.jobs, &run.checks)
        .unwrap_err();
    assert!(matches!(error, JobsError::NotARun { .. }), "{error}");

    fs::remove_file(run.root.path().join("thesis.tex")).unwrap();
    fs::write(run.root.path().join("experiment.json.7-0.part"), "{").unwrap();
    run.root.claim(&record, &record.jobs, &run.checks).unwrap();
}

#[test]
fn a_claim_may_come_at_any_moment_of_others() {
    for _ in 0..100 {
        let run = Run::new();
        let record = run.record("demo");
        std::thread::scope(|scope| {
            for _ in 0..24 {
                scope.spawn(|| {
                    run.root.claim(&record, &record.jobs, &run.checks).unwrap();
                    run.folder().create().unwrap();
                });
            }
        });
    }
}

#[test]
fn two_jobs_of_one_name_and_other_layouts_are_refused() {
    let run = Run::new();
    let mut record = run.record("demo");
    record.jobs.push(run.job.clone());
    let claim = |record: &RootRecord| run.root.claim(record, &record.jobs, &run.checks);
    assert!(matches!(
        claim(&record).unwrap_err(),
        JobsError::TwoJobs { .. }
    ));

    record.jobs.pop();
    fs::create_dir_all(run.root.path()).unwrap();
    fs::write(run.root.record(), r#"{"schema": 9}"#).unwrap();
    assert!(matches!(
        claim(&record).unwrap_err(),
        JobsError::Results(ResultsError::Schema { .. })
    ));
    fs::write(run.root.record(), "not json").unwrap();
    assert!(matches!(
        claim(&record).unwrap_err(),
        JobsError::Results(ResultsError::Malformed { .. })
    ));
}
