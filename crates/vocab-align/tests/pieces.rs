//! `tokenizer.model` without other files, as transformers 5.24 reads it. The ids are those of its
//! `AutoTokenizer`.

use std::path::Path;

use vocab_align::{SpecialRole, TargetId, Vocabulary, special_names};

use crate::pieces_support::model;

const TEXTS: [&str; 5] = [
    "hello world",
    "  hello",
    "é</s>hello",
    "</s> hello",
    "lo\nld",
];

fn folder(config: &str, bytes: &[u8]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, bytes) in [
        ("tokenizer.model", bytes),
        ("tokenizer_config.json", config.as_bytes()),
        ("config.json", br#"{"model_type": "llama"}"#),
    ] {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

fn load(folder: &Path) -> Result<Vocabulary<TargetId>, vocab_align::AlignError> {
    Vocabulary::from_file(&folder.join("tokenizer.json"))
}

#[test]
fn ids_are_those_of_transformers() {
    let llama = r#"{"tokenizer_class": "LlamaTokenizer", "add_bos_token": true, "legacy": false}"#;
    let legacy = r#"{"tokenizer_class": "LlamaTokenizer", "legacy": true}"#;
    let cases: [(&str, u64, bool, [&[u32]; 5]); 5] = [
        (
            llama,
            2,
            false,
            [
                &[1, 271, 276],
                &[1, 259, 271],
                &[1, 259, 198, 172, 2, 270],
                &[1, 2, 271],
                &[1, 259, 277, 13, 275],
            ],
        ),
        (
            legacy,
            2,
            false,
            [
                &[271, 276],
                &[259, 271],
                &[259, 198, 172, 2, 271],
                &[2, 271],
                &[259, 277, 13, 275],
            ],
        ),
        (
            "{}",
            2,
            false,
            [
                &[271, 276],
                &[259, 259, 271],
                &[259, 198, 172, 2, 271],
                &[2, 259, 271],
                &[259, 277, 13, 275],
            ],
        ),
        (
            r#"{"legacy": false}"#,
            2,
            true,
            [
                &[271, 276],
                &[270],
                &[259, 198, 172, 2, 270],
                &[2, 270],
                &[259, 277, 13, 275],
            ],
        ),
        (
            "{}",
            1,
            false,
            [
                &[259, 270, 276],
                &[259, 259, 259, 270],
                &[259, 198, 172, 2, 259, 270],
                &[2, 259, 259, 270],
                &[259, 262, 263, 13, 262, 266],
            ],
        ),
    ];
    for (config, kind, remove, expected) in cases {
        let folder = folder(config, &model(kind, remove));
        let vocabulary = load(folder.path()).unwrap();
        for (text, ids) in TEXTS.into_iter().zip(expected) {
            let found = self::ids(&vocabulary, text);
            assert_eq!(found, ids, "{config} {text:?}");
        }
        // In the middle of other text nothing is added in front and nothing is removed.
        let middle = vocabulary.encode(" world").unwrap();
        assert_eq!(vocabulary.decode_lossy(&middle), " world", "{config}");
    }
}

#[test]
fn what_is_no_such_file_is_refused() {
    let whole = model(2, false);
    for (bytes, what) in [
        (&whole[..whole.len() / 2], "no SentencePiece model"),
        (&b"\x0a\x7f"[..], "no SentencePiece model"),
        (&b""[..], "no SentencePiece model"),
        (&model(3, false)[..], "words or characters"),
    ] {
        let folder = folder("{}", bytes);
        let error = load(folder.path()).unwrap_err().to_string();
        assert!(
            error.contains("tokenizer.model") && error.contains(what),
            "{error}"
        );
    }
}

fn ids(vocabulary: &Vocabulary<TargetId>, text: &str) -> Vec<u32> {
    let ids = vocabulary.encode_whole(text).unwrap();
    ids.iter().map(|id| id.0).collect()
}

/// Text after such a token begins with the dummy prefix and its own space.
#[test]
fn listed_tokens_are_found_before_text_is_normalised() {
    let listed = r#"{"added_tokens_decoder": {
        "278": {"content": "<x>", "normalized": true, "special": false}
    }}"#;
    let folder = folder(listed, &model(2, false));
    let vocabulary = load(folder.path()).unwrap();
    assert_eq!(ids(&vocabulary, "hello<x> hello"), [271, 278, 259, 271]);
}

#[test]
fn listed_tokens_rename_pieces() {
    for (name, text, expected) in [
        ("<|tool|>", "<|tool|> hello", vec![276, 259, 271]),
        ("<|tool|>", "hello world", vec![271, 274, 275]),
        // Another piece has this name and keeps it.
        ("hello", "hello world", vec![270, 259, 276]),
    ] {
        let listed = format!(r#"{{"added_tokens_decoder": {{"276": {{"content": "{name}"}}}}}}"#);
        let folder = folder(&listed, &model(2, false));
        let vocabulary = load(folder.path()).unwrap();
        assert_eq!(vocabulary.len(), 278);
        assert_eq!(ids(&vocabulary, text), expected, "{name}");
    }
}

#[test]
fn special_tokens_have_the_names_of_the_file() {
    // Two fields of its trainer: `bos_id` is -1, `eos_piece` is `ld`.
    let trainer = [&[0xc8, 0x02][..], &[0xff; 9], b"\x01\xfa\x02\x02ld"].concat();
    let mut own = model(2, false);
    own.extend([0x12, trainer.len() as u8]);
    own.extend(trainer);
    for (config, names) in [
        ("{}", vec![("eos_token", "ld"), ("unk_token", "<unk>")]),
        (
            r#"{"bos_token": "he", "eos_token": null}"#,
            vec![("bos_token", "he"), ("unk_token", "<unk>")],
        ),
    ] {
        let folder = folder(config, &own);
        let found = special_names(folder.path()).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|(key, token)| (key.as_str(), token.as_str()))
            .collect();
        assert_eq!(found, names);
        let vocabulary = load(folder.path()).unwrap();
        let ends = vocabulary.role(TargetId(275)) == Some(SpecialRole::Eos);
        assert_eq!(ends, config == "{}");
    }
}
