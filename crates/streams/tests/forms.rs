//! Files of published benchmarks: their own fields, conversations turn by turn, faults with their line.

use std::path::Path;

use streams::{
    DataSource, Prompt, Split, StreamError, StreamSpec, Text, load_texts, parse_prompts,
};

const MT_BENCH: &str = r#"{"question_id": 81, "category": "writing", "turns": ["Write a poem.", "Make it shorter."]}
{"question_id": "82", "category": "math", "turns": ["2 + 2?", "And twice that?", "Why?"], "reference": ["4", "8"]}
{"question_id": 83, "category": "qa", "turns": ["Who?"], "reference": "somebody", "multiturn": false}
"#;

fn read(lines: &str) -> Result<Vec<Prompt>, StreamError> {
    parse_prompts(lines.as_bytes(), Path::new("question.jsonl"), "bench")
}

fn complaint(line: &str) -> String {
    let error = read(&format!(
        "{{\"question_id\": 1, \"turns\": [\"a\"]}}\n{line}\n"
    ))
    .unwrap_err();
    assert!(error.hint().is_some(), "{error}");
    error.to_string()
}

#[test]
fn a_turn_is_a_prompt_that_knows_what_was_asked_before() {
    let prompts = read(MT_BENCH).unwrap();
    let ids: Vec<&str> = prompts.iter().map(|prompt| &*prompt.id).collect();
    assert_eq!(ids, ["81", "81#2", "82", "82#2", "82#3", "83"]);
    assert_eq!(prompts[1].earlier, ["Write a poem."]);
    assert_eq!(prompts[4].earlier, ["2 + 2?", "And twice that?"]);
    let references: Vec<&str> = prompts.iter().map(|prompt| &*prompt.reference).collect();
    assert_eq!(references, ["", "", "4", "8", "", ""]);
    // A single question serialises as it always did: inputs of runs keep their hash.
    let alone = serde_json::to_string(&prompts[5]).unwrap();
    assert!(!alone.contains("earlier"), "{alone}");
}

#[test]
fn code_and_news_are_read_by_their_own_fields() {
    let lines = r#"{"task_id": "HumanEval/0", "prompt": "def f():\n", "entry_point": "f", "canonical_solution": "    return 1\n", "test": ""}
{"task_id": 11, "text": "Write g.", "code": "def g():\r\n    pass", "test_list": ["assert g()", "assert not g()"]}
{"task_id": 12, "prompt": "Write h.", "code": "h = 1", "test_list": []}
{"id": "cnn-1", "article": "Something happened. ", "highlights": "It happened."}
{"id": 5, "prompt": "plain", "turns": "not read"}
"#;
    let prompts = read(lines).unwrap();
    let found: Vec<(&str, &str)> = prompts.iter().map(|p| (&*p.id, &*p.prompt)).collect();
    let tests = "\nYour code should pass these tests:";
    let mbpp = format!("Write g.{tests}\nassert g()\nassert not g()");
    let sanitised = format!("Write h.{tests}");
    assert_eq!(
        found,
        [
            ("HumanEval/0", "def f():\n"),
            ("11", &*mbpp),
            ("12", &*sanitised),
            (
                "cnn-1",
                "Something happened.\n\nSummarize the above article in 3 sentences."
            ),
            ("5", "plain"),
        ]
    );
    assert_eq!(prompts[0].reference, "    return 1\n");
    assert_eq!(prompts[1].reference, "def g():\r\n    pass");
    assert_eq!(prompts[3].reference, "It happened.");
}

