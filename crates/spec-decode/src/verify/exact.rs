//! The group rule with branch coupling: n-grams are merged and the output law is still p.
//!
//! Direct tokens and n-grams form one trie. A position is decided from the root downwards: first
//! the drafted token's whole group is put to a rejection test (group mass P against the token's
//! q), then, inside the accepted group, every step down the trie is another such test between the
//! branches of the node and "stop here". Each test turns a draft token with a *known* law into a
//! choice with exactly the target's conditional law, so the token it ends in is distributed as p.
//!
//! The target scored one sequence of proposals, the greedy longest match of the draft. Going on
//! behind an emitted token t is possible only where t is that sequence's next element. Whether it
//! is depends on how the draft continues: the match might have been longer. So the next draft
//! token's law stays known only if that token leaves every path that was still open; it is then q
//! restricted to such tokens. Where it does not, the next position is decided without the draft,
//! by drawing from p, which is exact whatever is known about the draft.

use std::collections::BTreeSet;

use vocab_align::{DraftId, TargetId, TokenId};

use super::{Evidence, Origin, Score, Verdict};
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;
use crate::lexicon::Place;
use crate::residual::{check_empty_residual, path_probability};
use crate::sampling::sum;

pub(super) fn verify(evidence: &Evidence<'_>, dice: &mut dyn Chance) -> Result<Verdict, LawError> {
    let mut scores = Vec::with_capacity(evidence.proposals.len());
    let mut open = OpenPaths::default();
    let mut law = Row::of(evidence.rows.vocab());
    for (index, proposal) in evidence.proposals.iter().enumerate() {
        evidence.sampling.law(evidence.rows.row(index), &mut law)?;
        scores.push(Score {
            target: law[proposal.target.index()],
            proposal: path_probability(evidence.draft, proposal)?,
        });
        let position = Position {
            evidence,
            law: &law,
            start: proposal.span.start,
        };
        let settled = position.decide(&mut open, dice)?;
        if settled.token != proposal.target {
            return Ok(Verdict {
                accepted: index,
                last: settled.token,
                origin: settled.origin,
                scores,
            });
        }
    }
    let start = evidence
        .proposals
        .last()
        .map_or(0, |proposal| proposal.span.end);
    if start >= evidence.draft.ids.len() {
        return evidence.all_accepted(scores, &mut law, dice);
    }
    // The draft ends in a path that no n-gram completed. Its first token is put to the test like
    // any other: to draw from p just because of that token would spoil its law for the others.
    let accepted = evidence.proposals.len();
    evidence
        .sampling
        .law(evidence.rows.row(accepted), &mut law)?;
    let position = Position {
        evidence,
        law: &law,
        start,
    };
    let settled = position.decide(&mut open, dice)?;
    Ok(Verdict {
        accepted,
        last: settled.token,
        origin: settled.origin,
        scores,
    })
}

/// Where earlier matches started that a longer n-gram could still have replaced.
#[derive(Default)]
struct OpenPaths(Vec<usize>);

impl OpenPaths {
    /// The draft tokens ruled out at `start`, a position the earlier ones led to, if the law of
    /// the token there is known; `None` where it is not. Adds the path that starts here.
    fn known_law(&mut self, evidence: &Evidence<'_>, start: usize) -> Option<BTreeSet<DraftId>> {
        let (lexicon, ids) = (&evidence.lexicon, &evidence.draft.ids);
        let mut excluded = BTreeSet::new();
        for &from in &self.0 {
            if let Some(place) = lexicon.read(&ids[from..start]) {
                excluded.extend(lexicon.children(place).map(|(draft, _)| draft));
            }
        }
        let known = !excluded.contains(&ids[start]);
        if known {
            self.0.clear();
        }
        self.0.push(start);
        known.then_some(excluded)
    }
}

/// A row of zeros.
fn zeros(length: usize) -> Row<f64> {
    let mut row = Row::of(length);
    row.fill(0.0);
    row
}

