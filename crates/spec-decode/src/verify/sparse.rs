//! A draft in a form that can be verified with the target's distribution alone, without the
//! drafter's vocabulary and the n-grams: its choices in target tokens. A target on another machine
//! verifies this form.
//!
//! The side that drafts can write down everything that [`choice`](super::choice) reads of a draft
//! except p: the tokens of an outcome, and its q. A distribution over few tokens makes few
//! outcomes. All other tokens have q = 0 and their residual is p itself, so they need not be
//! listed. The verification rules are the same ones, and so are their guarantees.

use serde::{Deserialize, Serialize};
use vocab_align::{TargetId, TokenId};

use super::chain::{Begun, Judged, Laws, Residual, Step, Undrafted, draw_among, row_of};
use super::choice::{Choice, OpenPaths, Position};
use super::{Acceptance, Evidence, Score, Verdict, block, exact, greedy};
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;
use crate::model::Rows;
use crate::residual::check_empty_residual;
use crate::sampling::{Sampling, argmax};

/// A draft in target tokens: the proposals and, above temperature 0, the choices that led to them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SparseDraft {
    /// The m proposals.
    pub proposals: Vec<TargetId>,
    /// The choices at every proposal and, if the draft continues after them, once more. A position
    /// without choices is drawn from p. Empty at temperature 0.
    pub positions: Vec<Vec<SparseChoice>>,
}

/// A choice of the draft between sets of target tokens. The first choice of a position is between
/// all tokens, each later one between those of the outcome taken before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SparseChoice {
    /// Index of the outcome that the draft took.
    pub taken: u32,
    /// The outcomes. Those of a first choice have q above 0; tokens in none of them have q = 0.
    pub outcomes: Vec<SparseOutcome>,
}

/// One outcome of a choice.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SparseOutcome {
    /// The probability with which the draft takes the outcome.
    pub q: f64,
    /// Tokens of the outcome.
    pub tokens: Vec<TargetId>,
}

/// Reason why a sparse draft cannot be verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SparseFault {
    /// The number of positions with choices does not fit the number of proposals.
    #[error("{positions} positions for {proposals} proposals")]
    Positions {
        /// Number of positions with choices.
        positions: usize,
        /// Number of proposals.
        proposals: usize,
    },
    /// A token is outside the target's vocabulary.
    #[error("token {0} is outside the target's vocabulary")]
    Token(u32),
    /// The outcome taken does not exist, or is one that the draft never takes.
    #[error("position {0}: the outcome taken is not among the outcomes")]
    Taken(usize),
    /// Probabilities are impossible.
    #[error("position {0}: probabilities are not within 0..=1, or are more than 1 together")]
    Probability(usize),
    /// A token is in two outcomes, or outcomes do not divide the outcome before.
    #[error("position {0}: outcomes do not split what is left")]
    Split(usize),
}

/// Largest excess of a sum of probabilities over 1.
const SUM_SLACK: f64 = 1e-6;

impl SparseDraft {
    /// The choices of the draft of `evidence`. Its rows are not read.
    pub(crate) fn new(evidence: &Evidence<'_>) -> Result<Self, LawError> {
        let proposals = evidence.proposals.iter().map(|p| p.target).collect();
        let mut draft = Self {
            proposals,
            positions: Vec::new(),
        };
        if evidence.sampling.is_greedy() {
            return Ok(draft);
        }
        let mut open = OpenPaths::default();
        for index in 0..=evidence.proposals.len() {
            let Some(position) = Position::new(evidence, index) else {
                break;
            };
            let mut choices = Vec::new();
            let mut step = position.begin(&mut open)?;
            while let Step::Test(choice) = step {
                choices.push(choice.sparse());
                step = choice.accepted()?;
            }
            draft.positions.push(choices);
        }
        Ok(draft)
    }

    /// Checks that this is a valid draft for a target of `vocab` tokens. The verification of
    /// anything else might not give the target's distribution.
    ///
    /// # Errors
    /// The first fault.
    pub fn check(&self, vocab: usize, sampling: Sampling) -> Result<(), SparseFault> {
        let (positions, proposals) = (self.positions.len(), self.proposals.len());
        let known = |token: &TargetId| token.index() < vocab;
        if let Some(token) = self.proposals.iter().find(|token| !known(token)) {
            return Err(SparseFault::Token(token.get()));
        }
        let fitting = match sampling.is_greedy() {
            true => positions == 0,
            false => (proposals..=proposals + 1).contains(&positions),
        };
        if !fitting {
            return Err(SparseFault::Positions {
                positions,
                proposals,
            });
        }
        for (at, choices) in self.positions.iter().enumerate() {
            let mut within: Option<Vec<TargetId>> = None;
            for choice in choices {
                within = Some(choice.check(at, vocab, within.as_deref())?);
            }
        }
        Ok(())
    }

