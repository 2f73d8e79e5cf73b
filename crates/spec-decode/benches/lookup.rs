//! Looking text up: microseconds a round, and bytes of memory a token.
//!
//! ```text
//! cargo bench --locked -p runner -p spec-decode --bench lookup
//! cargo bench --locked -p runner -p spec-decode --bench lookup -- runs/real-automaton/.../texts-0123456789abcdef.bin
//! ```
//!
//! The texts are made up, or those of a saved corpus. Each is read in rounds of three tokens, with a look-up
//! before each, and is remembered when it ends.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use spec_decode::{CopySource, Dice, History, Purpose, StreamName, SuffixCorpus, SuffixLookup};
use vocab_align::TargetId;

/// Tokens of a text that are its prompt.
const PROMPT: usize = 80;
/// Tokens of a round.
const ROUND: usize = 3;
/// Bytes that the corpus may take.
const LIMIT: usize = 256 << 20;

/// Texts of phrases that come again, and of words that hardly do.
fn made_up() -> Vec<Vec<TargetId>> {
    let mut dice: Dice = StreamName::new(1, 0).dice(Purpose::Plain);
    let mut below = |n: u32| (dice.uniform() * f64::from(n)) as u32;
    let phrases: Vec<Vec<TargetId>> = (0..4000)
        .map(|_| {
            let word = below(2000);
            (0..4 + below(8))
                .map(|i| TargetId(word * 7 + i * below(50)))
                .collect()
        })
        .collect();
    let texts = (0..1000).map(|_| {
        let mut text = Vec::new();
        while text.len() < 250 {
            let common = below(64) * below(64);
            match below(4) {
                0 => text.push(TargetId(below(50_000))),
                _ => text.extend(&phrases[(common % 4000) as usize]),
            }
        }
        text
    });
    texts.collect()
}

/// The time of look-ups, of appending tokens, and of remembering texts.
#[derive(Default)]
struct Spent {
    find: Duration,
    extend: Duration,
    absorb: Duration,
    finds: u32,
    copied: usize,
}

fn timed<T>(sum: &mut Duration, work: impl FnOnce() -> T) -> T {
    let clock = Instant::now();
    let done = work();
    *sum += clock.elapsed();
    done
}

fn read(source: &mut CopySource, text: &[TargetId], spent: &mut Spent) {
    let (prompt, answer) = text.split_at(text.len().min(PROMPT));
    timed(&mut spent.extend, || source.start(prompt));
    for round in answer.chunks(ROUND) {
        let found = timed(&mut spent.find, || source.find(32));
        let found = found.map_or(Vec::new(), |found| found.tokens);
        spent.copied += found.iter().zip(round).take_while(|(a, b)| a == b).count();
        spent.finds += 1;
        timed(&mut spent.extend, || source.extend(round));
    }
}

fn print(name: &str, spent: &Spent, texts: usize, tokens: usize) {
    let us = |time: Duration, n: usize| time.as_secs_f64() * 1e6 / n.max(1) as f64;
    println!(
        "{name}: {:.2} us a look-up, {:.3} us a token appended, {:.1} us a text remembered, {:.3} of the tokens copied",
        us(spent.find, spent.finds as usize),
        us(spent.extend, tokens),
        us(spent.absorb, texts),
        spent.copied as f64 / tokens.max(1) as f64,
    );
}

fn main() {
    let file = std::env::args()
        .skip(1)
        .find(|argument| argument.ends_with(".bin"));
    let texts = match &file {
        None => made_up(),
        Some(path) => {
            let bytes = std::fs::read(path).expect("a file of texts");
            // The fingerprint of the vocabulary stands after magic, version and length.
            let vocabulary = bytes.get(20..28).and_then(|field| field.try_into().ok());
            let vocabulary = u64::from_le_bytes(vocabulary.expect("a whole file"));
            let corpus = SuffixCorpus::<TargetId>::from_bytes(&bytes, LIMIT, vocabulary);
            let corpus = corpus.expect("texts");
            corpus.texts().map(<[_]>::to_vec).collect()
        }
    };
    let tokens: usize = texts.iter().map(Vec::len).sum();
    println!("{} texts, {tokens} tokens", texts.len());

    let (mut source, mut spent) = (CopySource::from(History::default()), Spent::default());
    for text in &texts {
        read(&mut source, text, &mut spent);
    }
    print("latest", &spent, texts.len(), tokens);

    let corpus = Arc::new(Mutex::new(SuffixCorpus::new(LIMIT)));
    let mut spent = Spent::default();
    for text in &texts {
        let mut lookup = SuffixLookup::new(Some(Arc::clone(&corpus)));
        let mut source = CopySource::from(lookup.clone());
        read(&mut source, text, &mut spent);
        lookup.start(text);
        timed(&mut spent.absorb, || lookup.absorb());
    }
    print("most frequent", &spent, texts.len(), tokens);
    let corpus = corpus.lock().expect("a corpus");
    println!(
        "{} tokens remembered, {:.1} bytes each in memory, {:.1} on disk",
        corpus.len(),
        corpus.bytes() as f64 / corpus.len() as f64,
        corpus.to_bytes(0).len() as f64 / corpus.len() as f64,
    );
}
