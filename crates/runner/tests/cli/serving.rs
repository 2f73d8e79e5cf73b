//! `serve` and `chat` as programs: the texts of `generate`, the state after a kill, bad arguments.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::{Duration, Instant};

use predicates::str::contains;
use serde_json::{Value, json};

use super::support::{omnidraft, refused, repository};

/// A server that is killed when the test ends.
struct Served {
    child: Child,
    /// Its stderr, after the line with the address.
    said: BufReader<ChildStderr>,
    address: String,
}

impl Served {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_omnidraft"))
            .env("XDG_CACHE_HOME", env!("CARGO_TARGET_TMPDIR"))
            .current_dir(repository())
            .env_remove("OMNIDRAFT_API_KEY")
            .args([
                "serve",
                "--target",
                "models/L",
                "--drafter",
                "models/D",
                "--port",
                "0",
            ])
            .args(arguments)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        let address = loop {
            line.clear();
            assert!(said.read_line(&mut line).unwrap() > 0, "it did not start");
            if let Some((_, address)) = line.trim().split_once("http://") {
                break address.to_owned();
            }
        };
        Self {
            child,
            said,
            address,
        }
    }

    /// Interrupts the server. Returns true if it ended well, and what it said.
    #[cfg(unix)]
    fn stop(mut self) -> (bool, String) {
        let id = self.child.id().to_string();
        let sent = Command::new("kill").args(["-INT", &id]).status();
        assert!(sent.unwrap().success());
        let mut said = String::new();
        self.said.read_to_string(&mut said).unwrap();
        (self.child.wait().unwrap().success(), said)
    }

    fn send(&self, head: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request = format!(
            "{head} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 "), "{answer}");
        body.to_owned()
    }

    fn ask(&self, prompt: &str, options: Value) -> String {
        let mut body = options;
        body["messages"] = json!([{"role": "user", "content": prompt}]);
        body["max_tokens"] = json!(32);
        let answer = self.send("POST /v1/chat/completions", &body.to_string());
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let content = &answer["choices"][0]["message"]["content"];
        content.as_str().unwrap().to_owned()
    }

    fn updates(&self) -> u64 {
        let stats: Value = serde_json::from_str(&self.send("GET /stats", "")).unwrap();
        stats["targets"]["L"]["updates"].as_u64().unwrap_or(0)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn generated(prompt: &str, more: &[&str]) -> String {
    let mut command = omnidraft();
    command.args([
        "generate",
        "--target",
        "models/L",
        "--max-tokens",
        "32",
        "--prompt",
        prompt,
    ]);
    let out = command
        .args(more)
        .assert()
        .success()
        .get_output()
        .stdout
        .clone();
    let text = String::from_utf8(out).unwrap();
    text.strip_suffix('\n').unwrap().to_owned()
}

#[test]
fn a_target_elsewhere_answers_as_one_that_is_here() {
    let there = Served::start(&["--expose-logits", "--no-learn"]);
    let address = format!("http://{}", there.address);
    let prompt = "Give three tips for staying healthy.";
    let far = |more: &[&str]| {
        let mut command = omnidraft();
        command.args(["generate", "--target", &address, "--max-tokens", "32"]);
        command.args(["--prompt", prompt]).args(more);
        command.assert()
    };
    let said = far(&["--drafter", "models/D"]).success();
    let text = String::from_utf8(said.get_output().stdout.clone()).unwrap();
    assert_eq!(text.strip_suffix('\n').unwrap(), generated(prompt, &[]));
    let alone = far(&[]).code(2);
    alone.stderr(contains("hint: without one, ask the server there itself"));
    let mode = far(&["--drafter", "models/D", "--verify", "tli"]).code(2);
    mode.stderr(contains("verifies by `exact`"));
    let mut chat = omnidraft();
    chat.args([
        "chat",
        "--no-learn",
        "--max-tokens",
        "32",
        "--target",
        &address,
    ]);
    chat.args(["--drafter", "models/D"])
        .write_stdin(format!("{prompt}\n"));
    let said = chat.assert().success();
    let text = String::from_utf8(said.get_output().stdout.clone()).unwrap();
    assert_eq!(text.trim_end(), generated(prompt, &[]).trim_end());
    // The server is gone.
    drop(there);
    far(&["--drafter", "models/D"])
        .code(2)
        .stderr(contains("hint:"));
}

#[test]
fn a_target_elsewhere_has_neither_worker_nor_device_here() {
    let far = |more: &[&str], said: &[&str]| {
        let mut command = omnidraft();
        command.args(["generate", "--target", "http://127.0.0.1:9"]);
        command.args(["--drafter", "models/D", "--prompt", "Hi"]);
        refused(command.args(more), said);
    };
    far(
        &["--torch-device", "cpu"],
        &["--torch-device goes with", "hint: torch:DIR"],
    );
    far(
        &["--device", "gpu", "--drafter-device", "cpu"],
        &["--device gpu", "hint: leave it out"],
    );
    // Alone, it is the drafter's.
    #[cfg(not(feature = "gpu"))]
    for option in ["--device", "--drafter-device"] {
        far(&[option, "gpu"], &["without its engine", "hint:"]);
    }
}

#[test]
fn served_texts_are_those_of_generate() {
    let served = Served::start(&["--no-learn"]);
    for prompt in ["Add 2 and 3.", "Give three tips for staying healthy."] {
        let greedy = served.ask(prompt, json!({"temperature": 0}));
        assert_eq!(greedy, generated(prompt, &[]));
        let drawn = served.ask(prompt, json!({"temperature": 0.8, "seed": 11}));
        let options = [
            "--drafter",
            "models/D",
            "--temperature",
            "0.8",
            "--seed",
            "11",
        ];
        assert_eq!(drawn, generated(prompt, &options));
    }
    assert!(served.send("GET /", "").contains("<!doctype html>"));
}

/// The size and the first bytes of every file of the current generation.
fn generation(state: &Path) -> Option<(String, usize)> {
    let current = std::fs::read_to_string(state.join("current")).ok()?;
    let files = std::fs::read_dir(state.join(&current)).ok()?;
    Some((current, files.count()))
}

/// Number of updates in the current generation.
fn saved_updates(state: &Path) -> u64 {
    let read = || {
        let current = std::fs::read_to_string(state.join("current")).ok()?;
        let meta = std::fs::read(state.join(current).join("state.json")).ok()?;
        let meta: Value = serde_json::from_slice(&meta).ok()?;
        meta["known"]["answers"]["L"]["updates"].as_u64()
    };
    read().unwrap_or(0)
}

#[test]
fn a_killed_server_leaves_a_whole_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let path = state.to_str().unwrap();
    let arguments = [
        "--state",
        path,
        "--save-every",
        "0.005",
        "--learn-every",
        "2",
    ];
    let mut learnt = 0;
    for turn in 0..2 {
        let mut served = Served::start(&arguments);
        assert!(served.updates() >= learnt, "turn {turn}");
        let clock = Instant::now();
        let before = generation(&state);
        let mut i = 0;
        // Until something has been saved in this turn, and a little further.
        while generation(&state) == before || i < 6 || saved_updates(&state) == 0 {
            served.ask(
                &format!("What is {i} and {turn}?"),
                json!({"temperature": 0}),
            );
            i += 1;
            assert!(clock.elapsed() < Duration::from_secs(120));
        }
        served.child.kill().unwrap();
        served.child.wait().unwrap();
        let (current, files) = generation(&state).expect("a saved state");
        assert!(files >= 2, "{current}: {files} files");
        let meta = std::fs::read_to_string(state.join(current).join("state.json")).unwrap();
        let meta: Value = serde_json::from_str(&meta).unwrap();
        learnt = meta["known"]["answers"]["L"]["updates"].as_u64().unwrap();
        assert!(learnt >= 1, "{meta}");
        // The controller is restored, too.
        assert!(meta["known"]["controller"].is_object(), "{meta}");
    }
    let frozen = Served::start(&["--state", path, "--no-learn"]);
    assert_eq!(frozen.updates(), learnt);
    frozen.ask("What is 1 and 2?", json!({"temperature": 0}));
}

