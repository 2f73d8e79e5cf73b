//! Wrong and incomplete requests get an error of the API's format, and the server goes on.

use crate::support;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::*;

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "temperature": 0})
}

fn with(key: &str, value: Value) -> Value {
    let mut body = hello();
    body[key] = value;
    body
}

/// The head of a request with these headers and a body of `length` bytes.
fn head(path: &str, more: &str, length: usize) -> String {
    let first = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\n");
    format!("{first}{more}{JSON}content-length: {length}\r\n\r\n")
}

/// Checks that the server still answers.
fn alive(server: &Server) {
    let (status, answer) = server.post(CHAT, &hello());
    assert_eq!(status, 200, "{answer}");
}

/// Checks the fields of an error object that clients read.
fn assert_error(status: u16, body: &Value, wanted: u16, param: Option<&str>, code: Option<&str>) {
    assert_eq!(status, wanted, "{body}");
    let error = &body["error"];
    assert!(
        error["message"].as_str().is_some_and(|m| !m.is_empty()),
        "{body}"
    );
    assert!(error["type"].is_string(), "{body}");
    assert_eq!(error["param"].as_str(), param, "{body}");
    assert_eq!(error["code"].as_str(), code, "{body}");
}

/// Checks the error of a reply whose body is not parsed yet.
fn assert_refused(reply: (u16, String), wanted: u16, param: Option<&str>, code: Option<&str>) {
    let body = serde_json::from_str(&reply.1).unwrap();
    assert_error(reply.0, &body, wanted, param, code);
}

