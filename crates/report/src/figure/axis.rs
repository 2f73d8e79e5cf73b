//! Ranges and ticks.

/// A numeric axis: its range, which ends on ticks, and its ticks.
#[derive(Debug, Clone, PartialEq)]
pub struct Axis {
    pub low: f64,
    pub high: f64,
    /// Ticks in increasing order.
    pub ticks: Vec<f64>,
    decimals: usize,
    log: bool,
}

impl Axis {
    /// An axis over `low..=high`, widened to ticks at 1, 2 or 5 times a power of ten, about `count`
    /// of them.
    pub fn widened(low: f64, high: f64, count: usize) -> Self {
        let (low, high) = ordered(low, high);
        let step = step(high - low, count);
        let first = (low / step + 1e-9).floor();
        let last = (high / step - 1e-9).ceil().max(first + 1.0);
        Self {
            low: first * step,
            high: last * step,
            ticks: (0..=(last - first) as usize)
                .map(|i| (first + i as f64) * step)
                .collect(),
            decimals: decimals(step),
            log: false,
        }
    }

    /// A logarithmic axis over the powers of ten around `low..=high`.
    pub fn log(low: f64, high: f64) -> Self {
        let low = if low.is_finite() { low.max(1e-9) } else { 1.0 };
        let high = if high.is_finite() { high.max(low) } else { low };
        let first = (low.log10() + 1e-9).floor() as i32;
        let last = ((high.log10() - 1e-9).ceil() as i32).max(first + 1);
        Self {
            low: 10f64.powi(first),
            high: 10f64.powi(last),
            ticks: (first..=last).map(|power| 10f64.powi(power)).collect(),
            decimals: (-first).max(0) as usize,
            log: true,
        }
    }

    /// An axis over exactly `low..=high` with the ticks that fall inside.
    pub fn exact(low: f64, high: f64, count: usize) -> Self {
        let (low, high) = ordered(low, high);
        let mut axis = Self::widened(low, high, count);
        let slack = (high - low) * 1e-9;
        axis.ticks
            .retain(|tick| (low - slack..=high + slack).contains(tick));
        (axis.low, axis.high) = (low, high);
        axis
    }

    /// Position of a value as a share of the range, clamped to it.
    pub fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// A tick's text, with as many decimals as the step needs.
    pub fn label(&self, tick: f64) -> String {
        let text = format!("{tick:.*}", self.decimals);
        let digits = text.trim_start_matches('-');
        if digits.chars().all(|c| matches!(c, '0' | '.')) {
            return digits.to_owned();
        }
        match self.decimals {
            0 => thousands(&text),
            _ => text,
        }
    }
}

/// Finite bounds with low < high.
fn ordered(low: f64, high: f64) -> (f64, f64) {
    match (low.is_finite(), high.is_finite()) {
        (true, true) if low < high => (low, high),
        (true, _) => (low, low + low.abs().max(1.0)),
        _ => (0.0, 1.0),
    }
}

/// 1, 2 or 5 times a power of ten, so that `span` holds about `count` steps.
fn step(span: f64, count: usize) -> f64 {
    let rough = span / count.max(1) as f64;
    let power = 10f64.powf(rough.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .find(|step| step * power >= rough * 0.999_999)
        .unwrap_or(10.0);
    step * power
}

fn decimals(step: f64) -> usize {
    (-(step * 1.000_001).log10().floor()).clamp(0.0, 9.0) as usize
}

fn thousands(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |d| ("-", d));
    let mut text = String::from(sign);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len() > 4 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let axis = Axis::widened(0.0, 0.43, 5);
        let labels: Vec<_> = axis.ticks.iter().map(|&t| axis.label(t)).collect();
        assert_eq!(labels, ["0.0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        let axis = Axis::exact(1.0, 480.0, 5);
        let labels: Vec<_> = axis.ticks.iter().map(|&t| axis.label(t)).collect();
        assert_eq!(labels, ["100", "200", "300", "400"]);
    }

    #[test]
    fn logarithmic_axes_end_on_powers_of_ten() {
        let axis = Axis::log(1.0, 430.0);
        let labels: Vec<_> = axis.ticks.iter().map(|&t| axis.label(t)).collect();
        assert_eq!(labels, ["1", "10", "100", "1000"]);
        assert!((axis.share(10.0) - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(axis.share(0.0), 0.0);
        assert_eq!(
            Axis::log(f64::INFINITY, f64::NEG_INFINITY).ticks,
            [1.0, 10.0]
        );
    }

    #[test]
    fn degenerate_ranges_still_have_an_extent() {
        for (low, high) in [
            (0.0, 0.0),
            (3.0, 3.0),
            (f64::NAN, 1.0),
            (f64::INFINITY, 0.0),
        ] {
            let axis = Axis::widened(low, high, 4);
            assert!(axis.high > axis.low, "{low} {high}");
            assert!(axis.ticks.len() >= 2);
        }
    }

    #[test]
    fn large_numbers_are_grouped_and_zero_has_no_sign() {
        let axis = Axis::widened(0.0, 20_000.0, 4);
        assert_eq!(axis.label(20_000.0), "20,000");
        assert_eq!(axis.label(-0.0), "0");
        assert_eq!(axis.label(5_000.0), "5000");
    }
}
