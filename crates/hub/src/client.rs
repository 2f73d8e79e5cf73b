//! A hub's repositories: the list of a repository's files, and the download of each to disk.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fmt, fs};

use hf_hub::api::sync::{Api, ApiBuilder, ApiError, ApiRepo};
use hf_hub::{Cache, CacheRepo, Repo, RepoType};
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::error::{FileFault, HubError};
use super::progress::LateBar;

/// Pauses between attempts at an interrupted transfer. After the last one the error goes to the
/// user.
const PAUSES: [Duration; 2] = [Duration::from_millis(500), Duration::from_millis(1500)];
/// Name of the list of a repository's files in error messages.
const LISTING: &str = "list of files";

/// A hub and the local folders that keep its files.
#[derive(Clone)]
pub struct Hub {
    /// Address of the hub; the public hub if `None`.
    endpoint: Option<String>,
    home: PathBuf,
    cache: PathBuf,
    token: Option<String>,
}

impl fmt::Debug for Hub {
    // Written by hand, because a token must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hub")
            .field("endpoint", &self.endpoint)
            .field("home", &self.home)
            .field("cache", &self.cache)
            .field("token", &self.token.is_some())
            .finish()
    }
}

impl Hub {
    /// A hub at `endpoint` whose files are kept under `home`. Requests carry no token.
    pub fn new(endpoint: impl Into<String>, home: impl Into<PathBuf>) -> Self {
        Self {
            endpoint: Some(endpoint.into().trim_end_matches('/').to_owned()),
            ..Self::public(home.into())
        }
    }

    fn public(home: PathBuf) -> Self {
        Self {
            endpoint: None,
            cache: home.join("hub"),
            home,
            token: None,
        }
    }

    /// The hub and folders that `HF_ENDPOINT`, `HF_HOME`, `HF_HUB_CACHE` and `HF_TOKEN` (or the
    /// token file in `HF_HOME`) name. Without `HF_HOME` it is `huggingface` in `XDG_CACHE_HOME`, or
    /// in `~/.cache`.
    ///
    /// # Errors
    /// [`HubError::NoHome`].
    pub fn from_env() -> Result<Self, HubError> {
        let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
        let home = set("HF_HOME")
            .map(PathBuf::from)
            .or_else(|| Some(PathBuf::from(set("XDG_CACHE_HOME")?).join("huggingface")))
            .or_else(|| Some(env::home_dir()?.join(".cache/huggingface")))
            .ok_or(HubError::NoHome)?;
        let mut hub = match set("HF_ENDPOINT") {
            Some(endpoint) => Self::new(endpoint.to_string_lossy(), home),
            None => Self::public(home),
        };
        if let Some(cache) = set("HF_HUB_CACHE") {
            hub.cache = cache.into();
        }
        let token = set("HF_TOKEN")
            .and_then(|value| value.into_string().ok())
            .or_else(|| fs::read_to_string(hub.home.join("token")).ok());
        hub.token = token
            .map(|token| token.trim().to_owned())
            .filter(|token| !token.is_empty());
        Ok(hub)
    }

    /// The same hub; its requests carry `token`.
    pub fn with_token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// This program's folder beside the cache.
    pub(super) fn own_folder(&self) -> PathBuf {
        self.home.join("omnidraft")
    }

    /// The cached files of a repository at a revision.
    pub(super) fn cached(&self, kind: RepoType, repo: &str, revision: &str) -> CacheRepo {
        let repo = Repo::with_revision(repo.to_owned(), kind, revision.to_owned());
        Cache::new(self.cache.clone()).repo(repo)
    }

    fn api(&self) -> Result<Api, ApiError> {
        let mut builder =
            ApiBuilder::from_cache(Cache::new(self.cache.clone())).with_token(self.token.clone());
        if let Some(endpoint) = &self.endpoint {
            builder = builder.with_endpoint(endpoint.clone());
        }
        builder.build()
    }

    /// Asks the hub about a repository: its files with their sizes, and what it says of the model.
    pub(super) fn listing<T: DeserializeOwned>(
        &self,
        repo: &str,
        revision: &str,
    ) -> Result<T, HubError> {
        let failed = |error| HubError::from_api(repo, LISTING, error);
        let at = Repo::with_revision(repo.to_owned(), RepoType::Model, revision.to_owned());
        let request = self.api().map_err(failed)?.repo(at).info_request();
        let answer = request.query("blobs", "true").call();
        let body = answer.and_then(|mut answer| answer.body_mut().read_json());
        body.map_err(|error| failed(Box::new(error).into()))
    }

