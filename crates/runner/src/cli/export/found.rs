//! What was learnt, and by what, wherever it was found.

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use results::InputFile;

/// What the arguments choose.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) target: Option<&'a str>,
    pub(super) task: Option<&'a str>,
    pub(super) arm: Option<&'a str>,
}

/// How to tell whether a drafter is the one that learnt.
pub(super) enum Proof {
    /// Its files, as a run read them.
    Files(Vec<InputFile>),
    /// The state of a server knows.
    #[cfg(feature = "serve")]
    State(Box<serve::SavedState>),
}

/// What a drafter learnt.
pub(super) struct Found {
    /// Folder of what was learnt.
    pub(super) learnt: PathBuf,
    /// The adapter in it, where it holds several.
    pub(super) adapter: Option<String>,
    /// The drafter that the state or the run names.
    pub(super) drafter: Option<PathBuf>,
    pub(super) proof: Proof,
    /// Where it learnt: `chat or serve`, or a run with cell and arm.
    pub(super) place: String,
    pub(super) target: String,
    /// None where answers of all kinds were asked for.
    pub(super) tasks: Vec<String>,
    /// Answers that it drafted for while it learnt.
    pub(super) answers: Option<u64>,
    /// Mean share of drafted tokens that were accepted, of the first and of the last so many answers.
    pub(super) acceptance: Option<([f64; 2], usize)>,
}

impl Found {
    /// The drafter that is asked for, else the one that is named.
    pub(super) fn drafter_path(&self, asked: Option<&Path>) -> Result<PathBuf> {
        match asked.map(Path::to_owned).or_else(|| self.drafter.clone()) {
            Some(path) => Ok(path),
            None => bail!(
                "{}: does not say which drafter learnt\nhint: name its folder with --drafter",
                self.place
            ),
        }
    }

    /// Fails where the drafter in `folder` is not the one that learnt.
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

/// The only one of several, or the one of this name; `what` they are, and the option that chooses.
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
