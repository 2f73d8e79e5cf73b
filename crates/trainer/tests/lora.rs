//! Adapters: gradients, agreement with full fine-tuning, files, switching.

use crate::train_support;

use std::path::Path;

use cpu_engine::{Compact, CpuEngine, EngineOptions, PackedWeights};
use lm::{
    AdamW, AdamWConfig, Adapter, Checkpoint, LanguageModel, LmConfig, LmError, LoraConfig,
    Projection, Projections, WeightType, random_checkpoint, read_safetensors,
};
use trainer::{NextToken, Trainer};

use train_support::{batch, config, lively};

fn lora(rank: usize, projections: Projections) -> LoraConfig {
    LoraConfig {
        rank,
        alpha: 6.0,
        projections,
        blocks: 0,
    }
}

/// A trainer whose adapter is not at its start.
fn trained(checkpoint: &Checkpoint, config: LoraConfig, steps: usize) -> Trainer {
    let mut trainer = Trainer::with_adapter(checkpoint, AdamWConfig::default(), config, 3).unwrap();
    let batch = batch();
    let batch: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
    for _ in 0..steps {
        trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        trainer.step(3e-3).unwrap();
    }
    trainer
}

fn loss(checkpoint: &Checkpoint) -> f64 {
    let batch = batch();
    let batch: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
    let mut trainer = Trainer::new(checkpoint, AdamWConfig::default()).unwrap();
    let graded = trainer.evaluate(&batch, &NextToken::new(&batch)).unwrap();
    graded.terms[0]
}

#[test]
fn gradients_match_finite_differences() {
    for (kind, kv_heads) in [("llama", 2), ("qwen2", 4)] {
        let base = lively(&config(kind, true, kv_heads));
        let mut trainer = trained(&base, lora(3, Projections::ALL), 4);
        let batch = batch();
        let batch: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
        trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        let (adapter, gradient) = (
            trainer.adapter().unwrap(),
            trainer.adapter_gradient().unwrap(),
        );
        for (name, direction) in &gradient.tensors {
            let squares = direction.data.iter().map(|g| f64::from(*g).powi(2));
            let length = squares.sum::<f64>().sqrt();
            assert!(length > 0.0, "{name} has no gradient");
            let at = |step: f64| {
                let mut moved = adapter.clone();
                let values = &mut moved.tensors.get_mut(name).unwrap().data;
                for (x, g) in values.iter_mut().zip(&direction.data) {
                    *x += (step * f64::from(*g) / length) as f32;
                }
                let mut merged = base.clone();
                merged.merge(&moved).unwrap();
                loss(&merged)
            };
            let slope = (at(3e-4) - at(-3e-4)) / 6e-4;
            let error = (slope - length).abs();
            assert!(
                error < 1e-2 * length + 1e-3,
                "{kind} {name}: {slope} {length}"
            );
        }
    }
}

/// `dB = s dW A^T` and `dA = s B^T dW` with the dense gradient at the merged weights.
#[test]
fn gradients_are_the_dense_gradient_seen_through_the_adapter() {
    let base = lively(&config("llama", true, 2));
    let few: Projections = [
        Projection::Query,
        Projection::Value,
        Projection::Up,
        Projection::Down,
    ]
    .into_iter()
    .collect();
    let mut trainer = trained(&base, lora(5, few), 2);
    let mut dense = Trainer::new(&trainer.checkpoint(), AdamWConfig::default()).unwrap();
    let batch = batch();
    let batch: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
    trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
    dense.accumulate(&batch, &NextToken::new(&batch)).unwrap();
    let (adapter, gradient) = (
        trainer.adapter().unwrap(),
        trainer.adapter_gradient().unwrap(),
    );
    let full = dense.gradient();
    let scale = adapter.config.scale();
    assert_eq!(gradient.tensors.len(), 2 * 2 * 4);
    for (name, found) in &gradient.tensors {
        let weight = name.trim_start_matches("base_model.model.");
        let (module, is_a) = match weight.split_once(".lora_A") {
            Some((module, _)) => (module, true),
            None => (weight.split_once(".lora_B").unwrap().0, false),
        };
        let d_weight = &full.tensors[&format!("{module}.weight")];
        let (out, input) = (d_weight.shape[0], d_weight.shape[1]);
        let part = |half: &str| {
            let name = format!("base_model.model.{module}.lora_{half}.weight");
            &adapter.tensors[&name].data
        };
        let (a, b) = (part("A"), part("B"));
        let (mut difference, mut length) = (0.0, 0.0);
        for (index, value) in found.data.iter().enumerate() {
            let expected: f32 = if is_a {
                let (r, i) = (index / input, index % input);
                (0..out)
                    .map(|o| b[o * 5 + r] * d_weight.data[o * input + i])
                    .sum()
            } else {
                let (o, r) = (index / 5, index % 5);
                (0..input)
                    .map(|i| d_weight.data[o * input + i] * a[r * input + i])
                    .sum()
            };
            difference += f64::from(scale * expected - value).powi(2);
            length += f64::from(*value).powi(2);
        }
        assert!(difference.sqrt() <= 1e-4 * length.sqrt(), "{name}");
    }
}

