//! Direct mapping between small tokenizers, and cases that string-level maps get wrong.

use crate::common;

use std::sync::Arc;

use common::{Prefix, TEXTS, byte_level_json, load, sentence_piece_json, small};
use serde_json::json;
use vocab_align::{
    AlignError, Alignment, DraftContext, DraftId, MappingMode, SpecialRole, TargetId, TokenId,
    Vocabulary,
};

fn sentence_piece<I: TokenId>() -> Vocabulary<I> {
    load(&sentence_piece_json(80, Prefix::Normalizer), "sp")
}

fn byte_level<I: TokenId>() -> Vocabulary<I> {
    load(&byte_level_json(200), "bl")
}

#[test]
fn mapped_tokens_have_equal_bytes_or_roles() {
    for (draft_name, draft) in small() {
        for (target_name, target) in small() {
            let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
            for id in (0..draft.len() as u32).map(DraftId) {
                let Some(other) = alignment.direct(id) else {
                    continue;
                };
                assert!(other.index() < target.len());
                assert_eq!(
                    draft.bytes(id),
                    target.bytes(other),
                    "{draft_name} {target_name} {id}"
                );
                assert_eq!(draft.role(id).is_some(), target.role(other).is_some());
            }
            for id in (0..target.len() as u32).map(TargetId) {
                let Some(other) = alignment.draft_of(id) else {
                    continue;
                };
                assert_eq!(
                    draft.bytes(other),
                    target.bytes(id),
                    "{draft_name} {target_name} {id}"
                );
            }
            assert_eq!(alignment.stats().byte_mismatches, 0);
        }
    }
}

#[test]
fn every_shared_byte_string_is_mapped() {
    let (draft, target) = (sentence_piece::<DraftId>(), byte_level::<TargetId>());
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    let mut by_hand = 0;
    for id in (0..draft.len() as u32).map(DraftId) {
        let Some(bytes) = draft.bytes(id) else {
            continue;
        };
        let exists = (0..target.len() as u32).any(|t| target.bytes(TargetId(t)) == Some(bytes));
        assert_eq!(alignment.direct(id).is_some(), exists, "{id}");
        by_hand += usize::from(exists);
    }
    assert_eq!(alignment.stats().direct_tokens, by_hand);
    assert!(by_hand > 256);
}

#[test]
fn pairs_are_one_to_one_and_canonical() {
    let (draft, target) = (sentence_piece(), byte_level());
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    let pairs = alignment.pairs();
    assert!(pairs.is_sorted_by(|a, b| a.0 < b.0));
    let targets: std::collections::BTreeSet<_> = pairs.iter().map(|(_, target)| *target).collect();
    assert_eq!(targets.len(), pairs.len());
    for (draft_id, target_id) in pairs {
        assert_eq!(alignment.direct(*draft_id), Some(*target_id));
        assert_eq!(alignment.draft_of(*target_id), Some(*draft_id));
    }
    // `a` and `<0x61>` are both the letter; the model token is the canonical one.
    let (letter, byte) = (
        draft.find_content("a").unwrap(),
        draft.find_content("<0x61>").unwrap(),
    );
    let target_letter = target.find_content("a").unwrap();
    assert_eq!(alignment.direct(letter), Some(target_letter));
    assert_eq!(alignment.direct(byte), Some(target_letter));
    assert_eq!(alignment.draft_of(target_letter), Some(letter));
    assert!(pairs.iter().all(|(id, _)| *id != byte));
}

