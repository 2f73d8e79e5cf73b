//! Saving and loading: a small binary file with a version and a checksum.
//!
//! Layout, integers little-endian:
//!
//! | bytes | field |
//! |---|---|
//! | 8 | magic `ngramc\r\n` |
//! | 4 | format version |
//! | 8 | length of the body |
//! | body | eviction (u8: 0 none, 1 lru, 2 lfu), limits of entries and bytes (u64 each, `u64::MAX` for none), evictions (u64), number of n-grams (u64), then per n-gram: n, target, count, rival target, its count (0: there is none), d_1..d_n (u32 each) |
//! | 32 | SHA-256 of everything before |
//!
//! The rival is the other target token with the same bytes for which the n-gram was seen
//! ([`NgramCache::insert`]).
//!
//! The n-grams are stored in eviction order if there is one, so that loading restores the next
//! victim too; otherwise in lexicographic order. Equal caches give equal files.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};
use vocab_align::{DraftId, TargetId, Vocabulary};

use crate::cache::{CacheConfig, Eviction, Ngram, NgramCache, Rival};
use crate::error::CacheError;
use crate::trie::END;

const MAGIC: &[u8; 8] = b"ngramc\r\n";
const VERSION: u32 = 2;
const HEADER: usize = 8 + 4 + 8;
const CHECKSUM: usize = 32;
const NO_LIMIT: u64 = u64::MAX;

impl NgramCache {
    /// Writes the cache to a file. The content goes to a temporary file beside it first, which is then
    /// renamed: a crash leaves the old file or the new one, never half of one.
    ///
    /// # Errors
    /// [`CacheError::Io`].
    pub fn save(&self, path: impl AsRef<Path>) -> Result<(), CacheError> {
        let path = path.as_ref();
        let temporary = temporary_beside(path);
        let written = write_synced(&temporary, &self.to_bytes());
        let result = match written {
            Ok(()) => fs::rename(&temporary, path).map_err(|e| io_error("replace", path, e)),
            Err(e) => Err(io_error("write", &temporary, e)),
        };
        if result.is_err() {
            // The original error is what matters; a leftover is harmless.
            let _ = fs::remove_file(&temporary);
        }
        result
    }

    /// Reads a cache written by [`save`](Self::save): n-grams, counts, rivals, limits, policy,
    /// eviction order, and the number of evictions.
    ///
    /// # Errors
    /// [`CacheError::Io`] and one variant each for a foreign, outdated, truncated, damaged or
    /// malformed file. [`check_bytes`](Self::check_bytes) checks that the cache fits a pair of
    /// tokenizers.
    pub fn load(path: impl AsRef<Path>) -> Result<Self, CacheError> {
        let path = path.as_ref();
        let bytes = fs::read(path).map_err(|e| io_error("read", path, e))?;
        parse(checked_body(path, &bytes)?).map_err(|(entry, reason)| CacheError::Malformed {
            path: path.to_owned(),
            entry,
            reason,
        })
    }

    /// Checks that every n-gram has the bytes of its target token (for a marker, those of its
    /// name), that is, that the cache belongs to these two vocabularies.
    ///
    /// # Errors
    /// [`CacheError::WrongVocabulary`] for the first n-gram that does not.
    pub fn check_bytes(
        &self,
        draft: &Vocabulary<DraftId>,
        target: &Vocabulary<TargetId>,
    ) -> Result<(), CacheError> {
        for ngram in self.entries() {
            let spelled = draft.decode_bytes(&ngram.draft);
            let marker = target.marker(ngram.target).map(str::as_bytes);
            let wanted = target.bytes(ngram.target).or(marker).unwrap_or_default();
            if spelled != wanted || wanted.is_empty() {
                return Err(CacheError::WrongVocabulary {
                    draft_text: String::from_utf8_lossy(&spelled).into_owned(),
                    target_text: String::from_utf8_lossy(wanted).into_owned(),
                    draft: ngram.draft,
                    target: ngram.target,
                });
            }
        }
        Ok(())
    }

    fn to_bytes(&self) -> Vec<u8> {
        let mut body = vec![self.config.eviction as u8];
        let limit = |max: Option<usize>| max.map_or(NO_LIMIT, |max| max as u64);
        let (entries, bytes) = (self.config.max_entries, self.config.max_bytes);
        for field in [
            limit(entries),
            limit(bytes),
            self.evictions,
            self.len() as u64,
        ] {
            body.extend(field.to_le_bytes());
        }
        for entry in self.ranked_entries() {
            let Ngram {
                draft,
                target,
                count,
            } = self.ngram(entry);
            let rival = self.rivals.get(&entry).filter(|rival| rival.count > 0);
            let (rival, claims) = rival.map_or((0, 0), |rival| (rival.target.0, rival.count));
            let head = [draft.len() as u32, target.0, count, rival, claims];
            for field in head.into_iter().chain(draft.iter().map(|d| d.0)) {
                body.extend(field.to_le_bytes());
            }
        }
        let mut file = Vec::with_capacity(HEADER + body.len() + CHECKSUM);
        file.extend(MAGIC);
        file.extend(VERSION.to_le_bytes());
        file.extend((body.len() as u64).to_le_bytes());
        file.extend(body);
        let checksum = Sha256::digest(&file);
        file.extend(checksum);
        file
    }
}

