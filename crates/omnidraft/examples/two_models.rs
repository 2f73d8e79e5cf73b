//! Lets one model draft for another that has another tokenizer, and prints the answer as it comes.
//!
//! ```sh
//! cargo run --release -p omnidraft --example two_models -- models/D models/L "Add 2 and 3."
//! ```
//!
//! The first two arguments are the drafter and the target: model folders, `.gguf` files, or
//! `hf:owner/name`.

use std::io::{Write, stdout};

use omnidraft::prelude::*;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let drafter = Drafter::open(next(format!("{MODELS}/D")))?;
    let target = Target::open(next(format!("{MODELS}/L")))?;
    let prompt = next("Give three tips for staying healthy.".to_owned());

    let mut session = Session::of_models(&drafter, &target)?
        .draft_length(4)
        .temperature(0.0)
        .seed(7)
        .build()?;
    let answer = session.stream_text(&prompt, 64, |text| {
        print!("{text}");
        // A closed pipe ends the display, not the answer.
        let _ = stdout().flush();
    })?;

    println!();
    println!(
        "{} tokens in {} rounds; {} of {} proposed tokens accepted",
        answer.tokens.len(),
        answer.totals.rounds,
        answer.totals.accepted,
        answer.totals.proposed,
    );
    println!(
        "n-grams learnt: {}",
        session.cache().map_or(0, NgramCache::len)
    );
    Ok(())
}
