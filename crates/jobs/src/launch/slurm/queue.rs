//! Calls of Slurm's programs.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::process::Command;

use super::super::quote;
use super::options::SlurmOptions;
use super::submitted::TaskRef;
use crate::JobsError;

/// Tasks per array if Slurm does not answer: numbers stay below its default `MaxArraySize` of 1001.
const TASKS_PER_ARRAY: u32 = 1000;

/// Slurm's programs: in `PATH`, or in a folder.
#[derive(Debug, Clone, Default)]
pub(super) struct Tools {
    pub(super) folder: Option<PathBuf>,
}

/// Slurm's tasks that have not ended, by their [names](name).
pub(super) type Tasks = HashMap<String, TaskState>;

/// State of a task in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TaskState {
    /// True if it has not started.
    pub(super) pending: bool,
    /// True if its dependency can never be satisfied.
    pub(super) never: bool,
}

/// Reads the list that `squeue` prints.
fn parse(text: &str) -> Tasks {
    let mut tasks = Tasks::new();
    for line in text.lines() {
        let mut words = line.trim().split('|');
        let (Some(id), Some(state)) = (words.next(), words.next()) else {
            continue;
        };
        let reason = words.next().unwrap_or_default();
        // A task that is being cleaned up has ended.
        if state != "COMPLETING" {
            let place = TaskState {
                pending: state == "PENDING",
                never: reason == "DependencyNeverSatisfied",
            };
            tasks.insert(id.to_owned(), place);
        }
    }
    tasks
}

/// Slurm's name of a task.
pub(super) fn name(task: &TaskRef) -> String {
    format!("{}_{}", task.job, task.task)
}

impl Tools {
    /// Submits a script. Returns the number that Slurm assigns.
    pub(super) fn submit(&self, arguments: &[String], script: &str) -> Result<String, JobsError> {
        let mut command = self.command("sbatch");
        command.args(arguments).arg(script);
        let shown = command_line("sbatch", arguments, script);
        let output = run("sbatch", &mut command, &shown)?;
        // `NUMBER`, or `NUMBER;CLUSTER`.
        let id = output.trim().split(';').next().unwrap_or_default();
        if id.is_empty() || !id.chars().all(|c| c.is_ascii_digit()) {
            let message = format!("it answers `{}` instead of a number", output.trim());
            return Err(refused("sbatch", &message, &shown));
        }
        Ok(id.to_owned())
    }

    /// The tasks of this user that have not ended.
    pub(super) fn tasks(&self, options: &SlurmOptions) -> Result<Tasks, JobsError> {
        // Not queried by number, since a number that Slurm has forgotten is an error.
        let arguments = ["--me", "--noheader", "--array", "--format=%i|%T|%r"];
        let mut command = self.command("squeue");
        command.args(arguments).args(options.cluster());
        let shown = format!("squeue {}", arguments.join(" "));
        Ok(parse(&run("squeue", &mut command, &shown)?))
    }

    pub(super) fn cancel(
        &self,
        tasks: &[TaskRef],
        options: &SlurmOptions,
    ) -> Result<(), JobsError> {
        if tasks.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = tasks.iter().map(name).collect();
        let mut command = self.command("scancel");
        command.args(options.cluster()).args(&names);
        let shown = format!("scancel {}", names.join(" "));
        run("scancel", &mut command, &shown).map(|_| ())
    }

    /// Maximum number of tasks of an array. If Slurm does not answer, `sbatch` will report the
    /// reason.
    pub(super) fn tasks_per_array(&self) -> u32 {
        let mut command = self.command("scontrol");
        command.args(["show", "config"]);
        let config = run("scontrol", &mut command, "scontrol show config").unwrap_or_default();
        let size = config.lines().find_map(|line| {
            let (key, value) = line.split_once('=')?;
            let is_it = key.trim() == "MaxArraySize";
            is_it.then(|| value.trim().parse::<u32>().ok()).flatten()
        });
        size.map_or(TASKS_PER_ARRAY, |size| size.clamp(2, 100_001) - 1)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = match &self.folder {
            Some(folder) => Command::new(folder.join(program)),
            None => Command::new(program),
        };
        // Inside a task these variables describe that task, and would be applied to the new one.
        if std::env::var_os("SLURM_JOB_ID").is_some() {
            for (key, _) in std::env::vars_os() {
                let name = key.to_string_lossy();
                if name.starts_with("SLURM_") && name != "SLURM_CONF" {
                    command.env_remove(&key);
                }
            }
        }
        command
    }
}

fn run(program: &str, command: &mut Command, shown: &str) -> Result<String, JobsError> {
    let output = match command.output() {
        Ok(output) => output,
        Err(e) if e.kind() == ErrorKind::NotFound => {
            return Err(JobsError::refused(
                format!("`{program}` was not found: Slurm is not installed here, or not in PATH"),
                "run where sbatch is (a login node), or write the jobs' command lines with \
                 --print-jobs for another scheduler",
            ));
        }
        Err(e) => return Err(refused(program, &e.to_string(), shown)),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = match message.trim() {
        "" => output.status.to_string(),
        text => text.to_owned(),
    };
    Err(refused(program, &message, shown))
}

/// A program that failed; `command` is the whole command, quoted for a shell.
fn refused(program: &str, message: &str, command: &str) -> JobsError {
    JobsError::refused(
        format!("{program} refused: {message}"),
        format!("options come from [launcher.slurm] of the experiment; what was tried: {command}"),
    )
}

/// A command line as a person would type it.
pub(super) fn command_line(program: &str, arguments: &[String], last: &str) -> String {
    let mut words = vec![program.to_owned()];
    words.extend(arguments.iter().map(|word| quote(word)));
    words.push(quote(last));
    words.join(" ").replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_read() {
        let tasks = parse(
            "12_0|RUNNING|None\n12_1|PENDING|Dependency\n13_4|PENDING|DependencyNeverSatisfied\n\
             14_0|COMPLETING|None\n\nnonsense\n15|PENDING|Priority\n",
        );
        let get = |job: &str, task| {
            let job = job.to_owned();
            let found = tasks.get(&name(&TaskRef { job, task }));
            found.map(|p| (p.pending, p.never))
        };
        assert_eq!(get("12", 0), Some((false, false)));
        assert_eq!(get("12", 1), Some((true, false)));
        assert_eq!(get("13", 4), Some((true, true)));
        assert_eq!(get("14", 0), None);
        assert_eq!(get("12", 2), None);
    }
}
