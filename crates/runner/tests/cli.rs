//! The command line: what bad input is told, with exit status 2 and nothing left behind that looks
//! complete.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn omnidraft() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .current_dir(repository())
        .env_remove("OMNIDRAFT_SHARED")
        .arg("--no-progress");
    command
}

/// A copy of a shipped model folder that a test may damage.
fn copy_of(model: &str, into: &Path) -> PathBuf {
    let folder = into.join(model);
    std::fs::create_dir(&folder).unwrap();
    for file in std::fs::read_dir(repository().join("models").join(model)).unwrap() {
        let file = file.unwrap().path();
        std::fs::copy(&file, folder.join(file.file_name().unwrap())).unwrap();
    }
    folder
}

fn shorten(file: &Path) {
    let bytes = std::fs::read(file).unwrap();
    std::fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

fn generate(target: &Path) -> Command {
    let mut command = omnidraft();
    command
        .args([
            "generate",
            "--prompt",
            "Hello",
            "--max-tokens",
            "2",
            "--target",
        ])
        .arg(target);
    command
}

#[test]
fn help_shows_examples_for_every_command() {
    for command in [
        "run",
        "job",
        "status",
        "report",
        "publish",
        "align",
        "cache replay",
        "generate",
        "pad",
        "costs",
        "head",
        "lawtest",
        "pretrain",
    ] {
        let mut help = omnidraft();
        help.args(command.split(' ')).arg("--help");
        help.assert()
            .success()
            .stdout(contains("Examples:").and(contains(format!("omnidraft {command}"))));
    }
}

#[test]
fn damaged_models_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = copy_of("L", folder.path());
    let failure = |command: &mut Command, parts: &[&str]| {
        let mut assert = command
            .assert()
            .code(2)
            .stdout("")
            .stderr(contains("error: "));
        for part in parts {
            assert = assert.stderr(contains(*part));
        }
    };
    shorten(&target.join("model.safetensors"));
    failure(&mut generate(&target), &["model.safetensors", "hint:"]);

    let target = copy_of("L", &{
        let second = folder.path().join("second");
        std::fs::create_dir(&second).unwrap();
        second
    });
    let config = std::fs::read_to_string(target.join("config.json")).unwrap();
    std::fs::write(
        target.join("config.json"),
        config.replace("\"hidden_size\": 192", "\"hidden_size\": 128"),
    )
    .unwrap();
    failure(
        &mut generate(&target),
        &["has shape", "model.embed_tokens.weight", "hint:"],
    );
    std::fs::write(
        target.join("config.json"),
        config.replace("\"vocab_size\": 8192", "\"vocab_size\": 8000"),
    )
    .unwrap();
    failure(&mut generate(&target), &["model.embed_tokens.weight"]);
    std::fs::write(
        target.join("config.json"),
        config.replace("\"hidden_size\": 192,", ""),
    )
    .unwrap();
    failure(&mut generate(&target), &["config.json", "`hidden_size`"]);
    std::fs::write(target.join("config.json"), config).unwrap();

    shorten(&target.join("tokenizer.json"));
    failure(&mut generate(&target), &["tokenizer.json", "line", "hint:"]);
    failure(&mut generate(&folder.path().join("nowhere")), &["nowhere"]);
}

#[test]
fn a_tokenizer_larger_than_its_model_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = copy_of("L", folder.path());
    let path = target.join("tokenizer.json");
    let mut tokenizer: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let extra = serde_json::json!({
        "id": 8192, "content": "<|extra|>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false,
    });
    tokenizer["added_tokens"]
        .as_array_mut()
        .unwrap()
        .push(extra);
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    generate(&target)
        .assert()
        .code(2)
        .stderr(contains("8193 tokens").and(contains("vocab_size = 8192")));
}

/// Two arms, one cell, one stage.
const EXPERIMENT: &str = r#"name = "small"
[models]
drafter = "models/D"
targets = { target = "models/L" }
[grid]
task = "mini-math"
[stage.stream]
prompts = { train = 2, test = 2 }
[decode]
max_new_tokens = 8
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "SpD_DM"
"#;

