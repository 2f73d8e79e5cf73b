//! Four small streams written by this project, embedded so that everything runs without the public datasets.
//!
//! Each imitates the *form* of a task of the paper, not its text: word problems with calculator annotations
//! (GSM8K), Python tasks with three asserts (MBPP), instructions with optional input (Alpaca) and news articles to be
//! summarised in a sentence (XSum). Every prompt is drawn by a seeded generator from many templates; a draw that shares
//! too many word pairs with an earlier one is thrown away. The files under `datasets/` are the output for
//! [`MINI_SEED`]; a test regenerates them and demands equal bytes.

mod chat;
mod chat_data;
mod chat_tasks;
mod code;
mod code_lists;
mod code_numbers;
mod code_text;
mod math;
mod math_chain;
mod math_more;
mod news;
mod news_events;
mod words;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use streams::{MiniTask, Prompt, Split, StreamRng};

/// The seed of the committed streams.
pub const MINI_SEED: u64 = 2025;

/// Training prompts of each mini stream.
pub const MINI_TRAIN: usize = 400;

/// Test prompts of each mini stream.
pub const MINI_TEST: usize = 60;

/// Two prompts of a stream share at most this part of their distinct word pairs (Jaccard index of word bigrams).
pub const MAX_SIMILARITY: f64 = 0.7;

/// Draws per wanted prompt before a generator is said to be exhausted.
const DRAWS_PER_PROMPT: usize = 60;

/// What a generator draws: a prompt and its reference.
type Draft = (String, String);

/// Draws the stream afresh: training prompts, then test prompts, all different.
///
/// # Errors
/// [`MiniError::MiniExhausted`] for a seed under which too few different prompts come up.
pub fn generate(task: MiniTask, seed: u64) -> Result<(Vec<Prompt>, Vec<Prompt>), MiniError> {
    let mut rng = StreamRng::new(seed, task.name());
    let wanted = MINI_TRAIN + MINI_TEST;
    let mut distinct = Distinct::default();
    let mut skeletons = HashMap::new();
    let mut drafts: Vec<Draft> = Vec::with_capacity(wanted);
    for _ in 0..wanted * DRAWS_PER_PROMPT {
        if drafts.len() == wanted {
            break;
        }
        let draft = draw(task, &mut rng);
        if has_room(task, &draft, &mut skeletons) && distinct.admit(&draft.0) {
            drafts.push(draft);
        }
    }
    if drafts.len() < wanted {
        return Err(MiniError::MiniExhausted {
            stream: task.name(),
            seed,
            found: drafts.len(),
            wanted,
        });
    }
    // What is accepted late is biased towards the roomier templates: mix before cutting off the test prompts.
    rng.shuffle(&mut drafts);
    let test = drafts.split_off(MINI_TRAIN);
    Ok((
        number(task, drafts, Split::Train),
        number(task, test, Split::Test),
    ))
}

fn draw(task: MiniTask, rng: &mut StreamRng) -> Draft {
    match task {
        MiniTask::Math => math::draw(rng),
        MiniTask::Code => code::draw(rng),
        MiniTask::Chat => chat::draw(rng),
        MiniTask::News => news::draw(rng),
    }
}

/// Whether the draft's request was seen less than twice, numbers aside. Only code needs this: there most word pairs
/// of a prompt are random test values, under which one and the same request would look new again and again.
fn has_room(task: MiniTask, draft: &Draft, seen: &mut HashMap<String, usize>) -> bool {
    if task != MiniTask::Code {
        return true;
    }
    let request = draft.0.lines().next().unwrap_or_default();
    let skeleton: String = request.chars().filter(|c| !c.is_ascii_digit()).collect();
    let count = seen.entry(skeleton).or_default();
    *count += 1;
    *count <= 2
}

fn number(task: MiniTask, drafts: Vec<Draft>, split: Split) -> Vec<Prompt> {
    let record = |(index, (prompt, reference)): (usize, Draft)| Prompt {
        id: format!("{}-{}-{index:04}", task.name(), split.name()),
        task: task.name().to_owned(),
        prompt,
        reference,
    };
    drafts.into_iter().enumerate().map(record).collect()
}

