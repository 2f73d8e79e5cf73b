//! Controller of an arm: measured seconds decide whether its drafter drafts, with which weights,
//! and whether it learns.

use adaptive_draft::{Agreed, Answer, Controller, ControllerConfig, Way};
use experiment::{ArmConfig, DraftSource, Lookup};
use models::{Engine, Packed};
use spec_decode::Generation;

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
    pub(super) controller: Controller,
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
    pub(super) fn open(&mut self, streamed: bool) -> Answer {
        match streamed {
            true => self.controller.open(),
            false => self.controller.open_held_out(),
        }
    }

    /// Ends a streamed answer. Returns true if it is to be learnt from.
    pub(super) fn close(&mut self, answer: Answer, done: &Generation) -> bool {
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

    /// Continues with an earlier controller under the present settings.
    pub(super) fn resume(&mut self, earlier: Controller) {
        let config = self.controller.config();
        self.controller = earlier;
        self.controller.reconfigure(config);
    }
}
