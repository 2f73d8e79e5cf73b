//! Damaged, missing, small and padded model folders.

use super::support::{
    CELL, EXPERIMENT, copy_of, generate, omnidraft, refused, repository, run_with, shorten,
};
use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

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

/// In an ordinary build the engine is missing, and nothing is left behind.
#[cfg(not(feature = "gpu"))]
#[test]
fn a_device_that_was_not_built_is_refused() {
    let said = &[
        "device `gpu`",
        "without its engine",
        "hint:",
        "--features gpu",
    ];
    let drafts = [
        "lawtest",
        "--drafter",
        "models/D",
        "--target",
        "models/L",
        "--greedy",
    ];
    refused(
        omnidraft().args(drafts).args(["--drafter-device", "gpu"]),
        said,
    );
    refused(
        generate("models/L".as_ref()).args(["--device", "gpu"]),
        said,
    );
    refused(
        omnidraft().args(["bench", "decode", "--shape", "llama-68m", "--device", "gpu"]),
        said,
    );
    let folder = tempfile::tempdir().unwrap();
    refused(
        &mut run_with(EXPERIMENT, &["--device", "gpu"], folder.path()),
        said,
    );
    let own = "targets = { target = { path = \"models/L\", device = \"gpu:1\" } }";
    let config = EXPERIMENT.replace("targets = { target = \"models/L\" }", own);
    refused(
        &mut run_with(&config, &[], folder.path()),
        &["device `gpu:1`", "hint:"],
    );
    assert!(!folder.path().join("out").exists());
    refused(
        generate("models/L".as_ref()).args(["--device", "tpu"]),
        &["`tpu` is no device"],
    );
}

#[test]
fn a_token_beyond_the_embedding_is_refused_where_a_prompt_holds_it() {
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
    generate(&target).assert().success();
    omnidraft()
        .args([
            "generate",
            "--max-tokens",
            "1",
            "--prompt",
            "a<|extra|>",
            "--target",
        ])
        .arg(&target)
        .assert()
        .code(2)
        .stderr(contains("\"<|extra|>\" with id 8192").and(contains("8192 rows")));
}

/// All missing requirements of a run are reported before anything is written.
#[test]
fn models_that_are_missing_are_told_with_file_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let told = |target: &str, parts: &[&str]| {
        let config = EXPERIMENT.replace("\"models/L\"", target);
        for extra in [&[][..], &["--dry-run"]] {
            refused(&mut run_with(&config, extra, folder.path()), parts);
            assert!(!folder.path().join("out").exists());
        }
    };
    told(
        "\"models/nothing\"",
        &[
            "experiment.toml:4: models.targets.target: models/nothing: no such model folder",
            "hint: paths of models are relative to the working directory",
        ],
    );
    let gguf = folder.path().join("m.gguf");
    std::fs::write(&gguf, "GGUF").unwrap();
    let import = format!("omnidraft import {}", gguf.display());
    told(
        &format!("\"{}\"", gguf.display()),
        &["a file, not a model folder", &import],
    );
    refused(
        &mut generate(&gguf),
        &["a file, not a model folder", &import],
    );
    refused(
        &mut generate(folder.path()),
        &["has no tokenizer.json", &import],
    );
    // A recording, with the command that makes it.
    let trace = "{ trace = \"my traces/L-{task}-{split}.parquet\", tokenizer = \"models/L\" }";
    let config = EXPERIMENT
        .replace("\"models/L\"", trace)
        .replace("[decode]", "[decode]\ntemperature = 0.0");
    refused(
        &mut run_with(&config, &["--dry-run"], folder.path()),
        &[
            "models.targets.target: my traces/L-mini-math-train.parquet: there is no such recording",
            "omnidraft trace record --target models/L --task mini-math --limit 2 --seed 1 --max-tokens 8",
            "--split test --limit 2",
            "--out 'my traces/L-mini-math-test.parquet'",
        ],
    );
}

