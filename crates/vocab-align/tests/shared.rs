//! The real tokenizers and datasets, if `OMNIDRAFT_SHARED` names their folder.

use crate::common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::shared;
use vocab_align::{
    AlignError, Alignment, DraftId, MappingMode, SpecialRole, TargetId, TokenId, Vocabulary,
    align_offsets,
};

const NAMES: [&str; 4] = ["llama-2", "llama-3", "qwen2", "qwen2.5"];

fn path(shared: &Path, name: &str) -> PathBuf {
    shared.join("tokenizers").join(name).join("tokenizer.json")
}

fn vocabulary<I: TokenId>(shared: &Path, name: &str) -> Vocabulary<I> {
    Vocabulary::from_file(&path(shared, name)).expect("a valid tokenizer")
}

fn vocabularies(shared: &Path) -> Vec<Vocabulary<DraftId>> {
    NAMES.iter().map(|name| vocabulary(shared, name)).collect()
}

/// All ordered pairs of different tokenizers.
fn ordered_pairs() -> impl Iterator<Item = (usize, usize)> {
    let all = 0..NAMES.len();
    all.clone()
        .flat_map(move |d| all.clone().map(move |t| (d, t)))
        .filter(|(d, t)| d != t)
}

/// The distinct texts of all rows: prompts, references and generic text, in a fixed order.
fn texts(shared: &Path) -> Vec<String> {
    let mut texts = BTreeSet::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(shared.join("datasets"))
        .expect("datasets")
        .filter_map(|folder| std::fs::read_dir(folder.expect("an entry").path()).ok())
        .flatten()
        .map(|file| file.expect("an entry").path())
        .filter(|file| {
            file.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    files.sort();
    for file in files {
        for line in std::fs::read_to_string(&file).expect("readable").lines() {
            let mut row: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
            for key in ["prompt", "reference", "text"] {
                if let serde_json::Value::String(text) = row[key].take() {
                    texts.insert(text);
                }
            }
        }
    }
    texts.into_iter().collect()
}

/// Runs `work` over the indices 0..count on both cores.
fn on_two_threads(count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    if i >= count {
                        break;
                    }
                    work(i);
                }
            });
        }
    });
}

#[test]
fn the_papers_intersections() {
    let Some(shared) = shared() else { return };
    let draft = vocabulary(&shared, "llama-2");
    // In Qwen2 `<unk>`, `<s>` and `</s>` are ordinary text: three more wrong ones.
    for (name, paper, wrong, bytes) in
        [("llama-3", 22416, 149, 26695), ("qwen2", 22275, 150, 26438)]
    {
        let target = vocabulary(&shared, name);
        let by_string = Alignment::build(&draft, &target, MappingMode::Paper);
        let by_bytes = Alignment::build(&draft, &target, MappingMode::Bytes);
        assert_eq!(by_string.stats().direct_tokens, paper, "{name}");
        assert_eq!(by_string.stats().byte_mismatches, wrong, "{name}");
        assert_eq!(by_string.pairs().len(), paper - 1, "▁ and Ġ share a target");
        assert_eq!(by_bytes.stats().direct_tokens, bytes, "{name}");
        println!(
            "{name}: {:?}\n{name}: {:?}",
            by_string.stats(),
            by_bytes.stats()
        );
    }
}

#[test]
fn bytes_mode_never_changes_bytes() {
    let Some(shared) = shared() else { return };
    let vocabularies = vocabularies(&shared);
    for (d, t) in (0..16).map(|i| (i / 4, i % 4)) {
        let (draft, target) = (&vocabularies[d], vocabularies[t].retag::<TargetId>());
        let start = Instant::now();
        let alignment = Alignment::build(draft, &target, MappingMode::Bytes);
        let millis = start.elapsed().as_secs_f64() * 1e3;
        println!(
            "{} for {}: {millis:.1} ms, {:?}",
            NAMES[d],
            NAMES[t],
            alignment.stats()
        );
        let mut mapped = 0;
        for id in (0..draft.len() as u32).map(DraftId) {
            if let Some(other) = alignment.direct(id) {
                assert_eq!(
                    draft.bytes(id),
                    target.bytes(other),
                    "{} {}: {id}",
                    NAMES[d],
                    NAMES[t]
                );
                assert_eq!(draft.role(id).is_some(), target.role(other).is_some());
                mapped += usize::from(draft.role(id).is_none());
            }
        }
        for id in (0..target.len() as u32).map(TargetId) {
            if let Some(other) = alignment.draft_of(id) {
                assert_eq!(
                    draft.bytes(other),
                    target.bytes(id),
                    "{} {}: {id}",
                    NAMES[d],
                    NAMES[t]
                );
            }
        }
        assert_eq!(mapped, alignment.stats().direct_tokens);
        assert_eq!(alignment.stats().byte_mismatches, 0);
        if d == t {
            assert_eq!(
                alignment.pairs().len(),
                draft.len(),
                "{} maps to itself",
                NAMES[d]
            );
        }
    }
}

