//! Damage that keeps most of a file's structure, so that it reaches past the first check.

mod bytes;
mod container;
mod json;
mod lines;

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// Largest number of mutations of one input.
const MOST: usize = 4;
/// Share of mutations that know the structure; the others change bytes.
const STRUCTURED: f64 = 0.8;

/// Structure of a file that mutations know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Nothing.
    Bytes,
    /// A JSON document.
    Json,
    /// JSON documents, one a line.
    JsonLines,
    /// `key = value` lines in `[sections]`.
    Toml,
    /// A template: text with `{{ }}` and `{% %}`.
    Template,
    /// Eight bytes of length, a JSON header of that length, data.
    Safetensors,
    /// A saved n-gram cache: header, body, checksum. The checksum is corrected after the damage.
    Sealed,
}

/// A damaged copy of one of the seeds.
pub fn mutate(shape: Shape, seeds: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    let mut input = pick(seeds, rng).clone();
    let most = rng.random_range(1..=MOST);
    let count = rng.random_range(1..=most);
    for _ in 0..count {
        input = match rng.random_bool(STRUCTURED) {
            true => structured(shape, input, seeds, rng),
            false => bytes::mutate(input, seeds, rng),
        };
    }
    match shape {
        Shape::Sealed => container::seal(input),
        _ => input,
    }
}

fn structured(shape: Shape, input: Vec<u8>, seeds: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    match shape {
        Shape::Bytes => bytes::mutate(input, seeds, rng),
        Shape::Json => json::mutate(input, rng),
        Shape::JsonLines => lines::json_lines(input, rng),
        Shape::Toml => lines::toml(input, rng),
        Shape::Template => lines::template(input, rng),
        Shape::Safetensors => container::safetensors(input, rng),
        Shape::Sealed => container::cache(input, rng),
    }
}

/// One of some things.
fn pick<'a, T>(all: &'a [T], rng: &mut ChaCha8Rng) -> &'a T {
    &all[rng.random_range(0..all.len())]
}
