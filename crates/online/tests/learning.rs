//! The effect of every loss on a drafter, and the independence of examples.

use crate::support;

use std::path::Path;

use distill_loss::{DirectLoss, Example, NgramLoss};
use experiment::{LearnConfig, LoadOptions, LoraSettings, ObjectiveName, Plan};
use online::{LearntWeights, Update};
use support::{drafter, learner};

/// A text with direct positions, an n-gram, and a chunk of two draft and two target tokens.
fn example(seed: u32) -> Example {
    let direct = (4..9).map(|i| (i..i + 1, 1));
    support::example(seed, direct.chain([(9..12, 1), (12..14, 2), (14..16, 1)]))
}

fn settings() -> LearnConfig {
    LearnConfig {
        objective: ObjectiveName::Hybrid,
        every: 2,
        lr: 3e-3,
        ..LearnConfig::default()
    }
}

fn learn(
    config: LearnConfig,
    examples: impl Iterator<Item = Example>,
) -> (Vec<Update>, LearntWeights) {
    let mut learner = learner(config, 1).unwrap();
    let mut updates = Vec::new();
    let mut weights = LearntWeights::Whole(drafter());
    for example in examples {
        if let Some((update, new)) = learner.push(example).unwrap() {
            updates.push(update);
            weights = new;
        }
    }
    (updates, weights)
}

fn every_objective() -> Vec<LearnConfig> {
    let mut all = Vec::new();
    for direct in [
        Some(DirectLoss::ReverseKl),
        Some(DirectLoss::ForwardKl),
        Some(DirectLoss::Nll),
        Some(DirectLoss::Acceptance),
        Some(DirectLoss::LogAcceptance),
        None,
    ] {
        all.push(LearnConfig {
            direct,
            ..settings()
        });
    }
    for ngram in [
        Some(NgramLoss::Pointwise),
        Some(NgramLoss::ApproximateKl),
        None,
    ] {
        all.push(LearnConfig {
            ngram,
            ..settings()
        });
    }
    for tau in [1.0, 100.0] {
        let objective = ObjectiveName::Alm;
        all.push(LearnConfig {
            objective,
            tau,
            ..settings()
        });
    }
    all
}

#[test]
fn every_objective_falls_on_a_repeated_example() {
    for config in every_objective() {
        let (updates, _) = learn(config, (0..80).map(|i| example(i % 2)));
        let (first, last) = (&updates[0], &updates[updates.len() - 1]);
        assert_eq!(updates.len(), 40);
        assert!(first.grad_norm > 0.0, "{config:?}");
        // The rejection rate starts flat: nearly all tokens have the same sign of p - q.
        let share = if config.direct == Some(DirectLoss::Acceptance) {
            0.95
        } else {
            0.7
        };
        assert!(
            last.loss < share * first.loss.abs(),
            "{config:?}: {} to {}",
            first.loss,
            last.loss
        );
    }
}

/// A divergence weighted by the drafter's distribution would never find a token without mass.
#[test]
fn the_end_of_a_turn_is_taught_by_its_likelihood() {
    let ends = |seed| {
        let mut example = example(seed);
        example.chunks.retain(|chunk| chunk.draft.start == 4);
        for chunk in &mut example.chunks {
            (chunk.law, chunk.special) = (None, true);
        }
        example
    };
    let learnt = |direct| {
        let config = LearnConfig {
            direct,
            ..settings()
        };
        let (updates, weights) = learn(config, (0..4).map(ends));
        let losses: Vec<(usize, f64)> = updates
            .iter()
            .map(|update| (update.direct_positions, update.direct))
            .collect();
        (losses, weights)
    };
    let wanted = learnt(Some(DirectLoss::Nll));
    assert_eq!(wanted.0.len(), 2);
    for direct in [
        Some(DirectLoss::ReverseKl),
        Some(DirectLoss::ForwardKl),
        Some(DirectLoss::LogAcceptance),
    ] {
        assert_eq!(learnt(direct), wanted, "{direct:?}");
    }
}

#[test]
fn the_counts_say_what_was_scored() {
    let count = |config: LearnConfig| {
        let (updates, _) = learn(config, (0..2).map(example));
        (updates[0].direct_positions, updates[0].ngram_tokens)
    };
    assert_eq!(count(settings()), (10, 10));
    let alm = LearnConfig {
        objective: ObjectiveName::Alm,
        ..settings()
    };
    assert_eq!(count(alm), (16, 0));
    let ngram_only = LearnConfig {
        direct: None,
        ..settings()
    };
    assert_eq!(count(ngram_only), (0, 10));
    let nothing = LearnConfig {
        ngram: None,
        ..ngram_only
    };
    for config in [nothing, LearnConfig::default()] {
        let error = learner(config, 1).err().unwrap();
        assert!(error.to_string().contains("\"none\""), "{error}");
    }
}

