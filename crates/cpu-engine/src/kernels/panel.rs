//! Weights packed for the matrix kernel.
#![expect(unsafe_code, reason = "states which rows may be made of zero bytes")]

use lm::WeightType;

use crate::arena::{Arena, Buffer, Zeroed};

use super::compact::{CompactPanels, Granule};
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

/// The scales of one group of sixteen columns, in units of their columns.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C, align(16))]
pub(crate) struct ScaleRow(pub(crate) [i8; PANEL]);

impl ScaleRow {
    /// The scales, given the units.
    #[inline(always)]
    pub(crate) fn load<S: Simd>(&self, simd: S, units: S::P) -> S::P {
        simd.mul_panel(simd.expand_bytes(&self.0), units)
    }
}

// SAFETY: arrays of numbers, no padding.
unsafe impl Zeroed for F32Row {}
// SAFETY: as above.
unsafe impl Zeroed for Granule {}
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
    /// f32 weights that bf16 holds exactly.
    CompactF32(CompactPanels),
    CompactBf16(CompactPanels),
    Int8(IntPanels<Int8Row>),
    Int4(IntPanels<Int4Row>),
}

/// Integer weights and the scales of their groups.
pub(crate) struct IntPanels<R> {
    pub(crate) rows: Buffer<R>,
    /// `[panels][groups]`, sixteen columns each.
    pub(crate) scales: Buffer<ScaleRow>,
    /// What the scales of a column are multiples of, `[panels]`.
    pub(crate) units: Buffer<F32Row>,
}

/// Weights, row-major `[outputs, inputs]`, and where in a matrix they go.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) weights: &'a [f32],
    /// The first panel.
    pub(crate) first: usize,
    /// Panels from one to the next.
    pub(crate) step: usize,
}

impl<'a> Part<'a> {
    /// Every panel and the rows of weights that are its columns.
    fn panels(&self, inputs: usize) -> impl Iterator<Item = (usize, &'a [f32])> {
        let panels = (self.first..).step_by(self.step);
        panels.zip(self.weights.chunks(PANEL * inputs))
    }
}

/// A projection `[outputs, inputs]` as panels `[outputs / 16][inputs][16]`, so that the kernel
/// reads memory in order, broadcasts inputs and never sums across columns. Columns beyond `outputs`
/// in the last panel are zero.
pub(crate) struct PackedMatrix {
    inputs: usize,
    panels: usize,
    weights: WeightType,
    /// Whether weights that can be compact are to be.
    compact: bool,
    data: PanelData,
}

/// Whether [`CompactPanels`] are made of weights of this type.
fn can_be_compact(weights: WeightType) -> bool {
    matches!(weights, WeightType::F32 | WeightType::Bf16)
}

/// Whether bf16 holds every one of `weights` exactly.
pub(crate) fn are_bf16(weights: &[f32]) -> bool {
    // A block at a time, so that the compiler vectorises it and one weight can end it.
    let mut blocks = weights.chunks(1024);
    blocks.all(|block| block.iter().fold(0, |bits, w| bits | w.to_bits()) & 0xffff == 0)
}

impl PanelData {
    fn plain(arena: &mut Arena, inputs: usize, panels: usize, weights: WeightType) -> Self {
        match weights {
            WeightType::F32 => Self::F32(arena.take(inputs * panels)),
            WeightType::Bf16 => Self::Bf16(arena.take(pairs::pairs(inputs) * panels)),
            WeightType::Int8 => Self::Int8(IntPanels::zeros(arena, inputs, panels)),
            WeightType::Int4 => Self::Int4(IntPanels::zeros(arena, inputs, panels)),
        }
    }

    fn compact(arena: &mut Arena, inputs: usize, panels: usize, weights: WeightType) -> Self {
        let compact = CompactPanels::new(arena, inputs, panels);
        match weights {
            WeightType::F32 => Self::CompactF32(compact),
            _ => Self::CompactBf16(compact),
        }
    }
}

impl PackedMatrix {
    /// Room in `arena` for `panels` panels of `inputs` rows, to be packed before it is multiplied.
    /// With `compact`, bf16 weights, and f32 weights that bf16 holds, are kept compact where that
    /// takes fewer bytes.
    pub(crate) fn new(
        arena: &mut Arena,
        inputs: usize,
        panels: usize,
        weights: WeightType,
        compact: bool,
    ) -> Self {
        let compact = compact && can_be_compact(weights);
        let data = if compact {
            PanelData::compact(arena, inputs, panels, weights)
        } else {
            PanelData::plain(arena, inputs, panels, weights)
        };
        Self {
            inputs,
            panels,
            weights,
            compact,
            data,
        }
    }

