//! Admission: requests get slots, prompts are read in chunks, answers begin.

use std::time::Instant;

use adaptive_draft::{Answer, Controlled, Costs, Way};
use distill_loss::Recorder;
use online::Needs;
use spec_decode::{
    Acceptance, Prompt, Purpose, Session, SessionConfig, StreamName, Totals, VerifyMode,
};

use super::lengths::{EXPLORE, LengthPolicy, Policy};
use super::sequence::{Prefilling, Sequence, Slot, Stage, WeightsVersion};
use super::target_model::TargetModel;
use super::text::AnswerText;
use super::{Decoder, fail};
use crate::error::{Result, ServeError};
use crate::models::Target;
use crate::random::random_number;
use crate::remote::RemoteTarget;
use crate::request::{Done, Job, Request};

/// Number of prompt tokens that are read in a step, so that running answers continue while a long
/// prompt is read.
const CHUNK: usize = 128;

impl Decoder {
    /// Gives slots to waiting requests: first to the user with the fewest running answers, then in
    /// order of arrival.
    pub(super) fn admit(&mut self) {
        let limit = self.options.timeout;
        self.waiting.retain(|job| !job.given_up(limit));
        while self.running.len() + self.prefilling.len() < self.options.parallel
            && !self.waiting.is_empty()
        {
            let load = |job: &Job| {
                let own = |other: &&Job| other.request.user == job.request.user;
                self.jobs().filter(own).count()
            };
            let next = (0..self.waiting.len()).min_by_key(|i| load(&self.waiting[*i]));
            let Some(job) = next.and_then(|i| self.waiting.remove(i)) else {
                return;
            };
            self.assign_slot(job);
        }
    }

    pub(super) fn assign_slot(&mut self, mut job: Job) {
        let prompt = &job.request.prompt.target;
        match self.take_slot(&job.request) {
            Ok(mut slot) => {
                slot.user.clone_from(&job.request.user);
                let cached = slot.session.held(prompt).min(prompt.len() - 1);
                self.prefilling.push_back(Prefilling { job, slot, cached });
            }
            Err(error) => fail(&mut job, &error.in_full(), &self.stats),
        }
    }

    /// Reads up to [`CHUNK`] tokens of prompts. Answers whose prompts are complete begin.
    pub(super) fn prefill(&mut self) {
        let mut left = CHUNK;
        while left > 0
            && let Some(mut prefilling) = self.prefilling.pop_front()
        {
            let prompt = &prefilling.job.request.prompt.target;
            let before = prefilling.slot.session.held(prompt);
            match prefilling.slot.session.read_ahead(prompt, left) {
                Ok(true) => {
                    left = left.saturating_sub(prompt.len().saturating_sub(before));
                    self.begin(prefilling);
                }
                Ok(false) => {
                    left = 0;
                    self.prefilling.push_front(prefilling);
                }
                Err(error) => fail(&mut prefilling.job, &error.to_string(), &self.stats),
            }
        }
    }

    /// Begins the answer to a request whose prompt is read.
    fn begin(&mut self, prefilling: Prefilling) {
        let Prefilling {
            mut job,
            mut slot,
            cached,
        } = prefilling;
        let request = &job.request;
        let index = request.target;
        let target = &self.models.targets[index];
        let learn = self.options.learn;
        let adapter = learn.map_or_else(
            || target.name.clone(),
            |learn| learn.adapter(&target.name, &request.user),
        );
        // The seconds of a remote target are those of its machine and of the network.
        let controlled = request.drafting && target.folder().is_some();
        let answer = match controlled {
            true => self.stats.open(&target.name),
            false => None,
        };
        let way = answer.as_ref().map(Answer::way);
        // The untrained weights have the empty name.
        let (own, of_all) = match way {
            Some(Way::Frozen) => ("", ""),
            _ => (adapter.as_str(), target.name.as_str()),
        };
        if request.drafting
            && let Err(error) = self.load_adapter(&mut slot, own, of_all)
        {
            return fail(&mut job, &error.in_full(), &self.stats);
        }
        let needs = self.needs();
        // If nothing is learnt, an answer depends on its request alone.
        let own = needs.is_none() && request.drafting;
        let own_cache = own.then(|| Box::new(self.known.caches[&target.vocabulary()].clone()));
        let costs = self.costs[index].of(self.concurrency(index, 1));
        let length = match self.options.adapt_length {
            true => {
                let records = needs.is_some() && request.drafting;
                self.lengths.policy(&adapter, &costs, records)
            }
            false => LengthPolicy::Constant(self.options.draft_length),
        };
        let draft_top = self.options.remote.draft_top;
        slot.session
            .configure(settings(request, target, draft_top, way));
        drop(slot.session.take_history());
        let length = match request.drafting {
            true => length,
            false => LengthPolicy::Constant(0),
        };
        let policy = match &mut self.corpora {
            Some(corpora) if request.drafting => {
                let source = corpora.source(target.vocabulary(), &request.user);
                slot.session.look_up_in(source);
                // Measured costs depend on other answers: without learning, default costs count.
                let costs = match needs {
                    Some(_) => costs.costs,
                    None => Costs::default(),
                };
                // A draft that is not made must not be preferred to a copy.
                let longest = match way.is_none_or(Way::drafts) {
                    true => self.options.draft_length,
                    false => 0,
                };
                let record = Box::default();
                Policy::new(length, record, costs, longest, true, Some(EXPLORE))
            }
            _ => Policy::without_copies(length),
        };
        let name = StreamName {
            sample: request.sample,
            ..StreamName::new(request.seed, 0)
        };
        // Without drafts the drafter need not read the prompt.
        let (verify, draft) = match request.drafting {
            true => (Purpose::Verify, request.prompt.draft.as_slice()),
            false => (Purpose::Plain, &request.prompt.draft[..1]),
        };
        let prompt = Prompt {
            draft,
            target: &request.prompt.target,
        };
        let dice = (name.dice(Purpose::Draft), name.dice(verify));
        let started = slot
            .session
            .start_with(prompt, Box::new(dice.0), Box::new(dice.1));
        let prefill = match started {
            Ok(prefill) => prefill,
            Err(error) => return fail(&mut job, &error.to_string(), &self.stats),
        };
        let records = request.drafting && answer.as_ref().is_none_or(Answer::records);
        let recorder = needs
            .filter(|_| records)
            .map(|needs| Recorder::new(&target.pair.alignment, needs.losses));
        let mut policy = Controlled::new(policy, answer);
        policy.read(prefill.draft);
        self.running.push(Sequence {
            policy,
            shared: false,
            text: AnswerText::new(request.stop.clone()),
            stage: Stage::Ready,
            awaited: None,
            own_cache,
            totals: Totals::default(),
            adapter,
            recorder,
            done: Done {
                prompt_tokens: request.prompt.target.len(),
                cached_tokens: cached,
                ..Done::default()
            },
            began: Instant::now(),
            slot,
            job,
        });
    }

