//! The automaton: every run of tokens that occurs in some texts, with counts of the tokens that
//! followed it.

use std::collections::HashMap;

use vocab_align::TokenId;

/// The state of the empty run.
const ROOT: u32 = 0;
/// Marks the absence of a state or edge.
const NONE: u32 = u32::MAX;
/// Number of edges of a state that are found by walking its list; further ones are found in a
/// table.
const LISTED: usize = 8;
/// Largest number of contexts, from the longest on, in which a token is counted. In natural text a
/// token has fewer; in one token repeated for ever it has as many as there were repetitions.
const COUNTED: usize = 48;

/// State of all runs that end at the same places.
#[derive(Clone, Debug)]
struct State {
    /// Length of the longest of these runs.
    len: u32,
    /// The state of their longest suffix that ends at more places.
    link: u32,
    /// The first edge of its list.
    edges: u32,
    /// The edge that was followed most often, among equals the one followed last.
    best: u32,
    /// Number of occurrences of these runs.
    occurrences: u32,
    /// Number of times that a token followed them.
    followed: u32,
}

/// A token that follows the runs of a state, and the state of the runs with it.
#[derive(Clone, Debug)]
struct Edge<I> {
    token: I,
    to: u32,
    next: u32,
}

/// A suffix automaton over texts (Blumer et al., 1985), with counts. It grows by one token at a
/// time.
///
/// A state represents all runs of tokens that end at the same places; an edge appends a token.
/// Texts of n tokens have at most 2n states and 3n edges, and appending a token takes amortised
/// constant time. No run reaches from one text into the next.
#[derive(Clone, Debug)]
pub(super) struct SuffixAutomaton<I> {
    states: Vec<State>,
    edges: Vec<Edge<I>>,
    /// Edges of states that have many of them, by state and token.
    table: HashMap<(u32, I), u32>,
    /// The state of the present text.
    last: u32,
}

/// A run that occurs in the texts: its state and its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Match {
    state: u32,
    /// Number of tokens of the run.
    pub(super) len: usize,
}

impl<I: TokenId> Default for SuffixAutomaton<I> {
    fn default() -> Self {
        let mut automaton = Self {
            states: Vec::new(),
            edges: Vec::new(),
            table: HashMap::new(),
            last: ROOT,
        };
        automaton.state(0);
        automaton
    }
}

impl<I: TokenId> SuffixAutomaton<I> {
    /// Begins a new text.
    pub(super) fn start(&mut self) {
        self.last = ROOT;
    }

    /// Appends a token to the present text.
    pub(super) fn push(&mut self, token: I) {
        let last = self.last;
        self.last = match self.edge(last, token) {
            Some(edge) => self.whole(last, edge),
            None => self.grow(last, token),
        };
        self.count(last, token);
    }