/// Word-bigram sets of the prompts admitted so far.
#[derive(Default)]
struct Distinct {
    ids: HashMap<(String, String), u32>,
    admitted: Vec<Vec<u32>>,
}

impl Distinct {
    /// Admits a prompt unless it is too similar to an admitted one.
    fn admit(&mut self, prompt: &str) -> bool {
        let lower = prompt.to_lowercase();
        let words: Vec<&str> = lower
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
            .collect();
        let mut set = Vec::with_capacity(words.len());
        for pair in words.windows(2) {
            let next = self.ids.len() as u32;
            set.push(
                *self
                    .ids
                    .entry((pair[0].to_owned(), pair[1].to_owned()))
                    .or_insert(next),
            );
        }
        set.sort_unstable();
        set.dedup();
        if self
            .admitted
            .iter()
            .any(|other| jaccard(&set, other) > MAX_SIMILARITY)
        {
            return false;
        }
        self.admitted.push(set);
        true
    }
}

/// Jaccard index of two ascending sets.
fn jaccard(a: &[u32], b: &[u32]) -> f64 {
    let (mut i, mut j, mut shared) = (0, 0, 0usize);
    while i < a.len() && j < b.len() {
        match a[i].cmp(&b[j]) {
            std::cmp::Ordering::Less => i += 1,
            std::cmp::Ordering::Greater => j += 1,
            std::cmp::Ordering::Equal => {
                shared += 1;
                i += 1;
                j += 1;
            }
        }
    }
    let union = a.len() + b.len() - shared;
    if union == 0 {
        1.0
    } else {
        shared as f64 / union as f64
    }
}

/// The JSON lines of a split, as they are committed: `id`, `prompt`, `reference`.
///
/// # Errors
/// None in practice: the record is three strings.
pub fn to_jsonl(prompts: &[Prompt]) -> Result<String, serde_json::Error> {
    #[derive(serde::Serialize)]
    struct Line<'a> {
        id: &'a str,
        prompt: &'a str,
        reference: &'a str,
    }
    let mut out = String::new();
    for p in prompts {
        out.push_str(&serde_json::to_string(&Line {
            id: &p.id,
            prompt: &p.prompt,
            reference: &p.reference,
        })?);
        out.push('\n');
    }
    Ok(out)
}

/// Writes the four streams under `dir` as `mini-math/train.jsonl` and so on, replacing what is there; returns the files.
///
/// # Errors
/// [`MiniError::MiniExhausted`], or a folder or file that cannot be written.
pub fn write_mini(dir: &Path, seed: u64) -> Result<Vec<PathBuf>, MiniError> {
    let mut written = Vec::new();
    for task in MiniTask::ALL {
        let folder = dir.join(task.name());
        let write_error = |path: &Path, source| MiniError::Write {
            path: path.to_owned(),
            source,
        };
        let (train, test) = generate(task, seed)?;
        std::fs::create_dir_all(&folder).map_err(|e| write_error(&folder, e))?;
        for (split, prompts) in [(Split::Train, train), (Split::Test, test)] {
            let path = folder.join(format!("{}.jsonl", split.name()));
            let text = to_jsonl(&prompts).map_err(|e| write_error(&path, e.into()))?;
            std::fs::write(&path, text).map_err(|e| write_error(&path, e))?;
            written.push(path);
        }
    }
    Ok(written)
}

/// What can go wrong while streams are drawn and written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MiniError {
    /// Too few different prompts come up under a seed.
    #[error("stream {stream}, seed {seed}: only {found} of {wanted} different prompts came up")]
    MiniExhausted {
        /// The stream.
        stream: &'static str,
        /// The seed.
        seed: u64,
        /// Different prompts drawn.
        found: usize,
        /// Prompts wanted.
        wanted: usize,
    },
    /// A folder or file cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
}
