//! Every loss against its equation written out in f64, its gradient against central differences,
//! and its invariances.

use distill_loss::{
    DirectLoss, Merged, alm, approximate_kl, log_sum_exp, ngram_likelihood, reverse_kl,
};

/// Relative deviation allowed between f32 and the equation in f64.
const TOLERANCE: f64 = 1e-5;
const STEP: f64 = 1e-5;

const DIRECT: [DirectLoss; 5] = [
    DirectLoss::ReverseKl,
    DirectLoss::ForwardKl,
    DirectLoss::Nll,
    DirectLoss::Acceptance,
    DirectLoss::LogAcceptance,
];

/// Numbers without a pattern in `-scale..scale`.
fn numbers(len: usize, seed: u64, scale: f64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Through f32, so that both precisions see the same inputs.
            f64::from(((state >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0) as f32)
                * f64::from(scale as f32)
        })
        .map(|x| f64::from(x as f32))
        .collect()
}

fn log_softmax(x: &[f64]) -> Vec<f64> {
    let max = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = x.iter().map(|x| (x - max).exp()).sum();
    x.iter().map(|x| x - max - sum.ln()).collect()
}

/// A law that leaves `missing` of its mass elsewhere.
fn teacher(len: usize, seed: u64, missing: f64) -> Vec<f64> {
    log_softmax(&numbers(len, seed, 4.0))
        .iter()
        .map(|x| f64::from((x + (1.0 - missing).ln()) as f32))
        .collect()
}

fn to_f32(x: &[f64]) -> Vec<f32> {
    x.iter().map(|x| *x as f32).collect()
}

fn expected(loss: DirectLoss, logits: &[f64], log_p: &[f64], label: usize) -> f64 {
    let log_q = log_softmax(logits);
    let pairs = || log_q.iter().copied().zip(log_p.iter().copied());
    let accepted = || -> f64 { pairs().map(|(q, p)| q.min(p).exp()).sum() };
    match loss {
        DirectLoss::ReverseKl => pairs().map(|(q, p)| q.exp() * (q - p)).sum(),
        DirectLoss::ForwardKl => pairs().map(|(q, p)| p.exp() * (p - q)).sum(),
        DirectLoss::Nll => -log_q[label],
        DirectLoss::Acceptance => 1.0 - accepted(),
        DirectLoss::LogAcceptance => -accepted().ln(),
    }
}

/// Central differences of `loss` at `logits`.
fn differences(logits: &[f64], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let moved = |i: usize, by: f64| {
        let mut x = logits.to_vec();
        x[i] += by;
        loss(&x)
    };
    (0..logits.len())
        .map(|i| (moved(i, STEP) - moved(i, -STEP)) / (2.0 * STEP))
        .collect()
}

fn assert_close(name: &str, ours: &[f32], expected: &[f64]) {
    let norm = expected.iter().map(|x| x * x).sum::<f64>().sqrt();
    let error = ours
        .iter()
        .zip(expected)
        .map(|(a, b)| (f64::from(*a) - b).powi(2))
        .sum::<f64>()
        .sqrt();
    assert!(
        ours.len() == expected.len() && norm > 1e-6 && error < TOLERANCE * norm,
        "{name}: gradient off by {error} of {norm}"
    );
}

#[test]
fn direct_losses_match_their_equations_and_finite_differences() {
    for (len, missing, scale) in [(2, 0.1, 1.0), (37, 0.0, 3.0), (1500, 0.6, 8.0)] {
        let logits = numbers(len, 3, scale);
        let law = teacher(len, 5, missing);
        let label = len / 2;
        for loss in DIRECT {
            let name = format!("{loss:?} over {len}");
            let value = expected(loss, &logits, &law, label);
            let weight = 0.25;
            let mut gradient = to_f32(&logits);
            let ours = loss.grade(&mut gradient, &mut to_f32(&law), label, weight);
            assert!(
                (ours - value).abs() < TOLERANCE * value.abs().max(0.1),
                "{name}: {ours} against {value}"
            );
            let numeric = differences(&logits, |x| weight * expected(loss, x, &law, label));
            assert_close(&name, &gradient, &numeric);
        }
    }
}

#[test]
fn at_the_teacher_nothing_moves() {
    let law = teacher(50, 9, 0.0);
    for loss in DIRECT {
        if loss == DirectLoss::Nll {
            continue;
        }
        let mut gradient = to_f32(&law);
        let value = loss.grade(&mut gradient, &mut to_f32(&law), 0, 1.0);
        let largest = gradient.iter().fold(0.0f32, |a, x| a.max(x.abs()));
        assert!(value.abs() < 1e-6, "{loss:?}: {value}");
        // At equality every subgradient between those of the two sides of `min` is one.
        let kink = matches!(loss, DirectLoss::Acceptance | DirectLoss::LogAcceptance);
        assert!(kink || largest < 1e-6, "{loss:?}: {largest}");
    }
}

