//! The text of a model folder as the keys of a GGUF file, read again by `import_gguf`.

use std::path::{Path, PathBuf};

use lm::{GgufType, StoredCheckpoint, write_gguf};
use models::{ExportError, ModelText, copy_text, gguf_text, import_gguf};
use vocab_align::TargetId;
use weights::GgufEntry;

const TEXTS: [&str; 5] = [
    "Write a haiku about 12345 rivers, please.",
    "def add(a, b):\n    return a + b\n\n\n\tprint(add(2, 3))  # it's 5",
    "Übergrößenträger, naïve café, 東京, здравствуй, 🙂🙃",
    "  two spaces,\r\nand a line's end \n ",
    "<|user|>\nHello<|end|> <s> 007",
];

fn shipped(model: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.join("../../models").join(model)
}

/// A copy of the small files of a shipped model, which a test may change.
fn copied(model: &str, to: &Path) {
    std::fs::create_dir(to).unwrap();
    copy_text(&shipped(model), to).unwrap();
    let config = "config.json";
    std::fs::copy(shipped(model).join(config), to.join(config)).unwrap();
}

fn keys(folder: &Path) -> Result<Vec<(String, GgufEntry)>, ExportError> {
    let config = StoredCheckpoint::read_config(folder).unwrap();
    gguf_text(folder, &config)
}

#[test]
fn a_folder_comes_back_with_its_tokens_and_weights() {
    for model in ["L", "Q"] {
        let folder = tempfile::tempdir().unwrap();
        let (file, back) = (folder.path().join("m.gguf"), folder.path().join("back"));
        let path = shipped(model);
        let source = StoredCheckpoint::open(&path).unwrap();
        let own = keys(&path).unwrap();
        write_gguf(&source, &file, GgufType::F16, own).unwrap();
        import_gguf(&file, &back).unwrap();
        let [before, after] = [&path, &back].map(|path| ModelText::<TargetId>::load(path).unwrap());
        for text in TEXTS {
            let ids = |model: &ModelText<TargetId>| {
                let vocabulary = &model.vocabulary;
                let whole = vocabulary.encode_whole(text).unwrap();
                (whole, vocabulary.encode_with_specials(text).unwrap())
            };
            assert_eq!(ids(&before), ids(&after), "{model}: {text}");
        }
        assert_eq!(before.stop_tokens(), after.stop_tokens(), "{model}");
        let asked = |model: &ModelText<TargetId>| model.template.render("Hello").unwrap().text;
        assert_eq!(asked(&before), asked(&after), "{model}");
    }
}

#[test]
fn a_tokenizer_without_a_name_is_refused_by_what_it_does() {
    let told = keys(&shipped("D")).unwrap_err();
    assert!(told.to_string().contains("byte_fallback"), "{told}");
    assert!(told.hint().unwrap().contains("smollm"), "{told:?}");

    let changed = |key: &str, value: &str| {
        let folder = tempfile::tempdir().unwrap();
        let own = folder.path().join("L");
        copied("L", &own);
        let path = own.join("tokenizer.json");
        let text = std::fs::read_to_string(&path).unwrap();
        let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
        *json.pointer_mut(key).unwrap() = serde_json::from_str(value).unwrap();
        std::fs::write(&path, json.to_string()).unwrap();
        keys(&own)
    };
    let refused = |key: &str, value: &str, part: &str| {
        let told = changed(key, value).unwrap_err().to_string();
        assert!(
            told.contains("tokenizer.json") && told.contains(part),
            "{told}"
        );
    };
    refused("/normalizer", r#"{"type": "Lowercase"}"#, "Lowercase");
    let digits = "/pre_tokenizer/pretokenizers/0/pattern/Regex";
    refused(digits, r#""\\p{N}{1,4}""#, "Split, ByteLevel");
    refused("/added_tokens/2/lstrip", "true", "lstrip");
    refused(
        "/model/end_of_word_suffix",
        r#""</w>""#,
        "end_of_word_suffix",
    );
    let frame = r#"{"type": "TemplateProcessing", "pair": [], "single":
        [{"SpecialToken": {"id": "<|user|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "special_tokens": {"<|user|>": {"id": "<|user|>", "ids": [2], "tokens": ["<|user|>"]}}}"#;
    refused("/post_processor", frame, "`<|user|>` around every text");

    // The token that opens every text is a flag of the file.
    let framed = frame.replace("<|user|>", "<|begin|>").replace("[2]", "[0]");
    let keys = changed("/post_processor", &framed).unwrap();
    let flag = keys.iter().find(|(key, _)| key.ends_with("add_bos_token"));
    assert_eq!(flag.unwrap().1, GgufEntry::Flag(true));
}
