//! Write access to a state: generations, of which one is the current one.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use adaptive_draft::HeadTrainer;
use results::write_atomically;
use spec_decode::Pair;

use super::names::{CACHES, cache_name, create_named, entries, fingerprint};
use super::{
    ArmState, FORMAT, HEAD, HEADS, LEARNT, LearntPart, META, Meta, SavedState, TextsOf, Wanted,
    file_name,
};
use crate::error::{OnlineError, Result};
use crate::learner::Learner;

const LOCK: &str = "lock";
const CURRENT: &str = "current";
const GENERATION: &str = "generation-";

/// Number and folder of the current generation; `None` for a new state.
pub(super) fn current(root: &Path) -> Result<Option<(u64, PathBuf)>> {
    let path = root.join(CURRENT);
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OnlineError::io(&path)(error)),
    };
    let number = text.trim().strip_prefix(GENERATION);
    let number = number.and_then(|number| number.parse().ok());
    let Some(number) = number else {
        return Err(OnlineError::NoGeneration(path));
    };
    Ok(Some((number, root.join(text.trim()))))
}

/// Number of a generation by the path of its folder; `None` for any other path.
fn number_of(path: &Path) -> Option<u64> {
    let name = path.file_name()?.to_str()?;
    name.strip_prefix(GENERATION)?.parse().ok()
}

/// True if a folder is a whole generation of a state: its description comes last.
fn is_generation(path: &Path) -> bool {
    number_of(path).is_some() && path.join(META).is_file()
}

/// A state folder in use.
pub struct StateFolder {
    root: PathBuf,
    number: u64,
    meta: Meta,
    /// The texts that were in memory when the state was last read or written. One that has left it
    /// since was forgotten, and is not written again.
    loaded: Vec<TextsOf>,
    /// True if the folder was created for this state.
    is_new: bool,
    _lock: File,
}

impl Drop for StateFolder {
    /// Removes a new folder into which nothing was written.
    fn drop(&mut self) {
        if self.is_new && self.number == 0 {
            // A folder that stays is an empty state.
            let _ = fs::remove_file(self.root.join(LOCK));
            let _ = fs::remove_dir(&self.root);
        }
    }
}

/// A generation that is being written.
pub struct Generation<'a> {
    folder: PathBuf,
    drafter: &'a Path,
}

impl Generation<'_> {
    /// Writes the acceptance head of the adapter `name`, with its optimiser and examples.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn head(&self, name: &str, trainer: &HeadTrainer) -> Result<()> {
        let folder = create_named(&self.folder.join(HEADS), name)?;
        Ok(trainer.save(&folder.join(HEAD))?)
    }

    /// Writes the weights or adapters of a learner.
    ///
    /// # Errors
    /// A folder that cannot be written; an update is under way.
    pub fn weights(&self, learner: &mut Learner) -> Result<()> {
        let base = self.drafter.display().to_string();
        learner.save(&self.folder.join(LEARNT), &base)
    }
}

impl StateFolder {
    /// Opens a folder, which is created if there is none, and loads what is `wanted` of its state.
    ///
    /// # Errors
    /// A folder in use; a state of another drafter, another part or another version; generations
    /// without the file that names the current one.
    pub fn open(root: &Path, wanted: &Wanted<'_>) -> Result<(Self, ArmState)> {
        let is_new = !root.exists();
        fs::create_dir_all(root).map_err(OnlineError::io(root))?;
        let lock = File::create(root.join(LOCK)).map_err(OnlineError::io(root))?;
        if lock.try_lock().is_err() {
            return Err(OnlineError::InUse(root.to_owned()));
        }
        let (number, known, mut meta) = match SavedState::open(root)? {
            Some(saved) => (saved.number, saved.load(wanted)?, saved.meta),
            None => {
                // A copy may lack the file. Without it they would count as earlier generations, and
                // be removed.
                if entries(root)?.iter().any(|path| is_generation(path)) {
                    return Err(OnlineError::NoCurrent(root.to_owned()));
                }
                let meta = Meta {
                    format: FORMAT,
                    drafter: fingerprint(wanted.drafter)?,
                    drafter_path: PathBuf::new(),
                    part: wanted.part.unwrap_or_default(),
                    texts: Vec::new(),
                    known: ArmState::default(),
                };
                (0, ArmState::default(), meta)
            }
        };
        wanted.drafter.clone_into(&mut meta.drafter_path);
        meta.part = wanted.part.unwrap_or(meta.part);
        let state = Self {
            root: root.to_owned(),
            number,
            meta,
            loaded: known.texts.iter().map(TextsOf::from).collect(),
            is_new,
            _lock: lock,
        };
        state.clean();
        Ok((state, known))
    }

