//! Damage inside formats that state their own lengths.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{bytes, json};

/// Length of the number before a safetensors header.
const LENGTH: usize = 8;
/// Magic, version and length of a saved cache, and its checksum.
const CACHE_HEADER: usize = 20;
const CHECKSUM: usize = 32;

/// Changes the JSON header and states its new length, or changes the data.
pub fn safetensors(input: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let parts = || {
        let length = u64::from_le_bytes(input.get(..LENGTH)?.try_into().ok()?);
        let end = LENGTH.checked_add(usize::try_from(length).ok()?)?;
        let header: Value = serde_json::from_slice(input.get(LENGTH..end)?).ok()?;
        Some((header, input[end..].to_vec()))
    };
    let Some((mut header, mut data)) = parts() else {
        return bytes::mutate(input.clone(), &[input], rng);
    };
    match rng.random_range(0..4) {
        0 if !data.is_empty() => data = bytes::mutate(data.clone(), &[data], rng),
        _ => json::change(&mut header, rng),
    }
    let header = header.to_string().into_bytes();
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend(header);
    file.extend(data);
    file
}

/// Changes the body of a saved cache.
pub fn cache(mut input: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    if input.len() <= CACHE_HEADER + CHECKSUM {
        return input;
    }
    let end = input.len() - CHECKSUM;
    let at = rng.random_range(CACHE_HEADER..end);
    match rng.random_range(0..4) {
        0 => input[at] ^= 1 << rng.random_range(0..8),
        1 => bytes::overwrite(&mut input[..end], at, rng),
        2 => drop(input.drain(at..(at + 4 * rng.random_range(1..4)).min(end))),
        _ => {
            let piece = input[at..(at + 16).min(end)].to_vec();
            input.splice(at..at, piece);
        }
    }
    input
}

/// States length and checksum anew, so that damage to the body is seen by the reader of the body.
pub fn seal(mut input: Vec<u8>) -> Vec<u8> {
    if input.len() < CACHE_HEADER + CHECKSUM {
        return input;
    }
    let end = input.len() - CHECKSUM;
    let body = (end - CACHE_HEADER) as u64;
    input[12..CACHE_HEADER].copy_from_slice(&body.to_le_bytes());
    let checksum = Sha256::digest(&input[..end]);
    input[end..].copy_from_slice(&checksum);
    input
}
