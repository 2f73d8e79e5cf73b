//! A text as drafter and target read it.

use spec_decode::Pair;
#[cfg(feature = "models")]
use spec_decode::Role;
use vocab_align::{DraftId, TargetId};

use crate::Error;

/// A prompt in the tokens of both models.
pub(crate) type Encoded = (Vec<DraftId>, Vec<TargetId>);

/// The way from a text to a prompt.
pub(crate) enum Prompts {
    /// The text alone, with the tokens that the tokenizers put in front of any text.
    Plain,
    /// A user's message in the chat templates of both models.
    #[cfg(feature = "models")]
    Chat(Box<(models::ModelText<DraftId>, models::ModelText<TargetId>)>),
}

impl Prompts {
    pub(crate) fn encode(&self, pair: &Pair, text: &str) -> Result<Encoded, Error> {
        match self {
            Self::Plain => Ok((
                pair.draft.encode_whole(text)?,
                pair.target.encode_whole(text)?,
            )),
            #[cfg(feature = "models")]
            Self::Chat(texts) => {
                let (drafter, target) = &**texts;
                Ok((
                    chat(drafter, Role::Drafter, text)?,
                    chat(target, Role::Target, text)?,
                ))
            }
        }
    }
}

#[cfg(feature = "models")]
fn chat<I: vocab_align::TokenId>(
    model: &models::ModelText<I>,
    role: Role,
    text: &str,
) -> Result<Vec<I>, Error> {
    let refused = |source| Error::Prompt { role, source };
    let rendered = model.template.render(text);
    let rendered = rendered.map_err(|error| refused(error.into()))?;
    model
        .encode(&rendered)
        .map_err(|error| refused(error.into()))
}
