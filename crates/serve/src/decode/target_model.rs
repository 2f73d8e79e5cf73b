//! The target model of a slot: local or remote.

use lm::{LanguageModel, forward_to_inner};
use models::Engine;

use crate::remote::RemoteTarget;

/// The target model of a slot: local or remote.
pub(crate) enum TargetModel {
    Local(Engine),
    Remote(RemoteTarget),
}

impl TargetModel {
    fn shown(&self) -> &dyn LanguageModel {
        match self {
            Self::Local(engine) => engine,
            Self::Remote(target) => target,
        }
    }

    fn decoder(&mut self) -> &mut dyn LanguageModel {
        match self {
            Self::Local(engine) => engine,
            Self::Remote(target) => target,
        }
    }
}

impl LanguageModel for TargetModel {
    forward_to_inner!(shown, decoder);
}
