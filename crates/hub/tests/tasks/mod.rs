//! The real tasks on a hub of the test, with made-up rows.
#![allow(dead_code, reason = "every test file uses its part")]

use std::path::Path;
use std::sync::Arc;

use hub::Hub;
use hub::datasets::{Datasets, Published, PublishedSplit, fingerprint};
use sha1::Digest as _;
use streams::DataSource;

use crate::hub_support::table::Table;
use crate::hub_support::{FakeHub, Repository};

pub fn gsm8k(hub: &FakeHub) {
    let rows = |half: &str, first: usize, count: usize| {
        let numbers = first..first + count;
        let questions = numbers
            .clone()
            .map(|i| format!("What is {i} and {i} in {half}?"));
        let answers = numbers.map(|i| format!("It is {}.\n#### 1,{:03}", 2 * i, 2 * i));
        Table::default()
            .texts("question", questions)
            .texts("answer", answers)
    };
    hub.add(
        "datasets/openai/gsm8k",
        Repository::default()
            .with("main/train/0000.parquet", rows("train", 0, 30).parquet())
            .with(
                "main/train/0001.parquet",
                rows("train", 30, 12).zstd().parquet(),
            )
            .with(
                "main/test/0000.parquet",
                rows("test", 0, 210).in_groups_of(100).parquet(),
            )
            .with("socratic/train/0000.parquet", "never asked for"),
    );
}

pub fn code(hub: &FakeHub) {
    let rows = |ids: std::ops::Range<i32>| -> Table {
        let count = ids.len();
        let text = ids.clone().map(|i| format!("Write function {i}.\r\nNow."));
        let tests = |i| vec![format!("assert f({i}) == 1"), "assert f(0) == 0".to_owned()];
        // As in the dataset: lists without entries, lists that are not there, columns in any order.
        let challenges = (0..count).map(|i| (i % 2 == 0).then(Vec::new));
        Table::default()
            .texts("code", vec!["def f(x):\r\n\treturn 1"; count])
            .lists("challenge_test_list", challenges)
            .numbers("task_id", ids.clone())
            .lists("test_list", ids.clone().map(|i| Some(tests(i))))
            .nullable_texts("test_setup_code", vec![None::<&str>; count])
            .texts("text", text)
    };
    hub.add(
        "datasets/google-research-datasets/mbpp",
        Repository::default()
            .with("full/prompt/0000.parquet", rows(1..3).parquet())
            .with(
                "full/test/0000.parquet",
                rows(11..20).zstd().in_groups_of(4).parquet(),
            )
            .with("full/validation/0000.parquet", rows(511..513).parquet())
            .with("full/train/0000.parquet", rows(601..608).zstd().parquet()),
    );
    let human = Table::default()
        .texts("task_id", ["HumanEval/0", "HumanEval/163"])
        .texts("prompt", ["def g():\n", "def h():\n"])
        .texts("canonical_solution", ["    pass\n", "    return 1\n"])
        .texts("test", ["check", "check"])
        .texts("entry_point", ["g", "h"]);
    hub.add(
        "datasets/openai/openai_humaneval",
        // The configuration has another name than expected.
        Repository::default().with("default/test/0000.parquet", human.parquet()),
    );
}

fn alpaca_id(parts: [&str; 3]) -> String {
    let digest = sha1::Sha1::digest(parts.join("\x1f"));
    format!("alpaca-{}", hex::encode(&digest[..6]))
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

/// Rows of Alpaca, the last one a repetition, and a split that also names a record which is not
/// there.
pub fn alpaca(hub: &FakeHub) -> PublishedSplit {
    let instructions = [
        "Name a colour.",
        "Add.",
        "Say hello.",
        "Rhyme.",
        "Name a colour.",
    ];
    let inputs = ["", "2 and 3", "", "cat", ""];
    let outputs = ["Blue.", "5", "Hello!", "hat", "Blue."];
    let table = Table::default()
        .texts("instruction", instructions)
        .texts("input", inputs)
        .texts("output", outputs);
    hub.add(
        "datasets/tatsu-lab/alpaca",
        Repository::default().with("default/train/0000.parquet", table.parquet()),
    );
    let id = |i: usize| alpaca_id([instructions[i], inputs[i], outputs[i]]);
    published(&[id(2)], &[id(1), "alpaca-000000000000".into(), id(0)])
}

/// Rows of XSum: one article found by its number, one by its words, one that only the large split
/// has.
pub fn xsum(hub: &FakeHub, with_train: bool) -> PublishedSplit {
    let half = |ids: &[&str]| {
        let documents = ids
            .iter()
            .map(|id| format!("Article {id} begins.\nIt Goes on – and ends.\n"));
        let summaries = ids.iter().map(|id| format!("Article {id}."));
        Table::default()
            .texts("document", documents)
            .texts("summary", summaries)
            .texts("id", ids.iter().copied())
            .parquet()
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

/// A data source whose tasks come from a hub.
pub fn stream_source(tasks: Datasets) -> DataSource {
    DataSource::from_source(Arc::new(tasks))
}

pub fn datasets(hub: &FakeHub, home: &Path) -> Datasets {
    Datasets::new(Hub::new(&hub.endpoint, home))
}
