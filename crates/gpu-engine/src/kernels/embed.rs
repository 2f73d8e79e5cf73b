//! Rows of the embedding.

use cubecl::prelude::*;

use super::project::{Format, of_pair};

/// Writes the rows of `ids` to the residual stream, times `scale`.
///
/// Grid: words of a row, rows.
#[cube(launch_unchecked)]
pub(crate) fn embed(
    params: &[u32],     // [start, count, ids..]
    table: &[u32],      // [vocab_size, stride_in], one f32 a word or two of another format
    hidden: &mut [f32], // [rows, stride]
    width: u32,
    words: u32, // of a row of the table
    stride: u32,
    scale: f32,
    #[comptime] format: Format,
) {
    let row = CUBE_POS_Y as usize;
    let word = ABSOLUTE_POS_X as usize;
    let pairs = comptime!(format != Format::F32);
    let per_word = if comptime!(pairs) { 2usize } else { 1usize };
    if row >= params[1] as usize || word * per_word >= width as usize {
        terminate!();
    }
    let id = params[row + 2] as usize;
    let bits = table[id * words as usize + word];
    let to = row * stride as usize + word * per_word;
    if comptime!(pairs) {
        hidden[to] = of_pair(bits, 0usize, format) * scale;
        if word * 2 + 1 < width as usize {
            hidden[to + 1] = of_pair(bits, 1usize, format) * scale;
        }
    } else {
        hidden[to] = f32::reinterpret(bits) * scale;
    }
}
