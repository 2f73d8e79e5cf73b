//! One block of memory for all weights of a model, on huge pages if the system has them.
//!
//! A forward reads every weight once. On pages of 4 KiB it would miss the TLB at every sixty-fourth
//! cache line, and the processor's prefetchers stop at page boundaries.
#![expect(unsafe_code, reason = "typed views into one allocation")]

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment of every buffer: a cache line.
const LINE: usize = 64;
/// Size and alignment of a huge page, in bytes.
const HUGE_PAGE: usize = 2 << 20;

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// The type has no padding that matters, no niche, no drop glue, and alignment at most [`LINE`].
pub(crate) unsafe trait Zeroed: Copy + Send + Sync + 'static {}

// SAFETY: plain numbers.
unsafe impl Zeroed for f32 {}
// SAFETY: a 16-bit integer inside.
unsafe impl Zeroed for half::bf16 {}
// SAFETY: as above.
unsafe impl Zeroed for half::f16 {}

/// Panics as `Vec` does for sizes beyond the address space.
fn overflow() -> ! {
    panic!("capacity overflow")
}

/// A zeroed allocation.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: a `Memory` is only an owner; access goes through buffers with disjoint ranges.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Self {
        let align = if bytes < HUGE_PAGE { LINE } else { HUGE_PAGE };
        let size = bytes.max(LINE).checked_next_multiple_of(LINE);
        let layout = size.and_then(|size| Layout::from_size_align(size, align).ok());
        let Some(layout) = layout else { overflow() };
        // SAFETY: the size is not zero.
        let start = unsafe { alloc(layout) };
        let Some(start) = NonNull::new(start) else {
            handle_alloc_error(layout)
        };
        #[cfg(target_os = "linux")]
        if align == HUGE_PAGE {
            // Before the first write, so that huge pages are there from the start. A refusal costs
            // only speed.
            let whole = layout.size() / HUGE_PAGE * HUGE_PAGE;
            // SAFETY: the range is inside this allocation, and the advice does not change its
            // contents.
            unsafe { libc::madvise(start.as_ptr().cast(), whole, libc::MADV_HUGEPAGE) };
        }
        // SAFETY: the allocation has this size.
        unsafe { start.write_bytes(0, layout.size()) };
        Self { start, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout in `new`.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Allocator of zeroed buffers within one allocation.
pub(crate) struct Arena {
    memory: Arc<Memory>,
    used: usize,
}

impl Arena {
    /// An arena with room for `bytes`, which include the rounding of buffers to cache lines.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            memory: Arc::new(Memory::new(bytes)),
            used: 0,
        }
    }

    /// True if data of `bytes` that may be freed before the rest are worth an arena of their own.
    pub(crate) fn is_large(bytes: usize) -> bool {
        bytes >= HUGE_PAGE
    }

    /// Number of bytes that a buffer of `len` values takes.
    pub(crate) fn bytes_of<T: Zeroed>(len: usize) -> usize {
        let bytes = len.checked_mul(size_of::<T>());
        match bytes.and_then(|bytes| bytes.checked_next_multiple_of(LINE)) {
            Some(bytes) => bytes,
            None => overflow(),
        }
    }

    /// A buffer of `len` zeros. If the rest of the arena is too small, the buffer gets memory of
    /// its own.
    pub(crate) fn take<T: Zeroed>(&mut self, len: usize) -> Buffer<T> {
        let bytes = Self::bytes_of::<T>(len);
        if bytes > self.memory.layout.size() - self.used {
            *self = Self::new(bytes);
        }
        // SAFETY: `used + bytes` is at most the size of the allocation (checked above).
        let start = unsafe { self.memory.start.add(self.used) }.cast();
        self.used += bytes;
        Buffer {
            start,
            len,
            _memory: Arc::clone(&self.memory),
            values: PhantomData,
        }
    }
}

/// An owned slice of an arena.
pub(crate) struct Buffer<T> {
    start: NonNull<T>,
    len: usize,
    _memory: Arc<Memory>,
    values: PhantomData<T>,
}

// SAFETY: a buffer owns its range, like a `Vec`.
unsafe impl<T: Zeroed> Send for Buffer<T> {}
// SAFETY: as above.
unsafe impl<T: Zeroed> Sync for Buffer<T> {}

impl<T> Deref for Buffer<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `take` gave this range, aligned and zeroed, to this buffer alone, and `_memory`
        // keeps it alive.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> DerefMut for Buffer<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "capacity overflow")]
    fn sizes_beyond_the_address_space_are_refused() {
        // Each value has four bytes; without a check this would become a buffer of four bytes.
        Arena::new(0).take::<f32>(usize::MAX / 4 + 2);
    }

    #[test]
    fn buffers_are_zero_aligned_and_disjoint() {
        for room in [0, 200, 5 << 20] {
            let mut arena = Arena::new(room);
            let mut buffers: Vec<Buffer<f32>> = [3, 0, 700_000, 17, 600_000]
                .into_iter()
                .map(|len| arena.take(len))
                .collect();
            drop(arena);
            for (i, buffer) in buffers.iter_mut().enumerate() {
                assert!(buffer.iter().all(|x| *x == 0.0));
                assert_eq!(buffer.as_ptr().addr() % LINE, 0);
                buffer.fill(i as f32 + 1.0);
            }
            for (i, buffer) in buffers.iter().enumerate() {
                assert!(buffer.iter().all(|x| *x == i as f32 + 1.0));
            }
        }
    }
}
