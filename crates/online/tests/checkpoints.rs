//! A killed job resumes from its last checkpoint, with the same results as an uninterrupted one.

use crate::support;

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use experiment::JobConfig;
use online::SavedState;
use results::{CellReader, RoundRow};
use serde_json::Value;
use support::{Lab, execute, files, models_table, timeless, watched};

fn experiment(every: usize) -> String {
    format!(
        r#"
name = "checkpoints"
{models}
[grid]
seed = [3]
[stage.stream]
checkpoint = {every}
prompts = {{ train = 9, test = 4 }}
[stage.later]
from = "stream"
prompts = {{ test = 2 }}
[[segment]]
target = "L"
task = "mini-math"
[[segment]]
target = "Q"
task = "mini-code"
[decode]
max_new_tokens = 24
[learn]
every = 2
replay = 4
ema = 0.9
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "L_DM+L_N-gram+lookup"
[[arm]]
preset = "automaton-lookup"
[[arm]]
name = "automaton and drafter"
preset = "L_DM+L_N-gram+lookup"
set = {{ "decode.lookup" = "automaton", "decode.lookup_mb" = 1 }}
[[arm]]
name = "adapters"
preset = "L_DM+L_N-gram"
set = {{ "learn.lora" = {{ rank = 4, alpha = 8.0, per = "target" }} }}
[[arm]]
name = "last block"
preset = "L_DM+L_N-gram"
set = {{ "learn.blocks" = 1 }}
[[arm]]
name = "adapters of the last block"
preset = "L_DM+L_N-gram"
set = {{ "learn.blocks" = 1, "learn.lora" = {{ rank = 4, alpha = 8.0, per = "target" }} }}
[[arm]]
name = "parts"
preset = "L_DM+L_N-gram"
set = {{ "learn.blocks" = 1, "learn.within" = 8, "learn.every" = 1 }}
[[arm]]
name = "head"
preset = "L_DM"
set = {{ "decode.policy" = "head", "decode.k" = 6, "head.training" = "interleaved" }}
"#,
        models = models_table(&[("L", "L-small"), ("Q", "Q")])
    )
}

/// All fields of the rows that do not depend on the clock.
fn rows(folder: &Path) -> Vec<Value> {
    let cell = CellReader::open(folder).unwrap();
    [
        timeless(&cell.prompts().unwrap()),
        timeless(&cell.rounds::<RoundRow>().unwrap()),
        timeless(&cell.updates().unwrap()),
        timeless(&cell.heads().unwrap()),
    ]
    .concat()
}

/// Runs a job that dies after so many prompts of this process. Returns the number of prompts that
/// it answered.
fn run(config: &JobConfig, out: &Path, dies_behind: usize) -> usize {
    let mut answered = 0;
    let result = catch_unwind(AssertUnwindSafe(|| {
        watched(config, out, None, &mut |_| {
            answered += 1;
            assert!(answered < dies_behind, "killed");
        })
    }));
    if let Ok(done) = result {
        done.unwrap();
    }
    answered
}

#[test]
fn a_killed_job_goes_on_and_gives_the_same() {
    let lab = Lab::new();
    let plan = lab.load(&experiment(4)).unwrap();
    let config = &plan.jobs[0].config;
    let whole = lab.path("whole");
    assert_eq!(run(config, &whole, usize::MAX), 26);
    assert!(!whole.join("checkpoint.json").exists() && !whole.join("checkpoint").exists());

    // After 4 and 12 prompts: among the streamed prompts of one segment, and at the end of its
    // test.
    let parts = lab.path("parts");
    assert_eq!(run(config, &parts, 6), 6);
    assert_eq!(run(config, &parts, 10), 10);
    assert!(parts.join("checkpoint/12").is_dir() && !parts.join("checkpoint/4").exists());
    assert_eq!(run(config, &parts, usize::MAX), 26 - 12);
    assert_eq!(rows(&parts), rows(&whole));
    let learnt = |job: &Path| files(&job.join("state"));
    assert_eq!(learnt(&parts), learnt(&whole));
    assert!(!parts.join("checkpoint.json").exists());
}

#[test]
fn another_jobs_checkpoint_is_not_gone_on_from() {
    let lab = Lab::new();
    let plan = |every| lab.load(&experiment(every)).unwrap();
    let (first, second) = (plan(4), plan(5));
    let out = lab.path("out");
    assert_eq!(run(&first.jobs[0].config, &out, 7), 7);
    assert!(out.join("checkpoint.json").exists());
    assert_eq!(run(&second.jobs[0].config, &out, 2), 2);
    assert!(!out.join("checkpoint").exists());
    // A job that went on from its fifth prompt would have left a checkpoint after the tenth.
    let begins_anew = || {
        assert_eq!(run(&second.jobs[0].config, &out, 6), 6);
        let left = |prompts: &str| out.join("checkpoint").join(prompts).is_dir();
        assert!(left("5") && !left("10"));
    };
    begins_anew();
    // A damaged checkpoint counts as none.
    std::fs::write(out.join("checkpoint.json"), "{").unwrap();
    begins_anew();
    // A state that cannot be read, and journals that are too short.
    std::fs::remove_dir_all(out.join("checkpoint/5")).unwrap();
    begins_anew();
    std::fs::write(out.join("prompts.jsonl"), "").unwrap();
    assert_eq!(run(&second.jobs[0].config, &out, usize::MAX), 26);
}

