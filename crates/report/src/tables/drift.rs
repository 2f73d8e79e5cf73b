//! Recovery of arms after the stream switches task or target.

use crate::beside::NeverSwitched;
use crate::model::{Entry, Number, Table};
use crate::streams::{Streams, over};
use results::Metric;

/// Share of a plateau that counts as recovered.
pub const RECOVERED_SHARE: f64 = 0.95;

/// Recovery of one arm in one segment after the first.
#[derive(Debug, Clone, PartialEq)]
pub struct Recovery {
    pub arm: String,
    pub segment: u32,
    /// Title of the segment before and of this one, `a → b`.
    pub switch: String,
    /// Acceptance rate over the last quarter of the segment before.
    pub before: Option<f64>,
    /// Acceptance rate over the segment's first window.
    pub start: f64,
    /// Acceptance rate over the segment's last quarter.
    pub plateau: f64,
    /// The same of an arm that saw only this segment, if there is one.
    pub alone: Option<f64>,
    /// Common plateau of all arms: the minimum over the arms that learn (over all, if none does).
    /// By their own plateaus, an arm that ends higher would seem to recover later.
    pub common: f64,
    /// Number of prompts of the segment until the trailing average reaches 95% of the common
    /// plateau for good: it is never below that again for as long as a window. The length of the
    /// window if its first full position reaches it.
    pub prompts: Option<usize>,
    /// The same for the arm's own plateau.
    pub own_prompts: Option<usize>,
    /// Length of the trailing window in prompts.
    pub window: usize,
}

/// (sum, weight) of acceptance at each position of a segment, seeds pooled.
type Pooled = Vec<(f64, f64)>;

/// Recovery of every drafting arm in every segment after the first, seeds pooled; empty without
/// drift.
pub fn recoveries(
    streams: &Streams,
    never_switched: &[NeverSwitched],
    window: usize,
) -> Vec<Recovery> {
    if !streams.continual {
        return Vec::new();
    }
    let anyone_learns = !streams.learning().is_empty();
    let mut recoveries = Vec::new();
    for pair in streams.segments.windows(2) {
        let [from, to] = pair else { continue };
        let mut measured = Vec::new();
        for arm in streams.drafting() {
            let prompts = pool(streams, arm, to.index);
            if let Some(ends) = ends(&prompts, window) {
                measured.push((arm, prompts, ends));
            }
        }
        let held = measured
            .iter()
            .filter(|(arm, ..)| !anyone_learns || streams.learnt(arm));
        let common = held
            .map(|(.., (_, plateau))| *plateau)
            .fold(f64::INFINITY, f64::min);
        for (arm, prompts, (start, plateau)) in measured {
            let before = ends(&pool(streams, arm, from.index), window);
            recoveries.push(Recovery {
                arm: arm.to_owned(),
                segment: to.index,
                switch: format!("{} → {}", from.title, to.title),
                before: before.map(|(_, plateau)| plateau),
                start,
                plateau,
                alone: never_switched
                    .iter()
                    .find(|never| never.curve.arm == arm && never.curve.segment == to.index)
                    .map(|never| never.plateau),
                common,
                prompts: recovered(&prompts, window, common),
                own_prompts: recovered(&prompts, window, plateau),
                window,
            });
        }
    }
    recoveries
}

/// Acceptance of an arm over the last quarter of a segment, seeds pooled.
pub fn plateau(streams: &Streams, arm: &str, segment: u32, window: usize) -> Option<f64> {
    ends(&pool(streams, arm, segment), window).map(|(_, plateau)| plateau)
}

/// Sums over seeds at each position of the segment, up to the length of the shortest seed's stream.
fn pool(streams: &Streams, arm: &str, segment: u32) -> Pooled {
    let seeds = streams.streams(arm, segment);
    let length = seeds.iter().map(|seed| seed.len()).min().unwrap_or(0);
    let at = |index: usize| {
        let answers = seeds.iter().filter_map(|seed| seed.get(index));
        answers.fold((0.0, 0.0), |(sum, weight), answer| {
            let judged = f64::from(answer.row.judged_rounds);
            match over(Metric::Acceptance, [*answer]) {
                Some(rate) => (sum + rate * judged, weight + judged),
                None => (sum, weight),
            }
        })
    };
    (0..length).map(at).collect()
}

/// Acceptance rate over the first window and over the last quarter of a segment, which is at least
/// a window; `None` if the segment is shorter than a window or nothing was drafted.
fn ends(prompts: &[(f64, f64)], window: usize) -> Option<(f64, f64)> {
    if prompts.len() < window || window == 0 {
        return None;
    }
    let quarter = (prompts.len() / 4).max(window);
    let last = prompts.get(prompts.len() - quarter..)?;
    Some((acceptance(prompts.get(..window)?)?, acceptance(last)?))
}

