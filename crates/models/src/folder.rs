//! Checks that a path is a model folder.

use std::borrow::Cow;
use std::path::{Component, Path};

use hub::local_folder;
use lm::ADAPTER_CONFIG;
use serde_json::Value;
use vocab_align::without_mark;

use crate::error::Result;

const TOKENIZER: &str = "tokenizer.json";
/// SentencePiece's own file, which is read if there is no other.
const PIECES: &str = "tokenizer.model";
/// Files of a model folder that say how its tokens are written and read, with its configuration.
pub const TEXT_FILES: [&str; 12] = [
    "config.json",
    "generation_config.json",
    TOKENIZER,
    PIECES,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "chat_templates/default.jinja",
    "chat_templates/tool_use.jinja",
    crate::TEMPLATE_FILE,
];

/// Reason for which a path is not a model folder, with what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct FolderError {
    message: String,
    hint: String,
}

impl FolderError {
    fn new(path: &Path, fault: &str, hint: impl Into<String>) -> Self {
        Self {
            message: format!("{}: {fault}", path.display()),
            hint: hint.into(),
        }
    }

    /// Advice for the user.
    pub fn hint(&self) -> String {
        self.hint.clone()
    }
}

fn import(file: &Path) -> String {
    format!(
        "`omnidraft import {} --out DIR` makes a model folder of the file, its tokenizer included",
        file.display()
    )
}

/// True for a file of weights, by its name, in any format that is read.
pub fn is_weight_file(path: &Path) -> bool {
    let kind = path.extension().and_then(|kind| kind.to_str());
    matches!(kind, Some("safetensors" | "bin" | "gguf"))
}

fn is_gguf(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "gguf")
}

/// True for a path that looks like `owner/name` of the hub: two words, the first of which is no
/// folder.
fn is_of_hub(path: &Path) -> bool {
    let mut parts = path.components();
    let sign = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let plain = |part: Option<Component<'_>>| match part {
        Some(Component::Normal(name)) => name.to_str().is_some_and(|name| name.chars().all(sign)),
        _ => false,
    };
    let owner = parts.next();
    let both = plain(owner) && plain(parts.next()) && parts.next().is_none();
    both && owner.is_some_and(|owner| !Path::new(&owner).exists())
}

/// Refuses a link to nothing.
fn check_link(path: &Path) -> Result<(), FolderError> {
    match path.read_link() {
        Ok(target) if !path.exists() => {
            let fault = format!("a link to {}, where there is nothing", target.display());
            let hint = "the folder was moved without what its links name, as a snapshot of the hub's cache without blobs/; copy it with `cp -rL`, or download it again";
            Err(FolderError::new(path, &fault, hint))
        }
        _ => Ok(()),
    }
}

/// The error of a path that does not exist.
fn missing(path: &Path) -> FolderError {
    let here = std::env::current_dir().unwrap_or_default();
    let downloads = match is_of_hub(path) {
        true => format!("hf:{} downloads the model of this name", path.display()),
        false => "hf:owner/name downloads a model".to_owned(),
    };
    let hint = format!(
        "paths of models are relative to the working directory, {}; {downloads}",
        here.display()
    );
    FolderError::new(path, "no such model folder", hint)
}

/// Checks that a local path is a folder, and that the files which affect the model's behaviour are
/// neither links to nothing nor pointers of git-lfs.
///
/// # Errors
/// [`FolderError`].
pub fn check_files(path: &Path) -> Result<(), FolderError> {
    check_link(path)?;
    if path.is_file() {
        let hint = match is_gguf(path) {
            true => import(path),
            false => "name the folder that the file is in".to_owned(),
        };
        return Err(FolderError::new(path, "a file, not a model folder", hint));
    }
    if !path.is_dir() {
        return Err(missing(path));
    }
    for name in TEXT_FILES {
        let file = path.join(name);
        check_link(&file)?;
        if weights::is_pointer(&file) {
            let fault = "a pointer of git-lfs, not the file itself";
            let hint = "`git lfs pull` in the folder fetches the file";
            return Err(FolderError::new(&file, fault, hint));
        }
    }
    Ok(())
}

/// Checks that a local path is the folder of a model, with a tokenizer or without.
///
/// # Errors
/// As [`check_files`]; an adapter without a model.
pub fn check_model(path: &Path) -> Result<(), FolderError> {
    check_files(path)?;
    let adapter = path.join(ADAPTER_CONFIG);
    if adapter.is_file() && !path.join("config.json").exists() && !weights::has_gguf(path) {
        let text = std::fs::read(&adapter).unwrap_or_default();
        let config: Value = serde_json::from_slice(without_mark(&text)).unwrap_or_default();
        let base = config["base_model_name_or_path"].as_str();
        let base = base.filter(|base| !base.is_empty());
        let fault = format!(
            "an adapter of {} ({ADAPTER_CONFIG}), not a model",
            base.unwrap_or("a model that it does not name")
        );
        let hint = format!(
            "merge it into {} first and name the folder of the result (in Python, merge_and_unload of PEFT, then save_pretrained)",
            base.unwrap_or("its base model")
        );
        return Err(FolderError::new(path, &fault, hint));
    }
    Ok(())
}

/// Checks that a local path is a model folder. Its configuration, weights and tokenizer are not
/// parsed.
///
/// # Errors
/// As [`check_model`]; a folder without a tokenizer.
pub fn check_folder(path: &Path) -> Result<(), FolderError> {
    check_model(path)?;
    if [TOKENIZER, PIECES]
        .iter()
        .any(|name| path.join(name).is_file())
    {
        return Ok(());
    }
    let files = std::fs::read_dir(path).into_iter().flatten().flatten();
    let gguf = files.map(|entry| entry.path()).find(|file| is_gguf(file));
    // The reader of a folder without either reports that its configuration is missing.
    if gguf.is_none() && !path.join("config.json").is_file() {
        return Ok(());
    }
    let hint = gguf.map_or_else(
        || "a model folder needs config.json, weights and tokenizer.json (or tokenizer.model); hf:owner/name downloads a model".to_owned(),
        |file| import(&file),
    );
    Err(FolderError::new(path, "has no tokenizer.json", hint))
}

