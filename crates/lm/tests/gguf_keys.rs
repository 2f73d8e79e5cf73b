//! Keys of GGUF files that describe a model's computation: they are used, change nothing, or are
//! refused.

use lm::{LmConfig, LmError, RopeScaling, StoredCheckpoint};

#[derive(Clone)]
enum Key {
    Int(u32),
    Float(f32),
    Bool(bool),
    Text(&'static str),
    Ints(Vec<u32>),
}

use Key::{Bool, Float, Int, Ints, Text};

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// A file with these keys and an embedding, which suffices for a configuration.
fn file(keys: &[(String, Key)]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3_u32.to_le_bytes());
    out.extend(1_u64.to_le_bytes());
    out.extend((keys.len() as u64).to_le_bytes());
    for (name, key) in keys {
        text(&mut out, name);
        let (kind, bytes): (u32, Vec<u8>) = match key {
            Int(value) => (4, value.to_le_bytes().into()),
            Float(value) => (6, value.to_le_bytes().into()),
            Bool(value) => (7, vec![u8::from(*value)]),
            Text(value) => {
                let mut bytes = Vec::new();
                text(&mut bytes, value);
                (8, bytes)
            }
            Ints(values) => {
                let mut bytes = 4_u32.to_le_bytes().to_vec();
                bytes.extend((values.len() as u64).to_le_bytes());
                bytes.extend(values.iter().flat_map(|value| value.to_le_bytes()));
                (9, bytes)
            }
        };
        out.extend(kind.to_le_bytes());
        out.extend(bytes);
    }
    text(&mut out, "token_embd.weight");
    out.extend(2_u32.to_le_bytes());
    for size in [16_u64, 40] {
        out.extend(size.to_le_bytes());
    }
    out.extend(0_u32.to_le_bytes());
    out.extend(0_u64.to_le_bytes());
    out.resize(out.len().next_multiple_of(32), 0);
    out.resize(out.len() + 16 * 40 * 4, 0);
    out
}

/// The configuration of a tiny model with these keys in addition to the usual ones.
fn config(model: &str, more: &[(&str, Key)]) -> Result<LmConfig, LmError> {
    let own = |key: &str| format!("{model}.{key}");
    let mut keys = vec![
        (
            "general.architecture".to_owned(),
            Text(if model == "llama" {
                "llama"
            } else if model == "gemma3" {
                "gemma3"
            } else {
                "qwen2"
            }),
        ),
        (own("embedding_length"), Int(16)),
        (own("feed_forward_length"), Int(24)),
        (own("block_count"), Int(2)),
        (own("attention.head_count"), Int(4)),
        (own("context_length"), Int(512)),
        (own("attention.layer_norm_rms_epsilon"), Float(1e-5)),
    ];
    for (name, key) in more {
        let name = match name.contains(':') {
            true => name.replace(':', "."),
            false => own(name),
        };
        keys.retain(|(known, _)| *known != name);
        keys.push((name, key.clone()));
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("model.gguf"), file(&keys)).unwrap();
    StoredCheckpoint::read_config(folder.path())
}

#[test]
fn rotations_are_scaled_as_llama_cpp_scales_them() {
    let yarn = [
        ("rope.scaling.type", Text("yarn")),
        ("rope.scaling.factor", Float(4.0)),
        ("rope.scaling.original_context_length", Int(128)),
    ];
    let implied = 0.1 * 4_f64.ln() + 1.0;
    let scaling = |more: &[(&str, Key)]| {
        config("qwen2", &[&yarn[..], more].concat())
            .unwrap()
            .rope
            .scaling
    };
    let expected = |beta_fast, beta_slow, attention_factor| RopeScaling::Yarn {
        factor: 4.0,
        original: 128,
        beta_fast,
        beta_slow,
        truncate: true,
        attention_factor,
    };
    assert_eq!(scaling(&[]), expected(32.0, 1.0, implied));
    assert_eq!(
        scaling(&[
            ("rope.scaling.yarn_beta_fast", Float(16.0)),
            ("rope.scaling.yarn_beta_slow", Float(2.0))
        ]),
        expected(16.0, 2.0, implied)
    );
    assert_eq!(
        scaling(&[
            ("rope.scaling.attn_factor", Float(0.5)),
            ("rope.scaling.yarn_ext_factor", Float(1.0))
        ]),
        expected(32.0, 1.0, implied * 0.5)
    );
    let linear = RopeScaling::Linear { factor: 2.0 };
    for keys in [
        vec![
            ("rope.scaling.type", Text("linear")),
            ("rope.scaling.factor", Float(2.0)),
        ],
        vec![("rope.scaling.factor", Float(2.0))],
        vec![("rope.scale_linear", Float(2.0))],
    ] {
        assert_eq!(config("llama", &keys).unwrap().rope.scaling, linear);
    }
    let none = [
        ("rope.scaling.type", Text("none")),
        ("rope.scaling.factor", Float(2.0)),
    ];
    assert_eq!(
        config("llama", &none).unwrap().rope.scaling,
        RopeScaling::Default
    );
}

