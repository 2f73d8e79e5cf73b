//! Seeded mutations of every file that the program reads.
//!
//! A *reader* ([`Reader`]) is a function of this workspace that reads bytes which somebody else
//! wrote: a tokenizer, a checkpoint, an experiment, rows of a run. A few valid files of each
//! (*seeds*) are damaged in ways that keep much of their structure ([`mutate`]), and the reader is
//! called. It may accept or refuse; it may not panic, hang, or take more memory than the file
//! warrants.
//!
//! Every input follows from the root seed, the reader's name and its number, so a failure is
//! repeated by naming the three. Inputs are tried in a process of their own ([`worker`]), which a
//! parent watches and starts again after the input that killed it ([`supervisor`]).
//!
//! ```
//! let reader = fuzz::readers::named("config").unwrap();
//! let corpus = fuzz::Corpus::of(reader)?;
//! let input = corpus.input(1, 7);
//! assert_eq!(input, corpus.input(1, 7), "the same numbers make the same input");
//! # Ok::<(), anyhow::Error>(())
//! ```

pub mod mutate;
pub mod page;
pub mod readers;
pub mod supervisor;
pub mod worker;

use std::path::Path;

use anyhow::{Context, Result, ensure};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use sha2::{Digest, Sha256};

use mutate::Shape;

/// Longest time that one input may take, in seconds.
pub const LONGEST_S: f64 = 2.0;
/// Largest memory that one input may take, in bytes. Seeds are a few kilobytes, so this leaves room
/// for small tables whose size a file states.
pub const MOST_MEMORY: usize = 256 << 20;

/// A function that reads bytes from elsewhere, with valid examples of its files.
#[derive(Debug, Clone, Copy)]
pub struct Reader {
    /// Its name on the command line.
    pub name: &'static str,
    /// Kind of files, for people.
    pub what: &'static str,
    /// Structure by which inputs are damaged.
    pub shape: Shape,
    /// Valid files, made by the program's own writers or written by hand.
    pub seeds: fn() -> Result<Vec<Vec<u8>>>,
    /// Reads an input and uses what was read; the folder is empty and the reader's own.
    pub read: fn(&Path, &[u8]) -> Result<()>,
}

/// A reader with its seeds.
pub struct Corpus {
    reader: &'static Reader,
    seeds: Vec<Vec<u8>>,
}

impl Corpus {
    /// Makes the seeds.
    ///
    /// # Errors
    /// Seeds that cannot be made.
    pub fn of(reader: &'static Reader) -> Result<Self> {
        let seeds = (reader.seeds)().with_context(|| format!("seeds of `{}`", reader.name))?;
        ensure!(!seeds.is_empty(), "`{}` has no seeds", reader.name);
        Ok(Self { reader, seeds })
    }

    /// The valid files.
    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// Input `index` of root seed `seed`.
    pub fn input(&self, seed: u64, index: u64) -> Vec<u8> {
        let mut digest = Sha256::new();
        digest.update(seed.to_le_bytes());
        digest.update(self.reader.name.as_bytes());
        digest.update(index.to_le_bytes());
        let mut rng = ChaCha8Rng::from_seed(digest.finalize().into());
        mutate::mutate(self.reader.shape, &self.seeds, &mut rng)
    }
}
