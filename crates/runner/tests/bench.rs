//! `omnidraft bench`: its numbers are consistent, and its files for other engines have the engine's
//! values.

use crate::cli::support::{omnidraft, repository};

use std::path::Path;

use assert_cmd::Command;
use cpu_engine::{CpuEngine, EngineOptions};
use lm::{Checkpoint, LanguageModel, WeightType};
use predicates::str::contains;

const CALL: usize = 16;

fn bench(arguments: &[&str]) -> Command {
    let mut command = omnidraft();
    command.arg("bench").args(arguments);
    command
}

/// The logits of the same tokens, read one at a time.
fn one_by_one(folder: &Path, weights: WeightType, context: usize) -> Vec<f32> {
    let options = EngineOptions {
        weights,
        threads: 1,
        max_len: context + CALL,
        ..EngineOptions::default()
    };
    let mut engine = CpuEngine::new(&Checkpoint::load(folder).unwrap(), options).unwrap();
    let vocab = engine.vocab_size();
    let mut row = vec![0.0; vocab];
    let mut rows = Vec::new();
    for i in 0..context + CALL {
        engine
            .forward(&[(i * 7919 % vocab) as u32], &mut row)
            .unwrap();
        if i >= context {
            rows.extend_from_slice(&row);
        }
    }
    rows
}

#[test]
fn logits_are_those_of_the_tokens_after_the_context() {
    let folder = tempfile::tempdir().unwrap();
    for (name, weights) in [("f32", WeightType::F32), ("bf16", WeightType::Bf16)] {
        let file = folder.path().join(name);
        bench(&["logits", "--model", "models/D", "--context", "7"])
            .args(["--weights", name, "--threads", "2", "--out"])
            .arg(&file)
            .assert()
            .success();
        let found: Vec<f32> = std::fs::read(&file)
            .unwrap()
            .chunks_exact(4)
            .map(|b| f32::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let expected = one_by_one(&repository().join("models/D"), weights, 7);
        assert!(found == expected, "{name}: logits differ");
    }
}

#[test]
fn logits_refuse_contexts_the_model_cannot_hold() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("logits");
    for (context, message) in [("0", "at least 1"), ("1000000", "the model holds")] {
        bench(&[
            "logits",
            "--model",
            "models/D",
            "--context",
            context,
            "--out",
        ])
        .arg(&file)
        .assert()
        .code(2)
        .stderr(contains(message));
    }
    assert!(!file.exists());
}

#[test]
fn contexts_beyond_all_numbers_are_refused_as_others_are() {
    let most = usize::MAX.to_string();
    let refused = |command| {
        bench(&[command, "--model", "models/D", "--context", &most])
            .assert()
            .code(2)
    };
    for command in ["decode", "prefill"] {
        refused(command).stderr(contains("the model holds"));
    }
    // Where there is no device, that is refused first.
    refused("device");
    bench(&["steps", "--target", "models/D", "--drafter", "models/D"])
        .args(["--context", &most])
        .assert()
        .code(2)
        .stderr(contains("of this model"));
}

#[test]
fn a_written_checkpoint_is_measured_like_its_shape() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("model");
    bench(&["checkpoint", "--shape", "llama-68m", "--out"])
        .arg(&out)
        .assert()
        .success();
    let measure = |what: &[&str]| {
        let output = bench(&["verify", "--json", "--seconds", "0", "--context", "4"])
            .args(["--weights", "int8"])
            .args(what)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let written = measure(&["--model", &out.display().to_string()]);
    let drawn = measure(&["--shape", "llama-68m"]);
    for key in ["parameters", "memory_bytes", "kernels", "context"] {
        assert_eq!(written[key], drawn[key], "{key}");
    }
    for report in [written, drawn] {
        let ms = |m: &str| report["ms"][m].as_f64().unwrap();
        assert!(ms("1") > 0.0);
        assert_eq!(report["ratio5"].as_f64().unwrap(), ms("5") / ms("1"));
        assert_eq!(report["ratio9"].as_f64().unwrap(), ms("9") / ms("1"));
        assert_eq!(report["tokens_per_s"].as_f64().unwrap(), 1e3 / ms("1"));
    }
}

#[test]
fn steps_are_timed_in_every_storage_of_both_models() {
    let output = bench(&[
        "steps",
        "--target",
        "models/L-small",
        "--drafter",
        "models/D",
        "--json",
    ])
    .args(["--weights", "int8,f32", "--draft-weights", "int4,bf16"])
    .args(["--columns", "512", "--threads", "1", "--context", "16"])
    .output()
    .unwrap();
    assert!(output.status.success(), "{output:?}");
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<_> = rows
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap();
            let columns = row["columns"].as_u64().unwrap();
            (text("weights"), text("draft_weights"), columns)
        })
        .collect();
    let whole = names[0].2;
    assert!(whole > 512);
    let expected: Vec<_> = ["int8", "f32"]
        .into_iter()
        .flat_map(|target| ["int4", "bf16"].map(|draft| (target, draft)))
        .flat_map(|(target, draft)| [whole, 512].map(|columns| (target, draft, columns)))
        .collect();
    assert_eq!(names, expected);
    for row in rows {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert_eq!(number("ratio"), number("draft_s") / number("target_s"));
        assert!(number("draft_s") > 0.0, "{row}");
    }
    for wrong in [
        ["--threads", "0"],
        ["--columns", "0"],
        ["--draft-weights", "int3"],
    ] {
        let what = ["steps", "--target", "models/L", "--drafter", "models/D"];
        let refused = bench(&what).args(wrong).assert().code(2);
        refused.stderr(contains(wrong[0]));
    }
}
