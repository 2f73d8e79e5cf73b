//! Copies by a suffix automaton: what most often followed the longest run that ends the present text.
//!
//! [`SuffixAutomaton`] holds texts, [`SuffixCorpus`] holds those of the past within a bound of memory and
//! on disk, and [`SuffixLookup`] joins a corpus with the text in the making. The source is SuffixDecoding
//! (Oliaro et al., arXiv 2411.04975), which keeps suffix trees of bounded depth; a suffix automaton (Blumer
//! et al., 1985) matches runs of any length and grows in amortised constant time.

mod automaton;
mod corpus;
mod file;
mod lookup;

pub use automaton::{Continuation, Match, SuffixAutomaton};
pub use corpus::SuffixCorpus;
pub use file::CorpusError;
pub use lookup::{SharedCorpus, SuffixLookup};
