//! Learning with adapters, on a thread of its own, and across restarts.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use lm::{Checkpoint, LmConfig, random_checkpoint};
use runner::config::{RunConfig, StreamMode};
use runner::learn::{LearnConfig, LoraSettings, Scope};
use runner::online::{self, Chunk, Learner, Learnt, Lesson, RunOptions, TeacherRow};
use runner::report::write_report;
use runner::results::{Phase, RunReader};
use runner::streams::DataSource;

fn drafter() -> Checkpoint {
    let json = r#"{"model_type": "llama", "hidden_size": 32, "intermediate_size": 64,
        "num_hidden_layers": 2, "num_attention_heads": 2, "vocab_size": 50}"#;
    let config = LmConfig::from_json(json, Path::new("config.json")).unwrap();
    random_checkpoint(&config, 3)
}

fn lesson(seed: u32) -> Lesson {
    let ids: Vec<u32> = (0..16).map(|i| (i * 7 + seed * 5) % 50).collect();
    let shared: Arc<[u32]> = (0..50).filter(|id| id % 4 != 3).collect();
    let law = |emitted: u32| {
        let log_prob = move |id: &u32| if *id == emitted { -0.2 } else { -5.5 };
        Some(TeacherRow::new(shared.iter().map(log_prob)))
    };
    let chunks = (4..16)
        .map(|i| Chunk {
            law: law(ids[i]),
            log_prob: -0.3,
            draft: i..i + 1,
            targets: 1,
        })
        .collect();
    Lesson {
        ids,
        shared,
        chunks,
    }
}

fn settings(rank: usize, asynchronous: bool) -> LearnConfig {
    LearnConfig {
        every: 2,
        lr: 5e-3,
        asynchronous,
        lora: LoraSettings {
            rank,
            alpha: 8.0,
            ..LoraSettings::default()
        },
        ..LearnConfig::default()
    }
}

/// Pushes lessons and flushes: all updates and the last weights.
fn study(learner: &mut Learner, lessons: impl Iterator<Item = u32>) -> (Vec<f64>, Checkpoint) {
    let mut done: Vec<Learnt> = Vec::new();
    for seed in lessons {
        done.extend(learner.push(lesson(seed)).unwrap());
    }
    done.extend(learner.flush().unwrap());
    let weights = done.last().unwrap().1.clone();
    (
        done.iter().map(|(update, _)| update.loss).collect(),
        weights,
    )
}

#[test]
fn every_adapter_goes_on_where_it_was_left() {
    for rank in [4, 32] {
        let fresh = || Learner::new(&drafter(), settings(rank, false), 1).unwrap();
        let mut both = fresh();
        assert!(both.turn_to("L").unwrap());
        let (_, after_l) = study(&mut both, 0..10);
        assert!(both.turn_to("Q").unwrap());
        assert_eq!(both.weights().unwrap(), drafter());
        let (_, after_q) = study(&mut both, 20..26);
        assert_ne!(after_q, after_l);
        assert!(both.turn_to("L").unwrap());
        assert!(!both.turn_to("L").unwrap());
        assert_eq!(both.weights().unwrap(), after_l);
        let (later, _) = study(&mut both, 10..16);

        let mut alone = fresh();
        alone.turn_to("L").unwrap();
        let (losses, _) = study(&mut alone, 0..16);
        assert_eq!(losses[5..], later);
        assert!(later[2] < losses[0]);
    }
}

#[test]
fn without_adapters_there_is_one_drafter_for_all() {
    let mut learner = Learner::new(&drafter(), settings(0, false), 1).unwrap();
    let (_, weights) = study(&mut learner, 0..4);
    assert!(!learner.turn_to("Q").unwrap());
    assert_eq!(learner.weights().unwrap(), weights);
    learner.push(lesson(9)).unwrap();
    assert!(learner.turn_to("L").is_err());
}

#[test]
fn weights_given_back_are_written_over() {
    for rank in [0, 4] {
        let run = |give_back: bool| {
            let mut learner = Learner::new(&drafter(), settings(rank, false), 1).unwrap();
            let mut all = Vec::new();
            for seed in 0..8 {
                if let Some((_, weights)) = learner.push(lesson(seed)).unwrap() {
                    all.push(weights.clone());
                    if give_back {
                        learner.give_back(weights);
                    }
                }
            }
            all
        };
        assert_eq!(run(true), run(false));
    }
}

