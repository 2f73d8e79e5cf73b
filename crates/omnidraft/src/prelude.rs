//! The names that most programs need: `use omnidraft::prelude::*`.

pub use engine::{DeviceLogits, LanguageModel, ModelError, check_call, conformance};
pub use ngram_cache::{CacheConfig, NgramCache};
pub use spec_decode::{
    Acceptance, ConstantLength, DraftPolicy, Pair, Prompt, SamplingOptions, VerifyMode,
};
pub use vocab_align::{DraftId, MappingMode, TargetId, TokenId, Vocabulary, align_offsets};

#[cfg(feature = "learn")]
pub use crate::LearnOptions;
pub use crate::{Answer, Builder, Error, Session};
#[cfg(feature = "models")]
pub use crate::{Drafter, Model, Target, generate_together};
#[cfg(feature = "serve")]
pub use crate::{Http, Server, ServerLearning, ServerOptions};
