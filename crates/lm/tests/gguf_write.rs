//! Written GGUF files: read again, they are the model, and anything that GGUF cannot express is
//! refused by name.

use half::f16;
use lm::{
    Checkpoint, GgufType, LmConfig, LmError, StoredCheckpoint, check_gguf, random_checkpoint,
    write_gguf,
};
use serde_json::{Value, json};

/// A small model of this family. `more` are further keys of its configuration.
fn config(family: &str, more: &Value) -> LmConfig {
    let mut json = json!({
        "model_type": family, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 40,
        "max_position_embeddings": 8192, "rms_norm_eps": 1e-5, "rope_theta": 500_000.0,
        "tie_word_embeddings": true,
    });
    for (key, value) in more.as_object().unwrap() {
        json[key] = value.clone();
    }
    LmConfig::from_json(&json.to_string(), "config.json".as_ref()).unwrap()
}

fn written(model: &Checkpoint, stored: GgufType) -> Result<Checkpoint, LmError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    let done = write_gguf(model, &path, stored, Vec::new());
    let left = std::fs::read_dir(folder.path()).unwrap().count();
    assert_eq!(left, usize::from(done.is_ok()), "files that are left");
    done?;
    Checkpoint::of(&StoredCheckpoint::open_gguf(&path)?)
}

#[test]
fn what_is_no_number_is_not_written() {
    for wrong in [f32::NAN, f32::INFINITY] {
        let mut model = random_checkpoint(&config("llama", &json!({})), 7);
        let name = "model.layers.1.mlp.up_proj.weight";
        model.tensors.get_mut(name).unwrap().data[100] = wrong;
        match written(&model, GgufType::Q8_0) {
            Err(LmError::NotFinite { at: 100, .. }) => {}
            other => panic!("{wrong}: {other:?}"),
        }
    }
}

#[test]
fn what_is_written_is_read_rounded_once() {
    let wide = json!({"head_dim": 32});
    let llama3 = json!({"rope_scaling": {
        "rope_type": "llama3", "factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }, "max_position_embeddings": 131_072, "tie_word_embeddings": false});
    let linear = json!({"rope_scaling": {"rope_type": "linear", "factor": 2.0}});
    for (family, more) in [
        ("llama", &json!({})),
        ("llama", &wide),
        ("llama", &llama3),
        ("llama", &linear),
        ("qwen2", &json!({})),
        ("qwen3", &wide),
        ("qwen3", &json!({})),
    ] {
        let model = random_checkpoint(&config(family, more), 7);
        let read = written(&model, GgufType::F16).unwrap();
        assert_eq!(read.config.to_json(), model.config.to_json(), "{family}");
        for (name, tensor) in &model.tensors {
            let rounds = tensor.shape.len() > 1;
            let expected = tensor.data.iter().map(|x| match rounds {
                true => f16::from_f32(*x).to_f32(),
                false => *x,
            });
            let expected: Vec<f32> = expected.collect();
            assert!(read.tensors[name].data == expected, "{family} {name}");
        }
        assert_eq!(read.tensors.len(), model.tensors.len());
    }
}

#[test]
fn eight_bits_are_near_and_odd_rows_are_halves() {
    let model = random_checkpoint(&config("llama", &json!({"intermediate_size": 72})), 3);
    let read = written(&model, GgufType::Q8_0).unwrap();
    for (name, tensor) in &model.tensors {
        let (before, after) = (&tensor.data, &read.tensors[name].data);
        let width = tensor.shape.last().copied().unwrap_or(1);
        let blocks = tensor.shape.len() > 1 && width % 32 == 0;
        let mut differs = false;
        for (before, after) in before.chunks(32).zip(after.chunks(32)) {
            let most = before.iter().fold(0.0_f32, |most, x| most.max(x.abs()));
            for (x, y) in before.iter().zip(after) {
                // Half a step of the scale, which is rounded itself.
                assert!(
                    (x - y).abs() <= most / 127.0 * 0.51 + most * 1e-3,
                    "{name}: {x} {y}"
                );
                differs |= f16::from_f32(*x).to_f32() != *y;
            }
        }
        // The inner matrix has rows of 72 values.
        assert_eq!(differs && tensor.shape.len() > 1, blocks, "{name}");
    }
}

#[test]
fn what_a_file_cannot_say_is_named() {
    let refused = |family: &str, more: Value, part: &str| {
        let config = config(family, &more);
        let model = random_checkpoint(&config, 1);
        let told = written(&model, GgufType::F16).unwrap_err();
        assert!(matches!(told, LmError::NotGguf { .. }), "{told:?}");
        assert!(told.to_string().contains(part), "{told}");
        told.to_string()
    };
    let told = refused("olmo2", json!({}), "olmo2");
    assert_eq!(
        check_gguf(&config("olmo2", &json!({})))
            .unwrap_err()
            .to_string(),
        told
    );
    refused("llama", json!({"attention_bias": true}), "biases");
    let yarn =
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048});
    refused("llama", json!({"rope_scaling": yarn}), "yarn");
    refused("llama", json!({"hidden_act": "gelu"}), "hidden_act");
    // A value between two f32 numbers cannot be expressed.
    refused("llama", json!({"rope_theta": 16_777_217.0}), "rope_theta");
}
