//! Costs of rounds on this machine, measured before the first one.

use std::ops::RangeInclusive;
use std::time::Instant;

use adaptive_draft::MeasuredCosts;
use spec_decode::{LanguageModel, ModelError};

/// Measured lengths: positions of a forward, and tokens of a draft.
// Kernels work on groups of positions, so their costs rise in steps. The cost of a length that is
// left out here is estimated from the length before it. If the estimate is too high, the length is
// never tried: results/LOG.md, 2026-11-29.
const POSITIONS: RangeInclusive<usize> = 1..=8;
const DRAFTS: [usize; 2] = [1, 4];
/// Number of tries of a measurement; the first one warms up, and the least counts.
const TRIES: usize = 3;

/// Measures forwards of the target over several numbers of positions, and drafts of several lengths
/// if there is a drafter. With assumed costs, drafts of the first answers would have the lengths of
/// another machine. The KV caches of both are left empty.
///
/// # Errors
/// A failing forward.
pub fn start_costs<T: LanguageModel, D: LanguageModel>(
    target: &mut T,
    drafter: Option<&mut D>,
) -> Result<MeasuredCosts, ModelError> {
    let mut costs = MeasuredCosts::default();
    for positions in POSITIONS {
        if let Some(seconds) = seconds_of(target, 1, positions)? {
            costs.observe_forward(positions, seconds);
        }
    }
    let Some(drafter) = drafter else {
        return Ok(costs);
    };
    for tokens in DRAFTS {
        if let Some(seconds) = seconds_of(drafter, tokens, 1)? {
            costs.observe_draft(tokens, seconds);
        }
    }
    Ok(costs)
}

/// Least seconds of `calls` forwards over `positions` each, in a KV cache that is left empty; `None`
/// if it has no room for them.
///
/// # Errors
/// A failing forward.
pub fn seconds_of<M: LanguageModel>(
    model: &mut M,
    calls: usize,
    positions: usize,
) -> Result<Option<f64>, ModelError> {
    model.truncate(0);
    if calls * positions > model.max_len() {
        return Ok(None);
    }
    let (ids, mut logits) = (vec![0; positions], Vec::new());
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let clock = Instant::now();
        for _ in 0..calls {
            model.forward(&ids, &mut logits)?;
        }
        least = least.min(clock.elapsed().as_secs_f64());
        model.truncate(0);
    }
    Ok(Some(least))
}
