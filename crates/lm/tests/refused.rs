//! Keys that change results and are not understood are refused, with the key and the file.

use lm::{Adapter, LmConfig, LmError, Projections, random_checkpoint};
use serde_json::{Value, json};

fn base(model_type: &str) -> Value {
    json!({
        "model_type": model_type, "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
        "vocab_size": 40, "max_position_embeddings": 64,
    })
}

fn read(config: &Value) -> Result<LmConfig, LmError> {
    LmConfig::from_json(&config.to_string(), "some/config.json".as_ref())
}

/// The key and the message with which a configuration with these keys is refused.
fn refusal(model_type: &str, keys: Value) -> (String, String) {
    let mut config = base(model_type);
    for (key, value) in keys.as_object().unwrap() {
        config[key] = value.clone();
    }
    match read(&config) {
        Err(LmError::Config { path, key, message }) => {
            assert_eq!(path.to_str(), Some("some/config.json"));
            (key, message)
        }
        other => panic!("{keys}: {other:?}"),
    }
}

#[track_caller]
fn refused(model_type: &str, keys: Value, key: &str) -> String {
    let (found, message) = refusal(model_type, keys);
    assert_eq!(found, key, "{message}");
    message
}

#[test]
fn a_plain_configuration_is_read() {
    for model_type in [
        "llama",
        "mistral",
        "qwen2",
        "qwen3",
        "phi3",
        "gemma2",
        "gemma3_text",
        "smollm3",
        "olmo2",
        "granite",
    ] {
        let config = read(&base(model_type)).unwrap();
        assert_eq!(config.model_type(), model_type);
    }
    let error = read(&base("gpt2")).unwrap_err().to_string();
    assert!(
        error.contains("`gpt2`") && error.contains("llama, mistral"),
        "{error}"
    );
}

#[test]
fn keys_that_nobody_understands_are_refused() {
    let message = refused("llama", json!({ "clip_qkv": 8.0 }), "clip_qkv");
    assert!(message.contains("8.0"), "{message}");
    refused("llama", json!({ "sliding_window": 16 }), "sliding_window");
    refused("qwen2", json!({ "use_mrope": true }), "use_mrope");
    refused(
        "mistral",
        json!({ "num_local_experts": 8 }),
        "num_local_experts",
    );
    refused(
        "olmo2",
        json!({ "rope_interleaved": true }),
        "rope_interleaved",
    );
    // Keys that switch something off, and keys without effect, may stay.
    let mut config = base("llama");
    for (key, value) in [
        ("clip_qkv", Value::Null),
        ("pruned_heads", json!({})),
        ("use_mrope", json!(false)),
        ("_name_or_path", json!("somewhere")),
        ("transformers_version", json!("4.40.0")),
        ("attention_dropout", json!(0.1)),
    ] {
        config[key] = value;
    }
    read(&config).unwrap();
}

/// The message names the expected value in words, not by Rust's types.
#[test]
fn a_value_of_another_kind_is_told_with_what_it_must_be() {
    for (key, value, said) in [
        (
            "hidden_size",
            json!("7"),
            r#"must be a whole number, 0 or more, not "7""#,
        ),
        (
            "max_position_embeddings",
            json!(-1),
            "must be a whole number, 0 or more, not -1",
        ),
        (
            "vocab_size",
            json!(1.5),
            "must be a whole number, 0 or more, not 1.5",
        ),
        (
            "tie_word_embeddings",
            json!("yes"),
            r#"must be true or false, not "yes""#,
        ),
        (
            "rms_norm_eps",
            json!("small"),
            r#"must be a number, not "small""#,
        ),
        (
            "hidden_act",
            json!(["silu"]),
            r#"must be a text, not ["silu"]"#,
        ),
        (
            "bos_token_id",
            json!("x"),
            r#"must be a whole number, not "x""#,
        ),
        (
            "layer_types",
            json!([1]),
            "must be a list of texts, not [1]",
        ),
        ("rope_scaling", json!("linear"), "must be an object"),
    ] {
        let message = refused("qwen2", json!({ key: value }), key);
        assert_eq!(message, said);
    }
    let short = json!({"rope_type": "longrope", "short_factor": ["a"], "long_factor": [1.0]});
    let message = refused(
        "phi3",
        json!({ "rope_scaling": short }),
        "rope_scaling.short_factor",
    );
    assert!(message.contains("must be a list of numbers"), "{message}");
    let long = json!({ "hidden_act": vec![7; 500] });
    assert!(refused("llama", long, "hidden_act").len() < 100);
    let mut config = base("llama");
    config.as_object_mut().unwrap().remove("hidden_size");
    let error = read(&config).unwrap_err().to_string();
    assert_eq!(error, "some/config.json: key `hidden_size`: is missing");
}

