//! Rotary position embeddings in the Hugging Face convention: a rotated pair is a dimension of the
//! first half of a head's rotated dimensions and the same one of the second half, not two
//! neighbours.

use crate::{LmConfig, Rope};

/// Cosines and sines of positions, times the attention factor of the rotation.
///
/// The rotations panic for a position outside the table and for a head narrower than the rotated
/// dimensions, which are faults of the caller.
#[derive(Clone, Debug)]
pub struct RotaryTable {
    half: usize,
    /// Cosines, `[positions][half]`; the sines have the same shape.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RotaryTable {
    /// A table of the first `positions` of a context of `max_len`, computed in f64 and rounded
    /// once.
    pub fn of_positions(rope: &Rope, max_len: usize, positions: usize) -> Self {
        let frequencies = rope.frequencies(max_len);
        let factor = rope.attention_factor();
        let angles = (0..positions).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let (cos, sin) = angles
            .map(|a| ((a.cos() * factor) as f32, (a.sin() * factor) as f32))
            .unzip();
        Self {
            half: rope.dims / 2,
            cos,
            sin,
        }
    }

    /// Cosines, `[positions][dims / 2]`, for engines that rotate by themselves.
    pub fn cos(&self) -> &[f32] {
        &self.cos
    }

    /// Sines, in the form of [`cos`](Self::cos).
    pub fn sin(&self) -> &[f32] {
        &self.sin
    }

    /// Writes `head`, rotated for `position`, to `to`.
    pub fn rotate(&self, position: usize, head: &[f32], to: &mut [f32]) {
        to.copy_from_slice(head);
        self.rotate_in_place(position, to);
    }

    /// Rotates `head` for `position`.
    pub fn rotate_in_place(&self, position: usize, head: &mut [f32]) {
        let (cos, sin) = self.at(position);
        let (first, second) = head[..2 * self.half].split_at_mut(self.half);
        for i in 0..self.half {
            let (a, b) = (first[i], second[i]);
            first[i] = a * cos[i] - b * sin[i];
            second[i] = b * cos[i] + a * sin[i];
        }
    }

    /// The transpose of [`rotate_in_place`](Self::rotate_in_place), which is its inverse if the
    /// rotation has no attention factor.
    pub fn rotate_back(&self, position: usize, head: &mut [f32]) {
        let (cos, sin) = self.at(position);
        let (first, second) = head[..2 * self.half].split_at_mut(self.half);
        for i in 0..self.half {
            let (a, b) = (first[i], second[i]);
            first[i] = a * cos[i] + b * sin[i];
            second[i] = b * cos[i] - a * sin[i];
        }
    }

    fn at(&self, position: usize) -> (&[f32], &[f32]) {
        let at = position * self.half;
        (&self.cos[at..at + self.half], &self.sin[at..at + self.half])
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.cos.as_slice()) + size_of_val(self.sin.as_slice())
    }
}

/// The tables of a model: one for the global rotation, and a second one if some layers have a local
/// rotation.
#[derive(Clone, Debug)]
pub struct RotaryTables {
    global: RotaryTable,
    local: Option<RotaryTable>,
}

impl RotaryTables {
    /// The tables of the first `positions` of a context of `max_len`.
    pub fn of_positions(config: &LmConfig, max_len: usize, positions: usize) -> Self {
        let table = |rope: &Rope| RotaryTable::of_positions(rope, max_len, positions);
        Self {
            global: table(&config.rope),
            local: config.local_rope.as_ref().map(table),
        }
    }

    /// The table of a layer; `None` if the layer is not rotated.
    pub fn of(&self, config: &LmConfig, layer: usize) -> Option<&RotaryTable> {
        match config.layer(layer).rotary {
            crate::Rotary::None => None,
            crate::Rotary::Global => Some(&self.global),
            crate::Rotary::Local => self.local.as_ref(),
        }
    }

    /// Size in bytes.
    pub fn bytes(&self) -> usize {
        self.global.bytes() + self.local.as_ref().map_or(0, RotaryTable::bytes)
    }
}