/// Text after the last chunk, other examples' lengths and their order change nothing but rounding.
#[test]
fn examples_do_not_leak_into_each_other() {
    for config in every_objective() {
        let config = LearnConfig { every: 3, ..config };
        let step = |examples: Vec<Example>| learn(config, examples.into_iter()).0[0];
        let plain = step((0..3).map(example).collect());
        let reversed = step((0..3).rev().map(example).collect());
        let mut longer: Vec<Example> = (0..3).map(example).collect();
        longer[1].ids.extend([9; 20]);
        let padded = step(longer);
        let mut other: Vec<Example> = (0..3).map(example).collect();
        // A token that every position after it sees.
        other[1].ids[2] = (other[1].ids[2] + 1) % 50;
        let changed = step(other);
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-5 * a.abs().max(1e-3);
        for same in [reversed, padded] {
            assert!(close(plain.loss, same.loss), "{config:?}");
            assert!(close(plain.grad_norm, same.grad_norm), "{config:?}");
        }
        assert!(plain.grad_norm != changed.grad_norm, "{config:?}");
    }
}

#[test]
fn an_example_without_positions_is_no_update() {
    let mut learner = learner(settings(), 1).unwrap();
    let mut empty = example(0);
    empty.chunks.clear();
    assert!(learner.push(empty.clone()).unwrap().is_none());
    assert!(learner.push(empty).unwrap().is_none());
    assert!(learner.flush().unwrap().is_empty());
}

#[test]
fn replay_and_running_mean_are_seeded_and_off_by_default() {
    let run = |config: LearnConfig, seed: u64| {
        let mut learner = learner(config, seed).unwrap();
        let mut last = None;
        let mut positions = Vec::new();
        for i in 0..12 {
            if let Some((update, weights)) = learner.push(example(i)).unwrap() {
                positions.push(update.direct_positions);
                last = Some(weights);
            }
        }
        (positions, last.unwrap())
    };
    let plain = run(settings(), 1);
    assert_eq!(plain, run(settings(), 2));
    assert_eq!(plain.0, [10; 6]);

    let replay = LearnConfig {
        replay: 2,
        replay_window: 5,
        ..settings()
    };
    let replayed = run(replay, 1);
    assert_eq!(replayed.0, [10, 20, 20, 20, 20, 20]);
    assert_eq!(replayed, run(replay, 1));
    assert_ne!(replayed.1, run(replay, 2).1);

    let distance = |a: &LearntWeights| -> f64 {
        let start = drafter();
        let pairs = a
            .tensors()
            .iter()
            .map(|(name, t)| (t, &start.tensors[name]));
        pairs
            .flat_map(|(a, b)| a.data.iter().zip(&b.data))
            .map(|(a, b)| f64::from(a - b).powi(2))
            .sum::<f64>()
            .sqrt()
    };
    let averaged = run(
        LearnConfig {
            ema: 0.9,
            ..settings()
        },
        1,
    );
    assert_eq!(averaged.0, plain.0);
    let (mean, last) = (distance(&averaged.1), distance(&plain.1));
    assert!(mean > 0.0 && mean < 0.6 * last, "{mean} against {last}");
}

/// Table 6 of the paper, and alternatives.
#[test]
fn the_rows_of_table_6_are_different_losses() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments");
    let plan = Plan::load(&folder.join("table6.toml"), &LoadOptions::default()).unwrap();
    let arms = &plan.jobs[0].config.arms;
    let terms: Vec<_> = arms
        .iter()
        .filter(|arm| arm.learns())
        .map(|arm| learner(arm.learn, 1).unwrap().needs().losses)
        .collect();
    assert_eq!(terms.len(), 7);
    for (i, a) in terms.iter().enumerate() {
        assert!(terms[..i].iter().all(|b| a != b), "{a:?} twice");
    }
}

#[test]
fn what_is_replayed_keeps_within_its_bytes() {
    // Examples differ by a few bytes: a distribution is shorter if its token is not shared.
    let one = (0..8).map(|seed| example(seed).bytes()).max().unwrap();
    let config = LearnConfig {
        replay: 2,
        replay_window: 64,
        lora: LoraSettings {
            rank: 2,
            ..LoraSettings::default()
        },
        ..settings()
    };
    let mut learner = learner(config, 1).unwrap();
    learner.limit_replay(5 * one).unwrap();
    let mut kept = Vec::new();
    for (turn, name) in ["a", "b", "a", "a"].into_iter().enumerate() {
        learner.turn_to(name).unwrap();
        for i in 0..2 {
            learner.push(example(2 * turn as u32 + i)).unwrap();
        }
        kept.push((learner.replay_bytes().unwrap() + one / 2) / one);
    }
    // Those of both adapters together.
    assert_eq!(kept, [2, 4, 5, 5]);
}