/// A byte order mark, which some editors write, is skipped.
#[test]
fn a_mark_of_the_encoding_in_front_is_read_over() {
    let text = format!("\u{feff}{}", base("llama"));
    LmConfig::from_json(&text, "some/config.json".as_ref()).unwrap();
}

#[test]
fn quantised_weights_are_refused_with_their_method() {
    for (key, method) in [
        ("quantization_config", "gptq"),
        ("quantization_config", "awq"),
    ] {
        let message = refused(
            "llama",
            json!({ key: { "quant_method": method, "bits": 4 } }),
            key,
        );
        assert!(message.contains(&format!("`{method}`")), "{message}");
    }
    refused(
        "llama",
        json!({ "quantization": { "bits": 4 } }),
        "quantization",
    );
    let nested = json!({ "model_type": "gemma3", "text_config": base("gemma3_text"),
        "quantization_config": { "quant_method": "fp8" } });
    let message = read(&nested).unwrap_err().to_string();
    assert!(message.contains("`fp8`"), "{message}");
}

#[test]
fn features_of_other_families_are_refused() {
    refused(
        "mistral",
        json!({ "attention_bias": true }),
        "attention_bias",
    );
    refused("phi3", json!({ "attention_bias": true }), "attention_bias");
    refused("qwen3", json!({ "mlp_bias": true }), "mlp_bias");
    refused(
        "llama",
        json!({ "partial_rotary_factor": 0.5 }),
        "partial_rotary_factor",
    );
    refused("llama", json!({ "hidden_act": "quick_gelu" }), "hidden_act");
    refused(
        "gemma2",
        json!({ "hidden_activation": "relu6" }),
        "hidden_activation",
    );
    let both_ways = json!({ "use_bidirectional_attention": true });
    refused("gemma2", both_ways, "use_bidirectional_attention");
    refused(
        "llama",
        json!({ "residual_multiplier": 0.2 }),
        "residual_multiplier",
    );
    refused(
        "llama",
        json!({ "attn_logit_softcapping": 50.0 }),
        "attn_logit_softcapping",
    );
}

#[test]
fn senseless_shapes_are_refused() {
    refused("llama", json!({ "hidden_size": 0 }), "hidden_size");
    refused("llama", json!({ "vocab_size": null }), "vocab_size");
    refused(
        "llama",
        json!({ "num_key_value_heads": 3 }),
        "num_key_value_heads",
    );
    refused("llama", json!({ "head_dim": 7 }), "head_dim");
    refused("llama", json!({ "rms_norm_eps": -1.0 }), "rms_norm_eps");
    refused("llama", json!({ "rope_theta": 0.0 }), "rope_theta");
    refused(
        "gemma2",
        json!({ "query_pre_attn_scalar": 0 }),
        "query_pre_attn_scalar",
    );
    refused(
        "gemma2",
        json!({ "final_logit_softcapping": -3.0 }),
        "final_logit_softcapping",
    );
    refused(
        "granite",
        json!({ "logits_scaling": 0.0 }),
        "logits_scaling",
    );
    refused(
        "phi3",
        json!({ "partial_rotary_factor": 0.1 }),
        "partial_rotary_factor",
    );
    refused(
        "phi3",
        json!({ "partial_rotary_factor": 1.5 }),
        "partial_rotary_factor",
    );
}

