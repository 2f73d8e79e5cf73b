//! The real tasks from a hub that the test runs itself, with made-up rows.

mod hub_support;

use std::path::Path;

use hub_support::{FakeHub, Repository, parquet};
use polars::prelude::{DataFrame, ListChunked, NamedFrom, Series, df};
use runner::hub::datasets::{Datasets, HubTask, Published, PublishedSplit, fingerprint};
use runner::hub::{Hub, HubError};
use runner::streams::{
    Corpus, CorpusSource, DataSource, PromptTemplate, Split, StreamError, StreamSpec,
};
use sha1::Digest as _;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn gsm8k(hub: &FakeHub) {
    let rows = |half: &str, first: usize, count: usize| {
        let numbers = first..first + count;
        let questions: Vec<String> = numbers
            .clone()
            .map(|i| format!("What is {i} and {i} in {half}?"))
            .collect();
        let answers: Vec<String> = numbers
            .map(|i| format!("It is {}.\n#### 1,{:03}", 2 * i, 2 * i))
            .collect();
        parquet(df!("question" => questions, "answer" => answers).unwrap())
    };
    hub.add(
        "datasets/openai/gsm8k",
        Repository::default()
            .with("main/train/0000.parquet", rows("train", 0, 30))
            .with("main/train/0001.parquet", rows("train", 30, 12))
            .with("main/test/0000.parquet", rows("test", 0, 210))
            .with("socratic/train/0000.parquet", "never asked for"),
    );
}

fn code(hub: &FakeHub) {
    let texts = |values: &[&str]| Series::new("".into(), values);
    let rows = |ids: std::ops::Range<i32>| -> Vec<u8> {
        let count = ids.len();
        let text: Vec<String> = ids
            .clone()
            .map(|i| format!("Write function {i}.\r\nNow."))
            .collect();
        let tests: ListChunked = ids
            .clone()
            .map(|i| Some(texts(&[&format!("assert f({i}) == 1"), "assert f(0) == 0"])))
            .collect();
        let none: ListChunked = (0..count).map(|_| Some(texts(&[]))).collect();
        let lists = [("test_list", tests), ("challenge_test_list", none)];
        let mut table = df!(
            "task_id" => ids.collect::<Vec<i32>>(),
            "text" => text,
            "code" => vec!["def f(x):\r\n\treturn 1"; count],
            "test_setup_code" => vec![""; count],
        )
        .unwrap();
        for (name, list) in lists {
            let mut column = polars::prelude::IntoSeries::into_series(list);
            column.rename(name.into());
            table.with_column(column.into()).unwrap();
        }
        parquet(table)
    };
    hub.add(
        "datasets/google-research-datasets/mbpp",
        Repository::default()
            .with("full/prompt/0000.parquet", rows(1..3))
            .with("full/test/0000.parquet", rows(11..20))
            .with("full/validation/0000.parquet", rows(511..513))
            .with("full/train/0000.parquet", rows(601..608)),
    );
    let human = df!(
        "task_id" => ["HumanEval/0", "HumanEval/163"],
        "prompt" => ["def g():\n", "def h():\n"],
        "canonical_solution" => ["    pass\n", "    return 1\n"],
        "test" => ["check", "check"],
        "entry_point" => ["g", "h"],
    )
    .unwrap();
    hub.add(
        "datasets/openai/openai_humaneval",
        // The configuration has another name than expected.
        Repository::default().with("default/test/0000.parquet", parquet(human)),
    );
}

fn alpaca_id(parts: [&str; 3]) -> String {
    let digest = sha1::Sha1::digest(parts.join("\x1f"));
    let hex: String = digest[..6].iter().map(|b| format!("{b:02x}")).collect();
    format!("alpaca-{hex}")
}

fn published(test: &[String], train: &[String]) -> PublishedSplit {
    let plain = |id: &String| Published {
        id: id.clone(),
        fingerprint: None,
    };
    PublishedSplit {
        test: test.iter().map(plain).collect(),
        train: train.iter().map(plain).collect(),
    }
}

