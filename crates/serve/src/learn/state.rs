//! The state of a server on disk.
//!
//! ```text
//! STATE/lock                       held by the server that uses it
//! STATE/current                    name of the current generation
//! STATE/generation-7/state.json    drafter, adapters, counters
//! STATE/generation-7/ngrams-*.bin  n-gram caches, by names of vocabularies
//! STATE/generation-7/chains-*.txt  acceptance statistics of draft tokens, by adapter
//! STATE/generation-7/texts-*.bin   texts to copy from, by vocabulary and user
//! STATE/generation-7/heads/*       acceptance heads with their training state, by adapter
//! STATE/generation-7/learnt/NAME/  weights, or all adapters, with their optimisers
//! ```
//!
//! A generation is written whole and synced before `current` names it, so that `current` names a
//! whole generation whenever the program ends. Files of targets that are not served are carried
//! along.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use adaptive_draft::Chain;
use anyhow::{Context, Result, bail};
use ngram_cache::NgramCache;
use online::cache_name;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use spec_decode::SuffixCorpus;

use crate::decode::{Kept, Texts, cache_config, locked, target_of};
use crate::models::{Models, Target};
use crate::options::{Cut, LookupScope, Options};
use crate::stats::Sums;

const CURRENT: &str = "current";
const GENERATION: &str = "generation-";
const META: &str = "state.json";
pub(super) const LEARNT: &str = "learnt";
const NGRAMS: &str = "ngrams-";
const CHAINS: &str = "chains-";
const TEXTS: &str = "texts-";
const HEADS: &str = "heads";
/// Version of the layout.
const VERSION: u32 = 1;
/// Number of leading bytes of a weight file that enter the fingerprint of a drafter.
const SAMPLE: u64 = 1 << 20;

/// A state folder in use.
pub(crate) struct State {
    root: PathBuf,
    number: u64,
    limit: u64,
    meta: Meta,
    _lock: File,
}

/// Description of a state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Meta {
    version: u32,
    /// Digest of the drafter's files.
    pub(super) drafter: String,
    /// Folder of the drafter as it was given to the server; empty in older states.
    #[serde(default)]
    pub(super) drafter_path: PathBuf,
    /// The trainable part of the drafter.
    #[serde(flatten)]
    pub(super) cut: Cut,
    /// Names of the adapters that learnt.
    pub(super) adapters: Vec<String>,
    pub(super) sums: Sums,
    /// The texts to copy from, the least recently used first.
    #[serde(default)]
    texts: Vec<TextsOf>,
}

/// Texts to copy from, and the file that holds them.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct TextsOf {
    /// Fingerprint of the vocabulary, in hexadecimal digits.
    vocabulary: String,
    /// Whose they are; `None` if they are shared.
    user: Option<String>,
}

impl TextsOf {
    fn file(&self) -> String {
        let user = match &self.user {
            Some(user) => format!("-{}", online::file_name(user)),
            None => String::new(),
        };
        format!("{TEXTS}{}{user}.bin", self.vocabulary)
    }

    /// The first of the served targets that has the vocabulary, if answers may copy from such texts.
    fn serves(&self, models: &Models, options: &Options) -> Option<usize> {
        let scope = match self.user {
            Some(_) => LookupScope::User,
            None => LookupScope::Shared,
        };
        let mut names = models.targets.iter().map(vocabulary_of);
        let target = names.position(|name| name == self.vocabulary);
        target.filter(|_| options.lookup == Some(scope))
    }
}

fn vocabulary_of(target: &Target) -> String {
    format!("{:016x}", target.pair.target.fingerprint())
}

impl Meta {
    /// Reads the description of the generation in `folder`.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(META);
        let named = || path.display().to_string();
        let text = fs::read_to_string(&path).with_context(named)?;
        let meta: Self = serde_json::from_str(&text).with_context(named)?;
        if meta.version != VERSION {
            bail!("{}: version {} is not {VERSION}", named(), meta.version);
        }
        Ok(meta)
    }
}

/// Number and folder of the current generation; `None` for a new state.
pub(super) fn current(root: &Path) -> Result<Option<(u64, PathBuf)>> {
    let path = root.join(CURRENT);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e).with_context(|| path.display().to_string()),
    };
    let number = text.trim().strip_prefix(GENERATION);
    let number = number.and_then(|number| number.parse().ok());
    let Some(number) = number else {
        bail!("{}: names no generation of a state", path.display());
    };
    Ok(Some((number, root.join(text.trim()))))
}

/// The loaded parts of a state.
#[derive(Default)]
pub(crate) struct Saved {
    pub(crate) kept: Kept,
    /// Folder of weights or adapters.
    pub(crate) learnt: Option<PathBuf>,
    /// Folder of acceptance heads.
    pub(crate) heads: Option<PathBuf>,
    pub(crate) adapters: Vec<String>,
    pub(crate) sums: Sums,
}

/// Folders that learners write into.
pub(crate) struct Folders<'a> {
    /// Weights and adapters.
    pub(crate) learnt: &'a Path,
    /// Acceptance heads.
    pub(crate) heads: &'a Path,
}

