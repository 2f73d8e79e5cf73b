//! A drafter and a target at work: text in, text out.

use std::fmt;

use ngram_cache::{CacheConfig, NgramCache};
use spec_decode::{
    Acceptance, ConstantLength, DraftPolicy, Finish, Generation, History, LanguageModel, Pair,
    Prompt, Sampling, SamplingOptions, SessionConfig, StreamName, TeacherSink, Totals, VerifyMode,
};
use vocab_align::{SpecialRole, TargetId, Utf8Stream, Vocabulary};

use crate::Error;
#[cfg(feature = "learn")]
use crate::learn::Learning;
use crate::prompts::{Encoded, Prompts};

/// A recorder of an answer's distributions.
#[cfg(feature = "learn")]
pub(crate) type Teacher = distill_loss::Recorder;
/// Without the feature `learn` nothing is recorded.
#[cfg(not(feature = "learn"))]
pub(crate) type Teacher = spec_decode::NoSink;

/// Draft tokens of a round, where nothing else is said: the paper's k.
const DRAFT_LENGTH: usize = 4;

/// An answer.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answer {
    /// Its text. Special tokens have none.
    pub text: String,
    /// Its tokens, a final stop token included.
    pub tokens: Vec<TargetId>,
    /// The reason of its end.
    pub finish: Finish,
    /// Sums over its rounds: acceptance rate, block efficiency, seconds.
    pub totals: Totals,
}

impl Answer {
    pub(crate) fn new(done: Generation, vocabulary: &Vocabulary<TargetId>) -> Self {
        Self {
            text: vocabulary.decode_lossy(&done.tokens),
            tokens: done.tokens,
            finish: done.finish,
            totals: done.totals,
        }
    }
}

impl fmt::Display for Answer {
    /// Writes the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.text.fmt(f)
    }
}

/// Settings of a [`Session`] in the making.
///
/// Without any, decoding is greedy with four draft tokens a round, the n-gram cache starts empty,
/// and answers are exactly the target's (mode [`Exact`](VerifyMode::Exact)).
#[must_use]
pub struct Builder<D, T> {
    pub(crate) drafter: D,
    target: T,
    pair: Pair,
    prompts: Prompts,
    config: SessionConfig,
    sampling: SamplingOptions,
    cache: Option<NgramCache>,
    history: Option<History>,
    policy: Box<dyn DraftPolicy + Send>,
    seed: u64,
    #[cfg(feature = "learn")]
    pub(crate) learning: Option<Learning<D>>,
}

impl<D: LanguageModel, T: LanguageModel> Builder<D, T> {
    fn new(drafter: D, target: T, pair: &Pair) -> Self {
        let ends = [SpecialRole::EndOfTurn, SpecialRole::Eos];
        let specials = pair.target.specials();
        let stop = specials.filter(|(_, role)| ends.contains(role));
        Self {
            drafter,
            target,
            config: SessionConfig {
                stop: stop.map(|(id, _)| id).collect(),
                ..SessionConfig::new(VerifyMode::Exact, 0)
            },
            pair: pair.clone(),
            prompts: Prompts::Plain,
            sampling: SamplingOptions::default(),
            cache: Some(NgramCache::new(CacheConfig::default())),
            history: None,
            policy: Box::new(ConstantLength(DRAFT_LENGTH)),
            seed: 0,
            #[cfg(feature = "learn")]
            learning: None,
        }
    }

    /// Uses this n-gram cache, which may be bounded, or saved by another session. It grows with every
    /// answer.
    pub fn cache(mut self, cache: NgramCache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Drafts only tokens that stand for one target token each.
    pub fn without_cache(mut self) -> Self {
        self.cache = None;
        self
    }

    /// Lets drafts begin with text that occurred in prompts and answers before.
    pub fn look_up_in(mut self, history: History) -> Self {
        self.history = Some(history);
        self
    }

    /// Drafts so many tokens in every round (the paper's k); 0 is plain decoding.
    pub fn draft_length(self, tokens: usize) -> Self {
        self.policy(ConstantLength(tokens))
    }

    /// Lets the target score up to so many tokens along with a draft, in place of its tokens or after
    /// it, if its engine [can](LanguageModel::alternatives): second choices of the drafter, and
    /// looked-up text that goes on in another way. As far as the target goes on so, the round gives
    /// more tokens. It pays if further positions of a forward are cheap. Answers that are made
    /// together, and rounds that propose looked-up tokens, have none.
    pub fn alternatives(mut self, most: usize) -> Self {
        self.config.alternatives = most;
        self
    }

    /// Lets a policy decide how long drafts are: [`adaptive_draft`] has some.
    pub fn policy(mut self, policy: impl DraftPolicy + Send + 'static) -> Self {
        self.policy = Box::new(policy);
        self
    }

    /// Verifies drafts in this mode.
    pub fn mode(mut self, mode: VerifyMode) -> Self {
        self.config.mode = mode;
        self
    }

    /// Verifies the tokens of a draft one by one, which is the default, or all together.
    pub fn acceptance(mut self, acceptance: Acceptance) -> Self {
        self.config.acceptance = acceptance;
        self
    }

    /// Draws from the target's distribution at this temperature; 0 is greedy.
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.sampling.temperature = temperature;
        self
    }

