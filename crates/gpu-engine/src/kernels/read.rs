//! A kernel that reads memory and computes almost nothing.

use cubecl::prelude::*;

use super::Words;

/// Number of units of a cube.
pub(crate) const UNITS: usize = 128;

/// Reads `words`, each unit its share. The sums keep a compiler from removing the reads.
#[cube(launch_unchecked)]
pub(crate) fn read(words: &[Words], sums: &mut [u32], fours: u32) {
    let units = CUBE_COUNT * UNITS;
    let mut sum = 0u32;
    for i in range_stepped(CUBE_POS * UNITS + UNIT_POS as usize, fours as usize, units) {
        let four = words[i];
        #[unroll]
        for e in 0..4usize {
            sum ^= four.extract(e);
        }
    }
    // Of random words one unit in four billion takes this branch, and the compiler cannot rule it
    // out.
    if sum == 0x9e37_79b9u32 {
        sums[CUBE_POS] = sum;
    }
}
