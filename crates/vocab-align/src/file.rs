//! A `tokenizer.json`: as it is written, and the parts that alignment needs, which are checked
//! before anything is built from them.

use rustc_hash::FxHashMap;
use serde::Deserialize;
use serde_json::Value;

use crate::error::AlignError;
use crate::spelling::Spelling;

/// Bound of ids. An id that is not below it counts as damage, because tables are as long as the
/// largest id.
const MAX_ID: u64 = 1 << 24;

/// The parts of a `tokenizer.json` that alignment needs, checked.
pub(crate) struct TokenizerFile {
    pub(crate) name: String,
    pub(crate) spelling: Spelling,
    pub(crate) byte_fallback: bool,
    /// Model tokens in no particular order, with distinct ids.
    pub(crate) tokens: Vec<(String, u32)>,
    pub(crate) unk: Option<String>,
    /// All of the file, its model without dropout and safe to hand to the `tokenizers` crate.
    pub(crate) raw: RawFile,
    /// Number of rows of the embedding of the model that reads these tokens, if known.
    pub(crate) rows: Option<usize>,
    /// True if the names of special tokens are ordinary text in every text
    /// (`split_special_tokens`).
    pub(crate) splits_specials: bool,
}

/// An entry of `added_tokens`.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
pub(crate) struct AddedToken {
    pub(crate) id: u32,
    pub(crate) content: String,
    #[serde(default)]
    pub(crate) special: bool,
    /// True if the token is found only as a word of its own.
    #[serde(default)]
    pub(crate) single_word: bool,
    /// True if the token absorbs white space before it.
    #[serde(default)]
    pub(crate) lstrip: bool,
    /// True if the token absorbs white space after it.
    #[serde(default)]
    pub(crate) rstrip: bool,
    /// True if the token is looked up by its normalised name in normalised text.
    pub(crate) normalized: Option<bool>,
}

impl AddedToken {
    /// A special token that absorbs no white space.
    pub(crate) fn plain(id: u32, content: &str) -> Self {
        Self {
            id,
            content: content.to_owned(),
            special: true,
            single_word: false,
            lstrip: false,
            rstrip: false,
            normalized: Some(false),
        }
    }
}

/// The file as parsed.
#[derive(Default, Deserialize)]
pub(crate) struct RawFile {
    #[serde(default)]
    pub(crate) added_tokens: Vec<AddedToken>,
    #[serde(default)]
    pub(crate) normalizer: Value,
    #[serde(default)]
    pub(crate) pre_tokenizer: Value,
    #[serde(default)]
    pub(crate) post_processor: Value,
    #[serde(default)]
    pub(crate) decoder: Value,
    pub(crate) model: Value,
}

impl RawFile {
    /// Sets a post-processor that adds a token before every text.
    pub(crate) fn open_with(&mut self, token: &str, id: usize) {
        let opening = serde_json::json!({ "SpecialToken": { "id": token, "type_id": 0 } });
        let text = serde_json::json!({ "Sequence": { "id": "A", "type_id": 0 } });
        let second = serde_json::json!({ "Sequence": { "id": "B", "type_id": 1 } });
        self.post_processor = serde_json::json!({
            "type": "TemplateProcessing",
            "single": [opening, text],
            "pair": [opening, text, second],
            "special_tokens": { token: { "id": token, "ids": [id], "tokens": [token] } },
        });
    }

    /// True if the strings of tokens are in the byte-level alphabet.
    pub(crate) fn is_byte_level(&self) -> bool {
        mentions(&self.pre_tokenizer, "ByteLevel") || mentions(&self.decoder, "ByteLevel")
    }
}

/// The strings and ids of `model.vocab`, and the unknown token's string.
type ModelTokens = (Vec<(String, u32)>, Option<String>);

/// A JSON file without its byte order mark (U+FEFF), which some editors write.
pub fn without_mark(json: &[u8]) -> &[u8] {
    json.strip_prefix("\u{feff}".as_bytes()).unwrap_or(json)
}

