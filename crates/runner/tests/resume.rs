//! A run that is killed and goes on records what an uninterrupted one records.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use runner::results::{Manifest, RunReader, RunStatus};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn config(folder: &Path, streams: &str) -> PathBuf {
    let text = format!(
        r#"
name = "resume"
seeds = [1, 2, 3]
streams = "{streams}"
arms = [
    "autoregressive",
    "L_DM+L_N-gram",
    {{ name = "joint", verify = "paper", cache = true, learn = "hybrid", policy = "head", head = "joint", k = 6 }},
    {{ name = "throughput", verify = "tli", learn = "direct", policy = "throughput", head = "interleaved" }},
    {{ name = "borrower", verify = "tli", learnt_by = "throughput", policy = "throughput", score = "confidence" }},
]
models = {{ drafter = "{models}/D", targets = {{ target = "{models}/L-small" }} }}
segments = [
    {{ task = "mini-math", train = 12, test = 4 }},
    {{ task = "mini-chat", train = 12, test = 4 }},
]
[decode]
temperature = 0.7
max_new_tokens = 24
[learn]
every = 5
"#,
        models = repository().join("models").display()
    );
    let path = folder.join("resume.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn command(config: &Path, out: &Path, extra: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_omnidraft"));
    command
        .arg("run")
        .arg(config)
        .arg("--out")
        .arg(out)
        .args(extra)
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn run(config: &Path, out: &Path, extra: &[&str]) -> Output {
    command(config, out, extra).output().unwrap()
}

/// Waits until `ready` holds for the manifest of the run, then kills it without warning.
fn kill_when(mut child: Child, out: &Path, ready: impl Fn(&Manifest) -> bool) {
    let start = Instant::now();
    while !Manifest::read(out).is_ok_and(|manifest| ready(&manifest)) {
        assert!(start.elapsed() < Duration::from_secs(120), "too slow");
        assert!(
            child.try_wait().unwrap().is_none(),
            "ended before it was killed"
        );
        std::thread::sleep(Duration::from_millis(2));
    }
    // Somewhere inside the stretch that has just begun.
    std::thread::sleep(Duration::from_millis(60));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Everything recorded but the times, as JSON: there NaN equals NaN.
fn content(out: &Path) -> (String, usize) {
    let reader = RunReader::open(out).unwrap();
    assert_eq!(reader.manifest().status, RunStatus::Complete);
    assert_eq!(reader.manifest().progress, None);
    let mut prompts = reader.prompts().unwrap().rows;
    for row in &mut prompts {
        (row.seconds, row.prefill_s, row.learn_s, row.baseline_s) = (0.0, 0.0, 0.0, 0.0);
    }
    let mut updates = reader.updates().unwrap().rows;
    for row in &mut updates {
        row.seconds = 0.0;
    }
    let mut heads = reader.heads().unwrap().rows;
    assert!(heads.iter().any(|row| row.arm == "joint"));
    assert!(heads.iter().any(|row| row.arm == "throughput"));
    for row in &mut heads {
        row.seconds = 0.0;
    }
    let rows = serde_json::to_string(&(prompts, updates, heads)).unwrap();
    (rows, reader.rounds().unwrap().rows.len())
}

fn killed_and_resumed(streams: &str, stretches: usize) {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), streams);
    let (whole, parts) = (folder.path().join("whole"), folder.path().join("parts"));
    assert!(run(&config, &whole, &[]).status.success());

    let child = command(&config, &parts, &[]).spawn().unwrap();
    kill_when(child, &parts, |manifest| manifest.progress.is_none());
    let done = |manifest: &Manifest| manifest.progress.map_or(0, |p| p.done);
    for stretch in 1..stretches {
        let child = command(&config, &parts, &["--resume"]).spawn().unwrap();
        kill_when(child, &parts, |manifest| done(manifest) >= stretch);
    }
    let last = run(&config, &parts, &["--resume"]);
    assert!(
        last.status.success(),
        "{}",
        String::from_utf8_lossy(&last.stderr)
    );
    assert!(content(&parts) == content(&whole), "{}", parts.display());

    let again = run(&config, &parts, &["--resume"]);
    let message = String::from_utf8_lossy(&again.stderr).into_owned();
    assert!(
        !again.status.success() && message.contains("is complete"),
        "{message}"
    );
}

#[test]
fn independent_segments_go_on_after_every_kill() {
    killed_and_resumed("independent", 4);
}

#[test]
fn drifting_streams_go_on_after_every_kill() {
    killed_and_resumed("continual", 3);
}

#[test]
fn nothing_else_goes_on_in_the_folder() {
    let folder = tempfile::tempdir().unwrap();
    let config = config(folder.path(), "independent");
    let out = folder.path().join("out");
    let mut child = command(&config, &out, &[]).spawn().unwrap();
    while !out.join("updates.jsonl").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    let refused = |extra: &[&str], expected: &str| {
        let output = run(&config, &out, extra);
        let message = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{extra:?}");
        assert!(
            message.contains(expected) && message.contains("hint:"),
            "{message}"
        );
    };
    refused(&["--resume"], "another process");
    child.kill().unwrap();
    child.wait().unwrap();
    refused(&[], "already exists");
    refused(
        &["--resume", "--set", "decode.k=3"],
        "another configuration",
    );
}
