//! The saved state is restored whole, and only for its drafter and target.

use crate::support;

use std::path::Path;

use online::SavedState;
use serde_json::json;
use serve::{Log, LookupScope, Options, RecordedLearner, ServeError, Service};
use support::*;

fn keeping(folder: &Path) -> Options {
    Options {
        learn: Some(learning()),
        state: Some(folder.to_owned()),
        ..options()
    }
}

/// Asks for answers; returns what was drafted in each.
fn stream(server: &Server, model: &str, answers: usize) -> Vec<serde_json::Value> {
    let ask = |i: usize| {
        let prompt = format!("What is {i} and {}?", i + 1);
        let body = json!({
            "model": model, "messages": [{"role": "user", "content": prompt}],
            "max_tokens": 24, "temperature": 0,
        });
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["completion_tokens_details"].clone()
    };
    (0..answers).map(ask).collect()
}

fn updates(server: &Server, target: &str) -> f64 {
    server.metric(&format!("omnidraft_updates_total{{target=\"{target}\"}}"))
}

fn generations(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    names
        .filter(|name| name.starts_with("generation-"))
        .collect()
}

#[test]
fn a_restart_goes_on_and_targets_keep_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(keeping(folder.path()), None);
    stream(&server, "L", 6);
    server.stop().unwrap();
    assert_eq!(generations(folder.path()), ["generation-1"]);
    let current = std::fs::read_to_string(folder.path().join("current")).unwrap();
    assert_eq!(current, "generation-1");

    // Another target is served: what was learnt for L stays in the folder.
    let other = Options {
        targets: vec![("Q".into(), model("Q"))],
        ..keeping(folder.path())
    };
    let server = Server::start(other, None);
    let learnt = updates(&server, "L");
    assert!(learnt >= 1.0, "{learnt}");
    stream(&server, "Q", 4);
    server.stop().unwrap();

    let both = Options {
        targets: vec![("L".into(), model("L")), ("Q".into(), model("Q"))],
        ..keeping(folder.path())
    };
    let server = Server::start(both, None);
    assert_eq!(updates(&server, "L"), learnt);
    assert!(updates(&server, "Q") >= 1.0);
    stream(&server, "L", 2);
    stream(&server, "Q", 2);
    server.stop().unwrap();
    assert_eq!(generations(folder.path()), ["generation-3"]);
    let learnt = folder.path().join("generation-3/learnt");
    assert_eq!(std::fs::read_dir(learnt).unwrap().count(), 2);

    // Without learning the state is read and not written.
    let frozen = Options {
        learn: None,
        ..keeping(folder.path())
    };
    let server = Server::start(frozen, None);
    stream(&server, "L", 2);
    server.stop().unwrap();
    assert_eq!(generations(folder.path()), ["generation-3"]);
}

#[test]
fn a_restart_drafts_with_what_was_learnt() {
    // At a rate of 0 the drafter stays as it is, and only n-grams are learnt.
    let [still, learnt] = [0.0, 2e-3].map(|rate| {
        let folder = tempfile::tempdir().unwrap();
        let learn = Some(serve::LearnOptions {
            rate: Some(rate),
            ..learning()
        });
        let server = Server::start(
            Options {
                learn,
                ..keeping(folder.path())
            },
            None,
        );
        stream(&server, "L", 24);
        server.stop().unwrap();
        folder
    });
    let drafted = |options: Options| {
        let frozen = Options {
            learn: None,
            ..options
        };
        stream(&Server::start(frozen, None), "L", 8)
    };
    let fresh = drafted(options());
    let by_ngrams = drafted(keeping(still.path()));
    let by_weights = drafted(keeping(learnt.path()));
    assert_eq!(drafted(keeping(still.path())), by_ngrams);
    assert_eq!(drafted(keeping(learnt.path())), by_weights);
    assert_ne!(by_ngrams, fresh);
    assert_ne!(by_weights, by_ngrams);
}

/// An update that ends after the last answer, while the server stops, is counted in the state.
#[test]
fn the_last_update_is_saved_with_its_count() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(keeping(folder.path()), None);
    stream(&server, "L", 2);
    server.stop().unwrap();
    let saved = SavedState::open(folder.path()).unwrap().unwrap();
    assert_eq!(saved.known().answers["L"].updates, 1);
}