#[test]
fn missing_mass_shifts_reverse_kl_and_leaves_its_gradient() {
    let (logits, law) = (numbers(40, 1, 2.0), teacher(40, 2, 0.0));
    let grade = |missing: f64| {
        let mut gradient = to_f32(&logits);
        let mut law = to_f32(
            &law.iter()
                .map(|x| x + (1.0 - missing).ln())
                .collect::<Vec<_>>(),
        );
        (reverse_kl(&mut gradient, &mut law, 1.0), gradient)
    };
    let (whole, half) = (grade(0.0), grade(0.5));
    assert!((half.0 - whole.0 - 2f64.ln()).abs() < 1e-6);
    let far = whole.1.iter().zip(&half.1).map(|(a, b)| (a - b).abs());
    assert!(far.fold(0.0, f32::max) < 1e-6);
}

#[test]
fn columns_may_be_permuted_and_logits_shifted() {
    let (len, label) = (100, 17);
    let (logits, law) = (to_f32(&numbers(len, 7, 3.0)), to_f32(&teacher(len, 8, 0.2)));
    let order: Vec<usize> = (0..len).map(|i| (i * 37 + 11) % len).collect();
    let new_label = order.iter().position(|i| *i == label).unwrap();
    for loss in DIRECT {
        let mut plain = logits.clone();
        let value = loss.grade(&mut plain, &mut law.clone(), label, 1.0);
        let mut permuted: Vec<f32> = order.iter().map(|i| logits[*i]).collect();
        let mut permuted_law: Vec<f32> = order.iter().map(|i| law[*i]).collect();
        let other = loss.grade(&mut permuted, &mut permuted_law, new_label, 1.0);
        assert!((value - other).abs() < 1e-6, "{loss:?}: {value} {other}");
        for (to, from) in order.iter().enumerate() {
            assert!((permuted[to] - plain[*from]).abs() < 1e-6, "{loss:?}");
        }
        // Shifts by powers of two are exact: the very same bits.
        let mut shifted: Vec<f32> = logits
            .iter()
            .map(|x| (x * 1024.0).round() / 1024.0)
            .collect();
        let mut base = shifted.clone();
        shifted.iter_mut().for_each(|x| *x += 64.0);
        let value = loss.grade(&mut base, &mut law.clone(), label, 1.0);
        let other = loss.grade(&mut shifted, &mut law.clone(), label, 1.0);
        assert!((value - other).abs() < 1e-12, "{loss:?}: {value} {other}");
        assert_eq!(base, shifted, "{loss:?}");
    }
}

#[test]
fn columns_without_probability_change_nothing() {
    let (logits, law) = (to_f32(&numbers(33, 4, 2.0)), to_f32(&teacher(33, 6, 0.3)));
    for loss in DIRECT {
        let mut plain = logits.clone();
        let value = loss.grade(&mut plain, &mut law.clone(), 5, 1.0);
        let (mut padded, mut padded_law) = (logits.clone(), law.clone());
        padded.extend([-1e4; 20]);
        padded_law.extend([-100.0; 20]);
        let other = loss.grade(&mut padded, &mut padded_law, 5, 1.0);
        assert!((value - other).abs() < 1e-6, "{loss:?}: {value} {other}");
        assert!(padded[33..].iter().all(|g| g.abs() < 1e-12), "{loss:?}");
        assert!(plain.iter().zip(&padded).all(|(a, b)| (a - b).abs() < 1e-6));
    }
}

#[test]
fn extreme_logits_stay_finite() {
    let law = [-1e-3f32, -100.0, -7.0];
    for loss in DIRECT {
        for logits in [[1e4, -1e4, 0.0], [-1e4, 1e4, 0.0], [88.0, 88.0, -90.0]] {
            let mut gradient = logits;
            let value = loss.grade(&mut gradient, &mut law.clone(), 0, 1.0);
            assert!(
                value.is_finite() && gradient.iter().all(|x| x.is_finite()),
                "{loss:?} {logits:?}: {value} {gradient:?}"
            );
        }
        let mut broken = [0.0, f32::NAN, 1.0];
        let value = loss.grade(&mut broken, &mut law.clone(), 0, 1.0);
        assert!(
            value.is_nan() || broken.iter().any(|x| x.is_nan()),
            "{loss:?} hides a NaN"
        );
    }
}

#[test]
fn sums_of_exponentials_match_f64() {
    for len in [1, 16, 1024, 5000] {
        let logits = numbers(len, 2, 20.0);
        let exact = logits[0] - log_softmax(&logits)[0];
        assert!((log_sum_exp(&to_f32(&logits)) - exact).abs() < 1e-5);
    }
    assert_eq!(log_sum_exp(&[]), f64::NEG_INFINITY);
}

/// `sum_j ln q_j(labels_j)` of rows of `width`.
fn likelihood(logits: &[f64], labels: &[u32], width: usize) -> f64 {
    let rows = logits.chunks(width).zip(labels);
    rows.map(|(row, label)| log_softmax(row)[*label as usize])
        .sum()
}

