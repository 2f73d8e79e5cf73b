//! Compact storage of bf16 weights: three quarters of the bytes, without loss.
//!
//! Decoding waits for weights, so fewer bytes mean more tokens per second. The high byte of a bf16
//! number holds its sign and most of its exponent, and the weights of a panel use few of the 256
//! values. The sixteen most frequent ones form a book, and every weight is stored as a four-bit
//! index into the book and its low byte. A pair of weights with another high byte is an *escape* in
//! a separate list (in a trained matrix fewer than one in a thousand).
//!
//! The kernel multiplies the same words that [`pairs`] would have stored, in the same order, so
//! every result has the same bits. f32 weights that bf16 holds exactly, as those read from bf16
//! checkpoints, are stored in the same way and widened before they are multiplied with f32 inputs.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use lm::LmError;

#[cfg(target_arch = "x86_64")]
use super::{
    gemm::Sink,
    tiled::{PairProduct, PairTiles},
    x86::amx::{Tile, Tiles},
};
use crate::arena::{Arena, Buffer};
use crate::packing::{Part, for_each_panel};
use crate::pool::Pool;

use super::gemm::{Operands, PART_BYTES, Rows, Sums, fetch_each};
use super::pairs::{self, pairs, stride};
use super::row::PairRow;
use super::simd::{Book, GRANULE, Granule, PANEL, Simd};

/// Number of inputs of a [granule](Granule), the unit in which compact weights are unpacked.
const INPUTS: usize = 2 * GRANULE;

/// Number of words of a granule.
const WORDS: usize = GRANULE * PANEL;

/// Number of words of a matrix per escape that it may have. A granule with an escape costs about as
/// much time as it saves, so with many of them plain panels are faster.
const WORDS_PER_ESCAPE: usize = 128;

/// A word with a high byte that is not in the book.
#[derive(Clone, Copy, Debug)]
struct Escape {
    /// Index of the word in its panel: row times sixteen plus column.
    at: u32,
    word: u32,
}

/// End of the escapes of a panel.
const END: Escape = Escape {
    at: u32::MAX,
    word: 0,
};

/// Data of a panel beside its granules.
#[derive(Clone, Copy, Debug, Default)]
struct Head {
    book: Book,
    /// Index of its first escape.
    escapes: u32,
}

/// A bf16 matrix in compact storage.
pub(crate) struct CompactPanels {
    /// Panel after panel.
    granules: Buffer<Granule>,
    heads: Vec<Head>,
    /// Escapes of one panel after the other, each in order of place and closed by [`END`].
    escapes: Vec<Escape>,
}

/// Number of granules of a panel.
fn granules(inputs: usize) -> usize {
    pairs(inputs).div_ceil(GRANULE)
}

impl CompactPanels {
    /// Allocates `panels` panels in `arena`. All must be packed before any is multiplied.
    pub(crate) fn new(arena: &mut Arena, inputs: usize, panels: usize) -> Self {
        Self {
            granules: arena.take(granules(inputs) * panels),
            heads: vec![Head::default(); panels],
            escapes: Vec::new(),
        }
    }

    /// Number of bytes of the arena that [`Self::new`] takes.
    pub(crate) fn room(inputs: usize, panels: usize) -> usize {
        Arena::bytes_of::<Granule>(granules(inputs) * panels)
    }

    /// Number of bytes that a product reads.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val::<[_]>(&self.granules)
            + size_of_val(self.heads.as_slice())
            + size_of_val(self.escapes.as_slice())
    }

    /// Largest number of escapes, panels' ends included, with which compact storage pays.
    pub(crate) fn most_escapes(&self) -> usize {
        let words = self.granules.len() * WORDS;
        words / WORDS_PER_ESCAPE + self.heads.len()
    }

    /// Packs all panels on all threads. Returns false as soon as there are more than `most`
    /// escapes.
    pub(crate) fn pack(
        &mut self,
        parts: &[Part<'_>],
        inputs: usize,
        pool: &Pool,
        most: usize,
    ) -> Result<bool, LmError> {
        let mut lists: Vec<Vec<Escape>> = vec![Vec::new(); self.heads.len()];
        let count = AtomicUsize::new(0);
        let granules = self.granules.chunks_mut(granules(inputs).max(1));
        let slots = granules.zip(self.heads.iter_mut()).zip(lists.iter_mut());
        for_each_panel(
            parts,
            inputs,
            slots,
            pool,
            |((granules, head), list), columns, scratch| {
                head.book = pack_panel(columns, inputs, granules, list, &mut scratch.pairs);
                count.fetch_add(list.len(), Relaxed) + list.len() <= most
            },
        )?;
        if count.into_inner() > most {
            return Ok(false);
        }
        self.escapes.clear();
        for (head, list) in self.heads.iter_mut().zip(lists) {
            head.escapes = self.escapes.len() as u32;
            self.escapes.extend(list);
        }
        Ok(true)
    }
}

