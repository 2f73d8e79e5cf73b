//! bf16 weights, two inputs per row, and activations rounded to bf16 to be multiplied with them.
//!
//! AVX-512 multiplies pairs of bf16 numbers twice as fast as f32 ones, so activations are rounded
//! to bf16 too, as other engines do with bf16 weights. Both numbers of a pair enter the chain one
//! after the other, so an output is the chain that [`Chains`] defines, of rounded activations.
//!
//! [`Chains`]: super::gemm::Chains

use std::ops::Range;

use super::gemm::{Operands, PART_BYTES, Rows, Sums, fetch, fetch_steps};
#[cfg(target_arch = "x86_64")]
use super::gemm::{Sink, fetch_each};
use super::row::PairRow;
use super::simd::{Kernel, Simd};
#[cfg(target_arch = "x86_64")]
use super::{
    tiled::{PairProduct, PairTiles},
    x86::amx::{Tile, Tiles},
};

/// Number of rows of a panel, or of words of a row of activations, for `inputs` inputs.
pub(crate) fn pairs(inputs: usize) -> usize {
    inputs.div_ceil(2)
}

/// Number of words from one row of activations to the next: an odd number of cache lines. Rows at a
/// distance of a power of two would compete for a few sets of the nearest cache.
pub(crate) fn stride(inputs: usize) -> usize {
    const WORDS: usize = 16;
    (pairs(inputs).div_ceil(WORDS) | 1) * WORDS
}

/// Packs `columns` (up to sixteen rows of `inputs` weights) into one panel.
pub(crate) fn pack_panel(columns: &[f32], inputs: usize, rows: &mut [PairRow]) {
    for (column, weights) in columns.chunks_exact(inputs).enumerate() {
        for (input, weight) in weights.iter().enumerate() {
            rows[input / 2].set(column, input % 2, *weight);
        }
    }
}

/// Rounds the first `width` activations of every row to bf16, ties to even, in pairs.
pub(crate) struct RoundPairs<'a> {
    pub(crate) x: Rows<'a>,
    pub(crate) width: usize,
    /// `[rows][stride(width)]`.
    pub(crate) to: &'a mut [i32],
}

impl Kernel for RoundPairs<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, _simd: S) {
        for (row, to) in self.to.chunks_exact_mut(stride(self.width)).enumerate() {
            let to = &mut to[..pairs(self.width)];
            let (pairs, last) = self.x.data[row * self.x.stride..][..self.width].as_chunks::<2>();
            for (word, [first, second]) in to.iter_mut().zip(pairs) {
                *word = (bf16_bits(*first) << 16 | bf16_bits(*second)) as i32;
            }
            if let ([last], Some(word)) = (last, to.last_mut()) {
                *word = (bf16_bits(*last) << 16) as i32;
            }
        }
    }
}

/// The bits of the nearest bf16 number, ties to even. It has no branches, so that the compiler
/// vectorises it.
#[inline(always)]
fn bf16_bits(x: f32) -> u32 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    // Rounding could turn a NaN into another number.
    let quiet = bits >> 16 | 0x40;
    if bits & 0x7fff_ffff > 0x7f80_0000 {
        quiet
    } else {
        rounded
    }
}

/// Rounded activations times bf16 weights.
#[derive(Clone, Copy)]
pub(crate) struct PairChains<'a> {
    /// `[count][stride(inputs)]`.
    pub(crate) x: &'a [i32],
    pub(crate) count: usize,
    /// Panel after panel.
    pub(crate) rows: &'a [PairRow],
    pub(crate) inputs: usize,
}

impl Operands for PairChains<'_> {
    const STREAM_ROWS: usize = 5;
    const NARROW: bool = true;

    #[inline(always)]
    fn rows(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn depth(&self) -> usize {
        pairs(self.inputs)
    }

    #[inline(always)]
    fn part(&self) -> usize {
        PART_BYTES / size_of::<PairRow>()
    }

    #[expect(
        clippy::needless_range_loop,
        reason = "constant bounds unroll into registers"
    )]
    #[inline(always)]
    fn extend<S: Simd, const M: usize, const P: usize>(
        self,
        simd: S,
        row: usize,
        panels: [usize; P],
        units: Range<usize>,
        mut sums: Sums<S::P, M, P>,
    ) -> Sums<S::P, M, P> {
        let (length, depth) = (self.depth(), units.len());
        let mut x: [&[i32]; M] = [&[]; M];
        for r in 0..M {
            x[r] = &self.x[(row + r) * stride(self.inputs) + units.start..][..depth];
        }
        let mut w: [&[PairRow]; P] = [&[]; P];
        for p in 0..P {
            w[p] = &self.rows[panels[p] * length + units.start..][..depth];
        }
        for step in fetch_steps::<PairRow>(P, 0..depth) {
            fetch(simd, P, &w[0][step.start]);
            for i in step {
                for p in 0..P {
                    simd.add_pairs(&mut sums, p, simd.words(&w[p][i].0), x.map(|x| &x[i]));
                }
            }
        }
        sums
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn tiled<S: Simd>(
        &self,
        simd: S,
        tiles: Tiles,
        panels: Range<usize>,
        sink: &mut impl Sink,
    ) -> bool {
        let product = PairProduct {
            x: self.x,
            count: self.count,
            pairs: pairs(self.inputs),
            stride: stride(self.inputs),
            weights: *self,
        };
        product.run(simd, tiles, panels, sink);
        true
    }
}

#[cfg(target_arch = "x86_64")]
impl PairTiles for PairChains<'_> {
    type Panel<'a, S: Simd>
        = &'a [PairRow]
    where
        Self: 'a;

    #[inline(always)]
    fn panel<S: Simd>(&self, _simd: S, panel: usize) -> &[PairRow] {
        let length = self.depth();
        &self.rows[panel * length..][..length]
    }

    #[inline(always)]
    fn tile<'p: 't, 't, S: Simd>(
        panel: &'t mut &'p [PairRow],
        simd: S,
        room: &'t mut Tile<PairRow>,
    ) -> &'t Tile<PairRow>
    where
        Self: 'p,
    {
        if let Some((tile, rest)) = panel.split_first_chunk() {
            fetch_each(simd, tile);
            *panel = rest;
            return tile;
        }
        room.fill(PairRow::default());
        room[..panel.len()].copy_from_slice(panel);
        *panel = &[];
        room
    }
}