#[test]
fn real_special_tokens_have_their_roles() {
    let Some(shared) = shared() else { return };
    let expected = [
        ("llama-2", Some("<s>"), "</s>", None),
        (
            "llama-3",
            Some("<|begin_of_text|>"),
            "<|end_of_text|>",
            Some("<|eot_id|>"),
        ),
        ("qwen2", None, "<|endoftext|>", Some("<|im_end|>")),
        ("qwen2.5", None, "<|endoftext|>", Some("<|im_end|>")),
    ];
    for (name, bos, eos, turn) in expected {
        let vocabulary = vocabulary::<DraftId>(&shared, name);
        let content = |role| {
            vocabulary
                .special(role)
                .and_then(|id| vocabulary.content(id))
        };
        assert_eq!(content(SpecialRole::Bos), bos, "{name}");
        assert_eq!(content(SpecialRole::Eos), Some(eos), "{name}");
        assert_eq!(content(SpecialRole::EndOfTurn), turn, "{name}");
    }
}

#[test]
fn a_truncated_real_file_is_an_error_with_its_name_and_line() {
    let Some(shared) = shared() else { return };
    let json = std::fs::read(path(&shared, "qwen2")).unwrap();
    let error =
        Vocabulary::<DraftId>::from_json(&json[..json.len() / 3], "qwen2.json").unwrap_err();
    assert!(
        matches!(&error, AlignError::Json { column, .. } if *column > 1000),
        "{error}"
    );
    assert!(
        error.to_string().starts_with("qwen2.json, line 1, column "),
        "{error}"
    );
}

/// Text from draft tokens and text from target tokens both equal the row, for every row and every
/// pair.
#[test]
fn every_row_round_trips_through_every_tokenizer() {
    let Some(shared) = shared() else { return };
    let (texts, vocabularies) = (texts(&shared), vocabularies(&shared));
    let start = Instant::now();
    let bytes: usize = texts.iter().map(String::len).sum();
    // A sample: the library locates every token, which takes time for long articles.
    let texts: Vec<String> = texts.into_iter().step_by(11).collect();
    on_two_threads(texts.len(), |i| {
        let rebuilt = vocabularies.iter().map(|vocabulary| {
            vocabulary.decode_bytes(
                &vocabulary
                    .spell(texts[i].as_bytes())
                    .expect("every byte has a token"),
            )
        });
        for (name, rebuilt) in NAMES.iter().zip(rebuilt) {
            assert!(
                rebuilt == texts[i].as_bytes(),
                "{name} changes text {i}: {:?}",
                texts[i]
            );
        }
    });
    let pairs = ordered_pairs().count();
    println!(
        "{} texts, {bytes} bytes, {pairs} pairs: {:?}",
        texts.len(),
        start.elapsed()
    );
    assert!(texts.len() > 4_500);
}

#[test]
fn offsets_align_real_tokenisations() {
    let Some(shared) = shared() else { return };
    let draft = vocabulary::<DraftId>(&shared, "llama-2");
    let target = vocabulary::<TargetId>(&shared, "qwen2");
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    for text in texts(&shared).iter().step_by(997) {
        let (d, d_lengths) = draft.encode_with_lengths(text.as_bytes()).unwrap();
        let (t, t_lengths) = target.encode_with_lengths(text.as_bytes()).unwrap();
        let spans = align_offsets(&d_lengths, &t_lengths);
        assert_eq!(spans.last().map_or(0, |span| span.draft.end), d.len());
        assert_eq!(spans.last().map_or(0, |span| span.target.end), t.len());
        for span in spans {
            let (d, t) = (&d[span.draft], &t[span.target]);
            // Qwen2 composes letters and their accents.
            if draft.decode_bytes(d) != target.decode_bytes(t) {
                assert!(!String::from_utf8_lossy(&draft.decode_bytes(d)).is_ascii());
                continue;
            }
            if let ([d], [t]) = (d, t) {
                assert_eq!(
                    alignment.direct(*d),
                    Some(*t),
                    "single tokens are direct ones"
                );
            }
        }
    }
}
