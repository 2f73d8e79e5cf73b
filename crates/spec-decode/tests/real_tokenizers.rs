//! The loop over real tokenizers, with models that know one text by heart.

use std::path::PathBuf;
use std::sync::Arc;

use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::testkit::{FakeModel, RowFn};
use spec_decode::{
    ConstantLength, NoSink, Pair, Prompt, Session, SessionConfig, StreamName, Totals, VerifyMode,
};
use vocab_align::{DraftContext, DraftId, TargetId, TokenId, Vocabulary};

const TEXT: &str = "The naïve café owner wrote 12345 unbelievable words — “très bien” 😀:\n\n\
    \tdef tokenise(text):\n        return text.split()  # nothing else\n\n\
    Internationalisation, counterrevolutionaries and antidisestablishmentarianism \
    were discussed; internationalisation, counterrevolutionaries and \
    antidisestablishmentarianism were discussed again. 漢字かな\n";

fn vocabulary<I: TokenId>(name: &str) -> Option<Vocabulary<I>> {
    let shared = PathBuf::from(std::env::var_os("OMNIDRAFT_SHARED")?);
    let file = shared.join("tokenizers").join(name).join("tokenizer.json");
    Some(Vocabulary::from_file(&file).expect("a tokenizer"))
}

/// A model that prefers the token that continues the text in a tokenisation of all of it.
fn reciting<I: TokenId>(vocabulary: &Vocabulary<I>) -> FakeModel<I> {
    let tokens = vocabulary.encode(TEXT).expect("spells any text");
    let lengths = vocabulary.byte_lengths(&tokens);
    let starts: Vec<usize> = lengths
        .iter()
        .scan(0, |end, length| {
            *end += length;
            Some(*end - length)
        })
        .collect();
    let (vocab, known) = (vocabulary.len(), vocabulary.clone());
    let row: RowFn<I> = Arc::new(move |ids: &[I]| {
        let mut row = vec![0.0; vocab];
        // The prompt is the first token.
        let at = known.decode_bytes(ids).len();
        if let Ok(index) = starts.binary_search(&at) {
            row[tokens[index].index()] = 1.0;
        }
        row
    });
    FakeModel::new(vocab, row)
}

/// Two real tokenizers, if they are available.
fn pair(draft: &str, target: &str) -> Option<Pair> {
    let draft = vocabulary::<DraftId>(draft)?;
    let target = match target {
        "same" => draft.retag(),
        other => vocabulary::<TargetId>(other)?,
    };
    Some(Pair::new(&draft, &target))
}

fn recite(pair: &Pair, mode: VerifyMode, cache: &mut NgramCache) -> Totals {
    let models = (reciting(&pair.draft), reciting(&pair.target));
    let text = pair.target.encode(TEXT).expect("spells any text");
    let first = pair.target.decode_bytes(&text[..1]);
    let first = pair.draft.encode_bytes(&first).expect("spells any text");
    let config = SessionConfig::new(mode, text.len() - 1);
    let mut session = Session::new(models.0, models.1, pair.clone(), config).expect("a session");
    let prompt = Prompt {
        draft: &first,
        target: &text[..1],
    };
    let k = &mut ConstantLength(4);
    let done = session
        .generate(prompt, StreamName::new(0, 0), Some(cache), k, &mut NoSink)
        .expect("recites");
    assert_eq!(done.tokens, text[1..]);
    done.totals
}

#[test]
fn ngrams_learnt_from_a_text_are_proposed_the_next_time() {
    for (draft, target) in [("llama-2", "qwen2"), ("llama-2", "llama-3")] {
        let Some(pair) = pair(draft, target) else {
            println!("skipped: OMNIDRAFT_SHARED is not set");
            return;
        };
        for mode in [VerifyMode::Paper, VerifyMode::Exact] {
            let mut cache = NgramCache::new(CacheConfig::default());
            let first = recite(&pair, mode, &mut cache);
            let learnt = cache.len();
            let again = recite(&pair, mode, &mut cache);
            assert_eq!(cache.len(), learnt, "a known text has no new n-grams");
            assert_eq!(first.inserted, learnt);
            assert!(
                again.ngrams_accepted > first.ngrams_accepted,
                "{first:?} {again:?}"
            );
            assert!(again.block_efficiency() > first.block_efficiency());
        }
    }
}

