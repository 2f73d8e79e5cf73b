//! Controller of an arm: measured seconds decide whether its drafter drafts, with which weights,
//! and whether it learns.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use adaptive_draft::{Agreed, Answer, Controller, ControllerConfig, RoundCost, Way};
use experiment::{ArmConfig, DraftSource, Lookup};
use models::{Engine, Packed};
use spec_decode::{CopyPlan, DraftPolicy, DraftStep, Found, Generation, RoundOutcome, TeacherSink};
use vocab_align::TargetId;

use super::error::Result;

/// The mode of an answer, and the seconds saved by all answers up to it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Account {
    pub(super) way: Way,
    /// Seconds saved compared with plain decoding, after the costs of learning.
    pub(super) saved: f64,
}

/// The controller of an arm, with the initial weights of its drafter.
pub(super) struct Control {
    controller: Controller,
    /// The weights that are not in use: the initial ones, except during an answer with them.
    floor: Option<Packed>,
    target: String,
    /// The mode of the last answer.
    last: Option<Way>,
}

impl Control {
    /// The controller of an arm that requests one; the drafter still has its initial weights. If it
    /// is `padded`, these weights are elsewhere and cannot be switched back to.
    pub(super) fn new(
        arm: &ArmConfig,
        drafter: Option<&mut Engine>,
        padded: bool,
    ) -> Result<Option<Self>> {
        if !arm.decode.controller || arm.decode.draft != DraftSource::Model {
            return Ok(None);
        }
        let frozen = arm.learns() && !padded;
        let floor = drafter.filter(|_| frozen).map(Engine::packed).transpose()?;
        let config = ControllerConfig {
            copies: arm.decode.lookup != Lookup::Off,
            learns: arm.learns(),
            frozen: floor.is_some(),
            ..ControllerConfig::default()
        };
        Ok(Some(Self {
            controller: Controller::new(config),
            floor,
            target: String::new(),
            last: None,
        }))
    }

    pub(super) fn turn_to(&mut self, target: &str, task: &str) {
        target.clone_into(&mut self.target);
        self.controller.turn_to(target, task);
    }

    /// Begins an answer; nothing is recorded of one that is not `streamed`.
    pub(super) fn open(&mut self, streamed: bool) -> Watched {
        let answer = match streamed {
            true => self.controller.open(),
            false => self.controller.open_held_out(),
        };
        Watched {
            answer: RefCell::new(answer),
            recording: Cell::new(0.0),
        }
    }

    /// Ends a streamed answer. Returns true if it is to be learnt from.
    pub(super) fn close(&mut self, watched: Watched, done: &Generation) -> bool {
        let answer = watched.answer.into_inner();
        self.last = Some(answer.way());
        let rejected = done.rounds.iter().map(|r| r.proposed() - r.accepted).sum();
        self.controller.close(answer, rejected)
    }

    /// Exchanges the weights in use and the initial ones.
    pub(super) fn swap(&mut self, drafter: &mut Engine) -> Result<()> {
        match &mut self.floor {
            Some(floor) => Ok(drafter.swap_weights(floor)?),
            None => Ok(()),
        }
    }

    /// Records an update of `seconds`, and the agreement of drafters with its examples.
    pub(super) fn learnt(&mut self, seconds: f64, agreed: Option<Agreed>) {
        self.controller.learnt(&self.target, seconds, agreed);
    }

    /// Records seconds of other learning.
    pub(super) fn spent(&mut self, seconds: f64) {
        self.controller.spent(&self.target, seconds);
    }

    /// The account of the last streamed answer.
    pub(super) fn account(&self) -> Option<Account> {
        Some(Account {
            way: self.last?,
            saved: self.controller.ledger().saved(),
        })
    }

    pub(super) fn controller(&self) -> &Controller {
        &self.controller
    }

    /// Continues with an earlier controller under the present settings.
    pub(super) fn resume(&mut self, earlier: Controller) {
        let config = self.controller.config();
        self.controller = earlier;
        self.controller.reconfigure(config);
    }
}

/// An answer under control, shared by its policy and the recording of its rounds.
pub(super) struct Watched {
    answer: RefCell<Answer>,
    /// Seconds spent on recording for the learner.
    recording: Cell<f64>,
}

impl Watched {
    pub(super) fn way(&self) -> Way {
        self.answer.borrow().way()
    }

    pub(super) fn records(&self) -> bool {
        self.answer.borrow().records()
    }

    /// Records the seconds in which the drafter read the prompt.
    pub(super) fn read(&self, seconds: f64) {
        self.answer.borrow_mut().read(seconds);
    }

    /// Records a round.
    pub(super) fn observe(&self, outcome: &RoundOutcome) {
        let recording = self.recording.take();
        let mut cost = RoundCost::from(outcome);
        cost.rest = (cost.rest - recording).max(0.0);
        let mut answer = self.answer.borrow_mut();
        answer.observe(&cost);
        answer.recorded(recording);
    }
}

/// A policy that is asked only in rounds that the controller speculates in.
pub(super) struct Controlled<'a> {
    pub(super) inner: Box<dyn DraftPolicy + 'a>,
    pub(super) watched: &'a Watched,
    /// True if the inner policy has a part in the round.
    pub(super) asked: bool,
}

impl Controlled<'_> {
    fn drafts(&self) -> bool {
        matches!(self.watched.way(), Way::Learner | Way::Frozen)
    }

    fn speculates(&self) -> bool {
        self.watched.answer.borrow().speculates()
    }
}

impl DraftPolicy for Controlled<'_> {
    fn plan_copy(&mut self, found: &Found) -> CopyPlan {
        self.asked = self.speculates();
        if !self.asked {
            return CopyPlan {
                copy: 0,
                draft: false,
            };
        }
        let mut plan = self.inner.plan_copy(found);
        plan.draft &= self.drafts();
        plan
    }

    fn next_len(&mut self) -> usize {
        if !self.drafts() || !self.speculates() {
            return 0;
        }
        self.asked = true;
        self.inner.next_len()
    }

    fn reads_drafter(&self) -> bool {
        self.inner.reads_drafter()
    }

    fn stop_after(&mut self, step: &DraftStep<'_>) -> bool {
        self.inner.stop_after(step)
    }

    fn observe(&mut self, outcome: &RoundOutcome) {
        if std::mem::take(&mut self.asked) {
            self.inner.observe(outcome);
        }
    }
}

/// Measures the time of another sink.
pub(super) struct Timed<'a> {
    pub(super) inner: &'a mut dyn TeacherSink,
    pub(super) watched: &'a Watched,
}

impl TeacherSink for Timed<'_> {
    fn reads(&self) -> bool {
        self.inner.reads()
    }

    fn record(&mut self, index: usize, token: TargetId, logits: &[f32]) {
        let began = Instant::now();
        self.inner.record(index, token, logits);
        let recording = &self.watched.recording;
        recording.set(recording.get() + began.elapsed().as_secs_f64());
    }
}
