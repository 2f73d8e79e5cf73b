//! Classes of tokenizers that transformers 5 builds anew. The ids are those of transformers 5.24.

use std::path::Path;

use serde_json::{Map, Value, json};
use vocab_align::{AlignError, OWN_PIPELINE, TargetId, Vocabulary, special_names};

fn vocabulary(tokens: &[&str]) -> Value {
    let ids = tokens.iter().enumerate();
    Value::Object(
        ids.map(|(id, token)| ((*token).to_owned(), id.into()))
            .collect(),
    )
}

/// Bytes; digits one by one; a token before every text; a marker that absorbs spaces.
fn bytes() -> Value {
    let words = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
    let digits = json!({"type": "Digits", "individual_digits": true});
    let text = |id: &str, kind: usize| json!({"Sequence": {"id": id, "type_id": kind}});
    json!({
        "added_tokens": [
            {"id": 11, "content": "<x>", "special": true, "lstrip": true},
            {"id": 12, "content": "<y>", "special": true},
            {"id": 13, "content": "<z>", "special": true},
        ],
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [digits, words]},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<x>", "type_id": 0}}, text("A", 0)],
            "pair": [text("A", 0), text("B", 1)],
            "special_tokens": {"<x>": {"id": "<x>", "ids": [11], "tokens": ["<x>"]}},
        },
        "decoder": words,
        "model": {
            "type": "BPE", "merges": [["1", "2"], ["Ġ", "a"]],
            "vocab": vocabulary(&["a", "Ġ", "1", "2", "12", "e", "Ì", "ģ", "Ã", "©", "Ġa"]),
        },
    })
}

