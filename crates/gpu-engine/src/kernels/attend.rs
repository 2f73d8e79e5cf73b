//! Attention over the cache, block by block, and the combination of blocks in their order.

use cubecl::prelude::*;

use super::place::BLOCK;
use super::{Floats, apart, capped, cube_at};

/// Number of units of a cube, one per position of a block.
pub(crate) const UNITS: usize = BLOCK;

/// Number of values of a block that a unit loads before it waits for the first of them.
const AT_ONCE: usize = 16;
/// Number of blocks that are combined at a time, for the same reason.
const BLOCKS_AT_ONCE: usize = 4;

/// Score of positions that are not attended to.
const UNSEEN: f32 = -1.0e30;

/// Constants for which attention is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Number of query heads that share a key head.
    pub(crate) group: usize,
    /// Width of a head in the cache, padded.
    pub(crate) padded: usize,
    pub(crate) capped: bool,
}

impl Plan {
    /// Number of fours of a key that a unit loads together.
    const fn keys_at_once(&self) -> usize {
        let fours = self.padded / 4;
        match fours {
            _ if fours.is_multiple_of(16) => 16,
            _ if fours.is_multiple_of(8) => 8,
            _ if fours.is_multiple_of(4) => 4,
            _ => 2,
        }
    }
}

/// Parameters of a layer.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Rule {
    /// Number of key heads.
    pub(crate) kv: u32,
    /// Number of blocks that `parts` has room for.
    pub(crate) blocks: u32,
    /// Number of positions attended to; more than any context if all.
    pub(crate) window: u32,
    pub(crate) scale: f32,
    pub(crate) cap: f32,
}

/// Computes the share of one block in the attention of one row: for every query head the largest
/// score, the sum of the weights relative to it, and the weighted sum of the values.
///
/// Grid: blocks, key heads, rows.
#[cube(launch_unchecked)]
pub(crate) fn attend<C: Float>(
    params: &[u32],
    queries: &[Floats],           // [rows, query heads, padded / 4]
    keys: &[Vector<C, Const<4>>], // [block][head][padded / 4][position]
    values: &[C],                 // [block][head][position][padded]
    parts: &mut [f32],            // [rows, query heads, blocks, padded]
    tops: &mut [f32],             // [rows, query heads, blocks, 2]
    rule: Rule,
    #[comptime] plan: Plan,
) {
    let row = CUBE_POS_Z as usize;
    if row >= params[1] as usize {
        terminate!();
    }
    let position = params[0] as usize + row;
    let block = CUBE_POS_X as usize;
    let first = block * BLOCK;
    let window = rule.window as usize;
    if first > position || first + (BLOCK - 1) + window <= position {
        terminate!();
    }
    let group = comptime!(plan.group);
    let padded = comptime!(plan.padded);
    let fours = comptime!(plan.padded / 4);
    let kv_head = CUBE_POS_Y as usize;
    let kv_heads = rule.kv as usize;
    let unit = UNIT_POS as usize;
    let of_head = (block * kv_heads + kv_head) * comptime!(plan.padded * BLOCK);
    // Index of the first query head of the group in this row.
    let heads = (row * kv_heads + kv_head) * group;

    let mut dots = Array::<f32>::new(group);
    #[unroll]
    for g in 0..group {
        dots[g] = 0.0f32;
    }
    let at_once = comptime!(plan.keys_at_once());
    for step in 0..comptime!(fours / at_once) {
        let first = step * at_once;
        let mut loaded = Array::<Vector<C, Const<4>>>::new(at_once);
        #[unroll]
        for i in 0..at_once {
            loaded[i] = keys[of_head / 4 + (first + i) * BLOCK + unit];
        }
        #[unroll]
        for i in 0..at_once {
            let key = loaded[i];
            #[unroll]
            for g in 0..group {
                let query = queries[(heads + g) * fours + first + i];
                #[unroll]
                for e in 0..4usize {
                    dots[g] = fma(query.extract(e), f32::cast_from(key.extract(e)), dots[g]);
                }
            }
        }
    }

    let at = first + unit;
    let seen = at <= position && at + window > position;
    let mut weights = Shared::<[f32]>::new_slice(comptime!(group * BLOCK));
    let mut highest = Shared::<[f32]>::new_slice(comptime!(group * 8));
    #[unroll]
    for g in 0..group {
        let mut score = dots[g] * rule.scale;
        if comptime!(plan.capped) {
            score = capped(score, rule.cap);
        }
        dots[g] = select(seen, score, f32::new(UNSEEN));
        weights[g * BLOCK + unit] = dots[g];
    }
    sync_cube();
    for task in range_stepped(unit, comptime!(group * 8), UNITS) {
        let mut top = f32::new(UNSEEN);
        #[unroll]
        for i in 0..8usize {
            top = max(top, weights[task * 8 + i]);
        }
        highest[task] = top;
    }
    sync_cube();
    let mut top = Array::<f32>::new(group);
    #[unroll]
    for g in 0..group {
        let mut most = f32::new(UNSEEN);
        #[unroll]
        for i in 0..8usize {
            most = max(most, highest[g * 8 + i]);
        }
        top[g] = most;
        weights[g * BLOCK + unit] = select(seen, (dots[g] - most).exp(), 0.0f32);
    }
    sync_cube();

    let owned = comptime!(plan.padded.div_ceil(UNITS));
    let mut sums = Array::<f32>::new(group);
    let mut mixed = Array::<f32>::new(comptime!(group * owned));
    #[unroll]
    for g in 0..group {
        sums[g] = 0.0f32;
        #[unroll]
        for o in 0..owned {
            mixed[comptime!(g * owned + o)] = 0.0f32;
        }
    }
    // Positions beyond the last one have weight 0; they use the value of the last one.
    let last = clamp_max(position - first, BLOCK - 1);
    for step in 0..last / AT_ONCE + 1 {
        let start = step * AT_ONCE;
        let mut loaded = Array::<f32>::new(comptime!(AT_ONCE * owned));
        #[unroll]
        for i in 0..AT_ONCE {
            let of_position = of_head + clamp_max(start + i, last) * padded;
            #[unroll]
            for o in 0..owned {
                let dim = clamp_max(unit + comptime!(o * UNITS), comptime!(padded - 1));
                loaded[comptime!(i * owned + o)] = f32::cast_from(values[of_position + dim]);
            }
        }
        #[unroll]
        for i in 0..AT_ONCE {
            #[unroll]
            for g in 0..group {
                let weight = weights[g * BLOCK + start + i];
                sums[g] += weight;
                #[unroll]
                for o in 0..owned {
                    let to = comptime!(g * owned + o);
                    mixed[to] = fma(weight, loaded[comptime!(i * owned + o)], mixed[to]);
                }
            }
        }
    }
    #[unroll]
    for g in 0..group {
        let part = (heads + g) * rule.blocks as usize + block;
        #[unroll]
        for o in 0..owned {
            let dim = unit + comptime!(o * UNITS);
            if dim < padded {
                parts[part * padded + dim] = mixed[comptime!(g * owned + o)];
            }
        }
        if unit == 0 {
            tops[part * 2] = top[g];
            tops[part * 2 + 1] = sums[g];
        }
    }
}