#[test]
fn chat_talks_over_several_turns_and_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let mut command = omnidraft();
    command
        .args(["chat", "--target", "models/L", "--drafter", "models/D", "--max-tokens", "24"])
        .args(["--learn-every", "1", "--state"])
        .arg(&state)
        .write_stdin("Add 2 and 3.\n/drafter off\nAnd 4?\n/stats\n/reset\n/drafter on\nAdd 2 and 3.\n/what\n");
    let output = command.assert().success();
    let out = String::from_utf8(output.get_output().stdout.clone()).unwrap();
    let said = String::from_utf8(output.get_output().stderr.clone()).unwrap();
    let mut greedy = omnidraft();
    greedy.args([
        "generate",
        "--target",
        "models/L",
        "--max-tokens",
        "24",
        "--prompt",
        "Add 2 and 3.",
    ]);
    let first = String::from_utf8(greedy.output().unwrap().stdout).unwrap();
    assert!(out.starts_with(&first) && out.ends_with(&first), "{out}");
    for text in [
        "last answer: ",
        "L: ",
        "the conversation is forgotten",
        "unknown command `/what`",
    ] {
        assert!(said.contains(text), "{said}");
    }
    assert!(generation(&state).is_some());
}

/// Nothing that was learnt before an error is lost with it.
#[test]
fn a_chat_that_fails_keeps_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let long = "word ".repeat(3000);
    let mut command = omnidraft();
    command
        .args(["chat", "--target", "models/L", "--drafter", "models/D"])
        .args(["--max-tokens", "24", "--learn-every", "1", "--state"])
        .arg(&state)
        .write_stdin(format!("Add 2 and 3.\n{long}\n"));
    let failed = command.assert().code(2);
    failed.stderr(contains("hint: /reset forgets the conversation"));
    assert!(generation(&state).is_some());
}

