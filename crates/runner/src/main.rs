//! The `omnidraft` command.
fn main() {}
