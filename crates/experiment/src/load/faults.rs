//! Collection of faults, without repetitions.

use std::path::Path;

use super::near;
use super::tree::Place;
use crate::error::{ExperimentError, Fault};

/// Faults in the order of discovery.
#[derive(Debug, Default)]
pub(crate) struct Faults(Vec<Fault>);

impl Faults {
    /// Adds a fault unless it is known. If the message lists names, the most similar one is
    /// advised.
    pub(crate) fn add(&mut self, place: Option<&Place>, key: &str, message: impl Into<String>) {
        let message: String = message.into();
        let hint = near::hint(key, &message);
        self.push(place, key, message, hint);
    }

    /// Adds a fault with advice.
    pub(crate) fn advise(
        &mut self,
        place: Option<&Place>,
        key: &str,
        message: impl Into<String>,
        hint: &str,
    ) {
        self.push(place, key, message.into(), Some(hint.to_owned()));
    }

    fn push(&mut self, place: Option<&Place>, key: &str, message: String, hint: Option<String>) {
        let fault = Fault {
            place: place.map(Place::to_string),
            key: key.to_owned(),
            message,
            hint,
        };
        if !self.0.contains(&fault) {
            self.0.push(fault);
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `value` if there are no faults.
    pub(crate) fn into_result<T>(
        self,
        path: &Path,
        value: Option<T>,
    ) -> Result<T, ExperimentError> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(ExperimentError::Faults {
                path: path.to_path_buf(),
                faults: self.0,
            }),
        }
    }
}
