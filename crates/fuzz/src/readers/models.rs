//! Configurations, weights, adapters.

use std::path::Path;

use anyhow::Result;
use lm::{
    Adapter, Checkpoint, HostTensor, LmConfig, LoraConfig, Projections, ReferenceEngine,
    StoredType, adapted, random_checkpoint,
};
use serde_json::json;

use super::{put, written};
use crate::Reader;
use crate::mutate::Shape;

pub const CONFIG: Reader = Reader {
    name: "config",
    what: "config.json of a model",
    shape: Shape::Json,
    seeds: || Ok(CONFIGS.map(|text| text.as_bytes().to_vec()).to_vec()),
    read: |folder, bytes| {
        let text = String::from_utf8_lossy(bytes);
        let config = LmConfig::from_json(&text, &folder.join("config.json"))?;
        config.to_json();
        config.num_params();
        Ok(())
    },
};

pub const CHECKPOINT: Reader = Reader {
    name: "safetensors",
    what: "model.safetensors of a model, and a forward",
    shape: Shape::Safetensors,
    seeds: || {
        let checkpoint = tiny()?;
        let saved = |stored| written("model.safetensors", |to| checkpoint.save(to, stored));
        Ok(vec![saved(StoredType::F32)?, saved(StoredType::Bf16)?])
    },
    read: |folder, bytes| {
        put(folder, "config.json", TINY.as_bytes())?;
        put(folder, "model.safetensors", bytes)?;
        let checkpoint = Checkpoint::load(folder)?;
        ReferenceEngine::new(&checkpoint, 8)?.forward_f64(&[1, 2])?;
        Ok(())
    },
};

pub const INDEX: Reader = Reader {
    name: "index",
    what: "model.safetensors.index.json",
    shape: Shape::Json,
    seeds: || {
        let names = tiny()?.tensors.into_keys();
        let map: serde_json::Map<_, _> = names
            .map(|name| (name, json!("shard.safetensors")))
            .collect();
        let index = json!({"metadata": {"total_size": 1234}, "weight_map": map});
        Ok(vec![index.to_string().into_bytes()])
    },
    read: |folder, bytes| {
        tiny()?.save(folder, StoredType::F32)?;
        std::fs::rename(
            folder.join("model.safetensors"),
            folder.join("shard.safetensors"),
        )?;
        put(folder, "model.safetensors.index.json", bytes)?;
        Checkpoint::load(folder)?;
        Ok(())
    },
};

pub const ADAPTER: Reader = Reader {
    name: "adapter",
    what: "adapter_model.safetensors (LoRA)",
    shape: Shape::Safetensors,
    seeds: || Ok(vec![written("adapter_model.safetensors", save_adapter)?]),
    read: |folder, bytes| {
        save_adapter(folder)?;
        put(folder, "adapter_model.safetensors", bytes)?;
        merged(folder)
    },
};

pub const ADAPTER_CONFIG: Reader = Reader {
    name: "adapter-config",
    what: "adapter_config.json (LoRA)",
    shape: Shape::Json,
    seeds: || Ok(vec![written("adapter_config.json", save_adapter)?]),
    read: |folder, bytes| {
        save_adapter(folder)?;
        put(folder, "adapter_config.json", bytes)?;
        merged(folder)
    },
};

const TINY: &str = r#"{"model_type": "llama", "hidden_size": 8, "intermediate_size": 12, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "vocab_size": 20, "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": false}"#;

const CONFIGS: [&str; 3] = [
    TINY,
    r#"{"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
        "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "hidden_act": "silu",
        "tie_word_embeddings": true, "use_sliding_window": false, "sliding_window": 4096, "max_window_layers": 28,
        "bos_token_id": 1, "eos_token_id": [2, 3], "torch_dtype": "bfloat16"}"#,
    r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 8, "vocab_size": 300,
        "max_position_embeddings": 131072, "rope_theta": 500000.0, "attention_bias": false, "mlp_bias": false,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3"},
        "eos_token_id": 2}"#,
];

fn tiny_config() -> Result<LmConfig> {
    Ok(LmConfig::from_json(TINY, "config.json".as_ref())?)
}

fn tiny() -> Result<Checkpoint> {
    Ok(random_checkpoint(&tiny_config()?, 1))
}

fn save_adapter(folder: &Path) -> Result<()> {
    let config = LoraConfig {
        rank: 2,
        alpha: 4.0,
        projections: Projections::ALL,
        blocks: 0,
    };
    let ones = |rows: usize, columns: usize| HostTensor {
        shape: vec![rows, columns],
        data: vec![1.0; rows * columns],
    };
    let matrices = adapted(&tiny_config()?, &config).into_iter();
    let tensors = matrices.flat_map(|matrix| {
        let a = ones(config.rank, matrix.input);
        [(matrix.a, a), (matrix.b, ones(matrix.out, config.rank))]
    });
    let adapter = Adapter {
        config,
        tensors: tensors.collect(),
    };
    Ok(adapter.save(folder, "base")?)
}

fn merged(folder: &Path) -> Result<()> {
    let mut checkpoint = tiny()?;
    let adapter = Adapter::load(folder, &checkpoint.config)?;
    Ok(checkpoint.merge(&adapter)?)
}
