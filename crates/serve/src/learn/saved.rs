//! Read access to a state folder: the drafter, the names it learnt for, and the files.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

use super::learners::folder;
use super::state::{LEARNT, Meta, current, fingerprint};
use crate::decode::target_of;
use crate::stats::STRIDE;

/// The content of a server's state folder.
pub struct SavedState {
    root: PathBuf,
    generation: PathBuf,
    meta: Meta,
}

/// The answers from which a drafter learnt for one target.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearntBy {
    /// Number of answers that it drafted for.
    pub answers: u64,
    /// Mean acceptance rates of the first and of the last answers, and the number of answers in
    /// each mean; `None` if there are too few.
    pub acceptance: Option<([f64; 2], usize)>,
}

impl SavedState {
    /// Opens a state folder; `None` if the folder holds no state.
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

    /// The names for which the drafter learnt: `TARGET`, or `TARGET/USER`.
    pub fn names(&self) -> &[String] {
        &self.meta.adapters
    }

    /// The drafter's folder as it was given to the server; `None` in older states.
    pub fn drafter(&self) -> Option<&Path> {
        let path = self.meta.drafter_path.as_path();
        (!path.as_os_str().is_empty()).then_some(path)
    }

    /// Fails if the drafter that learnt is not the one in `folder`.
    ///
    /// # Errors
    /// Another drafter; a folder that cannot be read.
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

    /// Folder of the weights learnt for one of the [`names`](Self::names), and the adapter's name
    /// if they are an adapter.
    pub fn learnt(&self, name: &str) -> (PathBuf, Option<String>) {
        let (key, adapter) = match self.meta.trainable.rank {
            0 => (name, None),
            _ => ("", Some(name.to_owned())),
        };
        (self.generation.join(LEARNT).join(folder(key)), adapter)
    }

    /// The answers from which the drafter learnt for one of the [`names`](Self::names).
    pub fn learnt_by(&self, name: &str) -> LearntBy {
        let sums = self.meta.sums.targets.get(target_of(name));
        sums.map_or_else(LearntBy::default, |sums| LearntBy {
            answers: sums.answers(),
            acceptance: sums.acceptance().map(|pair| (pair, STRIDE)),
        })
    }
}
