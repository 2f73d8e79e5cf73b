//! Rotary position embeddings in the Hugging Face convention: the two halves of a head rotate
//! against each other (not neighbouring pairs).

use crate::LmConfig;

/// Cosines and sines of positions.
///
/// The rotations panic for a position outside the table and for a head of another width: a fault of
/// the caller.
#[derive(Clone, Debug)]
pub struct RotaryTable {
    half: usize,
    /// `[positions][half]` pairs of cosine and sine.
    cos: Vec<f32>,
    sin: Vec<f32>,
}

impl RotaryTable {
    /// Angles of positions `0..max_len`, computed in f64 and rounded once.
    pub fn new(config: &LmConfig, max_len: usize) -> Self {
        let frequencies = config.rope_frequencies();
        let angles = (0..max_len).flat_map(|p| frequencies.iter().map(move |f| p as f64 * f));
        let (cos, sin) = angles.map(|a| (a.cos() as f32, a.sin() as f32)).unzip();
        Self {
            half: config.head_dim / 2,
            cos,
            sin,
        }
    }

    /// Writes `head`, rotated for `position`, to `to`.
    pub fn rotate(&self, position: usize, head: &[f32], to: &mut [f32]) {
        let (cos, sin) = self.at(position);
        let (first, second) = head.split_at(self.half);
        let (to_first, to_second) = to.split_at_mut(self.half);
        for i in 0..self.half {
            to_first[i] = first[i] * cos[i] - second[i] * sin[i];
            to_second[i] = second[i] * cos[i] + first[i] * sin[i];
        }
    }

    /// Rotates `head` for `position`.
    pub fn rotate_in_place(&self, position: usize, head: &mut [f32]) {
        let (cos, sin) = self.at(position);
        let (first, second) = head.split_at_mut(self.half);
        for i in 0..self.half {
            let (a, b) = (first[i], second[i]);
            first[i] = a * cos[i] - b * sin[i];
            second[i] = b * cos[i] + a * sin[i];
        }
    }

    /// The inverse of [`rotate_in_place`](Self::rotate_in_place), which is also its transpose.
    pub fn rotate_back(&self, position: usize, head: &mut [f32]) {
        let (cos, sin) = self.at(position);
        let (first, second) = head.split_at_mut(self.half);
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

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        size_of_val(self.cos.as_slice()) + size_of_val(self.sin.as_slice())
    }
}
