//! Export of a model folder's tokenizer and template: files as they are, or keys of a GGUF file.

use std::path::{Path, PathBuf};

use lm::LmConfig;
use serde_json::Value;
use vocab_align::{AlignError, DraftId, SpecialRole, TokenId, Vocabulary};
use weights::GgufEntry;

use super::chat::{CHAT_TEMPLATES, templates};
use super::cut::Cut;
use super::ends::ends;
use super::generation::optional_json;
use crate::{ModelsError, TemplateError};

/// Reason for which a folder's tokenizer and template cannot be exported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// A file that cannot be read or written.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// A tokenizer that is not supported.
    #[error(transparent)]
    Tokenizer(#[from] AlignError),
    /// Chat templates that are not supported.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// A malformed JSON file, or stop tokens that cannot be determined.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// A feature of a tokenizer that a GGUF file cannot express.
    #[error("{}: {what}: a GGUF file has no word for it", path.display())]
    NotGguf {
        /// The file.
        path: PathBuf,
        /// The feature.
        what: String,
    },
}

impl ExportError {
    /// Advice for the user.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::NotGguf { .. } => Some(
                "tokenizers over bytes, cut as llama.cpp's smollm, gpt-2, llama-bpe, dbrx and qwen2 do, are written; --to hf copies any",
            ),
            _ => None,
        }
    }
}

/// Files of a model folder with its tokenizer, template and licence.
const TEXT_FILES: [&str; 13] = [
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    super::CHAT_TEMPLATE_FILE,
    "chat_template.json",
    "generation_config.json",
    super::TEMPLATE_FILE,
    "LICENSE",
    "LICENSE.txt",
];

/// Copies the files of tokenizer, template and licence.
///
/// # Errors
/// Files that cannot be read or written.
pub fn copy_text(from: &Path, to: &Path) -> Result<(), ExportError> {
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| ExportError::Io { path, source }
    };
    let copy = |from: &Path, to: &Path| std::fs::copy(from, to).map_err(failed(from));
    for name in TEXT_FILES {
        let file = from.join(name);
        if file.is_file() {
            copy(&file, &to.join(name))?;
        }
    }
    let (named, to) = (from.join(CHAT_TEMPLATES), to.join(CHAT_TEMPLATES));
    if named.is_dir() {
        std::fs::create_dir_all(&to).map_err(failed(&to))?;
        for entry in std::fs::read_dir(&named).map_err(failed(&named))? {
            let file = entry.map_err(failed(&named))?;
            copy(&file.path(), &to.join(file.file_name()))?;
        }
    }
    Ok(())
}

/// A model's `tokenizer.json` with its context.
struct Text<'a> {
    path: PathBuf,
    file: Value,
    folder: &'a Path,
    config: &'a LmConfig,
    vocabulary: Vocabulary<DraftId>,
}

/// The tokenizer and the chat template of a folder as the keys of a GGUF file.
///
/// # Errors
/// Files that are not supported; a tokenizer that llama.cpp has no name for, with the missing
/// feature.
pub fn gguf_text(
    folder: &Path,
    config: &LmConfig,
) -> Result<Vec<(String, GgufEntry)>, ExportError> {
    let path = folder.join("tokenizer.json");
    let vocabulary = Vocabulary::from_file_for(&path, config.vocab_size)?;
    let Some(file) = optional_json(&path)? else {
        let what = "SentencePiece's own tokenizer.model".to_owned();
        return Err(ExportError::NotGguf { path, what });
    };
    let text = Text {
        file,
        path,
        folder,
        config,
        vocabulary,
    };
    text.keys()
}

