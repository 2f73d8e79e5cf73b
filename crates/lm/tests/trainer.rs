//! The host trainer against Burn's automatic differentiation and against PyTorch.

mod train_support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use lm::{
    AdamW, AdamWConfig, Checkpoint, Graded, HostTensor, LmError, NextToken, Objective, Scored,
    Trainer, Transformer, random_checkpoint,
};

use train_support::{config, lively};

/// Largest relative deviation between two f32 implementations, in Euclidean norm.
const TOLERANCE: f64 = 1e-4;

/// Lengths on both sides of a block of query rows.
fn batch() -> Vec<Vec<u32>> {
    [9, 70, 1, 131]
        .iter()
        .enumerate()
        .map(|(i, len)| {
            (0..*len)
                .map(|j| ((i * 29 + j * j * 7 + j) % 67) as u32)
                .collect()
        })
        .collect()
}

fn slices(batch: &[Vec<u32>]) -> Vec<&[u32]> {
    batch.iter().map(Vec::as_slice).collect()
}

struct ReplaceByGradient<'a>(&'a Gradients);

impl ModuleMapper for ReplaceByGradient<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let gradient = tensor.grad(self.0).unwrap().to_data();
        let gradient = Tensor::from_data(gradient, &tensor.device()).require_grad();
        Param::from_mapped_value(id, gradient, mapper)
    }
}

fn relative_error(ours: &Checkpoint, expected: &BTreeMap<String, HostTensor>) -> f64 {
    let (mut difference, mut length) = (0.0, 0.0);
    for (name, tensor) in &ours.tensors {
        for (a, b) in tensor.data.iter().zip(&expected[name].data) {
            difference += f64::from(a - b).powi(2);
            length += f64::from(*b).powi(2);
        }
    }
    (difference / length).sqrt()
}

/// Mean cross entropy of all sequences and its gradient, by Burn.
fn by_burn(checkpoint: &Checkpoint, batch: &[Vec<u32>]) -> (f64, Checkpoint) {
    let device = Device::flex().autodiff();
    let model = Transformer::from_checkpoint(checkpoint, &device).unwrap();
    let ints = |ids: &[u32]| ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>();
    let losses: Vec<Tensor<1>> = batch
        .iter()
        .filter(|ids| ids.len() > 1)
        .map(|ids| {
            let n = ids.len() - 1;
            let input = TensorData::new(ints(&ids[..n]), [1, n]);
            let labels = TensorData::new(ints(&ids[1..]), [n, 1]);
            let hidden = model.hidden(Tensor::<2, Int>::from_data(input, &device));
            let logits = model.logits(hidden.reshape([n, checkpoint.config.hidden_size]));
            let labels = Tensor::<2, Int>::from_data(labels, &device);
            log_softmax(logits, 1).gather(1, labels).squeeze_dim::<1>(1)
        })
        .collect();
    let loss = Tensor::cat(losses, 0).mean().neg();
    let grads = loss.backward();
    let gradient = model.map(&mut ReplaceByGradient(&grads));
    let loss = f64::from(loss.into_scalar::<f32>());
    (loss, gradient.to_checkpoint().unwrap())
}

#[test]
fn gradients_match_automatic_differentiation() {
    for (kind, tied, kv_heads) in [("llama", true, 2), ("llama", false, 4), ("qwen2", true, 1)] {
        let checkpoint = lively(&config(kind, tied, kv_heads));
        let batch = batch();
        let (loss, expected) = by_burn(&checkpoint, &batch);
        let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
        let batch = slices(&batch);
        let graded = trainer.accumulate(&batch, &NextToken::new(&batch)).unwrap();
        assert!((graded.terms[0] - loss).abs() < 1e-5 * loss, "{kind}");
        let error = relative_error(&trainer.gradient(), &expected.tensors);
        assert!(error < TOLERANCE, "{kind}, tied {tied}: {error}");
    }
}

