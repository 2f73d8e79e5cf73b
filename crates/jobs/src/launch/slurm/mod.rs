//! Slurm: every stage becomes an array of tasks; stages are chained task by task.
//!
//! A task starts after the success of its twin (`aftercorr`): the task with the same number in the
//! array that it depends on. So a dependent job gets the number of the job that it needs, and
//! arrays may have gaps. If the twin fails, the dependent task is cancelled
//! (`--kill-on-invalid-dep`) instead of waiting for ever. Slurm takes a twin that it has forgotten
//! for a success, so the job itself checks that the job it needs is complete.

mod arrays;
mod options;
mod queue;
mod script;
mod submitted;

use std::collections::HashMap;
use std::path::PathBuf;

use super::{Batch, Submission, absolute};
use crate::files::create_folder;
use crate::lock::FileLock;
use crate::state::{CellState, needed};
use crate::{JobId, JobSpec, JobsError, Need, RunRoot};
use arrays::{Array, ArrayRef, Plan, plan};
use queue::{Tasks, Tools};
use script::Files;
use submitted::{Submitted, TaskRef};

pub use options::SlurmOptions;

/// A launcher for the Slurm of this machine.
#[derive(Debug, Clone, Default)]
pub struct Slurm {
    options: SlurmOptions,
    tools: Tools,
}

impl Slurm {
    /// A launcher with Slurm's programs in `PATH` and with options for `sbatch`.
    pub fn new(options: SlurmOptions) -> Self {
        Self {
            options,
            tools: Tools::default(),
        }
    }

    /// Uses Slurm's programs in `folder`.
    #[must_use]
    pub fn with_programs(mut self, folder: impl Into<PathBuf>) -> Self {
        self.tools.folder = Some(folder.into());
        self
    }

    /// Hands over the jobs of a run that are neither complete nor running.
    ///
    /// # Errors
    /// Refusals of Slurm. Jobs that it took before stay handed over; the same call continues from
    /// there.
    pub fn submit(&self, batch: &Batch<'_>) -> Result<Submission, JobsError> {
        create_folder(&batch.root.slurm_logs())?;
        let _lock = submit_lock(batch.root)?;
        let mut submitted = submitted::read(batch.root)?;
        let order: Vec<(&JobSpec, &CellState)> = batch.jobs.iter().zip(batch.states).collect();
        let mut submission = Submission::default();

        let tasks = if submitted.is_empty() {
            Tasks::default()
        } else {
            self.tools.tasks(&self.options)?
        };
        let queued = self.queued(&order, &submitted, &tasks)?;
        let open: Vec<&JobSpec> = order
            .iter()
            .filter(|(job, state)| match state {
                _ if queued.contains_key(&job.id) => count(&mut submission.queued),
                CellState::Complete => count(&mut submission.complete),
                CellState::Running { .. } => count(&mut submission.running),
                CellState::Todo | CellState::Unfinished | CellState::Failed { .. } => true,
            })
            .map(|(job, _)| *job)
            .collect();
        if open.is_empty() {
            return Ok(submission);
        }
        let states = needs_on_disk(batch, &open)?;
        let limit = self.tools.tasks_per_array();
        let Plan { arrays, blocked } = plan(&open, &queued, limit, &states);
        submission.blocked = blocked;

        let mut ids: Vec<String> = Vec::new();
        for array in &arrays {
            let id = self.submit_array(batch, array, &ids)?;
            let tasks = array.tasks.iter().map(|(&task, job)| {
                let job_id = id.clone();
                (job.clone(), TaskRef { job: job_id, task })
            });
            submitted.extend(tasks);
            submitted::write(batch.root, &submitted)?;
            submission.submitted += array.tasks.len();
            submission.text += &describe(array, &id);
            ids.push(id);
        }
        Ok(submission)
    }
}

/// Increments a counter and returns false.
fn count(number: &mut usize) -> bool {
    *number += 1;
    false
}

fn describe(array: &Array, id: &str) -> String {
    let number = array.tasks.len();
    let range = script::ranges(array.tasks.keys().copied());
    let alone = if array.exclusive {
        ", each alone on its node"
    } else {
        ""
    };
    let stage = &array.stage;
    format!("{stage}: {number} submitted as {id}_[{range}]{alone}\n")
}

