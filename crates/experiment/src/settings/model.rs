//! `[models]`: model folders, with optional padding.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Map, Value};

use lm::Device;
use torch_engine::Dtype;

use super::is_default;

/// The drafter and the targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelsConfig {
    /// The drafter. Its padding counts on held-out prompts, and on streamed ones with `pad_stream`.
    pub drafter: ModelConfig,
    /// Targets, by the names that grid, segments and tables use.
    #[serde(default)]
    pub targets: BTreeMap<String, ModelConfig>,
    /// Device for models that name none themselves: `cpu`, `gpu`, or `gpu:N` for one of several,
    /// counted from 0. Devices other than the processor need a program built with `--features gpu`.
    #[serde(default, skip_serializing_if = "Device::is_cpu")]
    #[schemars(with = "String", extend("default" = "cpu"))]
    pub device: Device,
    /// True if padding counts on the stream too. Times on the stream are then those of models of
    /// the padded size, except for updates, which do not train padding.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(extend("default" = false))]
    pub pad_stream: bool,
}

impl ModelsConfig {
    /// Device of one of these models.
    pub fn device_of(&self, model: &ModelConfig) -> Device {
        model.device.unwrap_or(self.device)
    }
}

/// A model folder: `"models/L"`, or `{ path = "models/L", device = "gpu", pad_width = 64 }`. Or a
/// recorded target: `{ trace = "traces/L-{task}.parquet", tokenizer = "models/L" }`. Or a target
/// that a worker of PyTorch decodes: `{ torch = "models/L", dtype = "bfloat16" }`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelConfig {
    /// Model folder, relative to the working directory, or `hf:owner/name[@revision]`; for a
    /// recorded target its tokenizer.
    pub path: PathBuf,
    /// Device, if it is not that of the other models.
    pub device: Option<Device>,
    /// Number of idle inner columns added to every MLP, which make the model as slow as a larger
    /// one without a change of its outputs ([`lm::Checkpoint::pad_width`]).
    pub pad_width: usize,
    /// The recording that replaces the model.
    pub trace: Option<TraceConfig>,
    /// The worker of PyTorch that decodes the model.
    pub torch: Option<TorchConfig>,
    /// Variables of its chat template.
    pub chat_template_kwargs: Map<String, Value>,
    /// A system message in front of every prompt.
    pub system: Option<String>,
}

impl ModelConfig {
    /// A folder without further settings.
    fn of(path: PathBuf) -> Self {
        Self {
            path,
            ..Self::default()
        }
    }
}

/// A target that a worker of PyTorch decodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TorchConfig {
    /// Number format of weights and computation.
    pub dtype: Dtype,
    /// Device: `cpu`, `cuda`, `cuda:N`, `mps` or `auto`.
    pub device_map: String,
}

/// Device of a worker if none is named.
const AUTO: &str = "auto";

/// A recorded target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceConfig {
    /// File; `{task}` and `{split}` in it are replaced by those of a job.
    pub file: String,
}

impl TraceConfig {
    /// The file of one task and split (`train` or `test`).
    pub fn path(&self, task: &str, split: &str) -> PathBuf {
        let file = self.file.replace("{task}", task);
        PathBuf::from(file.replace("{split}", split))
    }
}

/// A model folder as a table; its path alone is a shorter form.
#[derive(Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ModelTable {
    /// Model folder, relative to the working directory, or `hf:owner/name[@revision]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<PathBuf>,
    /// For a target, in place of `path`: a model folder or `hf:owner/name[@revision]` that a worker
    /// of PyTorch decodes (`docs/models-and-data.md`). Any model that transformers reads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    torch: Option<PathBuf>,
    /// With `torch`: number format of weights and computation, `float32`, `float16`, `bfloat16`, or
    /// `auto` for that of the files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("default" = "auto"))]
    dtype: Option<Dtype>,
    /// With `torch`: device, `cpu`, `cuda`, `cuda:N`, `mps`; or `auto`, which spreads the model if
    /// accelerate is installed, and otherwise takes the first of `cuda`, `mps` and `cpu`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "auto"))]
    device_map: Option<String>,
    /// For a target, in place of `path`: the file of a recording (`omnidraft trace`). `{task}` and
    /// `{split}` in it are replaced by those of a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trace: Option<String>,
    /// With `trace`: `tokenizer.json`, the folder that contains it, or `hf:owner/name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tokenizer: Option<PathBuf>,
    /// Device of the model, if it is not `models.device`: `cpu`, `gpu` or `gpu:N`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    device: Option<Device>,
    /// Number of idle inner columns added to every MLP; outputs do not change.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(extend("default" = 0))]
    pad_width: usize,
    /// Variables of the chat template, such as `{ enable_thinking = false }`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    chat_template_kwargs: Map<String, Value>,
    /// A system message in front of every prompt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    system: Option<String>,
}

