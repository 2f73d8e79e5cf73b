//! Knowledge of an arm, and its one layout on disk: of an arm of a job, of a server, of a chat.
//!
//! ```text
//! STATE/lock                                     held by the program that writes
//! STATE/current                                  name of the current generation
//! STATE/generation-7/state.json                  drafter, and all that is small
//! STATE/generation-7/ngrams-DRAFTER-TARGET.bin   n-gram caches, by names of vocabularies
//! STATE/generation-7/texts-VOCABULARY-USER.bin   texts to copy from; without a user: for all
//! STATE/generation-7/heads/NAME/                 acceptance heads with their training
//! STATE/generation-7/learnt/NAME/                weights or an adapter, optimiser, running mean
//! ```
//!
//! NAME says for which target, task or user. A generation is written whole and synced before
//! `current` names it, so that `current` names a whole generation whenever the program ends.
//! Examples to replay are not kept. A job has a state for each of its arms.

mod folder;
mod names;
pub(crate) mod part;
mod saved;
pub(crate) mod weights;

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adaptive_draft::{Chain, Controller, CopyRecord, MeasuredCosts};
use ngram_cache::{CacheConfig, NgramCache};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use spec_decode::{History, Pair, SharedCorpus, SuffixCorpus, Totals};
use vocab_align::TargetId;

use crate::error::{Damage, OnlineError, Result};

pub use folder::{Generation, Names, StateFolder};
pub use names::file_name;
use part::FORMAT;
pub use part::LearntPart;
pub use saved::SavedState;

const META: &str = "state.json";
const HEADS: &str = "heads";
const HEAD: &str = "head.safetensors";
const LEARNT: &str = "learnt";

/// Knowledge of an arm, apart from weights and acceptance heads, which their trainers hold and
/// write beside it.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ArmState {
    /// N-gram caches by fingerprint of the target's vocabulary: targets of one family share them.
    #[serde(skip)]
    pub caches: BTreeMap<u64, NgramCache>,
    /// Texts to copy from, with an automaton, the least recently used first.
    #[serde(skip)]
    pub texts: Vec<Texts>,
    /// Latest texts to copy from, without an automaton, by fingerprint of the target's vocabulary.
    pub histories: BTreeMap<u64, History>,
    /// Records of copies and drafts by target: drafts that cost more than they save with one target
    /// may pay with another, whose steps take longer.
    pub copies: BTreeMap<String, CopyRecord>,
    /// Statistics of draft lengths, one for each score in use, by name of the head.
    pub chains: BTreeMap<String, Vec<Chain>>,
    /// Costs of rounds as measured, by target, if decisions follow them.
    #[serde(default)]
    pub costs: BTreeMap<String, MeasuredCosts>,
    /// Costs and savings, in seconds, if a controller decides.
    pub controller: Option<Controller>,
    /// Sums over answers with the drafter, by target.
    pub answers: BTreeMap<String, AnswerSums>,
}

/// The texts of one vocabulary and user.
#[derive(Clone)]
pub struct Texts {
    /// Fingerprint of the target's vocabulary.
    pub vocabulary: u64,
    /// Name of the user whose texts they are; `None` if they are shared.
    pub user: Option<String>,
    /// The texts.
    pub corpus: SharedCorpus<TargetId>,
}

impl Texts {
    /// No texts yet, for a limit of `bytes`.
    pub fn new(vocabulary: u64, user: Option<String>, bytes: usize) -> Self {
        Self {
            vocabulary,
            user,
            corpus: Arc::new(Mutex::new(SuffixCorpus::new(bytes))),
        }
    }

    /// The corpus; a text is added to it as a whole or not at all, even if its holder panics.
    pub fn locked(&self) -> MutexGuard<'_, SuffixCorpus<TargetId>> {
        self.corpus.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ArmState {
    /// Adds what `later` knows; where both know something, the later one counts.
    fn absorb(&mut self, later: &Self) {
        let Self {
            caches: _,
            texts: _,
            histories,
            copies,
            chains,
            costs,
            controller,
            answers,
        } = later.clone();
        self.histories.extend(histories);
        self.copies.extend(copies);
        self.chains.extend(chains);
        self.costs.extend(costs);
        self.answers.extend(answers);
        self.controller = controller.or(self.controller.take());
    }
}

/// Number of answers per point of the history of [`AnswerSums`].
pub const STRIDE: usize = 10;
/// Maximum number of points of the history.
const POINTS: usize = 500;

/// Sums over the answers with a drafter to one target.
#[derive(Debug, Default, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnswerSums {
    /// Number of answers.
    pub answers: u64,
    /// Rounds.
    pub rounds: u64,
    /// Tokens that were given.
    pub tokens: u64,
    /// Proposed tokens.
    pub proposed: u64,
    /// Proposed tokens that were accepted.
    pub accepted: u64,
    /// Accepted n-grams.
    pub ngrams: u64,
    /// Updates of the drafter.
    pub updates: u64,
    /// Training steps of its acceptance heads.
    pub head_steps: u64,
    /// Mean acceptance rate and mean tokens per round of every [`STRIDE`] answers; answers without
    /// proposals are left out.
    pub history: Vec<[f64; 2]>,
    /// Number and sums of the answers after the last point.
    open: (usize, f64, f64),
}

