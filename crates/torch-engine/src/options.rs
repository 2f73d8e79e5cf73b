//! Options of a worker.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The worker of this crate, in Python.
const WORKER: &str = include_str!("../../../scripts/torch_worker.py");

/// Type in which PyTorch keeps and multiplies the weights.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Dtype {
    /// The type that the checkpoint has.
    #[default]
    #[serde(rename = "auto")]
    Auto,
    /// 32 bits.
    #[serde(rename = "float32")]
    F32,
    /// 16 bits, with 5 of them for the exponent.
    #[serde(rename = "float16")]
    F16,
    /// 16 bits, with 8 of them for the exponent.
    #[serde(rename = "bfloat16")]
    Bf16,
}

impl Dtype {
    /// All types.
    pub const ALL: [Self; 4] = [Self::Auto, Self::F32, Self::F16, Self::Bf16];

    /// Name, as PyTorch has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::F32 => "float32",
            Self::F16 => "float16",
            Self::Bf16 => "bfloat16",
        }
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A text that names no [`Dtype`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{given}` is no type of weights of PyTorch: auto, float32, float16, bfloat16")]
pub struct UnknownDtype {
    /// The text.
    pub given: String,
}

impl FromStr for Dtype {
    type Err = UnknownDtype;

    fn from_str(text: &str) -> Result<Self, UnknownDtype> {
        let named = Self::ALL.into_iter().find(|dtype| dtype.name() == text);
        named.ok_or_else(|| UnknownDtype {
            given: text.to_owned(),
        })
    }
}

/// The model that a worker holds, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TorchOptions {
    /// A folder, or a name on the hub (`owner/name`, `owner/name@revision`), which transformers
    /// takes from its cache or downloads.
    pub model: String,
    /// Type of the weights.
    pub dtype: Dtype,
    /// Devices, as transformers names them: `cpu`, `cuda`, `cuda:0`, `mps`, `auto`.
    pub device_map: String,
    /// Largest number of tokens of a sequence; that of the model if it is less, or `None`.
    /// Rotations that depend on the length of the context use this length.
    pub max_len: Option<usize>,
    /// Threads of the processor that PyTorch computes with; `None` for its own choice.
    pub threads: Option<usize>,
    /// Time that a call may take, after which the worker is killed. Loading, which may include a
    /// download, may take ten times as long.
    pub timeout: Duration,
    /// For measurements: the worker counts the seconds of forwards
    /// ([`Torch::model_seconds`](crate::Torch::model_seconds)), waits for the device at the end of
    /// each, and makes each last at least so long.
    pub clock: Option<Duration>,
}

impl TorchOptions {
    /// The model on the processor, in the checkpoint's type, with six minutes for a call.
    pub fn new(model: impl Into<String>) -> Self {
        Self {
            model: model.into(),
            dtype: Dtype::Auto,
            device_map: "cpu".to_owned(),
            max_len: None,
            threads: None,
            timeout: Duration::from_secs(360),
            clock: None,
        }
    }
}

/// The program that runs a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpreter {
    /// Python: a path, or a name that is looked up in `PATH`.
    pub python: OsString,
    /// File with a worker that replaces the built-in one.
    pub worker: Option<PathBuf>,
}

impl Interpreter {
    /// `OMNIDRAFT_PYTHON`, or `python3`, with the worker in the file `OMNIDRAFT_WORKER`, if it is
    /// set.
    pub fn from_env() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            python: set("OMNIDRAFT_PYTHON").unwrap_or_else(|| "python3".into()),
            worker: set("OMNIDRAFT_WORKER").map(PathBuf::from),
        }
    }

    /// Text of the worker.
    pub(crate) fn script(&self) -> std::io::Result<String> {
        match &self.worker {
            Some(file) => std::fs::read_to_string(file),
            None => Ok(WORKER.to_owned()),
        }
    }
}
