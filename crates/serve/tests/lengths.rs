//! Adaptive draft lengths, looked-up text and long prompts change the speed and never the text.

use crate::support;

use lm::{EngineSettings, WeightType};
use serde_json::{Value, json};
use serve::{LookupScope, Options};
use support::*;

const PROMPTS: [&str; 4] = [
    "Add 2 and 3.",
    "Repeat after me: tick tock tick tock tick tock.",
    "Write a function that reverses a list.",
    "Give three tips for staying healthy.",
];

fn ask(server: &Server, prompt: &str, extra: Value) -> (String, Value) {
    let mut body = json!({
        "messages": [{"role": "user", "content": prompt}], "max_tokens": 40, "temperature": 0,
    });
    for (key, value) in extra.as_object().unwrap() {
        body[key] = value.clone();
    }
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    let text = answer["choices"][0]["message"]["content"].as_str();
    let details = answer["usage"]["completion_tokens_details"].clone();
    (text.unwrap().to_owned(), details)
}

fn number(details: &Value, key: &str) -> u64 {
    details[key].as_u64().unwrap()
}

/// Alternatives change neither a greedy text nor the number of its tokens; they save rounds.
#[test]
fn alternatives_save_rounds_of_an_answer_made_alone() {
    let rounds = |alternatives: usize| {
        let options = Options {
            alternatives,
            lookup: Some(LookupScope::User),
            ..options()
        };
        let server = Server::start(options, None);
        let mut answers = Vec::new();
        // An answer to a prompt of before is copied beside the drafts.
        for prompt in [PROMPTS, PROMPTS].concat() {
            let (text, details) = ask(&server, prompt, json!({"user": "one"}));
            assert_eq!(text, ask(&server, prompt, json!({"drafter": false})).0);
            answers.push((text, number(&details, "rounds")));
        }
        answers
    };
    let (without, with) = (rounds(0), rounds(8));
    let texts =
        |answers: &[(String, u64)]| answers.iter().map(|own| own.0.clone()).collect::<Vec<_>>();
    assert_eq!(texts(&without), texts(&with));
    let sum = |answers: &[(String, u64)]| answers.iter().map(|own| own.1).sum::<u64>();
    assert!(sum(&with) < sum(&without), "{with:?} and {without:?}");
}

#[test]
fn lengths_follow_acceptance_and_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let adapting = || Options {
        adapt_length: true,
        draft_length: 8,
        learn: Some(learning()),
        state: Some(folder.path().to_owned()),
        ..options()
    };
    let server = Server::start(adapting(), None);
    let (mut drafted, mut rounds) = (0, 0);
    for i in 0..12 {
        let prompt = format!("{} {i}", PROMPTS[i % PROMPTS.len()]);
        let plain = ask(&server, &prompt, json!({"drafter": false})).0;
        let (text, details) = ask(&server, &prompt, json!({}));
        assert_eq!(text, plain);
        drafted += number(&details, "drafted_tokens");
        rounds += number(&details, "rounds");
    }
    // This drafter is seldom accepted, so that drafts of eight tokens would be a waste.
    assert!(drafted > 0 && drafted < 6 * rounds, "{drafted} in {rounds}");
    server.stop().unwrap();
    let saved = online::SavedState::open(folder.path()).unwrap().unwrap();
    assert!(saved.known().chains.contains_key("L"));
    let server = Server::start(adapting(), None);
    ask(&server, PROMPTS[0], json!({}));
    server.stop().unwrap();
}

#[test]
fn heads_learn_take_over_and_are_kept() {
    let folder = tempfile::tempdir().unwrap();
    let adapting = || Options {
        adapt_length: true,
        draft_length: 6,
        learn: Some(learning()),
        state: Some(folder.path().to_owned()),
        ..options()
    };
    let server = Server::start(adapting(), None);
    let (steps, in_use) = (
        "omnidraft_head_steps_total{target=\"L\"}",
        "omnidraft_head_in_use{target=\"L\"}",
    );
    let mut asked = 0;
    while server.metric(in_use) < 1.0 {
        let prompt = format!("What is {asked} and {}?", asked + 1);
        let short = json!({"max_tokens": 16});
        let plain = ask(
            &server,
            &prompt,
            json!({"max_tokens": 16, "drafter": false}),
        )
        .0;
        assert_eq!(ask(&server, &prompt, short).0, plain);
        asked += 1;
        assert!(asked < 400, "{} steps", server.metric(steps));
    }
    // Every second answer is followed by an update of the drafter, the others by a training step of
    // the head.
    let taken = server.metric(steps);
    assert!(
        (32.0..=f64::from(asked)).contains(&taken),
        "{taken} {asked}"
    );
    for prompt in PROMPTS {
        let plain = ask(&server, prompt, json!({"drafter": false})).0;
        assert_eq!(ask(&server, prompt, json!({})).0, plain);
    }
    let taken = server.metric(steps);
    assert!(server.metric("omnidraft_head_calibration_error{target=\"L\"}") > 0.0);
    server.stop().unwrap();
    let server = Server::start(adapting(), None);
    // Before any request.
    until("the head is in use", || server.metric(in_use) == 1.0);
    assert!(server.metric(steps) >= taken);
    for prompt in PROMPTS {
        let plain = ask(&server, prompt, json!({"drafter": false})).0;
        assert_eq!(ask(&server, prompt, json!({})).0, plain);
    }
    server.stop().unwrap();
    // A server that learns nothing drafts with the saved statistics.
    let frozen = Options {
        learn: None,
        ..adapting()
    };
    let server = Server::start(frozen, None);
    ask(&server, PROMPTS[0], json!({}));
    assert_eq!(server.metric(in_use), 1.0);
    server.stop().unwrap();
    let heads = folder.path().join("generation-2/heads");
    for head in std::fs::read_dir(heads).unwrap() {
        std::fs::write(head.unwrap().path().join("head.safetensors"), "junk").unwrap();
    }
    let refused = refusal(adapting());
    assert!(refused.contains("heads"), "{refused}");
}

