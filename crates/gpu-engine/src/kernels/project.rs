//! Activations times weights. Most of the time goes here.
#![allow(
    unstable_name_collisions,
    reason = "`erf` may come to the standard library"
)]

use cubecl::prelude::*;
use lm::Activation;

use super::{Floats, RUN, Words, apart, capped, cube_at, tanh};

/// Size in bytes of the shared memory of a cube, small enough that several cubes fit in a processor
/// of a device.
const SHARED: usize = 17 << 10;

/// Layout of the numbers of a matrix in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F32,
    /// Two per word, the first in the low half.
    F16,
    /// Two per word, the first in the low half.
    Bf16,
    /// Four per word, each stored as its value plus 128. The first four numbers of a load are in
    /// the lowest bytes of its four words.
    Int8,
    /// Eight per word, each stored as its value plus 8. The first four numbers of a load are in the
    /// lowest four bits of its four words.
    Int4,
}

impl Format {
    /// Number of weights in a load of 128 bits.
    pub(crate) const fn piece(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 8,
            Self::Int8 => 16,
            Self::Int4 => 32,
        }
    }

    /// Number of fours of activations that belong to such a load.
    pub(crate) const fn fours(self) -> usize {
        self.piece() / 4
    }

    /// Number of loads that share a scale.
    pub(crate) const fn pieces_of_scale(self) -> usize {
        match self {
            Self::Int8 => 4,
            _ => 1,
        }
    }

    /// Number of steps that take a load apart: integers half a word at a time.
    const fn steps(self) -> usize {
        match self {
            Self::Int8 | Self::Int4 => 2,
            _ => 1,
        }
    }

    /// True if weights are multiples of scales.
    pub(crate) const fn is_scaled(self) -> bool {
        matches!(self, Self::Int8 | Self::Int4)
    }
}

/// Step between the sum of an output and its storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Epilogue {
    /// No step.
    Store,
    /// `y += scale * output`.
    Residual,
    /// Outputs are gate and up in turn. The stored value is `act(gate) * up`, interleaved for the
    /// next matrix.
    Gated(Activation),
    /// `output / scale`.
    Logits,
    /// `output / scale`, capped.
    CappedLogits,
}

/// The part of a matrix that a cube multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cubes {
    /// Number of outputs that a group of units computes, even. With more outputs, activations are
    /// loaded less often.
    pub(crate) outputs: usize,
    /// Number of groups. Groups of a cube read the same activations at about the same time and find
    /// them in the nearest cache.
    pub(crate) groups: usize,
}

/// Constants for which a projection is compiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub(crate) format: Format,
    /// Number of rows of activations that a cube multiplies.
    pub(crate) rows: usize,
    pub(crate) cubes: Cubes,
    /// Number of units of a group, a multiple of 8. They divide the inputs among them.
    pub(crate) units: usize,
    /// True if rows of `x` are interleaved ([`apart`]).
    pub(crate) apart: bool,
    pub(crate) epilogue: Epilogue,
    pub(crate) biased: bool,
}

impl Plan {
    /// Number of units of a cube.
    pub(crate) const fn all_units(&self) -> usize {
        self.units * self.cubes.groups
    }

    /// Number of outputs of a cube.
    pub(crate) const fn all_outputs(&self) -> usize {
        self.cubes.outputs * self.cubes.groups
    }

    /// Number of outputs of a group whose sums are in the shared memory of the cube at a time,
    /// even.
    const fn together(&self) -> usize {
        let mut together = self.cubes.outputs;
        while together > 2 && self.shared(together) > SHARED {
            together /= 2;
        }
        together
    }

    /// Size in bytes of the sums of so many outputs of every group.
    const fn shared(&self, outputs: usize) -> usize {
        self.all_units() * (outputs * self.rows + 1) * size_of::<f32>()
    }
}

