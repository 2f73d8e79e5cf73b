//! The host trainer against finite differences of the reference's loss, and against PyTorch.

use crate::train_support;

use std::collections::BTreeMap;

use distill_loss::{Graded, Objective, Scored};
use lm::host::Products;
use lm::{
    AdamW, AdamWConfig, Checkpoint, LanguageModel, LmError, ModelError, ReferenceEngine,
    expected_tensors, random_checkpoint, stored,
};
use trainer::{Marked, NextToken, Trainer, Unlikelihood};

use train_support::{
    Golden, TOLERANCE, batch, config, goldens, lively, reference, relative_error, shared_goldens,
    slices, uniform,
};

/// Largest relative deviation of a gradient from bf16 products, which are accurate to a part in
/// 256.
const NARROW: f64 = 2e-2;

/// Mean cross entropy of all sequences, computed by the reference in f64.
fn loss_of(checkpoint: &Checkpoint, batch: &[Vec<u32>]) -> f64 {
    let mut engine = ReferenceEngine::new(checkpoint, 256).unwrap();
    let (mut sum, mut count) = (0.0, 0);
    for ids in batch {
        engine.truncate(0);
        let logits = engine.forward_f64(&ids[..ids.len() - 1]).unwrap();
        let rows = logits.chunks_exact(checkpoint.config.vocab_size);
        for (row, label) in rows.zip(&ids[1..]) {
            let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let total: f64 = row.iter().map(|x| (x - max).exp()).sum();
            sum += total.ln() + max - row[*label as usize];
            count += 1;
        }
    }
    sum / f64::from(count)
}

/// `x + step` with a random sign for every weight `x` of a tensor, as f32 holds it.
fn moved(checkpoint: &Checkpoint, name: &str, step: f32, seed: u64) -> Checkpoint {
    let mut moved = checkpoint.clone();
    let mut state = seed;
    for x in &mut moved.tensors.get_mut(name).unwrap().data {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        *x += if state >> 63 == 0 { step } else { -step };
    }
    moved
}

/// Compares gradients with central differences along random directions. The error's component along
/// a random sign vector has the error's own length as its root mean square, so a few directions per
/// tensor replace the differences of all its weights.
#[test]
fn gradients_match_differences_of_the_reference() {
    const STEP: f32 = 1e-6;
    const DIRECTIONS: u64 = 4;
    for (kind, tied, kv_heads) in [
        ("llama", true, 2),
        ("llama", false, 4),
        ("qwen2", true, 1),
        ("qwen3", true, 2),
        ("mistral", false, 2),
    ] {
        let checkpoint = lively(&config(kind, tied, kv_heads));
        let ids = batch();
        let loss = loss_of(&checkpoint, &ids);
        let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
        let batch = slices(&ids);
        let graded = trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        assert!((graded.terms[0] - loss).abs() < 1e-6 * loss, "{kind}");

        let (mut errors, mut lengths) = (0.0, 0.0);
        for (name, gradient) in &trainer.gradient().tensors {
            let length: f64 = gradient.data.iter().map(|g| f64::from(*g).powi(2)).sum();
            let mut error = 0.0;
            for direction in 0..DIRECTIONS {
                let [up, down] = [STEP, -STEP].map(|h| moved(&checkpoint, name, h, direction));
                let ends = up.tensors[name].data.iter().zip(&down.tensors[name].data);
                let predicted = ends.zip(&gradient.data);
                let predicted = predicted
                    .map(|((up, down), g)| (f64::from(*up) - f64::from(*down)) * f64::from(*g))
                    .sum::<f64>();
                let found = loss_of(&up, &ids) - loss_of(&down, &ids);
                let slope = (found - predicted) / (2.0 * f64::from(STEP));
                error += slope.powi(2) / DIRECTIONS as f64;
            }
            assert!(
                error.sqrt() < 3.0 * TOLERANCE * length.sqrt(),
                "{kind} {name}: {error:e} of {length:e}"
            );
            errors += error;
            lengths += length;
        }
        let error = (errors / lengths).sqrt();
        assert!(error < TOLERANCE, "{kind}, tied {tied}: {error}");
    }
}