/// Packs `columns` (up to sixteen rows of `inputs` weights) into the granules and escapes of a
/// panel, and returns its book. `scratch` is reused between calls.
fn pack_panel(
    columns: &[f32],
    inputs: usize,
    granules: &mut [Granule],
    escapes: &mut Vec<Escape>,
    scratch: &mut Vec<PairRow>,
) -> Book {
    scratch.clear();
    scratch.resize(pairs(inputs), PairRow::default());
    pairs::pack_panel(columns, inputs, scratch);
    let book = book(scratch);
    // Codes by byte; sixteen for a byte without a code.
    let mut codes = [16; 256];
    for (code, byte) in (0..).zip(book) {
        codes[usize::from(byte)] = code;
    }
    for (at, (granule, rows)) in granules.iter_mut().zip(scratch.chunks(GRANULE)).enumerate() {
        for (row, words) in rows.iter().enumerate() {
            for (column, word) in words.0.into_iter().enumerate() {
                let [low, high, second_low, second_high] = word.to_le_bytes();
                let pair = [high, second_high].map(|byte| codes[usize::from(byte)]);
                granule.set(row, column, [low, second_low], pair.map(|code| code & 15));
                if pair.contains(&16) {
                    let at = (at * WORDS + row * PANEL + column) as u32;
                    escapes.push(Escape { at, word });
                }
            }
        }
    }
    escapes.push(END);
    book
}

/// The sixteen most frequent high bytes of a panel.
fn book(rows: &[PairRow]) -> Book {
    let mut counts = [0_u32; 256];
    for word in rows.iter().flat_map(|row| row.0) {
        counts[(word >> 8 & 0xff) as usize] += 1;
        counts[(word >> 24) as usize] += 1;
    }
    let mut bytes: [u8; 256] = std::array::from_fn(|i| i as u8);
    bytes.sort_by_key(|byte| std::cmp::Reverse(counts[usize::from(*byte)]));
    std::array::from_fn(|i| bytes[i])
}

/// Activations to multiply with compact weights. `N` values of a row belong to one granule.
pub(crate) trait Inputs<const N: usize>: Copy {
    type Value: Copy + Default;

    /// [`Kernel::NARROW`](super::simd::Kernel::NARROW) of a product.
    const NARROW: bool;

    /// Number of rows.
    fn count(&self) -> usize;

    /// One row.
    fn row(&self, row: usize, inputs: usize) -> &[Self::Value];

    /// A row in parts of `N`, at least those for whole granules.
    #[inline(always)]
    fn parts(&self, row: usize, inputs: usize) -> &[[Self::Value; N]] {
        self.row(row, inputs).as_chunks().0
    }

    /// The values for an incomplete last granule, filled up with zeros.
    #[inline(always)]
    fn rest(&self, row: usize, inputs: usize) -> [Self::Value; N] {
        filled_up(&self.row(row, inputs)[inputs / INPUTS * N..])
    }

    /// All rows rounded to bf16, if that is their format.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn rounded(&self) -> Option<&[i32]> {
        None
    }

    /// Continues the chains of panel `p` over the first `inputs` of a granule.
    fn extend<S: Simd, const M: usize, const P: usize>(
        simd: S,
        sums: &mut Sums<S::P, M, P>,
        p: usize,
        words: [S::Words; GRANULE],
        x: [&[Self::Value; N]; M],
        inputs: usize,
    );
}

/// Activations rounded to bf16, two per word.
#[derive(Clone, Copy)]
pub(crate) struct Rounded<'a> {
    /// `[count][stride(inputs)]`.
    pub(crate) words: &'a [i32],
    pub(crate) count: usize,
}