#[test]
fn impossible_requests_have_their_error() {
    let server = Server::start(options(), None);
    let wrong = [
        ("temperature", json!(-1)),
        ("temperature", json!(3)),
        ("top_p", json!(0)),
        ("n", json!(0)),
        ("n", json!(1000)),
        ("max_tokens", json!(0)),
        ("max_tokens", json!(-2)),
        ("stop", json!("")),
        ("top_logprobs", json!(3)),
        ("tools", json!([{"type": "function"}])),
        ("presence_penalty", json!(0.5)),
        ("messages", json!([])),
        ("messages", json!([{"role": "wizard", "content": "x"}])),
        ("messages", json!("hi")),
        ("max_tokens", json!("four")),
        ("seed", json!(1.5)),
    ];
    let wrong = wrong.map(|(field, own)| (with(field, own), 400, Some(field), None));
    let long = json!([{"role": "user", "content": "word ".repeat(3000)}]);
    let image = json!([{"role": "user", "content": [{"type": "image_url"}]}]);
    let (part, full) = ("messages[0].content", "context_length_exceeded");
    let unknown = Some("model_not_found");
    let others = [
        (with("model", json!("gpt-7")), 404, Some("model"), unknown),
        (with("messages", long), 400, None, Some(full)),
        (with("messages", image), 400, Some(part), None),
    ];
    for (body, wanted, param, code) in wrong.into_iter().chain(others) {
        for stream in [false, true] {
            let mut body = body.clone();
            body["stream"] = json!(stream);
            let (status, answer) = server.post(CHAT, &body);
            assert_error(status, &answer, wanted, param, code);
        }
    }
    for body in ["", "{", "null", "[]", "\u{0}"] {
        assert_refused(server.send("POST", CHAT, JSON, body), 400, None, None);
    }
    let texts = [
        json!({"prompt": []}),
        // The tokenizer of L puts no token in front of a text.
        json!({"prompt": ""}),
        json!({"prompt": [99_999_999]}),
    ];
    for body in texts {
        let (status, answer) = server.post("/v1/completions", &body);
        assert_error(status, &answer, 400, Some("prompt"), None);
    }
    assert_refused(server.get("/v1/chats"), 404, None, None);
    assert_refused(server.get(CHAT), 405, None, None);
    assert_refused(server.get("/v1/models/none"), 404, Some("model"), unknown);
    // Requests that a page of another site could send without a preflight.
    let plain = "content-type: text/plain\r\n";
    let reply = server.send("POST", CHAT, plain, &hello().to_string());
    assert_refused(reply, 415, None, None);
    let answer =
        server.raw(b"GET /metrics HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert_eq!(parsed(&answer).0, 403);
    alive(&server);
}

#[test]
fn every_field_is_named_where_it_is_wrong_and_where_nobody_reads_it() {
    let server = Server::start(options(), None);
    let wrong = [
        ("max_tokens", json!(5.5)),
        ("max_completion_tokens", json!("7")),
        ("top_k", json!(-2)),
        ("seed", json!(9_223_372_036_854_775_808_u64)),
        ("n", json!("2")),
        ("temperature", json!("hot")),
        ("stream", json!("yes")),
        ("stop", json!(5)),
        ("stop", json!({"a": 1})),
        ("stop", json!([1])),
        ("user", json!(7)),
        ("logprobs", json!(3)),
        ("messages", json!([])),
        ("stream_options", json!(true)),
        ("chat_template_kwargs", json!([])),
        ("drafter", json!(0)),
        // Fields that would change the answer and are not supported.
        ("add_generation_prompt", json!(false)),
        ("functions", json!([{"name": "f"}])),
        ("function_call", json!({"name": "f"})),
        ("tool_choice", json!("required")),
        ("stop_token_ids", json!([7])),
        ("min_tokens", json!(3)),
        ("guided_regex", json!("x+")),
        ("guided_json", json!({"type": "object"})),
        ("structured_outputs", json!({"regex": "x"})),
        ("response_format", json!({"type": "json_object"})),
        ("reasoning_effort", json!("low")),
        ("modalities", json!(["audio"])),
        ("logit_bias", json!({"7": 5})),
        ("frequency_penalty", json!(0.1)),
        ("skip_special_tokens", json!(false)),
        ("add_special_tokens", json!(true)),
        ("do_sample", json!(false)),
        ("continue_final_message", json!(true)),
        ("chat_template", json!("{{ messages }}")),
        ("best_of", json!(2)),
        ("bad_words", json!(["x"])),
        ("mirostat", json!(2)),
        ("a field of nobody", json!("x")),
    ];
    for (field, value) in wrong {
        let (status, answer) = server.post(CHAT, &with(field, value));
        assert_error(status, &answer, 400, Some(field), None);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(
            !message.contains("enum ") && !message.contains("struct "),
            "{message}"
        );
    }
    let within = [
        (json!([{"role": 1, "content": "x"}]), "messages[0].role"),
        (json!([{"content": "x"}]), "messages[0].role"),
        (json!([1]), "messages[0]"),
        (
            json!([{"role": "user", "content": {}}]),
            "messages[0].content",
        ),
        (
            json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "prefix": true}]),
            "messages[1].prefix",
        ),
        (
            json!([{"role": "assistant", "content": "y", "partial": true}]),
            "messages[0].partial",
        ),
        (
            json!([{"role": "user", "content": "x", "images": ["aGk="]}]),
            "messages[0].images",
        ),
        (
            json!([{"role": "user", "content": "x", "function_call": {"name": "f"}}]),
            "messages[0].function_call",
        ),
    ];
    for (messages, param) in within {
        let (status, answer) = server.post(CHAT, &with("messages", messages));
        assert_error(status, &answer, 400, Some(param), None);
    }
    for (field, value) in [
        ("prompt", json!(null)),
        ("prompt", json!([1, "a"])),
        ("suffix", json!("x")),
        ("echo", json!(true)),
        ("add_special_tokens", json!(false)),
        ("do_sample", json!(false)),
    ] {
        let mut body = json!({"prompt": "Hello", "max_tokens": 2});
        body[field] = value;
        let (status, answer) = server.post("/v1/completions", &body);
        assert_error(status, &answer, 400, Some(field), None);
    }
    alive(&server);
}

