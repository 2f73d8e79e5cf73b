//! Errors inside a round, before the number of the round is added.

use vocab_align::AlignError;

use crate::ModelError;
use crate::error::{LawError, Role, SpecError};

#[derive(Debug)]
pub(crate) enum Fault {
    Model(Role, ModelError),
    Law(Role, LawError),
    Align(AlignError),
    CacheChanged,
    CacheDrift {
        role: Role,
        found: usize,
        expected: usize,
    },
}

impl Fault {
    /// Adds the number of the round.
    pub(crate) fn at(self, round: usize) -> SpecError {
        match self {
            Self::Model(role, source) => SpecError::Model {
                round,
                role,
                source,
            },
            Self::Law(role, source) => SpecError::Law {
                round,
                role,
                source,
            },
            Self::Align(source) => SpecError::Align { round, source },
            Self::CacheChanged => SpecError::CacheChanged { round },
            Self::CacheDrift {
                role,
                found,
                expected,
            } => SpecError::CacheDrift {
                round,
                role,
                found,
                expected,
            },
        }
    }
}

impl From<AlignError> for Fault {
    fn from(source: AlignError) -> Self {
        Self::Align(source)
    }
}
