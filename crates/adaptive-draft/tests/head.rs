//! Files of heads and of their training; a stopping rule driven by a head.

use adaptive_draft::{AcceptanceStop, Example, Head, HeadConfig, HeadError, HeadTrainer, SCALARS};
use spec_decode::{DraftPolicy, DraftStep, Purpose, StreamName};
use vocab_align::DraftId;

fn examples(n: usize, seed: u64) -> Vec<Example> {
    let mut dice = StreamName::new(seed, 0).dice(Purpose::Plain);
    let example = |_| {
        let features: Vec<f32> = (0..5).map(|_| 2.0 * dice.uniform() as f32 - 1.0).collect();
        let label = if features[0] > 0.0 { 1.0 } else { 0.0 };
        Example { features, label }
    };
    (0..n).map(example).collect()
}

fn train(trainer: &mut HeadTrainer, rounds: std::ops::Range<u64>) -> Vec<f64> {
    let mut losses = Vec::new();
    for round in rounds {
        trainer.extend(examples(40, round));
        let report = if round % 3 == 0 {
            trainer.step_on_fresh()
        } else {
            trainer.step_on_buffer()
        };
        losses.push(report.unwrap().unwrap().loss);
    }
    losses
}

#[test]
fn training_goes_on_bit_by_bit_from_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.safetensors");
    for hidden in [0, 6] {
        let config = HeadConfig {
            hidden,
            buffer: 300,
            batch: 32,
            ..HeadConfig::default()
        };
        let fresh = || HeadTrainer::new(Head::new(5, hidden, 7), config, 7);
        let mut whole = fresh();
        let losses = train(&mut whole, 0..40);

        let mut parts = fresh();
        train(&mut parts, 0..17);
        parts.extend(examples(9, 99));
        parts.save(&path).unwrap();
        let mut other = HeadTrainer::load(&path, config, 7).unwrap();
        assert_eq!(other.head(), parts.head());
        assert_eq!(train(&mut other, 17..40), train(&mut parts, 17..40));
        assert_eq!(other.head(), parts.head());
        // Without the nine additional examples, the file of an earlier moment leads to the same
        // end.
        let mut parts = fresh();
        train(&mut parts, 0..17);
        parts.save(&path).unwrap();
        let mut resumed = HeadTrainer::load(&path, config, 7).unwrap();
        assert_eq!(train(&mut resumed, 17..40), losses[17..]);
        assert_eq!(resumed.head(), whole.head());

        whole.head().save(&path).unwrap();
        assert_eq!(&Head::load(&path).unwrap(), whole.head());
        assert!(matches!(
            HeadTrainer::load(&path, config, 7),
            Err(HeadError::MissingTensor {
                tensor: "steps",
                ..
            })
        ));
    }
    std::fs::write(&path, b"no tensors").unwrap();
    assert!(Head::load(&path).is_err());
    // A probability of 0 has no logarithm to learn from. What is damaged in a file is said.
    let mut trainer = HeadTrainer::new(Head::new(2, 0, 1), HeadConfig::default(), 1);
    let example = |feature| Example {
        features: vec![feature, 0.5],
        label: 1.0,
    };
    trainer.extend([example(f32::NEG_INFINITY), example(-0.5)]);
    trainer.step_on_buffer().unwrap().unwrap();
    trainer.save(&path).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(4)
        .rposition(|four| four == 0.5_f32.to_le_bytes());
    bytes[at.unwrap()..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&path, bytes).unwrap();
    let told = HeadTrainer::load(&path, HeadConfig::default(), 1)
        .err()
        .unwrap();
    assert!(told.to_string().contains("`buffer_features`"), "{told}");
}

/// A head without hidden-state features that accepts tokens of which the drafter is sure.
fn confident() -> Head {
    let config = HeadConfig {
        hidden: 0,
        lr: 0.05,
        ..HeadConfig::default()
    };
    let mut trainer = HeadTrainer::new(Head::new(2, 0, 1), config, 1);
    let example = |i: usize| {
        let log_prob = -(i as f32) / 25.0;
        Example {
            features: vec![log_prob, 0.7],
            label: if log_prob > -2.0 { 1.0 } else { 0.0 },
        }
    };
    trainer.extend((0..100).map(example));
    for _ in 0..800 {
        trainer.step_on_buffer().unwrap();
    }
    trainer.head().clone()
}

fn drafted(policy: &mut AcceptanceStop<'_>, logits: &[(f32, bool)]) -> usize {
    let most = policy.next_len();
    for (position, &(logit, open)) in logits.iter().take(most).enumerate() {
        let stop = policy.stop_after(&DraftStep {
            position,
            token: DraftId(0),
            probability: 1.0,
            logits: &[logit, 0.0],
            state: &[],
            open,
        });
        if stop {
            return position + 1;
        }
    }
    most.min(logits.len())
}

#[test]
fn eq_5_stops_where_a_rejection_is_probable_but_not_inside_an_ngram() {
    let head = confident();
    let sure = (4.0, false);
    let unsure = |open| (-6.0, open);
    let mut policy = AcceptanceStop::new(&head, 6, 0.5, true).unwrap();
    assert_eq!(drafted(&mut policy, &[sure; 8]), 6);
    assert_eq!(drafted(&mut policy, &[sure, unsure(false), sure, sure]), 2);
    assert_eq!(
        drafted(&mut policy, &[sure, unsure(true), (4.0, true), sure, sure]),
        4
    );
    // Never beyond k, even inside an n-gram.
    assert_eq!(drafted(&mut policy, &[unsure(true); 9]), 6);
    let mut free = AcceptanceStop::new(&head, 6, 0.5, false).unwrap();
    assert_eq!(drafted(&mut free, &[sure, unsure(true), sure]), 2);
    let mut patient = AcceptanceStop::new(&head, 6, 1.0, false).unwrap();
    assert_eq!(drafted(&mut patient, &[unsure(false); 6]), 6);
}

/// A head for a drafter of Llama-68M's width takes less than 0.1% of that drafter's bf16 file; an
/// adapter of rank 8 takes 0.4% (`lm`, `lora.rs`).
#[test]
fn a_head_is_a_small_part_of_the_drafter_on_disk() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("head.safetensors");
    let head = Head::new(768 + SCALARS, HeadConfig::default().hidden, 1);
    head.save(&path).unwrap();
    let written = std::fs::metadata(&path).unwrap().len();
    assert!(written >= 4 * head.weights().len() as u64);
    assert!(written * 1000 < 2 * 68_000_000, "{written} bytes");
}
