//! What one arm does, in four sections, and the models it does it with.
//!
//! Every type here is both the file's section and the resolved setting: a file leaves keys out, the
//! defaults fill them in. Conversions lead to the crates of the method.

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
pub use learn::{LearnConfig, NothingToLearn, ObjectiveName};
pub use lora::{LoraSettings, Scope};
pub(crate) use model::ModelTable;
pub use model::{CostPadding, ModelConfig, ModelsConfig, NamedLatency, StepCost, TraceConfig};
pub use policy::{CostsConfig, EXPLORE, PolicyFault, PolicyName};

/// True of what a manifest leaves out because it is the type's default.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A value that is wrong by itself: its dotted key, and what is wrong.
pub(crate) type Wrong = (String, String);

/// Shorthand for one.
pub(crate) fn wrong(key: &str, message: impl Into<String>) -> Wrong {
    (key.to_owned(), message.into())
}
