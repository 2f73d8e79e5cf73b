//! Pretraining from scratch on the embedded streams: the loss falls, a stopped run resumes exactly,
//! and the folder is a model every command can load.

use std::error::Error;
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
products = "PRODUCTS"
lr = 1e-2
warmup = 4
weight_decay = 0.01
max_grad_norm = 1.0
eval_every = 16
save_every = 8
[unlikelihood]
steps = 6
answers = 4
answer_tokens = 24
weight = 5.0
keep = 0.5
lr = 2e-3
"#;

fn request(folder: &Path, style: &str, out: &str, stop_after: Option<u64>) -> Request {
    let recipe = folder.join(format!("{style}.toml"));
    let products = if style == "byte-level" { "f32" } else { "bf16" };
    let text = RECIPE.replace("STYLE", style).replace("PRODUCTS", products);
    std::fs::write(&recipe, text).unwrap();
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

/// The messages of the error of a run and of its causes.
fn refused(request: &Request) -> String {
    let error = run(request).unwrap_err();
    let first: &(dyn Error + 'static) = &error;
    std::iter::successors(Some(first), |&cause| cause.source())
        .map(|cause| cause.to_string())
        .collect::<Vec<_>>()
        .join(": ")
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
        assert_eq!(uninterrupted.len(), 38);
        let (early, late) = (mean(&uninterrupted[..4]), mean(&uninterrupted[28..]));
        assert!(late < early - 0.5, "{style}: {early} -> {late}");

        let out = format!("{style}-parts");
        let part: PathBuf = {
            // Stops in the middle of the text, and among the steps against loops.
            for stop_after in [13, 21] {
                let part = request(folder.path(), style, &out, Some(stop_after));
                assert!(!run(&part).unwrap());
            }
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
    // The other style would train another tokenizer.
    let mut second = request(folder.path(), "byte-level", "second", Some(1));
    second.tokenizer = Some(trained.clone());
    assert!(!run(&second).unwrap());
    let read = |path: &Path| std::fs::read(path).unwrap();
    assert_eq!(read(&second.out.join("tokenizer.json")), read(&trained));

    let mut missing = request(folder.path(), "byte-level", "third", Some(1));
    missing.tokenizer = Some(folder.path().join("nowhere.json"));
    let error = refused(&missing);
    assert!(error.contains("nowhere.json"), "{error}");
}

#[test]
fn a_second_part_begins_with_the_weights_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let first = request(folder.path(), "byte-level", "first", None);
    assert!(run(&first).unwrap());
    let from_noise = losses(&first.out)[0].1;
    let recipe = std::fs::read_to_string(&first.recipe).unwrap();
    let second = |out: &str, part: &str, shape: &str| {
        let mut second = request(folder.path(), "byte-level", out, Some(1));
        let text = recipe
            .replace("[train]", &format!("[train]\nfrom = \"{part}\""))
            .replace("hidden_size = 32", shape);
        second.recipe = folder.path().join("second.toml");
        std::fs::write(&second.recipe, text).unwrap();
        second
    };
    let part = second("second", "first", "hidden_size = 32");
    assert!(!run(&part).unwrap());
    let from_weights = losses(&part.out)[0].1;
    assert!(
        from_weights < from_noise - 0.5,
        "{from_noise} -> {from_weights}"
    );
    for (part, shape) in [
        ("nowhere", "hidden_size = 32"),
        ("first", "hidden_size = 64"),
    ] {
        let error = refused(&second("other", part, shape));
        assert!(error.contains("train.from"), "{error}");
    }
}

#[test]
fn a_cut_keeps_its_blocks_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let whole = request(folder.path(), "byte-level", "whole", None);
    let four = |text: String| text.replace("layers = 1", "layers = 4");
    let recipe = four(std::fs::read_to_string(&whole.recipe).unwrap());
    let recipe = recipe.split("[unlikelihood]").next().unwrap();
    std::fs::write(&whole.recipe, recipe).unwrap();
    assert!(run(&whole).unwrap());
    let cut = |name: &str, cut: &str, change: (&str, &str)| {
        let mut cut_to = request(folder.path(), "byte-level", name, None);
        let text = recipe
            .replace("layers = 4", "layers = 3")
            .replace("[train]", &format!("[train]\n{cut}"))
            .replace("tokens = 8192", "tokens = 0")
            .replace(change.0, change.1);
        cut_to.recipe = folder.path().join(format!("{name}.toml"));
        std::fs::write(&cut_to.recipe, text).unwrap();
        cut_to
    };
    // Without a step, the cut model has the weights of the blocks kept and the tokenizer of the
    // whole model.
    let bare = cut("bare", "cut = { from = \"whole\" }", ("", ""));
    assert!(run(&bare).unwrap());
    let weights = |out: &Path| lm::Checkpoint::load(out).unwrap();
    let (before, after) = (weights(&whole.out), weights(&bare.out));
    assert_eq!(after.config.num_layers, 3);
    for (new, old) in [(0, 0), (1, 2), (2, 3)] {
        let name = |block: usize| format!("model.layers.{block}.mlp.up_proj.weight");
        assert_eq!(after.tensors[&name(new)], before.tensors[&name(old)]);
    }
    let read = |out: &Path| std::fs::read(out.join("tokenizer.json")).unwrap();
    assert_eq!(read(&bare.out), read(&whole.out));
    let card = std::fs::read_to_string(bare.out.join("README.md")).unwrap();
    assert!(card.contains("`whole` cut and healed"), "{card}");

    let healed = cut(
        "healed",
        "cut = { from = \"whole\", blocks = [0, 1, 3] }",
        ("tokens = 0", "tokens = 4096"),
    );
    assert!(run(&healed).unwrap());
    let losses = losses(&healed.out);
    let mean = |rows: &[(u64, f64)]| rows.iter().map(|(_, loss)| loss).sum::<f64>() / 4.0;
    assert!(mean(&losses[12..]) < mean(&losses[..4]), "{losses:?}");
    // The trained state knows its shape.
    assert_eq!(weights(&healed.out).config.num_layers, 3);

    for (name, from, change, words) in [
        ("a", "blocks = [0, 1, 4]", ("", ""), "there is no block 4"),
        (
            "b",
            "blocks = [0, 1]",
            ("", ""),
            "train.cut.blocks names 2 blocks",
        ),
        (
            "c",
            "blocks = [2, 1, 3]",
            ("", ""),
            "train.cut.blocks must rise",
        ),
        (
            "d",
            "",
            ("heads = 2", "heads = 1"),
            "model.heads is 1, but 2 in the model of train.cut",
        ),
    ] {
        let comma = if from.is_empty() { "" } else { ", " };
        let text = format!("cut = {{ from = \"whole\"{comma}{from} }}");
        let error = refused(&cut(name, &text, change));
        assert!(error.contains(words), "{error}");
    }
    let both = cut(
        "e",
        "from = \"whole\"\ncut = { from = \"whole\" }",
        ("", ""),
    );
    let error = refused(&both);
    assert!(error.contains("train.from and train.cut"), "{error}");
    let nowhere = cut("f", "cut = { from = \"nowhere\" }", ("", ""));
    assert!(run(&nowhere).is_err());
}

#[test]
fn steps_against_loops_leave_fewer_of_them() {
    let folder = tempfile::tempdir().unwrap();
    let mut own = request(folder.path(), "byte-level", "own", None);
    let recipe = std::fs::read_to_string(&own.recipe).unwrap();
    own.recipe = folder.path().join("loops.toml");
    std::fs::write(
        &own.recipe,
        recipe
            .replace("steps = 6", "steps = 60")
            .replace("tokens = 8192", "tokens = 65536")
            .replace("weight = 5.0", "weight = 20.0"),
    )
    .unwrap();
    assert!(run(&own).unwrap());
    let text = std::fs::read_to_string(own.out.join("training.jsonl")).unwrap();
    let shares: Vec<f64> = text
        .lines()
        .filter_map(|line| {
            serde_json::from_str::<serde_json::Value>(line).unwrap()["looping"].as_f64()
        })
        .collect();
    assert_eq!(shares.len(), 60);
    let mean = |part: &[f64]| part.iter().sum::<f64>() / part.len() as f64;
    let (early, late) = (mean(&shares[..8]), mean(&shares[52..]));
    assert!(early > 0.2 && late < 0.6 * early, "{early} -> {late}");

    let card = std::fs::read_to_string(own.out.join("README.md")).unwrap();
    for part in [
        "60 steps were against loops",
        "## Its answers",
        "| mini-code | 0.7 |",
        "| mini-code | published |",
    ] {
        assert!(card.contains(part), "{card}");
    }
    // A second call writes the same card.
    pretrain::write_samples(&own.out, &DataSource::embedded(), false).unwrap();
    assert_eq!(
        std::fs::read_to_string(own.out.join("README.md")).unwrap(),
        card
    );
}

#[test]
fn a_phase_against_loops_that_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for (old, new, key) in [
        ("answers = 4", "answers = 0", "unlikelihood.answers"),
        (
            "answer_tokens = 24",
            "answer_tokens = 100",
            "model.max_positions",
        ),
        ("weight = 5.0", "weight = -1.0", "unlikelihood.weight"),
        ("keep = 0.5", "keep = -1.0", "unlikelihood.keep"),
        ("keep = 0.5", "tasks = [\"gsm8k\"]", "unlikelihood.tasks"),
    ] {
        let mut own = request(folder.path(), "byte-level", "own", None);
        let recipe = std::fs::read_to_string(&own.recipe).unwrap();
        own.recipe = folder.path().join("bad.toml");
        std::fs::write(&own.recipe, recipe.replace(old, new)).unwrap();
        let error = refused(&own);
        assert!(error.contains("bad.toml") && error.contains(key), "{error}");
    }
}