/// Parses JSON into `T`; errors carry line, column and key.
pub(crate) fn parse_json<T: for<'de> Deserialize<'de>>(
    json: &[u8],
    name: &str,
) -> Result<T, AlignError> {
    let mut reader = serde_json::Deserializer::from_slice(without_mark(json));
    let to_error = |key: String, error: serde_json::Error| AlignError::Json {
        file: name.to_owned(),
        line: error.line(),
        column: error.column(),
        // A key that breaks off is shown as `?`.
        key: key.trim_end_matches(".?").to_owned(),
        message: if error.is_eof() {
            "the file ends in the middle of a value; is it truncated?".to_owned()
        } else {
            error.to_string()
        },
    };
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| to_error(error.path().to_string(), error.into_inner()))?;
    reader
        .end()
        .map_err(|error| to_error(".".to_owned(), error))?;
    Ok(value)
}

impl TokenizerFile {
    /// Checks a file with the settings beside it applied; `splits_specials` is one of them.
    pub(crate) fn new(
        raw: RawFile,
        name: &str,
        splits_specials: bool,
        rows: Option<usize>,
    ) -> Result<Self, AlignError> {
        let byte_fallback = raw.model["byte_fallback"].as_bool().unwrap_or(false)
            || mentions(&raw.decoder, "ByteFallback");
        let spelling = if raw.is_byte_level() {
            Spelling::ByteLevel
        } else if writes_space_sign(&raw) {
            Spelling::SpaceSign
        } else {
            Spelling::Plain
        };
        let mut file = Self {
            name: name.to_owned(),
            spelling,
            byte_fallback,
            tokens: Vec::new(),
            unk: None,
            raw,
            rows,
            splits_specials,
        };
        if mentions(&file.raw.normalizer, "ByteLevel") {
            return Err(file.unsupported("normalizer", "a ByteLevel normalizer"));
        }
        (file.tokens, file.unk) = file.model(&file.raw.model)?;
        file.check_added()?;
        let beyond = |(_, id): &&(String, u32)| !file.has_row(*id);
        if let (Some(rows), Some((content, id))) = (rows, file.tokens.iter().find(beyond)) {
            let message = format!(
                "id {id} is beyond the {rows} rows of the model's embedding (`vocab_size`)"
            );
            return Err(file.key(format!("model.vocab[{content:?}]"), message));
        }
        if let Some(fields) = file.raw.model.as_object_mut() {
            // Dropout makes encoding random; the canonical tokens are those without it.
            fields.remove("dropout");
        }
        Ok(file)
    }

    pub(crate) fn has_row(&self, id: u32) -> bool {
        self.rows.is_none_or(|rows| (id as usize) < rows)
    }

    /// A stage of the library's pipeline; `None` if the file has none.
    pub(crate) fn component<T: for<'de> Deserialize<'de>>(
        &self,
        key: &str,
        value: &Value,
    ) -> Result<Option<T>, AlignError> {
        if value.is_null() {
            return Ok(None);
        }
        T::deserialize(value)
            .map(Some)
            .map_err(|error| self.key(key, error.to_string()))
    }

    pub(crate) fn key(&self, key: impl Into<String>, message: impl Into<String>) -> AlignError {
        AlignError::Key {
            file: self.name.clone(),
            key: key.into(),
            message: message.into(),
        }
    }

    pub(crate) fn unsupported(&self, key: &str, what: impl Into<String>) -> AlignError {
        AlignError::Unsupported {
            file: self.name.clone(),
            key: key.to_owned(),
            what: what.into(),
            hint: "byte-level and SentencePiece-style BPE or Unigram tokenizers are",
        }
    }

    fn model(&self, model: &Value) -> Result<ModelTokens, AlignError> {
        // Old files leave the type out; only BPE has merges.
        let kind = match (&model["type"], &model["merges"]) {
            (Value::String(kind), _) => kind.as_str(),
            (_, Value::Array(_)) => "BPE",
            _ => return Err(self.key("model.type", "is missing")),
        };
        match kind {
            "BPE" => self.bpe(model),
            "Unigram" => self.unigram(model),
            other => Err(self.unsupported("model.type", format!("a {other} model"))),
        }
    }

