//! Every kernel compared with plain scalar code, on every instruction set of this processor.

mod activations;
mod compact;

use proptest::prelude::*;

use super::Kernels;
use super::fused::Epilogue;
use super::gemm::{Rows, Store};
use super::out::Out;
use super::panel::PackedMatrix;
use super::parallel::Executor;
use super::quant::QuantScratch;
use super::simd::{Kernel, LANES, PANEL, Simd};
use super::vector::{RmsNorm, SoftmaxNumerators, exp};
use crate::KernelChoice;
use crate::arena::Arena;
use crate::packing::{Part, PartRows};
use crate::pool::Pool;
use lm::WeightType;
use std::sync::Arc;

/// Every instruction set of this processor, with its usual and other walks. With AVX-512 but
/// without AMX, an emulator executes tile instructions.
fn sets() -> Vec<Kernels> {
    let sets = KernelChoice::ALL.into_iter().skip(1);
    let sets = sets.filter_map(|choice| Kernels::select(choice).ok());
    let otherwise = ["1 1 1 1 1 lines", "2 4 2 4 2 pages", "4 2 4 2 4 nothing"];
    sets.flat_map(|kernels| {
        let walks = otherwise.map(|walk| kernels.walking(walk.parse().unwrap()));
        [kernels].into_iter().chain(walks)
    })
    .collect()
}

/// Without the masked sets the widest remaining one runs, and asking for a masked one is an error.
#[test]
fn masked_instruction_sets_are_not_used() {
    // The narrowest first.
    let sets = [
        KernelChoice::Avx2,
        KernelChoice::AvxVnni,
        KernelChoice::Avx512Vnni,
        KernelChoice::Avx512,
        KernelChoice::Amx,
    ];
    let found = |choice| Kernels::detect(choice).is_some();
    for mask in 0..32_usize {
        let mut there = vec![KernelChoice::Portable];
        for (i, choice) in sets.into_iter().enumerate() {
            if mask >> i & 1 == 1 && found(choice) {
                there.push(choice);
            }
        }
        let select = |choice| {
            let detect = |choice| Kernels::detect(choice).filter(|_| there.contains(&choice));
            let set = Kernels::select_among(choice, detect).ok();
            set.map(|set| set.choice)
        };
        for choice in KernelChoice::ALL.into_iter().skip(1) {
            assert_eq!(select(choice), there.contains(&choice).then_some(choice));
        }
        assert_eq!(select(KernelChoice::Auto), there.last().copied());
    }
    // With AVX-512 and Linux, the kernels for tiles are tested, emulated or not.
    let tested = found(KernelChoice::Avx512) && cfg!(target_os = "linux");
    assert_eq!(found(KernelChoice::Amx), tested);
}

/// The chain that a kernel set promises for one output element.
fn chain(kernels: Kernels, x: &[f32], w: impl Iterator<Item = f32>, start: f32) -> f32 {
    x.iter()
        .zip(w)
        .fold(start, |acc, (x, w)| match kernels.choice {
            KernelChoice::Portable => x * w + acc,
            _ => x.mul_add(w, acc),
        })
}

/// True if sums have an order of their own: tiles promise that a row's bits do not depend on the
/// rows beside it, but not the order in which pairs of bf16 numbers are summed.
fn by_tiles(kernels: Kernels, store: Store, weights: WeightType) -> bool {
    kernels.choice == KernelChoice::Amx && weights == WeightType::Bf16 && store != Store::Extend
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
        assert!(worst < 2.0, "{}: {worst} units", kernels.choice);
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
    (
        prop_oneof![3 => 1..21_usize, 1 => 21..70_usize],
        1..150_usize,
        1..80_usize,
        store,
    )
        .prop_flat_map(|(count, inputs, outputs, store)| {
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
        })
}

/// Weights in memory as a part of a matrix.
fn slice(weights: &[f32], inputs: usize, first: usize, step: usize) -> Part<'_> {
    Part {
        rows: PartRows::Slice(weights, inputs),
        outputs: weights.len() / inputs,
        first,
        step,
    }
}

/// A pool of two threads for packing.
fn pool() -> Arc<Pool> {
    Pool::shared(2).unwrap()
}

impl Case {
    /// The product by one thread, in the way of an engine.
    fn run(&self, kernels: Kernels, packed: &PackedMatrix) -> Vec<f32> {
        let executor = Executor {
            kernels,
            weights: kernels,
            pool: Pool::shared(1).unwrap(),
        };
        let x = Rows {
            data: &self.x,
            stride: self.inputs,
            count: self.count,
        };
        let mut quantised = QuantScratch::new(self.count, self.inputs);
        let mut data = self.before.clone();
        let out = Out::new(&mut data, self.outputs, self.outputs);
        let epilogue = Epilogue::None(self.store);
        executor.project(x, packed, epilogue, &mut quantised, out);
        data
    }

