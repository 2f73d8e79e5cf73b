//! Shared parts of these tests: the program, a small experiment, damaged copies.

use assert_cmd::Command;
use predicates::str::contains;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub use crate::docs_support::repository;

pub fn omnidraft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .current_dir(repository())
        .env_remove("OMNIDRAFT_SHARED")
        .arg("--no-progress");
    command
}

/// A copy of a shipped model folder that a test may damage.
pub fn copy_of(model: &str, into: &Path) -> PathBuf {
    let folder = into.join(model);
    std::fs::create_dir(&folder).unwrap();
    for file in std::fs::read_dir(repository().join("models").join(model)).unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    folder
}

pub fn shorten(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

pub fn generate(target: &Path) -> Command {
    let mut command = omnidraft();
    command
        .args([
            "generate",
            "--prompt",
            "Hello",
            "--max-tokens",
            "2",
            "--target",
        ])
        .arg(target);
    command
}

/// Two arms, one cell, one stage.
pub const EXPERIMENT: &str = r#"name = "small"
[models]
drafter = "models/D"
targets = { target = "models/L" }
[grid]
task = "mini-math"
[stage.stream]
prompts = { train = 2, test = 2 }
[decode]
max_new_tokens = 8
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "SpD_DM"
"#;

/// A second stage after it, and an arm that learns.
pub const TWO_STAGES: &str = r#"
[[arm]]
preset = "L_DM+L_N-gram"
[learn]
every = 1
[stage.held-out]
from = "stream"
prompts = { test = 1 }
"#;

/// Folder of the only cell of [`EXPERIMENT`].
pub const CELL: &str = "out/stream/task=mini-math,seed=1";

pub fn run_with(config: &str, extra: &[&str], folder: &Path) -> Command {
    let path = folder.join("experiment.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = omnidraft();
    command
        .arg("run")
        .arg(path)
        .arg("--out")
        .arg(folder.join("out"))
        .args(extra);
    command
}

/// Exit status 2, nothing on stdout, and a message with all of `parts`.
pub fn refused(command: &mut Command, parts: &[&str]) {
    let mut assert = command.assert().code(2).stdout("");
    for part in ["error: "].iter().chain(parts) {
        assert = assert.stderr(contains(*part));
    }
}

/// Every file below a folder with its bytes.
pub fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}
