//! Token ids of the two vocabularies, as distinct types.

use std::fmt;
use std::hash::Hash;

use serde::{Deserialize, Serialize};

/// A token id of one particular vocabulary.
///
/// The two implementors, [`DraftId`] and [`TargetId`], convert into each other only through an
/// [`Alignment`](crate::Alignment) or an n-gram cache.
pub trait TokenId:
    Copy + Eq + Ord + Hash + fmt::Debug + fmt::Display + Send + Sync + 'static
{
    /// Wraps a raw id.
    fn new(raw: u32) -> Self;

    /// The raw id.
    fn get(self) -> u32;

    /// The raw id as an index into a vocabulary-sized slice.
    fn index(self) -> usize {
        self.get() as usize
    }
}

macro_rules! token_id {
    ($name:ident, $doc:literal) => {
        #[doc = $doc]
        #[derive(
            Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        #[repr(transparent)]
        pub struct $name(pub u32);

        impl TokenId for $name {
            fn new(raw: u32) -> Self {
                Self(raw)
            }

            fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

token_id!(
    DraftId,
    "A token of the drafter's vocabulary (the paper's V_q)."
);
token_id!(
    TargetId,
    "A token of the target's vocabulary (the paper's V_p)."
);
