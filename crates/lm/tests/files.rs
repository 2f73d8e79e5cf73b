//! Model folders in every format: GGUF and PyTorch files that other programs wrote, and faults.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lm::{
    Checkpoint, HostTensor, LmConfig, LmError, RandomWeights, RowBuffer, StoredCheckpoint,
    StoredType, TensorSource, random_checkpoint, read_safetensors, write_model, write_safetensors,
};
use weights::{Encoding, Format};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn expected(folder: &Path) -> BTreeMap<String, HostTensor> {
    read_safetensors(&folder.join("expected.safetensors")).unwrap()
}

/// Checks the content of the files, whole and row by row.
fn assert_holds(stored: &StoredCheckpoint, tensors: &BTreeMap<String, HostTensor>) {
    let whole = Checkpoint::of(stored).unwrap();
    assert_eq!(whole.tensors, *tensors);
    let mut buffer = RowBuffer::default();
    for (name, tensor) in tensors {
        let width: usize = tensor.shape.iter().skip(1).product();
        for (i, row) in tensor.data.chunks(width).enumerate() {
            assert_eq!(
                stored.rows(name, i..i + 1, &mut buffer).unwrap(),
                row,
                "{name} {i}"
            );
        }
        let end = tensor.shape[0];
        let middle = &tensor.data[width..(end - 1) * width];
        assert_eq!(
            stored.rows(name, 1..end - 1, &mut buffer).unwrap(),
            middle,
            "{name}"
        );
        assert!(stored.rows(name, 0..end + 1, &mut buffer).is_err());
    }
}

#[test]
fn gguf_models_are_read_with_and_without_a_configuration() {
    for (name, encoding) in [
        ("llama-gguf", Encoding::Q8_0),
        ("qwen2-gguf", Encoding::Q4_0),
        ("gemma3-gguf", Encoding::Q5_0),
    ] {
        let folder = fixture(name);
        let stored = StoredCheckpoint::open(&folder).unwrap();
        let config = LmConfig::from_file(&folder.join("expected.json")).unwrap();
        assert_eq!(*stored.config(), config, "{name}");
        assert_eq!(StoredCheckpoint::read_config(&folder).unwrap(), config);
        assert_eq!(stored.files().format(), Format::Gguf);
        assert_eq!(stored.encoding(), Some(encoding));
        assert_holds(&stored, &expected(&folder));

        let copy = tempfile::tempdir().unwrap();
        for (from, to) in [
            ("expected.json", "config.json"),
            ("model.gguf", "other.gguf"),
        ] {
            std::fs::copy(folder.join(from), copy.path().join(to)).unwrap();
        }
        assert_holds(
            &StoredCheckpoint::open(copy.path()).unwrap(),
            &expected(&folder),
        );
    }
}

/// The keys of a GGUF file that holds no model do not describe one.
#[test]
fn gguf_files_of_other_kinds_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let types = fixture("../../../weights/tests/fixtures/types.gguf");
    std::fs::copy(types, &path).unwrap();
    let error = StoredCheckpoint::open(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("model.gguf: key `llama.embedding_length`"),
        "{error}"
    );
    let known = std::fs::read(fixture("qwen2-gguf/model.gguf")).unwrap();
    let at = known
        .windows(5)
        .position(|bytes| bytes == b"qwen2")
        .unwrap();
    let mut other = known.clone();
    other[at..at + 5].copy_from_slice(b"gemma");
    std::fs::write(&path, other).unwrap();
    let error = StoredCheckpoint::open(folder.path())
        .unwrap_err()
        .to_string();
    assert!(error.contains("`gemma` is not read from GGUF"), "{error}");
}

/// Shards of PyTorch, a transposed view, a buffer that is not a weight, and a tied model whose only
/// matrix has the name of the head.
#[test]
fn pytorch_models_are_read() {
    let folder = fixture("torch");
    let stored = StoredCheckpoint::open(&folder).unwrap();
    assert_eq!(stored.files().format(), Format::Torch);
    assert_eq!(stored.files().paths().count(), 2);
    assert_eq!(stored.is_bf16("model.norm.weight"), Some(true));
    assert_holds(&stored, &expected(&folder));
}

const CONFIG: &str = r#"{
    "model_type": "qwen2", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40,
    "tie_word_embeddings": true, "max_position_embeddings": 64
}"#;

