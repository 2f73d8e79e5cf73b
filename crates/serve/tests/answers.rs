//! Answers of the server equal those of the sessions and models below it.

use crate::support;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};

use lm::{EngineSettings, WeightType};
use models::{ModelFolder, align};
use ngram_cache::{CacheConfig, NgramCache};
use serde_json::{Value, json};
use spec_decode::{
    Acceptance, ConstantLength, NoSink, PlainConfig, Prompt, Sampling, SamplingOptions, Session,
    SessionConfig, StreamName, VerifyMode, decode_plain,
};
use support::*;
use vocab_align::{DraftId, TargetId};

const PROMPTS: [&str; 6] = [
    "Add 2 and 3.",
    "Give three tips for staying healthy.",
    "Write a function that reverses a list.",
    "Tom has 4 apples and buys 7 more. How many apples does he have?",
    "Summarize: the council met on Monday and agreed on a new bridge.",
    "Say hello.",
];

/// The models and settings of `omnidraft generate`, whose answers are the reference.
struct Generate {
    target: ModelFolder<TargetId>,
    drafter: ModelFolder<DraftId>,
    draft_weights: WeightType,
    stop: BTreeSet<TargetId>,
}

impl Generate {
    fn new() -> Self {
        let target: ModelFolder<TargetId> = ModelFolder::load(&model("L")).unwrap();
        Self {
            stop: target.stop_tokens(),
            drafter: ModelFolder::load(&model("D")).unwrap(),
            draft_weights: WeightType::F32,
            target,
        }
    }

    fn settings() -> EngineSettings {
        EngineSettings::new(WeightType::F32, 1)
    }

    fn text(&self, tokens: &[TargetId]) -> String {
        self.target.vocabulary.decode_lossy(tokens)
    }

    fn prompt(&self, prompt: &str) -> (Vec<TargetId>, Vec<DraftId>) {
        let target = self.target.template.render(prompt).unwrap();
        let draft = self.drafter.template.render(prompt).unwrap();
        (
            self.target.encode(&target).unwrap(),
            self.drafter.encode(&draft).unwrap(),
        )
    }

    fn plain(&self, prompt: &str, sampling: Sampling, max_new_tokens: usize, seed: u64) -> String {
        let mut engine = self.target.engine(Self::settings()).unwrap();
        let config = PlainConfig {
            sampling,
            max_new_tokens,
            stop: self.stop.clone(),
        };
        let name = StreamName::new(seed, 0);
        let (ids, _) = self.prompt(prompt);
        let done = decode_plain(&mut engine, &ids, &config, name, &mut NoSink).unwrap();
        self.text(&done.tokens)
    }

    fn drafted(&self, prompt: &str, sampling: Sampling, tokens: usize, seed: u64) -> String {
        let engines = (
            self.drafter
                .engine(EngineSettings::new(self.draft_weights, 1).drafting())
                .unwrap(),
            self.target.engine(Self::settings()).unwrap(),
        );
        let config = SessionConfig {
            sampling,
            acceptance: Acceptance::Block,
            stop: self.stop.clone(),
            ..SessionConfig::new(VerifyMode::Exact, tokens)
        };
        let pair = align(&self.drafter, &self.target);
        let mut session = Session::new(engines.0, engines.1, pair, config).unwrap();
        let mut cache = NgramCache::new(CacheConfig::default());
        let (target, draft) = self.prompt(prompt);
        let prompt = Prompt {
            draft: &draft,
            target: &target,
        };
        let name = StreamName::new(seed, 0);
        let mut policy = ConstantLength(4);
        let done = session.generate(prompt, name, Some(&mut cache), &mut policy, &mut NoSink);
        self.text(&done.unwrap().tokens)
    }
}