    pub(super) fn needs(&self) -> Option<Needs> {
        self.learner.as_ref().map(|learner| learner.needs)
    }

    /// Takes the idle slot whose caches hold most of a prompt. If none holds half of it, it makes a
    /// new slot. If there may be no more slots, it reuses or replaces the one unused for longest.
    fn take_slot(&mut self, request: &Request) -> Result<Slot> {
        let (target, prompt) = (request.target, &request.prompt.target[..]);
        let apart = self.options.keeps_users_apart();
        let fits = |slot: &Slot| slot.target == target && (!apart || slot.user == request.user);
        let idle = || self.idle.iter().enumerate();
        let held = idle().filter(|(_, slot)| fits(slot));
        let held = held.map(|(i, slot)| (slot.session.held(prompt), i));
        if let Some((_, i)) = held.max().filter(|(held, _)| 2 * held >= prompt.len()) {
            return Ok(self.idle.swap_remove(i));
        }
        if self.idle.len() + self.running.len() + self.prefilling.len() >= self.options.parallel {
            // A slot of another target is freed only if there is none of this one.
            let oldest = idle().min_by_key(|(_, slot)| (slot.target != target, slot.last_used));
            if let Some((i, _)) = oldest {
                let slot = self.idle.swap_remove(i);
                if fits(&slot) {
                    return Ok(slot);
                }
            }
        }
        self.new_slot(target)
    }

    /// A new slot: a pair of KV caches.
    pub(super) fn new_slot(&self, index: usize) -> Result<Slot> {
        let target = &self.models.targets[index];
        let mut drafter = self.models.drafter.engine(self.options.drafter_engine())?;
        if let Some(blocks) = self.needs().map(|needs| needs.blocks).filter(|n| *n > 0) {
            let kept = drafter.keep_states(blocks);
            kept.map_err(ServeError::of("--learn-blocks"))?;
        }
        let model = match target.folder() {
            Some(folder) => TargetModel::Local(folder.engine(self.options.engine)?),
            None => {
                let session = random_number();
                let most = target.remote().map_or(0, |r| r.info.context);
                let vocab = target.vocab_size;
                TargetModel::Remote(RemoteTarget::new(session, vocab, most))
            }
        };
        let config = SessionConfig {
            stop: target.text.stop_tokens(),
            ..SessionConfig::new(VerifyMode::Exact, 1)
        };
        let session = Session::new(drafter, model, target.pair.clone(), config)
            .map_err(ServeError::of(format!("target `{}`", target.name)))?;
        Ok(Slot::new(index, session))
    }

    /// Loads weights into a slot's drafter: the adapter's, else its target's, else base weights.
    pub(super) fn load_adapter(&self, slot: &mut Slot, adapter: &str, target: &str) -> Result<()> {
        let wanted = [adapter, target].into_iter().find_map(|name| {
            let (version, packed) = self.weights.get(name)?;
            let (adapter, version) = (name.to_owned(), *version);
            Some((WeightsVersion { adapter, version }, packed))
        });
        let (wanted, packed) = wanted.unwrap_or((WeightsVersion::default(), &self.base));
        if slot.weights == wanted {
            return Ok(());
        }
        let mut packed = packed.clone();
        slot.session
            .change_drafter(|drafter| drafter.swap_weights(&mut packed))?;
        slot.weights = wanted;
        Ok(())
    }
}

/// Session settings of a request. Block verification accepts at least as many tokens on average as
/// tokenwise verification, and emits the same distribution; without drafts every token is drawn as
/// in plain decoding.
fn settings(
    request: &Request,
    target: &Target,
    draft_top: usize,
    way: Option<Way>,
) -> SessionConfig {
    let rests = way == Some(Way::Plain);
    let (mode, acceptance) = match request.drafting && !rests {
        true => (VerifyMode::Exact, Acceptance::Block),
        false => (VerifyMode::Tli, Acceptance::Token),
    };
    SessionConfig {
        sampling: request.sampling,
        acceptance,
        stop: target.text.stop_tokens_unless(request.ignore_eos),
        learn_ngrams: request.drafting,
        drafter_reads: way.is_none_or(Way::drafts),
        // A remote target can only verify a draft whose probabilities are sent along.
        draft_top: target.remote().map_or(0, |_| draft_top),
        ..SessionConfig::new(mode, request.max_tokens)
    }
}
