//! Scores of single proposals: the numbers that determine their acceptance.

use vocab_align::DraftId;

/// Target and proposal probability of one proposed token.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// p: the target's probability, given the proposals before it (0 or 1 at temperature 0).
    pub target: f64,
    /// q': the probability with which it was proposed (Eq. 1-2). 1 at temperature 0, in mode `slem`
    /// and for looked-up tokens, where the acceptance probability is p itself.
    pub proposal: f64,
    /// Choices under the group rule, which determine acceptance instead of p and q'; `None` under
    /// other rules.
    pub choices: Option<ChoiceScores>,
}

impl Score {
    /// A score under a rule that compares p and q' of the token itself.
    pub fn new(target: f64, proposal: f64) -> Self {
        Self {
            target,
            proposal,
            choices: None,
        }
    }

    /// Acceptance probability, given that all proposals before it are accepted: min(1, p / q'), or
    /// under the group rule that of its choices. Block verification accepts drafts at least as
    /// often.
    pub fn acceptance(&self) -> f64 {
        match &self.choices {
            None => (self.target / self.proposal).min(1.0),
            Some(choices) => choices.acceptance(|choice| choice.proposal),
        }
    }
}

/// Choices of the group rule that determine a proposal's acceptance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChoiceScores {
    /// Choices from the root downwards.
    pub path: Vec<ChoiceScore>,
    /// Probability that p draws the proposal after the last choice; 0 if it is not possible there.
    pub drawn: f64,
    /// Probability that a choice is rejected and its residual happens to draw the proposal. It is
    /// positive only for a token whose drafted n-gram is not the one to which the token belongs.
    pub coincidence: f64,
}

/// One choice: the outcome that the draft took, and the draft tokens that determine its q.
#[derive(Clone, Debug, PartialEq)]
pub struct ChoiceScore {
    /// P: the target's share of the outcome, given the choices before.
    pub target: f64,
    /// q: the probability with which the draft took it.
    pub proposal: f64,
    /// Index in the draft of the token whose distribution determines q.
    pub at: usize,
    /// True if the outcome is the drafted token, given that it is none of `others`; false if it is
    /// any token but `others`.
    pub token: bool,
    /// Draft tokens, each once.
    pub others: Vec<DraftId>,
}

impl ChoiceScores {
    /// Acceptance probability with other probabilities q of the draft.
    pub fn acceptance(&self, mut proposal: impl FnMut(&ChoiceScore) -> f64) -> f64 {
        let mut stands = self.drawn;
        for choice in &self.path {
            stands *= choice.stands(proposal(choice));
        }
        (stands + self.coincidence).min(1.0)
    }
}

impl ChoiceScore {
    /// q of the outcome if the draft token at [`at`](Self::at) is drawn from `law`.
    pub fn proposal_by(&self, law: impl Fn(DraftId) -> f64, drafted: DraftId) -> f64 {
        let others: f64 = self.others.iter().map(|&other| law(other)).sum();
        match self.token {
            true if self.others.is_empty() => law(drafted),
            true => law(drafted) / (1.0 - others),
            false => 1.0 - others,
        }
    }

    /// min(1, P / q). An outcome with q = 0 counts as accepted if P > 0.
    pub(super) fn stands(&self, proposal: f64) -> f64 {
        match self.target > 0.0 {
            true if proposal > 0.0 => (self.target / proposal).min(1.0),
            true => 1.0,
            false => 0.0,
        }
    }
}