    /// Upper bound of the size of the automaton, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let lists =
            self.states.len() * size_of::<State>() + self.edges.len() * size_of::<Edge<I>>();
        // Lists have an eighth more room than they use; a table is at least 7/16 full.
        lists + lists / 8 + self.table.len() * (size_of::<((u32, I), u32)>() + 1) * 16 / 7
    }

    /// Upper bound of the size of an automaton over so many tokens, in bytes.
    pub(super) fn most_bytes(tokens: usize) -> usize {
        let lists = 2 * size_of::<State>() + 3 * size_of::<Edge<I>>();
        tokens * (lists + lists / 8 + 3 * (size_of::<((u32, I), u32)>() + 1) * 16 / 7)
    }

    /// The longest suffix that occurs of the run `at` with `token` appended.
    pub(super) fn step(&self, at: Match, token: I) -> Match {
        let Match { mut state, mut len } = at;
        loop {
            if let Some(edge) = self.edge(state, token) {
                let state = self.edges[edge as usize].to;
                return Match {
                    state,
                    len: len + 1,
                };
            }
            if state == ROOT {
                return Match::default();
            }
            state = self.states[state as usize].link;
            len = self.states[state as usize].len as usize;
        }
    }

    /// The longest suffix of the present text that also ends somewhere else.
    pub(super) fn repeated(&self) -> Match {
        match self.last {
            ROOT => Match::default(),
            last => self.shorter(Match {
                state: last,
                len: 0,
            }),
        }
    }

    /// The longest suffix of a run that has a continuation; the empty run if there is none.
    pub(super) fn continued(&self, at: Match) -> Match {
        let mut at = at;
        while at.len > 0 && self.continuation(at).is_none() {
            at = self.shorter(at);
        }
        at
    }

    /// The longest suffix of a run that ends at more places.
    pub(super) fn shorter(&self, at: Match) -> Match {
        if at.state == ROOT {
            return Match::default();
        }
        let state = self.states[at.state as usize].link;
        let len = self.states[state as usize].len as usize;
        Match { state, len }
    }

    /// The token that followed a run most often; among equals, the one that did so last.
    pub(super) fn continuation(&self, at: Match) -> Option<I> {
        let best = self.states[at.state as usize].best;
        (best != NONE).then(|| self.edges[best as usize].token)
    }

    /// Number of times that a token followed a run.
    pub(super) fn count_of(&self, at: Match, token: I) -> u32 {
        self.edge(at.state, token).map_or(0, |edge| {
            let to = self.edges[edge as usize].to;
            self.states[to as usize].occurrences
        })
    }

    /// Number of times that any token followed a run.
    pub(super) fn followed(&self, at: Match) -> u32 {
        self.states[at.state as usize].followed
    }

    /// A new state for the present text with a token that never followed it.
    fn grow(&mut self, last: u32, token: I) -> u32 {
        let new = self.state(self.states[last as usize].len + 1);
        let mut from = last;
        loop {
            self.add_edge(from, token, new);
            if from == ROOT {
                self.states[new as usize].link = ROOT;
                return new;
            }
            from = self.states[from as usize].link;
            if let Some(edge) = self.edge(from, token) {
                self.states[new as usize].link = self.whole(from, edge);
                return new;
            }
        }
    }

    /// The state whose longest run is that of `from` with the edge's token: the edge's end, or a
    /// new state that is split off from it.
    fn whole(&mut self, from: u32, edge: u32) -> u32 {
        let Edge { token, to, .. } = self.edges[edge as usize];
        let len = self.states[from as usize].len + 1;
        if self.states[to as usize].len == len {
            return to;
        }
        // Its shorter runs end at one more place from now on: they become a state of their own.
        let split = self.state(len);
        let whole = self.states[to as usize].clone();
        let mut next = whole.edges;
        while next != NONE {
            let Edge {
                token,
                to,
                next: behind,
            } = self.edges[next as usize];
            let copy = self.add_edge(split, token, to);
            if next == whole.best {
                self.states[split as usize].best = copy;
            }
            next = behind;
        }
        let state = &mut self.states[split as usize];
        state.link = whole.link;
        state.occurrences = whole.occurrences;
        state.followed = whole.followed;
        self.states[to as usize].link = split;
        let mut from = from;
        while let Some(edge) = self.edge(from, token) {
            if self.edges[edge as usize].to != to {
                break;
            }
            self.edges[edge as usize].to = split;
            if from == ROOT {
                break;
            }
            from = self.states[from as usize].link;
        }
        split
    }

    /// Counts a token in the contexts that it followed, which are the suffixes of the text before it.
    fn count(&mut self, last: u32, token: I) {
        let (mut from, mut counted) = (last, NONE);
        for _ in 0..COUNTED {
            let Some(edge) = self.edge(from, token) else {
                return;
            };
            let to = self.edges[edge as usize].to;
            // Several contexts may lead to one state.
            if to != counted {
                self.states[to as usize].occurrences += 1;
                counted = to;
            }
            let occurrences = self.states[to as usize].occurrences;
            let best = self.states[from as usize].best;
            let before = (best != NONE).then(|| self.edges[best as usize].to);
            let before = before.map_or(0, |to| self.states[to as usize].occurrences);
            let state = &mut self.states[from as usize];
            state.followed += 1;
            if occurrences >= before {
                state.best = edge;
            }
            if from == ROOT {
                return;
            }
            from = state.link;
        }
    }

    fn state(&mut self, len: u32) -> u32 {
        let new = self.states.len() as u32;
        let state = State {
            len,
            link: ROOT,
            edges: NONE,
            best: NONE,
            occurrences: 0,
            followed: 0,
        };
        push(&mut self.states, state);
        new
    }

    fn edge(&self, state: u32, token: I) -> Option<u32> {
        let mut next = self.states[state as usize].edges;
        for _ in 0..LISTED {
            if next == NONE {
                return None;
            }
            let edge = &self.edges[next as usize];
            if edge.token == token {
                return Some(next);
            }
            next = edge.next;
        }
        match next {
            NONE => None,
            _ => self.table.get(&(state, token)).copied(),
        }
    }

    /// Adds an edge that the state does not have.
    fn add_edge(&mut self, state: u32, token: I, to: u32) -> u32 {
        let new = self.edges.len() as u32;
        let first = self.states[state as usize].edges;
        let (mut behind, mut next) = (NONE, first);
        let mut listed = 0;
        while listed < LISTED && next != NONE {
            behind = next;
            next = self.edges[next as usize].next;
            listed += 1;
        }
        if listed < LISTED {
            push(
                &mut self.edges,
                Edge {
                    token,
                    to,
                    next: first,
                },
            );
            self.states[state as usize].edges = new;
        } else {
            push(&mut self.edges, Edge { token, to, next });
            self.edges[behind as usize].next = new;
            self.table.insert((state, token), new);
        }
        new
    }
}

