//! Greedy speculation equals plain greedy decoding of the target, token for token: all modes, all
//! mini streams, before and after learning. The same seed gives the same results.

use crate::support;

use std::collections::BTreeMap;

use results::{PromptRow, Split};
use support::{Lab, Run, models_table};

/// Number of held-out prompts, answered before and after learning.
const HELD_OUT: usize = 12;
/// Number of streamed prompts.
const STREAMED: usize = 12;

const ARMS: &str = r#"
[decode]
max_new_tokens = 20
[learn]
every = 4
lr = 2e-3
[[arm]]
preset = "autoregressive"
[[arm]]
preset = "SpD_DM"
[[arm]]
preset = "N-gram_pp"
[[arm]]
preset = "static n-grams"
[[arm]]
preset = "L_DM"
[[arm]]
preset = "L_DM+L_N-gram"
[[arm]]
name = "exact"
preset = "L_DM+L_N-gram"
set = { "decode.verify" = "exact" }
[[arm]]
name = "slem"
set = { "decode.verify" = "slem" }
[[arm]]
name = "exact, what paper learnt"
learnt_by = "L_DM+L_N-gram"
set = { "decode.verify" = "exact", "cache.use" = "online" }
[[arm]]
preset = "prompt-lookup"
[[arm]]
preset = "stream-lookup"
[[arm]]
preset = "automaton-lookup"
[[arm]]
name = "automaton and drafter"
preset = "L_DM+L_N-gram+lookup"
set = { "decode.lookup" = "automaton" }
[[arm]]
preset = "L_DM+L_N-gram+lookup"
[[arm]]
name = "looks up in the prompt"
learnt_by = "L_DM+L_N-gram+lookup"
set = { "decode.verify" = "tli", "decode.lookup" = "prompt", "decode.policy" = "heuristic" }
"#;
/// Number of drafting arms.
const DRAFTING: usize = 14;
/// Number of drafting arms that use the state of another arm.
const GUESTS: usize = 2;

fn experiment(grid: &str, stages: &str) -> String {
    let models = models_table(&[("L", "L")]);
    format!("name = \"lossless\"\n{models}[grid]\n{grid}\n{stages}{ARMS}")
}

fn assert_equal_to_plain(task: &str) {
    let lab = Lab::new();
    // Held-out prompts with the untrained drafter, then again after it has learnt.
    let grid = format!("task = \"{task}\"\n\"decode.temperature\" = 0.0");
    let stages = format!(
        "[stage.before]\nprompts = {{ test = {HELD_OUT} }}\n\
         [stage.stream]\non_stream = \"all\"\nprompts = {{ train = {STREAMED} }}\n\
         [stage.after]\nfrom = \"stream\"\nprompts = {{ test = {HELD_OUT} }}\n"
    );
    let run = lab.run("out", &experiment(&grid, &stages));
    let updates = run.cell("stream").updates().unwrap();
    assert!(!updates.is_empty(), "nothing was learnt");
    for (stage, split, prompts, arms) in [
        ("before", Split::Test, HELD_OUT, DRAFTING),
        ("stream", Split::Train, STREAMED, DRAFTING - GUESTS),
        ("after", Split::Test, HELD_OUT, DRAFTING),
    ] {
        let rows = run.prompts(stage);
        assert!(rows.iter().all(|row| row.split == split));
        let is_plain = |row: &&PromptRow| row.arm == "autoregressive";
        let plain: BTreeMap<u32, &str> = rows
            .iter()
            .filter(is_plain)
            .map(|row| (row.prompt_index, row.tokens_hash.as_str()))
            .collect();
        assert_eq!(plain.len(), prompts);
        let drafted: Vec<&PromptRow> = rows.iter().filter(|row| !is_plain(row)).collect();
        assert_eq!(drafted.len(), arms * prompts, "{stage}");
        for row in &drafted {
            let same = plain[&row.prompt_index];
            let (arm, prompt) = (&row.arm, &row.prompt_id);
            assert_eq!(row.tokens_hash, same, "{stage}: {arm} on `{prompt}`");
        }
        let accepted: u32 = drafted.iter().map(|row| row.accepted).sum();
        assert!(accepted > 0, "{stage}: no draft was accepted");
    }
}

#[test]
fn greedy_equals_plain_on_math() {
    assert_equal_to_plain("mini-math");
}

#[test]
fn greedy_equals_plain_on_code() {
    assert_equal_to_plain("mini-code");
}

#[test]
fn greedy_equals_plain_on_chat() {
    assert_equal_to_plain("mini-chat");
}

#[test]
fn greedy_equals_plain_on_news() {
    assert_equal_to_plain("mini-news");
}

#[test]
fn the_same_seed_gives_the_same_tokens_caches_and_losses() {
    let lab = Lab::new();
    let text = |seed: u64| {
        let segments = "[[segment]]\ntask = \"mini-math\"\nprompts = { train = 10, test = 3 }\n\
             [[segment]]\ntask = \"mini-code\"\nprompts = { train = 6, test = 0 }\n";
        let stages = format!("{segments}[stage.stream]\nprompts = {{ train = 99, test = 99 }}\n");
        experiment(
            &format!("seed = {seed}\n\"decode.temperature\" = 0.8"),
            &stages,
        )
    };
    let facts = |run: &Run| {
        let cell = run.cell("stream");
        let prompts = cell.prompts().unwrap();
        assert_eq!(
            prompts.iter().filter(|row| row.arm == "slem").count(),
            3,
            "nothing of an arm that does not learn on the stream"
        );
        let prompts: Vec<String> = prompts
            .iter()
            .map(|row| {
                format!(
                    "{} {} {} {} {} {} {}",
                    row.arm,
                    row.prompt_id,
                    row.tokens_hash,
                    row.accepted,
                    row.proposed,
                    row.cache_ngrams,
                    row.cache_bytes
                )
            })
            .collect();
        let losses: Vec<u64> = cell
            .updates()
            .unwrap()
            .iter()
            .flat_map(|row| [row.loss.to_bits(), row.grad_norm.to_bits()])
            .collect();
        assert!(!losses.is_empty());
        (prompts, losses)
    };
    let first = facts(&lab.run("first", &text(1)));
    assert_eq!(first, facts(&lab.run("second", &text(1))));
    assert_ne!(first, facts(&lab.run("other", &text(2))));
}
