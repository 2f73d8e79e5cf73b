//! The Burn decoder and the optimiser against Hugging Face transformers and PyTorch.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use lm::{AdamW, AdamWConfig, BurnEngine, Checkpoint, DecodeEngine, HostTensor, Transformer};

/// Largest deviation allowed between two f32 implementations of the same forward.
const LOGIT_TOLERANCE: f32 = 2e-4;
/// Largest relative deviation of gradients and updated weights, in Euclidean norm.
const GOLDEN_TOLERANCE: f64 = 1e-4;

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

fn numbers(folder: &Path, key: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(folder.join("golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_u64().unwrap() as u32)
        .collect()
}

fn npy(path: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..])
        .unwrap()
        .into_vec::<f32>()
        .unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn logits_match_transformers_and_survive_truncation() {
    for folder in goldens() {
        let ids = numbers(&folder, "token_ids");
        let expected = npy(folder.join("logits.npy"));
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut engine = BurnEngine::new(&checkpoint, &Device::flex(), 2048).unwrap();
        let mut logits = Vec::new();
        engine.forward(&ids, &mut logits).unwrap();
        let error = largest_difference(&logits, &expected);
        assert!(error < LOGIT_TOLERANCE, "{folder:?}: {error}");

        let vocab = engine.vocab_size();
        for keep in [1, 7, ids.len() / 2, ids.len() - 1] {
            engine.truncate(keep);
            let mut tail = Vec::new();
            engine.forward(&ids[keep..], &mut tail).unwrap();
            let error = largest_difference(&tail, &expected[keep * vocab..]);
            assert!(
                error < LOGIT_TOLERANCE,
                "{folder:?} after truncation to {keep}: {error}"
            );
            assert_eq!(engine.len(), ids.len());
        }
    }
}

#[test]
fn greedy_continuations_match_transformers() {
    for folder in goldens() {
        let expected = numbers(&folder, "greedy_out");
        let mut ids = numbers(&folder, "greedy_prompt");
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut engine = BurnEngine::new(&checkpoint, &Device::flex(), 2048).unwrap();
        let vocab = engine.vocab_size();
        let mut pending = ids.clone();
        while ids.len() < expected.len() {
            let mut logits = Vec::new();
            engine.forward(&pending, &mut logits).unwrap();
            let row = &logits[logits.len() - vocab..];
            let best = (0..vocab)
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap() as u32;
            ids.push(best);
            pending = vec![best];
        }
        assert_eq!(ids, expected, "{folder:?}");
    }
}

/// The tensors the goldens hold: under the module's own names, tied heads once.
fn reference(folder: &Path, file: &str) -> BTreeMap<String, HostTensor> {
    let mut tensors = BTreeMap::new();
    lm::read_safetensors(&folder.join(file), &mut tensors).unwrap();
    tensors
}

fn cross_entropy(model: &Transformer, ids: &[u32], device: &Device) -> Tensor<1> {
    let count = ids.len();
    let as_ints = |ids: &[u32]| ids.iter().map(|id| i64::from(*id)).collect::<Vec<_>>();
    let input = Tensor::<2, Int>::from_data(TensorData::new(as_ints(ids), [1, count]), device);
    let hidden = model
        .hidden(input)
        .reshape([count, model.config().hidden_size]);
    let logits = model.logits(hidden).narrow(0, 0, count - 1);
    let labels =
        Tensor::<2, Int>::from_data(TensorData::new(as_ints(&ids[1..]), [count - 1, 1]), device);
    log_softmax(logits, 1).gather(1, labels).mean().neg()
}

/// Puts every parameter's gradient in its place, so that gradients come out under checkpoint names.
struct ReplaceByGradient<'a>(&'a Gradients);

impl ModuleMapper for ReplaceByGradient<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let (id, tensor, mapper) = param.consume();
        let gradient = tensor.grad(self.0).unwrap().to_data();
        let gradient = Tensor::from_data(gradient, &tensor.device()).require_grad();
        Param::from_mapped_value(id, gradient, mapper)
    }
}

/// Euclidean distance of the two over the length of the second, over all tensors both name.
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

#[test]
fn gradients_and_adamw_match_pytorch() {
    for folder in goldens() {
        let ids = &numbers(&folder, "token_ids")[..64];
        let device = Device::flex().autodiff();
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut model = Transformer::from_checkpoint(&checkpoint, &device).unwrap();

        let grads = cross_entropy(&model, ids, &device).backward();
        let gradients = model
            .clone()
            .map(&mut ReplaceByGradient(&grads))
            .to_checkpoint()
            .unwrap();
        let error = relative_error(&gradients, &reference(&folder, "grad_ce64.safetensors"));
        assert!(
            error < GOLDEN_TOLERANCE,
            "{folder:?}: gradients differ by {error}"
        );

        let mut optimizer = AdamW::new(AdamWConfig::default());
        for _ in 0..2 {
            let grads = cross_entropy(&model, ids, &device).backward();
            (model, _) = optimizer.step(model, &grads, 1e-3).unwrap();
        }
        let updated = model.to_checkpoint().unwrap();
        let expected = reference(&folder, "params_after_adamw2.safetensors");
        let error = relative_error(&updated, &expected);
        assert!(
            error < GOLDEN_TOLERANCE,
            "{folder:?}: updated weights differ by {error}"
        );
        assert!(
            relative_error(&checkpoint, &expected) > 10.0 * GOLDEN_TOLERANCE,
            "the steps must matter"
        );
    }
}
