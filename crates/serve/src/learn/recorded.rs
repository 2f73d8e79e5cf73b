//! Learning from answers that a target gave elsewhere, without the target at hand.

use std::sync::Arc;

use distill_loss::{Example, Recorder};
use models::Engine;
use ngram_cache::NgramCache;
use online::{ArmState, Learnt, LearntWeights, Needs, StateFolder};
use spec_decode::{
    Acceptance, ConstantLength, LanguageModel, ModelError, NoSink, Prompt, Session, SessionConfig,
    StreamName, TeacherSink, Totals, VerifyMode,
};
use vocab_align::{TargetId, TokenId};

use super::learners::Learners;
use super::{open_state, states_of};
use crate::error::{Result, ServeError};
use crate::models::{Encoded, Models};
use crate::options::Options;
use crate::stats::Stats;

/// Least mass of the tokens of a distribution that were not recorded: keeps its logarithm finite.
const LEAST: f64 = 1e-30;

/// The known part of a target's distribution at one position: some tokens and the mass of all
/// others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KnownRow {
    /// Tokens with their log-probabilities at temperature 1, nats; no token twice.
    pub tokens: Vec<(TargetId, f32)>,
    /// Mass of the other tokens, in `[0, 1]`.
    pub rest: f64,
}

impl KnownRow {
    /// All mass on one token, for a position of which only the text is known.
    pub fn certain(token: TargetId) -> Self {
        Self {
            tokens: vec![(token, 0.0)],
            rest: 0.0,
        }
    }

    /// Writes log-probabilities over `row`, `[V]`. The mass of the rest is spread evenly over the
    /// tokens that are not named: of all distributions with these values, that is the one of
    /// largest entropy. Named tokens from `V` on are left out.
    pub fn write(&self, row: &mut [f32]) {
        let others = row.len().saturating_sub(self.tokens.len()).max(1) as f64;
        row.fill((self.rest.max(LEAST) / others).ln() as f32);
        for (token, log_prob) in &self.tokens {
            if let Some(value) = row.get_mut(token.index()) {
                *value = *log_prob;
            }
        }
    }
}

/// A prompt and the answer that a target gave to it.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedAnswer {
    /// The prompt as both models read it.
    pub prompt: Encoded,
    /// The answer, with the token that ended it if there is one; at least one token.
    pub tokens: Vec<TargetId>,
    /// One row for each token of the answer; empty if nothing is known but the text.
    pub rows: Vec<KnownRow>,
    /// True if the answer was drawn; false if each token is the target's most probable one.
    pub sampled: bool,
}

/// A target that gives the recorded answer, whatever it reads.
///
/// Its logits are 1 for the next token of the answer and 0 for all others, so that a greedy session
/// emits the recorded text and accepts a draft exactly as far as it is that text. An answer that
/// was drawn is replayed in the same way.
struct Replay {
    vocab: usize,
    prompt: usize,
    answer: Vec<TargetId>,
    len: usize,
}

impl LanguageModel for Replay {
    fn vocab_size(&self) -> usize {
        self.vocab
    }

    fn len(&self) -> usize {
        self.len
    }

    fn max_len(&self) -> usize {
        usize::MAX >> 1
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        logits.clear();
        logits.resize(ids.len() * self.vocab, 0.0);
        for (i, row) in logits.chunks_exact_mut(self.vocab).enumerate() {
            let position = (self.len + i + 1).checked_sub(self.prompt);
            let said = position.and_then(|position| self.answer.get(position));
            if let Some(value) = said.and_then(|token| row.get_mut(token.index())) {
                *value = 1.0;
            }
        }
        self.len += ids.len();
        Ok(())
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.len += ids.len();
        Ok(())
    }
}

/// Records the known distributions in the place of the replayed logits.
struct KnownSink<'a> {
    recorder: &'a mut Recorder,
    rows: &'a [KnownRow],
    row: Vec<f32>,
}

impl TeacherSink for KnownSink<'_> {
    fn record(&mut self, index: usize, token: TargetId, _logits: &[f32]) {
        match self.rows.get(index) {
            Some(known) => known.write(&mut self.row),
            None => KnownRow::certain(token).write(&mut self.row),
        }
        self.recorder.record(index, token, &self.row);
    }
}

/// A drafter that learns from recorded answers of one target, into a state that servers read.
pub struct RecordedLearner {
    models: Arc<Models>,
    options: Options,
    learners: Learners,
    needs: Needs,
    session: Session<Engine, Replay>,
    cache: NgramCache,
    known: ArmState,
    stats: Stats,
    state: StateFolder,
}

impl RecordedLearner {
    /// Opens `options.state` and continues with its content. The drafter learns from the first
    /// target, of which only tokenizer, template and configuration are read, no weights.
    ///
    /// # Errors
    /// `options` without `state` or `learn`; models that cannot be read; a state of another drafter
    /// or in use.
    pub fn open(options: Options) -> Result<Self> {
        let learn = options.learn;
        let learn = learn.ok_or_else(|| ServeError::said("nothing is to be learnt"))?;
        let models = Arc::new(Models::of_texts(&options)?);
        let learn = learn.suited(models.drafter.config(), options.engine.device.is_cpu());
        let state = open_state(&models, &options, Some(learn.part()))?;
        let no_state = || ServeError::said("there is no state to learn into");
        let (state, mut known) = state.ok_or_else(no_state)?;
        let root = options.state.clone();
        let mut learners = Learners::new(learn, options.example_bytes, Arc::clone(&models), root);
        let target = &models.targets[0];
        let needs = learners.of(&target.name)?.needs();
        let mut drafter = models.drafter.engine(options.drafter_engine())?;
        if needs.blocks > 0 {
            drafter
                .keep_states(needs.blocks)
                .map_err(ServeError::of("--learn-blocks"))?;
        }
        let config = SessionConfig::new(VerifyMode::Exact, 1);
        let replay = Replay {
            vocab: target.vocab_size,
            prompt: 0,
            answer: Vec::new(),
            len: 0,
        };
        let session = Session::new(drafter, replay, target.pair.clone(), config)
            .map_err(ServeError::of(format!("target `{}`", target.name)))?;
        let cache = known.caches.remove(&target.pair.target.fingerprint());
        let cache = cache.unwrap_or_else(|| NgramCache::new(options.cache_config()));
        let mut learner = Self {
            stats: Stats::new(&known),
            models,
            options,
            learners,
            needs,
            session,
            cache,
            known,
            state,
        };
        let weights = learner.learner()?.weights()?;
        learner.take_over(weights)?;
        Ok(learner)
    }

