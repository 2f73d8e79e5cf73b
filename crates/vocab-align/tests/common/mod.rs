//! Small tokenizers made in code, and access to the real ones.
#![allow(dead_code, reason = "every test file uses its own part")]

pub mod strings;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::metaspace::{Metaspace, PrependScheme};
use tokenizers::{AddedToken, PreTokenizerWrapper, Tokenizer, TokenizerBuilder};
use tokenizers::{DecoderWrapper, NormalizerWrapper, PostProcessorWrapper};
use vocab_align::{Alignment, DraftContext, DraftId, MappingMode, TargetId, TokenId, Vocabulary};

/// Training text of the small tokenizers.
const SENTENCES: &[&str] = &[
    "The quick brown fox jumps over the lazy dog, and the dog does not mind at all.",
    "def add(left, right):\n    return left + right\n\n\ndef main():\n    print(add(1, 2))\n",
    "Natalia sold 48 clips in April; half as many in May. How many did she sell altogether?",
    "The café served crème brûlée to the naïve visitor — “très bien”, she said.",
    "It's the visitor's turn, they'll say; we've said that it doesn't matter.",
    "Emoji 😀 and 👩‍👩‍👧 and 漢字 and more 😀 😀.\tTabs\tand  two  spaces.\r\nLines.\n",
];

/// Texts with everything that string-level maps get wrong.
pub const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "The quick brown fox",
    " leading and trailing ",
    "two  spaces,   three, and a tab\t.",
    "line\nbreak\r\nand\n\n\nmore \n  \n indented",
    "clean up ? yes , please ! it 's n't",
    "café cafe\u{301} ﬁ Å Å",
    "😀👩‍👩‍👧😀 漢字かな混じり文 🏳️‍🌈",
    "the sign ▁ and ▁▁ are text; so are Ġ and Ċ",
    "<0x0A> is text, <s> and </s> are text, <|im_end|> too, <unk>",
    "def f(x):\n\treturn x**2  # squared\n",
    "\u{0}\u{7f}\u{a0}\u{ad}\u{feff}\u{fffd}",
    "don't DON'T we'll 12345678 3.14",
];

type Untrained = TokenizerBuilder<
    BPE,
    NormalizerWrapper,
    PreTokenizerWrapper,
    PostProcessorWrapper,
    DecoderWrapper,
>;

fn train(pre_tokenizer: PreTokenizerWrapper, mut trainer: BpeTrainer) -> Value {
    let mut tokenizer = Untrained::new()
        .with_model(BPE::default())
        .with_pre_tokenizer(Some(pre_tokenizer))
        .build()
        .expect("a valid pipeline");
    tokenizer
        .train(&mut trainer, SENTENCES.iter().map(|s| s.to_string()))
        .expect("training");
    serde_json::from_str(&tokenizer.to_string(false).expect("serialises")).expect("valid JSON")
}

fn special(content: &str) -> AddedToken {
    AddedToken::from(content.to_owned(), true)
}

/// A byte-level BPE as of Llama-3 or Qwen2, with `merges` tokens beyond bytes and specials.
pub fn byte_level_json(merges: usize) -> Value {
    let specials = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"];
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .min_frequency(1)
        .vocab_size(256 + specials.len() + merges)
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .special_tokens(specials.map(special).to_vec())
        .build();
    let mut json = train(ByteLevel::new(false, true, true).into(), trainer);
    json["decoder"] = json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    json
}

/// Source of the dummy prefix of a SentencePiece-style tokenizer.
#[derive(Clone, Copy, PartialEq)]
pub enum Prefix {
    /// A Prepend normalizer and no pre-tokenizer (Llama-2's conversion).
    Normalizer,
    /// A Metaspace pre-tokenizer (the newer conversion).
    Metaspace,
    /// No dummy prefix.
    Absent,
}

/// A SentencePiece-style BPE with byte fallback as of Llama-2.
pub fn sentence_piece_json(merges: usize, prefix: Prefix) -> Value {
    let bytes = (0..=255u8).map(|b| format!("<0x{b:02X}>"));
    let specials = ["<unk>", "<s>", "</s>"]
        .map(str::to_owned)
        .into_iter()
        .chain(bytes);
    let trainer = BpeTrainer::builder()
        .show_progress(false)
        .min_frequency(1)
        .vocab_size(256 + 3 + 90 + merges)
        .limit_alphabet(90)
        .special_tokens(specials.map(|s| special(&s)).collect())
        .build();
    let mut json = train(
        Metaspace::new('▁', PrependScheme::Never, true).into(),
        trainer,
    );
    json["added_tokens"]
        .as_array_mut()
        .expect("a list")
        .truncate(3);
    json["model"]["byte_fallback"] = json!(true);
    json["model"]["unk_token"] = json!("<unk>");
    json["model"]["fuse_unk"] = json!(true);
    let replace = json!({"type": "Replace", "pattern": {"String": " "}, "content": "▁"});
    match prefix {
        Prefix::Metaspace => json["pre_tokenizer"]["prepend_scheme"] = json!("first"),
        Prefix::Normalizer => {
            json["pre_tokenizer"] = Value::Null;
            let prepend = json!({"type": "Prepend", "prepend": "▁"});
            json["normalizer"] = json!({"type": "Sequence", "normalizers": [prepend, replace]});
        }
        Prefix::Absent => {
            json["pre_tokenizer"] = Value::Null;
            json["normalizer"] = replace;
        }
    }
    json
}

pub fn load<I: TokenId>(json: &Value, name: &str) -> Vocabulary<I> {
    Vocabulary::from_json(json.to_string(), name).expect("a valid tokenizer")
}

/// The reference implementation on the same file.
pub fn reference(json: &Value) -> Tokenizer {
    Tokenizer::from_bytes(json.to_string()).expect("a valid tokenizer")
}

pub fn reference_ids(tokenizer: &Tokenizer, text: &str) -> Vec<u32> {
    tokenizer
        .encode(text, false)
        .expect("encodes")
        .get_ids()
        .to_vec()
}

/// Every small tokenizer by name.
pub fn small<I: TokenId>() -> Vec<(&'static str, Vocabulary<I>)> {
    let of = |name, json: Value| (name, load(&json, name));
    vec![
        of("byte-level-60", byte_level_json(60)),
        of("byte-level-200", byte_level_json(200)),
        of("prepend", sentence_piece_json(80, Prefix::Normalizer)),
        of("metaspace", sentence_piece_json(150, Prefix::Metaspace)),
        of("no-prefix", sentence_piece_json(30, Prefix::Absent)),
    ]
}

pub fn context(draft: &Vocabulary<DraftId>, target: &Vocabulary<TargetId>) -> DraftContext {
    let alignment = Arc::new(Alignment::build(draft, target, MappingMode::Bytes));
    DraftContext::new(draft.clone(), target.clone(), alignment).expect("an alignment of these")
}

pub fn raw<I: TokenId>(ids: &[I]) -> Vec<u32> {
    ids.iter().map(|id| id.get()).collect()
}

/// The folder of real tokenizers and datasets. If there is none, prints that the test is skipped.
pub fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("OMNIDRAFT_SHARED").map(PathBuf::from);
    if folder.is_none() {
        println!("skipped: OMNIDRAFT_SHARED is not set");
    }
    folder
}
