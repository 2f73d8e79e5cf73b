//! Pre-tokenization of byte-level BPE: llama.cpp's names, and the equivalent pipelines of the
//! Hugging Face tokenizers library.

use serde_json::{Value, json};

/// A pre-tokenization in the format of `tokenizer.json`.
pub(crate) struct Cut {
    pub(crate) normalizer: Value,
    pub(crate) pre_tokenizer: Value,
    /// True if a word that is a token becomes that token, regardless of the merges.
    pub(crate) whole_words: bool,
    /// True if text begins with the beginning-of-text token unless the file says otherwise.
    pub(crate) framed: bool,
}

/// A step of a pre-tokenizer, without settings that do not affect the tokens.
#[derive(Debug, PartialEq)]
enum Step {
    Digits,
    /// Splits by a regular expression.
    Split(String),
    /// Maps bytes to letters; `cuts` is true if it splits words as well.
    Bytes {
        cuts: bool,
    },
}

impl Cut {
    /// The supported names; the first of several equivalent ones is written.
    pub(crate) const NAMES: [&str; 8] = [
        "smollm",
        "gpt-2",
        "llama-bpe",
        "dbrx",
        "qwen2",
        "llama3",
        "llama-v3",
        "deepseek-r1-qwen",
    ];

    /// The pre-tokenization with one of the names that llama.cpp uses.
    pub(crate) fn named(name: &str) -> Option<Self> {
        let bytes = |regex: bool| {
            json!({
                "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true,
                "use_regex": regex,
            })
        };
        // Contractions, words, numbers of so many digits, signs, line breaks, other white space.
        let words = |digits: &str| {
            let pattern = format!(
                r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
            );
            let split = json!({
                "type": "Split", "pattern": { "Regex": pattern }, "behavior": "Isolated",
                "invert": false,
            });
            json!({ "type": "Sequence", "pretokenizers": [split, bytes(false)] })
        };
        let cut = |pre_tokenizer| Self {
            normalizer: Value::Null,
            pre_tokenizer,
            whole_words: false,
            framed: false,
        };
        Some(match name {
            "smollm" => {
                let digits = json!({ "type": "Digits", "individual_digits": true });
                cut(json!({ "type": "Sequence", "pretokenizers": [digits, bytes(true)] }))
            }
            "gpt-2" => cut(bytes(true)),
            "llama-bpe" | "llama3" | "llama-v3" => Self {
                whole_words: true,
                framed: true,
                ..cut(words("{1,3}"))
            },
            // The splitting of Llama 3, with merges for all words.
            "dbrx" => cut(words("{1,3}")),
            "qwen2" | "deepseek-r1-qwen" => Self {
                normalizer: json!({ "type": "NFC" }),
                ..cut(words(""))
            },
            _ => return None,
        })
    }

    /// llama.cpp's name of a pre-tokenization.
    pub(crate) fn name_of(
        normalizer: &Value,
        pre_tokenizer: &Value,
        whole_words: bool,
    ) -> Option<&'static str> {
        let own = steps(pre_tokenizer)?;
        Self::NAMES.into_iter().find(|name| {
            let Some(known) = Self::named(name) else {
                return false;
            };
            // llama.cpp does not normalise; text is usually in NFC.
            let normalises =
                normalizer.is_null() || normalizer["type"] == "NFC" && !known.normalizer.is_null();
            normalises
                && known.whole_words == whole_words
                && steps(&known.pre_tokenizer).is_some_and(|steps| steps == own)
        })
    }
}

/// The steps of a pre-tokenizer; `None` if one of them is not supported.
fn steps(value: &Value) -> Option<Vec<Step>> {
    let flag = |key: &str, default: bool| value[key].as_bool().unwrap_or(default);
    Some(match value["type"].as_str()? {
        "Sequence" => {
            let each = value["pretokenizers"].as_array()?.iter().map(steps);
            each.collect::<Option<Vec<_>>>()?
                .into_iter()
                .flatten()
                .collect()
        }
        "Digits" if flag("individual_digits", false) => vec![Step::Digits],
        "ByteLevel" if !flag("add_prefix_space", true) => vec![Step::Bytes {
            cuts: flag("use_regex", true),
        }],
        "Split" if value["behavior"] == "Isolated" && !flag("invert", false) => {
            let pattern = value["pattern"]["Regex"].as_str()?;
            vec![Step::Split(pattern.replace("{1,1}", ""))]
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_again_or_an_equal_one() {
        for name in Cut::NAMES {
            let cut = Cut::named(name).unwrap();
            let found = Cut::name_of(&cut.normalizer, &cut.pre_tokenizer, cut.whole_words);
            let found = Cut::named(found.unwrap()).unwrap();
            assert_eq!(found.pre_tokenizer, cut.pre_tokenizer, "{name}");
            assert_eq!(found.whole_words, cut.whole_words, "{name}");
            assert_eq!(found.normalizer, cut.normalizer, "{name}");
        }
        let bert = json!({ "type": "BertPreTokenizer" });
        assert_eq!(Cut::name_of(&Value::Null, &bert, false), None);
        let lower = json!({ "type": "Lowercase" });
        let cut = Cut::named("gpt-2").unwrap();
        assert_eq!(Cut::name_of(&lower, &cut.pre_tokenizer, false), None);
    }
}
