//! Passes over a whole row of logits. They are written so that the compiler vectorises them, and
//! are compiled for wider vectors beside the baseline. Operations are never fused, so every
//! processor computes the same bits.

use multiversion::multiversion;

use crate::LawError;

/// Number of independent partial results of a reduction: a whole number of vector registers of any
/// width, and enough to hide the latency of an addition.
const LANES: usize = 16;
/// Number of logits compared at once in a search.
const BLOCK: usize = 64;
/// Number of terms summed in f32 before the sum moves to f64.
const SUMMED: usize = 512;

/// Exponent below which a weight is 0. e^-708 is the smallest power that is a normal f64. Beside a
/// largest weight of 1, anything below is lost to rounding in every sum.
pub(super) const UNDERFLOW: f64 = -708.0;

/// Column of the largest logit; the lowest of equal ones.
///
/// # Errors
/// [`LawError::Logit`] for NaN or `+inf` anywhere, [`LawError::NoMass`] if all are `-inf`.
pub fn argmax(logits: &[f32]) -> Result<usize, LawError> {
    let largest = largest(logits)?;
    let column = first_of(logits, largest);
    column
        .filter(|_| largest > f32::NEG_INFINITY)
        .ok_or(LawError::NoMass {
            candidates: logits.len(),
        })
}

/// Column of the first logit with this value.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
fn first_of(logits: &[f32], value: f32) -> Option<usize> {
    let (blocks, rest) = logits.as_chunks::<BLOCK>();
    let mut start = 0;
    // A search stops at any logit, and so looks at one after the other; a block is compared at once.
    for block in blocks {
        let mut holds = false;
        for logit in block {
            holds |= *logit == value;
        }
        if holds {
            return block.iter().position(|x| *x == value).map(|i| start + i);
        }
        start += BLOCK;
    }
    rest.iter().position(|x| *x == value).map(|i| start + i)
}

/// Column of the largest logit that is in none of the columns `without`, which rise; `None` if no
/// other has a chance.
pub(crate) fn argmax_without(logits: &[f32], without: &[usize]) -> Option<usize> {
    let (mut best, mut start) = (None, 0);
    for end in without.iter().copied().chain([logits.len()]) {
        let found = logits.get(start..end).and_then(|part| argmax(part).ok());
        if let Some(column) = found.map(|column| start + column)
            && best.is_none_or(|best: usize| logits[column] > logits[best])
        {
            best = Some(column);
        }
        start = end + 1;
    }
    best
}

fn largest(logits: &[f32]) -> Result<f32, LawError> {
    largest_possible(logits).ok_or_else(|| {
        let at = logits.iter().position(|&logit| is_impossible(logit));
        let token = at.unwrap_or_default();
        LawError::Logit {
            token,
            value: logits[token],
        }
    })
}

/// The largest logit, minus infinity if there is none; `None` if any logit is NaN or `+inf`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub fn largest_possible(logits: &[f32]) -> Option<f32> {
    let mut most = [f32::NEG_INFINITY; LANES];
    // Words as wide as a logit, so that one register holds as many.
    let mut impossible = [0u32; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let logit = chunk[lane];
            impossible[lane] |= u32::from(is_impossible(logit));
            most[lane] = if logit > most[lane] {
                logit
            } else {
                most[lane]
            };
        }
    }
    let found = impossible != [0; LANES] || rest.iter().any(|&logit| is_impossible(logit));
    let all = most.iter().chain(rest);
    (!found).then(|| all.fold(f32::NEG_INFINITY, |held, &logit| held.max(logit)))
}

#[inline(always)]
fn is_impossible(logit: f32) -> bool {
    logit.is_nan() | (logit == f32::INFINITY)
}

/// Sum of many numbers in a fixed order.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub(crate) fn sum(values: &[f64]) -> f64 {
    let mut partial = [0.0; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            partial[lane] += chunk[lane];
        }
    }
    partial.iter().chain(rest).sum()
}

/// `law[i] = e^((logits[i] - largest) / temperature)`, at most 1, for logits that are numbers or
/// `-inf`; nothing overflows. The slices must have equal lengths. Returns the [`sum`].
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub(super) fn weigh(logits: &[f32], largest: f32, temperature: f64, law: &mut [f64]) -> f64 {
    let (largest, inverse) = (f64::from(largest), 1.0 / temperature);
    let exponent = |logit: f32| (f64::from(logit) - largest) * inverse;
    let mut partial = [0.0; LANES];
    let (chunks, rest) = law.as_chunks_mut::<LANES>();
    let (logits, last) = logits.as_chunks::<LANES>();
    for (masses, logits) in chunks.iter_mut().zip(logits) {
        let mut some = false;
        for lane in 0..LANES {
            masses[lane] = exponent(logits[lane]);
            some |= masses[lane] >= UNDERFLOW;
        }
        // At low temperatures, and if much is masked, nearly all weights are 0.
        if !some {
            masses.fill(0.0);
            continue;
        }
        for lane in 0..LANES {
            masses[lane] = exp(masses[lane]);
            partial[lane] += masses[lane];
        }
    }
    for (mass, &logit) in rest.iter_mut().zip(last) {
        *mass = exp(exponent(logit));
    }
    partial.iter().chain(&*rest).sum()
}

