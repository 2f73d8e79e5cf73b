//! Kernels for AMX: eight registers that each hold a tile of up to sixteen rows of 64 bytes, and a
//! unit that multiplies two of them. Sixteen rows of activations take about as long as one.
//!
//! Panels have the layout of right-hand tiles: sixteen rows of pairs of bf16 numbers, or of four
//! bytes. The code is assembly because Rust has no stable intrinsics for tiles.

#[cfg(test)]
mod emulator;

use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;
use std::ptr;

/// Number of rows of a tile.
pub(crate) const ROWS: usize = 16;

/// Number of tiles of sums.
pub(crate) const SUMS: usize = 4;

/// A right-hand tile: sixteen rows of 64 bytes.
pub(crate) type Tile<R> = [R; ROWS];

/// Number of 32-bit words in a row of a tile.
pub(crate) const WORDS: usize = 16;

/// Bits 22, 24 and 25 of the extended features: products of bf16 numbers, tiles, products of bytes.
const FEATURES: u32 = 1 << 22 | 1 << 24 | 1 << 25;

/// Proof that this processor has tiles, and that the system lets this process use them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tiles(());

impl Tiles {
    /// The proof, if all of this is available. It may be called only on a processor with AVX-512:
    /// each of them has the CPUID leaf that lists these features.
    pub(crate) fn detect() -> Option<Self> {
        let there = __cpuid_count(7, 0).edx & FEATURES == FEATURES && granted();
        #[cfg(test)]
        let there = there || emulator::install();
        there.then_some(Self(()))
    }

    /// Configures the tile registers of this thread for products of `rows` rows of activations, 1
    /// to 64, `words` words of each at a time, 1 to 16. Up to sixteen rows are one left-hand tile,
    /// which is multiplied with up to four tiles of weights. More rows are up to four tiles, all of
    /// sixteen rows but the last, which are multiplied with the same panel.
    #[inline(always)]
    pub(crate) fn open(self, rows: usize, words: usize) -> Unit {
        let mut unit = Unit {
            rows: 0,
            words: 0,
            last: 0,
            thread: PhantomData,
        };
        unit.configure(rows, words);
        unit
    }
}

/// Asks the system for the use of tiles, which is granted to all threads.
#[cfg(target_os = "linux")]
fn granted() -> bool {
    const ARCH_REQ_XCOMP_PERM: libc::c_ulong = 0x1023;
    const XFEATURE_XTILEDATA: libc::c_ulong = 18;
    // SAFETY: this call takes two numbers and touches no memory of this process.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_arch_prctl,
            ARCH_REQ_XCOMP_PERM,
            XFEATURE_XTILEDATA,
        )
    };
    answer == 0
}

#[cfg(not(target_os = "linux"))]
fn granted() -> bool {
    false
}

/// Shapes of all tile registers.
#[repr(C, align(64))]
struct Config {
    palette: u8,
    start: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

/// The tile registers of a thread: sums in 0 to 3, activations in 4 (in 5 the last of more than
/// sixteen rows), weights in 6 and 7. No other code uses them, so they keep their values between
/// calls.
pub(crate) struct Unit {
    rows: usize,
    /// Number of words of a row of activations, and of rows of weights.
    words: usize,
    last: usize,
    /// Registers belong to one thread.
    thread: PhantomData<*const ()>,
}

impl Drop for Unit {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: there are tiles, since there is a `Unit`.
        unsafe { asm!("tilerelease", options(nomem, nostack)) }
    }
}

/// Number format of the factors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Factors {
    /// Pairs of bf16 numbers, sums in f32.
    Pairs,
    /// Four signed bytes, sums in i32.
    Bytes,
}

/// Loads a tile of weights from `$place` to `$w` and multiplies.
macro_rules! panel {
    ($multiply:literal, $sum:literal, $w:literal, $place:expr) => {
        asm!(
            concat!("tileloadd ", $w, ", [{place} + {stride}]"),
            concat!($multiply, " ", $sum, ", tmm4, ", $w),
            place = in(reg) $place,
            stride = in(reg) 4 * WORDS,
            options(nostack, readonly),
        )
    };
}

