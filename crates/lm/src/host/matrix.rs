//! Matrix views with checked bounds for the matrix product of the `gemm` crate.
#![expect(
    unsafe_code,
    reason = "`gemm` takes raw pointers; `multiply` checks every reachable index first"
)]

use std::ops::Range;

use gemm::Parallelism;

/// A read-only matrix over a slice, with a stride between rows and one between columns.
#[derive(Clone, Copy, Debug)]
pub struct Mat<'a> {
    pub(super) data: &'a [f32],
    /// Number of rows.
    pub rows: usize,
    /// Number of columns.
    pub cols: usize,
    /// Distance from one row to the next, in elements. It or the distance between columns is 1.
    pub(super) row_stride: usize,
    pub(super) col_stride: usize,
}

impl<'a> Mat<'a> {
    /// A matrix whose rows follow each other.
    pub fn new(data: &'a [f32], rows: usize, cols: usize) -> Self {
        Self::strided(data, rows, cols, cols)
    }

    /// A matrix whose rows are `stride` elements apart.
    pub fn strided(data: &'a [f32], rows: usize, cols: usize, stride: usize) -> Self {
        Self {
            data,
            rows,
            cols,
            row_stride: stride,
            col_stride: 1,
        }
    }

    /// A range of columns.
    ///
    /// # Panics
    /// If the range exceeds the columns, which is a fault of the caller.
    pub fn columns(self, columns: Range<usize>) -> Self {
        assert!(columns.start <= columns.end && columns.end <= self.cols);
        let start = columns.start.saturating_mul(self.col_stride);
        let start = start.min(self.data.len());
        Self {
            data: &self.data[start..],
            cols: columns.len(),
            ..self
        }
    }

    /// The slice from the first to the last element of the view.
    pub(super) fn data(&self) -> &'a [f32] {
        let end = extent(self.rows, self.cols, self.row_stride, self.col_stride);
        &self.data[..end]
    }

    /// The same view of other numbers.
    pub(super) fn over<'b>(&self, data: &'b [f32]) -> Mat<'b> {
        Mat { data, ..*self }
    }

    /// The transposed view.
    pub fn t(self) -> Self {
        Self {
            rows: self.cols,
            cols: self.rows,
            row_stride: self.col_stride,
            col_stride: self.row_stride,
            ..self
        }
    }
}

/// Use of a product at its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// The product replaces the destination.
    Set,
    /// The product is added to the destination.
    Add,
}

/// A destination whose rows are `stride` elements apart.
#[derive(Debug)]
pub struct MatMut<'a> {
    /// Elements, from the first element of the first row on.
    pub data: &'a mut [f32],
    /// Elements from the start of a row to the start of the next.
    pub stride: usize,
}

impl<'a> MatMut<'a> {
    /// A destination whose rows of `cols` elements follow each other.
    pub fn new(data: &'a mut [f32], cols: usize) -> Self {
        Self { data, stride: cols }
    }
}

/// Index one past the last element of a view; beyond every slice if it overflows.
fn extent(rows: usize, cols: usize, row_stride: usize, col_stride: usize) -> usize {
    if rows == 0 || cols == 0 {
        return 0;
    }
    let last_row = (rows - 1).saturating_mul(row_stride);
    let last_col = (cols - 1).saturating_mul(col_stride);
    last_row.saturating_add(last_col).saturating_add(1)
}

/// `to = a b` or `to += a b`, `[a.rows, b.cols]`, on the calling thread. The bits do not depend
/// on the thread.
///
/// # Panics
/// If the shapes do not fit each other or their slices, which is a fault of the caller.
pub fn multiply(to: MatMut<'_>, store: Store, a: Mat<'_>, b: Mat<'_>) {
    assert_eq!(a.cols, b.rows, "inner dimensions");
    let (m, n, k) = (a.rows, b.cols, a.cols);
    assert!(extent(m, k, a.row_stride, a.col_stride) <= a.data.len());
    assert!(extent(k, n, b.row_stride, b.col_stride) <= b.data.len());
    assert!(n <= to.stride && extent(m, n, to.stride, 1) <= to.data.len());
    if m == 0 || n == 0 {
        return;
    }
    let add = store == Store::Add;
    // SAFETY: the three assertions bound every element the product reads or writes; the
    // destination is borrowed mutably, so it overlaps neither operand, and its rows do not
    // overlap each other since n <= stride.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to.data.as_mut_ptr(),
            1,
            to.stride as isize,
            add,
            a.data.as_ptr(),
            a.col_stride as isize,
            a.row_stride as isize,
            b.data.as_ptr(),
            b.col_stride as isize,
            b.row_stride as isize,
            if add { 1.0 } else { 0.0 },
            1.0,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_views_match_the_definition() {
        let (m, n, k) = (5, 7, 3);
        let a: Vec<f32> = (0..m * k).map(|i| (i * i % 11) as f32 - 4.0).collect();
        let b: Vec<f32> = (0..n * k).map(|i| (i * 7 % 13) as f32 - 6.0).collect();
        let mut out = vec![1.0; m * 10];
        multiply(
            MatMut {
                data: &mut out[1..],
                stride: 10,
            },
            Store::Add,
            Mat::new(&a, m, k),
            Mat::new(&b, n, k).t(),
        );
        for i in 0..m {
            for j in 0..n {
                let dot: f32 = (0..k).map(|l| a[i * k + l] * b[j * k + l]).sum();
                assert_eq!(out[1 + i * 10 + j], 1.0 + dot);
            }
            assert!(out[1 + i * 10 + n..].iter().take(3).all(|x| *x == 1.0));
        }
    }
}
