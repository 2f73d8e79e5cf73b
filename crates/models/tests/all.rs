//! All tests of the crate that need no process of their own, in one program: linking one is cheaper than many.

mod chat_template;
mod ends;
mod export;
mod folder;
mod generation;
mod import;
mod jinja;
mod prompt_ids;
mod talk;
mod template;