/// One position of the target's sequence.
struct Position<'a> {
    evidence: &'a Evidence<'a>,
    /// p at this position.
    law: &'a [f64],
    /// Where its draft tokens start.
    start: usize,
}

/// The token a position was decided for.
struct Settled {
    token: TargetId,
    origin: Origin,
}

/// The next choice below a node: one of its branches, or to stop at or off it.
struct Fork {
    /// Branches that take part in the test, by draft token, with their share of p.
    branches: Vec<(DraftId, Place, f64)>,
    /// Tokens of the node that lie in no such branch, with p.
    rest: Vec<(TargetId, f64)>,
}

impl Position<'_> {
    /// Decides the position, by the draft where its law is known here, else by p alone.
    fn decide(&self, open: &mut OpenPaths, dice: &mut dyn Chance) -> Result<Settled, LawError> {
        match open.known_law(self.evidence, self.start) {
            Some(excluded) => self.settle(&excluded, dice),
            None => Ok(Settled {
                token: TargetId::new(dice.pick(self.law)? as u32),
                origin: Origin::Group,
            }),
        }
    }

    /// Decides the position by the draft. `excluded`: draft tokens ruled out by how the previous one ended.
    fn settle(
        &self,
        excluded: &BTreeSet<DraftId>,
        dice: &mut dyn Chance,
    ) -> Result<Settled, LawError> {
        let draft = &self.evidence.draft;
        let lexicon = &self.evidence.lexicon;
        let token = draft.ids[self.start];
        let known = Known::new(draft.laws[self.start].probabilities(), excluded, token)?;
        let Some(root) = lexicon.enter(token) else {
            // A proposal starts here, so its first token is in the lexicon.
            return self.reject_group(&known, dice);
        };
        if !dice.accept(self.mass(root), known.probability(token)) {
            return self.reject_group(&known, dice);
        }
        self.descend(root, dice)
    }

    /// From an accepted node downwards, branch by branch.
    fn descend(&self, mut place: Place, dice: &mut dyn Chance) -> Result<Settled, LawError> {
        let draft = &self.evidence.draft;
        let none = BTreeSet::new();
        loop {
            let at = self.start + place.depth();
            let fork = self.fork(place);
            if fork.branches.is_empty() || at >= draft.ids.len() {
                let all = self.tokens(place);
                return self.draw(&all, Origin::Group, dice);
            }
            let next = draft.ids[at];
            let known = Known::new(draft.laws[at].probabilities(), &none, next)?;
            match fork.test(next, &known, dice) {
                Test::Descend(below) => place = below,
                Test::Stop => return self.draw(&fork.rest, Origin::Group, dice),
                Test::Rejected => return self.reject_branch(&fork, &known, dice),
            }
        }
    }

    /// Branches of a node: its token-bearing children; at a node without a token, where masked
    /// drafting can only go on downwards, all children. The rest is everything else in its group.
    fn fork(&self, place: Place) -> Fork {
        let (lexicon, groups) = (&self.evidence.lexicon, self.evidence.groups);
        let stops_here = groups.token(lexicon, place).is_some();
        let mut fork = Fork {
            branches: Vec::new(),
            rest: Vec::new(),
        };
        if let Some(token) = groups.token(lexicon, place) {
            fork.rest.push((token, self.probability(token)));
        }
        for (draft, child) in lexicon.children(place) {
            if !stops_here || groups.token(lexicon, child).is_some() {
                fork.branches.push((draft, child, self.mass(child)));
            } else {
                fork.rest.extend(self.tokens(child));
            }
        }
        fork
    }

    /// Draws one of some tokens in proportion to p.
    fn draw(
        &self,
        tokens: &[(TargetId, f64)],
        origin: Origin,
        dice: &mut dyn Chance,
    ) -> Result<Settled, LawError> {
        // Nothing to draw: over one vocabulary this is ordinary speculative sampling, dice included.
        if let &[(token, mass)] = tokens
            && mass > 0.0
        {
            return Ok(Settled { token, origin });
        }
        let masses: Vec<f64> = tokens.iter().map(|&(_, mass)| mass).collect();
        let (token, _) = tokens[dice.pick(&masses)?];
        Ok(Settled { token, origin })
    }

    /// Residual over groups, each keeping the proportions of p inside; tokens outside all groups
    /// keep p.
    fn reject_group(&self, known: &Known<'_>, dice: &mut dyn Chance) -> Result<Settled, LawError> {
        let drafts = known.law.len();
        let firsts = self.evidence.groups.firsts();
        let mut masses = zeros(drafts);
        for (p, &first) in self.law.iter().zip(firsts) {
            // Most tokens are outside all groups or have no mass.
            if *p > 0.0
                && let Some(mass) = masses.get_mut(first as usize)
            {
                *mass += p;
            }
        }
        let group_mass = masses[known.token.index()];
        // From here on: what is left of each group, as a share; all of what is outside.
        let mut left = masses;
        for (group, left) in left.iter_mut().enumerate() {
            let mass = *left;
            if mass > 0.0 {
                let proposed = known.probability(DraftId::new(group as u32));
                *left = ((mass - proposed) / mass).max(0.0);
            }
        }
        let mut residual = Row::of(self.law.len());
        residual.copy_from_slice(self.law);
        for (residual, &first) in residual.iter_mut().zip(firsts) {
            if let Some(left) = left.get(first as usize) {
                *residual *= left;
            }
        }
        let token = self.draw_residual(&residual, group_mass, known, dice)?;
        Ok(Settled {
            token,
            origin: Origin::Residual,
        })
    }

    fn draw_residual(
        &self,
        residual: &[f64],
        group_mass: f64,
        known: &Known<'_>,
        dice: &mut dyn Chance,
    ) -> Result<TargetId, LawError> {
        let empty = sum(residual) == 0.0;
        if empty {
            let rejected = self.rejected();
            let proposal = known.probability(known.token);
            check_empty_residual(rejected, group_mass, proposal, self.law.len())?;
        }
        let column = dice.pick(if empty { self.law } else { residual })?;
        Ok(TargetId::new(column as u32))
    }

    /// Residual over the branches of a fork and its rest.
    fn reject_branch(
        &self,
        fork: &Fork,
        known: &Known<'_>,
        dice: &mut dyn Chance,
    ) -> Result<Settled, LawError> {
        let total = fork.total();
        let above = |p: f64, q: f64| (p / total - q).max(0.0);
        let mut residual: Vec<f64> = fork
            .branches
            .iter()
            .map(|&(draft, _, mass)| above(mass, known.probability(draft)))
            .collect();
        residual.push(above(fork.rest_mass(), fork.stop_probability(known)));
        if residual.iter().all(|&mass| mass == 0.0) {
            let (p, q) = fork.outcome(known.token, known);
            check_empty_residual(self.rejected(), p, q, self.law.len())?;
            residual = fork.branches.iter().map(|&(_, _, mass)| mass).collect();
            residual.push(fork.rest_mass());
        }
        match fork.branches.get(dice.pick(&residual)?) {
            Some(&(_, child, _)) => self.draw(&self.tokens(child), Origin::Residual, dice),
            None => self.draw(&fork.rest, Origin::Residual, dice),
        }
    }

    fn rejected(&self) -> TargetId {
        let at = self
            .evidence
            .proposals
            .iter()
            .find(|p| p.span.start == self.start);
        at.map_or(TargetId::new(u32::MAX), |proposal| proposal.target)
    }

    fn probability(&self, token: TargetId) -> f64 {
        self.law.get(token.index()).copied().unwrap_or(0.0)
    }

    fn tokens(&self, place: Place) -> Vec<(TargetId, f64)> {
        let below = self.evidence.groups.below(&self.evidence.lexicon, place);
        below
            .into_iter()
            .map(|token| (token, self.probability(token)))
            .collect()
    }

    /// P of a subtree.
    fn mass(&self, place: Place) -> f64 {
        self.tokens(place).iter().map(|&(_, mass)| mass).sum()
    }
}

