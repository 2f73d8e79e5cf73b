//! Every draft length policy, on a stream and from the saved state: drafts differ, the target's
//! tokens never.

use crate::support;

use adaptive_draft::Head;
use results::{CellReader, RoundRow, Split};
use support::{Lab, models_table};

/// Number of features of a head for drafter D: its hidden state and two scalars.
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
name = "int4"
preset = "SpD_DM"
set = { "decode.k" = 3, "decode.draft_weights" = "int4" }
[[arm]]
name = "int4, learning"
preset = "L_DM"
set = { "decode.k" = 3, "decode.draft_weights" = "int4" }
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
        "int4",
        "int4, learning",
        "offline",
    ] {
        assert_eq!(tokens(arm), plain, "{arm}");
    }
    // Another weight format gives other drafts.
    let chances = |arm| of(arm).map(|row| row.accepted).collect::<Vec<_>>();
    assert_ne!(chances("int4"), chances("constant"));

    // Another job has the same knowledge: heads, and statistics of throughput rules.
    let drafted = |cell: &CellReader| -> Vec<_> {
        let rows = cell.prompts().unwrap().into_iter();
        let rows = rows.filter(|row| row.split == Split::Test);
        rows.map(|r| (r.arm, r.prompt_index, r.rounds, r.draft_tokens, r.accepted))
            .collect()
    };
    assert_eq!(drafted(&run.cell("later")), drafted(&cell));

    let heads = cell.heads().unwrap();
    let turns = |arm: &str| heads.iter().filter(|row| row.arm == arm).count();
    // 12 prompts: a training step with each of three updates, or after every prompt without one.
    assert_eq!((turns("adapt only"), turns("joint")), (3, 3));
    assert_eq!((turns("interleaved"), turns("offline")), (9, 0));

    let rounds: Vec<RoundRow> = cell.rounds().unwrap();
    let longest = |arm: &str| {
        let own = rounds.iter().filter(|row| row.arm == arm);
        own.map(|row| row.draft_tokens).max()
    };
    assert_eq!(longest("constant"), Some(3));
    assert!((1..=6).contains(&longest("adapt only").unwrap()));
    assert!((1..=8).contains(&longest("heuristic").unwrap()));
    // Three rules for the same drafter and k: drafts of equal lengths would be those of one rule.
    let [heuristic, entropy, confidence] = ["heuristic", "entropy", "confidence"].map(|arm| {
        let own = rounds
            .iter()
            .filter(|row| row.arm == arm && row.split == Split::Test);
        let lengths: Vec<_> = own
            .map(|row| (row.prompt_index, row.round, row.draft_tokens))
            .collect();
        assert!(!lengths.is_empty(), "{arm}");
        lengths
    });
    assert_ne!(heuristic, entropy);
    assert_ne!(heuristic, confidence);
    assert_ne!(entropy, confidence);

    let inputs = &cell.manifest().inputs;
    assert!(inputs.iter().any(|input| input.role == "acceptance head"));
    for name in ["model.safetensors", "config.json", "tokenizer.json"] {
        let of = |role: &str| inputs.iter().any(|i| i.role == role && i.name == name);
        assert!(of("drafter") && of("t"), "{name}: {inputs:?}");
    }
    let arm = &cell.manifest().config["arms"][7];
    assert_eq!(arm["name"], "by position");
    // The default value.
    assert_eq!(arm["decode"]["costs"]["round"], 0.015);
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

