//! Small tokenizer files, one for each feature that real ones have. Ids of whole texts, and of
//! contexts pushed token by token, are compared with the `tokenizers` library.

use crate::common;

use std::sync::Arc;

use common::strings::strings;
use common::{Prefix, byte_level_json, context, load, raw, sentence_piece_json};
use serde_json::{Value, json};
use tokenizers::Tokenizer;
use vocab_align::{
    Alignment, DraftContext, DraftId, MappingMode, TargetId, Vocabulary, align_offsets,
};

const TEXTS: &[&str] = &[
    "",
    " ",
    "The quick brown fox jumps",
    "  two  spaces , and more    ",
    "a <|user|>  b<|user|>c\n<|user|>\n d",
    "<|word|> x<|word|> <|word|>y <|word|>",
    "x    y        z  \n    return",
    "12345678901234567890123456 and 1234567 or 12,345,678.",
    "über ò a٣b Ⅻ x² café cafe\u{301} ﬁ Å",
    "ABC def ＡＢＣ",
    "<s>x<s> <s>xy</s>",
    "“quotes” — 漢字 😀😀 ▁▁ z",
    "\u{0}\t\r\n\n\u{a0}end",
];

fn library(json: &Value, text_only: bool) -> Tokenizer {
    let mut library = Tokenizer::from_bytes(json.to_string()).expect("a valid tokenizer");
    library.set_encode_special_tokens(text_only);
    library
}

fn ids(library: &Tokenizer, text: &str, frame: bool) -> Vec<u32> {
    let encoding = library.encode(text, frame).expect("encodes");
    encoding.get_ids().to_vec()
}

fn texts(generated: usize) -> Vec<String> {
    let fixed = TEXTS.iter().map(|text| (*text).to_owned());
    fixed.chain(strings(11, generated)).collect()
}

/// A target without any of the features. Its text comes byte by byte or in its own tokens.
fn target() -> Vocabulary<TargetId> {
    load(&byte_level_json(60), "target")
}

/// Compares whole texts, and every state of a context that ends a character.
#[track_caller]
fn check(name: &str, json: &Value) {
    let vocabulary: Vocabulary<DraftId> = load(json, name);
    let (whole, text_only) = (library(json, false), library(json, true));
    let target = target();
    let mut context = context(&vocabulary, &target);
    let frame: Vec<DraftId> = vocabulary.encode_whole("").unwrap();
    for text in texts(150) {
        for framed in [true, false] {
            let found = match framed {
                true => vocabulary.encode_whole(&text),
                false => vocabulary.encode_with_specials(&text),
            };
            let expected = ids(&whole, &text, framed);
            assert_eq!(raw(&found.unwrap()), expected, "{name}: {text:?}");
        }
        context.start(&frame, &[]);
        let mut said = Vec::new();
        for token in target.encode(&text).unwrap() {
            context.push(&[token]).unwrap();
            said.extend_from_slice(target.bytes(token).unwrap());
            let spelled = context.lengths().iter().sum::<usize>();
            assert!(spelled <= said.len(), "{name}: {text:?}");
            if let Ok(text) = std::str::from_utf8(&said) {
                let found = raw(&context.ids()[frame.len()..]);
                assert_eq!(found, ids(&text_only, text, false), "{name}: {text:?}");
            }
        }
    }
    println!("{name}: {} windows grew", context.grown_windows());
}

fn add(json: &mut Value, token: Value) {
    let known = json["model"]["vocab"]
        .as_object()
        .map_or(0, serde_json::Map::len);
    let added = json["added_tokens"].as_array_mut().expect("a list");
    let beyond = added
        .iter()
        .filter(|t| t["id"].as_u64() >= Some(known as u64))
        .count();
    let mut entry = json!({
        "id": known + beyond, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true,
    });
    for (key, value) in token.as_object().expect("an object") {
        entry[key] = value.clone();
    }
    added.push(entry);
}

