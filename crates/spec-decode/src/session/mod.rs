//! The loop over rounds: draft, translate, verify, commit.

mod commit;
mod drafting;
mod mining;
mod on_device;
mod reading;
mod round;
mod running;
mod slem;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use ngram_cache::NgramCache;
use vocab_align::{
    Alignment, DraftContext, DraftId, MappingMode, TargetId, TokenId, Vocabulary, raw_ids,
};

use crate::error::{Role, SpecError};
use crate::lexicon::DirectMap;
use crate::sampling::Sampling;
use crate::verify::{Acceptance, Groups, VerifyMode};
use crate::{
    Chance, CopySource, DraftPolicy, LanguageModel, Purpose, RoundOutcome, StreamName, TeacherSink,
    Totals,
};

pub use drafting::DraftingRound;
pub use round::{DraftedRound, JudgedRound};

use reading::Reading;
use running::{Mined, Running};

/// The two vocabularies and their alignment. The same vocabulary twice, with its identity
/// alignment, gives ordinary speculative decoding.
#[derive(Clone, Debug)]
pub struct Pair {
    /// V_q, the drafter's vocabulary.
    pub draft: Vocabulary<DraftId>,
    /// V_p, the target's vocabulary.
    pub target: Vocabulary<TargetId>,
    /// Alignment of the two, t <-> d.
    pub alignment: Arc<Alignment>,
}

impl Pair {
    /// Two vocabularies, aligned by the bytes of their tokens: a scan of both, once for all sessions.
    /// The vocabularies are shared, not copied.
    ///
    /// ```
    /// use spec_decode::Pair;
    /// use spec_decode::testkit::ToyVocab;
    ///
    /// let draft = ToyVocab { merges: &[], added: &[] };
    /// let target = ToyVocab { merges: &[("a", "b")], added: &[] };
    /// let pair = Pair::new(&draft.load()?, &target.load()?);
    /// // The bytes and the end of a turn; "ab" has no draft token of its own.
    /// assert_eq!(pair.alignment.pairs().len(), 257);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(draft: &Vocabulary<DraftId>, target: &Vocabulary<TargetId>) -> Self {
        Self {
            alignment: Arc::new(Alignment::build(draft, target, MappingMode::Bytes)),
            draft: draft.clone(),
            target: target.clone(),
        }
    }

    /// One vocabulary in both roles: ordinary speculative decoding, and
    /// [`PromptLookup`](crate::PromptLookup).
    pub fn shared(target: Vocabulary<TargetId>) -> Self {
        Self::new(&target.retag(), &target)
    }
}

/// Settings of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// Mode in which drafts are masked, translated and verified.
    pub mode: VerifyMode,
    /// Verification of a draft's tokens one by one or all together.
    pub acceptance: Acceptance,
    /// Rule for drawing tokens from logits. The output has the target's processed distribution.
    pub sampling: Sampling,
    /// Largest number of tokens of a response. Surplus tokens of the last round are cut.
    pub max_new_tokens: usize,
    /// Stop tokens (end of text, end of turn). The one that ends a response is kept in it.
    pub stop: BTreeSet<TargetId>,
    /// True if n-grams of verified text are inserted into the cache: in each round those of text
    /// whose draft tokens are final, the others when the response ends. Without
    /// [`drafter_reads`](Self::drafter_reads), all of them when the response ends.
    pub learn_ngrams: bool,
    /// Number of most probable tokens among which the drafter draws, renormalised; 0 for all. This
    /// distribution is then q, so the distribution of the output does not change.
    pub draft_top: usize,
    /// True if the drafter reads a prompt when a response begins, and text as it is written.
    /// Otherwise it reads them before its first draft, as part of that round's time, and never if
    /// nothing is drafted. The draft context is then brought up to date before each draft and at
    /// the end of the response, when n-grams are learnt.
    pub drafter_reads: bool,
    /// Largest number of tokens that the target scores along with a draft, in place of its tokens or
    /// after it, in [`Session::round`] or [`Session::score_round`] and with a target that
    /// [can](LanguageModel::alternatives):
    /// second choices of the drafter, and [looked-up](Session::look_up_in) text that goes on in
    /// another way than the draft. As far as the target draws these tokens, the round emits more.
    /// Mode `slem` and rounds that propose looked-up tokens have none.
    pub alternatives: usize,
}

