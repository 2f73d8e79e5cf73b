//! Matrices in the layout of the kernels: rows of outputs, inputs in pieces of 128 bits.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use cpu_engine::IntWeights;
use half::bf16;
use lm::{LmError, RowBuffer, TensorSource, WeightType, saturated_half};

use crate::device::lock;
use crate::kernels::project::Format;

/// Number of words of a piece.
const WORDS: usize = 4;
/// Number of weights that a thread reads at a time.
const AT_ONCE: usize = 1 << 20;

impl From<WeightType> for Format {
    fn from(weights: WeightType) -> Self {
        match weights {
            WeightType::F32 => Self::F32,
            WeightType::F16 => Self::F16,
            WeightType::Bf16 => Self::Bf16,
            WeightType::Int8 => Self::Int8,
            WeightType::Int4 => Self::Int4,
        }
    }
}

/// Size of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) outputs: usize,
    pub(crate) inputs: usize,
    pub(crate) format: Format,
}

impl Shape {
    /// Number of loads of an output.
    pub(crate) fn pieces(&self) -> usize {
        self.inputs.div_ceil(self.format.piece())
    }

    pub(crate) fn words(&self) -> usize {
        self.outputs * self.pieces() * WORDS
    }

    /// Number of words of the scales of an output.
    fn scale_words(&self) -> usize {
        match self.format.is_scaled() {
            true => self.pieces().div_ceil(4 * self.format.pieces_of_scale()),
            false => 0,
        }
    }

    pub(crate) fn scales(&self) -> usize {
        self.outputs * self.scale_words()
    }

    pub(crate) fn units(&self) -> usize {
        match self.format.is_scaled() {
            true => self.outputs,
            false => 0,
        }
    }

    /// Number of bytes that a forward reads.
    pub(crate) fn bytes(&self) -> usize {
        (self.words() + self.scales() + self.units()) * size_of::<u32>()
    }
}

/// A packed matrix in the memory of the host.
#[derive(Debug, PartialEq)]
pub(crate) struct Packed {
    pub(crate) words: Vec<u32>,
    /// Scales, four bytes per word.
    pub(crate) scales: Vec<u32>,
    pub(crate) units: Vec<f32>,
}

/// A tensor whose rows are outputs `first`, `first + step` and so on.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) rows: usize,
    pub(crate) first: usize,
    pub(crate) step: usize,
}

/// Destination of an output.
struct Row<'a> {
    words: &'a mut [u32],
    scales: &'a mut [u32],
    unit: Option<&'a mut f32>,
}

/// Rows of a part, and their destination.
struct Task<'a> {
    name: &'a str,
    rows: Range<usize>,
    to: Vec<Row<'a>>,
}

