//! The real tasks, downloaded from a hub that the test runs itself and converted.

use crate::hub_support;
use crate::tasks;

use hub::datasets::PublishedSplit;
use hub_support::FakeHub;
use sha2::Digest as _;
use streams::{DataSource, Split, StreamError};
use tasks::{alpaca, code, datasets, gsm8k, stream_source, xsum};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

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
    let source = stream_source(datasets(&hub, home.path()));
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
    let again = stream_source(datasets(&hub, home.path()));
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
    let source = stream_source(datasets(&hub, home.path()));
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
    let source = stream_source(tasks);
    let train = source.load("alpaca", Split::Train)?;
    let prompts: Vec<&str> = train.iter().map(|p| p.prompt.as_str()).collect();
    assert_eq!(prompts, ["Add.\n\n2 and 3", "Name a colour."]);
    assert_eq!(
        ids(&source, "alpaca", Split::Test)?,
        [split.test[0].id.clone()]
    );
    // Pretraining may use the record that is in neither list, and the test record is reserved.
    assert_eq!(source.load_training_pool("alpaca")?.len(), 3);
    assert!(source.test_ids()?.contains_key(&split.test[0].id));
    Ok(())
}

#[test]
fn articles_are_known_by_number_or_by_words() -> Result {
    let (hub, home) = (FakeHub::start(), tempfile::tempdir()?);
    let split = xsum(&hub, true);
    let tasks = datasets(&hub, home.path()).with_splits(PublishedSplit::alpaca(), split);
    let source = stream_source(tasks);
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
    assert_eq!(ids(&stream_source(tasks), "xsum", Split::Train)?.len(), 2);
    Ok(())
}
