//! `omnidraft completions` and `man`: shell completions and manual pages, generated from the
//! program's own help.

use std::path::PathBuf;

use anyhow::{Context, Result};
use bench::args::print;
use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};

use super::Cli;

/// The program's name.
const NAME: &str = "omnidraft";

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft completions bash > ~/.local/share/bash-completion/completions/omnidraft
  omnidraft completions zsh > ~/.zfunc/_omnidraft
  omnidraft completions fish > ~/.config/fish/completions/omnidraft.fish")]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    shell: Shell,
}

impl CompletionsArgs {
    pub fn execute(self) -> Result<()> {
        let mut script = Vec::new();
        generate(self.shell, &mut Cli::command(), NAME, &mut script);
        print(&String::from_utf8(script)?)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft man --out ~/.local/share/man/man1

Writes omnidraft.1, and a page for every command: omnidraft-run.1, omnidraft-trace-record.1 and so on.")]
pub struct ManArgs {
    /// Folder to write to; it is made if it is not there.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl ManArgs {
    pub fn execute(self) -> Result<()> {
        let named = || self.out.display().to_string();
        std::fs::create_dir_all(&self.out).with_context(named)?;
        // Commands that the help leaves out have pages too.
        let all = Cli::command().mut_subcommands(|command| command.hide(false));
        clap_mangen::generate_to(all, &self.out).with_context(named)
    }
}
