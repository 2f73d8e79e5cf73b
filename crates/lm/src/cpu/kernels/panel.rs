//! Weights packed for the matrix kernel.
#![expect(unsafe_code, reason = "states which rows may be made of zero bytes")]

use crate::cpu::WeightType;
use crate::cpu::arena::{Arena, Buffer, Zeroed};

use super::pairs::{self, PairRow};
use super::quant::{Int4Row, Int8Row, IntRow, groups, pack_panel, panel_rows};
use super::simd::{PANEL, Simd};

/// One input of sixteen neighbouring output columns in f32: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct F32Row(pub(crate) [f32; PANEL]);

impl F32Row {
    /// Sets one column.
    pub(crate) fn set(&mut self, column: usize, value: f32) {
        self.0[column] = value;
    }

    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, simd: S) -> S::P {
        simd.load_panel(&self.0)
    }
}

/// The scales of sixteen columns in bf16.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct ScaleRow([u16; PANEL]);

impl ScaleRow {
    /// Rounds to nearest even.
    pub(crate) fn pack(scales: &[f32; PANEL]) -> Self {
        Self(scales.map(|scale| half::bf16::from_f32(scale).to_bits()))
    }

    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, simd: S) -> S::P {
        simd.expand_bf16(&self.0)
    }
}

// SAFETY: arrays of numbers, no padding.
unsafe impl Zeroed for F32Row {}
// SAFETY: as above.
unsafe impl Zeroed for PairRow {}
// SAFETY: as above.
unsafe impl Zeroed for ScaleRow {}
// SAFETY: as above.
unsafe impl Zeroed for Int8Row {}
// SAFETY: as above.
unsafe impl Zeroed for Int4Row {}

/// Storage of a [`PackedMatrix`], panel after panel.
pub(crate) enum PanelData {
    F32(Buffer<F32Row>),
    Bf16(Buffer<PairRow>),
    Int8(IntPanels<Int8Row>),
    Int4(IntPanels<Int4Row>),
}

/// Integer weights and the scales of their groups.
pub(crate) struct IntPanels<R> {
    pub(crate) rows: Buffer<R>,
    /// `[panels][groups]`, sixteen columns each.
    pub(crate) scales: Buffer<ScaleRow>,
}

/// A projection `[outputs, inputs]` as panels `[outputs / 16][inputs][16]`, so that the kernel
/// reads memory in order, broadcasts inputs and never sums across columns. Columns beyond `outputs`
/// in the last panel are zero.
pub(crate) struct PackedMatrix {
    inputs: usize,
    panels: usize,
    data: PanelData,
}

impl PackedMatrix {
    /// Room in `arena` for `panels` panels of `inputs` rows, all zero.
    pub(crate) fn zeros(
        arena: &mut Arena,
        inputs: usize,
        panels: usize,
        weights: WeightType,
    ) -> Self {
        let data = match weights {
            WeightType::F32 => PanelData::F32(arena.take(inputs * panels)),
            WeightType::Bf16 => PanelData::Bf16(arena.take(pairs::pairs(inputs) * panels)),
            WeightType::Int8 => PanelData::Int8(IntPanels::zeros(arena, inputs, panels)),
            WeightType::Int4 => PanelData::Int4(IntPanels::zeros(arena, inputs, panels)),
        };
        Self {
            inputs,
            panels,
            data,
        }
    }

    /// Bytes of the arena that [`Self::zeros`] takes.
    pub(crate) fn room(inputs: usize, panels: usize, weights: WeightType) -> usize {
        match weights {
            WeightType::F32 => Arena::bytes_of::<F32Row>(inputs * panels),
            WeightType::Bf16 => Arena::bytes_of::<PairRow>(pairs::pairs(inputs) * panels),
            WeightType::Int8 => IntPanels::<Int8Row>::room(inputs, panels),
            WeightType::Int4 => IntPanels::<Int4Row>::room(inputs, panels),
        }
    }

    /// Input dimensions.
    pub(crate) fn inputs(&self) -> usize {
        self.inputs
    }

    /// Number of panels.
    pub(crate) fn panels(&self) -> usize {
        self.panels
    }

    /// Storage, panel after panel.
    pub(crate) fn data(&self) -> &PanelData {
        &self.data
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        match &self.data {
            PanelData::F32(rows) => size_of_val::<[_]>(rows),
            PanelData::Bf16(rows) => size_of_val::<[_]>(rows),
            PanelData::Int8(panels) => panels.bytes(),
            PanelData::Int4(panels) => panels.bytes(),
        }
    }

    /// Packs `weights`, row-major `[outputs, inputs]`, into panels `first`, `first + step`, ...
    pub(crate) fn pack(&mut self, weights: &[f32], first: usize, step: usize) {
        let inputs = self.inputs;
        match &mut self.data {
            PanelData::F32(rows) => pack_f32(rows, inputs, weights, first, step),
            PanelData::Bf16(rows) => {
                let panels = rows.chunks_exact_mut(pairs::pairs(inputs));
                let panels = panels.skip(first).step_by(step);
                for (panel, columns) in panels.zip(weights.chunks(PANEL * inputs)) {
                    pairs::pack_panel(columns, inputs, panel);
                }
            }
            PanelData::Int8(panels) => panels.pack(inputs, weights, first, step),
            PanelData::Int4(panels) => panels.pack(inputs, weights, first, step),
        }
    }
}

impl<R: IntRow + Zeroed> IntPanels<R> {
    fn zeros(arena: &mut Arena, inputs: usize, panels: usize) -> Self {
        Self {
            rows: arena.take(panels * panel_rows::<R>(inputs)),
            scales: arena.take(panels * groups::<R>(inputs)),
        }
    }

    fn room(inputs: usize, panels: usize) -> usize {
        Arena::bytes_of::<R>(panels * panel_rows::<R>(inputs))
            + Arena::bytes_of::<ScaleRow>(panels * groups::<R>(inputs))
    }

    fn bytes(&self) -> usize {
        size_of_val::<[_]>(&self.rows) + size_of_val::<[_]>(&self.scales)
    }

    fn pack(&mut self, inputs: usize, weights: &[f32], first: usize, step: usize) {
        let rows = self.rows.chunks_exact_mut(panel_rows::<R>(inputs));
        let scales = self.scales.chunks_exact_mut(groups::<R>(inputs));
        let panels = rows.zip(scales).skip(first).step_by(step);
        for ((rows, scales), columns) in panels.zip(weights.chunks(PANEL * inputs)) {
            pack_panel(columns, inputs, rows, scales);
        }
    }
}

fn pack_f32(rows: &mut [F32Row], inputs: usize, weights: &[f32], first: usize, step: usize) {
    let panels = rows.chunks_exact_mut(inputs).skip(first).step_by(step);
    for (panel, columns) in panels.zip(weights.chunks(PANEL * inputs)) {
        for (k, row) in panel.iter_mut().enumerate() {
            for (column, weights) in columns.chunks_exact(inputs).enumerate() {
                row.set(column, weights[k]);
            }
        }
    }
}
