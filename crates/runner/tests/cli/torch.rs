//! Targets that a worker of PyTorch decodes: commands and experiments with a worker that has no
//! torch, and, if there is one, with torch itself.

use std::ffi::OsString;
use std::path::Path;
use std::process::Command as Process;

use assert_cmd::Command;
use predicates::str::contains;
use serde_json::Value;

use super::support::{CELL, EXPERIMENT, omnidraft, refused, repository, run_with};

/// A worker in Python without torch, whose model is a function of the last tokens.
const TOY: &str = "crates/runner/tests/cli/plain_worker.py";
const TORCH: &str = "torch:models/L";

fn toy() -> Command {
    let mut command = omnidraft();
    command.env("OMNIDRAFT_WORKER", repository().join(TOY));
    command.env_remove("OMNIDRAFT_PYTHON");
    command
}

fn with_toy(mut command: Command) -> Command {
    command.env("OMNIDRAFT_WORKER", repository().join(TOY));
    command.env_remove("OMNIDRAFT_PYTHON");
    command
}

fn json(command: &mut Command) -> Value {
    let done = command.assert().success();
    serde_json::from_slice(&done.get_output().stdout).unwrap()
}

/// The interpreter of workers.
pub fn python() -> OsString {
    std::env::var_os("OMNIDRAFT_PYTHON").unwrap_or_else(|| "python3".into())
}

/// True if the interpreter has torch; OMNIDRAFT_REQUIRE_TORCH=1 makes its absence a failure.
pub fn has_torch() -> bool {
    let found = Process::new(python())
        .args(["-c", "import torch, transformers"])
        .output();
    let found = found.is_ok_and(|output| output.status.success());
    let required = std::env::var_os("OMNIDRAFT_REQUIRE_TORCH").is_some_and(|set| set == "1");
    assert!(found || !required, "no torch and transformers");
    if !found {
        println!("skipped: no torch and transformers");
    }
    found
}

fn answer(mut command: Command, target: &str, extra: &[&str]) -> Value {
    command.args([
        "generate",
        "--json",
        "--max-tokens",
        "12",
        "--target",
        target,
    ]);
    command.args(["--prompt", "Add 2 and 3."]).args(extra);
    json(&mut command)[0].clone()
}

#[test]
fn a_drafter_changes_no_greedy_token_of_a_worker() {
    let plain = answer(toy(), TORCH, &[]);
    assert_eq!(plain["proposed"], 0);
    for extra in [
        &["--drafter", "models/D"][..],
        &["--drafter", "models/D", "--verify", "slem"],
        &["--verify", "prompt-lookup"],
    ] {
        let drafted = answer(toy(), TORCH, extra);
        assert_eq!(drafted["target_ids"], plain["target_ids"], "{extra:?}");
    }
}

#[test]
fn lawtest_knows_a_worker() {
    let words = ["lawtest", "--drafter", "models/D", "--target", TORCH];
    let greedy = ["--greedy", "--prompts", "4", "--tokens", "8"];
    let report = json(toy().args(words).args(greedy));
    let tie = report["tie_below"].as_f64().unwrap();
    assert!((tie - 1e-3).abs() < 1e-9, "{report:#}");
    for mode in report["modes"].as_array().unwrap() {
        assert_eq!(mode["equal"], 4, "{report:#}");
        assert_eq!(mode["ties"], 0, "{report:#}");
        assert!(mode.get("largest_gap").is_none(), "{report:#}");
    }
    let sampled = ["--samples", "60", "--warmup", "1", "--verify", "exact,tli"];
    let report = json(toy().args(words).args(sampled));
    for mode in report["modes"].as_array().unwrap() {
        assert_eq!(mode["rejected"], false, "{report:#}");
    }
}

#[test]
fn recordings_and_rounds_of_a_worker() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.parquet");
    let words = ["trace", "record", "--target", TORCH, "--task", "mini-math"];
    let mut record = toy();
    record.args(words).args(["--limit", "3", "--seed", "0"]);
    record
        .args(["--max-tokens", "6", "--tail", "4", "--out"])
        .arg(&out);
    record.assert().success().stdout(contains("3 prompts"));
    let mut show = omnidraft();
    show.args(["trace", "show"]).arg(&out);
    show.assert().success().stdout(contains("float32"));

    let mut round = toy();
    round.args([
        "bench", "round", "--target", TORCH, "--json", "--rounds", "6",
    ]);
    round.args(["--drafter-shape", "llama-68m", "--threads", "1"]);
    let report = json(round.args(["--target-step-ms", "5"]));
    assert!(report["target_ms"].as_f64().unwrap() >= 5.0, "{report:#}");
    assert!(report["bridge_ms"].as_f64().unwrap() > 0.0, "{report:#}");
}