#[test]
fn senseless_windows_are_refused() {
    refused("mistral", json!({ "sliding_window": 0 }), "sliding_window");
    let types = json!({ "layer_types": ["full_attention"] });
    refused("qwen3", types, "layer_types");
    let types = json!({ "layer_types": ["full_attention", "chunked_attention"] });
    refused("qwen3", types, "layer_types");
    // Windows by layer, but no window size.
    let types = json!({ "layer_types": ["sliding_attention", "full_attention"] });
    refused("qwen2", types, "layer_types");
    refused(
        "smollm3",
        json!({ "no_rope_layers": [1] }),
        "no_rope_layers",
    );
    refused(
        "smollm3",
        json!({ "no_rope_layer_interval": 0 }),
        "no_rope_layer_interval",
    );
}

#[test]
fn the_window_of_qwen2_is_no_longer_ignored() {
    let mut config = base("qwen2");
    config["sliding_window"] = json!(16);
    config["max_window_layers"] = json!(1);
    assert!(
        read(&config)
            .unwrap()
            .layers
            .iter()
            .all(|l| l.window.is_none())
    );
    config["use_sliding_window"] = json!(true);
    let windows: Vec<_> = (0..2)
        .map(|l| read(&config).unwrap().layer(l).window)
        .collect();
    assert_eq!(windows, [None, Some(16)]);
}

#[test]
fn senseless_rotations_are_refused() {
    let rope = |scaling: Value, key: &str| {
        let key = format!("rope_scaling.{key}");
        refused("llama", json!({ "rope_scaling": scaling }), &key)
    };
    let message = rope(
        json!({ "type": "mrope", "mrope_section": [1, 1, 2] }),
        "rope_type",
    );
    assert!(message.contains("`mrope`"), "{message}");
    for kind in ["linear", "dynamic", "yarn"] {
        for factor in [-1.0, 0.0, 0.5, 1e20] {
            rope(json!({ "type": kind, "factor": factor }), "factor");
        }
    }
    rope(json!({ "type": "linear" }), "factor");
    rope(
        json!({ "type": "linear", "factor": 2.0, "beta_fast": 3.0 }),
        "beta_fast",
    );
    rope(
        json!({ "type": "yarn", "factor": 2.0, "beta_fast": 1.0, "beta_slow": 2.0 }),
        "beta_fast",
    );
    rope(
        json!({ "type": "yarn", "factor": 2.0, "attention_factor": -1.0 }),
        "attention_factor",
    );
    let none = json!({ "type": "yarn", "factor": 2.0, "original_max_position_embeddings": 0 });
    rope(none, "original_max_position_embeddings");
    let llama3 = |low: f64, high: f64| {
        json!({ "rope_type": "llama3", "factor": 8.0, "low_freq_factor": low,
            "high_freq_factor": high, "original_max_position_embeddings": 32 })
    };
    rope(llama3(4.0, 4.0), "low_freq_factor");
    rope(llama3(0.0, 4.0), "low_freq_factor");
    let lists = |short: usize, value: f64| json!({ "type": "longrope", "short_factor": vec![value; short], "long_factor": [1, 1, 1, 1] });
    rope(lists(3, 1.0), "short_factor");
    rope(lists(4, 0.0), "short_factor");
    rope(json!({ "type": "longrope" }), "short_factor");
}

#[test]
fn faults_inside_a_text_config_are_named_by_their_place() {
    let mut inner = base("gemma3_text");
    inner["hidden_size"] = json!("wide");
    let config = json!({ "model_type": "gemma3", "text_config": inner });
    let error = read(&config).unwrap_err();
    assert!(
        matches!(&error, LmError::Config { key, .. } if key == "text_config.hidden_size"),
        "{error}"
    );
    let without = read(&json!({ "model_type": "gemma3" })).unwrap_err();
    assert!(without.to_string().contains("text_config"));
}