#[test]
fn faults_of_benchmarks_name_file_line_and_field() {
    for (line, what) in [
        (r#"{"question_id": 2}"#, "field `prompt` is missing"),
        (r#"{"turns": ["a"]}"#, "field `id` is missing"),
        (
            r#"{"question_id": 1, "turns": ["b"]}"#,
            "id `1` was already used on line 1",
        ),
        (
            r#"{"question_id": 2, "turns": "a"}"#,
            "field `turns` is not a list of texts",
        ),
        (
            r#"{"question_id": 2, "turns": ["a", 7]}"#,
            "field `turns` is not a list of texts",
        ),
        (
            r#"{"question_id": 2, "turns": []}"#,
            "field `turns` is empty",
        ),
        (
            r#"{"question_id": 2, "turns": ["a", " "]}"#,
            "field `turns` is empty",
        ),
        (
            r#"{"question_id": 2.5, "turns": ["a"]}"#,
            "field `question_id` is not a text or a whole number",
        ),
        (
            r#"{"question_id": 2, "turns": ["FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE USING X"]}"#,
            "must be fetched elsewhere",
        ),
        (
            r#"{"task_id": 2, "text": "a", "test_list": {}}"#,
            "field `test_list` is not a list of texts",
        ),
        (
            r#"{"task_id": 2, "text": " ", "test_list": []}"#,
            "field `text` is empty",
        ),
        (
            r#"{"id": 2, "article": 3}"#,
            "field `article` is not a text",
        ),
    ] {
        let said = complaint(line);
        assert!(
            said.starts_with("question.jsonl:2: ") && said.contains(what),
            "{said}"
        );
    }
}

#[test]
fn one_file_is_both_halves_and_conversations_stay_whole() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("mt_bench");
    std::fs::create_dir(&task).unwrap();
    let data = DataSource::directory(folder.path());
    let load = |split| data.load("mt_bench", split);
    assert!(matches!(
        load(Split::Test),
        Err(StreamError::MissingTask { .. })
    ));
    std::fs::write(task.join("question.jsonl"), MT_BENCH).unwrap();
    assert_eq!(load(Split::Train).unwrap(), load(Split::Test).unwrap());

    // In any order, a conversation's turns follow each other.
    for seed in 0..5 {
        let spec = StreamSpec::new("mt_bench", Split::Train).shuffled();
        let prompts = spec.load(&data, seed).unwrap();
        assert_eq!(prompts.len(), 6);
        for (index, prompt) in prompts.iter().enumerate() {
            let before = &prompts[index - prompt.earlier.len()..index];
            let asked: Vec<&String> = before.iter().map(|prompt| &prompt.prompt).collect();
            assert_eq!(asked, prompt.earlier.iter().collect::<Vec<_>>());
        }
    }

    let split = r#"{"train": ["83", "81"], "test": ["82"]}"#;
    std::fs::write(task.join("paper_split.json"), split).unwrap();
    let ids = |split| -> Vec<String> {
        load(split)
            .unwrap()
            .into_iter()
            .map(|prompt| prompt.id)
            .collect()
    };
    assert_eq!(ids(Split::Train), ["83", "81", "81#2"]);
    assert_eq!(ids(Split::Test), ["82", "82#2", "82#3"]);

    std::fs::write(task.join("more.jsonl"), MT_BENCH).unwrap();
    let several = load(Split::Test).unwrap_err().to_string();
    assert!(several.contains("more.jsonl, question.jsonl"), "{several}");
    std::fs::write(task.join("test.jsonl"), MT_BENCH).unwrap();
    assert_eq!(ids(Split::Test), ["82", "82#2", "82#3"]);
    assert!(matches!(
        load(Split::Train),
        Err(StreamError::MissingTask { .. })
    ));
}

#[test]
fn the_file_of_a_split_is_found_in_every_form() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("bench");
    std::fs::create_dir(&task).unwrap();
    let data = DataSource::directory(folder.path());
    assert!(matches!(
        data.file("bench", Split::Train),
        Err(StreamError::MissingTask { .. })
    ));
    for form in ["json.gz", "json", "jsonl.gz", "jsonl"] {
        let file = task.join(format!("train.{form}"));
        std::fs::write(&file, "").unwrap();
        let found = data.file("bench", Split::Train).unwrap();
        assert_eq!(found.as_deref(), Some(&*file));
    }
    let embedded = data.file("mini-math", Split::Train).unwrap();
    assert_eq!(embedded, None);
}

#[test]
fn texts_of_a_benchmark_are_told_by_its_own_ids() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("HumanEval.jsonl");
    std::fs::write(
        &file,
        "{\"task_id\": \"HumanEval/3\", \"prompt\": \"def f():\"}\n",
    )
    .unwrap();
    let texts = load_texts(&file, "prompt").unwrap();
    let expected = Text {
        id: "HumanEval/3".to_owned(),
        text: "def f():".to_owned(),
    };
    assert_eq!(texts, [expected]);
}
