//! Models whose logits stay on a device give the same answers, and copy only the rows that are read
//! to the host.

use crate::common;

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use common::*;
use ngram_cache::NgramCache;
use proptest::prelude::*;
use spec_decode::testkit::FakeModel;
use spec_decode::{
    ConstantLength, DeviceLogits, DraftPolicy, DraftStep, LanguageModel, ModelError, NoSink,
    PlainConfig, Sampling, SamplingOptions, Session, SessionConfig, StreamName, TeacherSink,
    VerifyMode, argmax, decode_plain,
};
use vocab_align::{TargetId, TokenId};

/// A model that keeps the logits of up to `most` tokens, and counts the rows that are fetched.
struct Far<I> {
    inner: FakeModel<I>,
    most: usize,
    kept: Vec<f32>,
    state: Vec<f32>,
    fetched: Rc<Cell<usize>>,
}

impl<I: TokenId> Far<I> {
    fn new(inner: FakeModel<I>, most: usize) -> (Self, Rc<Cell<usize>>) {
        let fetched = Rc::new(Cell::new(0));
        let far = Self {
            inner,
            most,
            kept: Vec::new(),
            state: Vec::new(),
            fetched: Rc::clone(&fetched),
        };
        (far, fetched)
    }
}

impl<I: TokenId> LanguageModel for Far<I> {
    fn vocab_size(&self) -> usize {
        self.inner.vocab_size()
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn max_len(&self) -> usize {
        self.inner.max_len()
    }

    fn truncate(&mut self, len: usize) {
        self.inner.truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.fetched.set(self.fetched.get() + ids.len());
        self.inner.forward(ids, logits)?;
        self.state = self.inner.state().to_vec();
        Ok(())
    }

    fn state(&self) -> &[f32] {
        &self.state
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.inner.prefill(ids)
    }

    fn device_logits(&mut self, tokens: usize) -> Option<&mut dyn DeviceLogits> {
        match tokens <= self.most {
            true => Some(self),
            false => None,
        }
    }
}

impl<I: TokenId> DeviceLogits for Far<I> {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        assert!(ids.len() <= self.most);
        self.state.clear();
        self.inner.forward(ids, &mut self.kept)
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        let rows = self.kept.chunks(self.inner.vocab_size());
        *columns = rows.map(|row| argmax(row).ok().map(|i| i as u32)).collect();
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.fetched.set(self.fetched.get() + rows.len());
        let vocab = self.inner.vocab_size();
        logits.clear();
        logits.extend_from_slice(&self.kept[rows.start * vocab..rows.end * vocab]);
        if rows.end * vocab == self.kept.len() {
            self.state = self.inner.state().to_vec();
        }
        Ok(())
    }
}

/// Policy that stops by the drafter's logits and state, or by the token.
struct Reader {
    reads: bool,
    k: usize,
}

impl DraftPolicy for Reader {
    fn next_len(&mut self) -> usize {
        self.k
    }

    fn reads_drafter(&self) -> bool {
        self.reads
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        let read = step.logits.iter().zip(step.state);
        assert!(!self.reads || step.logits.len() == step.state.len());
        match self.reads {
            true => read.filter(|(a, b)| a == b && **a > 0.5).count() % 3 == 1,
            false => step.token.0 % 5 == 3,
        }
    }
}

/// Sink that records every token, with its row or without.
struct Records(bool, Vec<(TargetId, Vec<f32>)>);

impl TeacherSink for Records {
    fn reads(&self) -> bool {
        self.0
    }

    fn record(&mut self, _index: usize, token: TargetId, logits: &[f32]) {
        let row = if self.0 { logits } else { &[] };
        self.1.push((token, row.to_vec()));
    }
}

/// All results of a response except times.
fn respond(
    models: (impl LanguageModel, impl LanguageModel),
    config: &SessionConfig,
    reads: bool,
    cache: &mut NgramCache,
) -> Vec<String> {
    let mut session = Session::new(models.0, models.1, pair(), config.clone()).unwrap();
    let mut sink = Records(reads, Vec::new());
    let mut policy = Reader { reads, k: 4 };
    let name = StreamName::new(3, 0);
    let done = session.generate(PROMPT, name, Some(cache), &mut policy, &mut sink);
    let done = done.unwrap();
    let rounds = done.rounds.iter().map(|round| {
        let (scores, origin) = (&round.scores, round.origin);
        let judged = (round.accepted, &round.emitted, round.inserted);
        format!(
            "{:?} {:?} {judged:?} {scores:?} {origin:?}",
            round.draft, round.proposals
        )
    });
    let taught = sink.1.iter().map(|taught| format!("{taught:?}"));
    rounds.chain(taught).collect()
}

proptest! {
    #![proptest_config(cases(400))]

    #[test]
    fn answers_are_those_of_logits_in_memory(
        seed in any::<u64>(),
        disagreement in prop::sample::select(vec![0.0_f32, 0.5, 4.0]),
        mode in prop::sample::select(VerifyMode::ALL.to_vec()),
        temperature in prop::sample::select(vec![0.0, 0.0, 0.9]),
        repetition_penalty in prop::sample::select(vec![1.0, 1.0, 1.5]),
        reads in any::<bool>(),
        most in prop::sample::select(vec![0_usize, 1, 3, 16]),
    ) {
        let sampling = Sampling::with_options(SamplingOptions {
            temperature,
            repetition_penalty,
            ..SamplingOptions::default()
        }).unwrap();
        let config = SessionConfig {
            sampling,
            stop: stop(),
            ..SessionConfig::new(mode, 24)
        };
        let models = || text_models(seed, &pair(), disagreement);
        let expected = respond(models(), &config, reads, &mut true_cache());
        let (drafter, target) = models();
        let far = (Far::new(drafter, most).0, Far::new(target, most).0);
        let found = respond(far, &config, reads, &mut true_cache());
        prop_assert_eq!(found, expected);
    }
}