impl SessionConfig {
    /// Settings for greedy decoding in a mode, without stop tokens, with learning of n-grams.
    pub fn new(mode: VerifyMode, max_new_tokens: usize) -> Self {
        Self {
            mode,
            acceptance: Acceptance::default(),
            sampling: Sampling::GREEDY,
            max_new_tokens,
            stop: BTreeSet::new(),
            learn_ngrams: true,
            draft_top: 0,
            drafter_reads: true,
            alternatives: 0,
        }
    }
}

/// Reason why a response ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Finish {
    /// The target emitted this stop token.
    Stop(TargetId),
    /// The token limit is reached.
    MaxNewTokens,
    /// The target's KV cache is full.
    ContextFull,
}

/// One prompt in both vocabularies, special tokens included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// The drafter's tokens.
    pub draft: &'a [DraftId],
    /// The target's tokens.
    pub target: &'a [TargetId],
}

/// Seconds of reading a prompt, which belong to no round.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Seconds of the drafter.
    pub draft: f64,
    /// Seconds of the target.
    pub target: f64,
}

/// A finished response.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Its tokens, a final stop token included.
    pub tokens: Vec<TargetId>,
    /// Reason why it ended.
    pub finish: Finish,
    /// Seconds before the first round.
    pub prefill: Prefill,
    /// All rounds.
    pub rounds: Vec<RoundOutcome>,
    /// Their sums.
    pub totals: Totals,
}

/// A drafter and a target that generate one response after the other.
///
/// # Invariants, between rounds
/// - The target's cache holds prompt and response but the last token, which the next round feeds
///   together with the proposals: one forward of m + 1 positions a round, and of alternatives.
/// - The drafter's cache holds a prefix of its view of the draft context (prompt and response in
///   draft tokens), at least one token short of it: k forwards draft k tokens, the first reads
///   everything pending. The view is the whole context while the drafter can hold that, else its
///   last part.
///
/// # Turns of a conversation
/// A prompt that begins like the last prompt and response, as the next turn of a chat does, is read
/// only from the first difference on: both KV caches keep the common part.
///
/// # Looked-up text
/// With a [`CopySource`], a round may begin with text that occurred before, in target tokens, and
/// continue with the drafter after it; [`DraftPolicy::plan_copy`] decides.
#[derive(Debug)]
pub struct Session<D, T> {
    drafter: D,
    target: T,
    pair: Pair,
    config: SessionConfig,
    direct: DirectMap,
    /// Tokens that mode `slem` may draft: every token with bytes, and the stop tokens.
    spellable: Vec<u32>,
    context: DraftContext,
    groups: CachedGroups,
    history: Option<CopySource>,
    running: Option<Running>,
    /// Number of the present response with the present settings. No other session has it.
    serial: u64,
}

/// A number that is given once.
fn next_serial() -> u64 {
    static SERIALS: AtomicU64 = AtomicU64::new(1);
    SERIALS.fetch_add(1, Relaxed)
}

/// Groups, with the generation of the cache that they belong to: `Some(None)` if there is no cache,
/// `None` if there are no groups yet.
#[derive(Debug, Default)]
struct CachedGroups {
    generation: Option<Option<u64>>,
    groups: Groups,
}

