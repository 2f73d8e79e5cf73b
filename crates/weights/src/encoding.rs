//! Encodings of stored values, and their conversion to and from f32.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Storage format of a tensor's values. Bytes are little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Encoding {
    /// Four bytes: IEEE single precision.
    F32,
    /// Two bytes: IEEE half precision.
    F16,
    /// Two bytes: the upper half of an f32.
    Bf16,
    /// GGML: 32 signed bytes with a scale in f16.
    Q8_0,
    /// GGML: 32 nibbles less 8, with a scale in f16.
    Q4_0,
    /// GGML: 32 nibbles, with a scale and a least value in f16.
    Q4_1,
    /// GGML: 32 values of five bits less 16, with a scale in f16.
    Q5_0,
    /// GGML: 32 values of five bits, with a scale and a least value in f16.
    Q5_1,
    /// GGML: 256 nibbles, a scale and a minimum of six bits for each 32 of them.
    Q4K,
    /// GGML: 256 values of five bits, a scale and a minimum of six bits for each 32 of them.
    Q5K,
    /// GGML: 256 values of six bits less 32, a scale of eight bits for each 16 of them.
    Q6K,
}

/// Size of a block, the smallest part of a tensor that is stored by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    /// Number of its values.
    pub values: usize,
    /// Its size in bytes.
    pub bytes: usize,
}

/// Number of values of a GGML super-block.
const SUPER: usize = 256;

impl Encoding {
    /// Size of a block of this encoding. Plain numbers are blocks of one value.
    pub fn block(self) -> BlockSize {
        let (values, bytes) = match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q8_0 => (32, 34),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q5_0 => (32, 22),
            Self::Q5_1 => (32, 24),
            Self::Q4K => (SUPER, 144),
            Self::Q5K => (SUPER, 176),
            Self::Q6K => (SUPER, 210),
        };
        BlockSize { values, bytes }
    }

    /// Size in bytes of `values` values; `None` if they are not whole blocks, or too many for the
    /// address space.
    pub fn bytes(self, values: usize) -> Option<usize> {
        let block = self.block();
        match values.is_multiple_of(block.values) {
            true => (values / block.values).checked_mul(block.bytes),
            false => None,
        }
    }

    /// Appends `values`, which must be whole blocks, to `to` in this encoding. In Bf16 a value
    /// becomes the nearest number; in F16 too, or the largest one if it is beyond; in Q8_0 a
    /// multiple of the largest magnitude of its block over 127. Returns false, and appends nothing,
    /// for an encoding that is only read.
    #[must_use]
    pub fn encode(self, values: &[f32], to: &mut Vec<u8>) -> bool {
        match self {
            Self::F32 => to.extend(values.iter().flat_map(|x| x.to_le_bytes())),
            Self::F16 => to.extend(values.iter().flat_map(|x| saturated_half(*x).to_le_bytes())),
            Self::Bf16 => to.extend(values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes())),
            Self::Q8_0 => values.chunks(32).for_each(|block| encode_q8_0(block, to)),
            _ => return false,
        }
        true
    }

    /// Appends the values stored in `bytes`, whole blocks, to `to`.
    pub(crate) fn decode(self, bytes: &[u8], to: &mut Vec<f32>) {
        let block = self.block();
        let size = block.bytes;
        to.reserve(bytes.len() / size * block.values);
        match self {
            Self::F32 => to.extend(words::<4>(bytes).map(f32::from_le_bytes)),
            Self::Bf16 => to.extend(
                words::<2>(bytes).map(|b| f32::from_bits(u32::from(u16::from_le_bytes(b)) << 16)),
            ),
            Self::F16 => decode_f16(bytes, to),
            Self::Q8_0 => bytes.chunks_exact(size).for_each(|b| decode_q8_0(b, to)),
            Self::Q4_0 => bytes.chunks_exact(size).for_each(|b| decode_q4_0(b, to)),
            Self::Q4_1 => bytes.chunks_exact(size).for_each(|b| decode_q4_1(b, to)),
            Self::Q5_0 => bytes.chunks_exact(size).for_each(|b| decode_q5_0(b, to)),
            Self::Q5_1 => bytes.chunks_exact(size).for_each(|b| decode_q5_1(b, to)),
            Self::Q4K => bytes.chunks_exact(size).for_each(|b| decode_q4_k(b, to)),
            Self::Q5K => bytes.chunks_exact(size).for_each(|b| decode_q5_k(b, to)),
            Self::Q6K => bytes.chunks_exact(size).for_each(|b| decode_q6_k(b, to)),
        }
    }
}

