//! Results of Hugging Face transformers, and checks of engines against them. The tests of every
//! crate that computes a model use them.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use lm::{
    Checkpoint, HostTensor, LanguageModel, LmConfig, StoredType, expected_tensors, stored,
    write_safetensors,
};
use serde_json::Value;

/// Largest deviation allowed between two f32 implementations of the same forward.
pub const LOGIT_TOLERANCE: f32 = 2e-4;

/// A model and the results of transformers for it.
pub struct Golden {
    pub name: String,
    pub checkpoint: Checkpoint,
    /// Context length of the rotation: the capacity with which an engine must be built.
    pub context: usize,
    pub ids: Vec<u32>,
    /// Positions of `ids` whose logits are known.
    pub rows: Vec<usize>,
    /// `[rows][vocab_size]`.
    pub logits: Vec<f32>,
    pub prompt: Vec<u32>,
    /// Greedy continuation of the prompt.
    pub greedy: Vec<u32>,
    pub folder: PathBuf,
    /// The file `golden.json`.
    pub json: Value,
}

fn read_json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A list of numbers of a JSON object.
pub fn numbers(json: &Value, key: &str) -> Vec<u32> {
    serde_json::from_value(json[key].clone()).unwrap()
}

/// An array of f32 that numpy wrote.
pub fn npy(path: &Path) -> Vec<f32> {
    let bytes = std::fs::read(path).unwrap();
    npyz::NpyFile::new(&bytes[..]).unwrap().into_vec().unwrap()
}

/// Folders of the goldens in this repository, which scripts/make_goldens.py made. A test that runs
/// on another machine than the one of the build finds them by OMNIDRAFT_GOLDENS.
pub fn folders() -> Vec<PathBuf> {
    let root = match std::env::var_os("OMNIDRAFT_GOLDENS") {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/golden"),
    };
    let entries = std::fs::read_dir(root).unwrap();
    let mut folders: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    folders.sort();
    folders
}

/// The goldens in this repository.
pub fn goldens() -> Vec<Golden> {
    folders()
        .iter()
        .map(|folder| Golden::read(folder))
        .collect()
}

/// Goldens with stored weights, logits at every position and whole gradients, if there are any here.
pub fn shared_goldens() -> Vec<Golden> {
    let Some(shared) = std::env::var_os("OMNIDRAFT_SHARED") else {
        println!("skipped: OMNIDRAFT_SHARED is not set");
        return Vec::new();
    };
    let root = Path::new(&shared).join("golden");
    let names = ["tiny-llama2", "tiny-llama3", "tiny-qwen2"];
    names
        .map(|name| Golden::read_shared(&root.join(name)))
        .into()
}

impl Golden {
    fn read(folder: &Path) -> Self {
        let json = read_json(&folder.join("golden.json"));
        let ids = numbers(&json, "token_ids");
        let prompt = json["prompt"].as_u64().unwrap() as usize;
        Self {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            checkpoint: loaded(folder, json["prefix"].as_str().unwrap()),
            context: json["context"].as_u64().unwrap() as usize,
            rows: serde_json::from_value(json["rows"].clone()).unwrap(),
            logits: npy(&folder.join("logits.npy")),
            prompt: ids[..prompt].to_vec(),
            ids,
            greedy: numbers(&json, "greedy"),
            folder: folder.to_owned(),
            json,
        }
    }

    fn read_shared(folder: &Path) -> Self {
        let json = read_json(&folder.join("golden.json"));
        let ids = numbers(&json, "token_ids");
        let prompt = numbers(&json, "greedy_prompt");
        let text = numbers(&json, "greedy_out");
        Self {
            name: folder.file_name().unwrap().to_string_lossy().into_owned(),
            checkpoint: Checkpoint::load(folder).unwrap(),
            context: 2048,
            rows: (0..ids.len()).collect(),
            logits: npy(&folder.join("logits.npy")),
            ids,
            greedy: text[prompt.len()..].to_vec(),
            prompt,
            folder: folder.to_owned(),
            json,
        }
    }

    /// Logits like those of transformers, also after the cache was cut, and the same greedy
    /// continuation. Returns the logits of all tokens and the largest deviation.
    pub fn check_close(&self, engine: &mut dyn LanguageModel, what: &str) -> (Vec<f32>, f32) {
        let mut all = Vec::new();
        engine.truncate(0);
        engine.forward(&self.ids, &mut all).unwrap();
        let mut worst = self.deviation(&all, 0, what);
        let mut tail = Vec::new();
        for keep in [1, 7, self.ids.len() / 2, self.ids.len() - 1] {
            engine.truncate(keep);
            engine.forward(&self.ids[keep..], &mut tail).unwrap();
            worst = worst.max(self.deviation(&tail, keep, &format!("{what}, cut to {keep}")));
            assert_eq!(engine.len(), self.ids.len());
        }
        self.check_greedy(engine, what);
        (all, worst)
    }

