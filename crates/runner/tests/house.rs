//! The house stays in order: no crate is most of it, arrows point down only, and doc comments say
//! what things are.

use crate::docs_support::repository;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The crates from the ground up. A crate uses only crates of lower layers, none of its own.
const LAYERS: [&[&str]; 10] = [
    &["engine", "vocab-align", "weights"],
    &["ngram-cache", "torch-engine"],
    &["spec-decode"],
    &["lm", "streams"],
    &[
        "adaptive-draft",
        "cpu-engine",
        "distill-loss",
        "hub",
        "results",
        "trace",
    ],
    &["gpu-engine"],
    &["experiment", "jobs", "models", "trainer"],
    &["online", "pretrain", "report"],
    &["bench", "fuzz", "serve"],
    &["omnidraft", "runner"],
];

/// Libraries that few crates may know; the others go through those.
const RESERVED: [(&str, &[&str]); 9] = [
    ("axum", &["serve"]),
    ("burn", &["trainer"]),
    ("clap", &["bench", "fuzz", "runner"]),
    ("cubecl", &["gpu-engine"]),
    ("hf-hub", &["hub"]),
    ("minijinja", &["models", "report"]),
    ("parquet", &["hub", "results", "trace"]),
    ("polars", &["runner"]),
    ("tokenizers", &["pretrain", "vocab-align"]),
];

/// Largest share of the source that one crate may be.
const LARGEST_SHARE: f64 = 0.2;

/// Words with which a doc comment does not open: such a sentence has no subject.
const OPENINGS: [&str; 8] = [
    "How", "Most", "Those", "What", "Where", "Whether", "Which", "Who",
];

/// Dependencies of each crate when it is built, tests aside; from cargo itself.
fn dependencies() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--format-version",
            "1",
            "--offline",
        ])
        .current_dir(repository())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo metadata: {said}");
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let of = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        let built = all.filter(|dependency| dependency["kind"].is_null());
        built.map(|dependency| text(&dependency["name"])).collect()
    };
    let crates = packages.iter().map(|own| (text(&own["name"]), of(own)));
    crates.collect()
}

fn layer(name: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&name))
}

#[test]
fn arrows_point_down() {
    let dependencies = dependencies();
    let mut faults = Vec::new();
    for (name, uses) in &dependencies {
        let Some(own) = layer(name) else {
            faults.push(format!("{name} stands in no layer of this test"));
            continue;
        };
        for used in uses.iter().filter(|used| dependencies.contains_key(*used)) {
            if layer(used).is_none_or(|below| below >= own) {
                faults.push(format!("{name} uses {used}, which is not below it"));
            }
        }
    }
    let all = LAYERS.iter().flat_map(|layer| layer.iter());
    let gone = all.filter(|name| !dependencies.contains_key(**name));
    faults.extend(gone.map(|name| format!("there is no crate {name} any more")));
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[test]
fn heavy_libraries_have_one_door() {
    let mut faults = Vec::new();
    for (name, uses) in dependencies() {
        for (library, allowed) in RESERVED {
            if uses.contains(library) && !allowed.contains(&name.as_str()) {
                faults.push(format!("{name} uses {library}; {} may", allowed.join(", ")));
            }
        }
    }
    assert!(faults.is_empty(), "\n  {}\n", faults.join("\n  "));
}

#[test]
fn no_crate_is_most_of_the_source() {
    let mut lines = BTreeMap::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        lines.insert(name, source_lines(&path.join("src")));
    }
    let all: usize = lines.values().sum();
    let largest = (all as f64 * LARGEST_SHARE) as usize;
    let large: Vec<_> = lines.iter().filter(|(_, own)| **own > largest).collect();
    assert!(
        large.is_empty(),
        "more than {largest} of {all} lines: {large:?}"
    );
}

/// Lines of Rust below a folder that are not blank.
fn source_lines(folder: &Path) -> usize {
    let lines = |file: PathBuf| {
        let text = std::fs::read_to_string(file).unwrap();
        text.lines().filter(|line| !line.trim().is_empty()).count()
    };
    rust_files(folder).into_iter().map(lines).sum()
}

