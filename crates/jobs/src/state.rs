//! State of a cell, determined from its folder alone.

use results::{CellStatus, MANIFEST_SCHEMA};
use serde::Deserialize;

use crate::files::read_if_there;
use crate::{CellLock, Checks, JobFolder, JobSpec, JobsError, Need, RunRoot};

/// State of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellState {
    /// Not begun.
    Todo,
    /// All results are there.
    Complete,
    /// A process is running it.
    Running {
        /// Description of that process.
        holder: String,
    },
    /// Begun by a process that is gone. Its files are discarded, except a checkpoint.
    Unfinished,
    /// Failed; it is retried like an unfinished one.
    Failed {
        /// First line of the error.
        message: String,
    },
}

/// The part of a manifest that this crate reads.
#[derive(Debug, Deserialize)]
struct Head {
    status: CellStatus,
    config_sha256: String,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    build: HeadBuild,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct HeadBuild {
    version: String,
    git_commit: String,
}

/// A manifest: of this layout, or of another one of which only the number is read.
enum Manifest {
    Missing,
    Head(Head),
    OtherLayout(u32),
}

impl Manifest {
    fn read(folder: &JobFolder, schema: Option<u32>) -> Result<Self, JobsError> {
        #[derive(Deserialize)]
        struct SchemaOnly {
            schema: u32,
        }
        let path = folder.manifest();
        let Some(text) = read_if_there(&path)? else {
            return Ok(Self::Missing);
        };
        let malformed = |e: serde_json::Error| JobsError::json(&path, &e);
        let found = serde_json::from_str::<SchemaOnly>(&text).map_err(malformed)?;
        if schema.is_some_and(|schema| schema != found.schema) {
            return Ok(Self::OtherLayout(found.schema));
        }
        serde_json::from_str(&text)
            .map(Self::Head)
            .map_err(malformed)
    }
}

/// State of a job, after a check that this program may use the contents of its folder.
///
/// # Errors
/// A manifest of another configuration ([`JobsError::Edited`]), build ([`JobsError::OtherBuild`])
/// or version of the program, unless the job failed, since nothing of a failed job is used. A
/// manifest that is no JSON.
pub fn inspect(root: &RunRoot, job: &JobSpec, checks: &Checks) -> Result<CellState, JobsError> {
    look_and_check(&root.folder(&job.id), &job.hash, checks, false)
}

/// State of a job whose cell this process has locked, checked as by [`inspect`].
pub(crate) fn inspect_own(
    root: &RunRoot,
    job: &JobSpec,
    checks: &Checks,
) -> Result<CellState, JobsError> {
    look_and_check(&root.folder(&job.id), &job.hash, checks, true)
}

/// State of a needed job, checked like a job.
///
/// # Errors
/// As [`inspect`].
pub fn needed(root: &RunRoot, need: &Need, checks: &Checks) -> Result<CellState, JobsError> {
    look_and_check(&root.folder(&need.id), &need.hash, checks, false)
}

fn look_and_check(
    folder: &JobFolder,
    hash: &str,
    checks: &Checks,
    own: bool,
) -> Result<CellState, JobsError> {
    let manifest = Manifest::read(folder, Some(MANIFEST_SCHEMA))?;
    let state = place(folder, &manifest, own)?;
    if !matches!(state, CellState::Todo | CellState::Failed { .. }) {
        check(folder, &manifest, hash, checks)?;
    }
    Ok(state)
}

/// State of a cell, without a check of its program and configuration.
pub(crate) fn look(folder: &JobFolder) -> Result<CellState, JobsError> {
    place(folder, &Manifest::read(folder, None)?, false)
}

/// State of a cell; `own` says that the lock on it is this process's.
fn place(folder: &JobFolder, manifest: &Manifest, own: bool) -> Result<CellState, JobsError> {
    let head = match manifest {
        Manifest::Head(head) => Some(head),
        _ => None,
    };
    let status = head.map(|head| head.status);
    if status == Some(CellStatus::Complete) {
        return Ok(CellState::Complete);
    }
    if !own && let Some(holder) = CellLock::holder(folder)? {
        return Ok(CellState::Running { holder });
    }
    let noted = head.and_then(|head| head.error.clone());
    let error = read_if_there(&folder.error())?.or(noted);
    Ok(match (error, status) {
        (Some(error), _) => CellState::Failed {
            message: first_line(&error),
        },
        (None, Some(CellStatus::Failed)) => CellState::Failed {
            message: "the manifest says failed, but not why".to_owned(),
        },
        (None, None) if folder.is_empty()? => CellState::Todo,
        _ => CellState::Unfinished,
    })
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| !line.trim().is_empty());
    line.unwrap_or("no message").trim().to_owned()
}

fn check(
    folder: &JobFolder,
    manifest: &Manifest,
    hash: &str,
    checks: &Checks,
) -> Result<(), JobsError> {
    let build = &checks.build;
    let path = folder.path().to_path_buf();
    let version = |version: &str, schema| match version {
        "" => format!("layout {schema}"),
        _ => format!("version {version}, layout {schema}"),
    };
    let other_version = |found: String| {
        let written = format!("{} was written by another version", path.display());
        let expected = version(&build.version, MANIFEST_SCHEMA);
        Err(JobsError::refused(
            format!("{written} of the program: {found}, this is {expected}"),
            "give another folder with --out, or go on with the program that wrote this one",
        ))
    };
    let head = match manifest {
        Manifest::Missing => return Ok(()),
        Manifest::OtherLayout(schema) => return other_version(version("", *schema)),
        Manifest::Head(head) => head,
    };
    if head.build.version != build.version {
        return other_version(version(&head.build.version, MANIFEST_SCHEMA));
    }
    if head.config_sha256 != hash && !means_the_same(folder, hash, checks) {
        return Err(JobsError::Edited {
            id: folder.id().clone(),
            path,
        });
    }
    if head.build.git_commit != build.git_commit && !checks.accept_other_build {
        return Err(JobsError::OtherBuild {
            path,
            found: head.build.git_commit.clone(),
            expected: build.git_commit.clone(),
        });
    }
    Ok(())
}

/// True if a cell's configuration, which another build wrote, is the one with this hash.
fn means_the_same(folder: &JobFolder, hash: &str, checks: &Checks) -> bool {
    let manifest = results::Manifest::read(folder.path());
    manifest.is_ok_and(|own| (checks.hash_of)(&own.config).as_deref() == Some(hash))
}

#[cfg(test)]
#[path = "state_tests.rs"]
mod tests;
