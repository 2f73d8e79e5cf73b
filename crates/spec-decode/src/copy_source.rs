//! Source of the copies of a session.

use vocab_align::TargetId;

use crate::{Found, History, SuffixLookup};

/// Text with which drafts may begin, and the method of look-up.
#[derive(Clone, Debug)]
pub enum CopySource {
    /// Latest continuation of a run of at most four tokens.
    Latest(History),
    /// The most frequent continuation of the longest match.
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
    /// Begins a new text. [`Latest`](Self::Latest) keeps the texts before it.
    /// [`Frequent`](Self::Frequent) drops the present text, unless it was
    /// [absorbed](SuffixLookup::absorb) into the corpus.
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

    /// Earlier text that matches the end of the present one, with at most `most` tokens of its
    /// continuation.
    pub fn find(&mut self, most: usize) -> Option<Found> {
        self.find_after(&[], most)
    }

    /// As [`find`](Self::find) if `ahead` stood at the end of the present text.
    pub fn find_after(&mut self, ahead: &[TargetId], most: usize) -> Option<Found> {
        match self {
            Self::Latest(history) => history.find_after(ahead, most),
            Self::Frequent(lookup) => {
                let (matched, tokens) = lookup.find_after(ahead, most)?;
                Some(Found { matched, tokens })
            }
        }
    }
}
