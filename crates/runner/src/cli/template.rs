//! Flags for a model's chat template, and a note about its owner's generation settings, shared by
//! several commands.

use anyhow::{Context, Result, bail};
use clap::Args;
use models::{ModelText, TemplateValue, TemplateVariables};
use vocab_align::TargetId;

/// Flags for the values of a chat template beside the messages.
#[derive(Debug, Clone, Default, Args)]
pub struct TemplateArgs {
    /// A system message in front of the conversation.
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

    /// True if a flag was given.
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

/// Prints a note on stderr about generation settings of a target's owner that are not applied here,
/// except the keys in `set`. A repetition penalty is supported: `by` names the option for it.
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
