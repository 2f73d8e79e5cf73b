//! Properties of an answer's text: loops, formulas, and the rounds outside of them.
//!
//! A small target loops and repeats itself from prompt to prompt, and drafts are accepted there
//! more often than elsewhere. These properties let a table show the share of its speed that is of
//! that kind.

use crate::{JudgedRound, PromptRow, Split, answer_ids};
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::{BTreeMap, HashMap};

/// Length of the n-gram whose repetition within an answer is a loop.
const LOOP: usize = 4;

/// Length of the n-gram that makes a formula if two answers share it.
const FORMULA: usize = 8;

/// Properties of one answer.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct TextFacts {
    /// Number of tokens of the answer.
    pub tokens: u32,
    /// Number of tokens that end a 4-gram which occurred earlier in the answer.
    pub repeated: u32,
    /// Number of prompts of the same cell and arm with an answer equal to this one, its own
    /// included.
    pub copies: u32,
    /// Its rounds, if they are recorded.
    pub fresh: Option<FreshRounds>,
}

/// The rounds of an answer, with those whose verified tokens were all fresh.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct FreshRounds {
    /// Number of rounds with proposals.
    pub rounds: u32,
    /// Number of fresh rounds among these.
    pub fresh: u32,
    /// Sum of accepted / proposed over the fresh ones.
    pub acceptance: f64,
    /// Number of all fresh rounds, including those without a proposal.
    pub all_fresh: u32,
    /// Number of target tokens committed in them.
    pub tokens: u32,
    /// Number of draft tokens in them.
    pub drafted: u32,
}

impl FreshRounds {
    /// The sums over fresh rounds in a published row.
    fn kept(row: &PromptRow) -> Option<Self> {
        Some(Self {
            rounds: row.judged_rounds,
            fresh: row.fresh_judged?,
            acceptance: row.fresh_acceptance?,
            all_fresh: row.fresh_rounds?,
            tokens: row.fresh_tokens?,
            drafted: row.fresh_drafted?,
        })
    }

    /// Stores the sums in a row whose rounds are left out.
    pub(crate) fn keep(self, row: &mut PromptRow) {
        row.fresh_judged = Some(self.fresh);
        row.fresh_acceptance = Some(self.acceptance);
        row.fresh_rounds = Some(self.all_fresh);
        row.fresh_tokens = Some(self.tokens);
        row.fresh_drafted = Some(self.drafted);
    }
}

/// The prompts whose answers contain an 8-gram.
#[derive(Clone, Copy, PartialEq)]
enum Holder<'a> {
    /// A single prompt of this task and id, however often it was answered.
    One((&'a str, &'a str)),
    Several,
}

/// The properties of every recorded answer of a cell, by its index in `rows`. Answers of one arm
/// and split are compared with each other.
pub fn cell_facts(rows: &[PromptRow], rounds: &[JudgedRound]) -> HashMap<usize, TextFacts> {
    let mut groups: BTreeMap<(&str, Split), Vec<usize>> = BTreeMap::new();
    for (index, row) in rows.iter().enumerate() {
        // Early runs kept only a hash of the answer, without its text.
        let recorded = !row.answer.is_empty() || row.new_tokens == 0;
        if recorded {
            groups.entry((&row.arm, row.split)).or_default().push(index);
        }
    }
    let mut facts = HashMap::new();
    for ((arm, split), indices) in groups {
        let own: Vec<&PromptRow> = indices.iter().filter_map(|&at| rows.get(at)).collect();
        let of_arm = |round: &&JudgedRound| round.arm == arm && round.split == split;
        let rounds: Vec<JudgedRound> = rounds.iter().filter(of_arm).cloned().collect();
        let recorded = (!rounds.is_empty()).then_some(rounds.as_slice());
        facts.extend(indices.iter().copied().zip(text_facts(&own, recorded)));
    }
    facts
}