/// Loads a tile of activations from `$place` to `$x` and multiplies it with weights in 6.
macro_rules! inputs {
    ($multiply:literal, $sum:literal, $x:literal, $place:expr, $stride:expr) => {
        asm!(
            concat!("tileloadd ", $x, ", [{place} + {stride}]"),
            concat!($multiply, " ", $sum, ", ", $x, ", tmm6"),
            place = in(reg) $place,
            stride = in(reg) $stride,
            options(nostack, readonly),
        )
    };
}

/// Stores the sums `$sum` at `$place`.
macro_rules! store {
    ($sum:literal, $place:expr) => {
        asm!(
            concat!("tilestored [{place} + {stride}], ", $sum),
            place = in(reg) $place,
            stride = in(reg) 4 * WORDS,
            options(nostack),
        )
    };
}

// In every method below there are tiles, since there is a `Unit`, and their shapes are those that
// `configure` gave them.
impl Unit {
    /// Configures the registers anew, as [`Tiles::open`] does. Their values are lost.
    #[inline(always)]
    pub(crate) fn configure(&mut self, rows: usize, words: usize) {
        if (self.rows, self.words) == (rows, words) {
            return;
        }
        assert!((1..=SUMS * ROWS).contains(&rows), "{rows} rows of tiles");
        assert!((1..=WORDS).contains(&words), "{words} words of a tile");
        let last = (rows - 1) % ROWS + 1;
        let mut config = Config {
            palette: 1,
            start: 0,
            reserved: [0; 14],
            row_bytes: [0; 16],
            rows: [0; 16],
        };
        config.row_bytes[..8].fill(4 * WORDS as u16);
        config.rows[..8].fill(ROWS as u8);
        for sum in 0..SUMS {
            let height = if rows <= ROWS {
                rows
            } else {
                rows.saturating_sub(sum * ROWS).clamp(1, ROWS)
            };
            config.rows[sum] = height as u8;
        }
        config.rows[4] = rows.min(ROWS) as u8;
        config.rows[5] = last as u8;
        config.row_bytes[4..6].fill(4 * words as u16);
        config.rows[6..8].fill(words as u8);
        // SAFETY: there are tiles, since there is a `Unit`; the configuration has its 64 bytes and
        // describes tiles of palette 1, of at most sixteen rows of 64 bytes.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &config, options(nostack)) }
        (self.rows, self.words, self.last) = (rows, words, last);
    }

    /// Makes all sums zero.
    #[inline(always)]
    pub(crate) fn zero(&mut self) {
        // SAFETY: as above; nothing but tile registers is written.
        unsafe {
            asm!(
                "tilezero tmm0",
                "tilezero tmm1",
                "tilezero tmm2",
                "tilezero tmm3",
                options(nomem, nostack)
            );
        }
    }

    /// Loads the activations of up to sixteen rows, `stride` words apart.
    #[inline(always)]
    pub(crate) fn load_inputs(&mut self, x: &[i32], stride: usize) {
        assert!(self.rows <= ROWS && x.len() >= (self.rows - 1) * stride + self.words);
        // SAFETY: as above; the tile has `rows` rows of `words` words, which lie in `x`.
        unsafe {
            asm!("tileloadd tmm4, [{place} + {stride}]",
                place = in(reg) x.as_ptr(), stride = in(reg) 4 * stride,
                options(nostack, readonly));
        }
    }

    /// Adds the products of the loaded activations with a panel's weights, as many rows as a row of
    /// activations has words, to sums `sum`, 0 to 3.
    #[inline(always)]
    pub(crate) fn add_panel<R>(&mut self, factors: Factors, sum: usize, w: &[R]) {
        const { assert!(size_of::<R>() == 4 * WORDS) }
        assert!(w.len() == self.words, "{} rows of weights", w.len());
        let w = w.as_ptr();
        // SAFETY: as above; the tile has `words` rows of 64 bytes, which lie in `w`.
        unsafe {
            match (factors, sum) {
                (Factors::Pairs, 0) => panel!("tdpbf16ps", "tmm0", "tmm6", w),
                (Factors::Pairs, 1) => panel!("tdpbf16ps", "tmm1", "tmm7", w),
                (Factors::Pairs, 2) => panel!("tdpbf16ps", "tmm2", "tmm6", w),
                (Factors::Pairs, _) => panel!("tdpbf16ps", "tmm3", "tmm7", w),
                (Factors::Bytes, 0) => panel!("tdpbssd", "tmm0", "tmm6", w),
                (Factors::Bytes, 1) => panel!("tdpbssd", "tmm1", "tmm7", w),
                (Factors::Bytes, 2) => panel!("tdpbssd", "tmm2", "tmm6", w),
                (Factors::Bytes, _) => panel!("tdpbssd", "tmm3", "tmm7", w),
            }
        }
    }