fn model(seed: u64) -> Checkpoint {
    let config = LmConfig::from_json(CONFIG, "config.json".as_ref()).unwrap();
    random_checkpoint(&config, seed)
}

/// A folder whose one file holds `tensors`.
fn folder_of(tensors: &BTreeMap<String, HostTensor>) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config.json"), CONFIG).unwrap();
    let path = folder.path().join("model.safetensors");
    write_safetensors(&path, tensors, StoredType::F32).unwrap();
    folder
}

fn opened(tensors: &BTreeMap<String, HostTensor>) -> Result<StoredCheckpoint, LmError> {
    StoredCheckpoint::open(folder_of(tensors).path())
}

#[test]
fn a_tied_model_may_keep_either_name_or_both() {
    let original = model(1);
    let embedding = original.tensors["model.embed_tokens.weight"].clone();
    let mut tensors = original.tensors.clone();
    tensors.insert("lm_head.weight".into(), embedding);
    assert_holds(&opened(&tensors).unwrap(), &original.tensors);
    tensors.remove("model.embed_tokens.weight");
    assert_holds(&opened(&tensors).unwrap(), &original.tensors);
    tensors.remove("lm_head.weight");
    let error = opened(&tensors).unwrap_err().to_string();
    assert!(
        error.contains("`model.embed_tokens.weight` is missing"),
        "{error}"
    );
}

/// As in transformers 5, a separate head counts, whatever the configuration says.
#[test]
fn a_second_head_with_other_values_is_the_head() {
    let original = model(1);
    let mut tensors = original.tensors.clone();
    let mut head = original.tensors["model.embed_tokens.weight"].clone();
    head.data[7] += 1.0;
    tensors.insert("lm_head.weight".into(), head.clone());
    let stored = opened(&tensors).unwrap();
    assert!(!stored.config().tie_word_embeddings);
    assert_holds(&stored, &tensors);
    // A head of another size does not belong to this model.
    head.shape[0] -= 1;
    head.data.truncate(39 * 16);
    tensors.insert("lm_head.weight".into(), head);
    let error = opened(&tensors).unwrap_err().to_string();
    assert!(
        error.contains("lm_head.weight") && error.contains("[39, 16]"),
        "{error}"
    );
    // Other tensors are reported too, but tables of the rotation are not.
    let mut tensors = original.tensors.clone();
    let table = HostTensor {
        shape: vec![2],
        data: vec![1.0; 2],
    };
    tensors.insert(
        "model.layers.0.self_attn.rotary_emb.inv_freq".into(),
        table.clone(),
    );
    assert!(opened(&tensors).is_ok());
    tensors.insert("model.layers.2.extra.weight".into(), table);
    let error = opened(&tensors).unwrap_err().to_string();
    assert!(error.contains("model.layers.2.extra.weight"), "{error}");
}

#[test]
fn projections_that_are_stored_as_one_are_taken_apart() {
    let original = model(2);
    let mut tensors = original.tensors.clone();
    let wholes = [
        (
            "self_attn.qkv_proj.weight",
            &["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"][..],
        ),
        (
            "mlp.gate_up_proj.weight",
            &["mlp.gate_proj", "mlp.up_proj"][..],
        ),
    ];
    for layer in 0..2 {
        for (whole, parts) in wholes {
            let mut data = Vec::new();
            for part in parts {
                let name = format!("model.layers.{layer}.{part}.weight");
                data.extend(tensors.remove(&name).unwrap().data);
            }
            let shape = vec![data.len() / 16, 16];
            let name = format!("model.layers.{layer}.{whole}");
            tensors.insert(name, HostTensor { shape, data });
        }
    }
    assert_holds(&opened(&tensors).unwrap(), &original.tensors);
    let name = "model.layers.1.mlp.gate_up_proj.weight";
    let short = tensors.get_mut(name).unwrap();
    short.shape[0] -= 1;
    short.data.truncate(47 * 16);
    let error = opened(&tensors).unwrap_err().to_string();
    assert!(
        error.contains(name) && error.contains("model.safetensors"),
        "{error}"
    );
    assert!(
        error.contains("[47, 16]") && error.contains("[48, 16]"),
        "{error}"
    );
}

