//! A tokenizer as byte strings: loading, looking up, encoding, decoding.

use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::sync::Arc;

use crate::beside::Beside;
use crate::error::AlignError;
use crate::file::{AddedToken, TokenizerFile};
use crate::ids::TokenId;
use crate::pieces::PIECES;
use crate::pipeline::{Pipeline, Segmentation};
use crate::prefix::Opening;
use crate::roles::SpecialRole;
use crate::tables::Tables;

/// A tokenizer whose tokens are byte strings.
///
/// Reads any Hugging Face `tokenizer.json` with a BPE or Unigram model, whether its strings are in
/// the byte-level alphabet (Llama-3, Qwen2) or in SentencePiece's (`▁`, `<0xNN>`).
///
/// Ids are those of the `tokenizers` library, normalisation and unknown tokens included, for whole
/// texts ([`encode_whole`](Self::encode_whole), [`encode_with_specials`](Self::encode_with_specials))
/// and for text in the middle of other text ([`encode`](Self::encode)).
///
/// Clones share their tables.
pub struct Vocabulary<I: TokenId> {
    inner: Arc<Inner>,
    ids: PhantomData<fn() -> I>,
}

struct Inner {
    pipeline: Pipeline,
    /// Added tokens by ascending id.
    added: Vec<AddedToken>,
    /// Tokens that the post-processor adds around a text.
    frame: Vec<u32>,
    /// Added tokens beyond the rows of the model's embedding.
    beyond: Vec<(u32, String)>,
    rows: Option<usize>,
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
    /// Loads a `tokenizer.json`, as transformers 5 does. `tokenizer_config.json`,
    /// `special_tokens_map.json` and `added_tokens.json` beside it name special tokens and add
    /// others, and some classes that the first one names have a pipeline of their own. If there is
    /// no `tokenizer.json`, SentencePiece's `tokenizer.model` is read.
    ///
    /// # Errors
    /// A file that cannot be read, is cut short or malformed, or needs an unsupported feature.
    pub fn from_file(path: &Path) -> Result<Self, AlignError> {
        Self::load(path, None)
    }

    fn load(path: &Path, rows: Option<usize>) -> Result<Self, AlignError> {
        let read = |path: &Path| {
            std::fs::read(path).map_err(|source| AlignError::Read {
                path: path.to_owned(),
                source,
            })
        };
        let folder = path.parent().unwrap_or(Path::new(""));
        let beside = match path.ends_with("tokenizer_config.json") {
            true => Beside::nothing(),
            false => Beside::read(folder)?,
        };
        // Older models have only SentencePiece's own file.
        let own = path.with_file_name(PIECES);
        let file = match path.exists() || !own.is_file() {
            true => path,
            false => &own,
        };
        Self::build(&read(file)?, &file.to_string_lossy(), &beside, rows)
    }

    /// As [`Vocabulary::from_file`], for a model whose embedding has `rows` rows. An added token
    /// beyond them is not in the vocabulary, and is an error if a text holds it.
    ///
    /// # Errors
    /// As [`Vocabulary::from_file`]; a token of the tokenizer's model beyond the embedding.
    pub fn from_file_for(path: &Path, rows: usize) -> Result<Self, AlignError> {
        Self::load(path, Some(rows))
    }

    /// Loads the content of a `tokenizer.json`; `name` replaces the file's path in messages.
    ///
    /// # Errors
    /// As [`Vocabulary::from_file`].
    pub fn from_json(json: impl AsRef<[u8]>, name: &str) -> Result<Self, AlignError> {
        Self::build(json.as_ref(), name, &Beside::nothing(), None)
    }

