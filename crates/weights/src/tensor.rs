//! Description of a stored tensor, and the reading of its rows.

use std::ops::Range;

use crate::file::OpenFile;
use crate::{Encoding, WeightsError};

/// A tensor as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredTensor {
    /// Dimensions, outermost first.
    pub shape: Vec<usize>,
    /// Encoding of its values, or the name of a type that cannot be read.
    pub encoding: Result<Encoding, String>,
    /// Offset of the first value in the file, in bytes.
    pub(crate) offset: u64,
    /// Distance between neighbouring indices, in values, by dimension; `None` if the tensor is
    /// contiguous.
    pub(crate) strides: Option<Vec<usize>>,
}

/// Working memory of [`TensorFiles::rows`](crate::TensorFiles::rows), kept between calls.
#[derive(Clone, Debug, Default)]
pub struct RowBuffer {
    bytes: Vec<u8>,
    values: Vec<f32>,
}

/// Number of values of a shape; `None` if it exceeds the address space.
pub(crate) fn count(shape: &[usize]) -> Option<usize> {
    shape.iter().try_fold(1_usize, |all, n| all.checked_mul(*n))
}

impl StoredTensor {
    /// Number of rows, the entries of the outermost dimension. A scalar is one row.
    pub fn rows(&self) -> usize {
        self.shape.first().copied().unwrap_or(1)
    }

    /// Number of values of a row; 0 if it exceeds the address space, which only that of a tensor
    /// without rows, or of a type that is not read, can.
    pub fn width(&self) -> usize {
        count(self.shape.get(1..).unwrap_or_default()).unwrap_or(0)
    }

    /// Reads `rows`, which must exist. Values are returned row after row.
    pub(crate) fn read<'a>(
        &self,
        file: &OpenFile,
        encoding: Encoding,
        rows: Range<usize>,
        buffer: &'a mut RowBuffer,
    ) -> Result<&'a [f32], WeightsError> {
        let RowBuffer { bytes, values } = buffer;
        values.clear();
        match &self.strides {
            None => {
                let width = self.width();
                // The whole tensor has been checked: it is whole blocks and lies inside the file.
                let before = encoding.bytes(rows.start * width).unwrap_or(0);
                let len = encoding.bytes(rows.len() * width).unwrap_or(0);
                fill(file, self.offset + before as u64, len, bytes)?;
                encoding.decode(bytes, values);
            }
            Some(strides) => self.gather(file, encoding, strides, rows, (bytes, values))?,
        }
        Ok(values)
    }

    /// Reads rows of a strided view: row by row if the values of a row are contiguous, as in some
    /// columns of a wider matrix; otherwise, as in a transposed matrix, column by column, with one
    /// read for all rows.
    fn gather(
        &self,
        file: &OpenFile,
        encoding: Encoding,
        strides: &[usize],
        rows: Range<usize>,
        (bytes, values): (&mut Vec<u8>, &mut Vec<f32>),
    ) -> Result<(), WeightsError> {
        let size = encoding.block().bytes;
        let at = |value: usize| self.offset + (value * size) as u64;
        let (width, outer) = (self.width(), strides.first().copied().unwrap_or(1));
        if rows.is_empty() || width == 0 {
            return Ok(());
        }
        let inner = (
            &self.shape[1.min(self.shape.len())..],
            &strides[1.min(strides.len())..],
        );
        if dense(inner) {
            for row in rows {
                fill(file, at(row * outer), width * size, bytes)?;
                encoding.decode(bytes, values);
            }
            return Ok(());
        }
        // A column: `rows` values at distance `outer`, read with everything in between.
        values.resize(rows.len() * width, 0.0);
        let mut column = Vec::new();
        for index in 0..width {
            let start = rows.start * outer + place(index, inner);
            let span = (rows.len() - 1) * outer + 1;
            fill(file, at(start), span * size, bytes)?;
            column.clear();
            encoding.decode(bytes, &mut column);
            let column = column.iter().step_by(outer.max(1));
            let to = values.iter_mut().skip(index).step_by(width);
            to.zip(column).for_each(|(to, from)| *to = *from);
        }
        Ok(())
    }
}

/// True if the values are contiguous in index order.
pub(crate) fn dense((shape, strides): (&[usize], &[usize])) -> bool {
    let mut expected = 1;
    for (size, stride) in shape.iter().zip(strides).rev() {
        if *size != 1 && *stride != expected {
            return false;
        }
        expected = expected.saturating_mul(*size);
    }
    true
}

/// Offset, in values, of the value with this index in row-major order.
fn place(mut index: usize, (shape, strides): (&[usize], &[usize])) -> usize {
    let mut at = 0;
    for (size, stride) in shape.iter().zip(strides).rev() {
        at += index % size * stride;
        index /= size;
    }
    at
}

fn fill(file: &OpenFile, offset: u64, len: usize, bytes: &mut Vec<u8>) -> Result<(), WeightsError> {
    bytes.resize(len, 0);
    file.read_at(offset, bytes)
}
