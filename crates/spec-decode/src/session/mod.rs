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
use std::time::Instant;

use ngram_cache::NgramCache;
use vocab_align::{Alignment, DraftContext, DraftId, MappingMode, TargetId, Vocabulary};

use crate::error::{Role, SpecError};
use crate::fault::Fault;
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
use running::Running;

/// The two vocabularies and what connects them. The same vocabulary twice, with its identity
/// alignment, is ordinary speculative decoding.
#[derive(Clone, Debug)]
pub struct Pair {
    /// V_q.
    pub draft: Vocabulary<DraftId>,
    /// V_p.
    pub target: Vocabulary<TargetId>,
    /// t <-> d.
    pub alignment: Arc<Alignment>,
}

impl Pair {
    /// One vocabulary in both roles: ordinary speculative decoding, and
    /// [`PromptLookup`](crate::PromptLookup).
    pub fn shared(target: Vocabulary<TargetId>) -> Self {
        let draft = target.retag();
        let alignment = Arc::new(Alignment::build(&draft, &target, MappingMode::Bytes));
        Self {
            draft,
            target,
            alignment,
        }
    }
}

/// Settings of a session.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionConfig {
    /// How drafts are masked, translated and judged.
    pub mode: VerifyMode,
    /// Whether the tokens of a draft are judged one by one or together.
    pub acceptance: Acceptance,
    /// How tokens are drawn from logits; the target's processed law is the law of the output.
    pub sampling: Sampling,
    /// Most tokens of a response; surplus of the last round is cut.
    pub max_new_tokens: usize,
    /// Tokens that end a response (end of text, end of turn); the one that does is kept in it.
    pub stop: BTreeSet<TargetId>,
    /// Whether n-grams of verified text enter the cache: in each round those of text whose draft
    /// tokens are final, the rest when the response ends.
    pub learn_ngrams: bool,
    /// The drafter draws from so many of its most probable tokens only, by their law among
    /// themselves; 0 for all. That law is q then, so that nothing changes in the output's law.
    pub draft_top: usize,
    /// Whether the drafter reads a prompt when a response begins; else before its first draft, in the
    /// time of that round, and never where nothing is drafted.
    pub drafter_reads: bool,
    /// Whether proposals behind the first rejected one are scored as well (a softmax each), as
    /// training an acceptance head wants.
    pub score_unjudged: bool,
}

impl SessionConfig {
    /// Greedy decoding in a mode, without stop tokens, learning n-grams.
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
            score_unjudged: false,
        }
    }
}

/// Why a response ended.
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
    /// For the drafter.
    pub draft: &'a [DraftId],
    /// For the target.
    pub target: &'a [TargetId],
}

/// Seconds of reading a prompt, apart from all rounds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Prefill {
    /// Drafter.
    pub draft: f64,
    /// Target.
    pub target: f64,
}

/// A finished response.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Its tokens, a final stop token included.
    pub tokens: Vec<TargetId>,
    /// Why it ended.
    pub finish: Finish,
    /// Seconds before the first round.
    pub prefill: Prefill,
    /// All rounds.
    pub rounds: Vec<RoundOutcome>,
    /// Their sums.
    pub totals: Totals,
}

/// A drafter and a target at work on one response after the other.
///
/// # Invariants, between rounds
/// - The target's cache holds prompt and response but the last token, which the next round feeds
///   together with the proposals: one forward of m + 1 positions a round.
/// - The drafter's cache holds a prefix of its view of the draft context (prompt and response in
///   draft tokens), at least one token short of it: k forwards draft k tokens, the first reads
///   everything pending. The view is the whole context while the drafter can hold that, else its
///   last part.
///
/// # Turns of a conversation
/// A prompt that begins like the last prompt and response, as the next turn of a chat does, is read
/// from where it differs: both KV caches keep what is common.
///
/// # Looking up
/// With a [`CopySource`], a round may begin with text that occurred before, in target tokens, and go
/// on with the drafter behind it; [`DraftPolicy::plan_copy`] decides.
#[derive(Debug)]
pub struct Session<D, T> {
    drafter: D,
    target: T,
    pair: Pair,
    config: SessionConfig,
    direct: DirectMap,
    /// What mode `slem` may draft: every token with bytes, and the stop tokens.
    spellable: Vec<u32>,
    context: DraftContext,
    groups: CachedGroups,
    history: Option<CopySource>,
    running: Option<Running>,
}

/// Group ownership with the place and the generation of the cache it belongs to.
#[derive(Debug, Default)]
struct CachedGroups {
    generation: Option<(usize, u64)>,
    groups: Groups,
}

