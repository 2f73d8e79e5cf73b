//! The reference decoder and the reading of configurations, compared with Hugging Face
//! transformers.

use crate::golden_support;

use golden_support::{LOGIT_TOLERANCE, folders, goldens, largest_difference, shared_goldens};
use lm::{
    Activation, Checkpoint, LanguageModel, LmConfig, QkNorm, ReferenceEngine, RopeScaling, Rotary,
    StoredType,
};

#[test]
fn logits_and_greedy_continuations_match_transformers() {
    let all: Vec<_> = goldens().into_iter().chain(shared_goldens()).collect();
    for golden in &all {
        let mut engine = ReferenceEngine::new(&golden.checkpoint, golden.context).unwrap();
        let error = golden.check(&mut engine, "reference");
        println!("{}: {error:.1e}", golden.name);
    }
    println!("{} configurations answered alike", all.len());
    assert!(all.len() >= 30);
}

/// Files of the hub, files as transformers writes them now, and our own give the same
/// configuration.
#[test]
fn every_spelling_of_a_configuration_is_read_alike() {
    for folder in folders() {
        let read = |name: &str| LmConfig::from_file(&folder.join(name)).unwrap();
        let config = read("config.json");
        let nested = folder.ends_with("gemma3-nested");
        if !nested {
            assert_eq!(read("saved.json"), config, "{folder:?}");
        }
        let own = config.to_json().to_string();
        let again = LmConfig::from_json(&own, "config.json".as_ref()).unwrap();
        assert_eq!(again, config, "{folder:?}: {own}");
    }
}

type Change = (&'static str, fn(&mut LmConfig));

/// Features, each with a change of the configuration that ignores it.
fn changes() -> [Change; 14] {
    [
        ("window", |c| {
            c.layers.iter_mut().for_each(|l| l.window = None)
        }),
        ("a window one wider", |c| {
            let windows = c.layers.iter_mut().filter_map(|l| l.window.as_mut());
            windows.for_each(|w| *w += 1);
        }),
        ("rotation by layer", |c| {
            c.layers.iter_mut().for_each(|l| l.rotary = Rotary::Global)
        }),
        ("scaled rotation", |c| {
            if c.rope.scaling != RopeScaling::Default {
                c.rope.scaling = RopeScaling::Default;
                c.max_position_embeddings = 64;
            }
        }),
        ("partial rotation", |c| {
            if c.rope.scaling == RopeScaling::Default {
                c.rope.dims = c.head_dim;
            }
        }),
        ("local base", |c| {
            c.local_rope
                .iter_mut()
                .for_each(|rope| rope.theta = c.rope.theta);
        }),
        ("activation", |c| c.block.activation = Activation::Silu),
        ("offset of norms", |c| c.norm_offset = false),
        ("norms of queries", |c| c.block.qk_norm = QkNorm::None),
        ("scale of scores", |c| {
            c.block.attention_scale = 1.0 / (c.head_dim as f32).sqrt();
        }),
        ("cap of scores", |c| c.block.attention_cap = None),
        ("cap of logits", |c| c.logit_cap = None),
        ("residual multiplier", |c| c.block.residual_scale = 1.0),
        ("embedding and logit scales", |c| {
            (c.embedding_scale, c.logit_divisor) = (1.0, 1.0)
        }),
    ]
}

/// Every feature of the configurations affects the goldens: a decoder that ignored it would fail.
#[test]
fn no_feature_can_be_ignored_unnoticed() {
    let changes = changes();
    let mut seen = std::collections::BTreeMap::new();
    for golden in goldens() {
        for (feature, change) in &changes {
            let mut changed: Checkpoint = golden.checkpoint.clone();
            change(&mut changed.config);
            if changed.config == golden.checkpoint.config {
                continue;
            }
            changed.tensors.retain(|name, _| {
                changed.config.block.qk_norm != QkNorm::None || !name.contains("_norm.weight")
            });
            let mut engine = ReferenceEngine::new(&changed, golden.context).unwrap();
            let mut logits = Vec::new();
            engine.forward(&golden.ids, &mut logits).unwrap();
            let vocab = engine.vocab_size();
            let rows = golden
                .rows
                .iter()
                .flat_map(|row| &logits[row * vocab..][..vocab]);
            let error = largest_difference(&rows.copied().collect::<Vec<_>>(), &golden.logits);
            let seen_here = error.is_nan() || error > 10.0 * LOGIT_TOLERANCE;
            assert!(seen_here, "{} without {feature}: {error}", golden.name);
            *seen.entry(*feature).or_insert(0) += 1;
        }
    }
    println!("{seen:?}");
    let expected = changes.len() - 1;
    assert!(seen.len() >= expected, "{seen:?}");
}

/// A saved model has the names and shapes of the family's own files, and reads back unchanged.
#[test]
fn every_family_survives_its_own_files() {
    for golden in goldens() {
        let folder = tempfile::tempdir().unwrap();
        golden
            .checkpoint
            .save(folder.path(), StoredType::Bf16)
            .unwrap();
        assert_eq!(Checkpoint::load(folder.path()).unwrap(), golden.checkpoint);
        let file = folder.path().join("model.safetensors");
        let tensors = lm::read_safetensors(&file).unwrap();
        let fused = tensors.keys().filter(|name| name.contains("gate_up_proj"));
        let layers = golden.checkpoint.config.num_layers;
        let expected = if golden.name.starts_with("phi3") {
            layers
        } else {
            0
        };
        assert_eq!(fused.count(), expected, "{}", golden.name);
    }
}

/// The models of this repository are read.
#[test]
fn shipped_configurations_are_plain() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let mut count = 0;
    for entry in std::fs::read_dir(root).unwrap() {
        let file = entry.unwrap().path().join("config.json");
        if file.exists() {
            assert!(LmConfig::from_file(&file).unwrap().is_plain(), "{file:?}");
            count += 1;
        }
    }
    assert!(count > 0);
}
