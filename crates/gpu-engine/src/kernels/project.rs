//! Activations times weights: where the time goes.
#![allow(
    unstable_name_collisions,
    reason = "`erf` may come to the standard library"
)]

use cubecl::prelude::*;
use lm::Activation;

use super::{Floats, RUN, Words, apart, capped, cube_at, tanh};

/// Bytes of shared memory that a cube takes, so that several of them fit in a processor of a device.
const SHARED: usize = 17 << 10;

/// How the numbers of a matrix lie in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Format {
    F32,
    /// Two a word, the first in the low half.
    F16,
    /// The same.
    Bf16,
    /// Four a word, plus 128.
    Int8,
    /// Eight a word, plus 8.
    Int4,
}

impl Format {
    /// Weights of a load of 128 bits.
    pub(crate) const fn piece(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 8,
            Self::Int8 => 16,
            Self::Int4 => 32,
        }
    }

    /// Fours of activations that such a load meets.
    pub(crate) const fn fours(self) -> usize {
        self.piece() / 4
    }

    /// Loads that share a scale.
    pub(crate) const fn pieces_of_scale(self) -> usize {
        match self {
            Self::Int8 => 4,
            _ => 1,
        }
    }

    /// Whether weights are multiples of scales.
    pub(crate) const fn is_scaled(self) -> bool {
        matches!(self, Self::Int8 | Self::Int4)
    }
}

/// What happens to an output before it is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Epilogue {
    /// Nothing.
    Store,
    /// `y += scale * output`.
    Residual,
    /// Outputs are gate and up in turn; stored is `act(gate) * up`, apart as the next matrix reads it.
    Gated(Gate),
    /// `output / scale`.
    Logits,
    /// The same, capped.
    CappedLogits,
}

/// [`Activation`], hashable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Gate {
    Silu,
    Gelu,
    GeluTanh,
    Relu,
}

impl From<Activation> for Gate {
    fn from(activation: Activation) -> Self {
        match activation {
            Activation::Silu => Self::Silu,
            Activation::Gelu => Self::Gelu,
            Activation::GeluTanh => Self::GeluTanh,
            Activation::Relu => Self::Relu,
        }
    }
}

/// The part of a matrix that a cube multiplies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Cubes {
    /// Outputs that a group of units makes, even: the more, the less often activations are loaded.
    pub(crate) outputs: usize,
    /// Groups, which take the same activations at about the same time and find them in the nearest cache.
    pub(crate) groups: usize,
}

/// What a compiled projection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plan {
    pub(crate) format: Format,
    /// Rows of activations a cube multiplies.
    pub(crate) rows: usize,
    pub(crate) cubes: Cubes,
    /// Units of a group: a multiple of 8. They share out the inputs.
    pub(crate) units: usize,
    /// True where rows of `x` lie [`apart`].
    pub(crate) apart: bool,
    pub(crate) epilogue: Epilogue,
    pub(crate) biased: bool,
}

impl Plan {
    /// Units of a cube.
    pub(crate) const fn all_units(&self) -> usize {
        self.units * self.cubes.groups
    }

    /// Outputs of a cube.
    pub(crate) const fn all_outputs(&self) -> usize {
        self.cubes.outputs * self.cubes.groups
    }

    /// Outputs of a group whose sums are in the shared memory of the cube at a time, even.
    const fn together(&self) -> usize {
        let mut together = self.cubes.outputs;
        while together > 2 && self.shared(together) > SHARED {
            together /= 2;
        }
        together
    }

    /// Bytes of the sums of so many outputs of every group.
    const fn shared(&self, outputs: usize) -> usize {
        self.all_units() * (outputs * self.rows + 1) * size_of::<f32>()
    }
}

/// Numbers that say which matrix.
#[derive(CubeType, CubeLaunch, Clone, Copy)]
pub(crate) struct Sizes {
    /// Outputs, rows of `w`.
    pub(crate) outputs: u32,
    /// Loads of a row of `w`.
    pub(crate) pieces: u32,
    /// Fours of a row of `x`.
    pub(crate) x_stride: u32,
    /// Numbers of a row of `y`.
    pub(crate) y_stride: u32,
    /// Cubes that share outputs, each with rows of its own.
    pub(crate) tiles: u32,
    /// See [`Epilogue`].
    pub(crate) scale: f32,
    /// Of [`Epilogue::CappedLogits`].
    pub(crate) cap: f32,
}