#[test]
fn a_fresh_adapter_changes_nothing_and_a_trained_one_only_its_projections() {
    let base = lively(&config("qwen2", true, 2));
    let only: Projections = [Projection::Key, Projection::Gate].into_iter().collect();
    assert_eq!(trained(&base, lora(4, only), 0).checkpoint(), base);
    let trainer = trained(&base, lora(4, only), 3);
    let (merged, adapter) = (trainer.checkpoint(), trainer.adapter().unwrap());
    for (name, tensor) in &merged.tensors {
        let adapted = name.contains("k_proj.weight") || name.contains("gate_proj");
        assert_eq!(*tensor != base.tensors[name], adapted, "{name}");
    }
    let mut by_hand = base.clone();
    by_hand.merge(&adapter).unwrap();
    assert_eq!(by_hand, merged);
    assert!(loss(&merged) < loss(&base));
    assert!(
        trainer
            .gradient()
            .tensors
            .values()
            .flat_map(|t| &t.data)
            .all(|g| *g == 0.0)
    );
}

#[test]
fn adapters_come_back_from_their_files_and_go_on_as_if_never_away() {
    let folder = tempfile::tempdir().unwrap();
    let base = lively(&config("llama", true, 2));
    let settings = lora(4, Projections::ALL);
    let batch = batch();
    let batch: Vec<&[u32]> = batch.iter().map(Vec::as_slice).collect();
    let step = |trainer: &mut Trainer| {
        trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        trainer.step(3e-3).unwrap();
    };
    let mut whole = trained(&base, settings, 2);
    let adapter = whole.adapter().unwrap();
    adapter.save(folder.path(), "models/D").unwrap();
    let saved = whole.optimizer();
    let moments = saved.moments().cloned();
    let optimizer = AdamW::resume(AdamWConfig::default(), saved.steps(), moments);

    let loaded = Adapter::load(folder.path(), &base.config).unwrap();
    assert_eq!(loaded, adapter);
    let mut resumed = trained(&base, settings, 0);
    let mut state = resumed.saved_adapter(&loaded, optimizer).unwrap();
    resumed.swap_adapter(&mut state).unwrap();
    assert_eq!(resumed.checkpoint(), whole.checkpoint());
    step(&mut whole);
    step(&mut resumed);
    assert_eq!(resumed.checkpoint(), whole.checkpoint());

    // Two adapters on one trainer behave as two trainers.
    let mut other = resumed.fresh_adapter(9).unwrap();
    resumed.swap_adapter(&mut other).unwrap();
    assert_eq!(resumed.checkpoint(), base);
    step(&mut resumed);
    resumed.swap_adapter(&mut other).unwrap();
    assert_eq!(resumed.checkpoint(), whole.checkpoint());
    step(&mut whole);
    step(&mut resumed);
    assert_eq!(resumed.checkpoint(), whole.checkpoint());

    let text = std::fs::read_to_string(folder.path().join(lm::ADAPTER_CONFIG)).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["peft_type"], "LORA");
    assert_eq!(json["target_modules"][0], "q_proj");
    let wrong = Adapter::load(folder.path(), &config("llama", true, 1));
    assert!(matches!(wrong, Err(LmError::Shape { .. })), "{wrong:?}");
    std::fs::write(folder.path().join(lm::ADAPTER_CONFIG), "{}").unwrap();
    let wrong = Adapter::load(folder.path(), &base.config);
    assert!(matches!(wrong, Err(LmError::Adapter { .. })), "{wrong:?}");
}

