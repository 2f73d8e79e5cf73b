//! Every kernel against plain scalar code, on every instruction set this processor has.

use proptest::prelude::*;

use super::Kernels;
use super::gemm::{Gemm, Panels, Rows, Store};
use super::out::Out;
use super::panel::{PackedMatrix, PanelData};
use super::simd::{Kernel, LANES, PANEL, Simd};
use super::vector::{RmsNorm, SiluMul, SoftmaxNumerators, exp};
use crate::cpu::{KernelChoice, WeightType};

fn sets() -> Vec<Kernels> {
    [KernelChoice::Portable, KernelChoice::Avx2]
        .into_iter()
        .filter_map(|choice| Kernels::select(choice).ok())
        .collect()
}

/// The chain a kernel set promises for one output element.
fn chain(kernels: Kernels, x: &[f32], w: impl Iterator<Item = f32>, start: f32) -> f32 {
    x.iter()
        .zip(w)
        .fold(start, |acc, (x, w)| match kernels.choice() {
            KernelChoice::Portable => x * w + acc,
            _ => x.mul_add(w, acc),
        })
}

struct Exp<'a>(&'a mut [f32; LANES]);

impl Kernel for Exp<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, simd: S) {
        let e = exp(simd, simd.load(self.0));
        simd.store(e, self.0);
    }
}

fn exp_of(kernels: Kernels, x: f32) -> f32 {
    let mut lanes = [x; LANES];
    kernels.run(Exp(&mut lanes));
    assert!(
        lanes
            .iter()
            .all(|lane| lane.to_bits() == lanes[0].to_bits())
    );
    lanes[0]
}

#[test]
fn exponential_is_within_two_units_in_the_last_place() {
    for kernels in sets() {
        let mut worst = 0.0_f64;
        for i in 0..400_000 {
            let x = -87.3 + i as f32 * (175.3 / 400_000.0);
            let exact = f64::from(x).exp();
            let found = exp_of(kernels, x);
            let unit = f64::from(f32::from_bits((exact as f32).to_bits() + 1) - exact as f32);
            worst = worst.max((f64::from(found) - exact).abs() / unit);
        }
        assert!(worst < 2.0, "{}: {worst} units", kernels.choice());
    }
}

#[test]
fn exponential_is_exact_where_it_must_be() {
    for kernels in sets() {
        assert_eq!(exp_of(kernels, 0.0), 1.0);
        assert_eq!(exp_of(kernels, -0.0), 1.0);
        assert_eq!(exp_of(kernels, f32::NEG_INFINITY), 0.0);
        assert_eq!(exp_of(kernels, -200.0), 0.0);
        assert!(exp_of(kernels, f32::INFINITY) > 1e38);
        assert!(exp_of(kernels, f32::NAN).is_nan());
    }
}

#[test]
fn softmax_ignores_padding_and_sums_to_one() {
    for kernels in sets() {
        for len in 1..70_usize {
            let scores: Vec<f32> = (0..len)
                .map(|i| ((i * 37 % 23) as f32 - 11.0) * 0.9)
                .collect();
            let sums: Vec<(f32, Vec<f32>)> = [0, 2]
                .into_iter()
                .map(|extra| {
                    let mut padded = scores.clone();
                    padded.resize(
                        len.next_multiple_of(LANES) + extra * LANES,
                        f32::NEG_INFINITY,
                    );
                    let sum = kernels.run(SoftmaxNumerators {
                        scores: &mut padded,
                        scale: 0.5,
                    });
                    assert!(padded[len..].iter().all(|e| *e == 0.0));
                    padded.truncate(len);
                    (sum, padded)
                })
                .collect();
            assert_eq!(sums[0], sums[1]);
            let max = scores.iter().copied().fold(f32::MIN, f32::max);
            let exact: Vec<f64> = scores
                .iter()
                .map(|s| (f64::from(s - max) * 0.5).exp())
                .collect();
            let total: f64 = exact.iter().sum();
            for (found, exact) in sums[0].1.iter().zip(&exact) {
                assert!((f64::from(found / sums[0].0) - exact / total).abs() < 1e-6);
            }
        }
    }
}

