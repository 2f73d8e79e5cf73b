//! A test for engines. It finds the clause of [`LanguageModel`]'s contract that an engine breaks.
//!
//! | clause | test |
//! |---|---|
//! | [`Split`](Clause::Split) | a forward of a text, split at every place: the same logits as a token at a time |
//! | [`Truncate`](Clause::Truncate) | the cache cut back to every length, after tokens that are not in the text |
//! | [`Prefill`](Clause::Prefill) | tokens read without their logits, and a prompt read for its last logits alone |
//! | [`Independence`](Clause::Independence) | two engines in turns, with a text each |
//! | [`Device`](Clause::Device) | logits kept on a device: their largest columns, their rows, rows that are not there |
//! | [`Alternatives`](Clause::Alternatives) | tokens scored in place of others, and taken, by an engine that scores any |
//! | [`Refusal`](Clause::Refusal) | ids that do not exist, and more tokens than there is room for |
//!
//! With the logits, the length of the cache, the [state](LanguageModel::state) and
//! [abstention](LanguageModel::abstains) are compared. Numbers must be equal, not close, because
//! only then does greedy speculation equal plain decoding token for token.

use std::fmt;
use std::ops::Range;

use thiserror::Error;

use crate::{Alternative, LanguageModel, ModelError};

/// Number of tokens of the text that [`check`] reads: enough to make each position at which it is
/// split a different case.
const TOKENS: usize = 13;

/// Largest room, in tokens, that the test of [`Clause::Refusal`] tries to exceed. It makes a call
/// with that many ids.
const MOST_FILLED: usize = 1 << 20;

/// A clause of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Clause {
    /// A text gives the same results however its forwards are split.
    Split,
    /// A cache that was cut back behaves as if it had never held more.
    Truncate,
    /// Tokens may be read without their logits.
    Prefill,
    /// Engines share nothing that changes.
    Independence,
    /// Logits on a device equal those in memory.
    Device,
    /// An alternative behaves as if it had been appended in its place.
    Alternatives,
    /// A call that is refused changes nothing.
    Refusal,
}

impl fmt::Display for Clause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Split => "split forwards",
            Self::Truncate => "cutting back",
            Self::Prefill => "reading without logits",
            Self::Independence => "two engines in turns",
            Self::Device => "logits on a device",
            Self::Alternatives => "alternatives",
            Self::Refusal => "refused calls",
        })
    }
}

/// A breach of the contract.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum Broken {
    /// The vocabulary is empty, or the cache has no room.
    #[error("a vocabulary of {vocab_size} tokens and room for {room} of them")]
    Empty {
        /// Number of columns of a row of logits.
        vocab_size: usize,
        /// Number of tokens that the cache of a new engine has room for.
        room: usize,
    },
    /// A call that must succeed failed.
    #[error("{clause}: a call failed: {message}")]
    Failed {
        /// The clause.
        clause: Clause,
        /// The engine's error.
        message: String,
    },
    /// The length of the cache differs from the number of tokens that it was fed.
    #[error("{clause}: the cache holds {found} tokens instead of {expected}")]
    Length {
        /// The clause.
        clause: Clause,
        /// Expected number of tokens.
        expected: usize,
        /// Tokens by the engine's count.
        found: usize,
    },
    /// A forward returned another number of logits than positions times vocabulary.
    #[error("{clause}: {found} logits instead of {expected}")]
    Shape {
        /// The clause.
        clause: Clause,
        /// Expected number of logits.
        expected: usize,
        /// Number of logits returned.
        found: usize,
    },
    /// A logit differs from that of a token at a time.
    #[error(
        "{clause}: token {column} after position {position} has the logit {found} instead of {expected}"
    )]
    Logit {
        /// The clause.
        clause: Clause,
        /// Position in the text.
        position: usize,
        /// Column of its row.
        column: usize,
        /// The logit of a token at a time.
        expected: f32,
        /// The logit returned.
        found: f32,
    },
    /// The state differs from that of a token at a time.
    #[error("{clause}: the state after position {position} is another one")]
    State {
        /// The clause.
        clause: Clause,
        /// Position in the text.
        position: usize,
    },
    /// The model abstains after a position in one case and not in another.
    #[error("{clause}: the model abstains after position {position} at one time alone")]
    Abstains {
        /// The clause.
        clause: Clause,
        /// Position in the text.
        position: usize,
    },
    /// A device reports another column as the largest.
    #[error("the device says that {found:?} is the largest of row {row}, which is {expected:?}")]
    Best {
        /// The row.
        row: usize,
        /// The lowest column of the largest logit, if the row has one.
        expected: Option<u32>,
        /// The column of the device; `None` also if it returned none for this row.
        found: Option<u32>,
    },
    /// A call that must be refused is not, or is refused for another reason.
    #[error("{call} is not refused as it must be")]
    NotRefused {
        /// The call.
        call: &'static str,
    },
}

