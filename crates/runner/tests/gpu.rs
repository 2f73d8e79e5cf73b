//! The whole program on a graphics device, which may be a software device. Without any, these tests
//! are skipped, unless OMNIDRAFT_REQUIRE_GPU is 1.
#![cfg(feature = "gpu")]

use crate::cli::support;

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

fn omnidraft(arguments: &[&str]) -> Command {
    let mut command = support::omnidraft();
    command.args(arguments);
    command
}

/// True if there is a device.
fn there_is_a_device() -> bool {
    let found = models::check_device(lm::Device::Gpu(0));
    let required = std::env::var_os("OMNIDRAFT_REQUIRE_GPU").is_some_and(|x| x == "1");
    if let Err(error) = &found {
        assert!(!required, "{error:?}");
        println!("skipped: {error:?}");
    }
    found.is_ok()
}

fn json(arguments: &[&str]) -> Value {
    let output = omnidraft(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {said}");
    serde_json::from_slice(&output.stdout).unwrap()
}

const PAIR: [&str; 4] = ["--drafter", "models/D", "--target", "models/L"];

#[test]
fn greedy_answers_are_those_of_plain_decoding() {
    if !there_is_a_device() {
        return;
    }
    let modes = ["exact", "tli", "slem", "paper", "prompt-lookup"];
    let verify = modes.join(",");
    let mut arguments = vec!["lawtest", "--greedy", "--device", "gpu"];
    arguments.extend(PAIR);
    arguments.extend(["--prompts", "2", "--tokens", "8", "--verify", &verify]);
    let report = json(&arguments);
    let compared = report["modes"].as_array().unwrap();
    assert_eq!(compared.len(), modes.len());
    for mode in compared {
        assert_eq!((&mode["equal"], &mode["different"]), (&2.into(), &0.into()));
    }
}

/// Weights learnt on the processor draft on the device, without an effect on greedy answers.
#[test]
fn a_drafter_that_learns_changes_no_greedy_answer() {
    if !there_is_a_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = ["experiment.toml", "out"].map(|name| folder.path().join(name));
    let experiment = r#"name = "device"
        [models]
        drafter = "models/D"
        targets = { L = "models/L" }
        device = "gpu"
        [grid]
        task = "mini-math"
        [stage.stream]
        prompts = { train = 4, test = 2 }
        [decode]
        max_new_tokens = 8
        temperature = 0.0
        [learn]
        every = 2
        [[arm]]
        preset = "autoregressive"
        [[arm]]
        preset = "L_DM+L_N-gram"
    "#;
    std::fs::write(&file, experiment).unwrap();
    let [file, out] = [&file, &out].map(|path| path.to_str().unwrap());
    omnidraft(&["run", file, "--out", out]).assert().success();
    let cell = Path::new(out).join("stream/task=mini-math,seed=1");
    let reader = results::CellReader::open(&cell).unwrap();
    let updates = reader.updates().unwrap();
    assert_eq!(updates.len(), 2);
    assert!(updates.iter().all(|update| update.grad_norm > 0.0));
    // Plain decoding answers held-out prompts only, after the last update.
    let rows = reader.prompts().unwrap();
    let held_out = |arm: &str| -> Vec<String> {
        let of_arm = rows.iter().filter(|row| row.arm == arm);
        let held_out = of_arm.filter(|row| row.split == results::Split::Test);
        held_out.map(|row| row.answer.clone()).collect()
    };
    let plain = held_out("autoregressive");
    assert_eq!(plain.len(), 2);
    assert_eq!(held_out("L_DM+L_N-gram"), plain);
    let accepted: u32 = rows.iter().map(|row| row.accepted).sum();
    assert!(accepted > 0);
}

/// Losses of all steps of a training.
#[cfg(feature = "wgpu")]
fn losses(model: &Path) -> Vec<f64> {
    let log = std::fs::read_to_string(model.join("training.jsonl")).unwrap();
    let rows = log.lines().map(|line| serde_json::from_str(line).unwrap());
    let steps = rows.filter(|row: &Value| row.get("held_out").is_none());
    steps.map(|row| row["loss"].as_f64().unwrap()).collect()
}

/// Training on the device, and training that stops there and goes on on the processor, have the
/// losses of training on the processor.
#[cfg(feature = "wgpu")]
#[test]
fn a_model_is_trained_on_the_device() {
    if !there_is_a_device() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let tokenizer = repository.join("models/D/tokenizer.json");
    let tokenizer = tokenizer.canonicalize().unwrap();
    let recipe = format!(
        r#"seed = 1
        [tokenizer]
        from = {tokenizer:?}
        style = "sentencepiece"
        vocab_size = 4096
        digits = 1
        bos = "<s>"
        eos = "</s>"
        [template]
        prompt_template = "{{prompt}}\n"
        end_of_turn = "</s>"
        max_prompt_tokens = 64
        [model]
        architecture = "qwen2"
        hidden_size = 32
        intermediate_size = 64
        layers = 2
        heads = 4
        kv_heads = 2
        tied = true
        max_positions = 128
        rope_theta = 10000.0
        [data]
        sources = [{{ task = "mini-math" }}]
        held_out = 0.02
        [train]
        tokens = 512
        batch = 2
        sequence = 64
        lr = 1e-2
        warmup = 1
        weight_decay = 0.1
        max_grad_norm = 1.0
        eval_every = 4
        save_every = 3
        "#
    );
    std::fs::write(path("recipe.toml"), recipe).unwrap();
    let train = |out: &str, more: &[&str]| {
        let mut arguments = vec!["pretrain".to_owned(), path("recipe.toml")];
        arguments.extend(["--out".to_owned(), path(out)]);
        arguments.extend(more.iter().map(|x| (*x).to_owned()));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        omnidraft(&arguments).assert().success();
    };
    train("cpu", &[]);
    train("gpu", &["--device", "wgpu"]);
    train("both", &["--device", "wgpu", "--stop-after", "2"]);
    train("both", &["--device", "cpu"]);
    let expected = losses(path("cpu").as_ref());
    assert_eq!(expected.len(), 4);
    assert!(expected[3] < expected[0] - 0.1, "{expected:?}");
    for other in ["gpu", "both"] {
        let found = losses(path(other).as_ref());
        assert_eq!(found.len(), expected.len());
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-3 * expected, "{other}");
        }
    }
}