/// Parameters that describe the matrix.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Sizes {
    /// Number of outputs, the rows of `w`.
    pub(crate) outputs: u32,
    /// Number of loads of a row of `w`.
    pub(crate) pieces: u32,
    /// Number of fours of a row of `x`.
    pub(crate) x_stride: u32,
    /// Length of a row of `y`.
    pub(crate) y_stride: u32,
    /// Number of cubes that share outputs, each with rows of its own.
    pub(crate) tiles: u32,
    /// Scale of the [`Epilogue`].
    pub(crate) scale: f32,
    /// Cap of [`Epilogue::CappedLogits`].
    pub(crate) cap: f32,
}

/// Computes `y[row, output] = sum over inputs of x[row, input] * w[output, input]`.
///
/// A group of units computes some outputs of `plan.rows` rows, so that weights are loaded once for
/// all of them. Unit `u` takes pieces `u, u + units, ..` of the inputs. Neighbouring units load
/// neighbouring memory, in rows of `w` and, if they are interleaved, in rows of `x`. The
/// two-dimensional grid goes over outputs, and for each over all tiles of rows, which find its
/// weights in a cache of the device. Rows beyond those of the call are computed from old content of
/// the buffers and never read.
#[cube(launch_unchecked)]
pub(crate) fn project(
    x: &[Floats],
    w: &[Words],
    scales: &[u32], // [outputs][words], four signed bytes a word; unused without scales
    units: &[f32],  // [outputs]; unused without scales
    bias: &[f32],   // [outputs]; unused without
    y: &mut [f32],
    sizes: Sizes,
    #[comptime] plan: Plan,
) {
    let outputs = sizes.outputs as usize;
    let pieces = sizes.pieces as usize;
    let per_group = comptime!(plan.cubes.outputs);
    let tiles = sizes.tiles as usize;
    let first_of_cube = cube_at() / tiles * comptime!(plan.all_outputs());
    if first_of_cube >= outputs {
        terminate!();
    }
    let unit = UNIT_POS as usize % comptime!(plan.units);
    let group = UNIT_POS as usize / comptime!(plan.units);
    let first = first_of_cube + group * per_group;
    let rows = comptime!(plan.rows);
    let row0 = cube_at() % tiles * rows;
    let x_stride = sizes.x_stride as usize;
    let fours = comptime!(plan.format.fours());
    let x_pieces = x_stride / fours;
    let scale_words = pieces.div_ceil(comptime!(4 * plan.format.pieces_of_scale()));

    let mut acc = Array::<f32>::new(comptime!(per_group * rows));
    #[unroll]
    for i in 0..comptime!(per_group * rows) {
        acc[i] = 0.0f32;
    }
    for piece in range_stepped(unit, pieces, comptime!(plan.units)) {
        let mut words = Array::<Words>::new(per_group);
        let mut codes = Array::<f32>::new(per_group);
        #[unroll]
        for o in 0..per_group {
            // The last groups may run beyond the end: they load the last output again and drop it
            // below.
            let output = clamp_max(first + o, outputs - 1);
            words[o] = w[output * pieces + piece];
            codes[o] = 1.0f32;
            if comptime!(plan.format.is_scaled()) {
                let group = piece / comptime!(plan.format.pieces_of_scale());
                let four = scales[output * scale_words + group / 4];
                let left = 24u32 - (group as u32 % 4u32) * 8u32;
                codes[o] = f32::cast_from(i32::reinterpret(four << left) >> 24i32);
            }
        }
        // Steps of integers are alike except for a shift of their words, so they may be a loop: a
        // long kernel takes seconds to compile, and then time to be read.
        #[unroll(comptime!(!plan.format.is_scaled() || rows == 1))]
        for step in 0..comptime!(plan.format.steps()) {
            #[unroll]
            for part in 0..comptime!(fours / plan.format.steps()) {
                let four = step * comptime!(fours / plan.format.steps()) + part;
                let mut wide = Array::<f32>::new(comptime!(per_group * 4));
                #[unroll]
                for o in 0..per_group {
                    #[unroll]
                    for e in 0..4usize {
                        wide[comptime!(o * 4 + e)] = if comptime!(plan.format.is_scaled()) {
                            level(words[o].extract(e), codes[o], part, plan.format)
                        } else {
                            float(words[o], part, e, plan.format)
                        };
                    }
                }
                #[unroll]
                for row in 0..rows {
                    let at = if comptime!(plan.apart) {
                        four * x_pieces + piece
                    } else {
                        piece * fours + four
                    };
                    let x = x[(row0 + row) * x_stride + at];
                    #[unroll]
                    for o in 0..per_group {
                        let at = comptime!(o * rows + row);
                        #[unroll]
                        for e in 0..4usize {
                            acc[at] = fma(x.extract(e), wide[comptime!(o * 4 + e)], acc[at]);
                        }
                    }
                }
            }
            if comptime!(plan.format.is_scaled()) {
                #[unroll]
                for o in 0..per_group {
                    let upper = words[o] >> Words::new(16u32);
                    words[o] = upper;
                }
            }
        }
    }

    // One more number per unit keeps the numbers of neighbouring units in different banks of the
    // memory.
    let together = comptime!(plan.together());
    let count = comptime!(together * rows);
    let stride = comptime!(count + 1);
    let of_group = comptime!(plan.units * stride);
    let runs = comptime!(plan.units / RUN);
    let all_units = comptime!(plan.all_units());
    let groups = comptime!(plan.cubes.groups);
    let mut sums = Shared::<[f32]>::new_slice(comptime!(groups * of_group));
    #[unroll]
    for turn in 0..comptime!(per_group / together) {
        let start = first_of_cube + comptime!(turn * together);
        if comptime!(turn > 0) {
            sync_cube();
        }
        #[unroll]
        for i in 0..count {
            sums[UNIT_POS as usize * stride + i] = acc[comptime!(turn * count + i)];
        }
        sync_cube();
        for task in range_stepped(
            UNIT_POS as usize,
            comptime!(groups * count * runs),
            all_units,
        ) {
            // Runs of a group follow those of the group before.
            let at = task / count * comptime!(RUN * stride) + task % count;
            let mut run = 0.0f32;
            #[unroll]
            for i in 0..RUN {
                run += sums[at + comptime!(i * stride)];
            }
            sums[at] = run;
        }
        sync_cube();

        match comptime!(plan.epilogue) {
            Epilogue::Gated(gate) => {
                let pairs = comptime!(count / 2);
                for i in range_stepped(UNIT_POS as usize, comptime!(groups * pairs), all_units) {
                    let (group, i) = (i / pairs, i % pairs);
                    let output = start + group * per_group + i / rows * 2;
                    if output < outputs {
                        let at = group * of_group + i / rows * (2 * rows) + i % rows;
                        let a = finished(&sums, at, output, units, bias, plan);
                        let b = finished(&sums, at + rows, output + 1, units, bias, plan);
                        let y_stride = sizes.y_stride as usize;
                        let four = apart(output / 8, y_stride / 4, comptime!(plan.format.fours()));
                        let to = (row0 + i % rows) * y_stride + four * 4 + output / 2 % 4;
                        y[to] = gated(a, b, gate);
                    }
                }
            }
            _ => {
                for i in range_stepped(UNIT_POS as usize, comptime!(groups * count), all_units) {
                    let (group, i) = (i / count, i % count);
                    let output = start + group * per_group + i / rows;
                    if output < outputs {
                        let at = group * of_group + i;
                        let value = finished(&sums, at, output, units, bias, plan);
                        let to = (row0 + i % rows) * sizes.y_stride as usize + output;
                        match comptime!(plan.epilogue) {
                            Epilogue::Residual => y[to] = fma(value, sizes.scale, y[to]),
                            Epilogue::Logits => y[to] = value / sizes.scale,
                            Epilogue::CappedLogits => {
                                y[to] = capped(value / sizes.scale, sizes.cap);
                            }
                            _ => y[to] = value,
                        }
                    }
                }
            }
        }
    }
}

