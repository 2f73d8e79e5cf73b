//! The whole program on a graphics device, which may be one that the processor plays. Without any, these
//! tests are skipped, unless OMNIDRAFT_REQUIRE_GPU is 1.
#![cfg(feature = "gpu")]

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

fn omnidraft(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .arg("--no-progress")
        .args(arguments);
    command
}

/// Whether there is a device.
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
    arguments.extend(["--prompts", "3", "--tokens", "16", "--verify", &verify]);
    let report = json(&arguments);
    let compared = report["modes"].as_array().unwrap();
    assert_eq!(compared.len(), modes.len());
    for mode in compared {
        assert_eq!((&mode["equal"], &mode["different"]), (&3.into(), &0.into()));
    }
}

/// What is learnt on the processor drafts on the device, and changes no greedy answer.
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
        prompts = { train = 6, test = 2 }
        [decode]
        max_new_tokens = 12
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
    assert_eq!(updates.len(), 3);
    assert!(updates.iter().all(|update| update.grad_norm > 0.0));
    let rows = reader.prompts().unwrap();
    let answers = |arm: &str| -> Vec<String> {
        let of_arm = rows.iter().filter(|row| row.arm == arm);
        of_arm.map(|row| row.answer.clone()).collect()
    };
    let plain = answers("autoregressive");
    assert_eq!(plain.len(), 8);
    assert_eq!(answers("L_DM+L_N-gram"), plain);
    let rounds = |arm: &str| -> u32 {
        let of_arm = rows.iter().filter(|row| row.arm == arm);
        of_arm.map(|row| row.rounds).sum()
    };
    assert!(rounds("L_DM+L_N-gram") < rounds("autoregressive"));
}

/// Where the most probable token decides, no logits leave the device but those that are asked for.
#[test]
fn greedy_rounds_fetch_few_bytes() {
    if !there_is_a_device() {
        return;
    }
    let fetched = |arguments: &[&str]| {
        let mut all = vec![
            "bench", "round", "--json", "--device", "gpu", "--rounds", "6",
        ];
        all.extend(["--target-shape", "llama-68m", "--temperature", "0"]);
        all.extend(arguments);
        let report = json(&all);
        assert_eq!(report["rounds"], 6);
        report["fetched_bytes_per_round"].as_f64().unwrap()
    };
    let (few, all) = (fetched(&[]), fetched(&["--all-logits"]));
    assert!(0.0 < few && few < all / 2.0, "{few} and {all}");
}