/// The body of a file whose magic, version, length and checksum are right.
fn checked_body<'a>(path: &Path, bytes: &'a [u8]) -> Result<&'a [u8], CacheError> {
    let path = || path.to_owned();
    let wrong_length = |expected: u64| CacheError::Length {
        path: path(),
        expected,
        found: bytes.len() as u64,
    };
    if !bytes.starts_with(&MAGIC[..bytes.len().min(MAGIC.len())]) {
        return Err(CacheError::NotACache { path: path() });
    }
    let mut header = Reader(bytes.get(MAGIC.len()..).unwrap_or_default());
    let (Some(version), Some(body)) = (header.u32(), header.u64()) else {
        return Err(wrong_length((HEADER + CHECKSUM) as u64));
    };
    if version != VERSION {
        return Err(CacheError::Version {
            path: path(),
            found: version,
            supported: VERSION,
        });
    }
    let expected = body.saturating_add((HEADER + CHECKSUM) as u64);
    if bytes.len() as u64 != expected {
        return Err(wrong_length(expected));
    }
    let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM);
    if Sha256::digest(content)[..] != *checksum {
        return Err(CacheError::Checksum { path: path() });
    }
    Ok(&content[HEADER..])
}

/// Rebuilds a cache from a body. The error is the number of an n-gram and the rule that it breaks.
fn parse(body: &[u8]) -> Result<NgramCache, (usize, &'static str)> {
    let mut reader = Reader(body);
    let (config, evictions, ngrams) = parse_head(&mut reader).map_err(|reason| (0, reason))?;
    let mut cache = NgramCache::new(config);
    cache.evictions = evictions;
    let mut last_count = 0;
    for number in 0..ngrams {
        let malformed = |reason| (number, reason);
        let (draft, target, count, rival) =
            parse_ngram(&mut reader).ok_or(malformed("it ends in the middle"))?;
        if draft.len() < 2 || draft.iter().any(|d| d.0 >= END) {
            return Err(malformed("not at least two valid draft tokens"));
        }
        if count == 0 || (config.eviction == Eviction::Lfu && count < last_count) {
            return Err(malformed("count is zero or out of eviction order"));
        }
        if cache.trie.find(&draft).is_some() {
            return Err(malformed("the same n-gram stands twice"));
        }
        if !cache.trie.has_room(draft.len()) {
            return Err(malformed("more n-grams than a cache can hold"));
        }
        let none = rival.count == 0 && rival.target.0 == 0;
        if !none && (rival.count == 0 || rival.count > count || rival.target == target) {
            return Err(malformed("a rival that should stand in the token's place"));
        }
        last_count = count;
        cache.insert_new(&draft, target, count, rival);
    }
    if !reader.0.is_empty() {
        return Err((ngrams, "bytes are left over"));
    }
    Ok(cache)
}

fn parse_head(reader: &mut Reader<'_>) -> Result<(CacheConfig, u64, usize), &'static str> {
    let cut = "the body ends in its head";
    let eviction = match reader.take::<1>().ok_or(cut)?[0] {
        0 => Eviction::None,
        1 => Eviction::Lru,
        2 => Eviction::Lfu,
        _ => return Err("unknown eviction policy"),
    };
    let entries = reader.u64().ok_or(cut)?;
    let bytes = reader.u64().ok_or(cut)?;
    let evictions = reader.u64().ok_or(cut)?;
    let ngrams = usize::try_from(reader.u64().ok_or(cut)?).map_err(|_| cut)?;
    let limit = |limit| match limit {
        NO_LIMIT => Ok(None),
        limit => usize::try_from(limit)
            .map(Some)
            .map_err(|_| "limit too large for this machine"),
    };
    let (max_entries, max_bytes) = (limit(entries)?, limit(bytes)?);
    // After `reconfigure`, only a cache without eviction may hold more n-grams than its limit.
    if eviction != Eviction::None && max_entries.is_some_and(|max| ngrams > max) {
        return Err("more n-grams than the limit allows");
    }
    let config = CacheConfig {
        eviction,
        max_entries,
        max_bytes,
    };
    Ok((config, evictions, ngrams))
}

fn parse_ngram(reader: &mut Reader<'_>) -> Option<(Vec<DraftId>, TargetId, u32, Rival)> {
    let length = reader.u32()? as usize;
    let target = TargetId(reader.u32()?);
    let count = reader.u32()?;
    let rival = Rival {
        target: TargetId(reader.u32()?),
        count: reader.u32()?,
    };
    if length > reader.0.len() / size_of::<u32>() {
        return None;
    }
    let draft = (0..length).map(|_| reader.u32().map(DraftId));
    Some((draft.collect::<Option<_>>()?, target, count, rival))
}

/// Reader of little-endian fields from the front of a byte slice.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}

fn temporary_beside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

fn write_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = fs::File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn io_error(action: &'static str, path: &Path, source: io::Error) -> CacheError {
    CacheError::Io {
        action,
        path: path.to_owned(),
        source,
    }
}