enum Test {
    Descend(Place),
    Stop,
    Rejected,
}

impl Fork {
    fn rest_mass(&self) -> f64 {
        self.rest.iter().map(|&(_, mass)| mass).sum()
    }

    fn total(&self) -> f64 {
        self.rest_mass() + self.branches.iter().map(|&(_, _, mass)| mass).sum::<f64>()
    }

    fn branch(&self, draft: DraftId) -> Option<&(DraftId, Place, f64)> {
        // Children come in ascending order.
        let at = self
            .branches
            .binary_search_by_key(&draft, |&(label, _, _)| label);
        self.branches.get(at.ok()?)
    }

    /// Probability that the draft takes none of the branches.
    fn stop_probability(&self, known: &Known<'_>) -> f64 {
        remaining(known.law, self.branches.iter().map(|&(label, _, _)| label))
    }

    /// Target and proposal probability of the outcome the draft token stands for.
    fn outcome(&self, next: DraftId, known: &Known<'_>) -> (f64, f64) {
        let total = self.total();
        match self.branch(next) {
            Some(&(_, _, mass)) => (mass / total, known.probability(next)),
            None => (self.rest_mass() / total, self.stop_probability(known)),
        }
    }

    fn test(&self, next: DraftId, known: &Known<'_>, dice: &mut dyn Chance) -> Test {
        let (p, q) = self.outcome(next, known);
        match (dice.accept(p, q), self.branch(next)) {
            (false, _) => Test::Rejected,
            (true, Some(&(_, place, _))) => Test::Descend(place),
            (true, None) => Test::Stop,
        }
    }
}

