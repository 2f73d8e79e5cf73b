//! One pass through the blocks for a bounded number of tokens: the kernels and their order.
#![expect(unsafe_code, reason = "kernels are launched unchecked")]

use std::cell::Cell;
use std::ops::Range;

use cubecl::prelude::*;
use cubecl::server::Handle;
use lm::{KvType, LmConfig, QkNorm, Rotary};

use crate::cache::{Angles, Cache, PARAMS, PASS, SCORED, Scratch, padded};
use crate::device::arg;
use crate::kernels::project::{Cubes, Epilogue, Plan, SizesLaunch, project};
use crate::kernels::{attend, embed, norm, place};
use crate::weights::{BlockWeights, Matrix, Weights, stride};

/// Largest number of rows that a cube of a projection multiplies.
const TILE: usize = 16;
/// Numbers of rows for which projections are compiled: the 1 of plain decoding, the 5 of verifying
/// four draft tokens, and others. More rows than tokens cost time and change no bits.
pub(crate) const ROWS: [usize; 7] = [1, 2, 3, 5, 8, 12, TILE];
/// Number of rows from which on two groups of units share a cube.
const MANY_ROWS: usize = 12;

/// The part of a matrix that a cube multiplies, by number of rows. These were the fastest on an
/// H100 with the shape of Llama-3-8B in bf16. With one row, smaller cubes occupy more of the
/// device; with sixteen, the sums of eight outputs leave no room for a second cube.
pub(crate) fn cubes_for(rows: usize) -> Cubes {
    Cubes {
        outputs: match rows {
            1 => 2,
            TILE => 4,
            _ => 8,
        },
        groups: if rows < MANY_ROWS { 1 } else { 2 },
    }
}

/// Number of rows that a cube multiplies for `count` tokens, and number of tiles of that many rows.
fn tiles_for(count: usize) -> (usize, usize) {
    let tiles = count.div_ceil(TILE).max(1);
    let of_tile = count.div_ceil(tiles);
    let rows = ROWS.into_iter().find(|rows| *rows >= of_tile);
    (rows.unwrap_or(TILE), tiles)
}

/// Number of rows of a projection for `count` tokens.
pub(crate) fn rows_for(count: usize) -> usize {
    let (rows, tiles) = tiles_for(count);
    rows * tiles
}

/// Number of units that divide the inputs of an output among them. It decides about the order of
/// additions, so it must not depend on the number of rows.
pub(crate) fn units_for(pieces: usize) -> usize {
    if pieces.is_multiple_of(64) || pieces >= 256 {
        64
    } else {
        32
    }
}

/// Largest number of cubes along one dimension of a grid.
const GRID: usize = 32768;

/// The buffers of a projection beside its matrix: activations of at least [`PASS`] rows, the bias,
/// and outputs.
pub(crate) struct Buffers {
    pub(crate) x: BufferArg,
    pub(crate) bias: BufferArg,
    pub(crate) to: BufferArg,
}

/// Launches a projection of `tiles` times `plan.rows` rows.
pub(crate) fn launch(
    client: &Client,
    matrix: &Matrix,
    buffers: Buffers,
    sizes: SizesLaunch,
    tiles: usize,
    plan: Plan,
) {
    let cubes = matrix.shape.outputs.div_ceil(plan.all_outputs()) * tiles;
    // SAFETY: a cube reads rows of `x` below `PASS`, outputs below those of the matrix, and pieces
    // below those of an output, to which rows of `x` are padded. It writes rows of `to` that exist:
    // the tiles of rows cover at most `PASS` rows, and at most `SCORED` scored ones, as the tests
    // below check.
    unsafe {
        project::launch_unchecked(
            client,
            CubeCount::Static(cubes.min(GRID) as u32, cubes.div_ceil(GRID) as u32, 1),
            CubeDim::new_1d(plan.all_units() as u32),
            buffers.x,
            matrix.words_arg(),
            matrix.scales_arg(),
            matrix.units_arg(),
            buffers.bias,
            buffers.to,
            sizes,
            plan,
        );
    }
}

/// The kinds of launches of a pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Embed,
    Norm,
    Qkv,
    Place,
    Attend,
    Merge,
    Out,
    GateUp,
    Down,
    Head,
}

impl Step {
    /// All kinds with their names.
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Embed, "embed"),
        (Self::Norm, "norm"),
        (Self::Qkv, "qkv"),
        (Self::Place, "place"),
        (Self::Attend, "attend"),
        (Self::Merge, "merge"),
        (Self::Out, "out"),
        (Self::GateUp, "gate and up"),
        (Self::Down, "down"),
        (Self::Head, "head"),
    ];
}

