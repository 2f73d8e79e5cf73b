//! Ids and splits made from a hub's rows equal those of the published results. The real data are
//! used if the environment variable OMNIDRAFT_SHARED names their folder.

use crate::support;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use hub::datasets::{Converted, HubTask, PublishedSplit, Row, convert, fingerprint};
use serde_json::{Map, Value, json};
use support::real_tasks;

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;
type Line = Map<String, Value>;

const SUMMARIZE: &str = "\n\nSummarize the above article in 1 sentence.";

fn lines(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path)?;
    text.lines()
        .map(|line| Ok(serde_json::from_str(line)?))
        .collect()
}

fn both_halves(folder: &Path) -> Result<Vec<Line>> {
    let (train, test) = (
        lines(&folder.join("train.jsonl"))?,
        lines(&folder.join("test.jsonl"))?,
    );
    Ok([train, test].concat())
}

fn text<'a>(line: &'a Line, field: &str) -> &'a str {
    line.get(field).and_then(Value::as_str).unwrap_or_default()
}

fn split_lists(folder: &Path) -> Result<(Vec<String>, Vec<String>)> {
    #[derive(serde::Deserialize)]
    struct Lists {
        train: Vec<String>,
        test: Vec<String>,
    }
    let lists: Lists = serde_json::from_slice(&std::fs::read(folder.join("paper_split.json"))?)?;
    Ok((lists.train, lists.test))
}

/// Converts rows that are given by dataset and split.
fn converted(task: HubTask, mut tables: HashMap<(&str, &str), Vec<Line>>) -> Result<Converted> {
    let (alpaca, xsum) = (PublishedSplit::alpaca(), PublishedSplit::xsum());
    Ok(convert(task, &alpaca, &xsum, &mut |table, each| {
        let rows = tables
            .remove(&(table.repo, table.split))
            .unwrap_or_default();
        let mut rows = rows.into_iter().enumerate();
        rows.try_for_each(|(index, fields)| each(Row::new(table, "rows", index, fields)))
    })?)
}

/// Checks that the split is the shared one, and that every record of both has the same prompt and
/// reference.
fn same(folder: &Path, done: &Converted) -> Result {
    let (train, test) = split_lists(folder)?;
    assert_eq!(done.lost, 0);
    assert!(done.train_ids == train && done.test_ids == test);
    let records = done.train.iter().chain(&done.test);
    let records: HashMap<&str, _> = records.map(|record| (record.id.as_str(), record)).collect();
    for line in both_halves(folder)? {
        let id = text(&line, "id");
        let Some(record) = records.get(id) else {
            panic!("{id} is missing");
        };
        assert_eq!(record.prompt, text(&line, "prompt"), "{id}");
        assert_eq!(record.reference, text(&line, "reference"), "{id}");
    }
    Ok(())
}

fn object(value: Value) -> Line {
    value.as_object().cloned().unwrap_or_default()
}

#[test]
fn gsm8k() -> Result {
    let Some(folder) = real_tasks().map(|data| data.join("gsm8k")) else {
        return Ok(());
    };
    let rows = |name: &str, count: usize| -> Result<Vec<Line>> {
        let row = |line: &Line| json!({ "question": line["prompt"], "answer": line["reference"] });
        let known = lines(&folder.join(name))?;
        let known: BTreeMap<usize, Value> = known
            .iter()
            .filter_map(|line| {
                Some((
                    text(line, "id").rsplit_once('-')?.1.parse().ok()?,
                    row(line),
                ))
            })
            .collect();
        // The shared test file leaves some official records out, but their numbers count.
        let blank = json!({ "question": "?", "answer": "?" });
        let row = |i| object(known.get(&i).unwrap_or(&blank).clone());
        Ok((0..count).map(row).collect())
    };
    let tables = HashMap::from([
        (("openai/gsm8k", "train"), rows("train.jsonl", 7473)?),
        (("openai/gsm8k", "test"), rows("test.jsonl", 1319)?),
    ]);
    same(&folder, &converted(HubTask::Gsm8k, tables)?)
}

#[test]
fn mbpp_humaneval() -> Result {
    let Some(data) = real_tasks() else {
        return Ok(());
    };
    let mut tables = HashMap::new();
    for row in lines(&data.join("mbpp/raw/mbpp.jsonl"))? {
        let split = match row.get("task_id").and_then(Value::as_u64) {
            Some(..=10) => "prompt",
            Some(..=510) => "test",
            Some(..=600) => "validation",
            _ => "train",
        };
        let table = tables.entry(("google-research-datasets/mbpp", split));
        table.or_insert_with(Vec::new).push(row);
    }
    let mut human = lines(&data.join("humaneval/test.jsonl"))?;
    for row in &mut human {
        row.insert("canonical_solution".into(), row["reference"].clone());
    }
    tables.insert(("openai/openai_humaneval", "test"), human);
    same(
        &data.join("mbpp_humaneval"),
        &converted(HubTask::MbppHumaneval, tables)?,
    )
}

