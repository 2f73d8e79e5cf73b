//! Roles of special tokens.

/// Purpose of a special token. Special tokens of different tokenizers correspond by role, since
/// their strings differ (`</s>`, `<|end_of_text|>`, `<|endoftext|>`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SpecialRole {
    /// Begins a text.
    Bos,
    /// Ends a text.
    Eos,
    /// Ends a turn of a conversation.
    EndOfTurn,
    /// Fills a batch.
    Pad,
    /// Stands for text that the vocabulary has no token for.
    Unk,
    /// Anything else: chat markers, tools, reserved ids.
    Other,
}

impl SpecialRole {
    /// Role of a special token by its usual names.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "<s>"
            | "<bos>"
            | "[BOS]"
            | "<|bos|>"
            | "<|begin_of_text|>"
            | "<|startoftext|>"
            | "<｜begin▁of▁sentence｜>" => Self::Bos,
            "</s>"
            | "<eos>"
            | "[EOS]"
            | "<|eos|>"
            | "<|end_of_text|>"
            | "<|endoftext|>"
            | "<｜end▁of▁sentence｜>" => Self::Eos,
            "<|eot_id|>" | "<|im_end|>" | "<end_of_turn>" | "<|eot|>" | "<|end|>"
            | "<|endofturn|>" => Self::EndOfTurn,
            "<pad>" | "[PAD]" | "<|pad|>" | "<|finetune_right_pad_id|>" => Self::Pad,
            "<unk>" | "[UNK]" | "<|unk|>" => Self::Unk,
            _ => return None,
        })
    }

    /// The role that substitutes this one if a vocabulary lacks it: a text ends where its last turn
    /// does.
    pub(crate) fn substitute(self) -> Option<Self> {
        match self {
            Self::Eos => Some(Self::EndOfTurn),
            Self::EndOfTurn => Some(Self::Eos),
            _ => None,
        }
    }

    /// True if tokens of this role correspond across vocabularies whatever their names. Padding and
    /// unknown tokens carry no text; they correspond only to tokens of the same name.
    pub(crate) fn crosses(self) -> bool {
        matches!(self, Self::Bos | Self::Eos | Self::EndOfTurn)
    }
}

/// Roles of special tokens by the names in files beside the tokenizer.
pub(crate) type RoleHints = Vec<(String, SpecialRole)>;

/// Role of a special token. Its usual name counts first, because configurations reuse one token for
/// several roles (Qwen2 pads with its end-of-text token).
pub(crate) fn role_of(name: &str, hints: &RoleHints) -> Option<SpecialRole> {
    SpecialRole::of_name(name).or_else(|| {
        hints
            .iter()
            .find(|(hint, _)| hint == name)
            .map(|(_, role)| *role)
    })
}
