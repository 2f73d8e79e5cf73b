//! A recorded target, which implements the trait of decoding engines.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use lm::{DeviceLogits, LanguageModel, LmError, ModelError, check_call};
use rustc_hash::FxHashMap;

use crate::{Record, Source, TraceError, TraceFile, TraceInfo};

/// The traces of one target. Rows are found by their prompts.
pub struct Traces {
    files: Vec<TraceFile>,
    /// File and row of every prompt, by its tokens.
    prompts: FxHashMap<Vec<u32>, (usize, usize)>,
    /// Lengths of the prompts, in tokens.
    lengths: BTreeSet<usize>,
}

impl Traces {
    /// Opens the files of a target, one or several. If two rows have the same prompt, the first one
    /// is used.
    ///
    /// # Errors
    /// Those of [`TraceFile::open`]; files of different targets.
    pub fn open(paths: &[PathBuf]) -> Result<Self, TraceError> {
        let mut traces = Self {
            files: Vec::new(),
            prompts: FxHashMap::default(),
            lengths: BTreeSet::new(),
        };
        for path in paths {
            let file = TraceFile::open(path)?;
            if let Some(first) = traces.files.first() {
                same_target(first, &file)?;
            }
            for (row, entry) in file.entries().iter().enumerate() {
                traces.lengths.insert(entry.prompt_ids.len());
                let place = (traces.files.len(), row);
                traces
                    .prompts
                    .entry(entry.prompt_ids.clone())
                    .or_insert(place);
            }
            traces.files.push(file);
        }
        Ok(traces)
    }

    /// Path and metadata of every file, in the order in which they were opened.
    pub fn infos(&self) -> impl Iterator<Item = (&Path, &TraceInfo)> {
        self.files.iter().map(|file| (file.path(), file.info()))
    }

    /// Tokens that end an answer, the same for all files.
    pub fn stop(&self) -> &[u32] {
        self.files.first().map_or(&[], |file| &file.info().stop)
    }

    /// Vocabulary size: number of rows of the target's head.
    pub fn vocab_size(&self) -> usize {
        self.files.first().map_or(0, |file| file.info().vocab_size)
    }

    /// Checks that all files were recorded with this tokenizer and that their answers may have
    /// `max_tokens` tokens.
    ///
    /// # Errors
    /// [`TraceError::Tokenizer`], [`TraceError::AnswerLimit`].
    pub fn check(
        &self,
        tokenizer: &Path,
        sha256: &str,
        max_tokens: usize,
    ) -> Result<(), TraceError> {
        for (path, info) in self.infos() {
            if info.tokenizer_sha256 != sha256 {
                return Err(TraceError::Tokenizer {
                    path: path.to_owned(),
                    expected: short(&info.tokenizer_sha256),
                    tokenizer: tokenizer.to_owned(),
                    found: short(sha256),
                });
            }
            if max_tokens > info.max_tokens {
                return Err(TraceError::AnswerLimit {
                    path: path.to_owned(),
                    recorded: info.max_tokens,
                    asked: max_tokens,
                });
            }
        }
        Ok(())
    }

    /// File and row of the longest recorded prompt that `context` begins with and that has more
    /// than `beyond` tokens.
    fn find(&self, context: &[u32], beyond: usize) -> Option<(usize, usize)> {
        let lengths = self.lengths.range(beyond + 1..context.len() + 1);
        lengths
            .rev()
            .find_map(|length| self.prompts.get(&context[..*length]).copied())
    }

    /// Name of the traces in messages: the first file, and the number of others.
    pub fn name(&self) -> String {
        let first = self.files.first();
        let first = first.map_or_else(String::new, |file| file.path().display().to_string());
        match self.files.len().saturating_sub(1) {
            0 => first,
            more => format!("{first} and {more} more"),
        }
    }

    fn unknown(&self, tokens: usize) -> TraceError {
        let files = self.name();
        TraceError::UnknownPrompt { files, tokens }
    }
}

/// The error of an engine that has no recorded answer.
fn failed(error: TraceError) -> ModelError {
    LmError::engine("trace", error).into()
}

/// The first 12 digits of a hash, enough to distinguish two of them.
fn short(sha256: &str) -> String {
    sha256.chars().take(12).collect()
}

fn same_target(first: &TraceFile, file: &TraceFile) -> Result<(), TraceError> {
    let (a, b) = (first.info(), file.info());
    let parts = [
        ("tokenizer", a.tokenizer_sha256 == b.tokenizer_sha256),
        ("vocabulary size", a.vocab_size == b.vocab_size),
        ("template", a.template == b.template),
        ("set of stop tokens", a.stop == b.stop),
        (
            "length of prompts",
            a.max_prompt_tokens == b.max_prompt_tokens,
        ),
        ("target", a.source == b.source || is_text(a) && is_text(b)),
    ];
    match parts.into_iter().find(|(_, same)| !same) {
        None => Ok(()),
        Some((what, _)) => Err(TraceError::Mixed {
            path: file.path().to_owned(),
            other: first.path().to_owned(),
            what,
        }),
    }
}

/// True for reference text, whose settings may differ from file to file; models must be the same.
fn is_text(info: &TraceInfo) -> bool {
    matches!(info.source, Source::ReferenceText { .. })
}

