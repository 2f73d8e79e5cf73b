//! Misuse of a loss.

/// Errors of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LossError {
    /// Two arguments that must agree in shape do not.
    #[error("{loss}: shapes {left:?} and {right:?} do not agree")]
    Shape {
        /// Name of the loss.
        loss: &'static str,
        /// Shape of the first argument.
        left: Vec<usize>,
        /// Shape of the second argument.
        right: Vec<usize>,
    },
}

impl LossError {
    pub(crate) fn same_shape<const D: usize>(
        loss: &'static str,
        left: [usize; D],
        right: [usize; D],
    ) -> Result<(), Self> {
        if left == right {
            return Ok(());
        }
        Err(Self::Shape {
            loss,
            left: left.to_vec(),
            right: right.to_vec(),
        })
    }
}
