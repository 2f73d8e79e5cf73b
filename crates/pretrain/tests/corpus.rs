//! Documents to pretrain on: their form, their order, and that none is one of a test split.

mod support;

use std::path::{Path, PathBuf};

use models::PromptTemplate;
use pretrain::{Corpus, CorpusError, CorpusSource, Piece, is_held_out};
use streams::{DataSource, PaperSplit, StreamError};

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
    let documents = corpus.documents();
    assert_eq!(
        documents.len(),
        5,
        "the whole training file, not only the listed ids"
    );
    let text = documents[0].text();
    assert_eq!(text, "<|user|>\nask t1\n<|assistant|>\nanswer t1<|end|>");
    assert_eq!(&text[documents[0].response_start()..], "answer t1<|end|>");
    assert_eq!(documents[0].pieces().last(), Some(Piece::Markup("<|end|>")));
    let pieces: Vec<_> = documents[4].pieces().collect();
    assert_eq!(pieces, [Piece::Text("Some prose with <|end|> in it.")]);
    let order = |epoch| {
        corpus
            .epoch(3, epoch)
            .map(|d| d.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(order(0), order(0));
    assert!((1..9).any(|epoch| order(epoch) != order(0)));

    std::fs::write(&plain, "{\"id\":\"e2\",\"text\":\"leak\"}\n")?;
    let leak = Corpus::load(&sources, &source, &template, 0.0);
    assert!(
        matches!(leak, Err(CorpusError::Stream(StreamError::TestLeak { id, .. })) if id == "e2")
    );
    let none = Corpus::load(&[], &source, &template, 0.0);
    assert!(matches!(
        none,
        Err(CorpusError::Stream(StreamError::EmptyStream { .. }))
    ));
    let share = Corpus::load(&sources, &source, &template, 1.0);
    assert!(matches!(share, Err(CorpusError::BadHeldOut { .. })));
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
    assert_eq!(corpus.documents().len(), 7473 + 910 + 16978 + 4000 + 1651);
    // MBPP's own train file holds problems that the mixed split reserves for testing.
    let mbpp = [CorpusSource::Task("mbpp".into())];
    let mbpp = Corpus::load(&mbpp, &source, &template, 0.0);
    assert!(matches!(
        mbpp,
        Err(CorpusError::Stream(StreamError::TestLeak { .. }))
    ));
    Ok(())
}