/// Space signs, as Llama 2 has them.
fn signs() -> Value {
    let spaces = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    let prepend = json!({"type": "Prepend", "prepend": "▁"});
    let back = json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "});
    json!({
        "added_tokens": [{"id": 8, "content": "<x>", "special": true}],
        "normalizer": {"type": "Sequence", "normalizers": [prepend, spaces]},
        "decoder": {"type": "Sequence", "decoders": [back, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {
            "type": "BPE", "merges": [["▁", "a"]], "unk_token": "<unk>", "fuse_unk": true,
            "vocab": vocabulary(&["<unk>", "<s>", "</s>", "▁", "a", "▁a", "1", "2"]),
        },
    })
}

fn folder(file: &Value, class: Option<&str>, family: &str, more: Value) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, value: &Value| {
        std::fs::write(folder.path().join(name), value.to_string()).unwrap();
    };
    let mut config: Map<String, Value> = more.as_object().cloned().unwrap_or_default();
    if let Some(class) = class {
        config.insert("tokenizer_class".to_owned(), class.into());
    }
    write("tokenizer.json", file);
    write("tokenizer_config.json", &config.into());
    write("config.json", &json!({"model_type": family}));
    folder
}

fn load(folder: &Path) -> Result<Vocabulary<TargetId>, AlignError> {
    Vocabulary::from_file(&folder.join("tokenizer.json"))
}

fn check(file: &Value, class: Option<&str>, family: &str, more: Value, text: &str, ids: &[u32]) {
    let folder = folder(file, class, family, more.clone());
    let found = load(folder.path()).unwrap().encode_whole(text);
    let found: Vec<u32> = found.unwrap().iter().map(|id| id.0).collect();
    assert_eq!(found, ids, "{class:?} {family} {more}");
}

#[test]
fn classes_of_bytes_have_their_own_words_and_tokens() {
    let text = "a 12<x> e\u{301}<y>";
    let written = [11, 0, 1, 2, 3, 11, 1, 5, 6, 7, 12];
    let qwen = [11, 0, 1, 2, 3, 11, 1, 8, 9, 12];
    let listed = json!({"added_tokens_decoder": {
        "13": {"content": "<z>", "special": true},
        "11": {"content": "<x>", "special": true, "lstrip": true},
    }});
    for (class, family, more, ids) in [
        (
            Some("PreTrainedTokenizerFast"),
            "llama",
            json!({}),
            &written[..],
        ),
        // This class knows no bytes, so the file counts.
        (Some("LlamaTokenizer"), "llama", json!({}), &written),
        (
            Some("GPT2Tokenizer"),
            "llama",
            json!({}),
            &[11, 0, 1, 4, 11, 1, 5, 6, 7, 12],
        ),
        // Tokens that are not listed do not exist, but settings of the text count.
        (
            Some("GPT2Tokenizer"),
            "llama",
            listed,
            &[11, 0, 1, 4, 11, 1, 5, 6, 7],
        ),
        (
            Some("GPTNeoXTokenizer"),
            "smollm3",
            json!({}),
            &[0, 1, 4, 11, 1, 8, 9, 12],
        ),
        (Some("CohereTokenizer"), "llama", json!({}), &qwen),
        (
            Some("Qwen2Tokenizer"),
            "llama",
            json!({"eos_token": "<x>"}),
            &qwen,
        ),
        // The name does not matter: files of this family name a wrong class.
        (Some("LlamaTokenizerFast"), "qwen2", json!({}), &qwen),
        (
            Some("PreTrainedTokenizerFast"),
            "qwen3",
            json!({}),
            &written,
        ),
        (None, "qwen3", json!({}), &qwen),
        (None, "qwen2", json!({}), &qwen),
        (None, "mistral", json!({}), &written),
        (Some("GPT2TokenizerFast"), "granite", json!({}), &written),
        (Some("GPT2TokenizerFast"), "olmo3", json!({}), &written),
        (None, "qwen3_moe", json!({}), &qwen),
        // Made from a GGUF file.
        (None, "qwen2", json!({OWN_PIPELINE: true}), &written),
        // Code that is not run here.
        (
            Some("Qwen2Tokenizer"),
            "llama",
            json!({"auto_map": {"AutoTokenizer": ["a.B", null]}}),
            &written,
        ),
    ] {
        check(&bytes(), class, family, more, text, ids);
    }
}

#[test]
fn special_tokens_of_qwen_take_no_spaces_along() {
    // As the end of an answer, the marker is added once more, as a plain one.
    let text = "a <x>";
    let ids = |more: Value| {
        let folder = folder(&bytes(), Some("Qwen2Tokenizer"), "llama", more);
        let vocabulary = load(folder.path()).unwrap();
        let ids = vocabulary.encode_with_specials(text).unwrap();
        ids.iter().map(|id| id.0).collect::<Vec<u32>>()
    };
    assert_eq!(ids(json!({})), [0, 11]);
    assert_eq!(ids(json!({"eos_token": "<x>"})), [0, 1, 11]);
}

#[test]
fn classes_of_signs_have_their_own_prefixes_and_tokens() {
    let text = "a1 a<x>a▁<PRE>";
    let gemma = [4, 6, 5, 8, 4, 3, 0];
    for (class, family, more, ids) in [
        // It puts a token before plain text, and has five tokens for code.
        (
            Some("CodeLlamaTokenizer"),
            "llama",
            json!({}),
            &[1, 5, 6, 5, 8, 4, 9][..],
        ),
        (
            Some("CodeLlamaTokenizer"),
            "llama",
            json!({"prefix_token": "<x>", "add_bos_token": false}),
            &[1, 5, 6, 5, 8, 4, 13],
        ),
        (
            Some("CodeLlamaTokenizer"),
            "llama",
            json!({"bos_token": null}),
            &[5, 6, 5, 8, 4, 9],
        ),
        (
            Some("LlamaTokenizer"),
            "llama",
            json!({}),
            &[5, 6, 5, 8, 4, 3],
        ),
        (
            Some("LlamaTokenizer"),
            "llama",
            json!({"legacy": true}),
            &[5, 6, 5, 8, 5, 3],
        ),
        (Some("GemmaTokenizer"), "llama", json!({}), &gemma),
        (None, "gemma2", json!({}), &gemma),
        (None, "gemma3_text", json!({}), &gemma),
        (None, "llama", json!({}), &[5, 6, 5, 8, 5, 3, 0]),
        (
            Some("LlamaTokenizerFast"),
            "smollm3",
            json!({}),
            &[5, 6, 5, 8, 4, 3],
        ),
        (
            Some("LlamaTokenizer"),
            "granite",
            json!({}),
            &[5, 6, 5, 8, 5, 3, 0],
        ),
        (
            Some("LlamaTokenizer"),
            "mistral",
            json!({}),
            &[5, 6, 5, 8, 5, 3, 0],
        ),
        (
            Some("LlamaTokenizer"),
            "phi3",
            json!({}),
            &[5, 6, 5, 8, 5, 3, 0],
        ),
    ] {
        check(&signs(), class, family, more, text, ids);
    }
}

#[test]
fn classes_name_their_tokens() {
    let names = |class: Option<&str>, family: &str| {
        let folder = folder(&signs(), class, family, json!({}));
        let names = special_names(folder.path()).unwrap();
        let names = names.iter().map(|(name, token)| format!("{name}={token}"));
        names.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(
        names(Some("CodeLlamaTokenizer"), "llama"),
        "bos_token=<s> eos_token=</s> eot_token=▁<EOT> fill_token=<FILL_ME> middle_token=▁<MID> prefix_token=▁<PRE> suffix_token=▁<SUF> unk_token=<unk>"
    );
    assert_eq!(
        names(None, "gemma2"),
        "bos_token=<bos> eos_token=<eos> mask_token=<mask> pad_token=<pad> unk_token=<unk>"
    );
    assert_eq!(names(None, "llama"), "");
}

#[test]
fn what_cannot_be_built_is_refused_by_name() {
    let unigram = json!({
        "model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁", -1.0], ["a", -2.0]]},
    });
    for (file, class, family, parts) in [
        (
            bytes(),
            Some("RobertaTokenizer"),
            "llama",
            ["RobertaTokenizer", "PreTrainedTokenizerFast"],
        ),
        (
            bytes(),
            Some("GemmaTokenizer"),
            "llama",
            ["GemmaTokenizer", "<unk>"],
        ),
        (bytes(), None, "gemma2", ["GemmaTokenizer", "model_type"]),
        (
            unigram,
            Some("LlamaTokenizer"),
            "llama",
            ["LlamaTokenizer", "Unigram"],
        ),
    ] {
        let folder = folder(&file, class, family, json!({}));
        let error = load(folder.path()).unwrap_err().to_string();
        let named = error.contains("tokenizer_config.json, key `tokenizer_class`");
        assert!(
            named && parts.iter().all(|part| error.contains(part)),
            "{error}"
        );
    }
}
