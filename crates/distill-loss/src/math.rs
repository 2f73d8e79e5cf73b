//! Exponential without branches or calls, so that loops over a row vectorise on any instruction set
//! and give the same bits on all of them. Functions that call these are compiled for wider vectors
//! beside the baseline.

use std::f32::consts::LOG2_E;

/// Adding this to an f32 below 2^22 leaves its nearest integer in the low mantissa bits.
const ROUND: f32 = 12_582_912.0;
/// `ln 2` in two parts; products of the first with exponents are exact.
const LN2_HIGH: f32 = 0.693_359_4;
const LN2_LOW: f32 = -2.121_944_4e-4;
/// Below this `e^x` is no normal number and becomes zero.
const EXP_MIN: f32 = -87.0;
const EXP_MAX: f32 = 88.0;

/// `e^x` within 2 units in the last place on `-87..=88`; zero below, constant above, NaN for NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    // Comparisons instead of `max` and `min`, which would drop a NaN.
    let low = if x < EXP_MIN { EXP_MIN } else { x };
    let bounded = if low > EXP_MAX { EXP_MAX } else { low };
    let shifted = bounded * LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = (bounded - n * LN2_HIGH) - n * LN2_LOW;
    // Taylor on |r| <= ln 2 / 2: the first term left out is below 6e-9.
    let mut p = 1.0 / 5040.0;
    for c in [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5] {
        p = p * r + c;
    }
    let value = (p * (r * r) + r) + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()));
    if x < EXP_MIN { 0.0 } else { value * power }
}

/// Elements summed in f32 before the sum moves to f64.
pub(crate) const BLOCK: usize = 1024;
/// Independent partial sums.
const LANES: usize = 16;

/// Largest element; NaN entries are passed over, minus infinity for an empty row.
#[inline(always)]
pub(crate) fn maximum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::NEG_INFINITY; LANES];
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x > *lane { *x } else { *lane };
        }
    }
    lanes
        .into_iter()
        .chain(rest.iter().copied())
        .fold(f32::NEG_INFINITY, f32::max)
}

/// Smallest element; NaN entries are passed over, infinity for an empty row.
#[inline(always)]
pub(crate) fn minimum(row: &[f32]) -> f32 {
    let (chunks, rest) = row.as_chunks::<LANES>();
    let mut lanes = [f32::INFINITY; LANES];
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if *x < *lane { *x } else { *lane };
        }
    }
    lanes
        .into_iter()
        .chain(rest.iter().copied())
        .fold(f32::INFINITY, f32::min)
}

/// Replaces every pair `(a, b)` by the first two values of `f`, and returns the sums of the others.
#[inline(always)]
pub(crate) fn transform<const K: usize>(
    a: &mut [f32],
    b: &mut [f32],
    f: impl Fn(f32, f32) -> (f32, f32, [f32; K]),
) -> [f64; K] {
    let mut total = [0.0; K];
    let mut terms = [[0.0f32; BLOCK]; K];
    for (a, b) in a.chunks_mut(BLOCK).zip(b.chunks_mut(BLOCK)) {
        for (i, (a, b)) in a.iter_mut().zip(b.iter_mut()).enumerate() {
            let of_pair;
            (*a, *b, of_pair) = f(*a, *b);
            for k in 0..K {
                terms[k][i % BLOCK] = of_pair[k];
            }
        }
        for (total, terms) in total.iter_mut().zip(&terms) {
            *total += sum(&terms[..a.len()]);
        }
    }
    total
}

/// Replaces every element by what `f` returns and adds those up.
#[inline(always)]
pub(crate) fn map_sum(row: &mut [f32], f: impl Fn(f32) -> f32) -> f64 {
    let mut total = 0.0;
    for block in row.chunks_mut(BLOCK) {
        for x in block.iter_mut() {
            *x = f(*x);
        }
        total += sum(block);
    }
    total
}

/// Sum of at most [`BLOCK`] elements.
#[inline(always)]
fn sum(block: &[f32]) -> f64 {
    let mut lanes = [0.0f32; LANES];
    let (chunks, rest) = block.as_chunks::<LANES>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane += x;
        }
    }
    for (lane, x) in lanes.iter_mut().zip(rest) {
        *lane += x;
    }
    lanes.into_iter().map(f64::from).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponentials_are_within_two_units_in_the_last_place() {
        let mut worst = 0.0f64;
        for i in 0..400_000 {
            let x = -87.0 + 175.0 * i as f32 / 400_000.0;
            let exact = f64::from(x).exp();
            let rounded = exact as f32;
            let unit = f64::from(f32::from_bits(rounded.to_bits() + 1)) - f64::from(rounded);
            worst = worst.max((f64::from(exp(x)) - exact).abs() / unit);
        }
        assert!(worst < 2.0, "{worst}");
        assert_eq!(exp(0.0), 1.0);
        assert_eq!((exp(-88.0), exp(f32::NEG_INFINITY)), (0.0, 0.0));
        assert!(exp(f32::INFINITY).is_finite() && exp(f32::NAN).is_nan());
    }

    #[test]
    fn every_element_is_transformed_and_counted_once() {
        for len in [0, 1, 15, 16, 17, 1023, 1024, 1025, 2100] {
            let mut a: Vec<f32> = (0..len).map(|i| i as f32).collect();
            let mut b = vec![1.0; len];
            let [sum, count] = transform(&mut a, &mut b, |a, b| (a + b, a, [a, b]));
            assert_eq!(count, len as f64);
            assert_eq!(sum, (0..len).sum::<usize>() as f64);
            assert!((0..len).all(|i| a[i] == i as f32 + 1.0 && b[i] == i as f32));
            let least = if len == 0 { f32::INFINITY } else { 1.0 };
            assert_eq!(minimum(&a), least);
            assert_eq!(
                maximum(&a),
                if len == 0 {
                    f32::NEG_INFINITY
                } else {
                    len as f32
                }
            );
        }
    }
}
