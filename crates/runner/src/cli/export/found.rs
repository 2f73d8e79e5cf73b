//! The learnt state to export, with its origin.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use results::InputFile;

/// The choices by arguments.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) target: Option<&'a str>,
    pub(super) task: Option<&'a str>,
    pub(super) arm: Option<&'a str>,
}

/// Evidence of which drafter learnt.
pub(super) enum Proof {
    /// The drafter's files that a run read.
    Files(Vec<InputFile>),
    /// The state of a server.
    #[cfg(feature = "serve")]
    State(Box<serve::SavedState>),
}

/// A drafter's learnt state.
pub(super) struct Found {
    /// Folder of the learnt state.
    pub(super) learnt: PathBuf,
    /// The adapter in it, if it holds several.
    pub(super) adapter: Option<String>,
    /// The drafter that the state or the run names.
    pub(super) drafter: Option<PathBuf>,
    pub(super) proof: Proof,
    /// Origin: `chat or serve`, or a run with cell and arm.
    pub(super) place: String,
    pub(super) target: String,
    /// Tasks of the prompts; empty for a server.
    pub(super) tasks: Vec<String>,
    /// Number of answers that it drafted for while it learnt.
    pub(super) answers: Option<u64>,
    /// Mean acceptance rates of the first and of the last answers, with the number of answers in
    /// each mean.
    pub(super) acceptance: Option<([f64; 2], usize)>,
}

impl Found {
    /// The drafter given by an option, else the one that the state names.
    pub(super) fn drafter_path(&self, asked: Option<&Path>) -> Result<PathBuf> {
        match asked.map(Path::to_owned).or_else(|| self.drafter.clone()) {
            Some(path) => Ok(path),
            None => bail!(
                "{}: does not say which drafter learnt\nhint: name its folder with --drafter",
                self.place
            ),
        }
    }

    /// Fails if the drafter in `folder` is not the one that learnt.
    pub(super) fn check_drafter(&self, folder: &Path) -> Result<()> {
        match &self.proof {
            #[cfg(feature = "serve")]
            Proof::State(state) => state.check_drafter(folder),
            Proof::Files(files) => {
                for file in files {
                    let path = folder.join(&file.name);
                    let same = path.is_file()
                        && InputFile::hash(&file.role, &path, None)?.sha256 == file.sha256;
                    if !same {
                        bail!(
                            "{}: not the drafter that learnt: its {} was another one\nhint: name the drafter of this run with --drafter",
                            folder.display(),
                            file.name
                        );
                    }
                }
                Ok(())
            }
        }
    }
}

/// The only one of several, or the one with this name; `what` describes them, and `option` chooses
/// one.
pub(super) fn one<'a>(
    names: &'a [String],
    wanted: Option<&str>,
    (what, option): (&str, &str),
    place: &Path,
) -> Result<&'a String> {
    let all = || names.join(", ");
    match (names, wanted) {
        ([], _) => bail!("{}: no {what} learnt", place.display()),
        (_, Some(wanted)) => names.iter().find(|name| *name == wanted).ok_or_else(|| {
            anyhow::anyhow!(
                "{option} {wanted}: no such {what} in {}\nhint: {} learnt",
                place.display(),
                all()
            )
        }),
        ([only], None) => Ok(only),
        (_, None) => bail!(
            "{}: more than one {what} learnt: {}\nhint: choose one with {option}",
            place.display(),
            all()
        ),
    }
}