/// Cross entropy over a subset of the vocabulary at every other position, in plain code.
struct OnColumns {
    columns: Vec<Vec<u32>>,
    batch: Vec<Vec<u32>>,
}

impl OnColumns {
    fn grade_row(logits: &mut [f32], label: usize) -> f64 {
        let max = logits.iter().copied().fold(f32::MIN, f32::max);
        let sum: f32 = logits.iter().map(|x| (x - max).exp()).sum();
        let loss = f64::from(sum.ln() + max - logits[label]);
        for x in logits.iter_mut() {
            *x = (*x - max).exp() / sum;
        }
        logits[label] -= 1.0;
        loss
    }
}

impl Objective for OnColumns {
    fn columns(&self) -> &[Vec<u32>] {
        &self.columns
    }

    fn scored(&self, sequence: usize) -> Vec<Scored> {
        let positions = (0..self.batch[sequence].len()).step_by(2).collect();
        vec![Scored {
            positions,
            columns: Some(0),
        }]
    }

    fn grade(&self, _: usize, _: usize, logits: &mut [f32]) -> Graded {
        let mut graded = Graded::default();
        for row in logits.chunks_exact_mut(self.columns[0].len()) {
            graded.terms[0] += Self::grade_row(row, 1);
            graded.terms[1] += 1.0;
        }
        graded
    }
}

#[test]
fn subsets_of_the_vocabulary_have_the_right_gradient() {
    let checkpoint = lively(&config("qwen2", true, 2));
    let batch = batch();
    let objective = OnColumns {
        columns: vec![vec![3, 66, 12, 40, 0]],
        batch: batch.clone(),
    };
    let batch = slices(&batch);
    let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
    let graded = trainer.accumulate(&batch, &objective).unwrap();
    assert_eq!(graded.terms[1], 107.0);
    let gradient = trainer.gradient();

    let slope = slope(&checkpoint, &batch, &objective, &gradient, |graded| {
        graded.terms[0]
    });

    assert!((slope - 1.0).abs() < 3e-3, "{slope}");
}

/// The directional derivative along the gradient, by central differences, as a multiple of its
/// expected value.
fn slope(
    checkpoint: &Checkpoint,
    batch: &[&[u32]],
    objective: &dyn Objective,
    gradient: &Checkpoint,
    loss: impl Fn(&Graded) -> f64,
) -> f64 {
    let values = gradient.tensors.values().flat_map(|t| &t.data);
    let length = values.map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    let moved = |step: f64| {
        let mut moved = checkpoint.clone();
        for (name, tensor) in &mut moved.tensors {
            for (x, g) in tensor.data.iter_mut().zip(&gradient.tensors[name].data) {
                *x += (step * f64::from(*g) / length) as f32;
            }
        }
        let mut trainer = Trainer::new(&moved, AdamWConfig::default()).unwrap();
        loss(&trainer.evaluate(batch, objective).unwrap())
    };
    (moved(5e-5) - moved(-5e-5)) / 1e-4 / length
}