/// What a law leaves to all tokens but some, which come in ascending order.
///
/// The complement, where at least half is left: the law sums to 1 within the rounding tolerance, so
/// what is left is off by at most twice that relative to itself. Else the sum of the rest: the
/// complement of a sum near 1 would be rounding noise.
fn remaining(law: &[f64], without: impl Iterator<Item = DraftId> + Clone) -> f64 {
    let probability = |draft: DraftId| law.get(draft.index()).copied().unwrap_or(0.0);
    let taken: f64 = without.clone().map(probability).sum();
    if taken <= 0.5 {
        return 1.0 - taken;
    }
    let mut start = 0;
    let mut left = 0.0;
    for draft in without {
        let end = draft.index().min(law.len());
        left += sum(&law[start..end]);
        start = (end + 1).min(law.len());
    }
    left + sum(&law[start..])
}

/// The known law of one draft token: the drafter's, without what is already ruled out.
struct Known<'a> {
    law: &'a [f64],
    excluded: &'a BTreeSet<DraftId>,
    /// What the remaining probabilities add up to.
    total: f64,
    token: DraftId,
}

impl<'a> Known<'a> {
    fn new(
        law: &'a [f64],
        excluded: &'a BTreeSet<DraftId>,
        token: DraftId,
    ) -> Result<Self, LawError> {
        let total = if excluded.is_empty() {
            1.0
        } else {
            remaining(law, excluded.iter().copied())
        };
        let known = Self {
            law,
            excluded,
            total,
            token,
        };
        let probability = known.probability(token);
        if probability > 0.0 {
            Ok(known)
        } else {
            Err(LawError::DraftProbability { token, probability })
        }
    }

    fn probability(&self, draft: DraftId) -> f64 {
        if self.excluded.contains(&draft) {
            return 0.0;
        }
        self.law.get(draft.index()).copied().unwrap_or(0.0) / self.total
    }
}
