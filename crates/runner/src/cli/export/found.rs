//! The learnt state to export, with its origin.

use std::path::Path;

use anyhow::Result;
use experiment::Segment;
use online::SavedState;

/// The choices by arguments.
#[derive(Clone, Copy)]
pub(super) struct Chosen<'a> {
    pub(super) target: Option<&'a str>,
    pub(super) task: Option<&'a str>,
    pub(super) arm: Option<&'a str>,
}

impl Chosen<'_> {
    /// True if a segment has the chosen target and the chosen task.
    pub(super) fn fits(self, segment: &Segment) -> bool {
        let fits = |wanted: Option<&str>, own: &String| wanted.is_none_or(|name| name == own);
        fits(self.target, &segment.target) && fits(self.task, &segment.task)
    }
}

/// A drafter's learnt state.
pub(super) struct Found {
    pub(super) saved: SavedState,
    /// Name of the weights or of the adapter in it.
    pub(super) name: String,
    /// Names of acceptance heads and statistics of draft lengths for the same prompts.
    pub(super) heads: Vec<String>,
    /// Origin: `chat or serve`, or a run with cell and arm.
    pub(super) place: String,
    /// The targets that it learnt to draft for.
    pub(super) targets: Vec<String>,
    /// Tasks of the prompts; empty for a server.
    pub(super) tasks: Vec<String>,
    /// Number of answers that it drafted for while it learnt.
    pub(super) answers: Option<u64>,
    /// Mean acceptance rates of the first and of the last answers, with the number of answers in
    /// each mean.
    pub(super) acceptance: Option<([f64; 2], usize)>,
}

/// The only one of `names`, or the one that is `wanted`. Errors call them `what` and name the
/// `option` that chooses one.
pub(super) fn one<'a>(
    names: &'a [String],
    wanted: Option<&str>,
    (what, option): (&str, &str),
    place: &Path,
) -> Result<&'a String> {
    let all = || names.join(", ");
    match (names, wanted) {
        ([], _) => anyhow::bail!("{}: no {what} learnt", place.display()),
        (_, Some(wanted)) => names.iter().find(|name| *name == wanted).ok_or_else(|| {
            anyhow::anyhow!(
                "{option} {wanted}: no such {what} in {}\nhint: {} learnt",
                place.display(),
                all()
            )
        }),
        ([only], None) => Ok(only),
        (_, None) => anyhow::bail!(
            "{}: more than one {what} learnt: {}\nhint: choose one with {option}",
            place.display(),
            all()
        ),
    }
}