#[test]
fn a_part_without_its_text_is_told_as_such() {
    let server = Server::start(options(), None);
    for (part, said) in [
        (
            json!({"type": "text"}),
            "a part of type `text` needs a text `text`",
        ),
        (
            json!({"type": "text", "text": 5}),
            "a part of type `text` needs a text `text`",
        ),
        (
            json!({"type": "image_url", "text": "x"}),
            "parts of type `image_url` cannot be read",
        ),
    ] {
        let messages = json!([{"role": "user", "content": [part]}]);
        let (status, answer) = server.post(CHAT, &with("messages", messages));
        assert_error(status, &answer, 400, Some("messages[0].content"), None);
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains(said), "{message}");
    }
}

/// A target with another chat template than the shipped one.
fn with_template(template: &str) -> (serve::Options, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let own = copy_of("L", folder.path());
    std::fs::write(own.join("chat_template.jinja"), template).unwrap();
    let mut options = options();
    options.targets = vec![("own".into(), own)];
    (options, folder)
}

#[test]
fn a_server_starts_with_a_template_whose_variables_come_with_requests() {
    let template = "{% for m in messages %}{{ m.content }}{% endfor %} {{ cfg.tone }}";
    let (options, _folder) = with_template(template);
    let server = Server::start(options, None);
    let (status, answer) = server.post(CHAT, &hello());
    assert_error(status, &answer, 400, Some("messages"), None);
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("not given: cfg"), "{message}");
    let tokens = |tone: &str| {
        let body = with("chat_template_kwargs", json!({"cfg": {"tone": tone}}));
        let (status, answer) = server.post(CHAT, &body);
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    assert!(tokens("warm warm warm warm") > tokens("warm"));
}

#[test]
fn what_a_template_reads_of_a_message_is_taken() {
    let template = "{% for m in messages %}{{ m.content }}{{ '!!!' if m.prefix }}{% endfor %}";
    let (options, _folder) = with_template(template);
    let server = Server::start(options, None);
    let asked = |message: Value| {
        let body = with("messages", json!([message]));
        server.post(CHAT, &body)
    };
    let (status, answer) = asked(json!({"role": "assistant", "content": "x", "prefix": true}));
    assert_eq!(status, 200, "{answer}");
    let (status, answer) = asked(json!({"role": "assistant", "content": "x", "partial": true}));
    assert_error(status, &answer, 400, Some("messages[0].partial"), None);
    // Fields that ask for nothing, or only identify the user.
    for (field, value) in [
        ("prefix", json!(false)),
        ("partial", json!(null)),
        ("images", json!([])),
        ("name", json!("Ann")),
        ("weight", json!(1)),
    ] {
        let mut message = json!({"role": "user", "content": "x"});
        message[field] = value;
        let (status, answer) = asked(message);
        assert_eq!(status, 200, "{field}: {answer}");
    }
}

#[test]
fn fields_that_change_nothing_are_taken() {
    let server = Server::start(options(), None);
    for (field, value) in [
        ("max_tokens", json!(4.0)),
        ("metadata", json!({"a": "b"})),
        ("store", json!(true)),
        ("service_tier", json!("auto")),
        ("frequency_penalty", json!(0)),
        ("logit_bias", json!({})),
        ("tools", json!([])),
        ("tool_choice", json!("auto")),
        ("response_format", json!({"type": "text"})),
        ("modalities", json!(["text"])),
        ("stop", json!(null)),
        ("logprobs", json!(false)),
        ("top_logprobs", json!(0)),
        ("n", json!(1)),
        ("best_of", json!(1)),
        ("reasoning_effort", json!(null)),
        ("min_tokens", json!(0)),
        ("stop_token_ids", json!([])),
        ("skip_special_tokens", json!(true)),
        ("add_special_tokens", json!(false)),
        ("do_sample", json!(true)),
        ("top_k", json!(-1)),
        ("parallel_tool_calls", json!(true)),
        ("chat_template_kwargs", json!({"enable_thinking": false})),
        ("enable_thinking", json!(true)),
    ] {
        let (status, answer) = server.post(CHAT, &with(field, value));
        assert_eq!(status, 200, "{field}: {answer}");
    }
}

