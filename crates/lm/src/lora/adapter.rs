//! An adapter: tensors under PEFT's names, its two files, merging.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{LoraConfig, Projection, Projections};
use crate::checkpoint::check_tensors;
use crate::write::write_atomically;
use crate::{
    Checkpoint, HostTensor, LmConfig, LmError, StoredType, first_of_last, in_layer,
    read_safetensors, write_safetensors,
};

/// File of an adapter's settings.
pub const ADAPTER_CONFIG: &str = "adapter_config.json";
/// File of an adapter's tensors.
pub const ADAPTER_WEIGHTS: &str = "adapter_model.safetensors";

/// The matrices `A` and `B` of every adapted projection.
#[derive(Clone, Debug, PartialEq)]
pub struct Adapter {
    /// Settings of the adapter.
    pub config: LoraConfig,
    /// Tensors: `...lora_A.weight` of shape `[rank, in]` and `...lora_B.weight` of shape `[out,
    /// rank]`.
    pub tensors: BTreeMap<String, HostTensor>,
}

/// One adapted matrix of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adapted {
    /// Name of the dense matrix.
    pub weight: String,
    /// Number of its rows.
    pub out: usize,
    /// Number of its columns.
    pub input: usize,
    /// Name of `A`.
    pub a: String,
    /// Name of `B`.
    pub b: String,
}

/// The matrices of a model that `lora` adapts, block after block.
pub fn adapted(config: &LmConfig, lora: &LoraConfig) -> Vec<Adapted> {
    let one = |layer: usize, projection: Projection| {
        let module = in_layer(layer, &projection.part());
        let (out, input) = projection.shape(config);
        Adapted {
            weight: format!("{module}.weight"),
            out,
            input,
            a: format!("base_model.model.{module}.lora_A.weight"),
            b: format!("base_model.model.{module}.lora_B.weight"),
        }
    };
    lora.layers(config)
        .flat_map(|layer| lora.projections.iter().map(move |p| one(layer, p)))
        .collect()
}

/// `adapter_config.json`: the keys PEFT needs to load the adapter.
#[derive(Serialize, Deserialize)]
struct PeftConfig {
    peft_type: String,
    task_type: Option<String>,
    base_model_name_or_path: Option<String>,
    r: usize,
    lora_alpha: f64,
    #[serde(default)]
    lora_dropout: f64,
    bias: Option<String>,
    #[serde(default)]
    fan_in_fan_out: bool,
    #[serde(default)]
    inference_mode: bool,
    target_modules: Projections,
    /// Indices of the adapted blocks; all blocks if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    layers_to_transform: Option<Layers>,
    /// True for rank-stabilised LoRA (arXiv 2312.03732): `B A` is scaled by `alpha / sqrt(rank)`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    use_rslora: bool,
    /// Initialisation of `A` and `B`. Some methods change the base model, on which the adapter then
    /// depends.
    #[serde(default, skip_serializing)]
    init_lora_weights: serde_json::Value,
    /// Further keys of the file.
    #[serde(flatten, skip_serializing)]
    others: BTreeMap<String, serde_json::Value>,
}

/// Blocks in PEFT's format: one, or several.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Layers {
    One(usize),
    Several(Vec<usize>),
}

/// Index of the block to which a tensor of an adapter belongs.
fn layer_of(name: &str) -> Option<usize> {
    let (_, rest) = name.split_once(".layers.")?;
    rest.split('.').next()?.parse().ok()
}

impl Layers {
    /// Number of blocks, if these are the last ones of a model; `None` if they are others.
    fn last_of(&self, model: &LmConfig) -> Option<usize> {
        let mut layers = match self {
            Self::One(layer) => vec![*layer],
            Self::Several(layers) => layers.clone(),
        };
        layers.sort_unstable();
        let blocks = layers.len();
        let first = first_of_last(model, blocks).ok()?;
        let last: Vec<usize> = (first..model.num_layers).collect();
        (layers == last).then_some(blocks)
    }
}

/// Keys that do not affect the computation of a finished adapter.
const HARMLESS: [&str; 8] = [
    "auto_mapping",
    "inference_mode",
    "megatron_config",
    "megatron_core",
    "peft_version",
    "qalora_group_size",
    "revision",
    "runtime_config",
];

/// Initialisations that leave the base model as it is.
const BEGINNINGS: [&str; 4] = ["gaussian", "default", "eva", "orthogonal"];

impl PeftConfig {
    /// The first key that makes the adapter anything else than `W + alpha / rank * B A`, and the
    /// reason.
    fn not_understood(&self) -> Option<(&str, String)> {
        if self.peft_type != "LORA" {
            let message = format!("a plain LORA is expected, this is {}", self.peft_type);
            return Some(("peft_type", message));
        }
        if self.fan_in_fan_out {
            return Some((
                "fan_in_fan_out",
                "transposed matrices are not supported".into(),
            ));
        }
        if self.bias.as_deref().is_some_and(|bias| bias != "none") {
            return Some(("bias", "adapted biases are not supported".into()));
        }
        let beginning = self.init_lora_weights.as_str();
        if let Some(other) = beginning.filter(|name| !BEGINNINGS.contains(name)) {
            let message = format!("`{other}` adapts a changed base model");
            return Some(("init_lora_weights", message));
        }
        let open = self.others.iter().find(|(key, value)| {
            !HARMLESS.contains(&key.as_str()) && !crate::config::is_inert(value)
        });
        open.map(|(key, value)| {
            let message = format!("is not understood (its value is {value})");
            (key.as_str(), message)
        })
    }
}