impl<D: LanguageModel, T: LanguageModel> Session<D, T> {
    /// A session of two models with their vocabularies and settings.
    ///
    /// # Errors
    /// [`SpecError::Align`] if the vocabularies and the alignment do not belong together.
    pub fn new(
        drafter: D,
        target: T,
        pair: Pair,
        config: SessionConfig,
    ) -> Result<Self, SpecError> {
        let context = DraftContext::new(
            pair.draft.clone(),
            pair.target.clone(),
            Arc::clone(&pair.alignment),
        )
        .map_err(SpecError::align(0))?;
        let (own, other) = (drafter.vocab_size(), target.vocab_size());
        let direct = DirectMap::from_pairs(pair.alignment.pairs(), own, other);
        let spellable = slem::spellable(&pair, &direct, &config.stop, own);
        Ok(Self {
            drafter,
            target,
            pair,
            config,
            direct,
            spellable,
            context,
            groups: CachedGroups::default(),
            history: None,
            running: None,
            serial: next_serial(),
        })
    }

    /// Looks up continuations in this text and in the prompts and responses to come.
    pub fn look_up_in(&mut self, history: impl Into<CopySource>) {
        self.history = Some(history.into());
    }

    /// Returns the text given to [`look_up_in`](Self::look_up_in), with the prompts and responses
    /// since; nothing is looked up any more.
    pub fn take_history(&mut self) -> Option<CopySource> {
        self.history.take()
    }

    /// Begins a response: both models read the prompt without its last token (the drafter later
    /// without [`SessionConfig::drafter_reads`]). `name` names the random streams; at temperature 0
    /// none is used.
    ///
    /// # Errors
    /// [`SpecError::EmptyPrompt`], [`SpecError::PromptTooLong`] for the target (a drafter reads the
    /// end of a long prompt), or a failing model.
    pub fn start(&mut self, prompt: Prompt<'_>, name: StreamName) -> Result<Prefill, SpecError> {
        self.start_with(
            prompt,
            Box::new(name.dice(Purpose::Draft)),
            Box::new(name.dice(Purpose::Verify)),
        )
    }

