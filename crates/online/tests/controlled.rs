//! Arms under a controller: their text does not change, and their knowledge survives.

use crate::support;

use std::collections::BTreeMap;

use adaptive_draft::Controller;
use online::SavedState;
use results::PromptRow;
use support::{Lab, Run, models_table};

const STREAMED: usize = 40;
const MORE: usize = 6;
const HELD_OUT: usize = 4;

const ARMS: &str = r#"
[decode]
max_new_tokens = 24
temperature = 0.0
controller = true
[learn]
every = 2
[[arm]]
preset = "autoregressive"
set = { "decode.controller" = false }
[[arm]]
preset = "SpD_DM"
[[arm]]
name = "learns"
preset = "L_DM+L_N-gram"
[[arm]]
name = "learns late"
preset = "L_DM+L_N-gram"
set = { "learn.every" = 100, "decode.controller" = false }
[[arm]]
name = "exact"
preset = "L_DM+L_N-gram"
set = { "decode.verify" = "exact" }
[[arm]]
name = "looks up"
preset = "L_DM+L_N-gram+lookup"
[[arm]]
name = "adapters"
preset = "L_DM"
set = { "learn.lora" = { rank = 4, alpha = 8.0, per = "target" } }
[[arm]]
name = "learns beside"
preset = "L_DM"
set = { "learn.asynchronous" = true }
[[arm]]
name = "last block"
preset = "L_DM"
set = { "learn.blocks" = 1 }
[[arm]]
name = "parts"
preset = "L_DM+L_N-gram"
set = { "learn.within" = 6, "learn.every" = 1 }
[[arm]]
name = "head"
preset = "L_DM"
set = { "decode.policy" = "throughput", "decode.k" = 6, "head.training" = "interleaved" }
"#;
const CONTROLLED: usize = 9;
const UNCONTROLLED: &str = "learns late";

fn run(lab: &Lab) -> Run {
    let models = models_table(&[("L", "L-small")]);
    let text = format!(
        "name = \"controlled\"\n{models}[grid]\ntask = [\"mini-math\"]\n\
         [stage.stream]\nexclusive = true\ncheckpoint = 16\non_stream = \"all\"\n\
         prompts = {{ train = {STREAMED} }}\n\
         [stage.more]\nfrom = \"stream\"\nexclusive = true\n\
         prompts = {{ train = {MORE}, test = {HELD_OUT} }}\n{ARMS}"
    );
    lab.run("out", &text)
}

/// The controller of an arm at the end of a stage.
fn known(run: &Run, stage: &str, arm: &str) -> Controller {
    let cell = &run
        .plan
        .jobs
        .iter()
        .find(|job| job.id.stage == stage)
        .unwrap()
        .id
        .cell;
    let folder = run.root.join(stage).join(cell).join("state");
    let saved = SavedState::of_arm(&SavedState::folder_of(&folder, arm)).unwrap();
    saved.known().controller.clone().unwrap()
}

#[test]
fn text_stays_and_knowledge_survives() {
    let lab = Lab::new();
    let run = run(&lab);
    for stage in ["stream", "more"] {
        let rows = run.prompts(stage);
        let plain: BTreeMap<(String, u32), &str> = rows
            .iter()
            .filter(|row| row.arm == "autoregressive")
            .map(|row| {
                (
                    (format!("{:?}", row.split), row.prompt_index),
                    row.tokens_hash.as_str(),
                )
            })
            .collect();
        let mut seen = 0;
        for row in rows.iter().filter(|row| row.arm != "autoregressive") {
            let key = (format!("{:?}", row.split), row.prompt_index);
            if let Some(same) = plain.get(&key) {
                assert_eq!(
                    row.tokens_hash, **same,
                    "{stage}: {} on `{}`",
                    row.arm, row.prompt_id
                );
                seen += 1;
            }
            if row.arm != UNCONTROLLED {
                check(row);
            }
        }
        assert!(seen >= CONTROLLED * HELD_OUT, "{stage}: {seen}");
    }
    // A checkpoint after every 16 prompts created the arms anew from their files.
    for arm in ["SpD_DM", "learns", "looks up", "adapters", "last block"] {
        let ledger = known(&run, "stream", arm).ledger();
        assert_eq!(ledger.answers, STREAMED as u64, "{arm}");
        let rows = run.prompts("stream");
        let last = rows.iter().rfind(|row| row.arm == arm).unwrap();
        let saved = last.saved_s.unwrap();
        // The last row includes the learning at the end of the stream.
        let after = (saved - ledger.saved()).abs();
        assert!(after < 1e-6, "{arm}: {ledger:?}, {saved}");
        let tokens: u64 = rows
            .iter()
            .filter(|row| row.arm == arm)
            .map(|row| u64::from(row.new_tokens))
            .sum();
        assert_eq!(ledger.tokens, tokens, "{arm}");
    }
    // Every answer says what copies are worth, also those that they did not make.
    let copying = known(&run, "stream", "looks up");
    let copying = serde_json::to_value(copying).unwrap();
    let copies = &copying["known"]["L"]["ways"]["Copies"];
    assert_eq!(copies["answers"], STREAMED, "{copying}");
    // The seconds of every update are in a row, including those before a checkpoint and at the end;
    // an arm that never learns has none.
    let rows = run.prompts("stream");
    let of = |arm: &str| -> Vec<&PromptRow> { rows.iter().filter(|row| row.arm == arm).collect() };
    assert!(of("learns").iter().map(|row| row.learn_s).sum::<f64>() > 0.0);
    let mut late = of(UNCONTROLLED);
    late.sort_by(|a, b| b.learn_s.total_cmp(&a.learn_s));
    let mut late: Vec<u32> = late.iter().take(3).map(|row| row.prompt_index).collect();
    late.sort_unstable();
    assert_eq!(late, [15, 31, STREAMED as u32 - 1]);
}

/// In answers without the drafter, nothing was drafted.
fn check(row: &PromptRow) {
    let streamed = row.split == results::Split::Train;
    assert_eq!(row.way.is_some(), streamed, "{row:?}");
    assert_eq!(row.saved_s.is_some(), streamed, "{row:?}");
    match row.way.as_deref() {
        Some("plain") => assert_eq!((row.draft_tokens, row.proposed), (0, 0), "{row:?}"),
        Some("copies") => assert_eq!(row.draft_tokens, 0, "{row:?}"),
        None | Some("learner" | "frozen") => {}
        Some(other) => panic!("{other}"),
    }
}