/// A dry run downloads nothing and does not connect to the hub; it prints the models that a run
/// would fetch.
#[test]
fn a_dry_run_with_models_of_the_hub_says_what_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let config = EXPERIMENT.replace("\"models/L\"", "\"hf:owner/large\"");
    run_with(&config, &["--dry-run"], folder.path())
        .env("HF_HOME", folder.path())
        .env("HF_ENDPOINT", "http://127.0.0.1:9")
        .assert()
        .success()
        .stdout(
            contains("hf:owner/large: not here")
                .and(contains("HF_TOKEN"))
                .and(contains("no estimate of the time")),
        );
}

#[test]
fn a_model_that_cannot_be_read_fails_its_job() {
    let folder = tempfile::tempdir().unwrap();
    let target = copy_of("L", folder.path());
    shorten(&target.join("model.safetensors"));
    let config = EXPERIMENT.replace("models/L", target.to_str().unwrap());
    run_with(&config, &[], folder.path())
        .assert()
        .code(1)
        .stdout("")
        .stderr(contains("model.safetensors").and(contains("stream/task=mini-math,seed=1")))
        .stderr(contains("hint:"));
    let cell = folder.path().join(CELL);
    let error = std::fs::read_to_string(cell.join("error.txt")).unwrap();
    assert!(error.contains("model.safetensors"), "{error}");
    assert!(!cell.join("prompts.parquet").exists());
    omnidraft()
        .arg("status")
        .arg(folder.path().join("out"))
        .assert()
        .success()
        .stdout(contains("failed").and(contains("model.safetensors")));
    refused(
        omnidraft().arg("report").arg(folder.path().join("out")),
        &["hint:"],
    );
}

#[test]
fn padded_models_say_so_and_answer_the_same() {
    let folder = tempfile::tempdir().unwrap();
    // Tokens, and numbers of drafted and accepted ones, of arms before and after learning.
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
            assert_eq!(padding.width, 64);
            let of_drafter = if name.starts_with("both") { 96 } else { 0 };
            assert_eq!(padding.draft_width, of_drafter);
        }
        assert!(reader.manifest().machine.bandwidth_gbs > Some(0.0));
        let rows = reader.prompts().unwrap().into_iter();
        rows.map(|row| (row.tokens_hash, row.draft_tokens, row.accepted))
            .collect::<Vec<_>>()
    };
    let (drafter, target) = ("\"models/D\"", "{ path = \"models/L\", pad_width = 64 }");
    let plain = answers("plain", drafter, "\"models/L\"");
    assert_eq!(plain, answers("padded", drafter, target));
    let padded_drafter = "{ path = \"models/D\", pad_width = 96 }";
    assert_eq!(plain, answers("both", padded_drafter, target));
    // On the stream the padded drafter must follow every update.
    let padded_drafter = format!("{padded_drafter}\npad_stream = true");
    let answers = answers("both on the stream", &padded_drafter, target);
    assert_eq!(plain, answers);
}

