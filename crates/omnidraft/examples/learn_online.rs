//! Lets the drafter learn from the target while both answer.
//!
//! ```sh
//! cargo run --release -p omnidraft --example learn_online -- models/D models/L
//! ```
//!
//! The same questions are asked several times, so that a few updates show.

use omnidraft::prelude::*;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

const PROMPTS: [&str; 4] = [
    "Add 2 and 3.",
    "Give three tips for staying healthy.",
    "Tom has 4 apples and buys 3 more. How many apples does he have?",
    "Name a colour.",
];

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let drafter = Drafter::open(next(format!("{MODELS}/D")))?;
    let target = Target::open(next(format!("{MODELS}/L")))?;

    let options = LearnOptions {
        every: 4,
        ..LearnOptions::default()
    };
    let mut session = Session::of_models(&drafter, &target)?
        .learning(&drafter, options)?
        .build()?;
    for pass in 1..=4 {
        let (mut accepted, mut proposed, mut rounds, mut tokens) = (0, 0, 0, 0);
        for prompt in PROMPTS {
            let answer = session.generate_text(prompt, 32)?;
            accepted += answer.totals.accepted;
            proposed += answer.totals.proposed;
            rounds += answer.totals.rounds;
            tokens += answer.tokens.len();
        }
        println!(
            "pass {pass}: {tokens} tokens in {rounds} rounds, {accepted} of {proposed} accepted, {} updates",
            session.updates()
        );
    }
    Ok(())
}