#[test]
fn silu_matches_f64() {
    for kernels in sets() {
        for len in [1, 7, 8, 16, 19] {
            let gate: Vec<f32> = (0..len).map(|i| (i as f32 - 8.0) * 3.7).collect();
            let up: Vec<f32> = (0..len).map(|i| 0.3 * i as f32 - 1.0).collect();
            let mut out = vec![0.0; len];
            kernels.run(SiluMul {
                gate: &gate,
                up: &up,
                out: &mut out,
            });
            for ((gate, up), out) in gate.iter().zip(&up).zip(&out) {
                let (gate, up) = (f64::from(*gate), f64::from(*up));
                let exact = gate / (1.0 + (-gate).exp()) * up;
                assert!((f64::from(*out) - exact).abs() <= 1e-6 * exact.abs() + 1e-30);
            }
        }
        let mut extreme = [0.0; 2];
        kernels.run(SiluMul {
            gate: &[-1e30, f32::NAN],
            up: &[1.0, 1.0],
            out: &mut extreme,
        });
        assert!(extreme[0].abs() < 1e-7 && extreme[1].is_nan());
    }
}

#[test]
fn rms_norm_matches_f64() {
    for kernels in sets() {
        for len in [1, 8, 13, 64, 250] {
            let x: Vec<f32> = (0..len)
                .map(|i| ((i * 31 % 17) as f32 - 8.0) * 0.2)
                .collect();
            let weight: Vec<f32> = (0..len).map(|i| 0.5 + 0.01 * i as f32).collect();
            let mut out = vec![0.0; len];
            kernels.run(RmsNorm {
                x: &x,
                weight: &weight,
                eps: 1e-5,
                out: &mut out,
            });
            let mean = x.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>() / len as f64;
            for ((x, weight), out) in x.iter().zip(&weight).zip(&out) {
                let exact = f64::from(*x) / (mean + 1e-5).sqrt() * f64::from(*weight);
                assert!((f64::from(*out) - exact).abs() < 1e-5 * exact.abs().max(1.0));
            }
        }
    }
}

/// One product of the property test below.
#[derive(Debug)]
struct Case {
    count: usize,
    inputs: usize,
    outputs: usize,
    store: Store,
    x: Vec<f32>,
    w: Vec<f32>,
    before: Vec<f32>,
}

fn cases() -> impl Strategy<Value = Case> {
    let store = prop_oneof![Just(Store::Set), Just(Store::Add), Just(Store::Extend)];
    (1..21_usize, 1..40_usize, 1..150_usize, store).prop_flat_map(
        |(count, inputs, outputs, store)| {
            let values = |n| prop::collection::vec(-2.0_f32..2.0, n);
            (
                values(count * inputs),
                values(outputs * inputs),
                values(count * outputs),
            )
                .prop_map(move |(x, w, before)| Case {
                    count,
                    inputs,
                    outputs,
                    store,
                    x,
                    w,
                    before,
                })
        },
    )
}

impl Case {
    fn run(&self, kernels: Kernels, packed: &PackedMatrix) -> Vec<f32> {
        let mut data = self.before.clone();
        let out = &mut Out::new(&mut data, self.outputs, self.outputs);
        let x = Rows {
            data: &self.x,
            stride: self.inputs,
            count: self.count,
        };
        let (inner, panels, store) = (0..self.inputs, 0..packed.panels(), self.store);
        let stride = self.inputs;
        match packed.data() {
            PanelData::F32(rows) => {
                let w = Panels { rows, stride };
                kernels.run(Gemm {
                    x,
                    w,
                    inner,
                    panels,
                    out,
                    store,
                });
            }
            PanelData::Bf16(rows) => {
                let w = Panels { rows, stride };
                kernels.run(Gemm {
                    x,
                    w,
                    inner,
                    panels,
                    out,
                    store,
                });
            }
        }
        data
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn products_are_the_promised_chains_bit_for_bit(case in cases(), bf16 in any::<bool>()) {
        let weights = if bf16 { WeightType::Bf16 } else { WeightType::F32 };
        let mut packed =
            PackedMatrix::zeros(case.inputs, case.outputs.div_ceil(PANEL), weights);
        packed.pack(&case.w, 0, 1);
        let stored = |w: f32| if bf16 { half::bf16::from_f32(w).to_f32() } else { w };
        for kernels in sets() {
            let found = case.run(kernels, &packed);
            for (at, found) in found.into_iter().enumerate() {
                let (row, column) = (at / case.outputs, at % case.outputs);
                let x = &case.x[row * case.inputs..][..case.inputs];
                let w = case.w[column * case.inputs..][..case.inputs].iter().map(|w| stored(*w));
                let before = case.before[at];
                let expected = match case.store {
                    Store::Set => chain(kernels, x, w, 0.0),
                    Store::Add => before + chain(kernels, x, w, 0.0),
                    Store::Extend => chain(kernels, x, w, before),
                };
                prop_assert_eq!(found.to_bits(), expected.to_bits());
            }
        }
    }
}
