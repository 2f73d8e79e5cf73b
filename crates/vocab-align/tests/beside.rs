//! The files beside `tokenizer.json`, as transformers 5.24 reads them.

use std::path::Path;

use serde_json::{Value, json};
use vocab_align::{SpecialRole, TargetId, Vocabulary, special_names};

/// A tokenizer of the bytes a, b, c and a space, with added tokens.
fn tokenizer(added: &[(u32, &str)]) -> Value {
    let added: Vec<Value> = added
        .iter()
        .map(|(id, content)| json!({"id": id, "content": content, "special": true}))
        .collect();
    json!({
        "added_tokens": added,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3}, "merges": []},
    })
}

fn folder(files: &[(&str, Value)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, value) in files {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    }
    folder
}

fn load(folder: &Path) -> Vocabulary<TargetId> {
    Vocabulary::from_file(&folder.join("tokenizer.json")).unwrap()
}

fn ids(vocabulary: &Vocabulary<TargetId>, text: &str) -> Vec<u32> {
    let ids = vocabulary.encode_with_specials(text).unwrap();
    ids.iter().map(|id| id.0).collect()
}

#[test]
fn special_tokens_are_named_in_several_files() {
    let map = json!({"bos_token": {"content": "<first>", "lstrip": false}, "eos_token": "<last>"});
    for (config, others, names) in [
        // The older file is read only if tokenizer_config.json does not list the added tokens.
        (
            json!({}),
            vec![("special_tokens_map.json", map.clone())],
            vec![("bos_token", "<first>"), ("eos_token", "<last>")],
        ),
        (
            json!({"bos_token": "<own>", "added_tokens_decoder": {}}),
            vec![("special_tokens_map.json", map.clone())],
            vec![("bos_token", "<own>")],
        ),
        (
            json!({"bos_token": "<own>"}),
            vec![("special_tokens_map.json", map.clone())],
            vec![("bos_token", "<first>"), ("eos_token", "<last>")],
        ),
        (
            json!({"image_token": "<image>", "extra_special_tokens": {"boi_token": "<boi>"}, "eos_token": null, "add_bos_token": true}),
            vec![],
            vec![("boi_token", "<boi>"), ("image_token", "<image>")],
        ),
        (
            json!({"model_specific_special_tokens": {"call": {"content": "<call>"}}, "pad_token": "<last>"}),
            vec![],
            vec![("call", "<call>"), ("pad_token", "<last>")],
        ),
        (
            json!({"tokenizer_class": "LlamaTokenizerFast"}),
            vec![],
            vec![
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
            ],
        ),
    ] {
        let mut files = vec![("tokenizer_config.json", config.clone())];
        files.extend(others);
        let folder = folder(&files);
        let found = special_names(folder.path()).unwrap();
        let mut found: Vec<_> = found
            .iter()
            .map(|(a, b)| (a.as_str(), b.as_str()))
            .collect();
        let mut names = names;
        found.sort();
        names.sort();
        assert_eq!(found, names, "{config}");
    }
}

#[test]
fn tokens_are_added_where_the_library_would_put_them() {
    let folder = folder(&[
        ("tokenizer.json", tokenizer(&[(4, "<last>")])),
        (
            "tokenizer_config.json",
            json!({"eos_token": "<last>", "bos_token": "<first>"}),
        ),
        (
            "special_tokens_map.json",
            json!({"additional_special_tokens": ["<x>", {"content": "<y>", "lstrip": true}]}),
        ),
        ("added_tokens.json", json!({"<more>": 5})),
    ]);
    let vocabulary = load(folder.path());
    assert_eq!(vocabulary.len(), 9);
    assert_eq!(
        ids(&vocabulary, "a<more>b <y><x><first><last>"),
        [0, 5, 1, 8, 7, 6, 4]
    );
    assert_eq!(vocabulary.special(SpecialRole::Eos), Some(TargetId(4)));
    assert_eq!(vocabulary.special(SpecialRole::Bos), Some(TargetId(6)));
}

/// With this key transformers reads the names of special tokens as text everywhere, even in a
/// template. Other added tokens are still found.
#[test]
fn special_tokens_may_be_split() {
    let mut file = tokenizer(&[(4, "a<b")]);
    let added = file["added_tokens"].as_array_mut().unwrap();
    added.push(json!({"id": 5, "content": "cc", "special": false}));
    for (splits, expected) in [
        (json!(false), vec![4, 5, 0]),
        (json!(null), vec![4, 5, 0]),
        // There is no token for `<`.
        (json!(true), vec![0, 1, 5, 0]),
    ] {
        let config = json!({ "split_special_tokens": splits });
        let folder = folder(&[
            ("tokenizer.json", file.clone()),
            ("tokenizer_config.json", config),
        ]);
        let vocabulary = load(folder.path());
        assert_eq!(ids(&vocabulary, "a<bcca"), expected, "{splits}");
        let body = 3..5;
        let around = vocabulary.encode_around("a<bcca", &[body], false).unwrap();
        assert_eq!(around.iter().map(|id| id.0).collect::<Vec<_>>(), expected);
        // The token exists all the same.
        assert_eq!(vocabulary.len(), 6);
    }
}

