//! Weights packed for the matrix kernel.
#![expect(unsafe_code, reason = "states which rows may be made of zero bytes")]

use lm::{LmError, WeightType};

use crate::arena::{Arena, Buffer, Zeroed};
use crate::packing::{Part, for_each_panel};
use crate::pool::Pool;

use super::compact::CompactPanels;
use super::pairs;
use super::quant::{Int4Row, Int8Row, IntRow, groups, pack_panel, panel_rows};
use super::row::{F16Row, F32Row, PairRow, PanelRow, ScaleRow};
use super::simd::Granule;

// SAFETY: arrays of numbers, no padding.
unsafe impl Zeroed for F32Row {}
// SAFETY: as above.
unsafe impl Zeroed for F16Row {}
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
    F16(Buffer<F16Row>),
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
    /// Scales, `[panels][groups]`, sixteen columns each.
    pub(crate) scales: Buffer<ScaleRow>,
    /// Units of the scales of each column, `[panels]`.
    pub(crate) units: Buffer<F32Row>,
}

/// A projection `[outputs, inputs]` as panels `[outputs / 16, rounded up][inputs][16]`, so that the
/// kernel reads memory in order, broadcasts inputs and never sums across columns. Columns beyond
/// `outputs` in the last panel are zero.
pub(crate) struct PackedMatrix {
    pub(crate) inputs: usize,
    pub(crate) panels: usize,
    weights: WeightType,
    /// True if weights that can be compact should be.
    compact: bool,
    pub(crate) data: PanelData,
}

/// True if weights of this type can be compact.
pub(crate) fn can_be_compact(weights: WeightType) -> bool {
    matches!(weights, WeightType::F32 | WeightType::Bf16)
}

