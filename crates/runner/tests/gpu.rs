//! The whole program on a graphics device, which may be a software device. Without any, these tests
//! are skipped, unless OMNIDRAFT_REQUIRE_GPU is 1.
#![cfg(feature = "gpu")]

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

fn omnidraft(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .arg("--no-progress")
        .args(arguments);
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
