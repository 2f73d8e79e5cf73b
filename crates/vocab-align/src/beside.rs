//! Files beside `tokenizer.json` that change its effect: `tokenizer_config.json`,
//! `special_tokens_map.json`, `added_tokens.json`, and `config.json`, which names the kind of
//! model. They, and the tokenizer's own file, are read as transformers 5 reads them.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value, json};

use crate::class::Class;
use crate::error::AlignError;
use crate::file::{AddedToken, RawFile, parse_json, without_mark};
use crate::named::{Entries, Named, Specials};
use crate::pieces::{self, PIECES, Reading};
use crate::roles::{RoleHints, SpecialRole};

/// File that names special tokens and has other settings.
const CONFIG: &str = "tokenizer_config.json";
/// File of older models that names special tokens.
const SPECIAL_MAP: &str = "special_tokens_map.json";
/// File of older models with tokens beyond the vocabulary and their ids.
const ADDED: &str = "added_tokens.json";

/// Settings in the files beside a `tokenizer.json`.
pub(crate) struct Beside {
    config: Map<String, Value>,
    specials: Specials,
    /// Tokens with ids, as older files list them.
    added: Vec<AddedToken>,
    /// True if `added_tokens_decoder` lists the added tokens.
    newer: bool,
    class: Class,
    /// Path of `tokenizer_config.json`.
    file: String,
}

/// Special tokens of a model folder by the names that a chat template uses: `bos_token`,
/// `eos_token` and all others that its files give.
///
/// # Errors
/// A file that cannot be read, is malformed, or names something that is not a token.
pub fn special_names(folder: &Path) -> Result<BTreeMap<String, String>, AlignError> {
    let beside = Beside::read(folder)?;
    let names = beside.specials.named.into_iter();
    let names = names.map(|(name, token)| (name, token.added.content));
    Ok(names.collect())
}

impl Beside {
    /// Settings without any file.
    pub(crate) fn nothing() -> Self {
        Self {
            config: Map::new(),
            specials: Specials::default(),
            added: Vec::new(),
            newer: false,
            class: Class::AsWritten,
            file: CONFIG.to_owned(),
        }
    }

    /// Reads those of the files that a folder has.
    pub(crate) fn read(folder: &Path) -> Result<Self, AlignError> {
        let (config, mut entries) = object(folder, CONFIG)?.unwrap_or_default();
        let mut beside = Self {
            class: class(&config, folder)?,
            newer: config.contains_key("added_tokens_decoder"),
            file: folder.join(CONFIG).to_string_lossy().into_owned(),
            ..Self::nothing()
        };
        // A file that cannot be read is reported by the reader of the vocabulary.
        let own = match folder.join("tokenizer.json").is_file() {
            true => None,
            false => std::fs::read(folder.join(PIECES)).ok(),
        };
        beside.defaults(&mut entries, own.as_deref());
        // Newer files list everything in `added_tokens_decoder`; older ones are then ignored.
        let map = match beside.newer {
            true => None,
            false => object(folder, SPECIAL_MAP)?.map(|(_, entries)| entries),
        };
        beside.specials =
            Specials::of(entries, map, beside.class.own_names()).map_err(|(older, key)| {
                let file = if older { SPECIAL_MAP } else { CONFIG };
                let message = "must be a text, or an object with a text `content`";
                fault(folder, file, &key, message)
            })?;
        if let Some(decoder) = config.get("added_tokens_decoder") {
            beside.added = decoded(folder, decoder)?;
        } else {
            for (content, id) in object(folder, ADDED)?.into_iter().flat_map(|(map, _)| map) {
                let special = beside.specials.is_special(&content);
                let key = format!("[{content:?}]");
                beside.added.push(AddedToken {
                    special,
                    normalized: Some(!special),
                    ..AddedToken::plain(number(folder, ADDED, &key, &id)?, &content)
                });
            }
        }
        beside.config = config;
        Ok(beside)
    }

