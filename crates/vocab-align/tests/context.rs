//! Incremental re-tokenisation compared with re-tokenising everything.

use crate::common;

use std::sync::OnceLock;

use common::{TEXTS, context, small};
use proptest::prelude::*;
use vocab_align::{DraftContext, DraftId, SpecialRole, TargetId, Vocabulary};

struct Pair {
    name: String,
    draft: Vocabulary<DraftId>,
    target: Vocabulary<TargetId>,
    context: DraftContext,
}

fn pairs() -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (draft_name, draft) in small() {
        for (target_name, target) in small() {
            let context = context(&draft, &target);
            let name = format!("{draft_name} for {target_name}");
            pairs.push(Pair {
                name,
                draft: draft.clone(),
                target,
                context,
            });
        }
    }
    pairs
}

#[test]
fn markers_without_a_counterpart_are_spelled_out() {
    let json = common::byte_level_json(60).to_string();
    let target: Vocabulary<TargetId> = Vocabulary::from_json(&json, "target").unwrap();
    let json = common::sentence_piece_json(60, common::Prefix::Absent).to_string();
    let draft: Vocabulary<DraftId> = Vocabulary::from_json(&json, "draft").unwrap();
    let mut context = context(&draft, &target);
    let start = target.find_content("<|im_start|>").unwrap();
    let end = target.special(SpecialRole::EndOfTurn).unwrap();
    assert_eq!(target.marker(start), Some("<|im_start|>"));
    assert_eq!(target.marker(end), None);

    context.start(&[DraftId(300)], &[TargetId(300)]);
    let text = target.encode("The dog").unwrap();
    let tokens = [text.as_slice(), &[end, start], &text].concat();
    context.push(&tokens).unwrap();
    let the_dog = draft.encode("The dog").unwrap();
    let turn_ends = draft.special(SpecialRole::Eos).unwrap();
    let spelled = draft.encode("<|im_start|>").unwrap();
    assert_eq!(
        context.ids()[1..],
        [the_dog.as_slice(), &[turn_ends], &spelled, &the_dog].concat()
    );

    // Lengths as the context counts them, so that text after a marker stays aligned.
    let alignment = vocab_align::Alignment::build(&draft, &target, vocab_align::MappingMode::Bytes);
    let lengths = alignment.spelled_lengths(&target, &tokens);
    assert_eq!(context.lengths(), draft.byte_lengths(&context.ids()[1..]));
    assert_eq!(
        lengths.iter().sum::<usize>(),
        context.lengths().iter().sum::<usize>()
    );
    assert_eq!(lengths[text.len()..text.len() + 2], [0, 12]);
}

fn common_prefix(a: &[DraftId], b: &[DraftId]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// A prompt that ends in text, in both vocabularies.
fn begin(pair: &mut Pair, prompt: &str) -> Vec<DraftId> {
    let prompt = pair.draft.encode(prompt).unwrap();
    pair.context
        .start(&prompt, &pair.target.encode("p").unwrap());
    prompt
}

/// Pushes `tokens` in groups of the given sizes, checking every intermediate state.
fn follow(pair: &mut Pair, prompt: &str, tokens: &[TargetId], sizes: &[usize]) {
    let prompt = begin(pair, prompt);
    let mut response = Vec::new();
    let mut rest = tokens;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let (now, later) = rest.split_at((*sizes.next().unwrap()).min(rest.len()));
        rest = later;
        let before = pair.context.ids().to_vec();
        let unchanged = pair.context.push(now).unwrap();
        let after = pair.context.ids();
        response.extend_from_slice(&pair.target.decode_bytes(now));
        assert_eq!(unchanged, common_prefix(&before, after), "{}", pair.name);
        assert!(unchanged >= prompt.len());
        let (whole, lengths) = pair.draft.encode_with_lengths(&response).unwrap();
        assert_eq!(after[prompt.len()..], whole, "{}", pair.name);
        assert_eq!(pair.context.lengths(), lengths, "{}", pair.name);
        assert_eq!(lengths.iter().sum::<usize>(), response.len());
        if !response.windows(3).any(|sign| sign == "▁".as_bytes()) {
            assert_eq!(pair.draft.decode_bytes(&whole), response, "{}", pair.name);
        }
        assert!(pair.context.open_bytes() <= 512);
        assert_eq!(pair.context.grown_windows(), 0);
    }
}

#[test]
fn every_step_equals_tokenising_the_whole_response() {
    for mut pair in pairs() {
        for text in TEXTS {
            let tokens = pair.target.encode(text).unwrap();
            follow(&mut pair, "A prompt. ", &tokens, &[1]);
            follow(&mut pair, "p", &tokens, &[3, 1, 5]);
        }
    }
}

#[test]
fn characters_arrive_byte_by_byte() {
    for mut pair in pairs() {
        let bytes = "é😀\n漢".as_bytes();
        let tokens: Vec<TargetId> = bytes
            .iter()
            .map(|byte| pair.target.encode_bytes(&[*byte]).unwrap()[0])
            .collect();
        assert_eq!(pair.target.decode_bytes(&tokens), bytes);
        follow(&mut pair, "x", &tokens, &[1]);
    }
}

