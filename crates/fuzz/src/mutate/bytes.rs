//! Damage that knows nothing of the format.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::pick;

/// Numbers at which sizes, counts and signs go wrong.
const EDGES: [u64; 12] = [
    0,
    1,
    0x7f,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 40,
    i64::MAX as u64,
    u64::MAX,
];
/// Longest piece that is moved, doubled or dropped.
const PIECE: usize = 64;
/// Length in bytes above which an input is replaced by a seed.
const MOST_BYTES: usize = 1 << 20;

/// Flips, overwrites, drops, doubles, moves or joins pieces.
pub fn mutate(mut input: Vec<u8>, seeds: &[Vec<u8>], rng: &mut ChaCha8Rng) -> Vec<u8> {
    if input.is_empty() || input.len() > MOST_BYTES {
        return pick(seeds, rng).clone();
    }
    let at = rng.random_range(0..input.len());
    let end = (at + rng.random_range(1..=PIECE)).min(input.len());
    match rng.random_range(0..8) {
        0 => input[at] ^= 1 << rng.random_range(0..8),
        1 => input[at] = rng.random(),
        2 => overwrite(&mut input, at, rng),
        3 => drop(input.drain(at..end)),
        4 => {
            let piece = input[at..end].to_vec();
            input.splice(at..at, piece);
        }
        5 => input.truncate(at),
        6 => {
            let piece: Vec<u8> = input.drain(at..end).collect();
            let to = rng.random_range(0..=input.len());
            input.splice(to..to, piece);
        }
        _ => {
            let other = pick(seeds, rng);
            let from = rng.random_range(0..=other.len());
            input.truncate(at);
            input.extend(&other[from..]);
        }
    }
    input
}

/// Overwrites 1, 2, 4 or 8 bytes with one of [`EDGES`], little-endian.
pub fn overwrite(input: &mut [u8], at: usize, rng: &mut ChaCha8Rng) {
    let edge = pick(&EDGES, rng).to_le_bytes();
    let width = *pick(&[1, 2, 4, 8], rng);
    for (to, from) in input[at..].iter_mut().zip(&edge[..width]) {
        *to = *from;
    }
}