impl Adapter {
    /// Checks that the adapter fits a model.
    ///
    /// # Errors
    /// Those of [`LoraConfig::check`]; missing, misshapen or leftover tensors.
    pub fn check(&self, config: &LmConfig, origin: &Path) -> Result<(), LmError> {
        self.config.check(config)?;
        let rank = self.config.rank;
        let expected: Vec<_> = adapted(config, &self.config)
            .into_iter()
            .flat_map(|m| [(m.a, vec![rank, m.input]), (m.b, vec![m.out, rank])])
            .collect();
        check_tensors(&self.tensors, &expected, origin)
    }

    /// Number of parameters.
    pub fn num_params(&self) -> usize {
        self.tensors.values().map(|t| t.data.len()).sum()
    }

    /// Writes `adapter_config.json` and, in f32, `adapter_model.safetensors`. `base` is the name or
    /// path of the base model in the former.
    ///
    /// # Errors
    /// A folder that cannot be written.
    pub fn save(&self, folder: &Path, base: &str) -> Result<(), LmError> {
        std::fs::create_dir_all(folder).map_err(LmError::io(folder))?;
        let layers = self.tensors.keys().filter_map(|name| layer_of(name));
        let layers: BTreeSet<usize> = layers.collect();
        let config = PeftConfig {
            peft_type: "LORA".into(),
            task_type: Some("CAUSAL_LM".into()),
            base_model_name_or_path: Some(base.into()),
            r: self.config.rank,
            lora_alpha: self.config.alpha,
            lora_dropout: 0.0,
            bias: Some("none".into()),
            fan_in_fan_out: false,
            inference_mode: true,
            target_modules: self.config.projections,
            layers_to_transform: match self.config.blocks {
                0 => None,
                _ => Some(Layers::Several(layers.into_iter().collect())),
            },
            use_rslora: false,
            init_lora_weights: serde_json::Value::Null,
            others: BTreeMap::new(),
        };
        let path = folder.join(ADAPTER_CONFIG);
        let text = serde_json::to_string_pretty(&config).map_err(|e| LmError::Adapter {
            path: path.clone(),
            message: e.to_string(),
        })?;
        write_atomically(&path, format!("{text}\n").as_bytes())?;
        let weights = folder.join(ADAPTER_WEIGHTS);
        write_safetensors(&weights, &self.tensors, StoredType::F32)
    }

    /// Reads an adapter of a model of this shape.
    ///
    /// # Errors
    /// Files that are missing, malformed, of another kind of adapter or of another model.
    pub fn load(folder: &Path, model: &LmConfig) -> Result<Self, LmError> {
        let path = folder.join(ADAPTER_CONFIG);
        let text = std::fs::read_to_string(&path).map_err(LmError::io(&path))?;
        let wrong = |message: String| LmError::Adapter {
            path: path.clone(),
            message,
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let found: PeftConfig = serde_json::from_str(text).map_err(|e| wrong(e.to_string()))?;
        if let Some((key, message)) = found.not_understood() {
            return Err(wrong(format!("key `{key}`: {message}")));
        }
        let alpha = if found.use_rslora {
            found.lora_alpha * (found.r as f64).sqrt()
        } else {
            found.lora_alpha
        };
        let blocks = match &found.layers_to_transform {
            None => 0,
            Some(layers) => layers.last_of(model).ok_or_else(|| {
                let blocks = model.num_layers;
                wrong(format!(
                    "key `layers_to_transform`: adapts other blocks than the last of {blocks}"
                ))
            })?,
        };
        let path = folder.join(ADAPTER_WEIGHTS);
        let tensors = read_safetensors(&path)?;
        let adapter = Self {
            config: LoraConfig {
                rank: found.r,
                alpha,
                projections: found.target_modules,
                blocks,
            },
            tensors,
        };
        adapter.check(model, &path)?;
        Ok(adapter)
    }
}

impl Checkpoint {
    /// Adds `alpha / rank * B A` to every adapted matrix, in place.
    ///
    /// # Errors
    /// An adapter of another model. Nothing is changed then.
    pub fn merge(&mut self, adapter: &Adapter) -> Result<(), LmError> {
        let origin = "(adapter in memory)".as_ref();
        adapter.check(&self.config, origin)?;
        self.check("(checkpoint in memory)".as_ref())?;
        for matrix in adapted(&self.config, &adapter.config) {
            let [a, b] = [&matrix.a, &matrix.b].map(|name| adapter.tensors.get(name));
            if let (Some(weight), Some(a), Some(b)) = (self.tensors.get_mut(&matrix.weight), a, b) {
                let lora = &adapter.config;
                lora.add_product(&mut weight.data, &b.data, &a.data);
            }
        }
        Ok(())
    }
}
