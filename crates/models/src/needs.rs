//! Memory that a worker of PyTorch needs for a model, from its files' headers and configuration.

use std::path::Path;

use lm::StoredCheckpoint;
use serde::Serialize;
use serde_json::Value;
use torch_engine::Dtype;
use weights::{TensorFiles, WeightsError};

use crate::error::Result;
use crate::generation::read_json;

/// Size of a model for transformers, which may be of an architecture or a format that this program
/// does not know.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TorchNeeds {
    /// Class in transformers that the configuration names.
    pub architecture: Option<String>,
    /// Method by which the weights are quantised, such as `gptq`.
    pub quantised: Option<String>,
    /// Number of parameters; `None` if they are quantised or if neither files of weights nor a
    /// configuration that is known here tell it.
    pub parameters: Option<u64>,
    /// Bytes of the files of weights; `None` if there are none.
    pub file_bytes: Option<u64>,
    /// Number format that the configuration names, which is that of `auto`.
    pub dtype: Option<String>,
    /// Numbers in the KV cache for each token; `None` if the configuration does not tell it.
    pub cached_a_token: Option<u64>,
}

impl TorchNeeds {
    /// The needs of the model in a local folder. No tensor is read.
    ///
    /// # Errors
    /// A `config.json` that is missing or is not JSON; damaged files of weights.
    pub fn of(folder: &Path) -> Result<Self> {
        let config = read_json(&folder.join("config.json"))?;
        let files = match TensorFiles::open(folder) {
            Ok(files) => Some(files),
            Err(WeightsError::NoWeights { .. }) => None,
            Err(error) => return Err(error.into()),
        };
        let quantised = config["quantization_config"]["quant_method"].as_str();
        let parameters = match &files {
            _ if quantised.is_some() => None,
            // Shapes of types that are not read are not compared with the file.
            Some(files) => files.tensors().try_fold(0_u64, |all, (_, tensor)| {
                let mut sizes = tensor.shape.iter().map(|n| *n as u64);
                all.checked_add(sizes.try_fold(1, u64::checked_mul)?)
            }),
            None => {
                let config = StoredCheckpoint::read_config(folder).ok();
                config.map(|config| config.num_params() as u64)
            }
        };
        let inner = match &config["text_config"] {
            Value::Object(_) => &config["text_config"],
            _ => &config,
        };
        let named = |key: &str| inner[key].as_str().or_else(|| config[key].as_str());
        let dtype = named("dtype").or_else(|| named("torch_dtype"));
        Ok(Self {
            architecture: config["architectures"][0].as_str().map(str::to_owned),
            quantised: quantised.map(str::to_owned),
            parameters,
            file_bytes: files.map(|files| files.bytes()),
            dtype: dtype.map(str::to_owned),
            cached_a_token: cached(inner),
        })
    }

    /// Bytes of the weights in a number format; `None` if it is not known.
    pub fn weights(&self, dtype: Dtype) -> Option<u64> {
        let bytes = match dtype {
            Dtype::F32 => 4,
            Dtype::F16 | Dtype::Bf16 => 2,
            Dtype::Auto => return None,
        };
        self.parameters?.checked_mul(bytes)
    }
}

/// Numbers of keys and values for each token.
fn cached(config: &Value) -> Option<u64> {
    let number = |key: &str| config[key].as_u64();
    let heads = number("num_attention_heads")?;
    let shared = number("num_key_value_heads").unwrap_or(heads);
    let width = match number("head_dim") {
        Some(width) => width,
        None => number("hidden_size")?.checked_div(heads)?,
    };
    let layers = number("num_hidden_layers")?;
    let numbers = layers.checked_mul(shared)?.checked_mul(width)?;
    numbers.checked_mul(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn needs_are_those_of_headers_and_configuration() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"architectures": ["NewForCausalLM"], "dtype": "bfloat16",
            "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
            "hidden_size": 64}"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let found = TorchNeeds::of(folder.path()).unwrap();
        assert_eq!(found.architecture.as_deref(), Some("NewForCausalLM"));
        assert_eq!(found.dtype.as_deref(), Some("bfloat16"));
        assert_eq!(found.cached_a_token, Some(2 * 3 * 2 * 16));
        assert_eq!((found.parameters, found.file_bytes), (None, None));

        let of_weights = |header: &str| {
            let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
            bytes.extend(header.as_bytes());
            bytes.extend([0; 12]);
            std::fs::write(folder.path().join("model.safetensors"), &bytes).unwrap();
            (TorchNeeds::of(folder.path()).unwrap(), bytes.len() as u64)
        };
        // Nobody has such a tensor, but a file can say so.
        let huge = r#"{"a":{"dtype":"I64","shape":[4294967296,4294967296],"data_offsets":[0,0]}}"#;
        assert_eq!(of_weights(huge).0.parameters, None);
        let header = r#"{"a":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,12]}}"#;
        let (found, bytes) = of_weights(header);
        assert_eq!(found.parameters, Some(6));
        assert_eq!(found.weights(Dtype::F32), Some(24));
        assert_eq!(found.weights(Dtype::Bf16), Some(12));

        let config = r#"{"quantization_config": {"quant_method": "awq"}}"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let found = TorchNeeds::of(folder.path()).unwrap();
        assert_eq!(found.quantised.as_deref(), Some("awq"));
        assert_eq!(found.weights(Dtype::Bf16), None);
        assert_eq!(found.file_bytes, Some(bytes));
    }
}
