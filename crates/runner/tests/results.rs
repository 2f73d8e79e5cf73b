//! Published results are small, and their pages are those that their rows give.

use crate::docs_support::repository;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use report::{compare, quoted, quotes};

/// Maximum bytes of `results/`.
const LARGEST: u64 = 30_000_000;

/// Folders of `results/` that hold an experiment.
fn published() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("results")).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = folders
        .filter(|folder| folder.join("experiment.json").is_file())
        .collect();
    folders.sort();
    folders
}

#[test]
fn pages_are_what_their_rows_give() {
    let folders = published();
    assert!(!folders.is_empty());
    let mut faults = Vec::new();
    for folder in folders {
        match compare(&folder) {
            Ok(differences) => faults.extend(
                differences
                    .into_iter()
                    .map(|d| format!("{}: {}", d.path.display(), d.what)),
            ),
            Err(error) => faults.push(format!("{}: {error}", folder.display())),
        }
    }
    assert!(
        faults.is_empty(),
        "\n  {}\n  `omnidraft report FOLDER` makes them again\n",
        faults.join("\n  ")
    );
}

/// Output of a Python script of the repository; `None`, which is told, where python3 lacks one of
/// its modules.
fn python(modules: &str, arguments: &[&str]) -> Option<Output> {
    let run = |arguments: &[&str]| {
        let mut command = Command::new("python3");
        command.args(arguments).current_dir(repository()).output()
    };
    let there = run(&["-c", &format!("import {modules}")]);
    if !there.is_ok_and(|output| output.status.success()) {
        // println! would not be shown for a test that passes.
        let text = format!("skipped: 1 test, there is no python3 with {modules}");
        drop(writeln!(std::io::stderr(), "{text}"));
        return None;
    }
    Some(run(arguments).unwrap())
}

/// The main numbers of every page, computed from its rows by a script that shares no code with the
/// program.
#[test]
fn pages_have_the_numbers_that_another_program_finds() {
    let recomputed = python(
        "numpy, pyarrow, tomllib",
        &["results/recompute.py", "check"],
    );
    let Some(output) = recomputed else { return };
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{errors}");
    assert!(said.contains(" 0 wrong"), "{said}");
}

#[test]
fn pages_quote_what_rows_give() {
    let pages = quoting(&repository());
    for page in ["README.md", "docs/findings.md", "results/table1/README.md"] {
        assert!(pages.iter().any(|path| path.ends_with(page)), "{page}");
    }
    let stale = pages.iter().filter(|path| {
        let page = std::fs::read_to_string(path).unwrap();
        quoted(path, None).unwrap() != page
    });
    let stale: Vec<String> = stale.map(|path| path.display().to_string()).collect();
    assert!(
        stale.is_empty(),
        "`omnidraft quote {}` makes their tables again",
        stale.join(" ")
    );
}

/// Pages of the repository that quote tables.
fn quoting(root: &Path) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = ["", "docs", "results", "models", "experiments"]
        .map(|folder| root.join(folder))
        .to_vec();
    let entries = std::fs::read_dir(root.join("results")).unwrap();
    folders.extend(
        entries
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.is_dir()),
    );
    let files = folders.iter().flat_map(|folder| {
        let entries = std::fs::read_dir(folder).unwrap();
        entries.map(|entry| entry.unwrap().path())
    });
    let pages = files.filter(|path| path.extension().is_some_and(|end| end == "md"));
    let quoting = pages.filter(|path| quotes(&std::fs::read_to_string(path).unwrap()));
    let mut pages: Vec<PathBuf> = quoting.collect();
    pages.sort();
    pages
}

/// A run on a GPU has no experiment file: a script makes its page.
#[test]
fn the_page_of_a_gpu_is_what_its_rows_give() {
    let script = repository().join("scripts/gpu_check.py");
    let mut python = std::process::Command::new("python3");
    match python.arg(script).args(["page", "--check"]).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{said}");
        }
        Err(error) => println!("skipped: python3: {error}"),
    }
}

/// Peers answer a run's prompts as the run read them. The script has tests of its own.
#[test]
fn peers_are_given_the_prompts_of_a_run() {
    let tested = python("tomllib", &["scripts/peers/test_beside_run.py"]);
    let Some(output) = tested else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

#[test]
fn results_are_small() {
    fn bytes(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).unwrap();
        let size = |path: PathBuf| match path.is_dir() {
            true => bytes(&path),
            false => std::fs::metadata(&path).unwrap().len(),
        };
        entries.map(|entry| size(entry.unwrap().path())).sum()
    }
    let size = bytes(&repository().join("results"));
    assert!(
        size < LARGEST,
        "results/ has {size} bytes, {LARGEST} are allowed"
    );
}
