//! A drafter here and a remote target: texts, distributions, learning, and failures of the
//! connection.

use crate::support;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lm::{GgufType, StoredCheckpoint, TensorSource, write_gguf};
use models::{ModelText, copy_text, gguf_text};
use serde_json::{Value, json};
use serve::{Expose, Options};
use support::*;
use vocab_align::TargetId;

const PROMPTS: [&str; 5] = [
    "Add 2 and 3.",
    "Give three tips for staying healthy.",
    "Write a function that reverses a list.",
    "Tom has 4 apples and buys 7 more. How many apples does he have?",
    "Say hello.",
];

fn exposing(sessions: usize) -> Options {
    Options {
        expose: Some(Expose {
            sessions,
            idle: Duration::from_secs(600),
        }),
        ..options()
    }
}

/// Options of a server whose target is the one at an address.
fn beside(address: impl std::fmt::Display) -> Options {
    Options {
        targets: vec![(String::new(), format!("http://{address}").into())],
        ..options()
    }
}

fn body(prompt: &str, extra: Value) -> Value {
    let mut body = json!({
        "messages": [{"role": "user", "content": prompt}], "max_tokens": 40, "temperature": 0,
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn ask(server: &Server, prompt: &str, extra: Value) -> (String, Value) {
    let (status, answer) = server.post("/v1/chat/completions", &body(prompt, extra));
    assert_eq!(status, 200, "{answer}");
    let text = answer["choices"][0]["message"]["content"].as_str();
    (text.unwrap().to_owned(), answer["usage"].clone())
}

/// A proxy that counts bytes and can hold back or cut off the connection.
struct Proxy {
    address: SocketAddr,
    bytes: Arc<AtomicUsize>,
    cut: Arc<AtomicBool>,
    /// True while bytes are held back in both directions.
    held: Arc<AtomicBool>,
}

impl Proxy {
    fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (bytes, cut) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
        let held = Arc::<AtomicBool>::default();
        let (counted, stop, wait) = (Arc::clone(&bytes), Arc::clone(&cut), Arc::clone(&held));
        std::thread::spawn(move || {
            for here in listener.incoming() {
                let (Ok(here), Ok(there)) = (here, TcpStream::connect(to)) else {
                    continue;
                };
                if stop.load(Ordering::SeqCst) {
                    continue;
                }
                let both = [(&here, &there), (&there, &here)];
                for (from, to) in both.map(|(a, b)| (a.try_clone(), b.try_clone())) {
                    let (mut from, mut to) = (from.unwrap(), to.unwrap());
                    let (counted, stop) = (Arc::clone(&counted), Arc::clone(&stop));
                    let wait = Arc::clone(&wait);
                    from.set_read_timeout(Some(Duration::from_millis(50)))
                        .unwrap();
                    std::thread::spawn(move || {
                        let mut buffer = [0; 1 << 16];
                        while !stop.load(Ordering::SeqCst) {
                            match from.read(&mut buffer) {
                                Ok(0) => break,
                                Ok(n) => {
                                    while wait.load(Ordering::SeqCst) {
                                        std::thread::sleep(Duration::from_millis(1));
                                    }
                                    counted.fetch_add(n, Ordering::SeqCst);
                                    if to.write_all(&buffer[..n]).is_err() {
                                        break;
                                    }
                                }
                                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                                Err(_) => break,
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                        let _ = from.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Self {
            address,
            bytes,
            cut,
            held,
        }
    }

    /// Sets if bytes are held back.
    fn hold(&self, held: bool) {
        self.held.store(held, Ordering::SeqCst);
    }
}

#[test]
fn greedy_texts_are_those_of_the_target_alone() {
    let there = Server::start(exposing(4), None);
    let proxy = Proxy::start(there.address);
    let here = Server::start(beside(proxy.address), None);
    let (_, models) = here.get("/v1/models");
    assert!(models.contains("\"id\":\"L\""), "{models}");
    let read = proxy.bytes.load(Ordering::SeqCst);
    let (mut rounds, mut tokens, mut accepted) = (0, 0, 0);
    for prompt in PROMPTS {
        let alone = ask(&there, prompt, json!({"drafter": false})).0;
        let (text, usage) = ask(&here, prompt, json!({}));
        assert_eq!(text, alone);
        assert_eq!(ask(&here, prompt, json!({"drafter": false})).0, alone);
        let details = &usage["completion_tokens_details"];
        rounds += details["rounds"].as_u64().unwrap();
        accepted += details["accepted_tokens"].as_u64().unwrap();
        tokens += usage["completion_tokens"].as_u64().unwrap();
        // A repetition penalty depends on the whole text, which the other server has to know.
        let penalised = json!({"repetition_penalty": 1.3, "max_tokens": 20});
        let alone = ask(
            &there,
            prompt,
            json!({"repetition_penalty": 1.3, "max_tokens": 20, "drafter": false}),
        );
        assert_eq!(ask(&here, prompt, penalised).0, alone.0);
        let on = json!({"ignore_eos": true, "max_tokens": 90});
        let (text, usage) = ask(&here, prompt, on.clone());
        assert_eq!(usage["completion_tokens"], 90);
        assert_eq!(text, ask(&there, prompt, on).0);
    }
    assert!(
        rounds < tokens && accepted > 0,
        "{rounds} {tokens} {accepted}"
    );
    let calls = here.metric("omnidraft_remote_calls_total");
    let bytes = (proxy.bytes.load(Ordering::SeqCst) - read) as f64;
    assert!(
        bytes / calls < 2048.0,
        "{bytes} bytes in {calls} round trips"
    );
}

/// A server that exposes one target.
fn exposed(name: &str, folder: PathBuf) -> Server {
    let options = Options {
        targets: vec![(name.into(), folder)],
        ..exposing(4)
    };
    Server::start(options, None)
}

/// Templates of several names are in a folder of the target's folder.
#[test]
fn a_target_is_asked_with_its_default_template() {
    let folder = tempfile::tempdir().unwrap();
    let own = copy_of("L", folder.path());
    std::fs::remove_file(own.join("chat_template.jinja")).unwrap();
    let templates = own.join("chat_templates");
    std::fs::create_dir(&templates).unwrap();
    let template = "{% for m in messages %}Question: {{ m.content }}\nAnswer:{% endfor %}";
    std::fs::write(templates.join("default.jinja"), template).unwrap();
    let there = exposed("L", own);
    let here = Server::start(beside(there.address), None);
    let (alone, of_alone) = ask(&there, PROMPTS[0], json!({"drafter": false}));
    let (text, usage) = ask(&here, PROMPTS[0], json!({}));
    assert_eq!(text, alone);
    assert_eq!(usage["prompt_tokens"], of_alone["prompt_tokens"]);
}

#[test]
fn a_target_may_have_any_name() {
    let name = "my L, 50% of ü";
    let there = exposed(name, model("L"));
    let alone = ask(&there, PROMPTS[0], json!({"drafter": false})).0;
    let encoded: String = name.bytes().map(|byte| format!("%{byte:02x}")).collect();
    for path in ["my L, 50%25 of ü", &encoded] {
        let address = format!("{}/{path}", there.address);
        let here = Server::start(beside(address), None);
        assert_eq!(ask(&here, PROMPTS[0], json!({"model": name})).0, alone);
    }
}

/// The keys of a GGUF file and `generation_config.json` are the server's to read.
#[test]
fn answers_end_where_the_server_ends_them() {
    let folder = tempfile::tempdir().unwrap();
    copy_text(&model("L"), folder.path()).unwrap();
    let stored = StoredCheckpoint::open(&model("L")).unwrap();
    let keys = gguf_text(&model("L"), stored.config()).unwrap();
    let file = folder.path().join("model.gguf");
    write_gguf(&stored, &file, GgufType::F16, keys).unwrap();
    // Every token with a full stop is an end.
    let vocabulary = ModelText::<TargetId>::load(&model("L")).unwrap().vocabulary;
    let ids = 0..vocabulary.len() as u32;
    let stops = |id: &u32| {
        let bytes = vocabulary.bytes(TargetId(*id));
        bytes.is_some_and(|bytes| bytes.contains(&b'.'))
    };
    let ends = json!({"eos_token_id": ids.filter(stops).collect::<Vec<_>>()});
    let path = folder.path().join("generation_config.json");
    std::fs::write(path, ends.to_string()).unwrap();
    let there = exposed("L", folder.path().into());
    let here = Server::start(beside(there.address), None);
    for prompt in PROMPTS {
        let (alone, of_alone) = ask(&there, prompt, json!({"drafter": false}));
        let (text, usage) = ask(&here, prompt, json!({}));
        assert_eq!(text, alone);
        assert_eq!(usage["completion_tokens"], of_alone["completion_tokens"]);
    }
}

#[test]
fn turns_of_a_chat_send_what_is_new() {
    let there = Server::start(exposing(1), None);
    let here = Server::start(beside(there.address), None);
    let mut messages = vec![json!({"role": "user", "content": "Say hello. ".repeat(20)})];
    for turn in 0..3 {
        let body = json!({"messages": messages, "max_tokens": 16, "temperature": 0});
        let (_, alone) = there.post("/v1/chat/completions", &body);
        let (_, answer) = here.post("/v1/chat/completions", &body);
        let text = &answer["choices"][0]["message"]["content"];
        assert_eq!(
            *text, alone["choices"][0]["message"]["content"],
            "turn {turn}"
        );
        messages.push(json!({"role": "assistant", "content": text}));
        messages.push(json!({"role": "user", "content": "And again."}));
    }
    // Another client takes the only session; the text is sent again, without an effect on the
    // answer.
    let other = Server::start(beside(there.address), None);
    for prompt in PROMPTS {
        let alone = ask(&there, prompt, json!({"drafter": false})).0;
        for server in [&here, &other] {
            assert_eq!(ask(server, prompt, json!({})).0, alone);
        }
    }
    assert_eq!(there.metric("omnidraft_remote_sessions"), 1.0);
}

/// Log-likelihood ratio of two samples over the same outcomes, and its degrees of freedom; rare
/// outcomes are merged into one.
fn g_test(one: &BTreeMap<String, f64>, other: &BTreeMap<String, f64>) -> (f64, f64) {
    let mut pooled: BTreeMap<&str, [f64; 2]> = BTreeMap::new();
    for (i, counts) in [one, other].into_iter().enumerate() {
        for (text, n) in counts {
            let both = one.get(text).unwrap_or(&0.0) + other.get(text).unwrap_or(&0.0);
            let key = if both < 10.0 { "rare" } else { text.as_str() };
            pooled.entry(key).or_default()[i] += n;
        }
    }
    let total: f64 = pooled.values().flatten().sum();
    let columns = [0, 1].map(|i| pooled.values().map(|row| row[i]).sum::<f64>());
    let term = |row: &[f64; 2], i: usize| {
        let expected = (row[0] + row[1]) * columns[i] / total;
        if row[i] > 0.0 {
            2.0 * row[i] * (row[i] / expected).ln()
        } else {
            0.0
        }
    };
    let g = pooled.values().map(|row| term(row, 0) + term(row, 1)).sum();
    (g, pooled.len() as f64 - 1.0)
}

#[test]
fn above_temperature_0_texts_have_the_targets_law() {
    let there = Server::start(exposing(4), None);
    let here = Server::start(beside(there.address), None);
    let sample = |server: &Server, drafter: bool, seed: u64| {
        let extra = json!({
            "temperature": 1.0, "max_tokens": 3, "n": 16, "seed": seed, "drafter": drafter,
        });
        let (status, answer) = server.post("/v1/chat/completions", &body(PROMPTS[0], extra));
        assert_eq!(status, 200, "{answer}");
        let choices = answer["choices"].as_array().unwrap().clone();
        let text = |choice: &Value| choice["message"]["content"].as_str().unwrap().to_owned();
        choices.iter().map(text).collect::<Vec<_>>()
    };
    let (mut alone, mut apart) = (BTreeMap::new(), BTreeMap::new());
    for seed in 0..60 {
        for text in sample(&there, false, seed) {
            *alone.entry(text).or_default() += 1.0;
        }
        for text in sample(&here, true, 1000 + seed) {
            *apart.entry(text).or_default() += 1.0;
        }
    }
    let (g, freedom) = g_test(&alone, &apart);
    // Four standard deviations of the chi-square distribution.
    let limit = freedom + 4.0 * (2.0 * freedom).sqrt();
    assert!(
        freedom > 5.0 && g < limit,
        "G = {g} at {freedom} degrees of freedom"
    );
    // The same seed gives the same texts.
    assert_eq!(sample(&here, true, 7), sample(&here, true, 7));
}

#[test]
fn the_drafter_learns_from_laws_that_came_back() {
    let there = Server::start(exposing(4), None);
    let learning = Options {
        learn: Some(learning()),
        ..beside(there.address)
    };
    let here = Server::start(learning, None);
    for i in 0..6 {
        let prompt = format!("What is {i} and {}?", i + 1);
        let alone = ask(&there, &prompt, json!({"drafter": false})).0;
        assert_eq!(ask(&here, &prompt, json!({})).0, alone);
    }
    let updates = "omnidraft_updates_total{target=\"L\"}";
    until("an update", || here.metric(updates) >= 1.0);
    let prompt = PROMPTS[1];
    let alone = ask(&there, prompt, json!({"drafter": false})).0;
    assert_eq!(ask(&here, prompt, json!({})).0, alone);
}

#[test]
fn who_waits_for_a_reply_holds_up_nobody() {
    let there = Server::patient(exposing(8));
    let proxy = Proxy::start(there.address);
    // Both targets have the same vocabulary, so that they share their n-grams.
    let both = Options {
        targets: vec![
            ("far".into(), format!("http://{}", proxy.address).into()),
            ("near".into(), model("L")),
        ],
        learn: Some(learning()),
        ..options()
    };
    let here = Server::start(both, None);
    let on = |model: &str, prompt: &str| ask(&here, prompt, json!({"model": model}));
    let alone = PROMPTS.map(|prompt| ask(&there, prompt, json!({"drafter": false})).0);
    proxy.hold(true);
    let calls = || here.metric("omnidraft_remote_calls_total");
    let running = || here.metric("omnidraft_running");
    std::thread::scope(|scope| {
        let far: Vec<_> = (0..2)
            .map(|i| scope.spawn(move || on("far", PROMPTS[i]).0))
            .collect();
        until("both are being answered", || running() >= 2.0);
        // Other answers are completed while no reply has come.
        for (prompt, alone) in PROMPTS.iter().zip(&alone) {
            assert_eq!(on("near", prompt).0, *alone);
        }
        assert_eq!(calls(), 0.0);
        assert!(far.iter().all(|far| !far.is_finished()));
        proxy.hold(false);
        for (far, alone) in far.into_iter().zip(&alone) {
            assert_eq!(far.join().unwrap(), *alone);
        }
    });
    // A client that hangs up while its round is on the way leaves no session in use.
    for _ in 0..4 {
        proxy.hold(true);
        let asked = body(PROMPTS[3], json!({"model": "far"})).to_string();
        let mut stream = here.connect();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\ncontent-length: {}\r\n{JSON}\r\n",
            here.address,
            asked.len()
        );
        stream
            .write_all(&[head.as_bytes(), asked.as_bytes()].concat())
            .unwrap();
        until("it is being answered", || running() >= 1.0);
        drop(stream);
        until("it is given up", || running() == 0.0);
        proxy.hold(false);
        assert_eq!(on("far", PROMPTS[4]).0, alone[4]);
    }
    let four = PROMPTS.map(|prompt| on("far", prompt).0);
    assert_eq!(four, alone);
}

/// Rounds that find no session are sent again, and no answer ends by that.
#[test]
fn more_answers_than_sessions_take_turns() {
    let there = Server::patient(exposing(1));
    let here = Server::patient(beside(there.address));
    let alone = PROMPTS.map(|prompt| ask(&there, prompt, json!({"drafter": false})).0);
    let text = |prompt: &str| ask(&here, prompt, json!({})).0;
    std::thread::scope(|scope| {
        let asked = PROMPTS.map(|prompt| scope.spawn(move || text(prompt)));
        for (asked, alone) in asked.into_iter().zip(&alone) {
            assert_eq!(asked.join().unwrap(), *alone);
        }
    });
    assert_eq!(there.metric("omnidraft_remote_sessions"), 1.0);
}

#[test]
fn a_server_that_vanishes_is_an_error_with_a_hint() {
    let there = Server::start(exposing(4), None);
    let proxy = Proxy::start(there.address);
    let here = Server::start(beside(proxy.address), None);
    let long = json!({"max_tokens": 256, "stream": true, "temperature": 1, "seed": 3});
    std::thread::scope(|scope| {
        let asked = scope.spawn(|| here.stream("/v1/chat/completions", &body(PROMPTS[1], long)));
        until("three rounds are over", || {
            here.metric("omnidraft_remote_calls_total") >= 3.0
        });
        proxy.cut.store(true, Ordering::SeqCst);
        let said = asked.join().unwrap();
        let error: Value = serde_json::from_str(said.last().unwrap()).unwrap();
        assert_eq!(error["error"]["code"], "target_unreachable", "{said:?}");
        let message = error["error"]["message"].as_str().unwrap();
        assert!(message.contains("hint:") && said.len() > 1, "{message}");
    });
    for stream in [false, true] {
        let asked = body(PROMPTS[0], json!({"stream": stream}));
        let (status, answer) = here.post("/v1/chat/completions", &asked);
        assert_eq!(status, 502, "{answer}");
    }
    // The target can be reached again.
    proxy.cut.store(false, Ordering::SeqCst);
    let alone = ask(&there, PROMPTS[0], json!({"drafter": false})).0;
    assert_eq!(ask(&here, PROMPTS[0], json!({})).0, alone);
    let (status, answer) = here.post(
        "/v1/chat/completions",
        &body(PROMPTS[0], json!({"logprobs": true})),
    );
    assert_eq!(
        (status, answer["error"]["param"].as_str()),
        (400, Some("logprobs"))
    );
}

#[test]
fn only_who_may_ask_is_answered() {
    let closed = Server::start(options(), None);
    for path in [
        "/omnidraft/targets",
        "/omnidraft/targets/L/tokenizer.json",
        "/omnidraft/rounds",
    ] {
        assert_eq!(closed.get(path).0, 404, "{path}");
    }
    let failed = refusal(beside(closed.address));
    assert!(failed.contains("--expose-logits"), "{failed}");
    let there = Server::start(exposing(2), Some("secret"));
    assert_eq!(there.get("/omnidraft/targets").0, 401);
    let failed = refusal(beside(there.address));
    assert!(failed.contains("--target-key"), "{failed}");
    let key = "authorization: Bearer secret\r\n";
    for file in ["model.safetensors", "..%2FD%2Fconfig.json", "README.md"] {
        let path = format!("/omnidraft/targets/L/{file}");
        assert_eq!(there.send("GET", &path, key, "").0, 404, "{file}");
    }
    let binary = format!("{key}content-type: application/octet-stream\r\n");
    for bytes in ["", "\u{1}", "\u{1}\u{1}L\u{7f}", &"\u{1}".repeat(4000)] {
        let (status, said) = there.send("POST", "/omnidraft/rounds", &binary, bytes);
        assert!((400..405).contains(&status), "{status} {said}");
    }
    assert_eq!(there.send("POST", "/omnidraft/rounds", key, "").0, 400);
    assert_eq!(there.send("GET", "/health", key, "").0, 200);
}
