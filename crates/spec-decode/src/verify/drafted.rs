//! A draft whose distributions and n-grams are at hand, as the rules see it, and the scores of its
//! proposals.

use vocab_align::TargetId;

use super::Evidence;
use super::chain::{Begun, Judged, Laws, Step};
use super::choice::{Choice, OpenPaths, Position};
use super::score::{ChoiceScores, Score};
use crate::error::LawError;
use crate::translate::{Proposal, is_looked_up};

/// Begins a position of a draft that is given by its drafter's distributions, vocabularies and
/// n-grams. `open` are the paths that led there.
pub(super) fn begin<'a>(
    evidence: &'a Evidence<'a>,
    laws: &'a Laws<'a>,
    open: &mut OpenPaths,
    index: usize,
) -> Result<Begun<'a, Choice<'a>>, LawError> {
    let Some(position) = Position::new(evidence, index) else {
        return Ok(None);
    };
    let law = laws.at(index)?;
    let step = position.with_law(law).begin(open)?;
    let score = match evidence.proposals.get(index) {
        Some(proposal) => Some(score(evidence, law, &step, proposal)?),
        None => None,
    };
    Ok(Some((step, score)))
}

/// Score of the proposal at a position, whose first step is `step`. `law` is p there.
fn score(
    evidence: &Evidence<'_>,
    law: &[f64],
    step: &Step<'_, Choice<'_>>,
    proposal: &Proposal,
) -> Result<Score, LawError> {
    let mut score = evidence.score(law, proposal)?;
    if !is_looked_up(proposal) {
        let mut choices = ChoiceScores::default();
        follow(&mut choices, step, proposal.target, 1.0)?;
        score.choices = Some(choices);
    }
    Ok(score)
}

/// Adds the scores of the chain from `step` on. `stands` is the probability that all choices before
/// are accepted.
fn follow(
    scores: &mut ChoiceScores,
    step: &Step<'_, Choice<'_>>,
    proposal: TargetId,
    stands: f64,
) -> Result<(), LawError> {
    let choice = match step {
        Step::Draw(undrafted) => {
            scores.drawn = undrafted.share(proposal);
            return Ok(());
        }
        Step::Test(choice) => choice,
    };
    let score = choice.score();
    let accepted = score.stands(score.proposal);
    let (possible, fails) = (score.target > 0.0, stands * (1.0 - accepted));
    scores.path.push(score);
    // If the choice can fail, its residual is 0 on the outcome taken, and so on that outcome's
    // tokens.
    if fails > 0.0 && !choice.holds(proposal) {
        scores.coincidence += fails * choice.residual_share(proposal);
    }
    match possible {
        true => follow(scores, &choice.accepted()?, proposal, stands * accepted),
        false => Ok(()),
    }
}
