//! Tokenizers, chat templates, prompts.

use std::path::Path;

use anyhow::Result;
use models::ChatTemplate;
use serde_json::{Map, Value, json};
use vocab_align::{DraftId, Vocabulary};

use super::put;
use crate::mutate::Shape;
use crate::{Outcome, Reader};

/// `tokenizer.json`.
pub const TOKENIZER: Reader = Reader {
    name: "tokenizer",
    what: "tokenizer.json, and texts spelled with it",
    shape: Shape::Json,
    seeds: tokenizers,
    read: |_, bytes| {
        let Ok(vocabulary) = Vocabulary::<DraftId>::from_json(bytes, "tokenizer.json") else {
            return Outcome::Refused;
        };
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
        Outcome::Accepted
    },
};

/// `chat_template.jinja`.
pub const TEMPLATE: Reader = Reader {
    name: "template",
    what: "chat_template.jinja, and a prompt in it",
    shape: Shape::Template,
    seeds: || Ok(TEMPLATES.map(|text| text.as_bytes().to_vec()).to_vec()),
    read: |folder, bytes| {
        let read = || -> Result<()> {
            put(folder, "chat_template.jinja", bytes)?;
            render(folder)
        };
        read().into()
    },
};

/// `tokenizer_config.json`.
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
        let read = || -> Result<()> {
            put(folder, "tokenizer_config.json", bytes)?;
            render(folder)
        };
        read().into()
    },
};

/// Prompts, a JSON document a line.
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
    read: |folder, bytes| streams::parse_prompts(bytes, &folder.join("train.jsonl"), "task").into(),
};

const TEMPLATES: [&str; 3] = [
    "{% for message in messages %}{{ '<|' + message['role'] + '|>\\n' + message['content'] }}{% endfor %}{% if add_generation_prompt %}<|assistant|>\n{% endif %}",
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ messages[0].content }}{% endif %}{%- for m in messages -%}{% if m.role == 'user' %}[INST] {{ m.content | trim }} [/INST]{% else %}{{ raise_exception('roles') }}{% endif %}{%- endfor -%}",
    "{% set ns = namespace(n=0) %}{% macro turn(m) %}<{{ m.role }}>{{ m.content }}{% endmacro %}\r\n{% for m in messages %}{% set ns.n = ns.n + 1 %}{{ turn(m) }}{{ strftime_now('%d %B %Y') }}{% endfor %}{{ tools | tojson(indent=2) if tools }}",
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

/// The printable character that stands for a byte in byte-level vocabularies.
fn letter(byte: u8) -> char {
    match byte {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => char::from(byte),
        0x00..=0x20 => char::from_u32(0x100 + u32::from(byte)).unwrap_or(' '),
        0x7f..=0xa0 => char::from_u32(0x121 + u32::from(byte) - 0x7f).unwrap_or(' '),
        0xad => '\u{143}',
    }
}

fn added(id: usize, content: &str) -> Value {
    json!({
        "id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": id.is_multiple_of(2),
        "normalized": false, "special": true,
    })
}

/// Every byte, some merges, three specials.
fn byte_level() -> Value {
    let mut tokens: Vec<String> = (0..=255).map(|byte| letter(byte).to_string()).collect();
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

/// Byte-level behind a regular expression and digits.
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
