//! Conversion of Alpaca and XSum, the two tasks whose splits were published as lists of ids.

use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value};

use super::row::{Converted, Read, Record, Table};
use super::split::{Published, PublishedSplit, fingerprint, first_bytes};
use crate::HubError;

/// Instruction that follows an article.
const SUMMARIZE: &str = "\n\nSummarize the above article in 1 sentence.";

pub(super) fn alpaca(split: &PublishedSplit, read: &mut Read<'_>) -> Result<Converted, HubError> {
    let table = Table {
        repo: "tatsu-lab/alpaca",
        config: "default",
        split: "train",
        columns: &["instruction", "input", "output"],
    };
    let held_out: HashSet<&str> = split.test.iter().map(|record| record.id.as_str()).collect();
    let mut seen = HashSet::new();
    let (mut train, mut test) = (Vec::new(), Vec::new());
    read(&table, &mut |row| {
        let part = |field| Ok::<_, HubError>(row.text(field)?.trim());
        let (instruction, input) = (part("instruction")?, part("input")?);
        let output = part("output")?;
        let id: [u8; 6] = first_bytes(format!("{instruction}\x1f{input}\x1f{output}").as_bytes());
        let id = format!("alpaca-{}", hex::encode(id));
        // The dataset repeats some records, and a model cannot be given an empty prompt.
        if instruction.is_empty() || !seen.insert(id.clone()) {
            return Ok(());
        }
        let prompt = match input {
            "" => instruction.to_owned(),
            _ => format!("{instruction}\n\n{input}"),
        };
        let fields = [("instruction", instruction), ("input", input)]
            .map(|(name, text)| (name.to_owned(), Value::from(text)));
        let half = match held_out.contains(id.as_str()) {
            true => &mut test,
            false => &mut train,
        };
        half.push(Record {
            id,
            prompt,
            reference: output.to_owned(),
            fields: Map::from_iter(fields),
        });
        Ok(())
    })?;
    Ok(with_published_ids(
        "the published test and train ids, drawn from a random 9k subset by sha256(id); other records may be trained on",
        split,
        train,
        test,
    ))
}

pub(super) fn xsum(split: &PublishedSplit, read: &mut Read<'_>) -> Result<Converted, HubError> {
    let by_print = split.by_fingerprint();
    let mut wanted: HashSet<&str> = split.all().map(|record| record.id.as_str()).collect();
    let mut found = HashMap::new();
    // Nearly all are official test articles: the large train split is fetched only if need be.
    for official in ["test", "validation", "train"] {
        if wanted.is_empty() {
            break;
        }
        let table = Table {
            repo: "EdinburghNLP/xsum",
            config: "default",
            split: official,
            columns: &["document", "summary", "id"],
        };
        read(&table, &mut |row| {
            let document = row.text("document")?.trim();
            let number = row.text("id")?;
            let mut id = format!("xsum-{number}");
            if !wanted.contains(id.as_str()) {
                match by_print.get(&fingerprint(document)) {
                    Some(known) if wanted.contains(known) => id = (*known).to_owned(),
                    _ => return Ok(()),
                }
            }
            wanted.remove(id.as_str());
            let fields = [("bbc_id", number), ("official_split", official)]
                .map(|(name, text)| (name.to_owned(), Value::from(text)));
            let record = Record {
                id: id.clone(),
                prompt: format!("{document}{SUMMARIZE}"),
                reference: row.text("summary")?.trim().to_owned(),
                fields: Map::from_iter(fields),
            };
            found.insert(id, record);
            Ok(())
        })?;
    }
    let mut half = |records: &[Published]| -> Vec<Record> {
        let record = |record: &Published| found.remove(&record.id);
        records.iter().filter_map(record).collect()
    };
    let (test, train) = (half(&split.test), half(&split.train));
    Ok(with_published_ids(
        "the published test and train ids: official test articles with their own summaries by sha256(id), then others",
        split,
        train,
        test,
    ))
}

/// A converted task with the ids of the published split, less those that the hub does not have.
fn with_published_ids(
    rule: &'static str,
    split: &PublishedSplit,
    train: Vec<Record>,
    test: Vec<Record>,
) -> Converted {
    let present = |ids: &[Published], records: &[Record]| -> Vec<String> {
        let there: HashSet<&str> = records.iter().map(|record| record.id.as_str()).collect();
        let ids = ids.iter().map(|record| record.id.clone());
        ids.filter(|id| there.contains(id.as_str())).collect()
    };
    let (train_ids, test_ids) = (present(&split.train, &train), present(&split.test, &test));
    Converted {
        rule,
        lost: split.all().count() - train_ids.len() - test_ids.len(),
        train,
        test,
        train_ids,
        test_ids,
    }
}
