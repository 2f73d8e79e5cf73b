//! Errors of a worker and of its model.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use engine::ModelError;
use serde::Deserialize;
use thiserror::Error;

/// Reason why a worker cannot hold a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ModelFault {
    /// There is no such folder, and no such name on the hub.
    NotFound,
    /// The hub gives it only to those who accepted its terms.
    Gated,
    /// The hub cannot be reached, and the model is not in the cache.
    Network,
    /// transformers has no causal language model of this kind, or wants code of the repository.
    Unsupported,
    /// The files are damaged, incomplete or contradictory.
    Broken,
    /// Its quantised format makes logits depend on later tokens of a call, so that a draft would
    /// change what it is verified by.
    Dependent,
}

/// Errors of this crate; [`TorchError::hint`] says what to do.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TorchError {
    /// Python cannot be started.
    #[error("cannot start `{python}`: {source}")]
    Python {
        /// The program.
        python: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The file of another worker cannot be read.
    #[error("{}: cannot read the worker: {source}", path.display())]
    Worker {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A package of Python is missing or too old.
    #[error("`{python}` lacks {package}: {message}")]
    Package {
        /// The program.
        python: String,
        /// The package.
        package: String,
        /// Message of Python.
        message: String,
    },
    /// The model cannot be held.
    #[error("{model}: {message}")]
    Model {
        /// Folder or name.
        model: String,
        /// Kind of the fault.
        fault: ModelFault,
        /// Message of transformers.
        message: String,
    },
    /// PyTorch does not have this device.
    #[error("PyTorch has no device `{device_map}`: {message}")]
    Device {
        /// The device asked for.
        device_map: String,
        /// Message of PyTorch.
        message: String,
    },
    /// The KV cache of the model cannot be truncated without a trace.
    #[error("{architecture}: the KV cache cannot be truncated, because of {layer}: {message}")]
    Cache {
        /// Class of the model.
        architecture: String,
        /// Kind of the layer that prevents it.
        layer: String,
        /// Reason.
        message: String,
    },
    /// The device has no memory left.
    #[error("out of memory during {during}: {message}")]
    Memory {
        /// The call.
        during: &'static str,
        /// Message of PyTorch.
        message: String,
    },
    /// A call failed in Python. The worker continues.
    #[error("the PyTorch worker failed during {during}: {message}")]
    Failed {
        /// The call.
        during: &'static str,
        /// Message of Python.
        message: String,
    },
    /// The process ended during a call.
    #[error("the PyTorch worker died during {during} ({status}){}", Said(said))]
    Died {
        /// The call.
        during: &'static str,
        /// Exit code or signal.
        status: String,
        /// Its last lines on standard error.
        said: Vec<String>,
    },
    /// A call took longer than it may, and the worker was killed.
    #[error(
        "the PyTorch worker was killed: {during} took more than {limit:?}{}",
        Said(said)
    )]
    TimedOut {
        /// The call.
        during: &'static str,
        /// The limit.
        limit: Duration,
        /// Its last lines on standard error.
        said: Vec<String>,
    },
    /// An earlier call ended the worker.
    #[error("the PyTorch worker ended earlier: {message}")]
    Ended {
        /// Message of that call.
        message: String,
    },
    /// The worker speaks another version of the protocol.
    #[error("the PyTorch worker has protocol {found}, and this program has protocol {expected}")]
    Version {
        /// Version of the worker.
        found: u32,
        /// Version of this program.
        expected: u32,
    },
    /// An answer is none of the protocol.
    #[error("the PyTorch worker answers {during} with {message}")]
    Protocol {
        /// The call.
        during: &'static str,
        /// Description of the answer.
        message: String,
    },
    /// The model cannot be replaced.
    #[error("the model of the PyTorch worker is still in use")]
    Shared,
    /// The logits asked for are not on the device.
    #[error("{rows} rows of logits: the worker has {most}")]
    Rows {
        /// Number of rows asked for.
        rows: usize,
        /// Number of rows that there are.
        most: usize,
    },
}

/// Last lines of a worker, below the message.
struct Said<'a>(&'a [String]);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|line| write!(f, "\n  | {line}"))
    }
}

impl TorchError {
    /// Advice for the user, if there is any.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Python { .. } => {
                "install Python 3.10 or newer, or name one with OMNIDRAFT_PYTHON"
            }
            Self::Worker { .. } => {
                "OMNIDRAFT_WORKER names a file that replaces the built-in worker"
            }
            Self::Package {
                python, package, ..
            } => {
                let wanted = match package.as_str() {
                    "torch" | "transformers" => "torch 'transformers>=4.56'",
                    other => other,
                };
                return Some(format!(
                    "{python} -m pip install {wanted}; OMNIDRAFT_PYTHON names another Python"
                ));
            }
            Self::Model { fault, .. } => match fault {
                ModelFault::NotFound => {
                    "check the folder, or owner and name; the hub also answers so for a private repository \
                     without access"
                }
                ModelFault::Gated => {
                    "accept its terms on its page and set HF_TOKEN to an access token of your account"
                }
                ModelFault::Network => {
                    "is there a network? HF_ENDPOINT names another hub, HF_HOME another cache; a model \
                     folder needs none"
                }
                ModelFault::Unsupported => {
                    "the worker runs causal language models that transformers itself has, and no code of \
                     repositories"
                }
                ModelFault::Broken => return None,
                ModelFault::Dependent => {
                    "take a format that quantises the weights alone, or each token's activations by \
                     themselves; docs/engines.md lists formats (bitsandbytes in 8 bits: with \
                     llm_int8_threshold 0 in its config.json)"
                }
            },
            Self::Device { .. } => "a device is cpu, cuda, cuda:N, mps or auto",
            Self::Cache { .. } => {
                "rejected tokens must be dropped from the cache, which takes layers of attention alone"
            }
            Self::Memory { .. } => {
                "take dtype bfloat16, a shorter context, fewer sequences at once, device_map auto (several \
                 devices), or a quantised checkpoint"
            }
            Self::TimedOut { .. } => "a larger time limit, or a smaller model",
            Self::Version { .. } => "OMNIDRAFT_WORKER is the worker of another release: unset it",
            Self::Died { status, .. } if status.contains("signal: 9") => {
                "something killed it: often the operating system, when memory ran out"
            }
            _ => return None,
        };
        Some(text.to_owned())
    }
}

impl From<TorchError> for ModelError {
    fn from(error: TorchError) -> Self {
        Self::new(error)
    }
}
