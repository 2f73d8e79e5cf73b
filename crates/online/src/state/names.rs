//! Names of the files of a state, and what identifies its drafter.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use spec_decode::Pair;
use vocab_align::{TokenId, Vocabulary};

use crate::error::{OnlineError, Result};

const NAME: &str = "name.txt";
/// Prefix of the names of n-gram caches.
pub(super) const CACHES: &str = "ngrams-";
/// Number of places of a weight file, at equal distances, that enter the fingerprint of a drafter:
/// more than a drafter has matrices.
const PLACES: u64 = 1024;
/// Number of bytes at each place.
const SAMPLE: u64 = 4096;

/// A folder name for `name` that is valid on all file systems; the digits at the end keep different
/// names different. The empty name, which stands for all targets, is written `all`.
pub fn file_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let readable: String = match name {
        "" => "all".to_owned(),
        name => name.chars().map(plain).take(40).collect(),
    };
    let digest = Sha256::digest(name.as_bytes());
    format!("{readable}-{}", hex::encode(&digest[..16]))
}

/// A name for a vocabulary that depends on its tokens alone: the first half of a SHA-256 over kind,
/// length and bytes (of special tokens, the name) of every id, hexadecimal.
fn vocabulary_name<I: TokenId>(vocabulary: &Vocabulary<I>) -> String {
    let mut hasher = Sha256::new();
    for id in (0..vocabulary.len() as u32).map(I::new) {
        let (kind, bytes) = match (vocabulary.bytes(id), vocabulary.content(id)) {
            (Some(bytes), _) => (1, bytes),
            (None, Some(name)) => (2, name.as_bytes()),
            (None, None) => (0, &[][..]),
        };
        hasher.update([kind]);
        hasher.update((bytes.len() as u32).to_le_bytes());
        hasher.update(bytes);
    }
    hex::encode(&hasher.finalize()[..16])
}

/// File name of the n-grams between two vocabularies.
pub(super) fn cache_name(pair: &Pair) -> String {
    let (draft, target) = (vocabulary_name(&pair.draft), vocabulary_name(&pair.target));
    format!("{CACHES}{draft}-{target}.bin")
}

/// Fingerprint of a drafter: configuration, tokenizer, and the size of every weight file with bytes
/// from all parts of it, so that what learnt on one drafter is not put on another one that was
/// trained from it.
pub(super) fn fingerprint(folder: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    for path in entries(folder)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let whole = ["config.json", "tokenizer.json"].contains(&&*name);
        if !whole && !models::is_weight_file(&path) {
            continue;
        }
        hasher.update(name.as_bytes());
        let sampled = sample(&path, if whole { 1 } else { PLACES });
        hasher.update(sampled.map_err(OnlineError::io(&path))?);
    }
    Ok(hex::encode(&hasher.finalize()[..16]))
}

/// The size of a file and the bytes at so many places of it, which lie at equal distances; all bytes
/// if there is one place.
fn sample(path: &Path, places: u64) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut bytes = size.to_le_bytes().to_vec();
    let distance = size.div_ceil(places).max(1);
    let each = if places == 1 { size } else { SAMPLE };
    for place in (0..size).step_by(usize::try_from(distance).unwrap_or(usize::MAX)) {
        file.seek(SeekFrom::Start(place))?;
        (&file).take(each).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Folders in `folder` with their names, from the files of [`create_named`]; empty if there is no
/// such folder.
pub(super) fn named_folders(folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let named = |folder: PathBuf| {
        let path = folder.join(NAME);
        let name = fs::read_to_string(&path).map_err(OnlineError::io(&path))?;
        Ok((name, folder))
    };
    entries(folder)?.into_iter().map(named).collect()
}

/// Creates the folder of `name` in `root`, with a file that holds the name.
pub(super) fn create_named(root: &Path, name: &str) -> Result<PathBuf> {
    let folder = root.join(file_name(name));
    let path = folder.join(NAME);
    let written = fs::create_dir_all(&folder).and_then(|()| fs::write(&path, name));
    written.map_err(OnlineError::io(&path))?;
    Ok(folder)
}

/// Everything in a folder, in the order of the names.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).map_err(OnlineError::io(folder))?;
    let paths: std::io::Result<Vec<PathBuf>> = entries.map(|e| Ok(e?.path())).collect();
    let mut paths = paths.map_err(OnlineError::io(folder))?;
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn another_drafter_has_another_fingerprint_wherever_it_differs() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model.safetensors");
        let mut weights = vec![0_u8; 5 << 20];
        fs::write(folder.path().join("config.json"), "{}").unwrap();
        let mut print = |at: Option<usize>| {
            at.into_iter().for_each(|at| weights[at..at + 8192].fill(1));
            fs::write(&path, &weights).unwrap();
            fingerprint(folder.path()).unwrap()
        };
        let prints: BTreeSet<String> = [None, Some(0), Some(3 << 20), Some((5 << 20) - 8192)]
            .map(&mut print)
            .into();
        assert_eq!(prints.len(), 4);
        assert!(prints.contains(&print(None)));
        fs::write(folder.path().join("config.json"), "{ }").unwrap();
        assert!(!prints.contains(&fingerprint(folder.path()).unwrap()));
    }

    #[test]
    fn names_become_file_names_that_stay_apart() {
        let name = file_name("L_DM + λ L_N-gram");
        assert!(name.starts_with("L-DM"));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'));
        assert_ne!(file_name("a b"), file_name("a-b"));
        assert_ne!(file_name(""), file_name("all"));
        assert_eq!(file_name("a b"), file_name("a b"));
    }
}
