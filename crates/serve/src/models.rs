//! The drafter and the targets, and the tokenisation of requests for both.

use std::path::Path;

use models::{
    Message, ModelFolder, ModelText, ModelsError, TORCH_PREFIX, TargetFolder, TemplateRequest,
    TorchSettings, align, torch_model,
};
use spec_decode::Pair;
use vocab_align::{DraftId, TargetId};

use crate::error::{ApiError, Result, ServeError};
use crate::options::{Options, RemoteOptions};
use crate::remote::{Remote, is_address};

/// Maximum number of tokens for a target of which only the text is read.
const UNKNOWN_CONTEXT: usize = 1 << 17;

/// A target with the name that requests use.
pub struct Target {
    /// The name.
    pub name: String,
    /// The model: local or remote.
    pub(crate) source: Source,
    /// Tokenizer, template and special tokens of the model.
    pub text: ModelText<TargetId>,
    /// Vocabulary size: the number of logits per position.
    pub vocab_size: usize,
    /// Alignment of its vocabulary with the drafter's.
    pub pair: Pair,
    /// Maximum number of tokens of prompt and answer.
    pub context: usize,
}

/// A target's source and text, the size of its vocabulary, and its maximum number of tokens.
type Loaded = (Source, ModelText<TargetId>, usize, usize);

/// Machine on which a target computes.
pub(crate) enum Source {
    /// On this machine.
    Local(Box<TargetFolder>),
    /// On the server at an address.
    Remote(Box<Remote>),
    /// Nowhere: its answers were recorded.
    Absent,
}

impl Target {
    /// Fingerprint of its vocabulary: targets of one family share n-grams and texts.
    pub(crate) fn vocabulary(&self) -> u64 {
        self.pair.target.fingerprint()
    }

    fn load(path: &Path, torch: &TorchSettings) -> Result<Loaded> {
        let folder = TargetFolder::load(path, torch)?;
        let (vocab, context) = (folder.vocab_size(), folder.max_context());
        let text = folder.clone();
        Ok((Source::Local(Box::new(folder)), text, vocab, context))
    }

    /// A target of which only the text is read: a model folder, or a tokenizer by itself.
    fn absent(path: &Path) -> Result<Loaded> {
        let model = torch_model(path);
        let path = model.as_deref().unwrap_or(path);
        let (text, vocab) = ModelText::<TargetId>::alone(path, usize::MAX, UNKNOWN_CONTEXT)?;
        let vocab = vocab.max(text.vocabulary.len());
        Ok((Source::Absent, text, vocab, UNKNOWN_CONTEXT))
    }

    fn connect(address: &Path, options: &RemoteOptions) -> Result<Loaded> {
        let address = address.to_string_lossy();
        let (remote, text) = Remote::connect(&address, options.key.clone(), options.timeout)?;
        let (vocab, context) = (remote.info.vocab_size, remote.info.context);
        Ok((Source::Remote(Box::new(remote)), text, vocab, context))
    }

    /// The model folder; `None` if the target is not decoded on this machine.
    pub(crate) fn folder(&self) -> Option<&TargetFolder> {
        match &self.source {
            Source::Local(folder) => Some(folder),
            Source::Remote(_) | Source::Absent => None,
        }
    }

    /// The connection to the target's server; `None` if it has none.
    pub(crate) fn remote(&self) -> Option<&Remote> {
        match &self.source {
            Source::Local(_) | Source::Absent => None,
            Source::Remote(remote) => Some(remote),
        }
    }
}

/// The models of a server.
pub struct Models {
    /// The drafter.
    pub drafter: ModelFolder<DraftId>,
    /// The targets, at least one.
    pub targets: Vec<Target>,
}

/// A prompt in the tokens of both models.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoded {
    /// Tokens of the target.
    pub target: Vec<TargetId>,
    /// Tokens of the drafter.
    pub draft: Vec<DraftId>,
}

impl Models {
    /// The drafter's pairs with the targets.
    pub(crate) fn pairs(&self) -> Vec<&Pair> {
        self.targets.iter().map(|target| &target.pair).collect()
    }

    pub(crate) fn load(options: &Options) -> Result<Self> {
        Self::with(options, |path| match is_address(path) {
            true => Target::connect(path, &options.remote),
            false => Target::load(path, &options.torch),
        })
    }