    /// The trained part of the drafter.
    pub fn part(&self) -> LearntPart {
        self.meta.part
    }

    /// Writes another generation and makes it the current one: what the arm knows now, of these
    /// pairs, and what `trained` writes. What was known for others is carried along. Returns its
    /// size in bytes.
    ///
    /// # Errors
    /// Files that cannot be written; more than `limit` bytes; errors of `trained`. The last
    /// generation then stays the current one.
    pub fn write<E: From<OnlineError>>(
        &mut self,
        state: &ArmState,
        pairs: &[&Pair],
        limit: u64,
        trained: impl FnOnce(&Generation<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let before = self.generation();
        let mut meta = self.meta.clone();
        let number = self.number + 1;
        let name = format!("{GENERATION}{number}");
        let to = Generation {
            folder: self.root.join(&name),
            drafter: &meta.drafter_path,
        };
        if to.folder.exists() {
            fs::remove_dir_all(&to.folder).map_err(OnlineError::io(&to.folder))?;
        }
        fs::create_dir_all(&to.folder).map_err(OnlineError::io(&to.folder))?;
        for pair in pairs {
            let path = to.folder.join(cache_name(pair));
            if let Some(cache) = state.caches.get(&pair.target.fingerprint())
                && !path.exists()
            {
                cache.save(path).map_err(OnlineError::from)?;
            }
        }
        let texts: Vec<TextsOf> = state.texts.iter().map(TextsOf::from).collect();
        // Texts that were not read are carried along, as the least recently used ones.
        meta.texts
            .retain(|of| !self.loaded.contains(of) && !texts.contains(of));
        for of in &meta.texts {
            link(&before.join(of.file()), &to.folder.join(of.file()))?;
        }
        for (of, texts) in texts.iter().zip(&state.texts) {
            // The corpus is locked only while it is copied: an answer may wait for it.
            let bytes = texts.locked().to_bytes(texts.vocabulary);
            let path = to.folder.join(of.file());
            fs::write(&path, bytes).map_err(OnlineError::io(&path))?;
        }
        meta.texts.extend(texts.iter().cloned());
        trained(&to)?;
        carry(&before, &to.folder, |name| name.starts_with(CACHES))?;
        for part in [HEADS, LEARNT] {
            carry(&before.join(part), &to.folder.join(part), |_| true)?;
        }
        meta.known.absorb(state);
        let written = finish(&to.folder, &meta).and_then(|bytes| {
            if bytes > limit {
                return Err(OnlineError::TooLarge { bytes, limit });
            }
            write_atomically(&self.root.join(CURRENT), name.as_bytes())?;
            Ok(bytes)
        });
        let bytes = written.inspect_err(|_| {
            // The first error is the one to report.
            let _ = fs::remove_dir_all(&to.folder);
        })?;
        (self.number, self.meta, self.loaded) = (number, meta, texts);
        self.clean();
        Ok(bytes)
    }

    fn generation(&self) -> PathBuf {
        self.root.join(format!("{GENERATION}{}", self.number))
    }

    /// Removes generations that are not current: earlier ones, and one that was not finished. Other
    /// folders are not the state's, whatever their names.
    fn clean(&self) {
        let current = self.generation();
        let next = self.number.checked_add(1);
        for path in entries(&self.root).unwrap_or_default() {
            let own = is_generation(&path) || next.is_some() && number_of(&path) == next;
            if own && path != current {
                // A folder that stays costs space only; the next saving tries again, unless its
                // description is gone already.
                let _ = fs::remove_dir_all(&path);
            }
        }
    }
}

/// The names under which a state holds what is for one target.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// Name of the target.
    pub target: String,
    /// Name of its weights or adapter.
    pub learnt: String,
    /// Name of its acceptance head and statistics of draft lengths, if there are any.
    pub head: Option<String>,
}

