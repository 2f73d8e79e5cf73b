//! What a job is to this crate: a name, a hash, and what must be complete before it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::JobsError;

/// Folders directly below a run's folder that are no stages.
const RESERVED: [&str; 2] = ["report", "slurm"];
/// Bytes of one file name on the usual file systems.
const NAME_LIMIT: usize = 255;

/// A job's name: a cell of a stage. Both parts are names of folders.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "RawId")]
pub struct JobId {
    stage: String,
    cell: String,
}

#[derive(Deserialize)]
struct RawId {
    stage: String,
    cell: String,
}

impl TryFrom<RawId> for JobId {
    type Error = JobsError;
    fn try_from(raw: RawId) -> Result<Self, JobsError> {
        Self::new(&raw.stage, &raw.cell)
    }
}

impl JobId {
    /// The cell `cell` of the stage `stage`.
    ///
    /// # Errors
    /// [`JobsError::BadName`] where one of them cannot be the name of a folder or, with quotes left
    /// out, a word of a shell: letters, digits and `._+=,-` only.
    pub fn new(stage: &str, cell: &str) -> Result<Self, JobsError> {
        let reserved = RESERVED
            .contains(&stage)
            .then_some("names another folder of a run");
        for (name, problem) in [(stage, reserved.or(check(stage))), (cell, check(cell))] {
            if let Some(problem) = problem {
                return Err(JobsError::BadName {
                    name: name.to_owned(),
                    problem,
                });
            }
        }
        Ok(Self {
            stage: stage.to_owned(),
            cell: cell.to_owned(),
        })
    }

    /// The stage.
    pub fn stage(&self) -> &str {
        &self.stage
    }

    /// The cell, as `target=L,task=gsm8k,seed=1`.
    pub fn cell(&self) -> &str {
        &self.cell
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.stage, self.cell)
    }
}

fn check(name: &str) -> Option<&'static str> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._+=,-".contains(c);
    if name.is_empty() {
        Some("is empty")
    } else if name.starts_with('.') || name.starts_with('-') {
        Some("starts with a dot or a dash")
    } else if name.len() > NAME_LIMIT {
        Some("is longer than the 255 bytes of a file name")
    } else if !name.chars().all(allowed) {
        Some("has characters other than letters, digits and . _ + = , -")
    } else {
        None
    }
}

/// What a job starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The job.
    #[serde(flatten)]
    pub id: JobId,
    /// Hash of that job's configuration, as in [`JobSpec::hash`].
    pub hash: String,
    /// Hash of what that job starts from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
}

/// A job, as far as running it goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its name.
    #[serde(flatten)]
    pub id: JobId,
    /// Hash of its configuration: `config_sha256` of its manifest.
    pub hash: String,
    /// What must be complete before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Need>,
    /// Timed: alone on its machine.
    #[serde(default)]
    pub exclusive: bool,
    /// Prompts it answers, where that is known: the weight of the job in the time still needed.
    #[serde(default)]
    pub prompts: Option<u64>,
    /// Axes of the grid and this cell's values.
    #[serde(default)]
    pub coordinates: Vec<(String, String)>,
}

/// The program that runs, as the `build` of a manifest names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Build {
    /// Version of the results folder's layout: `schema` of a manifest.
    pub schema: u32,
    /// Version of the program: `build.version`.
    pub version: String,
    /// Commit of the program: `build.git_commit`.
    pub commit: String,
}

/// The hash that this program would give to a configuration that another one wrote into a manifest,
/// in which keys may be missing that the other did not know; `None` where it cannot be read. Where the
/// cell starts from another one, that one's hash is given.
pub type Reread = fn(config: &serde_json::Value, from: Option<&str>) -> Option<String>;

/// Which earlier results this program may go on with.
#[derive(Debug, Clone)]
pub struct Checks {
    /// This program.
    pub build: Build,
    /// Also results of another commit of the same version.
    pub accept_other_build: bool,
    /// Tells an edited configuration from an older one.
    pub reread: Reread,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_folders() {
        assert!(JobId::new("held-out", "target=L,task=gsm8k,seed=1,decode.k=3").is_ok());
        let long = "x".repeat(256);
        for (stage, cell) in [
            ("slurm", "a"),
            ("report", "a"),
            ("", "a"),
            ("s", ""),
            ("..", "a"),
            ("s", ".."),
            ("s", "a/b"),
            ("s", "-rf"),
            ("s", "a b"),
            ("s", "a\nb"),
            ("s", "ü"),
            ("s", long.as_str()),
        ] {
            let error = JobId::new(stage, cell).unwrap_err();
            assert!(
                matches!(error, JobsError::BadName { .. }),
                "{stage:?} {cell:?}"
            );
            assert!(error.hint().is_some());
        }
    }

    #[test]
    fn a_record_cannot_name_a_folder_outside() {
        let text = r#"{"stage": "s", "cell": "../../home", "hash": "h"}"#;
        let error = serde_json::from_str::<JobSpec>(text).unwrap_err();
        assert!(error.to_string().contains("../../home"), "{error}");
    }

    #[test]
    fn specs_survive_json() {
        let spec = JobSpec {
            id: JobId::new("held-out", "seed=1").unwrap(),
            hash: "aa".to_owned(),
            needs: Some(Need {
                id: JobId::new("stream", "seed=1").unwrap(),
                hash: "bb".to_owned(),
                from: None,
            }),
            exclusive: true,
            prompts: Some(40),
            coordinates: vec![("seed".to_owned(), "1".to_owned())],
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&text).unwrap(), spec);
    }
}
