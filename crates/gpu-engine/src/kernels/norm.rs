//! RMS norms of the residual stream.

use cubecl::prelude::*;

use super::{Floats, apart, cube_sum};

/// Number of units of a cube.
pub(crate) const UNITS: usize = 128;

/// Number of fours that a unit loads before it waits for the first of them.
const AT_ONCE: usize = 8;

/// Constants for which a norm is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    /// Number of fours of a row.
    pub(crate) fours: usize,
    pub(crate) add: bool,
    /// Number of fours of a load for which rows of the output are interleaved ([`apart`]); 1 for
    /// rows in order.
    pub(crate) of_load: usize,
}

impl Plan {
    /// Number of fours that a unit loads together, and number of such loads.
    const fn steps(&self) -> (usize, usize) {
        let of_unit = self.fours.div_ceil(UNITS);
        let at_once = if of_unit < AT_ONCE { of_unit } else { AT_ONCE };
        (at_once, of_unit.div_ceil(at_once))
    }
}

/// Computes `out = x / rms(x) * weight`, or with `add`, `out += scale * x / rms(x) * weight`.
///
/// Rows are padded with zeros, which stay zeros. Grid: rows.
#[cube(launch_unchecked)]
pub(crate) fn norm(
    params: &[u32],
    x: &[Floats],       // [rows, stride / 4]
    weight: &[Floats],  // [stride / 4], padded with zeros
    out: &mut [Floats], // [rows, stride / 4]
    width: f32,
    eps: f32,
    scale: f32,
    #[comptime] plan: Plan,
) {
    let row = CUBE_POS_X as usize;
    if row >= params[1] as usize {
        terminate!();
    }
    let fours = comptime!(plan.fours);
    let at_once = comptime!(plan.steps().0);
    let steps = comptime!(plan.steps().1);
    let unit = UNIT_POS as usize;
    let mut square = 0.0f32;
    for step in 0..steps {
        let first = unit + step * comptime!(at_once * UNITS);
        let mut loaded = Array::<Floats>::new(at_once);
        #[unroll]
        for i in 0..at_once {
            let at = first + comptime!(i * UNITS);
            loaded[i] = x[row * fours + clamp_max(at, comptime!(fours - 1))];
        }
        #[unroll]
        for i in 0..at_once {
            let there = first + comptime!(i * UNITS) < fours;
            let x = loaded[i];
            #[unroll]
            for e in 0..4usize {
                let x = select(there, x.extract(e), 0.0f32);
                square = fma(x, x, square);
            }
        }
    }
    let mut work = Shared::<[f32]>::new_slice(UNITS);
    let square = cube_sum(square, &mut work, UNITS);
    let factor = 1.0f32 / (square / width + eps).sqrt();
    for step in 0..steps {
        let first = unit + step * comptime!(at_once * UNITS);
        let mut loaded = Array::<Floats>::new(at_once);
        #[unroll]
        for i in 0..at_once {
            let at = clamp_max(first + comptime!(i * UNITS), comptime!(fours - 1));
            loaded[i] = x[row * fours + at] * Floats::new(factor) * weight[at];
        }
        #[unroll]
        for i in 0..at_once {
            let at = first + comptime!(i * UNITS);
            if at < fours {
                let to = row * fours + apart(at, fours, comptime!(plan.of_load));
                if comptime!(plan.add) {
                    out[to] = fma(loaded[i], Floats::new(scale), out[to]);
                } else {
                    out[to] = loaded[i];
                }
            }
        }
    }
}