    fn bpe(&self, model: &Value) -> Result<ModelTokens, AlignError> {
        for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if model[key].as_str().is_some_and(|affix| !affix.is_empty()) {
                return Err(self.unsupported(&format!("model.{key}"), "a subword affix"));
            }
        }
        let vocab = model["vocab"]
            .as_object()
            .ok_or_else(|| self.key("model.vocab", "must be an object of token strings and ids"))?;
        let mut tokens = Vec::with_capacity(vocab.len());
        let mut owner: FxHashMap<u32, &str> = FxHashMap::default();
        for (content, id) in vocab {
            let key = || format!("model.vocab[{content:?}]");
            let id = id
                .as_u64()
                .filter(|id| *id < MAX_ID)
                .ok_or_else(|| self.key(key(), format!("{id} is not a token id below {MAX_ID}")))?;
            if let Some(other) = owner.insert(id as u32, content) {
                return Err(self.key(key(), format!("id {id} is already taken by {other:?}")));
            }
            tokens.push((content.clone(), id as u32));
        }
        self.merges(model, vocab)?;
        Ok((tokens, model["unk_token"].as_str().map(str::to_owned)))
    }

    /// Checks that every merge joins two tokens into a third.
    fn merges(
        &self,
        model: &Value,
        vocab: &serde_json::Map<String, Value>,
    ) -> Result<(), AlignError> {
        let merges = model["merges"]
            .as_array()
            .ok_or_else(|| self.key("model.merges", "must be a list of pairs"))?;
        let mut joined = String::new();
        for (rank, merge) in merges.iter().enumerate() {
            let key = || format!("model.merges[{rank}]");
            let pair = match merge {
                Value::String(line) => line.split_once(' '),
                Value::Array(pair) if pair.len() == 2 => pair[0].as_str().zip(pair[1].as_str()),
                _ => None,
            };
            let (left, right) =
                pair.ok_or_else(|| self.key(key(), format!("{merge} is not a pair of tokens")))?;
            joined.clear();
            joined.push_str(left);
            joined.push_str(right);
            for token in [left, right, &joined] {
                if !vocab.contains_key(token) {
                    return Err(self.key(key(), format!("token {token:?} is not in model.vocab")));
                }
            }
        }
        Ok(())
    }

    fn unigram(&self, model: &Value) -> Result<ModelTokens, AlignError> {
        let vocab = model["vocab"]
            .as_array()
            .ok_or_else(|| self.key("model.vocab", "must be a list of token strings and scores"))?;
        let mut tokens = Vec::with_capacity(vocab.len());
        for (id, entry) in vocab.iter().enumerate() {
            let content = entry[0]
                .as_str()
                .filter(|_| entry[1].is_number())
                .ok_or_else(|| {
                    self.key(
                        format!("model.vocab[{id}]"),
                        format!("{entry} is not a token and its score"),
                    )
                })?;
            tokens.push((content.to_owned(), id as u32));
        }
        let id = &model["unk_id"];
        if id.is_null() {
            // The library refuses every text with a character that no token has.
            return Err(self.unsupported("model.unk_id", "a Unigram model without unknown token"));
        }
        let token = id.as_u64().and_then(|id| tokens.get(id as usize));
        let token =
            token.ok_or_else(|| self.key("model.unk_id", format!("{id} is not a token id")))?;
        let unk = Some(token.0.clone());
        Ok((tokens, unk))
    }

    fn check_added(&self) -> Result<(), AlignError> {
        let added = &self.raw.added_tokens;
        match added.iter().position(|token| u64::from(token.id) >= MAX_ID) {
            Some(i) => Err(self.key(
                format!("added_tokens[{i}].id"),
                format!("{} is not a token id below {MAX_ID}", added[i].id),
            )),
            None => Ok(()),
        }
    }
}

/// True if a component, or one inside a `Sequence`, has this type.
fn mentions(component: &Value, kind: &str) -> bool {
    component["type"] == kind
        || ["normalizers", "pretokenizers", "decoders"]
            .iter()
            .filter_map(|key| component[*key].as_array())
            .flatten()
            .any(|part| mentions(part, kind))
}

fn writes_space_sign(raw: &RawFile) -> bool {
    let replaces = |component: &Value| {
        mentions(component, "Replace")
            && component.to_string().contains(crate::spelling::SPACE_SIGN)
    };
    mentions(&raw.pre_tokenizer, "Metaspace")
        || mentions(&raw.decoder, "Metaspace")
        || replaces(&raw.normalizer)
        || replaces(&raw.decoder)
}
