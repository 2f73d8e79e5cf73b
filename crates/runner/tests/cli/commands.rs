//! The other commands: their help, their options, and the keys of their output.

use super::support::{CELL, EXPERIMENT, generate, omnidraft, refused, repository, run_with};
use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;

#[test]
fn help_shows_examples_for_every_command() {
    for command in [
        "new",
        "run",
        "job",
        "status",
        "report",
        "publish",
        "rows",
        "align",
        "generate",
        "pad",
        "costs",
        "doctor",
        "head",
        "lawtest",
        "pretrain",
        "completions",
        "man",
    ] {
        let mut help = omnidraft();
        help.args(command.split(' ')).arg("--help");
        help.assert()
            .success()
            .stdout(contains("Examples:").and(contains(format!("omnidraft {command}"))));
    }
}

#[test]
fn help_is_short_and_dev_lists_the_rest() {
    let help = omnidraft().arg("--help").output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let dev = omnidraft().arg("dev").output().unwrap();
    let dev = String::from_utf8(dev.stdout).unwrap();
    let lists = |command: &str| {
        let mut names = dev
            .lines()
            .filter_map(|line| line.split_whitespace().next());
        names.any(|name| name == command)
    };
    for command in ["run", "serve", "chat", "export", "pretrain"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
        assert!(!lists(command), "{dev}");
    }
    for command in ["job", "quote", "bench", "lawtest"] {
        assert!(!help.contains(&format!("\n  {command} ")), "{help}");
        assert!(lists(command), "{dev}");
    }
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
        .args(["--prompts", "4", "-k", "4", "--processes", "2"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let said = String::from_utf8(output).unwrap();
    assert!(said.contains(" ms, of "), "{said}");
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
fn the_doctor_measures_every_way_and_says_when_it_pays() {
    let mut command = omnidraft();
    let output = command
        .args(["doctor", "--target", "models/L", "--drafter", "models/D"])
        .args(["--prompts", "2", "--max-tokens", "12", "--json"])
        .args(["--weights", "int8", "--draft-weights", "int4"])
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let found: serde_json::Value = serde_json::from_slice(&output).unwrap();
    let drafted = found["drafted"].as_array().unwrap();
    let lengths: Vec<u64> = drafted
        .iter()
        .map(|row| row["k"].as_u64().unwrap())
        .collect();
    assert_eq!(lengths, [1, 2, 4, 8]);
    assert_eq!(
        (&found["weights"], &found["draft_weights"]),
        (&"int8".into(), &"int4".into())
    );
    for row in drafted.iter().chain([&found["lookup"]]) {
        let number = |key: &str| row[key].as_f64().unwrap();
        assert!(
            number("low") <= number("speed") && number("speed") <= number("high"),
            "{row}"
        );
        assert!(
            number("tokens_a_round") >= 1.0 && number("round_cost") > 0.0,
            "{row}"
        );
    }
    let expected = found["expected"].as_array().unwrap();
    let speeds: Vec<f64> = expected
        .iter()
        .map(|row| row[2].as_f64().unwrap())
        .collect();
    assert!(speeds.is_sorted(), "{found:#}");
    let gains = found["learning"]["gains"].as_array().unwrap();
    let speeds: Vec<f64> = gains
        .iter()
        .map(|gain| gain["speed"].as_f64().unwrap())
        .collect();
    assert!(speeds.len() == 3 && speeds.is_sorted(), "{found:#}");
    assert!(found["learning"]["seconds"].as_f64().unwrap() > 0.0);
    if let Some(needed) = found["break_even"].as_f64() {
        assert!((0.0..=1.0).contains(&needed));
    }
    assert!(!found["advice"].as_array().unwrap().is_empty());
    refused(
        omnidraft()
            .args(["doctor", "--target", "models/L", "--drafter", "models/D"])
            .args(["--data", "nowhere.jsonl"]),
        &["nowhere.jsonl"],
    );
}

#[test]
fn pad_measures_until_the_ratio_is_met() {
    let output = omnidraft()
        .args(["pad", "--drafter", "models/D", "--target", "models/L"])
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
        .find(|row| row["pad_width"] == found["pad_width"]);
    assert_eq!(chosen.unwrap()["ratio"], found["ratio"]);
    assert!(rows.len() > 1 && rows[0]["pad_width"] == 0);
    omnidraft()
        .args([
            "pad",
            "--drafter",
            "models/D",
            "--target",
            "models/L",
            "--ratio",
            "0",
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
    // None of the three answers ends before it has all its tokens.
    let long = report(&[
        "--greedy",
        "--prompts",
        "3",
        "--tokens",
        "150",
        "--ignore-eos",
    ]);
    assert_eq!(long["tokens"], 450);
    for mode in long["modes"].as_array().unwrap() {
        assert_eq!(mode["equal"], 3, "{long:#}");
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
    let asked = |command: &mut Command| -> serde_json::Value {
        let output = command
            .args(["--json", "--n", "2"])
            .assert()
            .success()
            .get_output()
            .stdout
            .clone();
        serde_json::from_slice(&output).unwrap()
    };
    let answers = |extra: &[&str]| asked(generate(&repository().join("models/L")).args(extra));
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
    let narrow = answers(&["--drafter", "models/D", "--draft-weights", "int4"]);
    assert_eq!(plain[1]["target_ids"], narrow[1]["target_ids"]);
    let wrong = ["--draft-weights", "int3", "--drafter", "models/D"];
    generate(&repository().join("models/L"))
        .args(wrong)
        .assert()
        .code(2)
        .stderr(contains("--draft-weights").and(contains("int4")));
    refused(
        generate(&repository().join("models/L")).args(["--draft-weights", "int4"]),
        &["--draft-weights goes with --drafter"],
    );
    // The second answer repeats the first, and is copied.
    let long = |extra: &[&str]| {
        let mut command = omnidraft();
        command.args(["generate", "--target", "models/L", "--max-tokens", "40"]);
        command.args(["--prompt", "Write a function that reverses a list."]);
        asked(command.args(extra))
    };
    let plain = long(&[]);
    let copying = long(&["--drafter", "models/D", "--lookup", "--acceptance", "token"]);
    for answer in 0..2 {
        assert_eq!(plain[answer]["target_ids"], copying[answer]["target_ids"]);
    }
    let rounds = |answer: usize| copying[answer]["rounds"].as_u64().unwrap();
    assert!(rounds(1) < rounds(0), "{copying}");
    refused(
        generate(&repository().join("models/L")).args(["--lookup"]),
        &["--lookup goes with --drafter"],
    );
}

#[test]
fn generate_says_under_the_text_what_it_took() {
    let model = repository().join("models/L");
    let said = |extra: &[&str]| {
        let output = generate(&model).args(extra).assert().success();
        String::from_utf8_lossy(&output.get_output().stderr).into_owned()
    };
    let plain = said(&[]);
    assert!(plain.contains("2 tokens, nothing drafted"), "{plain}");
    let drafted = said(&["--drafter", "models/D"]);
    for part in ["2 tokens in ", "drafted tokens accepted", "tokens/s"] {
        assert!(drafted.contains(part), "{part}: {drafted}");
    }
    assert_eq!(drafted.lines().count(), 1, "{drafted}");
    let mut command = omnidraft();
    command.args(["generate", "--target", "models/L", "--prompt", "Hello"]);
    refused(
        command.args(["--drafter", "models/D", "-k", "1000"]),
        &["1000 is not in 1..=64"],
    );
    let mut command = omnidraft();
    command
        .args([
            "generate", "--target", "models/L", "--prompt", "Hi", "--json",
        ])
        .args(["--max-tokens", "100000", "--threads", "2"])
        .assert()
        .stderr(contains("note: the context of the target is"));
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
    let pair = ["--drafter", "models/D", "--target", "models/L", "--json"];
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
}

/// A full disk loses the output, and the program reports it; a reader that closes the pipe is not
/// an error.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_a_failure_and_a_closed_pipe_is_none() {
    use std::process::Stdio;
    let folder = tempfile::tempdir().unwrap();
    run_with(EXPERIMENT, &[], folder.path()).assert().success();
    let run = folder.path().join("out").display().to_string();
    let target = repository().join("models/L").display().to_string();
    let pair = ["--target", &target, "--drafter", "models/D"];
    let ask = [
        "generate",
        "--prompt",
        "Hello",
        "--max-tokens",
        "4",
        "--target",
        &target,
    ];
    let commands: Vec<Vec<&str>> = vec![
        ask.to_vec(),
        [&ask[..], &["--json"]].concat(),
        [&ask[..], &["--drafter", "models/D", "--n", "2"]].concat(),
        vec!["check", &target],
        vec!["config"],
        [&["align"], &pair[..]].concat(),
        [
            &["doctor", "--prompts", "1", "--max-tokens", "2"],
            &pair[..],
        ]
        .concat(),
        vec!["status", &run],
        vec!["report", &run],
    ];
    for command in commands {
        let program = || {
            let mut program = std::process::Command::new(env!("CARGO_BIN_EXE_omnidraft"));
            program.current_dir(repository()).args(&command);
            program
        };
        let full = std::fs::OpenOptions::new()
            .write(true)
            .open("/dev/full")
            .unwrap();
        let output = program().stdout(full).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command:?}: {said}");
        assert!(
            said.contains("error: standard output: No space left"),
            "{command:?}: {said}"
        );
        // The read end is closed before anything is written.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = program().stdout(Stdio::from(writer)).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && !said.contains("error:"),
            "{command:?}: {said}"
        );
    }
}

#[test]
fn completions_know_the_commands() {
    for (shell, words) in [
        ("bash", "complete -F _omnidraft"),
        ("zsh", "#compdef omnidraft"),
        ("fish", "complete -c omnidraft"),
    ] {
        let mut command = omnidraft();
        let done = command.args(["completions", shell]).assert().success();
        done.stdout(
            contains(words)
                .and(contains("lawtest"))
                .and(contains("max-tokens")),
        );
    }
    refused_shell("tcsh-like");
}

fn refused_shell(shell: &str) {
    let mut command = omnidraft();
    let done = command.args(["completions", shell]).assert();
    done.code(2).stderr(contains("possible values"));
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("man1");
    let mut command = omnidraft();
    command.args(["man", "--out"]).arg(&out);
    command.assert().success().stdout("");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let whole = read("omnidraft.1");
    assert!(
        whole.starts_with(".ie") || whole.starts_with(".TH"),
        "{whole}"
    );
    assert!(whole.contains("omnidraft\\-run(1)"), "{whole}");
    let run = read("omnidraft-run.1");
    assert!(
        run.contains("omnidraft run") && run.contains("\\-\\-dry\\-run"),
        "{run}"
    );
    assert!(read("omnidraft-trace-record.1").contains("omnidraft trace record"));
}
