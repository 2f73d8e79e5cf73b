//! Errors for the user: the chain of causes, followed by a hint.

use std::path::Path;

use adaptive_draft::HeadError;
use lm::{LmError, ModelError};
use vocab_align::AlignError;
use weights::WeightsError;

use ::trace::TraceError;
use experiment::ExperimentError;
use hub::HubError;
use jobs::JobsError;
use models::{DeviceError, ExportError, FolderError, ImportError, TemplateError};
use pretrain::CorpusError;
use report::ReportError;
use results::ResultsError;
use streams::StreamError;
use torch_engine::TorchError;

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

/// The chain of causes in a line. Some errors repeat their cause, which is then left out.
fn causes(error: &anyhow::Error) -> String {
    let mut said: Vec<String> = Vec::new();
    for cause in error.chain() {
        let text = cause.to_string();
        // A parser's position within a line is not a position in the file.
        let core = text
            .rsplit_once(" at line ")
            .map_or(&*text, |(core, _)| core);
        if !said.iter().any(|other| other.contains(core)) {
            said.push(text);
        }
    }
    said.join(": ")
}

/// A hint about a tokenizer.
fn tokenizer_hint(error: &AlignError) -> Option<&'static str> {
    Some(match error {
        AlignError::Read { .. } => {
            "a model folder needs tokenizer.json, or tokenizer.model of SentencePiece; paths are relative to the working directory"
        }
        AlignError::Beyond { .. } => {
            "the model cannot read this token; take it out of the text, or keep it text with \"prompt_markers\": \"text\" in omnidraft.json"
        }
        AlignError::Json { file, .. }
        | AlignError::Key { file, .. }
        | AlignError::Unsupported { file, .. }
            if file.ends_with("tokenizer.json") =>
        {
            "a tokenizer is a tokenizer.json of the Hugging Face tokenizers library (BPE or Unigram), or a folder that holds one"
        }
        _ => return None,
    })
}

/// Hint about a file of a learnt state.
const OF_STATE: &str = "put back a copy of the state, or begin a new one in another folder";

/// True if a file holds weights, an adapter or a head of a state.
fn is_of_state(path: &Path) -> bool {
    let generation = path.ancestors().nth(3);
    generation.is_some_and(|generation| generation.join("state.json").is_file())
}

/// Hints about files of weights.
fn weights_hint(error: &WeightsError) -> Option<&'static str> {
    Some(match error {
        WeightsError::Malformed { path, .. } | WeightsError::Io { path, .. }
            if is_of_state(path) =>
        {
            OF_STATE
        }
        WeightsError::Malformed { .. } => {
            "the file is damaged or was not copied whole; fetch it again"
        }
        WeightsError::Io { .. } | WeightsError::NoWeights { .. } => {
            "a model folder needs config.json, weights (model.safetensors, pytorch_model.bin or a .gguf file) and tokenizer.json; paths are relative to the working directory, and hf:owner/name downloads one"
        }
        WeightsError::Pointer { .. } => "`git lfs pull` in the folder fetches the file",
        WeightsError::Link { .. } => {
            "the folder was moved without what its links name, as a snapshot of the hub's cache without blobs/; copy it with `cp -rL`, or download it again"
        }
        WeightsError::Global { .. } | WeightsError::Escape { .. } => {
            "a checkpoint of weights alone needs none of this; do not trust where it came from"
        }
        WeightsError::Ambiguous { .. } => "leave one of them in the folder",
        WeightsError::Parts { .. } => "put all parts into one folder, under their own names",
        _ => return None,
    })
}