    /// Verifies the draft by the target's `rows`: row i decides proposal i, the last row the bonus
    /// token. `text` is the text that the target has read before the first row. Scores are those of
    /// single tokens: p, and q as far as it is known here.
    ///
    /// # Errors
    /// [`LawError`] for impossible logits, or rows of another number.
    pub fn judge(
        &self,
        acceptance: Acceptance,
        rows: Rows<'_>,
        sampling: Sampling,
        text: &[TargetId],
        dice: &mut dyn Chance,
    ) -> Result<Verdict, LawError> {
        if rows.positions() != self.proposals.len() + 1 {
            return Err(LawError::RowShape {
                found: rows.positions() * rows.vocab(),
                positions: self.proposals.len() + 1,
                vocab: rows.vocab(),
            });
        }
        let penalised = sampling.penalises().then(|| {
            let seen = text.iter().copied().collect();
            sampling.penalised(seen, self.proposals.iter().copied(), rows)
        });
        let penalised = penalised.as_deref();
        let rows = penalised
            .and_then(|logits| Rows::new(logits, rows.vocab(), rows.positions()))
            .unwrap_or(rows);
        if sampling.is_greedy() {
            let best = |index| Ok(argmax(rows.row(index))? as u32);
            return greedy::verify(self.proposals.iter().copied(), best);
        }
        let laws = Laws::new(rows, sampling);
        let begin = |index| self.begin(&laws, index);
        match acceptance {
            Acceptance::Block => block::judge(&laws, &self.proposals, begin, dice),
            Acceptance::Token => exact::judge(&laws, &self.proposals, begin, dice),
        }
    }

    fn begin<'a>(
        &'a self,
        laws: &'a Laws<'a>,
        index: usize,
    ) -> Result<Begun<'a, SparseJudged<'a>>, LawError> {
        let Some(choices) = self.positions.get(index) else {
            return Ok(None);
        };
        let law = laws.at(index)?;
        let score = self.proposals.get(index).map(|proposal| {
            let p = law.get(proposal.index()).copied().unwrap_or(0.0);
            let q = choices.iter().map(|choice| choice.taken().q).product();
            Score::new(p, q)
        });
        let first = SparseJudged {
            choices,
            at: 0,
            law,
        };
        let step = match choices.is_empty() {
            true => Step::Draw(Undrafted::All(law)),
            false => Step::Test(first),
        };
        Ok(Some((step, score)))
    }
}

impl SparseChoice {
    /// Checks a choice. Returns the tokens of the outcome taken, in order.
    fn check(
        &self,
        at: usize,
        vocab: usize,
        within: Option<&[TargetId]>,
    ) -> Result<Vec<TargetId>, SparseFault> {
        let taken = self.outcomes.get(self.taken as usize);
        let taken = taken.filter(|taken| taken.q > 0.0);
        let taken = taken.ok_or(SparseFault::Taken(at))?;
        let probability = |outcome: &SparseOutcome| (0.0..=1.0 + SUM_SLACK).contains(&outcome.q);
        let total: f64 = self.outcomes.iter().map(|outcome| outcome.q).sum();
        if !self.outcomes.iter().all(probability) || total > 1.0 + SUM_SLACK {
            return Err(SparseFault::Probability(at));
        }
        let tokens = self.outcomes.iter().flat_map(|outcome| &outcome.tokens);
        let mut all: Vec<TargetId> = tokens.copied().collect();
        all.sort_unstable();
        if let Some(token) = all.last().filter(|token| token.index() >= vocab) {
            return Err(SparseFault::Token(token.get()));
        }
        let twice = all.windows(2).any(|pair| pair[0] == pair[1]);
        if twice || within.is_some_and(|within| within != all) {
            return Err(SparseFault::Split(at));
        }
        let mut taken = taken.tokens.clone();
        taken.sort_unstable();
        Ok(taken)
    }
}

