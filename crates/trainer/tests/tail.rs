//! Training of the last blocks alone: the gradient is the whole model's, and the rest does not
//! move.

use crate::train_support;

use cpu_engine::{CpuEngine, EngineOptions};
use distill_loss::Objective;
use lm::host::Products;
use lm::{
    AdamW, AdamWConfig, Adapter, Checkpoint, LanguageModel, LmError, LoraConfig, Projections, Tail,
    TensorSource, random_checkpoint, tail_tensors,
};
use trainer::{Marked, NextToken, TailTrainer, Trainer, Unlikelihood};

use train_support::{TOLERANCE, batch, config, lively, relative_error, slices};

/// The residual stream that enters the last `blocks` blocks, for every sequence, as the engine
/// keeps it.
fn states(checkpoint: &Checkpoint, blocks: usize, batch: &[&[u32]]) -> Vec<Vec<f32>> {
    let mut engine = CpuEngine::new(checkpoint, EngineOptions::default()).unwrap();
    engine.keep_states(blocks).unwrap();
    let of = |ids: &&[u32]| engine.states_of(ids).unwrap().to_vec();
    batch.iter().map(of).collect()
}

fn rows(states: &[Vec<f32>]) -> Vec<&[f32]> {
    states.iter().map(Vec::as_slice).collect()
}

fn as_checkpoint(tail: Tail) -> Checkpoint {
    Checkpoint {
        config: tail.config,
        tensors: tail.tensors,
    }
}

/// The gradient of the last blocks is part of the whole model's, which is checked by finite
/// differences and PyTorch.
#[test]
fn the_gradient_is_that_of_the_whole_model() {
    for (kind, tied, kv_heads) in [
        ("llama", true, 2),
        ("llama", false, 4),
        ("qwen2", true, 1),
        ("qwen3", false, 2),
    ] {
        let mut config = config(kind, tied, kv_heads);
        config.num_layers = 3;
        let checkpoint = lively(&config);
        let ids = batch();
        let batch = slices(&ids);
        // Nearly all positions have a loss, or two of each text.
        let marked: Vec<Marked> = ids.iter().map(|ids| two_marks(ids)).collect();
        let all = NextToken::new(&batch);
        let few = Unlikelihood::new(&[], &marked, 8, 1.0, 0.0);
        for objective in [&all as &dyn Objective, &few] {
            let mut whole = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
            let loss: f64 = whole
                .accumulate(&batch, objective)
                .unwrap()
                .terms
                .iter()
                .sum();
            let expected = whole.gradient();
            for blocks in 1..=3 {
                let states = states(&checkpoint, blocks, &batch);
                let optimizer = AdamWConfig::default();
                let mut tail = TailTrainer::new(&checkpoint, blocks, optimizer).unwrap();
                let graded = tail.accumulate(&rows(&states), objective).unwrap();
                let found: f64 = graded.terms.iter().sum();
                assert!((found - loss).abs() < 1e-5 * loss, "{kind} {blocks}");
                let gradient = as_checkpoint(tail.gradient());
                let error = relative_error(&gradient, &expected.tensors);
                assert!(error < TOLERANCE, "{kind}, tied {tied}, {blocks}: {error}");
            }
        }
    }
}

fn two_marks(ids: &[u32]) -> Marked {
    let marks = [ids.len() / 2, ids.len() - 1];
    Marked {
        ids: ids.to_vec(),
        unwanted: marks.into_iter().filter(|place| *place > 0).collect(),
        kept: Vec::new(),
    }
}

