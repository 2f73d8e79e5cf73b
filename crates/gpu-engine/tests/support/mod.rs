//! A device, or the reason why there is none.

use gpu_engine::{Gpu, GpuEngine, GpuOptions};
use lm::{LanguageModel, TensorSource, WeightType};

pub const FORMATS: [WeightType; 5] = WeightType::ALL;

/// The first adapter. Without one the calling test is skipped, unless OMNIDRAFT_REQUIRE_GPU is 1.
pub fn gpu() -> Option<Gpu> {
    match Gpu::open(0) {
        Ok(gpu) => {
            println!("adapter: {}", gpu.name());
            Some(gpu)
        }
        Err(error) => {
            let required = std::env::var_os("OMNIDRAFT_REQUIRE_GPU").is_some_and(|x| x == "1");
            assert!(!required, "{error}");
            println!("skipped: {error}");
            None
        }
    }
}

pub fn options(gpu: &Gpu, weights: WeightType, max_len: usize) -> GpuOptions {
    GpuOptions {
        max_len,
        threads: 2,
        ..GpuOptions::new(gpu.clone(), weights)
    }
}

pub fn engine(
    gpu: &Gpu,
    source: &dyn TensorSource,
    weights: WeightType,
    max_len: usize,
) -> GpuEngine {
    GpuEngine::new(source, options(gpu, weights, max_len)).unwrap()
}

/// Bits of the logits of all `ids`, computed `batch` at a time from an empty cache.
pub fn in_batches(engine: &mut GpuEngine, ids: &[u32], batch: usize) -> Vec<u32> {
    engine.truncate(0);
    let (mut all, mut logits) = (Vec::new(), Vec::new());
    for ids in ids.chunks(batch) {
        engine.forward(ids, &mut logits).unwrap();
        all.extend(logits.iter().map(|x| x.to_bits()));
    }
    all
}

/// Replaces matrices by the values of their integers. A tied head becomes a separate matrix, as in
/// an engine, where the embedding stays bf16.
pub fn quantise(checkpoint: &mut lm::Checkpoint, weights: WeightType) {
    if checkpoint.config.tie_word_embeddings {
        checkpoint.config.tie_word_embeddings = false;
        let head = checkpoint.tensors[lm::EMBEDDING].clone();
        checkpoint.tensors.insert(lm::HEAD.to_owned(), head);
    }
    let mut numbers = cpu_engine::IntWeights::default();
    for (name, tensor) in &mut checkpoint.tensors {
        let [_, inputs] = tensor.shape[..] else {
            continue;
        };
        if name == lm::EMBEDDING {
            continue;
        }
        for row in tensor.data.chunks_exact_mut(inputs) {
            let group = match weights {
                WeightType::Int8 => {
                    numbers.fill_int8(row);
                    cpu_engine::INT8_GROUP
                }
                _ => {
                    numbers.fill_int4(row);
                    cpu_engine::INT4_GROUP
                }
            };
            for (i, (weight, level)) in row.iter_mut().zip(&numbers.levels).enumerate() {
                let scale = f32::from(numbers.scales[i / group]) * numbers.unit;
                *weight = f32::from(*level) * scale;
            }
        }
    }
}
