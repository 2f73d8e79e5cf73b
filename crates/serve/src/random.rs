//! Random numbers that name answers and sessions.

use std::hash::{BuildHasher, Hasher, RandomState};

/// A random number that cannot be guessed.
pub(crate) fn random_number() -> u64 {
    // The standard library seeds its hashers with randomness of the system.
    RandomState::new().build_hasher().finish()
}