/// Tests an engine on a text of its vocabulary. `make` returns one engine after the other, all
/// alike. They may have read a text already, the same one each.
///
/// # Errors
/// The first violation of the contract.
pub fn check<E: LanguageModel>(mut make: impl FnMut() -> E) -> Result<(), Broken> {
    let engine = make();
    let (vocab_size, room) = (engine.vocab_size(), room(&engine));
    if vocab_size == 0 || room == 0 {
        return Err(Broken::Empty { vocab_size, room });
    }
    // Far apart and without a pattern, so that no two contexts are similar.
    let id = |i: usize| (i.wrapping_mul(2_654_435_761) >> 7) % vocab_size;
    let text: Vec<u32> = (1..=TOKENS.min(room)).map(|i| id(i) as u32).collect();
    check_on(make, &text)
}

/// As [`check`], on this text, for engines that know only some texts. It may not be empty.
///
/// # Errors
/// As [`check`]; a text that is empty, has ids that do not exist, or is too long.
pub fn check_on<E: LanguageModel>(mut make: impl FnMut() -> E, text: &[u32]) -> Result<(), Broken> {
    let known = Known::read(&mut make(), text)?;
    known.splits(&mut make)?;
    known.cuts(&mut make())?;
    known.prefills(&mut make)?;
    known.turns(&mut make)?;
    known.device(&mut make)?;
    known.alternatives(&mut make)?;
    known.refusals(&mut make)
}

fn room(engine: &impl LanguageModel) -> usize {
    engine.max_len().saturating_sub(engine.len())
}

/// A text with an engine's results for it, a token at a time.
struct Known<'a> {
    text: &'a [u32],
    vocab: usize,
    /// Number of tokens that a new engine holds.
    base: usize,
    /// `[text, vocab]`.
    rows: Vec<f32>,
    states: Vec<Vec<f32>>,
    abstains: Vec<bool>,
}

impl<'a> Known<'a> {
    fn read(engine: &mut impl LanguageModel, text: &'a [u32]) -> Result<Self, Broken> {
        let (clause, mut row) = (Clause::Split, Vec::new());
        let mut known = Self {
            text,
            vocab: engine.vocab_size(),
            base: engine.len(),
            rows: Vec::new(),
            states: Vec::new(),
            abstains: Vec::new(),
        };
        if known.vocab == 0 || text.is_empty() || room(engine) < text.len() {
            return Err(Broken::Empty {
                vocab_size: known.vocab,
                room: room(engine),
            });
        }
        for (i, id) in text.iter().enumerate() {
            done(clause, engine.forward(&[*id], &mut row))?;
            known.shape(clause, 1, &row)?;
            known.length(clause, i + 1, engine)?;
            known.rows.extend_from_slice(&row);
            known.states.push(engine.state().to_vec());
            known.abstains.push(engine.abstains());
        }
        Ok(known)
    }

    fn shape(&self, clause: Clause, positions: usize, logits: &[f32]) -> Result<(), Broken> {
        let (expected, found) = (positions * self.vocab, logits.len());
        if expected == found {
            return Ok(());
        }
        Err(Broken::Shape {
            clause,
            expected,
            found,
        })
    }

