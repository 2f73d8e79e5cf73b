//! A run, and stand-ins for Slurm's programs.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use jobs::{Batch, JobCommand, JobSpec, JobsError, RunRoot, Slurm, SlurmOptions, Submission};
use serde_json::json;

use super::{checks, id, two_stages, write_manifest};

/// A run, and programs that record how they were called.
pub struct Site {
    dir: tempfile::TempDir,
    pub root: RunRoot,
    pub jobs: Vec<JobSpec>,
    pub slurm: Slurm,
}

const SBATCH: &str = r#"
echo "sbatch $*" >>"$here/calls"
[ ! -e "$here/refuse-$(grep -c ^sbatch "$here/calls")" ] || { echo "sbatch: error: invalid partition" >&2; exit 1; }
echo "$((40 + $(grep -c ^sbatch "$here/calls")));east"
"#;

impl Site {
    pub fn new(cells: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let programs = dir.path().join("bin");
        fs::create_dir(&programs).unwrap();
        for (name, text) in [
            ("sbatch", SBATCH),
            (
                "squeue",
                "[ ! -e \"$here/no-squeue\" ] || exit 1\ncat \"$here/queue\"",
            ),
            ("scancel", "echo \"scancel $*\" >>\"$here/calls\""),
            ("scontrol", "echo 'MaxArraySize            = 1001'"),
        ] {
            let path = programs.join(name);
            let here = dir.path().display();
            fs::write(&path, format!("#!/bin/sh\nhere={here}\n{text}\n")).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        fs::write(dir.path().join("queue"), "").unwrap();
        let options = json!({"partition": "long", "time": "01:00:00", "requeue": true});
        let options = SlurmOptions::new(options.as_object().unwrap()).unwrap();
        Self {
            root: RunRoot::new(dir.path().join("run")),
            jobs: two_stages(cells),
            slurm: Slurm::new(options).with_programs(programs),
            dir,
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn submit_with(
        &self,
        launch: impl Fn(&Batch<'_>) -> Result<Submission, JobsError>,
    ) -> Result<Submission, JobsError> {
        let record = super::record(&self.jobs);
        let states = self.root.claim(&record, &self.jobs, &checks()).unwrap();
        let command = JobCommand {
            program: PathBuf::from("/opt/omni draft/omnidraft"),
            file: PathBuf::from("/data/demo.toml"),
            folder: PathBuf::from("/data"),
            extra: vec!["--set".to_owned(), "decode.k=[1, 2]".to_owned()],
        };
        launch(&Batch {
            root: &self.root,
            name: "demo",
            jobs: &self.jobs,
            states: &states,
            command: &command,
            checks: &checks(),
        })
    }

    pub fn submit(&self) -> Result<Submission, JobsError> {
        self.submit_with(|batch| self.slurm.submit(batch))
    }

    /// A text with the temporary folder's path replaced.
    pub fn anonymous(&self, text: &str) -> String {
        text.replace(&self.dir.path().display().to_string(), "DIR")
    }

    /// The calls since the last time.
    pub fn calls(&self) -> Vec<String> {
        let path = self.path("seen");
        let seen: usize = fs::read_to_string(&path).map_or(0, |text| text.parse().unwrap());
        let text = fs::read_to_string(self.path("calls")).unwrap_or_default();
        let calls: Vec<String> = text.lines().map(|line| self.anonymous(line)).collect();
        fs::write(path, calls.len().to_string()).unwrap();
        calls[seen..].to_vec()
    }

    pub fn complete(&self, stage: &str, cell: &str) {
        let id = id(stage, cell);
        let job = self.jobs.iter().find(|job| job.id == id).unwrap();
        let folder = self.root.folder(&id);
        fs::create_dir_all(folder.path()).unwrap();
        write_manifest(folder.path(), job, "complete");
    }

    pub fn queue(&self, lines: &str) {
        fs::write(self.path("queue"), lines).unwrap();
    }

    pub fn slurm_files(&self) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(self.root.slurm())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .filter(|name| name != "lock" && name != "logs")
            .collect();
        names.sort();
        names
    }
}
