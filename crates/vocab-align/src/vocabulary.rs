//! A tokenizer as byte strings: loading, looking up, encoding, decoding.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use tokenizers::ModelWrapper;
use tokenizers::models::bpe::BPE;
use tokenizers::models::unigram::Unigram;

use crate::encode::{Encoder, Segmentation};
use crate::error::AlignError;
use crate::file::{TokenizerFile, parse_json};
use crate::ids::TokenId;
use crate::pieces::Splitter;
use crate::roles::{RoleHints, SpecialRole, hints_from_config};
use crate::tables::{Kind, Tables};

/// A tokenizer whose tokens are byte strings.
///
/// Reads any Hugging Face `tokenizer.json` with a BPE or Unigram model, whether its strings are in
/// the byte-level alphabet (Llama-3, Qwen2) or in SentencePiece's (`▁`, `<0xNN>`).
///
/// Invariant: the bytes of `encode(text)` are the bytes of `text`. The ids are those of the
/// original pipeline without its dummy prefix and Unicode normalisation; where the model cannot
/// spell a piece exactly, the piece is spelled with the tokens of its characters and bytes.
///
/// Clones share their tables.
pub struct Vocabulary<I: TokenId> {
    inner: Arc<Inner>,
    ids: PhantomData<fn() -> I>,
}

struct Inner {
    tables: Tables,
    encoder: Encoder,
    /// Ids of added tokens, longest string first, for [`Vocabulary::encode_with_specials`].
    literals: Vec<u32>,
}

impl<I: TokenId> Clone for Vocabulary<I> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            ids: PhantomData,
        }
    }
}

impl<I: TokenId> fmt::Debug for Vocabulary<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary")
            .field("file", &self.file())
            .field("len", &self.len())
            .finish()
    }
}