    /// Adds the special tokens that a class names by default, unless the file names them. Without a
    /// class they are those of `own`, the content of a `tokenizer.model`.
    fn defaults(&self, entries: &mut Entries, own: Option<&[u8]>) {
        let of_class = self.class.standard_names().iter();
        let of_class = of_class.map(|(name, content)| (*name, (*content).to_owned()));
        let names = match own {
            Some(bytes) if self.class == Class::AsWritten => pieces::named(bytes),
            _ => of_class.collect(),
        };
        for (name, content) in names {
            if !entries.has(name) {
                entries.set(name, json!(content));
            }
        }
    }

    /// Reads a `tokenizer.json` or `tokenizer.model` as transformers does beside these files.
    pub(crate) fn tokenizer(&self, bytes: &[u8], name: &str) -> Result<RawFile, AlignError> {
        let own = name.ends_with(PIECES);
        let mut raw: RawFile = match own {
            true => pieces::read(bytes, name, &self.pieces())?,
            false => parse_json(bytes, name)?,
        };
        self.apply(&mut raw, own)?;
        Ok(raw)
    }

    /// Settings for reading a `tokenizer.model` beside these files.
    fn pieces(&self) -> Reading {
        let flag = |key: &str| self.config.get(key).and_then(Value::as_bool);
        let opens = flag("add_bos_token").unwrap_or(self.class == Class::CodeLlama);
        let opening = self.specials.get("bos_token").filter(|_| opens);
        let id_and_name = |token: &AddedToken| (token.id, token.content.clone());
        Reading {
            classed: self.class.writes_space_sign(),
            legacy: flag("legacy").unwrap_or(true),
            opening: opening.map(|token| token.content().to_owned()),
            names: self.added.iter().map(id_and_name).collect(),
        }
    }

    /// True if the names of special tokens are ordinary text in every text.
    pub(crate) fn splits_specials(&self) -> bool {
        let key = self.config.get("split_special_tokens");
        key.and_then(Value::as_bool).unwrap_or(false)
    }

    /// Roles of special tokens with unusual names.
    pub(crate) fn hints(&self) -> RoleHints {
        let keys = [
            ("bos_token", SpecialRole::Bos),
            ("eos_token", SpecialRole::Eos),
            ("unk_token", SpecialRole::Unk),
            ("pad_token", SpecialRole::Pad),
        ];
        let hint = |(key, role): (&str, SpecialRole)| {
            let token = self.specials.get(key)?;
            Some((token.content().to_owned(), role))
        };
        keys.into_iter().filter_map(hint).collect()
    }

    /// Changes a file as transformers does beside these settings; `pieces` is true for a
    /// `tokenizer.model`.
    fn apply(&self, raw: &mut RawFile, pieces: bool) -> Result<(), AlignError> {
        let anew = self.rebuild(raw, pieces)? && !pieces;
        let mut tokens: BTreeMap<u32, AddedToken> = BTreeMap::new();
        tokens.extend(self.added.iter().map(|token| (token.id, token.clone())));
        if !self.newer {
            let own = |token: &AddedToken| (token.id, token.clone());
            tokens.extend(raw.added_tokens.iter().map(own));
        }
        if pieces && !self.class.writes_space_sign() && raw.pre_tokenizer.is_object() {
            // The pre-tokenizer writes a dummy prefix. Found in the text as it is, tokens cut it
            // before it is normalised, and every part gets a prefix of its own.
            for token in tokens.values_mut() {
                token.normalized = Some(false);
            }
        }
        if anew {
            // Only the tokens listed above count. They are added again, in the order of their ids.
            raw.added_tokens.clear();
        }
        for token in tokens.values() {
            self.add(raw, token);
        }
        let own = |token: &AddedToken| token.content.clone();
        let before: Vec<String> = raw.added_tokens.iter().map(own).collect();
        let mut seen: Vec<&Named> = Vec::new();
        for token in self.specials.all() {
            // Of several tokens with one content, the last one's treatment of surrounding text
            // counts.
            if !before.contains(&token.added.content) && !seen.contains(&token) {
                self.add(raw, &token.added);
                seen.push(token);
            }
        }
        if self.class == Class::Qwen2 {
            // This class adds its special tokens once more, as plain ones.
            for token in self.specials.all() {
                let known = |added: &&mut AddedToken| added.content == token.content();
                if let Some(added) = raw.added_tokens.iter_mut().find(known) {
                    *added = AddedToken::plain(added.id, &added.content);
                }
            }
        }
        if anew && self.class == Class::GptNeoX {
            raw.post_processor = Value::Null;
        }
        if anew && self.class == Class::CodeLlama {
            let opening = self.specials.get("bos_token").map(Named::content);
            let mut added = raw.added_tokens.iter();
            match added.find(|token| Some(token.content.as_str()) == opening) {
                Some(token) => raw.open_with(&token.content.clone(), token.id as usize),
                None => raw.post_processor = Value::Null,
            }
        }
        Ok(())
    }

