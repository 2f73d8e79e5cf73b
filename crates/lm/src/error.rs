//! What can go wrong while loading, saving or running a model.

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
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// `config.json` is not valid JSON or misses a key.
    #[error("{path}: {}{message}", at_key(key))]
    Config {
        /// The file.
        path: PathBuf,
        /// Dotted key; nothing where the file as a whole is meant.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// A model architecture this crate does not implement.
    #[error(
        "{path}: model_type `{model_type}` is not supported ({} are)",
        crate::config::known_model_types()
    )]
    Architecture {
        /// The file.
        path: PathBuf,
        /// The name found there.
        model_type: String,
    },
    /// Files of weights that are malformed, cut short, or of a kind that is not read.
    #[error(transparent)]
    Weights(#[from] weights::WeightsError),
    /// A tensor the architecture needs is absent.
    #[error("{path}: tensor `{tensor}` is missing")]
    MissingTensor {
        /// Model folder.
        path: PathBuf,
        /// Hugging Face name.
        tensor: String,
    },
    /// Tensors that belong to no part of the architecture.
    #[error("{path}: {count} tensors are not part of the architecture, the first is `{first}`")]
    LeftoverTensors {
        /// Model folder.
        path: PathBuf,
        /// How many.
        count: usize,
        /// The first in name order.
        first: String,
    },
    /// A tensor has another shape than `config.json` implies.
    #[error("{path}: tensor `{tensor}` has shape {found:?}, config.json implies {expected:?}")]
    Shape {
        /// Model folder.
        path: PathBuf,
        /// Hugging Face name.
        tensor: String,
        /// Shape in the file.
        found: Vec<usize>,
        /// Shape the configuration implies.
        expected: Vec<usize>,
    },
    /// A model that has something for which there is no place in a GGUF file.
    #[error("a GGUF file is not written of {what}")]
    NotGguf {
        /// What it is.
        what: String,
    },
    /// A call that an engine refuses, or an engine of another crate that failed in its own way.
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
        /// How many were asked for.
        threads: usize,
        /// The operating system's reason.
        source: std::io::Error,
    },
    /// A model with a feature that training does not have a backward pass for.
    #[error("a model of type `{model_type}` with {feature} cannot be trained here, only decoded")]
    NotTrainable {
        /// Its `model_type`.
        model_type: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// More blocks than a model has, or none, where the last ones of it are meant.
    #[error("the last {blocks} blocks are meant, of a model that has {of}")]
    Blocks {
        /// How many are meant.
        blocks: usize,
        /// How many there are.
        of: usize,
    },
    /// States that are no whole number of rows.
    #[error("{found} numbers are no whole number of states, which have {width} each")]
    States {
        /// Numbers.
        found: usize,
        /// Numbers of a state: the width of the model.
        width: usize,
    },
    /// New weights for an engine belong to a model of another shape.
    #[error("the new weights belong to a model of another configuration")]
    OtherModel,
    /// A LoRA rank that a matrix leaves no room for.
    #[error("a LoRA rank of {rank} is outside 1..={limit}, the smaller side of `{projection}`")]
    Rank {
        /// The rank.
        rank: usize,
        /// The largest possible.
        limit: usize,
        /// Name of the narrowest adapted projection.
        projection: &'static str,
    },
    /// Adapters on nothing.
    #[error("no projections are adapted")]
    NoProjections,
    /// A file of an adapter is not what it should be.
    #[error("{path}: {message}")]
    Adapter {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// The device returned no data.
    #[error("device error: {0}")]
    Device(String),
    /// An engine of another crate failed in its own way.
    #[error("engine `{engine}` failed")]
    Engine {
        /// Its name.
        engine: &'static str,
        /// Its error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl LmError {
    /// An engine's own error.
    pub fn engine(
        engine: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Engine {
            engine,
            source: source.into(),
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
