//! Loading, encoding and decoding of small tokenizers made in code.

use crate::common;

use common::{
    Prefix, TEXTS, byte_level_json, load, raw, reference, reference_ids, sentence_piece_json, small,
};
use proptest::prelude::*;
use serde_json::json;
use vocab_align::{DraftId, SpecialRole, TokenId, Vocabulary};

#[test]
fn spelling_is_byte_exact() {
    for (name, vocabulary) in small::<DraftId>() {
        for text in TEXTS {
            let ids = vocabulary.spell(text.as_bytes()).unwrap();
            assert_eq!(vocabulary.decode_lossy(&ids), *text, "{name}");
            assert!(
                ids.iter().all(|id| vocabulary.role(*id).is_none()),
                "{name}: {text:?}"
            );
        }
    }
}

#[test]
fn broken_utf8_takes_byte_tokens() {
    let emoji = "x😀".as_bytes();
    let broken: [&[u8]; 5] = [
        &emoji[..2],
        &emoji[..4],
        &emoji[3..],
        &[0xFF, b'a', 0xC3],
        b"\xE2\x96 \x81",
    ];
    for (name, vocabulary) in small::<DraftId>() {
        for bytes in broken {
            for ids in [vocabulary.spell(bytes), vocabulary.encode_bytes(bytes)] {
                assert_eq!(vocabulary.decode_bytes(&ids.unwrap()), bytes, "{name}");
            }
        }
    }
}

/// Text in the middle of other text has the library's ids without the dummy prefix.
#[test]
fn the_dummy_prefix_is_written_at_the_start_only() {
    for prefix in [Prefix::Normalizer, Prefix::Metaspace, Prefix::Absent] {
        let json = sentence_piece_json(100, prefix);
        let (vocabulary, original) = (load::<DraftId>(&json, "sp"), reference(&json));
        for text in TEXTS {
            let whole = vocabulary.encode_whole(text).unwrap();
            assert_eq!(raw(&whole), reference_ids(&original, text), "{text:?}");
            if text.contains(['▁', '<']) {
                continue;
            }
            // Metaspace leaves the prefix out before a space.
            let dummy = match prefix {
                Prefix::Absent => false,
                Prefix::Metaspace => !text.is_empty() && !text.starts_with(' '),
                Prefix::Normalizer => !text.is_empty(),
            };
            let prefixed = format!("{}{text}", if dummy { " " } else { "" });
            let ids = vocabulary.encode(&prefixed).unwrap();
            assert_eq!(raw(&ids), reference_ids(&original, text), "{text:?}");
        }
    }
    let vocabulary: Vocabulary<DraftId> = load(&sentence_piece_json(80, Prefix::Normalizer), "sp");
    let first = vocabulary.encode("The").unwrap()[0];
    assert!(!vocabulary.content(first).unwrap().starts_with('▁'));
    assert_eq!(vocabulary.encode(" ").unwrap().len(), 1);
    // The library takes the sign itself for a space; byte by byte it is text.
    assert_eq!(vocabulary.encode("▁").unwrap().len(), 1);
    let sign = vocabulary.spell("▁".as_bytes()).unwrap();
    assert_eq!(sign.len(), 3);
    let fallback = |id: &DraftId| vocabulary.content(*id).unwrap().starts_with("<0x");
    assert!(sign.iter().all(fallback));
}

#[test]
fn token_strings_become_bytes() {
    let sp: Vocabulary<DraftId> = load(&sentence_piece_json(80, Prefix::Normalizer), "sp");
    let line_break = sp.find_content("<0x0A>").unwrap();
    assert_eq!(sp.bytes(line_break), Some(&b"\n"[..]));
    // This vocabulary has the raw line break too, and that one is canonical.
    assert_eq!(sp.find_bytes(b"\n"), sp.find_content("\n"));
    assert_ne!(sp.find_bytes(b"\n"), Some(line_break));
    assert_eq!(sp.find_bytes(&[0xE9]), sp.find_content("<0xE9>"));
    let space_t = sp.find_content("▁t").unwrap();
    assert_eq!(sp.bytes(space_t), Some(&b" t"[..]));
    let bl: Vocabulary<DraftId> = load(&byte_level_json(60), "bl");
    assert_eq!(bl.bytes(bl.find_content("Ċ").unwrap()), Some(&b"\n"[..]));
    assert_eq!(bl.bytes(bl.find_content("Ġt").unwrap()), Some(&b" t"[..]));
}

#[test]
fn special_tokens_have_roles_and_no_bytes() {
    let bl: Vocabulary<DraftId> = load(&byte_level_json(60), "bl");
    let eos = bl.special(SpecialRole::Eos).unwrap();
    let turn = bl.special(SpecialRole::EndOfTurn).unwrap();
    assert_eq!(bl.content(eos), Some("<|endoftext|>"));
    assert_eq!(bl.content(turn), Some("<|im_end|>"));
    assert_eq!(
        bl.role(bl.find_content("<|im_start|>").unwrap()),
        Some(SpecialRole::Other)
    );
    assert_eq!(bl.special(SpecialRole::Bos), None);
    assert_eq!(bl.bytes(eos), None);

    let sp: Vocabulary<DraftId> = load(&sentence_piece_json(80, Prefix::Normalizer), "sp");
    let roles = [SpecialRole::Unk, SpecialRole::Bos, SpecialRole::Eos];
    assert_eq!(
        roles.map(|role| sp.special(role)),
        [0, 1, 2].map(|id| Some(DraftId(id)))
    );

    let text = "a<|im_start|>b <|im_end|>";
    let ids = bl.encode_with_specials(text).unwrap();
    assert_eq!(ids.iter().filter(|id| bl.role(**id).is_some()).count(), 2);
    assert_eq!(
        bl.decode_lossy(&ids),
        "ab ",
        "specials decode to nothing, the space stays"
    );
    assert_eq!(
        bl.decode_lossy(&bl.encode(text).unwrap()),
        text,
        "elsewhere they are text"
    );
}