    /// The drafter, and of each target only tokenizer, template and vocabulary size.
    pub(crate) fn of_texts(options: &Options) -> Result<Self> {
        Self::with(options, Target::absent)
    }

    fn with(options: &Options, load: impl Fn(&Path) -> Result<Loaded>) -> Result<Self> {
        let drafter = ModelFolder::load(&options.drafter)?;
        let mut targets: Vec<Target> = Vec::new();
        for (name, path) in &options.targets {
            let (source, text, vocab_size, most) = load(path)?;
            let name = match (&source, name.as_str()) {
                (Source::Remote(remote), "") => remote.info.name.clone(),
                _ => name.clone(),
            };
            if targets.iter().any(|other| other.name == name) {
                return Err(ServeError::said(format!(
                    "two targets are called `{name}`\nhint: --target NAME=DIR names one"
                )));
            }
            targets.push(Target {
                name,
                pair: align(&drafter, &text),
                context: options.engine.context.map_or(most, |n| n.min(most)),
                source,
                text,
                vocab_size,
            });
        }
        if targets.is_empty() {
            return Err(ServeError::said("there is no target"));
        }
        Ok(Self { drafter, targets })
    }

    /// Index of the target of this name; of the first one if `name` is `None`.
    ///
    /// # Errors
    /// [`ApiError::UnknownModel`].
    pub fn find(&self, name: Option<&str>) -> Result<usize, ApiError> {
        let Some(name) = name else {
            return Ok(0);
        };
        let found = self.targets.iter().position(|target| target.name == name);
        found.ok_or_else(|| ApiError::UnknownModel(name.to_owned()))
    }

