//! What engines and trainers on the host share: the matrix product, rotary tables, normal draws.

mod matrix;
mod rope;

pub use crate::init::normal;
pub use matrix::{Mat, MatMut, Store, multiply};
pub use rope::{RotaryTable, RotaryTables};
