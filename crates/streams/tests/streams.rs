//! Loading, selecting and ordering prompts; errors of bad files.

use crate::support;

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use streams::{
    DATA_ENV, DataSource, PaperSplit, Prompt, Split, StreamError, StreamSpec, TEST_ORDER_SEED,
    load_texts, parse_prompts,
};
use support::real_tasks;

/// The first training prompts of the stream `mini-math` under the seeds 1 and 2.
const PINNED: [[&str; 4]; 2] = [
    [
        "mini-math-train-0334",
        "mini-math-train-0393",
        "mini-math-train-0321",
        "mini-math-train-0046",
    ],
    [
        "mini-math-train-0229",
        "mini-math-train-0346",
        "mini-math-train-0139",
        "mini-math-train-0315",
    ],
];

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn parse(bytes: &[u8]) -> Result<Vec<Prompt>, StreamError> {
    parse_prompts(bytes, Path::new("some.jsonl"), "task")
}

fn ids(prompts: &[Prompt]) -> Vec<&str> {
    prompts.iter().map(|p| p.id.as_str()).collect()
}

#[track_caller]
fn complaint(bytes: &[u8]) -> String {
    match parse(bytes) {
        Ok(prompts) => panic!("accepted: {prompts:?}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn records_are_read_in_file_order_and_extra_fields_ignored() -> Result {
    let first = "\u{feff}{\"id\":\"b\",\"prompt\":\"p\",\"reference\":\"r\",\"x\":[1]}\r\n\n";
    let second = "{\"id\":\"a\",\"prompt\":\" q\"}\n";
    let prompts = parse([first, second].concat().as_bytes())?;
    assert_eq!(ids(&prompts), ["b", "a"]);
    assert_eq!(
        (prompts[0].reference.as_str(), prompts[1].reference.as_str()),
        ("r", "")
    );
    assert_eq!(prompts[1].prompt, " q", "white space belongs to the prompt");
    assert_eq!(prompts[0].task, "task");
    Ok(())
}

#[test]
fn every_fault_names_file_and_line() {
    let good = b"{\"id\":\"a\",\"prompt\":\"p\"}\n".as_slice();
    let with = |line: &[u8]| complaint(&[good, line].concat());
    let cases: [(&[u8], &str); 9] = [
        (b"{\"id\":\"b\",\"prom", "some.jsonl:2: not a JSON object"),
        (b"[1]", "some.jsonl:2: is a JSON array"),
        (b"{\"id\":\"b\"}", "some.jsonl:2: field `prompt` is missing"),
        (b"{\"prompt\":\"b\"}", "some.jsonl:2: field `id` is missing"),
        (
            b"{\"id\":\"b\",\"prompt\":\" \\n\"}",
            "some.jsonl:2: field `prompt` is empty",
        ),
        (
            b"{\"id\":7.5,\"prompt\":\"p\"}",
            "some.jsonl:2: field `id` is not a text",
        ),
        (
            b"{\"id\":\"b\",\"prompt\":\"p\",\"reference\":1}",
            "some.jsonl:2: field `reference` is not a text",
        ),
        (
            b"\n{\"id\":\"a\",\"prompt\":\"p\"}",
            "some.jsonl:3: id `a` was already used on line 1",
        ),
        (
            b"{\"id\":\"\xff\"}",
            "some.jsonl:2: invalid UTF-8 at byte 7 of the line",
        ),
    ];
    for (line, expected) in cases {
        let message = with(line);
        assert!(message.starts_with(expected), "{message}");
    }
    assert_eq!(complaint(b"\n \n"), "some.jsonl: the stream is empty");
}

#[test]
fn a_truncated_file_is_called_truncated() {
    let error = parse(b"{\"id\":\"a\",\"prompt\":\"p").err();
    let hint = error.and_then(|e| e.hint()).unwrap_or_default();
    assert!(hint.contains("truncated"), "{hint}");
}

/// A data directory with one task. Three of its four training records and one of its two test
/// records are in the split.
fn small_task() -> Result<tempfile::TempDir> {
    let folder = tempfile::tempdir()?;
    let task = folder.path().join("toy");
    std::fs::create_dir(&task)?;
    let line = |id: &str| {
        format!("{{\"id\":\"{id}\",\"prompt\":\"ask {id}\",\"reference\":\"answer {id}\"}}\n")
    };
    std::fs::write(
        task.join("train.jsonl"),
        ["t1", "t2", "t3", "t4"].map(line).concat(),
    )?;
    std::fs::write(task.join("test.jsonl"), ["e1", "e2"].map(line).concat())?;
    let split = r#"{"rule":"by hand","train":["t3","t1","t4"],"test":["e2"]}"#;
    std::fs::write(task.join(PaperSplit::FILE), split)?;
    Ok(folder)
}

#[test]
fn a_split_file_decides_membership_and_order() -> Result {
    let folder = small_task()?;
    let source = DataSource::directory(folder.path());
    assert_eq!(ids(&source.load("toy", Split::Train)?), ["t3", "t1", "t4"]);
    assert_eq!(ids(&source.load("toy", Split::Test)?), ["e2"]);
    let data = folder.path().join("toy/train.jsonl");
    let split = PaperSplit::load(&data.with_file_name(PaperSplit::FILE))?;
    let texts = split.pick(
        "train",
        load_texts(&data, "reference")?,
        |text| &text.id,
        "toy",
    )?;
    let texts = texts.iter().map(|text| (&*text.id, &*text.text));
    let listed = [
        ("t3", "answer t3"),
        ("t1", "answer t1"),
        ("t4", "answer t4"),
    ];
    assert_eq!(texts.collect::<Vec<_>>(), listed);
    Ok(())
}

#[test]
fn unknown_ids_lists_and_overlaps_are_refused() -> Result {
    let folder = small_task()?;
    let file = folder.path().join("toy").join(PaperSplit::FILE);
    let source = DataSource::directory(folder.path());
    let data = folder.path().join("toy/train.jsonl");
    let texts = load_texts(&data, "reference")?;
    let error = PaperSplit::load(&file)?.pick("dev", texts, |text| &text.id, "toy");
    assert!(matches!(
        error,
        Err(StreamError::UnknownList { list, known, .. })
            if list == "dev" && known == ["test", "train"]
    ));
    let load_with = |split: &str| -> Result<_> {
        std::fs::write(&file, split)?;
        Ok(source.load("toy", Split::Train))
    };
    let error = load_with(r#"{"train":["t1","t9"],"test":["e2"]}"#)?;
    assert!(matches!(error, Err(StreamError::UnknownId { id, .. }) if id == "t9"));
    let error = load_with(r#"{"train":["t1","e2"],"test":["e2"]}"#)?;
    assert!(matches!(error, Err(StreamError::TestLeak { id, .. }) if id == "e2"));
    let error = load_with(r#"{"train":["t1","t1"],"test":["e2"]}"#)?;
    assert!(matches!(error, Err(StreamError::RepeatedId { id, .. }) if id == "t1"));
    let error = load_with(r#"{"train":["t1""#)?;
    assert!(matches!(error, Err(StreamError::MalformedSplit { .. })));
    Ok(())
}

#[test]
fn missing_tasks_come_with_a_hint() {
    let error = DataSource::embedded().load("gsm8k", Split::Train).err();
    let hint = error.and_then(|e| e.hint()).unwrap_or_default();
    assert!(
        hint.contains("--data-dir") && hint.contains(DATA_ENV),
        "{hint}"
    );
    let nowhere = DataSource::directory("/nonexistent");
    let error = nowhere.load("gsm8k", Split::Train);
    assert!(matches!(error, Err(StreamError::MissingTask { .. })));
    assert!(
        nowhere.load("mini-math", Split::Train).is_ok(),
        "embedded streams need no folder"
    );
    for name in ["", "..", "a/b", "../toy", ".hidden"] {
        let error = nowhere.load(name, Split::Train);
        assert!(matches!(error, Err(StreamError::BadTaskName(_))), "{name}");
    }
}

#[test]
fn order_depends_on_the_seed_and_the_limit_cuts_after_it() -> Result {
    let source = DataSource::embedded();
    let spec = StreamSpec::new("mini-chat", Split::Train).shuffled();
    let first = spec.load(&source, 1)?;
    assert_eq!(first, spec.load(&source, 1)?);
    assert_ne!(first, spec.load(&source, 2)?);
    let members: HashSet<&str> = ids(&first).into_iter().collect();
    assert_eq!(members.len(), 400, "a permutation");
    assert_eq!(spec.limit(7).load(&source, 1)?, first[..7]);
    let plain = StreamSpec::new("mini-chat", Split::Train);
    assert_eq!(plain.load(&source, 1)?, plain.load(&source, 2)?);
    let none = plain.limit(0).load(&source, 1);
    assert!(matches!(none, Err(StreamError::EmptyStream(_))));
    Ok(())
}

#[test]
fn a_returning_task_continues_its_stream() -> Result {
    let source = DataSource::embedded();
    for (split, available) in [(Split::Train, 400), (Split::Test, 60)] {
        let whole = StreamSpec::new("mini-math", split).shuffled();
        let all = whole.load(&source, 3)?;
        assert_eq!(all.len(), available);
        let part = |skip, limit| StreamSpec {
            skip,
            limit,
            ..whole.clone()
        };
        let late = available - 10;
        assert_eq!(part(20, Some(5)).load(&source, 3)?, all[20..25]);
        assert_eq!(part(late, None).load(&source, 3)?, all[late..]);
        for (skip, limit) in [(late, Some(11)), (available, None), (usize::MAX, Some(1))] {
            let error = part(skip, limit).load(&source, 3);
            assert!(matches!(
                error,
                Err(StreamError::StreamExhausted { available: a, .. }) if a == available
            ));
        }
    }
    Ok(())
}

#[test]
fn the_order_of_training_prompts_is_pinned() -> Result {
    let first = |seed| -> Result<Vec<String>> {
        let spec = StreamSpec::new("mini-math", Split::Train).shuffled();
        assert_eq!(spec.order(seed), Some(seed));
        let prompts = spec.limit(4).load(&DataSource::embedded(), seed)?;
        Ok(prompts.into_iter().map(|p| p.id).collect())
    };
    assert_eq!(first(1)?, PINNED[0]);
    assert_eq!(first(2)?, PINNED[1]);
    let plain = StreamSpec::new("mini-math", Split::Train);
    assert_eq!(plain.order(1), None);
    Ok(())
}

#[test]
fn held_out_prompts_come_in_one_order_for_all_seeds() -> Result {
    let source = DataSource::embedded();
    let spec = StreamSpec::new("mini-news", Split::Test);
    let all = spec.load(&source, 1)?;
    assert_eq!(spec.order(7), Some(TEST_ORDER_SEED));
    assert_eq!(all, spec.load(&source, 2)?);
    assert_eq!(all, spec.clone().shuffled().load(&source, 3)?);
    assert_eq!(spec.limit(20).load(&source, 4)?, all[..20], "a prefix");
    let file = source.load("mini-news", Split::Test)?;
    assert_ne!(all, file);
    let members: HashSet<&str> = ids(&all).into_iter().collect();
    assert_eq!(members, ids(&file).into_iter().collect());
    Ok(())
}

/// Number of prompts of the kind that begins with `kind` among the first `taken` held-out ones.
fn of_kind(source: &DataSource, task: &str, kind: &str, taken: usize) -> Result<usize> {
    let prompts = StreamSpec::new(task, Split::Test)
        .limit(taken)
        .load(source, 1)?;
    assert_eq!(prompts.len(), taken);
    Ok(prompts.iter().filter(|p| p.id.starts_with(kind)).count())
}

#[test]
fn a_few_held_out_prompts_stand_for_a_split_that_lists_one_kind_first() -> Result {
    let folder = tempfile::tempdir()?;
    let kinds = (0..30).map(|i| format!("rare-{i}"));
    let ids: Vec<String> = kinds
        .chain((0..198).map(|i| format!("often-{i}")))
        .collect();
    let lines = |ids: &[String]| -> String {
        let line = |id: &String| format!("{{\"id\":\"{id}\",\"prompt\":\"ask\"}}\n");
        ids.iter().map(line).collect()
    };
    // The split comes from a split file, or from the task's own files.
    for (task, split) in [("listed", true), ("plain", false)] {
        let task = folder.path().join(task);
        std::fs::create_dir(&task)?;
        std::fs::write(task.join("test.jsonl"), lines(&ids))?;
        if split {
            let split = serde_json::json!({ "train": ["t"], "test": ids });
            std::fs::write(task.join(PaperSplit::FILE), split.to_string())?;
        }
    }
    let source = DataSource::directory(folder.path());
    for task in ["listed", "plain"] {
        // 30 of 228: about one of eight, give or take three standard deviations.
        for (taken, fair) in [(50, 1..14), (100, 5..22), (228, 30..31)] {
            let rare = of_kind(&source, task, "rare-", taken)?;
            assert!(fair.contains(&rare), "{rare} of {taken}");
        }
    }
    Ok(())
}

#[test]
fn a_few_held_out_prompts_of_the_real_code_task_are_a_mixture() -> Result {
    let Some(folder) = real_tasks() else {
        return Ok(());
    };
    let source = DataSource::directory(folder);
    for (taken, fair) in [(50, 1..14), (100, 5..22), (228, 30..31)] {
        let rare = of_kind(&source, "mbpp_humaneval", "humaneval-", taken)?;
        assert!(fair.contains(&rare), "{rare} of {taken}");
    }
    Ok(())
}

#[test]
fn the_real_tasks_have_the_papers_counts() -> Result {
    let Some(folder) = real_tasks() else {
        return Ok(());
    };
    let source = DataSource::directory(folder);
    for (task, train, test) in [
        ("gsm8k", 7473, 200),
        ("mbpp_humaneval", 910, 228),
        ("alpaca", 8000, 100),
        ("xsum", 4000, 100),
    ] {
        let (trained, tested) = (
            source.load(task, Split::Train)?,
            source.load(task, Split::Test)?,
        );
        assert_eq!((trained.len(), tested.len()), (train, test), "{task}");
        let trained: HashSet<&str> = ids(&trained).into_iter().collect();
        assert!(tested.iter().all(|p| !trained.contains(p.id.as_str())));
    }
    Ok(())
}

#[test]
fn a_folder_named_by_the_caller_wins_over_the_environment() {
    let source = DataSource::resolve(Some(PathBuf::from("elsewhere")));
    assert_eq!(source.data_dir(), Some(Path::new("elsewhere")));
}
