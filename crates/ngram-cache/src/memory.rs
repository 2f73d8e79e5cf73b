//! Growth policy and size of the arenas.

/// A full arena grows by this fraction of its length (1/16) instead of doubling. A cache lives long
/// and grows ever more slowly, so spare capacity would otherwise dominate its size.
const GROWTH_DIVISOR: usize = 16;

/// Makes room for `extra` more items.
pub(crate) fn reserve_slack<T>(arena: &mut Vec<T>, extra: usize) {
    if arena.capacity() - arena.len() < extra {
        arena.reserve_exact(extra + arena.len() / GROWTH_DIVISOR);
    }
}

/// Size of an arena on the heap in bytes, spare capacity included.
pub(crate) fn heap_bytes<T>(arena: &Vec<T>) -> usize {
    arena.capacity() * size_of::<T>()
}

/// Number of live bytes with the spare capacity that [`reserve_slack`] may add to them.
pub(crate) fn with_slack(bytes: usize) -> usize {
    bytes + bytes.div_ceil(GROWTH_DIVISOR)
}
