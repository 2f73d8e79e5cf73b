//! `omnidraft new`: what it writes runs as it is, and nothing is overwritten.

use std::path::Path;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

use super::support::{omnidraft, refused};

/// The command that makes an experiment in a folder.
fn new(name: &Path, extra: &[&str]) -> Command {
    let mut command = omnidraft();
    command.arg("new").arg(name).args(extra);
    command
}

/// The command that runs a file, in `out`.
fn run(file: &Path, out: &Path, extra: &[&str]) -> Command {
    let mut command = omnidraft();
    command
        .arg("run")
        .arg(file)
        .arg("--out")
        .arg(out)
        .args(extra);
    command
}

#[test]
fn what_is_written_runs_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let name = folder.path().join("made/mine");
    let file = folder.path().join("made/mine.toml");
    let out = folder.path().join("out");
    let done = new(&name, &[]).assert().success();
    done.stdout(contains("--dry-run").and(contains("mine.toml")));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains('@'), "{text}");
    assert!(
        text.lines().all(|line| line.chars().count() <= 120),
        "{text}"
    );
    let dry = run(&file, &out, &["--dry-run"]).assert().success();
    dry.stdout(contains("mine ->").and(contains("60 streamed prompts")));
    assert!(!out.exists());
    let small = [
        "--set",
        "grid.seed=[1]",
        "--set",
        "stage.stream.prompts.train=2",
        "--set",
        "stage.held-out.prompts.test=1",
        "--set",
        "decode.max_new_tokens=4",
    ];
    run(&file, &out, &small).assert().success();
    assert!(out.join("report/report.html").is_file());

    // Nothing is written over it, whatever the ending.
    refused(
        &mut new(&name, &[]),
        &["mine.toml: is there already", "hint:"],
    );
    refused(&mut new(&file, &[]), &["mine.toml: is there already"]);
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn own_prompts_are_taken_as_far_as_they_go() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("data/tickets");
    std::fs::create_dir_all(&task).unwrap();
    for (half, count) in [("train", 5), ("test", 3)] {
        let line =
            |i: usize| format!("{{\"id\": \"{half}-{i}\", \"prompt\": \"{half} question {i}\"}}\n");
        let lines: String = (0..count).map(line).collect();
        std::fs::write(task.join(format!("{half}.jsonl")), lines).unwrap();
    }
    let data = folder.path().join("data");
    let data = ["--data-dir", data.to_str().unwrap()];
    let name = folder.path().join("tickets");
    refused(&mut new(&name, &data), &["say which one", "hint: --task"]);
    let wanted = [&data[..], &["--task", "tickets"]].concat();
    let done = new(&name, &wanted).assert().success();
    done.stdout(contains("--data-dir"));
    let text = std::fs::read_to_string(folder.path().join("tickets.toml")).unwrap();
    assert!(
        text.contains("train = 5") && text.contains("test = 3"),
        "{text}"
    );
    let file = folder.path().join("tickets.toml");
    let dry = [&data[..], &["--dry-run"]].concat();
    let done = run(&file, &folder.path().join("out"), &dry)
        .assert()
        .success();
    done.stdout(contains("task=tickets"));

    let other = folder.path().join("other");
    let absent = [&data[..], &["--task", "letters"]].concat();
    refused(&mut new(&other, &absent), &["letters", "hint:"]);
    refused(
        &mut new(&folder.path().join("a b"), &[]),
        &["`", "is no name"],
    );
    assert!(!folder.path().join("other.toml").exists());
}
