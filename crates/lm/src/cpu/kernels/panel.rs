//! Weights packed for the matrix kernel.
#![expect(unsafe_code, reason = "states which rows may be made of zero bytes")]

use crate::cpu::WeightType;
use crate::cpu::arena::{Arena, Buffer, Zeroed};

use super::quant::{Int4Row, Int8Row, IntRow, groups, pack_panel, panel_rows};
use super::simd::{LANES, PANEL, Simd};

/// One input dimension of a panel: the weights of [`PANEL`] neighbouring output columns.
pub(crate) trait PanelRow: Copy + Default + Send + Sync {
    /// Packs sixteen weights, rounding to nearest even where storage is narrower.
    fn pack(weights: &[f32; PANEL]) -> Self;

    /// The weights as two f32 vectors, columns 0 to 7 and 8 to 15.
    fn expand<S: Simd>(&self, simd: S) -> (S::V, S::V);
}

/// Sixteen f32: one cache line.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(64))]
pub(crate) struct F32Row(pub(crate) [[f32; LANES]; 2]);

impl F32Row {
    /// Sets one column.
    pub(crate) fn set(&mut self, column: usize, value: f32) {
        self.0[column / LANES][column % LANES] = value;
    }
}

impl PanelRow for F32Row {
    fn pack(weights: &[f32; PANEL]) -> Self {
        let mut row = Self::default();
        for (column, weight) in weights.iter().enumerate() {
            row.set(column, *weight);
        }
        row
    }

    #[inline(always)]
    fn expand<S: Simd>(&self, simd: S) -> (S::V, S::V) {
        (simd.load(&self.0[0]), simd.load(&self.0[1]))
    }
}

/// Sixteen bf16: word `i` holds column `i` in its low half and column `i + 8` in its high half, so
/// that a shift and a mask expand both vectors in order.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(32))]
pub(crate) struct Bf16Row([u32; LANES]);

impl PanelRow for Bf16Row {
    fn pack(weights: &[f32; PANEL]) -> Self {
        let bits = |column: usize| u32::from(half::bf16::from_f32(weights[column]).to_bits());
        Self(std::array::from_fn(|i| bits(i) | bits(i + LANES) << 16))
    }

    #[inline(always)]
    fn expand<S: Simd>(&self, simd: S) -> (S::V, S::V) {
        simd.expand_bf16(&self.0)
    }
}

// SAFETY: arrays of numbers, no padding.
unsafe impl Zeroed for F32Row {}
// SAFETY: as above.
unsafe impl Zeroed for Bf16Row {}
// SAFETY: as above.
unsafe impl Zeroed for Int8Row {}
// SAFETY: as above.
unsafe impl Zeroed for Int4Row {}

/// Storage of a [`PackedMatrix`], panel after panel.
pub(crate) enum PanelData {
    F32(Buffer<F32Row>),
    Bf16(Buffer<Bf16Row>),
    Int8(IntPanels<Int8Row>),
    Int4(IntPanels<Int4Row>),
}

/// Integer weights and the scales of their groups.
pub(crate) struct IntPanels<R> {
    pub(crate) rows: Buffer<R>,
    /// `[panels][groups]`, sixteen columns each.
    pub(crate) scales: Buffer<Bf16Row>,
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
        let rows = inputs * panels;
        let data = match weights {
            WeightType::F32 => PanelData::F32(arena.take(rows)),
            WeightType::Bf16 => PanelData::Bf16(arena.take(rows)),
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
            WeightType::Bf16 => Arena::bytes_of::<Bf16Row>(inputs * panels),
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
            PanelData::F32(rows) => pack_into(rows, inputs, weights, first, step),
            PanelData::Bf16(rows) => pack_into(rows, inputs, weights, first, step),
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
            + Arena::bytes_of::<Bf16Row>(panels * groups::<R>(inputs))
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

fn pack_into<R: PanelRow>(
    rows: &mut [R],
    inputs: usize,
    weights: &[f32],
    first: usize,
    step: usize,
) {
    let panels = rows.chunks_exact_mut(inputs).skip(first).step_by(step);
    for (panel, columns) in panels.zip(weights.chunks(PANEL * inputs)) {
        for (k, row) in panel.iter_mut().enumerate() {
            let mut packed = [0.0; PANEL];
            for (slot, column) in packed.iter_mut().zip(columns.chunks_exact(inputs)) {
                *slot = column[k];
            }
            *row = R::pack(&packed);
        }
    }
}