impl std::fmt::Display for Encoding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::Q8_0 => "Q8_0",
            Self::Q4_0 => "Q4_0",
            Self::Q4_1 => "Q4_1",
            Self::Q5_0 => "Q5_0",
            Self::Q5_1 => "Q5_1",
            Self::Q4K => "Q4_K",
            Self::Q5K => "Q5_K",
            Self::Q6K => "Q6_K",
        })
    }
}

fn words<const N: usize>(bytes: &[u8]) -> impl Iterator<Item = [u8; N]> {
    bytes.as_chunks::<N>().0.iter().copied()
}

/// Converts a whole slice at a time, for which `half` uses the processor's instruction.
fn decode_f16(bytes: &[u8], to: &mut Vec<f32>) {
    let (mut halves, mut wide) = ([f16::ZERO; SUPER], [0.0; SUPER]);
    for chunk in bytes.chunks(2 * SUPER) {
        let count = chunk.len() / 2;
        for (half, bytes) in halves.iter_mut().zip(words::<2>(chunk)) {
            *half = f16::from_le_bytes(bytes);
        }
        halves[..count].convert_to_f32_slice(&mut wide[..count]);
        to.extend_from_slice(&wide[..count]);
    }
}

/// The f16 number at byte `at` of a block.
fn scale(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

fn decode_q8_0(block: &[u8], to: &mut Vec<f32>) {
    let scale = scale(block, 0);
    to.extend(block[2..].iter().map(|q| scale * f32::from(*q as i8)));
}

/// The nearest number in half precision, ties to even; the largest one for values beyond it.
pub fn saturated_half(x: f32) -> f16 {
    let most = f16::MAX.to_f32();
    f16::from_f32(x.clamp(-most, most))
}

fn encode_q8_0(block: &[f32], to: &mut Vec<u8>) {
    let largest = block.iter().fold(0.0, |most: f32, x| most.max(x.abs()));
    let scale = largest / 127.0;
    let inverse = match scale > 0.0 {
        true => scale.recip(),
        false => 0.0,
    };
    to.extend(saturated_half(scale).to_le_bytes());
    to.extend(
        block
            .iter()
            .map(|x| (x * inverse).round().clamp(-127.0, 127.0) as i8 as u8),
    );
}

/// The low nibbles are the first sixteen values.
fn decode_q4_0(block: &[u8], to: &mut Vec<f32>) {
    let scale = scale(block, 0);
    let value = |nibble: u8| scale * f32::from(nibble as i8 - 8);
    to.extend(block[2..].iter().map(|q| value(q & 15)));
    to.extend(block[2..].iter().map(|q| value(q >> 4)));
}

/// As [`decode_q4_0`], but values are offset by a minimum of the block.
fn decode_q4_1(block: &[u8], to: &mut Vec<f32>) {
    let (scale, least) = (scale(block, 0), scale(block, 2));
    let value = |nibble: u8| scale * f32::from(nibble) + least;
    to.extend(block[4..].iter().map(|q| value(q & 15)));
    to.extend(block[4..].iter().map(|q| value(q >> 4)));
}

/// Five-bit values of a block of 32. Their upper bits come first, as a 32-bit word in the order of
/// the values; the nibbles follow, low ones first.
fn five_bits(stored: &[u8]) -> impl Iterator<Item = u8> {
    let (upper, nibbles) = stored.split_at(4);
    let upper = u32::from_le_bytes([upper[0], upper[1], upper[2], upper[3]]);
    let low = nibbles.iter().map(|q| q & 15);
    let all = low.chain(nibbles.iter().map(|q| q >> 4));
    all.enumerate()
        .map(move |(i, low)| low | (((upper >> i) & 1) as u8 * 16))
}

fn decode_q5_0(block: &[u8], to: &mut Vec<f32>) {
    let scale = scale(block, 0);
    to.extend(five_bits(&block[2..]).map(|q| scale * f32::from(q as i8 - 16)));
}

fn decode_q5_1(block: &[u8], to: &mut Vec<f32>) {
    let (scale, least) = (scale(block, 0), scale(block, 2));
    to.extend(five_bits(&block[4..]).map(|q| scale * f32::from(q) + least));
}

/// Scale and minimum of the `i`-th 32 values of a block. Twelve bytes hold eight such pairs of
/// six-bit numbers.
fn pair(six_bits: &[u8], i: usize) -> (u8, u8) {
    // The upper two bits of the last four pairs fill the bits that the first four leave free.
    match i {
        0..4 => (six_bits[i] & 63, six_bits[i + 4] & 63),
        _ => (
            six_bits[i + 4] & 15 | six_bits[i - 4] >> 6 << 4,
            six_bits[i + 4] >> 4 | six_bits[i] >> 6 << 4,
        ),
    }
}

/// A block has two scales in f16, eight pairs of six-bit scales and minima in twelve bytes, and 128
/// bytes of nibbles. Of each 32 bytes the low nibbles are 32 values, the high ones the next 32.
fn decode_q4_k(block: &[u8], to: &mut Vec<f32>) {
    let (six_bits, nibbles) = block[4..].split_at(12);
    decode_4_or_5_k(block, six_bits, None, nibbles, to);
}

/// As [`decode_q4_k`], with 32 bytes of upper bits before the nibbles: bit `i` of byte `j` belongs
/// to value `j` of the `i`-th 32.
fn decode_q5_k(block: &[u8], to: &mut Vec<f32>) {
    let (six_bits, rest) = block[4..].split_at(12);
    let (upper, nibbles) = rest.split_at(32);
    decode_4_or_5_k(block, six_bits, Some(upper), nibbles, to);
}

fn decode_4_or_5_k(
    block: &[u8],
    six_bits: &[u8],
    upper: Option<&[u8]>,
    nibbles: &[u8],
    to: &mut Vec<f32>,
) {
    let (scale, least) = (scale(block, 0), scale(block, 2));
    for (i, part) in nibbles.chunks_exact(32).enumerate() {
        for (high, shift) in [(0, 0), (1, 4)] {
            let group = 2 * i + high;
            let (of_scale, of_least) = pair(six_bits, group);
            let (scale, least) = (scale * f32::from(of_scale), least * f32::from(of_least));
            let fifth = |j: usize| upper.map_or(0, |upper| (upper[j] >> group & 1) * 16);
            let value = |(j, q): (usize, &u8)| {
                let q = (q >> shift) & 15 | fifth(j);
                scale * f32::from(q) - least
            };
            to.extend(part.iter().enumerate().map(value));
        }
    }
}

/// A block has 128 bytes of low nibbles, 64 bytes of upper bits, two for each value, sixteen
/// scales, and the scale of those.
fn decode_q6_k(block: &[u8], to: &mut Vec<f32>) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let (scales, _) = rest.split_at(16);
    let scale = scale(block, 208);
    for half in 0..2 {
        let (low, high) = (&low[64 * half..][..64], &high[32 * half..][..32]);
        let scales = &scales[8 * half..][..8];
        for quarter in 0..4 {
            let (from, nibble) = (32 * (quarter % 2), 4 * (quarter / 2));
            for i in 0..32 {
                let low = low[from + i] >> nibble & 15;
                let high = high[i] >> (2 * quarter) & 3;
                let value = (low | high << 4) as i8 - 32;
                let scale = scale * f32::from(scales[i / 16 + 2 * quarter] as i8);
                to.push(scale * f32::from(value));
            }
        }
    }
}
