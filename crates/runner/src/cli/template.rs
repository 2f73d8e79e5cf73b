//! Flags for a model's chat template, and a note about what its owner sets, which commands that answer
//! share.

use anyhow::{Context, Result, bail};
use clap::Args;
use models::{ModelText, TemplateValue, TemplateVariables};
use vocab_align::TargetId;

/// Flags for what a chat template is given beside the messages.
#[derive(Debug, Clone, Default, Args)]
pub struct TemplateArgs {
    /// A message of the role system that the model reads before the conversation.
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Variables of the model's chat template as JSON, such as '{"enable_thinking": false}'.
    #[arg(long, value_name = "JSON")]
    chat_template_kwargs: Option<String>,
}

impl TemplateArgs {
    /// The system message, if there is one.
    pub fn system(&self) -> Option<&str> {
        self.system.as_deref()
    }

    /// True where anything was given.
    pub fn is_used(&self) -> bool {
        self.system.is_some() || self.chat_template_kwargs.is_some()
    }

    /// The variables.
    pub fn variables(&self) -> Result<TemplateVariables> {
        let Some(text) = &self.chat_template_kwargs else {
            return Ok(TemplateVariables::new());
        };
        let flag = "--chat-template-kwargs";
        serde_json::from_str::<TemplateValue>(text).context(flag)?;
        match serde_json::from_str(text) {
            Ok(variables) => Ok(variables),
            Err(_) => bail!("{flag}: {text} is no object of names and values"),
        }
    }
}

/// Says on stderr what the owner of a target sets for answers and what is not done here, without the keys
/// that are `set`. A penalty of repetitions is: `by` names where it is asked for.
pub fn note_left_out(target: &ModelText<TargetId>, set: &[&str], by: &str) {
    let Some(note) = target.generation.note(set) else {
        return;
    };
    let penalty = target.generation.left_out.iter();
    let mut penalty = penalty.filter(|setting| setting.key == "repetition_penalty");
    let advice = match penalty.next().filter(|own| !set.contains(&&*own.key)) {
        Some(own) if !by.is_empty() => format!(" ({by} {} applies the penalty)", own.value),
        _ => String::new(),
    };
    eprintln!("note: {}: {note}{advice}", target.path.display());
}
