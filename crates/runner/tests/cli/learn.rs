//! `learn`: a drafter learns from logs and traces, into a state that is exported and served.

use std::fs;
use std::path::Path;

use predicates::prelude::*;
use predicates::str::contains;
use serde_json::{Value, json};

use super::support::{files, omnidraft, refused, repository};

fn learn(log: &Path, state: &Path) -> assert_cmd::Command {
    let mut command = omnidraft();
    command.arg("learn").arg("--from").arg(log);
    command.arg("--target").arg(repository().join("models/L"));
    command.arg("--drafter").arg(repository().join("models/D"));
    command.arg("--state").arg(state);
    command
}

fn write(path: &Path, lines: &[Value]) {
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    fs::write(path, lines.join("\n") + "\n").unwrap();
}

/// The same question and answer, as often as an update needs.
fn texts(count: usize) -> Vec<Value> {
    let line = |i| json!({"prompt": format!("Add {i} and 3."), "answer": format!("The sum of {i} and 3 is {}.", i + 3)});
    (0..count).map(line).collect()
}

#[test]
fn text_alone_is_learnt_and_the_state_goes_on_and_is_exported() {
    let folder = tempfile::tempdir().unwrap();
    let (log, state) = (folder.path().join("log.jsonl"), folder.path().join("state"));
    let page = folder.path().join("page.md");
    write(&log, &texts(12));
    let mut command = learn(&log, &state);
    command
        .args(["--passes", "8", "--held-out", "0.25"])
        .arg("--page")
        .arg(&page);
    let said = command.assert().success();
    let table = String::from_utf8(said.get_output().stdout.clone()).unwrap();
    // Text that follows one pattern is easily learnt: more of it is accepted afterwards.
    let lengths: Vec<f64> = table
        .lines()
        .filter(|line| line.starts_with("| ") && !line.contains("answers"))
        .map(|line| {
            let cell = line.split('|').nth(4).unwrap().trim();
            cell.split(' ').next().unwrap().parse().unwrap()
        })
        .collect();
    assert_eq!(lengths.len(), 5, "{table}");
    assert!(lengths[4] > 1.2 * lengths[0], "{table}");
    assert!(fs::read_to_string(page).unwrap().contains("| 72 |"));

    let mut again = learn(&log, &state);
    again.assert().success();
    let out = folder.path().join("model");
    let mut export = omnidraft();
    export
        .arg("export")
        .arg(&state)
        .args(["--to", "hf", "--out"])
        .arg(&out);
    export.assert().success();
    let card = fs::read_to_string(out.join("README.md")).unwrap();
    assert!(
        card.contains("| answers drafted for meanwhile | 82 |"),
        "{card}"
    );
}

/// Parts of a state cannot be fetched again.
#[test]
fn a_damaged_state_has_a_hint() {
    let folder = tempfile::tempdir().unwrap();
    let (log, state) = (folder.path().join("log.jsonl"), folder.path().join("state"));
    write(&log, &texts(2));
    learn(&log, &state).assert().success();
    let generation = state.join(fs::read_to_string(state.join("current")).unwrap());
    let own = fs::read_dir(generation.join("learnt")).unwrap().next();
    let weights = own.unwrap().unwrap().path().join("weights.safetensors");
    let hint = "hint: put back a copy of the state";
    fs::write(&weights, "cut").unwrap();
    refused(&mut learn(&log, &state), &["weights.safetensors", hint]);
    fs::remove_file(&weights).unwrap();
    refused(&mut learn(&log, &state), &["weights.safetensors", hint]);
    let description = generation.join("state.json");
    let text = fs::read_to_string(&description).unwrap();
    let huge = text.replace("\"blocks\":0", "\"blocks\":99999999");
    assert_ne!(huge, text);
    fs::write(&description, huge).unwrap();
    refused(
        &mut learn(&log, &state),
        &["state.json: damaged: part", hint],
    );
    fs::remove_file(&description).unwrap();
    refused(&mut learn(&log, &state), &["state.json: damaged", hint]);
}