impl Serialize for ModelConfig {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if *self == Self::of(self.path.clone()) {
            return self.path.serialize(serializer);
        }
        let mut table = ModelTable {
            device: self.device,
            pad_width: self.pad_width,
            chat_template_kwargs: self.chat_template_kwargs.clone(),
            system: self.system.clone(),
            ..ModelTable::default()
        };
        let path = Some(self.path.clone());
        if let Some(torch) = &self.torch {
            let named = Some(&torch.device_map).filter(|name| *name != AUTO);
            table.torch = path;
            table.dtype = Some(torch.dtype).filter(|dtype| *dtype != Dtype::Auto);
            table.device_map = named.cloned();
        } else if let Some(trace) = &self.trace {
            table.tokenizer = path;
            table.trace = Some(trace.file.clone());
        } else {
            table.path = path;
        }
        table.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for ModelConfig {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Implemented by hand, since an untagged enum would hide the wrong key of the table.
        struct PathOrTable;
        impl<'de> Visitor<'de> for PathOrTable {
            type Value = ModelConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a model folder, { path = FOLDER, device = DEVICE, pad_width = N }, { trace = FILE, tokenizer = PATH } or { torch = FOLDER, dtype = DTYPE, device_map = DEVICE }")
            }

            fn visit_str<E: Error>(self, path: &str) -> Result<ModelConfig, E> {
                Ok(ModelConfig::of(path.into()))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ModelConfig, A::Error> {
                let table = ModelTable::deserialize(MapAccessDeserializer::new(map))?;
                table.check().map_err(A::Error::custom)
            }
        }
        deserializer.deserialize_any(PathOrTable)
    }
}

impl ModelTable {
    /// The model, if the keys fit together.
    fn check(self) -> Result<ModelConfig, &'static str> {
        if self.torch.is_some() {
            return self.worker();
        }
        if self.dtype.is_some() || self.device_map.is_some() {
            return Err(
                "`dtype` and `device_map` go with `torch`; `device` and decode.weights are those of \
                 this program's own engine",
            );
        }
        let (path, trace) = match (self.path, self.trace, self.tokenizer) {
            (Some(path), None, None) => (path, None),
            (None, Some(file), Some(tokenizer)) if self.pad_width == 0 => {
                (tokenizer, Some(TraceConfig { file }))
            }
            (None, Some(_), Some(_)) => {
                return Err("a recorded target has no weights to pad");
            }
            (None, Some(_), None) => return Err("`trace` needs `tokenizer`"),
            (None, None, _) => return Err("needs `path`, `torch`, or `trace` and `tokenizer`"),
            (Some(_), ..) => {
                return Err("`path` and `trace` are two targets; take away one of them");
            }
        };
        Ok(ModelConfig {
            device: self.device,
            pad_width: self.pad_width,
            trace,
            chat_template_kwargs: self.chat_template_kwargs,
            system: self.system,
            ..ModelConfig::of(path)
        })
    }

    /// The target that a worker decodes, if the keys fit together.
    fn worker(self) -> Result<ModelConfig, &'static str> {
        let other = self.path.is_some() || self.trace.is_some() || self.tokenizer.is_some();
        if other {
            return Err("`torch` is a target by itself; take away `path`, `trace` and `tokenizer`");
        }
        if self.device.is_some() {
            return Err("`device` is for this program's own engine; a worker has `device_map`");
        }
        if self.pad_width > 0 {
            return Err("a model of a worker cannot be padded");
        }
        let device_map = self.device_map.unwrap_or_else(|| AUTO.to_owned());
        if !is_device(&device_map) {
            return Err("`device_map`: must be cpu, cuda, cuda:N, mps or auto");
        }
        let torch = TorchConfig {
            dtype: self.dtype.unwrap_or_default(),
            device_map,
        };
        Ok(ModelConfig {
            torch: Some(torch),
            chat_template_kwargs: self.chat_template_kwargs,
            system: self.system,
            ..ModelConfig::of(self.torch.unwrap_or_default())
        })
    }
}

/// True for a name of a device of PyTorch that a worker takes.
fn is_device(name: &str) -> bool {
    let numbered = name.strip_prefix("cuda:");
    ["cpu", "cuda", "mps", AUTO].contains(&name)
        || numbered.is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
}