/// Cross entropy over a subset of the vocabulary, scored at every other position, in plain code.
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

    // The directional derivative along the gradient itself, by central differences.
    let length: f64 = gradient
        .tensors
        .values()
        .flat_map(|t| &t.data)
        .map(|x| f64::from(*x).powi(2))
        .sum::<f64>()
        .sqrt();
    let moved = |step: f64| {
        let mut moved = checkpoint.clone();
        for (name, tensor) in &mut moved.tensors {
            for (x, g) in tensor.data.iter_mut().zip(&gradient.tensors[name].data) {
                *x += (step * f64::from(*g) / length) as f32;
            }
        }
        let mut trainer = Trainer::new(&moved, AdamWConfig::default()).unwrap();
        trainer.evaluate(&batch, &objective).unwrap().terms[0]
    };
    let slope = (moved(2e-4) - moved(-2e-4)) / 4e-4;
    assert!((slope / length - 1.0).abs() < 3e-3, "{slope} {length}");
}

#[test]
fn threads_do_not_change_the_bits_and_lanes_only_rounding() {
    let checkpoint = lively(&config("llama", true, 2));
    let batch = batch();
    let batch = slices(&batch);
    let run = |threads: usize, lanes: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.unwrap().install(|| {
            let trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
            let mut trainer = trainer.with_lanes(lanes);
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
    assert!((losses[2] - one.0[2]).abs() < 1e-5);
    assert!(relative_error(&weights, &one.1.tensors) < TOLERANCE);
}

#[test]
fn misuse_is_an_error() {
    let checkpoint = random_checkpoint(&config("llama", true, 2), 1);
    let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
    let outside: [&[u32]; 1] = [&[1, 67]];
    let error = trainer.accumulate(&outside, &NextToken::new(&outside));
    assert!(matches!(
        error,
        Err(LmError::TokenOutOfRange { id: 67, .. })
    ));
    let long = vec![0; checkpoint.config.max_position_embeddings + 1];
    let error = trainer.accumulate(&[&long], &NextToken::new(&[&long]));
    assert!(matches!(error, Err(LmError::ContextFull { .. })));
    let foreign = lm::Moments {
        first: vec![0.0; 3],
        second: vec![0.0; 3],
    };
    let optimizer = AdamW::resume(AdamWConfig::default(), 1, vec![foreign]);
    assert!(Trainer::resume(&checkpoint, optimizer).is_err());
}

fn goldens() -> Vec<PathBuf> {
    let Some(shared) = std::env::var_os("OMNIDRAFT_SHARED") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return Vec::new();
    };
    let root = Path::new(&shared).join("golden");
    ["tiny-llama2", "tiny-llama3", "tiny-qwen2"]
        .iter()
        .map(|name| root.join(name))
        .collect()
}

#[test]
fn gradients_and_adamw_match_pytorch() {
    for folder in goldens() {
        let text = std::fs::read_to_string(folder.join("golden.json")).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        let ids: Vec<u32> = serde_json::from_value(json["token_ids"].clone()).unwrap();
        let batch: [&[u32]; 1] = [&ids[..64]];
        let reference = |file: &str| {
            let mut tensors = BTreeMap::new();
            lm::read_safetensors(&folder.join(file), &mut tensors).unwrap();
            tensors
        };
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
        let objective = NextToken::new(&batch);
        trainer.accumulate(&batch, &objective).unwrap();
        let error = relative_error(&trainer.gradient(), &reference("grad_ce64.safetensors"));
        assert!(error < TOLERANCE, "{folder:?}: gradients differ by {error}");
        trainer.step(1e-3).unwrap();
        trainer.accumulate(&batch, &objective).unwrap();
        trainer.step(1e-3).unwrap();
        let expected = reference("params_after_adamw2.safetensors");
        let error = relative_error(&trainer.checkpoint(), &expected);
        assert!(error < TOLERANCE, "{folder:?}: weights differ by {error}");
        assert!(relative_error(&checkpoint, &expected) > 10.0 * TOLERANCE);
    }
}