/// Everything that a pass reads and writes.
pub(crate) struct Pass<'a> {
    pub(crate) client: &'a Client,
    pub(crate) config: &'a LmConfig,
    pub(crate) weights: &'a Weights,
    pub(crate) scratch: &'a Scratch,
    pub(crate) cache: &'a Cache,
    pub(crate) kv: KvType,
    /// Buffer for arguments that are not read.
    pub(crate) nothing: &'a Handle,
    /// Number of blocks of the cache, at least those that the last token attends to.
    pub(crate) blocks: usize,
    /// Number of rows, at least that of the tokens. Rows beyond are skipped, or computed and never
    /// read.
    pub(crate) count: usize,
    /// The part of a matrix that a cube multiplies; `None` for that of [`cubes_for`].
    pub(crate) cubes: Option<Cubes>,
    /// Launches of one kind to run alone, for timing; `None` runs all launches of all kinds.
    pub(crate) only: Option<(Step, Range<usize>)>,
    /// Number of launches so far, of that kind or of all.
    pub(crate) launches: Cell<usize>,
}

/// Arguments of a product with a matrix.
struct Apply<'a> {
    step: Step,
    x: &'a Handle,
    matrix: &'a Matrix,
    to: &'a Handle,
    /// Length of a row of `to`, and number of its rows.
    to_stride: usize,
    to_rows: usize,
    epilogue: Epilogue,
    scale: f32,
}

