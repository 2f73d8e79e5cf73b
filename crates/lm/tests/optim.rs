//! AdamW compared with its definition, one number at a time in f64.

use lm::{AdamW, AdamWConfig, LmError};

const CONFIG: AdamWConfig = AdamWConfig {
    beta1: 0.9,
    beta2: 0.99,
    epsilon: 1e-8,
    weight_decay: 0.1,
    max_grad_norm: Some(2.0),
};

/// A weight and its moments.
#[derive(Clone, Copy)]
struct Plain {
    weight: f64,
    first: f64,
    second: f64,
}

impl Plain {
    fn step(&mut self, gradient: f64, number: i32, lr: f64) {
        self.first = CONFIG.beta1 * self.first + (1.0 - CONFIG.beta1) * gradient;
        self.second = CONFIG.beta2 * self.second + (1.0 - CONFIG.beta2) * gradient * gradient;
        let first = self.first / (1.0 - CONFIG.beta1.powi(number));
        let second = self.second / (1.0 - CONFIG.beta2.powi(number));
        self.weight -= lr * CONFIG.weight_decay * self.weight;
        self.weight -= lr * first / (second.sqrt() + CONFIG.epsilon);
    }
}

#[test]
fn steps_follow_the_definition() {
    let mut weights = [1.0_f32, -0.5, 0.25, 0.75, -2.0];
    let plain = |x: &f32| Plain {
        weight: f64::from(*x),
        first: 0.0,
        second: 0.0,
    };
    let mut expected: Vec<Plain> = weights.iter().map(plain).collect();
    let mut optimizer = AdamW::new(CONFIG);
    for number in 1..=4 {
        // Alternately longer and shorter than the limit.
        let size = if number % 2 == 0 { 0.125_f32 } else { 4.0 };
        let grads = [0.5, -1.0, 0.25, -0.75, 0.0].map(|g| g * size);
        let norm = optimizer.step_flat(&mut weights, &grads, 1e-2);
        let length = f64::from(size) * (0.25_f64 + 1.0 + 0.0625 + 0.5625).sqrt();
        assert!((norm.unwrap() - length).abs() < 1e-6);
        let scale = (2.0 / length).min(1.0);
        for (plain, gradient) in expected.iter_mut().zip(&grads) {
            plain.step(f64::from(*gradient) * scale, number, 1e-2);
        }
    }
    for (found, expected) in weights.iter().zip(&expected) {
        assert!((f64::from(*found) - expected.weight).abs() < 1e-6);
    }
    assert_eq!(optimizer.steps(), 4);
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let mut optimizer = AdamW::new(CONFIG);
    let mut weights = [1.0, 2.0];
    let error = optimizer.step_flat(&mut weights, &[f32::NAN, 1.0], 0.1);
    assert!(matches!(error, Err(LmError::Device(_))));
    assert_eq!((weights, optimizer.steps()), ([1.0, 2.0], 0));
}