#[test]
fn an_experiment_with_a_worker_keeps_what_decoded_it() {
    let folder = tempfile::tempdir().unwrap();
    let torch = r#"{ torch = "models/L", dtype = "float32", device_map = "cpu" }"#;
    let config = EXPERIMENT.replace("\"models/L\"", torch);
    with_toy(run_with(&config, &["--dry-run"], folder.path()))
        .assert()
        .success()
        .stdout(contains("torch:models/L: LlamaForCausalLM"))
        .stdout(contains("a worker of PyTorch, dtype float32, device cpu"))
        .stdout(contains("no estimate of the time"));
    with_toy(run_with(&config, &[], folder.path()))
        .assert()
        .success();
    let manifest = folder.path().join(CELL).join("manifest.json");
    let manifest: Value = serde_json::from_slice(&std::fs::read(manifest).unwrap()).unwrap();
    let worker = &manifest["torch"]["target"];
    assert_eq!(worker["dtype"], "float32", "{worker:#}");
    assert!(worker["torch"].is_string() && worker["transformers"].is_string());
    let page = std::fs::read_to_string(folder.path().join("out/report/report.md")).unwrap();
    assert!(page.contains("was decoded by a worker"), "{page}");
    // Another number format is another job.
    let other = config.replace("float32", "bfloat16");
    refused(
        &mut with_toy(run_with(&other, &[], folder.path())),
        &["models.targets.target.dtype was", "bfloat16"],
    );
}

#[test]
fn keys_and_options_that_do_not_fit_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let run = |models: &str| {
        let config = EXPERIMENT.replace("targets = { target = \"models/L\" }", models);
        run_with(&config, &["--dry-run"], folder.path())
    };
    for (models, parts) in [
        (
            "targets.target = { torch = \"models/L\", dtyp = \"float32\" }",
            ["experiment.toml:4", "dtyp"],
        ),
        (
            "targets.target = { torch = \"models/L\", device = \"gpu\" }",
            ["experiment.toml:4", "`device_map`"],
        ),
        (
            "targets.target = { path = \"models/L\", dtype = \"float32\" }",
            ["experiment.toml:4", "go with `torch`"],
        ),
        (
            "targets.target = { torch = \"no/such\" }",
            ["models.targets.target", "no such model folder"],
        ),
    ] {
        refused(&mut run(models), &parts);
    }
    let drafter = EXPERIMENT.replace("\"models/D\"", "{ torch = \"models/D\" }");
    refused(
        &mut run_with(&drafter, &["--dry-run"], folder.path()),
        &["models.drafter", "a drafter cannot be a worker's"],
    );
    let mut generate = omnidraft();
    generate.args(["generate", "--target", "models/L", "--prompt", "Hi"]);
    refused(
        generate.args(["--torch-dtype", "float32"]),
        &[
            "--torch-dtype goes with a target that a worker",
            "hint: torch:DIR",
        ],
    );
}

#[test]
fn a_python_that_is_not_there_is_told() {
    let mut command = omnidraft();
    command.env("OMNIDRAFT_PYTHON", "no/such/python");
    command.args(["generate", "--target", TORCH, "--prompt", "Hi"]);
    refused(
        &mut command,
        &["no/such/python", "hint:", "OMNIDRAFT_PYTHON"],
    );
}

#[test]
fn check_says_what_a_worker_needs() {
    omnidraft()
        .args(["check", "models/D", TORCH, "--context", "100"])
        .assert()
        .success()
        .stdout(contains("LlamaForCausalLM"))
        .stdout(contains("in bfloat16"))
        .stdout(contains("a context of 100 tokens: KV cache"))
        .stdout(contains("tokens of the target"));
}

#[test]
fn a_worker_with_torch_answers_as_the_programs_own_engine() {
    if !has_torch() {
        return;
    }
    let own = answer(omnidraft(), "models/L", &[]);
    let f32 = ["--torch-dtype", "float32", "--torch-device", "cpu"];
    assert_eq!(
        answer(omnidraft(), TORCH, &f32)["target_ids"],
        own["target_ids"]
    );
    let drafter = [&f32[..], &["--drafter", "models/D"]].concat();
    assert_eq!(
        answer(omnidraft(), TORCH, &drafter)["target_ids"],
        own["target_ids"]
    );

    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("t.parquet");
    let mut record = omnidraft();
    record.args(["trace", "record", "--target", TORCH, "--task", "mini-math"]);
    record
        .args(f32)
        .args(["--limit", "2", "--seed", "0", "--max-tokens", "8"]);
    record
        .args(["--tail", "4", "--out"])
        .arg(&out)
        .assert()
        .success();
    verified(&out);
}

/// Compares a recording with the engine of this program.
fn verified(file: &Path) {
    let mut verify = omnidraft();
    verify.args(["trace", "verify"]).arg(file);
    verify.args(["--target", "models/L"]);
    verify.assert().success().stdout(contains("same tokens"));
}