    fn build(
        json: &[u8],
        name: &str,
        beside: &Beside,
        rows: Option<usize>,
    ) -> Result<Self, AlignError> {
        let raw = beside.tokenizer(json, name)?;
        let file = TokenizerFile::new(raw, name, beside.splits_specials(), rows)?;
        let tables = Tables::new(&file, &beside.hints())?;
        let pipeline = Pipeline::new(&file, tables)?;
        let added = &file.raw.added_tokens;
        let beyond = added.iter().filter(|token| !file.has_row(token.id));
        let beyond = beyond.map(|token| (token.id, token.content.clone()));
        let mut added = added.clone();
        added.sort_by_key(|token| token.id);
        let inner = Arc::new(Inner {
            frame: pipeline.whole("", true)?,
            pipeline,
            added,
            beyond: beyond.collect(),
            rows,
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

    /// True if there are no tokens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Path of the file, or the name given to [`Vocabulary::from_json`].
    pub fn file(&self) -> &str {
        &self.tables().file
    }

    /// Hash of all ids, strings and kinds. It is equal for equal revisions of a tokenizer.
    pub fn fingerprint(&self) -> u64 {
        self.tables().fingerprint
    }

    /// The text of a token, never empty. `None` for a special token or an id without a token.
    pub fn bytes(&self, id: I) -> Option<&[u8]> {
        self.tables().bytes(id.get())
    }

    /// The token's string as the file has it, for display. `None` for an id without a token.
    pub fn content(&self, id: I) -> Option<&str> {
        self.tables().content(id.get())
    }

    /// Role of a special token. `None` for a token with text or an id without a token.
    pub fn role(&self, id: I) -> Option<SpecialRole> {
        self.tables().role(id.get())
    }

    /// The special token with this role, the lowest id if there are several.
    pub fn special(&self, role: SpecialRole) -> Option<I> {
        self.specials()
            .find(|(_, other)| *other == role)
            .map(|(id, _)| id)
    }

    /// Name of a marker: a special token of role [`SpecialRole::Other`], such as a chat or tool
    /// marker, whose name carries its meaning. A drafter without a counterpart reads and drafts it
    /// as this text.
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

    /// The canonical token with exactly these bytes: a model token, else an added one, else a
    /// byte-fallback one; the lowest id of several.
    pub fn find_bytes(&self, bytes: &[u8]) -> Option<I> {
        self.tables().find_bytes(bytes).map(I::new)
    }

    /// The token with this string in the file.
    pub fn find_content(&self, content: &str) -> Option<I> {
        self.tables().find_content(content).map(I::new)
    }

    /// Tokenises text that stands inside other text: no dummy prefix, no special tokens added, and
    /// text that looks like a special token stays text. Added tokens that are not special are
    /// found, as the library finds them in any text.
    ///
    /// # Errors
    /// [`AlignError::Tokenise`] if the tokenizer refuses the text.
    pub fn encode(&self, text: &str) -> Result<Vec<I>, AlignError> {
        self.encode_bytes(text.as_bytes())
    }

    /// As [`Vocabulary::encode`] for any bytes. Bytes that are not UTF-8 become byte tokens; if the
    /// vocabulary lacks these, the unknown token or nothing.
    ///
    /// # Errors
    /// As [`Vocabulary::encode`].
    pub fn encode_bytes(&self, bytes: &[u8]) -> Result<Vec<I>, AlignError> {
        Ok(self.encode_with_lengths(bytes)?.0)
    }

    /// As [`Vocabulary::encode_bytes`], with the number of bytes of the text that each token stands
    /// for. This may differ from the token's own length, if the text is normalised or a character
    /// is unknown. The lengths add up to at most `bytes.len()`.
    ///
    /// # Errors
    /// As [`Vocabulary::encode`].
    pub fn encode_with_lengths(&self, bytes: &[u8]) -> Result<(Vec<I>, Vec<usize>), AlignError> {
        let mut segmentation = Segmentation::default();
        self.segment(bytes, Opening::Middle, &mut segmentation)?;
        let lengths = segmentation.lengths();
        Ok((typed(segmentation.ids), lengths))
    }

    /// Tokens whose bytes are exactly `bytes`: those of [`Vocabulary::encode_bytes`] if they have
    /// these bytes, else tokens of the characters and bytes, up to the first one that has none.
    ///
    /// # Errors
    /// As [`Vocabulary::encode`].
    pub fn spell(&self, bytes: &[u8]) -> Result<Vec<I>, AlignError> {
        let mut pieces = Segmentation::default();
        self.segment(bytes, Opening::Middle, &mut pieces)?;
        let mut ids: Vec<u32> = Vec::with_capacity(pieces.ids.len());
        let (mut byte, mut token) = (0, 0);
        let ends = pieces.pieces.iter().map(|end| (end.byte, end.token));
        for (byte_end, token_end) in ends.chain([(bytes.len(), pieces.ids.len())]) {
            let text = &bytes[byte..byte_end];
            let canonical = &pieces.ids[token..token_end];
            if self.tables().spells(canonical, text) {
                ids.extend(canonical);
            } else if !self.tables().spell(text, &mut ids) {
                break;
            }
            (byte, token) = (byte_end, token_end);
        }
        Ok(typed(ids))
    }

    /// Tokenises a whole text as the library does. The literal names of added tokens, such as chat
    /// markers, become these tokens, and the post-processor adds its own (a beginning of text, if
    /// the tokenizer has one).
    ///
    /// # Errors
    /// As [`Vocabulary::encode`]; a token beyond the model's embedding.
    pub fn encode_whole(&self, text: &str) -> Result<Vec<I>, AlignError> {
        self.fed(self.inner.pipeline.whole(text, true)?)
    }

    /// As [`Vocabulary::encode_whole`] without the post-processor's tokens, for a text that a chat
    /// template wrote.
    ///
    /// # Errors
    /// As [`Vocabulary::encode_whole`].
    pub fn encode_with_specials(&self, text: &str) -> Result<Vec<I>, AlignError> {
        self.fed(self.inner.pipeline.whole(text, false)?)
    }

    /// As [`Vocabulary::encode_with_specials`], except that names of special tokens are ordinary
    /// text inside the byte ranges `bodies`: several prompts between the parts of a chat template,
    /// in which they cannot place markers. With `framed`, the post-processor's tokens are added.
    ///
    /// # Errors
    /// As [`Vocabulary::encode_whole`].
    pub fn encode_around(
        &self,
        text: &str,
        bodies: &[std::ops::Range<usize>],
        framed: bool,
    ) -> Result<Vec<I>, AlignError> {
        let pipeline = &self.inner.pipeline;
        self.fed(pipeline.whole_with_text(text, bodies, framed)?)
    }

    /// Ids of a text, checked to have rows in the model's embedding.
    fn fed(&self, ids: Vec<u32>) -> Result<Vec<I>, AlignError> {
        let beyond = |(id, _): &&(u32, String)| ids.contains(id);
        match self.inner.beyond.iter().find(beyond) {
            None => Ok(typed(ids)),
            Some((id, content)) => Err(AlignError::Beyond {
                file: self.file().to_owned(),
                token: content.clone(),
                id: *id,
                rows: self.inner.rows.unwrap_or_default(),
            }),
        }
    }

    /// The exact bytes of the tokens, without any clean-up of spaces. Special tokens and ids
    /// without a token contribute nothing.
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

    /// Length in bytes of each token, 0 for special tokens. It is the input of
    /// [`align_offsets`](crate::align_offsets).
    pub fn byte_lengths(&self, ids: &[I]) -> Vec<usize> {
        ids.iter()
            .map(|id| self.bytes(*id).map_or(0, <[u8]>::len))
            .collect()
    }

    /// The character for a word-initial space in this vocabulary's strings.
    pub(crate) fn space_sign(&self) -> char {
        self.inner.pipeline.spelling.space()
    }

    pub(crate) fn tables(&self) -> &Tables {
        &self.inner.pipeline.tables
    }

    /// Replaces the content of `out` by the tokens and piece boundaries of `bytes`.
    pub(crate) fn segment(
        &self,
        bytes: &[u8],
        opening: Opening,
        out: &mut Segmentation,
    ) -> Result<(), AlignError> {
        out.clear();
        self.inner.pipeline.encode(bytes, opening, out)
    }

    /// The kind of opening of text after these tokens.
    pub(crate) fn opening_after(&self, ids: &[I]) -> Opening {
        let framed = ids
            .iter()
            .map(|id| id.get())
            .eq(self.inner.frame.iter().copied());
        match ids.last() {
            None => Opening::Text,
            Some(_) if framed => Opening::Text,
            Some(last) if self.added(*last).is_some() => Opening::Added,
            Some(_) => Opening::Middle,
        }
    }

    /// True if the tokenizer writes a dummy prefix before text with this opening.
    pub(crate) fn prefixes(&self, opening: Opening) -> bool {
        self.inner.pipeline.prefix.applies(opening)
    }

    /// True if a cut is final only once white space follows it.
    pub(crate) fn far_sighted(&self) -> bool {
        self.inner.pipeline.far_sighted
    }

    /// Two flags: true if this added token absorbs white space before it, and after it.
    pub(crate) fn strips(&self, id: I) -> (bool, bool) {
        self.added(id)
            .map_or((false, false), |token| (token.lstrip, token.rstrip))
    }

    fn added(&self, id: I) -> Option<&AddedToken> {
        let added = &self.inner.added;
        let at = added.binary_search_by_key(&id.get(), |token| token.id);
        added.get(at.ok()?)
    }
}

fn typed<I: TokenId>(ids: Vec<u32>) -> Vec<I> {
    ids.into_iter().map(I::new).collect()
}