#[test]
fn unwanted_tokens_have_the_right_gradient_and_become_less_likely() {
    let checkpoint = lively(&config("llama", true, 2));
    let all = batch();
    let (texts, rest) = all.split_at(all.len() / 2);
    let texts = slices(texts);
    let places = |ids: &Vec<u32>| (3..ids.len()).step_by(2).collect();
    let answers: Vec<Marked> = rest
        .iter()
        .map(|ids| Marked {
            ids: ids.clone(),
            unwanted: places(ids),
            kept: Vec::new(),
        })
        .collect();
    let marked: usize = answers.iter().map(|a| a.unwanted.len()).sum();
    let weight = 7.0;
    let objective = Unlikelihood::new(&texts, &answers, 2 * marked, weight, 0.0);
    let both: Vec<&[u32]> = all.iter().map(Vec::as_slice).collect();
    let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
    let before = trainer.accumulate(&both, &objective).unwrap();
    let loss = |graded: &Graded| graded.terms[0] + weight * graded.terms[1];
    let gradient = trainer.gradient();
    let found = slope(&checkpoint, &both, &objective, &gradient, loss);
    assert!((found - 1.0).abs() < 3e-3, "{found}");

    // Term 1 is the mean of -ln(1 - p), by the reference.
    let mut engine = ReferenceEngine::new(&checkpoint, 256).unwrap();
    let mut sum = 0.0;
    for answer in &answers {
        engine.truncate(0);
        let logits = engine.forward_f64(&answer.ids).unwrap();
        let width = checkpoint.config.vocab_size;
        for place in &answer.unwanted {
            let row = &logits[(place - 1) * width..][..width];
            let total: f64 = row.iter().map(|x| x.exp()).sum();
            sum -= (1.0 - row[answer.ids[*place] as usize].exp() / total).ln();
        }
    }
    let mean = sum / (2 * marked) as f64;
    assert!((before.terms[1] / mean - 1.0).abs() < 1e-5);

    for _ in 0..10 {
        trainer.step(1e-3).unwrap();
        trainer.accumulate(&both, &objective).unwrap();
    }
    let after = trainer.evaluate(&both, &objective).unwrap();
    assert!(after.terms[1] < 0.8 * before.terms[1]);
}

#[test]
fn a_law_that_is_to_be_kept_pulls_back_to_itself() {
    let checkpoint = lively(&config("llama", true, 2));
    let all = batch();
    let width = checkpoint.config.vocab_size;
    // The checkpoint's own distribution at even indices, another one at odd indices.
    let mut engine = ReferenceEngine::new(&checkpoint, 256).unwrap();
    let mut marked = |other: f64| -> Vec<Marked> {
        let mut kept = |ids: &[u32]| {
            engine.truncate(0);
            let logits = engine.forward_f64(ids).unwrap();
            let mut law = |place: usize| {
                let row = &logits[(place - 1) * width..][..width];
                let sharp = if place.is_multiple_of(2) { 1.0 } else { other };
                let weights: Vec<f64> = row.iter().map(|x| (sharp * x).exp()).collect();
                let total: f64 = weights.iter().sum();
                let law = weights.iter().map(|w| (w / total) as f32).collect();
                (place, law)
            };
            (2..ids.len()).map(&mut law).collect()
        };
        let answers = all.iter().map(|ids| Marked {
            ids: ids.clone(),
            unwanted: (1..ids.len().min(2)).collect(),
            kept: kept(ids),
        });
        answers.collect()
    };
    let sequences: Vec<&[u32]> = all.iter().map(Vec::as_slice).collect();
    let graded = |answers: &[Marked]| {
        let objective = Unlikelihood::new(&[], answers, 100, 0.0, 3.0);
        let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
        let graded = trainer.accumulate(&sequences, &objective).unwrap();
        let gradient = trainer.gradient();
        let values = gradient.tensors.values().flat_map(|t| &t.data);
        let length = values.map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
        let loss = |graded: &Graded| 3.0 * graded.terms[2];
        let slope = slope(&checkpoint, &sequences, &objective, &gradient, loss);
        (graded.terms[2], length, slope)
    };
    let (divergence, rest, _) = graded(&marked(1.0));
    assert!(divergence.abs() < 1e-6, "{divergence}");
    let (divergence, length, slope) = graded(&marked(2.0));
    assert!(divergence > 0.01, "{divergence}");
    // Single precision leaves a little of the first.
    assert!(rest < 0.005 * length, "{rest} {length}");
    assert!((slope - 1.0).abs() < 3e-3, "{slope}");
}

