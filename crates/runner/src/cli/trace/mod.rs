//! `omnidraft trace`.

mod progress;
mod prompts;
mod record;
mod several;
mod show;
mod text;
mod verify;

use anyhow::Result;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Record a target's answers to a task, to replay them without the target.
    Record(record::RecordArgs),
    /// Make a trace of a task's reference answers, a target without any model.
    Text(text::TextArgs),
    /// Describe traces.
    Show(show::ShowArgs),
    /// Check every row of a trace, against its tokenizer and its model.
    Verify(verify::VerifyArgs),
}

impl TraceCommand {
    /// Runs the subcommand; `progress` allows bars.
    pub fn execute(self, progress: bool) -> Result<()> {
        match self {
            Self::Record(args) => args.execute(progress),
            Self::Text(args) => args.execute(progress),
            Self::Show(args) => args.execute(),
            Self::Verify(args) => args.execute(progress),
        }
    }
}