/// Rows of Alpaca, the last one a repetition, and a split that also names a record which is not there.
fn alpaca(hub: &FakeHub) -> PublishedSplit {
    let instructions = [
        "Name a colour.",
        "Add.",
        "Say hello.",
        "Rhyme.",
        "Name a colour.",
    ];
    let inputs = ["", "2 and 3", "", "cat", ""];
    let outputs = ["Blue.", "5", "Hello!", "hat", "Blue."];
    let table: DataFrame =
        df!("instruction" => instructions, "input" => inputs, "output" => outputs).unwrap();
    hub.add(
        "datasets/tatsu-lab/alpaca",
        Repository::default().with("default/train/0000.parquet", parquet(table)),
    );
    let id = |i: usize| alpaca_id([instructions[i], inputs[i], outputs[i]]);
    published(&[id(2)], &[id(1), "alpaca-000000000000".into(), id(0)])
}

/// Articles: one known by number, one by its words, one that only the large split has.
fn xsum(hub: &FakeHub, with_train: bool) -> PublishedSplit {
    let half = |ids: &[&str]| {
        let documents: Vec<String> = ids
            .iter()
            .map(|id| format!("Article {id} begins.\nIt Goes on – and ends.\n"))
            .collect();
        let summaries: Vec<String> = ids.iter().map(|id| format!("Article {id}.")).collect();
        parquet(df!("document" => documents, "summary" => summaries, "id" => ids).unwrap())
    };
    let mut repository = Repository::default()
        .with("default/test/0000.parquet", half(&["11", "12", "13"]))
        .with("default/validation/0000.parquet", half(&["21"]));
    if with_train {
        repository = repository.with("default/train/0000.parquet", half(&["31", "32"]));
    }
    hub.add("datasets/EdinburghNLP/xsum", repository);
    let mut split = published(&["xsum-11".into()], &["xsum-21".into()]);
    split.train.push(Published {
        id: "xsum-h0123456789".into(),
        fingerprint: Some(fingerprint("article 12 begins. it goes on and ends.")),
    });
    if with_train {
        split.train.push(Published {
            id: "xsum-32".into(),
            fingerprint: None,
        });
    }
    split
}

fn datasets(hub: &FakeHub, home: &Path) -> Datasets {
    Datasets::new(Hub::new(&hub.endpoint, home))
}

fn ids(source: &DataSource, task: &str, split: Split) -> Result<Vec<String>, StreamError> {
    Ok(source
        .load(task, split)?
        .into_iter()
        .map(|p| p.id)
        .collect())
}

#[test]
fn gsm8k_is_downloaded_converted_and_kept() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    gsm8k(&hub);
    let source = DataSource::hub(datasets(&hub, home.path()));
    let train = source.load("gsm8k", Split::Train)?;
    assert_eq!(train.len(), 42);
    assert_eq!(train[30].id, "gsm8k-train-0030");
    assert_eq!(train[30].prompt, "What is 30 and 30 in train?");
    assert!(hub.requests().iter().all(|r| !r.contains("socratic")));
    let test = ids(&source, "gsm8k", Split::Test)?;
    assert_eq!(test.len(), 200);
    let rank = |id: &String| sha2::Sha256::digest(id.as_bytes());
    assert!(test.is_sorted_by_key(rank));
    let lines = std::fs::read_to_string(home.path().join("omnidraft/datasets/gsm8k/test.jsonl"))?;
    assert_eq!(lines.lines().count(), 210);
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap_or_default())?;
    assert_eq!(first["final_answer"], "1000");
    assert!(lines.starts_with("{\"id\":\"gsm8k-test-0000\",\"prompt\":"));
    // Nothing is asked of the hub again, and mini streams never need it.
    let again = DataSource::hub(datasets(&hub, home.path()));
    assert_eq!(ids(&again, "gsm8k", Split::Test)?, test);
    assert_eq!(ids(&again, "mini-math", Split::Test)?.len(), 60);
    assert!(hub.requests().is_empty());
    assert!(again.load("sums", Split::Test).is_err());
    Ok(())
}

#[test]
fn two_code_datasets_become_one_task() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    code(&hub);
    let source = DataSource::hub(datasets(&hub, home.path()));
    let mut all = source.load("mbpp_humaneval", Split::Test)?;
    assert_eq!(all.len(), 22 * 228 / 1138);
    all.extend(source.load("mbpp_humaneval", Split::Train)?);
    assert_eq!(all.len(), 22);
    let of = |id: &str| all.iter().find(|p| p.id == id).unwrap();
    let mbpp = of("mbpp-0512");
    assert_eq!(
        mbpp.prompt,
        "Write function 512.\nNow.\nYour code should pass these tests:\nassert f(512) == 1\nassert f(0) == 0"
    );
    assert_eq!(mbpp.reference, "def f(x):\n\treturn 1");
    assert_eq!(of("humaneval-163").reference, "    return 1\n");
    Ok(())
}

