//! Conversion of a GGUF file, which holds the tokenizer in llama.cpp's own format, to a model
//! folder.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use lm::{LmError, StoredCheckpoint, TensorSource};
use serde_json::{Map, Value, json};
use vocab_align::merges_by_score;
use weights::{GgufValue, TensorFiles, WeightsError};

use super::chat::CHAT_TEMPLATES;
use super::cut::Cut;
use super::folder::in_place;
use super::template::CHAT_TEMPLATE_FILE;

/// Reason for which a GGUF file cannot be converted.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file is not a GGUF file, or is damaged.
    #[error(transparent)]
    Weights(#[from] WeightsError),
    /// Its model is not supported.
    #[error(transparent)]
    Model(#[from] LmError),
    /// A key of its tokenizer is missing or malformed.
    #[error("{}: key `{key}` {message}", path.display())]
    Tokenizer {
        /// The file.
        path: PathBuf,
        /// The key.
        key: String,
        /// Description of the fault.
        message: String,
    },
    /// The output folder exists already.
    #[error("{}: is there already", path.display())]
    Exists {
        /// The folder.
        path: PathBuf,
    },
    /// A file or folder cannot be written.
    #[error("{}: cannot be written: {source}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
}

impl ImportError {
    /// Advice for the user, if it is not in the message.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Tokenizer { .. } => {
                "a folder with the .gguf file and the model's own tokenizer.json is a model folder already"
            }
            Self::Exists { .. } => "name another folder with --out, or remove this one",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Kinds of tokens, with llama.cpp's numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Keys of tokens that no text is framed with. Older writers set them to ids of no token, which
/// llama.cpp warns of and ignores.
const READ_OVER: [&str; 2] = [
    "tokenizer.ggml.unknown_token_id",
    "tokenizer.ggml.padding_token_id",
];

/// The keys of a GGUF file that describe its tokenizer.
struct Keys<'a> {
    path: &'a Path,
    files: &'a TensorFiles,
}

/// Converts the file `file` to the folder `out`: the weights as they are (hard-linked if possible,
/// otherwise copied), and `config.json`, `tokenizer.json`, `tokenizer_config.json` and the chat
/// template in Hugging Face's layout.
///
/// # Errors
/// A file that is damaged, or of an unsupported architecture or tokenizer; a folder that exists
/// already or cannot be written. A partial folder is removed.
pub fn import_gguf(file: &Path, out: &Path) -> Result<(), ImportError> {
    if out.exists() {
        return Err(ImportError::Exists {
            path: out.to_owned(),
        });
    }
    let failed = |path: &Path, source| ImportError::Write {
        path: path.to_owned(),
        source,
    };
    in_place(out, failed, |part| fill(file, part))
}

fn fill(file: &Path, folder: &Path) -> Result<(), ImportError> {
    let stored = StoredCheckpoint::open_gguf(file)?;
    let files = stored.files();
    let keys = Keys { path: file, files };
    let tokenizer = keys.tokenizer()?;
    let parts: Vec<&Path> = files.paths().collect();
    for (i, part) in parts.iter().enumerate() {
        let name = match parts.len() {
            1 => "model.gguf".to_owned(),
            count => format!("model-{:05}-of-{count:05}.gguf", i + 1),
        };
        link(part, folder.join(name))?;
    }
    let config = stored.config().to_json();
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| ImportError::Write { path, source })
    };
    write("config.json", format!("{config:#}\n"))?;
    write("tokenizer.json", format!("{tokenizer:#}\n"))?;
    write("tokenizer_config.json", format!("{:#}\n", keys.specials()?))?;
    let template = "tokenizer.chat_template";
    if let Some(text) = keys.text(template)? {
        write(CHAT_TEMPLATE_FILE, text.to_owned())?;
    }
    let named = |key: &String| {
        let name = key.strip_prefix(template)?.strip_prefix('.')?;
        let plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        (!name.is_empty() && name.chars().all(plain)).then(|| name.to_owned())
    };
    for (key, name) in files
        .keys()
        .keys()
        .filter_map(|key| Some((key, named(key)?)))
    {
        let others = folder.join(CHAT_TEMPLATES);
        std::fs::create_dir_all(&others).map_err(|source| ImportError::Write {
            path: others,
            source,
        })?;
        let text = keys.text(key)?.unwrap_or_default();
        write(&format!("{CHAT_TEMPLATES}/{name}.jinja"), text.to_owned())?;
    }
    Ok(())
}