impl State {
    /// Opens a folder, which is created if there is none, and loads its state. `cut` is the
    /// trainable part of the drafter, `None` if nothing learns.
    pub(crate) fn open(
        root: &Path,
        models: &Models,
        options: &Options,
        cut: Option<Cut>,
    ) -> Result<(Self, Saved)> {
        let named = || root.display().to_string();
        fs::create_dir_all(root).with_context(named)?;
        let lock = File::create(root.join("lock")).with_context(named)?;
        if lock.try_lock().is_err() {
            bail!(
                "{}: another server uses this state\nhint: give each its own --state",
                root.display()
            );
        }
        let mut state = Self {
            root: root.to_owned(),
            number: 0,
            limit: options.state_bytes,
            meta: Meta {
                version: VERSION,
                drafter: fingerprint(&models.drafter.path)?,
                drafter_path: models.drafter.path.clone(),
                cut: cut.unwrap_or_default(),
                ..Meta::default()
            },
            _lock: lock,
        };
        let saved = match current(root)? {
            Some((number, folder)) => {
                state.number = number;
                state.read(&folder, models, options, cut)?
            }
            None => Saved::default(),
        };
        state.clean();
        Ok((state, saved))
    }

    /// The trainable part of the drafter.
    pub(crate) fn cut(&self) -> Cut {
        self.meta.cut
    }

    fn read(
        &mut self,
        folder: &Path,
        models: &Models,
        options: &Options,
        cut: Option<Cut>,
    ) -> Result<Saved> {
        let meta = Meta::read(folder)?;
        if meta.drafter != self.meta.drafter {
            bail!(
                "{}: learnt by another drafter than {}\nhint: every drafter has a --state of its own",
                self.root.display(),
                models.drafter.path.display()
            );
        }
        let cut = cut.unwrap_or(meta.cut);
        if meta.cut != cut && !meta.adapters.is_empty() {
            bail!(
                "{}: learnt with {}, not {cut}\nhint: keep to that, or give another --state",
                self.root.display(),
                meta.cut
            );
        }
        let mut saved = Saved {
            adapters: meta.adapters.clone(),
            sums: meta.sums.clone(),
            ..Saved::default()
        };
        for (index, target) in models.targets.iter().enumerate() {
            let path = folder.join(cache_name(&target.pair));
            let known = |earlier: &crate::models::Target| {
                earlier.pair.target.fingerprint() == target.pair.target.fingerprint()
            };
            if models.targets[..index].iter().any(known) || !path.is_file() {
                continue;
            }
            let mut cache = NgramCache::load(&path)?;
            cache
                .check_bytes(&target.pair.draft, &target.pair.target)
                .with_context(|| path.display().to_string())?;
            cache.reconfigure(cache_config(options));
            saved.kept.caches.insert(index, cache);
        }
        saved.kept.texts = texts_in(folder, &meta, models, options)?;
        let served = |name: &str| models.targets.iter().any(|t| t.name == target_of(name));
        let targets = models.targets.iter().map(|target| &target.name);
        for name in targets.chain(&saved.adapters).filter(|name| served(name)) {
            let path = folder.join(chains_name(name));
            if path.is_file() {
                let chains = Chain::load(&path)?;
                saved.kept.chains.insert(name.clone(), chains);
            }
        }
        let kept = |name: &str| Some(folder.join(name)).filter(|path| path.is_dir());
        (saved.learnt, saved.heads) = (kept(LEARNT), kept(HEADS));
        let drafter_path = models.drafter.path.clone();
        self.meta = Meta {
            cut,
            drafter_path,
            ..meta
        };
        Ok(saved)
    }