#[test]
fn the_same_answers_are_learnt_to_the_same_bits() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    write(&log, &texts(8));
    let tables = ["a", "b"].map(|name| {
        let said = learn(&log, &folder.path().join(name)).assert().success();
        let text = String::from_utf8(said.get_output().stdout.clone()).unwrap();
        text.lines().take(7).map(str::to_owned).collect::<Vec<_>>()
    });
    assert_eq!(tables[0], tables[1]);
    let [a, b] = ["a", "b"].map(|name| {
        let mut learnt = files(&folder.path().join(name));
        learnt.retain(|path, _| path.ends_with("weights.safetensors"));
        learnt.into_values().collect::<Vec<_>>()
    });
    assert!(!a.is_empty() && a == b);
}

#[test]
fn answers_of_another_file_are_held_out() {
    let folder = tempfile::tempdir().unwrap();
    let (log, state) = (folder.path().join("log.jsonl"), folder.path().join("state"));
    let (test, page) = (
        folder.path().join("test.jsonl"),
        folder.path().join("page.md"),
    );
    write(&log, &texts(4));
    write(&test, &texts(3));
    let mut command = learn(&log, &state);
    command.arg("--held-out-from").arg(&test);
    let mut both = learn(&log, &state);
    both.args(["--held-out", "0.5"]).arg("--held-out-from");
    both.arg(&test).assert().code(2);
    command.arg("--page").arg(&page);
    command
        .assert()
        .success()
        .stderr(contains("test.jsonl: 3 answers"));
    let page = fs::read_to_string(page).unwrap();
    assert!(
        page.contains("3 held-out answers after so many of 4"),
        "{page}"
    );
}

#[test]
fn logs_of_both_endpoints_are_read_with_their_probabilities() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    let chat = json!({
        "request": {"messages": [{"role": "user", "content": "Add 2 and 3."}], "temperature": 0.7},
        "response": {"choices": [{
            "message": {"role": "assistant", "content": "5"},
            "finish_reason": "stop",
            "logprobs": {"content": [{
                "token": "5", "bytes": [53], "logprob": -0.1,
                "top_logprobs": [
                    {"token": "5", "bytes": [53], "logprob": -0.1},
                    {"token": "6", "bytes": [54], "logprob": -3.0},
                    {"token": "token_id:99999", "logprob": -4.0},
                ],
            }]},
        }]},
    });
    let completion = json!({
        "prompt": "1 2 3", "temperature": 0.0,
        "choices": [{
            "text": " 4", "finish_reason": "length",
            "logprobs": {"tokens": ["token_id:260"], "token_logprobs": [-0.2], "top_logprobs": [{"token_id:260": -0.2}]},
        }],
    });
    let strange = json!({
        "messages": [{"role": "user", "content": "Hi"}],
        "choices": [{
            "message": {"content": "Hello"},
            "logprobs": {"content": [{"token": "\u{10ffff}no such token", "logprob": -0.1}]},
        }],
    });
    let tool = json!({"messages": [{"role": "user", "content": "Hi"}], "choices": [{"message": {"content": null}}]});
    let turns = json!({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]});
    write(&log, &[chat, completion, strange, tool, turns]);
    let mut command = learn(&log, &folder.path().join("state"));
    command.args(["--held-out", "0"]);
    command.assert().success().stderr(
        contains("4 answers, 2 with log-probabilities, 3 drawn")
            .and(contains("of 1 name tokens that the target does not have"))
            .and(contains("in 1 some alternatives are tokens"))
            .and(contains("1 without text")),
    );
}

/// Of the target only the text is read: it may be one that this program does not decode.
#[test]
fn a_target_of_an_unknown_kind_is_learnt_from() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log.jsonl");
    write(&log, &texts(2));
    // This `=` is in the path, not between a name and a path.
    let target = folder.path().join("a=b/novel");
    fs::create_dir_all(&target).unwrap();
    models::copy_text(&repository().join("models/L"), &target).unwrap();
    fs::write(target.join("config.json"), r#"{"model_type": "novel"}"#).unwrap();
    let from = |target: &Path, state: &str| {
        let mut command = omnidraft();
        command.arg("learn").arg("--from").arg(&log);
        command.arg("--target").arg(target);
        command.args(["--drafter", "models/D", "--state"]);
        command.arg(folder.path().join(state));
        command
    };
    from(&target, "state").assert().success();
    let absent = folder.path().join("nowhere");
    let parts = ["nowhere: no such model folder", "hint:"];
    refused(&mut from(&absent, "none"), &parts);
    assert!(!folder.path().join("none").exists());
}

