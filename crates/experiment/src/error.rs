//! Errors of experiments.

use std::fmt;
use std::path::PathBuf;

/// A fault of an experiment, with its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// File and line, or the override; `None` for a value that is written nowhere.
    pub place: Option<String>,
    /// Dotted key; empty for a fault of a whole file or override.
    pub key: String,
    /// Description of the fault.
    pub message: String,
    /// Advice for the user.
    pub hint: Option<String>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in self.place.iter().chain(Some(&self.key)) {
            if !part.is_empty() {
                write!(f, "{part}: ")?;
            }
        }
        f.write_str(&self.message)
    }
}

/// An experiment that cannot be run, or a selection without jobs.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExperimentError {
    /// A file that cannot be read.
    #[error("{}{}: cannot be read: {source}", included_by.as_ref().map(|place| format!("{place}: include: ")).unwrap_or_default(), path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// File and line that include it.
        included_by: Option<String>,
        /// The system's error.
        source: std::io::Error,
        /// An experiment beside it with a similar name.
        near: Option<PathBuf>,
    },
    /// A file that is not TOML.
    #[error("{}: not an experiment file: line {line}: {message}", path.display())]
    NotToml {
        /// The file.
        path: PathBuf,
        /// Line of the first fault, from 1.
        line: usize,
        /// The parser's message.
        message: String,
    },
    /// Files that include each other in a cycle; the value lists them, the first one also last.
    #[error("include: the files go round in a circle: {}", chain(.0))]
    Circle(Vec<PathBuf>),
    /// All faults of the files and the overrides.
    #[error("{}", list(path, faults))]
    Faults {
        /// The experiment.
        path: PathBuf,
        /// The faults in the order of discovery, at least one.
        faults: Vec<Fault>,
    },
    /// A selection of jobs that names an unknown stage, axis or value, or is empty; the value is
    /// the message.
    #[error("{0}")]
    Filter(String),
    /// A stored job that is not valid; the value names the key and the fault.
    #[error("the stored job cannot be run: {0}")]
    Job(String),
}

impl ExperimentError {
    /// Advice for the user.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read {
                near: Some(near), ..
            } => Some(format!("did you mean {}?", near.display())),
            Self::Read {
                included_by: Some(_),
                ..
            } => Some("paths of `include` are relative to the file".to_owned()),
            Self::Read { .. } => Some(
                "an experiment is a TOML file; its path is relative to the working directory"
                    .to_owned(),
            ),
            Self::NotToml { .. } => {
                Some("an experiment is a TOML file whose name ends in .toml".to_owned())
            }
            Self::Circle(_) => Some("put what both need into a third file".to_owned()),
            Self::Faults { faults, .. } => {
                let mut hints: Vec<&str> = Vec::new();
                for hint in faults.iter().filter_map(|fault| fault.hint.as_deref()) {
                    if !hints.contains(&hint) {
                        hints.push(hint);
                    }
                }
                if hints.is_empty() {
                    hints.push("`omnidraft config` prints every key, with what it may be");
                }
                Some(hints.join("\n      "))
            }
            Self::Filter(_) => None,
            Self::Job(_) => Some("run it with the program version that wrote it".to_owned()),
        }
    }
}

fn chain(files: &[PathBuf]) -> String {
    let names: Vec<String> = files
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    names.join(" -> ")
}

fn list(path: &std::path::Path, faults: &[Fault]) -> String {
    let path = path.display();
    match faults {
        [one] if one.place.is_some() => one.to_string(),
        [one] => format!("{path}: {one}"),
        many => {
            let lines: Vec<String> = many.iter().map(|fault| format!("\n  {fault}")).collect();
            format!("{path}: {} faults{}", many.len(), lines.concat())
        }
    }
}