#[test]
fn an_answer_may_want_more_tokens_than_there_are() {
    let mut options = options();
    options.max_tokens = 3;
    let server = Server::start(options, None);
    for most in [-1, 3, 4, 4096, 32_000] {
        let mut body = with("max_tokens", json!(most));
        body["ignore_eos"] = json!(true);
        let (status, answer) = server.post(CHAT, &body);
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
        assert_eq!(answer["usage"]["completion_tokens"], 3, "{answer}");
    }
}

#[test]
fn large_bodies_are_not_read() {
    let server = Server::start(options(), None);
    // Refused by the declared length.
    let answer = server.raw(head(CHAT, "", 100 << 20).as_bytes());
    assert_eq!(parsed(&answer).0, 413);
    // Refused while it arrives, since no length is declared.
    let mut stream = server.connect();
    let chunked = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    stream.write_all(chunked.as_bytes()).unwrap();
    let block = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..1600 {
        if stream.write_all(&block).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    // A client that goes on writing may lose the answer with the connection.
    assert!(answer.is_empty() || parsed(&answer).0 == 413);
    alive(&server);
}

#[test]
fn slow_and_vanished_clients_hold_nobody_up() {
    let server = Server::start(options(), None);
    let body = hello().to_string();
    let head = head(CHAT, "", body.len());
    // A head that never ends, a body that never ends, an idle connection.
    let mut stalled: Vec<_> = (0..20).map(|_| server.connect()).collect();
    for (i, stream) in stalled.iter_mut().enumerate() {
        let part = match i % 3 {
            0 => &head.as_bytes()[..30],
            1 => head.as_bytes(),
            _ => b"",
        };
        stream.write_all(part).unwrap();
    }
    let mut half = server.connect();
    half.write_all(&[head.as_bytes(), body.as_bytes()].concat())
        .unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    alive(&server);
    let clock = Instant::now();
    for (i, stream) in stalled.iter_mut().enumerate() {
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        if i % 3 == 1 {
            assert_eq!(parsed(&answer).0, 408);
        }
    }
    assert!(
        clock.elapsed() < Duration::from_secs(20),
        "{:?}",
        clock.elapsed()
    );
    alive(&server);
}

#[test]
fn an_answer_that_nobody_waits_for_is_given_up() {
    let mut options = options();
    (options.parallel, options.queue) = (1, 1);
    let server = Server::start(options, None);
    let long = json!({
        "messages": [{"role": "user", "content": "Count."}], "max_tokens": 256,
        "temperature": 2.0, "stream": true, "drafter": false,
    });
    let body = long.to_string();
    let request = head(CHAT, "", body.len()) + &body;
    for _ in 0..8 {
        let mut stream = server.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut some = [0; 200];
        let _ = stream.read(&mut some);
        drop(stream);
    }
    // The slot is free again, and the queue is empty.
    let clock = Instant::now();
    loop {
        let (status, _) = server.post(CHAT, &hello());
        if status == 200 {
            break;
        }
        assert_eq!(status, 429);
        assert!(clock.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(server.metric("omnidraft_cancelled_total") >= 1.0);
}

#[test]
fn a_full_queue_says_so() {
    let mut options = options();
    (options.parallel, options.queue) = (1, 0);
    let server = Server::start(options, None);
    let body = with("n", json!(3));
    let (status, answer) = server.post(CHAT, &body);
    assert_error(status, &answer, 429, None, Some("queue_full"));
    alive(&server);
}

#[test]
fn an_answer_that_fails_before_its_first_piece_has_a_status() {
    let options = serve::Options {
        timeout: Duration::ZERO,
        ..options()
    };
    let server = Server::start(options, None);
    for stream in [false, true] {
        let body = with("stream", json!(stream));
        let (status, answer) = server.post(CHAT, &body);
        assert_error(status, &answer, 504, None, Some("timeout"));
    }
}

#[test]
fn metrics_name_the_program_and_the_machine() {
    let server = Server::start(options(), None);
    let (_, text) = server.get("/metrics");
    let line = r#"omnidraft_build_info{version="1.2.3",commit="0123456789",machine="2 x \"Example\" CPU"} 1"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[test]
fn a_key_is_asked_for() {
    let server = Server::start(options(), Some("secret"));
    for headers in [
        "",
        "authorization: Bearer wrong\r\n",
        "authorization: secret\r\n",
    ] {
        for (method, path) in [
            ("GET", "/v1/models"),
            ("GET", "/metrics"),
            ("POST", "/v1/completions"),
        ] {
            let reply = server.send(method, path, &format!("{JSON}{headers}"), "{}");
            assert_refused(reply, 401, None, Some("invalid_api_key"));
        }
    }
    let headers = format!("{JSON}authorization: Bearer secret\r\n");
    let (status, text) = server.send("POST", CHAT, &headers, &hello().to_string());
    assert_eq!(status, 200, "{text}");
    assert_eq!(server.get("/").0, 200);
    let open = serve::Http {
        address: "0.0.0.0:0".parse().unwrap(),
        ..serve::Http::loopback(0)
    };
    assert!(open.check().is_err());
}

/// A small random generator, for the same requests on every machine.
struct Chaos(u64);

impl Chaos {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % n.max(1)
    }

    /// Changes, doubles or drops some bytes of a request.
    fn mutate(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for _ in 0..=self.below(4) {
            let at = self.below(bytes.len());
            match self.below(5) {
                0 => bytes[at] ^= 1 << self.below(8),
                1 => bytes.truncate(at),
                2 => bytes.insert(at, self.below(256) as u8),
                3 => {
                    let end = (at + self.below(40)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part);
                }
                _ => {
                    let words: [&[u8]; 8] = [
                        b"null",
                        b"-1",
                        b"1e400",
                        b"\"\"",
                        b"[[[[",
                        b"{}",
                        b"\xff\xfe",
                        b"99999999999999999999",
                    ];
                    let word = words[self.below(words.len())];
                    let end = (at + word.len()).min(bytes.len());
                    bytes.splice(at..end, word.iter().copied());
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        bytes
    }
}

#[test]
fn mutated_requests_are_answered_or_refused() {
    let server = Server::start(options(), None);
    let bodies = [
        with("stop", json!(["a", "b"])).to_string(),
        with("stream", json!(true)).to_string(),
        json!({"prompt": "The", "max_tokens": 3, "logprobs": 2, "n": 2, "top_p": 0.5, "seed": 3})
            .to_string(),
        json!({
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"}]},
                {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
                {"role": "user", "content": "b"},
            ],
            "max_tokens": 2, "temperature": 0, "tool_choice": "none", "metadata": {"a": "b"},
            "chat_template_kwargs": {"enable_thinking": false}, "stream_options": {"include_usage": true},
        })
        .to_string(),
    ];
    let mut chaos = Chaos(7);
    let count = std::env::var("OMNIDRAFT_MUTATED_REQUESTS").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(300);
    for i in 0..count {
        let body = bodies[i % bodies.len()].as_bytes();
        let path = [CHAT, CHAT, "/v1/completions"][i % 3];
        let close = "connection: close\r\n";
        if i % 4 == 3 {
            // The request as a whole.
            let head = head(path, close, body.len());
            let request = chaos.mutate(&[head.as_bytes(), body].concat());
            let mut stream = server.connect();
            let _ = stream.write_all(&request);
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            continue;
        }
        let body = chaos.mutate(body);
        let head = head(path, close, body.len());
        let (status, answer) = parsed(&server.raw(&[head.as_bytes(), &body].concat()));
        let known = [200, 400, 404].contains(&status);
        assert!(
            known,
            "{status}: {answer}\n{}",
            String::from_utf8_lossy(&body)
        );
    }
    assert_eq!(server.metric("omnidraft_failed_total"), 0.0);
    alive(&server);
}