/// Hint for one cause; errors of the results folder have their own.
fn hint(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    let cause = pretrain::passed_on(online::passed_on(cause));
    #[cfg(feature = "serve")]
    let cause = serve::passed_on(cause);
    let cause = models::inner_error!(cause, HeadError: Lm);
    let cause = models::inner_error!(cause, LmError: Weights);
    macro_rules! own_hint {
        ($($error:ty)+) => {
            $(if let Some(error) = cause.downcast_ref::<$error>() {
                return error.hint();
            })+
        };
    }
    own_hint!(StreamError ExperimentError JobsError ReportError ResultsError TemplateError);
    own_hint!(ImportError CorpusError HubError TraceError TorchError);
    #[cfg(feature = "serve")]
    own_hint!(serve::LogError);
    // An engine's own error is shown through the one that wraps it, which is no cause of it.
    if let Some(ModelError::Other(own)) = cause.downcast_ref::<ModelError>()
        && let Some(error) = own.downcast_ref::<TorchError>()
    {
        return error.hint();
    }
    if let Some(e) = cause.downcast_ref::<DeviceError>() {
        return Some(e.hint().to_owned());
    }
    if let Some(e) = cause.downcast_ref::<FolderError>() {
        return Some(e.hint());
    }
    if let Some(e) = cause.downcast_ref::<ExportError>() {
        return e.hint().map(str::to_owned);
    }
    if let Some(error) = cause.downcast_ref::<AlignError>() {
        return tokenizer_hint(error).map(str::to_owned);
    }
    if let Some(error) = cause.downcast_ref::<WeightsError>() {
        return weights_hint(error).map(str::to_owned);
    }
    let text = match cause.downcast_ref::<LmError>() {
        Some(LmError::Io { path, .. } | LmError::NotFinite { path, .. }) if is_of_state(path) => {
            OF_STATE
        }
        Some(LmError::Io { .. }) => {
            "a model folder needs config.json, model.safetensors (or its shards and index) and tokenizer.json; paths are relative to the working directory, and hf:owner/name downloads one"
        }
        Some(LmError::Config { key, message, .. }) if message.contains("is not understood") => {
            return Some(format!(
                "where the model's own code shows that `{key}` changes no number, take it out of the file"
            ));
        }
        Some(LmError::NotGguf { .. }) => "--to hf writes any model",
        Some(LmError::Config { key, .. }) if key == "quantization_config" => {
            "take the model as it was before it was quantised, or a GGUF file of it (omnidraft import); --weights int8 or int4 stores weights in fewer bits here"
        }
        Some(
            LmError::MissingTensor { .. } | LmError::LeftoverTensors { .. } | LmError::Shape { .. },
        ) => "config.json and the weights belong to different models",
        Some(LmError::Model(ModelError::ContextFull { .. })) => {
            "shorten the prompt or lower the number of new tokens"
        }
        _ if cause.is::<toml::de::Error>() => "experiments/recipes/ holds complete recipes",
        _ => return None,
    };
    Some(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use streams::parse_prompts;

    #[test]
    fn a_cause_is_said_once() {
        let missing = std::fs::read("no/such/file").unwrap_err();
        let path = "no/such/file".into();
        let error = anyhow::Error::new(LmError::Io {
            path,
            source: missing,
        });
        assert_eq!(report(&error).matches("No such file").count(), 1);
        let broken = parse_prompts(b"{\"id\": 1}\n{\"id\": x", "a.jsonl".as_ref(), "t");
        let broken = broken.map(|_| ()).unwrap_err();
        let told = report(&anyhow::Error::new(broken).context("task `t`"));
        assert_eq!(told.matches("a.jsonl:").count(), 1, "{told}");
        let broken = parse_prompts(b"\n{\"id\": x", "a.jsonl".as_ref(), "t").map(|_| ());
        let told = report(&anyhow::Error::new(broken.unwrap_err()));
        let place = "a.jsonl:2: not a JSON object: expected value at column 8\n";
        assert!(told.contains(place) && !told.contains("line 1"), "{told}");
        let inner = anyhow::anyhow!("inner").context("outer");
        assert_eq!(report(&inner), "error: outer: inner");
    }

    #[test]
    fn a_damaged_file_of_weights_has_a_hint_wherever_it_is_read() {
        let cut = |path: &Path| WeightsError::Malformed {
            path: path.to_owned(),
            format: "safetensors",
            message: "cut".to_owned(),
        };
        let told = |error: online::OnlineError| report(&error.into());
        let model = Path::new("m/model.safetensors");
        let fetch = "fetch it again";
        let of_headers = models::ModelsError::from(cut(model));
        assert!(told(of_headers.into()).ends_with(fetch));
        assert!(told(LmError::from(cut(model)).into()).ends_with(fetch));
        let state = tempfile::tempdir().unwrap();
        std::fs::write(state.path().join("state.json"), "{}").unwrap();
        let head = state.path().join("heads/L-0/head.safetensors");
        let no_number = LmError::NotFinite {
            path: head.clone(),
            tensor: "output".to_owned(),
            value: f32::NAN,
            at: 3,
        };
        for error in [LmError::from(cut(&head)), no_number] {
            let text = told(HeadError::from(error).into());
            assert!(
                text.contains("hint: put back a copy of the state"),
                "{text}"
            );
        }
    }
}