/// A second stage behind it, and an arm that learns.
const TWO_STAGES: &str = r#"
[[arm]]
preset = "L_DM+L_N-gram"
[learn]
every = 1
[stage.held-out]
from = "stream"
prompts = { test = 1 }
"#;

/// Folder of the only cell of [`EXPERIMENT`].
const CELL: &str = "out/stream/task=mini-math,seed=1";

fn run_with(config: &str, extra: &[&str], folder: &Path) -> Command {
    let path = folder.join("experiment.toml");
    std::fs::write(&path, config).unwrap();
    let mut command = omnidraft();
    command
        .arg("run")
        .arg(path)
        .arg("--out")
        .arg(folder.join("out"))
        .args(extra);
    command
}

/// Exit status 2, nothing on stdout, and a message with all of `parts`.
fn refused(command: &mut Command, parts: &[&str]) {
    let mut assert = command.assert().code(2).stdout("");
    for part in ["error: "].iter().chain(parts) {
        assert = assert.stderr(contains(*part));
    }
}

/// Every file below a folder with its bytes.
fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap())),
        }
    }
    found
}

#[test]
fn faulty_experiments_name_file_and_key_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let told = |config: &str, extra: &[&str], parts: &[&str]| {
        refused(&mut run_with(config, extra, folder.path()), parts);
        let out = folder.path().join("out");
        assert!(!out.exists(), "a results folder was left behind");
    };
    let replaced = |from: &str, to: &str| EXPERIMENT.replace(from, to);
    told(
        &replaced("train = 2", "trian = 2"),
        &[],
        &["experiment.toml:8", "trian", "hint:"],
    );
    told(
        &replaced("\"SpD_DM\"", "\"SpD\""),
        &[],
        &["experiment.toml:14", "no preset `SpD`", "hint:"],
    );
    told(
        EXPERIMENT,
        &["--set", "decode.kk=3"],
        &["decode.kk", "hint:"],
    );
    told(
        EXPERIMENT,
        &["--set", "decode.k=0"],
        &["decode.k: 0 is outside 1..=64", "hint:"],
    );
    told(EXPERIMENT, &["--only", "taks=x"], &["taks", "task"]);
    told(EXPERIMENT, &["--stage", "steam"], &["steam", "stream"]);
    told(&replaced("mini-math", "maths"), &[], &["maths", "hint:"]);

    // A key of an included file.
    let included = folder.path().join("base.toml");
    std::fs::write(&included, "[learn]\nlerning_rate = 0.1\n").unwrap();
    told(
        &format!("include = [\"base.toml\"]\n{EXPERIMENT}"),
        &[],
        &["base.toml:2", "lerning_rate", "hint:"],
    );
    told(
        EXPERIMENT,
        &["--include", included.to_str().unwrap()],
        &["base.toml:2", "lerning_rate", "hint:"],
    );
    told(
        &format!("include = [\"nowhere.toml\"]\n{EXPERIMENT}"),
        &[],
        &["nowhere.toml", "experiment.toml:1", "hint:"],
    );
    // A value of the grid of a wrong type.
    told(
        &replaced("[grid]", "[grid]\nseed = [1, \"two\"]"),
        &[],
        &["experiment.toml:6", "grid.seed", "two", "hint:"],
    );
    told(
        &replaced("[grid]", "[grid]\n\"decode.k\" = [1, \"two\"]"),
        &[],
        &["experiment.toml:6", "decode.k", "two", "hint:"],
    );
    // Stages that start from nothing, or from each other.
    told(
        &replaced("[stage.stream]", "[stage.stream]\nfrom = \"begin\""),
        &[],
        &["experiment.toml:8", "stage.stream.from", "begin", "hint:"],
    );
    let circle = "[stage.stream]\nfrom = \"b\"\n[stage.b]\nfrom = \"stream\"";
    told(
        &replaced("[stage.stream]", circle),
        &[],
        &["experiment.toml:", "circle", "stream", "b", "hint:"],
    );
    // Arms of one name, a sweep over nothing.
    told(
        &format!("{EXPERIMENT}[[arm]]\npreset = \"SpD_DM\"\n"),
        &[],
        &["experiment.toml:15", "two arms", "`SpD_DM`", "hint:"],
    );
    told(
        &format!("{EXPERIMENT}[sweep]\n\"decode.kk\" = [1, 2]\n"),
        &[],
        &["experiment.toml:16", "decode.kk", "hint:"],
    );
}