    /// Sets all options that shape the target's distribution, its temperature included.
    pub fn sampling(mut self, sampling: SamplingOptions) -> Self {
        self.sampling = sampling;
        self
    }

    /// Names the random streams: the same seed and the same prompts in the same order give the same
    /// answers.
    ///
    /// Sessions that share an n-gram cache, a history of texts or learnt weights, at once or one
    /// after the other, need seeds of their own: an answer whose name ([`StreamName`]) was used
    /// there before does not follow the target's probabilities given the earlier answer.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Ends an answer after one of these tokens, instead of the vocabulary's own ends of a turn and
    /// of a text.
    pub fn stop(mut self, stop: impl IntoIterator<Item = TargetId>) -> Self {
        self.config.stop = stop.into_iter().collect();
        self
    }

    /// Builds the session.
    ///
    /// # Errors
    /// [`Error::Sampling`] for an option outside its range, [`Error::Decode`] where models,
    /// vocabularies and alignment do not belong together.
    pub fn build(self) -> Result<Session<D, T>, Error> {
        let config = SessionConfig {
            sampling: Sampling::with_options(self.sampling)?,
            ..self.config
        };
        let pair = self.pair;
        let mut rounds =
            spec_decode::Session::new(self.drafter, self.target, pair.clone(), config)?;
        if let Some(history) = self.history {
            rounds.look_up_in(history);
        }
        Ok(Session {
            rounds,
            pair,
            prompts: self.prompts,
            cache: self.cache,
            policy: self.policy,
            seed: self.seed,
            answers: 0,
            #[cfg(feature = "learn")]
            learning: self.learning,
        })
    }
}

/// A drafter and a target at work on one prompt after the other.
///
/// ```
/// use omnidraft::prelude::*;
/// use omnidraft::spec_decode::testkit::{FakeModel, ToyVocab, hashed_rows};
///
/// let vocab = ToyVocab { merges: &[("a", "b")], added: &[] };
/// let letters: Vec<u32> = (b'a'..=b'z').map(u32::from).collect();
/// let drafter = FakeModel::<DraftId>::new(vocab.len(), hashed_rows(1, vocab.len(), letters.clone(), 1.0));
/// let target = FakeModel::<TargetId>::new(vocab.len(), hashed_rows(1, vocab.len(), letters, 1.0));
///
/// let pair = Pair::new(&vocab.load()?, &vocab.load()?);
/// let mut session = Session::builder(drafter, target, &pair).draft_length(4).build()?;
/// let answer = session.generate_text("once", 20)?;
/// assert_eq!(answer.tokens.len(), 20);
/// // Both models are the same, so all is accepted: five tokens a round.
/// assert_eq!(answer.totals.block_efficiency(), 5.0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Session<D, T> {
    pub(crate) rounds: spec_decode::Session<D, T>,
    pub(crate) pair: Pair,
    prompts: Prompts,
    pub(crate) cache: Option<NgramCache>,
    pub(crate) policy: Box<dyn DraftPolicy + Send>,
    seed: u64,
    answers: u64,
    #[cfg(feature = "learn")]
    pub(crate) learning: Option<Learning<D>>,
}

