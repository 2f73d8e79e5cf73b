//! A corpus on disk: a small binary file with a version and a checksum.
//!
//! Layout, integers little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `sufxtx\r\n` |
//! | 4 | format version |
//! | 8 | length of the body |
//! | body | fingerprint of the vocabulary (u64), bound of memory (u64), number of generations (u32, 1 or 2), the older first; of each: number of texts (u32), their lengths (u32 each), their tokens (u32 each) |
//! | 32 | SHA-256 of everything before |
//!
//! The automaton is built again from the texts. Equal corpora give equal files.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use thiserror::Error;
use vocab_align::TokenId;

use super::SuffixCorpus;
use super::corpus::Generation;

const MAGIC: &[u8; 8] = b"sufxtx\r\n";
const VERSION: u32 = 1;
const HEADER: usize = 8 + 4 + 8;
const CHECKSUM: usize = 32;

/// Errors of a corpus on disk.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CorpusError {
    /// The operating system refused a file operation.
    #[error("cannot read {path}: {source}")]
    Io {
        /// The file concerned.
        path: PathBuf,
        /// Error of the operating system.
        source: io::Error,
    },
    /// A file is larger than the limit of the corpus.
    #[error("{path} has {found} bytes, more than the {limit} that texts to copy from may take")]
    TooLarge {
        /// The file concerned.
        path: PathBuf,
        /// Size of the file in bytes.
        found: u64,
        /// Limit in bytes.
        limit: u64,
    },
    /// The content breaks a rule of the format.
    #[error("{path}: {reason}")]
    Malformed {
        /// The file concerned.
        path: PathBuf,
        /// The broken rule.
        reason: &'static str,
    },
}

impl<I: TokenId> SuffixCorpus<I> {
    /// Reads a file of [`to_bytes`](Self::to_bytes), for a limit of `limit` bytes. With the limit
    /// that it had, it behaves as if it had never been on disk; with a lower one the oldest texts
    /// are dropped.
    ///
    /// # Errors
    /// A file that cannot be read, whose body has more than `limit` bytes, that is damaged, or of
    /// another vocabulary.
    pub fn load(
        path: impl AsRef<Path>,
        limit: usize,
        vocabulary: u64,
    ) -> Result<Self, CorpusError> {
        let path = path.as_ref();
        let io = |source| CorpusError::Io {
            path: path.to_owned(),
            source,
        };
        let file = fs::File::open(path).map_err(io)?;
        let found = file.metadata().map_err(io)?.len();
        let most = limit.saturating_add(HEADER + CHECKSUM) as u64;
        if found > most {
            return Err(CorpusError::TooLarge {
                path: path.to_owned(),
                found,
                limit: limit as u64,
            });
        }
        let mut bytes = Vec::new();
        file.take(most).read_to_end(&mut bytes).map_err(io)?;
        Self::from_bytes(&bytes, limit, vocabulary).map_err(|reason| CorpusError::Malformed {
            path: path.to_owned(),
            reason,
        })
    }

    /// Content of its file. `vocabulary` identifies the vocabulary of the ids, for example by a
    /// fingerprint.
    pub fn to_bytes(&self, vocabulary: u64) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(MAGIC);
        file.extend(VERSION.to_le_bytes());
        file.extend([0; 8]);
        file.extend(vocabulary.to_le_bytes());
        file.extend((self.limit as u64).to_le_bytes());
        file.extend((self.generations().count() as u32).to_le_bytes());
        for generation in self.old.iter().chain([&self.new]) {
            file.extend((generation.lengths.len() as u32).to_le_bytes());
            for length in &generation.lengths {
                file.extend(length.to_le_bytes());
            }
            for token in &generation.tokens {
                file.extend(token.get().to_le_bytes());
            }
        }
        let body = (file.len() - HEADER) as u64;
        file[HEADER - 8..HEADER].copy_from_slice(&body.to_le_bytes());
        let checksum = Sha256::digest(&file);
        file.extend(checksum);
        file
    }

    /// Reads a corpus from the content of its file.
    ///
    /// # Errors
    /// The broken rule of the format.
    pub fn from_bytes(bytes: &[u8], limit: usize, vocabulary: u64) -> Result<Self, &'static str> {
        let mut reader = Reader(body(bytes)?);
        let cut = "it ends in the middle";
        if reader.u64().ok_or(cut)? != vocabulary {
            return Err("texts of another vocabulary");
        }
        let (bound, count) = (reader.u64().ok_or(cut)?, reader.u32().ok_or(cut)?);
        if !(1..=2).contains(&count) {
            return Err("neither one generation of texts nor two");
        }
        let mut corpus = Self::new(limit);
        // For another limit the texts are absorbed anew, which drops the oldest ones if necessary.
        let same = bound == corpus.limit as u64;
        for number in 0..count {
            if same && number > 0 {
                corpus.old = Some(std::mem::take(&mut corpus.new));
            }
            let texts = reader.u32().ok_or(cut)? as usize;
            let mut lengths = reader.list(texts).ok_or(cut)?;
            while let Some(length) = lengths.u32() {
                let mut tokens = reader.list(length as usize).ok_or(cut)?;
                let mut text = Vec::with_capacity(length as usize);
                while let Some(token) = tokens.u32() {
                    text.push(I::new(token));
                }
                if !same {
                    corpus.absorb(&text);
                } else if !corpus.new.append(&text, corpus.limit / 2) {
                    return Err("more in it than it says");
                }
            }
        }
        match reader.0.is_empty() {
            true => Ok(corpus),
            false => Err("more in it than it says"),
        }
    }
}