/// Lessons that do not depend on the weights teach the same on any thread.
#[test]
fn a_thread_of_its_own_learns_the_same() {
    for rank in [0, 4] {
        let run = |asynchronous| {
            let mut learner = Learner::new(&drafter(), settings(rank, asynchronous), 1).unwrap();
            let studied = study(&mut learner, 0..21);
            assert_eq!(learner.weights().unwrap(), studied.1);
            studied
        };
        let (losses, weights) = run(true);
        assert_eq!(losses.len(), 11);
        assert_eq!((losses, weights), run(false));
    }
}

#[test]
fn errors_of_another_thread_surface() {
    let wild = LearnConfig {
        lr: 1e30,
        ..settings(0, true)
    };
    let mut learner = Learner::new(&drafter(), wild, 1).unwrap();
    let mut pushed = (0..20).map(|seed| learner.push(lesson(seed)));
    let error = pushed.find_map(Result::err).expect("weights that overflow");
    let message = format!("{error:#}");
    assert!(
        message.contains("loss") || message.contains("norm"),
        "{message}"
    );
}

#[test]
fn what_was_learnt_survives_a_restart() {
    for rank in [0, 4] {
        let folder = tempfile::tempdir().unwrap();
        let fresh = || Learner::new(&drafter(), settings(rank, false), 1).unwrap();
        let mut whole = fresh();
        whole.turn_to("L/task: 1").unwrap();
        study(&mut whole, 0..6);
        whole.turn_to("Q").unwrap();
        study(&mut whole, 6..10);
        whole.save(folder.path(), "models/D").unwrap();

        let mut restarted = fresh();
        restarted.load(folder.path()).unwrap();
        for name in ["L/task: 1", "Q"] {
            whole.turn_to(name).unwrap();
            restarted.turn_to(name).unwrap();
            assert_eq!(restarted.weights().unwrap(), whole.weights().unwrap());
            let more = |learner: &mut Learner| study(learner, 30..34);
            assert_eq!(more(&mut restarted), more(&mut whole));
        }
        let mut other = Learner::new(
            &drafter(),
            settings(if rank == 0 { 4 } else { 0 }, false),
            1,
        );
        assert!(other.as_mut().unwrap().load(folder.path()).is_err());
    }
}

#[test]
fn keys_name_what_has_an_adapter() {
    let named = |per, rank| {
        let settings = LoraSettings {
            per,
            rank,
            ..LoraSettings::default()
        };
        settings.key("L", "gsm8k")
    };
    assert_eq!(named(Scope::Target, 8), "L");
    assert_eq!(named(Scope::Task, 8), "L/gsm8k");
    assert_eq!(named(Scope::Run, 8), "");
    assert_eq!(named(Scope::Task, 0), "");
}

fn models() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models")
}

fn config(folder: &Path, segments: &str, rest: &str) -> anyhow::Result<RunConfig> {
    let text = format!(
        r#"
name = "lora"
streams = "continual"
arms = [
    "autoregressive",
    {{ name = "own", verify = "paper", cache = true, learn = {{ lora = {{ rank = 8 }} }} }},
    {{ name = "all", verify = "paper", cache = true, learn = "hybrid" }},
]
models = {{ drafter = "{models}/D", targets = {{ L = "{models}/L-small", Q = "{models}/Q" }} }}
segments = [{segments}]
[decode]
temperature = 0.0
max_new_tokens = 24
[learn]
every = 4
lr = 5e-3
{rest}
"#,
        models = models().display()
    );
    let path = folder.join("lora.toml");
    std::fs::write(&path, text).unwrap();
    RunConfig::load(&path, &[])
}

fn run(config: &RunConfig, out: &Path) {
    let data = DataSource::resolve(None).unwrap();
    online::run(config, &data, out, RunOptions::default()).unwrap();
}

/// Hashes of the held-out answers' rounds: accepted tokens by prompt.
fn held_out(out: &Path, arm: &str, segment: u32) -> Vec<(u32, u32, u32)> {
    let prompts = RunReader::open(out).unwrap().prompts().unwrap().rows;
    let of = |row: &&runner::results::PromptRow| {
        row.arm == arm && row.segment == segment && row.phase == Phase::Test
    };
    let numbers = prompts.iter().filter(of);
    numbers
        .map(|r| (r.rounds, r.proposed, r.accepted))
        .collect()
}

