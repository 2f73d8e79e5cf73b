//! The rounds of one response, drafted by a model or by prompt lookup.

use std::time::Instant;

use adaptive_draft::{Controlled, Way};
use distill_loss::Recorder;
use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{
    CopySource, DraftPolicy, Generation, LanguageModel, NoSink, Pair, Prompt, PromptLookup,
    Purpose, RoundOutcome, Session, SessionConfig, TeacherSink, Totals,
};
use vocab_align::{DraftId, TargetId};

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
    pub(super) between: Between<'a, D, T>,
}

/// A recorder, if there is one, and the seconds that it takes.
struct Timed<'a> {
    recorder: Option<&'a mut Recorder>,
    seconds: f64,
}

impl TeacherSink for Timed<'_> {
    fn reads(&self) -> bool {
        self.recorder.is_some()
    }

    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        if let Some(recorder) = &mut self.recorder {
            let began = Instant::now();
            recorder.record(index, token, logits);
            self.seconds += began.elapsed().as_secs_f64();
        }
    }
}

/// Like [`Session::generate`], with observers.
pub(super) fn generate<D: LanguageModel, T: LanguageModel>(
    session: &mut Session<D, T>,
    question: &Question<'_>,
    mut cache: Option<&mut NgramCache>,
    policy: &mut Controlled<impl DraftPolicy>,
    onlookers: Onlookers<'_, D, T>,
) -> Result<Generation> {
    let Onlookers {
        mut teacher,
        mut show,
        between,
    } = onlookers;
    // An answer without drafts is plain decoding's, token by token, also at temperatures above 0.
    let verify = match policy.way() {
        Some(Way::Plain) => Purpose::Plain,
        _ => Purpose::Verify,
    };
    let [draft, verify] = [Purpose::Draft, verify].map(|purpose| question.name.dice(purpose));
    let prefill = session.start_with(question.prompt, Box::new(draft), Box::new(verify))?;
    policy.read(prefill.draft);
    let (mut rounds, mut totals) = (Vec::new(), Totals::default());
    let finish = loop {
        if let Some(finish) = session.finished() {
            break finish;
        }
        let context = match show {
            Some(_) => session.draft_context().to_vec(),
            None => Vec::new(),
        };
        let mut sink = Timed {
            recorder: teacher.as_deref_mut(),
            seconds: 0.0,
        };
        let outcome = session.round(cache.as_deref_mut(), policy, &mut sink)?;
        policy.take_in(&outcome, sink.seconds);
        if let Some(show) = &mut show {
            show(&context, &outcome);
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
