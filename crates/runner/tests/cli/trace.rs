//! `omnidraft trace`: recording, display, verification, replay; and errors.

use super::support::{copy_of, omnidraft, refused, run_with, shorten};
use crate::pieces_support;
use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::path::Path;

fn trace(words: &[&str], file: &Path) -> Command {
    let mut command = omnidraft();
    command.arg("trace").args(words).arg(file);
    command
}

fn record(extra: &[&str], out: &Path) -> Command {
    let words = [
        &["record", "--target", "models/L", "--task", "mini-math"][..],
        &[
            "--limit",
            "4",
            "--seed",
            "0",
            "--max-tokens",
            "8",
            "--tail",
            "12",
        ],
        extra,
        &["--out"],
    ];
    trace(&words.concat(), out)
}

fn text(extra: &[&str], out: &Path) -> Command {
    let words = [
        &[
            "text",
            "--tokenizer",
            "models/Q",
            "--task",
            "mini-math",
            "--max-tokens",
            "32",
        ][..],
        extra,
        &["--out"],
    ];
    trace(&words.concat(), out)
}

#[test]
fn a_stopped_recording_goes_on_and_is_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole.parquet");
    record(&["--together", "1"], &whole)
        .assert()
        .success()
        .stdout(contains("4 prompts"));
    let cut = folder.path().join("cut.parquet");
    for done in ["1", "3"] {
        let stopped = if done == "1" { "1" } else { "2" };
        record(&["--stop-after", stopped], &cut)
            .assert()
            .success()
            .stderr(contains(format!("stopped after {done} prompts")));
        assert!(!cut.exists());
    }
    record(&[], &cut)
        .assert()
        .success()
        .stderr(contains("goes on after 3 prompts"));
    assert_eq!(std::fs::read(&cut).unwrap(), std::fs::read(&whole).unwrap());
    // Side by side, with identical bits.
    let several = folder.path().join("several.parquet");
    record(&["--together", "3"], &several).assert().success();
    assert_eq!(
        std::fs::read(&several).unwrap(),
        std::fs::read(&whole).unwrap()
    );
    trace(&["show"], &whole)
        .assert()
        .success()
        .stdout(contains("model models/L, weights sha256").and(contains("64 of 8192 tokens")));
    trace(&["verify", "--target", "models/L"], &whole)
        .assert()
        .success()
        .stdout(
            contains("4 rows are whole").and(contains("answered again by models/L: same tokens")),
        );
    // A finished file is recorded no second time; with other settings it is left alone.
    let bytes = std::fs::read(&whole).unwrap();
    record(&[], &whole)
        .assert()
        .success()
        .stderr(contains("goes on after 4 prompts"));
    let refusal = ["begun with other settings: top was 64 and is 8", "hint:"];
    refused(&mut record(&["--top", "8"], &whole), &refusal);
    assert_eq!(std::fs::read(&whole).unwrap(), bytes);
}