#[test]
fn steps_move_the_last_blocks_and_their_engine_follows() {
    let mut config = config("llama", true, 2);
    config.num_layers = 4;
    let checkpoint = lively(&config);
    let ids = batch();
    let batch = slices(&ids);
    let objective = NextToken::new(&batch);
    let states = states(&checkpoint, 2, &batch);
    let train = |products: Products, steps: usize| {
        let trainer = TailTrainer::new(&checkpoint, 2, AdamWConfig::default()).unwrap();
        let mut trainer = trainer.with_products(products);
        for _ in 0..steps {
            trainer.accumulate(&rows(&states), &objective).unwrap();
            trainer.step(3e-3).unwrap();
        }
        trainer
    };
    let mut trainer = train(Products::F32, 8);
    let tail = trainer.tail();
    assert_eq!(tail.first, 2);
    let names: Vec<&String> = tail.tensors.keys().collect();
    let mut expected: Vec<String> = tail_tensors(&config, 2).into_iter().map(|t| t.0).collect();
    expected.sort();
    assert_eq!(names, expected.iter().collect::<Vec<_>>());
    for (name, tensor) in &tail.tensors {
        assert_ne!(
            tensor.data, checkpoint.tensors[name].data,
            "{name} did not move"
        );
    }

    // The whole model with these blocks has the loss that the trainer reports.
    let mut merged = checkpoint.clone();
    tail.write_over(&mut merged).unwrap();
    let mut whole = Trainer::new(&merged, AdamWConfig::default()).unwrap();
    let loss = whole.evaluate(&batch, &objective).unwrap().terms[0];
    let seen = trainer.evaluate(&rows(&states), &objective).unwrap().terms[0];
    assert!((loss - seen).abs() < 1e-5 * loss, "{loss} {seen}");
    let before = Trainer::new(&checkpoint, AdamWConfig::default());
    let before = before.unwrap().evaluate(&batch, &objective).unwrap().terms[0];
    assert!(loss < 0.95 * before, "{loss} after {before}");
    // The trainer keeps its first weights, and continues with the trained ones.
    let first = trainer.evaluate_first(&rows(&states), &objective).unwrap();
    assert!((first.terms[0] - before).abs() < 1e-5 * before);
    assert_eq!(trainer.tail(), tail);

    // An engine that loads the blocks computes the same as one with all of the weights.
    let options = EngineOptions::default;
    let mut engine = CpuEngine::new(&checkpoint, options()).unwrap();
    engine.keep_states(2).unwrap();
    engine.load_tail(&tail).unwrap();
    let mut other = CpuEngine::new(&merged, options()).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    engine.forward(batch[1], &mut ours).unwrap();
    other.forward(batch[1], &mut theirs).unwrap();
    assert_eq!(ours, theirs);
    // Nothing below the blocks moved, so the kept states are still their input.
    assert_eq!(engine.states_of(batch[1]).unwrap(), states[1]);

    // Products of bf16 numbers give nearly the same.
    let narrow = train(Products::Bf16, 8).tail();
    let error = relative_error(&as_checkpoint(narrow), &tail.tensors);
    assert!(error > 0.0 && error < 5e-2, "{error}");

    // The result can be written over an earlier tail.
    let mut earlier = Tail::of(&checkpoint, 2).unwrap();
    trainer.write_tail(&mut earlier).unwrap();
    assert_eq!(earlier, tail);
}

/// An adapter of the last block learns the same in a trainer that has all blocks, which finite
/// differences check, and in one that has this block alone.
#[test]
fn adapters_of_the_last_blocks_are_those_of_the_whole_model() {
    let mut config = config("qwen2", true, 2);
    config.num_layers = 3;
    let checkpoint = lively(&config);
    let ids = batch();
    let batch = slices(&ids);
    let objective = NextToken::new(&batch);
    let states = states(&checkpoint, 2, &batch);
    let lora = LoraConfig {
        rank: 4,
        alpha: 8.0,
        projections: Projections::ALL,
        blocks: 2,
    };
    let optimizer = AdamWConfig::default;
    let mut whole = Trainer::with_adapter(&checkpoint, optimizer(), lora, 5).unwrap();
    let mut tail = TailTrainer::with_adapter(&checkpoint, optimizer(), lora, 5).unwrap();
    assert_eq!(whole.adapter(), tail.adapter());
    assert_eq!(tail.tail(), Tail::of(&checkpoint, 2).unwrap());
    for step in 0..6 {
        let expected = whole.accumulate(&batch, &objective).unwrap().terms[0];
        let found = tail.accumulate(&rows(&states), &objective).unwrap().terms[0];
        assert!((expected - found).abs() < 1e-5 * expected, "step {step}");
        let expected = as_tensors(whole.adapter_gradient().unwrap());
        let found = as_tensors(tail.adapter_gradient().unwrap());
        let error = relative_error(&found, &expected.tensors);
        assert!(error < TOLERANCE, "step {step}: {error}");
        whole.step(3e-3).unwrap();
        tail.step(3e-3).unwrap();
    }
    let adapter = tail.adapter().unwrap();
    assert_eq!(adapter.tensors.len(), 2 * 2 * 7);
    assert_eq!(adapter.num_params(), lora.num_params(&config));

    // The decoding model is the one with the adapter merged; the first weights are still available.
    let mut merged = checkpoint.clone();
    merged.merge(&adapter).unwrap();
    assert_eq!(tail.tail(), Tail::of(&merged, 2).unwrap());
    let mut before = Trainer::new(&checkpoint, optimizer()).unwrap();
    let before = before.evaluate(&batch, &objective).unwrap().terms[0];
    let after = tail.evaluate(&rows(&states), &objective).unwrap().terms[0];
    let first = tail
        .evaluate_first(&rows(&states), &objective)
        .unwrap()
        .terms[0];
    assert!(after < before && (first - before).abs() < 1e-5 * before);

    // Another adapter takes its place and does not change the first weights.
    let mut fresh = tail.fresh_adapter(9).unwrap();
    tail.swap_adapter(&mut fresh).unwrap();
    let again = tail
        .evaluate_first(&rows(&states), &objective)
        .unwrap()
        .terms[0];
    assert_eq!(again, first);
    assert_eq!(tail.tail(), Tail::of(&checkpoint, 2).unwrap());
    let weights = Tail::of(&checkpoint, 2).unwrap();
    assert!(tail.load(&weights, AdamW::new(optimizer())).is_err());
    tail.swap_adapter(&mut fresh).unwrap();
    assert_eq!(tail.tail(), Tail::of(&merged, 2).unwrap());
    assert!(
        tail.gradient()
            .tensors
            .values()
            .all(|t| t.data.iter().all(|g| *g == 0.0))
    );

    // Files name the blocks as PEFT does.
    let folder = tempfile::tempdir().unwrap();
    adapter.save(folder.path(), "base").unwrap();
    let path = folder.path().join(lm::ADAPTER_CONFIG);
    let text = std::fs::read_to_string(&path).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["layers_to_transform"], serde_json::json!([1, 2]));
    assert_eq!(Adapter::load(folder.path(), &config).unwrap(), adapter);
    std::fs::write(&path, text.replace("[\n    1,\n    2\n  ]", "[0, 1]")).unwrap();
    let error = Adapter::load(folder.path(), &config)
        .unwrap_err()
        .to_string();
    assert!(error.contains("layers_to_transform"), "{error}");
}

