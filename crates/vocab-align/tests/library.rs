//! Ids compared with the `tokenizers` library, for the shipped tokenizers and, if
//! `OMNIDRAFT_SHARED` names their folder, for those of published models.
//!
//! A sample by default; `OMNIDRAFT_ALL_STRINGS=1` takes all 10 000 strings and all prompts.

use crate::common;

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use common::strings::strings;
use common::{context, raw};
use tokenizers::Tokenizer;
use vocab_align::{DraftId, TargetId, TokenId, Vocabulary};

struct Case {
    name: String,
    vocabulary: Vocabulary<DraftId>,
    library: Tokenizer,
    /// The library, with names of special tokens as ordinary text.
    text_only: Tokenizer,
}

fn load(path: &Path) -> Case {
    let library = Tokenizer::from_file(path).expect("a tokenizer");
    let mut text_only = library.clone();
    text_only.set_encode_special_tokens(true);
    Case {
        name: path
            .parent()
            .and_then(Path::file_name)
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        // Without the files beside it, which may name a class with a pipeline of its own.
        vocabulary: Vocabulary::from_json(
            std::fs::read(path).expect("a file"),
            &path.to_string_lossy(),
        )
        .expect("a tokenizer"),
        library,
        text_only,
    }
}

/// Every available tokenizer; equal files only once.
fn cases() -> Vec<Case> {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let shared = common::shared().map(|shared| shared.join("tokenizers"));
    let mut files: Vec<PathBuf> = [Some(shipped), shared]
        .into_iter()
        .flatten()
        .flat_map(|folder| std::fs::read_dir(folder).expect("a folder"))
        .map(|entry| entry.expect("an entry").path().join("tokenizer.json"))
        .filter(|file| file.is_file())
        .collect();
    files.sort();
    let mut cases: Vec<Case> = Vec::new();
    for file in files {
        let case = load(&file);
        let known = |other: &Case| other.vocabulary.fingerprint() == case.vocabulary.fingerprint();
        if !cases.iter().any(known) {
            cases.push(case);
        }
    }
    cases
}

fn all() -> bool {
    std::env::var_os("OMNIDRAFT_ALL_STRINGS").is_some()
}

/// Generated strings, and the prompts of all tasks if they are available.
fn texts(generated: usize, every: usize) -> Vec<String> {
    let (generated, every) = if all() {
        (10_000, 1)
    } else {
        (generated, every)
    };
    let mut texts = strings(1, generated);
    let Some(shared) = common::shared() else {
        return texts;
    };
    for task in ["gsm8k", "mbpp_humaneval", "alpaca", "xsum"] {
        let file = shared.join("datasets").join(task).join("test.jsonl");
        let lines = std::fs::read_to_string(file).expect("a data set");
        for line in lines.lines().step_by(every) {
            let row: serde_json::Value = serde_json::from_str(line).expect("a JSON line");
            texts.extend(row["prompt"].as_str().map(str::to_owned));
        }
    }
    texts
}

fn ids(library: &Tokenizer, text: &str, frame: bool) -> Vec<u32> {
    let encoding = library.encode(text, frame).expect("encodes");
    encoding.get_ids().to_vec()
}

#[test]
fn texts_have_the_librarys_ids() {
    let texts = texts(1000, 20);
    for case in cases() {
        let name = &case.name;
        for text in &texts {
            let found = case.vocabulary.encode_whole(text).unwrap();
            assert_eq!(
                raw(&found),
                ids(&case.library, text, true),
                "{name}: {text:?}"
            );
            let found = case.vocabulary.encode_with_specials(text).unwrap();
            assert_eq!(
                raw(&found),
                ids(&case.library, text, false),
                "{name}: {text:?}"
            );
            // With its markers as ordinary text, inside a template.
            let body = 0..text.len();
            let found = case.vocabulary.encode_around(text, &[body], true).unwrap();
            assert_eq!(
                raw(&found),
                ids(&case.text_only, text, true),
                "{name}: {text:?}"
            );
        }
        println!("{name}: {} texts", texts.len());
    }
}

