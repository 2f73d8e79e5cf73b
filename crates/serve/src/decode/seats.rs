//! Admission: requests get slots, prompts are read in chunks, answers begin.

use adaptive_draft::{Answer, Costs, Way};
use anyhow::{Context, Result};
use spec_decode::{ConstantLength, Session, SessionConfig, VerifyMode};
use vocab_align::TargetId;

use super::lengths::Lengthy;
use super::seated::Seated;
use super::sequence::{Lookup, Seat, Sequence};
use super::{Decoder, Reading, fail};
use crate::ask::{Event, Job};
use crate::error::ApiError;
use crate::learn::{Mailbox, Terms};
use crate::remote::RemoteTarget;

/// Number of prompt tokens that are read in a step, beside which other sequences go on.
const CHUNK: usize = 128;

impl Decoder {
    /// Gives slots to waiting requests: first to the user with the fewest running answers, then in
    /// order of arrival.
    pub(super) fn admit(&mut self) {
        let limit = self.options.timeout;
        let late = |job: &Job| job.arrived.elapsed() > limit;
        self.waiting.retain(|job| {
            if late(job) {
                job.tell(Event::Failed(ApiError::Timeout(limit.as_secs())));
            }
            !late(job) && !job.abandoned()
        });
        while self.running.len() + self.reading.len() < self.options.parallel
            && !self.waiting.is_empty()
        {
            let load = |job: &Job| {
                let own = |sequence: &&Sequence| sequence.job.ask.user == job.ask.user;
                let reads = |reading: &&Reading| reading.job.ask.user == job.ask.user;
                self.running.iter().filter(own).count() + self.reading.iter().filter(reads).count()
            };
            let next = (0..self.waiting.len()).min_by_key(|i| load(&self.waiting[*i]));
            let Some(job) = next.and_then(|i| self.waiting.remove(i)) else {
                return;
            };
            self.seat_job(job);
        }
    }

    pub(super) fn seat_job(&mut self, mut job: Job) {
        let prompt = &job.ask.prompt.target;
        match self.take_seat(job.ask.target, prompt) {
            Ok(seat) => {
                let cached = seat.session.held(prompt).min(prompt.len() - 1);
                self.reading.push_back(Reading { job, seat, cached });
            }
            Err(error) => fail(&mut job, &format!("{error:#}"), &self.stats),
        }
    }

    /// Reads up to [`CHUNK`] tokens of prompts. Answers whose prompts are complete begin.
    pub(super) fn read_prompts(&mut self) {
        let mut left = CHUNK;
        while left > 0
            && let Some(mut reading) = self.reading.pop_front()
        {
            let prompt = &reading.job.ask.prompt.target;
            let before = reading.seat.session.held(prompt);
            match reading.seat.session.read_ahead(prompt, left) {
                Ok(true) => {
                    left = left.saturating_sub(prompt.len().saturating_sub(before));
                    self.begin(reading);
                }
                Ok(false) => {
                    left = 0;
                    self.reading.push_front(reading);
                }
                Err(error) => fail(&mut reading.job, &error.to_string(), &self.stats),
            }
        }
    }

    pub(super) fn begin(&mut self, reading: Reading) {
        let Reading {
            mut job,
            mut seat,
            cached,
        } = reading;
        let index = job.ask.target;
        let target = &self.models.targets[index];
        let learn = self.options.learn;
        let adapter = learn.map_or_else(
            || target.name.clone(),
            |learn| learn.adapter(&target.name, &job.ask.user),
        );
        // The seconds of a remote target are those of its machine and of the network.
        let controlled = job.ask.drafting && target.folder().is_some();
        let answer = match controlled {
            true => self.stats.open(&target.name),
            false => None,
        };
        // The untrained weights have the empty name.
        let (own, of_all) = match answer.as_ref().map(Answer::way) {
            Some(Way::Frozen) => ("", ""),
            _ => (adapter.as_str(), target.name.as_str()),
        };
        if job.ask.drafting
            && let Err(error) = self.dress(&mut seat, own, of_all)
        {
            return fail(&mut job, &format!("{error:#}"), &self.stats);
        }
        let terms = self.terms();
        // If nothing is learnt, an answer depends on its request alone.
        let own = terms.is_none() && job.ask.drafting;
        let own = own.then(|| self.caches[&self.cache_of[index]].clone());
        let crowd = self.crowd(index, 1);
        let costs = self.costs[index].of(crowd);
        let lengthy = match self.options.adapt_length {
            true => {
                let records = terms.is_some() && job.ask.drafting;
                let policy = self.lengths.policy(&adapter, (crowd, &costs), records);
                Lengthy::Adapted(Box::new(policy))
            }
            false => Lengthy::Constant(ConstantLength(self.options.draft_length)),
        };
        // For the same reason copies are then weighed by default costs.
        let costs = if terms.is_some() {
            costs
        } else {
            Costs::default()
        };
        let vocabulary = self.cache_of[index];
        let corpora = self.corpora.as_mut().filter(|_| job.ask.drafting);
        let lookup = corpora.map(|corpora| Lookup {
            source: corpora.source(vocabulary, &job.ask.user),
            costs,
            longest: self.options.draft_length,
        });
        let drafts = (lengthy, lookup, self.options.remote.draft_top);
        let reading = Reading { job, seat, cached };
        match Sequence::start(reading, target, drafts, answer, adapter, terms, own) {
            Ok(sequence) => self.running.push(sequence),
            Err(failed) => {
                let (mut job, error) = *failed;
                fail(&mut job, &error.to_string(), &self.stats);
            }
        }
    }

