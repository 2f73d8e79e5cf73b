//! The command line: what bad input is told, with exit status 2 and nothing left behind that looks
//! complete.

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
        "report",
        "align",
        "cache replay",
        "generate",
        "pad",
        "lawtest",
        "pretrain",
        "streams",
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

const EXPERIMENT: &str = r#"name = "small"
arms = ["autoregressive", "SpD_DM"]
[models]
drafter = "models/D"
targets = { target = "models/L" }
[[segments]]
task = "mini-math"
train = 2
test = 2
[decode]
max_new_tokens = 8
"#;

#[test]
fn faulty_configurations_name_line_or_key() {
    let folder = tempfile::tempdir().unwrap();
    let told = |config: &str, extra: &[&str], parts: &[&str]| {
        let mut assert = run_with(config, extra, folder.path())
            .assert()
            .code(2)
            .stdout("");
        for part in parts {
            assert = assert.stderr(contains(*part));
        }
        assert!(
            !folder.path().join("out").exists(),
            "a results folder was left behind"
        );
    };
    told(
        &EXPERIMENT.replace("train = 2", "trian = 2"),
        &[],
        &["experiment.toml", "line 8", "trian", "hint:"],
    );
    told(
        &EXPERIMENT.replace("SpD_DM", "SpD"),
        &[],
        &["no preset `SpD`"],
    );
    told(EXPERIMENT, &["--set", "decode.kk=3"], &["decode.kk"]);
    told(
        EXPERIMENT,
        &["--set", "decode.k=0"],
        &["decode.k = 0 is outside 1..=64"],
    );
    told(&EXPERIMENT.replace("mini-math", "maths"), &[], &["maths"]);
    told(
        &EXPERIMENT.replace("models/L", "models/nothing"),
        &[],
        &["models/nothing"],
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
        let config = EXPERIMENT
            .replace("mini-math", "sums")
            .replace("train = 2", "")
            .replace("test = 2", "");
        let data = folder.path().join("data");
        run_with(
            &config,
            &["--data-dir", data.to_str().unwrap()],
            folder.path(),
        )
        .assert()
        .code(2)
        .stderr(contains("train.jsonl").and(contains(part)));
    };
    told(&format!("{good}{{\"id\": \"b\", \"prompt\": \"2+"), "2");
    told(&format!("{good}{good}"), "`a`");
    told("", "the stream is empty");
    let out = folder.path().join("out");
    assert!(!out.exists(), "a results folder was left behind");
}

#[test]
fn a_run_writes_its_report_once() {
    let folder = tempfile::tempdir().unwrap();
    run_with(EXPERIMENT, &[], folder.path())
        .assert()
        .success()
        .stdout(contains("SpD_DM"));
    let report = folder.path().join("out/report");
    for file in ["table.md", "table.csv", "curves.svg", "curves.png"] {
        assert!(report.join(file).is_file(), "{file} is missing");
    }
    let header = std::fs::read_to_string(report.join("table.csv")).unwrap();
    assert_eq!(
        header.lines().next(),
        Some(
            "target,task,method,temperature,prompts,acceptance_rate,block_efficiency,bytes_per_step,ngram_hits,speedup_measured,speedup_low,speedup_high,speedup_modelled,draft_length"
        )
    );
    run_with(EXPERIMENT, &[], folder.path())
        .assert()
        .code(2)
        .stderr(contains("out").and(contains("hint:")));
    omnidraft()
        .arg("report")
        .arg(folder.path().join("out"))
        .assert()
        .success()
        .stdout(contains("SpD_DM"));
}

#[test]
fn padded_models_say_so_and_answer_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Tokens, and what was drafted and accepted, of arms before and after learning.
    let answers = |name: &str, drafter: &str, target: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        let config = EXPERIMENT
            .replace("\"SpD_DM\"", "\"SpD_DM\", \"L_DM+L_N-gram\"")
            .replace("\"models/D\"", drafter)
            .replace("\"models/L\"", target);
        let label = match name {
            "plain" => "| target |",
            "padded" => "target (padded)",
            _ => ", the drafter with 96 inner columns an MLP and 1 block,",
        };
        run_with(&config, &[], &place)
            .assert()
            .success()
            .stdout(contains(label));
        let reader = runner::results::RunReader::open(&place.join("out")).unwrap();
        let padding = &reader.manifest().padding;
        assert_eq!(padding.len(), usize::from(name != "plain"));
        for padding in padding.values() {
            assert_eq!(padding.draft_layers, usize::from(name.starts_with("both")));
        }
        let rows = reader.prompts().unwrap().rows;
        rows.into_iter()
            .map(|row| (row.tokens_hash, row.draft_tokens, row.accepted))
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
