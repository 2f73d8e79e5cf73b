//! Where a session copies from.

use vocab_align::TargetId;

use crate::{Found, History, SuffixLookup};

/// Text that drafts may begin with, and how it is looked up.
#[derive(Clone, Debug)]
pub enum CopySource {
    /// What followed a run of at most four tokens the last time.
    Latest(History),
    /// What followed the longest match most often.
    Frequent(Box<SuffixLookup<TargetId>>),
}

impl From<History> for CopySource {
    fn from(history: History) -> Self {
        Self::Latest(history)
    }
}

impl From<SuffixLookup<TargetId>> for CopySource {
    fn from(lookup: SuffixLookup<TargetId>) -> Self {
        Self::Frequent(Box::new(lookup))
    }
}

impl CopySource {
    /// Begins a new text after all others.
    pub fn start(&mut self, prompt: &[TargetId]) {
        match self {
            Self::Latest(history) => history.start(prompt),
            Self::Frequent(lookup) => lookup.start(prompt),
        }
    }

    /// Appends tokens to the present text.
    pub fn extend(&mut self, tokens: &[TargetId]) {
        match self {
            Self::Latest(history) => history.extend(tokens),
            Self::Frequent(lookup) => lookup.extend(tokens),
        }
    }

    /// A text found to go on like the present one, with at most `most` tokens of what followed.
    pub fn find(&mut self, most: usize) -> Option<Found> {
        match self {
            Self::Latest(history) => history.find(most),
            Self::Frequent(lookup) => {
                let (matched, tokens) = lookup.find(most)?;
                Some(Found { matched, tokens })
            }
        }
    }
}
