//! The protocol, with a worker that needs no torch: the contract bit for bit, and all that can go
//! wrong with a process.

use crate::support;

use std::time::{Duration, Instant};

use engine::{LanguageModel, ModelError, conformance};
use support::Toy;
use torch_engine::{Dtype, Interpreter, ModelFault, Torch, TorchEngine, TorchError, TorchOptions};

/// The token after which a toy fails, if its name says so.
const FATAL: u32 = 22;

fn failed(engine: &mut TorchEngine) -> ModelError {
    let mut logits = Vec::new();
    engine.forward(&[4, FATAL], &mut logits).unwrap_err()
}

fn torch_error(error: &ModelError) -> &TorchError {
    let ModelError::Other(error) = error else {
        panic!("{error}");
    };
    error.downcast_ref().unwrap()
}

fn hint(error: &TorchError) -> String {
    error.hint().unwrap_or_default()
}

#[test]
fn the_contract_holds_bit_for_bit() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("toy").unwrap();
    // A server hands sequences from thread to thread.
    fn check<E: LanguageModel + Send>(make: impl FnMut() -> E) {
        conformance::check(make).unwrap();
    }
    check(|| torch.sequence(600).unwrap());
    // Device rows with equal best logits, and with one that is NaN.
    conformance::check_on(|| torch.sequence(20).unwrap(), &[7, 0, 2, 0, 9, 3]).unwrap();
    let mut engine = torch.sequence(20).unwrap();
    let device = engine.device_logits(3).unwrap();
    let mut best = Vec::new();
    device.score(&[0, 1, 4]).unwrap();
    device.best(&mut best).unwrap();
    assert_eq!(best[..2], [Some(5), None]);
    let mut logits = Vec::new();
    let error = device.rows(1..4, &mut logits).unwrap_err();
    let error = torch_error(&error);
    assert!(matches!(error, TorchError::Rows { rows: 4, most: 3 }));
    device.score(&[]).unwrap();
    device.best(&mut best).unwrap();
    assert!(best.is_empty());
    assert!(engine.device_logits(1000).is_none());
}

#[test]
fn long_prompts_are_read_in_pieces() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("toy").unwrap();
    let ids: Vec<u32> = (0..1500).map(|i| i % 19 + 2).collect();
    let (mut at_once, mut logits) = (Vec::new(), Vec::new());
    let mut engine = torch.sequence(usize::MAX).unwrap();
    assert_eq!(engine.max_len(), 1600);
    engine.prompt(&ids, &mut at_once).unwrap();
    assert_eq!(engine.len(), 1500);
    engine.truncate(3);
    engine.prefill(&ids[3..1499]).unwrap();
    engine.forward(&ids[1499..], &mut logits).unwrap();
    assert_eq!(logits, at_once);
    engine.truncate(0);
    engine.forward(&ids, &mut logits).unwrap();
    assert!(logits.ends_with(&at_once));
    assert_eq!(logits.len(), 1500 * engine.vocab_size());
    let full = engine.prefill(&ids).unwrap_err();
    assert!(matches!(full, ModelError::ContextFull { needed: 3000, .. }));
    engine.prompt(&[], &mut logits).unwrap();
    assert!(logits.is_empty());
}

#[test]
fn sequences_share_a_worker_and_another_model_takes_its_place() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("toy").unwrap();
    let mut first = torch.sequence(10).unwrap();
    let second = torch.clone().sequence(10).unwrap();
    let mut logits = Vec::new();
    first.forward(&[2], &mut logits).unwrap();
    assert!(second.is_empty());
    let error = torch.clone().load_another(&toy.options("toy")).err();
    assert!(matches!(error, Some(TorchError::Shared)));
    // Its number is free again.
    drop(second);
    let mut third = torch.sequence(10).unwrap();
    third.forward(&[3], &mut logits).unwrap();
    let process = torch.facts().threads;
    drop((first, third));
    let options = TorchOptions {
        dtype: Dtype::Bf16,
        max_len: Some(12),
        ..toy.options("toy")
    };
    let torch = torch.load_another(&options).unwrap();
    assert_eq!(torch.facts().threads, process);
    assert_eq!(torch.facts().dtype, "bfloat16");
    let mut engine = torch.sequence(usize::MAX).unwrap();
    assert_eq!(engine.max_len(), 12);
    engine.forward(&[2], &mut logits).unwrap();
}

