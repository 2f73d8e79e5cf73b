//! Matrix products of f32 matrices, with the numbers unchanged or rounded to bf16.

use half::bf16;
use serde::{Deserialize, Serialize};

#[cfg(target_arch = "x86_64")]
use super::pairs;
use super::{Mat, MatMut, Store, multiply};

/// The numbers that a matrix product multiplies. Sums are of f32 in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Products {
    /// The numbers unchanged.
    #[default]
    F32,
    /// The numbers rounded to bf16, as in training on graphics devices. It is nearly twice as fast
    /// on processors that multiply pairs of them (AVX-512 with bf16). Other processors round and
    /// multiply as usual, and so add in another order.
    Bf16,
}

impl Products {
    /// `to = a b` or `to += a b`, on the calling thread. The bits do not depend on the thread.
    ///
    /// # Panics
    /// If the shapes do not fit each other or their slices, which is a fault of the caller.
    pub fn multiply(self, to: MatMut<'_>, store: Store, a: Mat<'_>, b: Mat<'_>) {
        if self == Self::F32 {
            return multiply(to, store, a, b);
        }
        #[cfg(target_arch = "x86_64")]
        if let Some(pairs) = pairs::Pairs::detect() {
            return pairs.multiply(to, store, a, b);
        }
        multiply_rounded(to, store, a, b);
    }
}

/// Products of bf16 numbers on any processor.
fn multiply_rounded(to: MatMut<'_>, store: Store, a: Mat<'_>, b: Mat<'_>) {
    let (left, right) = (rounded(a), rounded(b));
    multiply(to, store, a.over(&left), b.over(&right));
}

/// Elements of a view's slice, rounded to bf16.
fn rounded(view: Mat<'_>) -> Vec<f32> {
    let numbers = view.data().iter();
    numbers.map(|x| bf16::from_f32(*x).to_f32()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers in [-0.5, 0.5) that bf16 does not hold.
    fn numbers(count: usize, seed: u64) -> Vec<f32> {
        let mut state = seed;
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1_u64 << 24) as f32 - 0.5
        };
        (0..count).map(|_| next()).collect()
    }

    /// The sums of rounded products in f64, row by row of `a` and `b^T`.
    fn definition(a: &[f32], b: &[f32], (m, n, k): (usize, usize, usize)) -> Vec<f64> {
        let round = |x: f32| f64::from(bf16::from_f32(x).to_f32());
        let sum = |i: usize, j: usize| -> f64 {
            (0..k)
                .map(|l| round(a[i * k + l]) * round(b[j * k + l]))
                .sum()
        };
        (0..m * n).map(|at| sum(at / n, at % n)).collect()
    }

    fn transposed(data: &[f32], rows: usize, cols: usize) -> Vec<f32> {
        (0..rows * cols)
            .map(|at| data[at % rows * cols + at / rows])
            .collect()
    }

    /// All layouts of operands, shapes that fill no tile, and shapes beyond every block.
    #[test]
    fn products_of_bf16_are_those_of_rounded_numbers() {
        for shape @ (m, n, k) in [
            (1, 1, 1),
            (5, 7, 3),
            (13, 33, 71),
            (130, 40, 300),
            (3, 800, 20),
        ] {
            let (a, b) = (numbers(m * k, 1), numbers(n * k, 2));
            let (a_down, b_down) = (transposed(&a, m, k), transposed(&b, n, k));
            let expected = definition(&a, &b, shape);
            let lefts = [Mat::new(&a, m, k), Mat::new(&a_down, k, m).t()];
            let rights = [Mat::new(&b, n, k).t(), Mat::new(&b_down, k, n)];
            let stride = n + 3;
            let check = |out: &[f32], before: f64| {
                for (at, expected) in expected.iter().enumerate() {
                    let got = f64::from(out[1 + at / n * stride + at % n]) - before;
                    assert!(
                        (got - expected).abs() < 1e-4,
                        "{shape:?}: {got}, {expected}"
                    );
                }
            };
            let mut first = None;
            for (left, right) in lefts.into_iter().flat_map(|l| rights.map(|r| (l, r))) {
                let mut out = vec![1.0; m * stride];
                let to = MatMut {
                    data: &mut out[1..],
                    stride,
                };
                Products::Bf16.multiply(to, Store::Add, left, right);
                check(&out, 1.0);
                let beside = |row: &[f32]| row[n..].iter().all(|x| *x == 1.0);
                assert!(
                    out[0] == 1.0
                        && out[1..]
                            .chunks(stride)
                            .all(|row| row.len() < n || beside(row))
                );
                // The layout of an operand changes no bit.
                assert_eq!(*first.get_or_insert_with(|| out.clone()), out);
                let to = MatMut {
                    data: &mut out[1..],
                    stride,
                };
                // As on a processor without the instruction.
                multiply_rounded(to, Store::Set, left, right);
                check(&out, 0.0);
            }
        }
    }

    #[test]
    fn rounding_keeps_what_is_no_number() {
        for bad in [f32::NAN, f32::INFINITY] {
            let mut out = [0.0];
            let to = MatMut::new(&mut out, 1);
            Products::Bf16.multiply(
                to,
                Store::Set,
                Mat::new(&[bad, 1.0], 1, 2),
                Mat::new(&[1.0, 1.0], 2, 1),
            );
            assert!(!out[0].is_finite());
        }
    }
}
