//! The rounds of one response, drafted by a model or by prompt lookup.

use std::time::Instant;

use adaptive_draft::{Controlled, Way};
use distill_loss::Recorder;
use models::Engine;
use ngram_cache::NgramCache;
use spec_decode::{
    CopySource, DraftPolicy, Generation, LanguageModel, NoSink, Pair, Prompt, PromptLookup,
    Purpose, Session, SessionConfig, TeacherSink, Totals,
};
use vocab_align::{DraftId, TargetId};

use super::error::Result;
use super::learner::Learner;
use super::parts::Parts;
use super::question::Question;
use super::relabel::JudgedDraft;

/// Observers of an answer.
pub(super) struct Onlookers<'a> {
    /// The learner of the answer, and the recorder of its training data.
    pub(super) learning: Option<(&'a mut Learner, Recorder)>,
    /// Its drafts, if a head is trained on them.
    pub(super) drafts: Option<Vec<JudgedDraft>>,
    /// Its parts, which are learnt from between two rounds.
    pub(super) parts: Parts,
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
pub(super) fn generate(
    session: &mut Session<&mut Engine, &mut Engine>,
    question: &Question<'_>,
    mut cache: Option<&mut NgramCache>,
    policy: &mut Controlled<impl DraftPolicy>,
    onlookers: &mut Onlookers<'_>,
) -> Result<Generation> {
    let Onlookers {
        learning,
        drafts,
        parts,
    } = onlookers;
    // Given the random stream of plain decoding, an answer without drafts has the same tokens.
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
        let context = match drafts {
            Some(_) => session.draft_context().to_vec(),
            None => Vec::new(),
        };
        let mut sink = Timed {
            recorder: learning.as_mut().map(|(_, recorder)| recorder),
            seconds: 0.0,
        };
        let outcome = session.round(cache.as_deref_mut(), policy, &mut sink)?;
        policy.take_in(&outcome, sink.seconds);
        if let Some(drafts) = drafts {
            drafts.extend(JudgedDraft::new(&context, &outcome));
        }
        totals.add(&outcome);
        rounds.push(outcome);
        if session.finished().is_none()
            && let Some((learner, recorder)) = learning
            && parts.due(session)
        {
            parts.learn(session, recorder, learner, question)?;
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