/// Numbers of rows fetched from drafter and target in a greedy response, of its rounds, and of its
/// drafted tokens.
fn fetched(disagreement: f32, reads: bool) -> [usize; 4] {
    let (drafter, target) = text_models(5, &pair(), disagreement);
    let (drafter, by_drafter) = Far::new(drafter, 16);
    let (target, by_target) = Far::new(target, 16);
    let config = SessionConfig::new(VerifyMode::Exact, 40);
    let mut session = Session::new(drafter, target, pair(), config).unwrap();
    let mut sink = Records(reads, Vec::new());
    let mut k = ConstantLength(4);
    let name = StreamName::new(0, 0);
    let done = session.generate(PROMPT, name, Some(&mut true_cache()), &mut k, &mut sink);
    let done = done.unwrap();
    let tokens = done.rounds.iter().map(|round| round.draft.len()).sum();
    [by_drafter.get(), by_target.get(), tokens, done.tokens.len()]
}

#[test]
fn nothing_leaves_the_device_that_nobody_reads() {
    for disagreement in [0.0, 3.0] {
        let [drafter, target, drafted, emitted] = fetched(disagreement, false);
        assert_eq!(target, 0);
        // Rows of the drafter are fetched only if the mask does not allow its best token.
        assert!(drafter < drafted, "{drafter} of {drafted}");
        // A learner reads the rows of the answer's tokens, and no others.
        let [_, target, _, _] = fetched(disagreement, true);
        assert!((emitted..emitted + 5).contains(&target), "{target}");
    }
}

#[test]
fn plain_greedy_decoding_fetches_nothing() {
    let config = PlainConfig {
        sampling: Sampling::GREEDY,
        max_new_tokens: 30,
        stop: stop(),
    };
    let name = StreamName::new(0, 0);
    let target = || text_models(9, &pair(), 0.0).1;
    let expected = decode_plain(&mut target(), PROMPT.target, &config, name, &mut NoSink).unwrap();
    let (mut far, fetched) = Far::new(target(), 16);
    let found = decode_plain(&mut far, PROMPT.target, &config, name, &mut NoSink).unwrap();
    assert_eq!((found.tokens, fetched.get()), (expected.tokens.clone(), 0));
    let mut sink = Records(true, Vec::new());
    decode_plain(&mut far, PROMPT.target, &config, name, &mut sink).unwrap();
    assert_eq!(fetched.get(), expected.tokens.len());
}

/// A row without a most probable token is an error that gives the reason.
#[test]
fn impossible_rows_are_errors() {
    let name = StreamName::new(0, 0);
    let message = |far: bool| {
        let (drafter, _) = text_models(5, &pair(), 0.0);
        let vocab = TARGET.len();
        let broken = FakeModel::new(
            vocab,
            std::sync::Arc::new(move |ids: &[TargetId]| {
                let mut row = vec![0.0; vocab];
                row[97] = 1.0;
                row[99] = if ids.len() > 4 { f32::NAN } else { 0.0 };
                row
            }),
        );
        let config = SessionConfig::new(VerifyMode::Tli, 40);
        let mut k = ConstantLength(2);
        let failed = if far {
            let models = (Far::new(drafter, 16).0, Far::new(broken, 16).0);
            let mut session = Session::new(models.0, models.1, pair(), config).unwrap();
            session.generate(PROMPT, name, None, &mut k, &mut NoSink)
        } else {
            let mut session = Session::new(drafter, broken, pair(), config).unwrap();
            session.generate(PROMPT, name, None, &mut k, &mut NoSink)
        };
        failed.unwrap_err().to_string()
    };
    assert_eq!(message(true), message(false));
}

/// After the first rejected proposal nothing is verified, so a model that only knows its own answer
/// needs no other row, and none is fetched.
#[test]
fn rows_behind_a_rejected_token_may_be_unknown() {
    let name = StreamName::new(0, 0);
    let config = PlainConfig {
        sampling: Sampling::GREEDY,
        max_new_tokens: 30,
        stop: stop(),
    };
    let mut whole = text_models(7, &pair(), 3.0).1;
    let answer = decode_plain(&mut whole, PROMPT.target, &config, name, &mut NoSink).unwrap();
    let known = [PROMPT.target, &answer.tokens[..]].concat();
    let path = known.clone();
    let row = move |ids: &[TargetId]| {
        let mut row = vec![f32::NAN; TARGET.len()];
        if let Some([next, ..]) = path.strip_prefix(ids) {
            row.fill(0.0);
            row[next.0 as usize] = 1.0;
        }
        row
    };
    let target = FakeModel::new(TARGET.len(), std::sync::Arc::new(row));
    let (target, fetched) = Far::new(target, 16);
    let drafter = text_models(7, &pair(), 3.0).0;
    let config = SessionConfig::new(VerifyMode::Exact, 30);
    let mut session = Session::new(drafter, target, pair(), config).unwrap();
    let mut k = ConstantLength(4);
    let done = session.generate(PROMPT, name, Some(&mut true_cache()), &mut k, &mut NoSink);
    let done = done.unwrap();
    let judged = |accepted: bool| {
        let of = |round: &spec_decode::RoundOutcome| (round.accepted > 0) == accepted;
        done.rounds.iter().any(of)
    };
    assert!(judged(true) && judged(false), "some stand and some fall");
    assert_eq!((done.tokens, fetched.get()), (answer.tokens, 0));
}