/// The first (`which` is 0) or second number of a word of two.
#[cube]
pub(crate) fn of_pair(word: u32, #[comptime] which: usize, #[comptime] format: Format) -> f32 {
    match format {
        Format::F16 => widened(word >> comptime!(16 * which as u32)),
        _ => {
            if comptime!(which == 0) {
                f32::reinterpret(word << 16u32)
            } else {
                f32::reinterpret(word & 0xffff_0000u32)
            }
        }
    }
}

/// The finite half-precision number in the low half of a word. Devices may treat f32 below the
/// normal range as zero, so numbers below f16's normal range are made from integers.
#[cube]
fn widened(word: u32) -> f32 {
    let magnitude = word & 0x7fffu32;
    let normal = f32::reinterpret((magnitude << 13u32) + 0x3800_0000u32);
    let small = f32::cast_from(magnitude) * 5.960_464_5e-8f32;
    let value = select(magnitude < 0x400u32, small, normal);
    select((word & 0x8000u32) == 0u32, value, -value)
}

/// Weight `e` of a four of a load of floating-point numbers.
#[cube]
fn float(
    words: Words,
    #[comptime] four: usize,
    #[comptime] e: usize,
    #[comptime] format: Format,
) -> f32 {
    match format {
        Format::F32 => f32::reinterpret(words.extract(e)),
        _ => {
            let word = words.extract(comptime!((four * 4 + e) / 2));
            of_pair(word, comptime!(e % 2), format)
        }
    }
}

