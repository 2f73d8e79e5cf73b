//! Reuse of vocabulary-sized rows: page faults of a new row cost as much as the softmax that is
//! written to it.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::thread::LocalKey;

/// Number of rows that a thread keeps: about as many as a round needs.
const KEPT: usize = 24;

/// Unused rows of one number type.
type Spare<T> = RefCell<Vec<Vec<T>>>;

/// Number types of which a thread keeps rows.
pub(crate) trait Kept: Copy + Default + 'static {
    fn spare() -> &'static LocalKey<Spare<Self>>;
}

thread_local! {
    static SINGLE: Spare<f32> = const { RefCell::new(Vec::new()) };
    static DOUBLE: Spare<f64> = const { RefCell::new(Vec::new()) };
}

impl Kept for f32 {
    fn spare() -> &'static LocalKey<Spare<Self>> {
        &SINGLE
    }
}

impl Kept for f64 {
    fn spare() -> &'static LocalKey<Spare<Self>> {
        &DOUBLE
    }
}

/// A row that is returned to the thread's store when it is dropped.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Row<T: Kept>(pub(crate) Vec<T>);

impl<T: Kept> Row<T> {
    /// A row of this length with arbitrary content.
    pub(crate) fn of(length: usize) -> Self {
        let kept = T::spare().try_with(|spare| {
            let mut spare = spare.borrow_mut();
            // The smallest one with room, so that a short row does not use up a long one. A row that
            // was cut has the room that it had.
            let fits = (0..spare.len()).filter(|&at| spare[at].capacity() >= length);
            let at = fits.min_by_key(|&at| spare[at].capacity())?;
            Some(spare.swap_remove(at))
        });
        let mut row = kept.ok().flatten().unwrap_or_default();
        row.resize(length, T::default());
        Self(row)
    }
}

impl<T: Kept> Deref for Row<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Kept> DerefMut for Row<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Kept> Drop for Row<T> {
    fn drop(&mut self) {
        // A thread that is ending keeps nothing.
        let _ = T::spare().try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < KEPT && self.0.capacity() > 0 {
                spare.push(std::mem::take(&mut self.0));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back() {
        let rows = [Row::<f64>::of(1000), Row::of(500)];
        let places = rows.each_ref().map(|row| row.as_ptr());
        drop(rows);
        assert_eq!(Row::<f64>::of(400).as_ptr(), places[1]);
        assert_eq!(Row::<f64>::of(501).as_ptr(), places[0]);
        // Whatever their lengths were.
        assert_eq!(Row::<f64>::of(1000).as_ptr(), places[0]);
        assert_eq!(Row::<f64>::of(450).as_ptr(), places[1]);
        assert_eq!(Row::<f64>::of(2000).len(), 2000);
        for _ in 0..3 * KEPT {
            drop(Row(vec![0.0f32; 4]));
        }
        assert!(SINGLE.with_borrow(Vec::len) <= KEPT);
    }
}