impl AnswerSums {
    /// Adds an answer of which `given` tokens were given.
    pub fn add(&mut self, totals: &Totals, given: usize) {
        for (sum, more) in [
            (&mut self.answers, 1),
            (&mut self.rounds, totals.rounds),
            (&mut self.tokens, given),
            (&mut self.proposed, totals.proposed),
            (&mut self.accepted, totals.accepted),
            (&mut self.ngrams, totals.ngrams_accepted),
        ] {
            // A state may hold any number.
            *sum = sum.saturating_add(more as u64);
        }
        if totals.proposing_rounds == 0 {
            return;
        }
        let (n, acceptance, length) = &mut self.open;
        *n += 1;
        *acceptance += totals.acceptance_rate();
        *length += totals.block_efficiency();
        if *n == STRIDE {
            let point = [*acceptance / STRIDE as f64, *length / STRIDE as f64];
            self.history.push(point);
            self.open = (0, 0.0, 0.0);
            if self.history.len() > POINTS {
                self.history.remove(0);
            }
        }
    }

    /// Mean acceptance rates of the first and of the last [`STRIDE`] answers that are kept; `None`
    /// if there are fewer than two points.
    pub fn acceptance(&self) -> Option<[f64; 2]> {
        match self.history.as_slice() {
            [[first, _], .., [last, _]] => Some([*first, *last]),
            _ => None,
        }
    }
}

/// The parts of a state that are read, and the drafter that reads them.
pub struct Wanted<'a> {
    /// Folder of the drafter.
    pub drafter: &'a Path,
    /// The part of it that learns; `None` if nothing learns.
    pub part: Option<LearntPart>,
    /// The drafter's pairs with its targets.
    pub pairs: &'a [&'a Pair],
    /// Settings of the n-gram caches.
    pub caches: CacheConfig,
    /// Maximum bytes of the texts of a vocabulary.
    pub text_bytes: usize,
    /// Selection of the texts that are read, by user; `None` stands for the shared ones.
    pub texts: fn(Option<&str>) -> bool,
}

/// Content of `state.json`.
#[derive(Clone, Serialize, Deserialize)]
struct Meta {
    format: u32,
    /// Fingerprint of the drafter's files.
    drafter: String,
    /// Folder of the drafter as it was given.
    drafter_path: PathBuf,
    part: LearntPart,
    /// The texts to copy from, the least recently used first.
    texts: Vec<TextsOf>,
    known: ArmState,
}

/// Texts to copy from, of which a file holds the tokens.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct TextsOf {
    vocabulary: u64,
    user: Option<String>,
}

impl From<&Texts> for TextsOf {
    fn from(texts: &Texts) -> Self {
        Self {
            vocabulary: texts.vocabulary,
            user: texts.user.clone(),
        }
    }
}

impl TextsOf {
    fn file(&self) -> String {
        let user = self
            .user
            .as_ref()
            .map(|user| format!("-{}", file_name(user)));
        format!(
            "texts-{:016x}{}.bin",
            self.vocabulary,
            user.unwrap_or_default()
        )
    }
}

impl Meta {
    /// Reads the description of the generation in `folder`.
    fn read(folder: &Path) -> Result<Self> {
        #[derive(Deserialize)]
        struct Version {
            #[serde(default)]
            format: u32,
        }
        let path = folder.join(META);
        let damaged = |fault: Damage| OnlineError::Damaged {
            path: path.clone(),
            fault,
        };
        let text = std::fs::read_to_string(&path).map_err(|error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::InvalidData => damaged(error.into()),
            _ => OnlineError::io(&path)(error),
        })?;
        let Version { format } = serde_json::from_str(&text).map_err(|e| damaged(e.into()))?;
        if format != FORMAT {
            return Err(OnlineError::OtherFormat { path, format });
        }
        let numbers = serde_json::from_str(&text).map_err(|e| damaged(e.into()))?;
        check_bounds(&numbers, &mut Vec::new()).map_err(&damaged)?;
        let meta: Self = serde_json::from_str(&text).map_err(|e| damaged(e.into()))?;
        match meta.part.blocks.max(meta.part.rank) {
            0..=MOST_LEARNT => Ok(meta),
            most => Err(damaged(Damage::OutOfBounds {
                key: "part".to_owned(),
                value: most as f64,
                limit: MOST_LEARNT as f64,
            })),
        }
    }
}

/// Largest number of blocks, and rank of adapters, that can have learnt: more than any model has.
const MOST_LEARNT: usize = 1 << 16;
/// Largest magnitude of a number in a description.
// Seconds and counts stay far below it. The limit keeps sums of squares finite: other numbers are
// written as null, which cannot be read.
const LIMIT: f64 = 1e100;

/// Checks each number of `value`, to which the names `keys` lead.
fn check_bounds(value: &Value, keys: &mut Vec<String>) -> Result<(), Damage> {
    let mut inside = |key: String, value| {
        keys.push(key);
        check_bounds(value, keys)?;
        keys.pop();
        Ok(())
    };
    match value {
        Value::Array(values) => (0..)
            .zip(values)
            .try_for_each(|(i, v)| inside(format!("{i}"), v)),
        Value::Object(values) => values
            .iter()
            .try_for_each(|(key, v)| inside(key.clone(), v)),
        Value::Number(number) => match number.as_f64() {
            Some(number) if number.abs() <= LIMIT => Ok(()),
            number => Err(Damage::OutOfBounds {
                key: keys.join("."),
                value: number.unwrap_or(f64::INFINITY),
                limit: LIMIT,
            }),
        },
        Value::Null | Value::Bool(_) | Value::String(_) => Ok(()),
    }
}