#[test]
fn threads_do_not_change_the_bits_and_lanes_only_rounding() {
    for (products, tolerance) in [(Products::F32, TOLERANCE), (Products::Bf16, NARROW)] {
        bits_are_of_lanes(products, tolerance);
    }
}

fn bits_are_of_lanes(products: Products, tolerance: f64) {
    let checkpoint = lively(&config("llama", true, 2));
    let batch = batch();
    let batch = slices(&batch);
    let run = |threads: usize, lanes: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
            let mut trainer = trainer.with_lanes(lanes).with_products(products);
            let objective = NextToken::new(&batch);
            let losses: Vec<f64> = (0..3)
                .map(|_| {
                    let graded = trainer.accumulate(&batch, &objective).unwrap();
                    trainer.step(1e-3).unwrap();
                    graded.terms[0]
                })
                .collect();
            (losses, trainer.checkpoint())
        })
    };
    let (one, two) = (run(1, 2), run(2, 2));
    assert_eq!(one, two);
    let (losses, weights) = run(2, 3);
    assert!((losses[2] - one.0[2]).abs() < 0.1 * tolerance);
    assert!(relative_error(&weights, &one.1.tensors) < tolerance);
}

/// Rounding to 8 bits changes a gradient by about as much as it changes one number, and the loss by
/// less.
#[test]
fn products_of_bf16_give_nearly_the_same_gradient() {
    for kind in ["llama", "qwen2", "qwen3"] {
        let checkpoint = random_checkpoint(&config(kind, true, 2), 5);
        let batch = batch();
        let batch = slices(&batch);
        let [plain, narrow] = [Products::F32, Products::Bf16].map(|products| {
            let trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
            let mut trainer = trainer.with_products(products);
            let graded = trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
            (graded.terms[0], trainer.gradient())
        });
        let error = relative_error(&narrow.1, &plain.1.tensors);
        assert!(error > 1e-4 && error < NARROW, "{kind}: {error}");
        assert!((narrow.0 / plain.0 - 1.0).abs() < 0.1 * NARROW, "{kind}");
    }
}

#[test]
fn misuse_is_an_error() {
    let checkpoint = random_checkpoint(&config("llama", true, 2), 1);
    let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
    let outside: [&[u32]; 1] = [&[1, 67]];
    let error = trainer.accumulate(&outside, &NextToken::new(&outside));
    assert!(matches!(
        error,
        Err(LmError::Model(ModelError::TokenOutOfRange { id: 67, .. }))
    ));
    let long = vec![0; checkpoint.config.max_position_embeddings + 1];
    let error = trainer.accumulate(&[&long], &NextToken::new(&[&long]));
    assert!(matches!(
        error,
        Err(LmError::Model(ModelError::ContextFull { .. }))
    ));
    let foreign = lm::Moments {
        first: vec![0.0; 3],
        second: vec![0.0; 3],
    };
    let optimizer = AdamW::resume(AdamWConfig::default(), 1, Some(foreign));
    assert!(Trainer::resume(&checkpoint, optimizer).is_err());
}

#[test]
fn gradients_and_adamw_match_pytorch() {
    for golden in shared_goldens() {
        let (name, checkpoint) = (&golden.name, &golden.checkpoint);
        let batch: [&[u32]; 1] = [&golden.ids[..64]];
        let mut trainer = Trainer::new(checkpoint, AdamWConfig::default()).unwrap();
        let objective = NextToken::new(&batch);
        trainer.accumulate(&batch, &objective).unwrap();
        let expected = reference(&golden, "grad_ce64.safetensors");
        let error = relative_error(&trainer.gradient(), &expected);
        assert!(error < TOLERANCE, "{name}: gradients differ by {error}");
        trainer.step(1e-3).unwrap();
        trainer.accumulate(&batch, &objective).unwrap();
        trainer.step(1e-3).unwrap();
        let expected = reference(&golden, "params_after_adamw2.safetensors");
        let error = relative_error(&trainer.checkpoint(), &expected);
        assert!(error < TOLERANCE, "{name}: weights differ by {error}");
        assert!(relative_error(checkpoint, &expected) > 10.0 * TOLERANCE);
    }
}