/// The properties of every answer of one arm in one cell, in the order of `prompts`. `rounds` are
/// those of the arm, or `None` if they are not recorded; then the sums in the rows are used.
fn text_facts(prompts: &[&PromptRow], rounds: Option<&[JudgedRound]>) -> Vec<TextFacts> {
    let answers: Vec<Vec<u32>> = prompts.iter().map(|row| answer_ids(&row.answer)).collect();
    let mut holders: FxHashMap<&[u32], Holder> = FxHashMap::default();
    let mut copies: FxHashMap<&[u32], FxHashSet<(&str, &str)>> = FxHashMap::default();
    for (row, answer) in prompts.iter().zip(&answers) {
        let id = (row.task.as_str(), row.prompt_id.as_str());
        copies.entry(answer.as_slice()).or_default().insert(id);
        for gram in answer.windows(FORMULA) {
            let holder = holders.entry(gram).or_insert(Holder::One(id));
            if *holder != Holder::One(id) {
                *holder = Holder::Several;
            }
        }
    }
    let mut by_prompt: FxHashMap<_, Vec<&JudgedRound>> = FxHashMap::default();
    for round in rounds.into_iter().flatten() {
        let key = (round.segment, round.split, round.prompt_index);
        by_prompt.entry(key).or_default().push(round);
    }
    let facts = |(row, answer): (&&PromptRow, &Vec<u32>)| {
        let looping = looping(answer);
        let key = (row.segment, row.split, row.prompt_index);
        let own = by_prompt.get(&key).map_or(&[][..], Vec::as_slice);
        TextFacts {
            tokens: answer.len() as u32,
            repeated: looping.iter().filter(|&&yes| yes).count() as u32,
            copies: copies
                .get(answer.as_slice())
                .map_or(1, |ids| ids.len() as u32),
            fresh: match rounds {
                Some(_) => Some(fresh_rounds(own, &looping, &formula(answer, &holders))),
                None => FreshRounds::kept(row),
            },
        }
    };
    prompts.iter().zip(&answers).map(facts).collect()
}

/// For every token, true if it ends a 4-gram that occurred earlier in the answer.
pub fn looping(answer: &[u32]) -> Vec<bool> {
    let mut seen = FxHashSet::default();
    let mut marks = vec![false; answer.len()];
    for (start, gram) in answer.windows(LOOP).enumerate() {
        marks[start + LOOP - 1] = !seen.insert(gram);
    }
    marks
}

/// For every token, true if it is in an 8-gram that also occurs in another answer.
fn formula(answer: &[u32], holders: &FxHashMap<&[u32], Holder>) -> Vec<bool> {
    let mut marks = vec![false; answer.len()];
    for (start, gram) in answer.windows(FORMULA).enumerate() {
        if holders.get(gram) == Some(&Holder::Several) {
            marks[start..start + FORMULA].fill(true);
        }
    }
    marks
}

