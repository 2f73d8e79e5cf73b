//! Hand-worked values, invariances, finite differences.

use burn::tensor::{Device, Int, Tensor};
use distill_loss::{HybridLoss, negative_log_likelihood, reverse_kl};

fn rows<const N: usize>(values: [[f32; 3]; N], device: &Device) -> Tensor<2> {
    Tensor::from_floats(values, device)
}

fn numbers(x: Tensor<1>) -> Vec<f32> {
    x.try_into_vec_as::<f32>().unwrap()
}

#[test]
fn reverse_kl_is_zero_at_the_teacher_and_shifts_by_the_missing_mass() {
    let device = Device::flex();
    let law = [[0.2f32.ln(), 0.3f32.ln(), 0.5f32.ln()]];
    let same = numbers(reverse_kl(rows(law, &device), rows(law, &device)).unwrap());
    assert!(same[0].abs() < 1e-6, "{same:?}");
    // The teacher keeps only half its mass on the shared tokens: KL rises by ln 2 exactly.
    let half = law.map(|row| row.map(|x| x - 2f32.ln()));
    let shifted = numbers(reverse_kl(rows(law, &device), rows(half, &device)).unwrap());
    assert!((shifted[0] - 2f32.ln()).abs() < 1e-6, "{shifted:?}");
}

#[test]
fn likelihood_of_labels_is_that_of_the_softmax() {
    let device = Device::flex();
    let logits = rows([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], &device);
    let labels = Tensor::<1, Int>::from_ints([2, 0], &device);
    let loss = numbers(negative_log_likelihood(logits, labels).unwrap());
    let first = -(3f32.exp() / (1f32.exp() + 2f32.exp() + 3f32.exp())).ln();
    assert!(
        (loss[0] - first).abs() < 1e-6 && (loss[1] - 3f32.ln()).abs() < 1e-6,
        "{loss:?}"
    );
}

#[test]
fn the_total_weighs_the_terms_and_skips_absent_ones() {
    let device = Device::flex();
    let term = |values: &[f32]| Some(Tensor::<1>::from_floats(values, &device));
    let total = |direct, ngram| {
        HybridLoss::new(direct, ngram)
            .total(0.2)
            .map(|t| numbers(t)[0])
    };
    assert_eq!(total(term(&[1.0, 3.0]), term(&[5.0])), Some(3.0));
    assert_eq!(total(term(&[1.0, 3.0]), None), Some(2.0));
    assert_eq!(total(None, term(&[5.0])), Some(1.0));
    assert_eq!(total(None, None), None);
}

#[test]
fn mismatched_shapes_are_refused() {
    let device = Device::flex();
    let two = rows([[0.0; 3]; 2], &device);
    let one = rows([[0.0; 3]], &device);
    assert!(
        reverse_kl(two.clone(), one)
            .unwrap_err()
            .to_string()
            .contains("[2, 3]")
    );
    let labels = Tensor::<1, Int>::from_ints([0], &device);
    assert!(negative_log_likelihood(two, labels).is_err());
}

#[test]
fn gradients_agree_with_finite_differences() {
    const STEP: f32 = 1e-2;
    let plain = Device::flex();
    let logits = [[0.3, -0.7, 1.1], [0.0, 0.4, -0.2]];
    let teacher = [[-0.5, -1.5, -2.5], [-3.0, -0.2, -2.0]];
    let loss = |logits: [[f32; 3]; 2], device: &Device| {
        let student = rows(logits, device);
        let student = if device.is_autodiff() {
            student.require_grad()
        } else {
            student
        };
        let labels = Tensor::<1, Int>::from_ints([1, 2], device);
        let direct = reverse_kl(student.clone(), rows(teacher, device)).unwrap();
        let ngram = negative_log_likelihood(student.clone(), labels).unwrap();
        (
            student,
            HybridLoss::new(Some(direct), Some(ngram))
                .total(0.2)
                .unwrap(),
        )
    };
    let (student, total) = loss(logits, &plain.clone().autodiff());
    let grads = total.backward();
    let analytic = student
        .grad(&grads)
        .unwrap()
        .try_into_vec_as::<f32>()
        .unwrap();
    for (i, gradient) in analytic.iter().enumerate() {
        let moved = |by: f32| {
            let mut changed = logits;
            changed[i / 3][i % 3] += by;
            numbers(loss(changed, &plain).1)[0]
        };
        let numeric = (moved(STEP) - moved(-STEP)) / (2.0 * STEP);
        assert!(
            (gradient - numeric).abs() < 1e-3,
            "entry {i}: {gradient} against {numeric}"
        );
    }
}