/// Markers in a prompt are ordinary text, and the template around it is read as usual.
#[test]
fn a_prompt_between_markers_can_be_kept_text() {
    for case in cases() {
        let Some(marker) = case.library.id_to_token(1) else {
            continue;
        };
        let special = case.vocabulary.find_content(&marker);
        if special.is_none_or(|id| case.vocabulary.role(id).is_none()) {
            continue;
        }
        let encode = |text: &str| {
            let before = format!("{marker}user\n");
            let body = before.len()..before.len() + text.len();
            let whole = format!("{before}{text}{marker}");
            let ids = case.vocabulary.encode_around(&whole, &[body], false);
            ids.unwrap()
        };
        for text in ["Hi", &format!("a{marker}b{marker}"), " 1 + 1 = "] {
            let found = encode(text);
            let markers = found.iter().filter(|id| Some(**id) == special).count();
            assert_eq!(markers, 2, "{}: {text:?}", case.name);
            let read = case.vocabulary.decode_lossy(&found);
            assert_eq!(read.trim_start(), format!("user\n{text}"), "{}", case.name);
        }
        let whole = format!("{marker}user\nHi{marker}");
        assert_eq!(raw(&encode("Hi")), ids(&case.library, &whole, false));
    }
}

#[derive(Default, Debug)]
struct Followed {
    texts: usize,
    pushes: usize,
    grown: usize,
    seconds: f64,
}

/// The text of a response as the library's decoder gives it, without dummy prefix.
fn text_of(target: &Vocabulary<TargetId>, prefixed: bool, tokens: &[TargetId]) -> Option<String> {
    let bytes = target.decode_bytes(tokens);
    let text = String::from_utf8(bytes).ok()?;
    match prefixed {
        true => Some(text.strip_prefix(' ').unwrap_or(&text).to_owned()),
        false => Some(text),
    }
}

/// Pushes texts token by token. At the end (for some texts also after each token that ends a
/// character) the context is the library's encoding of the text so far.
fn follow(draft: &Case, target: &Case, texts: &[String]) -> Followed {
    let every = if all() { 100 } else { 8 };
    let mut seen = Followed::default();
    let vocabulary = target.vocabulary.retag::<TargetId>();
    let mut context = context(&draft.vocabulary, &vocabulary);
    let frame: Vec<DraftId> = draft.vocabulary.encode_whole("").unwrap();
    let prefixed = ids(&target.text_only, "a", false) != raw(&vocabulary.encode("a").unwrap());
    for (i, text) in texts.iter().enumerate() {
        let tokens: Vec<TargetId> = ids(&target.text_only, text, false)
            .into_iter()
            .map(TargetId::new)
            .collect();
        context.start(&frame, &vocabulary.encode_whole("").unwrap());
        for (n, token) in tokens.iter().enumerate() {
            let start = std::time::Instant::now();
            context.push(&[*token]).unwrap();
            seen.seconds += start.elapsed().as_secs_f64();
            if i % every != 0 && n + 1 != tokens.len() {
                continue;
            }
            let Some(text) = text_of(&vocabulary, prefixed, &tokens[..=n]) else {
                continue;
            };
            let expected = ids(&draft.text_only, &text, false);
            let found = raw(&context.ids()[frame.len()..]);
            assert_eq!(
                found, expected,
                "{} for {}: {text:?}",
                draft.name, target.name
            );
        }
        seen.texts += 1;
        seen.pushes += tokens.len();
        seen.grown = context.grown_windows();
    }
    seen
}

#[test]
fn contexts_pushed_token_by_token_have_the_librarys_ids() {
    let texts = texts(60, 400);
    let cases = cases();
    let pairs: Vec<(usize, usize)> = (0..cases.len())
        .flat_map(|d| (0..cases.len()).map(move |t| (d, t)))
        .collect();
    let next = Mutex::new(pairs.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let Some(&(d, t)) = next.lock().unwrap().next() else {
                        return;
                    };
                    let seen = follow(&cases[d], &cases[t], &texts);
                    let micros = seen.seconds * 1e6 / seen.pushes as f64;
                    let names = (&cases[d].name, &cases[t].name);
                    println!(
                        "{} for {}: {seen:?}, {micros:.1} us a push",
                        names.0, names.1
                    );
                }
            });
        }
    });
}
