//! Device of decoding, and storage types of weights, keys and values.

use std::str::FromStr;

use serde::de::IntoDeserializer;
use serde::{Deserialize, Serialize};

/// Storage of weights, and the rounding of the inputs of projections. The residual
/// stream, attention and the sums over groups of inputs are f32 always.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum WeightType {
    /// Four bytes each, exactly the checkpoint's values. Those that bf16 holds may be stored in less.
    // See `cpu_engine::Compact`, also for bf16.
    #[default]
    F32,
    /// Two bytes each, rounded to half precision, those beyond 65504 to that: exact for f16
    /// checkpoints. Inputs of projections stay f32.
    F16,
    /// Two bytes each or less, rounded to nearest even bf16, and what they are multiplied with too.
    Bf16,
    /// About one byte each: projections in 8 bits with a scale per 64 inputs, itself in 8 bits against
    /// the largest of its output; their inputs in 8 bits with an f32 scale per 64; embedding in bf16.
    Int8,
    /// About half a byte each: the same in 4 bits with a scale per 32 inputs; inputs in 8 bits with a
    /// scale per 32.
    Int4,
}

impl WeightType {
    /// All types, the widest first.
    pub const ALL: [Self; 5] = [Self::F32, Self::F16, Self::Bf16, Self::Int8, Self::Int4];

    /// Name in files and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
            Self::Int4 => "int4",
        }
    }
}

impl std::fmt::Display for WeightType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for WeightType {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::deserialize(name.into_deserializer())
    }
}

/// Storage of keys and values. Results computed from them are f32 either way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum KvType {
    /// Four bytes each, as computed.
    #[default]
    F32,
    /// Two bytes each, rounded to half precision, those beyond 65504 to that. Logits differ a little
    /// from those with f32, alike for every batch.
    F16,
}

impl FromStr for KvType {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::deserialize(name.into_deserializer())
    }
}

impl std::fmt::Display for KvType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
        })
    }
}

/// Device of decoding: `cpu`, `gpu`, or `gpu:N` for one of several, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Device {
    /// The processor.
    #[default]
    Cpu,
    /// The graphics device of this number.
    Gpu(usize),
}

impl Device {
    /// True if it is the processor.
    pub fn is_cpu(&self) -> bool {
        *self == Self::Cpu
    }
}

impl std::fmt::Display for Device {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cpu => f.write_str("cpu"),
            Self::Gpu(0) => f.write_str("gpu"),
            Self::Gpu(index) => write!(f, "gpu:{index}"),
        }
    }
}

/// A name is not that of a device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no device (cpu, gpu, or gpu:N for the one of number N, counted from 0)")]
pub struct UnknownDevice(pub String);

impl FromStr for Device {
    type Err = UnknownDevice;

    fn from_str(name: &str) -> Result<Self, UnknownDevice> {
        let unknown = || UnknownDevice(name.to_owned());
        match name.split_once(':') {
            None if name == "cpu" => Ok(Self::Cpu),
            None if name == "gpu" => Ok(Self::Gpu(0)),
            Some(("gpu", index)) => index.parse().map(Self::Gpu).map_err(|_| unknown()),
            _ => Err(unknown()),
        }
    }
}

impl From<Device> for String {
    fn from(device: Device) -> Self {
        device.to_string()
    }
}

impl TryFrom<String> for Device {
    type Error = UnknownDevice;

    fn try_from(name: String) -> Result<Self, UnknownDevice> {
        name.parse()
    }
}

/// Settings of decoding, for any engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineSettings {
    /// Device of decoding.
    pub device: Device,
    /// Storage of the weights.
    pub weights: WeightType,
    /// Storage of keys and values.
    pub kv: KvType,
    /// Number of threads that compute or, on another device, pack the weights.
    pub threads: usize,
    /// Largest number of tokens of prompt and answer; the model's
    /// [`max_context`](crate::LmConfig::max_context) if that is less or none is given.
    pub context: Option<usize>,
}

impl EngineSettings {
    /// Settings with weights in this storage, on so many threads of the processor, keys and values
    /// in f32, and no limit of the context but the model's own.
    pub fn new(weights: WeightType, threads: usize) -> Self {
        Self {
            device: Device::Cpu,
            weights,
            kv: KvType::F32,
            threads,
            context: None,
        }
    }

    /// The same settings for a drafter. On the processor and beside integer weights, it keeps keys and
    /// values in f16: a small model reads them for a good part of a step, and what the target says does
    /// not depend on how they are rounded.
    #[must_use]
    pub fn drafting(self) -> Self {
        let integers = matches!(self.weights, WeightType::Int8 | WeightType::Int4);
        match matches!(self.device, Device::Cpu) && integers {
            true => Self {
                kv: KvType::F16,
                ..self
            },
            false => self,
        }
    }

    /// The same settings on a device.
    #[must_use]
    pub fn on(self, device: Device) -> Self {
        Self { device, ..self }
    }
}