    /// Adds a token, or changes its treatment of surrounding text. Its id is the one that the
    /// tokenizers library would give: its own if it is a token already, else the first free one.
    fn add(&self, raw: &mut RawFile, token: &AddedToken) {
        let mut token = token.clone();
        token.special |= self.specials.is_named(&token.content);
        let known = |added: &&mut AddedToken| added.content == token.content;
        if let Some(added) = raw.added_tokens.iter_mut().find(known) {
            token.id = added.id;
            *added = token;
            return;
        }
        let (own, size) = in_model(&raw.model, &token.content);
        let last = raw
            .added_tokens
            .iter()
            .map(|added| u64::from(added.id))
            .max();
        let free = last.map_or(size, |last| size.max(last + 1));
        let id = own.or_else(|| u32::try_from(free).ok());
        token.id = id.unwrap_or(u32::MAX);
        raw.added_tokens.push(token);
    }

    /// Gives the file the pipeline of its class. Returns true if the class has one.
    fn rebuild(&self, raw: &mut RawFile, pieces: bool) -> Result<bool, AlignError> {
        let Some([normalizer, pre_tokenizer, decoder]) = self.class.pipeline(&self.config) else {
            return Ok(false);
        };
        let bpe = raw.model["merges"].is_array();
        if pieces && !bpe && self.class.writes_space_sign() {
            return Ok(false);
        }
        let refused = |what: String| AlignError::Unsupported {
            file: self.file.clone(),
            key: "tokenizer_class".to_owned(),
            what: format!("a `{}` over {what}", self.class.name()),
            hint: "it is what this file or the model_type of config.json asks for; another class can be named",
        };
        if !bpe {
            return Err(refused("a Unigram tokenizer.json".to_owned()));
        }
        if pieces && !self.class.writes_space_sign() {
            return Err(refused(format!("a {PIECES}")));
        }
        let unknown = self.specials.get("unk_token");
        let unknown = unknown.filter(|_| self.class.has_unknown());
        let unknown = unknown.map(|token| token.content().to_owned());
        let lacks = |token: &String| in_model(&raw.model, token).0.is_none();
        if let Some(token) = unknown.as_ref().filter(|token| lacks(token)) {
            return Err(refused(format!("a vocabulary without {token:?}")));
        }
        raw.normalizer = normalizer;
        raw.pre_tokenizer = pre_tokenizer;
        raw.decoder = decoder;
        let signs = self.class.writes_space_sign();
        let settings = [
            ("unk_token", unknown.into()),
            ("fuse_unk", signs.into()),
            ("byte_fallback", signs.into()),
            ("ignore_merges", false.into()),
        ];
        if let Some(model) = raw.model.as_object_mut() {
            model.extend(settings.map(|(key, value): (&str, Value)| (key.to_owned(), value)));
        }
        Ok(true)
    }
}