    /// As [`start`](Self::start), with given sources of randomness for drafting and verification.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        &mut self,
        prompt: Prompt<'_>,
        draft_dice: Box<dyn Chance + Send>,
        verify_dice: Box<dyn Chance + Send>,
    ) -> Result<Prefill, SpecError> {
        // The content of the caches is known only if the last response ended without an error.
        let common = self.held(prompt.target);
        let mut reading = match self.running.take() {
            Some(running) => running.reading,
            None => {
                self.drafter.truncate(0);
                Reading::default()
            }
        };
        self.groups = CachedGroups::default();
        let clock = Instant::now();
        self.read_draft_prompt(&mut reading, prompt.draft)?;
        let draft = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let pending = read_prompt(&mut self.target, Role::Target, prompt.target, common)?;
        let target = clock.elapsed().as_secs_f64();
        self.context.start(prompt.draft, prompt.target);
        if let Some(history) = &mut self.history {
            history.start(prompt.target);
        }
        let penalises = self.config.sampling.penalises();
        let seen = penalises.then(|| prompt.target.iter().copied().collect());
        let ended = self.config.max_new_tokens == 0;
        self.serial = next_serial();
        self.running = Some(Running {
            serial: self.serial,
            prompt_draft: prompt.draft.len(),
            prompt: prompt.target.to_vec(),
            response: Vec::new(),
            untranslated: 0,
            seen,
            pending,
            reading,
            round: 0,
            cache: None,
            finish: ended.then_some(Finish::MaxNewTokens),
            mined: Mined::default(),
            draft_dice,
            verify_dice,
        });
        Ok(Prefill { draft, target })
    }

    /// Reads the drafter's view of a prompt without its last token.
    fn read_draft_prompt(
        &mut self,
        reading: &mut Reading,
        prompt: &[DraftId],
    ) -> Result<(), SpecError> {
        let Some(first) = prompt.first() else {
            return Err(SpecError::EmptyPrompt(Role::Drafter));
        };
        reading.begin(self.pair.draft.bytes(*first).is_none());
        if !self.config.drafter_reads {
            return Ok(());
        }
        let read = reading.catch_up(&mut self.drafter, prompt, (1, 0), 0);
        read.map(drop).map_err(|error| match error {
            SpecError::Model { role, source, .. } => SpecError::Prefill { role, source },
            other => other,
        })
    }

    /// Begins a response and runs rounds until it ends.
    ///
    /// # Errors
    /// As [`start`](Self::start) and [`round`](Self::round).
    pub fn generate(
        &mut self,
        prompt: Prompt<'_>,
        name: StreamName,
        mut cache: Option<&mut NgramCache>,
        policy: &mut dyn DraftPolicy,
        sink: &mut dyn TeacherSink,
    ) -> Result<Generation, SpecError> {
        let prefill = self.start(prompt, name)?;
        let (mut rounds, mut totals) = (Vec::new(), Totals::default());
        let finish = loop {
            if let Some(finish) = self.finished() {
                break finish;
            }
            let outcome = self.round(cache.as_deref_mut(), policy, sink)?;
            totals.add(&outcome);
            rounds.push(outcome);
        };
        Ok(Generation {
            tokens: self.response().to_vec(),
            finish,
            prefill,
            rounds,
            totals,
        })
    }

    /// Reason why the response ended; `None` if it has not.
    pub fn finished(&self) -> Option<Finish> {
        self.running.as_ref()?.finish
    }

    /// The tokens of the response so far.
    pub fn response(&self) -> &[TargetId] {
        self.running
            .as_ref()
            .map_or(&[], |running| &running.response)
    }

    /// Brings the draft context up to the end of a response that the caller ends, for example after
    /// a stop text. It is up to date already with [`SessionConfig::drafter_reads`], and if the
    /// session itself has [finished](Self::finished) the response.
    ///
    /// # Errors
    /// Text that the drafter's vocabulary cannot spell.
    pub fn end_response(&mut self) -> Result<(), SpecError> {
        let Some(mut running) = self.running.take() else {
            return Ok(());
        };
        let read = self.translate_back(&mut running);
        self.running = Some(running);
        read
    }

    /// Prompt and response in draft tokens. Without [`SessionConfig::drafter_reads`] the text after
    /// the last draft is missing until the response ends.
    pub fn draft_context(&self) -> &[DraftId] {
        self.context.ids()
    }

    /// Number of bytes of the response that each draft token after the prompt stands for
    /// ([`DraftContext::lengths`]).
    pub fn draft_lengths(&self) -> &[usize] {
        self.context.lengths()
    }

    /// The settings.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The drafter.
    pub fn drafter(&self) -> &D {
        &self.drafter
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// The target, for the forward of a [drafted round](Self::draft_round). Afterwards its KV cache
    /// must hold its earlier content followed by the round's input.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.target
    }

    /// The drafter, for the forwards of a [round that drafts](Self::begin_round). Afterwards its KV
    /// cache must hold its earlier content followed by the round's input.
    pub fn drafting_model(&mut self) -> &mut D {
        &mut self.drafter
    }

    /// Reads up to `most` tokens of a prompt into the target's KV cache, before the response
    /// [starts](Self::start), so that a long prompt can be read in parts between other work.
    /// Returns true if nothing is left to read. It ends the response in progress.
    ///
    /// # Errors
    /// A failing target, or a prompt longer than its KV cache.
    pub fn read_ahead(&mut self, prompt: &[TargetId], most: usize) -> Result<bool, SpecError> {
        let role = Role::Target;
        let rest = prompt.len().saturating_sub(1);
        if prompt.len() > self.target.max_len() {
            return Err(SpecError::PromptTooLong {
                role,
                tokens: prompt.len(),
                max_len: self.target.max_len(),
            });
        }
        let held = self.held(prompt).min(rest).min(self.target.len());
        let mut running = match self.running.take() {
            Some(running) => running,
            None => {
                self.drafter.truncate(0);
                Running::ended()
            }
        };
        self.target.truncate(held);
        let end = rest.min(held.saturating_add(most));
        if held < end {
            let read = self.target.prefill(&raw_ids(&prompt[held..end]));
            read.map_err(|source| SpecError::Prefill { role, source })?;
        }
        self.serial = next_serial();
        // The part read so far counts as a prompt without a response.
        running.prompt = prompt[..end].to_vec();
        running.response.clear();
        running.untranslated = 0;
        running.finish = Some(Finish::MaxNewTokens);
        self.running = Some(running);
        Ok(end == rest)
    }

    /// Sets other settings for the rounds to come. The KV caches are kept. A round that has begun
    /// cannot go on: [`SpecError::OtherRound`].
    pub fn configure(&mut self, config: SessionConfig) {
        self.serial = next_serial();
        if let Some(running) = &mut self.running {
            let text = || running.prompt.iter().chain(&running.response);
            let seen = config
                .sampling
                .penalises()
                .then(|| text().copied().collect());
            running.seen = seen;
        }
        if config.stop != self.config.stop {
            let width = self.drafter.vocab_size();
            self.spellable = slem::spellable(&self.pair, &self.direct, &config.stop, width);
        }
        self.config = config;
    }

    /// Sets [`SessionConfig::alternatives`] for the rounds to come, also within a response.
    pub fn set_alternatives(&mut self, most: usize) {
        self.config.alternatives = most;
    }

    /// Number of leading tokens of a prompt that need not be read again, because the last prompt
    /// and response begin with them.
    pub fn held(&self, prompt: &[TargetId]) -> usize {
        let Some(running) = &self.running else {
            return 0;
        };
        let before = common_prefix(&running.prompt, prompt);
        match running.prompt.len() == before {
            true => before + common_prefix(&running.response, &prompt[before..]),
            false => before,
        }
    }

    /// Changes the drafter, for example its weights, between two rounds or responses. The drafter
    /// reads its context again, while the target's KV cache is kept.
    pub fn change_drafter<R>(&mut self, change: impl FnOnce(&mut D) -> R) -> R {
        let changed = change(&mut self.drafter);
        self.drafter.truncate(0);
        if let Some(running) = &mut self.running {
            running.reading.forget();
        }
        changed
    }

    /// Replaces the content of the drafter's KV cache by `ids`, between responses. `read` must
    /// leave exactly these tokens in the cache, which is emptied otherwise. A prompt that begins
    /// with them need not be read again, unless the session has no response yet.
    pub fn let_drafter_read<R>(&mut self, ids: &[DraftId], read: impl FnOnce(&mut D) -> R) -> R {
        let done = read(&mut self.drafter);
        let holds = self.drafter.len() == ids.len();
        if !holds {
            self.drafter.truncate(0);
        }
        if let Some(running) = &mut self.running {
            running.reading.forget();
            if holds {
                running.reading.fed(ids.iter().copied());
            }
        }
        done
    }

    /// Returns the models.
    pub fn into_models(self) -> (D, T) {
        (self.drafter, self.target)
    }
}

/// Number of leading items that two sequences share.
fn common_prefix<I: PartialEq>(a: &[I], b: &[I]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Feeds all tokens but the last one to a model whose cache may hold the first `common` of them.
/// Returns the last one.
pub(crate) fn read_prompt<I: TokenId>(
    model: &mut impl LanguageModel,
    role: Role,
    prompt: &[I],
    common: usize,
) -> Result<I, SpecError> {
    let Some((&last, rest)) = prompt.split_last() else {
        return Err(SpecError::EmptyPrompt(role));
    };
    if prompt.len() > model.max_len() {
        return Err(SpecError::PromptTooLong {
            role,
            tokens: prompt.len(),
            max_len: model.max_len(),
        });
    }
    let kept = common.min(rest.len()).min(model.len());
    model.truncate(kept);
    if kept < rest.len() {
        model
            .prefill(&raw_ids(&rest[kept..]))
            .map_err(|source| SpecError::Prefill { role, source })?;
    }
    Ok(last)
}
