//! A draft as the rules see it, whatever it is made of: a chain of choices at every position, which
//! ends in a draw from p; and p itself.

use std::cell::OnceCell;

use vocab_align::{TargetId, TokenId};

use super::score::Score;
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;
use crate::model::Rows;
use crate::sampling::{Sampling, sum};

/// The target's distribution at every position of a round. Each is computed at its first use.
pub(super) struct Laws<'a> {
    rows: Rows<'a>,
    sampling: Sampling,
    laws: Vec<OnceCell<Row<f64>>>,
}

impl<'a> Laws<'a> {
    /// The distributions of the target's rows, which are penalised if there is a repetition
    /// penalty.
    pub(super) fn new(rows: Rows<'a>, sampling: Sampling) -> Self {
        let mut laws = Vec::new();
        laws.resize_with(rows.positions(), OnceCell::new);
        Self {
            rows,
            sampling,
            laws,
        }
    }

    /// p at a position.
    pub(super) fn at(&self, index: usize) -> Result<&[f64], LawError> {
        if self.laws[index].get().is_none() {
            let mut law = Row::of(self.rows.vocab());
            self.sampling.law(self.rows.row(index), &mut law)?;
            // Empty until now, so this cannot fail.
            let _ = self.laws[index].set(law);
        }
        Ok(self.laws[index].get().map_or(&[], |law| law.as_slice()))
    }
}

/// The next step at a position.
pub(super) enum Step<'a, C> {
    /// A choice that the draft made, to be verified.
    Test(C),
    /// A draw from p, on which the draft has no influence.
    Draw(Undrafted<'a>),
}

/// A choice as the rules see it, for drafts of any representation.
pub(super) trait Judged<'a>: Sized {
    /// P and q of the outcome that the draft took.
    fn outcome(&self) -> (f64, f64);

    /// The step after the outcome that the draft took, which must have mass.
    fn accepted(&self) -> Result<Step<'a, Self>, LawError>;

    /// max(0, P - q / w) for the weight w with which the choice was reached; w is 1 token by token.
    fn residual(&self, weight: f64) -> Residual;

    /// Draws the position's token from a residual of this choice.
    ///
    /// An empty residual means that P and q / w are equal. The rejection is then due to rounding, P
    /// replaces the residual, and any larger difference is an error.
    fn reject(&self, residual: Residual, dice: &mut dyn Chance) -> Result<TargetId, LawError>;
}

/// The first step at a position, with the score of its proposal if there is one; `None` if nothing
/// was drafted for the position. Positions are begun in order.
pub(super) type Begun<'a, C> = Option<(Step<'a, C>, Option<Score>)>;

/// Tokens among which p alone decides.
pub(super) enum Undrafted<'a> {
    /// All tokens: the draft's distribution is unknown here.
    All(&'a [f64]),
    /// Some tokens, with their p.
    Among(Vec<(TargetId, f64)>),
}

impl Undrafted<'_> {
    pub(super) fn draw(&self, dice: &mut dyn Chance) -> Result<TargetId, LawError> {
        match self {
            Self::All(law) => Ok(TargetId::new(dice.pick(law)? as u32)),
            Self::Among(tokens) => draw_among(tokens, dice),
        }
    }

    /// Probability of a token.
    pub(super) fn share(&self, token: TargetId) -> f64 {
        match self {
            Self::All(law) => law.get(token.index()).copied().unwrap_or(0.0),
            Self::Among(tokens) => share_among(tokens, token),
        }
    }
}

/// Draws one of some tokens in proportion to p.
pub(super) fn draw_among(
    tokens: &[(TargetId, f64)],
    dice: &mut dyn Chance,
) -> Result<TargetId, LawError> {
    // With a single token there is nothing to draw. Over one vocabulary this makes it ordinary
    // speculative sampling, including the use of dice.
    if let &[(token, mass)] = tokens
        && mass > 0.0
    {
        return Ok(token);
    }
    let masses: Vec<f64> = tokens.iter().map(|&(_, mass)| mass).collect();
    Ok(tokens[dice.pick(&masses)?].0)
}

/// Share of one token among several.
pub(super) fn share_among(tokens: &[(TargetId, f64)], token: TargetId) -> f64 {
    let total: f64 = tokens.iter().map(|&(_, mass)| mass).sum();
    let own = tokens.iter().filter(|&&(other, _)| other == token);
    let own: f64 = own.map(|&(_, mass)| mass).sum();
    if total > 0.0 { own / total } else { 0.0 }
}

/// The residual max(0, P - q / w), unnormalised.
pub(super) enum Residual {
    /// Residual of every target token.
    Tokens(Row<f64>),
    /// Residual of every branch and of stopping.
    Branches(Vec<f64>),
}

impl Residual {
    /// Sum of the residual.
    pub(super) fn total(&self) -> f64 {
        match self {
            Self::Tokens(row) => sum(row),
            Self::Branches(outcomes) => outcomes.iter().sum(),
        }
    }
}

/// A copy of p, from which a residual over tokens is made.
pub(super) fn row_of(law: &[f64]) -> Row<f64> {
    let mut row = Row::of(law.len());
    row.copy_from_slice(law);
    row
}