/// The id of a string in the model's vocabulary, and the size of that vocabulary.
fn in_model(model: &Value, content: &str) -> (Option<u32>, u64) {
    match &model["vocab"] {
        Value::Object(vocab) => {
            let id = vocab.get(content).and_then(Value::as_u64);
            (id.and_then(|id| u32::try_from(id).ok()), vocab.len() as u64)
        }
        Value::Array(vocab) => {
            let at = vocab.iter().position(|entry| entry[0] == content);
            (at.and_then(|at| u32::try_from(at).ok()), vocab.len() as u64)
        }
        _ => (None, 0),
    }
}

/// The class that transformers 5 would choose.
fn class(config: &Map<String, Value>, folder: &Path) -> Result<Class, AlignError> {
    // Faults of config.json are reported by its own reader.
    let model: Value = std::fs::read(folder.join("config.json"))
        .ok()
        .and_then(|bytes| serde_json::from_slice(without_mark(&bytes)).ok())
        .unwrap_or_default();
    let byte_level = || {
        let text = std::fs::read_to_string(folder.join("tokenizer.json"));
        text.is_ok_and(|text| text.contains("\"ByteLevel\""))
    };
    Class::choose(config, &model, byte_level).map_err(|name| AlignError::Unsupported {
        file: folder.join(CONFIG).to_string_lossy().into_owned(),
        key: "tokenizer_class".to_owned(),
        what: format!("the pipeline that transformers builds for a `{name}`"),
        hint: "`PreTrainedTokenizerFast` reads tokenizer.json as it is written",
    })
}

/// The tokens of `added_tokens_decoder`, with their ids.
fn decoded(folder: &Path, decoder: &Value) -> Result<Vec<AddedToken>, AlignError> {
    let key = "added_tokens_decoder";
    let fault = |key: &str, message| fault(folder, CONFIG, key, message);
    let Some(tokens) = decoder.as_object() else {
        return Err(fault(key, "must be an object of ids and tokens"));
    };
    let token = |(id, token): (&String, &Value)| {
        let key = format!("{key}.{id}");
        let number = id.parse().ok();
        let id = number.ok_or_else(|| fault(&key, "is no token id"))?;
        let named = token.get("content").and_then(|_| Named::of(token));
        let wrong = || fault(&key, "must be an object with a text `content`");
        let named = named.ok_or_else(wrong)?;
        let flag = |key: &str| token.get(key).and_then(Value::as_bool);
        let special = flag("special").unwrap_or(false);
        Ok(AddedToken {
            id,
            special,
            normalized: Some(flag("normalized").unwrap_or(!special)),
            ..named.added
        })
    };
    tokens.iter().map(token).collect()
}

/// An object of a file, and its entries in order.
type Object = (Map<String, Value>, Entries);

/// The object in a file of the folder; `None` if there is no such file.
fn object(folder: &Path, name: &str) -> Result<Option<Object>, AlignError> {
    let path = folder.join(name);
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = std::fs::read(&path).map_err(|source| AlignError::Read {
        path: path.clone(),
        source,
    })?;
    match parse_json(&bytes, &path.to_string_lossy())? {
        Value::Object(object) => Ok(Some((object, Entries::read(&bytes)))),
        _ => Err(fault(folder, name, ".", "must be an object")),
    }
}

fn number(folder: &Path, file: &str, key: &str, value: &Value) -> Result<u32, AlignError> {
    let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
    id.ok_or_else(|| fault(folder, file, key, &format!("{value} is no token id")))
}

fn fault(folder: &Path, file: &str, key: &str, message: &str) -> AlignError {
    AlignError::Key {
        file: folder.join(file).to_string_lossy().into_owned(),
        key: key.to_owned(),
        message: message.to_owned(),
    }
}