/// Lets `fill` write a folder under a temporary name beside `out`, and renames it once it is
/// complete. What an interrupted call left there is removed; after an error nothing is left.
///
/// # Errors
/// The first one of `fill`, or of the system with the path, as `failed` makes it.
pub fn in_place<E>(
    out: &Path,
    failed: impl Fn(&Path, std::io::Error) -> E,
    fill: impl FnOnce(&Path) -> Result<(), E>,
) -> Result<(), E> {
    // `.part` is appended to the whole name: without its extension two models could share a
    // temporary folder. Appended to a path with a final slash, it would be a folder in `out`.
    let mut name = out.file_name().unwrap_or_default().to_owned();
    name.push(".part");
    let part = out.with_file_name(name);
    if part.exists() {
        std::fs::remove_dir_all(&part).map_err(|source| failed(&part, source))?;
    }
    std::fs::create_dir_all(&part).map_err(|source| failed(&part, source))?;
    let moved = || std::fs::rename(&part, out).map_err(|source| failed(out, source));
    let made = fill(&part).and_then(|()| moved());
    if made.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_dir_all(&part);
    }
    made
}

/// The local folder of a model, downloaded first if it is on the hub.
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

    #[test]
    fn folders_are_written_beside_each_other() {
        let root = tempfile::tempdir().unwrap();
        let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
        let write = |part: &Path, text: &str| {
            let file = part.join("text");
            std::fs::write(&file, text).map_err(|error| failed(&file, error))
        };
        let (four, eight) = (root.path().join("A.Q4"), root.path().join("A.Q8"));
        let both = |part: &Path| {
            write(part, "4")?;
            in_place(&eight, failed, |part| write(part, "8"))
        };
        in_place(&four, failed, both).unwrap();
        let slash = root.path().join("B/");
        in_place(&slash, failed, |part| write(part, "B")).unwrap();
        for (folder, text) in [(&four, "4"), (&eight, "8"), (&slash, "B")] {
            let found = std::fs::read_to_string(folder.join("text")).unwrap();
            assert_eq!(found, text);
        }
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_name_of_the_hub_is_told_as_such() {
        let hint = |path: &str| check_folder(path.as_ref()).unwrap_err().hint();
        assert!(hint("Nobody/Model-0.5B").contains("hf:Nobody/Model-0.5B downloads"));
        // This folder exists, so that the path means a file in it.
        for path in [
            "src/none",
            "none",
            "a/b/c",
            "./Nobody/Model",
            "../x",
            "~/x",
            "my models/x",
        ] {
            assert!(hint(path).contains("hf:owner/name"), "{path}");
        }
    }

    #[test]
    fn an_adapter_alone_is_no_model() {
        let root = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(root.path().join(name), text).unwrap();
        write(TOKENIZER, "{}");
        write("adapter_model.safetensors", "");
        for (config, base) in [
            (r#"{"base_model_name_or_path": "owner/base"}"#, "owner/base"),
            ("{}", "that it does not name"),
            ("no JSON", "that it does not name"),
        ] {
            write(ADAPTER_CONFIG, config);
            let error = check_folder(root.path()).unwrap_err();
            let said = error.to_string();
            assert!(
                said.contains("an adapter of") && said.contains(base),
                "{said}"
            );
            assert!(
                error.hint().starts_with("merge it into "),
                "{}",
                error.hint()
            );
        }
        write("config.json", "{}");
        assert!(check_folder(root.path()).is_ok());
    }

    #[test]
    fn pointers_of_git_lfs_are_no_files() {
        let root = tempfile::tempdir().unwrap();
        let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";
        std::fs::create_dir(root.path().join("chat_templates")).unwrap();
        for name in TEXT_FILES {
            let file = root.path().join(name);
            std::fs::write(&file, pointer).unwrap();
            let error = check_files(root.path()).unwrap_err();
            let said = error.to_string();
            assert!(said.contains(name) && said.contains("git-lfs"), "{said}");
            assert!(error.hint().contains("git lfs pull"));
            std::fs::remove_file(&file).unwrap();
        }
        assert!(check_files(root.path()).is_ok());
    }

    #[cfg(unix)]
    #[test]
    fn links_to_nothing_are_told_with_what_they_name() {
        let root = tempfile::tempdir().unwrap();
        let link = |target: &str, name: &str| {
            let path = root.path().join(name);
            std::os::unix::fs::symlink(target, &path).unwrap();
            path
        };
        let told = |path: &Path, parts: [&str; 2]| {
            let error = check_files(path).unwrap_err();
            let said = error.to_string();
            assert!(parts.iter().all(|part| said.contains(part)), "{said}");
            assert!(error.hint().contains("cp -rL"), "{}", error.hint());
        };
        std::fs::create_dir(root.path().join("chat_templates")).unwrap();
        for name in TEXT_FILES {
            let file = link("../blobs/4d7a", name);
            told(root.path(), [name, "../blobs/4d7a"]);
            std::fs::remove_file(&file).unwrap();
        }
        told(&link("elsewhere", "model"), ["model: a link", "elsewhere"]);
        // Files that are not read may be links to nothing, and a link to a file is accepted.
        link("nowhere", "README.md");
        std::fs::write(root.path().join("blob"), "{}").unwrap();
        link("blob", TOKENIZER);
        assert!(check_folder(root.path()).is_ok());
    }
}
