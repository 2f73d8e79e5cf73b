//! Selection of prompts for a trace, and their tokenisation.

use std::collections::BTreeSet;

use ::trace::Template;
use anyhow::{Result, bail};
use clap::{Args, ValueEnum};
use models::{Exchange, ModelText};
use streams::{DataSource, Prompt, Split, StreamSpec};
use vocab_align::{TargetId, TokenId};

/// A half of a task, on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum SplitName {
    /// Streamed prompts.
    Train,
    /// Held-out prompts.
    Test,
}

impl From<SplitName> for Split {
    fn from(name: SplitName) -> Self {
        match name {
            SplitName::Train => Self::Train,
            SplitName::Test => Self::Test,
        }
    }
}

/// The prompts to record.
#[derive(Debug, Clone, Args)]
pub(super) struct PromptArgs {
    /// Task: a folder of the data directory, or an embedded mini stream.
    #[arg(long, value_name = "NAME")]
    pub(super) task: String,
    /// Half of the task.
    #[arg(long, value_enum, default_value_t = SplitName::Train)]
    pub(super) split: SplitName,
    /// Only the first prompts, in the order of the file, or of --seed.
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<usize>,
    /// With --limit: the prompts that experiments with these seeds stream first.
    #[arg(long, value_name = "SEED", value_delimiter = ',', requires = "limit")]
    pub(super) seed: Vec<u64>,
}

impl PromptArgs {
    /// The prompts; those of several seeds once each.
    pub(super) fn load(&self, data: &DataSource) -> Result<Vec<Prompt>> {
        if self.limit == Some(0) {
            bail!("--limit must be at least 1");
        }
        let spec = StreamSpec {
            limit: self.limit,
            shuffle: !self.seed.is_empty(),
            ..StreamSpec::new(&*self.task, self.split.into())
        };
        let seeds = match &self.seed[..] {
            [] => &[0],
            seeds => seeds,
        };
        let (mut prompts, mut known) = (Vec::new(), BTreeSet::new());
        for seed in seeds {
            let drawn = spec.load(data, *seed)?;
            prompts.extend(drawn.into_iter().filter(|p| known.insert(p.id.clone())));
        }
        Ok(prompts)
    }
}

/// The kind of template of a target.
pub(super) fn template_of(text: &ModelText<TargetId>) -> Template {
    match text.template.is_chat() {
        true => Template::Chat,
        false => Template::Plain,
    }
}

/// A prompt after the exchanges `before` it, shortened to the maximum length of prompts: its text
/// and its tokens for the target.
pub(super) fn spell(
    text: &ModelText<TargetId>,
    before: &[Exchange],
    prompt: &str,
) -> Result<(String, Vec<u32>)> {
    let fitted = text.fit_turn(before, prompt)?;
    let ids = fitted.ids.iter().map(|id| id.get()).collect();
    Ok((fitted.text, ids))
}

/// Name of the program in a trace.
pub(super) fn program() -> String {
    format!("omnidraft {}", env!("CARGO_PKG_VERSION"))
}