#[test]
fn dummy_prefixes_of_every_scheme() {
    for scheme in ["always", "first", "never"] {
        for split in [true, false] {
            let mut json = sentence_piece_json(150, Prefix::Metaspace);
            json["pre_tokenizer"]["prepend_scheme"] = json!(scheme);
            json["pre_tokenizer"]["split"] = json!(split);
            check(&format!("metaspace {scheme}, split {split}"), &json);
            let space = json["pre_tokenizer"].take();
            let digits = json!({"type": "Digits", "individual_digits": true});
            json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [space, digits]});
            check(&format!("metaspace {scheme}, split {split}, digits"), &json);
        }
    }
    let mut legacy = sentence_piece_json(150, Prefix::Normalizer);
    check("legacy", &legacy);
    add(&mut legacy, json!({"content": "quick", "special": false}));
    check("legacy with added text", &legacy);
    let mut bytes = byte_level_json(200);
    bytes["pre_tokenizer"]["add_prefix_space"] = json!(true);
    check("byte level", &bytes);
}

/// After a special token in a response, legacy files write their prefix again.
#[test]
fn dummy_prefixes_behind_special_tokens() {
    let target = target();
    let end = target.find_content("<|im_end|>").unwrap();
    for (scheme, prefix) in [
        ("", Prefix::Normalizer),
        ("always", Prefix::Metaspace),
        ("first", Prefix::Metaspace),
        ("never", Prefix::Metaspace),
    ] {
        let mut json = sentence_piece_json(150, prefix);
        if !scheme.is_empty() {
            json["pre_tokenizer"]["prepend_scheme"] = json!(scheme);
        }
        let draft: Vocabulary<DraftId> = load(&json, "draft");
        let mut context = context(&draft, &target);
        context.start(&[], &[]);
        let said = [
            &target.encode("The dog").unwrap()[..],
            &[end],
            &target.encode("The dog").unwrap(),
        ];
        context.push(&said.concat()).unwrap();
        let expected = ids(&library(&json, false), "The dog</s>The dog", false);
        assert_eq!(raw(context.ids()), expected, "{scheme}");
        assert_eq!(context.lengths().iter().sum::<usize>(), 14);
    }
}

/// If drafter and target both write a dummy prefix, the target's is not text for the drafter.
#[test]
fn a_dummy_prefix_of_both_is_written_once() {
    let json = sentence_piece_json(150, Prefix::Normalizer);
    let (draft, target): (Vocabulary<DraftId>, Vocabulary<TargetId>) =
        (load(&json, "draft"), load(&json, "target"));
    let mut context = context(&draft, &target);
    let said = target.encode_with_specials("The dog</s>The dog").unwrap();
    context.start(&[], &[]);
    for token in &said {
        context.push(&[*token]).unwrap();
    }
    assert_eq!(raw(context.ids()), raw(&said));
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    assert_eq!(context.lengths(), alignment.spelled_lengths(&target, &said));
}

#[test]
fn added_tokens_take_white_space_along() {
    for (lstrip, rstrip) in [(true, false), (false, true), (true, true)] {
        for special in [true, false] {
            let mut json = byte_level_json(100);
            let strips = json!({"lstrip": lstrip, "rstrip": rstrip, "special": special});
            let with = |content: &str| {
                let mut token = strips.clone();
                token["content"] = json!(content);
                token
            };
            add(&mut json, with("<|user|>"));
            let mut word = with("<|word|>");
            word["single_word"] = json!(true);
            add(&mut json, word);
            check(&format!("strips {strips}"), &json);
        }
    }
}

/// A marker of the target is also one of the drafter's, where it absorbs white space.
#[test]
fn markers_of_a_context_take_white_space_along() {
    for (lstrip, rstrip) in [(true, false), (false, true), (true, true), (false, false)] {
        let mut json = byte_level_json(100);
        add(
            &mut json,
            json!({"content": "<|user|>", "lstrip": lstrip, "rstrip": rstrip}),
        );
        let mut plain = byte_level_json(60);
        add(&mut plain, json!({"content": "<|user|>"}));
        let (draft, target): (Vocabulary<DraftId>, Vocabulary<TargetId>) =
            (load(&json, "draft"), load(&plain, "target"));
        let mut context = context(&draft, &target);
        let text = "The dog \n<|user|>\n  and more";
        context.start(&[], &[]);
        for token in target.encode_with_specials(text).unwrap() {
            context.push(&[token]).unwrap();
        }
        let expected = ids(&library(&json, false), text, false);
        assert_eq!(raw(context.ids()), expected, "{lstrip} {rstrip}");
        let said = text.len() - "<|user|>".len();
        assert_eq!(context.lengths().iter().sum::<usize>(), said);
    }
}