#[test]
fn every_end_is_read() {
    let keys = [
        ("tokenizer:ggml:eos_token_id", Int(3)),
        ("tokenizer:ggml:eot_token_id", Int(5)),
        ("tokenizer:ggml:eom_token_id", Int(7)),
    ];
    assert_eq!(config("llama", &keys).unwrap().eos_token_ids, [3, 5, 7]);
    assert_eq!(config("llama", &keys[1..2]).unwrap().eos_token_ids, [5]);
    assert_eq!(config("llama", &[]).unwrap().eos_token_ids, [0_u32; 0]);
}

#[test]
fn keys_that_say_what_is_done_anyway_are_taken() {
    for (key, value) in [
        ("vocab_size", Int(40)),
        ("attention.key_length", Int(4)),
        ("attention.value_length", Int(4)),
        ("rope.dimension_count", Int(4)),
        ("attention.scale", Float(0.5)),
        ("attention.sliding_window", Int(512)),
        ("attention.head_count_kv", Ints(vec![2, 2])),
        ("attention.causal", Bool(true)),
        ("logit_scale", Float(1.0)),
        ("expert_count", Int(0)),
        ("use_parallel_residual", Bool(false)),
        ("rope.scaling.finetuned", Bool(true)),
        ("rope.scaling.yarn_log_multiplier", Float(0.0)),
        ("tensor_data_layout", Text("Meta AI original pth")),
    ] {
        let config = config("llama", &[(key, value)]).unwrap();
        assert_eq!(
            config.num_kv_heads,
            if key.ends_with("_kv") { 2 } else { 4 },
            "{key}"
        );
    }
}

#[test]
fn keys_that_change_numbers_and_are_not_read_are_refused() {
    for (key, value) in [
        ("logit_scale", Float(0.25)),
        ("residual_scale", Float(0.22)),
        ("embedding_scale", Float(12.0)),
        ("attention.scale", Float(0.25)),
        ("attention.value_length", Int(8)),
        ("rope.dimension_count", Int(2)),
        ("attention.clamp_kqv", Float(8.0)),
        ("attention.max_alibi_bias", Float(8.0)),
        ("attn_logit_softcapping", Float(50.0)),
        ("final_logit_softcapping", Float(30.0)),
        ("attention.sliding_window", Int(128)),
        ("attention.causal", Bool(false)),
        ("attention.head_count_kv", Ints(vec![2, 4])),
        ("feed_forward_length", Ints(vec![24, 32])),
        ("expert_count", Int(8)),
        ("use_parallel_residual", Bool(true)),
        ("rope.scaling.attn_factor", Float(0.5)),
        ("rope.scaling.type", Text("longrope")),
        ("rope.scaling.yarn_log_multiplier", Float(0.1)),
        ("rope.freq_base_swa", Float(1e4)),
        ("a_key_of_nobody", Float(0.5)),
    ] {
        let error = config("llama", &[(key, value)]).unwrap_err().to_string();
        assert!(
            error.contains(&format!("llama.{key}")) && error.contains("model.gguf"),
            "{key}: {error}"
        );
    }
    let adapter = config("llama", &[("general:type", Text("adapter"))])
        .unwrap_err()
        .to_string();
    assert!(adapter.contains("general.type"), "{adapter}");
}

#[test]
fn windows_of_gemma_are_read() {
    let gemma = [
        ("attention.sliding_window", Int(64)),
        ("attention.key_length", Int(4)),
        ("rope.freq_base_swa", Float(20_000.0)),
        ("final_logit_softcapping", Float(30.0)),
    ];
    let read = config(
        "gemma3",
        &[&gemma[..], &[("attention.sliding_window_pattern", Int(2))]].concat(),
    )
    .unwrap();
    assert_eq!(read.layer(0).window, Some(64));
    assert_eq!(read.layer(1).window, None);
    assert_eq!(
        read.local_rope.as_ref().map(|rope| rope.theta),
        Some(20_000.0)
    );
    assert_eq!(read.logit_cap, Some(30.0));
    let listed = [("attention.sliding_window_pattern", Ints(vec![0, 1]))];
    let read = config("gemma3", &[&gemma[..], &listed].concat()).unwrap();
    assert_eq!(
        (read.layer(0).window, read.layer(1).window),
        (None, Some(64))
    );
}