impl Inputs<GRANULE> for Rounded<'_> {
    type Value = i32;

    const NARROW: bool = true;

    #[inline(always)]
    fn count(&self) -> usize {
        self.count
    }

    #[inline(always)]
    fn row(&self, row: usize, inputs: usize) -> &[i32] {
        &self.words[row * stride(inputs)..][..pairs(inputs)]
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn rounded(&self) -> Option<&[i32]> {
        Some(self.words)
    }

    #[inline(always)]
    fn extend<S: Simd, const M: usize, const P: usize>(
        simd: S,
        sums: &mut Sums<S::P, M, P>,
        p: usize,
        words: [S::Words; GRANULE],
        x: [&[i32; GRANULE]; M],
        inputs: usize,
    ) {
        for i in 0..pairs(inputs) {
            simd.add_pairs(sums, p, words[i], x.map(|x| &x[i]));
        }
    }
}

/// Activations in f32.
#[derive(Clone, Copy)]
pub(crate) struct Exact<'a>(pub(crate) Rows<'a>);

impl Inputs<INPUTS> for Exact<'_> {
    type Value = f32;

    const NARROW: bool = false;

    #[inline(always)]
    fn count(&self) -> usize {
        self.0.count
    }

    #[inline(always)]
    fn row(&self, row: usize, inputs: usize) -> &[f32] {
        &self.0.data[row * self.0.stride..][..inputs]
    }

    #[inline(always)]
    fn extend<S: Simd, const M: usize, const P: usize>(
        simd: S,
        sums: &mut Sums<S::P, M, P>,
        p: usize,
        words: [S::Words; GRANULE],
        x: [&[f32; INPUTS]; M],
        inputs: usize,
    ) {
        for i in 0..inputs {
            let weights = simd.widen(words[i / 2], i % 2);
            for r in 0..M {
                let x = simd.splat_panel(x[r][i]);
                sums[r][p] = simd.mul_add_panel(x, weights, sums[r][p]);
            }
        }
    }
}

/// An array that starts with `values`, as far as it has room, and is filled with zeros.
#[inline(always)]
pub(crate) fn filled_up<T: Copy + Default, const N: usize>(values: &[T]) -> [T; N] {
    if let Some(whole) = values.first_chunk() {
        return *whole;
    }
    let mut all = [T::default(); N];
    all[..values.len()].copy_from_slice(values);
    all
}

/// Activations times compact weights; one unit is a granule.
#[derive(Clone, Copy)]
pub(crate) struct CompactChains<'a, X, const N: usize> {
    pub(crate) x: X,
    pub(crate) w: &'a CompactPanels,
    pub(crate) inputs: usize,
}

/// Position of a walk over a panel in the panel's list of escapes.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    rest: &'a [Escape],
    /// Index of the next escape's word.
    next: usize,
}

impl<'a> Cursor<'a> {
    const NOWHERE: Self = Self {
        rest: &[],
        next: usize::MAX,
    };

    /// The position before the first escape of granule `start` or a later one.
    #[inline(always)]
    fn new(w: &'a CompactPanels, panel: usize, start: usize) -> Self {
        let end = w
            .heads
            .get(panel + 1)
            .map_or(w.escapes.len(), |next| next.escapes as usize);
        let rest = &w.escapes[w.heads[panel].escapes as usize..end];
        let before = rest.partition_point(|escape| (escape.at as usize) < start * WORDS);
        let rest = &rest[before..];
        Self {
            rest,
            next: rest.first().map_or(usize::MAX, |first| first.at as usize),
        }
    }

    /// Replaces the words of granule `at` that are escapes.
    #[inline(always)]
    fn fill<S: Simd>(&mut self, simd: S, at: usize, words: &mut [S::Words; GRANULE]) {
        while self.next < (at + 1) * WORDS {
            let [first, others @ ..] = self.rest else {
                return;
            };
            let columns = 1_u64 << (self.next % WORDS);
            for (row, words) in words.iter_mut().enumerate() {
                let columns = (columns >> (row * PANEL)) as u16;
                *words = simd.replace_words(*words, columns, first.word);
            }
            self.rest = others;
            self.next = others.first().map_or(usize::MAX, |next| next.at as usize);
        }
    }
}

