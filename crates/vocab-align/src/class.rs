//! Tokenizer classes that transformers 5 chooses for a folder. Some of them are built anew from the
//! vocabulary and merges of `tokenizer.json`, whatever pipeline the file describes; this module has
//! their pipelines.

use serde_json::{Map, Value, json};

/// Key of `tokenizer_config.json` in folders whose `tokenizer.json` is used as written, because it
/// is made from a GGUF file and its pipeline is llama.cpp's.
pub const OWN_PIPELINE: &str = "omnidraft_pipeline";
/// Name of the class that uses a file as written.
const WRITTEN: &str = "TokenizersBackend";
/// Regular expression by which Qwen splits a text into words.
const QWEN_WORDS: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// A tokenizer class.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Class {
    Llama,
    CodeLlama,
    Gemma,
    Qwen2,
    Gpt2,
    GptNeoX,
    Cohere,
    /// Any other class: the file's own pipeline counts.
    AsWritten,
}

impl Class {
    /// The class for a `tokenizer_config.json` and a `config.json`. `byte_level` is true if
    /// `tokenizer.json` mentions `ByteLevel`. The error is the name of a class whose pipeline is
    /// not supported.
    pub(crate) fn choose(
        config: &Map<String, Value>,
        model: &Value,
        byte_level: impl FnOnce() -> bool,
    ) -> Result<Self, String> {
        let own_code = config.get("auto_map").is_some_and(|map| !map.is_null());
        if own_code || config.contains_key(OWN_PIPELINE) {
            return Ok(Self::AsWritten);
        }
        let family = model["model_type"].as_str().unwrap_or_default();
        let registered = match family {
            "qwen2" | "qwen3" | "qwen2_moe" | "qwen3_moe" => Some("Qwen2Tokenizer"),
            "gemma2" | "gemma3" | "gemma3_text" => Some("GemmaTokenizer"),
            // Their `tokenizer.json` counts as it is written, whatever class is named. Many of them
            // are decoded by a worker of PyTorch alone.
            "arctic" | "ernie4_5" | "ernie4_5_moe" | "flex_olmo" | "glm" | "glm4" | "glm4_moe"
            | "glm4_moe_lite" | "gpt_bigcode" | "granite" | "granitemoe" | "granitemoehybrid"
            | "granitemoeshared" | "internlm2" | "internlm3" | "jamba" | "mimo_v2_flash"
            | "minicpm3" | "minimax_m2" | "ministral" | "ministral3" | "mistral" | "mistral3"
            | "mixtral" | "nemotron" | "olmo2" | "olmo3" | "olmo_hybrid" | "persimmon" | "phi3"
            | "phimoe" | "stablelm" => Some(WRITTEN),
            _ => None,
        };
        // Files of these families are known to name a wrong class.
        let wrong = ["phi3", "qwen2"].contains(&family);
        let named = config.get("tokenizer_class").and_then(Value::as_str);
        let named = named.or_else(|| model["tokenizer_class"].as_str());
        let named = named.map(|name| name.strip_suffix("Fast").unwrap_or(name));
        let name = match (named, registered) {
            (Some("LlamaTokenizer"), _) if !wrong && byte_level() => WRITTEN,
            (Some(_), Some(WRITTEN)) => WRITTEN,
            (Some(_), Some(registered)) if wrong => registered,
            (Some(named), _) => named,
            (None, registered) => registered.unwrap_or(WRITTEN),
        };
        Ok(match name.strip_suffix("Tokenizer").unwrap_or_default() {
            "Llama" => Self::Llama,
            "CodeLlama" => Self::CodeLlama,
            "Gemma" => Self::Gemma,
            "Qwen2" => Self::Qwen2,
            "GPT2" => Self::Gpt2,
            "GPTNeoX" => Self::GptNeoX,
            "Cohere" => Self::Cohere,
            // Classes that transformers builds anew and that are not supported here; no listed
            // model needs them.
            "Albert" | "Bart" | "Barthez" | "BigBird" | "Blenderbot" | "CLIP" | "Camembert"
            | "CodeGen" | "Deberta" | "DebertaV2" | "Esmc" | "Herbert" | "LED" | "Lasr"
            | "LayoutLMv3" | "LayoutXLM" | "Luke" | "MBart50" | "MBart" | "MLuke" | "MarkupLM"
            | "Mvp" | "Nllb" | "Nougat" | "OpenAIGPT" | "Pegasus" | "Qwen3_5" | "Reformer"
            | "RemBert" | "Roberta" | "SeamlessM4T" | "Siglip2" | "T5" | "Udop" | "Whisper"
            | "XGLM" | "XLMRoberta" | "XLNet" => return Err(name.to_owned()),
            _ => Self::AsWritten,
        })
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Llama => "LlamaTokenizer",
            Self::CodeLlama => "CodeLlamaTokenizer",
            Self::Gemma => "GemmaTokenizer",
            Self::Qwen2 => "Qwen2Tokenizer",
            Self::Gpt2 => "GPT2Tokenizer",
            Self::GptNeoX => "GPTNeoXTokenizer",
            Self::Cohere => "CohereTokenizer",
            Self::AsWritten => WRITTEN,
        }
    }

    /// True of classes whose tokens have a sign for a space, as those of SentencePiece.
    pub(crate) fn writes_space_sign(self) -> bool {
        matches!(self, Self::Llama | Self::CodeLlama | Self::Gemma)
    }

    /// Tokens of the standard names, used if the files name none.
    pub(crate) fn standard_names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Llama | Self::CodeLlama => &[
                ("bos_token", "<s>"),
                ("eos_token", "</s>"),
                ("unk_token", "<unk>"),
            ],
            Self::Gemma => &[
                ("bos_token", "<bos>"),
                ("eos_token", "<eos>"),
                ("unk_token", "<unk>"),
                ("pad_token", "<pad>"),
                ("mask_token", "<mask>"),
            ],
            Self::Qwen2 => &[
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
                ("pad_token", "<|endoftext|>"),
            ],
            Self::Gpt2 => &[
                ("bos_token", "<|endoftext|>"),
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
            ],
            Self::GptNeoX => &[
                ("bos_token", "<|endoftext|>"),
                ("eos_token", "<|endoftext|>"),
                ("unk_token", "<|endoftext|>"),
                ("pad_token", "<|padding|>"),
            ],
            Self::Cohere => &[
                ("bos_token", "<BOS_TOKEN>"),
                ("eos_token", "<|END_OF_TURN_TOKEN|>"),
                ("unk_token", "<UNK>"),
                ("pad_token", "<PAD>"),
                ("cls_token", "<CLS>"),
                ("sep_token", "<SEP>"),
                ("mask_token", "<MASK_TOKEN>"),
            ],
            Self::AsWritten => &[],
        }
    }

    /// Tokens of names that only this class has.
    pub(crate) fn own_names(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::CodeLlama => &[
                ("prefix_token", "▁<PRE>"),
                ("middle_token", "▁<MID>"),
                ("suffix_token", "▁<SUF>"),
                ("eot_token", "▁<EOT>"),
                ("fill_token", "<FILL_ME>"),
            ],
            _ => &[],
        }
    }

    pub(crate) fn has_unknown(self) -> bool {
        matches!(self, Self::CodeLlama | Self::Gemma)
    }

    /// Pipeline of the class: normalizer, pre-tokenizer and decoder. `None` if the file's own
    /// counts.
    pub(crate) fn pipeline(self, config: &Map<String, Value>) -> Option<[Value; 3]> {
        let flag = |key: &str| config.get(key).and_then(Value::as_bool);
        let replace = |from: &str, to: &str| json!({ "type": "Replace", "pattern": { "String": from }, "content": to });
        let split = |pattern: Value, behavior: &str| json!({ "type": "Split", "pattern": pattern, "behavior": behavior, "invert": false });
        let prefix = flag("add_prefix_space");
        let scheme = match (self, prefix.unwrap_or(true)) {
            (_, false) => "never",
            (Self::Llama, true) if flag("legacy") == Some(true) => "always",
            _ => "first",
        };
        let bytes = |words: bool| {
            let prefix = prefix.unwrap_or(false);
            json!({ "type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": true, "use_regex": words })
        };
        let both = |first: Value, second: Value| json!({ "type": "Sequence", "pretokenizers": [first, second] });
        let composed = json!({ "type": "NFC" });
        let (normalizer, pre_tokenizer) = match self {
            Self::AsWritten => return None,
            Self::Llama | Self::CodeLlama => {
                let spaces = json!({ "type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false });
                (Value::Null, spaces)
            }
            Self::Gemma => {
                let words = split(json!({ "String": " " }), "MergedWithPrevious");
                (replace(" ", "▁"), words)
            }
            Self::Qwen2 => {
                let words = split(json!({ "Regex": QWEN_WORDS }), "Isolated");
                (composed, both(words, bytes(false)))
            }
            Self::Gpt2 => (Value::Null, bytes(true)),
            Self::GptNeoX => (composed, bytes(true)),
            Self::Cohere => {
                let digits = json!({ "type": "Digits", "individual_digits": true });
                (composed, both(digits, bytes(true)))
            }
        };
        let decoder = match self.writes_space_sign() {
            true => json!({
                "type": "Sequence",
                "decoders": [replace("▁", " "), { "type": "ByteFallback" }, { "type": "Fuse" }],
            }),
            false => bytes(true),
        };
        Some([normalizer, pre_tokenizer, decoder])
    }
}