    fn packed(&self, weights: WeightType) -> PackedMatrix {
        let panels = self.outputs.div_ceil(PANEL);
        let arena = &mut Arena::new(0);
        let mut packed = PackedMatrix::new(arena, self.inputs, panels, weights, false);
        packed.pack(&[self.part()], &pool()).unwrap();
        packed
    }

    fn part(&self) -> Part<'_> {
        slice(&self.w, self.inputs, 0, 1)
    }

    /// Compares every output with `expected(row, column, start)`.
    fn check(
        &self,
        kernels: Kernels,
        packed: &PackedMatrix,
        expected: impl Fn(usize, usize, f32) -> f32,
    ) -> Result<(), TestCaseError> {
        for (at, found) in self.run(kernels, packed).into_iter().enumerate() {
            let (row, column) = (at / self.outputs, at % self.outputs);
            let before = self.before[at];
            let expected = match self.store {
                Store::Set => expected(row, column, 0.0),
                Store::Add => before + expected(row, column, 0.0),
                Store::Extend => expected(row, column, before),
            };
            prop_assert_eq!(found.to_bits(), expected.to_bits());
        }
        Ok(())
    }

    /// The same case with only one of the rows.
    fn alone(&self, row: usize) -> Self {
        Self {
            count: 1,
            inputs: self.inputs,
            outputs: self.outputs,
            store: self.store,
            x: self.row(row).to_vec(),
            w: self.w.clone(),
            before: self.before[row * self.outputs..][..self.outputs].to_vec(),
        }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.x[row * self.inputs..][..self.inputs]
    }

    fn column(&self, column: usize) -> &[f32] {
        &self.w[column * self.inputs..][..self.inputs]
    }
}

/// The scale of a group of weights before it is stored.
fn wanted_scale(bits: u32, weights: &[f32]) -> f32 {
    let mut largest = 0.0_f32;
    for w in weights {
        if w.abs() > largest.abs() {
            largest = *w;
        }
    }
    match bits {
        8 => largest.abs() / 127.0,
        _ => largest / -8.0,
    }
}

/// Levels and scale of every group of a column of weights, written from the definition of the
/// format.
fn weight_levels(bits: u32, column: &[f32]) -> Vec<(Vec<i64>, f32)> {
    let (group, low, high) = match bits {
        8 => (64, -127.0, 127.0),
        _ => (32, -8.0, 7.0),
    };
    let wanted: Vec<f32> = column
        .chunks(group)
        .map(|weights| wanted_scale(bits, weights))
        .collect();
    let unit = wanted.iter().fold(0.0_f32, |most, s| most.max(s.abs())) / 127.0;
    let groups = column.chunks(group).zip(wanted);
    groups
        .map(|(weights, wanted)| {
            let multiple = match (wanted / unit).round_ties_even() {
                multiple if multiple.is_nan() => 0.0,
                0.0 if wanted != 0.0 => wanted.signum(),
                multiple => multiple.clamp(-127.0, 127.0),
            };
            let scale = multiple * unit;
            let level = |w: &f32| match 1.0 / scale {
                inverse if inverse.is_finite() => {
                    (w * inverse).round_ties_even().clamp(low, high) as i64
                }
                _ => 0,
            };
            (weights.iter().map(level).collect(), scale)
        })
        .collect()
}

/// Levels and scale of a group of activations.
fn activation_levels(most: f32, x: &[f32]) -> (Vec<i64>, f32) {
    let largest = x.iter().fold(0.0_f32, |m, x| m.max(x.abs()));
    let level = |x: &f32| match most / largest {
        inverse if inverse.is_finite() => (x * inverse).round_ties_even() as i64,
        _ => 0,
    };
    (x.iter().map(level).collect(), largest / most)
}