#[test]
fn added_tokens_that_are_text() {
    let mut json = byte_level_json(100);
    for spaces in [2, 4, 8] {
        let content = " ".repeat(spaces);
        add(
            &mut json,
            json!({"content": content, "special": false, "normalized": true}),
        );
    }
    check("runs of spaces", &json);
    let draft: Vocabulary<DraftId> = load(&json, "draft");
    let indented = draft.encode("x\n        return").unwrap();
    assert!(indented.contains(&draft.find_content("        ").unwrap()));
}

#[test]
fn normalizers() {
    for normalizer in [
        json!({"type": "NFC"}),
        json!({"type": "NFD"}),
        json!({"type": "NFKC"}),
        json!({"type": "Lowercase"}),
        json!({"type": "StripAccents"}),
        json!({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
        json!({"type": "Replace", "pattern": {"String": "“"}, "content": "\""}),
        json!({"type": "Sequence", "normalizers": [
            {"type": "NFKC"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": true, "strip_right": true},
        ]}),
    ] {
        let mut json = byte_level_json(150);
        json["normalizer"] = normalizer.clone();
        if normalizer["type"] == "Sequence" {
            whole_only(&normalizer.to_string(), &json);
        } else {
            check(&normalizer.to_string(), &json);
        }
    }
}

/// Files that strip the start of a text: only whole texts are compared.
fn whole_only(name: &str, json: &Value) {
    let vocabulary: Vocabulary<DraftId> = load(json, name);
    let library = library(json, false);
    for text in texts(150) {
        let found = vocabulary.encode_whole(&text).unwrap();
        assert_eq!(raw(&found), ids(&library, &text, true), "{name}: {text:?}");
    }
}

#[test]
fn stages_behind_byte_level_see_its_characters() {
    let mut json = byte_level_json(150);
    let bytes = json["pre_tokenizer"].take();
    let digits = json!({"type": "Digits", "individual_digits": true});
    let split = json!({"type": "Split", "pattern": {"Regex": "[0-9][0-9][0-9]"}, "behavior": "Isolated", "invert": false});
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Punctuation", "behavior": "Contiguous"}, bytes, digits, split,
    ]});
    check("digits behind byte level", &json);
}

fn digits_from_the_right() -> Value {
    let mut json = byte_level_json(60);
    let digits = r"\d{1,3}(?=(?:\d{3})*(?!\d))";
    let digits = json!({"type": "Split", "pattern": {"Regex": digits}, "behavior": "Isolated", "invert": false});
    let bytes = json["pre_tokenizer"].take();
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [digits, bytes]});
    // Every group of digits is a token, so that another cut is another token.
    let known = json["model"]["vocab"]
        .as_object()
        .map_or(0, serde_json::Map::len) as u64;
    let specials = json["added_tokens"].as_array().map_or(0, Vec::len);
    assert_eq!(specials, 3);
    for (n, group) in (0..1000).enumerate() {
        let (tens, units) = (format!("{:02}", group / 10), group % 10);
        json["model"]["vocab"][format!("{tens}{units}")] = json!(known + n as u64);
        if units == 0 {
            let merges = json["model"]["merges"].as_array_mut().expect("a list");
            merges.extend((0..10).map(|u| json!([tens, u.to_string()])));
        }
    }
    let mut id = known + 1000;
    for n in 0..100 {
        let pair = format!("{n:02}");
        if json["model"]["vocab"].get(&pair).is_none() {
            json["model"]["vocab"][&pair] = json!(id);
            id += 1;
        }
        let merge = json!([pair[..1], pair[1..]]);
        json["model"]["merges"]
            .as_array_mut()
            .expect("a list")
            .insert(0, merge);
    }
    json
}

