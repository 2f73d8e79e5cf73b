//! The rounds of one response, drafted by a model or by prompt lookup.

use adaptive_draft::Way;
use distill_loss::Recorder;
use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{
    CopySource, DraftPolicy, Generation, LanguageModel, NoSink, Pair, Prompt, PromptLookup,
    Purpose, RoundOutcome, Session, SessionConfig, TeacherSink, Totals,
};
use vocab_align::DraftId;

use super::control::{Timed, Watched};
use super::error::Result;
use super::question::Question;

/// A callback for every round, with the draft context before it.
pub(super) type Show<'a> = &'a mut dyn FnMut(&[DraftId], &RoundOutcome);

/// A callback between two rounds, with the session and the recorder.
pub(super) type Between<'a, D, T> =
    &'a mut dyn FnMut(&mut Session<D, T>, Option<&Recorder>) -> Result<()>;

/// Observers of an answer.
pub(super) struct Onlookers<'a, D, T> {
    /// Records the training data of the answer.
    pub(super) teacher: Option<&'a mut Recorder>,
    pub(super) show: Option<Show<'a>>,
    /// Costs of the rounds of an answer under a controller.
    pub(super) watched: Option<&'a Watched>,
    pub(super) between: Between<'a, D, T>,
}

/// Like [`Session::generate`], with observers.
pub(super) fn generate<D: LanguageModel, T: LanguageModel>(
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
    // An answer without drafts is plain decoding's, token by token, also at temperatures above 0.
    let verify = match watched.map(Watched::way) {
        Some(Way::Plain) => Purpose::Plain,
        _ => Purpose::Verify,
    };
    let [draft, verify] = [Purpose::Draft, verify].map(|purpose| question.name.dice(purpose));
    let prefill = session.start_with(question.prompt, Box::new(draft), Box::new(verify))?;
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

/// Answers a prompt with drafts from its own context, or from `source` if given, which is returned
/// with prompt and answer added.
pub(super) fn look_up(
    target: &mut Engine,
    pair: &Pair,
    settings: SessionConfig,
    question: &Question<'_>,
    policy: &mut dyn DraftPolicy,
    source: Option<CopySource>,
) -> Result<(Generation, Option<CopySource>)> {
    let drafter = PromptLookup::new(target.vocab_size());
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