    /// Asks the hub for the commit of a revision and for the list of its files.
    pub(super) fn snapshot(
        &self,
        kind: RepoType,
        repo: &str,
        revision: &str,
    ) -> Result<Snapshot, HubError> {
        let failed = |error| HubError::from_api(repo, LISTING, error);
        let api = self.api().map_err(failed)?;
        let at = |revision: &str| Repo::with_revision(repo.to_owned(), kind, revision.to_owned());
        let info = api.repo(at(revision)).info().map_err(failed)?;
        let files: Vec<String> = info.siblings.into_iter().map(|s| s.rfilename).collect();
        // Both become paths in the cache.
        let strange = files.iter().find(|file| !is_plain_path(file));
        let commit_is_plain = info.sha.bytes().all(|b| b.is_ascii_alphanumeric());
        if strange.is_some() || !commit_is_plain || info.sha.is_empty() {
            let found = format!("commit `{}`, file {strange:?}", info.sha);
            return Err(FileFault::Reply(found).of(repo, LISTING));
        }
        tracing::info!("{repo}: revision {revision} is commit {}", info.sha);
        Ok(Snapshot {
            name: repo.to_owned(),
            remote: api.repo(at(&info.sha)),
            cached: self.cached(kind, repo, &info.sha),
            api,
            commit: info.sha,
            files,
        })
    }
}

/// A repository at one commit. All its files belong together, whatever is pushed meanwhile.
pub(super) struct Snapshot {
    name: String,
    pub(super) commit: String,
    /// Every file of the repository.
    pub(super) files: Vec<String>,
    api: Api,
    remote: ApiRepo,
    cached: CacheRepo,
}

impl Snapshot {
    pub(super) fn has(&self, file: &str) -> bool {
        self.files.iter().any(|name| name == file)
    }

    /// Folder on disk that fetched files are written to.
    pub(super) fn folder(&self) -> PathBuf {
        self.cached.pointer_path(&self.commit)
    }

    /// Path of the file on disk. The file is downloaded if it is not there yet; an interrupted
    /// download is continued.
    pub(super) fn fetch(&self, file: &str) -> Result<PathBuf, HubError> {
        if !self.has(file) {
            return Err(HubError::MissingFile {
                repo: self.name.clone(),
                file: file.to_owned(),
            });
        }
        let there = self.folder().join(file);
        if there.exists() {
            return Ok(there);
        }
        let mut pauses = PAUSES.iter();
        loop {
            let bar = LateBar::new(&self.name, file);
            let error = match self.remote.download_with_progress(file, bar) {
                Ok(path) => {
                    self.verify(file, &path)?;
                    return Ok(path);
                }
                Err(error) => HubError::from_api(&self.name, file, error),
            };
            let fault = error.fault().filter(|fault| fault.is_passing());
            let Some((fault, pause)) = fault.zip(pauses.next()) else {
                return Err(error);
            };
            tracing::warn!("{error}; trying again");
            if matches!(fault, FileFault::StalePart) {
                self.drop_part(file);
            }
            std::thread::sleep(*pause);
        }
    }

    /// Compares a large file with its SHA-256, which is also its name at the hub. Small files are
    /// named by another hash and are not checked.
    fn verify(&self, file: &str, path: &Path) -> Result<(), HubError> {
        let blob = fs::canonicalize(path).map_err(HubError::io(path))?;
        let name = blob.file_name().unwrap_or_default().to_string_lossy();
        if name.len() != 64 || !name.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(());
        }
        let found = sha256(&blob).map_err(HubError::io(&blob))?;
        if found.eq_ignore_ascii_case(&name) {
            return Ok(());
        }
        for damaged in [path, &blob] {
            fs::remove_file(damaged).map_err(HubError::io(damaged))?;
        }
        Err(FileFault::Damaged.of(&self.name, file))
    }

    /// Removes the partial file of an earlier download, so that the next attempt starts afresh.
    fn drop_part(&self, file: &str) {
        if let Ok(known) = self.api.metadata(&self.remote.url(file)) {
            let part = self.cached.blob_path(known.etag()).with_extension("part");
            // If it cannot be removed, the next attempt fails as this one did and says so.
            let _ = fs::remove_file(part);
        }
    }
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let mut file = fs::File::open(path)?;
    let mut hasher = Sha256::new();
    std::io::copy(&mut file, &mut hasher)?;
    Ok(hex::encode(hasher.finalize()))
}

/// True if a name stays inside the folder it is joined to, on every operating system.
pub(super) fn is_plain_path(name: &str) -> bool {
    let step = |part: &str| !part.is_empty() && part != "." && part != "..";
    name.split('/').all(step) && !name.contains(['\\', ':', '\0'])
}

/// Writes a file whole or not at all.
pub(super) fn write_whole(path: &Path, content: &[u8]) -> Result<(), HubError> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(HubError::io(folder))?;
    }
    let mut part = path.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    let part = PathBuf::from(part);
    fs::write(&part, content).map_err(HubError::io(&part))?;
    fs::rename(&part, path).map_err(HubError::io(path))
}