#[test]
fn a_model_that_is_missing_fails_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let config = EXPERIMENT.replace("models/L", "models/nothing");
    run_with(&config, &[], folder.path())
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("models/nothing").and(contains("stream/task=mini-math,seed=1")));
    let cell = folder.path().join(CELL);
    let error = std::fs::read_to_string(cell.join("error.txt")).unwrap();
    assert!(error.contains("models/nothing"), "{error}");
    assert!(!cell.join("prompts.parquet").exists());
    omnidraft()
        .arg("status")
        .arg(folder.path().join("out"))
        .assert()
        .success()
        .stdout(contains("failed").and(contains("models/nothing")));
    refused(
        omnidraft().arg("report").arg(folder.path().join("out")),
        &["hint:"],
    );
}

#[test]
fn faulty_streams_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("data/sums");
    std::fs::create_dir_all(&task).unwrap();
    let good = "{\"id\": \"a\", \"prompt\": \"1+1\", \"reference\": \"2\"}\n";
    std::fs::write(task.join("test.jsonl"), good.replace("\"a\"", "\"z\"")).unwrap();
    let told = |train: &str, part: &str| {
        std::fs::write(task.join("train.jsonl"), train).unwrap();
        let config = EXPERIMENT.replace("mini-math", "sums");
        let data = folder.path().join("data");
        let extra = ["--data-dir", data.to_str().unwrap()];
        refused(
            &mut run_with(&config, &extra, folder.path()),
            &["train.jsonl", part],
        );
    };
    told(&format!("{good}{{\"id\": \"b\", \"prompt\": \"2+"), "2");
    told(&format!("{good}{good}"), "`a`");
    told("", "the stream is empty");
    let out = folder.path().join("out");
    assert!(!out.exists(), "a results folder was left behind");
}

#[test]
fn a_run_is_reported_published_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    run_with(EXPERIMENT, &["--dry-run"], folder.path())
        .assert()
        .success()
        .stdout(contains("task=mini-math,seed=1").and(contains("4 prompts, 2 arms")));
    assert!(!out.exists(), "a dry run leaves nothing");

    run_with(EXPERIMENT, &[], folder.path())
        .assert()
        .success()
        .stdout(contains("SpD_DM"));
    assert!(out.join("report/report.md").is_file());
    let manifest = folder.path().join(CELL).join("manifest.json");
    let before = std::fs::read(&manifest).unwrap();

    // The same again does nothing; a seed more does what is missing.
    let seeds = ["--set", "grid.seed=[1, 2]"];
    for extra in [&[][..], &seeds] {
        run_with(EXPERIMENT, extra, folder.path())
            .assert()
            .success()
            .stdout(contains("SpD_DM"));
    }
    assert!(before == std::fs::read(&manifest).unwrap());
    let status = |extra: &[&str]| {
        let mut command = omnidraft();
        command.arg("status").arg(&out).args(extra);
        let output = command.assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    assert!(status(&[]).contains("stream"), "{}", status(&[]));
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(json["name"], "small");
    assert_eq!(json["stages"][0]["complete"], 2);

    let published = folder.path().join("published");
    omnidraft()
        .arg("publish")
        .args([&out, &published])
        .assert()
        .success();
    for folder in [&out, &published] {
        let check = |folder: &Path| {
            let mut command = omnidraft();
            command.arg("report").arg(folder).arg("--check");
            command
        };
        check(folder).assert().success();
        let page = folder.join("report/report.md");
        let text = std::fs::read_to_string(&page).unwrap();
        std::fs::write(&page, text.replacen("SpD_DM", "SpD_XX", 1)).unwrap();
        refused(&mut check(folder), &["report.md", "line"]);
        let mut report = omnidraft();
        report.arg("report").arg(folder).assert().success();
        assert_eq!(std::fs::read_to_string(&page).unwrap(), text);
    }
}