/// Combines the blocks of a row and head, from the first that is attended to up to the last. Rows
/// of `mixed` are interleaved ([`apart`]) for loads of `fours_of_load` fours.
///
/// Grid: query heads, rows.
#[cube(launch_unchecked)]
pub(crate) fn merge(
    params: &[u32],
    parts: &[f32],
    tops: &[f32],
    mixed: &mut [f32], // [rows, stride]
    blocks: u32,
    window: u32,
    dim: u32,
    stride: u32,
    #[comptime] padded: usize,
    #[comptime] fours_of_load: usize,
) {
    let row = CUBE_POS_Y as usize;
    if row >= params[1] as usize {
        terminate!();
    }
    let position = params[0] as usize + row;
    let unit = UNIT_POS as usize;
    let head = CUBE_POS_X as usize;
    let first_part = (row * CUBE_COUNT_X as usize + head) * blocks as usize;
    let end = position / BLOCK + 1;
    // The first position that is attended to.
    let start = (position + 1) - clamp_max(window as usize, position + 1);
    let begin = start / BLOCK;
    let mut top = f32::new(UNSEEN);
    for start in range_stepped(begin, end, BLOCKS_AT_ONCE) {
        #[unroll]
        for i in 0..BLOCKS_AT_ONCE {
            // Combining the last block again changes nothing.
            let part = first_part + clamp_max(start + i, end - 1);
            top = max(top, tops[part * 2]);
        }
    }
    let owned = comptime!(padded.div_ceil(UNITS));
    let mut sum = 0.0f32;
    let mut acc = Array::<f32>::new(owned);
    #[unroll]
    for o in 0..owned {
        acc[o] = 0.0f32;
    }
    for start in range_stepped(begin, end, BLOCKS_AT_ONCE) {
        let mut shares = Array::<f32>::new(BLOCKS_AT_ONCE);
        let mut sums = Array::<f32>::new(BLOCKS_AT_ONCE);
        let mut loaded = Array::<f32>::new(comptime!(BLOCKS_AT_ONCE * owned));
        #[unroll]
        for i in 0..BLOCKS_AT_ONCE {
            let part = first_part + clamp_max(start + i, end - 1);
            shares[i] = (tops[part * 2] - top).exp();
            sums[i] = tops[part * 2 + 1];
            #[unroll]
            for o in 0..owned {
                let dim = clamp_max(unit + comptime!(o * UNITS), comptime!(padded - 1));
                loaded[comptime!(i * owned + o)] = parts[part * padded + dim];
            }
        }
        #[unroll]
        for i in 0..BLOCKS_AT_ONCE {
            // Blocks beyond the last one have weight 0.
            let share = select(start + i < end, shares[i], 0.0f32);
            sum = fma(sums[i], share, sum);
            #[unroll]
            for o in 0..owned {
                acc[o] = fma(loaded[comptime!(i * owned + o)], share, acc[o]);
            }
        }
    }
    #[unroll]
    for o in 0..owned {
        let i = unit + comptime!(o * UNITS);
        if i < dim as usize {
            let stride = stride as usize;
            let at = head * dim as usize + i;
            let four = apart(at / 4, stride / 4, fours_of_load);
            mixed[row * stride + four * 4 + at % 4] = acc[o] / sum;
        }
    }
}

/// Copies `len` words.
#[cube(launch_unchecked)]
pub(crate) fn copy(from: &[u32], to: &mut [u32], len: u32) {
    let at = cube_at() * CUBE_DIM as usize + UNIT_POS as usize;
    if at < len as usize {
        to[at] = from[at];
    }
}
