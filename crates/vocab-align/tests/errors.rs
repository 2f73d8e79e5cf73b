//! Damaged tokenizer files: every message names the file and the place.

use crate::common;

use std::path::Path;

use common::{Prefix, byte_level_json, sentence_piece_json};
use serde_json::{Value, json};
use vocab_align::{AlignError, DraftId, Vocabulary};

fn error_of(json: &str) -> String {
    Vocabulary::<DraftId>::from_json(json, "some/tokenizer.json")
        .unwrap_err()
        .to_string()
}

/// The error of a valid file after `change`.
fn after(change: impl FnOnce(&mut Value)) -> String {
    let mut json = byte_level_json(20);
    change(&mut json);
    error_of(&json.to_string())
}

#[track_caller]
fn assert_names(error: &str, parts: &[&str]) {
    assert!(error.contains("some/tokenizer.json"), "{error}");
    for part in parts {
        assert!(error.contains(part), "{error:?} does not name {part:?}");
    }
}

#[test]
fn truncated_files_name_line_and_column() {
    let json = serde_json::to_string_pretty(&byte_level_json(20)).unwrap();
    let cut = &json[..json.len() / 2];
    let line = format!("line {}", cut.matches('\n').count() + 1);
    assert_names(&error_of(cut), &[&line, "key `model.vocab`", "truncated"]);
    assert_names(&error_of(""), &["line 1"]);
    assert_names(&error_of("not json"), &["line 1, column 2"]);
    assert_names(&error_of(&format!("{json}]")), &["trailing"]);
}

#[test]
fn no_truncation_is_accepted_or_panics() {
    let json = sentence_piece_json(5, Prefix::Normalizer).to_string();
    for end in (0..json.len())
        .step_by(97)
        .filter(|end| json.is_char_boundary(*end))
    {
        error_of(&json[..end]);
    }
}

#[test]
fn wrong_types_name_the_key() {
    assert_names(
        &after(|j| j["added_tokens"][1]["id"] = json!("one")),
        &["line 1", "added_tokens[1].id"],
    );
    assert_names(
        &after(|j| j["added_tokens"][0]["id"] = json!(4_000_000_000u32)),
        &["added_tokens[0].id"],
    );
    assert_names(
        &after(|j| {
            j.as_object_mut().unwrap().remove("model");
        }),
        &["model"],
    );
    assert_names(
        &after(|j| j["model"]["vocab"] = json!([1])),
        &["`model.vocab`"],
    );
    assert_names(
        &after(|j| j["model"]["vocab"]["!"] = json!(-1)),
        &["model.vocab[\"!\"]", "-1"],
    );
    assert_names(
        &after(|j| j["model"]["vocab"]["!"] = json!(1u64 << 40)),
        &["model.vocab[\"!\"]"],
    );
    assert_names(
        &after(|j| j["model"]["vocab"]["!"] = json!(7)),
        &["id 7", "already taken"],
    );
    assert_names(
        &after(|j| j["model"]["merges"] = json!("x")),
        &["`model.merges`"],
    );
    assert_names(
        &after(|j| j["model"]["merges"][3] = json!(["a"])),
        &["model.merges[3]"],
    );
    assert_names(
        &after(|j| j["model"]["merges"][3] = json!(["a", "nowhere"])),
        &["model.merges[3]", "nowhere"],
    );
    assert_names(
        &after(|j| j["model"]["merges"][3] = json!("~ ~")),
        &["model.merges[3]", "~~"],
    );
    assert_names(
        &after(|j| j["model"]["byte_fallback"] = json!("yes")),
        &["`model`"],
    );
    assert_names(
        &after(|j| j["pre_tokenizer"] = json!({"type": "Nonsense"})),
        &["pre_tokenizer"],
    );
    assert_names(
        &after(|j| j["pre_tokenizer"] = json!({"type": "Sequence"})),
        &["pretokenizers"],
    );
    let broken = json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false});
    assert_names(&after(|j| j["pre_tokenizer"] = broken), &["pre_tokenizer"]);
    let taken = json!({"id": 5, "content": "<x>", "special": true});
    assert_names(
        &after(|j| j["added_tokens"][0] = taken),
        &["added_tokens[0].id", "already taken"],
    );
}

#[test]
fn damaged_unigram_vocabularies_name_the_entry() {
    let unigram = |vocab: Value, unk: Value| {
        json!({"model": {"type": "Unigram", "vocab": vocab, "unk_id": unk}}).to_string()
    };
    assert_names(
        &error_of(&unigram(json!({}), Value::Null)),
        &["`model.vocab`"],
    );
    assert_names(
        &error_of(&unigram(json!([["a", 0], ["b"]]), Value::Null)),
        &["model.vocab[1]"],
    );
    assert_names(
        &error_of(&unigram(json!([["a", 0]]), json!(3))),
        &["model.unk_id", "3"],
    );
}

#[test]
fn unsupported_models_say_what_works() {
    assert_names(
        &after(|j| j["model"]["type"] = json!("WordPiece")),
        &["WordPiece", "byte-level"],
    );
    assert_names(
        &after(|j| j["normalizer"] = json!({"type": "ByteLevel"})),
        &["normalizer"],
    );
    let prefix = |j: &mut Value| j["model"]["continuing_subword_prefix"] = json!("##");
    assert_names(&after(prefix), &["continuing_subword_prefix"]);
    let no_type = |j: &mut Value| {
        let model = j["model"].as_object_mut().unwrap();
        model.remove("type");
        model.remove("merges");
    };
    assert_names(&after(no_type), &["model.type"]);
}

#[test]
fn a_missing_file_is_named() {
    let error = Vocabulary::<DraftId>::from_file(Path::new("nowhere/tokenizer.json")).unwrap_err();
    assert!(matches!(error, AlignError::Read { .. }));
    assert!(error.to_string().contains("nowhere/tokenizer.json"));
}
