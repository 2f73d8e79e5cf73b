//! Tokenizers, chat templates, prompts.

use std::path::Path;

use anyhow::Result;
use models::ChatTemplate;
use serde_json::{Map, Value, json};
use vocab_align::{DraftId, Vocabulary, char_of_byte};

use super::put;
use crate::Reader;
use crate::mutate::Shape;

pub const TOKENIZER: Reader = Reader {
    name: "tokenizer",
    what: "tokenizer.json, and texts spelled with it",
    shape: Shape::Json,
    seeds: tokenizers,
    read: |_, bytes| {
        let vocabulary = Vocabulary::<DraftId>::from_json(bytes, "tokenizer.json")?;
        for text in ["", "Hello  wörld\n<s>ab 123</s>", "\u{1f600}▁é\u{0}"] {
            for ids in [
                vocabulary.encode(text),
                vocabulary.encode_with_specials(text),
            ] {
                let Ok(ids) = ids else { continue };
                vocabulary.decode_lossy(&ids);
                vocabulary.byte_lengths(&ids);
            }
        }
        Ok(())
    },
};

pub const TEMPLATE: Reader = Reader {
    name: "template",
    what: "chat_template.jinja, and a prompt in it",
    shape: Shape::Template,
    seeds: || Ok(TEMPLATES.map(|text| text.as_bytes().to_vec()).to_vec()),
    read: |folder, bytes| {
        put(folder, "chat_template.jinja", bytes)?;
        render(folder)
    },
};

pub const TOKENIZER_CONFIG: Reader = Reader {
    name: "tokenizer-config",
    what: "tokenizer_config.json with its template",
    shape: Shape::Json,
    seeds: || {
        let one = |template: &str| {
            json!({
                "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": false},
                "add_bos_token": true, "chat_template": template,
            })
        };
        let named = json!({
            "bos_token": null,
            "chat_template": [{"name": "default", "template": TEMPLATES[0]}, {"name": "tool_use", "template": "x"}],
        });
        let all = TEMPLATES.map(one).into_iter().chain([named]);
        Ok(all.map(|config| config.to_string().into_bytes()).collect())
    },
    read: |folder, bytes| {
        put(folder, "tokenizer_config.json", bytes)?;
        render(folder)
    },
};

pub const GENERATION: Reader = Reader {
    name: "generation",
    what: "generation_config.json, and what is said of it",
    shape: Shape::Json,
    seeds: || {
        let files = [
            json!({"bos_token_id": 1, "eos_token_id": [2, 3], "do_sample": true, "temperature": 0.7, "top_p": 0.8,
                "top_k": 20, "repetition_penalty": 1.1, "transformers_version": "4.37.0"}),
            json!({"eos_token_id": -1, "suppress_tokens": [5, 6], "bad_words_ids": [[7], [8, 9]], "min_new_tokens": 3,
                "sequence_bias": {"[1, 2]": -5.0}, "num_beams": 4, "early_stopping": true, "own_key": null}),
        ];
        Ok(files.map(|file| file.to_string().into_bytes()).to_vec())
    },
    read: |folder, bytes| {
        put(folder, "generation_config.json", bytes)?;
        let found = models::Generation::read(folder)?;
        let _ = (
            found.note(&["repetition_penalty"]),
            serde_json::to_string(&found)?,
        );
        Ok(())
    },
};

pub const SPECIAL_TOKENS: Reader = Reader {
    name: "special-tokens",
    what: "special_tokens_map.json beside a tokenizer, and a text spelled with it",
    shape: Shape::Json,
    seeds: || {
        let map = json!({
            "bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": true, "rstrip": false},
            "additional_special_tokens": ["<a>", {"content": "<b>"}],
            "extra_special_tokens": {"image_token": "<|end|>"}, "added_tokens_decoder": null,
        });
        Ok(vec![map.to_string().into_bytes()])
    },
    read: |folder, bytes| {
        put(
            folder,
            "tokenizer.json",
            byte_fallback().to_string().as_bytes(),
        )?;
        put(folder, "special_tokens_map.json", bytes)?;
        put(
            folder,
            "tokenizer_config.json",
            b"{\"tokenizer_class\": \"LlamaTokenizer\"}",
        )?;
        let path = folder.join("tokenizer.json");
        let vocabulary = Vocabulary::<DraftId>::from_file_for(&path, 265)?;
        vocabulary.encode_with_specials("Hello <a> </s> b<b>").ok();
        Ok(())
    },
};

pub const PIECES: Reader = Reader {
    name: "pieces",
    what: "tokenizer.model, and texts spelled with it",
    shape: Shape::Bytes,
    seeds: || Ok([1, 2].map(pieces).to_vec()),
    read: |folder, bytes| {
        put(folder, "tokenizer.model", bytes)?;
        let path = folder.join("tokenizer.json");
        let vocabulary = Vocabulary::<DraftId>::from_file(&path)?;
        for text in ["", "Hello  w\u{f6}rld\n</s>ab", "\u{1f600}\u{2581}"] {
            if let Ok(ids) = vocabulary.encode_whole(text) {
                vocabulary.decode_lossy(&ids);
            }
            vocabulary.encode(text).ok();
        }
        Ok(())
    },
};

