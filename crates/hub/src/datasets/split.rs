//! The published splits of Alpaca and XSum, as embedded lists of ids.
//!
//! Both were drawn from subsets that other projects published, so no rule over the whole dataset
//! gives them. The ids are embedded, without any text. Some of XSum's articles came without the
//! number that the BBC gave them; their ids are hashes of the text as it was found, with or without
//! line breaks. A fingerprint of the text that ignores such differences finds these articles in the
//! hub's table.

use std::collections::HashMap;

use sha1::{Digest, Sha1};

/// Length of a fingerprint in bytes.
const PRINT: usize = 5;
/// Length in bytes of the header of a file of ids: the number of test records, big-endian.
const HEADER: usize = 4;
/// Number of letters and digits of a document that its fingerprint covers. It is small because some
/// sources end in mid-sentence.
const COVERED: usize = 150;

/// One record of a split.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Published {
    /// Id of the record in its task.
    pub id: String,
    /// [`fingerprint`] of its document; `None` if the id itself names the record of the hub.
    pub fingerprint: Option<[u8; PRINT]>,
}

/// The records of a published split, in its order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedSplit {
    /// Held-out records.
    pub test: Vec<Published>,
    /// Records that are streamed and learned from.
    pub train: Vec<Published>,
}

impl PublishedSplit {
    /// The split of Alpaca: 100 test and 8000 training records of a random 9k subset.
    pub fn alpaca() -> Self {
        Self::from_bytes(include_bytes!("alpaca.ids"), |digits: &[u8; 6]| Published {
            id: format!("alpaca-{}", hex::encode(digits)),
            fingerprint: None,
        })
    }

    /// The split of XSum: 100 test and 4000 training records.
    pub fn xsum() -> Self {
        // A BBC number and zeros; or the ten hexadecimal digits of an id as five bytes, and a
        // fingerprint.
        Self::from_bytes(include_bytes!("xsum.ids"), |entry: &[u8; 2 * PRINT]| {
            let (id, print) = entry.split_at(PRINT);
            let fingerprint = <[u8; PRINT]>::try_from(print).ok();
            let fingerprint = fingerprint.filter(|print| *print != [0; PRINT]);
            let id = if fingerprint.is_some() {
                format!("xsum-h{}", hex::encode(id))
            } else {
                let number = id.iter().fold(0u64, |n, &byte| n << 8 | u64::from(byte));
                format!("xsum-{number}")
            };
            Published { id, fingerprint }
        })
    }

    /// Reads a file of ids, whose entries have `N` bytes each.
    fn from_bytes<const N: usize>(bytes: &[u8], read: impl Fn(&[u8; N]) -> Published) -> Self {
        let (header, entries) = bytes.split_at_checked(HEADER).unwrap_or_default();
        let tests = header.iter().fold(0, |n, &byte| n << 8 | usize::from(byte));
        let (entries, _) = entries.as_chunks::<N>();
        let mut test: Vec<_> = entries.iter().map(read).collect();
        let train = test.split_off(tests.min(test.len()));
        Self { test, train }
    }

    /// All records, the held-out ones first.
    pub(super) fn all(&self) -> impl Iterator<Item = &Published> {
        self.test.iter().chain(&self.train)
    }

    /// Ids by fingerprint, of the records that have one.
    pub(super) fn by_fingerprint(&self) -> HashMap<[u8; PRINT], &str> {
        self.all()
            .filter_map(|record| Some((record.fingerprint?, record.id.as_str())))
            .collect()
    }
}

/// Hash of the first 150 ASCII letters and digits of a document, in lower case. It does not depend
/// on case, white space or punctuation.
pub fn fingerprint(document: &str) -> [u8; PRINT] {
    let letters: Vec<u8> = document
        .bytes()
        .filter(u8::is_ascii_alphanumeric)
        .take(COVERED)
        .map(|byte| byte.to_ascii_lowercase())
        .collect();
    first_bytes(&letters)
}

/// The first `N` bytes of the SHA-1 of `content`. Ids and fingerprints are made of these.
pub(super) fn first_bytes<const N: usize>(content: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&Sha1::digest(content)[..N]);
    out
}
