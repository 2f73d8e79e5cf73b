//! The paper's Tables 1 to 3 on stand-ins of its models: real vocabularies, tokenizers and templates, narrow layers
//! with random weights, and targets that workers of PyTorch decode.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command as Process;

use serde_json::Value;

use super::support::{omnidraft, repository};
use super::torch::{has_torch, python};

/// A few prompts and tokens of one task that needs no data.
const SMALL: [&str; 6] = [
    "grid.seed=[1]",
    r#"grid.task=["mini-math"]"#,
    "stage.stream.prompts.train=3",
    "stage.held-out.prompts.test=1",
    "decode.max_new_tokens=8",
    "learn.every=2",
];

/// Folder with configurations and tokenizers, or `None` and the calling test is skipped.
fn shared() -> Option<PathBuf> {
    let folder = std::env::var_os("OMNIDRAFT_SHARED").map(PathBuf::from);
    let found = folder.filter(|folder| folder.join("configs").is_dir());
    if found.is_none() {
        println!("skipped: OMNIDRAFT_SHARED names no folder with configs");
    }
    found
}

fn make(shared: &Path, out: &Path) {
    let script = repository().join("scripts/tiny_models.py");
    let mut command = Process::new(python());
    command.arg(script).arg("--out").arg(out);
    let output = command.arg("--paper").arg(shared).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
}

/// Runs an experiment in a folder and returns its results folder.
fn run(name: &str, sets: &[&str], folder: &Path) -> PathBuf {
    let experiments = repository().join("experiments");
    let mut command = omnidraft();
    command.current_dir(folder).arg("run");
    command.arg(experiments.join(name).with_extension("toml"));
    command.arg("--include");
    command.arg(experiments.join("models/paper-stand-ins.toml"));
    for set in SMALL.iter().chain(sets) {
        command.args(["--set", set]);
    }
    command.assert().success();
    folder.join("runs").join(name)
}

/// Names of the targets that a worker decoded in bfloat16, by the manifests of a stage's cells.
fn decoded(stage: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for cell in std::fs::read_dir(stage).unwrap() {
        let text = std::fs::read_to_string(cell.unwrap().path().join("manifest.json")).unwrap();
        let manifest: Value = serde_json::from_str(&text).unwrap();
        let workers = manifest["torch"].as_object().unwrap().iter();
        let workers = workers.filter(|(_, facts)| facts["dtype"] == "bfloat16");
        found.extend(workers.map(|(target, _)| target.clone()));
    }
    found
}

#[test]
fn tables_of_the_paper_run_on_stand_ins_of_its_models() {
    let Some(shared) = shared().filter(|_| has_torch()) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    make(&shared, &folder.path().join("runs/stand-ins"));
    for (name, targets, sets) in [
        ("table1", &["L", "Q"][..], &[][..]),
        ("table2", &["V"], &[]),
        (
            "table3",
            &["small", "medium", "large"],
            &[
                r#"grid.target=["small","medium","large"]"#,
                r#"grid.drafter=["D-large"]"#,
                r#"report.paper_names={ small = "Q2.5-7B", medium = "Q2.5-14B", large = "Q2.5-32B" }"#,
                r#"when.1.set."models.drafter"="runs/stand-ins/llama-160m""#,
            ],
        ),
    ] {
        let out = run(name, sets, folder.path());
        let page = std::fs::read_to_string(out.join("report/report.md")).unwrap();
        assert!(page.contains("was decoded by a worker"), "{name}: {page}");
        let wanted = targets.iter().map(|name| name.to_string()).collect();
        for stage in ["stream", "held-out"] {
            assert_eq!(decoded(&out.join(stage)), wanted, "{name}");
        }
    }
}