/// A byte order mark, which some editors write, is skipped.
#[test]
fn a_mark_of_the_encoding_in_front_is_read_over() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        let text = format!("\u{feff}{value}");
        std::fs::write(folder.path().join(name), text).unwrap();
    };
    write("tokenizer.json", &tokenizer(&[(4, "<last>")]));
    write("tokenizer_config.json", &json!({"eos_token": "<last>"}));
    write("special_tokens_map.json", &json!({"bos_token": "<first>"}));
    write("config.json", &json!({"model_type": "llama"}));
    let vocabulary = load(folder.path());
    assert_eq!(ids(&vocabulary, "a<last><first>"), [0, 4, 5]);
    assert_eq!(vocabulary.special(SpecialRole::Eos), Some(TargetId(4)));
}

#[test]
fn flags_of_tokenizer_config_count() {
    let decoder = json!({"4": {"content": "<last>", "special": true, "rstrip": true}});
    let folder = folder(&[
        ("tokenizer.json", tokenizer(&[(4, "<last>")])),
        (
            "tokenizer_config.json",
            json!({"added_tokens_decoder": decoder}),
        ),
    ]);
    assert_eq!(ids(&load(folder.path()), "<last> a"), [4, 0]);
}

#[test]
fn of_one_content_that_is_named_twice_the_last_one_counts() {
    let named = |keys: Value| {
        let folder = folder(&[
            ("tokenizer.json", tokenizer(&[])),
            ("tokenizer_config.json", keys),
        ]);
        ids(&load(folder.path()), "a <x> b")
    };
    let strips = |left: bool, right: bool| json!({"__type": "AddedToken", "content": "<x>", "lstrip": left, "rstrip": right});
    assert_eq!(
        named(json!({"bos_token": "<x>", "eos_token": strips(true, true)})),
        [0, 4, 1]
    );
    assert_eq!(
        named(json!({"bos_token": strips(true, true), "eos_token": "<x>"})),
        [0, 3, 4, 3, 1]
    );
    // Encoding the same text again changes nothing.
    let keys = json!({"bos_token": "<x>", "eos_token": strips(false, true), "pad_token": "<x>"});
    assert_eq!(named(keys), [0, 3, 4, 1]);
}

#[test]
fn a_token_beyond_the_embedding_is_refused_where_it_is_fed() {
    let folder = folder(&[(
        "tokenizer.json",
        tokenizer(&[(4, "<last>"), (5, "<image>")]),
    )]);
    let file = folder.path().join("tokenizer.json");
    let vocabulary: Vocabulary<TargetId> = Vocabulary::from_file_for(&file, 5).unwrap();
    assert_eq!(vocabulary.len(), 5);
    assert_eq!(ids(&vocabulary, "a<last>"), [0, 4]);
    let error = vocabulary.encode_whole("a<image>").unwrap_err().to_string();
    assert!(
        error.contains("<image>") && error.contains("id 5"),
        "{error}"
    );
    // Markers in the text of another model are ordinary text.
    assert_eq!(
        vocabulary.encode("a<image>b").unwrap().first(),
        Some(&TargetId(0))
    );
    let few: Result<Vocabulary<TargetId>, _> = Vocabulary::from_file_for(&file, 3);
    assert!(few.unwrap_err().to_string().contains("vocab_size"));
}

#[test]
fn faults_name_file_and_key() {
    for (file, value, what) in [
        (
            "tokenizer_config.json",
            json!({"bos_token": 7}),
            "`bos_token`",
        ),
        ("tokenizer_config.json", json!([]), "must be an object"),
        (
            "tokenizer_config.json",
            json!({"added_tokens_decoder": {"x": {"content": "y"}}}),
            "added_tokens_decoder.x",
        ),
        (
            "tokenizer_config.json",
            json!({"added_tokens_decoder": {"4": "y"}}),
            "added_tokens_decoder.4",
        ),
        (
            "special_tokens_map.json",
            json!({"eos_token": {"text": "x"}}),
            "`eos_token`",
        ),
        (
            "special_tokens_map.json",
            json!({"additional_special_tokens": [7]}),
            "additional_special_tokens[0]",
        ),
        ("added_tokens.json", json!({"<x>": "four"}), "no token id"),
    ] {
        let folder = folder(&[("tokenizer.json", tokenizer(&[])), (file, value)]);
        let read: Result<Vocabulary<TargetId>, _> =
            Vocabulary::from_file(&folder.path().join("tokenizer.json"));
        let error = read.unwrap_err().to_string();
        assert!(error.contains(file) && error.contains(what), "{error}");
    }
}