#[test]
fn alpaca_is_split_by_ids_and_repetitions_go() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    let split = alpaca(&hub);
    let tasks = datasets(&hub, home.path()).with_splits(split.clone(), PublishedSplit::xsum());
    let source = DataSource::hub(tasks);
    let train = source.load("alpaca", Split::Train)?;
    let prompts: Vec<&str> = train.iter().map(|p| p.prompt.as_str()).collect();
    assert_eq!(prompts, ["Add.\n\n2 and 3", "Name a colour."]);
    assert_eq!(
        ids(&source, "alpaca", Split::Test)?,
        [split.test[0].id.clone()]
    );
    // Pretraining may use the record that is in neither list, and the test record is reserved.
    let task = [CorpusSource::Task("alpaca".into())];
    let corpus = Corpus::load(&task, &source, &PromptTemplate::default(), 0.0)?;
    assert_eq!(corpus.documents().len(), 3);
    Ok(())
}

#[test]
fn articles_are_known_by_number_or_by_words() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    let split = xsum(&hub, true);
    let tasks = datasets(&hub, home.path()).with_splits(PublishedSplit::alpaca(), split);
    let source = DataSource::hub(tasks);
    let train = source.load("xsum", Split::Train)?;
    let known: Vec<&str> = train.iter().map(|p| p.id.as_str()).collect();
    assert_eq!(known, ["xsum-21", "xsum-h0123456789", "xsum-32"]);
    assert_eq!(train[1].reference, "Article 12.");
    assert!(
        train[1]
            .prompt
            .ends_with("ends.\n\nSummarize the above article in 1 sentence.")
    );
    assert!(hub.requests().iter().any(|r| r.contains("default/train")));
    Ok(())
}

#[test]
fn the_large_split_of_xsum_is_left_alone_if_it_can_be() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    let split = xsum(&hub, false);
    let tasks = datasets(&hub, home.path()).with_splits(PublishedSplit::alpaca(), split);
    assert_eq!(ids(&DataSource::hub(tasks), "xsum", Split::Train)?.len(), 2);
    Ok(())
}

#[test]
fn a_cut_connection_is_taken_up_where_it_broke() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    gsm8k(&hub);
    hub.cut("main/test/0000.parquet", 1);
    let tasks = datasets(&hub, home.path());
    tasks.prepare(HubTask::Gsm8k)?;
    let resumed = hub.requests().into_iter().any(|r| {
        let start = r.split("bytes=").nth(1).and_then(|r| r.strip_suffix('-'));
        r.contains("main/test") && start.is_some_and(|start| start != "0")
    });
    assert!(resumed, "the download began again");

    // A connection that stays bad ends the command; the next one continues.
    let home = tempfile::tempdir()?;
    hub.cut("main/test/0000.parquet", 3);
    let tasks = datasets(&hub, home.path());
    let error = tasks.prepare(HubTask::Gsm8k).unwrap_err();
    assert!(matches!(error, HubError::Interrupted { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("openai/gsm8k: main/test/0000.parquet")
    );
    assert!(!home.path().join("omnidraft/datasets").exists());
    hub.requests();
    tasks.prepare(HubTask::Gsm8k)?;
    let requests = hub.requests();
    assert!(
        requests.iter().all(|r| !r.contains("main/train")),
        "{requests:?}"
    );
    Ok(())
}

#[test]
fn a_part_that_does_not_fit_is_dropped() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    gsm8k(&hub);
    datasets(&hub, home.path()).prepare(HubTask::Gsm8k)?;
    let blobs = home.path().join("hub/datasets--openai--gsm8k/blobs");
    let blob = std::fs::read_dir(&blobs)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.extension().is_none());
    let blob = blob.ok_or("no blob")?;
    let content = std::fs::read(&blob)?;
    let attempt = |part: &[u8]| -> Result<Result<(), HubError>> {
        let home = tempfile::tempdir()?;
        let blobs = home.path().join("hub/datasets--openai--gsm8k/blobs");
        std::fs::create_dir_all(&blobs)?;
        let name = blob.file_name().unwrap_or_default();
        std::fs::write(blobs.join(name).with_extension("part"), part)?;
        Ok(datasets(&hub, home.path())
            .prepare(HubTask::Gsm8k)
            .map(|_| ()))
    };
    attempt(&content)?.expect("a whole part");
    attempt(&[content.clone(), content.clone()].concat())?.expect("too long a part");
    // Wrong bytes are found by their hash and do not stay.
    let wrong: Vec<u8> = content[..content.len() / 2].iter().map(|b| !b).collect();
    assert!(matches!(attempt(&wrong)?, Err(HubError::Damaged { .. })));
    Ok(())
}