#[test]
fn ranks_without_room_are_refused() {
    let shape = config("llama", true, 2);
    let check = |rank, projections| lora(rank, projections).check(&shape);
    assert!(check(12, Projections::ALL).is_ok());
    let error = check(13, Projections::ALL);
    assert!(matches!(
        error,
        Err(LmError::Rank {
            limit: 12,
            projection: "k_proj",
            ..
        })
    ));
    assert!(matches!(
        check(0, Projections::ALL),
        Err(LmError::Rank { .. })
    ));
    let wide = [Projection::Output].into_iter().collect();
    assert!(check(24, wide).is_ok());
    let none = [].into_iter().collect();
    assert!(matches!(check(1, none), Err(LmError::NoProjections)));
}

/// An adapter of rank 8 on every projection of Llama-68M takes less than 5% of the drafter's file.
#[test]
fn an_adapter_is_a_small_part_of_the_drafter_on_disk() {
    let json = r#"{"model_type": "llama", "hidden_size": 768, "intermediate_size": 3072,
        "num_hidden_layers": 2, "num_attention_heads": 12, "vocab_size": 32000}"#;
    let shape = LmConfig::from_json(json, Path::new("config.json")).unwrap();
    let settings = lora(8, Projections::ALL);
    let by_hand = 2 * 8 * (4 * (768 + 768) + 3 * (768 + 3072));
    assert_eq!(settings.num_params(&shape), by_hand);
    let base = random_checkpoint(&shape, 1);
    let trainer = Trainer::with_adapter(&base, AdamWConfig::default(), settings, 1).unwrap();
    let adapter = trainer.adapter().unwrap();
    assert_eq!(adapter.num_params(), by_hand);
    let folder = tempfile::tempdir().unwrap();
    adapter.save(folder.path(), "drafter").unwrap();
    let files = std::fs::read_dir(folder.path()).unwrap();
    let written: u64 = files.map(|f| f.unwrap().metadata().unwrap().len()).sum();
    let drafter = 2 * shape.num_params() as u64;
    assert!(written >= 4 * by_hand as u64);
    assert!(written * 20 < drafter, "{written} of {drafter} bytes");
    let tensors = read_safetensors(&folder.path().join(lm::ADAPTER_WEIGHTS)).unwrap();
    assert_eq!(tensors.len(), 2 * 2 * 7);
}

#[test]
fn an_engine_decodes_with_whichever_weights_were_swapped_in() {
    let base = lively(&config("llama", true, 2));
    let adapted = trained(&base, lora(4, Projections::ALL), 4).checkpoint();
    let options = EngineOptions {
        weights: WeightType::Bf16,
        threads: 1,
        ..EngineOptions::default()
    };
    let logits = |engine: &mut CpuEngine| {
        let mut logits = Vec::new();
        engine.truncate(0);
        engine.forward(&[3, 1, 4, 1, 5], &mut logits).unwrap();
        logits
    };
    let mut engine = CpuEngine::new(&base, options.clone()).unwrap();
    let expected = logits(&mut CpuEngine::new(&adapted, options).unwrap());
    let before = logits(&mut engine);
    let compact = |weights, compact| EngineOptions {
        weights,
        compact,
        ..EngineOptions::default()
    };
    let mut resident =
        PackedWeights::new(&adapted, &compact(WeightType::Bf16, Compact::On)).unwrap();
    engine.swap_weights(&mut resident).unwrap();
    assert_eq!(engine.len(), 0);
    assert_eq!(logits(&mut engine), expected);
    engine.swap_weights(&mut resident).unwrap();
    assert_eq!(logits(&mut engine), before);
    assert_ne!(before, expected);
    let mut other = PackedWeights::new(&adapted, &compact(WeightType::F32, Compact::Auto)).unwrap();
    assert!(matches!(
        engine.swap_weights(&mut other),
        Err(LmError::OtherModel)
    ));
}