impl<I: TokenId> Generation<I> {
    /// Adds a text unchanged, if everything then fits into `most` bytes.
    fn append(&mut self, text: &[I], most: usize) -> bool {
        self.automaton.start();
        self.lengths.push(text.len() as u32);
        for token in text {
            self.automaton.push(*token);
            self.tokens.push(*token);
            if self.bytes() > most {
                return false;
            }
        }
        true
    }
}

/// The body of a file whose magic, version, length and checksum are right.
fn body(bytes: &[u8]) -> Result<&[u8], &'static str> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("no texts to copy from")?;
    let mut header = Reader(rest);
    let cut = "it ends in the middle";
    let (version, length) = (header.u32().ok_or(cut)?, header.u64().ok_or(cut)?);
    if version != VERSION {
        return Err("of another version of the format");
    }
    if length.checked_add((HEADER + CHECKSUM) as u64) != Some(bytes.len() as u64) {
        return Err("truncated or overlong; copy it again");
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    match Sha256::digest(content)[..] == *checksum {
        true => Ok(&content[HEADER..]),
        false => Err("damaged: its SHA-256 checksum does not match its content"),
    }
}

/// Reader of little-endian fields from the front of a byte slice.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn u32(&mut self) -> Option<u32> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_le_bytes(*field))
    }

    fn u64(&mut self) -> Option<u64> {
        let (field, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_le_bytes(*field))
    }

    /// Reader of the next `fields` fields of four bytes.
    fn list(&mut self, fields: usize) -> Option<Self> {
        let (list, rest) = self.0.split_at_checked(fields.checked_mul(4)?)?;
        self.0 = rest;
        Some(Self(list))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::SuffixLookup;
    use super::*;
    use vocab_align::TargetId;

    fn text(seed: u32) -> Vec<TargetId> {
        let token = |i: u32| TargetId((seed * 31 + i * i) % 97);
        (0..20 + seed % 30).map(token).collect()
    }

    #[test]
    fn a_corpus_goes_on_from_disk_as_if_it_had_never_been_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts.bin");
        let mut whole = SuffixCorpus::new(100_000);
        let mut broken = SuffixCorpus::new(100_000);
        for seed in 0..150 {
            whole.absorb(&text(seed));
            broken.absorb(&text(seed));
            // The turn of a chat that continues a text that was saved before.
            let turn = [text(seed), text(seed + 1)].concat();
            fs::write(&path, broken.to_bytes(7)).unwrap();
            broken = SuffixCorpus::load(&path, 100_000, 7).unwrap();
            whole.absorb(&turn);
            broken.absorb(&turn);
            assert_eq!(whole.to_bytes(7), broken.to_bytes(7));
        }
        assert!(whole.old.is_some() && whole.bytes() == broken.bytes());
        // With less room, the latest texts stay.
        let less = SuffixCorpus::<TargetId>::load(&path, 50_000, 7).unwrap();
        assert!(less.bytes() <= 50_000 && less.len() < whole.len());
        assert!(less.new.tokens.ends_with(&text(149)));
        let all = SuffixCorpus::<TargetId>::load(&path, usize::MAX, 7).unwrap();
        assert!(all.new.tokens.ends_with(&text(149)));
        let names = fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1, "temporary files are gone");
    }

    #[test]
    fn what_is_not_a_corpus_is_refused() {
        let mut corpus = SuffixCorpus::new(10_000);
        corpus.absorb(&text(1));
        let bytes = corpus.to_bytes(7);
        let read = |bytes: &[u8]| SuffixCorpus::<TargetId>::from_bytes(bytes, 10_000, 7).err();
        assert_eq!(read(&bytes), None);
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_some(), "{length} bytes");
        }
        for at in 0..bytes.len() {
            let mut other = bytes.clone();
            other[at] ^= 4;
            assert!(read(&other).is_some(), "byte {at}");
        }
        let other = SuffixCorpus::<TargetId>::from_bytes(&bytes, 10_000, 8);
        assert_eq!(other.err(), Some("texts of another vocabulary"));

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("texts.bin");
        fs::write(&path, vec![0; 2000]).unwrap();
        let large = SuffixCorpus::<TargetId>::load(&path, 1000, 7).unwrap_err();
        assert!(matches!(large, CorpusError::TooLarge { found: 2000, .. }));
        let missing = SuffixCorpus::<TargetId>::load(path.with_extension("no"), 1000, 7);
        assert!(missing.unwrap_err().to_string().starts_with("cannot read"));
    }

    /// A lookup reads the end of a prompt alone in texts that it does not know yet, and a corpus
    /// from disk is no exception.
    #[test]
    fn a_lookup_matches_alike_in_a_corpus_from_disk() {
        let prompt: Vec<TargetId> = (0..100).map(TargetId).collect();
        let [x, y] = [200, 201].map(TargetId);
        let mut corpus = SuffixCorpus::new(1 << 20);
        corpus.absorb(&[&prompt[..], &[x]].concat());
        for before in [300, 301].map(TargetId) {
            corpus.absorb(&[&[before][..], &prompt[30..], &[y]].concat());
        }
        let loaded = SuffixCorpus::from_bytes(&corpus.to_bytes(7), 1 << 20, 7).unwrap();
        for corpus in [corpus, loaded] {
            let mut lookup = SuffixLookup::new(Some(Arc::new(Mutex::new(corpus))));
            lookup.start(&prompt);
            assert_eq!(lookup.find(8), Some((64, vec![y])));
        }
    }
}
