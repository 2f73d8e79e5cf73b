//! Small versions of published models' configurations. Every key in them is read, is known to
//! change nothing, or has the one value that changes nothing.

use lm::{LmConfig, LmError, RopeScaling};
use serde_json::{Value, json};

/// Keys that all of them have.
fn usual() -> Value {
    json!({
        "architectures": ["X"], "attention_dropout": 0.0, "bos_token_id": 1, "eos_token_id": 2,
        "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48,
        "max_position_embeddings": 512, "num_attention_heads": 4, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "transformers_version": "4.50.0",
        "use_cache": true, "vocab_size": 40,
    })
}

/// Published families, with the keys that each has in addition to the usual ones.
fn published() -> Vec<(&'static str, Value)> {
    let windows =
        json!({"max_window_layers": 2, "sliding_window": null, "use_sliding_window": false});
    let with = |mut own: Value, more: &Value| {
        own.as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        own
    };
    vec![
        (
            "Llama 2",
            json!({"model_type": "llama", "pretraining_tp": 1, "rope_scaling": null, "_name_or_path": "x", "attention_bias": false}),
        ),
        (
            "Vicuna",
            json!({"model_type": "llama", "pad_token_id": 0, "max_sequence_length": 512, "pretraining_tp": 1, "rope_scaling": null}),
        ),
        (
            "Llama 3.2",
            json!({"model_type": "llama", "attention_bias": false, "head_dim": 8, "mlp_bias": false, "pretraining_tp": 1, "eos_token_id": [3, 4, 5],
            "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0, "original_max_position_embeddings": 128, "rope_type": "llama3"}}),
        ),
        (
            "SmolLM2",
            json!({"model_type": "llama", "is_llama_config": true, "rope_interleaved": false, "pad_token_id": 2, "rope_scaling": null, "pretraining_tp": 1, "attention_bias": false, "mlp_bias": false,
            "transformers.js_config": {"dtype": "q4f16", "kv_cache_dtype": {"q4f16": "float16"}}}),
        ),
        (
            "a fine-tune",
            json!({"model_type": "llama", "unsloth_version": "2025.1", "unsloth_fixed": true, "neftune_noise_alpha": 5, "loss_type": "ForCausalLM", "model_max_length": 4096, "tokenizer_padding_side": "left"}),
        ),
        (
            "Llama by transformers 5",
            json!({"model_type": "llama", "dtype": "bfloat16", "layer_types": ["full_attention", "full_attention"], "rope_theta": null, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "factor": 1.0}}),
        ),
        (
            "Mistral 0.1",
            json!({"model_type": "mistral", "sliding_window": 4096}),
        ),
        (
            "Mistral Nemo",
            json!({"model_type": "mistral", "head_dim": 16, "sliding_window": null}),
        ),
        (
            "Mistral by transformers 5",
            json!({"model_type": "mistral", "sliding_window": null, "layer_types": ["full_attention", "full_attention"]}),
        ),
        (
            "Mistral with a window by transformers 5",
            json!({"model_type": "mistral", "sliding_window": 64, "layer_types": ["sliding_attention", "sliding_attention"]}),
        ),
        (
            "Qwen2.5",
            with(json!({"model_type": "qwen2", "use_mrope": false}), &windows),
        ),
        (
            "Qwen3",
            with(
                json!({"model_type": "qwen3", "head_dim": 16, "attention_bias": false, "rope_scaling": null}),
                &windows,
            ),
        ),
        (
            "SmolLM3",
            with(
                json!({"model_type": "smollm3", "no_rope_layers": [1, 0], "no_rope_layer_interval": 2, "layer_types": ["full_attention", "full_attention"], "pretraining_tp": 2, "mlp_bias": false, "attention_bias": false, "pad_token_id": 3}),
                &windows,
            ),
        ),
        (
            "Phi-3.5",
            json!({"model_type": "phi3", "auto_map": {"AutoConfig": "x.Y"}, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "attention_bias": false, "original_max_position_embeddings": 128, "sliding_window": 262144,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.0, 1.0, 1.0], "long_factor": [1.0, 2.0, 3.0, 4.0]}}),
        ),
        (
            "Phi-4-mini",
            json!({"model_type": "phi3", "full_attn_mod": 1, "interpolate_factor": 1, "lm_head_bias": false, "mlp_bias": false, "attention_bias": false, "embd_pdrop": 0.0, "resid_pdrop": 0.0, "pad_token_id": 0,
            "original_max_position_embeddings": 128, "partial_rotary_factor": 0.75, "sliding_window": 262144, "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.0, 1.0], "long_factor": [1.0, 2.0, 3.0]}}),
        ),
        (
            "Gemma 2",
            json!({"model_type": "gemma2", "attention_bias": false, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "cache_implementation": "hybrid", "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "pad_token_id": 0, "query_pre_attn_scalar": 256, "sliding_window": 64, "sliding_window_size": 64}),
        ),
        (
            "Gemma 3 1B",
            json!({"model_type": "gemma3_text", "attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null, "cache_implementation": "hybrid", "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "pad_token_id": 0, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000, "rope_scaling": null, "sliding_window": 64, "sliding_window_pattern": 6}),
        ),
        (
            "Gemma 3 270M",
            json!({"model_type": "gemma3_text", "_sliding_window_pattern": 6, "attention_bias": false, "attn_logit_softcapping": null, "final_logit_softcapping": null, "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "layer_types": ["sliding_attention", "full_attention"], "pad_token_id": 0, "query_pre_attn_scalar": 256, "rope_local_base_freq": 10000.0, "rope_scaling": null, "sliding_window": 64, "use_bidirectional_attention": false}),
        ),
        (
            "OLMo 2",
            json!({"model_type": "olmo2", "attention_bias": false, "pad_token_id": 3, "rope_scaling": null, "_name_or_path": "x"}),
        ),
        (
            "Granite 3",
            json!({"model_type": "granite", "attention_bias": false, "attention_multiplier": 0.0625, "embedding_multiplier": 12.0, "logits_scaling": 8.0, "mlp_bias": false, "pad_token_id": 0, "residual_multiplier": 0.22, "rope_scaling": null}),
        ),
    ]
}

fn read(own: &Value) -> Result<LmConfig, LmError> {
    let mut config = usual();
    for (key, value) in own.as_object().unwrap() {
        config[key] = value.clone();
    }
    LmConfig::from_json(&config.to_string(), "config.json".as_ref())
}

#[test]
fn every_key_of_published_models_is_known() {
    for (name, own) in published() {
        if let Err(error) = read(&own) {
            panic!("{name}: {error}");
        }
    }
}

#[test]
fn other_values_of_these_keys_are_refused() {
    let layers = |kind: &str| json!(["full_attention", kind]);
    for (model, key, value) in [
        ("phi3", "full_attn_mod", json!(2)),
        ("phi3", "interpolate_factor", json!(2)),
        ("phi3", "lm_head_bias", json!(true)),
        ("gemma2", "sliding_window_size", json!(32)),
        ("llama", "layer_types", layers("sliding_attention")),
        ("mistral", "layer_types", layers("full_attention")),
        ("llama", "layer_types", json!(["full_attention"])),
        ("qwen2", "layer_types", layers("linear_attention")),
        ("llama", "max_window_layers", json!(1)),
        ("llama", "rope_interleaved", json!(true)),
        ("llama", "eos_token_id", json!("x")),
    ] {
        let error = read(&json!({"model_type": model, key: value}))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains(&format!("`{key}`")),
            "{model} {key}: {error}"
        );
    }
    let rope =
        json!({"model_type": "llama", "rope_scaling": {"rope_type": "default", "factor": 2.0}});
    assert!(read(&rope).unwrap_err().to_string().contains("factor"));
}

#[test]
fn ends_are_one_or_several_and_minus_one_is_none() {
    for (ids, expected) in [
        (json!(2), vec![2]),
        (json!([4, 2, 4]), vec![4, 2]),
        (json!(-1), vec![]),
        (json!(null), vec![]),
    ] {
        let config = read(&json!({"model_type": "llama", "eos_token_id": ids})).unwrap();
        assert_eq!(config.eos_token_ids, expected, "{ids}");
    }
    let nested = json!({"model_type": "gemma3", "eos_token_id": [1, 7], "text_config": usual(), "tie_word_embeddings": true});
    let mut nested = nested;
    nested["text_config"]["model_type"] = "gemma3_text".into();
    let config = LmConfig::from_json(&nested.to_string(), "config.json".as_ref()).unwrap();
    assert_eq!(config.eos_token_ids, [2, 1, 7]);
}

#[test]
fn scalings_of_both_rotations_are_written() {
    let linear = json!({"rope_type": "linear", "factor": 8.0});
    let yarn = json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128});
    for (global, local) in [
        (&Value::Null, &linear),
        (&linear, &yarn),
        (&yarn, &Value::Null),
    ] {
        let own = json!({"model_type": "gemma3_text", "rope_local_base_freq": 5000.0,
            "rope_parameters": {"full_attention": global, "sliding_attention": local}});
        let config = read(&own).unwrap();
        let scaled = config.local_rope.as_ref().unwrap().scaling != RopeScaling::Default;
        assert_eq!(scaled, !local.is_null());
        let text = config.to_json().to_string();
        let again = LmConfig::from_json(&text, "config.json".as_ref()).unwrap();
        assert_eq!(again, config, "{text}");
    }
}
