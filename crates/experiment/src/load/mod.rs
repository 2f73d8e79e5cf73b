//! Loading of files into a merged tree in which every value knows its place.

mod faults;
mod include;
mod near;
mod overrides;
mod read;
mod source;
mod tree;

use std::path::{Path, PathBuf};

use crate::error::ExperimentError;

pub(crate) use faults::Faults;
pub use near::nearest;
pub(crate) use read::{read, read_or_default};
pub(crate) use tree::{Kind, Node, Place, Table};

/// Options from the command line.
#[derive(Debug, Clone, Default)]
pub struct LoadOptions {
    /// Overrides `key=value`, in order, which take precedence over all files.
    pub overrides: Vec<String>,
    /// Files read after those that the experiment includes and before its own keys; relative to the
    /// working directory.
    pub extra_includes: Vec<PathBuf>,
}

/// Reads an experiment and everything it includes, and applies the overrides.
pub(crate) fn load(
    path: &Path,
    options: &LoadOptions,
    faults: &mut Faults,
) -> Result<Node, ExperimentError> {
    let extra = &options.extra_includes;
    let mut root = include::file(path, extra, None, &mut Vec::new(), faults)?;
    for text in &options.overrides {
        overrides::apply(&mut root, text, faults);
    }
    tree::normalise(&mut root);
    Ok(root)
}
