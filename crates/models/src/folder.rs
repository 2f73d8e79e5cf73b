//! Paths that should be model folders and are not.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::Result;
use hub::local_folder;

const TOKENIZER: &str = "tokenizer.json";
/// SentencePiece's own file, which is read where there is no other.
const PIECES: &str = "tokenizer.model";

/// Why a path is no model folder.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FolderError {
    /// There is nothing.
    #[error("{}: no such model folder", path.display())]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// A file.
    #[error("{}: a file, not a model folder", path.display())]
    File {
        /// The path.
        path: PathBuf,
    },
    /// A folder without a tokenizer.
    #[error("{}: has no {TOKENIZER}", path.display())]
    NoTokenizer {
        /// The folder.
        path: PathBuf,
        /// A GGUF file in it, which holds a tokenizer in a form of its own.
        gguf: Option<PathBuf>,
    },
}

impl FolderError {
    /// A hint: what to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Missing { .. } => {
                let here = std::env::current_dir().unwrap_or_default();
                format!(
                    "paths of models are relative to the working directory, {}; hf:owner/name downloads a model",
                    here.display()
                )
            }
            Self::File { path } if is_gguf(path) => import(path),
            Self::File { .. } => "name the folder that the file is in".to_owned(),
            Self::NoTokenizer {
                gguf: Some(file), ..
            } => import(file),
            Self::NoTokenizer { .. } => {
                "a model folder needs config.json, weights and tokenizer.json (or tokenizer.model); hf:owner/name downloads a model"
                    .to_owned()
            }
        }
    }
}

fn import(file: &Path) -> String {
    format!(
        "`omnidraft import {} --out DIR` makes a model folder of the file, its tokenizer included",
        file.display()
    )
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gguf")
}

/// Looks whether a local path is a model folder, without reading its files.
///
/// # Errors
/// [`FolderError`] where it is none.
pub fn check_folder(path: &Path) -> Result<(), FolderError> {
    let owned = || path.to_path_buf();
    if path.is_file() {
        return Err(FolderError::File { path: owned() });
    }
    if !path.is_dir() {
        return Err(FolderError::Missing { path: owned() });
    }
    if [TOKENIZER, PIECES]
        .iter()
        .any(|name| path.join(name).is_file())
    {
        return Ok(());
    }
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    let gguf = files.map(|entry| entry.path()).find(|file| is_gguf(file));
    // Who reads a folder without either says that its configuration is missing.
    match gguf.is_some() || path.join("config.json").is_file() {
        true => Err(FolderError::NoTokenizer {
            path: owned(),
            gguf,
        }),
        false => Ok(()),
    }
}

/// The local folder of a model, downloaded first where it is one of the hub.
pub(crate) fn model_folder(path: &Path) -> Result<Cow<'_, Path>> {
    let path = local_folder(path)?;
    check_folder(&path)?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        let told = |path: &Path| {
            let error = check_folder(path).unwrap_err();
            (error.to_string(), error.hint())
        };
        let (message, hint) = told(&root.path().join("none"));
        assert!(message.ends_with("none: no such model folder"), "{message}");
        assert!(hint.contains("working directory"), "{hint}");

        let file = root.path().join("m.gguf");
        std::fs::write(&file, "").unwrap();
        let (message, hint) = told(&file);
        assert!(
            message.ends_with("m.gguf: a file, not a model folder"),
            "{message}"
        );
        assert!(
            hint.contains("omnidraft import") && hint.contains("m.gguf"),
            "{hint}"
        );
        let (message, hint) = told(root.path());
        assert!(message.ends_with("has no tokenizer.json"), "{message}");
        assert!(
            hint.contains("omnidraft import") && hint.contains("m.gguf"),
            "{hint}"
        );

        std::fs::remove_file(&file).unwrap();
        assert!(check_folder(root.path()).is_ok());
        std::fs::write(root.path().join("config.json"), "{}").unwrap();
        assert!(told(root.path()).1.contains("config.json"));
        for name in [TOKENIZER, PIECES] {
            let file = root.path().join(name);
            std::fs::write(&file, "{}").unwrap();
            assert!(check_folder(root.path()).is_ok(), "{name}");
            std::fs::remove_file(&file).unwrap();
        }
    }
}