/// No cut inside a number is final, and none is reported as final.
#[test]
fn digits_grouped_from_the_right() {
    let json = digits_from_the_right();
    check("digits from the right", &json);
    let (draft, target): (Vocabulary<DraftId>, _) = (load(&json, "draft"), target());
    let mut context = context(&draft, &target);
    context.start(&[], &[]);
    let mut text = "x ".to_owned();
    context.push(&target.encode(&text).unwrap()).unwrap();
    for i in 0..200 {
        let digit = ((i * 7) % 10).to_string();
        text.push_str(&digit);
        context.push(&target.encode(&digit).unwrap()).unwrap();
        assert_eq!(context.ids(), draft.encode(&text).unwrap());
        let open = text.len() - context.open_bytes();
        assert!(open <= 2, "a cut at {open} of {text:?} is taken for final");
    }
    assert_eq!(context.grown_windows(), 0);
    context
        .push(&target.encode(" and so on, and so on.").unwrap())
        .unwrap();
    assert!(context.open_bytes() < 40);
}

/// A marker whose name holds one of the drafter's special tokens is text, all of it.
#[test]
fn a_marker_whose_name_holds_another_marker() {
    let mut json = byte_level_json(60);
    add(&mut json, json!({"content": "<s>"}));
    let mut other = byte_level_json(30);
    add(&mut other, json!({"content": "<s>x"}));
    let (draft, target): (Vocabulary<DraftId>, Vocabulary<TargetId>) =
        (load(&json, "draft"), load(&other, "target"));
    let marker = target.find_content("<s>x").unwrap();
    let alignment = Arc::new(Alignment::build(&draft, &target, MappingMode::Bytes));
    let mut context = DraftContext::new(draft.clone(), target.clone(), alignment.clone()).unwrap();
    context.start(&[], &[]);
    let said = [
        &target.encode("The dog").unwrap()[..],
        &[marker],
        &target.encode(" jumps").unwrap(),
    ];
    let said = said.concat();
    context.push(&said).unwrap();
    assert_eq!(draft.decode_lossy(context.ids()), "The dog<s>x jumps");
    assert!(!context.ids().contains(&draft.find_content("<s>").unwrap()));
    let lengths = alignment.spelled_lengths(&target, &said);
    assert_eq!(
        lengths.iter().sum::<usize>(),
        context.lengths().iter().sum::<usize>()
    );
    for span in align_offsets(context.lengths(), &lengths) {
        let drafted = (&draft, &context.ids()[span.draft]);
        assert!(alignment.same_text(drafted, (&target, &said[span.target])));
    }
    // In prompts the longest name wins, as in the library.
    add(&mut json, json!({"content": "<s>x"}));
    check("<s> in <s>x", &json);
}

/// A byte-level vocabulary without these bytes.
fn without(json: &mut Value, missing: impl Fn(char) -> bool) {
    let vocab = json["model"]["vocab"].as_object_mut().expect("an object");
    let mut kept: Vec<(String, u64)> = vocab
        .iter()
        .filter(|(content, _)| !content.chars().any(&missing))
        .map(|(content, id)| (content.clone(), id.as_u64().expect("an id")))
        .collect();
    kept.sort_by_key(|(_, id)| *id);
    *vocab = kept
        .into_iter()
        .enumerate()
        .map(|(id, (content, _))| (content, json!(id)))
        .collect();
    let vocab = vocab.clone();
    let merges = json["model"]["merges"].as_array_mut().expect("a list");
    merges.retain(|merge| {
        let pair = [&merge[0], &merge[1]].map(|part| part.as_str().unwrap_or_default());
        pair.iter().all(|part| vocab.contains_key(*part)) && vocab.contains_key(&pair.concat())
    });
}

/// The first byte without a token of its own.
fn missing_byte(vocabulary: &Vocabulary<DraftId>) -> Option<u8> {
    (0..=255).find(|byte| vocabulary.spell(&[*byte]).unwrap().is_empty())
}

/// Alphabets without the bytes that UTF-8 never has (as added tokens or not at all), and without
/// some that it has.
#[test]
fn partial_alphabets() {
    let never = |c: char| "ÀÁõö÷øùúûüýþÿ".contains(c);
    let mut json = byte_level_json(100);
    without(&mut json, never);
    check("no bytes that UTF-8 never has", &json);
    let partial: Vocabulary<DraftId> = load(&json, "partial");
    assert_eq!(missing_byte(&partial), Some(0xC0));
    for c in "ÀÁõö÷øùúûüýþÿ".chars() {
        add(
            &mut json,
            json!({"content": c.to_string(), "special": false, "normalized": true}),
        );
    }
    // The library decodes an added `õ` as byte F5.
    let full: Vocabulary<DraftId> = load(&json, "added");
    assert_eq!(
        full.bytes(full.find_content("õ").unwrap()),
        Some(&[0xF5][..])
    );
    assert_eq!(missing_byte(&full), None);
    check("these bytes as added tokens", &json);

    let mut json = byte_level_json(100);
    without(&mut json, |c| "ZjðŁÃ".contains(c));
    check("no emoji, no Latin letters, nothing for them", &json);
    let unknown = "<|endoftext|>";
    json["model"]["unk_token"] = json!(unknown);
    for fuse in [true, false] {
        json["model"]["fuse_unk"] = json!(fuse);
        check("unknown bytes", &json);
    }
}