    /// Loads a panel's weights, as many rows as a row of activations has words, for
    /// [`Self::add_inputs`].
    #[inline(always)]
    pub(crate) fn load_panel<R>(&mut self, w: &[R]) {
        const { assert!(size_of::<R>() == 4 * WORDS) }
        assert!(w.len() == self.words, "{} rows of weights", w.len());
        // SAFETY: as above; the tile has `words` rows of 64 bytes, which lie in `w`.
        unsafe {
            asm!("tileloadd tmm6, [{place} + {stride}]",
                place = in(reg) w.as_ptr(), stride = in(reg) 4 * WORDS,
                options(nostack, readonly));
        }
    }

    /// Adds the products of the loaded weights with the rows from `16 * sum` on to sums
    /// `sum`. `x` starts with the first of these rows.
    #[inline(always)]
    pub(crate) fn add_inputs(&mut self, factors: Factors, sum: usize, x: &[i32], stride: usize) {
        let full = (sum + 1) * ROWS <= self.rows;
        let height = if full { ROWS } else { self.last };
        assert!(sum * ROWS < self.rows && x.len() >= (height - 1) * stride + self.words);
        let (x, stride) = (x.as_ptr(), 4 * stride);
        // SAFETY: as above; the tile has `height` rows of `words` words, which lie in `x`.
        unsafe {
            match (factors, sum, full) {
                (Factors::Pairs, 0, true) => inputs!("tdpbf16ps", "tmm0", "tmm4", x, stride),
                (Factors::Pairs, 1, true) => inputs!("tdpbf16ps", "tmm1", "tmm4", x, stride),
                (Factors::Pairs, 2, true) => inputs!("tdpbf16ps", "tmm2", "tmm4", x, stride),
                (Factors::Pairs, _, true) => inputs!("tdpbf16ps", "tmm3", "tmm4", x, stride),
                (Factors::Pairs, 0, false) => inputs!("tdpbf16ps", "tmm0", "tmm5", x, stride),
                (Factors::Pairs, 1, false) => inputs!("tdpbf16ps", "tmm1", "tmm5", x, stride),
                (Factors::Pairs, 2, false) => inputs!("tdpbf16ps", "tmm2", "tmm5", x, stride),
                (Factors::Pairs, _, false) => inputs!("tdpbf16ps", "tmm3", "tmm5", x, stride),
                (Factors::Bytes, 0, true) => inputs!("tdpbssd", "tmm0", "tmm4", x, stride),
                (Factors::Bytes, 1, true) => inputs!("tdpbssd", "tmm1", "tmm4", x, stride),
                (Factors::Bytes, 2, true) => inputs!("tdpbssd", "tmm2", "tmm4", x, stride),
                (Factors::Bytes, _, true) => inputs!("tdpbssd", "tmm3", "tmm4", x, stride),
                (Factors::Bytes, 0, false) => inputs!("tdpbssd", "tmm0", "tmm5", x, stride),
                (Factors::Bytes, 1, false) => inputs!("tdpbssd", "tmm1", "tmm5", x, stride),
                (Factors::Bytes, 2, false) => inputs!("tdpbssd", "tmm2", "tmm5", x, stride),
                (Factors::Bytes, _, false) => inputs!("tdpbssd", "tmm3", "tmm5", x, stride),
            }
        }
    }

    /// Writes sums `sum`, one row per row of activations. Other rows of `to` keep their values.
    #[inline(always)]
    pub(crate) fn store<T: Number>(&self, sum: usize, to: &mut [[T; WORDS]; ROWS]) {
        let to = ptr::from_mut(to);
        // SAFETY: as above; the tile has at most sixteen rows of sixteen numbers.
        unsafe {
            match sum {
                0 => store!("tmm0", to),
                1 => store!("tmm1", to),
                2 => store!("tmm2", to),
                _ => store!("tmm3", to),
            }
        }
    }
}

/// Number type of the sums.
pub(crate) trait Number: Copy {}

impl Number for f32 {}
impl Number for i32 {}
