//! One job by name, and a Slurm that is missing or refuses.

use super::support::{EXPERIMENT, TWO_STAGES, files, omnidraft, refused, run_with};
use predicates::prelude::*;
use predicates::str::contains;
use std::path::{Path, PathBuf};

/// A folder of programs with these texts, to be the whole `PATH`.
#[cfg(unix)]
fn programs(folder: &Path, texts: &[(&str, &str)]) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    for (name, text) in texts {
        let path = programs.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    programs
}

#[cfg(unix)]
#[test]
fn a_slurm_that_is_missing_or_refuses_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let slurm = |config: &str, path: &Path| {
        let mut command = run_with(config, &["--launcher", "slurm"], folder.path());
        command.env("PATH", path);
        command
    };
    let nothing_looks_begun = || {
        let names = files(&out).into_keys();
        let names: Vec<_> = names
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert!(!names.contains(&"manifest.json".to_owned()), "{names:?}");
        assert!(!names.contains(&"submitted.json".to_owned()), "{names:?}");
    };
    let path = programs(folder.path(), &[]);
    refused(
        &mut slurm(EXPERIMENT, &path),
        &["was not found", "Slurm", "hint:", "--print-jobs"],
    );
    nothing_looks_begun();
    let refuses = "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1";
    let tools = [("sbatch", refuses), ("squeue", ""), ("scontrol", "")];
    let path = programs(folder.path(), &tools);
    let config = format!("{EXPERIMENT}[launcher.slurm]\npartition = \"nowhere\"\n");
    refused(
        &mut slurm(&config, &path),
        &["invalid partition", "nowhere", "hint:", "launcher.slurm"],
    );
    nothing_looks_begun();
    let config = format!("{EXPERIMENT}[launcher.slurm]\narray = \"1-3\"\n");
    refused(
        &mut slurm(&config, &path),
        &["launcher.slurm.array", "hint:"],
    );
}

#[cfg(unix)]
#[test]
fn jobs_that_slurm_is_not_given_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let config = format!("{EXPERIMENT}{TWO_STAGES}");
    let stage = ["--launcher", "slurm", "--stage", "held-out"];
    run_with(&config, &stage, folder.path())
        .env("PATH", programs(folder.path(), &[]))
        .assert()
        .code(3)
        .stdout("")
        .stderr(contains("not started: held-out/").and(contains("submit the stage `stream` too")));
}

#[test]
fn one_job_is_named_by_stage_and_cell() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{EXPERIMENT}{TWO_STAGES}");
    let file = folder.path().join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("out");
    let job = |stage: &str, cell: &str| {
        let mut command = omnidraft();
        command.arg("job").arg(&file).arg("--out").arg(&out);
        command.args(["--stage", stage, "--cell", cell]);
        command
    };
    let cell = "task=mini-math,seed=1";
    refused(&mut job("stream", "seed=1"), &["`seed=1`", "`stream`"]);
    assert!(!out.exists());
    job("held-out", cell)
        .assert()
        .code(3)
        .stderr(contains("held-out").and(contains("stream")));
    job("stream", cell).assert().code(0).stdout("");
    job("held-out", cell).assert().code(0);
    // Complete: nothing to do.
    job("held-out", cell).assert().code(0);
}
