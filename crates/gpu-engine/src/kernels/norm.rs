//! RMS norms of the residual stream.

use cubecl::prelude::*;

use super::{Floats, cube_sum};

/// Units of a cube.
pub(crate) const UNITS: usize = 128;

/// `out = x / rms(x) * weight`, or with `add`, `out += scale * x / rms(x) * weight`.
///
/// Rows are padded with zeros, which stay zeros. Grid: rows.
#[cube(launch_unchecked)]
pub(crate) fn norm(
    params: &[u32],
    x: &[Floats],       // [rows, stride / 4]
    weight: &[Floats],  // [stride / 4], padded with zeros
    out: &mut [Floats], // [rows, stride / 4]
    fours: u32,         // stride / 4
    width: f32,
    eps: f32,
    scale: f32,
    #[comptime] add: bool,
) {
    let row = CUBE_POS_X as usize;
    if row >= params[1] as usize {
        terminate!();
    }
    let fours = fours as usize;
    let mut square = 0.0f32;
    for i in range_stepped(UNIT_POS as usize, fours, UNITS) {
        let x = x[row * fours + i];
        #[unroll]
        for e in 0..4usize {
            square = fma(x.extract(e), x.extract(e), square);
        }
    }
    let mut work = Shared::<[f32]>::new_slice(UNITS);
    let square = cube_sum(square, &mut work, UNITS);
    let factor = 1.0f32 / (square / width + eps).sqrt();
    for i in range_stepped(UNIT_POS as usize, fours, UNITS) {
        let at = row * fours + i;
        let normed = x[at] * Floats::new(factor) * weight[i];
        if comptime!(add) {
            out[at] = fma(normed, Floats::new(scale), out[at]);
        } else {
            out[at] = normed;
        }
    }
}