    fn length(
        &self,
        clause: Clause,
        read: usize,
        engine: &impl LanguageModel,
    ) -> Result<(), Broken> {
        let (expected, found) = (self.base + read, engine.len());
        if expected == found {
            return Ok(());
        }
        Err(Broken::Length {
            clause,
            expected,
            found,
        })
    }

    /// Compares the rows of some positions.
    fn logits(
        &self,
        clause: Clause,
        positions: Range<usize>,
        logits: &[f32],
    ) -> Result<(), Broken> {
        self.shape(clause, positions.len(), logits)?;
        let first = positions.start * self.vocab;
        let expected = &self.rows[first..positions.end * self.vocab];
        let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        match expected.iter().zip(logits).position(|pair| !same(pair)) {
            None => Ok(()),
            Some(at) => Err(Broken::Logit {
                clause,
                position: positions.start + at / self.vocab,
                column: at % self.vocab,
                expected: expected[at],
                found: logits[at],
            }),
        }
    }

    /// Compares all results of an engine after a forward of some positions.
    fn compare(
        &self,
        clause: Clause,
        positions: Range<usize>,
        logits: &[f32],
        engine: &impl LanguageModel,
    ) -> Result<(), Broken> {
        let last = positions.end - 1;
        self.logits(clause, positions, logits)?;
        self.length(clause, last + 1, engine)?;
        let same = |(a, b): (&f32, &f32)| a == b || (a.is_nan() && b.is_nan());
        let (state, expected) = (engine.state(), &self.states[last]);
        if state.len() != expected.len() || !state.iter().zip(expected).all(same) {
            return Err(Broken::State {
                clause,
                position: last,
            });
        }
        if engine.abstains() != self.abstains[last] {
            return Err(Broken::Abstains {
                clause,
                position: last,
            });
        }
        Ok(())
    }

    /// Reads the rest of the text and compares its results.
    fn goes_on(
        &self,
        clause: Clause,
        from: usize,
        engine: &mut impl LanguageModel,
    ) -> Result<(), Broken> {
        let mut logits = Vec::new();
        done(clause, engine.forward(&self.text[from..], &mut logits))?;
        self.compare(clause, from..self.text.len(), &logits, engine)
    }

    fn splits<E: LanguageModel>(&self, make: &mut impl FnMut() -> E) -> Result<(), Broken> {
        let (clause, mut logits) = (Clause::Split, Vec::new());
        for at in 0..self.text.len() {
            let mut engine = make();
            self.length(clause, 0, &engine)?;
            if at > 0 {
                done(clause, engine.forward(&self.text[..at], &mut logits))?;
                self.compare(clause, 0..at, &logits, &engine)?;
            }
            self.goes_on(clause, at, &mut engine)?;
        }
        Ok(())
    }