/// It may be readable at the next attempt.
#[test]
fn a_checkpoint_that_cannot_be_read_now_is_kept() {
    let lab = Lab::new();
    let plan = lab.load(&experiment(4)).unwrap();
    let config = &plan.jobs[0].config;
    let out = lab.path("out");
    assert_eq!(run(config, &out, 6), 6);
    let journal = || std::fs::read(out.join("prompts.jsonl")).unwrap();
    let answered = journal();
    // The system does not read a folder as a file.
    let (path, aside) = (out.join("checkpoint.json"), out.join("aside.json"));
    std::fs::rename(&path, &aside).unwrap();
    std::fs::create_dir(&path).unwrap();
    let error = format!("{:#}", execute(config, &out, None).unwrap_err());
    assert!(error.contains("checkpoint.json"), "{error}");
    assert!(journal() == answered && out.join("checkpoint/4").is_dir());
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(&aside, &path).unwrap();
    assert_eq!(run(config, &out, usize::MAX), 26 - 4);
}

/// Rows of one cell are made of the same files, on the same instruction set.
#[test]
fn a_checkpoint_of_other_inputs_is_not_gone_on_from() {
    let lab = Lab::new();
    let plan = lab.load(&experiment(4)).unwrap();
    let config = &plan.jobs[0].config;
    let others = [
        ("/inputs/0/sha256", "other".into()),
        ("/kernels", "other".into()),
        // An untimed job has none.
        ("/timed_on", serde_json::json!(["other", 2])),
    ];
    for (place, (key, other)) in others.into_iter().enumerate() {
        let out = lab.path(&format!("out-{place}"));
        assert_eq!(run(config, &out, 6), 6);
        let path = out.join("checkpoint.json");
        let mut written: serde_json::Value =
            serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        *written.pointer_mut(key).unwrap() = other;
        std::fs::write(&path, written.to_string()).unwrap();
        assert_eq!(run(config, &out, usize::MAX), 26, "{key}");
    }
}

#[test]
fn without_checkpoints_nothing_is_kept() {
    let lab = Lab::new();
    let plan = lab.load(&experiment(0)).unwrap();
    let out = lab.path("out");
    assert_eq!(run(&plan.jobs[0].config, &out, 7), 7);
    assert!(!out.join("checkpoint.json").exists());
}

#[test]
fn measured_costs_are_kept() {
    let lab = Lab::new();
    let text = format!(
        r#"
name = "costs"
{models}
[grid]
seed = [3]
[stage.stream]
exclusive = true
checkpoint = 2
on_stream = "all"
prompts = {{ train = 6 }}
[[segment]]
target = "L"
task = "mini-math"
[decode]
max_new_tokens = 24
policy = "throughput"
score = "confidence"
costs = {{ measured = true }}
[[arm]]
preset = "SpD_DM"
"#,
        models = models_table(&[("L", "L-small")])
    );
    let plan = lab.load(&text).unwrap();
    let out = lab.path("out");
    let rounds = |done: usize| {
        let states = SavedState::of_job(&out.join(format!("checkpoint/{done}"))).unwrap();
        let costs = serde_json::to_value(&states[0].known().costs).unwrap();
        costs["L"]["rest"][0].as_f64().unwrap()
    };
    assert_eq!(run(&plan.jobs[0].config, &out, 3), 3);
    let two = rounds(2);
    assert_eq!(run(&plan.jobs[0].config, &out, 3), 3);
    // Had they begun anew, they would be those of the last two prompts alone.
    let four = rounds(4);
    let of = |prompts: Range<u32>| {
        let journal = std::fs::read_to_string(out.join("rounds.jsonl")).unwrap();
        let rows = journal
            .lines()
            .map(|row| serde_json::from_str(row).unwrap());
        rows.filter(|row: &RoundRow| prompts.contains(&row.prompt_index))
            .count() as f64
    };
    let (first, all) = (of(0..2), of(0..4));
    assert!((two - first).abs() < 3.0, "{two}, {first}");
    assert!((four - all).abs() < 6.0, "{four}, {all}");
    assert!(all - first > 20.0, "{all}, {first}");
}

/// The load of the machine may have been another one then.
#[test]
fn another_stage_measures_its_own_costs() {
    let lab = Lab::new();
    let text = format!(
        r#"
name = "costs"
{models}
[grid]
task = ["mini-math"]
[stage.stream]
exclusive = true
on_stream = "all"
prompts = {{ train = 4 }}
[stage.more]
from = "stream"
exclusive = true
on_stream = "all"
prompts = {{ train = 2 }}
[stage.last]
from = "more"
exclusive = true
prompts = {{ test = 1 }}
[decode]
max_new_tokens = 24
policy = "throughput"
score = "confidence"
costs = {{ measured = true }}
[[arm]]
preset = "SpD_DM"
"#,
        models = models_table(&[("L", "L-small")])
    );
    let run = lab.run("out", &text);
    for job in &run.plan.jobs[..2] {
        let stage = &job.config.stage;
        let state = run.root.join(stage).join(&job.config.cell).join("state");
        let states = SavedState::of_job(&state).unwrap();
        let costs = serde_json::to_value(&states[0].known().costs).unwrap();
        let measured = costs["L"]["rest"][0].as_f64().unwrap();
        let rounds: Vec<RoundRow> = run.cell(stage).rounds().unwrap();
        // Earlier rounds count a little less.
        let rounds = rounds.len() as f64;
        assert!(
            measured <= rounds && measured > 0.9 * rounds,
            "{stage}: {measured} of {rounds}"
        );
    }
}