fn submit_lock(root: &RunRoot) -> Result<FileLock, JobsError> {
    let lock = FileLock::try_take(&root.slurm().join("lock"))?;
    lock.ok_or_else(|| JobsError::Submitting {
        path: root.path().to_path_buf(),
    })
}

/// States of the jobs that open jobs need.
fn needs_on_disk(
    batch: &Batch<'_>,
    open: &[&JobSpec],
) -> Result<HashMap<JobId, CellState>, JobsError> {
    let state = |need: &Need| {
        let state = needed(batch.root, need, batch.checks)?;
        Ok((need.id.clone(), state))
    };
    let needs = open.iter().filter_map(|job| job.needs.as_ref());
    needs.map(state).collect()
}

impl Slurm {
    /// Jobs, and the jobs they need, that are still in Slurm's queue. Tasks whose dependency can
    /// never be satisfied are cancelled.
    fn queued(
        &self,
        order: &[(&JobSpec, &CellState)],
        submitted: &Submitted,
        tasks: &Tasks,
    ) -> Result<HashMap<JobId, TaskRef>, JobsError> {
        let states: HashMap<&JobId, &CellState> =
            order.iter().map(|(job, state)| (&job.id, *state)).collect();
        let in_queue = |id: &JobId| {
            let task = submitted.get(id)?;
            Some((task, tasks.get(&queue::name(task))?))
        };
        let mut queued: HashMap<JobId, TaskRef> = HashMap::new();
        let mut cancelled = Vec::new();
        // Every stage comes after the stages that it needs.
        for (job, state) in order {
            let mut unsatisfiable = false;
            if let Some(need) = &job.needs {
                let need = &need.id;
                match (states.get(need), in_queue(need)) {
                    (Some(CellState::Complete), _) => {}
                    (Some(_), _) => unsatisfiable = !queued.contains_key(need),
                    // The needed job is not part of this batch.
                    (None, Some((task, entry))) if !entry.never => {
                        queued.insert(need.clone(), task.clone());
                    }
                    (None, _) => {}
                }
            }
            match in_queue(&job.id) {
                Some(_) if **state == CellState::Complete => {}
                Some((task, entry)) if entry.pending && (entry.never || unsatisfiable) => {
                    cancelled.push(task.clone());
                }
                Some((task, _)) => {
                    queued.insert(job.id.clone(), task.clone());
                }
                None => {}
            }
        }
        self.tools.cancel(&cancelled, &self.options)?;
        Ok(queued)
    }

    /// Writes the script and the list of one array, and submits them.
    fn submit_array(
        &self,
        batch: &Batch<'_>,
        array: &Array,
        ids: &[String],
    ) -> Result<String, JobsError> {
        let files = Files::next(batch.root, &array.stage)?;
        let arguments = self.arguments(batch, array, ids)?;
        let script = absolute(&files.script)?;
        let command = queue::command_line("sbatch", &arguments, &script);
        files.write(batch, array, &command)?;
        let id = self.tools.submit(&arguments, &script);
        if id.is_err() {
            files.remove();
        }
        id
    }

    /// Arguments of `sbatch`. In the script they could be overridden by the environment.
    fn arguments(
        &self,
        batch: &Batch<'_>,
        array: &Array,
        ids: &[String],
    ) -> Result<Vec<String>, JobsError> {
        let mut range = script::ranges(array.tasks.keys().copied());
        if let Some(limit) = self.options.max_running {
            range += &format!("%{limit}");
        }
        let mut arguments = vec![
            "--parsable".to_owned(),
            format!("--job-name={}-{}", batch.name, array.stage),
            format!("--array={range}"),
            format!(
                "--output={}",
                script::log_pattern(batch.root, &array.stage)?
            ),
            // A task that is run again appends to its log.
            "--open-mode=append".to_owned(),
        ];
        arguments.extend(self.options.arguments());
        if array.exclusive && !self.options.names("exclusive") {
            arguments.push("--exclusive".to_owned());
        }
        if let Some(twin) = &array.twin {
            let id = match twin {
                ArrayRef::Queued(id) => Some(id),
                ArrayRef::New(index) => ids.get(*index),
            };
            arguments.extend(id.map(|id| format!("--dependency=aftercorr:{id}")));
            arguments.push("--kill-on-invalid-dep=yes".to_owned());
        }
        Ok(arguments)
    }
}