impl JsonSchema for ModelConfig {
    fn schema_name() -> Cow<'static, str> {
        "ModelConfig".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<ModelTable>();
        json_schema!({ "title": "path or table", "anyOf": [{ "type": "string" }, table] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_written_back() {
        let text = "L = \"models/L\"\nwide = { path = \"models/L\", pad_width = 64 }\n\
             far = { path = \"models/L\", device = \"gpu:1\" }\n";
        let targets: BTreeMap<String, ModelConfig> = toml::from_str(text).unwrap();
        assert_eq!((targets["L"].pad_width, targets["wide"].pad_width), (0, 64));
        assert_eq!(targets["wide"].path, targets["L"].path);
        assert_eq!(
            (targets["far"].device, targets["L"].device),
            (Some(Device::Gpu(1)), None)
        );
        let json = serde_json::to_value(&targets).unwrap();
        assert_eq!(json["L"], "models/L");
        assert_eq!(json["wide"]["pad_width"], 64);
        assert_eq!(json["wide"].as_object().unwrap().len(), 2);
        assert_eq!(json["far"]["device"], "gpu:1");
        let again: BTreeMap<String, ModelConfig> = serde_json::from_value(json).unwrap();
        assert_eq!(again, targets);
    }

    #[test]
    fn targets_of_workers_are_read_and_written_back() {
        let text = "a = { torch = \"models/L\" }\n\
             b = { torch = \"hf:o/n\", dtype = \"bfloat16\", device_map = \"cuda:1\", system = \"s\" }\n";
        let targets: BTreeMap<String, ModelConfig> = toml::from_str(text).unwrap();
        assert_eq!(targets["a"].path.to_str(), Some("models/L"));
        let worker = |name: &str| targets[name].torch.clone().unwrap();
        assert_eq!(worker("a").dtype, Dtype::Auto);
        assert_eq!(worker("a").device_map, "auto");
        assert_eq!(worker("b").dtype, Dtype::Bf16);
        let json = serde_json::to_value(&targets).unwrap();
        assert_eq!(json["a"].as_object().unwrap().len(), 1);
        assert_eq!(json["b"]["device_map"], "cuda:1");
        let again: BTreeMap<String, ModelConfig> = serde_json::from_value(json).unwrap();
        assert_eq!(again, targets);
        for (wrong, what) in [
            ("{ path = \"p\", dtype = \"float32\" }", "go with `torch`"),
            ("{ path = \"p\", device_map = \"cpu\" }", "go with `torch`"),
            ("{ torch = \"p\", path = \"p\" }", "by itself"),
            ("{ torch = \"p\", device = \"gpu\" }", "`device_map`"),
            (
                "{ torch = \"p\", weights = \"int4\" }",
                "unknown field `weights`",
            ),
            ("{ torch = \"p\", pad_width = 1 }", "padded"),
            ("{ torch = \"p\", device_map = \"cuda:x\" }", "cuda:N"),
            ("{ torch = \"p\", dtype = \"int4\" }", "bfloat16"),
        ] {
            let read = toml::from_str::<BTreeMap<String, ModelConfig>>(&format!("a = {wrong}"));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(what), "{wrong}: {error}");
        }
    }

    #[test]
    fn recorded_targets_are_read_and_written_back() {
        let text = "a = { trace = \"t/{task}-{split}.parquet\", tokenizer = \"models/L\" }\n";
        let targets: BTreeMap<String, ModelConfig> = toml::from_str(text).unwrap();
        let trace = targets["a"].trace.as_ref().unwrap();
        assert_eq!(
            trace.path("gsm8k", "test").to_str(),
            Some("t/gsm8k-test.parquet")
        );
        assert_eq!(targets["a"].path.to_str(), Some("models/L"));
        let json = serde_json::to_value(&targets).unwrap();
        assert_eq!(json["a"].as_object().unwrap().len(), 2);
        let again: BTreeMap<String, ModelConfig> = serde_json::from_value(json).unwrap();
        assert_eq!(again, targets);
        for (wrong, what) in [
            ("{ trace = \"t\" }", "needs `tokenizer`"),
            (
                "{ path = \"p\", trace = \"t\", tokenizer = \"T\" }",
                "two targets",
            ),
            (
                "{ trace = \"t\", tokenizer = \"T\", pad_width = 1 }",
                "no weights to pad",
            ),
            ("{ pad_width = 1 }", "needs `path`"),
            ("{ path = \"p\", device = \"tpu\" }", "no device"),
        ] {
            let read = toml::from_str::<BTreeMap<String, ModelConfig>>(&format!("a = {wrong}"));
            let error = read.unwrap_err().to_string();
            assert!(error.contains(what), "{wrong}: {error}");
        }
    }
}