#[test]
fn line_breaks_and_non_ascii_text_are_mapped_by_bytes_only() {
    let (draft, target) = (sentence_piece(), byte_level());
    let bytes = Alignment::build(&draft, &target, MappingMode::Bytes);
    let paper = Alignment::build(&draft, &target, MappingMode::Paper);
    let line_break = draft.find_content("<0x0A>").unwrap();
    assert_eq!(bytes.direct(line_break), target.find_content("Ċ"));
    assert_eq!(paper.direct(line_break), None, "the paper's rule loses it");

    // As a string, the letter é is the byte-level character for the byte 0xE9.
    let accent = draft.find_content("é").unwrap();
    let wrong = paper.direct(accent).unwrap();
    assert_eq!(target.bytes(wrong), Some(&[0xE9][..]));
    assert_ne!(bytes.direct(accent), Some(wrong));
    assert!(paper.stats().byte_mismatches > 0);
    let dash = draft.find_content("—").unwrap();
    assert_eq!(paper.direct(dash), None);
}

#[test]
fn the_papers_rule_rewrites_a_leading_space_only() {
    let vocab = |tokens: &[&str]| -> serde_json::Value {
        tokens
            .iter()
            .enumerate()
            .map(|(i, t)| (t.to_string(), json!(i)))
            .collect::<serde_json::Map<_, _>>()
            .into()
    };
    let draft = json!({
        "decoder": {"type": "Metaspace", "replacement": "▁"},
        "model": {"type": "BPE", "vocab": vocab(&["▁a", "▁▁", "b", "▁", "Ġ", "<s>", "c"]), "merges": []},
    });
    let target = json!({
        "added_tokens": [{"id": 6, "content": "c", "special": false}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
        "model": {"type": "BPE", "vocab": vocab(&["b", "Ġa", "ĠĠ", "Ġ", "<s>", "x"]), "merges": []},
    });
    let (draft, target) = (load(&draft, "draft"), load(&target, "target"));
    let paper = Alignment::build(&draft, &target, MappingMode::Paper);
    let direct: Vec<_> = (0..7)
        .map(|id| paper.direct(DraftId(id)).map(TokenId::get))
        .collect();
    // ▁▁ becomes Ġ▁; Ġ collides with ▁; <s> is an ordinary token here; c is an added token.
    assert_eq!(
        direct,
        [Some(1), None, Some(0), Some(3), Some(3), Some(4), None]
    );
    let pairs = [(0, 1), (2, 0), (3, 3), (5, 4)].map(|(d, t)| (DraftId(d), TargetId(t)));
    assert_eq!(paper.pairs(), pairs);
    let stats = paper.stats();
    assert_eq!(
        (stats.direct_tokens, stats.byte_mismatches),
        (5, 1),
        "Ġ is not a space"
    );
    assert_eq!(
        (stats.draft_vocab, stats.target_vocab, stats.pairs),
        (7, 7, 4)
    );
    assert_eq!(stats.draft_coverage, 5.0 / 7.0);
    assert_eq!(stats.target_coverage, 4.0 / 7.0);

    let bytes = Alignment::build(&draft, &target, MappingMode::Bytes);
    let direct: Vec<_> = (0..7)
        .map(|id| bytes.direct(DraftId(id)).map(TokenId::get))
        .collect();
    assert_eq!(
        direct,
        [Some(1), Some(2), Some(0), Some(3), None, Some(4), Some(6)]
    );
}

#[test]
fn a_vocabulary_maps_to_itself_token_by_token() {
    for (name, draft) in small::<DraftId>() {
        let target: Vocabulary<TargetId> = draft.retag();
        for mode in [MappingMode::Bytes, MappingMode::Paper] {
            let alignment = Alignment::build(&draft, &target, mode);
            assert_eq!(alignment.pairs().len(), draft.len(), "{name} {mode:?}");
            assert!(
                alignment.pairs().iter().all(|(d, t)| d.get() == t.get()),
                "{name}"
            );
        }
    }
}

#[test]
fn specials_map_by_role_not_by_name() {
    let (draft, target) = (sentence_piece(), byte_level());
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    let eos = draft.special(SpecialRole::Eos).unwrap();
    let target_eos = target.special(SpecialRole::Eos).unwrap();
    let turn = target.special(SpecialRole::EndOfTurn).unwrap();
    // The drafter's only end token stands for both ends in its context; drafted, it means the more
    // frequent one.
    assert_eq!(alignment.direct(eos), Some(turn));
    assert_eq!(alignment.draft_of(target_eos), Some(eos));
    assert_eq!(alignment.draft_of(turn), Some(eos));
    assert_eq!(alignment.special_of(turn), Some(eos));
    assert!(alignment.pairs().contains(&(eos, turn)));
    // No counterpart: <unk> and <s> of the drafter, <|im_start|> of the target.
    assert_eq!(alignment.direct(DraftId(0)), None);
    assert_eq!(
        alignment.direct(draft.special(SpecialRole::Bos).unwrap()),
        None
    );
    assert_eq!(
        alignment.draft_of(target.find_content("<|im_start|>").unwrap()),
        None
    );
    assert_eq!(alignment.stats().special_tokens, 1);
}

#[test]
fn a_stale_alignment_is_refused() {
    let (draft, target) = (sentence_piece(), byte_level());
    let alignment = Arc::new(Alignment::build(&draft, &target, MappingMode::Bytes));
    let other: Vocabulary<TargetId> = load(&byte_level_json(199), "revised");
    let error = DraftContext::new(draft.clone(), other, alignment.clone()).unwrap_err();
    assert!(
        matches!(&error, AlignError::StaleAlignment { side: "target", .. }),
        "{error}"
    );
    let other: Vocabulary<DraftId> = load(&sentence_piece_json(81, Prefix::Normalizer), "revised");
    let error = DraftContext::new(other, target.clone(), alignment.clone()).unwrap_err();
    assert!(
        error.to_string().contains("drafter tokenizer revised"),
        "{error}"
    );
    assert!(DraftContext::new(draft, target, alignment).is_ok());
}

#[test]
fn padding_rows_of_an_embedding_are_not_vocabulary() {
    let (draft, target) = (sentence_piece::<DraftId>(), byte_level::<TargetId>());
    let alignment = Alignment::build(&draft, &target, MappingMode::Bytes);
    assert_eq!(alignment.stats().target_vocab, target.len());
    let padding = TargetId(target.len() as u32);
    assert_eq!(target.bytes(padding), None);
    assert_eq!(alignment.draft_of(padding), None);
    assert_eq!(alignment.direct(DraftId(draft.len() as u32 + 5)), None);
    let mut context = common::context(&draft, &target);
    // In a context they contribute nothing, and text continues as if they were not there.
    let text = target.encode("The dog").unwrap();
    let (start, rest) = text.split_at(1);
    context
        .push(&[start, &[padding, TargetId(1 << 20)], rest].concat())
        .unwrap();
    let with = context.ids().to_vec();
    context.start(&[], &[]);
    context.push(&text).unwrap();
    assert_eq!(with, context.ids());
    assert_eq!(context.lengths().iter().sum::<usize>(), "The dog".len());
}

#[test]
fn text_outside_the_intersection_is_never_unk() {
    let (draft, target) = (sentence_piece::<DraftId>(), byte_level::<TargetId>());
    let unk = draft.special(SpecialRole::Unk).unwrap();
    let mut context = common::context(&draft, &target);
    for text in TEXTS {
        context.start(&[], &[]);
        context.push(&target.encode(text).unwrap()).unwrap();
        assert!(!context.ids().contains(&unk), "{text:?}");
        // The dummy prefix, and the space sign in the text.
        let read = draft.decode_lossy(context.ids());
        let read = read.strip_prefix(' ').unwrap_or(&read);
        assert_eq!(read, text.replace('▁', " "));
    }
}

#[test]
fn statistics_have_the_documented_keys() {
    let alignment = Alignment::build(&sentence_piece(), &byte_level(), MappingMode::Paper);
    let json = serde_json::to_value(alignment.stats()).unwrap();
    for key in [
        "draft_vocab",
        "target_vocab",
        "direct_tokens",
        "draft_coverage",
        "target_coverage",
    ] {
        assert!(json[key].is_number(), "{key}");
    }
    assert_eq!(json["mode"], "paper");
}
