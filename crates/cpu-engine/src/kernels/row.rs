//! Rows of panels: one or two inputs of sixteen neighbouring output columns in each storage of
//! floating-point numbers, and the scales of integers.

use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use lm::saturated_half;

use super::simd::{PANEL, Simd};

/// One input of sixteen neighbouring output columns in f32: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct F32Row(pub(crate) [f32; PANEL]);

/// Sixteen numbers of a panel, in any storage.
pub(crate) trait PanelRow: Copy + Default + Send + Sync {
    /// A stored number.
    type Number: Copy + Default;

    /// One column as it is stored.
    fn column(&mut self, column: usize) -> &mut Self::Number;

    /// Sets one column, rounded if necessary.
    fn put(&mut self, column: usize, value: f32);

    /// Converts many numbers, as [`put`](Self::put) does one: together they take fewer instructions.
    fn store(values: &[f32], to: &mut [Self::Number]);

    /// All columns, as f32.
    fn load<S: Simd>(&self, simd: S) -> S::P;
}

impl PanelRow for F32Row {
    type Number = f32;

    fn column(&mut self, column: usize) -> &mut f32 {
        &mut self.0[column]
    }

    fn put(&mut self, column: usize, value: f32) {
        self.0[column] = value;
    }

    fn store(values: &[f32], to: &mut [f32]) {
        to.copy_from_slice(values);
    }

    #[inline(always)]
    fn load<S: Simd>(&self, simd: S) -> S::P {
        simd.load_panel(&self.0)
    }
}

/// One input of sixteen neighbouring output columns in half precision.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct F16Row([u16; PANEL]);

impl PanelRow for F16Row {
    type Number = u16;

    fn column(&mut self, column: usize) -> &mut u16 {
        &mut self.0[column]
    }

    /// Numbers beyond the range of f16 become its largest number.
    fn put(&mut self, column: usize, value: f32) {
        self.0[column] = saturated_half(value).to_bits();
    }

    fn store(values: &[f32], to: &mut [u16]) {
        let most = f16::MAX.to_f32_const();
        let mut within = [0.0; PANEL];
        let parts = values.chunks(PANEL).zip(to.chunks_mut(PANEL));
        for (values, to) in parts {
            let within = &mut within[..values.len()];
            for (to, value) in within.iter_mut().zip(values) {
                *to = value.clamp(-most, most);
            }
            to.reinterpret_cast_mut::<f16>()
                .convert_from_f32_slice(within);
        }
    }

    #[inline(always)]
    fn load<S: Simd>(&self, simd: S) -> S::P {
        simd.widen_halves(&self.0)
    }
}

/// Two inputs of sixteen columns, the first in the high half of each word.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct PairRow(pub(crate) [u32; PANEL]);

impl PairRow {
    /// Stores the weight of one column and input (0 or 1), rounded to nearest even.
    pub(crate) fn set(&mut self, column: usize, input: usize, weight: f32) {
        let bits = u32::from(half::bf16::from_f32(weight).to_bits());
        let shift = 16 - 16 * input;
        let word = &mut self.0[column];
        *word = *word & !(0xffff << shift) | bits << shift;
    }
}

/// Scales of one group of sixteen columns, as multiples of their columns' units.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct ScaleRow(pub(crate) [i8; PANEL]);

impl ScaleRow {
    /// The scales as f32, given the units.
    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, simd: S, units: S::P) -> S::P {
        simd.mul_panel(simd.expand_bytes(&self.0), units)
    }
}
