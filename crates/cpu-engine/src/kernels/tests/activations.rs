//! Gated activations and soft caps compared with their definitions in f64.

use lm::Activation;

use super::super::vector::{GateMul, SoftCap};
use super::sets;
use crate::kernels::Kernels;

const ALL: [Activation; 4] = [
    Activation::Silu,
    Activation::Gelu,
    Activation::GeluTanh,
    Activation::Relu,
];

/// The share of a standard normal distribution below `x`, by Simpson's rule from 0.
fn normal_share(x: f64) -> f64 {
    const STEPS: usize = 2000;
    let density = |y: f64| (-0.5 * y * y).exp() / (2.0 * std::f64::consts::PI).sqrt();
    let end = x.clamp(-12.0, 12.0);
    let step = end / STEPS as f64;
    let inner = (1..STEPS).map(|i| {
        let weight = if i % 2 == 1 { 4.0 } else { 2.0 };
        weight * density(i as f64 * step)
    });
    0.5 + step / 3.0 * (density(0.0) + inner.sum::<f64>() + density(end))
}

fn exact(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::Gelu => x * normal_share(x),
        Activation::GeluTanh => {
            let u = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044_715 * x * x * x);
            0.5 * x * (1.0 + u.tanh())
        }
        Activation::Relu => x.max(0.0),
    }
}

fn gated(kernels: Kernels, activation: Activation, gate: &[f32], up: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; gate.len()];
    kernels.run(GateMul {
        activation,
        gate,
        up,
        out: &mut out,
    });
    out
}

#[test]
fn activations_match_f64() {
    for kernels in sets() {
        for activation in ALL {
            // Error of the approximation of the normal distribution.
            let slack = match activation {
                Activation::Gelu => 3e-7,
                Activation::GeluTanh => 1e-7,
                Activation::Silu | Activation::Relu => 1e-30,
            };
            for len in [1, 7, 8, 16, 19, 300] {
                let step = 24.0 / len as f32;
                let gate: Vec<f32> = (0..len).map(|i| i as f32 * step - 11.7).collect();
                let up: Vec<f32> = (0..len).map(|i| 0.3 * (i % 19) as f32 - 1.0).collect();
                let out = gated(kernels, activation, &gate, &up);
                for ((gate, up), out) in gate.iter().zip(&up).zip(&out) {
                    let up = f64::from(*up);
                    let exact = exact(activation, f64::from(*gate)) * up;
                    let error = (f64::from(*out) - exact).abs();
                    let bound = 2e-6 * exact.abs() + slack * up.abs();
                    assert!(error <= bound, "{activation:?} {gate}: {error:e}");
                }
            }
            let extreme = gated(kernels, activation, &[-1e30, 1e30, f32::NAN], &[1.0; 3]);
            assert!(extreme[0].abs() < 1e-7, "{activation:?}");
            assert_eq!(extreme[1], 1e30, "{activation:?}");
            assert!(extreme[2].is_nan(), "{activation:?}");
        }
    }
}

#[test]
fn soft_caps_match_f64_and_do_not_depend_on_neighbours() {
    for kernels in sets() {
        for (factor, cap) in [(0.25, 50.0), (1.0, 30.0)] {
            let values: Vec<f32> = (0..45).map(|i| (i as f32 - 20.0) * 9.3).collect();
            let mut capped = values.clone();
            kernels.run(SoftCap {
                values: &mut capped,
                factor,
                cap,
            });
            for (i, (value, capped)) in values.iter().zip(&capped).enumerate() {
                let (cap, scaled) = (f64::from(cap), f64::from(value * factor));
                let exact = cap * (scaled / cap).tanh();
                assert!((f64::from(*capped) - exact).abs() < 2e-7 * cap);
                let mut alone = [values[i]];
                kernels.run(SoftCap {
                    values: &mut alone,
                    factor,
                    cap: cap as f32,
                });
                assert_eq!(alone[0].to_bits(), capped.to_bits());
            }
        }
    }
}
