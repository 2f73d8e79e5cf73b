//! Top-k, top-p and min-p: each keeps a prefix of the tokens in order of probability.

use std::cmp::Ordering;

use super::SamplingOptions;
use super::softmax::sum;

/// Number of tokens that are sorted at first if the number to keep is unknown.
const FIRST_SORTED: usize = 64;

/// Sets the weight of every token that the options do not keep to 0. Returns false, and changes
/// nothing, if no option is set.
///
/// `law` holds non-negative weights that need not sum to 1. Tokens are ordered by weight, of equal
/// ones the lower id first, so that the kept set is a function of the weights alone.
pub(super) fn truncate(law: &mut [f64], options: &SamplingOptions) -> bool {
    if !options.truncates() {
        return false;
    }
    let mut order: Vec<u32> = (0..law.len() as u32)
        .filter(|&id| law[id as usize] > 0.0)
        .collect();
    let largest = law.iter().fold(0.0, |held: f64, &mass| held.max(mass));
    if options.top_k > 0 && options.top_k < order.len() {
        order.select_nth_unstable_by(options.top_k - 1, |&a, &b| by_weight(law, a, b));
        order.truncate(options.top_k);
    }
    if options.top_p < 1.0 {
        keep_mass(law, &mut order, options.top_p);
    }
    let least = options.min_p * largest;
    let kept: Vec<(u32, f64)> = order
        .into_iter()
        .map(|id| (id, law[id as usize]))
        .filter(|&(_, mass)| mass >= least)
        .collect();
    law.fill(0.0);
    for (id, mass) in kept {
        law[id as usize] = mass;
    }
    true
}

fn by_weight(law: &[f64], a: u32, b: u32) -> Ordering {
    law[b as usize].total_cmp(&law[a as usize]).then(a.cmp(&b))
}

/// Keeps the shortest prefix whose share of the weight of `order` reaches `share`. Sorts no more of
/// it than necessary.
fn keep_mass(law: &[f64], order: &mut Vec<u32>, share: f64) {
    // In order of ids, so that the total does not depend on the order that the selection left.
    order.sort_unstable();
    let masses: Vec<f64> = order.iter().map(|&id| law[id as usize]).collect();
    let wanted = share * sum(&masses);
    let (mut sorted, mut held) = (0, 0.0);
    while sorted < order.len() {
        let until = (sorted * 4).max(FIRST_SORTED).min(order.len());
        let rest = &mut order[sorted..];
        if until - sorted < rest.len() {
            rest.select_nth_unstable_by(until - sorted, |&a, &b| by_weight(law, a, b));
        }
        order[sorted..until].sort_unstable_by(|&a, &b| by_weight(law, a, b));
        for at in sorted..until {
            held += law[order[at] as usize];
            if held >= wanted {
                order.truncate(at + 1);
                return;
            }
        }
        sorted = until;
    }
}
