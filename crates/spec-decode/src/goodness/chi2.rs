//! The upper tail of the chi-square distribution.

/// Largest number of terms. Series and continued fraction converge long before it for any argument
/// in use.
const MOST_TERMS: usize = 10_000;

/// Probability that a chi-square variable with `degrees` degrees of freedom is at least `x`.
///
/// The regularised incomplete gamma function Q(degrees / 2, x / 2): its series for `x` below
/// `degrees + 2`, its continued fraction above. With 0 degrees of freedom there is nothing to test:
/// the result is 1, or 0 for a positive `x`.
pub fn chi2_tail(x: f64, degrees: usize) -> f64 {
    if degrees == 0 {
        return if x > 0.0 { 0.0 } else { 1.0 };
    }
    if x.is_nan() || x <= 0.0 {
        return 1.0;
    }
    if x.is_infinite() {
        return 0.0;
    }
    let (a, x) = (degrees as f64 / 2.0, x / 2.0);
    let scale = (a * x.ln() - x - ln_gamma(a)).exp();
    if x < a + 1.0 {
        (1.0 - scale * series(a, x)).clamp(0.0, 1.0)
    } else {
        (scale * fraction(a, x)).clamp(0.0, 1.0)
    }
}

/// sum x^n / (a (a+1) .. (a+n)).
fn series(a: f64, x: f64) -> f64 {
    let mut term = 1.0 / a;
    let mut total = term;
    for n in 1..MOST_TERMS {
        term *= x / (a + n as f64);
        total += term;
        if term < total * f64::EPSILON {
            break;
        }
    }
    total
}

/// Legendre's continued fraction, evaluated from the front (Lentz).
fn fraction(a: f64, x: f64) -> f64 {
    let mut b = x + 1.0 - a;
    let mut c = 1.0 / f64::MIN_POSITIVE;
    let mut d = 1.0 / b;
    let mut value = d;
    for n in 1..MOST_TERMS {
        let n = n as f64;
        let coefficient = -n * (n - a);
        b += 2.0;
        d = 1.0 / nonzero(coefficient * d + b);
        c = nonzero(b + coefficient / c);
        let factor = d * c;
        value *= factor;
        if (factor - 1.0).abs() < f64::EPSILON {
            break;
        }
    }
    value
}

fn nonzero(value: f64) -> f64 {
    if value.abs() < f64::MIN_POSITIVE {
        f64::MIN_POSITIVE
    } else {
        value
    }
}

/// ln Gamma(a) for a > 0: recurrence up to 10, Stirling's series from there.
fn ln_gamma(a: f64) -> f64 {
    let (mut a, mut shift) = (a, 0.0);
    while a < 10.0 {
        shift += a.ln();
        a += 1.0;
    }
    let inverse = 1.0 / (a * a);
    let correction =
        (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / a;
    (a - 0.5) * a.ln() - a + 0.5 * (2.0 * std::f64::consts::PI).ln() + correction - shift
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_of_the_tables() {
        // (x, degrees, upper tail) from printed tables.
        let table = [
            (3.841, 1, 0.05),
            (6.635, 1, 0.01),
            (11.070, 5, 0.05),
            (18.307, 10, 0.05),
            (29.588, 10, 0.001),
            (124.342, 100, 0.05),
            (77.929, 100, 0.95),
            (1074.679, 1000, 0.05),
        ];
        for (x, degrees, tail) in table {
            let found = chi2_tail(x, degrees);
            assert!((found / tail - 1.0).abs() < 2e-3, "{x} {degrees}: {found}");
        }
    }

    #[test]
    fn two_degrees_are_the_exponential_law() {
        for x in [0.1, 1.0, 5.0, 40.0, 400.0] {
            let exact = (-x / 2.0_f64).exp();
            assert!((chi2_tail(x, 2) / exact - 1.0).abs() < 1e-10, "{x}");
        }
        assert_eq!(chi2_tail(0.0, 3), 1.0);
        assert_eq!(chi2_tail(f64::INFINITY, 3), 0.0);
    }
}