#[cfg(unix)]
#[test]
fn a_server_that_ends_says_what_became_of_its_state() {
    let folder = tempfile::tempdir().unwrap();
    let state = folder.path().join("state");
    let path = state.to_str().unwrap();
    let stopped = |more: &[&str]| {
        let served = Served::start(&[&["--state", path][..], more].concat());
        served.ask("Add 2 and 3.", json!({"temperature": 0}));
        served.stop()
    };
    let (well, said) = stopped(&["--state-mb", "0"]);
    assert!(
        !well && said.contains("error: ") && said.contains("the state could not be saved"),
        "{said}"
    );
    assert!(generation(&state).is_none());
    let (well, said) = stopped(&[]);
    assert!(well && said.contains("the state is saved in"), "{said}");
    let saved = generation(&state);
    assert!(saved.is_some());
    let (well, said) = stopped(&["--no-learn"]);
    assert!(well && said.contains("state is as it was"), "{said}");
    assert_eq!(generation(&state), saved);
}

#[test]
fn bad_arguments_of_serve() {
    let serve = |arguments: &[&str]| {
        let mut command = omnidraft();
        command.env_remove("OMNIDRAFT_API_KEY");
        command.args(["serve", "--target", "models/L", "--drafter", "models/D"]);
        command.args(arguments).assert().code(2)
    };
    serve(&["--host", "0.0.0.0"]).stderr(contains("hint: give an --api-key"));
    serve(&["--target", "L=models/Q"]).stderr(contains("two targets are called `L`"));
    serve(&["--adapter-per-user"]).stderr(contains("hint: add --adapter-rank 8"));
    for option in ["--parallel", "--k", "--max-tokens", "--learn-every"] {
        let message = format!("{option} 0: must be at least 1");
        serve(&[option, "0"]).stderr(contains(message));
    }
    serve(&["--save-every", "0"]).stderr(contains("--save-every 0"));
    serve(&["--memory-mb", "1"]).stderr(contains("hint: lower --parallel"));
    serve(&["--api-key", ""]).stderr(contains("an empty key protects nothing"));
    serve(&["--target", "models/none"]).stderr(contains("no such model folder"));
}
