//! The trace writer, with a progress bar.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Instant;

use ::trace::{Record, TraceInfo, TraceWriter};
use anyhow::Result;
use indicatif::{HumanBytes, ProgressBar};

use crate::cli::{bar, print};

/// A trace that is being written, with a progress bar on stderr.
pub(super) struct Recording {
    writer: TraceWriter,
    bar: ProgressBar,
    began: Instant,
    /// Number of tokens that an earlier call recorded.
    before: u64,
    /// Number of prompts left out because another one has the same tokens.
    doubles: usize,
    /// Tokens of the prompts whose records are expected.
    awaited: BTreeSet<Vec<u32>>,
    /// Number of prompts that this call may still begin.
    left: usize,
}

impl Recording {
    /// Begins or continues the file `out`; stops after `most` prompts.
    pub(super) fn open(
        out: &std::path::Path,
        info: &TraceInfo,
        prompts: usize,
        most: Option<usize>,
        progress: bool,
    ) -> Result<Self> {
        let writer = TraceWriter::open(out, info)?;
        if !writer.is_empty() {
            eprintln!("{}: goes on after {} prompts", out.display(), writer.len());
        }
        Ok(Self {
            before: writer.tokens(),
            bar: bar(prompts, "prompts", progress),
            writer,
            began: Instant::now(),
            doubles: 0,
            awaited: BTreeSet::new(),
            left: most.unwrap_or(usize::MAX),
        })
    }

    /// True if this prompt is still to be recorded; it is then expected. A prompt whose tokens are
    /// known under another id is counted and left out, since a target has one answer to it.
    pub(super) fn wants(&mut self, id: &str, prompt_ids: &[u32]) -> bool {
        let known = self.writer.has_id(id);
        let double = self.awaited.contains(prompt_ids) || self.writer.has_prompt(prompt_ids);
        if !known && double {
            self.doubles += 1;
        } else if !known {
            self.awaited.insert(prompt_ids.to_vec());
            self.left -= 1;
            return true;
        }
        self.bar.inc(1);
        false
    }

    /// True if this call may begin no further prompt.
    pub(super) fn is_full(&self) -> bool {
        self.left == 0
    }

    pub(super) fn push(&mut self, record: &Record) -> Result<()> {
        self.writer.push(record)?;
        self.awaited.remove(&record.prompt_ids);
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = (self.writer.tokens() - self.before) as f64 / seconds.max(1e-9);
        let size = HumanBytes(self.writer.bytes());
        self.bar.set_message(format!("{rate:.0} tokens/s, {size}"));
        self.bar.inc(1);
        Ok(())
    }

    /// Completes the file and prints a description. If the recording was stopped, its partial file
    /// stays.
    pub(super) fn finish(self) -> Result<()> {
        self.bar.finish_and_clear();
        let (prompts, tokens) = (self.writer.len(), self.writer.tokens());
        let seconds = self.began.elapsed().as_secs_f64();
        if self.doubles > 0 {
            let doubles = self.doubles;
            eprintln!("{doubles} prompts have the tokens of another one and are left out");
        }
        if self.is_full() {
            eprintln!("stopped after {prompts} prompts; call again to go on");
            return Ok(());
        }
        let path: PathBuf = self.writer.finish()?;
        let bytes = std::fs::metadata(&path)?.len();
        print(&format!(
            "{}: {prompts} prompts, {tokens} tokens, {} ({:.0} bytes a token), {seconds:.1} s\n",
            path.display(),
            HumanBytes(bytes),
            bytes as f64 / tokens.max(1) as f64
        ))
    }
}
