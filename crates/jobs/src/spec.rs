//! A job as this crate knows it: a name, a hash, and the job that it needs.

use std::fmt;

use results::BuildInfo;
use serde::{Deserialize, Serialize};

use crate::JobsError;

/// Folders directly below a run's folder that are not stages.
const RESERVED: [&str; 2] = ["report", "slurm"];
/// Maximum bytes of a file name on common file systems.
const NAME_LIMIT: usize = 255;

/// A job's name: a stage and a cell, both of which are names of folders.
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
    /// The job of cell `cell` in stage `stage`.
    ///
    /// # Errors
    /// [`JobsError::BadName`] if one of them is not valid as a folder's name and as an unquoted
    /// word of a shell: 1 to 255 letters, digits and `._+=,-`, the first one neither `.` nor `-`;
    /// or if the stage has the name of another folder of a run.
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

    /// The cell, such as `target=L,task=gsm8k,seed=1`.
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

/// A job that another one starts from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Need {
    /// The job.
    #[serde(flatten)]
    pub id: JobId,
    /// Hash of that job's configuration, as in [`JobSpec::hash`].
    pub hash: String,
}

/// A job as the scheduler knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSpec {
    /// Its name.
    #[serde(flatten)]
    pub id: JobId,
    /// Hash of its configuration: `config_sha256` of its manifest.
    pub hash: String,
    /// The job that must be complete before this one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub needs: Option<Need>,
    /// True if the job is timed: it runs alone on its machine.
    #[serde(default)]
    pub exclusive: bool,
    /// Number of prompts, if known: the weight of the job in the remaining time.
    #[serde(default)]
    pub prompts: Option<u64>,
    /// Axes of the grid with this cell's values.
    #[serde(default)]
    pub coordinates: Vec<(String, String)>,
}

/// Rules for using earlier results.
#[derive(Debug, Clone)]
pub struct Checks {
    /// This program.
    pub build: BuildInfo,
    /// True if results of another commit of the same version are accepted.
    pub accept_other_build: bool,
    /// Function that hashes the configuration of a manifest after this program has read and
    /// rewritten it, without keys that have become constants. `None` if it cannot be read.
    pub hash_of: fn(&serde_json::Value) -> Option<String>,
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The job `STAGE/CELL`.
    pub(crate) fn id(name: &str) -> JobId {
        let (stage, cell) = name.split_once('/').unwrap();
        JobId::new(stage, cell).unwrap()
    }

    /// A job of one name that may need one of another.
    pub(crate) fn job(name: &str, needs: Option<&str>) -> JobSpec {
        JobSpec {
            id: id(name),
            hash: String::new(),
            needs: needs.map(|name| Need {
                id: id(name),
                hash: String::new(),
            }),
            exclusive: false,
            prompts: None,
            coordinates: Vec::new(),
        }
    }

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
            }),
            exclusive: true,
            prompts: Some(40),
            coordinates: vec![("seed".to_owned(), "1".to_owned())],
        };
        let text = serde_json::to_string(&spec).unwrap();
        assert_eq!(serde_json::from_str::<JobSpec>(&text).unwrap(), spec);
    }
}