impl Text<'_> {
    fn unwritten(&self, what: impl Into<String>) -> ExportError {
        ExportError::NotGguf {
            path: self.path.clone(),
            what: what.into(),
        }
    }

    fn keys(&self) -> Result<Vec<(String, GgufEntry)>, ExportError> {
        let model = &self.file["model"];
        let pre = self.pre(model)?;
        let (tokens, kinds) = self.tokens(model)?;
        let merges = self.merges(model)?;
        let [bos, eos, unknown, pad] = self.parts()?;
        let (opens, closes) = self.frame(bos, eos)?;
        let mut keys = Vec::new();
        let mut add = |key: &str, value: GgufEntry| {
            keys.push((format!("tokenizer.ggml.{key}"), value));
        };
        add("model", "gpt2".into());
        add("pre", pre.into());
        add("tokens", GgufEntry::Texts(tokens));
        add("token_type", GgufEntry::Ints(kinds));
        add("merges", GgufEntry::Texts(merges));
        for (key, token) in [
            ("bos_token_id", bos),
            ("eos_token_id", eos),
            ("unknown_token_id", unknown),
            ("padding_token_id", pad),
        ] {
            if let Some(token) = token {
                add(key, token.into());
            }
        }
        for (key, token) in ["eot_token_id", "eom_token_id"].iter().zip(self.ends(eos)?) {
            add(key, token.into());
        }
        add("add_space_prefix", GgufEntry::Flag(false));
        add("add_bos_token", GgufEntry::Flag(opens));
        if closes {
            add("add_eos_token", GgufEntry::Flag(true));
        }
        for (name, text) in templates(self.folder)? {
            let key = match name.as_str() {
                "default" => "tokenizer.chat_template".to_owned(),
                name => format!("tokenizer.chat_template.{name}"),
            };
            keys.push((key, GgufEntry::Text(text)));
        }
        Ok(keys)
    }

    /// llama.cpp's name of the pre-tokenization; other features of the pipeline are refused.
    fn pre(&self, model: &Value) -> Result<&'static str, ExportError> {
        let kind = model["type"].as_str().unwrap_or_default();
        if kind != "BPE" {
            return Err(self.unwritten(format!("a tokenizer of type `{kind}`")));
        }
        let flag = |key: &str| model[key].as_bool().unwrap_or(false);
        if flag("byte_fallback") {
            return Err(self.unwritten("`byte_fallback`, pieces of SentencePiece"));
        }
        for key in ["continuing_subword_prefix", "end_of_word_suffix"] {
            if model[key].as_str().is_some_and(|text| !text.is_empty()) {
                return Err(self.unwritten(format!("`{key}`")));
            }
        }
        let (normalizer, pre) = (&self.file["normalizer"], &self.file["pre_tokenizer"]);
        let name = Cut::name_of(normalizer, pre, flag("ignore_merges"));
        name.ok_or_else(|| {
            let types = |value: &Value| match value["type"].as_str() {
                Some("Sequence") => {
                    let steps = value["pretokenizers"].as_array();
                    let steps = steps.or(value["normalizers"].as_array());
                    let steps = steps.into_iter().flatten();
                    let names = steps.filter_map(|step| step["type"].as_str());
                    names.collect::<Vec<_>>().join(", ")
                }
                Some(name) => name.to_owned(),
                None => "none".to_owned(),
            };
            self.unwritten(format!(
                "its way to cut text (normalizer: {}; pre_tokenizer: {})",
                types(normalizer),
                types(pre)
            ))
        })
    }

    /// A token for every row of the embedding, and its kind: ordinary, special, added to the
    /// vocabulary, or unused.
    fn tokens(&self, model: &Value) -> Result<(Vec<String>, Vec<i32>), ExportError> {
        const NORMAL: i32 = 1;
        const CONTROL: i32 = 3;
        const USER_DEFINED: i32 = 4;
        const UNUSED: i32 = 5;
        let rows = self.config.vocab_size;
        let mut tokens: Vec<Option<(String, i32)>> = vec![None; rows];
        let mut put = |id: u64, token: &str, kind: i32| {
            let at = usize::try_from(id).ok().and_then(|id| tokens.get_mut(id));
            let at = at.ok_or_else(|| {
                self.unwritten(format!(
                    "token {id} beyond the {rows} rows of the embedding"
                ))
            })?;
            *at = Some((token.to_owned(), kind));
            Ok::<_, ExportError>(())
        };
        for (token, id) in model["vocab"].as_object().into_iter().flatten() {
            put(id.as_u64().unwrap_or(u64::MAX), token, NORMAL)?;
        }
        for (id, _) in self.vocabulary.specials() {
            if let Some(name) = self.vocabulary.content(id) {
                put(id.get().into(), name, CONTROL)?;
            }
        }
        for added in self.file["added_tokens"].as_array().into_iter().flatten() {
            let (id, name) = (added["id"].as_u64(), added["content"].as_str());
            let (Some(id), Some(name)) = (id, name) else {
                continue;
            };
            for flag in ["lstrip", "rstrip", "single_word"] {
                if added[flag].as_bool() == Some(true) {
                    return Err(self.unwritten(format!("`{flag}` of its token `{name}`")));
                }
            }
            let kind = match added["special"].as_bool() {
                Some(true) => CONTROL,
                _ => USER_DEFINED,
            };
            put(id, name, kind)?;
        }
        let filled = tokens
            .into_iter()
            .enumerate()
            .map(|(id, token)| token.unwrap_or_else(|| (format!("[PAD{id}]"), UNUSED)));
        Ok(filled.unzip())
    }

    /// The pairs of the BPE in the order of merging.
    fn merges(&self, model: &Value) -> Result<Vec<String>, ExportError> {
        let merges = model["merges"].as_array().into_iter().flatten();
        let pair = |merge: &Value| match merge {
            Value::String(pair) => Some(pair.clone()),
            Value::Array(pair) => match pair.as_slice() {
                [Value::String(left), Value::String(right)] => {
                    let plain = |part: &str| !part.contains(' ');
                    (plain(left) && plain(right)).then(|| format!("{left} {right}"))
                }
                _ => None,
            },
            _ => None,
        };
        let merges = merges
            .map(|merge| pair(merge).ok_or_else(|| self.unwritten(format!("the merge {merge}"))));
        merges.collect()
    }

    /// The beginning-of-text, end-of-text, unknown and padding tokens: those that
    /// `tokenizer_config.json` names, else those of the configuration and the usual names.
    fn parts(&self) -> Result<[Option<u32>; 4], ExportError> {
        let config = optional_json(&self.folder.join("tokenizer_config.json"))?.unwrap_or_default();
        let named = |key: &str| {
            let value = &config[key];
            let name = value.as_str().or_else(|| value["content"].as_str())?;
            self.vocabulary.find_content(name).map(TokenId::get)
        };
        let usual = |role| self.vocabulary.special(role).map(TokenId::get);
        let LmConfig {
            bos_token_id: bos,
            eos_token_ids: eos,
            ..
        } = self.config;
        Ok([
            named("bos_token")
                .or(*bos)
                .or_else(|| usual(SpecialRole::Bos)),
            named("eos_token")
                .or(eos.first().copied())
                .or_else(|| usual(SpecialRole::Eos)),
            named("unk_token").or_else(|| usual(SpecialRole::Unk)),
            named("pad_token").or_else(|| usual(SpecialRole::Pad)),
        ])
    }

    /// Further tokens that the model's files name as stop tokens. Usual stop tokens are found by
    /// their names.
    fn ends(&self, eos: Option<u32>) -> Result<Vec<u32>, ExportError> {
        let found = ends(
            self.folder,
            &self.config.eos_token_ids,
            self.config.vocab_size,
            &self.vocabulary,
        )?;
        let named = found.into_iter().filter(|end| {
            end.from.iter().any(|file| file.ends_with(".json")) && Some(end.id.get()) != eos
        });
        Ok(named.map(|end| end.id.get()).collect())
    }

    /// Returns two flags: text is opened by the beginning-of-text token, and closed by the
    /// end-of-text token.
    fn frame(&self, bos: Option<u32>, eos: Option<u32>) -> Result<(bool, bool), ExportError> {
        let name = |token: Option<u32>| self.vocabulary.content(DraftId::new(token?));
        let mut processors = vec![&self.file["post_processor"]];
        let (mut opens, mut closes) = (false, false);
        while let Some(processor) = processors.pop() {
            match processor["type"].as_str() {
                None | Some("ByteLevel") => {}
                Some("Sequence") => {
                    processors.extend(processor["processors"].as_array().into_iter().flatten());
                }
                Some("TemplateProcessing") => {
                    let mut text_seen = false;
                    for piece in processor["single"].as_array().into_iter().flatten() {
                        let token = piece["SpecialToken"]["id"].as_str();
                        match token {
                            None => text_seen = true,
                            Some(token) if !text_seen && name(bos) == Some(token) => opens = true,
                            Some(token) if text_seen && name(eos) == Some(token) => closes = true,
                            Some(token) => {
                                return Err(self.unwritten(format!("`{token}` around every text")));
                            }
                        }
                    }
                }
                Some(other) => {
                    return Err(self.unwritten(format!("its post_processor `{other}`")));
                }
            }
        }
        Ok((opens, closes))
    }
}