/// A drafter that does not change reproduces its recorded labels; one that learns does not.
#[test]
fn labels_follow_the_drafter() {
    let lab = Lab::new();
    let arm = |name: &str, preset: &str, training: &str, labels: &str| {
        let verify = match name {
            "grouped" => "\"decode.verify\" = \"exact\", ",
            _ => "",
        };
        format!(
            "[[arm]]\nname = \"{name} {labels}\"\npreset = \"{preset}\"\n\
             set = {{ {verify}\"decode.policy\" = \"head\", \"decode.gamma\" = 0.8, \"decode.k\" = 5, \
             \"head.training\" = \"{training}\", \"head.labels\" = \"{labels}\" }}\n"
        )
    };
    let both = |name, preset, training| {
        arm(name, preset, training, "recorded") + &arm(name, preset, training, "current")
    };
    let text = format!(
        "name = \"labels\"\n{}[grid]\ntask = \"mini-math\"\n[stage.stream]\nprompts = {{ train = 8 }}\n\
         [decode]\ntemperature = 1.0\nmax_new_tokens = 24\n[learn]\nevery = 2\nlr = 5e-3\n{}{}{}{}",
        models_table(&[("t", "L-small")]),
        both("frozen", "SpD_DM", "joint"),
        both("grouped", "static n-grams", "joint"),
        both("learning", "L_DM", "joint"),
        both("drawn", "L_DM+L_N-gram", "interleaved"),
    );
    let run = lab.run("out", &text);
    let heads = run.cell("stream").heads().unwrap();
    let steps = |arm: &str| -> Vec<_> {
        let own = heads.iter().filter(|row| row.arm == arm);
        own.map(|row| (row.step, row.examples, row.loss)).collect()
    };
    let recorded = steps("frozen recorded");
    assert_eq!(recorded.len(), 4);
    assert_eq!(steps("frozen current"), recorded);
    // The choices of the group rule follow from the same distributions, up to rounding.
    let (recorded, current) = (steps("grouped recorded"), steps("grouped current"));
    assert_eq!(recorded.len(), 4);
    for ((step, examples, loss), again) in recorded.into_iter().zip(current) {
        assert_eq!((step, examples), (again.0, again.1));
        assert!((loss - again.2).abs() < 1e-5 * loss, "{loss} {again:?}");
    }
    let (stale, current) = (steps("learning recorded"), steps("learning current"));
    assert_eq!(stale.len(), current.len());
    assert_ne!(stale, current);
    assert!(
        steps("drawn current")
            .iter()
            .all(|(_, examples, loss)| *examples > 0 && loss.is_finite())
    );
    assert_eq!(steps("drawn current").len(), steps("drawn recorded").len());
}

/// The paper switches heads with adapters (B.3).
#[test]
fn every_target_has_a_head_of_its_own() {
    let lab = Lab::new();
    let run_with = |per: &str| {
        let segment = |target: &str| {
            format!(
                "[[segment]]\ntarget = \"{target}\"\ntask = \"mini-math\"\nprompts = {{ train = 4, test = 2 }}\n"
            )
        };
        let text = format!(
            "name = \"heads\"\n{}{}{}{}[stage.stream]\nprompts = {{ train = 9, test = 9 }}\n\
             [stage.later]\nfrom = \"stream\"\nprompts = {{ test = 9 }}\n\
             [decode]\nmax_new_tokens = 24\n[learn]\nevery = 2\n[head]\nsteps = 16\nper = \"{per}\"\n\
             [[arm]]\npreset = \"SpD_DM\"\n\
             set = {{ \"decode.policy\" = \"head\", \"decode.k\" = 6, \"head.training\" = \"joint\" }}\n",
            models_table(&[("L", "L-small"), ("Q", "Q")]),
            segment("L"),
            segment("Q"),
            segment("L").replace("train = 4", "train = 0"),
        );
        let run = lab.run(per, &text);
        let drafted = |stage: &str, segment: u32| -> Vec<u32> {
            let rows = run.prompts(stage).into_iter();
            let own = rows.filter(|row| row.segment == segment && row.split == Split::Test);
            own.map(|row| row.draft_tokens).collect()
        };
        // A second visit to a target, and another job that continues from the files.
        let here = (drafted("stream", 0), drafted("stream", 2));
        (here, (drafted("later", 0), drafted("later", 2)))
    };
    let ((first, back), (later, _)) = run_with("target");
    assert_eq!(first.len(), 2);
    assert_eq!(first, back);
    assert_eq!(later, first);
}
