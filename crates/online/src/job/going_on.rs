//! Arms that start from learnt state: that of an earlier stage, or of a checkpoint of this job.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use experiment::ArmConfig;
use results::{CellWriter, Manifest};
use spec_decode::Pair;

use super::checkpoint::{self, Checkpoint, Spot};
use super::{Arm, Job, Tally};
use crate::arm::DraftingArm;
use crate::error::{OnlineError, Result, in_full};
use crate::state::SavedState;

impl Job<'_> {
    /// Writes the arms' learnt state and the position in the stream, and creates the arms anew from
    /// these files.
    pub(super) fn checkpoint(
        &self,
        spot: Spot,
        arms: &mut Vec<Arm>,
        writer: &mut CellWriter,
        out: &Path,
    ) -> Result<()> {
        let mut counts = BTreeMap::new();
        for (arm, run) in self.config.arms.iter().zip(arms.iter_mut()) {
            if let Arm::Own(state) = run {
                counts.insert(arm.name.clone(), state.counts()?);
            }
        }
        let Tally {
            done, acceptance, ..
        } = self.tally;
        self.save(&checkpoint::state(out, done), arms)?;
        let journals = writer.lengths()?;
        let manifest = writer.manifest_mut();
        let written = Checkpoint::new(manifest, spot, (done, acceptance), journals, counts);
        written.write(out)?;
        // The old arms are dropped first, so that memory holds only one set.
        arms.clear();
        *arms = self.arms_at(&written, out)?;
        Ok(())
    }

    /// Resumes from the checkpoint in a job's folder; `None` if there is none or it cannot be used.
    /// One that is damaged, or of another job or program, is removed, so that the job can start
    /// anew. After any other fault it stays as it is, for another attempt.
    pub(super) fn resume(
        &mut self,
        out: &Path,
        manifest: &Manifest,
    ) -> Result<Option<(CellWriter, Vec<Arm>, Spot)>> {
        let Some(found) = Checkpoint::find(out) else {
            return Ok(None);
        };
        let resumed = match found.and_then(|found| found.check(manifest).map(|()| found)) {
            Ok(found) => {
                // They are made of other files than the checkpoint's, which are not to blame.
                let mut arms = self.new_arms()?;
                let loaded = self.load_checkpoint(&found, out, &mut arms);
                let writer = loaded.and_then(|()| {
                    let writer = CellWriter::resume(out, manifest, found.journals);
                    writer.map_err(OnlineError::from)
                });
                writer.map(|writer| (found, writer, arms))
            }
            Err(error) => Err(error),
        };
        match resumed {
            Ok((found, writer, arms)) => {
                (self.tally.done, self.tally.acceptance) = (found.done, found.acceptance);
                Ok(Some((writer, arms, found.spot)))
            }
            Err(error) if error.is_of_the_files() => {
                let error = in_full(&error);
                tracing::warn!(folder = %out.display(), "the job starts anew: {error}");
                checkpoint::remove(out)?;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The arms at a checkpoint.
    fn arms_at(&self, from: &Checkpoint, out: &Path) -> Result<Vec<Arm>> {
        let mut arms = self.new_arms()?;
        self.load_checkpoint(from, out, &mut arms)?;
        Ok(arms)
    }

    /// Continues with new arms from a checkpoint.
    fn load_checkpoint(&self, from: &Checkpoint, out: &Path, arms: &mut [Arm]) -> Result<()> {
        self.load_arms(&from.state(out), arms)?;
        for (arm, run) in self.config.arms.iter().zip(arms) {
            if let (Arm::Own(state), Some(counts)) = (run, from.counts.get(&arm.name)) {
                state.count_from(counts.clone())?;
            }
        }
        Ok(())
    }

    /// New arms. With `start`, those that the stream changes continue from the state in it.
    pub(super) fn fresh_arms(&self, start: Option<&Path>) -> Result<Vec<Arm>> {
        let mut arms = self.new_arms()?;
        if let Some(root) = start {
            self.load_arms(root, &mut arms)?;
        }
        Ok(arms)
    }

    /// Continues from the state in `root` with those of the arms that the stream changes.
    fn load_arms(&self, root: &Path, arms: &mut [Arm]) -> Result<()> {
        for (arm, run) in self.config.arms.iter().zip(arms) {
            if let Arm::Own(state) = run
                && arm.changes()
            {
                let folder = SavedState::folder_of(root, &arm.name);
                let place = format!("state of arm `{}`", arm.name);
                let loaded = state.load(&folder, &self.drafter.path, &self.pairs());
                loaded.map_err(OnlineError::at(place))?;
            }
        }
        Ok(())
    }

    /// Arms that know nothing yet.
    fn new_arms(&self) -> Result<Vec<Arm>> {
        let all = &self.config.arms;
        let width = self.config.models.drafter.pad_width;
        let padded = (width > 0).then(|| Arc::new(self.drafter.padded(width)));
        let fresh = |arm: &ArmConfig| {
            let host = arm.learnt_by.as_ref();
            let host = host.and_then(|name| all.iter().position(|other| other.name == *name));
            if arm.is_plain() {
                return Ok(Arm::Plain);
            }
            if let Some(host) = host {
                return Ok(Arm::GuestOf(host));
            }
            let name = Some(&arm.name);
            let guests: Vec<&ArmConfig> = all
                .iter()
                .filter(|a| a.learnt_by.as_ref() == name)
                .collect();
            let state =
                DraftingArm::new(arm, &guests, &self.drafter, padded.as_ref(), self.config)?;
            Ok(Arm::Own(Box::new(state)))
        };
        all.iter().map(fresh).collect()
    }

    /// Writes the state of the arms that the stream changes; an empty folder if there is none, so
    /// that a stage can start from it as well.
    pub(super) fn save(&self, root: &Path, arms: &mut [Arm]) -> Result<()> {
        // An earlier attempt at the job may have left something.
        if root.exists() {
            std::fs::remove_dir_all(root).map_err(OnlineError::io(root))?;
        }
        std::fs::create_dir_all(root).map_err(OnlineError::io(root))?;
        for (arm, run) in self.config.arms.iter().zip(arms) {
            if let Arm::Own(state) = run
                && arm.changes()
            {
                let folder = SavedState::folder_of(root, &arm.name);
                state.save(&folder, &self.drafter.path, &self.pairs())?;
            }
        }
        Ok(())
    }

    /// The pairs of the drafter's vocabulary with those of the targets.
    pub(super) fn pairs(&self) -> Vec<&Pair> {
        self.targets.values().map(|target| &target.pair).collect()
    }
}