/// Number of prompts until the average of a trailing window reaches 95% of `plateau` for good: it
/// is not below that again for as many prompts as the window has.
fn recovered(prompts: &[(f64, f64)], window: usize, plateau: f64) -> Option<usize> {
    let (mut reached, mut below) = (None, 0);
    for seen in window..=prompts.len() {
        let recent = prompts.get(seen - window..seen);
        let rate = recent.and_then(acceptance);
        if rate.is_some_and(|rate| rate >= RECOVERED_SHARE * plateau) {
            reached.get_or_insert(seen);
            below = 0;
        } else {
            below += 1;
            if below >= window {
                reached = None;
            }
        }
    }
    reached
}

fn acceptance(prompts: &[(f64, f64)]) -> Option<f64> {
    let sum: f64 = prompts.iter().map(|prompt| prompt.0).sum();
    let weight: f64 = prompts.iter().map(|prompt| prompt.1).sum();
    (weight > 0.0).then(|| sum / weight)
}

/// The table of recoveries; `None` if there are none.
pub fn table(recoveries: &[Recovery], id: &str, of: &str) -> Option<Table> {
    let window = recoveries.first()?.window;
    let anyone_alone = recoveries.iter().any(|row| row.alone.is_some());
    let alone = match anyone_alone {
        true => " Alone: the last quarter of a stream of that segment's prompts and no others.",
        false => "",
    };
    let rate = |value: Option<f64>| Entry::printed(value, 3, "");
    let prompts = |prompts: Option<usize>| match prompts {
        Some(seen) if seen == window => {
            Entry::number(Number::plain(seen as f64, format!("≤ {seen}")))
        }
        Some(seen) => Entry::count(seen),
        None => Entry::missing("never"),
    };
    let row = |row: &Recovery| {
        let mut entries = vec![
            ("switch", Entry::text(&row.switch)),
            ("arm", Entry::text(&row.arm)),
            ("before", rate(row.before)),
            ("first window", rate(Some(row.start))),
            ("own plateau", rate(Some(row.plateau))),
            ("common plateau", rate(Some(row.common))),
            ("prompts to common", prompts(row.prompts)),
            ("prompts to own", prompts(row.own_prompts)),
        ];
        if anyone_alone {
            entries.push(("plateau alone", rate(row.alone)));
        }
        entries
    };
    let title = match of {
        "" => "Recovery after a switch".to_owned(),
        of => format!("Recovery after a switch, {of}"),
    };
    let lead = format!(
        "Rule: prompts after the switch until the acceptance of the last {window} prompts reaches 95% \
         of a plateau for good, that is, does not stay below it for {window} prompts again. An arm's own plateau is its acceptance over the segment's last quarter; the \
         common one is the lowest of the arms that learn, so that an arm is not late for ending \
         higher. ≤ {window}: there from the first full window; two counts closer than {window} are \
         not told apart. Seeds pooled. Before: acceptance over the last quarter before the switch.{alone}"
    );
    Table::of(id, title, lead, recoveries.iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompts(rates: &[f64]) -> Pooled {
        rates.iter().map(|rate| (10.0 * rate, 10.0)).collect()
    }

    #[test]
    fn recovery_by_hand() {
        // 0.1 for four prompts, 0.2 for four, then 0.4 for eight. Plateau (last quarter): 0.4,
        // threshold 0.38. Windows of two: prompts 8 and 9 average 0.3, prompts 9 and 10 average
        // 0.4: recovered after 10. Half that plateau: prompts 5 and 6 average 0.2.
        let prompts = prompts(&[[0.1; 4], [0.2; 4], [0.4; 4], [0.4; 4]].concat());
        let (start, plateau) = ends(&prompts, 2).unwrap();
        assert!((plateau - 0.4).abs() < 1e-12);
        assert!((start - 0.1).abs() < 1e-12);
        assert_eq!(recovered(&prompts, 2, plateau), Some(10));
        assert_eq!(recovered(&prompts, 2, 0.2), Some(6));
        assert_eq!(recovered(&prompts, 2, 0.9), None);
    }

    #[test]
    fn what_falls_again_has_not_recovered() {
        // At 0.4 after two prompts; one window in the middle is lower, then three are, then it is
        // back.
        let rates = [0.4, 0.4, 0.4, 0.3, 0.4, 0.4, 0.3, 0.3, 0.4, 0.4, 0.4];
        // Averages of two from the second prompt on: 0.4 0.4 0.35 0.35 0.4 0.35 0.3 0.35 0.4 0.4.
        assert_eq!(recovered(&prompts(&rates), 2, 0.4), Some(10));
        assert_eq!(recovered(&prompts(&rates), 2, 0.35), Some(2));
        assert_eq!(recovered(&prompts(&rates[..8]), 2, 0.4), None);
        // A single window below is noise.
        let noise = [0.4, 0.4, 0.4, 0.36, 0.4, 0.4];
        assert_eq!(recovered(&prompts(&noise), 3, 0.4), Some(3));
    }

    #[test]
    fn a_segment_shorter_than_a_window_has_no_recovery() {
        assert_eq!(ends(&prompts(&[0.3]), 2), None);
        assert_eq!(ends(&[], 0), None);
        assert_eq!(ends(&[(0.0, 0.0); 4], 2), None);
    }
}
