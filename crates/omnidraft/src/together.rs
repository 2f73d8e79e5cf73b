//! Several sequences, one forward.

use models::Engine;
use spec_decode::{
    DraftedRound, DraftingRound, Finish, Generation, LanguageModel, ModelError, NoSink, Prefill,
    Prompt, Role, RoundOutcome, SpecError, TeacherSink, Totals,
};
use vocab_align::{DraftId, TargetId};

use crate::session::Teacher;
use crate::{Answer, Error, Session};

/// A session between two models.
type Own = Session<Engine, Engine>;

/// Answers one prompt in each session, in rounds of all sessions together. One forward drafts a
/// token in every session, and one scores all drafts: shared weights are read once for all.
///
/// Each answer is the one that its session alone would give; above temperature 0 only if that scores
/// no [alternatives](crate::Builder::alternatives), which answers made together do not have. A session that learns does so when the
/// last answer has ended.
///
/// # Errors
/// [`Error::Prompts`] if the numbers of prompts and sessions differ; otherwise as
/// [`Session::generate_text`].
pub fn generate_together(
    sessions: &mut [Own],
    prompts: &[&str],
    max_new_tokens: usize,
) -> Result<Vec<Answer>, Error> {
    if sessions.len() != prompts.len() {
        return Err(Error::Prompts {
            prompts: prompts.len(),
            sessions: sessions.len(),
        });
    }
    let begun = sessions.iter_mut().zip(prompts);
    let begun = begun.map(|(session, prompt)| Sequence::begin(session, prompt, max_new_tokens));
    let mut sequences: Vec<Sequence<'_>> = begun.collect::<Result<_, _>>()?;
    let mut logits = Vec::new();
    while sequences.iter().any(|own| own.finished().is_none()) {
        draft(&mut sequences, &mut logits)?;
        verify(&mut sequences, &mut logits)?;
    }
    sequences.into_iter().map(Sequence::end).collect()
}

/// Drafts for every unfinished sequence, one token of all of them at a time.
fn draft(sequences: &mut [Sequence<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
    for own in sequences.iter_mut().filter(|own| own.finished().is_none()) {
        own.begin_draft()?;
    }
    loop {
        let inputs = sequences.iter_mut().filter_map(Sequence::draft_input);
        let mut inputs: Vec<_> = inputs.collect();
        if inputs.is_empty() {
            break;
        }
        let read = Engine::forward_together(&mut inputs, logits);
        read.map_err(|source| failed(Role::Drafter, source))?;
        let mut rows = &logits[..];
        for own in &mut *sequences {
            own.draft_token(&mut rows)?;
        }
    }
    sequences.iter_mut().try_for_each(Sequence::end_draft)
}

/// Scores all drafts in one forward, verifies and commits them.
fn verify(sequences: &mut [Sequence<'_>], logits: &mut Vec<f32>) -> Result<(), Error> {
    let inputs = sequences.iter_mut().filter_map(Sequence::target_input);
    let mut inputs: Vec<_> = inputs.collect();
    let scored = Engine::forward_together(&mut inputs, logits);
    scored.map_err(|source| failed(Role::Target, source))?;
    let mut rows = &logits[..];
    for own in sequences {
        own.end_round(&mut rows)?;
    }
    Ok(())
}

/// Error of a forward for all sequences, which belongs to no single round.
fn failed(role: Role, source: ModelError) -> Error {
    Error::Decode(SpecError::Prefill { role, source })
}

/// Takes `numbers` values off the front, or all if there are fewer; the session refuses too few.
fn take<'a>(rows: &mut &'a [f32], numbers: usize) -> &'a [f32] {
    let (own, rest) = rows.split_at(numbers.min(rows.len()));
    *rows = rest;
    own
}

/// One of the answers in the making.
struct Sequence<'a> {
    session: &'a mut Own,
    /// Draft tokens of the prompt.
    prompt: usize,
    prefill: Prefill,
    rounds: Vec<RoundOutcome>,
    totals: Totals,
    teacher: Option<Teacher>,
    drafting: Option<DraftingRound>,
    drafted: Option<DraftedRound>,
}

impl<'a> Sequence<'a> {
    fn begin(session: &'a mut Own, prompt: &str, max_new_tokens: usize) -> Result<Self, Error> {
        let (draft, target) = session.encode(prompt)?;
        let name = session.next(max_new_tokens);
        let prompt = Prompt {
            draft: &draft,
            target: &target,
        };
        Ok(Self {
            prompt: draft.len(),
            prefill: session.rounds.start(prompt, name)?,
            rounds: Vec::new(),
            totals: Totals::default(),
            teacher: session.teacher(),
            drafting: None,
            drafted: None,
            session,
        })
    }

    fn finished(&self) -> Option<Finish> {
        self.session.rounds.finished()
    }

    fn begin_draft(&mut self) -> Result<(), Error> {
        let session = &mut *self.session;
        let (rounds, cache) = (&mut session.rounds, session.cache.as_ref());
        self.drafting = Some(rounds.begin_round(cache, &mut *session.policy)?);
        Ok(())
    }

    /// The drafter and what it reads next, while it drafts.
    fn draft_input(&mut self) -> Option<(&mut Engine, &[DraftId])> {
        let input = self.drafting.as_ref()?.input();
        let drafter = self.session.rounds.drafting_model();
        (!input.is_empty()).then_some((drafter, input))
    }

    fn draft_token(&mut self, rows: &mut &[f32]) -> Result<(), Error> {
        let Some(round) = self.drafting.as_mut().filter(|own| !own.input().is_empty()) else {
            return Ok(());
        };
        let session = &mut *self.session;
        let (rounds, cache) = (&mut session.rounds, session.cache.as_ref());
        let own = take(rows, round.input().len() * rounds.drafter().vocab_size());
        Ok(rounds.draft_token(round, cache, own, &mut *session.policy)?)
    }

    fn end_draft(&mut self) -> Result<(), Error> {
        if let Some(round) = self.drafting.take() {
            let cache = self.session.cache.as_ref();
            self.drafted = Some(self.session.rounds.end_draft(round, cache)?);
        }
        Ok(())
    }

    /// The target and the tokens that it scores.
    fn target_input(&mut self) -> Option<(&mut Engine, &[TargetId])> {
        let input = self.drafted.as_ref()?.input();
        Some((self.session.rounds.target_mut(), input))
    }

    fn end_round(&mut self, rows: &mut &[f32]) -> Result<(), Error> {
        let Some(round) = self.drafted.take() else {
            return Ok(());
        };
        let session = &mut *self.session;
        let rounds = &mut session.rounds;
        let own = take(rows, round.input().len() * rounds.target().vocab_size());
        let judged = rounds.judge_round(round, session.cache.as_ref(), own)?;
        let mut none = NoSink;
        let sink: &mut dyn TeacherSink = match &mut self.teacher {
            Some(teacher) => teacher,
            None => &mut none,
        };
        let (cache, policy) = (session.cache.as_mut(), &mut *session.policy);
        let outcome = rounds.commit_round(judged, own, cache, policy, sink)?;
        self.totals.add(&outcome);
        self.rounds.push(outcome);
        Ok(())
    }

    fn end(self) -> Result<Answer, Error> {
        let session = self.session;
        let done = Generation {
            tokens: session.rounds.response().to_vec(),
            finish: session.rounds.finished().unwrap_or(Finish::MaxNewTokens),
            prefill: self.prefill,
            rounds: self.rounds,
            totals: self.totals,
        };
        session.learn_from(self.prompt, self.teacher)?;
        Ok(Answer::new(done, &session.pair.target))
    }
}
