//! A state folder as others read it: which drafter learnt for whom, and where the files of it are.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::learners::folder;
use super::state::{LEARNT, Meta, current, fingerprint};
use crate::decode::target_of;
use crate::stats::STRIDE;

/// What a state folder of a server holds.
pub struct SavedState {
    root: PathBuf,
    generation: PathBuf,
    meta: Meta,
}

/// What a drafter learnt by, for one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearntBy {
    /// Answers that it drafted for.
    pub answers: u64,
    /// Mean acceptance of the first so many and of the last so many answers, where those are known.
    pub acceptance: Option<([f64; 2], usize)>,
}

impl SavedState {
    /// Opens a state folder; `None` of a folder that is none.
    ///
    /// # Errors
    /// Files that cannot be read, or of another version.
    pub fn open(root: &Path) -> Result<Option<Self>> {
        let Some((_, generation)) = current(root)? else {
            return Ok(None);
        };
        Ok(Some(Self {
            meta: Meta::read(&generation)?,
            root: root.to_owned(),
            generation,
        }))
    }

    /// Names for which a drafter learnt: of targets, or of a target and one who asked it.
    pub fn names(&self) -> &[String] {
        &self.meta.adapters
    }

    /// The drafter's folder as the server was told, where the state says it.
    pub fn drafter(&self) -> Option<&Path> {
        let path = self.meta.drafter_path.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// Fails where another drafter than the one in `folder` learnt.
    ///
    /// # Errors
    /// As said; a folder that cannot be read.
    pub fn check_drafter(&self, folder: &Path) -> Result<()> {
        if fingerprint(folder)? == self.meta.drafter {
            return Ok(());
        }
        let of = self.drafter().map_or(String::new(), |path| {
            format!(", which was {}", path.display())
        });
        bail!(
            "{}: learnt by another drafter than {}{of}\nhint: name the drafter of this state with --drafter",
            self.root.display(),
            folder.display()
        )
    }

    /// Folder of what was learnt for one of the [`names`](Self::names), and the name of its adapter where
    /// it is one.
    pub fn learnt(&self, name: &str) -> (PathBuf, Option<String>) {
        let (key, adapter) = match self.meta.cut.rank {
            0 => (name, None),
            _ => ("", Some(name.to_owned())),
        };
        (self.generation.join(LEARNT).join(folder(key)), adapter)
    }

    /// What it learnt by.
    pub fn learnt_by(&self, name: &str) -> LearntBy {
        let sums = self.meta.sums.targets.get(target_of(name));
        sums.map_or_else(LearntBy::default, |sums| LearntBy {
            answers: sums.answers(),
            acceptance: sums.acceptance().map(|pair| (pair, STRIDE)),
        })
    }
}
