//! Architectures and quantised formats that no other engine reads, compared with a plain forward of
//! transformers; and those that are refused.
//!
//! The contract of engines is tested up to rounding: forwards that are split, caches that are
//! truncated, sequences in turns, logits that stay on the device.

use crate::golden_support;
use crate::support;

use std::path::{Path, PathBuf};
use std::process::Command;

use engine::LanguageModel;
use golden_support::largest_difference;
use torch_engine::{Dtype, Interpreter, ModelFault, Torch, TorchEngine, TorchError, TorchOptions};

/// Room of a sequence.
const ROOM: usize = 32;
/// Largest difference between logits of two ways of computing them in f32; they are below 40.
const TOLERANCE: f32 = 2e-4;
/// Lead of a best logit that rounding does not change.
const LEAD: f32 = 1e-3;

/// Models that are held, of scripts/tiny_models.py.
const HELD: [&str; 25] = [
    "bloom",
    "cohere",
    "cohere2",
    "deepseek-v3",
    "exaone4",
    "falcon",
    "falcon-alibi",
    "gemma3-image",
    "gemma3n",
    "glm4",
    "gpt-neox",
    "gpt-oss",
    "gpt2",
    "gptj",
    "granite-moe",
    "llama4",
    "mixtral",
    "mixtral-window",
    "mpt",
    "nemotron",
    "olmoe",
    "opt",
    "qwen3-moe",
    "stablelm",
    "starcoder2",
];

/// Models that are refused, with a part of the name of the layer.
const REFUSED: [(&str, &str); 7] = [
    ("bert", "bert"),
    ("jamba", "linear_attention"),
    ("lfm2", "conv"),
    ("mamba", "linear_attention"),
    ("mamba2", "linear_attention"),
    ("qwen3-next", "linear_attention"),
    ("rwkv", "rwkv"),
];

/// Quantised formats that are held, with the largest difference between logits of two ways of
/// computing them: activations in 16 bits are rounded, and those in 8 bits more so.
const QUANTISED: [(&str, f32); 7] = [
    ("awq", 0.1),
    ("bitsandbytes-int8-rows", TOLERANCE),
    ("bitsandbytes-nf4", TOLERANCE),
    ("compressed-tensors", TOLERANCE),
    ("gptq", 0.1),
    ("torchao-int8", TOLERANCE),
    ("torchao-int8-activations", 0.2),
];

/// Quantised formats that are refused: what is said of a token depends on later ones.
const DEPENDENT: [&str; 2] = ["bitsandbytes-int8", "torchao-int8-calls"];

/// Makes models in a folder. Releases of transformers differ in what they have, and formats want
/// packages, so that one that is not made is no fault unless OMNIDRAFT_REQUIRE_TORCH is 1.
fn make(python: &Interpreter, names: &[&str], folder: &Path) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts/tiny_models.py");
    let mut command = Command::new(&python.python);
    command.arg(script).arg("--out").arg(folder).args(names);
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let required = std::env::var_os("OMNIDRAFT_REQUIRE_TORCH").is_some_and(|x| x == "1");
    for name in names {
        let made = folder.join(name).join("rows.f32").exists();
        assert!(made || !required, "{name}: {said}");
        if !made {
            let prefix = format!("{name}: ");
            let reason = said.lines().find_map(|line| line.strip_prefix(&prefix));
            println!("skipped: {name}: {}", reason.unwrap_or("it is not made"));
        }
    }
}

/// Models that were made in a folder.
fn made<'a>(names: &'a [&str], folder: &'a Path) -> impl Iterator<Item = (&'a str, PathBuf)> {
    let all = names.iter().map(|name| (*name, folder.join(name)));
    all.filter(|(_, folder)| folder.join("rows.f32").exists())
}

fn options(folder: &Path) -> TorchOptions {
    TorchOptions {
        max_len: Some(ROOM),
        ..support::options(folder)
    }
}

/// A text and the logits that transformers gives for it, `[ids][vocab]`.
struct Known {
    ids: Vec<u32>,
    rows: Vec<f32>,
    vocab: usize,
    tolerance: f32,
    worst: f32,
}

