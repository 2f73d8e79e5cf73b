//! Files of weights that other programs write.

use std::path::Path;

use anyhow::Result;
use lm::{Checkpoint, ReferenceEngine};
use weights::{Format, RowBuffer, TensorFiles};

use super::put;
use crate::Reader;
use crate::mutate::Shape;

/// Rows read of each tensor.
const ROWS: usize = 64;

pub const TORCH: Reader = Reader {
    name: "torch",
    what: "pytorch_model.bin: archive, pickle, rows of tensors",
    shape: Shape::Bytes,
    seeds: || {
        Ok(vec![
            include_bytes!("../../../weights/tests/fixtures/views.bin").to_vec(),
            include_bytes!("../../../weights/tests/fixtures/nested.bin").to_vec(),
        ])
    },
    read: |folder, bytes| rows(Format::Torch, folder, "pytorch_model.bin", bytes),
};

pub const GGUF: Reader = Reader {
    name: "gguf",
    what: "a GGUF file: keys, rows of tensors",
    shape: Shape::Bytes,
    seeds: || {
        let types = include_bytes!("../../../weights/tests/fixtures/types.gguf");
        Ok(vec![types.to_vec()])
    },
    read: |folder, bytes| rows(Format::Gguf, folder, "model.gguf", bytes),
};

pub const GGUF_MODEL: Reader = Reader {
    name: "gguf-model",
    what: "a GGUF file as a model, and a forward",
    shape: Shape::Bytes,
    seeds: || {
        Ok(vec![
            include_bytes!("../../../lm/tests/fixtures/llama-gguf/model.gguf").to_vec(),
            include_bytes!("../../../lm/tests/fixtures/qwen2-gguf/model.gguf").to_vec(),
        ])
    },
    read: |folder, bytes| {
        put(folder, "model.gguf", bytes)?;
        let checkpoint = Checkpoint::load(folder)?;
        ReferenceEngine::new(&checkpoint, 8)?.forward_f64(&[1, 2])?;
        Ok(())
    },
};

fn rows(format: Format, folder: &Path, name: &str, bytes: &[u8]) -> Result<()> {
    let files = TensorFiles::of_file(format, &put(folder, name, bytes)?)?;
    let mut buffer = RowBuffer::default();
    // A tensor of another type is an error only when its rows are requested.
    let readable = files
        .tensors()
        .filter(|(_, tensor)| tensor.encoding.is_ok());
    for (name, tensor) in readable {
        for row in 0..tensor.rows().min(ROWS) {
            files.rows(name, row..row + 1, &mut buffer)?;
        }
    }
    Ok(())
}