#[test]
fn users_have_adapters() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = keeping(folder.path());
    options.adapt_length = true;
    options.learn = Some(serve::LearnOptions {
        rank: 4,
        scope: serve::LearnScope::User,
        ..learning()
    });
    let server = Server::start(options.clone(), None);
    for user in ["ann", "bob", "ann", "bob"] {
        let body = json!({
            "messages": [{"role": "user", "content": "Hello"}], "user": user,
            "max_tokens": 16, "temperature": 0,
        });
        assert_eq!(server.post("/v1/chat/completions", &body).0, 200);
    }
    server.stop().unwrap();
    let adapters = folder.path().join("generation-1/learnt");
    let names: Vec<String> = std::fs::read_dir(adapters)
        .unwrap()
        .map(|entry| std::fs::read_to_string(entry.unwrap().path().join("name.txt")).unwrap())
        .collect();
    for name in ["L/ann", "L/bob"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    // Acceptance heads and statistics of draft lengths are saved as well.
    let saved = SavedState::open(folder.path()).unwrap().unwrap();
    for name in ["L/ann", "L/bob"] {
        assert!(saved.heads().unwrap().iter().any(|head| head == name));
        assert!(saved.known().chains.contains_key(name));
    }
    // Adapters of another rank cannot continue from this state.
    options.learn = Some(learning());
    let refused = refusal(options);
    assert!(refused.contains("--adapter-rank 4"), "{refused}");
}

#[test]
fn damaged_and_foreign_states_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(keeping(folder.path()), None);
    let busy = refusal(keeping(folder.path()));
    assert!(busy.contains("another process"), "{busy}");
    stream(&server, "L", 2);
    server.stop().unwrap();

    let foreign = Options {
        drafter: model("D-large"),
        ..keeping(folder.path())
    };
    let refused = refusal(foreign);
    assert!(refused.contains("another drafter"), "{refused}");

    // The generation of an earlier version.
    let meta = |folder: &Path| {
        let current = std::fs::read_to_string(folder.join("current")).unwrap();
        folder.join(current).join("state.json")
    };
    let path = meta(folder.path());
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, r#"{"version": 1, "adapters": ["L"]}"#).unwrap();
    let refused = refusal(keeping(folder.path()));
    assert!(
        refused.contains("another version") && refused.contains("hint:"),
        "{refused}"
    );
    std::fs::write(&path, whole).unwrap();

    // An incomplete generation is ignored.
    let torn = folder.path().join("generation-2");
    std::fs::create_dir_all(&torn).unwrap();
    std::fs::write(torn.join("state.json"), "{").unwrap();
    drop(Service::start(keeping(folder.path())).unwrap());

    std::fs::write(meta(folder.path()), "{").unwrap();
    let refused = refusal(keeping(folder.path()));
    assert!(refused.contains("state.json"), "{refused}");
}

#[test]
fn what_is_replayed_has_a_budget() {
    let replayed = |budget: usize| {
        let folder = tempfile::tempdir().unwrap();
        let small = Options {
            example_bytes: budget,
            ..keeping(folder.path())
        };
        let server = Server::start(small, None);
        stream(&server, "L", 24);
        // The learner works beside the answers, and has no time for those that the budget leaves no
        // room for. Every second one of the others is followed by an update.
        until("all is learnt", || {
            let learnt = server.metric("omnidraft_examples_total");
            let dropped = server.metric("omnidraft_examples_dropped_total");
            learnt + dropped >= 24.0 && updates(&server, "L") >= (learnt / 2.0).floor()
        });
        server.metric("omnidraft_replay_bytes")
    };
    let budget = 600 << 10;
    let (whole, some) = (replayed(64 << 20), replayed(budget));
    assert!(whole > budget as f64, "{whole}");
    assert!(some > 0.0 && some <= budget as f64, "{some}");
}

#[test]
fn a_state_has_a_budget() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options {
        state_bytes: 1000,
        ..keeping(folder.path())
    };
    let server = Server::start(options, None);
    stream(&server, "L", 4);
    // The caller must know that nothing was kept.
    let stopped = server.stop().unwrap_err();
    assert!(matches!(stopped, ServeError::NotSaved(_)), "{stopped}");
    assert!(generations(folder.path()).is_empty());
}

#[test]
fn texts_to_copy_from_are_found_again_by_their_user() {
    let folder = tempfile::tempdir().unwrap();
    let serving = |lookup, learn| Options {
        lookup,
        learn,
        ..keeping(folder.path())
    };
    let rounds = |server: &Server, user: &str| {
        let body = json!({
            "messages": [{"role": "user", "content": "Write a function that reverses a list."}],
            "max_tokens": 40, "temperature": 0, "user": user,
        });
        let (status, answer) = server.post("/v1/chat/completions", &body);
        assert_eq!(status, 200, "{answer}");
        answer["usage"]["completion_tokens_details"]["rounds"]
            .as_u64()
            .unwrap()
    };
    // At a rate of 0 the drafter stays as it is.
    let still = Some(serve::LearnOptions {
        rate: Some(0.0),
        ..learning()
    });
    let user = Some(LookupScope::User);
    let server = Server::start(serving(user, still), None);
    let first = rounds(&server, "a");
    let second = rounds(&server, "a");
    assert!(second < first, "{second} < {first} rounds");
    server.stop().unwrap();
    let texts = |folder: &Path| {
        let generation = folder.join(generations(folder).remove(0));
        let names = std::fs::read_dir(generation).unwrap();
        let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| name.starts_with("texts-"))
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(folder.path()).len(), 1);

    // A server on which all share their texts carries them along and copies nothing from them.
    let server = Server::start(serving(Some(LookupScope::Shared), still), None);
    rounds(&server, "b");
    server.stop().unwrap();
    assert_eq!(texts(folder.path()).len(), 2);
    let server = Server::start(serving(user, None), None);
    assert!(rounds(&server, "a") < rounds(&server, "b"));
    server.stop().unwrap();

    let damaged = folder.path().join(generations(folder.path()).remove(0));
    for name in texts(folder.path()) {
        std::fs::write(damaged.join(name), "junk").unwrap();
    }
    let refused = refusal(serving(user, still));
    assert!(refused.contains("no texts to copy from"), "{refused}");
}

