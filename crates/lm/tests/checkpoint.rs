//! Checkpoints: round trips, shards, and errors of malformed folders.

use std::path::Path;

use lm::{Checkpoint, LmConfig, LmError, StoredType, random_checkpoint};
use weights::WeightsError;

const CONFIG: &str = r#"{
    "model_type": "qwen2", "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 40,
    "tie_word_embeddings": true, "max_position_embeddings": 64, "eos_token_id": [3, 4]
}"#;

fn config(text: &str) -> Result<LmConfig, LmError> {
    LmConfig::from_json(text, Path::new("config.json"))
}

fn saved(stored: StoredType) -> (tempfile::TempDir, Checkpoint) {
    let folder = tempfile::tempdir().unwrap();
    let checkpoint = random_checkpoint(&config(CONFIG).unwrap(), 7);
    checkpoint.save(folder.path(), stored).unwrap();
    (folder, checkpoint)
}

#[test]
fn f32_survives_and_bf16_is_rounded_once() {
    let (folder, original) = saved(StoredType::F32);
    assert_eq!(Checkpoint::load(folder.path()).unwrap(), original);

    let (folder, original) = saved(StoredType::Bf16);
    let rounded = Checkpoint::load(folder.path()).unwrap();
    assert_eq!(rounded.config, original.config);
    assert_ne!(rounded, original);
    rounded.save(folder.path(), StoredType::Bf16).unwrap();
    assert_eq!(Checkpoint::load(folder.path()).unwrap(), rounded);
}

#[test]
fn several_safetensors_files_are_one_model() {
    let (folder, original) = saved(StoredType::F32);
    let middle = original.tensors.len() / 2;
    let mut first = original.tensors.clone();
    let second = first.split_off(first.keys().nth(middle).unwrap().clone().as_str());
    let mut map = serde_json::Map::new();
    for (file, tensors) in [("a.safetensors", &first), ("b.safetensors", &second)] {
        lm::write_safetensors(&folder.path().join(file), tensors, StoredType::F32).unwrap();
        map.extend(tensors.keys().map(|name| (name.clone(), file.into())));
    }
    std::fs::remove_file(folder.path().join("model.safetensors")).unwrap();
    let index = serde_json::json!({ "weight_map": map }).to_string();
    std::fs::write(folder.path().join("model.safetensors.index.json"), index).unwrap();
    assert_eq!(Checkpoint::load(folder.path()).unwrap(), original);

    std::fs::remove_file(folder.path().join("b.safetensors")).unwrap();
    let error = Checkpoint::load(folder.path()).unwrap_err().to_string();
    assert!(error.contains("b.safetensors"), "{error}");
}

#[test]
fn missing_leftover_and_misshapen_tensors_are_named() {
    let (folder, original) = saved(StoredType::F32);
    let file = folder.path().join("model.safetensors");
    let write = |change: &dyn Fn(&mut Checkpoint)| {
        let mut changed = original.clone();
        change(&mut changed);
        lm::write_safetensors(&file, &changed.tensors, StoredType::F32).unwrap();
        Checkpoint::load(folder.path()).unwrap_err().to_string()
    };
    let message = write(&|c| {
        c.tensors.remove("model.layers.1.mlp.up_proj.weight");
    });
    assert!(
        message.contains("model.layers.1.mlp.up_proj.weight` is missing"),
        "{message}"
    );
    let message = write(&|c| {
        let copy = c.tensors["model.norm.weight"].clone();
        c.tensors.insert("model.extra".into(), copy);
    });
    assert!(message.contains("the first is `model.extra`"), "{message}");
    let message = write(&|c| {
        c.tensors.get_mut("model.norm.weight").unwrap().shape = vec![4, 4];
    });
    assert!(
        message.contains("[4, 4]") && message.contains("[16]"),
        "{message}"
    );
}

#[test]
fn a_truncated_file_is_refused_with_its_name() {
    let (folder, _) = saved(StoredType::F32);
    let file = folder.path().join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
    let error = Checkpoint::load(folder.path()).unwrap_err();
    assert!(
        matches!(&error, LmError::Weights(WeightsError::Malformed { path, .. }) if *path == file),
        "{error}"
    );
}

#[test]
fn configurations_are_read_and_written() {
    let read = config(CONFIG).unwrap();
    assert_eq!(
        (read.head_dim, read.kv_width(), read.block.biases.qkv),
        (4, 8, true)
    );
    assert_eq!(read.eos_token_ids, [3, 4]);
    assert_eq!(config(&read.to_json().to_string()).unwrap(), read);
}

#[test]
fn random_weights_depend_on_the_seed_alone() {
    let config = config(CONFIG).unwrap();
    assert_eq!(random_checkpoint(&config, 1), random_checkpoint(&config, 1));
    assert_ne!(random_checkpoint(&config, 1), random_checkpoint(&config, 2));
}
