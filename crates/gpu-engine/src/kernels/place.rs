//! Queries, keys and values of new positions: normalised, rotated and written in the layout of
//! attention.

use cubecl::prelude::*;
use lm::QkNorm;

use super::cube_sum;

/// Number of units of a cube.
pub(crate) const UNITS: usize = 64;
/// Number of positions of a block of the cache.
pub(crate) const BLOCK: usize = 64;

/// Parameters that describe the heads.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Heads {
    /// Number of query heads.
    pub(crate) queries: u32,
    /// Number of key and value heads.
    pub(crate) kv: u32,
    /// Width of a head, even.
    pub(crate) dim: u32,
    /// Width of a head in queries and cache, padded with zeros.
    pub(crate) padded: u32,
    /// Length of a row of the fused projection.
    pub(crate) stride: u32,
    /// Half the number of rotated dimensions.
    pub(crate) half: u32,
    pub(crate) eps: f32,
}

/// Writes the heads of new positions, with one cube per row and head of queries, or of keys and
/// values.
///
/// The cache lies in blocks of [`BLOCK`] positions: keys `[block][head][padded / 4][position][4]`,
/// values `[block][head][position][padded]`. Grid: query heads and then key heads, rows.
#[cube(launch_unchecked)]
pub(crate) fn place<C: Float>(
    params: &[u32],
    qkv: &[f32],        // [rows, stride]: queries, keys, values
    query_norm: &[f32], // as `norm` says; unused without
    key_norm: &[f32],
    cos: &[f32], // [positions, half]
    sin: &[f32],
    queries: &mut [f32], // [rows, query heads, padded]
    keys: &mut [C],
    values: &mut [C],
    heads: Heads,
    #[comptime] norm: QkNorm,
    #[comptime] narrow: bool,
) {
    let row = CUBE_POS_Y as usize;
    if row >= params[1] as usize {
        terminate!();
    }
    let position = params[0] as usize + row;
    let unit = UNIT_POS as usize;
    let (dim, padded) = (heads.dim as usize, heads.padded as usize);
    let query_heads = heads.queries as usize;
    let kv_heads = heads.kv as usize;
    let head = CUBE_POS_X as usize;
    let is_key = head >= query_heads;
    let from = row * heads.stride as usize + head * dim;

    let mut factor = 1.0f32;
    if comptime!(norm != QkNorm::None) {
        let mut start = from;
        let mut width = dim;
        if comptime!(norm == QkNorm::Full) {
            if is_key {
                start = row * heads.stride as usize + query_heads * dim;
                width = kv_heads * dim;
            } else {
                start = row * heads.stride as usize;
                width = query_heads * dim;
            }
        }
        let mut square = 0.0f32;
        for i in range_stepped(unit, width, UNITS) {
            square = fma(qkv[start + i], qkv[start + i], square);
        }
        let mut work = Shared::<[f32]>::new_slice(UNITS);
        let square = cube_sum(square, &mut work, UNITS);
        factor = 1.0f32 / (square / f32::cast_from(width as u32) + heads.eps).sqrt();
    }

    // Index at which the weight of the norm begins.
    let mut weight = 0usize;
    if comptime!(norm == QkNorm::Full) {
        weight = if is_key {
            (head - query_heads) * dim
        } else {
            head * dim
        };
    }
    let half = heads.half as usize;
    for i in range_stepped(unit, padded, UNITS) {
        let mut turned = 0.0f32;
        if i < dim {
            let own = normed(
                qkv, query_norm, key_norm, from, weight, i, factor, is_key, norm,
            );
            turned = own;
            if i < half {
                let other = normed(
                    qkv,
                    query_norm,
                    key_norm,
                    from,
                    weight,
                    i + half,
                    factor,
                    is_key,
                    norm,
                );
                let at = position * half + i;
                turned = fma(own, cos[at], -(other * sin[at]));
            } else if i < half * 2 {
                let other = normed(
                    qkv,
                    query_norm,
                    key_norm,
                    from,
                    weight,
                    i - half,
                    factor,
                    is_key,
                    norm,
                );
                let at = position * half + i - half;
                turned = fma(own, cos[at], other * sin[at]);
            }
        }
        if is_key {
            let kv_head = head - query_heads;
            let mut value = 0.0f32;
            if i < dim {
                value = qkv[from + kv_heads * dim + i];
            }
            let (block, slot) = (position / BLOCK, position % BLOCK);
            let of_head = (block * kv_heads + kv_head) * padded * BLOCK;
            keys[of_head + (i / 4 * BLOCK + slot) * 4 + i % 4] =
                C::cast_from(bounded(turned, narrow));
            values[of_head + slot * padded + i] = C::cast_from(bounded(value, narrow));
        } else {
            queries[(row * query_heads + head) * padded + i] = turned;
        }
    }
}

/// `x`, limited to 65504, the range of half precision, if the cache is `narrow`.
#[cube]
fn bounded(x: f32, #[comptime] narrow: bool) -> f32 {
    if comptime!(narrow) {
        max(min(x, 65504.0f32), -65504.0f32)
    } else {
        x
    }
}

/// Dimension `i` of a head after its norm.
#[cube]
#[allow(clippy::too_many_arguments, reason = "a part of the kernel above")]
fn normed(
    qkv: &[f32],
    query_norm: &[f32],
    key_norm: &[f32],
    from: usize,
    weight: usize,
    i: usize,
    factor: f32,
    is_key: bool,
    #[comptime] norm: QkNorm,
) -> f32 {
    let mut x = qkv[from + i];
    if comptime!(norm != QkNorm::None) {
        if is_key {
            x = x * factor * key_norm[weight + i];
        } else {
            x = x * factor * query_norm[weight + i];
        }
    }
    x
}