impl<X: Inputs<N>, const N: usize> Operands for CompactChains<'_, X, N> {
    // Measured on a Zen 4: the chains of one row in one panel take longer than reading three
    // quarters of the bytes does, and the processor prefetches two long streams well by itself.
    const STREAM_ROWS: usize = 1;
    const NARROW: bool = X::NARROW;

    #[inline(always)]
    fn rows(&self) -> usize {
        self.x.count()
    }

    #[inline(always)]
    fn depth(&self) -> usize {
        granules(self.inputs)
    }

    #[inline(always)]
    fn part(&self) -> usize {
        PART_BYTES / size_of::<Granule>()
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
        let depth = granules(self.inputs);
        let mut w: [&[Granule]; P] = [&[]; P];
        let mut books = [simd.book(&Book::default()); P];
        let mut cursors = [Cursor::NOWHERE; P];
        for p in 0..P {
            w[p] = &self.w.granules[panels[p] * depth..][..units.end];
            books[p] = simd.book(&self.w.heads[panels[p]].book);
            cursors[p] = Cursor::new(self.w, panels[p], units.start);
        }
        let whole = units.end.min(self.inputs / INPUTS);
        let mut parts: [&[[X::Value; N]]; M] = [&[]; M];
        for r in 0..M {
            parts[r] = &self.x.parts(row + r, self.inputs)[..whole];
        }
        for at in units.start..whole {
            if P == 1 {
                fetch_each(simd, &w[0][at]);
            }
            let mut x: [&[X::Value; N]; M] = [&parts[0][at]; M];
            for r in 0..M {
                x[r] = &parts[r][at];
            }
            for p in 0..P {
                let mut words = simd.granule(books[p], &w[p][at]);
                cursors[p].fill(simd, at, &mut words);
                X::extend(simd, &mut sums, p, words, x, INPUTS);
            }
        }
        // A granule whose last rows are beyond the inputs.
        for at in whole.max(units.start)..units.end {
            let rest: [[X::Value; N]; M] =
                std::array::from_fn(|r| self.x.rest(row + r, self.inputs));
            for p in 0..P {
                let mut words = simd.granule(books[p], &w[p][at]);
                cursors[p].fill(simd, at, &mut words);
                X::extend(
                    simd,
                    &mut sums,
                    p,
                    words,
                    rest.each_ref(),
                    self.inputs - at * INPUTS,
                );
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
        let Some(x) = self.x.rounded() else {
            return false;
        };
        let product = PairProduct {
            x,
            count: self.rows(),
            pairs: pairs(self.inputs),
            stride: stride(self.inputs),
            weights: Granules {
                w: self.w,
                depth: self.depth(),
            },
        };
        product.run(simd, tiles, panels, sink);
        true
    }
}

/// Compact weights that are expanded tile by tile.
#[cfg(target_arch = "x86_64")]
struct Granules<'a> {
    w: &'a CompactPanels,
    /// Number of granules of a panel.
    depth: usize,
}

/// A position in a compact panel.
#[cfg(target_arch = "x86_64")]
struct Place<'a, S: Simd> {
    granules: &'a [Granule],
    book: S::Book,
    cursor: Cursor<'a>,
    /// Index of the next granule.
    at: usize,
}

#[cfg(target_arch = "x86_64")]
impl PairTiles for Granules<'_> {
    type Panel<'a, S: Simd>
        = Place<'a, S>
    where
        Self: 'a;

    #[inline(always)]
    fn panel<S: Simd>(&self, simd: S, panel: usize) -> Place<'_, S> {
        Place {
            granules: &self.w.granules[panel * self.depth..][..self.depth],
            book: simd.book(&self.w.heads[panel].book),
            cursor: Cursor::new(self.w, panel, 0),
            at: 0,
        }
    }

    #[inline(always)]
    fn tile<'p: 't, 't, S: Simd>(
        place: &'t mut Place<'p, S>,
        simd: S,
        room: &'t mut Tile<PairRow>,
    ) -> &'t Tile<PairRow>
    where
        Self: 'p,
    {
        let (granules, rest) = place.granules.split_at(place.granules.len().min(4));
        place.granules = rest;
        let (quarters, _) = room.as_chunks_mut::<GRANULE>();
        for (rows, granule) in quarters.iter_mut().zip(granules) {
            fetch_each(simd, granule);
            let mut words = simd.granule(place.book, granule);
            place.cursor.fill(simd, place.at, &mut words);
            for (row, words) in rows.iter_mut().zip(words) {
                simd.store_words(words, &mut row.0);
            }
            place.at += 1;
        }
        quarters[granules.len()..]
            .as_flattened_mut()
            .fill(PairRow::default());
        room
    }
}