/// Values under the names of the family's files, in which one tensor may hold several projections.
fn as_stored(checkpoint: &Checkpoint) -> BTreeMap<String, Vec<f32>> {
    let mut tensors: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for (name, _) in expected_tensors(&checkpoint.config) {
        let whole = stored(&checkpoint.config, &name);
        let values = &checkpoint.tensors[&name].data;
        tensors.entry(whole).or_default().extend(values);
    }
    tensors
}

/// Distance of a gradient from PyTorch's, relative to the norm of PyTorch's, by tensor and over all
/// tensors. The golden file holds projections of PyTorch's gradient on a few random vectors with
/// entries in [-1, 1); the mean square of such a projection of a difference is a third of its
/// squared norm.
fn gradient_error(golden: &Golden, gradient: &Checkpoint) -> f64 {
    let expected = golden.json["gradient"]["tensors"].as_object().unwrap();
    let gradient = as_stored(gradient);
    assert_eq!(expected.len(), gradient.len(), "{}", golden.name);
    let (mut errors, mut lengths) = (0.0, 0.0);
    for (name, expected) in expected {
        let found = &gradient[name];
        let length = expected["norm"].as_f64().unwrap();
        let along = expected["along"].as_array().unwrap();
        let mut error = 0.0;
        for (i, along) in along.iter().enumerate() {
            let vector = uniform(&format!("{name}#{i}"), found.len());
            let products = found.iter().zip(vector).map(|(g, x)| f64::from(*g) * x);
            let difference = products.sum::<f64>() - along.as_f64().unwrap();
            error += 3.0 * difference.powi(2) / 4.0;
        }
        let own: f64 = found.iter().map(|g| f64::from(*g).powi(2)).sum();
        error = error.max((own.sqrt() - length).powi(2));
        assert!(
            error.sqrt() < 3.0 * TOLERANCE * length + 1e-7,
            "{} {name}: {} of {length}",
            golden.name,
            error.sqrt()
        );
        errors += error;
        lengths += length.powi(2);
    }
    (errors / lengths).sqrt()
}

/// Biases anywhere, norms of heads, windows, layers without rotation, scaled rotations.
#[test]
fn gradients_match_pytorch_for_every_feature_that_is_trained() {
    let mut count = 0;
    for golden in goldens() {
        let trainer = Trainer::new(&golden.checkpoint, AdamWConfig::default());
        let Some(loss) = golden.json["gradient"]["loss"].as_f64() else {
            continue;
        };
        let mut trainer = trainer.unwrap();
        let batch: [&[u32]; 1] = [&golden.ids];
        let graded = trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        let name = &golden.name;
        assert!((graded.terms[0] - loss).abs() < 1e-5 * loss, "{name}");
        let error = gradient_error(&golden, &trainer.gradient());
        println!("{name}: {error:.1e}");
        assert!(error < TOLERANCE, "{name}: {error}");
        count += 1;
    }
    assert!(count >= 17, "{count}");
}

#[test]
fn what_has_no_backward_pass_is_refused() {
    let mut refused = Vec::new();
    for golden in goldens() {
        match Trainer::new(&golden.checkpoint, AdamWConfig::default()) {
            Ok(_) => {}
            Err(LmError::NotTrainable { feature, .. }) => refused.push((golden.name, feature)),
            Err(error) => panic!("{}: {error}", golden.name),
        }
    }
    let names: Vec<&str> = refused.iter().map(|(name, _)| name.as_str()).collect();
    println!("{refused:?}");
    for name in [
        "gemma2",
        "gemma3",
        "granite",
        "llama-dynamic",
        "llama-gelu",
        "olmo2",
        "phi3-long",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
}