#[test]
fn models_without_a_backward_pass_are_named() {
    for (model_type, trainable) in [
        ("llama", true),
        ("mistral", true),
        ("qwen2", true),
        ("qwen3", true),
        ("smollm3", true),
        ("gemma2", false),
        ("gemma3_text", false),
        ("olmo2", false),
    ] {
        let config = read(&base(model_type)).unwrap();
        match config.check_trainable() {
            Ok(()) => assert!(trainable, "{model_type}"),
            Err(error) => {
                assert!(
                    !trainable && error.to_string().contains(model_type),
                    "{error}"
                );
            }
        }
    }
}

/// Writes an adapter of PEFT with these keys, and reads it.
fn adapter_with(keys: Value) -> Result<Adapter, LmError> {
    let config = read(&base("llama")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let lora = lm::LoraConfig {
        rank: 4,
        alpha: 8.0,
        projections: Projections::ALL,
        blocks: 0,
    };
    let tensors = lm::adapted(&config, &lora).into_iter().flat_map(|matrix| {
        let tensor = |shape: [usize; 2]| lm::HostTensor {
            shape: shape.to_vec(),
            data: vec![0.5; shape[0] * shape[1]],
        };
        [
            (matrix.a, tensor([4, matrix.input])),
            (matrix.b, tensor([matrix.out, 4])),
        ]
    });
    let adapter = Adapter {
        config: lora,
        tensors: tensors.collect(),
    };
    adapter.save(folder.path(), "base").unwrap();
    let path = folder.path().join(lm::ADAPTER_CONFIG);
    let mut json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    for (key, value) in keys.as_object().unwrap() {
        json[key] = value.clone();
    }
    std::fs::write(&path, json.to_string()).unwrap();
    Adapter::load(folder.path(), &config)
}

#[test]
fn keys_of_adapters_that_change_results_are_understood_or_refused() {
    let plain = adapter_with(json!({})).unwrap();
    assert_eq!(plain.config.scale(), 2.0);
    // rsLoRA divides by the root of the rank.
    let by_root = adapter_with(json!({ "use_rslora": true })).unwrap();
    assert_eq!(by_root.config.scale(), 4.0);
    let mut merged = random_checkpoint(&read(&base("llama")).unwrap(), 1);
    let name = "model.layers.0.mlp.up_proj.weight";
    let before = merged.tensors[name].data[0];
    merged.merge(&by_root).unwrap();
    // 4 * (0.5 * 0.5 summed over a rank of 4)
    assert!((merged.tensors[name].data[0] - before - 4.0).abs() < 1e-5);

    // Keys that PEFT writes by itself.
    adapter_with(json!({
        "alpha_pattern": {}, "rank_pattern": {}, "use_dora": false, "modules_to_save": null,
        "init_lora_weights": true, "layers_to_transform": null, "megatron_core": "megatron.core",
        "revision": "main", "peft_version": "0.18.0", "auto_mapping": null, "qalora_group_size": 16,
    }))
    .unwrap();
    for (key, value) in [
        ("alpha_pattern", json!({ "q_proj": 32 })),
        ("rank_pattern", json!({ "q_proj": 2 })),
        ("use_dora", json!(true)),
        ("modules_to_save", json!(["lm_head"])),
        ("layers_to_transform", json!([0])),
        ("layer_replication", json!([[0, 1]])),
        ("lora_bias", json!(true)),
        ("init_lora_weights", json!("pissa_niter_4")),
        ("trainable_token_indices", json!([1, 2])),
        ("bias", json!("all")),
        ("fan_in_fan_out", json!(true)),
        ("some_new_method", json!(1)),
    ] {
        let error = adapter_with(json!({ key: value })).unwrap_err().to_string();
        assert!(
            error.contains(key) && error.contains("adapter_config.json"),
            "{key}: {error}"
        );
    }
}