fn ask(prompt: &str, extra: Value) -> Value {
    let mut body = json!({
        "model": "L",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 48,
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    body
}

fn content(answer: &Value) -> &str {
    answer["choices"][0]["message"]["content"]
        .as_str()
        .unwrap_or("?")
}

/// The text of a streamed answer.
fn streamed(server: &Server, body: &Value) -> String {
    let mut body = body.clone();
    body["stream"] = json!(true);
    let lines = server.stream("/v1/chat/completions", &body);
    assert_eq!(lines.last().map(String::as_str), Some("[DONE]"));
    let mut text = String::new();
    for line in &lines[..lines.len() - 1] {
        let chunk: Value = serde_json::from_str(line).unwrap();
        assert_eq!(chunk["object"], "chat.completion.chunk");
        let delta = &chunk["choices"][0]["delta"]["content"];
        text.push_str(delta.as_str().unwrap_or_default());
    }
    text
}

#[test]
fn texts_are_those_of_generate() {
    let generate = Generate::new();
    let server = Server::start(options(), None);
    let warm = SamplingOptions {
        temperature: 0.8,
        top_p: 0.9,
        ..SamplingOptions::default()
    };
    let warm = Sampling::with_options(warm).unwrap();
    for (seed, prompt) in (3_u64..).zip(PROMPTS) {
        let greedy = ask(prompt, json!({"temperature": 0}));
        let (status, answer) = server.post("/v1/chat/completions", &greedy);
        assert_eq!(status, 200, "{answer}");
        let expected = generate.plain(prompt, Sampling::GREEDY, 48, 0);
        assert_eq!(content(&answer), expected);
        assert_eq!(streamed(&server, &greedy), expected);

        let drawn = json!({"temperature": 0.8, "top_p": 0.9, "seed": seed});
        let body = ask(prompt, drawn);
        let (_, answer) = server.post("/v1/chat/completions", &body);
        let expected = generate.drafted(prompt, warm, 48, seed);
        assert_eq!(content(&answer), expected);
        assert_eq!(streamed(&server, &body), expected);

        let mut body = body;
        body["drafter"] = json!(false);
        let (_, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(content(&answer), generate.plain(prompt, warm, 48, seed));
        let usage = &answer["usage"]["completion_tokens_details"];
        assert_eq!(usage["drafted_tokens"], 0);
    }
}

#[test]
fn a_drafter_in_fewer_bits_is_another_drafter_and_changes_no_law() {
    let generate = Generate {
        draft_weights: WeightType::Int4,
        ..Generate::new()
    };
    let options = |learn| serve::Options {
        draft_weights: Some(WeightType::Int4),
        learn,
        ..options()
    };
    let server = Server::start(options(None), None);
    let warm = Sampling::new(0.8).unwrap();
    for (seed, prompt) in (3_u64..).zip(PROMPTS) {
        let body = ask(prompt, json!({"temperature": 0.8, "seed": seed}));
        let (_, answer) = server.post("/v1/chat/completions", &body);
        let expected = generate.drafted(prompt, warm, 48, seed);
        assert_eq!(content(&answer), expected);
    }
    // Learnt weights come back packed in the format that the drafter decodes with.
    let server = Server::start(options(Some(learning())), None);
    for prompt in PROMPTS.iter().chain(&PROMPTS) {
        let body = ask(prompt, json!({"temperature": 0}));
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        let expected = generate.plain(prompt, Sampling::GREEDY, 48, 0);
        assert_eq!(content(&answer), expected);
    }
}

#[test]
fn greedy_answers_are_plain_while_the_drafter_learns() {
    let generate = Generate::new();
    let options = serve::Options {
        learn: Some(learning()),
        ..options()
    };
    let server = Server::start(options, None);
    for round in 0..3 {
        std::thread::scope(|scope| {
            for prompt in PROMPTS {
                let (server, generate) = (&server, &generate);
                scope.spawn(move || {
                    let body = ask(prompt, json!({"temperature": 0, "max_tokens": 32 + round}));
                    let (status, answer) = server.post("/v1/chat/completions", &body);
                    assert_eq!(status, 200, "{answer}");
                    let expected = generate.plain(prompt, Sampling::GREEDY, 32 + round, 0);
                    assert_eq!(content(&answer), expected);
                });
            }
        });
    }
    // The learner works beside the answers.
    until("an update", || {
        server.metric("omnidraft_updates_total{target=\"L\"}") >= 1.0
    });
    assert_eq!(server.metric("omnidraft_update_failures_total"), 0.0);
}

/// Targets of one vocabulary share a cache, which no commit may change between the draft of one of
/// them and its verification: a session refuses that.
#[test]
fn targets_of_one_vocabulary_are_judged_by_the_cache_they_drafted_with() {
    let options = serve::Options {
        targets: ["one", "two"].map(|name| (name.into(), model("L"))).into(),
        learn: Some(learning()),
        ..options()
    };
    let server = Server::start(options, None);
    std::thread::scope(|scope| {
        for (i, prompt) in PROMPTS.iter().enumerate() {
            let server = &server;
            scope.spawn(move || {
                let target = ["one", "two"][i % 2];
                let more = json!({"model": target, "temperature": 0.8, "seed": i});
                let (status, answer) = server.post("/v1/chat/completions", &ask(prompt, more));
                assert_eq!(status, 200, "{answer}");
            });
        }
    });
}

#[test]
fn a_chat_goes_on_where_its_caches_stopped() {
    let server = Server::start(options(), None);
    let first = ask(PROMPTS[0], json!({"temperature": 0}));
    let (_, answer) = server.post("/v1/chat/completions", &first);
    let said = content(&answer).to_owned();
    let next = json!({
        "messages": [
            {"role": "user", "content": PROMPTS[0]},
            {"role": "assistant", "content": said},
            {"role": "user", "content": [{"type": "text", "text": "And 4 and 5?"}]},
        ],
        "temperature": 0, "max_tokens": 24,
    });
    let (_, alone) = server.post("/v1/chat/completions", &next);
    let cached = alone["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64();
    assert!(cached.unwrap_or(0) > 8, "{alone}");
    // A server that has not seen the first turn gives the same answer.
    let fresh = Server::start(options(), None);
    let (_, other) = fresh.post("/v1/chat/completions", &next);
    assert_eq!(content(&alone), content(&other));
    assert_eq!(other["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
}

/// The time of a prompt and `cached_tokens` would say what others asked.
#[test]
fn users_who_share_no_texts_share_no_caches() {
    for (lookup, apart) in [(None, false), (Some(serve::LookupScope::User), true)] {
        let options = serve::Options {
            lookup,
            parallel: 2,
            ..options()
        };
        let server = Server::start(options, None);
        let cached = |user: &str| {
            let more = json!({"user": user, "temperature": 0, "max_tokens": 8});
            let (_, answer) = server.post("/v1/chat/completions", &ask(PROMPTS[0], more));
            let cached = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
            cached.as_u64().unwrap() > 0
        };
        assert!(!cached("one"));
        assert!(cached("one"));
        assert_eq!(cached("two"), !apart);
        assert!(cached("two") && cached("one"));
        // There is no third slot.
        assert_eq!(cached("three"), !apart);
        assert!(cached("three"));
    }
}

#[test]
fn several_answers_stops_and_probabilities() {
    let server = Server::start(options(), None);
    let several = ask(PROMPTS[1], json!({"temperature": 1.2, "n": 3, "seed": 5}));
    let (_, answer) = server.post("/v1/chat/completions", &several);
    let choices = answer["choices"].as_array().unwrap();
    let texts: BTreeSet<&str> = choices
        .iter()
        .map(|choice| choice["message"]["content"].as_str().unwrap())
        .collect();
    assert_eq!((choices.len(), texts.len()), (3, 3));

    let greedy = ask(PROMPTS[1], json!({"temperature": 0}));
    let (_, whole) = server.post("/v1/chat/completions", &greedy);
    let whole = content(&whole).to_owned();
    let words: Vec<&str> = whole.split_whitespace().collect();
    let stop = words[words.len() / 2];
    let mut stopped = greedy.clone();
    stopped["stop"] = json!([stop, "never said"]);
    let (_, answer) = server.post("/v1/chat/completions", &stopped);
    let expected = whole.split(stop).next().unwrap();
    assert_eq!(content(&answer), expected);
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(streamed(&server, &stopped), expected);

    let mut probable = greedy;
    probable["logprobs"] = json!(true);
    probable["top_logprobs"] = json!(2);
    probable["include_origins"] = json!(true);
    let (_, answer) = server.post("/v1/chat/completions", &probable);
    let choice = &answer["choices"][0];
    let entries = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(
        entries.len() as u64,
        answer["usage"]["completion_tokens"].as_u64().unwrap()
    );
    for entry in entries {
        // Greedy decoding: the token is the most probable one.
        assert_eq!(entry["token"], entry["top_logprobs"][0]["token"]);
        assert!(entry["logprob"].as_f64().unwrap() <= 1e-6);
    }
    let tokens = choice["tokens"].as_array().unwrap();
    assert_eq!(tokens.len(), entries.len());
    let from = |name: &str| tokens.iter().filter(|token| token["from"] == name).count() as u64;
    let accepted = answer["usage"]["completion_tokens_details"]["accepted_tokens"].as_u64();
    assert_eq!(from("drafted") + from("ngram"), accepted.unwrap());

    let text = json!({"prompt": ["The", "The"], "max_tokens": 5, "temperature": 0, "logprobs": 1});
    let (status, answer) = server.post("/v1/completions", &text);
    assert_eq!(status, 200, "{answer}");
    let choices = answer["choices"].as_array().unwrap();
    assert_eq!(choices.len(), 2);
    assert_eq!(choices[0]["text"], choices[1]["text"]);
    assert_eq!(
        choices[0]["logprobs"]["tokens"].as_array().unwrap().len(),
        5
    );
}

/// The drafter's reading decides how well it drafts, never what is answered.
#[test]
fn a_text_that_only_the_drafter_cannot_read_is_answered() {
    let folder = tempfile::tempdir().unwrap();
    let drafter = copy_of("D", folder.path());
    let path = drafter.join("tokenizer.json");
    let mut tokenizer: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    // The embedding has no row for this token, and the other word becomes no token.
    let extra = json!({
        "id": 4096, "content": "<|extra|>", "special": true, "single_word": false,
        "lstrip": false, "rstrip": false, "normalized": false,
    });
    let added = tokenizer["added_tokens"].as_array_mut();
    added.unwrap().push(extra);
    let nothing = json!({"type": "Replace", "pattern": {"String": "nothing"}, "content": ""});
    tokenizer["normalizer"] = nothing;
    std::fs::write(&path, tokenizer.to_string()).unwrap();
    let options = serve::Options {
        drafter,
        ..options()
    };
    let server = Server::start(options, None);
    for text in ["a<|extra|>", "nothing"] {
        let plain = json!({"prompt": text, "max_tokens": 12, "temperature": 0});
        let chat = ask(text, json!({"max_tokens": 12, "temperature": 0}));
        for (path, body) in [("/v1/completions", plain), ("/v1/chat/completions", chat)] {
            let answers = [true, false].map(|drafter| {
                let mut body = body.clone();
                body["drafter"] = json!(drafter);
                let (status, answer) = server.post(path, &body);
                assert_eq!(status, 200, "{text}: {answer}");
                answer["choices"].clone()
            });
            assert_eq!(answers[0], answers[1], "{text}");
        }
    }
}

/// The texts of the listed tokens add up to the answer, and each consists of whole characters.
#[test]
fn listed_tokens_spell_the_text() {
    let server = Server::start(options(), None);
    let mut split = 0;
    for seed in 0..4 {
        // At this temperature there are characters of several bytes, complete and broken ones.
        let extra = json!({"temperature": 2.0, "seed": seed, "max_tokens": 200, "include_origins": true, "ignore_eos": true});
        let (status, answer) = server.post("/v1/chat/completions", &ask("Add 2 and 3.", extra));
        assert_eq!(status, 200, "{answer}");
        let tokens = answer["choices"][0]["tokens"].as_array().unwrap();
        let texts: Vec<&str> = tokens.iter().map(|t| t["text"].as_str().unwrap()).collect();
        // Bytes that are incomplete at the very end belong to no token.
        let rest = content(&answer).strip_prefix(&texts.concat());
        assert!(matches!(rest, Some("" | "\u{fffd}")), "{rest:?}");
        split += texts.iter().filter(|text| text.is_empty()).count();
    }
    assert!(split > 0, "no character was spelt by several tokens");
}

/// A client that has the end of an answer finds the answer in the counters.
#[test]
fn what_is_counted_is_there_when_an_answer_ends() {
    let server = Server::start(options(), None);
    let body = ask("Add 2 and 3.", json!({"max_tokens": 8, "stream": true}));
    for answers in 1..=8 {
        // The counters are read as soon as the last event is there, before the connection closes.
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{JSON}\r\n",
            server.address,
            body.to_string().len()
        );
        let mut stream = server.connect();
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.to_string().as_bytes()).unwrap();
        let mut lines = BufReader::new(stream).lines();
        assert!(lines.any(|line| line.unwrap() == "data: [DONE]"));
        let stats: Value = serde_json::from_str(&server.get("/stats").1).unwrap();
        assert_eq!(stats["targets"]["L"]["answers"], answers);
        assert_eq!(stats["running"], 0);
    }
}

/// Tokens after a stop string are not part of an answer: neither of its text nor of its counts.
#[test]
fn what_is_counted_is_what_was_given_out() {
    let server = Server::start(options(), None);
    let whole = server.post(
        "/v1/chat/completions",
        &ask("Add 2 and 3.", json!({"max_tokens": 24, "temperature": 0})),
    );
    let text = content(&whole.1).to_owned();
    // A stop string in the middle of the answer.
    let middle: String = text
        .chars()
        .skip(text.chars().count() / 2)
        .take(3)
        .collect();
    for stop in [json!(null), json!([middle]), json!(["e"]), json!(["."])] {
        let mut counts = Vec::new();
        for drafter in [true, false] {
            let extra = json!({"max_tokens": 24, "temperature": 0, "stop": stop, "drafter": drafter, "logprobs": true});
            let (status, answer) = server.post("/v1/chat/completions", &ask("Add 2 and 3.", extra));
            assert_eq!(status, 200, "{answer}");
            let usage = &answer["usage"];
            let listed = answer["choices"][0]["logprobs"]["content"]
                .as_array()
                .map_or(0, Vec::len);
            assert_eq!(usage["completion_tokens"], listed, "{stop} {answer}");
            let details = &usage["completion_tokens_details"];
            assert!(details["accepted_tokens"].as_u64() <= usage["completion_tokens"].as_u64());
            counts.push(listed);
        }
        assert_eq!(counts[0], counts[1], "{stop}");
    }
    // Equal prompts of a list are prompts of their own.
    let read = |prompts: Value| {
        let body = json!({"prompt": prompts, "max_tokens": 2, "temperature": 0});
        let (status, answer) = server.post("/v1/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["prompt_tokens"].as_u64().unwrap()
    };
    let all = read(json!(["Add 2.", "Add 2.", "Say hello to Tom."]));
    let each = ["Add 2.", "Say hello to Tom."].map(|prompt| read(json!(prompt)));
    assert_eq!(all, 2 * each[0] + each[1]);
    for _ in 0..2 {
        let extra = json!({"max_tokens": 3, "n": 3, "temperature": 0});
        let (_, answer) = server.post("/v1/chat/completions", &ask("Add 2 and 3.", extra));
        let usage = &answer["usage"];
        let cached = usage["prompt_tokens_details"]["cached_tokens"].as_u64();
        assert!(cached <= usage["prompt_tokens"].as_u64(), "{usage}");
        let details = &usage["completion_tokens_details"];
        assert!(
            details["accepted_tokens"].as_u64() <= usage["completion_tokens"].as_u64(),
            "{usage}"
        );
    }
}

#[test]
fn pages_of_allowed_origins_may_read() {
    let server = Server::start(options(), None);
    let said = |origin: &str, method: &str, more: &str| {
        let request = format!(
            "{method} /v1/models HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\n{more}connection: close\r\n\r\n"
        );
        String::from_utf8(server.raw(request.as_bytes()))
            .unwrap()
            .to_lowercase()
    };
    let answer = said("http://localhost:3000", "GET", "");
    assert!(answer.starts_with("http/1.1 200"), "{answer}");
    assert!(
        answer.contains("access-control-allow-origin: http://localhost:3000"),
        "{answer}"
    );
    let asked =
        "access-control-request-method: POST\r\naccess-control-request-headers: content-type\r\n";
    let answer = said("http://localhost:3000", "OPTIONS", asked);
    assert!(answer.starts_with("http/1.1 204"), "{answer}");
    assert!(
        answer.contains("access-control-allow-headers: content-type"),
        "{answer}"
    );
    for (method, more) in [("GET", ""), ("OPTIONS", asked)] {
        let answer = said("http://elsewhere.example", method, more);
        assert!(!answer.contains("access-control"), "{answer}");
    }
    let (_, models) = server.get("/v1/models");
    let models: Value = serde_json::from_str(&models).unwrap();
    let created = models["data"][0]["created"].as_u64().unwrap();
    assert!(created > 1_700_000_000, "{models}");
}
