//! Downloads that break off; files that are missing, closed or of another form.

use crate::hub_support;
use crate::tasks;

use hub::datasets::{Datasets, HubTask};
use hub::{FileFault, Hub, HubError};
use hub_support::table::Table;
use hub_support::{FakeHub, Repository};
use streams::{Split, StreamSpec};
use tasks::{datasets, gsm8k, stream_source};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

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
    let fault = error.fault();
    assert!(matches!(fault, Some(FileFault::Interrupted(_))), "{error}");
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
    // Wrong bytes are detected by the hash and removed.
    let wrong: Vec<u8> = content[..content.len() / 2].iter().map(|b| !b).collect();
    let error = attempt(&wrong)?.unwrap_err();
    assert!(matches!(error.fault(), Some(FileFault::Damaged)), "{error}");
    Ok(())
}

#[test]
fn what_is_missing_or_closed_is_told_with_repository_and_file() -> Result {
    let told = |repository: Option<Repository>, parts: &[&str]| -> Result {
        let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
        if let Some(repository) = repository {
            hub.add("datasets/openai/gsm8k", repository);
        }
        let source = stream_source(datasets(&hub, home.path()));
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
    let questions = || Table::default().texts("question", ["a", "b"]);
    let message = attempt(questions().texts("reply", ["b", "c"]).parquet());
    assert!(message.contains("answer"), "{message}");
    let not_a_text = |table: Table, row: usize| {
        let message = attempt(table.parquet());
        let expected = format!("row {row}: `answer` is not a text");
        assert!(message.contains(&expected), "{message}");
    };
    not_a_text(questions().numbers("answer", [1, 2]), 0);
    not_a_text(questions().nullable_texts("answer", [Some("1"), None]), 1);
    not_a_text(questions().lists("answer", [Some(vec![]), None]), 0);
    let empty: [&str; 0] = [];
    let table = Table::default()
        .texts("question", empty)
        .texts("answer", empty);
    let message = attempt(table.parquet());
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
        matches!(error.fault(), Some(FileFault::Status(503))),
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
    // No process listens on a port that was just released.
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let source = stream_source(Datasets::new(Hub::new(
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
