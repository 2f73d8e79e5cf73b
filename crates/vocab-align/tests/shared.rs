//! The real tokenizers and datasets, where `OMNIDRAFT_SHARED` names their folder.

mod common;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use common::{context, raw, reference_ids, shared};
use tokenizers::Tokenizer;
use vocab_align::{
    AlignError, Alignment, DraftContext, DraftId, MappingMode, SpecialRole, TargetId, TokenId,
    Vocabulary, align_offsets,
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

/// Ours without dummy prefix and NFC against the original pipeline: equal ids where the text is
/// already normalised.
#[test]
fn ids_are_the_original_pipelines() {
    let Some(shared) = shared() else { return };
    let texts = texts(&shared);
    for name in NAMES {
        let ours = vocabulary::<DraftId>(&shared, name);
        let original = Tokenizer::from_file(path(&shared, name)).unwrap();
        let (mut compared, mut equal) = (0, 0);
        for text in texts.iter().step_by(211).filter(|text| !text.is_empty()) {
            let prefix = if name == "llama-2" { " " } else { "" };
            let ids = ours.encode(&format!("{prefix}{text}")).unwrap();
            compared += 1;
            equal += usize::from(raw(&ids) == reference_ids(&original, text));
        }
        println!("{name}: {equal} of {compared} texts have the original ids");
        // Text that NFC would rewrite keeps its bytes and therefore has other ids.
        assert!(
            compared > 100 && equal * 100 >= compared * 99,
            "{name}: {equal} of {compared}"
        );
    }
}

/// Text from draft tokens equals text from target tokens, for every row and every pair: both
/// equal the row.
#[test]
fn every_row_round_trips_through_every_tokenizer() {
    let Some(shared) = shared() else { return };
    let (texts, vocabularies) = (texts(&shared), vocabularies(&shared));
    let start = Instant::now();
    let bytes: usize = texts.iter().map(String::len).sum();
    on_two_threads(texts.len(), |i| {
        let rebuilt = vocabularies.iter().map(|vocabulary| {
            vocabulary.decode_bytes(
                &vocabulary
                    .encode(&texts[i])
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
    assert!(texts.len() > 50_000);
}

/// What following texts with a [`DraftContext`] saw.
#[derive(Default, Debug)]
struct Followed {
    texts: usize,
    pushes: usize,
    /// Texts whose tokens at the end are those of encoding them as a whole.
    agree: usize,
    longest_window: usize,
    seconds: f64,
}

/// Feeds target tokens in groups of 1 to 5, checking the bytes after every push.
fn follow(
    context: &mut DraftContext,
    draft: &Vocabulary<DraftId>,
    target: &Vocabulary<TargetId>,
    text: &str,
    seen: &mut Followed,
) {
    let tokens = target.encode(text).unwrap();
    context.start(&[]);
    // Byte offset at which each draft token ends, and the bytes pushed so far.
    let mut ends: Vec<usize> = Vec::new();
    let mut rest = &tokens[..];
    let mut pushed = 0;
    while !rest.is_empty() {
        let (now, later) = rest.split_at((seen.pushes % 5 + 1).min(rest.len()));
        rest = later;
        let start = Instant::now();
        let unchanged = context.push(now).unwrap();
        seen.seconds += start.elapsed().as_secs_f64();
        seen.pushes += 1;
        seen.longest_window = seen.longest_window.max(context.window().len());
        pushed += target.byte_lengths(now).iter().sum::<usize>();
        assert!(unchanged <= ends.len());
        ends.truncate(unchanged);
        let at = ends.last().copied().unwrap_or(0);
        let new = &context.ids()[unchanged..];
        assert_eq!(draft.decode_bytes(new), &text.as_bytes()[at..pushed]);
        for len in draft.byte_lengths(new) {
            ends.push(ends.last().copied().unwrap_or(0) + len);
        }
    }
    assert_eq!(draft.decode_bytes(context.ids()), text.as_bytes());
    seen.texts += 1;
    seen.agree += usize::from(context.ids() == draft.encode(text).unwrap());
}

#[test]
fn draft_contexts_follow_real_texts() {
    let Some(shared) = shared() else { return };
    let (texts, vocabularies) = (texts(&shared), vocabularies(&shared));
    let pairs: Vec<_> = ordered_pairs().collect();
    on_two_threads(pairs.len(), |pair| {
        let (d, t) = pairs[pair];
        let (draft, target) = (&vocabularies[d], vocabularies[t].retag::<TargetId>());
        let mut context = context(draft, &target);
        let mut seen = Followed::default();
        // Another part of the texts for every pair.
        for text in texts.iter().skip(pair).step_by(149) {
            follow(&mut context, draft, &target, text, &mut seen);
        }
        let micros = seen.seconds * 1e6 / seen.pushes as f64;
        println!(
            "{} for {}: {seen:?}, {micros:.1} us a push",
            NAMES[d], NAMES[t]
        );
        assert_eq!(seen.agree, seen.texts, "{} for {}", NAMES[d], NAMES[t]);
    });
}

#[test]
fn offsets_align_real_tokenisations() {
    let Some(shared) = shared() else { return };
    let draft = vocabulary::<DraftId>(&shared, "llama-2");
    let target = vocabulary::<TargetId>(&shared, "qwen2");
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    for text in texts(&shared).iter().step_by(997) {
        let (d, t) = (draft.encode(text).unwrap(), target.encode(text).unwrap());
        let spans = align_offsets(&draft.byte_lengths(&d), &target.byte_lengths(&t));
        assert_eq!(spans.last().map_or(0, |span| span.draft.end), d.len());
        assert_eq!(spans.last().map_or(0, |span| span.target.end), t.len());
        for span in spans {
            let (d, t) = (&d[span.draft], &t[span.target]);
            assert_eq!(draft.decode_bytes(d), target.decode_bytes(t));
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
