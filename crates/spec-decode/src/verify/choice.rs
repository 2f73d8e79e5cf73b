//! The choices that a draft makes at one position: the group rule with branch coupling.
//!
//! Direct tokens and n-grams form one trie over draft tokens. A position of the target's sequence
//! is decided from the root downwards by a chain of [`Choice`]s. Each choice is between outcomes
//! with two known distributions: P, the target's share of every outcome given the outcomes before
//! it, and q, the probability with which the draft takes it.
//!
//! | choice | outcomes | P | q |
//! |---|---|---|---|
//! | copy | the looked-up token t; any other token | p(t); p of each | 1; 0 |
//! | group | every root child d; every token outside all groups | p summed over the tokens below d; p | the drafter's distribution; 0 |
//! | branch | the branches of a node v; to stop at or off v | shares of p within v | the drafter's distribution after v; the rest of it |
//!
//! If the draft does not determine the rest of the decision (below the last branch, after a stop,
//! or if the distribution of the next draft token is unknown), the token is drawn from p, given the
//! outcomes so far. A rule that turns the outcomes of such a chain into outcomes with distribution
//! P, token by token ([`exact`](super::exact)) or all at once ([`block`](super::block)), therefore
//! ends in a token with distribution p.
//!
//! # Unknown distributions
//! The target scored one sequence of proposals, the greedy longest match of the draft. The round
//! can continue after an emitted token t only if t is the next element of that sequence. This
//! depends on the draft's continuation, with which the match might have been longer. The
//! distribution of the next draft token therefore stays known only if that token leaves every path
//! that was still open; it is then q restricted to such tokens. Otherwise the next position is
//! decided without the draft, by drawing from p, which is exact whatever is known about the draft.

use std::collections::BTreeSet;

use vocab_align::{DraftId, TargetId, TokenId};

use super::Evidence;
use super::chain::{Judged, Residual, Step, Undrafted, draw_among, row_of, share_among};
use super::fork::Fork;
use super::known::Known;
use super::score::ChoiceScore;
use crate::Chance;
use crate::buffer::Row;
use crate::error::LawError;
use crate::lexicon::Place;
use crate::residual::check_empty_residual;
use crate::translate::is_looked_up;

/// Start positions of earlier matches that a longer n-gram could still have replaced.
#[derive(Default)]
pub(super) struct OpenPaths(Vec<usize>);

impl OpenPaths {
    /// The draft tokens that are ruled out at `start`, because with one of them an earlier match
    /// could have become longer. `None` if the drafted token is one of them: its distribution is
    /// then unknown. Adds the path that starts here.
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

/// One position of the target's sequence.
#[derive(Clone, Copy)]
pub(super) struct Position<'a> {
    evidence: &'a Evidence<'a>,
    /// p at this position.
    law: &'a [f64],
    /// Index of its proposal.
    index: usize,
    /// Index of its first draft token.
    start: usize,
}

impl<'a> Position<'a> {
    /// The position of proposal `index`, or the one after all proposals if the draft ends in a path
    /// that no n-gram completed. `None` if nothing was drafted for it. Every token has p = 0 here.
    pub(super) fn new(evidence: &'a Evidence<'a>, index: usize) -> Option<Self> {
        let start = match evidence.proposals.get(index) {
            Some(proposal) => proposal.span.start,
            None => {
                let end = evidence.proposals.last().map_or(0, |last| last.span.end);
                (end < evidence.draft.ids.len()).then_some(end)?
            }
        };
        Some(Self {
            evidence,
            law: &[],
            index,
            start,
        })
    }

    /// The same position with p.
    pub(super) fn with_law(self, law: &'a [f64]) -> Self {
        Self { law, ..self }
    }

    /// The first step at this position. `open` are the paths that led here.
    pub(super) fn begin(self, open: &mut OpenPaths) -> Result<Step<'a, Choice<'a>>, LawError> {
        let copied = self.evidence.proposals.get(self.index);
        if let Some(proposal) = copied.filter(|proposal| is_looked_up(proposal)) {
            let between = Outcomes::Copy(proposal.target);
            return Ok(Step::Test(Choice::new(self, between)));
        }
        let Some(excluded) = open.known_law(self.evidence, self.start) else {
            return Ok(Step::Draw(Undrafted::All(self.law)));
        };
        let known = Known::new(self.evidence.draft, self.start, excluded)?;
        let between = Outcomes::Groups {
            root: self.evidence.lexicon.enter(known.token),
            known,
        };
        Ok(Step::Test(Choice::new(self, between)))
    }