/// Appends with little spare room, because the limit of a corpus is one of memory.
fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(list.len() / 8 + 1);
    }
    list.push(item);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vocab_align::TargetId;

    fn built(texts: &[Vec<u32>]) -> SuffixAutomaton<TargetId> {
        let mut automaton = SuffixAutomaton::default();
        for text in texts {
            automaton.start();
            text.iter()
                .for_each(|&token| automaton.push(TargetId(token)));
        }
        automaton
    }

    /// Tokens that followed a run, for each place, in order.
    fn followers(texts: &[Vec<u32>], run: &[u32]) -> Vec<u32> {
        let windows = texts.iter().flat_map(|text| text.windows(run.len() + 1));
        let followed = windows.filter(|window| window.starts_with(run));
        followed.map(|window| window[run.len()]).collect()
    }

    fn texts() -> impl Strategy<Value = Vec<Vec<u32>>> {
        prop::collection::vec(prop::collection::vec(0u32..20, 0..40), 1..5)
            .prop_flat_map(|texts| (Just(texts), 2u32..20))
            .prop_map(|(texts, ids)| {
                let fold = |text: Vec<u32>| text.into_iter().map(|t| t % ids).collect();
                texts.into_iter().map(fold).collect()
            })
    }

    proptest! {
        /// Compares match, counts, and the most frequent and latest continuation with a search
        /// through all texts.
        #[test]
        fn agrees_with_a_search(texts in texts(), asked in prop::collection::vec(0u32..6, 1..12)) {
            let automaton = built(&texts);
            let mut at = Match::default();
            for end in 1..=asked.len() {
                at = automaton.step(at, TargetId(asked[end - 1]));
                let occurs = |run: &[u32]| texts.iter().any(|t| t.windows(run.len()).any(|w| w == run));
                let longest = (1..=end).rev().find(|n| occurs(&asked[end - n..end])).unwrap_or(0);
                prop_assert_eq!(at.len, longest);
                if longest == 0 {
                    continue;
                }
                let followers = followers(&texts, &asked[end - longest..end]);
                prop_assert_eq!(automaton.followed(at) as usize, followers.len());
                let count = |token: u32| followers.iter().filter(|t| **t == token).count();
                for token in 0..20 {
                    let counted = automaton.count_of(at, TargetId(token));
                    prop_assert_eq!(counted as usize, count(token));
                }
                let most = followers.iter().map(|t| count(*t)).max();
                let best = followers.iter().rev().find(|t| Some(count(**t)) == most);
                let found = automaton.continuation(at);
                prop_assert_eq!(found.map(|token| token.0), best.copied());
            }
        }

        /// Checks the bounds on which the accounting of memory relies.
        #[test]
        fn is_of_linear_size(texts in texts()) {
            let automaton = built(&texts);
            let tokens: usize = texts.iter().map(Vec::len).sum();
            prop_assert!(automaton.states.len() <= 2 * tokens + 1);
            prop_assert!(automaton.edges.len() <= 3 * tokens + 1);
            prop_assert!(automaton.bytes() <= SuffixAutomaton::<TargetId>::most_bytes(tokens + 1));
        }

        #[test]
        fn what_repeats_is_the_longest_suffix_seen_before(text in prop::collection::vec(0u32..3, 1..40)) {
            let automaton = built(std::slice::from_ref(&text));
            let ends = |n: usize| text[..text.len() - 1].windows(n).any(|w| w == &text[text.len() - n..]);
            let longest = (1..text.len()).rev().find(|n| ends(*n)).unwrap_or(0);
            prop_assert_eq!(automaton.repeated().len, longest);
        }
    }

    #[test]
    fn one_token_for_ever_is_bounded_work() {
        let mut automaton = SuffixAutomaton::default();
        for _ in 0..200_000 {
            automaton.push(TargetId(7));
        }
        let at = automaton.continued(automaton.repeated());
        assert_eq!(automaton.continuation(at), Some(TargetId(7)));
    }
}
