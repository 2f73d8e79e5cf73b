//! Code that engines and trainers on the host share: matrix product, rotary tables, normal draws.

mod matrix;
#[cfg(target_arch = "x86_64")]
mod pairs;
mod products;
mod rope;

pub use crate::init::normal;
pub use matrix::{Mat, MatMut, Store, multiply};
pub use products::Products;
pub use rope::{RotaryTable, RotaryTables};