#[test]
fn n_gram_likelihood_matches_its_equation() {
    let (width, labels) = (60, [3u32, 59, 0]);
    let logits = numbers(width * labels.len(), 12, 3.0);
    let mut gradient = to_f32(&logits);
    let value = ngram_likelihood(&mut gradient, &labels, 0.5);
    assert!((value + likelihood(&logits, &labels, width)).abs() < 1e-5);
    let numeric = differences(&logits, |x| -0.5 * likelihood(x, &labels, width));
    assert_close("n-gram", &gradient, &numeric);
}

#[test]
fn alm_matches_its_equation() {
    let (width, labels) = (40, [7u32, 21]);
    let logits = numbers(width * labels.len(), 13, 3.0);
    for (tau, log_p) in [(1.0f64, -0.3f64), (1.0, -9.0), (100.0, -0.3), (5.0, -4.0)] {
        let equation = |x: &[f64]| {
            let a = (log_p / tau).exp();
            let b = (likelihood(x, &labels, width) / tau).exp();
            a * (a / b).ln() + (1.0 - a) * ((1.0 - a) / (1.0 - b)).ln()
        };
        let mut gradient = to_f32(&logits);
        let value = alm(&mut gradient, &labels, log_p, tau, 2.0);
        let exact = equation(&logits);
        assert!((value - exact).abs() < TOLERANCE * exact.max(1e-3));
        let numeric = differences(&logits, |x| 2.0 * equation(x));
        assert_close("alm", &gradient, &numeric);
    }
    let equal = distill_loss::binarised_kl(-0.7, -0.7, 3.0);
    assert!(equal.value.abs() < 1e-12 && equal.slope.abs() < 1e-12);
    let certain = distill_loss::binarised_kl(0.0, -0.7, 1.0);
    assert!(certain.value.is_finite() && certain.slope > 0.0);
}

/// The lifted law of Eq. 2 event by event, and its KL: every target token is one event.
fn lifted(x: &[f64], merged: &Lifted<'_>) -> f64 {
    let Lifted {
        shared,
        law,
        log_t,
        spelling,
        own,
        width,
    } = *merged;
    let mut columns = shared.to_vec();
    let direct = shared.iter().position(|id| *id == spelling[0]);
    let first = direct.unwrap_or_else(|| {
        columns.push(spelling[0]);
        shared.len()
    });
    let own = own.and_then(|own| shared.iter().position(|id| *id == own));
    let picked: Vec<f64> = columns.iter().map(|id| x[*id as usize]).collect();
    let q: Vec<f64> = log_softmax(&picked).iter().map(|x| x.exp()).collect();
    let goes_on = likelihood(&x[width..], &spelling[1..], width).exp();
    let mut events: Vec<(f64, f64)> = q.iter().copied().zip(law.iter().map(|x| x.exp())).collect();
    let alone = if own.is_some() { 0.0 } else { log_t.exp() };
    let rest = 1.0 - events.iter().map(|(_, p)| p).sum::<f64>() - alone;
    if direct.is_none() {
        events.truncate(shared.len());
        events.push((q[first], rest));
    }
    events[first].0 *= 1.0 - goes_on;
    match own {
        Some(own) => events[own].0 += q[first] * goes_on,
        None => events.push((q[first] * goes_on, log_t.exp())),
    }
    let total: f64 = events.iter().map(|(q, _)| q).sum();
    assert!((total - 1.0).abs() < 1e-9, "a law: {total}");
    events.iter().map(|(q, p)| q * (q / p).ln()).sum()
}

/// The value that [`lifted`] lifts.
struct Lifted<'a> {
    shared: &'a [u32],
    law: &'a [f64],
    log_t: f64,
    spelling: &'a [u32],
    own: Option<u32>,
    width: usize,
}

#[test]
fn approximate_kl_matches_the_lifted_law() {
    let width = 30;
    let shared: Vec<u32> = (0..30).filter(|id| id % 3 != 1).collect();
    let law = teacher(shared.len(), 21, 0.4);
    for spelling in [vec![6u32, 1], vec![7, 0, 29], vec![29, 29, 4, 7]] {
        let logits = numbers(width * spelling.len(), 22, 2.0);
        // Spelled only, of much and of little mass; a token of its own, frequent and rare.
        for (log_t, own) in [
            (-1.2f64, None),
            (-6.0, None),
            (0.0, Some(0u32)),
            (0.0, Some(27)),
        ] {
            let at = own.and_then(|own| shared.binary_search(&own).ok());
            let log_t = at.map_or(log_t, |at| law[at]);
            let spelled = Lifted {
                shared: &shared,
                law: &law,
                log_t,
                spelling: &spelling,
                own,
                width,
            };
            let equation = |x: &[f64]| lifted(x, &spelled);
            let mut gradient = to_f32(&logits);
            let merged = Merged {
                shared: &shared,
                teacher: &mut to_f32(&law),
                log_prob: log_t,
                spelling: &spelling,
                direct: own,
            };
            let value = approximate_kl(&mut gradient, merged, 0.3);
            let exact = equation(&logits);
            assert!((value - exact).abs() < TOLERANCE * exact, "{value} {exact}");
            let numeric = differences(&logits, |x| 0.3 * equation(x));
            assert_close(&format!("{spelling:?} {own:?}"), &gradient, &numeric);
        }
    }
}