#[test]
fn a_trace_is_learnt_from() {
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("L.parquet");
    let mut record = omnidraft();
    record
        .args(["trace", "record", "--target"])
        .arg(repository().join("models/L"));
    record.args([
        "--task",
        "mini-math",
        "--limit",
        "4",
        "--max-tokens",
        "24",
        "--out",
    ]);
    record.arg(&trace).assert().success();
    let mut command = learn(&trace, &folder.path().join("state"));
    command
        .assert()
        .success()
        .stderr(contains("4 answers, 4 with log-probabilities, 0 drawn"));
}

#[test]
fn bad_logs_are_named_by_their_line() {
    let folder = tempfile::tempdir().unwrap();
    let (log, state) = (folder.path().join("log.jsonl"), folder.path().join("state"));
    let good = texts(1)[0].to_string();
    for (line, what) in [
        ("{", "EOF while parsing an object at column 1"),
        ("[1]", "no JSON object"),
        (r#"{"answer": "5"}"#, "has no prompt"),
        (r#"{"prompt": "Add"}"#, "has no answer"),
        (
            r#"{"prompt": "a", "choices": [{"text": "b", "logprobs": {"tokens": ["b"], "token_logprobs": [0.5]}}]}"#,
            "0.5 is no log-probability",
        ),
        (
            r#"{"prompt": "a", "choices": [{"text": "b", "logprobs": {"tokens": ["b"], "token_logprobs": [-0.1], "top_logprobs": [{"b": -0.1, "c": -0.1}]}}]}"#,
            "add up to 1.81",
        ),
        (
            r#"{"prompt": "a", "answer": "b", "temperature": "hot"}"#,
            "temperature: \"hot\" is no number",
        ),
        (
            r#"{"prompt": "a", "answer": "b", "temperature": -1}"#,
            "temperature: -1 is no number",
        ),
    ] {
        fs::write(&log, format!("{good}\n\n{line}\n")).unwrap();
        refused(&mut learn(&log, &state), &["log.jsonl:3:", what]);
    }
    refused(
        &mut learn(&folder.path().join("none.jsonl"), &state),
        &["none.jsonl"],
    );
    fs::write(&log, "\n").unwrap();
    refused(
        &mut learn(&log, &state),
        &["no answer to learn from", "log.jsonl: 0 answers"],
    );
    let held_out = folder.path().join("held-out.jsonl");
    fs::write(&held_out, "").unwrap();
    // As editors of Windows write it.
    fs::write(&log, format!("\u{feff}{good}\n")).unwrap();
    refused(
        learn(&log, &state).arg("--held-out-from").arg(&held_out),
        &["no held-out answer", "held-out.jsonl: 0 answers"],
    );
    write(&log, &texts(2));
    refused(
        learn(&log, &state).args(["--held-out", "1"]),
        &["--held-out 1"],
    );
    for (option, value, bound) in [
        ("--passes", "0", "at least 1"),
        ("--k", "65", "at most 64"),
        ("--learning-rate", "1e9", "from 0 to 1"),
    ] {
        let must = format!("must be {bound}");
        refused(learn(&log, &state).args([option, value]), &[option, &must]);
    }
    // Two answers so many times would be none at all, counted in 64 bits.
    refused(
        learn(&log, &state).args(["--held-out", "0", "--passes", "9223372036854775808"]),
        &["--passes 9223372036854775808: must be at most 4294967295"],
    );
    for threads in ["0", "99999"] {
        refused(
            learn(&log, &state).args(["--threads", threads]),
            &["--threads", "is not in 1..=1024"],
        );
    }
    refused(
        learn(&log, &state).args(["--page", "no/such/folder/page.md"]),
        &["there is no folder no/such/folder"],
    );
    for (option, value, message) in [
        ("--learn-blocks", "99", "the last 99 blocks are meant"),
        ("--adapter-rank", "999", "a LoRA rank of 999 is outside"),
    ] {
        refused(
            learn(&log, &state).args([option, value]),
            &[option, message],
        );
    }
    // No call above has left a state behind.
    assert!(!state.exists());
}
