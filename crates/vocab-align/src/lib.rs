//! Vocabulary alignment: one drafter's tokens against any target's.
//!
//! A token is a byte string. This crate reads two `tokenizer.json` files into token <-> byte
//! tables and computes from them, without any tensor:
//!
//! * [`Alignment`]: the direct mapping t <-> d of the paper's section 3.1, by bytes or by the
//!   paper's string rule (whose size is the "intersection" of Table 8);
//! * [`DraftContext`]: the "translate back" step of Algorithm 1, accepted target tokens as the
//!   drafter's canonical tokens, re-tokenising only a bounded tail;
//! * [`align_offsets`]: two tokenisations of one text as chunks with common ends, from which
//!   n-grams (t, [d_1..d_n]) are mined;
//! * [`Utf8Stream`]: the text of tokens as they come, in whole characters.
//!
//! Symbols: V_q and d, the drafter's vocabulary and tokens ([`DraftId`]); V_p and t, the target's
//! ([`TargetId`]).
//!
//! Ids are those of the `tokenizers` library. In mode [`MappingMode::Bytes`] no token is mapped to
//! different bytes. A [`DraftContext`] is the target's text in the drafter's tokens, as far as the
//! drafter has tokens for it, with the number of the target's bytes that each token stands for.
//!
//! ```
//! use std::sync::Arc;
//! use vocab_align::{Alignment, DraftContext, DraftId, MappingMode, TargetId, Vocabulary};
//!
//! // Two toy tokenizers: byte by byte, and with the merges "a"+"b" and "ab"+"a".
//! # fn json(extra: &[&str], merges: &[[&str; 2]]) -> String {
//! #     let bytes = (0..=255).map(|b| vocab_align::char_of_byte(b).to_string());
//! #     let tokens = bytes.chain(extra.iter().map(|t| t.to_string()));
//! #     let vocab: serde_json::Map<_, _> = tokens.enumerate().map(|(i, t)| (t, i.into())).collect();
//! #     serde_json::json!({
//! #         "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true},
//! #         "model": {"type": "BPE", "vocab": vocab, "merges": merges},
//! #     }).to_string()
//! # }
//! let draft: Vocabulary<DraftId> = Vocabulary::from_json(json(&[], &[]), "draft")?;
//! let target: Vocabulary<TargetId> =
//!     Vocabulary::from_json(json(&["ab", "aba"], &[["a", "b"], ["ab", "a"]]), "target")?;
//!
//! let alignment = Arc::new(Alignment::build(&draft, &target, MappingMode::Bytes));
//! assert_eq!(alignment.pairs().len(), 256);
//!
//! let mut context = DraftContext::new(draft.clone(), target.clone(), alignment)?;
//! context.start(&draft.encode("say ")?, &target.encode("say ")?);
//! let accepted = target.encode("aba")?;
//! assert_eq!(accepted.len(), 1);
//! assert_eq!(context.push(&accepted)?, 4, "the prompt's tokens stay");
//! assert_eq!(draft.decode_lossy(context.ids()), "say aba");
//! # Ok::<(), vocab_align::AlignError>(())
//! ```

mod alignment;
mod beside;
mod class;
mod context;
mod error;
mod file;
mod ids;
mod joints;
mod named;
mod offsets;
mod pieces;
mod pipeline;
mod pool;
mod prefix;
mod roles;
mod spelling;
mod tables;
mod utf8;
mod vocabulary;

pub use alignment::{Alignment, AlignmentStats, MappingMode};
pub use beside::special_names;
pub use class::OWN_PIPELINE;
pub use context::DraftContext;
pub use error::AlignError;
pub use file::without_mark;
pub use ids::{DraftId, TargetId, TokenId, raw_ids};
pub use offsets::{AlignedSpan, align_offsets};
pub use pieces::merges_by_score;
pub use roles::SpecialRole;
pub use spelling::char_of_byte;
pub use utf8::Utf8Stream;
pub use vocabulary::Vocabulary;
