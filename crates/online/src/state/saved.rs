//! Read access to a state.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adaptive_draft::{HeadConfig, HeadTrainer};
use ngram_cache::NgramCache;
use spec_decode::{Pair, SuffixCorpus};

use super::names::{CACHES, cache_name, entries, fingerprint, named_folders};
use super::{ArmState, HEAD, HEADS, LEARNT, LearntPart, Meta, Texts, Wanted, file_name, folder};
use crate::error::{OnlineError, Result};

/// Hint before an error about texts to copy from.
const RAISE_LOOKUP: &str = "hint: raise --lookup-mb (decode.lookup_mb of a run)";

/// The content of a state's folder.
pub struct SavedState {
    pub(super) root: PathBuf,
    pub(super) number: u64,
    pub(super) generation: PathBuf,
    pub(super) meta: Meta,
}

impl SavedState {
    /// Opens a state folder; `None` if the folder holds no state.
    ///
    /// # Errors
    /// Files that cannot be read, or of another version.
    pub fn open(root: &Path) -> Result<Option<Self>> {
        let Some((number, generation)) = folder::current(root)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            meta: Meta::read(&generation)?,
            root: root.to_owned(),
            number,
            generation,
        }))
    }

    /// Folder of the state of an arm, in a job's state folder.
    pub fn folder_of(state: &Path, arm: &str) -> PathBuf {
        state.join(file_name(arm))
    }

    /// Opens the state of an arm, which must be there.
    ///
    /// # Errors
    /// As [`open`](Self::open); a folder without a state.
    pub fn of_arm(root: &Path) -> Result<Self> {
        Self::open(root)?.ok_or_else(|| OnlineError::NoState(root.to_owned()))
    }

    /// The states of all arms, in a job's state folder.
    ///
    /// # Errors
    /// As [`of_arm`](Self::of_arm).
    pub fn of_job(state: &Path) -> Result<Vec<Self>> {
        entries(state)?
            .iter()
            .map(|arm| Self::of_arm(arm))
            .collect()
    }

    /// Knowledge of the arm.
    pub fn known(&self) -> &ArmState {
        &self.meta.known
    }

    /// The trained part of the drafter.
    pub fn part(&self) -> LearntPart {
        self.meta.part
    }

    /// The drafter's folder as it was given.
    pub fn drafter(&self) -> &Path {
        &self.meta.drafter_path
    }

    /// Every file of the state, in the order of their names.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn files(&self) -> Result<Vec<PathBuf>> {
        let mut found = Vec::new();
        let mut folders = vec![self.generation.clone()];
        while let Some(folder) = folders.pop() {
            for path in entries(&folder)? {
                match path.is_dir() {
                    true => folders.push(path),
                    false => found.push(path),
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// Fails if the drafter that learnt is not the one in `folder`, or if another `part` of it
    /// learnt.
    ///
    /// # Errors
    /// Another drafter or part; a folder that cannot be read.
    pub fn check(&self, folder: &Path, part: Option<LearntPart>) -> Result<()> {
        if fingerprint(folder)? != self.meta.drafter {
            return Err(OnlineError::OtherDrafter {
                state: self.root.clone(),
                drafter: folder.to_owned(),
                learnt: self.drafter().to_owned(),
            });
        }
        let own = self.part();
        match part {
            Some(part) if part != own && !self.names()?.is_empty() => Err(OnlineError::OtherPart {
                state: self.root.clone(),
                learnt: own,
                wanted: part,
            }),
            _ => Ok(()),
        }
    }

    /// The names for which the drafter learnt: of targets, of their tasks or users. An empty name
    /// stands for all of them.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn names(&self) -> Result<Vec<String>> {
        let found = named_folders(&self.learnt())?;
        Ok(found.into_iter().map(|(name, _)| name).collect())
    }

    /// Folder of weights or adapters, which a [`Learner`](crate::Learner) reads.
    pub fn learnt(&self) -> PathBuf {
        self.generation.join(LEARNT)
    }

    /// The names of the acceptance heads.
    ///
    /// # Errors
    /// A folder that cannot be read.
    pub fn heads(&self) -> Result<Vec<String>> {
        let found = named_folders(&self.generation.join(HEADS))?;
        Ok(found.into_iter().map(|(name, _)| name).collect())
    }

    /// An acceptance head with its training; `None` if there is none of this name.
    ///
    /// # Errors
    /// A file that cannot be read, or of a drafter with another number of features.
    pub fn head(
        &self,
        name: &str,
        features: usize,
        config: HeadConfig,
        seed: u64,
    ) -> Result<Option<HeadTrainer>> {
        let path = self.generation.join(HEADS).join(file_name(name)).join(HEAD);
        if !path.is_file() {
            return Ok(None);
        }
        let trainer = HeadTrainer::load(&path, config, seed)?;
        if trainer.head().features() != features {
            return Err(OnlineError::OtherHead(path));
        }
        Ok(Some(trainer))
    }

    /// Reads what the arm knew into memory, as far as it is wanted.
    ///
    /// # Errors
    /// Another drafter or part; a damaged file; texts of too many bytes.
    pub fn load(&self, wanted: &Wanted<'_>) -> Result<ArmState> {
        self.check(wanted.drafter, wanted.part)?;
        let mut state = self.meta.known.clone();
        for pair in wanted.pairs {
            let path = self.generation.join(cache_name(pair));
            let vocabulary = pair.target.fingerprint();
            if state.caches.contains_key(&vocabulary) || !path.is_file() {
                continue;
            }
            let mut cache = NgramCache::load(&path)?;
            let checked = cache.check_bytes(&pair.draft, &pair.target);
            checked.map_err(OnlineError::at(path.display()))?;
            cache.reconfigure(wanted.caches);
            state.caches.insert(vocabulary, cache);
        }
        for of in &self.meta.texts {
            let mut pairs = wanted.pairs.iter();
            let known = pairs.any(|pair| pair.target.fingerprint() == of.vocabulary);
            if known && (wanted.texts)(of.user.as_deref()) {
                let path = self.generation.join(of.file());
                let corpus = SuffixCorpus::load(path, wanted.text_bytes, of.vocabulary);
                let corpus = corpus.map_err(OnlineError::at(RAISE_LOOKUP))?;
                state.texts.push(Texts {
                    vocabulary: of.vocabulary,
                    user: of.user.clone(),
                    corpus: Arc::new(Mutex::new(corpus)),
                });
            }
        }
        Ok(state)
    }

    /// Fails if these pairs lack n-grams while there are some between other vocabularies: one of
    /// the tokenizers has changed, and what was learnt with it would be lost silently. N-grams of
    /// targets that are not among the pairs are no fault, if all pairs have theirs.
    ///
    /// # Errors
    /// Such n-grams.
    pub fn check_caches(&self, pairs: &[&Pair]) -> Result<()> {
        let known: Vec<String> = pairs.iter().map(|pair| cache_name(pair)).collect();
        if known
            .iter()
            .all(|name| self.generation.join(name).is_file())
        {
            return Ok(());
        }
        for path in entries(&self.generation)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if name.starts_with(CACHES) && !known.iter().any(|known| *known == name) {
                return Err(OnlineError::OtherVocabularies {
                    path: path.clone(),
                    known,
                });
            }
        }
        Ok(())
    }
}
