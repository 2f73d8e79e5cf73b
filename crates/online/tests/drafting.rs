//! Every way to say how long to draft, in one stream and from the state it leaves: what is drafted
//! differs, the target's tokens never.

mod support;

use adaptive_draft::Head;
use results::{CellReader, RoundRow, Split};
use support::{Lab, models_table};

/// Features of a head over drafter D: its hidden state and two scalars.
const FEATURES: usize = 130;

const ARMS: &str = r#"
[[arm]]
preset = "autoregressive"
[[arm]]
name = "constant"
preset = "SpD_DM"
set = { "decode.k" = 3 }
[[arm]]
name = "heuristic"
preset = "SpD_DM"
set = { "decode.policy" = "heuristic" }
[[arm]]
name = "adapt only"
preset = "SpD_DM"
set = { "decode.policy" = "head", "decode.gamma" = 0.2, "decode.k" = 6, "head.training" = "joint" }
[[arm]]
name = "joint"
preset = "L_DM+L_N-gram"
set = { "decode.policy" = "head", "decode.k" = 6, "head.training" = "joint" }
[[arm]]
name = "interleaved"
preset = "L_DM"
set = { "head.training" = "interleaved" }
[[arm]]
name = "throughput"
learnt_by = "interleaved"
set = { "decode.verify" = "exact", "decode.policy" = "throughput", "decode.k" = 6 }
[[arm]]
name = "by position"
preset = "SpD_DM"
set = { "decode.policy" = "throughput", "decode.score" = "position" }
[[arm]]
name = "entropy"
preset = "SpD_DM"
set = { "decode.policy" = "entropy", "decode.threshold" = 0.5 }
[[arm]]
name = "confidence"
preset = "SpD_DM"
set = { "decode.policy" = "confidence", "decode.threshold" = 0.5 }
[[arm]]
name = "offline"
preset = "SpD_DM"
set = { "decode.policy" = "head", "head.training" = "offline" }
"#;

#[test]
fn every_policy_keeps_the_tokens_and_goes_on_from_its_state() {
    let lab = Lab::new();
    let head = lab.path("head.safetensors");
    Head::new(FEATURES, 32, 1).save(&head).unwrap();
    let text = format!(
        r#"
name = "drafting"
{models}
[grid]
task = "mini-math"
[stage.stream]
prompts = {{ train = 12, test = 3 }}
[stage.later]
from = "stream"
prompts = {{ test = 3 }}
[decode]
temperature = 0.0
max_new_tokens = 24
[learn]
every = 4
[head]
path = "{head}"
{ARMS}"#,
        models = models_table(&[("t", "L-small")]),
        head = head.display(),
    );
    let run = lab.run("out", &text);
    let cell = run.cell("stream");

    let prompts = cell.prompts().unwrap();
    let held_out = |row: &&results::PromptRow| row.split == Split::Test;
    let of = |arm: &'static str| {
        let own = prompts.iter().filter(held_out);
        own.filter(move |row| row.arm == arm)
    };
    let tokens = |arm| of(arm).map(|row| &row.tokens_hash).collect::<Vec<_>>();
    let plain = tokens("autoregressive");
    assert_eq!(plain.len(), 3);
    for arm in [
        "constant",
        "heuristic",
        "adapt only",
        "joint",
        "interleaved",
        "throughput",
        "by position",
        "entropy",
        "confidence",
        "offline",
    ] {
        assert_eq!(tokens(arm), plain, "{arm}");
    }

    // Another job knows as much: heads, and what throughput rules have seen.
    let drafted = |cell: &CellReader| -> Vec<_> {
        let rows = cell.prompts().unwrap().into_iter();
        let rows = rows.filter(|row| row.split == Split::Test);
        rows.map(|r| (r.arm, r.prompt_index, r.rounds, r.draft_tokens, r.accepted))
            .collect()
    };
    assert_eq!(drafted(&run.cell("later")), drafted(&cell));

    let heads = cell.heads().unwrap();
    let turns = |arm: &str| heads.iter().filter(|row| row.arm == arm).count();
    // 12 prompts: a turn with each of three updates, or behind every prompt without one.
    assert_eq!((turns("adapt only"), turns("joint")), (3, 3));
    assert_eq!((turns("interleaved"), turns("offline")), (9, 0));

    let rounds: Vec<RoundRow> = cell.rounds().unwrap();
    let longest = |arm: &str| {
        let own = rounds.iter().filter(|row| row.arm == arm);
        own.map(|row| row.draft_tokens).max()
    };
    assert_eq!(longest("constant"), Some(3));
    assert!(longest("adapt only") <= Some(6));
    assert!(longest("heuristic") <= Some(8));

    let inputs = &cell.manifest().inputs;
    assert!(inputs.iter().any(|input| input.role == "acceptance head"));
    let arm = &cell.manifest().config["arms"][7];
    assert_eq!(arm["name"], "by position");
    assert_eq!(arm["decode"]["costs"]["round"], 0.0);
}

#[test]
fn a_head_of_another_drafter_is_refused() {
    let lab = Lab::new();
    let head = lab.path("head.safetensors");
    Head::new(FEATURES - 1, 0, 1).save(&head).unwrap();
    let text = format!(
        "name = \"heads\"\n{models}[grid]\ntask = \"mini-math\"\n[stage.stream]\n\
         prompts = {{ test = 1 }}\n[[arm]]\npreset = \"SpD_DM\"\n[arm.set]\n\
         \"decode.policy\" = \"head\"\n\"head.training\" = \"offline\"\n\"head.path\" = \"{head}\"\n",
        models = models_table(&[("t", "L-small")]),
        head = head.display(),
    );
    let plan = lab.load(&text).unwrap();
    let error = support::execute(&plan.jobs[0].config, &lab.path("out"), None).unwrap_err();
    let message = format!("{error:#}");
    assert!(message.contains("129 features"), "{message}");
}
