//! A job that is killed goes on from its last checkpoint, and gives what one gives that was not.

mod support;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use experiment::JobConfig;
use results::{CellReader, RoundRow};
use support::{Lab, models_table, watched};

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

/// Everything in the rows that does not depend on the clock, a line a row.
fn rows(folder: &Path) -> Vec<String> {
    let cell = CellReader::open(folder).unwrap();
    fn timeless<R: serde::Serialize>(rows: &[R]) -> Vec<String> {
        let is_time = |key: &str| key == "seconds" || key.ends_with("_s") || key.ends_with("_us");
        let text = |row: &R| {
            let mut row = serde_json::to_value(row).unwrap();
            if let Some(row) = row.as_object_mut() {
                row.retain(|key, _| !is_time(key));
            }
            row.to_string()
        };
        rows.iter().map(text).collect()
    }
    [
        timeless(&cell.prompts().unwrap()),
        timeless(&cell.rounds::<RoundRow>().unwrap()),
        timeless(&cell.updates().unwrap()),
        timeless(&cell.heads().unwrap()),
    ]
    .concat()
}

/// Weights and caches of all arms, by the names of their files.
fn learnt(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.join("state")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(&folder).unwrap().display().to_string();
                found.push((
                    format!("{}/{name}", folder.file_name().unwrap().display()),
                    std::fs::read(&path).unwrap(),
                ));
            }
        }
    }
    found.sort();
    found
}

/// Runs a job that dies behind so many prompts of this process. Returns how many it answered.
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

    // Behind 4 and 12 prompts: among the streamed prompts of one segment, at the end of its test.
    let parts = lab.path("parts");
    assert_eq!(run(config, &parts, 6), 6);
    assert_eq!(run(config, &parts, 10), 10);
    assert!(parts.join("checkpoint/12").is_dir() && !parts.join("checkpoint/4").exists());
    assert_eq!(run(config, &parts, usize::MAX), 26 - 12);
    assert_eq!(rows(&parts), rows(&whole));
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
    // Damaged: no checkpoint either.
    assert_eq!(run(&second.jobs[0].config, &out, 6), 6);
    std::fs::write(out.join("checkpoint.json"), "{").unwrap();
    assert_eq!(run(&second.jobs[0].config, &out, 6), 6);
    // A state that cannot be read, and journals that are too short.
    std::fs::remove_dir_all(out.join("checkpoint/5")).unwrap();
    assert_eq!(run(&second.jobs[0].config, &out, 6), 6);
    std::fs::write(out.join("prompts.jsonl"), "").unwrap();
    assert_eq!(run(&second.jobs[0].config, &out, usize::MAX), 26);
}

#[test]
fn without_checkpoints_nothing_is_kept() {
    let lab = Lab::new();
    let plan = lab.load(&experiment(0)).unwrap();
    let out = lab.path("out");
    assert_eq!(run(&plan.jobs[0].config, &out, 7), 7);
    assert!(!out.join("checkpoint.json").exists());
}