#[test]
fn looked_up_text_is_proposed_and_changes_nothing() {
    let looking = Options {
        lookup: Some(LookupScope::Own),
        ..options()
    };
    let server = Server::start(looking, None);
    let without = Server::start(options(), None);
    let mut rounds = [0, 0];
    for prompt in PROMPTS {
        let plain = ask(&server, prompt, json!({"drafter": false})).0;
        let (text, details) = ask(&server, prompt, json!({}));
        assert_eq!(text, plain);
        // The answer does not depend on earlier answers.
        assert_eq!(ask(&server, prompt, json!({})).1, details);
        rounds[0] += number(&details, "rounds");
        rounds[1] += number(&ask(&without, prompt, json!({})).1, "rounds");
    }
    assert_ne!(rounds[0], rounds[1], "nothing was looked up");
    let warm = json!({"temperature": 1.0, "seed": 5});
    let twice = [(), ()].map(|()| ask(&server, PROMPTS[1], warm.clone()).0);
    assert_eq!(twice[0], twice[1]);
}

#[test]
fn what_one_user_was_told_is_proposed_to_no_other() {
    let looking = |scope| Options {
        lookup: Some(scope),
        ..options()
    };
    let rounds = |server: &Server, user: &str| {
        let (text, details) = ask(server, PROMPTS[2], json!({"user": user}));
        (text, number(&details, "rounds"))
    };
    let server = Server::start(looking(LookupScope::User), None);
    let (plain, _) = ask(&server, PROMPTS[2], json!({"drafter": false}));
    let first = rounds(&server, "a");
    let second = rounds(&server, "a");
    assert_eq!((&first.0, &second.0), (&plain, &plain));
    assert!(second.1 < first.1, "{} < {} rounds", second.1, first.1);
    assert_eq!(rounds(&server, "b"), first);
    // Who gives no name may be anyone.
    let unnamed = rounds(&server, "");
    assert_eq!(rounds(&server, ""), unnamed);

    let server = Server::start(looking(LookupScope::Shared), None);
    let first = rounds(&server, "a");
    let second = rounds(&server, "b");
    assert_eq!(second.0, plain);
    assert!(second.1 < first.1, "{} < {} rounds", second.1, first.1);
}

#[test]
fn a_long_prompt_is_read_beside_other_answers() {
    let server = Server::start(options(), None);
    let long = "The council met on Monday and agreed on a new bridge. ".repeat(60);
    let prompts = [long.as_str(), PROMPTS[0], PROMPTS[2]];
    let alone = prompts.map(|prompt| ask(&server, prompt, json!({"drafter": false})).0);
    let fresh = Server::start(options(), None);
    std::thread::scope(|scope| {
        let server = &fresh;
        let asked = prompts.map(|p| scope.spawn(move || ask(server, p, json!({})).0));
        for (text, alone) in asked.into_iter().zip(&alone) {
            assert_eq!(text.join().unwrap(), *alone);
        }
    });
    // However the prompt was read, the next turn finds it in the cache.
    let body = json!({"messages": [{"role": "user", "content": long}], "max_tokens": 4});
    let (_, answer) = fresh.post("/v1/chat/completions", &body);
    let usage = &answer["usage"];
    let cached = usage["prompt_tokens_details"]["cached_tokens"]
        .as_u64()
        .unwrap();
    assert!(
        cached + 2 > usage["prompt_tokens"].as_u64().unwrap(),
        "{usage}"
    );
}

/// The drafter spells an answer in more tokens than the target, and with `--context` both have the
/// same number of positions.
#[test]
fn an_answer_that_fills_the_context_teaches_the_drafter() {
    let short = Options {
        engine: EngineSettings {
            context: Some(128),
            ..EngineSettings::new(WeightType::F32, 1)
        },
        learn: Some(serve::LearnOptions {
            every: 1,
            blocks: Some(1),
            ..learning()
        }),
        ..options()
    };
    let server = Server::start(short, None);
    let body = json!({
        "messages": [{"role": "user", "content": PROMPTS[2]}], "ignore_eos": true,
        "temperature": 0,
    });
    let (status, answer) = server.post("/v1/chat/completions", &body);
    assert_eq!(status, 200, "{answer}");
    assert_eq!(answer["choices"][0]["finish_reason"], "length", "{answer}");
    until("it was learnt from", || {
        server.metric("omnidraft_updates_total{target=\"L\"}") >= 1.0
    });
}