impl SavedState {
    /// Writes what is for one target as a new state in the folder `out`, all of it under the name
    /// of the target, as servers look for it. N-grams and texts are those of all targets.
    ///
    /// # Errors
    /// Files that cannot be read or written.
    pub fn hand_over(&self, out: &Path, names: &Names) -> Result<()> {
        let name = format!("{GENERATION}1");
        let folder = out.join(&name);
        fs::create_dir_all(&folder).map_err(OnlineError::io(&folder))?;
        carry(&self.generation, &folder, |name| {
            ![META, HEADS, LEARNT].contains(&name)
        })?;
        let renamed = [(LEARNT, Some(&names.learnt)), (HEADS, names.head.as_ref())];
        for (part, before) in renamed {
            let before = before.map(|before| self.generation.join(part).join(file_name(before)));
            if let Some(before) = before.filter(|before| before.is_dir()) {
                let now = create_named(&folder.join(part), &names.target)?;
                carry(&before, &now, |_| true)?;
            }
        }
        let mut meta = self.meta.clone();
        let chains = names.head.as_ref();
        let chains = chains.and_then(|name| meta.known.chains.remove(name));
        let chains = chains.map(|chains| (names.target.clone(), chains));
        meta.known.chains = chains.into_iter().collect();
        // Measured costs hold on this machine only.
        meta.known.costs.clear();
        finish(&folder, &meta)?;
        Ok(write_atomically(&out.join(CURRENT), name.as_bytes())?)
    }
}

/// Syncs a generation, then writes its description, reads it again and syncs it. Returns the size
/// of all in bytes.
fn finish(folder: &Path, meta: &Meta) -> Result<u64> {
    let bytes = sync(folder)?;
    let path = folder.join(META);
    fs::write(&path, serde_json::to_vec(meta)?).map_err(OnlineError::io(&path))?;
    // A number that is not finite is written as null, which cannot be read. The caller would
    // remove the last generation that can be.
    Meta::read(folder)?;
    let own = sync_one(&path).map_err(OnlineError::io(&path))?;
    sync_one(folder).map_err(OnlineError::io(folder))?;
    Ok(bytes + own)
}

/// Hard-links the files and folders of `from` that `to` lacks: nothing writes into a complete
/// generation.
fn carry(from: &Path, to: &Path, wanted: fn(&str) -> bool) -> Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    fs::create_dir_all(to).map_err(OnlineError::io(to))?;
    for path in entries(from)? {
        let name = path.file_name().unwrap_or_default();
        let target = to.join(name);
        if !wanted(&name.to_string_lossy()) || target.exists() {
            continue;
        }
        match path.is_dir() {
            true => carry(&path, &target, |_| true)?,
            false => link(&path, &target)?,
        }
    }
    Ok(())
}

fn link(from: &Path, to: &Path) -> Result<()> {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).map_err(OnlineError::io(from))?;
    }
    Ok(())
}

/// Syncs a folder to the disk. Returns its size in bytes.
fn sync(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for path in entries(folder)? {
        bytes += match path.is_dir() {
            true => sync(&path)?,
            false => sync_one(&path).map_err(OnlineError::io(&path))?,
        };
    }
    sync_one(folder).map_err(OnlineError::io(folder))?;
    Ok(bytes)
}

/// Syncs a file, or the list of a folder's files. Returns its size in bytes.
fn sync_one(path: &Path) -> std::io::Result<u64> {
    let file = File::open(path)?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
}