#[test]
fn what_is_missing_or_closed_is_told_with_repository_and_file() -> Result {
    let told = |repository: Option<Repository>, parts: &[&str]| -> Result {
        let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
        if let Some(repository) = repository {
            hub.add("datasets/openai/gsm8k", repository);
        }
        let source = DataSource::hub(datasets(&hub, home.path()));
        let error = source.load("gsm8k", Split::Test).unwrap_err();
        let text = format!("{error}\n{}", error.hint().unwrap_or_default());
        for part in parts {
            assert!(text.contains(part), "{text}");
        }
        assert!(!home.path().join("omnidraft/datasets").exists());
        Ok(())
    };
    told(
        None,
        &["openai/gsm8k: list of files", "status 401", "HF_TOKEN"],
    )?;
    let file = "main/train/0000.parquet";
    let gated = Repository::default().with(file, "any").gated();
    told(
        Some(gated),
        &[
            "openai/gsm8k: main/train/0000.parquet",
            "401",
            "accept its terms",
        ],
    )?;
    let other = Repository::default().with("main/validation/0000.parquet", "any");
    told(
        Some(other),
        &["openai/gsm8k: has no main/train/*.parquet", "--data-dir"],
    )?;
    Ok(())
}

#[test]
fn tables_of_another_form_are_told() -> Result {
    let home = tempfile::tempdir()?;
    let attempt = |table: Vec<u8>| -> String {
        let hub = FakeHub::start();
        let repository = Repository::default()
            .with("main/train/0000.parquet", table.clone())
            .with("main/test/0000.parquet", table);
        hub.add("datasets/openai/gsm8k", repository);
        let home = home.path().join(hub.endpoint.replace([':', '/'], "-"));
        let error = datasets(&hub, &home).prepare(HubTask::Gsm8k).unwrap_err();
        assert!(error.hint().is_some());
        error.to_string()
    };
    let message = attempt(b"not parquet".to_vec());
    assert!(
        message.starts_with("openai/gsm8k: main/train/0000.parquet: "),
        "{message}"
    );
    let message = attempt(parquet(df!("question" => ["a"], "reply" => ["b"])?));
    assert!(message.contains("answer"), "{message}");
    let message = attempt(parquet(df!("question" => ["a"], "answer" => [1])?));
    assert!(
        message.contains("row 0: `answer` is not a text"),
        "{message}"
    );
    let empty: [&str; 0] = [];
    let message = attempt(parquet(df!("question" => empty, "answer" => empty)?));
    assert!(
        message.contains("no record of the train split"),
        "{message}"
    );
    Ok(())
}

#[test]
fn a_failing_hub_is_asked_again_before_giving_up() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    gsm8k(&hub);
    hub.fail_with(Some(503));
    let error = datasets(&hub, home.path())
        .prepare(HubTask::Gsm8k)
        .unwrap_err();
    assert!(
        matches!(error, HubError::Status { status: 503, .. }),
        "{error}"
    );
    assert_eq!(
        hub.requests()
            .iter()
            .filter(|r| r.contains("resolve"))
            .count(),
        3
    );
    Ok(())
}

#[test]
fn no_hub_at_all_is_told_quickly() -> Result {
    let home = tempfile::tempdir()?;
    // Nobody listens on a port that was just given back.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let source = DataSource::hub(Datasets::new(Hub::new(
        format!("http://{port}"),
        home.path(),
    )));
    let error = StreamSpec::new("xsum", Split::Test)
        .load(&source, 1)
        .unwrap_err();
    assert!(error.to_string().contains("EdinburghNLP/xsum"), "{error}");
    assert!(error.to_string().contains("cannot be reached"), "{error}");
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("HF_ENDPOINT"))
    );
    Ok(())
}
