//! Output matrices that several threads write, each its own columns.
#![expect(
    unsafe_code,
    reason = "threads write interleaved column ranges of one row-major matrix"
)]

use std::marker::PhantomData;

use super::simd::PANEL;

/// A row-major matrix that kernels write panel by panel.
pub(crate) struct Out<'a> {
    start: *mut f32,
    len: usize,
    stride: usize,
    columns: usize,
    borrow: PhantomData<&'a mut [f32]>,
}

impl<'a> Out<'a> {
    /// Rows of `columns` values, `stride` apart.
    pub(crate) fn new(data: &'a mut [f32], stride: usize, columns: usize) -> Self {
        debug_assert!(columns <= stride);
        Self {
            start: data.as_mut_ptr(),
            len: data.len(),
            stride,
            columns,
            borrow: PhantomData,
        }
    }

    /// The columns of `panel` in `row`: sixteen, or fewer in the last panel.
    #[inline(always)]
    pub(crate) fn panel(&mut self, row: usize, panel: usize) -> &mut [f32] {
        let width = PANEL.min(self.columns - panel * PANEL);
        self.range(row, panel * PANEL, width)
    }

    /// Columns `first..first + width` of `row`.
    #[inline(always)]
    pub(crate) fn range(&mut self, row: usize, first: usize, width: usize) -> &mut [f32] {
        let start = row * self.stride + first;
        assert!(
            first + width <= self.columns && start + width <= self.len,
            "output out of bounds"
        );
        // SAFETY: the range lies inside the borrowed slice (checked above), and no other code
        // accesses it: `new` borrows the slice exclusively and `SharedOut::claim` passes on its
        // caller's promise of disjoint columns.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(start), width) }
    }
}

/// An [`Out`] that several threads hold at once.
pub(crate) struct SharedOut<'a>(Out<'a>);

// SAFETY: the only access is `claim`, whose callers promise disjoint ranges.
unsafe impl Sync for SharedOut<'_> {}

impl<'a> SharedOut<'a> {
    pub(crate) fn new(out: Out<'a>) -> Self {
        Self(out)
    }

    /// A handle for one thread.
    ///
    /// # Safety
    /// Ranges obtained through handles that are alive at the same time must not overlap.
    pub(crate) unsafe fn claim(&self) -> Out<'_> {
        let Out {
            start,
            len,
            stride,
            columns,
            borrow: _,
        } = self.0;
        Out {
            start,
            len,
            stride,
            columns,
            borrow: PhantomData,
        }
    }
}