#[test]
fn the_reference_of_keys_is_printed() {
    omnidraft()
        .arg("config")
        .assert()
        .success()
        .stdout(experiment::reference::markdown());
}

#[test]
fn an_edited_experiment_is_refused_over_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{EXPERIMENT}{TWO_STAGES}");
    run_with(&text, &["--stage", "stream"], folder.path())
        .assert()
        .success();
    let out = folder.path().join("out");
    let before = files(&out);
    let cell = "stream/task=mini-math,seed=1";
    let told = |text: &str, extra: &[&str], parts: &[&str]| {
        refused(&mut run_with(text, extra, folder.path()), parts);
        assert!(files(&out) == before, "something was written");
    };
    let edited = text.replace("max_new_tokens = 8", "max_new_tokens = 9");
    told(&edited, &[], &[cell, "edited", "hint:", "--out"]);
    // What starts from the edited stage is refused too, and so is an override.
    let later = ["--stage", "held-out"];
    told(&text, &["--set", "decode.k=3"], &[cell, "edited", "hint:"]);
    told(&edited, &later, &[cell, "edited", "hint:"]);
    let renamed = text.replace("\"small\"", "\"other\"");
    told(&renamed, &[], &["`small`", "`other`", "hint:"]);

    // A folder that is no run at all.
    let strange = folder.path().join("strange");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("thesis.tex"), "").unwrap();
    let mut command = run_with(&text, &[], folder.path());
    refused(
        command.arg("--out").arg(&strange),
        &["cannot be used multiple times"],
    );
    let mut command = omnidraft();
    command
        .arg("run")
        .arg(folder.path().join("experiment.toml"));
    refused(
        command.arg("--out").arg(&strange),
        &["strange", "experiment.json", "hint:"],
    );
    refused(
        omnidraft().arg("status").arg(&strange),
        &["strange", "experiment.json", "hint:"],
    );
    assert_eq!(files(&strange).len(), 1);
}

#[test]
fn results_of_another_program_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    run_with(EXPERIMENT, &[], folder.path()).assert().success();
    let out = folder.path().join("out");
    let path = folder.path().join(CELL).join("manifest.json");
    let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let write = |manifest: &serde_json::Value| std::fs::write(&path, manifest.to_string()).unwrap();
    let told = |parts: &[&str]| {
        let before = files(&out);
        refused(&mut run_with(EXPERIMENT, &[], folder.path()), parts);
        assert!(files(&out) == before, "something was written");
    };

    let mut other = whole.clone();
    other["schema"] = 999.into();
    write(&other);
    told(&["mini-math", "layout 999", "hint:", "--out"]);
    refused(
        omnidraft().arg("report").arg(&out),
        &["manifest.json", "999", "hint:"],
    );

    other = whole.clone();
    other["build"]["version"] = "9.9.9".into();
    write(&other);
    told(&["mini-math", "version 9.9.9", "hint:", "--out"]);

    other = whole.clone();
    other["build"]["git_commit"] = "0123456789".into();
    write(&other);
    told(&["mini-math", "0123456789", "hint:", "--accept-other-build"]);
    run_with(EXPERIMENT, &["--accept-other-build"], folder.path())
        .assert()
        .success();

    std::fs::write(&path, "{").unwrap();
    told(&["manifest.json, line 1", "hint:", "remove"]);
    write(&whole);
    let record = out.join("experiment.json");
    let text = std::fs::read_to_string(&record).unwrap();
    let other = text.replacen("\"schema\": 1", "\"schema\": 77", 1);
    assert_ne!(other, text);
    std::fs::write(&record, other).unwrap();
    told(&["experiment.json", "layout 77", "hint:"]);
}

