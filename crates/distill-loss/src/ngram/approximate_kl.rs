//! Reverse KL where a target token is merged from several draft tokens, through the lifted distribution
//! of Eq. 2.

use crate::direct::reverse_kl::reverse_kl;
use crate::rows::{likelihood_gradient, log_sum_exp, softmax};

/// Probabilities below this are treated as this where a logarithm is taken of a difference.
const LEAST: f64 = 1e-6;

/// A target token `t` that is merged from the draft tokens `d_1..d_n`, with the target's probabilities there.
pub struct Merged<'a> {
    /// `[shared]`, draft ids of the shared tokens, ascending.
    pub shared: &'a [u32],
    /// `[shared]`, `ln p` at the shared tokens, finite; overwritten.
    pub teacher: &'a mut Vec<f32>,
    /// `ln p(t)`, at most 0.
    pub log_prob: f64,
    /// `d_1..d_n`, at least two.
    pub spelling: &'a [u32],
    /// The shared token that is `t` by itself, if there is one.
    pub direct: Option<u32>,
}

/// Approximate `KL(q' || p)` on the shared tokens, the merged token and the first sub-token.
///
/// Let `q` be the softmax over the shared tokens and `d_1`, and `pi = prod_{j>1} q_j(d_j)` the
/// probability that the n-gram continues after `d_1`. Eq. 2 gives `t` the probability `q(d_1) pi`,
/// the direct token of `d_1` the remainder, `q(d_1) (1 - pi)`, and every other shared token its
/// `q`. The target's probability of the direct token of `d_1` is `p_1`; if there is no such token,
/// `p_1` is all of the target's mass that is neither shared nor on `t`. If `t` also has a direct
/// token `d_t`, both ways to `t` are one event of probability `s = q(d_t) + q(d_1) pi` (without
/// `d_t`, `q(d_t) = 0`). So
///
/// `L = sum_{i != d_1, d_t} q_i ln(q_i / p_i) + s ln(s / p(t)) + q(d_1) (1 - pi) ln(q(d_1) (1 - pi) / p_1)`.
///
/// With `m = ln s - ln p(t)` and `l = ln q(d_1) + ln(1 - pi) - ln p_1` this is [`reverse_kl`] with
/// the teacher's logarithm `ln q(d_1) - pi m - (1 - pi) l` at `d_1` and `ln q(d_t) - m` at `d_t`;
/// later rows get `dL / d ln pi = q(d_1) pi (m - l)` times the gradient of their log-likelihood.
///
/// Returns `L` in nats, without the factor `weight`.
///
/// # Shapes
/// - `logits`: `[spelling, draft_vocab]`, row `j` predicts `spelling[j]`; replaced by `weight`
///   times the gradient
///
/// # Panics
/// If the rows do not fit the n-gram, the teacher does not fit the shared tokens, or an id is no column.
pub fn approximate_kl(logits: &mut [f32], merged: Merged<'_>, weight: f64) -> f64 {
    let Merged {
        shared,
        teacher,
        log_prob,
        spelling,
        direct,
    } = merged;
    assert_eq!(shared.len(), teacher.len(), "a law over other columns");
    let Some((first, later)) = spelling.split_first() else {
        return 0.0;
    };
    let width = logits.len() / spelling.len();
    assert_eq!(
        width * spelling.len(),
        logits.len(),
        "a row for every token"
    );
    let (row, later_rows) = logits.split_at_mut(width);

    let mut log_pi = 0.0;
    for (row, label) in later_rows.chunks_exact_mut(width).zip(later) {
        log_pi += softmax(row, *label as usize);
    }
    let pi = log_pi.exp().min(1.0 - LEAST);
    let log_left = (1.0 - pi).ln();

    let own = direct.and_then(|id| shared.binary_search(&id).ok());
    let mut columns = shared.to_vec();
    let place = shared.binary_search(first).unwrap_or_else(|_| {
        let mass: f64 = teacher.iter().map(|x| f64::from(*x).exp()).sum();
        let merged = if own.is_some() { 0.0 } else { log_prob.exp() };
        columns.push(*first);
        teacher.push((1.0 - mass - merged).max(LEAST).ln() as f32);
        shared.len()
    });
    let own = own.filter(|own| *own != place);
    let mut picked: Vec<f32> = columns.iter().map(|id| row[*id as usize]).collect();
    let log_sum = log_sum_exp(&picked);
    let log_q = |column: usize| f64::from(picked[column]) - log_sum;
    let log_first = log_q(place);
    // ln s, less ln q(d_1): the merged token's whole proposal.
    let log_merged = match own.map(|own| log_q(own) - log_first) {
        Some(other) => other.max(log_pi) + (-(other - log_pi).abs()).exp().ln_1p(),
        None => log_pi,
    };
    // Both less ln q(d_1).
    let (merge, leave) = (log_merged - log_prob, log_left - f64::from(teacher[place]));
    if let Some(own) = own {
        teacher[own] = (log_q(own) - log_first - merge) as f32;
    }
    teacher[place] = -(pi * merge + (1.0 - pi) * leave) as f32;

    let loss = reverse_kl(&mut picked, teacher, weight);
    row.fill(0.0);
    for (id, gradient) in columns.iter().zip(&picked) {
        row[*id as usize] = *gradient;
    }
    let slope = log_first.exp() * pi * (merge - leave);
    for (row, label) in later_rows.chunks_exact_mut(width).zip(later) {
        likelihood_gradient(row, *label as usize, -weight * slope);
    }
    loss
}
