//! What an arm looks up, and what that has been worth.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use adaptive_draft::{CopyOrDraft, CopyRecord, Costs};
use anyhow::{Context, Result, bail};
use experiment::{DecodeConfig, DraftSource, EXPLORE, Lookup};
use spec_decode::{DraftPolicy, History};

/// Its file inside an arm's state.
const FILE: &str = "lookup.txt";
/// Tokens of earlier prompts and answers that are remembered.
const KEPT: usize = 1 << 14;

/// The looking up half of an arm's state.
#[derive(Default)]
pub(super) struct Lookups {
    record: CopyRecord,
    /// By fingerprint of the target's vocabulary.
    histories: BTreeMap<u64, History>,
}

impl Lookups {
    /// What a response looks text up in; `None` where the arm looks up nothing.
    pub(super) fn history(&self, lookup: Lookup, vocabulary: u64) -> Option<History> {
        match lookup {
            Lookup::Off => None,
            Lookup::Prompt => Some(History::new(0)),
            Lookup::Stream => Some(match self.histories.get(&vocabulary) {
                Some(history) => history.clone(),
                None => History::new(KEPT),
            }),
        }
    }

    /// Keeps a history with a streamed answer in it.
    pub(super) fn keep(&mut self, lookup: Lookup, vocabulary: u64, history: Option<History>) {
        if let Some(history) = history.filter(|_| lookup == Lookup::Stream) {
            self.histories.insert(vocabulary, history);
        }
    }

    /// `policy` with looked-up text in front of its drafts or in their place; of an arm without a
    /// drafter, looked-up text alone.
    pub(super) fn policy<'a>(
        &'a mut self,
        decode: &DecodeConfig,
        costs: Costs,
        streamed: bool,
        policy: Box<dyn DraftPolicy + 'a>,
    ) -> Box<dyn DraftPolicy + 'a> {
        if decode.lookup == Lookup::Off {
            return policy;
        }
        let longest = match decode.draft {
            DraftSource::Model => decode.longest(),
            DraftSource::PromptLookup => 0,
        };
        Box::new(CopyOrDraft::new(
            policy,
            &mut self.record,
            costs,
            longest,
            streamed,
            Some(EXPLORE),
        ))
    }

    /// Writes what was learnt, if anything was.
    pub(super) fn save(&self, folder: &Path) -> Result<()> {
        if self.record == CopyRecord::default() {
            return Ok(());
        }
        let mut text = "worth".to_owned();
        for number in self.record.numbers() {
            // Display of an f64 reads back to the same bits.
            let _ = write!(text, " {number}");
        }
        text.push('\n');
        for (vocabulary, history) in &self.histories {
            let _ = write!(text, "{vocabulary:016x}");
            for token in history.raw() {
                let _ = write!(text, " {token}");
            }
            text.push('\n');
        }
        std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
        let path = folder.join(FILE);
        let part = path.with_extension("part");
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| path.display().to_string())
    }

    /// What [`save`](Self::save) wrote; nothing where it wrote nothing.
    pub(super) fn load(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        if !path.is_file() {
            return Ok(Self::default());
        }
        let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let mut lookups = Self::default();
        for (number, line) in text.lines().enumerate() {
            if lookups.read(line).is_none() {
                bail!("{}:{}: not a line of it", path.display(), number + 1);
            }
        }
        Ok(lookups)
    }

    fn read(&mut self, line: &str) -> Option<()> {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        let words = rest.split_ascii_whitespace();
        if name == "worth" {
            let numbers: Option<Vec<f64>> = words.map(|word| word.parse().ok()).collect();
            self.record = CopyRecord::from_numbers(&numbers?)?;
            return Some(());
        }
        let vocabulary = u64::from_str_radix(name, 16).ok()?;
        let tokens: Option<Vec<u32>> = words.map(|word| word.parse().ok()).collect();
        let history = History::from_raw(&tokens?, KEPT);
        self.histories.insert(vocabulary, history);
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vocab_align::TargetId;

    #[test]
    fn histories_survive_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let mut history = History::new(KEPT);
        history.start(&[1, 2, 3].map(TargetId));
        let record = CopyRecord::from_numbers(&vec![1.5; CopyRecord::default().numbers().len()])
            .expect("its numbers");
        let lookups = Lookups {
            record: record.clone(),
            histories: BTreeMap::from([(7, history)]),
        };
        lookups.save(folder.path()).unwrap();
        let loaded = Lookups::load(folder.path()).unwrap();
        assert_eq!(loaded.record, record);
        let mut history = loaded.history(Lookup::Stream, 7).unwrap();
        history.start(&[9, 1].map(TargetId));
        assert_eq!(history.find(5).unwrap().tokens, [2, 3].map(TargetId));
        let mut own = loaded.history(Lookup::Prompt, 7).unwrap();
        own.start(&[9, 1].map(TargetId));
        assert!(own.find(5).is_none());
        assert!(loaded.history(Lookup::Off, 7).is_none());

        std::fs::write(folder.path().join(FILE), "worth 1 2 3\n").unwrap();
        let error = Lookups::load(folder.path()).err().unwrap().to_string();
        assert!(error.ends_with("lookup.txt:1: not a line of it"), "{error}");
    }
}
