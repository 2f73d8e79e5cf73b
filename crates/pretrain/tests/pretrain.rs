//! Pretraining from scratch on the embedded streams: the loss falls, a stopped run resumes exactly,
//! and the folder is a model every command can load.

use std::path::{Path, PathBuf};

use models::ModelFolder;
use pretrain::{Request, run};
use streams::DataSource;
use vocab_align::TargetId;

const RECIPE: &str = r#"
seed = 5
[tokenizer]
style = "STYLE"
vocab_size = 700
digits = 1
bos = "<s>"
eos = "</s>"
[template]
prompt_template = "{prompt}\n"
end_of_turn = "</s>"
max_prompt_tokens = 64
[model]
architecture = "qwen2"
hidden_size = 32
intermediate_size = 48
layers = 1
heads = 2
kv_heads = 1
tied = true
max_positions = 128
rope_theta = 10000.0
[data]
sources = [{ task = "mini-math" }, { task = "mini-code" }]
held_out = 0.05
[train]
tokens = 8192
batch = 4
sequence = 64
lr = 1e-2
warmup = 4
weight_decay = 0.01
max_grad_norm = 1.0
eval_every = 16
save_every = 8
"#;

fn request(folder: &Path, style: &str, out: &str, stop_after: Option<u64>) -> Request {
    let recipe = folder.join(format!("{style}.toml"));
    std::fs::write(&recipe, RECIPE.replace("STYLE", style)).unwrap();
    Request {
        recipe,
        tokenizer: None,
        data: DataSource::embedded(),
        out: folder.join(out),
        device: trainer::Device::Cpu,
        stop_after,
        progress: false,
    }
}

fn losses(out: &Path) -> Vec<(u64, f64)> {
    let text = std::fs::read_to_string(out.join("training.jsonl")).unwrap();
    text.lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|row| row.get("held_out").is_none())
        .map(|row| (row["step"].as_u64().unwrap(), row["loss"].as_f64().unwrap()))
        .collect()
}

#[test]
fn training_learns_and_resumes_exactly() {
    let folder = tempfile::tempdir().unwrap();
    for style in ["byte-level", "sentencepiece"] {
        let whole = request(folder.path(), style, &format!("{style}-whole"), None);
        assert!(run(&whole).unwrap());
        let uninterrupted = losses(&whole.out);
        let mean = |rows: &[(u64, f64)]| {
            rows.iter().map(|(_, loss)| loss).sum::<f64>() / rows.len() as f64
        };
        assert_eq!(uninterrupted.len(), 32);
        let (early, late) = (mean(&uninterrupted[..4]), mean(&uninterrupted[28..]));
        assert!(late < early - 0.5, "{style}: {early} -> {late}");

        let out = format!("{style}-parts");
        let part: PathBuf = {
            let first = request(folder.path(), style, &out, Some(13));
            assert!(!run(&first).unwrap());
            let rest = request(folder.path(), style, &out, None);
            assert!(run(&rest).unwrap());
            rest.out
        };
        assert_eq!(
            losses(&part),
            uninterrupted,
            "{style}: resumed losses differ"
        );
        let weights = |out: &Path| std::fs::read(out.join("model.safetensors")).unwrap();
        assert_eq!(
            weights(&part),
            weights(&whole.out),
            "{style}: resumed weights differ"
        );

        let model: ModelFolder<TargetId> = ModelFolder::load(&part).unwrap();
        assert_eq!(model.vocabulary.len(), 700);
        let text = "Tom has 12 apples.\n\tdéjà vu 🙂";
        let ids = model.vocabulary.encode(text).unwrap();
        assert_eq!(model.vocabulary.decode_bytes(&ids), text.as_bytes());
    }
}

#[test]
fn a_given_tokenizer_takes_the_place_of_the_recipes() {
    let folder = tempfile::tempdir().unwrap();
    let first = request(folder.path(), "sentencepiece", "first", Some(1));
    assert!(!run(&first).unwrap());
    let trained = first.out.join("tokenizer.json");
    // The other style would train another one.
    let mut second = request(folder.path(), "byte-level", "second", Some(1));
    second.tokenizer = Some(trained.clone());
    assert!(!run(&second).unwrap());
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert_eq!(read(&second.out.join("tokenizer.json")), read(&trained));

    let mut missing = request(folder.path(), "byte-level", "third", Some(1));
    missing.tokenizer = Some(folder.path().join("nowhere.json"));
    let error = format!("{:#}", run(&missing).unwrap_err());
    assert!(error.contains("nowhere.json"), "{error}");
}