impl<I: TokenId> Vocabulary<I> {
    /// Loads a `tokenizer.json`. A `tokenizer_config.json` beside it, if there is one, names the
    /// roles of special tokens with unusual names.
    ///
    /// # Errors
    /// A file that cannot be read, is truncated or malformed, or needs an unsupported feature.
    pub fn from_file(path: &Path) -> Result<Self, AlignError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| AlignError::Read {
                path: path.to_owned(),
                source,
            })
        };
        let config = path.with_file_name("tokenizer_config.json");
        let hints = if config != path && config.is_file() {
            hints_from_config(&parse_json(&read(&config)?, &config.to_string_lossy())?)
        } else {
            RoleHints::new()
        };
        Self::build(&read(path)?, &path.to_string_lossy(), &hints)
    }

    /// Loads the text of a `tokenizer.json`; `name` stands for the file in messages.
    ///
    /// # Errors
    /// As [`Vocabulary::from_file`].
    pub fn from_json(json: impl AsRef<[u8]>, name: &str) -> Result<Self, AlignError> {
        Self::build(json.as_ref(), name, &RoleHints::new())
    }

    fn build(json: &[u8], name: &str, hints: &RoleHints) -> Result<Self, AlignError> {
        let file = TokenizerFile::parse(json, name)?;
        let tables = Tables::new(&file, hints)?;
        let mut literals: Vec<(&str, u32)> = file
            .added
            .iter()
            .filter(|token| !token.content.is_empty())
            .map(|token| (token.content.as_str(), token.id))
            .collect();
        literals.sort_by_key(|(content, id)| (std::cmp::Reverse(content.len()), *id));
        let literals = literals.into_iter().map(|(_, id)| id).collect();
        let encoder = Encoder::new(
            file.spelling,
            Splitter::new(&file)?,
            model(&file)?,
            tables.len(),
        );
        let inner = Arc::new(Inner {
            tables,
            encoder,
            literals,
        });
        Ok(Self {
            inner,
            ids: PhantomData,
        })
    }

    /// The same tokenizer in the other role, sharing the tables: for a drafter and a target with
    /// one vocabulary.
    pub fn retag<J: TokenId>(&self) -> Vocabulary<J> {
        Vocabulary {
            inner: Arc::clone(&self.inner),
            ids: PhantomData,
        }
    }

    /// Largest id plus one, added tokens included. A model's vocabulary may be larger (padding
    /// rows of its embedding), never smaller.
    pub fn len(&self) -> usize {
        self.tables().len()
    }

    /// Whether there are no tokens at all.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The file, or the name given to [`Vocabulary::from_json`].
    pub fn file(&self) -> &str {
        &self.tables().file
    }

    /// A hash of all ids, strings and kinds; equal for equal revisions of a tokenizer.
    pub fn fingerprint(&self) -> u64 {
        self.tables().fingerprint
    }

    /// The text of a token, never empty. `None`: a special token, or an id without a token.
    pub fn bytes(&self, id: I) -> Option<&[u8]> {
        self.tables().bytes(id.get())
    }

    /// The token's string as the file has it, for display. `None`: an id without a token.
    pub fn content(&self, id: I) -> Option<&str> {
        self.tables().content(id.get())
    }

    /// The role of a special token. `None`: a token with text, or an id without a token.
    pub fn role(&self, id: I) -> Option<SpecialRole> {
        self.tables().role(id.get())
    }

    /// The special token with this role, the lowest id if there are several.
    pub fn special(&self, role: SpecialRole) -> Option<I> {
        self.specials()
            .find(|(_, other)| *other == role)
            .map(|(id, _)| id)
    }

    /// The name of a special token that says something by its name alone: a chat or tool marker,
    /// of [`SpecialRole::Other`]. A drafter without a counterpart reads and drafts it as this text.
    pub fn marker(&self, id: I) -> Option<&str> {
        (self.role(id) == Some(SpecialRole::Other))
            .then(|| self.content(id))
            .flatten()
    }

    /// All special tokens by ascending id.
    pub fn specials(&self) -> impl Iterator<Item = (I, SpecialRole)> + '_ {
        self.tables()
            .specials
            .iter()
            .map(|(id, role)| (I::new(*id), *role))
    }

    /// The canonical token with exactly these bytes: a model token before an added or a
    /// byte-fallback one, then the lowest id.
    pub fn find_bytes(&self, bytes: &[u8]) -> Option<I> {
        self.tables().find_bytes(bytes).map(I::new)
    }

    /// The token with this string in the file.
    pub fn find_content(&self, content: &str) -> Option<I> {
        self.tables().find_content(content).map(I::new)
    }

    /// Text to tokens, byte for byte: no dummy prefix, no normalisation, no special tokens added,
    /// and text that looks like a special token stays text.
    ///
    /// # Errors
    /// [`AlignError::Unspellable`] for a vocabulary without byte tokens.
    pub fn encode(&self, text: &str) -> Result<Vec<I>, AlignError> {
        self.encode_bytes(text.as_bytes())
    }

    /// As [`Vocabulary::encode`] for any bytes; what is not UTF-8 takes byte tokens.
    ///
    /// # Errors
    /// As [`Vocabulary::encode`].
    pub fn encode_bytes(&self, bytes: &[u8]) -> Result<Vec<I>, AlignError> {
        let mut segmentation = Segmentation::default();
        self.segment(bytes, &mut segmentation)?;
        Ok(segmentation.ids.into_iter().map(I::new).collect())
    }

    /// As [`Vocabulary::encode`], except that the literal text of added tokens, such as chat
    /// markers, becomes these tokens. The longest one wins where several match.
    ///
    /// # Errors
    /// As [`Vocabulary::encode`].
    pub fn encode_with_specials(&self, text: &str) -> Result<Vec<I>, AlignError> {
        self.encode_between(text, "", "")
    }

    /// The tokens of `before`, `text` and `after` as one text, in which the literal text of added
    /// tokens becomes these tokens in `before` and `after` only: a prompt between the words of its
    /// chat template. Text that meets at a seam is tokenised together, as it would be without one.
    ///
    /// # Errors
    /// As [`Vocabulary::encode`].
    pub fn encode_between(
        &self,
        before: &str,
        text: &str,
        after: &str,
    ) -> Result<Vec<I>, AlignError> {
        let mut ids = Vec::new();
        let mut plain = String::new();
        for (part, marked) in [(before, true), (text, false), (after, true)] {
            let (mut start, mut at) = (0, 0);
            while marked && at < part.len() {
                let Some((id, len)) = self.literal_at(&part.as_bytes()[at..]) else {
                    at += 1;
                    continue;
                };
                plain.push_str(&part[start..at]);
                ids.extend(self.encode(&plain)?);
                plain.clear();
                ids.push(id);
                at += len;
                start = at;
            }
            plain.push_str(&part[start..]);
        }
        ids.extend(self.encode(&plain)?);
        Ok(ids)
    }

    /// The added token that `bytes` starts with. Matches begin and end at character boundaries
    /// because both sides are UTF-8.
    fn literal_at(&self, bytes: &[u8]) -> Option<(I, usize)> {
        self.inner.literals.iter().find_map(|id| {
            let content = self.tables().content(*id)?.as_bytes();
            (bytes.first() == content.first() && bytes.starts_with(content))
                .then(|| (I::new(*id), content.len()))
        })
    }

    /// The bytes of the tokens, exactly: no clean-up of spaces; special tokens and ids without a
    /// token contribute nothing.
    pub fn decode_bytes(&self, ids: &[I]) -> Vec<u8> {
        ids.iter()
            .filter_map(|id| self.bytes(*id))
            .flatten()
            .copied()
            .collect()
    }

    /// [`Vocabulary::decode_bytes`] as text, with U+FFFD for bytes that are not UTF-8.
    pub fn decode_lossy(&self, ids: &[I]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids)).into_owned()
    }

    /// The length in bytes of each token, 0 for special tokens: the input of
    /// [`align_offsets`](crate::align_offsets).
    pub fn byte_lengths(&self, ids: &[I]) -> Vec<usize> {
        ids.iter()
            .map(|id| self.bytes(*id).map_or(0, <[u8]>::len))
            .collect()
    }

    /// The first byte that the vocabulary cannot spell on its own; `None` if it spells any text.
    pub fn missing_byte(&self) -> Option<u8> {
        self.tables().missing_byte()
    }

    /// Whether this is a byte-fallback token `<0xNN>`.
    pub fn is_byte_fallback(&self, id: I) -> bool {
        self.tables().kind(id.get()) == Kind::Byte
    }

    /// The sign for a word-initial space in this vocabulary's strings.
    pub(crate) fn space_sign(&self) -> char {
        self.inner.encoder.spelling.space()
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.inner.tables
    }

    /// Replaces the content of `out` by the tokens and piece boundaries of `bytes`.
    pub(crate) fn segment(&self, bytes: &[u8], out: &mut Segmentation) -> Result<(), AlignError> {
        out.clear();
        self.inner.encoder.encode(self.tables(), bytes, out)
    }

    /// Fails for ids at or beyond [`Vocabulary::len`].
    pub(crate) fn check_id(&self, id: I) -> Result<(), AlignError> {
        if id.index() < self.len() {
            return Ok(());
        }
        Err(AlignError::UnknownId {
            file: self.file().to_owned(),
            id: id.get(),
            len: self.len(),
        })
    }
}

/// The `tokenizers` model of a checked file.
fn model(file: &TokenizerFile) -> Result<ModelWrapper, AlignError> {
    let model = if file.model["merges"].is_array() {
        BPE::deserialize(&file.model).map(ModelWrapper::BPE)
    } else {
        Unigram::deserialize(&file.model).map(ModelWrapper::Unigram)
    };
    model.map_err(|error| AlignError::Key {
        file: file.name.clone(),
        key: "model".to_owned(),
        message: error.to_string(),
    })
}