    /// Bytes of the arena that [`Self::new`] takes.
    pub(crate) fn room(inputs: usize, panels: usize, weights: WeightType, compact: bool) -> usize {
        if compact && can_be_compact(weights) {
            return CompactPanels::room(inputs, panels);
        }
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

    /// Whether the weights are compact.
    pub(crate) fn is_compact(&self) -> bool {
        use PanelData::{CompactBf16, CompactF32};
        matches!(self.data, CompactF32(_) | CompactBf16(_))
    }

    /// Bytes of the packed weights.
    pub(crate) fn bytes(&self) -> usize {
        match &self.data {
            PanelData::F32(rows) => size_of_val::<[_]>(rows),
            PanelData::Bf16(rows) => size_of_val::<[_]>(rows),
            PanelData::CompactF32(panels) | PanelData::CompactBf16(panels) => panels.bytes(),
            PanelData::Int8(panels) => panels.bytes(),
            PanelData::Int4(panels) => panels.bytes(),
        }
    }

    /// Packs all weights anew.
    pub(crate) fn pack(&mut self, parts: &[Part<'_>]) {
        if self.compact {
            if self.are_exact(parts) && self.pack_compact(parts, CompactPanels::pays) {
                return;
            }
            let (inputs, panels, weights) = (self.inputs, self.panels, self.weights);
            if self.is_compact() {
                let arena = &mut Arena::new(Self::room(inputs, panels, weights, false));
                self.data = PanelData::plain(arena, inputs, panels, weights);
            }
        }
        for part in parts {
            self.pack_plain(part);
        }
    }

    /// Whether 16 bits a weight are enough.
    fn are_exact(&self, parts: &[Part<'_>]) -> bool {
        self.weights == WeightType::Bf16 || parts.iter().all(|part| are_bf16(part.weights))
    }

    /// Packs all weights compactly; false as soon as `go_on` is.
    fn pack_compact(&mut self, parts: &[Part<'_>], go_on: impl Fn(&CompactPanels) -> bool) -> bool {
        let (inputs, panels) = (self.inputs, self.panels);
        if !self.is_compact() {
            // The weights before these were kept plain.
            let arena = &mut Arena::new(CompactPanels::room(inputs, panels));
            self.data = PanelData::compact(arena, inputs, panels, self.weights);
        }
        let (PanelData::CompactF32(compact) | PanelData::CompactBf16(compact)) = &mut self.data
        else {
            return false;
        };
        compact.clear();
        let mut scratch = Vec::new();
        for part in parts {
            for (panel, columns) in part.panels(inputs) {
                compact.pack(columns, inputs, panel, &mut scratch);
                if !go_on(compact) {
                    return false;
                }
            }
        }
        true
    }

    /// A compact matrix even of weights that would be smaller plain.
    #[cfg(test)]
    pub(crate) fn compact_at_any_cost(
        inputs: usize,
        panels: usize,
        weights: WeightType,
        parts: &[Part<'_>],
    ) -> Self {
        let arena = &mut Arena::new(0);
        let mut matrix = Self::new(arena, inputs, panels, weights, true);
        matrix.pack_compact(parts, |_| true);
        matrix
    }

    fn pack_plain(&mut self, part: &Part<'_>) {
        let inputs = self.inputs;
        match &mut self.data {
            PanelData::F32(rows) => pack_f32(rows, inputs, part),
            PanelData::Bf16(rows) => {
                let len = pairs::pairs(inputs);
                for (panel, columns) in part.panels(inputs) {
                    pairs::pack_panel(columns, inputs, &mut rows[panel * len..][..len]);
                }
            }
            PanelData::CompactF32(_) | PanelData::CompactBf16(_) => {}
            PanelData::Int8(panels) => panels.pack(inputs, part),
            PanelData::Int4(panels) => panels.pack(inputs, part),
        }
    }
}

impl<R: IntRow + Zeroed> IntPanels<R> {
    fn zeros(arena: &mut Arena, inputs: usize, panels: usize) -> Self {
        Self {
            rows: arena.take(panels * panel_rows::<R>(inputs)),
            scales: arena.take(panels * groups::<R>(inputs)),
            units: arena.take(panels),
        }
    }

    fn room(inputs: usize, panels: usize) -> usize {
        Arena::bytes_of::<R>(panels * panel_rows::<R>(inputs))
            + Arena::bytes_of::<ScaleRow>(panels * groups::<R>(inputs))
            + Arena::bytes_of::<F32Row>(panels)
    }

    fn bytes(&self) -> usize {
        size_of_val::<[_]>(&self.rows)
            + size_of_val::<[_]>(&self.scales)
            + size_of_val::<[_]>(&self.units)
    }

    fn pack(&mut self, inputs: usize, part: &Part<'_>) {
        let (len, groups) = (panel_rows::<R>(inputs), groups::<R>(inputs));
        for (panel, columns) in part.panels(inputs) {
            let rows = &mut self.rows[panel * len..][..len];
            let scales = &mut self.scales[panel * groups..][..groups];
            pack_panel(columns, inputs, rows, scales, &mut self.units[panel]);
        }
    }
}

fn pack_f32(rows: &mut [F32Row], inputs: usize, part: &Part<'_>) {
    for (panel, columns) in part.panels(inputs) {
        for (k, row) in rows[panel * inputs..][..inputs].iter_mut().enumerate() {
            for (column, weights) in columns.chunks_exact(inputs).enumerate() {
                row.set(column, weights[k]);
            }
        }
    }
}