impl Pass<'_> {
    /// Runs the blocks for the tokens of the parameters. Their logits are computed if they are
    /// `scored`.
    pub(crate) fn run(&self, scored: bool) {
        self.embed();
        let blocks = &self.weights.blocks;
        for (layer, block) in blocks.iter().enumerate() {
            // In the last block, unscored tokens need only keys and values.
            let only_keys = !scored && layer + 1 == blocks.len();
            self.attention(layer, block, only_keys);
            if !only_keys {
                self.mlp(block);
            }
        }
        if scored {
            self.head();
        }
    }

    /// Counts a launch of this kind. Returns true if it is to be skipped.
    fn leaves_out(&self, step: Step) -> bool {
        let at = self.launches.get();
        let (counts, out) = match &self.only {
            None => (true, false),
            Some((only, which)) => (*only == step, *only != step || !which.contains(&at)),
        };
        self.launches.set(at + usize::from(counts));
        out
    }

    /// Grid over `cubes` and rows.
    fn grid(cubes: usize, rows: usize) -> CubeCount {
        CubeCount::Static(cubes as u32, rows as u32, 1)
    }

    fn params(&self) -> BufferArg {
        arg(&self.scratch.params, PARAMS)
    }

    fn embed(&self) {
        const UNITS: usize = 64;
        if self.leaves_out(Step::Embed) {
            return;
        }
        let table = &self.weights.table;
        let d = self.config.hidden_size;
        // SAFETY: ids are below the rows of the table; rows of `hidden` are at least `d` long.
        unsafe {
            embed::embed::launch_unchecked(
                self.client,
                Self::grid(table.row.div_ceil(UNITS), self.count),
                CubeDim::new_1d(UNITS as u32),
                self.params(),
                arg(&table.words, table.rows * table.row),
                arg(&self.scratch.hidden, PASS * stride(d)),
                d as u32,
                table.row as u32,
                stride(d) as u32,
                self.config.embedding_scale,
                table.format,
            );
        }
    }

    /// `to = norm(x) * weight`, or added to `to` times the residual multiplier.
    fn norm(&self, x: &Handle, weight: &Handle, to: &Handle, add: bool) {
        if self.leaves_out(Step::Norm) {
            return;
        }
        let d = self.config.hidden_size;
        let fours = stride(d) / 4;
        let plan = norm::Plan {
            fours,
            add,
            of_load: if add { 1 } else { self.fours() },
        };
        // SAFETY: every buffer has rows of `stride(d)`.
        unsafe {
            norm::norm::launch_unchecked(
                self.client,
                Self::grid(self.count, 1),
                CubeDim::new_1d(norm::UNITS as u32),
                self.params(),
                arg(x, PASS * fours),
                arg(weight, fours),
                arg(to, PASS * fours),
                d as f32,
                self.config.rms_norm_eps as f32,
                self.config.block.residual_scale,
                plan,
            );
        }
    }

    /// Number of fours of activations that belong to one load of weights.
    fn fours(&self) -> usize {
        self.weights.head.shape.format.fours()
    }

    /// The input of the next projection: the residual stream, after a norm if there is one.
    fn input(&self, weight: Option<&Handle>) -> &Handle {
        match weight {
            None => &self.scratch.hidden,
            Some(weight) => {
                self.norm(&self.scratch.hidden, weight, &self.scratch.normed, false);
                &self.scratch.normed
            }
        }
    }

    fn apply(&self, what: Apply<'_>) {
        if self.leaves_out(what.step) {
            return;
        }
        let Apply { matrix, .. } = what;
        let shape = matrix.shape;
        let (rows, tiles) = tiles_for(self.count);
        let pieces = shape.pieces();
        let plan = Plan {
            format: shape.format,
            rows,
            cubes: self.cubes.unwrap_or(cubes_for(rows)),
            units: units_for(pieces),
            // The residual stream is in order, because norms and branches read it too.
            apart: !std::ptr::eq(what.x, &self.scratch.hidden),
            epilogue: what.epilogue,
            biased: matrix.bias.is_some(),
        };
        let x_stride = stride(shape.inputs);
        let sizes = SizesLaunch::new(
            shape.outputs as u32,
            pieces as u32,
            (x_stride / 4) as u32,
            what.to_stride as u32,
            tiles as u32,
            what.scale,
            self.config.logit_cap.unwrap_or(1.0),
        );
        let buffers = Buffers {
            x: arg(what.x, PASS * x_stride / 4),
            bias: arg(matrix.bias.as_ref().unwrap_or(self.nothing), shape.outputs),
            to: arg(what.to, what.to_rows * what.to_stride),
        };
        launch(self.client, matrix, buffers, sizes, tiles, plan);
    }

    /// A projection into a buffer of activations.
    fn project(&self, step: Step, x: &Handle, matrix: &Matrix, to: &Handle) {
        self.apply(Apply {
            step,
            x,
            matrix,
            to,
            to_stride: stride(matrix.shape.outputs),
            to_rows: PASS,
            epilogue: Epilogue::Store,
            scale: 1.0,
        });
    }

    /// Adds the output of attention or MLP to the residual stream: its projection, through its norm
    /// if it has one, times the residual multiplier.
    fn add_branch(&self, step: Step, x: &Handle, matrix: &Matrix, weight: Option<&Handle>) {
        match weight {
            Some(weight) => {
                self.project(step, x, matrix, &self.scratch.branch);
                self.norm(&self.scratch.branch, weight, &self.scratch.hidden, true);
            }
            None => self.apply(Apply {
                step,
                x,
                matrix,
                to: &self.scratch.hidden,
                to_stride: stride(matrix.shape.outputs),
                to_rows: PASS,
                epilogue: Epilogue::Residual,
                scale: self.config.block.residual_scale,
            }),
        }
    }

    fn attention(&self, layer: usize, block: &BlockWeights, only_keys: bool) {
        let x = self.input(block.attention_in.as_ref());
        self.project(Step::Qkv, x, &block.qkv, &self.scratch.qkv);
        match self.kv {
            KvType::F32 => self.place_and_attend::<f32>(layer, block, only_keys),
            KvType::F16 => self.place_and_attend::<half::f16>(layer, block, only_keys),
        }
        if !only_keys {
            let norm = block.attention_out.as_ref();
            self.add_branch(Step::Out, &self.scratch.mixed, &block.out, norm);
        }
    }

    fn place_and_attend<C: Float + CubeElement>(
        &self,
        layer: usize,
        block: &BlockWeights,
        only_keys: bool,
    ) {
        self.place::<C>(layer, block);
        if !only_keys {
            self.attend::<C>(layer);
            self.merge(layer);
        }
    }

    fn angles(&self, layer: usize) -> Option<&Angles> {
        match self.config.layer(layer).rotary {
            Rotary::None => None,
            Rotary::Global => Some(&self.cache.global),
            Rotary::Local => self.cache.local.as_ref(),
        }
    }

    fn place<C: Float + CubeElement>(&self, layer: usize, block: &BlockWeights) {
        if self.leaves_out(Step::Place) {
            return;
        }
        let config = self.config;
        let stored = &self.cache.layers[layer];
        let numbers = Cache::numbers(config, self.cache.capacity);
        let qkv_stride = stride(config.q_width() + 2 * config.kv_width());
        let (cos, sin, angles, half) = match self.angles(layer) {
            Some(angles) => (&angles.cos, &angles.sin, angles.len, angles.half),
            None => (self.nothing, self.nothing, 1, 0),
        };
        let (of_queries, of_keys) = match config.block.qk_norm {
            QkNorm::None => (1, 1),
            QkNorm::Head => (config.head_dim, config.head_dim),
            QkNorm::Full => (config.q_width(), config.kv_width()),
        };
        let weight = |of: &Option<Handle>, len| arg(of.as_ref().unwrap_or(self.nothing), len);
        // SAFETY: positions are below the capacity of the cache and of the tables; rows below
        // `PASS`.
        unsafe {
            place::place::launch_unchecked::<C>(
                self.client,
                Self::grid(config.num_heads + config.num_kv_heads, self.count),
                CubeDim::new_1d(place::UNITS as u32),
                self.params(),
                arg(&self.scratch.qkv, PASS * qkv_stride),
                weight(&block.query_norm, of_queries),
                weight(&block.key_norm, of_keys),
                arg(cos, angles),
                arg(sin, angles),
                arg(
                    &self.scratch.queries,
                    PASS * config.num_heads * padded(config),
                ),
                arg(&stored.keys, numbers),
                arg(&stored.values, numbers),
                place::HeadsLaunch::new(
                    config.num_heads as u32,
                    config.num_kv_heads as u32,
                    config.head_dim as u32,
                    padded(config) as u32,
                    qkv_stride as u32,
                    half as u32,
                    config.rms_norm_eps as f32,
                ),
                config.block.qk_norm,
                self.kv == KvType::F16,
            );
        }
    }

    /// Number of positions that a layer attends to; more than any context if all.
    fn window(&self, layer: usize) -> u32 {
        const ALL: usize = 1 << 30;
        self.config.layer(layer).window.unwrap_or(ALL).min(ALL) as u32
    }

    fn attend<C: Float + CubeElement>(&self, layer: usize) {
        if self.leaves_out(Step::Attend) {
            return;
        }
        let config = self.config;
        let stored = &self.cache.layers[layer];
        let numbers = Cache::numbers(config, self.cache.capacity);
        let plan = attend::Plan {
            group: config.num_heads / config.num_kv_heads,
            padded: padded(config),
            capped: config.block.attention_cap.is_some(),
        };
        let grid = CubeCount::Static(
            self.blocks as u32,
            config.num_kv_heads as u32,
            self.count as u32,
        );
        // SAFETY: blocks are below those of the cache, rows below those of `parts`.
        unsafe {
            attend::attend::launch_unchecked::<C>(
                self.client,
                grid,
                CubeDim::new_1d(attend::UNITS as u32),
                self.params(),
                arg(
                    &self.scratch.queries,
                    PASS * config.num_heads * plan.padded / 4,
                ),
                arg(&stored.keys, numbers / 4),
                arg(&stored.values, numbers),
                arg(&self.cache.parts, self.cache.parts_len(config)),
                arg(&self.cache.tops, self.cache.tops_len(config)),
                attend::RuleLaunch::new(
                    config.num_kv_heads as u32,
                    self.cache.blocks() as u32,
                    self.window(layer),
                    config.block.attention_scale,
                    config.block.attention_cap.unwrap_or(1.0),
                ),
                plan,
            );
        }
    }

    fn merge(&self, layer: usize) {
        if self.leaves_out(Step::Merge) {
            return;
        }
        let config = self.config;
        let mixed = stride(config.q_width());
        // SAFETY: as for `attend`.
        unsafe {
            attend::merge::launch_unchecked(
                self.client,
                Self::grid(config.num_heads, self.count),
                CubeDim::new_1d(attend::UNITS as u32),
                self.params(),
                arg(&self.cache.parts, self.cache.parts_len(config)),
                arg(&self.cache.tops, self.cache.tops_len(config)),
                arg(&self.scratch.mixed, PASS * mixed),
                self.cache.blocks() as u32,
                self.window(layer),
                config.head_dim as u32,
                mixed as u32,
                padded(config),
                self.fours(),
            );
        }
    }

    fn mlp(&self, block: &BlockWeights) {
        let x = self.input(block.mlp_in.as_ref());
        self.apply(Apply {
            step: Step::GateUp,
            x,
            matrix: &block.gate_up,
            to: &self.scratch.gated,
            to_stride: stride(self.config.intermediate_size),
            to_rows: PASS,
            epilogue: Epilogue::Gated(self.config.block.activation),
            scale: 1.0,
        });
        let norm = block.mlp_out.as_ref();
        self.add_branch(Step::Down, &self.scratch.gated, &block.down, norm);
    }

    fn head(&self) {
        let x = self.input(Some(&self.weights.norm));
        self.apply(Apply {
            step: Step::Head,
            x,
            matrix: &self.weights.head,
            to: &self.scratch.logits,
            to_stride: self.config.vocab_size,
            to_rows: SCORED,
            epilogue: match (self.config.logit_divisor, self.config.logit_cap) {
                (_, Some(_)) => Epilogue::CappedLogits,
                (1.0, None) => Epilogue::Store,
                _ => Epilogue::Logits,
            },
            scale: self.config.logit_divisor,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_cover_the_tokens_and_stay_within_the_buffers() {
        for count in 1..=PASS {
            let rows = rows_for(count);
            assert!((count..=PASS).contains(&rows), "{count}");
            assert!(count > SCORED || rows <= SCORED, "{count}");
            // A recording is made for a number of rows and is reused for it.
            assert_eq!(tiles_for(rows), tiles_for(count));
        }
        assert_eq!([9, 17, 33].map(rows_for), [12, 24, 36]);
    }
}
