//! Where a job that was killed goes on.
//!
//! ```text
//! checkpoint.json     the place in the stream, and how long the journals were there; written last
//! checkpoint/PROMPTS  what the arms had learnt, as in `state`
//! ```
//!
//! At a checkpoint arms are made anew from what they wrote, whether the job was killed or not. So a run
//! that was stopped gives the rows of one that was not, and nothing that is not written can matter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use results::{BuildInfo, CellLengths, Manifest, write_atomically};
use serde::{Deserialize, Serialize};

use crate::arm::ArmCounts;

const FILE: &str = "checkpoint.json";
const FOLDER: &str = "checkpoint";

/// A place in the stream of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spot {
    pub(super) segment: usize,
    /// The split by its place among those of a segment.
    pub(super) split: usize,
    /// Index of the prompt to go on with.
    pub(super) next: usize,
}

impl Spot {
    /// Whether a split of a segment is done at this spot.
    pub(super) fn is_behind(&self, segment: usize, split: usize) -> bool {
        (segment, split) < (self.segment, self.split)
    }

    /// The prompt with which a split of a segment begins.
    pub(super) fn first(&self, segment: usize, split: usize) -> usize {
        match (segment, split) == (self.segment, self.split) {
            true => self.next,
            false => 0,
        }
    }
}

/// What `checkpoint.json` holds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// Of the configuration and the program that wrote it: others go on with something else.
    config_sha256: String,
    build: BuildInfo,
    pub(super) spot: Spot,
    /// Prompts answered by all arms, and the sum and number of the last arm's acceptance rates.
    pub(super) done: usize,
    pub(super) acceptance: (f64, u32),
    pub(super) journals: CellLengths,
    /// By arm.
    pub(super) counts: BTreeMap<String, ArmCounts>,
}

impl Checkpoint {
    pub(super) fn new(
        manifest: &Manifest,
        spot: Spot,
        (done, acceptance): (usize, (f64, u32)),
        journals: CellLengths,
        counts: BTreeMap<String, ArmCounts>,
    ) -> Self {
        Self {
            config_sha256: manifest.config_sha256.clone(),
            build: manifest.build.clone(),
            spot,
            done,
            acceptance,
            journals,
            counts,
        }
    }

    /// The checkpoint in a job's folder, if there is one.
    pub(super) fn find(out: &Path) -> Option<Result<Self>> {
        let path = out.join(FILE);
        let read = || {
            let text = std::fs::read(&path)?;
            Ok(serde_json::from_slice(&text)?)
        };
        let found = path.exists().then(read);
        found.map(|found: Result<Self>| found.with_context(|| path.display().to_string()))
    }

    /// Whether this job and this program wrote it.
    ///
    /// # Errors
    /// Another job or program did.
    pub(super) fn check(&self, manifest: &Manifest) -> Result<()> {
        ensure!(
            self.config_sha256 == manifest.config_sha256,
            "its checkpoint is that of a job with other settings"
        );
        ensure!(
            self.build == manifest.build,
            "its checkpoint was written by another program"
        );
        Ok(())
    }

    /// Folder of what arms had learnt.
    pub(super) fn state(&self, out: &Path) -> PathBuf {
        state(out, self.done)
    }

    /// Writes the file; older states are removed behind it.
    pub(super) fn write(&self, out: &Path) -> Result<()> {
        write_atomically(&out.join(FILE), &serde_json::to_vec_pretty(self)?)?;
        let own = self.state(out);
        let folder = out.join(FOLDER);
        let entries = std::fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
        for entry in entries {
            let path = entry?.path();
            if path != own {
                std::fs::remove_dir_all(&path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }
}

/// Folder of what arms had learnt behind so many prompts.
pub(super) fn state(out: &Path, done: usize) -> PathBuf {
    out.join(FOLDER).join(done.to_string())
}

/// Removes the checkpoint of a job, if there is one.
pub(super) fn remove(out: &Path) -> Result<()> {
    let (file, folder) = (out.join(FILE), out.join(FOLDER));
    if file.exists() {
        std::fs::remove_file(&file).with_context(|| file.display().to_string())?;
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
    }
    Ok(())
}
