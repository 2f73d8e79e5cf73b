//! What an arm looks up, and what that has been worth.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use adaptive_draft::{CopyOrDraft, CopyRecord, Costs};
use anyhow::{Context, Result, bail};
use experiment::{DecodeConfig, DraftSource, Lookup};
use spec_decode::{CopySource, DraftPolicy, History, SharedCorpus, SuffixCorpus, SuffixLookup};
use vocab_align::TargetId;

/// Its file inside an arm's state.
const FILE: &str = "lookup.txt";
/// How the files of texts with an automaton begin; the fingerprint of a vocabulary goes on.
const TEXTS: &str = "texts-";
/// Tokens of earlier prompts and answers that are remembered.
const KEPT: usize = 1 << 14;

/// The looking up half of an arm's state.
#[derive(Default)]
pub(super) struct Lookups {
    record: CopyRecord,
    /// By fingerprint of the target's vocabulary.
    histories: BTreeMap<u64, History>,
    /// The same, of texts with an automaton.
    corpora: BTreeMap<u64, SharedCorpus<TargetId>>,
}

impl Lookups {
    /// What a response looks text up in; `None` where the arm looks up nothing.
    pub(super) fn source(&mut self, decode: &DecodeConfig, vocabulary: u64) -> Option<CopySource> {
        match decode.lookup {
            Lookup::Off => None,
            Lookup::Prompt => Some(History::new(0).into()),
            Lookup::Stream => Some(match self.histories.get(&vocabulary) {
                Some(history) => history.clone().into(),
                None => History::new(KEPT).into(),
            }),
            Lookup::Automaton => {
                let empty = || Arc::new(Mutex::new(SuffixCorpus::new(bytes_of(decode))));
                let corpus = self.corpora.entry(vocabulary).or_insert_with(empty);
                Some(SuffixLookup::new(Some(Arc::clone(corpus))).into())
            }
        }
    }

    /// Keeps the text of a streamed answer.
    pub(super) fn keep(&mut self, lookup: Lookup, vocabulary: u64, source: Option<CopySource>) {
        match source {
            Some(CopySource::Latest(history)) if lookup == Lookup::Stream => {
                self.histories.insert(vocabulary, history);
            }
            Some(CopySource::Frequent(lookup)) => lookup.absorb(),
            _ => {}
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
        let explore = (decode.explore > 0).then_some(decode.explore);
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
            explore,
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
        for (vocabulary, corpus) in &self.corpora {
            let corpus = corpus.lock().unwrap_or_else(PoisonError::into_inner);
            let path = folder.join(format!("{TEXTS}{vocabulary:016x}.bin"));
            corpus.save(path, *vocabulary)?;
        }
        let path = folder.join(FILE);
        let part = path.with_extension("part");
        std::fs::write(&part, text)
            .and_then(|()| std::fs::rename(&part, &path))
            .with_context(|| path.display().to_string())
    }

    /// What [`save`](Self::save) wrote; nothing where it wrote nothing.
    pub(super) fn load(folder: &Path, decode: &DecodeConfig) -> Result<Self> {
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
        lookups.load_corpora(folder, decode)?;
        Ok(lookups)
    }

    fn load_corpora(&mut self, folder: &Path, decode: &DecodeConfig) -> Result<()> {
        let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let name = entry?.file_name().to_string_lossy().into_owned();
            let digits = name
                .strip_prefix(TEXTS)
                .and_then(|n| n.strip_suffix(".bin"));
            let vocabulary = digits.and_then(|digits| u64::from_str_radix(digits, 16).ok());
            if let Some(vocabulary) = vocabulary {
                let corpus = SuffixCorpus::load(folder.join(name), bytes_of(decode), vocabulary)?;
                let corpus = Arc::new(Mutex::new(corpus));
                self.corpora.insert(vocabulary, corpus);
            }
        }
        Ok(())
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

/// Most bytes of the texts of a vocabulary.
fn bytes_of(decode: &DecodeConfig) -> usize {
    decode.lookup_mb << 20
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(lookup: Lookup) -> DecodeConfig {
        DecodeConfig {
            lookup,
            ..DecodeConfig::default()
        }
    }

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
            ..Lookups::default()
        };
        lookups.save(folder.path()).unwrap();
        let mut loaded = Lookups::load(folder.path(), &decode(Lookup::Off)).unwrap();
        assert_eq!(loaded.record, record);
        let mut history = loaded.source(&decode(Lookup::Stream), 7).unwrap();
        history.start(&[9, 1].map(TargetId));
        assert_eq!(history.find(5).unwrap().tokens, [2, 3].map(TargetId));
        let mut own = loaded.source(&decode(Lookup::Prompt), 7).unwrap();
        own.start(&[9, 1].map(TargetId));
        assert!(own.find(5).is_none());
        assert!(loaded.source(&decode(Lookup::Off), 7).is_none());

        let automaton = decode(Lookup::Automaton);
        let mut source = loaded.source(&automaton, 7).unwrap();
        source.start(&[1, 2, 3].map(TargetId));
        loaded.keep(Lookup::Automaton, 7, Some(source));
        loaded.save(folder.path()).unwrap();
        let mut loaded = Lookups::load(folder.path(), &automaton).unwrap();
        let mut source = loaded.source(&automaton, 7).unwrap();
        source.start(&[9, 1].map(TargetId));
        assert_eq!(source.find(5).unwrap().tokens, [2, 3].map(TargetId));

        std::fs::write(folder.path().join(FILE), "worth 1 2 3\n").unwrap();
        let error = Lookups::load(folder.path(), &automaton);
        let error = error.err().unwrap().to_string();
        assert!(error.ends_with("lookup.txt:1: not a line of it"), "{error}");
    }
}