/// A SentencePiece model of a kind: some pieces and byte tokens, in the format's own bytes.
fn pieces(kind: u8) -> Vec<u8> {
    let mut out = Vec::new();
    let mut piece = |text: &str, score: f32, kind: u8| {
        let mut inner = vec![0x0a, text.len() as u8];
        inner.extend(text.as_bytes());
        inner.push(0x15);
        inner.extend(score.to_le_bytes());
        inner.extend([0x18, kind]);
        out.extend([0x0a, inner.len() as u8]);
        out.extend(inner);
    };
    for (text, kind) in [("<unk>", 2), ("<s>", 3), ("</s>", 3)] {
        piece(text, 0.0, kind);
    }
    for byte in 0..=255_u8 {
        piece(&format!("<0x{byte:02X}>"), 0.0, 6);
    }
    for (i, text) in ["\u{2581}", "a", "b", "ab", "\u{2581}ab", "l", "ll"]
        .into_iter()
        .enumerate()
    {
        piece(text, -(i as f32), 1);
    }
    // What the model is, and how text is normalised.
    out.extend([0x12, 5, 0x18, kind, 0x98, 2, 1]);
    out.extend([0x1a, 6, 0x18, 1, 0x20, 1, 0x28, 1]);
    out
}

pub const PROMPT_ARRAY: Reader = Reader {
    name: "prompt-array",
    what: "prompts as a JSON array",
    shape: Shape::Json,
    seeds: || {
        let all = json!([
            {"id": 1, "prompt": "1+1", "reference": null},
            {"id": "b", "prompt": "Wie geht es dir?", "reference": "gut"},
        ]);
        Ok(vec![
            all.to_string().into_bytes(),
            format!("{all:#}\n").into_bytes(),
        ])
    },
    read: |folder, bytes| prompts(bytes, &folder.join("train.json")),
};

pub const PROMPTS: Reader = Reader {
    name: "prompts",
    what: "prompts as JSON lines",
    shape: Shape::JsonLines,
    seeds: || {
        let lines = [
            json!({"id": "a", "prompt": "1+1", "reference": "2"}),
            json!({"id": "b", "prompt": "Wie geht es dir?", "reference": "gut \u{1f600}"}),
            json!({"id": "c", "prompt": "say \"x\"", "reference": "\n"}),
        ];
        let lines = lines.map(|line| line.to_string()).join("\n");
        Ok(vec![
            lines.clone().into_bytes(),
            format!("{lines}\n").into_bytes(),
        ])
    },
    read: |folder, bytes| prompts(bytes, &folder.join("train.jsonl")),
};

fn prompts(bytes: &[u8], path: &Path) -> Result<()> {
    Ok(streams::parse_prompts(bytes, path, "task").map(drop)?)
}

const TEMPLATES: [&str; 4] = [
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{%- for m in messages -%}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]{% else %}{{ raise_exception('roles') }}{% endif %}{%- endfor -%}",
    "{% set ns = namespace(n=0) %}{% macro turn(m) %}<{{ m.role }}>{{ m.content }}{% endmacro %}\r\n{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ turn(m) }}{{ strftime_now('%d %B %Y') }}{% endfor %}{{ tools | tojson(indent=2) if tools }}",
    "{% for m in messages %}{% generation %}{{ '%s: %5.1f' % (m.role, loop.index) }}{% endgeneration %}{{ m.content.rsplit(' ', 1)[0].center(9, '*') | truncate(7, true) }}{{ \"\\x41\\u00e9\\N{BULLET}\" }}{{ {'b': 1e20} | tojson(sort_keys=true, separators=(',', ':')) }}{{ m.content | wordwrap(4) }}{{ 7 % 3 }}{% endfor %}",
];

fn render(folder: &Path) -> Result<()> {
    let template = ChatTemplate::from_model_dir(folder, 512)?;
    template.render("Hello")?;
    template.render("{{ \u{1f600} }} <s>")?;
    Ok(())
}

fn tokenizers() -> Result<Vec<Vec<u8>>> {
    let all = [byte_level(), byte_fallback(), sequence()];
    Ok(all.map(|json| json.to_string().into_bytes()).to_vec())
}

fn added(id: usize, content: &str) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": id.is_multiple_of(2),
        "normalized": false, "special": true,
    })
}

/// Every byte, some merges, three specials.
fn byte_level() -> Value {
    let mut tokens: Vec<String> = (0..=255).map(char_of_byte).map(String::from).collect();
    let merges = [["a", "b"], ["ab", "a"], ["Ġ", "a"], ["Ġa", "b"], ["1", "2"]];
    tokens.extend(merges.map(|pair| pair.concat()));
    let specials = [261, 262, 263].into_iter().zip(["<s>", "</s>", "<|end|>"]);
    json!({
        "version": "1.0",
        "added_tokens": specials.map(|(id, text)| added(id, text)).collect::<Vec<_>>(),
        "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": null, "byte_fallback": false, "ignore_merges": false,
            "vocab": numbered(&tokens), "merges": merges,
        },
    })
}

/// Pieces with a mark for spaces, bytes as tokens of their own.
fn byte_fallback() -> Value {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).to_vec();
    tokens.extend((0..=255_u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "a", "b", "▁a", "ab", "▁ab"].map(str::to_owned));
    let specials = (0..3).zip(["<unk>", "<s>", "</s>"]);
    json!({
        "version": "1.0",
        "added_tokens": specials.map(|(id, text)| added(id, text)).collect::<Vec<_>>(),
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ]},
        "pre_tokenizer": null,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {
            "type": "BPE", "dropout": null, "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
            "vocab": numbered(&tokens), "merges": ["▁ a", "a b", "▁a b"],
        },
    })
}

/// Byte-level after a regular expression and digits.
fn sequence() -> Value {
    let mut json = byte_level();
    json["normalizer"] = json!({"type": "NFC"});
    json["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": "\\s+|\\p{L}+|[^\\s\\p{L}]{1,3}"}, "behavior": "Isolated", "invert": false},
        {"type": "Digits", "individual_digits": true},
        {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false},
    ]});
    json
}

fn numbered(tokens: &[String]) -> Map<String, Value> {
    let numbered = tokens.iter().enumerate();
    numbered
        .map(|(id, token)| (token.clone(), id.into()))
        .collect()
}