    /// The step from an accepted node downwards.
    fn below(self, place: Place) -> Result<Step<'a, Choice<'a>>, LawError> {
        let draft = self.evidence.draft;
        let at = self.start + place.depth();
        let fork = self.fork(place);
        if fork.branches.is_empty() || at >= draft.ids.len() {
            return Ok(Step::Draw(Undrafted::Among(self.tokens(place))));
        }
        let known = Known::new(draft, at, BTreeSet::new())?;
        let between = Outcomes::Branches { fork, known };
        Ok(Step::Test(Choice::new(self, between)))
    }

    /// The fork below a node. Its branches are its children with tokens; at a node without a token,
    /// where masked drafting can only continue downwards, all children. The rest is everything else
    /// in its group.
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

    fn probability(&self, token: TargetId) -> f64 {
        self.law.get(token.index()).copied().unwrap_or(0.0)
    }

    /// The tokens at or below a node with their p.
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

/// Outcomes of a choice: see the table of the module.
enum Outcomes<'a> {
    Copy(TargetId),
    Groups {
        /// Node of the drawn token's group; `None`, with no mass, if it has none.
        root: Option<Place>,
        known: Known<'a>,
    },
    Branches {
        fork: Fork,
        known: Known<'a>,
    },
}

/// A choice that the draft made, with P and q of its outcomes.
pub(super) struct Choice<'a> {
    position: Position<'a>,
    between: Outcomes<'a>,
}

impl<'a> Choice<'a> {
    fn new(position: Position<'a>, between: Outcomes<'a>) -> Self {
        Self { position, between }
    }

    /// P and q of the outcome that the draft took, and the draft tokens that determine q.
    pub(super) fn score(&self) -> ChoiceScore {
        let (target, proposal) = self.outcome();
        let (at, token, others) = match &self.between {
            // There is no draft token; q is 1 with any distribution.
            Outcomes::Copy(_) => (0, false, Vec::new()),
            Outcomes::Groups { known, .. } => (known.at, true, known.excluded().collect()),
            Outcomes::Branches { fork, known } => match fork.branch(known.token) {
                Some(_) => (known.at, true, Vec::new()),
                None => (known.at, false, fork.branches.iter().map(|b| b.0).collect()),
            },
        };
        ChoiceScore {
            target,
            proposal,
            at,
            token,
            others,
        }
    }

    /// Every outcome that has to be listed, in the order in which residuals are drawn: its q, its
    /// tokens, and true if the draft took it.
    pub(super) fn outcomes_without_law(&self) -> Vec<(f64, Vec<TargetId>, bool)> {
        let position = &self.position;
        let tokens = |place| position.tokens(place).into_iter().map(|(token, _)| token);
        match &self.between {
            Outcomes::Copy(token) => vec![(1.0, vec![*token], true)],
            Outcomes::Groups { known, .. } => known
                .possible()
                .map(|draft| {
                    let root = position.evidence.lexicon.enter(draft);
                    let tokens = root.map_or_else(Vec::new, |root| tokens(root).collect());
                    (known.probability(draft), tokens, draft == known.token)
                })
                .collect(),
            Outcomes::Branches { fork, known } => {
                let branch = |&(draft, place, _): &(DraftId, Place, f64)| {
                    let tokens = tokens(place).collect();
                    (known.probability(draft), tokens, draft == known.token)
                };
                let mut outcomes: Vec<_> = fork.branches.iter().map(branch).collect();
                let off = fork.rest.iter().map(|&(token, _)| token).collect();
                let stopped = fork.branch(known.token).is_none();
                outcomes.push((fork.stop_probability(known), off, stopped));
                outcomes
            }
        }
    }

    /// True if `token` is possible after the outcome that the draft took.
    pub(super) fn holds(&self, token: TargetId) -> bool {
        let (lexicon, groups) = (
            &self.position.evidence.lexicon,
            self.position.evidence.groups,
        );
        match &self.between {
            Outcomes::Copy(copied) => *copied == token,
            Outcomes::Groups { known, .. } => groups.of(token) == Some(known.token),
            Outcomes::Branches { fork, known } => match fork.branch(known.token) {
                Some(&(_, place, _)) => groups.below(lexicon, place).contains(&token),
                None => fork.rest.iter().any(|&(rest, _)| rest == token),
            },
        }
    }

    /// Probability with which the residual draws a token.
    pub(super) fn residual_share(&self, token: TargetId) -> f64 {
        let residual = self.residual(1.0);
        let total = residual.total();
        if total <= 0.0 {
            return 0.0;
        }
        let own: f64 = match (&residual, &self.between) {
            (Residual::Branches(masses), Outcomes::Branches { fork, .. }) => {
                let tokens = fork.branches.iter().map(|b| self.position.tokens(b.1));
                let parts = masses.iter().zip(tokens.chain([fork.rest.clone()]));
                parts
                    .map(|(mass, tokens)| mass * share_among(&tokens, token))
                    .sum()
            }
            (Residual::Tokens(row), _) => row.get(token.index()).copied().unwrap_or(0.0),
            (Residual::Branches(_), _) => 0.0,
        };
        own / total
    }

