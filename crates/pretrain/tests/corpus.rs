//! Documents to pretrain on: their form. No document belongs to a test split.

use crate::support;

use std::path::{Path, PathBuf};

use models::PromptTemplate;
use pretrain::{Corpus, CorpusError, CorpusSource, Recorded, is_held_out};
use streams::{DataSource, PaperSplit, StreamError};
use trace::{Law, Record, Source, Template, TraceInfo, TraceWriter, Values};
use vocab_align::{TargetId, TokenId, Vocabulary};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// A task with four training records and two test records, one of which its split file reserves.
fn small_task(folder: &Path) -> Result {
    let task = folder.join("toy");
    std::fs::create_dir(&task)?;
    let line = |id: &str| {
        format!("{{\"id\":\"{id}\",\"prompt\":\"ask {id}\",\"reference\":\"answer {id}\"}}\n")
    };
    let train = ["t1", "t2", "t3", "t4"].map(line).concat();
    std::fs::write(task.join("train.jsonl"), train)?;
    std::fs::write(task.join("test.jsonl"), ["e1", "e2"].map(line).concat())?;
    let split = r#"{"train":["t3","t1","t4"],"test":["e2"]}"#;
    std::fs::write(task.join(PaperSplit::FILE), split)?;
    Ok(())
}

#[test]
fn corpus_documents_mark_templates_and_never_hold_test_ids() -> Result {
    let folder = tempfile::tempdir()?;
    small_task(folder.path())?;
    let plain = folder.path().join("plain.jsonl");
    std::fs::write(
        &plain,
        "{\"id\":\"p1\",\"text\":\"Some prose with <|end|> in it.\"}\n",
    )?;
    let source = DataSource::directory(folder.path());
    let template = PromptTemplate::default();
    let sources = [
        CorpusSource::Task("toy".into()),
        CorpusSource::Text("plain.jsonl".into()),
    ];
    let corpus = Corpus::load(&sources, &source, &template, 0.0)?;
    let documents = &corpus.training;
    assert_eq!(
        documents.len(),
        5,
        "the whole training file, not only the listed ids"
    );
    let text = documents[0].text();
    assert_eq!(text, "<|user|>\nask t1\n<|assistant|>\nanswer t1<|end|>");
    assert_eq!(documents[0].end_of_turn, "<|end|>");
    let prose = &documents[4];
    assert_eq!(prose.content, "Some prose with <|end|> in it.");
    assert!(prose.prompt.is_none() && prose.end_of_turn.is_empty());

    std::fs::write(&plain, "{\"id\":\"e2\",\"text\":\"leak\"}\n")?;
    let leak = Corpus::load(&sources, &source, &template, 0.0);
    assert!(
        matches!(leak, Err(CorpusError::Stream(StreamError::TestLeak { id, .. })) if id == "e2")
    );
    let none = Corpus::load(&[], &source, &template, 0.0);
    assert!(matches!(
        none,
        Err(CorpusError::Stream(StreamError::EmptyStream(_)))
    ));
    let share = Corpus::load(&sources, &source, &template, 1.0);
    assert!(matches!(share, Err(CorpusError::BadHeldOut(_))));
    Ok(())
}

#[test]
fn the_held_out_share_is_about_what_was_asked_and_only_grows() {
    let ids: Vec<String> = (0..4000).map(|i| format!("doc-{i}")).collect();
    let held = |share| {
        ids.iter()
            .filter(|id| is_held_out(id, share))
            .collect::<Vec<_>>()
    };
    assert!((330..470).contains(&held(0.1).len()), "{}", held(0.1).len());
    assert!(held(0.1).iter().all(|id| is_held_out(id, 0.2)));
    assert!(held(0.0).is_empty());
}

#[test]
fn no_test_prompt_of_the_real_tasks_is_pretrained_on() -> Result {
    let Some(folder) = support::real_tasks() else {
        return Ok(());
    };
    let source = DataSource::directory(folder);
    let template = PromptTemplate::default();
    let mut sources = ["gsm8k", "mbpp_humaneval", "alpaca", "xsum"]
        .map(|task| CorpusSource::Task(task.into()))
        .to_vec();
    sources.push(CorpusSource::Text(PathBuf::from("generic/books.jsonl")));
    let corpus = Corpus::load(&sources, &source, &template, 0.02)?;
    let documents = corpus.training.len() + corpus.held_out.len();
    assert_eq!(documents, 7473 + 910 + 16978 + 4000 + 1651);
    // MBPP's own train file holds problems that the mixed split reserves for testing.
    let mbpp = [CorpusSource::Task("mbpp".into())];
    let mbpp = Corpus::load(&mbpp, &source, &template, 0.0);
    assert!(matches!(
        mbpp,
        Err(CorpusError::Stream(StreamError::TestLeak { .. }))
    ));
    Ok(())
}