#[test]
fn added_tokens_that_are_not_special_are_text() {
    let mut json = byte_level_json(60);
    let id = 256 + 3 + 60;
    let added = json!({"id": id, "content": "<tool é>", "special": false});
    json["added_tokens"].as_array_mut().unwrap().push(added);
    let vocabulary: Vocabulary<DraftId> = load(&json, "bl");
    assert_eq!(vocabulary.len(), id + 1);
    let token = DraftId(id as u32);
    assert_eq!(vocabulary.bytes(token), Some("<tool é>".as_bytes()));
    assert_eq!(vocabulary.role(token), None);
    assert_eq!(
        vocabulary.encode_with_specials("a<tool é>").unwrap().last(),
        Some(&token)
    );
    // Text may hold it, as the library finds it there.
    assert_eq!(vocabulary.encode("<tool é>").unwrap(), [token]);
}

#[test]
fn a_config_beside_the_file_names_unusual_specials() {
    let folder = std::env::temp_dir().join(format!("vocab-align-roles-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut json = byte_level_json(10);
    let text = json.to_string().replace("<|endoftext|>", "<fin>");
    json = serde_json::from_str(&text).unwrap();
    let path = folder.join("tokenizer.json");
    std::fs::write(&path, json.to_string()).unwrap();
    let vocabulary: Vocabulary<DraftId> = Vocabulary::from_file(&path).unwrap();
    assert_eq!(vocabulary.special(SpecialRole::Eos), None);
    let config = folder.join("tokenizer_config.json");
    std::fs::write(
        &config,
        r#"{"eos_token": {"content": "<fin>"}, "bos_token": null}"#,
    )
    .unwrap();
    let vocabulary: Vocabulary<DraftId> = Vocabulary::from_file(&path).unwrap();
    let eos = vocabulary.special(SpecialRole::Eos).unwrap();
    assert_eq!(vocabulary.content(eos), Some("<fin>"));
    std::fs::write(&config, "{").unwrap();
    let error = Vocabulary::<DraftId>::from_file(&path)
        .unwrap_err()
        .to_string();
    assert!(error.contains("tokenizer_config.json, line 1"), "{error}");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn unigram_models_without_byte_tokens() {
    let vocab = json!([
        ["<unk>", 0.0],
        ["▁", -2.0],
        ["a", -2.5],
        ["▁ab", -1.0],
        ["b", -2.5]
    ]);
    let json = json!({
        "added_tokens": [{"id": 5, "content": "<pad>", "special": true}],
        "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": vocab},
    });
    let vocabulary: Vocabulary<DraftId> = load(&json, "unigram");
    assert_eq!(raw(&vocabulary.encode("ab ab").unwrap()), [2, 4, 3]);
    assert_eq!(vocabulary.len(), 6);
    assert_eq!(vocabulary.content(DraftId(7)), None);
    assert_eq!(vocabulary.bytes(DraftId(7)), None);
    assert_eq!(vocabulary.role(DraftId(5)), Some(SpecialRole::Pad));
    // Without byte tokens some text has no tokens: the library's unknown token stands for it.
    let (ids, lengths) = vocabulary.encode_with_lengths("aéb".as_bytes()).unwrap();
    assert_eq!((raw(&ids), lengths), (vec![2, 0, 4], vec![1, 2, 1]));
    assert_eq!(raw(&vocabulary.spell("aéb".as_bytes()).unwrap()), [2]);
}

#[test]
fn a_small_tail_in_the_middle_of_nowhere() {
    let vocabulary: Vocabulary<DraftId> = load(&byte_level_json(0), "bytes only");
    assert_eq!(vocabulary.encode("abc").unwrap().len(), 3);
    assert!(!vocabulary.is_empty());
    assert_eq!(
        vocabulary.byte_lengths(&[DraftId(0), DraftId(3), DraftId(9999)]),
        [0, 1, 0]
    );
    assert_eq!(vocabulary.decode_bytes(&[DraftId(9999)]), b"");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn any_bytes_round_trip(bytes in prop::collection::vec(any::<u8>(), 0..60), text in ".{0,40}") {
        for (name, vocabulary) in tokenizers() {
            let ids = vocabulary.spell(&bytes).unwrap();
            prop_assert_eq!(&vocabulary.decode_bytes(&ids), &bytes, "{}", name);
            let ids = vocabulary.spell(text.as_bytes()).unwrap();
            prop_assert_eq!(vocabulary.decode_bytes(&ids), text.as_bytes(), "{}", name);
            let (ids, lengths) = vocabulary.encode_with_lengths(&bytes).unwrap();
            prop_assert_eq!(ids.len(), lengths.len());
            prop_assert_eq!(lengths.iter().sum::<usize>(), bytes.len(), "{}", name);
            prop_assert!(ids.iter().all(|id| id.index() < vocabulary.len()));
        }
    }
}

fn tokenizers() -> &'static [(&'static str, Vocabulary<DraftId>)] {
    static ONCE: std::sync::OnceLock<Vec<(&'static str, Vocabulary<DraftId>)>> =
        std::sync::OnceLock::new();
    ONCE.get_or_init(small)
}