    pub(super) fn terms(&self) -> Option<Terms> {
        self.learner.as_ref().map(Mailbox::terms)
    }

    /// The slot whose caches hold most of a prompt; another one if none holds half of it.
    pub(super) fn take_seat(&mut self, target: usize, prompt: &[TargetId]) -> Result<Seat> {
        let fitting = self
            .idle
            .iter()
            .enumerate()
            .filter(|(_, seat)| seat.target == target);
        let best = fitting
            .map(|(i, seat)| (seat.session.held(prompt), i))
            .max_by_key(|(held, _)| *held);
        let seats = self.idle.len() + self.running.len() + self.reading.len();
        if let Some((held, i)) = best
            && (2 * held >= prompt.len() || seats >= self.options.parallel)
        {
            // If no cache holds half of the prompt, the slot that was unused for longest is
            // replaced.
            let oldest = |target: usize| {
                let own = self
                    .idle
                    .iter()
                    .enumerate()
                    .filter(|(_, s)| s.target == target);
                own.min_by_key(|(_, seat)| seat.last_used).map(|(i, _)| i)
            };
            let i = if 2 * held >= prompt.len() {
                i
            } else {
                oldest(target).unwrap_or(i)
            };
            return Ok(self.idle.swap_remove(i));
        }
        if seats >= self.options.parallel {
            // All slots are of other targets: the one that was unused for longest is freed.
            let oldest = self
                .idle
                .iter()
                .enumerate()
                .min_by_key(|(_, seat)| seat.last_used);
            if let Some((i, _)) = oldest {
                self.idle.swap_remove(i);
            }
        }
        self.seat(target)
    }

    /// A new slot: a pair of KV caches.
    pub(super) fn seat(&self, index: usize) -> Result<Seat> {
        let target = &self.models.targets[index];
        let mut drafter = self.models.drafter.engine(self.options.drafter_engine())?;
        if let Some(blocks) = self.terms().map(|terms| terms.blocks).filter(|n| *n > 0) {
            drafter.keep_states(blocks).context("--learn-blocks")?;
        }
        let seated = match target.folder() {
            Some(folder) => Seated::Here(folder.engine(self.options.engine)?),
            None => {
                let session = crate::http::fresh_number();
                let most = target.elsewhere().map_or(0, |r| r.described.context);
                let vocab = target.vocab_size;
                Seated::Elsewhere(RemoteTarget::new(session, vocab, most))
            }
        };
        let config = SessionConfig {
            stop: target.text.stop_tokens(),
            ..SessionConfig::new(VerifyMode::Exact, 1)
        };
        let session = Session::new(drafter, seated, target.pair.clone(), config)
            .with_context(|| format!("target `{}`", target.name))?;
        Ok(Seat::new(index, session, (String::new(), 0)))
    }

    /// Loads the weights of an adapter into a slot's drafter; those of its target if it has none.
    pub(super) fn dress(&self, seat: &mut Seat, adapter: &str, target: &str) -> Result<()> {
        let known = [adapter, target]
            .into_iter()
            .find(|name| self.weights.contains_key(*name));
        let wanted = known.and_then(|name| {
            let (version, packed) = self.weights.get(name)?;
            Some(((name.to_owned(), *version), packed))
        });
        let ((name, version), packed) = wanted.unwrap_or(((String::new(), 0), &self.base));
        if seat.weights == (name.clone(), version) {
            return Ok(());
        }
        let mut packed = packed.clone();
        seat.session
            .change_drafter(|drafter| drafter.swap_weights(&mut packed))?;
        seat.weights = (name, version);
        Ok(())
    }
}
