//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod checkpoint;
mod files;
mod gguf_keys;
mod gguf_write;
mod golden;
mod golden_support;
mod optim;
mod published;
mod reference;
mod refused;