/// Sizes are known before anything is loaded, also for a model without its weights.
#[test]
fn check_says_what_models_are_and_take() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let [drafter, target] = ["D", "L"].map(|name| root.join("models").join(name));
    let check = || {
        let mut command = omnidraft();
        command.arg("check");
        command
    };
    let output = check()
        .args([&drafter, &target])
        .arg("--json")
        .output()
        .unwrap();
    assert!(output.status.success());
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let model = &report["models"][1];
    assert_eq!(model["tokenizer"], 8192);
    assert_eq!(model["files"]["encoding"], "bf16");
    assert!(report["pair"]["pairs"].as_u64().unwrap() > 0);
    let of = |weights: &str| {
        let kinds = model["memory"].as_array().unwrap();
        let kind = kinds.iter().find(|kind| kind["weights"] == weights);
        kind.unwrap()["weights_bytes"].as_u64().unwrap()
    };
    let parameters = model["parameters"].as_u64().unwrap();
    // The embedding stays in 16 bits, beside the head in 4.
    let (whole, narrow) = (of("f32"), of("int4"));
    assert!(whole > 4 * parameters && narrow < 2 * parameters, "{model}");
    assert_eq!(model["memory"][0]["fits"], true);

    let text = check().args([&drafter, &target]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    for part in [
        "llama",
        "safetensors",
        "KV cache in f32",
        "int4",
        "of the drafter's",
        "memory",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }

    // A model too large for any machine, described by its configuration alone.
    let folder = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(target.join("config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["num_hidden_layers"] = 4000.into();
    config["intermediate_size"] = 1_000_000.into();
    std::fs::write(folder.path().join("config.json"), config.to_string()).unwrap();
    let output = check()
        .arg(folder.path())
        .args(["--json", "--context", "100"])
        .output()
        .unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let model = &report["models"][0];
    assert_eq!(
        (&model["files"], &model["tokenizer"]),
        (&serde_json::Value::Null, &serde_json::Value::Null)
    );
    assert_eq!(
        (&model["context"], &model["memory"][3]["fits"]),
        (&100.into(), &false.into())
    );
    check()
        .arg(folder.path())
        .assert()
        .success()
        .stdout(contains("nothing fits"));

    shorten(&copy_of("L", folder.path()).join("model.safetensors"));
    check()
        .arg(folder.path().join("L"))
        .assert()
        .code(2)
        .stderr(contains("model.safetensors").and(contains("hint:")));
    check()
        .arg(folder.path().join("nowhere"))
        .assert()
        .code(2)
        .stderr(contains("nowhere: no such model folder").and(contains("hint:")));
}

/// The settings published with Qwen2.5's instruction models, and an unknown key.
const OWNERS: &str = r#"{"bos_token_id": 0, "eos_token_id": [1], "do_sample": true, "temperature": 0.7,
    "top_k": 20, "top_p": 0.8, "repetition_penalty": 1.1, "suppress_tokens": [5], "presence": 1}"#;

/// Generation settings of a model's owner are not applied, and are reported if they would change
/// answers.
#[test]
fn what_the_owner_sets_for_answers_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let target = copy_of("L", folder.path());
    let file = target.join("generation_config.json");
    let silent = generate(&target).output().unwrap();
    assert!(!String::from_utf8_lossy(&silent.stderr).contains("note:"));
    std::fs::write(&file, OWNERS).unwrap();
    let note = "generation_config.json asks for repetition_penalty 1.1, suppress_tokens [5], which is not done: answers are the model's own without them";
    let output = generate(&target).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let wanted = format!(
        "note: {}: {note} (--repetition-penalty 1.1 applies the penalty)",
        target.display()
    );
    assert_eq!(said.matches("note:").count(), 1, "{said}");
    assert!(said.contains(&wanted), "{said}");
    assert_eq!(output.stdout, silent.stdout);
    // If the penalty is set, the message names only the other key.
    let output = generate(&target)
        .args(["--repetition-penalty", "1.2"])
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("asks for suppress_tokens [5], which") && !said.contains("1.1"),
        "{said}"
    );

    let check = |more: &[&str]| {
        let output = omnidraft()
            .arg("check")
            .arg(&target)
            .args(more)
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let text = check(&[]);
    for part in [
        "generation_config.json has do_sample true, temperature 0.7, top_k 20, top_p 0.8; here --temperature, --top-k, --top-p, or fields of requests, say so",
        note,
        "keys that are not known here: presence",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let report: serde_json::Value = serde_json::from_str(&check(&["--json"])).unwrap();
    let generation = &report["models"][0]["generation"];
    assert_eq!(generation["left_out"][0]["key"], "repetition_penalty");
    assert_eq!(generation["by_flag"][1]["flag"], "--temperature");
    assert_eq!(generation["unknown"][0], "presence");
}

/// Paths that resemble model folders are reported by what they are.
#[test]
fn common_faults_of_folders_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n";
    let second = |name: &str| {
        let into = folder.path().join(name);
        std::fs::create_dir(&into).unwrap();
        copy_of("L", &into)
    };
    for name in ["model.safetensors", "tokenizer.json", "config.json"] {
        let target = second(name);
        std::fs::write(target.join(name), pointer).unwrap();
        let said = [name, "a pointer of git-lfs", "hint: `git lfs pull`"];
        refused(&mut generate(&target), &said);
        refused(omnidraft().arg("check").arg(&target), &said);
        if name == "tokenizer.json" {
            let command = ["align", "--drafter", "models/D", "--target"];
            refused(omnidraft().args(command).arg(&target), &said);
        }
    }
    refused(
        &mut generate("Nobody/Model-0.5B".as_ref()),
        &[
            "Nobody/Model-0.5B: no such model folder",
            "hf:Nobody/Model-0.5B downloads",
        ],
    );
    let adapter = folder.path().join("adapter");
    std::fs::create_dir(&adapter).unwrap();
    std::fs::write(adapter.join("adapter_model.safetensors"), "").unwrap();
    let config = r#"{"peft_type": "LORA", "base_model_name_or_path": "owner/base"}"#;
    std::fs::write(adapter.join("adapter_config.json"), config).unwrap();
    let said = [
        "an adapter of owner/base",
        "hint: merge it into owner/base first",
    ];
    refused(&mut generate(&adapter), &said);
    refused(omnidraft().arg("check").arg(&adapter), &said);

    let target = second("words");
    let path = target.join("config.json");
    let config = std::fs::read_to_string(&path).unwrap();
    let words = config.replace("\"hidden_size\": 192", "\"hidden_size\": \"192\"");
    std::fs::write(&path, words).unwrap();
    refused(
        &mut generate(&target),
        &["key `hidden_size`: must be a whole number, 0 or more, not \"192\""],
    );
    // A byte order mark changes nothing.
    let plain = generate(&repository().join("models/L"))
        .output()
        .unwrap()
        .stdout;
    std::fs::write(&path, format!("\u{feff}{config}")).unwrap();
    for name in [
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "omnidraft.json",
    ] {
        let path = target.join(name);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(path, format!("\u{feff}{text}")).unwrap();
    }
    let output = generate(&target).output().unwrap();
    assert!(
        output.status.success() && output.stdout == plain,
        "{output:?}"
    );
}