/// Hard-links a file, or copies it if it cannot be linked.
fn link(file: &Path, to: PathBuf) -> Result<(), ImportError> {
    let linked = std::fs::canonicalize(file).and_then(|file| std::fs::hard_link(file, &to));
    match linked {
        Ok(()) => Ok(()),
        // Another call writes the same folder. A copy would go through its link into its file.
        Err(source) if source.kind() == ErrorKind::AlreadyExists => {
            Err(ImportError::Write { path: to, source })
        }
        Err(_) => match std::fs::copy(file, &to) {
            Ok(_) => Ok(()),
            Err(source) => Err(ImportError::Write { path: to, source }),
        },
    }
}

impl Keys<'_> {
    fn fault(&self, key: &str, message: impl Into<String>) -> ImportError {
        ImportError::Tokenizer {
            path: self.path.to_owned(),
            key: key.to_owned(),
            message: message.into(),
        }
    }

    fn value(&self, key: &str) -> Option<&GgufValue> {
        self.files.keys().get(key)
    }

    fn text(&self, key: &str) -> Result<Option<&str>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            Some(GgufValue::Text(text)) => Ok(Some(text)),
            Some(_) => Err(self.fault(key, "is no text")),
        }
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, ImportError> {
        match self.value(key) {
            None => Ok(default),
            Some(GgufValue::Bool(flag)) => Ok(*flag),
            Some(_) => Err(self.fault(key, "is neither true nor false")),
        }
    }

    /// A required list of texts.
    fn texts(&self, key: &str) -> Result<Vec<String>, ImportError> {
        let texts = self.files.texts(key)?;
        texts.ok_or_else(|| self.fault(key, "is no list of texts"))
    }

    /// A list of numbers, one per token; `None` if it is missing.
    fn numbers(&self, key: &str, tokens: usize) -> Result<Option<&[f64]>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            Some(GgufValue::Numbers(numbers)) if numbers.len() == tokens => Ok(Some(numbers)),
            Some(_) => Err(self.fault(key, format!("is no list of {tokens} numbers"))),
        }
    }

    /// The token that a key names; `None` if the key is missing, or if it is one of
    /// [`READ_OVER`] and names no token.
    fn token<'t>(&self, key: &str, tokens: &'t [String]) -> Result<Option<&'t str>, ImportError> {
        match self.value(key) {
            None => Ok(None),
            Some(GgufValue::Int(id)) => {
                let token = usize::try_from(*id).ok().and_then(|id| tokens.get(id));
                match token {
                    None if !READ_OVER.contains(&key) => {
                        Err(self.fault(key, format!("{id} is no token")))
                    }
                    token => Ok(token.map(String::as_str)),
                }
            }
            Some(_) => Err(self.fault(key, "is no number")),
        }
    }

    fn tokens(&self) -> Result<(Vec<String>, Vec<Kind>), ImportError> {
        let key = "tokenizer.ggml.tokens";
        let tokens = self.texts(key)?;
        let distinct: BTreeSet<&str> = tokens.iter().map(String::as_str).collect();
        if distinct.len() < tokens.len() {
            return Err(self.fault(key, "names two tokens alike"));
        }
        let key = "tokenizer.ggml.token_type";
        let kinds = match self.numbers(key, tokens.len())? {
            None => vec![Kind::Normal; tokens.len()],
            Some(numbers) => {
                let kind = |number: &f64| match *number as i64 {
                    1 => Ok(Kind::Normal),
                    2 => Ok(Kind::Unknown),
                    3 => Ok(Kind::Control),
                    4 => Ok(Kind::UserDefined),
                    5 => Ok(Kind::Unused),
                    6 => Ok(Kind::Byte),
                    other => Err(self.fault(key, format!("has the unknown type {other}"))),
                };
                numbers.iter().map(kind).collect::<Result<_, _>>()?
            }
        };
        Ok((tokens, kinds))
    }

    /// `tokenizer.json`.
    fn tokenizer(&self) -> Result<Value, ImportError> {
        let key = "tokenizer.ggml.model";
        let model = self.text(key)?;
        let (tokens, kinds) = match model {
            Some("gpt2" | "llama") => self.tokens()?,
            Some(other) => {
                let message = format!("`{other}` is not read (gpt2 and llama are)");
                return Err(self.fault(key, message));
            }
            None => return Err(self.fault(key, "is missing")),
        };
        let mut file = match model {
            Some("gpt2") => self.byte_level(&tokens)?,
            _ => self.sentence_pieces(&tokens, &kinds)?,
        };
        let marked = tokens.iter().zip(&kinds).enumerate();
        let added = marked.filter_map(|(id, (token, kind))| {
            let special = match kind {
                Kind::Control | Kind::Unknown => true,
                Kind::UserDefined => false,
                Kind::Normal | Kind::Unused | Kind::Byte => return None,
            };
            Some(json!({
                "id": id, "content": token, "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": special,
            }))
        });
        file["version"] = "1.0".into();
        file["added_tokens"] = added.collect();
        Ok(file)
    }

    /// The post-processor that adds the tokens which open and close a text.
    fn frame(&self, tokens: &[String], default: bool) -> Result<Value, ImportError> {
        let wanted = |key: &str, id: &str, default: bool| -> Result<Option<&str>, ImportError> {
            let token = self.token(&format!("tokenizer.ggml.{id}"), tokens)?;
            let wanted = self.flag(&format!("tokenizer.ggml.{key}"), default)?;
            Ok(token.filter(|_| wanted))
        };
        let bos = wanted("add_bos_token", "bos_token_id", default)?;
        let eos = wanted("add_eos_token", "eos_token_id", false)?;
        if bos.is_none() && eos.is_none() {
            return Ok(Value::Null);
        }
        let token = |token: &str, type_id: u8| json!({ "SpecialToken": { "id": token, "type_id": type_id } });
        let framed = |name: &str, type_id: u8| {
            let text = json!({ "Sequence": { "id": name, "type_id": type_id } });
            let (first, last) = (
                bos.map(|bos| token(bos, type_id)),
                eos.map(|eos| token(eos, type_id)),
            );
            first
                .into_iter()
                .chain([text])
                .chain(last)
                .collect::<Vec<_>>()
        };
        let pair = [framed("A", 0), framed("B", 1)].concat();
        let known = bos.into_iter().chain(eos).map(|token| {
            let id = tokens.iter().position(|other| other == token);
            (
                token.to_owned(),
                json!({ "id": token, "ids": [id], "tokens": [token] }),
            )
        });
        Ok(json!({
            "type": "TemplateProcessing",
            "single": framed("A", 0),
            "pair": pair,
            "special_tokens": known.collect::<Map<_, _>>(),
        }))
    }

    /// A byte-level BPE.
    fn byte_level(&self, tokens: &[String]) -> Result<Value, ImportError> {
        let cut = self.cut()?;
        let key = "tokenizer.ggml.merges";
        let merges = self.texts(key)?;
        let pairs = merges.iter().map(|merge| {
            // No token of such a vocabulary holds a space.
            let (left, right) = merge
                .split_once(' ')
                .ok_or_else(|| self.fault(key, format!("`{merge}` is no pair")))?;
            Ok(json!([left, right]))
        });
        let merges: Vec<Value> = pairs.collect::<Result<_, ImportError>>()?;
        Ok(json!({
            "normalizer": cut.normalizer,
            "pre_tokenizer": cut.pre_tokenizer,
            "post_processor": self.frame(tokens, cut.framed)?,
            "decoder": {
                "type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true,
            },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
                "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false,
                "ignore_merges": cut.whole_words, "vocab": vocabulary(tokens), "merges": merges,
            },
        }))
    }

    /// The pre-tokenization, by llama.cpp's name.
    fn cut(&self) -> Result<Cut, ImportError> {
        let key = "tokenizer.ggml.pre";
        let name = self.text(key)?;
        let name = name.ok_or_else(|| self.fault(key, "is missing"))?;
        Cut::named(name).ok_or_else(|| {
            let known = Cut::NAMES.join(", ");
            self.fault(key, format!("`{name}` is not read ({known} are)"))
        })
    }

    /// A SentencePiece BPE, whose pieces have scores: the pair whose merged piece has the highest
    /// score is merged first.
    fn sentence_pieces(&self, tokens: &[String], kinds: &[Kind]) -> Result<Value, ImportError> {
        let key = "tokenizer.ggml.scores";
        let scores = self.numbers(key, tokens.len())?;
        let scores = scores.ok_or_else(|| self.fault(key, "is missing"))?;
        let mut decoders = vec![
            json!({ "type": "Replace", "pattern": { "String": "▁" }, "content": " " }),
            json!({ "type": "ByteFallback" }),
            json!({ "type": "Fuse" }),
        ];
        let spaces = json!({ "type": "Replace", "pattern": { "String": " " }, "content": "▁" });
        let normalizer = match self.flag("tokenizer.ggml.add_space_prefix", true)? {
            false => spaces,
            true => {
                decoders.push(json!({ "type": "Strip", "content": " ", "start": 1, "stop": 0 }));
                let prefix = json!({ "type": "Prepend", "prepend": "▁" });
                json!({ "type": "Sequence", "normalizers": [prefix, spaces] })
            }
        };
        let unknown = self.token("tokenizer.ggml.unknown_token_id", tokens)?;
        Ok(json!({
            "normalizer": normalizer,
            "pre_tokenizer": null,
            "post_processor": self.frame(tokens, true)?,
            "decoder": { "type": "Sequence", "decoders": decoders },
            "model": {
                "type": "BPE", "dropout": null, "unk_token": unknown,
                "continuing_subword_prefix": null, "end_of_word_suffix": null,
                "fuse_unk": true, "byte_fallback": kinds.contains(&Kind::Byte),
                "ignore_merges": false, "vocab": vocabulary(tokens),
                "merges": merges(tokens, kinds, scores),
            },
        }))
    }

    /// `tokenizer_config.json`, which names the special tokens.
    fn specials(&self) -> Result<Value, ImportError> {
        let tokens = self.texts("tokenizer.ggml.tokens")?;
        let mut config = Map::new();
        // Other programs must use this pipeline, whatever the family of the model.
        config.insert(
            "tokenizer_class".to_owned(),
            "PreTrainedTokenizerFast".into(),
        );
        config.insert(vocab_align::OWN_PIPELINE.to_owned(), true.into());
        for (ours, theirs) in [
            ("bos_token", "bos_token_id"),
            ("eos_token", "eos_token_id"),
            ("unk_token", "unknown_token_id"),
            ("pad_token", "padding_token_id"),
        ] {
            let key = format!("tokenizer.ggml.{theirs}");
            if let Some(token) = self.token(&key, &tokens)? {
                config.insert(ours.to_owned(), token.into());
            }
        }
        Ok(config.into())
    }
}

