//! Errors of loading, saving and running a model.

use std::path::PathBuf;

use engine::ModelError;

/// Errors of this crate; every variant carries what a reader needs to find the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LmError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// `config.json` is not valid JSON, a key is missing or wrong, or the model has an architecture
    /// that this crate does not implement.
    #[error("{path}: {}{message}", at_key(key))]
    Config {
        /// The file.
        path: PathBuf,
        /// Dotted key; empty for the file as a whole.
        key: String,
        /// Description of the fault.
        message: String,
    },
    /// Files of weights are malformed, cut short, or of an unsupported kind.
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    /// A tensor of the architecture is missing.
    #[error("{path}: tensor `{tensor}` is missing")]
    MissingTensor {
        /// Model folder or file; for a model in memory, a description in parentheses.
        path: PathBuf,
        /// Hugging Face name.
        tensor: String,
    },
    /// Some tensors belong to no part of the architecture.
    #[error("{path}: {count} tensors are not part of the architecture, the first is `{first}`")]
    LeftoverTensors {
        /// File of the first of them; for a model in memory, a description in parentheses.
        path: PathBuf,
        /// Number of such tensors.
        count: usize,
        /// The first in name order.
        first: String,
    },
    /// A saved tensor holds a value that is no finite number.
    #[error("{path}: tensor `{tensor}` holds {value} at {at}, which is no number")]
    NotFinite {
        /// The file.
        path: PathBuf,
        /// Name of the tensor.
        tensor: String,
        /// The value.
        value: f32,
        /// Its index in the tensor.
        at: usize,
    },
    /// A tensor has another shape than `config.json` implies.
    #[error("{path}: tensor `{tensor}` has shape {found:?}, config.json implies {expected:?}")]
    Shape {
        /// File of the tensor; for a model in memory, a description in parentheses.
        path: PathBuf,
        /// Hugging Face name.
        tensor: String,
        /// Shape of the tensor.
        found: Vec<usize>,
        /// Shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// A model has a feature that a GGUF file cannot express.
    #[error("a GGUF file is not written of {what}")]
    NotGguf {
        /// The feature.
        what: String,
    },
    /// An engine refuses a call, or failed in one.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A requested kernel set does not run on this processor.
    #[error("kernel set {kernels} needs processor features that are missing here")]
    Kernels {
        /// Name of the kernel set.
        kernels: String,
    },
    /// The threads of an engine could not be started.
    #[error("cannot start {threads} threads: {source}")]
    Threads {
        /// Number of threads asked for.
        threads: usize,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A model has a feature without a backward pass.
    #[error("a model of type `{model_type}` with {feature} cannot be trained here, only decoded")]
    NotTrainable {
        /// Its `model_type`.
        model_type: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// A number of last blocks is 0, or more than the model has.
    #[error("the last {blocks} blocks are meant, of a model that has {of}")]
    Blocks {
        /// Number of last blocks asked for.
        blocks: usize,
        /// Number of blocks of the model.
        of: usize,
    },
    /// States are not a whole number of rows.
    #[error("{found} numbers are no whole number of states, which have {width} each")]
    States {
        /// Number of values.
        found: usize,
        /// Number of values of a state: the width of the model.
        width: usize,
    },
    /// New weights for an engine belong to a model of another shape.
    #[error("the new weights belong to a model of another configuration")]
    OtherModel,
    /// A LoRA rank is 0, or larger than a matrix admits.
    #[error("a LoRA rank of {rank} is outside 1..={limit}, the smaller side of `{projection}`")]
    Rank {
        /// The rank.
        rank: usize,
        /// Largest possible rank.
        limit: usize,
        /// Name of the narrowest adapted projection.
        projection: &'static str,
    },
    /// An adapter has no projections.
    #[error("no projections are adapted")]
    NoProjections,
    /// A file of an adapter has a fault.
    #[error("{path}: {message}")]
    Adapter {
        /// The file.
        path: PathBuf,
        /// Description of the fault.
        message: String,
    },
    /// A device cannot be opened or failed, or a gradient is not finite.
    #[error("device error: {0}")]
    Device(String),
    /// An engine's own error, such as that of a graphics device.
    #[error("engine `{engine}` failed")]
    Engine {
        /// Name of the engine.
        engine: &'static str,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl LmError {
    /// Wraps an engine's own error.
    pub fn engine(
        engine: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Engine {
            engine,
            source: source.into(),
        }
    }

    /// A tensor that is not there.
    pub fn missing(path: impl Into<PathBuf>, tensor: impl Into<String>) -> Self {
        Self::MissingTensor {
            path: path.into(),
            tensor: tensor.into(),
        }
    }

    pub(crate) fn io(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { path, source }
    }
}

fn at_key(key: &str) -> String {
    match key {
        "" => String::new(),
        key => format!("key `{key}`: "),
    }
}

impl From<LmError> for ModelError {
    fn from(error: LmError) -> Self {
        match error {
            LmError::Model(error) => error,
            other => Self::new(other),
        }
    }
}
