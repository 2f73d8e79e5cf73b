//! An engine of one's own, as the drafter of a model: a table of which token follows which.
//!
//! ```sh
//! cargo run --release -p omnidraft --example own_engine
//! ```
//!
//! The table is counted from the target's earlier answers, in the tokens of another tokenizer.

use omnidraft::prelude::*;

const MODELS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../models");

/// A language model that knows the last token alone.
struct Bigram {
    /// Logits of the next token, by the last one: `[vocab, vocab]`.
    rows: Vec<f32>,
    vocab: usize,
    /// The tokens in the cache.
    read: Vec<u32>,
}

impl Bigram {
    /// Counts which token follows which. A pair has the count 1, plus 100 for each occurrence.
    fn new(vocab: usize, texts: &[Vec<DraftId>]) -> Self {
        let mut counts = vec![1.0_f32; vocab * vocab];
        for pair in texts.iter().flat_map(|text| text.windows(2)) {
            counts[pair[0].index() * vocab + pair[1].index()] += 100.0;
        }
        Self {
            rows: counts.into_iter().map(f32::ln).collect(),
            vocab,
            read: Vec::new(),
        }
    }
}

impl LanguageModel for Bigram {
    fn vocab_size(&self) -> usize {
        self.vocab
    }

    fn len(&self) -> usize {
        self.read.len()
    }

    fn max_len(&self) -> usize {
        4096
    }

    fn truncate(&mut self, len: usize) {
        self.read.truncate(len);
    }

    fn forward(&mut self, ids: &[u32], logits: &mut Vec<f32>) -> Result<(), ModelError> {
        // Refuses ids that do not exist, and more than there is room for.
        check_call(ids, self.len(), self.max_len(), self.vocab)?;
        logits.clear();
        for id in ids {
            self.read.push(*id);
            let row = *id as usize * self.vocab;
            logits.extend_from_slice(&self.rows[row..row + self.vocab]);
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // Does it keep the contract? Here with a vocabulary of fifty tokens.
    conformance::check(|| Bigram::new(50, &[vec![DraftId(1), DraftId(7)]]))?;

    let target = Target::open(format!("{MODELS}/L"))?;
    // The table's tokens are those of another model's tokenizer.
    let drafter = Drafter::open(format!("{MODELS}/D"))?;
    let pair = Pair::new(drafter.vocabulary(), target.vocabulary());
    let prompts = [
        "Add 2 and 3.",
        "Add 4 and 5.",
        "Give three tips for staying healthy.",
    ];

    let mut texts = Vec::new();
    for turn in ["nothing counted", "its answers counted"] {
        let table = Bigram::new(pair.draft.len(), &texts);
        let mut session = Session::builder(table, target.engine()?, &pair)
            .chat(&drafter, &target)
            .draft_length(3)
            .build()?;
        let (mut tokens, mut rounds) = (0, 0);
        for prompt in prompts {
            let answer = session.generate_text(prompt, 48)?;
            tokens += answer.tokens.len();
            rounds += answer.totals.rounds;
            texts.push(pair.draft.encode(&answer.text)?);
        }
        println!("{turn}: {tokens} tokens in {rounds} rounds");
    }
    Ok(())
}