    /// Writes another generation and makes it the current one. Returns its size in bytes. `learnt`
    /// writes weights and heads and returns the names of adapters.
    pub(crate) fn write(
        &mut self,
        (models, options): (&Models, &Options),
        kept: &Kept,
        sums: &Sums,
        learnt: impl FnOnce(Folders<'_>) -> Result<Vec<String>>,
    ) -> Result<u64> {
        let before = self.root.join(format!("{GENERATION}{}", self.number));
        let number = self.number + 1;
        let name = format!("{GENERATION}{number}");
        let folder = self.root.join(&name);
        if folder.exists() {
            fs::remove_dir_all(&folder).with_context(|| folder.display().to_string())?;
        }
        let parts = [LEARNT, HEADS].map(|part| folder.join(part));
        for part in &parts {
            fs::create_dir_all(part).with_context(|| part.display().to_string())?;
        }
        for (name, chains) in &kept.chains {
            Chain::save(chains, &folder.join(chains_name(name)))?;
        }
        for (index, cache) in &kept.caches {
            cache.save(folder.join(cache_name(&models.targets[*index].pair)))?;
        }
        let mut meta = self.meta.clone();
        // Texts that no answer here may copy from are carried along.
        meta.texts
            .retain(|texts| texts.serves(models, options).is_none());
        for texts in &meta.texts {
            link(&before.join(texts.file()), &folder.join(texts.file()))?;
        }
        write_texts(&folder, &mut meta, models, &kept.texts)?;
        let [to_learnt, to_heads] = &parts;
        let names = learnt(Folders {
            learnt: to_learnt,
            heads: to_heads,
        })?;
        for name in names {
            if !meta.adapters.contains(&name) {
                meta.adapters.push(name);
            }
        }
        meta.sums = sums.clone();
        carry(&before, &folder, |name| {
            name.starts_with(NGRAMS) || name.starts_with(CHAINS)
        })?;
        for part in [LEARNT, HEADS] {
            carry(&before.join(part), &folder.join(part), |_| true)?;
        }
        fs::write(folder.join(META), serde_json::to_string_pretty(&meta)?)?;
        let bytes = sync(&folder)?;
        if bytes > self.limit {
            let _ = fs::remove_dir_all(&folder);
            bail!(
                "the state has {bytes} bytes, more than {}\nhint: raise --state-mb, or lower --ngram-mb, --lookup-mb or --adapter-rank",
                self.limit
            );
        }
        let part = self.root.join(format!("{CURRENT}.part"));
        let mut file = File::create(&part)?;
        file.write_all(name.as_bytes())?;
        file.sync_all()?;
        fs::rename(&part, self.root.join(CURRENT))?;
        File::open(&self.root)?.sync_all()?;
        (self.number, self.meta) = (number, meta);
        self.clean();
        Ok(bytes)
    }

    /// Removes generations that are not current: earlier ones, and incomplete ones.
    fn clean(&self) {
        let current = format!("{GENERATION}{}", self.number);
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.starts_with(GENERATION) && name != current {
                // A folder that stays costs space only; the next saving tries again.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// Name of the file of an adapter's acceptance statistics.
fn chains_name(adapter: &str) -> String {
    format!("{CHAINS}{}.txt", online::file_name(adapter))
}

/// Hard-links the files of `from` that `to` lacks: nothing writes into a complete generation.
fn carry(from: &Path, to: &Path, wanted: fn(&str) -> bool) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else {
        return Ok(());
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let target = to.join(&name);
        if !wanted(&name.to_string_lossy()) || target.exists() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::create_dir_all(&target)?;
            carry(&entry.path(), &target, |_| true)?;
        } else {
            link(&entry.path(), &target)?;
        }
    }
    Ok(())
}

fn link(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).with_context(|| from.display().to_string())?;
    }
    Ok(())
}

/// The texts of a generation that answers may copy from.
fn texts_in(folder: &Path, meta: &Meta, models: &Models, options: &Options) -> Result<Vec<Texts>> {
    let mut found = Vec::new();
    for texts in &meta.texts {
        let Some(target) = texts.serves(models, options) else {
            continue;
        };
        let vocabulary = models.targets[target].pair.target.fingerprint();
        let path = folder.join(texts.file());
        let corpus = SuffixCorpus::load(path, options.lookup_bytes, vocabulary);
        found.push(Texts {
            target,
            user: texts.user.clone(),
            corpus: Arc::new(Mutex::new(corpus.context("hint: raise --lookup-mb")?)),
        });
    }
    Ok(found)
}

fn write_texts(folder: &Path, meta: &mut Meta, models: &Models, all: &[Texts]) -> Result<()> {
    for texts in all {
        let target = &models.targets[texts.target];
        let of = TextsOf {
            vocabulary: vocabulary_of(target),
            user: texts.user.clone(),
        };
        // Nothing is written while the decode thread waits for them.
        let bytes = locked(&texts.corpus).to_bytes(target.pair.target.fingerprint());
        let path = folder.join(of.file());
        fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        meta.texts.push(of);
    }
    Ok(())
}

/// Syncs a folder to the disk. Returns its size in bytes.
fn sync(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            bytes += sync(&entry.path())?;
        } else {
            let file = File::open(entry.path())?;
            bytes += file.metadata()?.len();
            file.sync_all()?;
        }
    }
    File::open(folder)?.sync_all()?;
    Ok(bytes)
}

/// Fingerprint of a drafter: configuration, tokenizer, and the size and the first bytes of every
/// weight file.
pub(super) fn fingerprint(folder: &Path) -> Result<String> {
    use std::io::Read;
    let entries = fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut hasher = Sha256::new();
    for path in files {
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned());
        let name = name.unwrap_or_default();
        let whole = ["config.json", "tokenizer.json"].contains(&name.as_str());
        let weights = [".safetensors", ".bin", ".gguf"]
            .iter()
            .any(|end| name.ends_with(end));
        if !whole && !weights {
            continue;
        }
        let file = File::open(&path).with_context(|| path.display().to_string())?;
        hasher.update(name.as_bytes());
        hasher.update(file.metadata()?.len().to_le_bytes());
        let mut start = Vec::new();
        file.take(if whole { u64::MAX } else { SAMPLE })
            .read_to_end(&mut start)?;
        hasher.update(start);
    }
    let digest = hasher.finalize();
    Ok(digest
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