#[test]
fn alpaca() -> Result {
    let Some(folder) = real_tasks().map(|data| data.join("alpaca")) else {
        return Ok(());
    };
    let mut rows = both_halves(&folder)?;
    for row in &mut rows {
        row.insert("output".into(), row["reference"].clone());
    }
    let tables = HashMap::from([(("tatsu-lab/alpaca", "train"), rows)]);
    same(&folder, &converted(HubTask::Alpaca, tables)?)
}

#[test]
fn xsum() -> Result {
    let Some(folder) = real_tasks().map(|data| data.join("xsum")) else {
        return Ok(());
    };
    let rows: Vec<Line> = both_halves(&folder)?
        .iter()
        .map(|line| {
            let number = match text(line, "bbc_id") {
                "" => "0",
                number => number,
            };
            let document = text(line, "prompt").strip_suffix(SUMMARIZE);
            object(json!({ "document": document, "summary": line["reference"], "id": number }))
        })
        .collect();
    let tables = HashMap::from([(("EdinburghNLP/xsum", "test"), rows)]);
    same(&folder, &converted(HubTask::Xsum, tables)?)
}

/// The contents of the files of ids that the shared splits give.
fn id_files(data: &Path) -> Result<[(&'static str, Vec<u8>); 2]> {
    let file = |task: &str, entry: &dyn Fn(&str) -> Option<Vec<u8>>| -> Result<Vec<u8>> {
        let (train, test) = split_lists(&data.join(task))?;
        let mut bytes = u32::try_from(test.len())?.to_be_bytes().to_vec();
        for id in test.iter().chain(&train) {
            bytes.extend(entry(id).ok_or("an id of another form")?);
        }
        Ok(bytes)
    };
    let articles: HashMap<String, [u8; 5]> = both_halves(&data.join("xsum"))?
        .iter()
        .filter(|line| text(line, "id").starts_with("xsum-h"))
        .map(|line| {
            let prompt = text(line, "prompt");
            let document = prompt.strip_suffix(SUMMARIZE).unwrap_or(prompt);
            (text(line, "id").to_owned(), fingerprint(document))
        })
        .collect();
    let alpaca = |id: &str| hex::decode(id.strip_prefix("alpaca-")?).ok();
    let xsum = |id: &str| {
        if let Some(print) = articles.get(id) {
            let hash = hex::decode(id.strip_prefix("xsum-h")?).ok()?;
            return Some([&hash[..], print].concat());
        }
        let number: u64 = id.strip_prefix("xsum-")?.parse().ok()?;
        Some([&number.to_be_bytes()[3..], &[0; 5]].concat())
    };
    Ok([
        ("alpaca.ids", file("alpaca", &alpaca)?),
        ("xsum.ids", file("xsum", &xsum)?),
    ])
}

fn embedded(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/datasets")
        .join(name)
}

#[test]
fn the_embedded_ids_are_the_shared_ones() -> Result {
    let Some(data) = real_tasks() else {
        return Ok(());
    };
    for (name, bytes) in id_files(&data)? {
        assert!(std::fs::read(embedded(name))? == bytes, "{name} differs");
    }
    Ok(())
}

#[test]
#[ignore = "rewrites the embedded ids; run it after the shared splits changed"]
fn rewrite_the_embedded_ids() -> Result {
    let data = real_tasks().ok_or("there are no shared splits")?;
    for (name, bytes) in id_files(&data)? {
        std::fs::write(embedded(name), bytes)?;
    }
    Ok(())
}

#[test]
fn the_embedded_splits_have_the_papers_counts() {
    let counts = |split: PublishedSplit| {
        let mut ids: Vec<String> = split
            .test
            .iter()
            .chain(&split.train)
            .map(|r| r.id.clone())
            .collect();
        ids.sort_unstable();
        ids.dedup();
        (split.test.len(), split.train.len(), ids.len())
    };
    assert_eq!(counts(PublishedSplit::alpaca()), (100, 8000, 8100));
    assert_eq!(counts(PublishedSplit::xsum()), (100, 4000, 4100));
}

#[test]
fn fingerprints_ignore_what_sources_changed() {
    let one = fingerprint("The “first” line.\nAnd Sinn FÃ©in.");
    assert_eq!(one, fingerprint("the first line. and sinn fin"));
    assert_ne!(one, fingerprint("The second line."));
}