#[test]
fn types_that_cannot_be_read_are_told_before_anything_is() {
    let folder = folder_of(&model(3).tensors);
    let path = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&path).unwrap();
    let at = bytes
        .windows(5)
        .rposition(|bytes| bytes == b"\"F32\"")
        .unwrap();
    let mut other = bytes.clone();
    other[at..at + 5].copy_from_slice(b"\"I32\"");
    std::fs::write(&path, other).unwrap();
    let error = StoredCheckpoint::open(folder.path())
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("has type I32") && error.contains("another program"),
        "{error}"
    );
}

#[test]
fn a_model_is_written_in_shards_and_in_one_file() {
    let original = model(4);
    let folder = tempfile::tempdir().unwrap();
    write_model(&original, folder.path(), StoredType::F32, 4000).unwrap();
    let stored = StoredCheckpoint::open(folder.path()).unwrap();
    assert!(stored.files().paths().count() > 3);
    assert_holds(&stored, &original.tensors);
    // One file instead: the index that would mislead readers is gone, and no temporary file is
    // left.
    let other = model(5);
    other.save(folder.path(), StoredType::F32).unwrap();
    assert_holds(
        &StoredCheckpoint::open(folder.path()).unwrap(),
        &other.tensors,
    );
    let names = std::fs::read_dir(folder.path()).unwrap();
    let mut names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.all(|name| !name.ends_with(".part") && !name.ends_with("index.json")));
}

/// A failed write leaves no configuration without its weights.
#[test]
fn weights_are_written_before_their_configuration() {
    let folder = tempfile::tempdir().unwrap();
    // A folder stands at the place of the weights.
    std::fs::create_dir_all(folder.path().join("model.safetensors/in-the-way")).unwrap();
    assert!(model(6).save(folder.path(), StoredType::Bf16).is_err());
    assert!(!folder.path().join("config.json").exists());
    assert!(!folder.path().join("model.safetensors.part").exists());
}

#[test]
fn random_weights_are_the_same_however_they_are_read() {
    let config = model(0).config;
    let source = RandomWeights::new(&config, 9);
    let whole = Checkpoint::of(&source).unwrap();
    let folder = tempfile::tempdir().unwrap();
    write_model(&source, folder.path(), StoredType::Bf16, u64::MAX).unwrap();
    assert_holds(
        &StoredCheckpoint::open(folder.path()).unwrap(),
        &whole.tensors,
    );
    assert_ne!(
        whole,
        Checkpoint::of(&RandomWeights::new(&config, 8)).unwrap()
    );
}

#[test]
fn what_is_missing_is_told_first() {
    let folder = tempfile::tempdir().unwrap();
    let told = || {
        StoredCheckpoint::open(folder.path())
            .unwrap_err()
            .to_string()
    };
    assert!(told().contains("config.json"), "{}", told());
    std::fs::write(folder.path().join("config.json"), CONFIG).unwrap();
    assert!(told().contains("there are no weights"), "{}", told());
}

#[test]
fn saved_tensors_are_read_as_they_were_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.safetensors");
    for n in [0, 65_535, 1 << 24, (1 << 40) + 12_345, u64::MAX] {
        let tensors = BTreeMap::from([("n".to_owned(), HostTensor::whole(n))]);
        write_safetensors(&path, &tensors, StoredType::F32).unwrap();
        let read = read_safetensors(&path).unwrap();
        assert_eq!(read, tensors);
        assert_eq!(read["n"].to_whole(), Some(n));
    }
    let three = HostTensor {
        shape: vec![3],
        data: vec![1.0; 3],
    };
    assert_eq!(three.to_whole(), None);
}

#[test]
fn a_saved_tensor_that_is_no_number_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("saved.safetensors");
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let tensor = HostTensor {
            shape: vec![2, 2],
            data: vec![0.0, 1.0, bad, 2.0],
        };
        let tensors = BTreeMap::from([("w".to_owned(), tensor)]);
        write_safetensors(&path, &tensors, StoredType::F32).unwrap();
        match read_safetensors(&path) {
            Err(LmError::NotFinite {
                path: named,
                tensor,
                value,
                at,
            }) => {
                assert_eq!((named, tensor.as_str(), at), (path.clone(), "w", 2));
                assert_eq!(value.to_bits(), bad.to_bits());
            }
            other => panic!("{bad}: {other:?}"),
        }
    }
}
