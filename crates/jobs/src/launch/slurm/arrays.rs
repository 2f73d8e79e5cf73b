//! Distribution of jobs over arrays, and the dependencies between arrays.

use std::collections::{BTreeMap, HashMap};

use super::submitted::TaskRef;
use crate::{CellState, JobId, JobSpec};

/// Jobs of one stage that are submitted together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Array {
    pub(super) stage: String,
    pub(super) exclusive: bool,
    /// Jobs by the number of their task.
    pub(super) tasks: BTreeMap<u32, JobId>,
    /// The array before this one: each task waits for the success of the task there with the same
    /// number.
    pub(super) twin: Option<ArrayRef>,
}

/// Reference to an array: one that Slurm has, or one of this plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ArrayRef {
    Queued(String),
    New(usize),
}

/// Arrays in the order of their submission.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) arrays: Vec<Array>,
    pub(super) blocked: Vec<(JobId, String)>,
}

/// A task: its array, and its number there.
type Place = (ArrayRef, u32);

/// Plans arrays of at most `limit` tasks for `open` jobs. The jobs come stage by stage, each stage
/// after those that it needs. `on_disk` has the states of the jobs that they need.
pub(super) fn plan(
    open: &[&JobSpec],
    queued: &HashMap<JobId, TaskRef>,
    limit: u32,
    on_disk: &HashMap<JobId, CellState>,
) -> Plan {
    let in_queue = |(id, task): (&JobId, &TaskRef)| {
        (id.clone(), (ArrayRef::Queued(task.job.clone()), task.task))
    };
    // The task of every job that is in the queue or in the plan.
    let mut places: HashMap<JobId, Place> = queued.iter().map(in_queue).collect();
    let mut plan = Plan::default();
    for job in open {
        match before(job, on_disk, &places) {
            Ok(twin) => {
                let place = plan.add(job, twin, limit);
                places.insert(job.id.clone(), place);
            }
            Err(reason) => plan.blocked.push((job.id.clone(), reason)),
        }
    }
    plan
}

/// The task that a job waits for; `None` if it can start at once. The error is the reason to block.
fn before(
    job: &JobSpec,
    on_disk: &HashMap<JobId, CellState>,
    places: &HashMap<JobId, Place>,
) -> Result<Option<Place>, String> {
    let Some(need) = &job.needs else {
        return Ok(None);
    };
    match (on_disk.get(&need.id), places.get(&need.id)) {
        (Some(CellState::Complete), _) => Ok(None),
        (_, Some(place)) => Ok(Some(place.clone())),
        (Some(CellState::Running { .. }), None) => Err(format!(
            "it starts from {}, on which a process outside of Slurm works: submit again when that \
             has ended",
            need.id
        )),
        (_, None) => Err(format!(
            "it starts from {}, which is neither complete nor submitted: submit the stage `{}` too",
            need.id,
            need.id.stage()
        )),
    }
}

impl Plan {
    /// Adds a job to an array of its stage: with the number of the task that it waits for,
    /// otherwise with the next one.
    fn add(&mut self, job: &JobSpec, twin: Option<Place>, limit: u32) -> Place {
        let (twin, number) = twin.unzip();
        let fits = |a: &Array| {
            let free = match number {
                Some(number) => !a.tasks.contains_key(&number),
                None => a.tasks.len() < limit as usize,
            };
            let of_stage = a.stage == job.id.stage() && a.exclusive == job.exclusive;
            free && of_stage && a.twin == twin
        };
        let found = self.arrays.iter().position(fits);
        let index = found.unwrap_or_else(|| {
            self.arrays.push(Array {
                stage: job.id.stage().to_owned(),
                exclusive: job.exclusive,
                tasks: BTreeMap::new(),
                twin,
            });
            self.arrays.len() - 1
        });
        let tasks = &mut self.arrays[index].tasks;
        let number = number.unwrap_or(tasks.len() as u32);
        tasks.insert(number, job.id.clone());
        (ArrayRef::New(index), number)
    }
}

#[cfg(test)]
#[path = "arrays_tests.rs"]
mod tests;