#[test]
fn seconds_decide_and_are_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let controlled = Options {
        controller: true,
        adapt_length: true,
        lookup: Some(LookupScope::User),
        parallel: 1,
        ..keeping(folder.path())
    };
    let body = json!({
        "model": "L", "messages": [{"role": "user", "content": "What is 3 and 4?"}],
        "max_tokens": 24, "temperature": 0,
    });
    let text = |server: &Server| server.post("/v1/chat/completions", &body).1["choices"][0].clone();
    let plain = Server::start(options(), None);
    let expected = text(&plain);
    plain.stop().unwrap();

    let server = Server::start(controlled.clone(), None);
    assert!(server.get("/stats").1.contains("\"targets\":{}"));
    stream(&server, "L", 40);
    assert_eq!(text(&server)["message"], expected["message"]);
    let of =
        |server: &Server, name: &str| server.metric(&format!("omnidraft_{name}{{target=\"L\"}}"));
    let rested = of(&server, "rested_answers_total");
    let stats: serde_json::Value = serde_json::from_str(&server.get("/stats").1).unwrap();
    let seconds = &stats["targets"]["L"]["seconds"];
    assert_eq!(seconds["rested_answers"].as_f64(), Some(rested), "{stats}");
    assert!(
        seconds["saved"].is_f64() && seconds["learns"].is_boolean(),
        "{stats}"
    );
    server.stop().unwrap();
    // Every answer says what copies are worth, also those that they did not make.
    let generation = folder.path().join(generations(folder.path()).remove(0));
    let meta = std::fs::read(generation.join("state.json")).unwrap();
    let meta: serde_json::Value = serde_json::from_slice(&meta).unwrap();
    let copies = &meta["known"]["controller"]["known"]["L"]["ways"]["Copies"];
    assert_eq!(copies["answers"], 41, "{meta}");

    let server = Server::start(controlled, None);
    assert_eq!(of(&server, "rested_answers_total"), rested);
    assert_ne!(of(&server, "saved_seconds"), 0.0);
    stream(&server, "L", 2);
    server.stop().unwrap();
}

#[test]
fn recorded_text_ends_unless_it_was_cut() {
    let folder = tempfile::tempdir().unwrap();
    let learner = RecordedLearner::open(keeping(&folder.path().join("state"))).unwrap();
    let path = folder.path().join("log.jsonl");
    let answer = |reason: Option<&str>| {
        let mut line = json!({"prompt": "Add 2 and 3.", "answer": "The sum is 5."});
        if let Some(reason) = reason {
            line["finish_reason"] = json!(reason);
        }
        std::fs::write(&path, line.to_string()).unwrap();
        let log = Log::read(&path, learner.models()).unwrap();
        log.answers[0].tokens.clone()
    };
    let ended = answer(None);
    assert_eq!(answer(Some("stop")), ended);
    assert_eq!(answer(Some("length")), ended[..ended.len() - 1]);
}

/// A line may have the whole conversation, and the answer once more.
#[test]
fn a_recorded_answer_is_no_part_of_its_prompt() {
    let folder = tempfile::tempdir().unwrap();
    let learner = RecordedLearner::open(keeping(&folder.path().join("state"))).unwrap();
    let path = folder.path().join("log.jsonl");
    let read = |messages: &serde_json::Value| {
        let line = json!({"messages": messages, "answer": "The sum is 5."});
        std::fs::write(&path, line.to_string()).unwrap();
        Log::read(&path, learner.models()).unwrap().answers
    };
    let mut messages = json!([{"role": "user", "content": "Add 2 and 3."}]);
    let asked = read(&messages);
    let said = json!({"role": "assistant", "content": "The sum is 5."});
    messages.as_array_mut().unwrap().push(said);
    assert_eq!(read(&messages), asked);
}