#[test]
fn reference_text_is_named_wherever_its_numbers_are() {
    let folder = tempfile::tempdir().unwrap();
    let file = |split: &str| folder.path().join(format!("text-{split}.parquet"));
    text(&[], &file("train")).assert().success();
    text(&["--split", "test"], &file("test")).assert().success();
    trace(&["show"], &file("test"))
        .assert()
        .success()
        .stdout(contains(
            "reference text, no model: field `reference`, 0.3 of the mass",
        ));
    trace(&["verify", "--tokenizer", "models/Q"], &file("test"))
        .assert()
        .success()
        .stdout(contains("are spelled as models/Q does"));
    refused(
        &mut trace(&["verify", "--tokenizer", "models/L"], &file("test")),
        &["text-test.parquet", "recorded with the tokenizer", "hint:"],
    );
    refused(
        &mut trace(&["verify", "--target", "models/L"], &file("test")),
        &["text-test.parquet", "hint:"],
    );

    let experiment = format!(
        "name = \"text\"\n[models]\ndrafter = \"models/D\"\n\
         targets.T = {{ trace = \"{}\", tokenizer = \"models/Q\" }}\n\
         [grid]\ntask = \"mini-math\"\n[stage.stream]\nprompts = {{ train = 4, test = 3 }}\n\
         [decode]\ntemperature = 0.0\nmax_new_tokens = 12\n[learn]\nevery = 2\n\
         [[arm]]\npreset = \"autoregressive\"\n[[arm]]\npreset = \"L_DM+L_N-gram\"\n\
         [report]\nrows = [\"arm\"]\ncolumns = \"task\"\ncell = [\"acceptance\"]\n",
        file("{split}").display()
    );
    run_with(&experiment, &[], folder.path()).assert().success();
    let page = std::fs::read_to_string(folder.path().join("out/report/report.md"));
    let page = page.unwrap_or_else(|_| every_page(&folder.path().join("out/report")));
    assert!(
        page.contains("Target T is recorded: reference text, no model."),
        "{page}"
    );
    let hot = experiment.replace("temperature = 0.0", "temperature = 1.0");
    refused(
        &mut run_with(&hot, &[], folder.path()),
        &["decode.temperature", "greedy", "hint:"],
    );
    // Truncated: reported with its file, and the results folder has no complete cell.
    shorten(&file("test"));
    for words in [&["show"][..], &["verify"]] {
        refused(
            &mut trace(words, &file("test")),
            &["text-test.parquet", "damaged, cut short", "hint:"],
        );
    }
}

/// Older models have SentencePiece's own file, and no `tokenizer.json`.
#[test]
fn a_tokenizer_of_pieces_is_enough() {
    let folder = tempfile::tempdir().unwrap();
    let target = copy_of("L", folder.path());
    std::fs::remove_file(target.join("tokenizer.json")).unwrap();
    std::fs::remove_file(target.join("tokenizer_config.json")).unwrap();
    std::fs::write(
        target.join("tokenizer.model"),
        pieces_support::model(2, false),
    )
    .unwrap();
    for (command, option, said) in [
        ("record", "--target", "answered again"),
        ("text", "--tokenizer", "2 prompts are spelled"),
    ] {
        let file = folder.path().join(command);
        let model = [option, target.to_str().unwrap()];
        let task = ["--task", "mini-math", "--limit", "2", "--max-tokens", "4"];
        let words = [&[command][..], &model, &task, &["--out"]].concat();
        trace(&words, &file).assert().success();
        let words = [&["verify"][..], &model].concat();
        let verified = trace(&words, &file).assert().success();
        verified.stdout(contains(said));
    }
}

/// All pages of a folder.
fn every_page(folder: &Path) -> String {
    let files = std::fs::read_dir(folder).unwrap();
    let pages = files.map(|file| file.unwrap().path());
    let pages = pages.filter(|path| path.extension().is_some_and(|kind| kind == "md"));
    pages
        .map(|path| std::fs::read_to_string(path).unwrap())
        .collect()
}

#[test]
fn impossible_traces_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("never.parquet");
    refused(
        &mut record(&["--top", "8193"], &out),
        &["8193 tokens a position", "8192", "hint:"],
    );
    refused(&mut record(&["--top", "none"], &out), &["--top", "all"]);
    refused(
        &mut text(&["--smooth", "0.5"], &out),
        &["smooth = 0.5", "below 0.5"],
    );
    refused(&mut text(&["--order", "6"], &out), &["order = 6", "1 to 5"]);
    refused(
        &mut text(&["--field", "answer"], &out),
        &["--field answer", "--data-dir"],
    );
    refused(&mut text(&["--limit", "0"], &out), &["--limit"]);
    assert!(!out.exists());
    std::fs::write(&out, "text").unwrap();
    refused(
        &mut trace(&["show"], &out),
        &["never.parquet", "no trace", "hint:"],
    );
}
