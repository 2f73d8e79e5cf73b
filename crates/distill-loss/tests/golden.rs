//! Reverse KL over a whole vocabulary against PyTorch: value and gradient of every weight.

use std::collections::BTreeMap;
use std::path::Path;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use distill_loss::reverse_kl;
use lm::{Checkpoint, Transformer};

/// Largest relative deviation, in Euclidean norm over all weights.
const TOLERANCE: f64 = 1e-4;

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

fn check(folder: &Path) {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
    let ids: Vec<i64> = json["token_ids"].as_array().unwrap()[..64]
        .iter()
        .map(|id| id.as_i64().unwrap())
        .collect();
    let bytes = std::fs::read(folder.join("teacher_logits64.npy")).unwrap();
    let teacher = npyz::NpyFile::new(&bytes[..])
        .unwrap()
        .into_vec::<f32>()
        .unwrap();

    let device = Device::flex().autodiff();
    let model = Transformer::from_checkpoint(&Checkpoint::load(folder).unwrap(), &device).unwrap();
    let vocab = model.config().vocab_size;
    let rows = teacher.len() / vocab;
    let input = Tensor::<2, Int>::from_data(TensorData::new(ids, [1, 64]), &device);
    let hidden = model
        .hidden(input)
        .reshape([64, model.config().hidden_size]);
    let student = model.logits(hidden).narrow(0, 0, rows);
    let teacher = Tensor::<2>::from_data(TensorData::new(teacher, [rows, vocab]), &device);
    let loss = reverse_kl(student, log_softmax(teacher, 1)).unwrap().mean();
    let grads = loss.backward();
    let value = f64::from(loss.into_scalar::<f32>());
    let expected = json["rkl64"].as_f64().unwrap();
    assert!(
        (value - expected).abs() < TOLERANCE * expected,
        "{value} against {expected}"
    );

    let ours = model
        .map(&mut ReplaceByGradient(&grads))
        .to_checkpoint()
        .unwrap();
    let mut reference = BTreeMap::new();
    lm::read_safetensors(&folder.join("grad_rkl64.safetensors"), &mut reference).unwrap();
    let (mut difference, mut length) = (0.0, 0.0);
    for (name, tensor) in &ours.tensors {
        for (a, b) in tensor.data.iter().zip(&reference[name].data) {
            difference += f64::from(a - b).powi(2);
            length += f64::from(*b).powi(2);
        }
    }
    let error = (difference / length).sqrt();
    assert!(error < TOLERANCE, "{folder:?}: gradients differ by {error}");
}

#[test]
fn reverse_kl_and_its_gradient_match_pytorch() {
    let Some(shared) = std::env::var_os("OMNIDRAFT_SHARED") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return;
    };
    for model in ["tiny-llama2", "tiny-llama3", "tiny-qwen2"] {
        check(&Path::new(&shared).join("golden").join(model));
    }
}
