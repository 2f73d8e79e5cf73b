//! Conversion of a hub's rows to records with ids and splits. Tasks whose split follows a rule are
//! converted here.

use std::collections::HashSet;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use super::HubTask;
use super::published::{alpaca, xsum};
use super::row::{Converted, Read, Record, Row, Table};
use super::split::PublishedSplit;
use crate::HubError;

/// Number of held-out records of GSM8K: the first ones by hash of id.
const GSM8K_TEST: usize = 200;
/// Held-out records of the mixed code task and all its records. The first ones by hash of id are
/// held out.
const CODE_TEST: (usize, usize) = (228, 1138);

/// Converts a task's tables to records.
///
/// # Errors
/// Those of `read`; a row of another form; a split of which the hub has no record.
pub fn convert(
    task: HubTask,
    alpaca_split: &PublishedSplit,
    xsum_split: &PublishedSplit,
    read: &mut Read<'_>,
) -> Result<Converted, HubError> {
    let (repo, converted) = match task {
        HubTask::Gsm8k => ("openai/gsm8k", gsm8k(read)?),
        HubTask::MbppHumaneval => ("google-research-datasets/mbpp", code(read)?),
        HubTask::Alpaca => ("tatsu-lab/alpaca", alpaca(alpaca_split, read)?),
        HubTask::Xsum => ("EdinburghNLP/xsum", xsum(xsum_split, read)?),
    };
    for (half, ids) in [
        ("train", &converted.train_ids),
        ("test", &converted.test_ids),
    ] {
        if ids.is_empty() {
            return Err(HubError::NoSplit {
                repo: repo.to_owned(),
                half,
                task: task.name(),
            });
        }
    }
    Ok(converted)
}

fn gsm8k(read: &mut Read<'_>) -> Result<Converted, HubError> {
    let mut half = |split: &'static str| {
        let table = Table {
            repo: "openai/gsm8k",
            config: "main",
            split,
            columns: &["question", "answer"],
        };
        let mut records = Vec::new();
        read(&table, &mut |row| {
            let answer = row.text("answer")?;
            let last = answer.rsplit_once("####").map_or("", |(_, last)| last);
            let number = last.trim().replace(',', "");
            records.push(Record {
                id: format!("gsm8k-{split}-{:04}", records.len()),
                prompt: row.text("question")?.to_owned(),
                reference: answer.to_owned(),
                fields: Map::from_iter([("final_answer".to_owned(), number.into())]),
            });
            Ok(())
        })?;
        Ok::<_, HubError>(records)
    };
    let (train, test) = (half("train")?, half("test")?);
    let mut test_ids = by_hash(&test);
    test_ids.truncate(GSM8K_TEST);
    Ok(Converted {
        rule: "train: all official train ids in file order; test: first 200 of the official test ids by sha256(id)",
        train_ids: train.iter().map(|record| record.id.clone()).collect(),
        train,
        test,
        test_ids,
        lost: 0,
    })
}

fn code(read: &mut Read<'_>) -> Result<Converted, HubError> {
    let mut records = Vec::new();
    for split in ["train", "test", "validation", "prompt"] {
        let table = Table {
            repo: "google-research-datasets/mbpp",
            config: "full",
            split,
            columns: &[
                "task_id",
                "text",
                "code",
                "test_list",
                "test_setup_code",
                "challenge_test_list",
            ],
        };
        read(&table, &mut |row| {
            records.push(mbpp(&row, split)?);
            Ok(())
        })?;
    }
    let table = Table {
        repo: "openai/openai_humaneval",
        config: "openai_humaneval",
        split: "test",
        columns: &[
            "task_id",
            "prompt",
            "canonical_solution",
            "test",
            "entry_point",
        ],
    };
    read(&table, &mut |row| {
        let task_id = row.text("task_id")?;
        let number = task_id.rsplit_once('/').and_then(|(_, n)| n.parse().ok());
        let number: u32 = number
            .ok_or_else(|| row.wrong(format!("`task_id` is `{task_id}`, without a number")))?;
        records.push(Record {
            id: format!("humaneval-{number:03}"),
            prompt: row.text("prompt")?.to_owned(),
            reference: row.text("canonical_solution")?.to_owned(),
            fields: row.take(&["task_id", "entry_point", "test"]),
        });
        Ok(())
    })?;
    let mut ids = by_hash(&records);
    let (tests, of) = CODE_TEST;
    let mut train_ids = ids.split_off(records.len() * tests / of);
    let mut test_ids = ids;
    train_ids.sort_unstable();
    test_ids.sort_unstable();
    let held_out: HashSet<&String> = test_ids.iter().collect();
    records.sort_by(|a, b| a.id.cmp(&b.id));
    let (test, train) = records
        .into_iter()
        .partition(|record| held_out.contains(&record.id));
    Ok(Converted {
        rule: "MBPP and HumanEval together; test: first 228 of 1138 by sha256(id); train: the others",
        train,
        test,
        train_ids,
        test_ids,
        lost: 0,
    })
}

fn mbpp(row: &Row, split: &str) -> Result<Record, HubError> {
    let number = row.fields.get("task_id").and_then(Value::as_u64);
    let number = number.ok_or_else(|| row.wrong("`task_id` is not a number".to_owned()))?;
    let tests = row.fields.get("test_list").and_then(Value::as_array);
    let tests: Option<Vec<&str>> =
        tests.and_then(|tests| tests.iter().map(Value::as_str).collect());
    let tests = tests.ok_or_else(|| row.wrong("`test_list` is not a list of texts".to_owned()))?;
    let mut prompt = row.lines("text")?;
    prompt += "\nYour code should pass these tests:";
    for test in tests {
        prompt.push('\n');
        prompt += &test.replace("\r\n", "\n");
    }
    let mut fields = row.take(&[
        "task_id",
        "text",
        "test_list",
        "test_setup_code",
        "challenge_test_list",
    ]);
    fields.insert("official_split".to_owned(), split.into());
    Ok(Record {
        id: format!("mbpp-{number:04}"),
        prompt,
        reference: row.lines("code")?,
        fields,
    })
}

/// Ids, sorted by their SHA-256.
fn by_hash(records: &[Record]) -> Vec<String> {
    let mut ids: Vec<String> = records.iter().map(|record| record.id.clone()).collect();
    ids.sort_by_cached_key(|id| Sha256::digest(id.as_bytes()));
    ids
}