impl<D: LanguageModel<DraftId>, T: LanguageModel<TargetId>> Session<D, T> {
    /// Brings models, vocabularies and settings together.
    ///
    /// # Errors
    /// [`SpecError::Align`] where the vocabularies and the alignment do not belong together.
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
        .map_err(|source| SpecError::Align { round: 0, source })?;
        let direct = DirectMap::new(&pair.alignment, drafter.vocab_size(), target.vocab_size());
        let spellable = slem::spellable(&pair, &direct, &config.stop, drafter.vocab_size());
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
        })
    }

    /// Looks continuations up in this text and in the prompts and responses to come.
    pub fn look_up_in(&mut self, history: impl Into<CopySource>) {
        self.history = Some(history.into());
    }

    /// Gives that text back; nothing is looked up any more.
    pub fn take_history(&mut self) -> Option<CopySource> {
        self.history.take()
    }

    /// Begins a response: both models read the prompt but its last token. Random streams are named
    /// by `name`; at temperature 0 they are not touched.
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

    /// As [`start`](Self::start) with the randomness of drafting and verification given.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_with(
        &mut self,
        prompt: Prompt<'_>,
        draft_dice: Box<dyn Chance + Send>,
        verify_dice: Box<dyn Chance + Send>,
    ) -> Result<Prefill, SpecError> {
        // What the caches hold is known only where the last response went well.
        let (mut reading, held) = match self.running.take() {
            Some(running) => (running.reading, [running.prompt, running.response].concat()),
            None => {
                self.drafter.truncate(0);
                (Reading::default(), Vec::new())
            }
        };
        self.groups = CachedGroups::default();
        let clock = Instant::now();
        self.read_draft_prompt(&mut reading, prompt.draft)?;
        let draft = clock.elapsed().as_secs_f64();
        let clock = Instant::now();
        let common = common_prefix(&held, prompt.target);
        let pending = read_prompt(&mut self.target, Role::Target, prompt.target, common)?;
        let target = clock.elapsed().as_secs_f64();
        self.context.start(prompt.draft, prompt.target);
        if let Some(history) = &mut self.history {
            history.start(prompt.target);
        }
        let penalises = self.config.sampling.penalises();
        let seen = penalises.then(|| prompt.target.iter().copied().collect());
        let ended = self.config.max_new_tokens == 0;
        self.running = Some(Running {
            prompt_draft: prompt.draft.len(),
            prompt: prompt.target.to_vec(),
            response: Vec::new(),
            seen,
            pending,
            reading,
            round: 0,
            finish: ended.then_some(Finish::MaxNewTokens),
            mined: mining::Mined::default(),
            draft_dice,
            verify_dice,
        });
        Ok(Prefill { draft, target })
    }

    /// Reads the drafter's view of a prompt but its last token.
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
        let read = reading.catch_up(&mut self.drafter, prompt, 1, 0);
        read.map(drop).map_err(|fault| match fault {
            Fault::Model(role, source) => SpecError::Prefill { role, source },
            other => other.at(0),
        })
    }

    /// Runs rounds until the response ends.
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

    /// Why the response ended; `None` while it has not.
    pub fn finished(&self) -> Option<Finish> {
        self.running.as_ref()?.finish
    }

    /// The tokens of the response so far.
    pub fn response(&self) -> &[TargetId] {
        self.running
            .as_ref()
            .map_or(&[], |running| &running.response)
    }

    /// Prompt and response in draft tokens.
    pub fn draft_context(&self) -> &[DraftId] {
        self.context.ids()
    }

    /// How many bytes of the response each draft token behind the prompt stands for
    /// ([`DraftContext::lengths`]).
    pub fn draft_lengths(&self) -> &[usize] {
        self.context.lengths()
    }

    /// The settings.
    pub fn config(&self) -> &SessionConfig {
        &self.config
    }

    /// The canonical direct mapping in use.
    pub fn direct(&self) -> &DirectMap {
        &self.direct
    }

    /// The drafter.
    pub fn drafter(&self) -> &D {
        &self.drafter
    }

    /// The target.
    pub fn target(&self) -> &T {
        &self.target
    }

    /// The target, for the forward of a [drafted round](Self::draft_round): its KV cache must hold
    /// what it held and the round's input behind it.
    pub fn target_mut(&mut self) -> &mut T {
        &mut self.target
    }

    /// The drafter, for the forwards of a [round that drafts](Self::begin_round): its KV cache must
    /// hold what it held and the round's input behind it.
    pub fn drafting_model(&mut self) -> &mut D {
        &mut self.drafter
    }

    /// Reads up to `most` tokens of a prompt that is to [start](Self::start) later into the target's
    /// KV cache, so that a long one holds up nothing else; true where nothing is left to read. The
    /// response in progress is over.
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
            let read = self.target.prefill(&prompt[held..end]);
            read.map_err(|source| SpecError::Prefill { role, source })?;
        }
        // As if what was read were a prompt without a response.
        running.prompt = prompt[..end].to_vec();
        running.response.clear();
        running.finish = Some(Finish::MaxNewTokens);
        self.running = Some(running);
        Ok(end == rest)
    }

    /// Other settings for the responses to come; what the KV caches hold stays.
    pub fn configure(&mut self, config: SessionConfig) {
        if config.stop != self.config.stop {
            let width = self.drafter.vocab_size();
            self.spellable = slem::spellable(&self.pair, &self.direct, &config.stop, width);
        }
        self.config = config;
    }

    /// How many leading tokens of a prompt need not be read again: what it has in common with the
    /// last prompt and response.
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

    /// Changes the drafter, such as its weights, between two rounds or responses: it reads its
    /// context again, while the target's KV cache stays.
    pub fn change_drafter<R>(&mut self, change: impl FnOnce(&mut D) -> R) -> R {
        let changed = change(&mut self.drafter);
        self.drafter.truncate(0);
        if let Some(running) = &mut self.running {
            running.reading.forget();
        }
        changed
    }

    /// Lets the drafter read `ids` in the place of what it holds, between responses: `read` is to leave
    /// just these in its KV cache, so that a prompt that begins with them need not be read again.
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

    /// The drafter, to update its weights. Ends the response in progress, since its KV cache would
    /// no longer match.
    pub fn drafter_mut(&mut self) -> &mut D {
        self.running = None;
        &mut self.drafter
    }

    /// Gives the models back.
    pub fn into_models(self) -> (D, T) {
        (self.drafter, self.target)
    }
}

/// How many leading items two sequences share.
fn common_prefix<I: PartialEq>(a: &[I], b: &[I]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// Feeds all tokens but the last one to a model, whose cache may hold the first `common` of them,
/// and returns that last one.
pub(crate) fn read_prompt<I: vocab_align::TokenId, M: LanguageModel<I>>(
    model: &mut M,
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
            .prefill(&rest[kept..])
            .map_err(|source| SpecError::Prefill { role, source })?;
    }
    Ok(last)
}
