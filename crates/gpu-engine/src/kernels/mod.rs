//! The kernels, written once in CubeCL.
//!
//! A buffer argument is a slice whose elements are single loads; its length in elements is given at
//! the launch. `#[comptime]` arguments are part of the compiled kernel, so every set of them is
//! compiled once.
//!
//! # One order of additions
//! Every sum is taken in an order that depends only on the model's shape, not on the rows of a call
//! or on earlier content of the cache. A product that is added to a sum is an explicit `fma`, so
//! that no compiler decides about rounding in between. The bits of a row therefore do not depend on
//! the rows beside it.

pub(crate) mod attend;
pub(crate) mod best;
pub(crate) mod embed;
pub(crate) mod norm;
pub(crate) mod place;
pub(crate) mod project;
pub(crate) mod read;

use cubecl::prelude::*;

/// Four words of weights: 128 bits.
pub(crate) type Words = Vector<u32, Const<4>>;
/// Four activations.
pub(crate) type Floats = Vector<f32, Const<4>>;

/// Number of units of a cube whose partial sums one of them adds, one after the other.
pub(crate) const RUN: usize = 8;

/// `tanh`. The function of some devices overflows; this one does not.
#[cube]
pub(crate) fn tanh(x: f32) -> f32 {
    let x = max(min(x, 20.0f32), -20.0f32);
    let e = (x * 2.0f32).exp();
    (e - 1.0f32) / (e + 1.0f32)
}

/// `cap * tanh(x / cap)`.
#[cube]
pub(crate) fn capped(x: f32, cap: f32) -> f32 {
    cap * tanh(x / cap)
}

/// Index of the cube in a two-dimensional grid, which replaces a one-dimensional one that would be
/// too long.
#[cube]
pub(crate) fn cube_at() -> usize {
    CUBE_POS_X as usize + CUBE_POS_Y as usize * CUBE_COUNT_X as usize
}

/// Index of four numbers of a row that a projection reads, in the interleaved layout `[fours of a
/// load of weights][loads]`. Neighbouring units take neighbouring loads, and in this layout the
/// activations for them are neighbours too. `fours` is the number of fours of a load, `stride` that
/// of a row.
#[cube]
pub(crate) fn apart(four: usize, stride: usize, #[comptime] fours: usize) -> usize {
    four % fours * (stride / fours) + four / fours
}

/// Sum over the cube of one number per unit, returned to all units. `work` has one number per unit;
/// it may be reused after the next barrier.
#[cube]
pub(crate) fn cube_sum(value: f32, work: &mut Shared<[f32]>, #[comptime] units: usize) -> f32 {
    let unit = UNIT_POS as usize;
    let runs = comptime!(units / RUN);
    sync_cube();
    work[unit] = value;
    sync_cube();
    let mut run = 0.0f32;
    if unit < runs {
        for i in 0..RUN {
            run += work[unit * RUN + i];
        }
    }
    sync_cube();
    if unit < runs {
        work[unit] = run;
    }
    sync_cube();
    let mut total = 0.0f32;
    for i in 0..runs {
        total += work[i];
    }
    total
}
