//! Benchmarks as they are published: run, recorded, replayed and examined, conversations turn by turn.

use std::collections::BTreeMap;
use std::path::Path;

use predicates::str::contains;
use results::CellReader;

use super::support::{EXPERIMENT, omnidraft, refused, run_with};

/// A conversation of three turns and a question.
const QUESTIONS: &str = r#"{"question_id": 81, "category": "math", "turns": ["Tom has 3 apples. How many?", "And with 2 more?", "And after eating 4?"]}
{"question_id": 82, "category": "chat", "turns": ["Name a colour."]}
"#;

/// An experiment on the questions, in which every arm answers all of them.
fn experiment(target: &str) -> String {
    EXPERIMENT
        .replace("task = \"mini-math\"", "task = \"talk\"")
        .replace(
            "prompts = { train = 2, test = 2 }",
            "on_stream = \"all\"\nprompts = { train = \"all\" }",
        )
        .replace("target = \"models/L\"", target)
        .replace("[decode]", "[decode]\ntemperature = 0.0")
}

/// The folder of the data, and the questions in it.
fn data(folder: &Path) -> String {
    let task = folder.join("data/talk");
    std::fs::create_dir_all(&task).unwrap();
    std::fs::write(task.join("question.jsonl"), QUESTIONS).unwrap();
    folder.join("data").display().to_string()
}

/// By arm and prompt: tokens of the prompt, and the hash of the answer.
fn answers(folder: &Path) -> BTreeMap<(String, String), (u32, String)> {
    let cell = folder.join("out/stream/task=talk,seed=1");
    let rows = CellReader::open(&cell).unwrap().prompts().unwrap();
    let row = |row: results::PromptRow| {
        let key = (row.arm, row.prompt_id);
        (key, (row.prompt_tokens, row.tokens_hash))
    };
    rows.into_iter().map(row).collect()
}

#[test]
fn a_conversation_is_asked_turn_by_turn_and_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let with = ["--data-dir", &*data];
    run_with(&experiment("target = \"models/L\""), &with, folder.path())
        .assert()
        .success();
    let live = answers(folder.path());
    assert_eq!(live.len(), 8);
    let at = |arm: &str, id: &str| &live[&(arm.to_owned(), id.to_owned())];
    for id in ["81", "81#2", "81#3", "82"] {
        // Greedy answers are the target's own, and so every arm is asked the same.
        assert_eq!(at("autoregressive", id), at("SpD_DM", id), "{id}");
    }
    let tokens = |id: &str| at("SpD_DM", id).0;
    // A later turn holds the turn before it and its answer.
    assert!(tokens("81#2") > tokens("81") + 4, "{live:?}");
    assert!(tokens("81#3") > tokens("81#2") + 4, "{live:?}");

    let trace = folder.path().join("talk-train.parquet");
    let record = |extra: &[&str]| {
        let mut command = omnidraft();
        command.args(["trace", "record", "--target", "models/L", "--task", "talk"]);
        command.args(with).args(["--max-tokens", "8", "--out"]);
        command.arg(&trace).args(extra).assert().success()
    };
    // Stopped in the middle of a conversation, it goes on with the answers before.
    record(&["--stop-after", "2"]);
    record(&[]).stdout(contains("4 prompts"));
    let target = format!(
        "target = {{ trace = \"{}\", tokenizer = \"models/L\" }}",
        trace.display()
    );
    std::fs::remove_dir_all(folder.path().join("out")).unwrap();
    run_with(&experiment(&target), &with, folder.path())
        .assert()
        .success();
    assert_eq!(answers(folder.path()), live);
}

#[test]
fn a_file_of_questions_is_examined_and_its_faults_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let data = data(folder.path());
    let file = folder.path().join("data/talk/question.jsonl");
    let mut command = omnidraft();
    command.args(["doctor", "--target", "models/L", "--drafter", "models/D"]);
    command.args(["--prompts", "3", "--max-tokens", "4", "--json", "--data"]);
    let done = command.arg(&file).assert().success();
    done.stdout(contains("\"prompts\": 3"));

    // One file is both halves: what is streamed cannot be held out.
    let both = experiment("target = \"models/L\"").replace(
        "prompts = { train = \"all\" }",
        "prompts = { train = \"all\", test = \"all\" }",
    );
    let mut command = run_with(&both, &["--data-dir", &*data], folder.path());
    let parts = [
        "4 of the 4 held-out prompts of `talk`",
        "81#2",
        "paper_split.json",
    ];
    refused(&mut command, &parts);

    // An experiment for it streams it alone.
    let mut command = omnidraft();
    let name = folder.path().join("talk");
    command
        .arg("new")
        .arg(&name)
        .args(["--task", "talk", "--data-dir", &*data]);
    command.assert().success();
    let text = std::fs::read_to_string(folder.path().join("talk.toml")).unwrap();
    assert!(text.contains("prompts = { train = 4 }"), "{text}");
    assert!(!text.contains("test ="), "{text}");

    std::fs::write(
        &file,
        format!("{QUESTIONS}{{\"question_id\": 83, \"turns\": [1]}}\n"),
    )
    .unwrap();
    let mut command = run_with(
        &experiment("target = \"models/L\""),
        &["--data-dir", &*data],
        folder.path(),
    );
    let parts = [
        "question.jsonl:3: field `turns` is not a list of texts",
        "hint:",
    ];
    refused(&mut command, &parts);
}