/// A folder of programs with these texts, to be all of `PATH`.
#[cfg(unix)]
fn programs(folder: &Path, texts: &[(&str, &str)]) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let programs = folder.join("bin");
    std::fs::create_dir_all(&programs).unwrap();
    for (name, text) in texts {
        let path = programs.join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    programs
}

#[cfg(unix)]
#[test]
fn a_slurm_that_is_missing_or_refuses_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    let slurm = |config: &str, path: &Path| {
        let mut command = run_with(config, &["--launcher", "slurm"], folder.path());
        command.env("PATH", path);
        command
    };
    let nothing_looks_begun = || {
        let names = files(&out).into_keys();
        let names: Vec<_> = names
            .map(|path| path.file_name().unwrap().to_string_lossy().into_owned())
            .collect();
        assert!(!names.contains(&"manifest.json".to_owned()), "{names:?}");
        assert!(!names.contains(&"submitted.json".to_owned()), "{names:?}");
    };
    let path = programs(folder.path(), &[]);
    refused(
        &mut slurm(EXPERIMENT, &path),
        &["was not found", "Slurm", "hint:", "--print-jobs"],
    );
    nothing_looks_begun();
    let refuses = "echo 'sbatch: error: invalid partition specified: nowhere' >&2; exit 1";
    let tools = [("sbatch", refuses), ("squeue", ""), ("scontrol", "")];
    let path = programs(folder.path(), &tools);
    let config = format!("{EXPERIMENT}[launcher.slurm]\npartition = \"nowhere\"\n");
    refused(
        &mut slurm(&config, &path),
        &["invalid partition", "nowhere", "hint:", "launcher.slurm"],
    );
    nothing_looks_begun();
    let config = format!("{EXPERIMENT}[launcher.slurm]\narray = \"1-3\"\n");
    refused(
        &mut slurm(&config, &path),
        &["launcher.slurm.array", "hint:"],
    );
}

#[test]
fn one_job_is_named_by_stage_and_cell() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{EXPERIMENT}{TWO_STAGES}");
    let file = folder.path().join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    let out = folder.path().join("out");
    let job = |stage: &str, cell: &str| {
        let mut command = omnidraft();
        command.arg("job").arg(&file).arg("--out").arg(&out);
        command.args(["--stage", stage, "--cell", cell]);
        command
    };
    let cell = "task=mini-math,seed=1";
    refused(&mut job("stream", "seed=1"), &["`seed=1`", "`stream`"]);
    assert!(!out.exists());
    job("held-out", cell)
        .assert()
        .code(3)
        .stderr(contains("held-out").and(contains("stream")));
    job("stream", cell).assert().code(0).stdout("");
    job("held-out", cell).assert().code(0);
    // Complete: nothing to do.
    job("held-out", cell).assert().code(0);
}

#[test]
fn padded_models_say_so_and_answer_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Tokens, and what was drafted and accepted, of arms before and after learning.
    let answers = |name: &str, drafter: &str, target: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        let config = EXPERIMENT
            .replace("[stage.stream]", "[stage.stream]\nexclusive = true")
            .replace("\"models/D\"", drafter)
            .replace("\"models/L\"", target)
            + "[[arm]]\npreset = \"L_DM+L_N-gram\"\n[learn]\nevery = 1\n";
        run_with(&config, &[], &place).assert().success();
        let page = std::fs::read_to_string(place.join("out/report/report.md")).unwrap();
        assert_eq!(page.contains("cost padding"), name != "plain", "{page}");
        let reader = results::CellReader::open(&place.join(CELL)).unwrap();
        let padding = &reader.manifest().padding;
        assert_eq!(padding.len(), usize::from(name != "plain"));
        for padding in padding.values() {
            assert_eq!(padding.layers, 2);
            assert_eq!(padding.draft_layers, usize::from(name.starts_with("both")));
        }
        assert!(reader.manifest().machine.bandwidth_gbs > Some(0.0));
        let rows = reader.prompts().unwrap().into_iter();
        rows.map(|row| (row.tokens_hash, row.draft_tokens, row.accepted))
            .collect::<Vec<_>>()
    };
    let (drafter, target) = ("\"models/D\"", "{ path = \"models/L\", pad_layers = 2 }");
    let plain = answers("plain", drafter, "\"models/L\"");
    assert_eq!(plain, answers("padded", drafter, target));
    let padded_drafter = "{ path = \"models/D\", pad_layers = 1, pad_width = 96 }";
    assert_eq!(plain, answers("both", padded_drafter, target));
    // On the stream the padded drafter must follow every update.
    let padded_drafter = format!("{padded_drafter}\npad_stream = true");
    let answers = answers("both on the stream", &padded_drafter, target);
    assert_eq!(plain, answers);
}