#[test]
fn a_worker_that_exits_leaves_its_last_words() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("exits").unwrap();
    let mut engine = torch.sequence(10).unwrap();
    let error = failed(&mut engine);
    let TorchError::Died { status, said, .. } = torch_error(&error) else {
        panic!("{error}");
    };
    assert!(status.contains('7'), "{status}");
    // A library that prints does not disturb the protocol.
    assert_eq!(said[..], ["this is printed", "a library says why"]);
    assert!(error.to_string().contains("\n  | a library says why"));
    let later = failed(&mut engine);
    let TorchError::Ended { message } = torch_error(&later) else {
        panic!("{later}");
    };
    assert!(message.contains("a library says why"));
    assert!(torch.sequence(10).is_err());
}

#[cfg(unix)]
#[test]
fn a_worker_that_is_killed_is_reported() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("killed").unwrap();
    let error = failed(&mut torch.sequence(10).unwrap());
    let error = torch_error(&error);
    let TorchError::Died { status, .. } = error else {
        panic!("{error}");
    };
    assert!(status.contains("signal: 9"), "{status}");
    assert!(hint(error).contains("memory"));
}

#[test]
fn a_worker_that_hangs_is_killed() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("hangs").unwrap();
    let mut engine = torch.sequence(10).unwrap();
    let start = Instant::now();
    let error = failed(&mut engine);
    let TorchError::TimedOut { limit, said, .. } = torch_error(&error) else {
        panic!("{error}");
    };
    assert_eq!(*limit, support::LIMIT);
    assert_eq!(said[..], ["waits for something"]);
    assert!(start.elapsed() < support::LIMIT + Duration::from_secs(8));
}

#[test]
fn errors_of_python_leave_the_worker_alive() {
    let Some(toy) = Toy::new("") else { return };
    for (name, text) in [("memory", "16 GiB"), ("raises", "tokens of another kind")] {
        let torch = toy.load(name).unwrap();
        let mut engine = torch.sequence(10).unwrap();
        let mut logits = Vec::new();
        engine.forward(&[2, 3], &mut logits).unwrap();
        let error = failed(&mut engine);
        let error = torch_error(&error);
        assert!(error.to_string().contains(text), "{error}");
        match (name, error) {
            ("memory", TorchError::Memory { .. }) => assert!(hint(error).contains("bfloat16")),
            ("raises", TorchError::Failed { message, .. }) => {
                assert_eq!(message, "ValueError: tokens of another kind");
            }
            _ => panic!("{error}"),
        }
        // The call changed nothing.
        let mut again = Vec::new();
        engine.truncate(1);
        engine.forward(&[3], &mut again).unwrap();
        assert!(logits.ends_with(&again));
    }
}