    /// The drafter and the target that it learns from.
    pub fn models(&self) -> &Models {
        &self.models
    }

    /// Drafts along an answer, as if the target had given it now, and learns from it. Its n-grams
    /// enter the cache at once; the drafter is updated when enough answers for an update wait.
    /// Returns the totals of the rounds, and the loss of the update if there was one.
    ///
    /// # Errors
    /// A failing drafter; losses or gradients that are not finite.
    pub fn learn(&mut self, answer: &RecordedAnswer) -> Result<(Totals, Option<f64>)> {
        let target = &self.models.targets[0];
        let vocab = target.vocab_size;
        let mut recorder = Recorder::new(&target.pair.alignment, self.needs.losses);
        let mut sink = KnownSink {
            recorder: &mut recorder,
            rows: &answer.rows,
            row: vec![0.0; vocab],
        };
        let (session, k) = (&mut self.session, self.options.draft_length);
        let totals = replay(session, answer, &mut self.cache, (k, true), &mut sink)?;
        self.stats
            .answer(&target.name, &totals, totals.emitted, true);
        let prompt = answer.prompt.draft.len();
        let most = self.models.drafter.config().max_position_embeddings;
        let room = most.min(session.drafter().max_len());
        let reads = (&target.pair, room);
        let example = self
            .needs
            .example(session, prompt, recorder, reads, states_of)?;
        let sampled = answer.sampled;
        let learnt = self.learner()?.push(Example { sampled, ..example })?;
        Ok((totals, self.adopt(learnt)?))
    }

    /// Drafts with the weights of updates from now on. Returns the loss of the last one.
    fn adopt(&mut self, learnt: impl IntoIterator<Item = Learnt>) -> Result<Option<f64>> {
        let mut loss = None;
        for (update, weights) in learnt {
            let name = &self.models.targets[0].name;
            self.stats.update(name, update.loss, update.seconds);
            self.take_over(weights)?;
            loss = Some(update.loss);
        }
        Ok(loss)
    }

    /// Drafts along an answer, as if the target had given it now, and learns nothing. Returns the
    /// totals of the rounds.
    ///
    /// # Errors
    /// A failing drafter.
    pub fn replay(&mut self, answer: &RecordedAnswer) -> Result<Totals> {
        let (session, k) = (&mut self.session, self.options.draft_length);
        replay(session, answer, &mut self.cache, (k, false), &mut NoSink)
    }

    /// Learns from the answers that wait for an update. Returns its loss; `None` if none wait.
    ///
    /// # Errors
    /// As [`learn`](Self::learn).
    pub fn flush(&mut self) -> Result<Option<f64>> {
        let learnt = self.learner()?.flush()?;
        self.adopt(learnt)
    }

    /// Writes the state. Returns its size in bytes.
    ///
    /// # Errors
    /// A folder that cannot be written; a state of more than `options.state_bytes`.
    pub fn save(&mut self) -> Result<u64> {
        let vocabulary = self.models.targets[0].pair.target.fingerprint();
        self.known.caches.insert(vocabulary, self.cache.clone());
        self.stats.write_into(&mut self.known);
        let (pairs, limit) = (self.models.pairs(), self.options.state_bytes);
        let learners = &mut self.learners;
        self.state
            .write(&self.known, &pairs, limit, |to| learners.save(to))
    }

    fn learner(&mut self) -> Result<&mut online::Learner> {
        self.learners.of(&self.models.targets[0].name)
    }

    /// Drafts with these weights from now on.
    fn take_over(&mut self, weights: LearntWeights) -> Result<()> {
        self.session
            .change_drafter(|drafter| weights.load_into(drafter))?;
        self.learner()?.give_back(weights);
        Ok(())
    }
}

/// Drafts along a recorded answer, with drafts of `k` tokens. If it `learns`, the answer's n-grams
/// enter the cache.
fn replay(
    session: &mut Session<Engine, Replay>,
    answer: &RecordedAnswer,
    cache: &mut NgramCache,
    (k, learns): (usize, bool),
    sink: &mut dyn TeacherSink,
) -> Result<Totals> {
    if answer.tokens.is_empty() {
        return Err(ServeError::said("an answer without tokens"));
    }
    session.configure(SessionConfig {
        acceptance: Acceptance::Token,
        learn_ngrams: learns,
        ..SessionConfig::new(VerifyMode::Exact, answer.tokens.len())
    });
    let prompt = Prompt {
        draft: &answer.prompt.draft,
        target: &answer.prompt.target,
    };
    let target = session.target_mut();
    target.prompt = prompt.target.len();
    target.answer.clone_from(&answer.tokens);
    let mut policy = ConstantLength(k);
    let name = StreamName::new(0, 0);
    Ok(session
        .generate(prompt, name, Some(cache), &mut policy, sink)?
        .totals)
}