#[test]
fn a_head_is_trained_before_a_run_and_read_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("experiment.toml");
    let head = folder.path().join("head.safetensors");
    std::fs::write(&file, EXPERIMENT).unwrap();
    omnidraft()
        .arg("head")
        .arg(&file)
        .args(["--prompts", "20", "--epochs", "2", "--out"])
        .arg(&head)
        .assert()
        .success()
        .stdout(contains("calibration error"));
    let set = "set = { \"decode.policy\" = \"head\", \"head.training\" = \"offline\" }\n";
    let path = format!("head.path={}", head.display());
    run_with(
        &format!("{EXPERIMENT}{set}"),
        &["--set", &path],
        folder.path(),
    )
    .assert()
    .success();
    let manifest = results::Manifest::read(&folder.path().join(CELL)).unwrap();
    let mut inputs = manifest.inputs.iter();
    assert!(inputs.any(|input| input.role == "acceptance head"));
}

#[test]
fn costs_of_an_experiment_are_measured_as_its_configuration_wants_them() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("experiment.toml");
    std::fs::write(&file, EXPERIMENT).unwrap();
    let output = omnidraft()
        .arg("costs")
        .arg(&file)
        .args(["--prompts", "4", "-k", "4"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let said = String::from_utf8(output).unwrap();
    std::fs::write(&file, format!("{EXPERIMENT}{said}")).unwrap();
    let plan = experiment::Plan::load(&file, &experiment::LoadOptions::default()).unwrap();
    let costs = &plan.jobs[0].config.arms[1].decode.costs;
    assert_eq!(costs.verify.len(), 5, "{said}");
    assert!(costs.draft.len() == 4 && costs.draft[0] > 0.0, "{said}");
    assert!(costs.verify[0] == 1.0, "{said}");
    for list in [&costs.draft, &costs.verify] {
        assert!(list.windows(2).all(|pair| pair[0] <= pair[1]), "{said}");
    }
}

#[test]
fn pad_measures_until_the_ratio_is_met() {
    let output = omnidraft()
        .args(["pad", "--draft", "models/D", "--target", "models/L"])
        .args(["--ratio", "0.05", "--context", "16", "--json"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let found: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let rows = found["measured"].as_array().unwrap();
    let chosen = rows
        .iter()
        .find(|row| row["pad_layers"] == found["pad_layers"]);
    assert_eq!(chosen.unwrap()["ratio"], found["ratio"]);
    assert!(rows.len() > 1 && rows[0]["pad_layers"] == 0);
    omnidraft()
        .args([
            "pad", "--draft", "models/D", "--target", "models/L", "--ratio", "0",
        ])
        .assert()
        .code(2)
        .stderr(contains("--ratio"));
}

#[test]
fn sampling_options_outside_their_range_name_the_flag() {
    for (flag, value) in [
        ("--temperature", "-1"),
        ("--temperature", "inf"),
        ("--top-p", "0"),
        ("--top-p", "1.5"),
        ("--min-p", "-0.1"),
        ("--repetition-penalty", "0"),
    ] {
        generate(&repository().join("models/L"))
            .args([flag, value])
            .assert()
            .code(2)
            .stderr(contains(flag));
    }
    for key in [
        "top_p=0",
        "min_p=2",
        "repetition_penalty=-1",
        "temperature=-1",
    ] {
        omnidraft()
            .args(["run", "experiments/quickstart.toml", "--set"])
            .arg(format!("decode.{key}"))
            .assert()
            .code(2)
            .stderr(contains(format!(
                "decode.{}",
                key.split('=').next().unwrap()
            )));
    }
}

fn lawtest(extra: &[&str]) -> Command {
    let mut command = omnidraft();
    command
        .args(["lawtest", "--drafter", "models/D"])
        .args(["--target", "models/L"])
        .args(extra);
    command
}

#[test]
fn lawtest_judges_samples_and_greedy_answers() {
    let report = |extra: &[&str]| -> serde_json::Value {
        let output = lawtest(extra)
            .assert()
            .success()
            .get_output()
            .stdout
            .clone();
        serde_json::from_slice(&output).unwrap()
    };
    let sampled = report(&[
        "--samples",
        "150",
        "--warmup",
        "2",
        "--verify",
        "exact,slem,prompt-lookup",
    ]);
    assert_eq!(sampled["modes"].as_array().unwrap().len(), 3);
    for mode in sampled["modes"].as_array().unwrap() {
        assert_eq!(mode["rejected"], false, "{sampled:#}");
        assert!(mode["degrees"].as_u64().unwrap() > 0, "{sampled:#}");
    }
    let greedy = report(&["--greedy", "--prompts", "10", "--tokens", "12"]);
    for mode in greedy["modes"].as_array().unwrap() {
        assert_eq!(
            (&mode["equal"], &mode["different"]),
            (&10.into(), &0.into())
        );
    }
    lawtest(&["--temperature", "0"])
        .assert()
        .code(2)
        .stderr(contains("--greedy"));
    lawtest(&["--verify", "fast"])
        .assert()
        .code(2)
        .stderr(contains("--verify").and(contains("prompt-lookup")));
}

#[test]
fn generate_answers_as_json_with_and_without_a_drafter() {
    let answers = |extra: &[&str]| -> serde_json::Value {
        let mut command = generate(&repository().join("models/L"));
        let output = command
            .args(["--json", "--n", "2"])
            .args(extra)
            .assert()
            .success()
            .get_output()
            .stdout
            .clone();
        serde_json::from_slice(&output).unwrap()
    };
    let plain = answers(&[]);
    assert_eq!(plain.as_array().unwrap().len(), 2);
    for mode in ["exact", "paper", "tli", "slem"] {
        let speculative = answers(&["--drafter", "models/D", "--verify", mode]);
        for (a, b) in plain
            .as_array()
            .unwrap()
            .iter()
            .zip(speculative.as_array().unwrap())
        {
            assert_eq!(a["target_ids"], b["target_ids"], "{mode}");
            assert_eq!(a["text"], b["text"], "{mode}");
        }
    }
}

#[test]
fn align_and_replay_print_their_json_keys() {
    let keys = |arguments: &[&str]| -> serde_json::Value {
        let output = omnidraft()
            .args(arguments)
            .assert()
            .success()
            .get_output()
            .stdout
            .clone();
        serde_json::from_slice(&output).unwrap()
    };
    let pair = ["--draft", "models/D", "--target", "models/L", "--json"];
    let stats = keys(&[&["align"][..], &pair].concat());
    for key in [
        "draft_vocab",
        "target_vocab",
        "mode",
        "direct_tokens",
        "draft_coverage",
        "target_coverage",
        "build_ms",
    ] {
        assert!(stats.get(key).is_some(), "{key}");
    }
    assert_eq!(
        (
            stats["draft_vocab"].as_u64(),
            stats["target_vocab"].as_u64()
        ),
        (Some(4096), Some(8192))
    );
    let replay = keys(
        &[
            &[
                "cache",
                "replay",
                "--data",
                "datasets/mini-math/train.jsonl",
            ][..],
            &pair,
        ]
        .concat(),
    );
    for key in [
        "texts",
        "target_tokens",
        "unique_ngrams",
        "bytes",
        "lengths",
    ] {
        assert!(replay.get(key).is_some(), "{key}");
    }
    assert_eq!(replay["texts"], 400);
}
