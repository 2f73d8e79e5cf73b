//! Compact panels compared with plain ones.

use super::*;

/// Weights of one matrix.
#[derive(Clone, Copy, Debug)]
enum Weights {
    /// As in a trained model.
    Normal,
    /// Every exponent with the same frequency, so that nearly every weight is an escape.
    AnyExponent,
    Zeros,
    /// Zeros of both signs, subnormal numbers, infinities, NaN, and ordinary numbers.
    Odd,
    /// A few in a thousand that are not in the book.
    Outliers,
}

const KINDS: [Weights; 5] = [
    Weights::Normal,
    Weights::AnyExponent,
    Weights::Zeros,
    Weights::Odd,
    Weights::Outliers,
];

impl Weights {
    fn value(self, random: u64) -> f32 {
        let unit = (random >> 40) as f32 / (1 << 24) as f32;
        let bell = [0, 16, 32, 48]
            .map(|shift| (random >> shift & 0xffff) as f32 / 65536.0)
            .into_iter()
            .sum::<f32>()
            - 2.0;
        match self {
            Self::Normal => 0.04 * bell,
            // The upper half is random; a set bit keeps infinities out.
            Self::AnyExponent => f32::from_bits((random >> 32) as u32 & !0x4000_0000),
            Self::Zeros => 0.0,
            Self::Odd => match random % 11 {
                0 => -0.0,
                1 => f32::from_bits((random >> 45) as u32),
                2 => -1e-40,
                3 if random.is_multiple_of(7) => f32::INFINITY,
                4 if random.is_multiple_of(7) => f32::NAN,
                5..8 => 0.0,
                _ => bell,
            },
            Self::Outliers if random.is_multiple_of(509) => 1e20 * unit,
            Self::Outliers => bell,
        }
    }

    fn case(self, seed: u64, count: usize, inputs: usize, outputs: usize) -> Case {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            z ^ z >> 31
        };
        let w = (0..outputs * inputs).map(|_| self.value(next())).collect();
        let x = (0..count * inputs).map(|_| Self::Normal.value(next()));
        Case {
            count,
            inputs,
            outputs,
            store: Store::Set,
            x: x.collect(),
            w,
            before: vec![-0.0; count * outputs],
        }
    }
}

/// True for equal bits. Two NaN count as equal, since no instruction set promises their bits.
fn same(a: &[f32], b: &[f32]) -> bool {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
    a.len() == b.len() && a.iter().zip(b).all(same)
}

impl Case {
    /// A compact matrix, whatever it costs.
    fn compact(&self, weights: WeightType) -> PackedMatrix {
        let panels = self.outputs.div_ceil(PANEL);
        PackedMatrix::compact_at_any_cost(self.inputs, panels, weights, &[self.part()], &pool())
    }

    /// Checks that compact and plain weights give the same bits.
    fn check_compact(&self, weights: WeightType) -> Result<(), String> {
        let (plain, compact) = (self.packed(weights), self.compact(weights));
        for kernels in sets() {
            if !same(&self.run(kernels, &plain), &self.run(kernels, &compact)) {
                return Err(format!("{weights} {kernels:?}: {self:?}"));
            }
        }
        Ok(())
    }

    /// The case with weights that bf16 holds exactly.
    fn rounded_weights(mut self) -> Self {
        for w in &mut self.w {
            *w = half::bf16::from_f32(*w).to_f32();
        }
        self
    }

    fn compact_or_plain(&self) -> PackedMatrix {
        let panels = self.outputs.div_ceil(PANEL);
        let arena = &mut Arena::new(0);
        let mut packed = PackedMatrix::new(arena, self.inputs, panels, WeightType::Bf16, true);
        packed.pack(&[self.part()], &pool()).unwrap();
        packed
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn compact_products_have_the_bits_of_plain_ones(
        kind in 0..KINDS.len(),
        seed in any::<u64>(),
        inputs in 1..150_usize,
        outputs in 1..100_usize,
        store in prop_oneof![Just(Store::Set), Just(Store::Add), Just(Store::Extend)],
        undefined in any::<bool>(),
    ) {
        for count in [1, 2, 3, 4, 5, 8, 9, 12, 16, 49] {
            let mut case = KINDS[kind].case(seed, count, inputs, outputs);
            case.store = store;
            if undefined {
                case.x[seed as usize % inputs] = [f32::INFINITY, f32::NAN][count % 2];
            }
            let rounded = case.check_compact(WeightType::Bf16);
            let exact = case.rounded_weights().check_compact(WeightType::F32);
            prop_assert!(rounded.is_ok() && exact.is_ok(), "{rounded:?} {exact:?}");
        }
    }
}

/// Panels longer than the part that stays in cache, so that lists are entered in their middle.
#[test]
fn long_compact_panels_are_cut_without_a_trace() {
    for kind in KINDS {
        for count in [1, 5, 13, 49] {
            let case = kind.case(7, count, 4203, 20);
            case.check_compact(WeightType::Bf16).unwrap();
            case.rounded_weights()
                .check_compact(WeightType::F32)
                .unwrap();
        }
    }
}

/// Every word of a panel is unpacked as given, whichever bytes are in the book.
#[test]
fn what_is_packed_is_what_was_given() {
    for kind in KINDS {
        let mut case = kind.case(3, 1, 64, 16);
        let compact = case.compact(WeightType::Bf16);
        for kernels in sets() {
            // Each input in turn is one and all others are zero.
            for input in 0..64 {
                case.x.fill(0.0);
                case.x[input] = 1.0;
                let found = case.run(kernels, &compact);
                let column = |c: usize| half::bf16::from_f32(case.w[c * 64 + input]).to_f32();
                let undefined = case.w.iter().any(|w| !w.is_finite());
                for (c, found) in found.into_iter().enumerate() {
                    let expected = column(c);
                    let same = found == expected || expected.is_subnormal() && found == 0.0;
                    assert!(
                        undefined || same,
                        "{kind:?} {kernels:?}: {found} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_that_would_not_shrink_stay_plain_until_they_would() {
    let (many, few) = (
        Weights::AnyExponent.case(1, 1, 256, 64),
        Weights::Normal.case(2, 1, 256, 64),
    );
    let mut packed = many.compact_or_plain();
    assert!(!packed.is_compact());
    assert_eq!(packed.bytes(), many.packed(WeightType::Bf16).bytes());
    for case in [&few, &many, &few] {
        packed.pack(&[case.part()], &pool()).unwrap();
        for kernels in sets() {
            let plain = case.run(kernels, &case.packed(WeightType::Bf16));
            assert!(same(&plain, &case.run(kernels, &packed)));
        }
    }
    assert!(packed.is_compact());
    let plain = few.packed(WeightType::Bf16).bytes() as f64;
    assert!((0.75..0.78).contains(&(packed.bytes() as f64 / plain)));
}

#[test]
fn parts_that_alternate_find_their_lists() {
    let case = Weights::Outliers.case(5, 3, 96, 64);
    let (first, second) = case.w.split_at(32 * 96);
    let parts = [slice(first, 96, 0, 2), slice(second, 96, 1, 2)];
    let arena = &mut Arena::new(0);
    let mut plain = PackedMatrix::new(arena, 96, 4, WeightType::Bf16, false);
    plain.pack(&parts, &pool()).unwrap();
    let compact = PackedMatrix::compact_at_any_cost(96, 4, WeightType::Bf16, &parts, &pool());
    for kernels in sets() {
        let (plain, compact) = (case.run(kernels, &plain), case.run(kernels, &compact));
        assert!(same(&plain, &compact));
    }
}
