//! Aligns two tokenizers: the share of tokens that both have, and a sentence in both.
//!
//! ```sh
//! cargo run --release -p omnidraft --example align -- models/D models/L "An unbelievable sentence."
//! ```
//!
//! The first two arguments are model folders, or files `tokenizer.json`, of the drafter and the target.

use std::error::Error;
use std::path::PathBuf;

use omnidraft::prelude::*;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let draft: Vocabulary<DraftId> = tokenizer(next(format!("{MODELS}/D")))?;
    let target: Vocabulary<TargetId> = tokenizer(next(format!("{MODELS}/L")))?;
    let text = next("The internationalisation of tokenizers is unbelievable.".to_owned());

    // Every token of both vocabularies is looked up once; sessions share the result.
    let pair = Pair::new(&draft, &target);
    let stats = pair.alignment.stats();
    println!("drafter: {} tokens", stats.draft_vocab);
    println!("target: {} tokens", stats.target_vocab);
    println!(
        "{} draft tokens ({:.1}%) stand for a target token; they reach {:.1}% of the target's",
        stats.direct_tokens,
        100.0 * stats.draft_coverage,
        100.0 * stats.target_coverage
    );

    let (drafted, aimed) = (draft.encode(&text)?, target.encode(&text)?);
    let (lengths, target_lengths) = (draft.byte_lengths(&drafted), target.byte_lengths(&aimed));
    // The shortest stretches of the text that end with a token in both.
    for span in align_offsets(&lengths, &target_lengths) {
        let left = spelled(&draft, &drafted[span.draft]);
        let right = spelled(&target, &aimed[span.target]);
        println!("{left:<48} {right}");
    }
    Ok(())
}

/// Reads a tokenizer from its file or from the folder of its model.
fn tokenizer<I: TokenId>(path: String) -> Result<Vocabulary<I>, Box<dyn Error>> {
    let path = PathBuf::from(path);
    let file = match path.is_dir() {
        true => path.join("tokenizer.json"),
        false => path,
    };
    Ok(Vocabulary::from_file(&file)?)
}

/// Writes tokens with bars between them.
fn spelled<I: TokenId>(vocabulary: &Vocabulary<I>, ids: &[I]) -> String {
    let tokens = ids.iter().map(|id| vocabulary.decode_lossy(&[*id]));
    tokens.collect::<Vec<String>>().join("|")
}