/// Integer `part` of the lower half of a word, times the code of its scale. It is exact in f32.
///
/// The bits of a level become bits of a mantissa, where they count 1 / 2^15 or 1 / 2^11 each, which
/// saves a conversion, and the lowest byte alone has to be moved there.
#[cube]
fn level(word: u32, code: f32, #[comptime] part: usize, #[comptime] format: Format) -> f32 {
    match format {
        Format::Int8 => {
            let byte = if comptime!(part == 0) {
                word << 8u32
            } else {
                word
            };
            let level = f32::reinterpret((byte & 0x0000_ff00u32) | 0x3f80_0000u32);
            fma(level, code * 32768.0f32, code * (-32896.0f32))
        }
        _ => {
            let byte = if comptime!(part < 2) {
                word << 8u32
            } else {
                word
            };
            if comptime!(part == 0 || part == 2) {
                let level = f32::reinterpret((byte & 0x0000_0f00u32) | 0x3f80_0000u32);
                fma(level, code * 32768.0f32, code * (-32776.0f32))
            } else {
                let level = f32::reinterpret((byte & 0x0000_f000u32) | 0x3f80_0000u32);
                fma(level, code * 2048.0f32, code * (-2056.0f32))
            }
        }
    }
}

/// Sum `at` of the cube as an output.
#[cube]
fn finished(
    sums: &Shared<[f32]>,
    at: usize,
    output: usize,
    units: &[f32],
    bias: &[f32],
    #[comptime] plan: Plan,
) -> f32 {
    let stride = comptime!(plan.together() * plan.rows + 1);
    let mut total = 0.0f32;
    #[unroll]
    for run in 0..comptime!(plan.units / RUN) {
        total += sums[at + comptime!(run * RUN * stride)];
    }
    if comptime!(plan.format.is_scaled()) {
        if comptime!(plan.biased) {
            fma(total, units[output], bias[output])
        } else {
            total * units[output]
        }
    } else {
        if comptime!(plan.biased) {
            total + bias[output]
        } else {
            total
        }
    }
}

/// `act(gate) * up`.
#[cube]
fn gated(gate: f32, up: f32, #[comptime] activation: Activation) -> f32 {
    let active = match activation {
        Activation::Silu => gate / (1.0f32 + min(-gate, 80.0f32).exp()),
        Activation::Gelu => {
            0.5f32 * gate * (1.0f32 + f32::erf(gate * std::f32::consts::FRAC_1_SQRT_2))
        }
        Activation::GeluTanh => {
            let cube = gate * gate * gate;
            let inner = fma(cube, 0.044_715f32, gate) * 0.797_884_6f32;
            0.5f32 * gate * (1.0f32 + tanh(inner))
        }
        Activation::Relu => max(gate, 0.0f32),
    };
    active * up
}
