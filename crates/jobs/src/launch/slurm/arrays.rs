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
    pub(super) after: After,
}

/// Dependency of an array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum After {
    Nothing,
    /// Each task waits for the success of the task with the same number.
    Twin(ArrayRef),
    /// All tasks wait for the end of all of these, whether successful or not.
    Ended(Vec<(ArrayRef, u32)>),
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
    let mut planner = Planner {
        plan: Plan::default(),
        places: queued.iter().map(in_queue).collect(),
        limit: limit.max(1),
    };
    for job in open {
        match planner.after(job, on_disk) {
            Ok(None) => planner.add_free(job),
            Ok(Some((array, task))) => planner.add_twin(job, array, task),
            Err(reason) => planner.plan.blocked.push((job.id.clone(), reason)),
        }
    }
    planner.plan
}

struct Planner {
    plan: Plan,
    /// The task of every job that is in the queue or in the plan.
    places: HashMap<JobId, (ArrayRef, u32)>,
    limit: u32,
}

impl Planner {
    /// The task that a job has to wait for.
    fn after(
        &self,
        job: &JobSpec,
        on_disk: &HashMap<JobId, CellState>,
    ) -> Result<Option<(ArrayRef, u32)>, String> {
        let Some(need) = &job.needs else {
            return Ok(None);
        };
        match (on_disk.get(&need.id), self.places.get(&need.id)) {
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

    fn add_free(&mut self, job: &JobSpec) {
        let limit = self.limit as usize;
        let index = self.find(job, |a| a.after == After::Nothing && a.tasks.len() < limit);
        let index = index.unwrap_or_else(|| self.new_array(job, After::Nothing));
        self.append(index, job);
    }

    fn add_twin(&mut self, job: &JobSpec, array: ArrayRef, task: u32) {
        let after = After::Twin(array.clone());
        let twins = self.find(job, |a| a.after == after);
        let index = twins.unwrap_or_else(|| self.new_array(job, after));
        let is_free = |a: &Array| !a.tasks.contains_key(&task);
        if self.plan.arrays.get(index).is_some_and(is_free) {
            self.put(index, task, job);
            return;
        }
        // A second job of this stage needs the same task, so that it cannot have the same number.
        let limit = self.limit as usize;
        let others = self.find(job, |a| {
            matches!(a.after, After::Ended(_)) && a.tasks.len() < limit
        });
        let index = others.unwrap_or_else(|| self.new_array(job, After::Ended(Vec::new())));
        self.append(index, job);
        if let Some(Array {
            after: After::Ended(tasks),
            ..
        }) = self.plan.arrays.get_mut(index)
            && !tasks.contains(&(array.clone(), task))
        {
            tasks.push((array, task));
        }
    }

    fn find(&self, job: &JobSpec, test: impl Fn(&Array) -> bool) -> Option<usize> {
        let fits = |a: &Array| a.stage == job.id.stage() && a.exclusive == job.exclusive && test(a);
        self.plan.arrays.iter().position(fits)
    }

    fn new_array(&mut self, job: &JobSpec, after: After) -> usize {
        self.plan.arrays.push(Array {
            stage: job.id.stage().to_owned(),
            exclusive: job.exclusive,
            tasks: BTreeMap::new(),
            after,
        });
        self.plan.arrays.len() - 1
    }

    /// Adds a job with the next number.
    fn append(&mut self, index: usize, job: &JobSpec) {
        let last = |a: &Array| a.tasks.keys().next_back().map_or(0, |last| last + 1);
        let task = self.plan.arrays.get(index).map_or(0, last);
        self.put(index, task, job);
    }

    fn put(&mut self, index: usize, task: u32, job: &JobSpec) {
        if let Some(array) = self.plan.arrays.get_mut(index) {
            array.tasks.insert(task, job.id.clone());
            self.places
                .insert(job.id.clone(), (ArrayRef::New(index), task));
        }
    }
}

#[cfg(test)]
#[path = "arrays_tests.rs"]
mod tests;