    /// Scores the text's own tokens in place of others, beside some that are not its own, and takes
    /// them: in the middle of a forward, at its beginning, after its end, and beyond it.
    fn alternatives<E: LanguageModel>(&self, make: &mut impl FnMut() -> E) -> Result<(), Broken> {
        let (clause, mut logits) = (Clause::Alternatives, Vec::new());
        for at in 0..self.text.len().saturating_sub(1) {
            let (own, next) = (self.text[at], self.text[at + 1]);
            let (not_own, not_next) = (self.other(at), self.other(at + 1));
            let end = self.text.len().min(at + 5);
            // The forward, the alternatives, and the one that is the text's.
            let rest = &self.text[at + 1..end];
            let cases = [
                (
                    vec![own, not_next, own],
                    [(2, &[next][..]), (1, &[next])],
                    1,
                ),
                (vec![not_own, next], [(0, &[own]), (1, &[own])], 0),
                (vec![own], [(1, &[not_next, own]), (1, &[next])], 1),
                (vec![own, not_next], [(2, &[own]), (1, rest)], 1),
            ];
            for (ids, beside, own_text) in cases {
                let beside = beside.map(|(after, ids)| Alternative { after, ids });
                let beyond: usize = beside.iter().map(|own| own.ids.len()).sum();
                let of_text = beside[own_text];
                for count in 1..=of_text.ids.len() {
                    let mut engine = make();
                    if at > 0 {
                        done(clause, engine.prefill(&self.text[..at]))?;
                    }
                    if engine.alternatives(ids.len()) < beyond {
                        continue;
                    }
                    done(clause, engine.forward_with(&ids, &beside, &mut logits))?;
                    self.shape(clause, ids.len() + beyond, &logits)?;
                    self.length(clause, at + ids.len(), &engine)?;
                    let row = |row: usize| &logits[row * self.vocab..][..self.vocab];
                    if ids[0] == own {
                        self.logits(clause, at..at + 1, row(0))?;
                    }
                    let before: usize = beside[..own_text].iter().map(|own| own.ids.len()).sum();
                    let (first, held) = (at + of_text.after, at + of_text.after + count);
                    for i in 0..of_text.ids.len() {
                        let scored = row(ids.len() + before + i);
                        self.logits(clause, first + i..first + i + 1, scored)?;
                    }
                    done(clause, engine.take_alternative(own_text, count))?;
                    self.length(clause, held, &engine)?;
                    if held < self.text.len() {
                        self.goes_on(clause, held, &mut engine)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// A token that the text does not have at a position.
    fn other(&self, position: usize) -> u32 {
        (self.text[position] + 1) % self.vocab as u32
    }

    fn cuts(&self, engine: &mut impl LanguageModel) -> Result<(), Broken> {
        let (clause, mut logits) = (Clause::Truncate, Vec::new());
        self.goes_on(clause, 0, engine)?;
        for at in 0..self.text.len() {
            engine.truncate(self.base + at);
            self.length(clause, at, engine)?;
            done(clause, engine.forward(&[self.other(at)], &mut logits))?;
            engine.truncate(self.base + at);
            self.goes_on(clause, at, engine)?;
        }
        // Truncating to more tokens than there are has no effect.
        engine.truncate(self.base + self.text.len() - 1);
        engine.truncate(usize::MAX);
        self.length(clause, self.text.len() - 1, engine)?;
        self.goes_on(clause, self.text.len() - 1, engine)
    }

    fn prefills<E: LanguageModel>(&self, make: &mut impl FnMut() -> E) -> Result<(), Broken> {
        let (clause, mut logits) = (Clause::Prefill, Vec::new());
        for at in 1..self.text.len() {
            let mut engine = make();
            done(clause, engine.prefill(&self.text[..at]))?;
            self.length(clause, at, &engine)?;
            self.goes_on(clause, at, &mut engine)?;
        }
        let mut engine = make();
        done(clause, engine.prefill(&[]))?;
        done(clause, engine.prompt(&[], &mut logits))?;
        self.shape(clause, 0, &logits)?;
        done(clause, engine.prompt(self.text, &mut logits))?;
        let last = self.text.len() - 1..self.text.len();
        self.compare(clause, last, &logits, &engine)
    }

    fn turns<E: LanguageModel>(&self, make: &mut impl FnMut() -> E) -> Result<(), Broken> {
        let (clause, mut logits) = (Clause::Independence, Vec::new());
        let (mut engine, mut another) = (make(), make());
        for i in 0..self.text.len() {
            done(clause, engine.forward(&self.text[i..=i], &mut logits))?;
            self.compare(clause, i..i + 1, &logits, &engine)?;
            done(clause, another.forward(&[self.other(i)], &mut logits))?;
        }
        self.length(clause, self.text.len(), &another)
    }

    fn device<E: LanguageModel>(&self, make: &mut impl FnMut() -> E) -> Result<(), Broken> {
        let (clause, tokens) = (Clause::Device, self.text.len());
        let mut engine = make();
        let mut logits = Vec::new();
        for at in 0..tokens {
            // Cut back each time: scoring appends as a forward does.
            engine.truncate(self.base + at);
            let text = &self.text[at..];
            let Some(device) = engine.device_logits(text.len()) else {
                // In memory, or more than the device keeps.
                done(clause, engine.forward(&self.text[at..=at], &mut logits))?;
                continue;
            };
            done(clause, device.score(text))?;
            let mut best = Vec::new();
            done(clause, device.best(&mut best))?;
            self.best(at, &best)?;
            if device.rows(text.len()..text.len() + 1, &mut logits).is_ok() {
                return Err(Broken::NotRefused {
                    call: "a row that was not scored",
                });
            }
            for i in 0..text.len() {
                done(clause, device.rows(i..i + 1, &mut logits))?;
                self.logits(clause, at + i..at + i + 1, &logits)?;
            }
            done(clause, device.rows(0..text.len(), &mut logits))?;
            self.compare(clause, at..tokens, &logits, &engine)?;
        }
        Ok(())
    }

    /// Compares the most probable columns `found` by a device, one per row from row `from` on, with
    /// those of the logits.
    fn best(&self, from: usize, found: &[Option<u32>]) -> Result<(), Broken> {
        let rows = self.rows.chunks_exact(self.vocab).skip(from);
        for (row, logits) in rows.enumerate() {
            let (expected, found) = (largest(logits), found.get(row).copied().flatten());
            if expected != found {
                return Err(Broken::Best {
                    row,
                    expected,
                    found,
                });
            }
        }
        Ok(())
    }

    fn refusals<E: LanguageModel>(&self, make: &mut impl FnMut() -> E) -> Result<(), Broken> {
        let at = self.text.len() / 2;
        let first = self.text[at];
        // A valid id comes first: nothing of a refused call may stay.
        let unknown = [first, self.vocab as u32];
        let is_unknown = |error: &ModelError| matches!(error, ModelError::TokenOutOfRange { .. });
        self.refuses(make, at, &unknown, is_unknown)?;
        let mut engine = make();
        let room = room(&engine);
        if room <= MOST_FILLED {
            let many = vec![first; room + 1 - at];
            let is_full = |error: &ModelError| matches!(error, ModelError::ContextFull { .. });
            self.refuses(make, at, &many, is_full)?;
        }
        // A forward of no tokens succeeds and gives no logits.
        let mut logits = vec![0.0];
        done(Clause::Refusal, engine.forward(&[], &mut logits))?;
        self.shape(Clause::Refusal, 0, &logits)?;
        self.length(Clause::Refusal, 0, &engine)
    }

    /// Makes a call that must be refused, in all forms, with an engine that has read the text up to
    /// `at`.
    fn refuses<E: LanguageModel>(
        &self,
        make: &mut impl FnMut() -> E,
        at: usize,
        ids: &[u32],
        right: impl Fn(&ModelError) -> bool,
    ) -> Result<(), Broken> {
        let (clause, mut logits) = (Clause::Refusal, Vec::new());
        let refused = |call, result: Result<(), ModelError>| match result {
            Err(error) if right(&error) => Ok(()),
            _ => Err(Broken::NotRefused { call }),
        };
        for way in 0..4 {
            let mut engine = make();
            if at > 0 {
                done(clause, engine.prefill(&self.text[..at]))?;
            }
            match way {
                0 => refused("a forward", engine.forward(ids, &mut logits))?,
                1 => refused("a prefill", engine.prefill(ids))?,
                2 => refused("a prompt", engine.prompt(ids, &mut logits))?,
                _ => match engine.device_logits(ids.len()) {
                    Some(device) => refused("a score", device.score(ids))?,
                    None => continue,
                },
            }
            self.length(clause, at, &engine)?;
            self.goes_on(clause, at, &mut engine)?;
        }
        Ok(())
    }
}

fn done(clause: Clause, result: Result<(), ModelError>) -> Result<(), Broken> {
    result.map_err(|error| Broken::Failed {
        clause,
        message: error.to_string(),
    })
}

/// The lowest column of the largest logit; `None` for a row with NaN or `+inf`, or with only
/// `-inf`.
fn largest(row: &[f32]) -> Option<u32> {
    if row.iter().any(|x| x.is_nan() || *x == f32::INFINITY) {
        return None;
    }
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let column = row.iter().position(|x| *x == largest)?;
    (largest > f32::NEG_INFINITY).then_some(column as u32)
}