/// Verified are the accepted tokens and the target's token in place of the first rejected one; the
/// target's additional token after a round without rejection is not. In a round without proposals
/// it is the token drawn from the target.
fn fresh_rounds(rounds: &[&JudgedRound], looping: &[bool], formula: &[bool]) -> FreshRounds {
    let mut rounds = rounds.to_vec();
    rounds.sort_by_key(|round| round.round);
    let mut facts = FreshRounds::default();
    let mut start = 0usize;
    for round in rounds {
        let emitted = round.emitted as usize;
        let proposed = round.proposed > 0;
        let judged = match proposed {
            true => round.accepted as usize + usize::from(round.accepted < round.proposed),
            false => emitted,
        };
        let marks = looping.iter().zip(formula).skip(start);
        let stale = |(looping, formula): (&bool, &bool)| *looping || *formula;
        let fresh = !marks.take(judged.min(emitted)).any(stale);
        facts.rounds += u32::from(proposed);
        if fresh {
            facts.all_fresh += 1;
            facts.tokens += round.emitted;
            facts.drafted += round.draft_tokens;
        }
        if fresh && proposed {
            facts.fresh += 1;
            facts.acceptance += f64::from(round.accepted) / f64::from(round.proposed);
        }
        start += emitted;
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(index: u32, answer: &str) -> PromptRow {
        PromptRow {
            arm: "a".into(),
            split: Split::Test,
            prompt_index: index,
            prompt_id: index.to_string(),
            answer: answer.into(),
            ..PromptRow::default()
        }
    }

    fn round(index: u32, round: u32, proposed: u32, accepted: u32) -> JudgedRound {
        JudgedRound {
            arm: "a".into(),
            split: Split::Test,
            prompt_index: index,
            round,
            draft_tokens: proposed + 1,
            proposed,
            accepted,
            emitted: accepted + 1,
            ..JudgedRound::default()
        }
    }

    #[test]
    fn loops_by_hand() {
        // 1 2 3 4 1 2 3 4: only the last token ends a 4-gram seen before.
        let marks = looping(&[1, 2, 3, 4, 1, 2, 3, 4]);
        assert_eq!(marks.iter().filter(|&&m| m).count(), 1);
        assert!(marks[7]);
        // The same token for ever: the second 4-gram equals the first.
        assert_eq!(looping(&[5; 6]), [false, false, false, false, true, true]);
        assert_eq!(looping(&[1, 2]), [false, false]);
    }

    #[test]
    fn fresh_rounds_by_hand() {
        let [a, b] = [
            prompt(0, "1 2 3 4 5 6 7 8 9 10 11 12"),
            prompt(1, "1 2 3 4 5 6 7 8 20 21 22 23"),
        ];
        // Prompt 0: tokens 1-3 lie in the shared 8-gram (2 of 4 accepted); tokens 4-8 too; 9-12 are
        // fresh: 3 of 4 accepted, four judged.
        let rounds = [round(0, 0, 4, 2), round(0, 1, 4, 4), round(0, 2, 4, 3)];
        let facts = text_facts(&[&a, &b], Some(&rounds));
        let fresh = facts[0].fresh.unwrap();
        assert_eq!((fresh.rounds, fresh.fresh), (3, 1));
        assert_eq!(fresh.acceptance, 0.75);
        assert_eq!((fresh.all_fresh, fresh.tokens, fresh.drafted), (1, 4, 5));
        assert_eq!(facts[1].fresh.unwrap(), FreshRounds::default());
        assert_eq!(text_facts(&[&a], None)[0].fresh, None);
    }

    #[test]
    fn the_free_token_is_not_judged() {
        // Both proposed tokens accepted; the free third token ends a repeated 4-gram.
        let row = prompt(0, "7 7 7 7 7 1 2 7 7 7 7");
        let rounds = [round(0, 0, 0, 0), round(0, 1, 4, 4), round(0, 2, 3, 3)];
        // Round 1 judges tokens 1..=4 of the answer, of which the fifth 7 ends a repeated 4-gram.
        // Round 2 verifies "2 7 7"; its additional token, the third 7 in a row, does not count.
        let facts = text_facts(&[&row], Some(&rounds))[0].fresh.unwrap();
        assert_eq!((facts.rounds, facts.fresh), (2, 1));
        // Round 0 had no proposals and emitted the first 7.
        assert_eq!((facts.all_fresh, facts.tokens), (2, 5));
    }

    #[test]
    fn equal_answers_are_counted() {
        let rows = [prompt(0, "1 2"), prompt(1, "1 2"), prompt(2, "3")];
        let rows: Vec<&PromptRow> = rows.iter().collect();
        let copies: Vec<u32> = text_facts(&rows, None).iter().map(|f| f.copies).collect();
        assert_eq!(copies, [2, 2, 1]);
        // A repeated prompt is neither another answer nor a formula.
        let again = [prompt(0, "1 2 3 4 5 6 7 8"), prompt(0, "1 2 3 4 5 6 7 8")];
        let asked = text_facts(&[&again[0], &again[1]], Some(&[round(0, 0, 8, 8)]));
        assert_eq!((asked[0].copies, asked[0].fresh.unwrap().fresh), (1, 1));
        // An 8-gram that repeats within a single answer is not a formula.
        let alone = prompt(0, "1 1 1 1 1 1 1 1 1 1");
        let held = text_facts(&[&alone], Some(&[]));
        assert_eq!(held[0].repeated, 6);
    }
}
