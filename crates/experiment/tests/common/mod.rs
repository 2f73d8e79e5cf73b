//! Experiments in a temporary folder.

#![allow(dead_code, reason = "no test uses all of it")]

use std::path::PathBuf;

use experiment::{ExperimentError, LoadOptions, Plan};
use tempfile::TempDir;

/// A drafter and two targets.
pub const ZOO: &str = r#"[models]
drafter = { path = "models/D", pad_width = 3072 }
targets = { L = "models/L", Q = { path = "models/Q", pad_width = 64 } }
"#;

/// A small experiment beside `zoo.toml`.
pub const SMALL: &str = r#"include = ["zoo.toml"]
name = "small"
[grid]
target = ["L", "Q"]
task = ["gsm8k", "xsum"]
[stage.stream]
prompts = { train = 100, test = 20 }
[[arm]]
preset = "L_DM+L_N-gram"
"#;

/// Files of a test, `zoo.toml` among them.
pub struct Files(TempDir);

impl Files {
    /// Writes the files.
    pub fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("zoo.toml"), ZOO).unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    /// Path of a file.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Loads one of the files.
    pub fn load(&self, name: &str, overrides: &[&str]) -> Result<Plan, ExperimentError> {
        let options = LoadOptions {
            overrides: overrides.iter().map(|text| (*text).to_owned()).collect(),
            extra_includes: Vec::new(),
        };
        Plan::load(&self.path(name), &options)
    }

    /// The message of an error, without the temporary folder.
    pub fn say(&self, error: &ExperimentError) -> String {
        let folder = format!("{}/", self.0.path().display());
        error.to_string().replace(&folder, "")
    }
}

/// Loads one text.
pub fn plan(text: &str) -> Plan {
    set(text, &[])
}

/// Loads one text with overrides.
pub fn set(text: &str, overrides: &[&str]) -> Plan {
    let files = Files::new(&[("x.toml", text)]);
    let loaded = files.load("x.toml", overrides);
    loaded.unwrap_or_else(|error| panic!("{error}"))
}

/// The faults of a text, one per line.
pub fn wrong(text: &str) -> String {
    wrong_set(text, &[])
}

/// The same with overrides.
pub fn wrong_set(text: &str, overrides: &[&str]) -> String {
    let files = Files::new(&[("x.toml", text)]);
    files.say(&files.load("x.toml", overrides).unwrap_err())
}

/// Asserts that a text holds every one of some words.
#[track_caller]
pub fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no `{word}` in:\n{text}");
    }
}
