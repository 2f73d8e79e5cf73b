//! Copies by a suffix automaton: the most frequent continuation of the longest run that ends the
//! present text.
//!
//! A suffix automaton holds texts, [`SuffixCorpus`] holds earlier texts within a limit of memory
//! and on disk, and [`SuffixLookup`] joins a corpus with the present text. The source is
//! SuffixDecoding (Oliaro et al., arXiv 2411.04975), which keeps suffix trees of bounded depth; a
//! suffix automaton (Blumer et al., 1985) matches runs of any length and grows in amortised
//! constant time.

mod automaton;
mod corpus;
mod file;
mod lookup;

pub use corpus::SuffixCorpus;
pub use file::CorpusError;
pub use lookup::{SharedCorpus, SuffixLookup};