fn vocabulary(tokens: &[String]) -> Value {
    let ids = tokens.iter().enumerate();
    Value::Object(ids.map(|(id, token)| (token.clone(), id.into())).collect())
}

/// All pairs of pieces that form a piece, ordered by descending score of the piece.
fn merges(tokens: &[String], kinds: &[Kind], scores: &[f64]) -> Value {
    let mergeable = |kind: Kind| matches!(kind, Kind::Normal | Kind::UserDefined | Kind::Unused);
    let pieces = tokens.iter().zip(kinds).enumerate();
    let pieces = pieces.filter(|(_, (_, kind))| mergeable(**kind));
    let texts = pieces.map(|(id, (token, _))| (id, token.as_str()));
    // Scores are f32.
    json!(merges_by_score(texts, |id| scores[id] as f32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_there_is_not_written_through() {
        let root = tempfile::tempdir().unwrap();
        let [file, other, to] = ["file", "other", "to"].map(|name| root.path().join(name));
        std::fs::write(&file, "new").unwrap();
        std::fs::write(&other, "old").unwrap();
        std::fs::hard_link(&other, &to).unwrap();
        let refused = link(&file, to).unwrap_err();
        assert!(matches!(refused, ImportError::Write { .. }), "{refused}");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), "old");
    }

    #[test]
    fn the_best_piece_is_merged_first() {
        let tokens = ["a", "b", "c", "ab", "bc", "abc", "<0x00>"].map(str::to_owned);
        let mut kinds = [Kind::Normal; 7];
        kinds[6] = Kind::Byte;
        let scores = [0.0, 0.0, 0.0, -2.0, -1.0, 3.0, 0.0];
        assert_eq!(
            merges(&tokens, &kinds, &scores),
            json!([["a", "bc"], ["ab", "c"], ["b", "c"], ["a", "b"]])
        );
    }
}
