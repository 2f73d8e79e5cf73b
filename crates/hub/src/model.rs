//! Models named `hf:owner/name`: such a model is downloaded when it is first used.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use hf_hub::RepoType;
use serde::Deserialize;
use serde_json::Value;

use super::client::{Hub, Snapshot, is_plain_path, write_whole};
use super::error::{FileFault, HubError};

/// Prefix of a model of the hub where a model folder is expected.
const MODEL_PREFIX: &str = "hf:";

const CONFIG: &str = "config.json";
const TOKENIZER: &str = "tokenizer.json";
/// File of a SentencePiece tokenizer. Older models have it instead of `tokenizer.json`.
const PIECES: &str = "tokenizer.model";
const WEIGHTS: &str = "model.safetensors";
/// Files of weights, in the order of preference. An index names its shards.
const WEIGHT_FILES: [&str; 4] = [
    WEIGHTS,
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
];
/// Optional files of a model, downloaded if the repository has them.
const OPTIONAL: [&str; 9] = [
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "chat_templates/default.jinja",
    "chat_templates/tool_use.jinja",
    "omnidraft.json",
];

/// A model of the hub at a revision.
///
/// ```
/// use hub::ModelId;
///
/// let id = |text: &str| text.parse::<ModelId>();
/// assert_eq!(id("hf:owner/name")?, id("hf:owner/name@main")?);
/// assert_ne!(id("hf:owner/name")?, id("hf:owner/name@refs/pr/1")?);
/// assert!(id("hf:../secrets").is_err());
/// # Ok::<(), hub::HubError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelId {
    /// `owner/name`.
    repo: String,
    /// A branch, tag or commit.
    revision: String,
}

impl FromStr for ModelId {
    type Err = HubError;

    fn from_str(text: &str) -> Result<Self, HubError> {
        let bad = || HubError::BadName(text.to_owned());
        let name = text.strip_prefix(MODEL_PREFIX).ok_or_else(bad)?;
        let (repo, revision) = name.split_once('@').unwrap_or((name, "main"));
        // Both become paths in the cache and parts of an address.
        let plain = |text: &str| {
            let known = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
            is_plain_path(text) && text.bytes().all(known)
        };
        if !plain(repo) || !plain(revision) || repo.matches('/').count() > 1 {
            return Err(bad());
        }
        Ok(Self {
            repo: repo.to_owned(),
            revision: revision.to_owned(),
        })
    }
}

impl ModelId {
    /// The model that `folder` names in place of a folder; `None` if it is an ordinary path.
    fn in_place_of(folder: &Path) -> Option<Result<Self, HubError>> {
        let text = folder.to_str()?;
        text.starts_with(MODEL_PREFIX).then(|| text.parse())
    }
}

/// True if a path begins with `hf:`, even if what follows is not a valid name of a model.
pub fn is_model_name(path: &Path) -> bool {
    ModelId::in_place_of(path).is_some()
}

/// The folder itself, or the local copy of the model that `hf:owner/name` names.
///
/// # Errors
/// Those of [`Hub::model`].
pub fn local_folder(folder: &Path) -> Result<Cow<'_, Path>, HubError> {
    match ModelId::in_place_of(folder) {
        None => Ok(Cow::Borrowed(folder)),
        Some(id) => Hub::from_env()?.model(&id?).map(Cow::Owned),
    }
}

/// The complete local copy of the model that `hf:owner/name` names. Nothing is downloaded. `None`
/// if the copy is not complete, or if the path names no model of the hub.
///
/// # Errors
/// An invalid name; no folder for downloads.
pub fn local_copy(folder: &Path) -> Result<Option<PathBuf>, HubError> {
    let Some(id) = ModelId::in_place_of(folder) else {
        return Ok(None);
    };
    let (id, hub) = (id?, Hub::from_env()?);
    Ok(hub.complete(&id, &hub.note(&id)))
}

/// A model of the hub before its download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Offer {
    /// True if its terms have to be accepted on its page, and requests need a token.
    pub gated: bool,
    /// Bytes of the files of weights that a download fetches; `None` if the hub does not say.
    pub bytes: Option<u64>,
    /// Number of parameters; `None` if the hub does not say.
    pub parameters: Option<u64>,
}