#[test]
fn refusals_of_a_model_have_their_data() {
    let Some(toy) = Toy::new("") else { return };
    let refused = |given: &str| toy.load(given).err().unwrap();
    let error = refused(
        r#"{"code": "cache", "message": "why", "architecture": "MambaForCausalLM", "layer": "conv"}"#,
    );
    assert!(matches!(&error, TorchError::Cache { layer, .. } if layer == "conv"));
    assert!(hint(&error).contains("attention"));
    let error = refused(r#"{"code": "package", "message": "No module", "package": "torch"}"#);
    assert!(matches!(&error, TorchError::Package { package, .. } if package == "torch"));
    assert!(hint(&error).contains("pip install torch"), "{error}");
    for (fault, name, said) in [
        (ModelFault::NotFound, "not_found", "owner"),
        (ModelFault::Gated, "gated", "HF_TOKEN"),
        (ModelFault::Network, "network", "HF_ENDPOINT"),
        (ModelFault::Unsupported, "unsupported", "causal"),
        (ModelFault::Broken, "broken", ""),
        (ModelFault::Dependent, "dependent", "llm_int8_threshold"),
    ] {
        let given =
            format!(r#"{{"code": "model", "message": "why", "model": "m", "fault": "{name}"}}"#);
        let error = refused(&given);
        let found = match &error {
            TorchError::Model { fault, .. } => *fault,
            _ => panic!("{error}"),
        };
        assert_eq!(found, fault);
        assert!(hint(&error).contains(said));
    }
    let error = refused(r#"{"code": "device", "message": "no", "device_map": "cuda"}"#);
    assert!(matches!(&error, TorchError::Device { device_map, .. } if device_map == "cuda"));
    assert!(matches!(refused("torch"), TorchError::Memory { .. }));
    let error = refused(r#"{"code": "unheard of", "message": "no"}"#);
    assert!(matches!(error, TorchError::Protocol { .. }), "{error}");
}

#[test]
fn answers_of_a_wrong_size_end_the_worker() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("short").unwrap();
    let mut engine = torch.sequence(10).unwrap();
    let error = failed(&mut engine);
    assert!(matches!(torch_error(&error), TorchError::Protocol { .. }));
    let later = failed(&mut engine);
    assert!(matches!(torch_error(&later), TorchError::Ended { .. }));
}

#[test]
fn other_programs_are_no_workers() {
    for (fault, version) in [("version", true), ("silent", false)] {
        let Some(toy) = Toy::new(fault) else { return };
        let error = toy.load("toy").err().unwrap();
        match error {
            TorchError::Version {
                found: 99,
                expected,
            } if version => assert_ne!(expected, 99),
            TorchError::Protocol { .. } | TorchError::Died { .. } if !version => {}
            _ => panic!("{error}"),
        }
    }
}

#[test]
fn what_cannot_be_started_is_named() {
    let options = TorchOptions::new("model");
    let none = Interpreter {
        python: "no-such-python".into(),
        worker: None,
    };
    let error = Torch::load_with(&none, &options).err().unwrap();
    assert!(matches!(&error, TorchError::Python { python, .. } if python == "no-such-python"));
    assert!(hint(&error).contains("OMNIDRAFT_PYTHON"));
    let none = Interpreter {
        worker: Some("no-such-file.py".into()),
        ..Interpreter::from_env()
    };
    let error = Torch::load_with(&none, &options).err().unwrap();
    assert!(matches!(&error, TorchError::Worker { .. }), "{error}");
    assert!(error.to_string().starts_with("no-such-file.py: "));
}

#[cfg(target_os = "linux")]
#[test]
fn a_worker_that_ends_between_calls_is_noticed() {
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("toy").unwrap();
    let mut engine = torch.sequence(10).unwrap();
    let process = torch.facts().threads;
    let mut kill = std::process::Command::new("kill");
    let killed = kill.args(["-9", &process.to_string()]).status().unwrap();
    assert!(killed.success());
    // Nothing is left of a process that somebody has waited for.
    let stat = format!("/proc/{process}/stat");
    let until = Instant::now() + Duration::from_secs(20);
    while std::path::Path::new(&stat).exists() {
        assert!(Instant::now() < until, "nobody waited for {process}");
        std::thread::sleep(Duration::from_millis(20));
    }
    let error = failed(&mut engine);
    let TorchError::Died { status, .. } = torch_error(&error) else {
        panic!("{error}");
    };
    assert!(status.contains("signal: 9"), "{status}");
}

/// The part of [`the_worker_ends_with_the_program`] that is killed.
#[test]
fn holds_a_worker() {
    if std::env::var_os("TORCH_ENGINE_HOLDS").is_none() {
        return;
    }
    let Some(toy) = Toy::new("") else { return };
    let torch = toy.load("hangs").unwrap();
    println!("process {}", torch.facts().threads);
    failed(&mut torch.sequence(10).unwrap());
}

#[cfg(target_os = "linux")]
#[test]
fn the_worker_ends_with_the_program() {
    use std::io::{BufRead, BufReader};
    use std::process::{Command, Stdio};

    if Toy::new("").is_none() {
        return;
    }
    let mut program = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "protocol::holds_a_worker", "--nocapture"])
        .env("TORCH_ENGINE_HOLDS", "1")
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(program.stdout.take().unwrap()).lines();
    let mut process = lines.map_while(Result::ok).filter_map(|line| {
        let (_, process) = line.split_once("process ")?;
        process.parse::<u32>().ok()
    });
    let process = process.next().unwrap();
    let runs = || {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        // Nobody has to have waited for it yet.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    assert!(runs());
    program.kill().unwrap();
    program.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(20);
    while runs() {
        assert!(Instant::now() < until, "the worker {process} lives on");
        std::thread::sleep(Duration::from_millis(20));
    }
}
