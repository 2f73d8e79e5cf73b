//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod arms;
mod common;
mod loading;
mod plans;
mod refused;
mod refused_cells;
mod stored;
