//! How a model's chat template is asked: the flags that `generate` and `chat` share.

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value};

/// What a chat template is given beside the messages.
#[derive(Debug, Clone, Default, Args)]
pub struct TemplateArgs {
    /// What the model is told before the conversation, as a message of the role system.
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

    /// Whether anything was given.
    pub fn is_used(&self) -> bool {
        self.system.is_some() || self.chat_template_kwargs.is_some()
    }

    /// The variables.
    pub fn variables(&self) -> Result<Map<String, Value>> {
        let Some(text) = &self.chat_template_kwargs else {
            return Ok(Map::new());
        };
        match serde_json::from_str(text).context("--chat-template-kwargs")? {
            Value::Object(variables) => Ok(variables),
            other => bail!("--chat-template-kwargs: {other} is no object of names and values"),
        }
    }
}
