//! The largest logit of a row.

use cubecl::prelude::*;

/// Number of units of a cube.
pub(crate) const UNITS: usize = 64;
/// Number of columns of a cube.
pub(crate) const CHUNK: usize = 4096;
/// Number of columns that a unit loads before it waits for the first of them.
const AT_ONCE: usize = 8;
/// Order of a logit that is NaN or positive infinity.
pub(crate) const IMPOSSIBLE: u32 = 0xffff_ffff;
/// Order of negative infinity, which is below all other logits.
pub(crate) const NOTHING: u32 = 0x007f_ffff;

/// A number with the same order as the logits with these bits; both zeros are equal. It uses
/// integers because a shader compiler may assume that there is no NaN.
#[cube]
fn order(bits: u32) -> u32 {
    let magnitude = bits & 0x7fff_ffffu32;
    let mut order = bits | 0x8000_0000u32;
    if bits != magnitude {
        order = !bits;
        if magnitude == 0u32 {
            order = 0x8000_0000u32;
        }
    }
    if magnitude > 0x7f80_0000u32 || bits == 0x7f80_0000u32 {
        order = 0xffff_ffffu32;
    }
    order
}

/// Finds the order of the largest logit among [`CHUNK`] columns of a row, and the lowest column
/// that has it.
///
/// Grid: chunks of columns, rows.
#[cube(launch_unchecked)]
pub(crate) fn best(
    logits: &[u32],   // bits, [rows, columns]
    tops: &mut [u32], // [rows, chunks, 2]
    columns: u32,
) {
    let unit = UNIT_POS as usize;
    let columns = columns as usize;
    let row = CUBE_POS_Y as usize;
    let start = CUBE_POS_X as usize * CHUNK;
    let end = min(start + CHUNK, columns);
    let mut top = 0u32;
    let mut at = 0u32;
    for first in range_stepped(start + unit, end, comptime!(AT_ONCE * UNITS)) {
        let mut loaded = Array::<u32>::new(AT_ONCE);
        #[unroll]
        for i in 0..AT_ONCE {
            // Comparing the last column again changes nothing.
            let column = clamp_max(first + comptime!(i * UNITS), end - 1);
            loaded[i] = logits[row * columns + column];
        }
        #[unroll]
        for i in 0..AT_ONCE {
            let order = order(loaded[i]);
            if order > top {
                top = order;
                at = clamp_max(first + comptime!(i * UNITS), end - 1) as u32;
            }
        }
    }
    let mut all = Shared::<[u32]>::new_slice(2 * UNITS);
    all[2 * unit] = top;
    all[2 * unit + 1] = at;
    sync_cube();
    if unit == 0 {
        for i in 1..UNITS {
            let other = all[2 * i];
            let place = all[2 * i + 1];
            if other > top || (other == top && place < at) {
                top = other;
                at = place;
            }
        }
        let to = 2 * (row * CUBE_COUNT_X as usize + CUBE_POS_X as usize);
        tops[to] = top;
        tops[to + 1] = at;
    }
}
