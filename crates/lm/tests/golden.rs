//! The reference decoder against Hugging Face transformers.

use std::path::{Path, PathBuf};

use lm::{Checkpoint, DecodeEngine, ReferenceEngine};

/// Largest deviation allowed from an f32 implementation of the same forward.
const LOGIT_TOLERANCE: f32 = 2e-4;

fn goldens() -> Vec<PathBuf> {
    let Some(shared) = std::env::var_os("OMNIDRAFT_SHARED") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return Vec::new();
    };
    let root = Path::new(&shared).join("golden");
    ["tiny-llama2", "tiny-llama3", "tiny-qwen2"]
        .iter()
        .map(|name| root.join(name))
        .collect()
}

fn numbers(folder: &Path, key: &str) -> Vec<u32> {
    let text = std::fs::read_to_string(folder.join("golden.json")).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    json[key]
        .as_array()
        .unwrap()
        .iter()
        .map(|x| x.as_u64().unwrap() as u32)
        .collect()
}

fn npy(path: PathBuf) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..])
        .unwrap()
        .into_vec::<f32>()
        .unwrap()
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, f32::max)
}

#[test]
fn logits_match_transformers_and_survive_truncation() {
    for folder in goldens() {
        let ids = numbers(&folder, "token_ids");
        let expected = npy(folder.join("logits.npy"));
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut engine = ReferenceEngine::new(&checkpoint, 2048).unwrap();
        let mut logits = Vec::new();
        engine.forward(&ids, &mut logits).unwrap();
        let error = largest_difference(&logits, &expected);
        assert!(error < LOGIT_TOLERANCE, "{folder:?}: {error}");

        let vocab = engine.vocab_size();
        for keep in [1, 7, ids.len() / 2, ids.len() - 1] {
            engine.truncate(keep);
            let mut tail = Vec::new();
            engine.forward(&ids[keep..], &mut tail).unwrap();
            let error = largest_difference(&tail, &expected[keep * vocab..]);
            assert!(
                error < LOGIT_TOLERANCE,
                "{folder:?} after truncation to {keep}: {error}"
            );
            assert_eq!(engine.len(), ids.len());
        }
    }
}

#[test]
fn greedy_continuations_match_transformers() {
    for folder in goldens() {
        let expected = numbers(&folder, "greedy_out");
        let mut ids = numbers(&folder, "greedy_prompt");
        let checkpoint = Checkpoint::load(&folder).unwrap();
        let mut engine = ReferenceEngine::new(&checkpoint, 2048).unwrap();
        let vocab = engine.vocab_size();
        let mut pending = ids.clone();
        while ids.len() < expected.len() {
            let mut logits = Vec::new();
            engine.forward(&pending, &mut logits).unwrap();
            let row = &logits[logits.len() - vocab..];
            let best = (0..vocab)
                .max_by(|a, b| row[*a].total_cmp(&row[*b]))
                .unwrap() as u32;
            ids.push(best);
            pending = vec![best];
        }
        assert_eq!(ids, expected, "{folder:?}");
    }
}
