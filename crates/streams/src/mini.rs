//! Four small streams written by this project, embedded so that everything runs without the public
//! datasets.
//!
//! Each imitates the *form* of a task of the paper, not its text: word problems with calculator
//! annotations (GSM8K), Python tasks with three asserts (MBPP), instructions with optional input
//! (Alpaca) and news articles to be summarised in a sentence (XSum). `datasets/README.md` says how
//! they were made.

use std::path::PathBuf;

use crate::{Prompt, Split, StreamError, parse_prompts};

/// An embedded stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MiniTask {
    /// Word problems in GSM8K's format.
    Math,
    /// Python functions in MBPP's format.
    Code,
    /// Instructions in Alpaca's format.
    Chat,
    /// Articles and one-sentence summaries in XSum's format.
    News,
}

impl MiniTask {
    /// All four, in the order of the paper's tasks.
    pub const ALL: [Self; 4] = [Self::Math, Self::Code, Self::Chat, Self::News];

    /// The task name, also the folder under `datasets/`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Math => "mini-math",
            Self::Code => "mini-code",
            Self::Chat => "mini-chat",
            Self::News => "mini-news",
        }
    }

    /// The task of this name, if there is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|task| task.name() == name)
    }

    /// The embedded prompts of one split.
    ///
    /// # Errors
    /// None in a program as built. The embedded files pass through the same reader as any other.
    pub fn prompts(self, split: Split) -> Result<Vec<Prompt>, StreamError> {
        let path = PathBuf::from(format!("datasets/{}/{}.jsonl", self.name(), split.name()));
        parse_prompts(self.embedded(split).as_bytes(), &path, self.name())
    }

    /// The text of the embedded file of one split.
    pub fn embedded(self, split: Split) -> &'static str {
        macro_rules! file {
            ($name:literal) => {
                include_str!(concat!(
                    env!("CARGO_MANIFEST_DIR"),
                    "/../../datasets/",
                    $name,
                    ".jsonl"
                ))
            };
        }
        match (self, split) {
            (Self::Math, Split::Train) => file!("mini-math/train"),
            (Self::Math, Split::Test) => file!("mini-math/test"),
            (Self::Code, Split::Train) => file!("mini-code/train"),
            (Self::Code, Split::Test) => file!("mini-code/test"),
            (Self::Chat, Split::Train) => file!("mini-chat/train"),
            (Self::Chat, Split::Test) => file!("mini-chat/test"),
            (Self::News, Split::Train) => file!("mini-news/train"),
            (Self::News, Split::Test) => file!("mini-news/test"),
        }
    }
}