#[test]
fn one_shared_vocabulary_accepts_everything() {
    let Some(pair) = pair("qwen2.5", "same") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return;
    };
    for mode in [VerifyMode::Tli, VerifyMode::Exact, VerifyMode::Slem] {
        let mut cache = NgramCache::new(CacheConfig::default());
        let totals = recite(&pair, mode, &mut cache);
        assert_eq!(cache.len(), 0, "{mode}");
        let accepted = totals.accepted as f64 / totals.proposed as f64;
        assert!(accepted > 0.9, "{mode} {totals:?}");
    }
}

/// Drafter and target that know a conversation by heart, special tokens included.
fn conversation(pair: &Pair, target: &[TargetId]) -> (FakeModel<DraftId>, FakeModel<TargetId>) {
    fn recite<I: TokenId>(vocab: usize, tokens: Vec<I>) -> FakeModel<I> {
        let row: RowFn<I> = Arc::new(move |ids: &[I]| {
            let mut row = vec![0.0; vocab];
            if let Some(next) = tokens.get(ids.len())
                && tokens.starts_with(ids)
            {
                row[next.index()] = 1.0;
            }
            row
        });
        FakeModel::new(vocab, row)
    }
    let alignment = Arc::clone(&pair.alignment);
    let mut context = DraftContext::new(pair.draft.clone(), pair.target.clone(), alignment)
        .expect("vocabularies that belong together");
    let (prompt, response) = target.split_at(1);
    let draft = pair.draft.encode_bytes(&pair.target.decode_bytes(prompt));
    context.start(&draft.expect("spells any text"), prompt);
    context.push(response).expect("known tokens");
    (
        recite(pair.draft.len(), context.ids().to_vec()),
        recite(pair.target.len(), target.to_vec()),
    )
}

#[test]
fn turns_and_markers_are_drafted_across_the_boundary() {
    let text = "Yes.\n<tool_call>\n{\"city\": \"Zürich\"}\n</tool_call><|im_end|>\n\
        <|im_start|>user\nThanks 😀<|im_end|>\n<|im_start|>assistant\nYes.\n<tool_call>\n";
    let Some(pair) = pair("llama-2", "qwen2.5") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return;
    };
    let tokens = pair.target.encode_with_specials(text).expect("spells it");
    let named = |name: &str| {
        pair.target
            .find_content(name)
            .expect("a token of the target")
    };
    let (end, start, tool) = (
        named("<|im_end|>"),
        named("<|im_start|>"),
        named("<tool_call>"),
    );
    for mode in [VerifyMode::Paper, VerifyMode::Exact] {
        let mut cache = NgramCache::new(CacheConfig::default());
        let mut run = || {
            let models = conversation(&pair, &tokens);
            let config = SessionConfig::new(mode, tokens.len() - 1);
            let mut session =
                Session::new(models.0, models.1, pair.clone(), config).expect("a session");
            let first = pair.target.decode_bytes(&tokens[..1]);
            let draft = pair.draft.encode_bytes(&first).expect("spells any text");
            let prompt = Prompt {
                draft: &draft,
                target: &tokens[..1],
            };
            let name = StreamName::new(0, 0);
            let k = &mut ConstantLength(8);
            let done = session
                .generate(prompt, name, Some(&mut cache), k, &mut NoSink)
                .expect("recites");
            assert_eq!(done.tokens, tokens[1..], "{mode}");
            done
        };
        let first = run();
        let again = run();
        assert!(
            again.totals.rounds < first.totals.rounds,
            "{mode}: {} then {} rounds",
            first.totals.rounds,
            again.totals.rounds
        );
        let learnt: Vec<TargetId> = cache.entries().map(|ngram| ngram.target).collect();
        assert!(learnt.contains(&start), "{mode}: {learnt:?}");
        assert!(learnt.contains(&tool), "{mode}: {learnt:?}");
        cache
            .check_bytes(&pair.draft, &pair.target)
            .expect("true spellings");
        let accepted = |token: TargetId| {
            again.rounds.iter().any(|round| {
                let stood = &round.proposals[..round.accepted];
                stood.iter().any(|proposal| proposal.target == token)
            })
        };
        assert!(
            accepted(end),
            "{mode}: the end of a turn is one draft token"
        );
        assert!(
            accepted(start) && accepted(tool),
            "{mode}: markers are n-grams"
        );
        let across = again.rounds.iter().any(|round| {
            let stood = &round.proposals[..round.accepted];
            let at = stood.iter().position(|proposal| proposal.target == end);
            at.is_some_and(|at| at + 1 < stood.len())
        });
        // The drafter's tokenizer writes a dummy prefix after every special token. This token
        // stands for no text of the target and no proposal can contain it, so drafts end with the
        // turn.
        assert!(!across, "{mode}: a dummy prefix was drafted");
    }
}
