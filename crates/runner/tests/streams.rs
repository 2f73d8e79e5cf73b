//! Loading, selecting, ordering and scheduling prompts; what bad files are told.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use runner::streams::{
    Corpus, CorpusSource, DATA_ENV, DataSource, IdSelector, PaperSplit, Piece, Prompt,
    PromptTemplate, Rendered, Split, StreamError, StreamSpec, is_held_out, load_prompts,
    load_texts, parse_prompts,
};

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
        (b"[1]", "some.jsonl:2: not a JSON object"),
        (b"{\"id\":\"b\"}", "some.jsonl:2: field `prompt` is missing"),
        (b"{\"prompt\":\"b\"}", "some.jsonl:2: field `id` is missing"),
        (
            b"{\"id\":\"b\",\"prompt\":\" \\n\"}",
            "some.jsonl:2: field `prompt` is empty",
        ),
        (
            b"{\"id\":7,\"prompt\":\"p\"}",
            "some.jsonl:2: field `id` is not a string",
        ),
        (
            b"{\"id\":\"b\",\"prompt\":\"p\",\"reference\":1}",
            "some.jsonl:2: field `reference` is not a string",
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

/// A data directory with one task: three of its four training records and one of two test records
/// are in the split.
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
    let selector: IdSelector = "paper_split.json:train".parse()?;
    let selected = selector.select(load_prompts(&data, "toy")?, &data)?;
    assert_eq!(ids(&selected), ["t3", "t1", "t4"]);
    let texts = selector.select_texts(load_texts(&data, "reference")?, &data)?;
    assert_eq!(texts[0], ("t3".to_owned(), "answer t3".to_owned()));
    Ok(())
}

#[test]
fn unknown_ids_lists_and_overlaps_are_refused() -> Result {
    let folder = small_task()?;
    let file = folder.path().join("toy").join(PaperSplit::FILE);
    let source = DataSource::directory(folder.path());
    let data = folder.path().join("toy/train.jsonl");
    let selector: IdSelector = "paper_split.json:dev".parse()?;
    let error = selector.select(load_prompts(&data, "toy")?, &data);
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
        assert!(
            matches!(error, Err(StreamError::BadTaskName { .. })),
            "{name}"
        );
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
    assert!(matches!(none, Err(StreamError::EmptyStream { .. })));
    Ok(())
}

#[test]
fn stream_specs_refuse_unknown_keys() {
    let good = "task = 'x'\nsplit = 'test'\nlimit = 3\nshuffle = true";
    assert!(toml::from_str::<StreamSpec>(good).is_ok());
    assert!(toml::from_str::<StreamSpec>("task = 'x'\nshufle = true").is_err());
}

#[test]
fn a_returning_task_continues_its_stream() -> Result {
    let source = DataSource::embedded();
    let whole = StreamSpec::new("mini-math", Split::Test).shuffled();
    let all = whole.load(&source, 3)?;
    let part = |skip, limit| StreamSpec {
        skip,
        limit,
        ..whole.clone()
    };
    assert_eq!(part(20, Some(5)).load(&source, 3)?, all[20..25]);
    assert_eq!(part(50, None).load(&source, 3)?, all[50..]);
    for (skip, limit) in [(50, Some(11)), (60, None), (usize::MAX, Some(1))] {
        let error = part(skip, limit).load(&source, 3);
        assert!(matches!(
            error,
            Err(StreamError::StreamExhausted { available: 60, .. })
        ));
    }
    Ok(())
}

fn words(rendered: &Rendered) -> Result<usize, StreamError> {
    Ok(rendered.text().split_whitespace().count())
}

fn budget(max_prompt_tokens: usize) -> PromptTemplate {
    PromptTemplate {
        max_prompt_tokens,
        ..PromptTemplate::default()
    }
}

#[test]
fn long_prompts_keep_head_and_instruction_and_fit() -> Result {
    let prompts = DataSource::embedded().load("mini-news", Split::Test)?;
    for max in 2..60 {
        for prompt in prompts.iter().take(5) {
            let fitted = budget(max).fit(&prompt.prompt, words)?;
            let body = &fitted.rendered.body;
            assert!(words(&fitted.rendered)? <= max);
            assert_eq!(fitted.dropped_bytes, prompt.prompt.len() - body.len());
            if max >= 16 {
                let instruction = "\n\nSummarize the above article in 1 sentence.";
                let head = body
                    .strip_suffix(instruction)
                    .ok_or("the instruction was cut")?;
                assert!(prompt.prompt.starts_with(head) && !head.is_empty());
                assert_eq!(words(&fitted.rendered)?, max, "no room is wasted");
            }
        }
    }
    let error = budget(1).fit("a b c", words);
    assert!(matches!(
        error,
        Err(StreamError::PromptBudget { needed: 2, .. })
    ));
    Ok(())
}

#[test]
fn without_paragraphs_the_last_sentence_or_nothing_is_kept() -> Result {
    let fit = |text: &str| -> Result<String> { Ok(budget(8).fit(text, words)?.rendered.body) };
    assert_eq!(
        fit("One two three four five six. How many now?")?,
        "One two three How many now?"
    );
    assert_eq!(
        fit("one two three four five six seven")?,
        "one two three four five six"
    );
    let bytes = |r: &Rendered| Ok::<_, StreamError>(r.body.len());
    let body = budget(7).fit("ééééééé", bytes)?.rendered.body;
    assert_eq!(body, "ééé", "cut between characters, never inside one");
    Ok(())
}

#[test]
fn corpus_documents_mark_templates_and_never_hold_test_ids() -> Result {
    let folder = small_task()?;
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
    assert!(matches!(leak, Err(StreamError::TestLeak { id, .. }) if id == "e2"));
    let none = Corpus::load(&[], &source, &template, 0.0);
    assert!(matches!(none, Err(StreamError::EmptyStream { .. })));
    let share = Corpus::load(&sources, &source, &template, 1.0);
    assert!(matches!(share, Err(StreamError::BadHeldOut { .. })));
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
fn the_real_tasks_have_the_papers_counts() -> Result {
    if std::env::var_os(DATA_ENV).is_none() {
        println!("skipped: {DATA_ENV} is not set");
        return Ok(());
    }
    let source = DataSource::resolve(None)?;
    let counts = [
        ("gsm8k", 7473, 200),
        ("mbpp_humaneval", 910, 228),
        ("alpaca", 8000, 100),
        ("xsum", 4000, 100),
    ];
    for (task, train, test) in counts {
        let (trained, tested) = (
            source.load(task, Split::Train)?,
            source.load(task, Split::Test)?,
        );
        assert_eq!((trained.len(), tested.len()), (train, test), "{task}");
        let trained: HashSet<&str> = ids(&trained).into_iter().collect();
        assert!(tested.iter().all(|p| !trained.contains(p.id.as_str())));
    }
    let mut sources = counts
        .map(|(task, ..)| CorpusSource::Task(task.into()))
        .to_vec();
    sources.push(CorpusSource::Text(PathBuf::from("generic/books.jsonl")));
    let template = PromptTemplate::default();
    let corpus = Corpus::load(&sources, &source, &template, 0.02)?;
    assert_eq!(corpus.documents().len(), 7473 + 910 + 16978 + 4000 + 1651);
    // MBPP's own train file holds problems that the mixed split reserves for testing.
    let mbpp = Corpus::load(
        &[CorpusSource::Task("mbpp".into())],
        &source,
        &template,
        0.0,
    );
    assert!(matches!(mbpp, Err(StreamError::TestLeak { .. })));
    Ok(())
}