    /// Largest deviation of the logits of the tokens from `start` on.
    fn deviation(&self, logits: &[f32], start: usize, what: &str) -> f32 {
        let vocab = self.checkpoint.config.vocab_size;
        let known = self.logits.chunks_exact(vocab).zip(&self.rows);
        let mut worst = 0.0_f32;
        for (expected, row) in known.filter(|(_, row)| **row >= start) {
            let found = &logits[(row - start) * vocab..][..vocab];
            let error = largest_difference(found, expected);
            assert!(error < LOGIT_TOLERANCE, "{}, {what}: {error}", self.name);
            worst = worst.max(error);
        }
        worst
    }

    /// [`check_close`](Self::check_close), and bits that depend neither on the number of tokens a
    /// call has, 1 to 16 or all, nor on what was in the cache before.
    pub fn check(&self, engine: &mut dyn LanguageModel, what: &str) -> f32 {
        let vocab = engine.vocab_size();
        let (all, error) = self.check_close(engine, what);
        let mut tail = Vec::new();
        for keep in [1, 7, self.ids.len() / 2, self.ids.len() - 1] {
            engine.truncate(keep);
            // A rejected draft: other tokens are appended and cut again.
            engine.forward(&self.greedy[..1], &mut tail).unwrap();
            engine.truncate(keep);
            engine.forward(&self.ids[keep..], &mut tail).unwrap();
            let same = bits(&tail) == bits(&all[keep * vocab..]);
            assert!(same, "{}, {what}: cut to {keep}", self.name);
        }
        for batch in 1..=16 {
            engine.truncate(0);
            for (i, ids) in self.ids.chunks(batch).enumerate() {
                engine.forward(ids, &mut tail).unwrap();
                let expected = &all[i * batch * vocab..][..tail.len()];
                assert!(
                    bits(&tail) == bits(expected),
                    "{}, {what}: {batch} tokens a call",
                    self.name
                );
            }
        }
        error
    }

    fn check_greedy(&self, engine: &mut dyn LanguageModel, what: &str) {
        let mut logits = Vec::new();
        let (mut found, mut pending) = (Vec::<u32>::new(), self.prompt.clone());
        engine.truncate(0);
        while found.len() < self.greedy.len() {
            engine.forward(&pending, &mut logits).unwrap();
            let row = &logits[logits.len() - engine.vocab_size()..];
            let best = (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b]));
            pending = vec![best.unwrap() as u32];
            found.extend(&pending);
        }
        assert_eq!(found, self.greedy, "{}, {what}", self.name);
    }
}

/// Bit patterns, for an equality that distinguishes -0 from 0 and compares NaN.
pub fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|x| x.to_bits()).collect()
}

/// Largest absolute difference, NaN if there is one; panics on unequal lengths.
pub fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    let differences = a.iter().zip(b).map(|(a, b)| (a - b).abs());
    differences.fold(0.0, |worst, x| {
        if worst.is_nan() || x <= worst {
            worst
        } else {
            x
        }
    })
}

/// The model of a golden, through the files that a download would have.
fn loaded(folder: &Path, prefix: &str) -> Checkpoint {
    let files = tempfile::tempdir().unwrap();
    write_files(folder, prefix, files.path());
    Checkpoint::load(files.path()).unwrap()
}

/// Writes the files of a golden's model that a download would have.
pub fn write_files(folder: &Path, prefix: &str, to: &Path) {
    let config = LmConfig::from_file(&folder.join("config.json")).unwrap();
    let mut shapes: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (name, shape) in expected_tensors(&config) {
        let whole = shapes.entry(stored(&config, &name));
        whole
            .and_modify(|whole| whole[0] += shape[0])
            .or_insert(shape);
    }
    let tensors = shapes.into_iter().map(|(name, shape)| {
        let data = weights(&config, &name, &shape);
        (format!("{prefix}{name}"), HostTensor { shape, data })
    });
    let tensors: BTreeMap<String, HostTensor> = tensors.collect();
    let path = to.join("model.safetensors");
    write_safetensors(&path, &tensors, StoredType::Bf16).unwrap();
    std::fs::copy(folder.join("config.json"), to.join("config.json")).unwrap();
}

/// The values of a tensor of a golden model: the formula of scripts/make_goldens.py.
pub fn weights(config: &LmConfig, name: &str, shape: &[usize]) -> Vec<f32> {
    let numbers = uniform(name, shape.iter().product());
    let values = numbers.into_iter().map(|x| match shape {
        [_, inputs] => x * (2.0 / (*inputs as f64).sqrt()),
        _ if name.ends_with("norm.weight") => f64::from(config.unit_norm()) + 0.25 * x,
        _ => x * 0.25,
    });
    values.map(|x| bf16(x as f32)).collect()
}

/// Numbers in [-1, 1) that depend on a name and their index alone.
pub fn uniform(name: &str, count: usize) -> Vec<f64> {
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let number = |i: u64| (mix(seed ^ i) >> 40) as f64 / f64::from(1 << 23) - 1.0;
    (0..count as u64).map(number).collect()
}

/// SplitMix64.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Rounds to bf16, ties to even.
fn bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    let up = 0x7fff + ((bits >> 16) & 1);
    f32::from_bits(bits.wrapping_add(up) & 0xffff_0000)
}