/// A recorded target. It finds the recorded prompt that the context begins with, and returns the
/// recorded rows as long as the context continues as the recorded answer does.
///
/// # Rows off the path
/// A forward over a draft asks for rows after tokens that the target never emits. Verification
/// stops at the first such token and must not read further. Those rows are filled with NaN, so that
/// reading one is an error and never a guess.
///
/// # Rows that are never read
/// Most rows are read only for their best token, which the record holds directly. Such rows are not
/// built ([`LanguageModel::device_logits`]), because a row is as wide as the vocabulary and only a
/// few of its tokens are recorded.
pub struct TraceEngine {
    traces: Traces,
    max_len: usize,
    fed: Vec<u32>,
    current: Option<Current>,
    /// Recorded places of the rows of the last forward; `None` off the path.
    scored: Vec<Option<Recorded>>,
}

/// File and row of a prompt.
type Place = (usize, usize);

/// The record at hand, unpacked.
struct Current {
    place: Place,
    record: Record,
}

/// Place of a recorded row, and the token with its largest logit.
#[derive(Clone, Copy)]
struct Recorded {
    place: Place,
    position: usize,
    best: u32,
}

impl TraceEngine {
    /// An engine that replays `traces`, for contexts of up to `max_len` tokens.
    pub fn new(traces: Traces, max_len: usize) -> Self {
        Self {
            traces,
            max_len,
            fed: Vec::new(),
            current: None,
            scored: Vec::new(),
        }
    }

    /// Finds the recorded row that follows the first `len` tokens and makes its record current.
    /// `None` if the context begins with a recorded prompt but leaves its path.
    fn locate(&mut self, len: usize) -> Result<Option<Recorded>, TraceError> {
        let context = &self.fed[..len];
        let mut beyond = 0;
        if let Some(current) = &self.current {
            let prompt = &current.record.prompt_ids;
            if context.starts_with(prompt) {
                beyond = prompt.len();
                if let Some(recorded) = current.recorded(context) {
                    return Ok(Some(recorded));
                }
            }
        }
        // A longer prompt may begin with this one and its answer.
        let Some(place) = self.traces.find(context, beyond) else {
            return match beyond {
                0 => Err(self.traces.unknown(len)),
                _ => Ok(None),
            };
        };
        self.load(place)?;
        let current = self.current.as_ref();
        Ok(current.and_then(|current| current.recorded(&self.fed[..len])))
    }

    /// Makes the record at `place` current.
    fn load(&mut self, place: Place) -> Result<&Record, TraceError> {
        let current = match self.current.take() {
            Some(current) if current.place == place => current,
            _ => {
                let record = self.traces.files[place.0].record(place.1)?;
                Current { place, record }
            }
        };
        Ok(&self.current.insert(current).record)
    }

    /// Appends tokens to the context and finds the recorded places of their rows.
    fn feed(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        let before = self.fed.len();
        check_call(ids, before, self.max_len, self.vocab_size())?;
        self.fed.extend_from_slice(ids);
        self.scored.clear();
        for len in before + 1..=self.fed.len() {
            let recorded = match self.locate(len) {
                Ok(recorded) => recorded,
                // Rows within a prompt are never verified, but the row after the last token will
                // be.
                Err(TraceError::UnknownPrompt { .. }) if len < self.fed.len() => None,
                Err(error) => {
                    self.fed.truncate(before);
                    self.scored.clear();
                    return Err(failed(error));
                }
            };
            self.scored.push(recorded);
        }
        Ok(())
    }

    /// Writes rows of the last forward, `[rows, vocab]`.
    fn write(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        let vocab = self.vocab_size();
        logits.resize(rows.len() * vocab, 0.0);
        for (row, index) in logits.chunks_exact_mut(vocab).zip(rows) {
            match self.scored.get(index).copied() {
                Some(Some(at)) => {
                    let record = self.load(at.place).map_err(failed)?;
                    record.law.write_row(at.position, row);
                }
                Some(None) => row.fill(f32::NAN),
                None => return Err(failed(TraceError::NotScored(index))),
            }
        }
        Ok(())
    }
}

impl Current {
    /// Place of the row after `context`; `None` if it does not begin with the record's prompt or
    /// leaves the path.
    fn recorded(&self, context: &[u32]) -> Option<Recorded> {
        let Self { place, record } = self;
        let behind = context.strip_prefix(&record.prompt_ids[..])?;
        let mut path = record.path();
        let on = behind.iter().all(|id| path.next() == Some(*id));
        // The path is the target's greedy one, so its next token is the best one.
        let best = path.next().filter(|_| on)?;
        Some(Recorded {
            place: *place,
            position: behind.len(),
            best,
        })
    }
}

impl LanguageModel for TraceEngine {
    fn vocab_size(&self) -> usize {
        self.traces.vocab_size()
    }

    fn len(&self) -> usize {
        self.fed.len()
    }

    fn max_len(&self) -> usize {
        self.max_len
    }

    fn truncate(&mut self, len: usize) {
        self.fed.truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.feed(ids)?;
        self.write(0..ids.len(), logits)
    }

    fn prefill(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        check_call(ids, self.fed.len(), self.max_len, self.vocab_size())?;
        self.fed.extend_from_slice(ids);
        self.scored.clear();
        Ok(())
    }

    fn device_logits(&mut self, _tokens: usize) -> Option<&mut dyn DeviceLogits> {
        Some(self)
    }
}

impl DeviceLogits for TraceEngine {
    fn score(&mut self, ids: &[u32]) -> Result<(), ModelError> {
        self.feed(ids)
    }

    fn best(&mut self, columns: &mut Vec<Option<u32>>) -> Result<(), ModelError> {
        columns.clear();
        columns.extend(self.scored.iter().map(|at| at.map(|at| at.best)));
        Ok(())
    }

    fn rows(&mut self, rows: Range<usize>, logits: &mut Vec<f32>) -> Result<(), ModelError> {
        self.write(rows, logits)
    }
}
