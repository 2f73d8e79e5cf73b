//! The reference engine as an implementation of the engine trait. `golden.rs` tests its results.

use lm::{Checkpoint, DecodeEngine, LmConfig, LmError, ReferenceEngine, random_checkpoint};

fn model() -> Checkpoint {
    let json = r#"{"model_type": "qwen2", "hidden_size": 12, "intermediate_size": 20,
        "num_hidden_layers": 2, "num_attention_heads": 3, "num_key_value_heads": 1,
        "head_dim": 6, "vocab_size": 19, "max_position_embeddings": 16}"#;
    let config = LmConfig::from_json(json, "config.json".as_ref()).unwrap();
    random_checkpoint(&config, 3)
}

#[test]
fn truncation_and_batches_do_not_change_the_bits() {
    let ids = [3, 18, 0, 7, 7, 2, 11, 5];
    let mut engine = ReferenceEngine::new(&model(), 16).unwrap();
    let (mut whole, mut tail) = (Vec::new(), Vec::new());
    engine.forward(&ids, &mut whole).unwrap();
    for keep in [7, 3, 0] {
        engine.truncate(keep);
        engine.forward(&[1, 1], &mut tail).unwrap();
        engine.truncate(keep);
        for (i, id) in ids.iter().enumerate().skip(keep) {
            engine.forward(&[*id], &mut tail).unwrap();
            assert_eq!(tail, whole[i * 19..][..19]);
        }
    }
    let exact = {
        engine.truncate(0);
        engine.forward_f64(&ids).unwrap()
    };
    assert!(exact.iter().zip(&whole).all(|(a, b)| *a as f32 == *b));
}

#[test]
fn bad_calls_are_refused_and_leave_the_cache_alone() {
    let mut engine = ReferenceEngine::new(&model(), 100).unwrap();
    assert_eq!(engine.max_len(), 16);
    let mut logits = Vec::new();
    engine.forward(&[1, 2, 3], &mut logits).unwrap();
    let before = logits.clone();
    let outside = engine.forward(&[1, 19], &mut logits);
    assert!(matches!(
        outside,
        Err(LmError::TokenOutOfRange { id: 19, .. })
    ));
    let long = engine.forward(&[0; 14], &mut logits);
    assert!(matches!(
        long,
        Err(LmError::ContextFull {
            needed: 17,
            max_len: 16
        })
    ));
    assert_eq!((engine.len(), &logits), (3, &before));
    engine.truncate(100);
    assert_eq!(engine.len(), 3);
    engine.forward(&[], &mut logits).unwrap();
    assert!(logits.is_empty());

    let mut incomplete = model();
    incomplete.tensors.remove("model.norm.weight");
    let missing = ReferenceEngine::new(&incomplete, 16);
    assert!(matches!(missing, Err(LmError::MissingTensor { .. })));
}