    /// The residual over groups. That of a group is spread over its tokens in proportion to p:
    ///
    /// `r(t) = p(t) max(0, P(d) - q(d) / w) / P(d)` for t in G(d), and p(t) outside all groups.
    fn group_residual(&self, known: &Known<'_>, weight: f64) -> Row<f64> {
        let law = self.position.law;
        let group_of = self.position.evidence.groups.firsts();
        // P(d), by draft token.
        let mut masses = Row::of(known.width());
        masses.fill(0.0);
        for (p, &group) in law.iter().zip(group_of) {
            // Most tokens are outside all groups or have no mass.
            if *p > 0.0
                && let Some(mass) = masses.get_mut(group as usize)
            {
                *mass += p;
            }
        }
        // The share that is left of each, in the same place.
        let mut shares = masses;
        for (group, share) in shares.iter_mut().enumerate() {
            let mass = *share;
            if mass > 0.0 {
                let proposed = known.probability(DraftId::new(group as u32)) / weight;
                *share = ((mass - proposed) / mass).max(0.0);
            }
        }
        let mut residual = row_of(law);
        for (left, &group) in residual.iter_mut().zip(group_of) {
            if let Some(share) = shares.get(group as usize) {
                *left *= share;
            }
        }
        residual
    }

    /// The proposal of this position, for error messages.
    fn rejected(&self) -> TargetId {
        let proposal = self.position.evidence.proposals.get(self.position.index);
        proposal.map_or(TargetId::new(u32::MAX), |proposal| proposal.target)
    }
}

impl<'a> Judged<'a> for Choice<'a> {
    fn outcome(&self) -> (f64, f64) {
        match &self.between {
            Outcomes::Copy(token) => (self.position.probability(*token), 1.0),
            Outcomes::Groups { root, known } => {
                let mass = root.map_or(0.0, |root| self.position.mass(root));
                (mass, known.probability(known.token))
            }
            Outcomes::Branches { fork, known } => fork.outcome(known),
        }
    }

    fn accepted(&self) -> Result<Step<'a, Self>, LawError> {
        let position = self.position;
        match &self.between {
            Outcomes::Copy(token) => {
                let mass = position.probability(*token);
                Ok(Step::Draw(Undrafted::Among(vec![(*token, mass)])))
            }
            Outcomes::Groups { root, .. } => match root {
                Some(root) => position.below(*root),
                None => Ok(Step::Draw(Undrafted::Among(Vec::new()))),
            },
            Outcomes::Branches { fork, known } => match fork.branch(known.token) {
                Some(&(_, place, _)) => position.below(place),
                None => Ok(Step::Draw(Undrafted::Among(fork.rest.clone()))),
            },
        }
    }

    fn residual(&self, weight: f64) -> Residual {
        let law = self.position.law;
        match &self.between {
            Outcomes::Copy(token) => {
                let mut row = row_of(law);
                if let Some(mass) = row.get_mut(token.index()) {
                    *mass = 0.0;
                }
                Residual::Tokens(row)
            }
            Outcomes::Groups { known, .. } => Residual::Tokens(self.group_residual(known, weight)),
            Outcomes::Branches { fork, known } => Residual::Branches(fork.residual(known, weight)),
        }
    }

    fn reject(&self, residual: Residual, dice: &mut dyn Chance) -> Result<TargetId, LawError> {
        let position = self.position;
        let residual = if residual.total() > 0.0 {
            residual
        } else {
            let (p, q) = self.outcome();
            check_empty_residual(self.rejected(), p, q, position.law.len())?;
            match &self.between {
                Outcomes::Branches { fork, .. } => Residual::Branches(fork.masses()),
                _ => Residual::Tokens(row_of(position.law)),
            }
        };
        match (residual, &self.between) {
            (Residual::Branches(outcomes), Outcomes::Branches { fork, .. }) => {
                match fork.branches.get(dice.pick(&outcomes)?) {
                    Some(&(_, child, _)) => draw_among(&position.tokens(child), dice),
                    None => draw_among(&fork.rest, dice),
                }
            }
            (Residual::Branches(row), _) => Ok(TargetId::new(dice.pick(&row)? as u32)),
            (Residual::Tokens(row), _) => Ok(TargetId::new(dice.pick(&row)? as u32)),
        }
    }
}