/// The chain over groups that integer formats promise.
fn group_chain(kernels: Kernels, bits: u32, x: &[f32], w: &[f32], start: f32) -> f32 {
    let group = if bits == 8 { 64 } else { 32 };
    x.chunks(group)
        .zip(weight_levels(bits, w))
        .fold(start, |sum, (x, (w, w_scale))| {
            let (x, x_scale) = activation_levels(127.0, x);
            let dot: i64 = x.iter().zip(&w).map(|(x, w)| x * w).sum();
            let (dot, factor) = (dot as f32, x_scale * w_scale);
            match kernels.choice {
                KernelChoice::Portable => dot * factor + sum,
                _ => dot.mul_add(factor, sum),
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn products_are_the_promised_chains_bit_for_bit(case in cases(), bf16 in any::<bool>()) {
        let weights = if bf16 { WeightType::Bf16 } else { WeightType::F32 };
        let packed = case.packed(weights);
        let stored = |w: &f32| if bf16 { half::bf16::from_f32(*w).to_f32() } else { *w };
        for kernels in sets() {
            if by_tiles(kernels, case.store, weights) {
                continue;
            }
            case.check(kernels, &packed, |row, column, start| {
                let x: Vec<f32> = case.row(row).iter().map(stored).collect();
                chain(kernels, &x, case.column(column).iter().map(stored), start)
            })?;
        }
    }

    #[test]
    fn products_by_tiles_are_right_and_do_not_depend_on_other_rows(case in cases()) {
        let packed = case.packed(WeightType::Bf16);
        let stored = |w: &f32| f64::from(half::bf16::from_f32(*w).to_f32());
        let tiled = |kernels| by_tiles(kernels, case.store, WeightType::Bf16);
        for kernels in sets().into_iter().filter(|kernels| tiled(*kernels)) {
            let found = case.run(kernels, &packed);
            for (at, found) in found.iter().enumerate() {
                let (row, column) = (at / case.outputs, at % case.outputs);
                let pairs = case.row(row).iter().zip(case.column(column));
                let products = pairs.map(|(x, w)| stored(x) * stored(w));
                let before = if case.store == Store::Add { case.before[at] } else { 0.0 };
                let (mut exact, mut size) = (f64::from(before), f64::from(before.abs()));
                for product in products {
                    exact += product;
                    size += product.abs();
                }
                prop_assert!((f64::from(*found) - exact).abs() <= 2e-6 * size);
            }
            for row in 0..case.count {
                let alone = case.alone(row).run(kernels, &packed);
                prop_assert_eq!(&alone, &found[row * case.outputs..][..case.outputs]);
            }
        }
    }

    #[test]
    fn products_with_halves_are_chains_of_activations_as_they_are(case in cases()) {
        let packed = case.packed(WeightType::F16);
        for kernels in sets() {
            case.check(kernels, &packed, |row, column, start| {
                let stored = case.column(column).iter().map(|w| half::f16::from_f32(*w).to_f32());
                chain(kernels, case.row(row), stored, start)
            })?;
        }
    }

    #[test]
    fn integer_products_are_the_promised_chains_bit_for_bit(case in cases(), eight in any::<bool>()) {
        let (weights, bits) = if eight { (WeightType::Int8, 8) } else { (WeightType::Int4, 4) };
        let packed = case.packed(weights);
        for kernels in sets() {
            case.check(kernels, &packed, |row, column, start| {
                group_chain(kernels, bits, case.row(row), case.column(column), start)
            })?;
        }
    }
}

/// Panels longer than the part that stays in cache, for every height of tile.
#[test]
fn long_panels_are_cut_without_a_trace() {
    for weights in WeightType::ALL {
        let (inputs, outputs) = (4200, 20);
        let value = |i: usize| ((i * 2_654_435_761) % 1000) as f32 / 500.0 - 1.0;
        let case = |count: usize| Case {
            count,
            inputs,
            outputs,
            store: Store::Set,
            x: (0..count * inputs).map(value).collect(),
            w: (0..outputs * inputs).map(|i| value(i + 7)).collect(),
            before: vec![0.0; count * outputs],
        };
        let packed = case(1).packed(weights);
        for kernels in sets() {
            let expected = case(100).run(kernels, &packed);
            for count in [1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 48, 49] {
                assert!(case(count).run(kernels, &packed) == expected[..count * outputs]);
            }
        }
    }
}

/// The extremes of both formats, where intermediate sums are largest.
#[test]
fn extreme_integers_do_not_overflow() {
    for (weights, bits) in [(WeightType::Int8, 8), (WeightType::Int4, 4)] {
        for (x, w) in [(1.0, 1.0), (-1.0, 1.0), (1.0, -1.0), (-1.0, -1.0)] {
            let case = Case {
                count: 5,
                inputs: 128,
                outputs: 16,
                store: Store::Set,
                x: vec![x; 5 * 128],
                w: vec![w; 16 * 128],
                before: vec![0.0; 5 * 16],
            };
            for kernels in sets() {
                let expected = group_chain(kernels, bits, case.row(0), case.column(0), 0.0);
                let found = case.run(kernels, &case.packed(weights));
                assert!(found.iter().all(|found| *found == expected));
                assert!((expected - 128.0 * x * w).abs() < 0.5);
            }
        }
    }
}

#[test]
fn undefined_activations_and_weights_stay_undefined() {
    for weights in [WeightType::Int8, WeightType::Int4] {
        for (x, w) in [(f32::NAN, 1.0), (f32::INFINITY, 1.0), (1.0, f32::NAN)] {
            let mut case = Case {
                count: 1,
                inputs: 40,
                outputs: 3,
                store: Store::Set,
                x: vec![0.5; 40],
                w: vec![0.5; 120],
                before: vec![0.0; 3],
            };
            (case.x[33], case.w[33]) = (x, w);
            for kernels in sets() {
                assert!(case.run(kernels, &case.packed(weights))[0].is_nan());
            }
        }
    }
}
