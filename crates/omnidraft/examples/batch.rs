//! Answers several prompts at once: one forward of the target for all of them.
//!
//! ```sh
//! cargo run --release -p omnidraft --example batch -- models/D models/L
//! ```

use omnidraft::prelude::*;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

const PROMPTS: [&str; 3] = [
    "Add 2 and 3.",
    "Give three tips for staying healthy.",
    "Name a colour.",
];

fn main() -> Result<(), Error> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: String| arguments.next().unwrap_or(default);
    let drafter = Drafter::open(next(format!("{MODELS}/D")))?;
    let target = Target::open(next(format!("{MODELS}/L")))?;

    // One alignment for all; engines of one model share its weights.
    let pair = Pair::new(drafter.vocabulary(), target.vocabulary());
    let session = || {
        Session::builder(drafter.engine()?, target.engine()?, &pair)
            .chat(&drafter, &target)
            .build()
    };
    let sessions = PROMPTS.iter().map(|_| session());
    let mut sessions: Vec<_> = sessions.collect::<Result<_, _>>()?;

    for (prompt, answer) in PROMPTS
        .iter()
        .zip(generate_together(&mut sessions, &PROMPTS, 32)?)
    {
        println!("> {prompt}\n{answer}\n");
        let alone = session()?.generate_text(prompt, 32)?;
        assert_eq!(
            answer.tokens, alone.tokens,
            "an answer depends on its prompt alone"
        );
    }
    Ok(())
}