/// Sums of `e^x` and `x e^x` over `x = logit - largest` of logits that are numbers or `-inf`, at most
/// `largest`, with a relative error of 1e-6. `x` counts as -80 if it is below that.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub fn moments(logits: &[f32], largest: f32) -> (f64, f64) {
    let (mut total, mut weighted) = (0.0f64, 0.0f64);
    for block in logits.chunks(SUMMED) {
        let (mut sum, mut moment) = ([0.0f32; LANES], [0.0f32; LANES]);
        let (chunks, rest) = block.as_chunks::<LANES>();
        for chunk in chunks {
            for lane in 0..LANES {
                let (e, x) = single(chunk[lane] - largest);
                sum[lane] += e;
                moment[lane] += e * x;
            }
        }
        for (lane, logit) in rest.iter().enumerate() {
            let (e, x) = single(logit - largest);
            sum[lane] += e;
            moment[lane] += e * x;
        }
        total += f64::from(sum.iter().sum::<f32>());
        weighted += f64::from(moment.iter().sum::<f32>());
    }
    (total, weighted)
}

/// `e^x` for `x <= 0` with a relative error of 3e-7, and x limited from below.
#[inline(always)]
fn single(x: f32) -> (f32, f32) {
    /// Below this exponent a power adds nothing to a sum that holds a 1.
    const LOWEST: f32 = -80.0;
    /// Adding this number rounds to an integer in the low mantissa bits.
    const ROUND: f32 = 12_582_912.0;
    let x = if x > LOWEST { x } else { LOWEST };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let r = x - (shifted - ROUND) * std::f32::consts::LN_2;
    // Taylor on |r| <= ln 2 / 2.
    let p = 1.0 + r * (1.0 + r * (0.5 + r * (1.0 / 6.0 + r * (1.0 / 24.0 + r * (1.0 / 120.0)))));
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1f32.to_bits()));
    (p * power, x)
}

/// Multiplies all values by `factor`.
#[multiversion(targets("x86_64+avx512f+avx512vl+avx512dq", "x86_64+avx2"))]
pub(super) fn scale(law: &mut [f64], factor: f64) {
    law.iter_mut().for_each(|mass| *mass *= factor);
}

/// Coefficients 1/0!, 1/1!, .. 1/13!. On |r| <= (ln 2) / 2 the first omitted term is below 2^-57.
const TAYLOR: [f64; 14] = [
    1.0,
    1.0,
    1.0 / 2.0,
    1.0 / 6.0,
    1.0 / 24.0,
    1.0 / 120.0,
    1.0 / 720.0,
    1.0 / 5_040.0,
    1.0 / 40_320.0,
    1.0 / 362_880.0,
    1.0 / 3_628_800.0,
    1.0 / 39_916_800.0,
    1.0 / 479_001_600.0,
    1.0 / 6_227_020_800.0,
];

/// Adding this number rounds a small f64 to an integer, which is then in the low bits of the
/// mantissa.
const TO_INTEGER: f64 = 6_755_399_441_055_744.0;

/// ln 2 in two parts. The first has trailing zeros, so that its product with an exponent is exact.
const LN_2_HIGH: f64 = 6.931_471_803_691_238e-1;
const LN_2_LOW: f64 = 1.908_214_929_270_587_7e-10;

/// e^x for x <= 0, within a few ulps and without branches, because no compiler vectorises a call of
/// libm.
#[inline(always)]
fn exp(x: f64) -> f64 {
    let bounded = if x < UNDERFLOW { UNDERFLOW } else { x };
    let shifted = bounded * std::f64::consts::LOG2_E + TO_INTEGER;
    let power = shifted - TO_INTEGER;
    let r = bounded - power * LN_2_HIGH - power * LN_2_LOW;
    let mut series = TAYLOR[13];
    for &term in TAYLOR[..13].iter().rev() {
        series = series * r + term;
    }
    // `power` is at least -1022 here, so the biased exponent stays positive.
    let two_to_power = f64::from_bits(shifted.to_bits().wrapping_add(1023) << 52);
    if x < UNDERFLOW {
        0.0
    } else {
        series * two_to_power
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exponential_is_the_exponential() {
        for step in 0..200_000 {
            let x = -f64::from(step) * 708.0 / 200_000.0;
            let relative = (exp(x) / x.exp() - 1.0).abs();
            assert!(relative < 4.0 * f64::EPSILON, "e^{x}: {relative:e}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(UNDERFLOW - 1e-9), 0.0);
        assert_eq!(exp(f64::NEG_INFINITY), 0.0);
        assert!(exp(UNDERFLOW).is_normal());
    }

    #[test]
    fn rows_of_any_length() {
        for length in (0..70).chain([128, 200]) {
            let values: Vec<f64> = (0..length).map(f64::from).collect();
            let expected = f64::from(length * (length - 1)) / 2.0;
            assert_eq!(sum(&values), expected);
            let row: Vec<f32> = values.iter().map(|&v| v as f32).collect();
            if length > 0 {
                assert_eq!(argmax(&row), Ok(length as usize - 1));
                // The first of equal ones.
                let level = vec![1.0; length as usize];
                assert_eq!(argmax(&level), Ok(0));
                let mut broken = row.clone();
                broken[length as usize / 2] = f32::NAN;
                let token = length as usize / 2;
                assert!(
                    matches!(argmax(&broken), Err(LawError::Logit { token: t, .. }) if t == token)
                );
            }
        }
    }
}