fn as_tensors(adapter: Adapter) -> Checkpoint {
    Checkpoint {
        config: config("qwen2", true, 2),
        tensors: adapter.tensors,
    }
}

#[test]
fn training_goes_on_where_it_was_saved() {
    let checkpoint = lively(&config("qwen2", true, 2));
    let ids = batch();
    let batch = slices(&ids);
    let objective = NextToken::new(&batch);
    let states = states(&checkpoint, 1, &batch);
    let fresh = || TailTrainer::new(&checkpoint, 1, AdamWConfig::default()).unwrap();
    let step = |trainer: &mut TailTrainer| {
        trainer.accumulate(&rows(&states), &objective).unwrap();
        trainer.step(1e-3).unwrap();
    };
    let mut uninterrupted = fresh();
    (0..4).for_each(|_| step(&mut uninterrupted));
    let mut first = fresh();
    (0..2).for_each(|_| step(&mut first));
    let mut second = fresh();
    second
        .load(&first.tail(), first.optimizer().clone())
        .unwrap();
    (0..2).for_each(|_| step(&mut second));
    assert_eq!(second.tail(), uninterrupted.tail());
}

#[test]
fn what_does_not_fit_is_refused() {
    let checkpoint = random_checkpoint(&config("llama", true, 2), 1);
    for blocks in [0, 3] {
        let made = TailTrainer::new(&checkpoint, blocks, AdamWConfig::default());
        let error = made.err().unwrap();
        assert!(matches!(error, LmError::Blocks { of: 2, .. }), "{error}");
        assert!(Tail::of(&checkpoint, blocks).is_err());
        let mut engine = CpuEngine::new(&checkpoint, EngineOptions::default()).unwrap();
        assert!(engine.keep_states(blocks).is_err());
    }
    let mut trainer = TailTrainer::new(&checkpoint, 1, AdamWConfig::default()).unwrap();
    let (ids, odd) = ([1, 2], [0.0; 25]);
    let batch = [&ids[..]];
    let odd = trainer.accumulate(&[&odd], &NextToken::new(&batch));
    assert!(matches!(
        odd,
        Err(LmError::States {
            found: 25,
            width: 24
        })
    ));
    // Another number of blocks, another model, moments of another number of blocks.
    let two = Tail::of(&checkpoint, 2).unwrap();
    let fresh = || AdamW::new(AdamWConfig::default());
    assert!(trainer.load(&two, fresh()).is_err());
    let other = random_checkpoint(&config("llama", true, 4), 1);
    assert!(
        trainer
            .load(&Tail::of(&other, 1).unwrap(), fresh())
            .is_err()
    );
    assert!(trainer.write_tail(&mut two.clone()).is_err());
    let mut short = Tail::of(&checkpoint, 1).unwrap();
    short.tensors.pop_last();
    assert!(TensorSource::check(&short).is_err());
    let mut engine = CpuEngine::new(&checkpoint, EngineOptions::default()).unwrap();
    assert!(engine.load_tail(&short).is_err());
    assert!(engine.load_tail(&Tail::of(&other, 1).unwrap()).is_err());
}
