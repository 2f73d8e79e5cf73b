//! Checkpoints, from which a killed job resumes.
//!
//! ```text
//! checkpoint.json     position in the stream and lengths of the journals; written last
//! checkpoint/PROMPTS  learnt state of the arms, as in `state`
//! ```
//!
//! At a checkpoint arms are created anew from the files they wrote, whether the job was killed or
//! not. So a resumed run gives the same rows as an uninterrupted one, and no state outside of the
//! files can matter.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use results::{BuildInfo, CellLengths, InputFile, Manifest, write_atomically};
use serde::{Deserialize, Serialize};

use crate::arm::ArmCounts;
use crate::error::{OnlineError, Result};

const FILE: &str = "checkpoint.json";
const FOLDER: &str = "checkpoint";

/// A position in the stream of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Spot {
    pub(super) segment: usize,
    /// Index of the split among those of a segment.
    pub(super) split: usize,
    /// Index of the next prompt.
    pub(super) next: usize,
}

impl Spot {
    /// True if a split of a segment is complete at this position.
    pub(super) fn is_behind(&self, segment: usize, split: usize) -> bool {
        (segment, split) < (self.segment, self.split)
    }

    /// The first prompt of a split of a segment from this position.
    pub(super) fn first(&self, segment: usize, split: usize) -> usize {
        match (segment, split) == (self.segment, self.split) {
            true => self.next,
            false => 0,
        }
    }
}

/// Content of `checkpoint.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Checkpoint {
    /// Hash of the configuration. It, `build`, `inputs`, `kernels` and `timed_on` must be those of
    /// the program that resumes.
    config_sha256: String,
    build: BuildInfo,
    /// The files that the rows so far were made of.
    inputs: Vec<InputFile>,
    /// Instruction set of the engine, on which the last bits of what is learnt depend.
    kernels: Option<String>,
    /// Processor and cores of a timed job, whose seconds must all be of one machine.
    #[serde(default)]
    timed_on: Option<(String, usize)>,
    pub(super) spot: Spot,
    /// Number of prompts answered by all arms. `acceptance`: sum and number of the last arm's
    /// acceptance rates.
    pub(super) done: usize,
    pub(super) acceptance: (f64, u32),
    pub(super) journals: CellLengths,
    /// Counters by arm.
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
            inputs: manifest.inputs.clone(),
            kernels: manifest.machine.kernels.clone(),
            timed_on: timed_on(manifest),
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
            let text = std::fs::read(&path).map_err(OnlineError::io(&path))?;
            serde_json::from_slice(&text).map_err(OnlineError::at(path.display()))
        };
        path.exists().then(read)
    }

    /// Checks that this job and this program wrote it, from the same files, on a processor of the
    /// same instruction set; if the job is timed, on the same machine.
    pub(super) fn check(&self, manifest: &Manifest) -> Result<()> {
        let other = |how| Err(OnlineError::OtherCheckpoint(how));
        if self.config_sha256 != manifest.config_sha256 {
            return other("is that of a job with other settings");
        }
        if self.build != manifest.build {
            return other("was written by another program");
        }
        let differs = |file: &&InputFile| !manifest.inputs.contains(file);
        if let Some(changed) = self.inputs.iter().find(differs) {
            return Err(OnlineError::OtherInput {
                role: changed.role.clone(),
                name: changed.name.clone(),
            });
        }
        if self.kernels != manifest.machine.kernels {
            return other("was written on another instruction set");
        }
        if self.timed_on != timed_on(manifest) {
            return other("was timed on another machine");
        }
        Ok(())
    }

    /// Folder of the arms' learnt state.
    pub(super) fn state(&self, out: &Path) -> PathBuf {
        state(out, self.done)
    }

    /// Writes the file, and then removes older states.
    pub(super) fn write(&self, out: &Path) -> Result<()> {
        write_atomically(&out.join(FILE), &serde_json::to_vec_pretty(self)?)?;
        let own = self.state(out);
        let folder = out.join(FOLDER);
        let entries = std::fs::read_dir(&folder).map_err(OnlineError::io(&folder))?;
        for entry in entries {
            let path = entry.map_err(OnlineError::io(&folder))?.path();
            if path != own {
                std::fs::remove_dir_all(&path).map_err(OnlineError::io(&path))?;
            }
        }
        Ok(())
    }
}

fn timed_on(manifest: &Manifest) -> Option<(String, usize)> {
    let machine = &manifest.machine;
    let timed = manifest.cell.exclusive;
    timed.then(|| (machine.cpu.clone(), machine.cores))
}

/// Folder of the arms' learnt state after `done` prompts.
pub(super) fn state(out: &Path, done: usize) -> PathBuf {
    out.join(FOLDER).join(done.to_string())
}

/// Removes the checkpoint of a job, if there is one.
pub(super) fn remove(out: &Path) -> Result<()> {
    let (file, folder) = (out.join(FILE), out.join(FOLDER));
    if file.exists() {
        std::fs::remove_file(&file).map_err(OnlineError::io(&file))?;
    }
    if folder.exists() {
        std::fs::remove_dir_all(&folder).map_err(OnlineError::io(&folder))?;
    }
    Ok(())
}