/// A snapshot of the hub's cache that was moved without the targets of its links.
#[cfg(unix)]
#[test]
fn links_to_nothing_are_told() {
    let folder = tempfile::tempdir().unwrap();
    for name in [
        "model.safetensors",
        "tokenizer_config.json",
        "chat_template.jinja",
    ] {
        let into = folder.path().join(name);
        std::fs::create_dir(&into).unwrap();
        let target = copy_of("L", &into);
        std::fs::remove_file(target.join(name)).unwrap();
        std::os::unix::fs::symlink("../../blobs/4d7a", target.join(name)).unwrap();
        let said = [
            name,
            "a link to ../../blobs/4d7a, where there is nothing",
            "hint:",
            "cp -rL",
        ];
        refused(&mut generate(&target), &said);
        refused(omnidraft().arg("check").arg(&target), &said);
    }
}

#[test]
fn a_template_is_given_its_variables_on_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let target = copy_of("L", folder.path());
    let template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ cfg.tone }}";
    std::fs::write(target.join("chat_template.jinja"), template).unwrap();
    refused(
        &mut generate(&target),
        &[
            "not given: cfg",
            "hint: variables are given by --chat-template-kwargs",
        ],
    );
    let tokens = |tone: &str| {
        let given = format!(r#"{{"cfg": {{"tone": "{tone}"}}}}"#);
        let output = generate(&target)
            .args(["--json", "--chat-template-kwargs", &given])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        let answers: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        answers[0]["prompt_ids"].as_array().unwrap().len()
    };
    assert!(tokens(" warm warm") > tokens(" warm"));
    // With a drafter whose template does not have the variable.
    generate(&target)
        .args([
            "--drafter",
            "models/D",
            "--chat-template-kwargs",
            r#"{"cfg": {"tone": ""}}"#,
        ])
        .assert()
        .success();
}

/// A context that the prompt does not fit shortens the prompt; keys and values in half precision
/// answer too.
#[test]
fn a_bounded_context_and_a_half_cache_run() {
    let manifest = |set: &str| {
        let folder = tempfile::tempdir().unwrap();
        run_with(EXPERIMENT, &["--set", set], folder.path())
            .assert()
            .success();
        std::fs::read_to_string(folder.path().join(CELL).join("manifest.json")).unwrap()
    };
    manifest("decode.context=60");
    let half = manifest("decode.kv=\"f16\"");
    assert!(half.contains("\"kv\": \"f16\""), "{half}");
    let folder = tempfile::tempdir().unwrap();
    refused(
        &mut run_with(EXPERIMENT, &["--set", "decode.context=10"], folder.path()),
        &["decode.context", "leave no room for a prompt"],
    );
}