impl Known {
    fn read(folder: &Path, tolerance: f32) -> Self {
        let ids = std::fs::read_to_string(folder.join("ids.json")).unwrap();
        let ids: Vec<u32> = serde_json::from_str(&ids).unwrap();
        let bytes = std::fs::read(folder.join("rows.f32")).unwrap();
        let (rows, _) = bytes.as_chunks::<4>();
        let rows: Vec<f32> = rows.iter().map(|x| f32::from_le_bytes(*x)).collect();
        let vocab = rows.len() / ids.len();
        Self {
            ids,
            rows,
            vocab,
            tolerance,
            worst: 0.0,
        }
    }

    /// Compares the logits of the tokens from `start` on.
    fn compare(&mut self, logits: &[f32], start: usize, what: &str) {
        let expected = &self.rows[start * self.vocab..][..logits.len()];
        let error = largest_difference(logits, expected);
        assert!(error < self.tolerance, "{what}, from {start}: {error}");
        self.worst = self.worst.max(error);
    }

    /// Tests the clauses of the contract, up to rounding.
    fn check(&mut self, torch: &Torch, name: &str) {
        let new = || torch.sequence(usize::MAX).unwrap();
        let (mut engine, mut logits) = (new(), Vec::new());
        assert_eq!(engine.vocab_size(), self.vocab);
        assert_eq!(engine.max_len(), ROOM);
        let (ids, len) = (self.ids.clone(), self.ids.len());
        for at in 0..len {
            engine.truncate(0);
            engine.forward(&ids[..at], &mut logits).unwrap();
            self.compare(&logits, 0, &format!("{name}: first part"));
            engine.forward(&ids[at..], &mut logits).unwrap();
            self.compare(&logits, at, &format!("{name}: second part"));
        }
        for keep in (0..len).rev().chain([len - 1]) {
            // Tokens of a rejected draft, more than a window of them.
            let wrong: Vec<u32> = (0..(ROOM - keep).min(9)).map(|i| i as u32 + 30).collect();
            engine.truncate(keep);
            engine.forward(&wrong, &mut logits).unwrap();
            engine.truncate(keep);
            engine.forward(&ids[keep..], &mut logits).unwrap();
            self.compare(&logits, keep, &format!("{name}: truncated"));
        }
        engine.truncate(0);
        engine.prefill(&ids[..len / 2]).unwrap();
        engine.prompt(&ids[len / 2..], &mut logits).unwrap();
        self.compare(&logits, len - 1, &format!("{name}: prompt"));
        let (mut first, mut second) = (new(), new());
        for (i, id) in ids.iter().enumerate() {
            first.forward(&[*id], &mut logits).unwrap();
            self.compare(&logits, i, &format!("{name}: one at a time"));
            second.forward(&[ids[len - 1 - i]], &mut logits).unwrap();
        }
        self.device(&mut first, name);
    }

    /// Tests logits that stay on the device.
    fn device(&mut self, engine: &mut TorchEngine, name: &str) {
        let (mut best, mut logits) = (Vec::new(), Vec::new());
        engine.truncate(3);
        let device = engine.device_logits(5).unwrap();
        device.score(&self.ids[3..8]).unwrap();
        device.best(&mut best).unwrap();
        assert_eq!(best.len(), 5);
        device.rows(1..4, &mut logits).unwrap();
        assert!(device.rows(4..6, &mut Vec::new()).is_err());
        self.compare(&logits, 4, &format!("{name}: device"));
        for (row, best) in self.rows[3 * self.vocab..].chunks(self.vocab).zip(best) {
            let found = row[best.unwrap() as usize];
            let lead = LEAD.max(2.0 * self.tolerance);
            let better = row.iter().filter(|x| **x > found + lead).count();
            assert_eq!(better, 0, "{name}: best");
        }
    }
}

#[test]
fn what_transformers_computes_is_what_the_engine_returns() {
    let Some(python) = support::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let names = QUANTISED.map(|(name, _)| name);
    make(&python, &[&HELD[..], &names].concat(), folder.path());
    let mut torch: Option<Torch> = None;
    let plain = HELD.map(|name| (name, TOLERANCE));
    for (name, tolerance) in plain.into_iter().chain(QUANTISED) {
        let Some((_, folder)) = made(&[name], folder.path()).next() else {
            continue;
        };
        let mut options = options(&folder);
        if names.contains(&name) {
            options.dtype = Dtype::Auto;
        }
        let loaded = match torch.take() {
            Some(torch) => torch.load_another(&options),
            None => Torch::load_with(&python, &options),
        };
        let loaded = loaded.unwrap_or_else(|error| panic!("{name}: {error}"));
        let mut known = Known::read(&folder, tolerance);
        known.check(&loaded, name);
        let facts = loaded.facts();
        println!("{name}: {}, {:.1e}", facts.architecture, known.worst);
        torch = Some(loaded);
    }
}

