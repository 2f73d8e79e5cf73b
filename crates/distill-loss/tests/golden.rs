//! Losses over a whole vocabulary against PyTorch: value and gradient of every weight.

use std::path::Path;

use distill_loss::{DirectLoss, Graded, Objective, Scored, log_sum_exp};
use lm::{AdamWConfig, Checkpoint};
use trainer::Trainer;

/// Largest relative deviation, in Euclidean norm over all weights.
const TOLERANCE: f64 = 1e-4;

/// The mean of one loss over the first positions of one sequence.
struct Golden {
    loss: DirectLoss,
    ids: Vec<u32>,
    /// `[rows, vocab]`, log-probabilities.
    teacher: Vec<f32>,
    rows: usize,
}

impl Objective for Golden {
    fn scored(&self, _: usize) -> Vec<Scored> {
        vec![Scored {
            positions: (0..self.rows).collect(),
            columns: None,
        }]
    }

    fn grade(&self, _: usize, _: usize, logits: &mut [f32]) -> Graded {
        let width = logits.len() / self.rows;
        let weight = 1.0 / self.rows as f64;
        let mut graded = Graded::default();
        for (i, row) in logits.chunks_exact_mut(width).enumerate() {
            let mut law = self.teacher[i * width..][..width].to_vec();
            let label = self.ids.get(i + 1).map_or(0, |id| *id as usize);
            graded.terms[0] += weight * self.loss.grade(row, &mut law, label, weight);
        }
        graded
    }
}

fn check(folder: &Path, loss: DirectLoss, name: &str) {
    let json: serde_json::Value =
        serde_json::from_slice(&std::fs::read(folder.join("golden.json")).unwrap()).unwrap();
    let ids: Vec<u32> = serde_json::from_value(json["token_ids"].clone()).unwrap();
    let ids = ids[..64].to_vec();
    let bytes = std::fs::read(folder.join("teacher_logits64.npy")).unwrap();
    let file = npyz::NpyFile::new(&bytes[..]).unwrap();
    let mut teacher = file.into_vec::<f32>().unwrap();
    let checkpoint = Checkpoint::load(folder).unwrap();
    let width = checkpoint.config.vocab_size;
    for row in teacher.chunks_exact_mut(width) {
        let shift = log_sum_exp(row) as f32;
        row.iter_mut().for_each(|x| *x -= shift);
    }
    let rows = if loss == DirectLoss::Nll {
        63
    } else {
        teacher.len() / width
    };
    // The likelihood reads no teacher: rows of it are wanted all the same.
    teacher.resize(rows * width, 0.0);
    let golden = Golden {
        loss,
        ids: ids.clone(),
        teacher,
        rows,
    };
    let mut trainer = Trainer::new(&checkpoint, AdamWConfig::default()).unwrap();
    let value = trainer.accumulate(&[&ids], &golden).unwrap().terms[0];
    let expected = json[name].as_f64().unwrap();
    assert!(
        (value - expected).abs() < TOLERANCE * expected,
        "{folder:?} {name}: {value} against {expected}"
    );

    let file = folder.join(format!("grad_{name}.safetensors"));
    let reference = lm::read_safetensors(&file).unwrap();
    let (mut difference, mut length) = (0.0, 0.0);
    for (name, tensor) in &trainer.gradient().tensors {
        for (a, b) in tensor.data.iter().zip(&reference[name].data) {
            difference += f64::from(a - b).powi(2);
            length += f64::from(*b).powi(2);
        }
    }
    let error = (difference / length).sqrt();
    assert!(error < TOLERANCE, "{folder:?} {name}: off by {error}");
    println!("{folder:?} {name}: {error:.1e}");
}

#[test]
fn losses_and_their_gradients_match_pytorch() {
    let Some(shared) = std::env::var_os("OMNIDRAFT_SHARED") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return;
    };
    for model in ["tiny-llama2", "tiny-llama3", "tiny-qwen2"] {
        let folder = Path::new(&shared).join("golden").join(model);
        check(&folder, DirectLoss::ReverseKl, "rkl64");
        check(&folder, DirectLoss::ForwardKl, "fkl64");
        check(&folder, DirectLoss::Nll, "ce64");
    }
}