#[test]
fn a_run_without_cuts_keeps_the_window_bounded_and_the_tokens_exact() {
    for mut pair in pairs() {
        for run in ["ab", "é", "😀", "\n", "漢", "1", "a1"] {
            let text = run.repeat(1500 / run.len());
            let tokens = pair.target.encode(&text).unwrap();
            let prompt = begin(&mut pair, "x").len();
            let mut pushed = Vec::new();
            for group in tokens.chunks(7) {
                pair.context.push(group).unwrap();
                pushed.extend_from_slice(&pair.target.decode_bytes(group));
                assert!(pair.context.open_bytes() <= 512, "{} {run:?}", pair.name);
                let read = pair.draft.decode_bytes(&pair.context.ids()[prompt..]);
                assert_eq!(read, pushed, "{}", pair.name);
            }
            let whole = pair.draft.encode(&text).unwrap();
            assert_eq!(pair.context.ids()[prompt..], whole, "{} {run:?}", pair.name);
            // All at once.
            begin(&mut pair, "x");
            pair.context.push(&tokens).unwrap();
            assert!(pair.context.open_bytes() <= 512);
            assert_eq!(pair.context.ids()[prompt..], whole, "{} {run:?}", pair.name);
        }
    }
}

#[test]
fn the_window_stays_short_on_ordinary_text() {
    for mut pair in pairs() {
        let text = "The visitor said that it doesn't matter.\n".repeat(40);
        let tokens = pair.target.encode(&text).unwrap();
        begin(&mut pair, "");
        for id in &tokens {
            pair.context.push(&[*id]).unwrap();
            assert!(
                pair.context.open_bytes() < 64,
                "{}: {}",
                pair.name,
                pair.context.open_bytes()
            );
        }
    }
}

#[test]
fn specials_become_their_role_their_name_or_nothing() {
    for mut pair in pairs() {
        let text = pair.target.encode("The end").unwrap();
        let eos = pair.target.special(SpecialRole::Eos).unwrap();
        // A target with one end token ends turns with it.
        let only_end = pair.target.special(SpecialRole::EndOfTurn).is_none();
        let turn = pair.draft.special(SpecialRole::EndOfTurn);
        let draft_eos = pair.draft.special(SpecialRole::Eos).unwrap();
        let draft_eos = turn.filter(|_| only_end).unwrap_or(draft_eos);
        let prompt = begin(&mut pair, "x").len();
        let tokens = [&text[..], &[eos], &text].concat();
        let unchanged = pair.context.push(&tokens).unwrap();
        assert_eq!(unchanged, prompt);
        let one = pair.draft.encode("The end").unwrap();
        // After a special token legacy files write their dummy prefix again.
        let name = pair.draft.content(draft_eos).unwrap().to_owned();
        let behind = pair.draft.encode_with_specials(&format!("{name}The end"));
        let expected = [&one[..], &behind.unwrap()].concat();
        assert_eq!(pair.context.ids()[prompt..], expected, "{}", pair.name);
        let lengths = pair.context.lengths();
        assert_eq!(lengths.iter().sum::<usize>(), 14, "{}", pair.name);

        // The name of a chat marker is tokenised in a vocabulary without it, and <unk> is skipped.
        let marker = pair
            .target
            .find_content("<|im_start|>")
            .or(pair.target.special(SpecialRole::Unk))
            .unwrap();
        let same = pair
            .draft
            .find_content(pair.target.content(marker).unwrap());
        let same = same.filter(|id| pair.draft.role(*id).is_some());
        let name = pair.target.marker(marker).unwrap_or_default();
        let spelled = pair.draft.encode(name).unwrap();
        pair.context.start(&one, &text);
        assert_eq!(pair.context.push(&[marker]).unwrap(), one.len());
        assert_eq!(
            pair.context.ids()[one.len()..],
            same.map_or_else(|| spelled, |id| vec![id]),
            "{}",
            pair.name
        );
    }
}

#[test]
fn a_special_token_ends_an_unfinished_character() {
    for mut pair in pairs() {
        let start = pair.target.encode_bytes(&[0xF0]).unwrap();
        let rest = pair.target.encode_bytes(&[0x9F, 0x98, 0x80]).unwrap();
        let eos = [pair.target.special(SpecialRole::Eos).unwrap()];
        begin(&mut pair, "");
        for tokens in [&start[..], &eos, &rest] {
            pair.context.push(tokens).unwrap();
        }
        assert_eq!(
            pair.draft.decode_bytes(pair.context.ids()),
            "😀".as_bytes(),
            "{}",
            pair.name
        );
    }
}

#[test]
fn the_prompt_is_never_touched() {
    for mut pair in pairs() {
        // As one text, "The qu" + "ick" would be tokenised differently.
        let prompt = pair.draft.encode("The qu").unwrap();
        pair.context.start(&prompt, &[]);
        let tokens = pair.target.encode("ick").unwrap();
        assert_eq!(pair.context.push(&tokens).unwrap(), prompt.len());
        assert_eq!(pair.context.ids()[..prompt.len()], prompt);
        assert_eq!(pair.context.push(&[]).unwrap(), pair.context.ids().len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_text_in_any_groups(
        text in "([ \\n\\t'a-eé0-9.!▁😀]|the| quick| it's|  \\n){0,40}",
        bytes in prop::collection::vec(any::<u8>(), 0..30),
        sizes in prop::collection::vec(1usize..6, 1..5),
    ) {
        let mut pairs = shared_pairs().lock().unwrap();
        for pair in pairs.iter_mut() {
            let tokens = pair.target.encode(&text).unwrap();
            follow(pair, "p", &tokens, &sizes);
            let tokens = pair.target.encode_bytes(&bytes).unwrap();
            follow(pair, "q", &tokens, &sizes);
        }
    }
}

fn shared_pairs() -> &'static std::sync::Mutex<Vec<Pair>> {
    static ONCE: OnceLock<std::sync::Mutex<Vec<Pair>>> = OnceLock::new();
    ONCE.get_or_init(|| std::sync::Mutex::new(pairs()))
}
