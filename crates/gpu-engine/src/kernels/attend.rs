//! Attention over the cache, block by block, and the blocks put together in their order.

use cubecl::prelude::*;

use super::place::BLOCK;
use super::{Floats, capped, cube_at};

/// Units of a cube, one a position of a block.
pub(crate) const UNITS: usize = BLOCK;

/// A score of positions that are not seen.
const UNSEEN: f32 = -1.0e30;

/// What a compiled attention is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Query heads that share a key head.
    pub(crate) group: usize,
    /// Width of a head in the cache.
    pub(crate) padded: usize,
    pub(crate) capped: bool,
}

/// Numbers of a layer.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Rule {
    /// Key heads.
    pub(crate) kv: u32,
    /// Blocks that there is room for in `parts`.
    pub(crate) blocks: u32,
    /// Positions seen; more than any context for all.
    pub(crate) window: u32,
    pub(crate) scale: f32,
    pub(crate) cap: f32,
}

/// The share of one block in the attention of one row: for every query head the largest score, the sum
/// of the weights against it, and the weighted sum of the values.
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
    // The first of the query heads of the row.
    let heads = (row * kv_heads + kv_head) * group;

    let mut dots = Array::<f32>::new(group);
    #[unroll]
    for g in 0..group {
        dots[g] = 0.0f32;
    }
    for c in 0..fours {
        let key = keys[of_head / 4 + c * BLOCK + unit];
        #[unroll]
        for g in 0..group {
            let query = queries[(heads + g) * fours + c];
            #[unroll]
            for e in 0..4usize {
                dots[g] = fma(query.extract(e), f32::cast_from(key.extract(e)), dots[g]);
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
    for j in 0..clamp_max(position - first + 1, BLOCK) {
        #[unroll]
        for g in 0..group {
            sums[g] += weights[g * BLOCK + j];
        }
        #[unroll]
        for o in 0..owned {
            let dim = unit + comptime!(o * UNITS);
            if dim < padded {
                let value = f32::cast_from(values[of_head + j * padded + dim]);
                #[unroll]
                for g in 0..group {
                    let to = comptime!(g * owned + o);
                    mixed[to] = fma(weights[g * BLOCK + j], value, mixed[to]);
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

/// Puts the blocks of a row and head together, from the first one that is seen to the last.
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
    // The first position that is seen.
    let start = (position + 1) - clamp_max(window as usize, position + 1);
    let begin = start / BLOCK;
    let mut top = f32::new(UNSEEN);
    for block in begin..end {
        top = max(top, tops[(first_part + block) * 2]);
    }
    let owned = comptime!(padded.div_ceil(UNITS));
    let mut sum = 0.0f32;
    let mut acc = Array::<f32>::new(owned);
    #[unroll]
    for o in 0..owned {
        acc[o] = 0.0f32;
    }
    for block in begin..end {
        let part = first_part + block;
        let share = (tops[part * 2] - top).exp();
        sum = fma(tops[part * 2 + 1], share, sum);
        #[unroll]
        for o in 0..owned {
            let dim = unit + comptime!(o * UNITS);
            if dim < padded {
                acc[o] = fma(parts[part * padded + dim], share, acc[o]);
            }
        }
    }
    #[unroll]
    for o in 0..owned {
        let i = unit + comptime!(o * UNITS);
        if i < dim as usize {
            mixed[row * stride as usize + head * dim as usize + i] = acc[o] / sum;
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