#[cfg(test)]
mod tests {
    use adaptive_draft::{Controller, ControllerConfig};
    use ngram_cache::CacheConfig;

    use super::*;

    /// Creates a drafter in `home`.
    fn drafter(home: &Path) -> PathBuf {
        let drafter = home.join("drafter");
        fs::create_dir_all(&drafter).unwrap();
        fs::write(drafter.join("config.json"), "{}").unwrap();
        drafter
    }

    fn wanted(drafter: &Path) -> Wanted<'_> {
        Wanted {
            drafter,
            part: None,
            pairs: &[],
            caches: CacheConfig::default(),
            text_bytes: 1 << 20,
            texts: |_| true,
        }
    }

    fn save(folder: &mut StateFolder) {
        let written = folder.write(&ArmState::default(), &[], u64::MAX, |_| {
            Ok::<_, OnlineError>(())
        });
        written.unwrap();
    }

    /// A folder that is only named like a generation is somebody else's.
    #[test]
    fn only_generations_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let (root, drafter) = (home.path().join("state"), drafter(home.path()));
        let (mut folder, _) = StateFolder::open(&root, &wanted(&drafter)).unwrap();
        save(&mut folder);
        drop(folder);
        for name in ["generation-notes", "generation-7", "generation-2"] {
            fs::create_dir(root.join(name)).unwrap();
            fs::write(root.join(name).join("text"), "x").unwrap();
        }
        let is_there = |name: &str| root.join(name).is_dir();
        let (mut folder, _) = StateFolder::open(&root, &wanted(&drafter)).unwrap();
        // The next one after the current one was begun and not finished.
        assert!(is_there("generation-1") && !is_there("generation-2"));
        save(&mut folder);
        assert!(!is_there("generation-1") && is_there("generation-2"));
        assert!(is_there("generation-notes") && is_there("generation-7"));
    }

    #[test]
    fn a_copy_without_its_current_file_is_refused_and_kept() {
        let home = tempfile::tempdir().unwrap();
        let (root, drafter) = (home.path().join("state"), drafter(home.path()));
        let open = || StateFolder::open(&root, &wanted(&drafter));
        save(&mut open().unwrap().0);
        fs::remove_file(root.join(CURRENT)).unwrap();
        let error = open().err().unwrap();
        assert!(matches!(error, OnlineError::NoCurrent(_)), "{error}");
        let said = error.to_string();
        assert!(said.contains(&root.display().to_string()), "{said}");
        assert!(root.join("generation-1").join(META).is_file());
        fs::write(root.join(CURRENT), "generation-1").unwrap();
        assert!(open().is_ok());
    }

    /// A generation that could not be read again does not replace one that can be.
    #[test]
    fn what_cannot_be_read_does_not_become_current() {
        let home = tempfile::tempdir().unwrap();
        let (root, drafter) = (home.path().join("state"), drafter(home.path()));
        let wanted = wanted(&drafter);
        let after = |seconds| {
            let mut controller = Controller::new(ControllerConfig::default());
            controller.spent("L", seconds);
            ArmState {
                controller: Some(controller),
                ..ArmState::default()
            }
        };
        let (mut folder, _) = StateFolder::open(&root, &wanted).unwrap();
        let mut write = |seconds: f64| {
            folder.write(&after(seconds), &[], u64::MAX, |_| Ok::<_, OnlineError>(()))
        };
        write(1.0).unwrap();
        let error = write(f64::INFINITY).unwrap_err();
        assert!(matches!(error, OnlineError::Damaged { .. }), "{error}");
        let error = write(1e200).unwrap_err().to_string();
        assert!(error.contains("known.controller.known.L."), "{error}");
        // The state is the last readable one, and later ones are written again.
        let (number, _) = current(&root).unwrap().unwrap();
        assert_eq!(number, 1);
        write(2.0).unwrap();
        drop(folder);
        let (_, known) = StateFolder::open(&root, &wanted).unwrap();
        assert_eq!(known.controller, after(2.0).controller);
    }
}
