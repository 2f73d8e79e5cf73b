//! Errors as the user sees them: the chain of causes, then what to do about it.

use lm::LmError;
use vocab_align::AlignError;
use weights::WeightsError;

use ::trace::TraceError;
use experiment::ExperimentError;
use hub::HubError;
use jobs::JobsError;
use models::{DeviceError, FolderError, ImportError, TemplateError};
use pretrain::CorpusError;
use report::ReportError;
use results::ResultsError;
use streams::StreamError;

/// The message for stderr.
pub fn report(error: &anyhow::Error) -> String {
    format!("error: {}", told(error))
}

/// The causes, then the advice on a line of its own.
pub(super) fn told(error: &anyhow::Error) -> String {
    let mut text = causes(error);
    if let Some(hint) = error.chain().find_map(hint) {
        text.push_str("\nhint: ");
        text.push_str(&hint);
    }
    text
}

/// The causes, outermost first, each once: many messages end with their cause's own.
fn causes(error: &anyhow::Error) -> String {
    let mut text = String::new();
    let mut last = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if last.contains(&cause) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&cause);
        last = cause;
    }
    text
}

/// What to do about files of weights.
fn weights_hint(error: &WeightsError) -> Option<&'static str> {
    Some(match error {
        WeightsError::Malformed { .. } => {
            "the file is damaged or was not copied whole; fetch it again"
        }
        WeightsError::Io { .. } | WeightsError::NoWeights { .. } => {
            "a model folder needs config.json, weights (model.safetensors, pytorch_model.bin or a .gguf file) and tokenizer.json; paths are relative to the working directory, and hf:owner/name downloads one"
        }
        WeightsError::Global { .. } | WeightsError::Escape { .. } => {
            "a checkpoint of weights alone needs none of this; do not trust where it came from"
        }
        WeightsError::Ambiguous { .. } => "leave one of them in the folder",
        _ => return None,
    })
}

/// Advice for one cause; errors of the results folder bring their own.
fn hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(e) = cause.downcast_ref::<DeviceError>() {
        return Some(e.hint().to_owned());
    }
    if let Some(e) = cause.downcast_ref::<FolderError>() {
        return Some(e.hint());
    }
    if let Some(e) = cause.downcast_ref::<StreamError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<ExperimentError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<JobsError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<ReportError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<ResultsError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<TemplateError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<ImportError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<CorpusError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<HubError>() {
        return e.hint();
    }
    if let Some(e) = cause.downcast_ref::<TraceError>() {
        return e.hint();
    }
    let text = match cause.downcast_ref::<LmError>() {
        Some(LmError::Io { .. }) => {
            "a model folder needs config.json, model.safetensors (or its shards and index) and tokenizer.json; paths are relative to the working directory, and hf:owner/name downloads one"
        }
        Some(LmError::Weights(error)) => return weights_hint(error).map(str::to_owned),
        Some(
            LmError::MissingTensor { .. } | LmError::LeftoverTensors { .. } | LmError::Shape { .. },
        ) => "config.json and the weights belong to different models",
        Some(LmError::ContextFull { .. }) => "shorten the prompt or lower the number of new tokens",
        _ if cause.is::<AlignError>() => {
            "a tokenizer is a tokenizer.json of the Hugging Face tokenizers library (BPE), or a folder that holds one"
        }
        _ if cause.is::<toml::de::Error>() => "experiments/recipes/ holds complete recipes",
        _ => return None,
    };
    Some(text.to_owned())
}
