//! `omnidraft import`: a model folder from a GGUF file.

use std::path::PathBuf;

use anyhow::Result;
use bench::args::print;
use clap::Args;
use models::{ModelText, import_gguf};
use vocab_align::TargetId;

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  omnidraft import SmolLM2-135M-Instruct.Q4_1.gguf --out runs/models/smollm2
  omnidraft generate --target runs/models/smollm2 --drafter models/D --prompt 'Write a haiku.'")]
pub struct ImportArgs {
    /// A GGUF file with its tokenizer, in the format of llama.cpp.
    file: PathBuf,
    /// The model folder to create.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

impl ImportArgs {
    /// Creates the folder and prints its contents.
    pub fn execute(self) -> Result<()> {
        import_gguf(&self.file, &self.out)?;
        let text = ModelText::<TargetId>::load(&self.out)?;
        print(&format!(
            "{}: {} tokens, {}\n",
            self.out.display(),
            text.vocabulary.len(),
            match text.template.is_chat() {
                true => "with a chat template",
                false => "without a chat template",
            }
        ))
    }
}