#[cfg(feature = "models")]
impl Session<models::Engine, models::Engine> {
    /// Begins a session between two models: their engines, their vocabularies aligned, prompts as
    /// messages of a user in their chat templates, answers that end where the target's own do.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub fn of_models(
        drafter: &crate::Drafter,
        target: &crate::Target,
    ) -> Result<Builder<models::Engine, models::Engine>, Error> {
        let pair = Pair::new(drafter.vocabulary(), target.vocabulary());
        Ok(Self::builder(drafter.engine()?, target.engine()?, &pair).chat(drafter, target))
    }
}

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// Begins a session between two engines, whichever they are. `pair` is built once for two
    /// vocabularies; sessions share its alignment.
    pub fn builder(drafter: D, target: T, pair: &Pair) -> Builder<D, T> {
        Builder::new(drafter, target, pair)
    }

    /// Answers a text with at most so many tokens.
    ///
    /// # Errors
    /// A prompt that a model cannot read, or that the target's KV cache does not hold; an engine
    /// that fails.
    pub fn generate_text(&mut self, prompt: &str, max_new_tokens: usize) -> Result<Answer, Error> {
        self.stream_text(prompt, max_new_tokens, |_| ())
    }

    /// As [`generate_text`](Self::generate_text); `each` is given the text as it comes, in whole
    /// characters.
    ///
    /// # Errors
    /// As [`generate_text`](Self::generate_text).
    pub fn stream_text(
        &mut self,
        prompt: &str,
        max_new_tokens: usize,
        mut each: impl FnMut(&str),
    ) -> Result<Answer, Error> {
        let (draft, target) = self.encode(prompt)?;
        let prompt = Prompt {
            draft: &draft,
            target: &target,
        };
        let vocabulary = self.pair.target.clone();
        let mut characters = Utf8Stream::default();
        let done = self.generate_with(prompt, max_new_tokens, &mut |token| {
            let text = characters.push(vocabulary.bytes(token).unwrap_or_default());
            if !text.is_empty() {
                each(&text);
            }
        })?;
        let rest = characters.end();
        if !rest.is_empty() {
            each(&rest);
        }
        Ok(Answer::new(done, &vocabulary))
    }

    /// Answers a prompt that is tokens already, for both models, special tokens included.
    ///
    /// # Errors
    /// As [`generate_text`](Self::generate_text).
    pub fn generate(
        &mut self,
        prompt: Prompt<'_>,
        max_new_tokens: usize,
    ) -> Result<Generation, Error> {
        self.generate_with(prompt, max_new_tokens, &mut |_| ())
    }

    fn generate_with(
        &mut self,
        prompt: Prompt<'_>,
        max_new_tokens: usize,
        each: &mut dyn FnMut(TargetId),
    ) -> Result<Generation, Error> {
        let name = self.next(max_new_tokens);
        let mut sink = Watch {
            teacher: self.teacher(),
            each,
        };
        let cache = self.cache.as_mut();
        let done = self
            .rounds
            .generate(prompt, name, cache, &mut *self.policy, &mut sink)?;
        let teacher = sink.teacher;
        self.learn_from(prompt.draft.len(), teacher)?;
        Ok(done)
    }

    /// Prepares for the next answer, which gets random streams of its own.
    pub(crate) fn next(&mut self, max_new_tokens: usize) -> StreamName {
        self.rounds.configure(SessionConfig {
            max_new_tokens,
            ..self.rounds.config().clone()
        });
        let name = StreamName::new(self.seed, self.answers);
        self.answers += 1;
        name
    }

    pub(crate) fn encode(&self, prompt: &str) -> Result<Encoded, Error> {
        self.prompts.encode(&self.pair, prompt)
    }

    /// The two vocabularies with their alignment.
    pub fn pair(&self) -> &Pair {
        &self.pair
    }

    /// The n-grams learnt so far.
    pub fn cache(&self) -> Option<&NgramCache> {
        self.cache.as_ref()
    }

    /// The [`spec_decode::Session`] that runs the rounds.
    pub fn rounds(&mut self) -> &mut spec_decode::Session<D, T> {
        &mut self.rounds
    }

    /// Gives the engines back, and the n-grams.
    pub fn into_parts(self) -> (D, T, Option<NgramCache>) {
        let (drafter, target) = self.rounds.into_models();
        (drafter, target, self.cache)
    }
}

#[cfg(feature = "models")]
impl<D: LanguageModel, T: LanguageModel> Builder<D, T> {
    /// Puts prompts into the chat templates of these models, as messages of a user, and ends
    /// answers at the stop tokens that the target's files name.
    pub fn chat(mut self, drafter: &crate::Drafter, target: &crate::Target) -> Self {
        let (drafter, target) = (&drafter.folder().text, &target.folder().text);
        self.config.stop = target.stop_tokens();
        self.prompts = Prompts::Chat(Box::new((drafter.clone(), target.clone())));
        self
    }
}

/// Shows the tokens of an answer, and records their distributions if the drafter learns.
struct Watch<'a> {
    teacher: Option<Teacher>,
    each: &'a mut dyn FnMut(TargetId),
}

impl TeacherSink for Watch<'_> {
    fn reads(&self) -> bool {
        self.teacher.as_ref().is_some_and(TeacherSink::reads)
    }

    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        if let Some(teacher) = &mut self.teacher {
            teacher.record(index, token, logits);
        }
        (self.each)(token);
    }
}

#[cfg(not(feature = "learn"))]
impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    pub(crate) fn teacher(&self) -> Option<Teacher> {
        None
    }

    pub(crate) fn learn_from(
        &mut self,
        _prompt: usize,
        _teacher: Option<Teacher>,
    ) -> Result<(), Error> {
        Ok(())
    }
}