#[test]
fn caches_that_cannot_be_truncated_are_refused() {
    let Some(python) = support::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let names = REFUSED.map(|(name, _)| name);
    make(&python, &names, folder.path());
    for (name, folder) in made(&names, folder.path()) {
        let error = Torch::load_with(&python, &options(&folder)).err().unwrap();
        println!("{name}: {error}");
        let expected = REFUSED.iter().find(|(other, _)| *other == name).unwrap();
        match &error {
            TorchError::Cache { layer, .. } => assert!(layer.contains(expected.1), "{error}"),
            _ => panic!("{name}: {error}"),
        }
    }
}

#[test]
fn quantised_formats_that_mix_the_tokens_of_a_call_are_refused() {
    let Some(python) = support::python() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    make(&python, &DEPENDENT, folder.path());
    for (name, folder) in made(&DEPENDENT, folder.path()) {
        let options = TorchOptions {
            dtype: Dtype::Auto,
            ..options(&folder)
        };
        let error = Torch::load_with(&python, &options).err().unwrap();
        println!("{name}: {error}");
        let TorchError::Model { fault, .. } = &error else {
            panic!("{name}: {error}");
        };
        assert_eq!(*fault, ModelFault::Dependent, "{name}: {error}");
    }
}

#[test]
fn packages_that_a_format_wants_are_named() {
    let Some(python) = support::python() else {
        return;
    };
    let find =
        "import importlib.util, sys; sys.exit(importlib.util.find_spec(sys.argv[1]) is None)";
    for (method, settings, packages) in [
        (
            "torchao",
            r#""quant_type": "int8_weight_only""#,
            &["torchao"][..],
        ),
        ("bitsandbytes", r#""load_in_4bit": true"#, &["bitsandbytes"]),
        (
            "compressed-tensors",
            r#""config_groups": {}"#,
            &["compressed_tensors"],
        ),
        ("gptq", r#""bits": 4"#, &["optimum", "gptqmodel"]),
        ("awq", r#""bits": 4"#, &["gptqmodel"]),
    ] {
        let missing = packages.iter().find(|package| {
            let mut command = Command::new(&python.python);
            !command
                .args(["-c", find, package])
                .status()
                .unwrap()
                .success()
        });
        let Some(missing) = missing else {
            println!("skipped: {method}: its packages are installed");
            continue;
        };
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            r#"{{"model_type": "llama", "quantization_config": {{"quant_method": "{method}", {settings}}}}}"#
        );
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), "").unwrap();
        let error = Torch::load_with(&python, &options(folder.path()))
            .err()
            .unwrap();
        let TorchError::Package { package, .. } = &error else {
            panic!("{method}: {error}");
        };
        assert_eq!(package.replace('-', "_"), *missing, "{method}: {error}");
        let hint = error.hint().unwrap();
        assert!(hint.contains(&format!("pip install {package}")), "{hint}");
    }
}

#[test]
fn what_is_no_model_is_named() {
    let Some(python) = support::python() else {
        return;
    };
    use torch_engine::ModelFault::{Broken, NotFound, Unsupported};
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        std::fs::create_dir_all(folder.path().join(name)).unwrap();
        std::fs::write(folder.path().join(name).join("config.json"), text).unwrap();
    };
    write("unheard", r#"{"model_type": "unheard"}"#);
    write("sound", r#"{"model_type": "wav2vec2"}"#);
    write("cut", r#"{"model_type": "llama", "#);
    write(
        "empty",
        r#"{"model_type": "llama", "num_hidden_layers": 1}"#,
    );
    for (name, expected) in [
        ("nothing", NotFound),
        ("unheard", Unsupported),
        ("sound", Unsupported),
        ("cut", Broken),
        ("empty", Broken),
    ] {
        let options = options(&folder.path().join(name));
        let error = Torch::load_with(&python, &options).err().unwrap();
        println!("{name}: {error}");
        match &error {
            TorchError::Model { fault, .. } => assert_eq!(*fault, expected, "{name}: {error}"),
            _ => panic!("{name}: {error}"),
        }
    }
    let options = TorchOptions {
        device_map: "no such device".to_owned(),
        ..options(folder.path())
    };
    let error = Torch::load_with(&python, &options).err().unwrap();
    assert!(matches!(error, TorchError::Device { .. }), "{error}");
}
