//! A drafter with fewer positions than the prompts have tokens: answers are the target's, and the
//! part that fits is learnt.

use crate::support;

use std::path::Path;

use results::PromptRow;
use support::{Lab, models};

/// Number of positions of the drafter: less than a prompt, more than most answers.
const POSITIONS: usize = 40;

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        std::fs::copy(&path, to.join(path.file_name().unwrap())).unwrap();
    }
}

#[test]
fn a_drafter_shorter_than_the_prompt_drafts_and_learns() {
    let lab = Lab::new();
    let drafter = lab.path("short");
    copy(&models().join("D"), &drafter);
    let config = drafter.join("config.json");
    let text = std::fs::read_to_string(&config).unwrap();
    let short = format!("\"max_position_embeddings\": {POSITIONS}");
    let changed = text.replace("\"max_position_embeddings\": 1024", &short);
    assert_ne!(changed, text);
    std::fs::write(&config, changed).unwrap();

    let target = models().join("L");
    let run = lab.run(
        "out",
        &format!(
            r#"
name = "short"
[models]
drafter = "{}"
targets.L = "{}"
[grid]
task = "mini-news"
"decode.temperature" = 0.0
[stage.stream]
prompts = {{ train = 8 }}
on_stream = "all"
[decode]
max_new_tokens = 24
[learn]
every = 2
lr = 2e-3
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "L_DM"
[[arm]]
preset = "L_DM+L_N-gram"
[[arm]]
preset = "L_DM+L_N-gram+lookup"
"#,
            drafter.display(),
            target.display()
        ),
    );
    let rows = run.prompts("stream");
    let of = |arm: &str| -> Vec<&PromptRow> { rows.iter().filter(|row| row.arm == arm).collect() };
    let plain = of("autoregressive");
    assert_eq!(plain.len(), 8);
    // The prompts are indeed longer than the drafter's positions.
    assert!(plain.iter().all(|row| row.prompt_tokens > POSITIONS as u32));
    for arm in ["L_DM", "L_DM+L_N-gram", "L_DM+L_N-gram+lookup"] {
        let found = of(arm);
        for (plain, found) in plain.iter().zip(&found) {
            assert_eq!(plain.tokens_hash, found.tokens_hash, "{arm}");
        }
        assert!(
            found.iter().any(|row| row.accepted > 0),
            "{arm}: nothing accepted"
        );
    }
    let updates = run.cell("stream").updates().unwrap();
    assert!(updates.iter().any(|update| update.arm == "L_DM"));
}