impl Choice<'_> {
    /// The choice without p.
    fn sparse(&self) -> SparseChoice {
        let outcomes = self.outcomes_without_law();
        let taken = outcomes.iter().position(|(.., taken)| *taken);
        let outcome = |(q, tokens, _)| SparseOutcome { q, tokens };
        SparseChoice {
            taken: taken.unwrap_or_default() as u32,
            outcomes: outcomes.into_iter().map(outcome).collect(),
        }
    }
}

impl SparseChoice {
    fn taken(&self) -> &SparseOutcome {
        static NOTHING: SparseOutcome = SparseOutcome {
            q: 0.0,
            tokens: Vec::new(),
        };
        self.outcomes.get(self.taken as usize).unwrap_or(&NOTHING)
    }
}

/// A choice of a [`SparseDraft`], with the target's distribution.
struct SparseJudged<'a> {
    choices: &'a [SparseChoice],
    at: usize,
    law: &'a [f64],
}

impl SparseJudged<'_> {
    fn choice(&self) -> &SparseChoice {
        &self.choices[self.at]
    }

    fn with_law(&self, tokens: &[TargetId]) -> Vec<(TargetId, f64)> {
        let p = |token: &TargetId| self.law.get(token.index()).copied().unwrap_or(0.0);
        tokens.iter().map(|token| (*token, p(token))).collect()
    }

    fn mass(&self, outcome: &SparseOutcome) -> f64 {
        self.with_law(&outcome.tokens).iter().map(|(_, p)| p).sum()
    }

    /// p of all outcomes; 1 for a first choice, which is between all tokens.
    fn total(&self) -> f64 {
        match self.at {
            0 => 1.0,
            _ => self.choice().outcomes.iter().map(|o| self.mass(o)).sum(),
        }
    }

    /// The residual of a first choice. That of an outcome is spread over its tokens in proportion
    /// to p.
    fn residual_of_tokens(&self, weight: f64) -> Row<f64> {
        let mut row = row_of(self.law);
        for outcome in &self.choice().outcomes {
            let mass = self.mass(outcome);
            if mass > 0.0 {
                let share = ((mass - outcome.q / weight) / mass).max(0.0);
                for token in &outcome.tokens {
                    if let Some(left) = row.get_mut(token.index()) {
                        *left *= share;
                    }
                }
            }
        }
        row
    }
}

impl<'a> Judged<'a> for SparseJudged<'a> {
    fn outcome(&self) -> (f64, f64) {
        let taken = self.choice().taken();
        (self.mass(taken) / self.total(), taken.q)
    }

    fn accepted(&self) -> Result<Step<'a, Self>, LawError> {
        Ok(match self.at + 1 < self.choices.len() {
            true => Step::Test(Self {
                at: self.at + 1,
                ..*self
            }),
            false => Step::Draw(Undrafted::Among(
                self.with_law(&self.choice().taken().tokens),
            )),
        })
    }

    fn residual(&self, weight: f64) -> Residual {
        if self.at == 0 {
            return Residual::Tokens(self.residual_of_tokens(weight));
        }
        let total = self.total();
        let above = |o: &SparseOutcome| (self.mass(o) / total - o.q / weight).max(0.0);
        Residual::Branches(self.choice().outcomes.iter().map(above).collect())
    }

    fn reject(&self, residual: Residual, dice: &mut dyn Chance) -> Result<TargetId, LawError> {
        let residual = if residual.total() > 0.0 {
            residual
        } else {
            let ((p, q), taken) = (self.outcome(), self.choice().taken());
            let token = taken.tokens.first().copied();
            let token = token.unwrap_or(TargetId::new(u32::MAX));
            check_empty_residual(token, p, q, self.law.len())?;
            match self.at {
                0 => Residual::Tokens(row_of(self.law)),
                _ => Residual::Branches(
                    self.choice()
                        .outcomes
                        .iter()
                        .map(|o| self.mass(o))
                        .collect(),
                ),
            }
        };
        match residual {
            Residual::Tokens(row) => Ok(TargetId::new(dice.pick(&row)? as u32)),
            Residual::Branches(outcomes) => {
                let outcome = &self.choice().outcomes[dice.pick(&outcomes)?];
                draw_among(&self.with_law(&outcome.tokens), dice)
            }
        }
    }
}