/// Packs the rows of `parts` on so many threads.
pub(crate) fn pack(
    source: &dyn TensorSource,
    parts: &[Part],
    shape: Shape,
    threads: usize,
) -> Result<Packed, LmError> {
    // Weights of zero, for padded inputs.
    let nothing = match shape.format {
        Format::Int8 => 0x8080_8080,
        Format::Int4 => 0x8888_8888,
        Format::F32 | Format::F16 | Format::Bf16 => 0,
    };
    let mut packed = Packed {
        words: vec![nothing; shape.words()],
        scales: vec![0; shape.scales()],
        units: vec![0.0; shape.units()],
    };
    let tasks = Mutex::new(tasks(parts, shape, &mut packed).into_iter());
    let failed = Mutex::new(None);
    let work = || {
        let (mut buffer, mut numbers) = (RowBuffer::default(), IntWeights::default());
        loop {
            let next = lock(&tasks).next();
            let Some(task) = next.filter(|_| lock(&failed).is_none()) else {
                break;
            };
            match source.rows(task.name, task.rows.clone(), &mut buffer) {
                Ok(weights) => {
                    for (weights, to) in weights.chunks_exact(shape.inputs).zip(task.to) {
                        fill(shape.format, weights, to, &mut numbers);
                    }
                }
                Err(error) => *lock(&failed) = Some(error),
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    drop(tasks);
    match failed {
        Some(error) => Err(error),
        None => Ok(packed),
    }
}

fn tasks<'a>(parts: &'a [Part], shape: Shape, packed: &'a mut Packed) -> Vec<Task<'a>> {
    let mut scales = packed.scales.chunks_mut(shape.scale_words().max(1));
    let mut units = packed.units.iter_mut();
    let mut rows: Vec<Option<Row<'a>>> = packed
        .words
        .chunks_mut(shape.pieces() * WORDS)
        .map(|words| {
            Some(Row {
                words,
                scales: scales.next().unwrap_or_default(),
                unit: units.next(),
            })
        })
        .collect();
    let at_once = (AT_ONCE / shape.inputs).max(1);
    let mut tasks = Vec::new();
    for part in parts {
        for start in (0..part.rows).step_by(at_once) {
            let of_part = start..part.rows.min(start + at_once);
            let to = of_part.clone().map(|row| part.first + row * part.step);
            tasks.push(Task {
                name: &part.name,
                rows: of_part,
                to: to.filter_map(|row| rows.get_mut(row)?.take()).collect(),
            });
        }
    }
    tasks
}

/// Packs one output.
fn fill(format: Format, weights: &[f32], to: Row<'_>, numbers: &mut IntWeights) {
    match format {
        Format::F32 => {
            for (word, weight) in to.words.iter_mut().zip(weights) {
                *word = weight.to_bits();
            }
        }
        Format::F16 | Format::Bf16 => fill_pairs(format, weights, to.words),
        Format::Int8 => {
            numbers.fill_int8(weights);
            for (i, level) in numbers.levels.iter().enumerate() {
                put(to.words, place_of(i, 8), 8, (level ^ i8::MIN) as u8);
            }
            fill_scales(numbers, to.scales, to.unit);
        }
        Format::Int4 => {
            numbers.fill_int4(weights);
            for (i, level) in numbers.levels.iter().enumerate() {
                put(to.words, place_of(i, 4), 4, (level + 8) as u8);
            }
            fill_scales(numbers, to.scales, to.unit);
        }
    }
}

/// Place of number `i` of an output whose numbers have so many bits: a word, and a shift in it. The
/// numbers of a piece are dealt to its four words, one each in turn, so that a kernel takes four
/// neighbours from the same bits of the words.
fn place_of(i: usize, bits: usize) -> (usize, usize) {
    let piece = WORDS * 32 / bits;
    (i / piece * WORDS + i % WORDS, i % piece / WORDS * bits)
}

/// Overwrites so many bits of a word at this place.
fn put(words: &mut [u32], (word, shift): (usize, usize), bits: usize, number: u8) {
    let mask = (1_u32 << bits) - 1;
    words[word] = (words[word] & !(mask << shift)) | (u32::from(number) & mask) << shift;
}

/// Rounds weights to f16 or bf16, two per word.
pub(crate) fn fill_pairs(format: Format, weights: &[f32], words: &mut [u32]) {
    let bits = |weight: Option<&f32>| {
        let weight = weight.copied().unwrap_or(0.0);
        u32::from(match format {
            Format::F16 => saturated_half(weight).to_bits(),
            _ => bf16::from_f32(weight).to_bits(),
        })
    };
    for (word, pair) in words.iter_mut().zip(weights.chunks(2)) {
        *word = bits(pair.first()) | bits(pair.get(1)) << 16;
    }
}

fn fill_scales(numbers: &IntWeights, scales: &mut [u32], unit: Option<&mut f32>) {
    for (i, scale) in numbers.scales.iter().enumerate() {
        put(scales, (i / 4, i % 4 * 8), 8, *scale as u8);
    }
    if let Some(unit) = unit {
        *unit = numbers.unit;
    }
}
