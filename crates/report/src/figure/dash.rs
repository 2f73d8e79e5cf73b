//! Dashed lines, which the bitmap library cannot draw.

/// Cuts a line into dashes.
pub fn dashes(points: &[(f64, f64)], (dash, gap): (f64, f64)) -> Vec<Vec<(f64, f64)>> {
    let mut dashes: Vec<Vec<(f64, f64)>> = Vec::new();
    let (mut on, mut left) = (true, dash);
    if let Some(&first) = points.first() {
        dashes.push(vec![first]);
    }
    for pair in points.windows(2) {
        let (mut from, to) = (pair[0], pair[1]);
        loop {
            let length = (to.0 - from.0).hypot(to.1 - from.1);
            let reached = length <= left;
            let share = if reached || length == 0.0 {
                1.0
            } else {
                left / length
            };
            from = (
                from.0 + share * (to.0 - from.0),
                from.1 + share * (to.1 - from.1),
            );
            if on && let Some(line) = dashes.last_mut() {
                line.push(from);
            }
            if reached {
                left -= length;
                break;
            }
            on = !on;
            left = if on { dash } else { gap };
            if on {
                dashes.push(vec![from]);
            }
        }
    }
    dashes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_alternate_across_corners() {
        let cut = dashes(&[(0.0, 0.0), (3.0, 0.0), (3.0, 3.0)], (2.0, 1.0));
        assert_eq!(
            cut[..2],
            [vec![(0.0, 0.0), (2.0, 0.0)], vec![(3.0, 0.0), (3.0, 2.0)]]
        );
        assert!(dashes(&[], (2.0, 1.0)).is_empty());
    }
}
