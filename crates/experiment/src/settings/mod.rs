//! Settings of an arm in four sections, and its models.
//!
//! Every type here is both a section of the file and the resolved setting, since defaults fill in
//! missing keys. Conversions lead to the crates of the method.

mod cache;
mod decode;
mod head;
mod learn;
mod lora;
mod model;
mod or_none;
mod policy;

pub use cache::{CacheOptions, CacheUse};
pub use decode::{DecodeConfig, DraftSource, Lookup};
pub use head::{HeadLabels, HeadOptions, HeadTraining};
pub use learn::{LearnConfig, ObjectiveName};
pub use lora::{LoraSettings, Scope};
pub(crate) use model::ModelTable;
pub use model::{ModelConfig, ModelsConfig, TorchConfig, TraceConfig};
pub use policy::{CostsConfig, EXPLORE, PolicyFault, PolicyName};

/// True for a default value, which a manifest leaves out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A fault of a value: its dotted key, and the message.
pub(crate) type Wrong = (String, String);

pub(crate) fn wrong(key: &str, message: impl Into<String>) -> Wrong {
    (key.to_owned(), message.into())
}
