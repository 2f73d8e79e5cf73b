//! One response: the rounds of a session, with a draft model or without.

use anyhow::Result;
use experiment::{Columns, Terms};
use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{
    CopySource, DraftPolicy, Generation, LanguageModel, Lexicon, NoSink, Pair, Prompt,
    PromptLookup, RoundOutcome, Session, SessionConfig, TeacherSink, Totals,
};
use vocab_align::{DraftId, TargetId};

use super::arm::Question;
use super::control::{Timed, Watched};
use super::example::Recorder;

/// Sees every round with the draft context it began from.
pub(super) type Show<'a> = &'a mut dyn FnMut(&[DraftId], &RoundOutcome);

/// Sees the session between two rounds, with what was recorded so far.
pub(super) type Between<'a, D, T> =
    &'a mut dyn FnMut(&mut Session<D, T>, Option<&Recorder>) -> Result<()>;

/// The onlookers while an answer is made.
pub(super) struct Onlookers<'a, D, T> {
    /// Records what the answer teaches.
    pub(super) teacher: Option<&'a mut Recorder>,
    pub(super) show: Option<Show<'a>>,
    /// The answer under control, which is told what rounds took.
    pub(super) watched: Option<&'a Watched>,
    pub(super) between: Between<'a, D, T>,
}

/// As [`Session::generate`], with onlookers.
pub(super) fn generate<D: LanguageModel<DraftId>, T: LanguageModel<TargetId>>(
    session: &mut Session<D, T>,
    question: &Question<'_>,
    mut cache: Option<&mut NgramCache>,
    policy: &mut dyn DraftPolicy,
    onlookers: Onlookers<'_, D, T>,
) -> Result<Generation> {
    let Onlookers {
        mut teacher,
        mut show,
        watched,
        between,
    } = onlookers;
    let prefill = session.start(question.prompt, question.name)?;
    if let Some(watched) = watched {
        watched.read(prefill.draft);
    }
    let (mut rounds, mut totals) = (Vec::new(), Totals::default());
    let finish = loop {
        if let Some(finish) = session.finished() {
            break finish;
        }
        let context = match show {
            Some(_) => session.draft_context().to_vec(),
            None => Vec::new(),
        };
        let mut nobody = NoSink;
        let sink: &mut dyn TeacherSink = match &mut teacher {
            Some(recorder) => &mut **recorder,
            None => &mut nobody,
        };
        let outcome = match watched {
            Some(watched) => {
                let mut timed = Timed {
                    inner: sink,
                    watched,
                };
                session.round(cache.as_deref_mut(), policy, &mut timed)?
            }
            None => session.round(cache.as_deref_mut(), policy, sink)?,
        };
        if let Some(show) = &mut show {
            show(&context, &outcome);
        }
        if let Some(watched) = watched {
            watched.observe(&outcome);
        }
        totals.add(&outcome);
        rounds.push(outcome);
        if session.finished().is_none() {
            between(session, teacher.as_deref())?;
        }
    };
    Ok(Generation {
        tokens: session.response().to_vec(),
        finish,
        prefill,
        rounds,
        totals,
    })
}

/// Answers a prompt with drafts from its own context, or from `source` where there is one, which
/// comes back with prompt and answer.
pub(super) fn look_up(
    target: &mut Engine,
    pair: &Pair,
    settings: SessionConfig,
    question: &Question<'_>,
    policy: &mut dyn DraftPolicy,
    source: Option<CopySource>,
) -> Result<(Generation, Option<CopySource>)> {
    let drafter = PromptLookup::new(LanguageModel::<TargetId>::vocab_size(target));
    let ids: Vec<DraftId> = question
        .prompt
        .target
        .iter()
        .map(|id| DraftId(id.0))
        .collect();
    let prompt = Prompt {
        draft: &ids,
        target: question.prompt.target,
    };
    let mut session = Session::new(drafter, target, pair.clone(), settings)?;
    if let Some(source) = source {
        session.look_up_in(source);
    }
    let done = session.generate(prompt, question.name, None, policy, &mut NoSink)?;
    Ok((done, session.take_history()))
}

/// What records the teacher's laws for a loss, over the columns that it wants.
pub(super) fn recorder<D: LanguageModel<DraftId>, T: LanguageModel<TargetId>>(
    session: &Session<D, T>,
    pair: &Pair,
    cache: Option<&NgramCache>,
    terms: Terms,
) -> Recorder {
    match terms.columns() {
        Columns::Shared => Recorder::new(&pair.alignment, terms),
        Columns::Roots => {
            let cache = cache.filter(|_| session.config().mode.uses_cache());
            let lexicon = Lexicon::new(session.direct(), cache);
            Recorder::over_groups(&lexicon, session.target().vocab_size(), terms)
        }
    }
}