impl PanelData {
    fn plain(arena: &mut Arena, inputs: usize, panels: usize, weights: WeightType) -> Self {
        match weights {
            WeightType::F32 => Self::F32(arena.take(inputs * panels)),
            WeightType::F16 => Self::F16(arena.take(inputs * panels)),
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
    /// Allocates a matrix of `panels` panels of `inputs` rows in `arena`. It must be packed before
    /// it is multiplied. With `compact`, bf16 weights, and f32 weights that bf16 holds exactly, are
    /// stored compactly if that takes fewer bytes.
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

    /// Number of bytes of the arena that [`Self::new`] takes.
    pub(crate) fn room(inputs: usize, panels: usize, weights: WeightType, compact: bool) -> usize {
        if compact && can_be_compact(weights) {
            return CompactPanels::room(inputs, panels);
        }
        match weights {
            WeightType::F32 => Arena::bytes_of::<F32Row>(inputs * panels),
            WeightType::F16 => Arena::bytes_of::<F16Row>(inputs * panels),
            WeightType::Bf16 => Arena::bytes_of::<PairRow>(pairs::pairs(inputs) * panels),
            WeightType::Int8 => IntPanels::<Int8Row>::room(inputs, panels),
            WeightType::Int4 => IntPanels::<Int4Row>::room(inputs, panels),
        }
    }

    /// True if the weights are compact.
    pub(crate) fn is_compact(&self) -> bool {
        use PanelData::{CompactBf16, CompactF32};
        matches!(self.data, CompactF32(_) | CompactBf16(_))
    }

    /// Size of the packed weights in bytes.
    pub(crate) fn bytes(&self) -> usize {
        match &self.data {
            PanelData::F32(rows) => size_of_val::<[_]>(rows),
            PanelData::F16(rows) => size_of_val::<[_]>(rows),
            PanelData::Bf16(rows) => size_of_val::<[_]>(rows),
            PanelData::CompactF32(panels) | PanelData::CompactBf16(panels) => panels.bytes(),
            PanelData::Int8(panels) => panels.bytes(),
            PanelData::Int4(panels) => panels.bytes(),
        }
    }

    /// Packs all weights anew, on all threads. After an error of the source the matrix must not be
    /// used.
    pub(crate) fn pack(&mut self, parts: &[Part<'_>], pool: &Pool) -> Result<(), LmError> {
        if self.compact {
            if self.are_exact(parts, pool)?
                && self.pack_compact(parts, pool, CompactPanels::most_escapes)?
            {
                return Ok(());
            }
            let (inputs, panels, weights) = (self.inputs, self.panels, self.weights);
            if self.is_compact() {
                let arena = &mut Arena::new(Self::room(inputs, panels, weights, false));
                self.data = PanelData::plain(arena, inputs, panels, weights);
            }
        }
        self.pack_plain(parts, pool)
    }

    /// True if 16 bits per weight hold all weights exactly.
    fn are_exact(&self, parts: &[Part<'_>], pool: &Pool) -> Result<bool, LmError> {
        if self.weights == WeightType::Bf16 {
            return Ok(true);
        }
        for part in parts {
            if !part.are_bf16(self.inputs, pool)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Packs all weights compactly. Returns false if that takes more escapes than allowed.
    fn pack_compact(
        &mut self,
        parts: &[Part<'_>],
        pool: &Pool,
        most: impl Fn(&CompactPanels) -> usize,
    ) -> Result<bool, LmError> {
        let (inputs, panels) = (self.inputs, self.panels);
        if !self.is_compact() {
            // The previous weights were stored plainly.
            let arena = &mut Arena::new(CompactPanels::room(inputs, panels));
            self.data = PanelData::compact(arena, inputs, panels, self.weights);
        }
        let (PanelData::CompactF32(compact) | PanelData::CompactBf16(compact)) = &mut self.data
        else {
            return Ok(false);
        };
        let most = most(compact);
        compact.pack(parts, inputs, pool, most)
    }

    /// A compact matrix, even of weights that would be smaller in plain storage.
    #[cfg(test)]
    pub(crate) fn compact_at_any_cost(
        inputs: usize,
        panels: usize,
        weights: WeightType,
        parts: &[Part<'_>],
        pool: &Pool,
    ) -> Self {
        let arena = &mut Arena::new(0);
        let mut matrix = Self::new(arena, inputs, panels, weights, true);
        assert!(matrix.pack_compact(parts, pool, |_| usize::MAX).unwrap());
        matrix
    }

    fn pack_plain(&mut self, parts: &[Part<'_>], pool: &Pool) -> Result<(), LmError> {
        let inputs = self.inputs;
        match &mut self.data {
            PanelData::F32(rows) => {
                let slots = rows.chunks_mut(inputs.max(1));
                for_each_panel(parts, inputs, slots, pool, |rows, columns, _| {
                    pack_rows(columns, inputs, rows);
                    true
                })
            }
            PanelData::F16(rows) => {
                let slots = rows.chunks_mut(inputs.max(1));
                for_each_panel(parts, inputs, slots, pool, |rows, columns, _| {
                    pack_rows(columns, inputs, rows);
                    true
                })
            }
            PanelData::Bf16(rows) => {
                let slots = rows.chunks_mut(pairs::pairs(inputs).max(1));
                for_each_panel(parts, inputs, slots, pool, |rows, columns, _| {
                    pairs::pack_panel(columns, inputs, rows);
                    true
                })
            }
            PanelData::CompactF32(_) | PanelData::CompactBf16(_) => Ok(()),
            PanelData::Int8(panels) => panels.pack(inputs, parts, pool),
            PanelData::Int4(panels) => panels.pack(inputs, parts, pool),
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

    fn pack(&mut self, inputs: usize, parts: &[Part<'_>], pool: &Pool) -> Result<(), LmError> {
        let rows = self.rows.chunks_mut(panel_rows::<R>(inputs).max(1));
        let scales = self.scales.chunks_mut(groups::<R>(inputs).max(1));
        let slots = rows.zip(scales).zip(self.units.iter_mut());
        for_each_panel(
            parts,
            inputs,
            slots,
            pool,
            |((rows, scales), unit), columns, _| {
                pack_panel(columns, inputs, rows, scales, unit);
                true
            },
        )
    }
}

fn pack_rows<R: PanelRow>(columns: &[f32], inputs: usize, rows: &mut [R]) {
    for (k, row) in rows.iter_mut().enumerate() {
        for (column, weights) in columns.chunks_exact(inputs).enumerate() {
            row.put(column, weights[k]);
        }
    }
}