/// A recording of two answers to prompts of `toy`: one that ended, one that was cut off.
fn recording(folder: &Path, split: &str) -> Result<Recorded> {
    let tokenizer = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models/D");
    let json = tokenizer.join("tokenizer.json");
    let vocabulary: Vocabulary<TargetId> = Vocabulary::from_file(&json)?;
    let stop = vocabulary.encode_with_specials("</s>")?[0].get();
    let info = TraceInfo {
        format: trace::FORMAT,
        source: Source::Model {
            name: "toy".to_owned(),
            sha256: String::new(),
            weights: "f32".to_owned(),
        },
        task: "toy".to_owned(),
        split: split.to_owned(),
        tokenizer_sha256: trace::file_sha256(&json)?,
        template: Template::Plain,
        max_prompt_tokens: 8,
        vocab_size: vocabulary.len(),
        context: 100,
        stop: vec![stop],
        max_tokens: 20,
        tail: 1,
        top: 1,
        values: Values::LogProbs,
        temperature: 0.0,
        program: "test".to_owned(),
    };
    let file = folder.join(format!("{split}.parquet"));
    let mut writer = TraceWriter::open(&file, &info)?;
    for (id, answer, ended) in [("t1", "It is four.", true), ("t3", "It goes on", false)] {
        let mut ids: Vec<u32> = vocabulary
            .encode(answer)?
            .iter()
            .map(|id| id.get())
            .collect();
        if ended {
            ids.push(stop);
        }
        let mut law = Law::new(&info);
        for token in ids.iter().copied().chain([stop]) {
            law.push_top(&[(token, 0.0)]);
        }
        writer.push(&Record {
            id: id.to_owned(),
            prompt: id.to_owned(),
            prompt_ids: vec![ids[0], ids.len() as u32],
            answer: ids,
            tail: vec![stop],
            law,
        })?;
    }
    writer.finish()?;
    Ok(Recorded { file, tokenizer })
}

#[test]
fn recorded_answers_take_the_place_of_references() -> Result {
    let folder = tempfile::tempdir()?;
    small_task(folder.path())?;
    let source = DataSource::directory(folder.path());
    let template = PromptTemplate::default();
    let load = |recorded: &Recorded| {
        let sources = [CorpusSource::Trace(recorded.clone())];
        Corpus::load(&sources, &source, &template, 0.0)
    };
    let recorded = recording(folder.path(), "train")?;
    let corpus = load(&recorded)?;
    let texts = corpus.training.iter().map(pretrain::Document::text);
    let texts: Vec<String> = texts.collect();
    assert_eq!(
        texts,
        [
            "<|user|>\nask t1\n<|assistant|>\nIt is four.<|end|>",
            "<|user|>\nask t3\n<|assistant|>\nIt goes on",
        ]
    );
    let source_of = corpus.training.first().map(|document| &*document.source);
    assert_eq!(source_of, Some("toy, answers of D"));

    let says = |recorded: &Recorded, words: &str| {
        let error = load(recorded).unwrap_err();
        assert!(error.to_string().contains(words), "{error}");
        assert!(error.hint().is_some(), "{error}");
    };
    says(&recording(folder.path(), "test")?, "only those of `train`");
    let other = recorded.tokenizer.with_file_name("L");
    says(
        &Recorded {
            tokenizer: other,
            ..recorded.clone()
        },
        "is not the tokenizer it was recorded with",
    );
    std::fs::write(
        folder.path().join("toy/train.jsonl"),
        "{\"id\":\"t1\",\"prompt\":\"a\",\"reference\":\"b\"}\n",
    )?;
    std::fs::remove_file(folder.path().join("toy").join(PaperSplit::FILE))?;
    says(&recorded, "task `toy` has no prompt `t3`");
    Ok(())
}