/// Size of the model that `hf:owner/name` names, and the access to it, as the hub reports them.
/// Nothing is downloaded. `None` if the path names no model of the hub.
///
/// # Errors
/// An invalid name; the hub does not answer, or not in its form.
pub fn offer(folder: &Path) -> Result<Option<Offer>, HubError> {
    let Some(id) = ModelId::in_place_of(folder) else {
        return Ok(None);
    };
    Hub::from_env()?.offer(&id?).map(Some)
}

/// The local `tokenizer.json` of a model of the hub, downloaded without the weights; `None` if
/// `path` is local.
///
/// # Errors
/// Those of [`Hub::tokenizer`].
pub fn local_tokenizer(path: &Path) -> Result<Option<PathBuf>, HubError> {
    let Some(id) = ModelId::in_place_of(path) else {
        return Ok(None);
    };
    Hub::from_env()?.tokenizer(&id?).map(Some)
}

impl Hub {
    /// The local folder of a model, downloaded if it is not complete yet. A complete folder is used
    /// without asking the hub, so that a run repeated later reads the same weights.
    ///
    /// # Errors
    /// The repository has no `config.json`, no tokenizer, or no weights as safetensors or PyTorch
    /// files; or a download fails.
    pub fn model(&self, id: &ModelId) -> Result<PathBuf, HubError> {
        let note = self.note(id);
        if let Some(folder) = self.complete(id, &note) {
            tracing::info!("{}: {}", id.repo, folder.display());
            return Ok(folder);
        }
        let snapshot = self.snapshot(RepoType::Model, &id.repo, &id.revision)?;
        let found = WEIGHT_FILES.into_iter().find(|file| snapshot.has(file));
        let weights = found.unwrap_or(WEIGHTS);
        let mut files = vec![CONFIG.to_owned(), tokenizer_of(&snapshot).to_owned()];
        let optional = OPTIONAL.iter().filter(|file| snapshot.has(file));
        files.extend(optional.map(|file| file.to_string()));
        files.push(weights.to_owned());
        // Missing files are reported before gigabytes are fetched.
        let missing = files.iter().find(|file| !snapshot.has(file));
        if let Some(file) = missing {
            return Err(HubError::MissingFile {
                repo: id.repo.clone(),
                file: file.clone(),
            });
        }
        for file in &files {
            snapshot.fetch(file)?;
        }
        if weights.ends_with(".index.json") {
            for shard in shards(&snapshot, id, weights)? {
                snapshot.fetch(&shard)?;
                files.push(shard);
            }
        }
        self.remember(id, &snapshot)?;
        let lines = [snapshot.commit.clone()].into_iter().chain(files);
        let lines: Vec<String> = lines.collect();
        write_whole(&note, lines.join("\n").as_bytes())?;
        Ok(snapshot.folder())
    }

    fn offer(&self, id: &ModelId) -> Result<Offer, HubError> {
        #[derive(Deserialize)]
        struct Listing {
            /// `false`, or the way of getting access.
            #[serde(default)]
            gated: Value,
            safetensors: Option<Counted>,
            siblings: Vec<Sibling>,
        }
        #[derive(Deserialize)]
        struct Counted {
            total: Option<u64>,
        }
        #[derive(Deserialize)]
        struct Sibling {
            rfilename: String,
            size: Option<u64>,
        }
        let listing: Listing = self.listing(&id.repo, &id.revision)?;
        // Shards are named after the file that they are parts of.
        let kinds = [("model", ".safetensors"), ("pytorch_model", ".bin")];
        let of_kind = |(start, end): &(&str, &str)| {
            let files = listing.siblings.iter();
            let files = files
                .filter(|own| own.rfilename.starts_with(start) && own.rfilename.ends_with(end));
            let sizes: Vec<Option<u64>> = files.map(|own| own.size).collect();
            (!sizes.is_empty()).then_some(sizes)
        };
        let sizes = kinds.iter().find_map(of_kind);
        Ok(Offer {
            gated: !matches!(listing.gated, Value::Null | Value::Bool(false)),
            bytes: sizes.and_then(|sizes| sizes.into_iter().sum()),
            parameters: listing.safetensors.and_then(|counted| counted.total),
        })
    }

