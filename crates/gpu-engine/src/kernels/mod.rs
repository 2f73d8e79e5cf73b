//! The kernels, written once in CubeCL.
//!
//! A buffer argument is a slice of what one load takes; its length in those is given at the launch.
//! `#[comptime]` arguments are part of the compiled kernel, so that every set of them is compiled once.
//!
//! # One order of additions
//! Every sum is taken in an order that depends on the model's shape and nothing else: not on the rows of
//! a call, not on what the cache held before. Where a product meets a sum it is an explicit `fma`, so no
//! compiler decides whether to round in between. So the bits of a row do not depend on the rows beside it.

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

/// Units of a cube whose partial sums are added one after the other by one of them.
pub(crate) const RUN: usize = 8;

/// `tanh` of the device overflows on some of them; this one does not.
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

/// Position of the cube in a grid of two dimensions, which stands for one that is too long.
#[cube]
pub(crate) fn cube_at() -> usize {
    CUBE_POS_X as usize + CUBE_POS_Y as usize * CUBE_COUNT_X as usize
}

/// Place of four numbers of a row that a projection reads: `[fours of a load of weights][loads]`. Units beside
/// each other take loads beside each other, and find the activations that these meet side by side too.
/// `fours` are those of a load, `stride` those of a row.
#[cube]
pub(crate) fn apart(four: usize, stride: usize, #[comptime] fours: usize) -> usize {
    four % fours * (stride / fours) + four / fours
}

/// The sum over the cube of one number a unit, the same for all units. `work` has a number a unit; it
/// may be used again after the next barrier.
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