#[test]
fn sentence_piece_without_byte_fallback() {
    for prefix in [Prefix::Normalizer, Prefix::Metaspace, Prefix::Absent] {
        for fuse in [true, false] {
            let mut json = sentence_piece_json(80, prefix);
            json["model"]["byte_fallback"] = json!(false);
            json["model"]["fuse_unk"] = json!(fuse);
            check("unknown characters", &json);
            json["model"]["unk_token"] = Value::Null;
            check("forgotten characters", &json);
        }
    }
}

fn unigram(bytes: bool) -> Value {
    let mut vocab = vec![
        json!(["<unk>", 0.0]),
        json!(["<s>", 0.0]),
        json!(["</s>", 0.0]),
    ];
    if bytes {
        vocab.extend((0..=255u8).map(|b| json!([format!("<0x{b:02X}>"), -20.0])));
    }
    for c in (' '..='~').skip(1).chain("▁éüöä—“”".chars()) {
        vocab.push(json!([c.to_string(), -8.0]));
    }
    for (i, word) in [
        "▁the", "▁The", "▁dog", "ing", "er", "▁quick", "ck", "▁▁", "12", "123", "ab",
    ]
    .iter()
    .enumerate()
    {
        vocab.push(json!([word, -3.0 - 0.25 * i as f64]));
    }
    let special = |id: u64, content: &str| {
        json!({
            "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true,
        })
    };
    json!({
        "version": "1.0",
        "added_tokens": [special(0, "<unk>"), special(1, "<s>"), special(2, "</s>")],
        "normalizer": {"type": "NFKC"},
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab, "byte_fallback": bytes},
    })
}

#[test]
fn unigram_models() {
    for bytes in [true, false] {
        for scheme in ["always", "first", "never"] {
            let mut json = unigram(bytes);
            json["pre_tokenizer"]["prepend_scheme"] = json!(scheme);
            check(&format!("unigram {scheme}, bytes {bytes}"), &json);
            // One piece per text, as in files without a pre-tokenizer.
            json["pre_tokenizer"]["split"] = json!(false);
            check(
                &format!("unigram {scheme}, bytes {bytes}, one piece"),
                &json,
            );
        }
    }
}

#[test]
fn what_cannot_be_followed_is_refused_with_its_reason() {
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut json = byte_level_json(20);
        change(&mut json);
        let error = Vocabulary::<DraftId>::from_json(json.to_string(), "x.json").unwrap_err();
        error.to_string()
    };
    let fixed = refused(&|j| j["pre_tokenizer"] = json!({"type": "FixedLength", "length": 3}));
    assert!(fixed.contains("cuts by position"), "{fixed}");
    let everywhere = refused(&|j| {
        let bytes = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
        let digits = json!({"type": "Digits", "individual_digits": true});
        j["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [digits, bytes]});
    });
    assert!(everywhere.contains("dummy prefix"), "{everywhere}");
    let holes = refused(&|j| j["added_tokens"][2]["id"] = json!(5000));
    assert!(holes.contains("added_tokens[2].id"), "{holes}");
    let affix = refused(&|j| j["model"]["end_of_word_suffix"] = json!("</w>"));
    assert!(affix.contains("subword affix"), "{affix}");
    let unknown = refused(&|j| j["model"] = json!({"type": "Unigram", "vocab": [["a", 0.0]]}));
    assert!(unknown.contains("without unknown token"), "{unknown}");
    let words = refused(&|j| j["model"]["type"] = json!("WordPiece"));
    assert!(words.contains("WordPiece"), "{words}");
}