    /// The local tokenizer file of a model, with the files of the model beside it that say how text
    /// is read and written: configuration, special tokens, chat template. If the hub does not
    /// answer, a tokenizer in the cache is used as it is there.
    ///
    /// # Errors
    /// The repository has none, or the download fails.
    pub fn tokenizer(&self, id: &ModelId) -> Result<PathBuf, HubError> {
        let whole = self.note(id);
        let note = whole.with_added_extension("tokenizer");
        let complete = [&whole, &note].map(|note| self.complete(id, note));
        let paths = complete.into_iter().flatten();
        let mut paths = paths.flat_map(|folder| [TOKENIZER, PIECES].map(|file| folder.join(file)));
        if let Some(path) = paths.find(|path| path.is_file()) {
            return Ok(path);
        }
        let snapshot = match self.snapshot(RepoType::Model, &id.repo, &id.revision) {
            Ok(snapshot) => snapshot,
            Err(error) => {
                let cached = self.cached(RepoType::Model, &id.repo, &id.revision);
                let path = cached.get(TOKENIZER).or_else(|| cached.get(PIECES));
                return path.ok_or(error);
            }
        };
        let small = std::iter::once(&CONFIG).chain(&OPTIONAL);
        let small = small.copied().filter(|file| snapshot.has(file));
        let files: Vec<&str> = std::iter::once(tokenizer_of(&snapshot))
            .chain(small)
            .collect();
        for file in &files {
            snapshot.fetch(file)?;
        }
        self.remember(id, &snapshot)?;
        let lines = [&[&*snapshot.commit], &files[..]].concat();
        write_whole(&note, lines.join("\n").as_bytes())?;
        Ok(snapshot.folder().join(files[0]))
    }

    /// Records the commit of the revision in the cache, for other programs and for the next call.
    fn remember(&self, id: &ModelId, snapshot: &Snapshot) -> Result<(), HubError> {
        let cached = self.cached(RepoType::Model, &id.repo, &id.revision);
        let created = cached.create_ref(&snapshot.commit);
        created.map_err(HubError::io(snapshot.folder()))
    }

    /// Path of the note that says which commit of a model is complete, and with which files. The
    /// cache alone cannot distinguish a file that is still to be downloaded from one that the model
    /// does not have.
    fn note(&self, id: &ModelId) -> PathBuf {
        let name = format!("{}@{}", id.repo, id.revision).replace('/', "--");
        self.own_folder().join("models").join(name)
    }

    fn complete(&self, id: &ModelId, note: &Path) -> Option<PathBuf> {
        let text = fs::read_to_string(note).ok()?;
        let (commit, files) = text.split_once('\n')?;
        let cached = self.cached(RepoType::Model, &id.repo, &id.revision);
        let folder = cached.pointer_path(commit);
        let all = files.lines().all(|file| folder.join(file).is_file());
        all.then_some(folder)
    }
}

/// Name of the tokenizer file of a repository.
fn tokenizer_of(snapshot: &Snapshot) -> &'static str {
    match !snapshot.has(TOKENIZER) && snapshot.has(PIECES) {
        true => PIECES,
        false => TOKENIZER,
    }
}

/// The files of weights that the index `file` names.
fn shards(snapshot: &Snapshot, id: &ModelId, file: &str) -> Result<BTreeSet<String>, HubError> {
    #[derive(Deserialize)]
    struct Index {
        weight_map: BTreeMap<String, String>,
    }
    let path = snapshot.fetch(file)?;
    let bytes = fs::read(&path).map_err(HubError::io(&path))?;
    let index: Index = serde_json::from_slice(&bytes)
        .map_err(|error| FileFault::Reply(error.to_string()).of(&id.repo, file))?;
    Ok(index.weight_map.into_values().collect())
}