    /// Tokens of a conversation for both models. The drafter's template need not know every role of
    /// the target's.
    ///
    /// # Errors
    /// A conversation that the target's template or tokenizer refuses.
    pub fn converse(
        &self,
        target: usize,
        messages: &[Message<'_>],
        request: &TemplateRequest,
    ) -> Result<Encoded, ApiError> {
        let refused = |e: &dyn std::fmt::Display| ApiError::invalid("messages", e.to_string());
        let folder = &self.targets[target].text;
        // A single user message is tokenised as `generate` tokenises a prompt.
        let plain = *request == TemplateRequest::default();
        let ids = match messages {
            [only] if plain && only.role == "user" && only.whole.is_none() => {
                let rendered = folder.template.render(only.content);
                let rendered = rendered.map_err(|e| refused(&e))?;
                folder.encode(&rendered).map_err(|e| refused(&e))?
            }
            _ => {
                let rendered = folder.template.converse(messages, request);
                let rendered = rendered.map_err(|e| refused(&e))?.ok_or_else(|| {
                    let message = "the model has no chat template, so that it reads one user message, or plain text at /v1/completions";
                    ApiError::invalid("messages", message)
                })?;
                folder
                    .encode_conversation(&rendered)
                    .map_err(|e| refused(&e))?
            }
        };
        Ok(Encoded {
            target: ids,
            draft: readable(self.draft_conversation(messages, request)),
        })
    }

    fn draft_conversation(
        &self,
        messages: &[Message<'_>],
        request: &TemplateRequest,
    ) -> Result<Vec<DraftId>, ModelsError> {
        let drafter = &self.drafter;
        if let [only] = messages
            && let Ok(rendered) = drafter.template.render(only.content)
        {
            return drafter.encode(&rendered);
        }
        if let Ok(Some(text)) = drafter.template.converse(messages, request) {
            return drafter.encode_conversation(&text);
        }
        // Roles that the drafter's template does not know are left out; their text goes in front of
        // the next message.
        let mut merged: Vec<(String, String)> = Vec::new();
        let mut carried = String::new();
        for message in messages {
            if !["user", "assistant"].contains(&message.role) {
                carried.push_str(message.content);
                carried.push_str("\n\n");
                continue;
            }
            let content = std::mem::take(&mut carried) + message.content;
            merged.push((message.role.to_owned(), content));
        }
        let turns: Vec<Message<'_>> = merged
            .iter()
            .map(|(role, content)| Message::new(role, content))
            .collect();
        if let Ok(Some(text)) = drafter.template.converse(&turns, request) {
            return drafter.encode_conversation(&text);
        }
        let all: Vec<&str> = messages.iter().map(|message| message.content).collect();
        drafter.encode(&drafter.template.render(&all.join("\n\n"))?)
    }

    /// Tokens of plain text for both models, with the tokens that their tokenizers put in front.
    ///
    /// # Errors
    /// Text that the target's tokenizer refuses, or that has no tokens.
    pub fn plain(&self, target: usize, text: &str) -> Result<Encoded, ApiError> {
        let refused = |e: &dyn std::fmt::Display| ApiError::invalid("prompt", e.to_string());
        let target = self.targets[target].text.vocabulary.encode_whole(text);
        let target = target.map_err(|e| refused(&e))?;
        if target.is_empty() {
            return Err(ApiError::invalid("prompt", "the prompt is empty"));
        }
        Ok(Encoded {
            target,
            draft: readable(self.drafter.vocabulary.encode_whole(text)),
        })
    }

    /// Tokens of the target, and the same text in tokens of the drafter.
    ///
    /// # Errors
    /// Ids that are not in the target's vocabulary; no ids.
    pub fn tokens(&self, target: usize, ids: &[u32]) -> Result<Encoded, ApiError> {
        let folder = &self.targets[target].text;
        let size = folder.vocabulary.len();
        if let Some(id) = ids.iter().find(|id| **id as usize >= size) {
            let message = format!("token {id} is not in 0..{size}");
            return Err(ApiError::invalid("prompt", message));
        }
        let ids: Vec<TargetId> = ids.iter().map(|id| TargetId(*id)).collect();
        let text = folder.vocabulary.decode_lossy(&ids);
        if ids.is_empty() {
            return Err(ApiError::invalid("prompt", "the prompt is empty"));
        }
        Ok(Encoded {
            target: ids,
            draft: readable(self.drafter.vocabulary.encode_whole(&text)),
        })
    }
}

/// The drafter's tokens of a prompt, at least one. If the text is empty or its tokenizer refuses
/// it, token 0 takes its place: the drafter's prompt affects how many tokens are accepted, never
/// the answer.
fn readable<E>(ids: Result<Vec<DraftId>, E>) -> Vec<DraftId> {
    let ids = ids.ok().filter(|ids| !ids.is_empty());
    ids.unwrap_or_else(|| vec![DraftId(0)])
}

/// Name of a model for requests: the last part of the path of its folder, or of its name on the hub
/// without the revision.
///
/// # Errors
/// A path without a last part; a working directory that cannot be found.
pub fn name_of(path: &Path) -> Result<String> {
    let text = path.to_string_lossy();
    let text = text.trim_start_matches(TORCH_PREFIX);
    let text = match text.strip_prefix("hf:") {
        Some(of_hub) => of_hub.split('@').next().unwrap_or_default(),
        None => text,
    };
    let last = text.trim_end_matches('/').rsplit('/').next();
    let last = last.unwrap_or_default();
    if last.is_empty() || last == "." || last == ".." {
        let absolute = std::path::absolute(path);
        let absolute = absolute.map_err(ServeError::of("the working directory"))?;
        let name = absolute
            .file_name()
            .map(|n| n.to_string_lossy().into_owned());
        return name.ok_or_else(|| ServeError::said(format!("{}: has no name", path.display())));
    }
    Ok(last.to_owned())
}

/// Name of the target of an adapter.
pub(crate) fn target_of(adapter: &str) -> &str {
    adapter
        .split_once('/')
        .map_or(adapter, |(target, _)| target)
}

#[cfg(test)]
mod tests {
    use super::name_of;

    #[test]
    fn a_model_is_named_by_its_last_part() {
        for (path, name) in [
            ("models/L", "L"),
            ("torch:models/L/", "L"),
            ("runs@home/L", "L"),
            ("models/L@2", "L@2"),
            ("hf:owner/name", "name"),
            ("torch:hf:owner/name@main", "name"),
        ] {
            assert_eq!(name_of(path.as_ref()).unwrap(), name, "{path}");
        }
        // The folder of this crate.
        assert_eq!(name_of(".".as_ref()).unwrap(), "serve");
    }
}