/// `y[row, output] = sum over inputs of x[row, input] * w[output, input]`.
///
/// A group of units makes some outputs of `plan.rows` rows, so that weights are loaded once for all of them.
/// Unit `u` of it takes pieces `u, u + units, ..` of the inputs; what neighbours load lies side by side, in rows of
/// `w` and, where they are apart, in rows of `x`. Grid, in two dimensions: outputs, and of each all tiles of
/// rows, which meet its weights in a cache of the device. Rows beyond those of the call are computed from what
/// is in the buffers and read by nobody.
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
            // The last groups may run past the end: they load the last output again and drop it below.
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
        #[unroll]
        for four in 0..fours {
            let mut wide = Array::<f32>::new(comptime!(per_group * 4));
            #[unroll]
            for o in 0..per_group {
                #[unroll]
                for e in 0..4usize {
                    wide[comptime!(o * 4 + e)] =
                        weight(words[o], codes[o], comptime!(four * 4 + e), plan.format);
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
    }

    // One number more a unit keeps those of neighbouring units in different banks of the memory.
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
            // Runs of a group lie behind those of the group before.
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

/// The first (`which` is 0) or second number of a word that holds two.
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

/// The finite number in half precision in the low half of a word. Devices may take f32 below the
/// normal range for zero, so those below f16's are made of integers.
#[cube]
fn widened(word: u32) -> f32 {
    let magnitude = word & 0x7fffu32;
    let normal = f32::reinterpret((magnitude << 13u32) + 0x3800_0000u32);
    let small = f32::cast_from(magnitude) * 5.960_464_5e-8f32;
    let value = select(magnitude < 0x400u32, small, normal);
    select((word & 0x8000u32) == 0u32, value, -value)
}

/// Weight `index` of a load, times the code of its scale: exact in f32.
#[cube]
fn weight(words: Words, code: f32, #[comptime] index: usize, #[comptime] format: Format) -> f32 {
    match format {
        Format::F32 => f32::reinterpret(words.extract(index)),
        Format::F16 | Format::Bf16 => {
            let word = words.extract(comptime!(index / 2));
            of_pair(word, comptime!(index % 2), format)
        }
        // A level becomes the top of a mantissa, 1 + level / 256 or 1 + level / 16: no conversion.
        Format::Int8 => {
            let word = words.extract(comptime!(index / 4));
            let lane = comptime!(index as u32 % 4);
            let top = if comptime!(lane < 2) {
                word << comptime!(15 - 8 * lane.min(1))
            } else {
                word >> comptime!(8 * lane.max(2) - 15)
            };
            let level = f32::reinterpret((top & 0x007f_8000u32) | 0x3f80_0000u32);
            fma(level, code * 256.0f32, code * (-384.0f32))
        }
        Format::Int4 => {
            let word = words.extract(comptime!(index / 8));
            let lane = comptime!(index as u32 % 8);
            let top = if comptime!(lane < 5) {
                word << comptime!(19 - 4 * lane.min(4))
            } else {
                word >> comptime!(4 * lane.max(5) - 19)
            };
            let level = f32::reinterpret((top & 0x0078_0000u32) | 0x3f80_0000u32);
            fma(level, code * 16.0f32, code * (-24.0f32))
        }
    }
}

/// Sum `at` of the cube, as an output.
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
fn gated(gate: f32, up: f32, #[comptime] activation: Gate) -> f32 {
    let active = match activation {
        Gate::Silu => gate / (1.0f32 + min(-gate, 80.0f32).exp()),
        Gate::Gelu => 0.5f32 * gate * (1.0f32 + f32::erf(gate * std::f32::consts::FRAC_1_SQRT_2)),
        Gate::GeluTanh => {
            let cube = gate * gate * gate;
            let inner = fma(cube, 0.044_715f32, gate) * 0.797_884_6f32;
            0.5f32 * gate * (1.0f32 + tanh(inner))
        }
        Gate::Relu => max(gate, 0.0f32),
    };
    active * up
}