/// Files of Rust below a folder; none if there is no such folder.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|ending| ending == "rs") {
            files.push(path);
        }
    }
    files
}

#[test]
fn no_file_of_tests_is_left_out() {
    let mut faults = Vec::new();
    for entry in std::fs::read_dir(repository().join("crates")).unwrap() {
        let path = entry.unwrap().path();
        let manifest = std::fs::read_to_string(path.join("Cargo.toml")).unwrap();
        if !manifest.contains("autotests = false") {
            continue;
        }
        let all = std::fs::read_to_string(path.join("tests/all.rs")).unwrap();
        for file in std::fs::read_dir(path.join("tests")).unwrap() {
            let file = file.unwrap().path();
            let name = file.file_stem().unwrap().to_string_lossy().into_owned();
            let named = all.contains(&format!("mod {name};"))
                || manifest.contains(&format!("[[test]]\nname = \"{name}\""));
            if file.extension().is_some_and(|ending| ending == "rs") && !named {
                faults.push(file.display().to_string());
            }
        }
    }
    assert!(
        faults.is_empty(),
        "neither modules of all.rs nor tests of the manifest:\n  {}\n",
        faults.join("\n  ")
    );
}

#[test]
fn doc_comments_say_what_things_are() {
    let crates = repository().join("crates");
    let mut faults = Vec::new();
    let mut seen = 0;
    for entry in std::fs::read_dir(&crates).unwrap() {
        let folder = entry.unwrap().path();
        for file in rust_files(&folder) {
            let text = std::fs::read_to_string(&file).unwrap();
            let place = file.strip_prefix(&crates).unwrap().display();
            for (line, comment) in doc_comments(&text) {
                seen += 1;
                if opens_without_subject(comment) {
                    faults.push(format!("{place}:{line}: {comment}"));
                }
            }
        }
    }
    assert!(
        faults.is_empty(),
        "see \"Words\" in CONTRIBUTING.md:\n  {}\n",
        faults.join("\n  ")
    );
    assert!(seen > 1000, "only {seen} doc comments");
}

/// First line of every block of doc comments, with its number.
fn doc_comments(text: &str) -> Vec<(usize, &str)> {
    let lines: Vec<Option<&str>> = text.lines().map(doc_comment).collect();
    let begins = |at: &usize| *at == 0 || lines[at - 1].is_none();
    (0..lines.len())
        .filter(begins)
        .filter_map(|at| Some((at + 1, lines[at]?)))
        .collect()
}

/// Text of a line of a doc comment; `None` for any other line.
fn doc_comment(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let text = line.strip_prefix("///").or(line.strip_prefix("//!"));
    text.map(str::trim)
}

fn opens_without_subject(comment: &str) -> bool {
    let word = comment.split(|letter: char| !letter.is_alphabetic()).next();
    word.is_some_and(|word| OPENINGS.contains(&word))
}

#[test]
fn openings_without_a_subject_are_found() {
    let text = "//! Most of it.\n\n/// How many rows.\n/// Which ones.\nfn a() {}\n    /// Mostly rows.\n// What\n";
    let found: Vec<usize> = doc_comments(text)
        .into_iter()
        .filter(|(_, comment)| opens_without_subject(comment))
        .map(|(line, _)| line)
        .collect();
    assert_eq!(found, [1, 3]);
}

/// Below the commands nothing knows of them: a job runs the same however it was started.
#[test]
fn nothing_below_the_commands_uses_them() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut seen = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if !path.is_file() || name == "main.rs" || name == "lib.rs" {
            continue;
        }
        seen += 1;
        let text = std::fs::read_to_string(&path).unwrap();
        let uses = text.contains("crate::cli") || text.contains("super::cli");
        assert!(!uses, "{name} uses the command line");
    }
    assert!(seen > 0);
}