#[test]
fn a_target_finds_its_adapter_and_its_cache_again() {
    let folder = tempfile::tempdir().unwrap();
    let segments = r#"
    { task = "mini-math", target = "L", train = 24, test = 6 },
    { task = "mini-math", target = "Q", train = 24, test = 6 },
    { task = "mini-math", target = "L", train = 0, test = 6 }"#;
    let first = config(folder.path(), segments, "[state]\nsave = true").unwrap();
    let out = folder.path().join("first");
    run(&first, &out);
    let own = held_out(&out, "own", 0);
    assert_eq!(own.len(), 6);
    assert_eq!(own, held_out(&out, "own", 2));
    assert_ne!(held_out(&out, "all", 0), held_out(&out, "all", 2));

    let report = write_report(&out).unwrap();
    assert!(report.markdown.contains("## Time spent learning"));
    assert!(out.join("report/learning.csv").is_file());

    // Another process goes on from the files.
    let again = format!("[state]\nload = \"{}\"", out.join("state").display());
    let segments = r#"{ task = "mini-math", target = "L", train = 0, test = 6 },
        { task = "mini-math", target = "Q", train = 0, test = 6 }"#;
    let second = config(folder.path(), segments, &again).unwrap();
    let later = folder.path().join("second");
    run(&second, &later);
    assert_eq!(held_out(&later, "own", 0), own);
    assert_eq!(held_out(&later, "own", 1), held_out(&out, "own", 1));
    assert_eq!(held_out(&later, "all", 0), held_out(&out, "all", 2));
}

#[test]
fn independent_segments_are_kept_by_task_and_target() {
    let folder = tempfile::tempdir().unwrap();
    let config = |segments: &str, rest: &str| {
        let rest = format!("ema = 0.8\nreplay = 2\n{rest}");
        let mut config = config(folder.path(), segments, &rest).unwrap();
        config.streams = StreamMode::Independent;
        config
    };
    let streamed = r#"
    { task = "mini-math", target = "L", train = 14, test = 4 },
    { task = "mini-math", target = "Q", train = 14, test = 4 }"#;
    let first = config(streamed, "[state]\nsave = true");
    let out = folder.path().join("first");
    run(&first, &out);

    // The other way round, and what decodes is the running mean.
    let held = r#"
    { task = "mini-math", target = "Q", train = 0, test = 4 },
    { task = "mini-math", target = "L", train = 0, test = 4 }"#;
    let again = format!("[state]\nload = \"{}\"", out.join("state").display());
    let later = folder.path().join("second");
    run(&config(held, &again), &later);
    for arm in ["own", "all"] {
        let (l, q) = (held_out(&out, arm, 0), held_out(&out, arm, 1));
        assert_ne!(l, q);
        assert_eq!(held_out(&later, arm, 0), q, "{arm}");
        assert_eq!(held_out(&later, arm, 1), l, "{arm}");
    }
}

#[test]
fn an_asynchronous_run_records_every_update() {
    let folder = tempfile::tempdir().unwrap();
    let segments = r#"{ task = "mini-math", target = "L", train = 14, test = 2 }"#;
    let config = config(folder.path(), segments, "asynchronous = true").unwrap();
    let out = folder.path().join("out");
    run(&config, &out);
    let updates = RunReader::open(&out).unwrap().updates().unwrap().rows;
    for arm in ["own", "all"] {
        let own: Vec<_> = updates.iter().filter(|row| row.arm == arm).collect();
        let numbers: Vec<u32> = own.iter().map(|row| row.update).collect();
        assert_eq!(numbers, [0, 1, 2, 3], "{arm}");
        assert_eq!(own[3].prompts_seen, 14);
    }
}

#[test]
fn wrong_settings_name_their_key() {
    let folder = tempfile::tempdir().unwrap();
    let refused = |rest: &str, expected: &str| {
        let segments = r#"{ task = "mini-math", target = "L", train = 4, test = 0 }"#;
        let message = format!("{:#}", config(folder.path(), segments, rest).unwrap_err());
        assert!(message.contains(expected), "{message}");
    };
    refused("lora = { alpha = 0.0 }", "learn.lora.alpha = 0");
    refused("lora = { projections = [\"q_prj\"] }", "q_prj");
    refused("lora = { rnk = 8 }", "rnk");
    refused(
        "lora = { rank = 2, projections = [] }",
        "learn.lora.projections",
    );

    let segments = r#"{ task = "mini-math", target = "L", train = 4, test = 0 }"#;
    let wide = config(folder.path(), segments, "lora = { rank = 129 }").unwrap();
    let data = DataSource::resolve(None).unwrap();
    let error = online::run(
        &wide,
        &data,
        &folder.path().join("x"),
        RunOptions::default(),
    );
    let message = format!("{:#}", error.unwrap_err());
    assert!(
        message.contains("learn.lora") && message.contains("1..=128"),
        "{message}"
    );
}
