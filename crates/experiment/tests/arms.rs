//! Presets, patches, sweeps, and combinations of arms that are refused.

use crate::common;

use common::{SMALL, plan, says, wrong};
use distill_loss::{DirectLoss, NgramLoss};
use experiment::{ArmConfig, CacheUse, DraftSource, Lookup, ObjectiveName};
use serde_json::json;
use spec_decode::{Acceptance, VerifyMode};

const HEAD: &str = "include = [\"zoo.toml\"]\nname = \"x\"\n[grid]\ntarget = \"L\"\ntask = \"a\"\n\
    [stage.s]\nprompts = { train = 9 }\n";

fn arms(text: &str) -> Vec<ArmConfig> {
    plan(&format!("{HEAD}{text}")).jobs[0].config.arms.clone()
}

fn refused(text: &str) -> String {
    wrong(&format!("{HEAD}{text}"))
}

#[test]
fn presets_are_the_methods_of_the_paper() {
    let names = [
        "autoregressive",
        "prompt-lookup",
        "stream-lookup",
        "automaton-lookup",
        "SpD_DM",
        "N-gram_pp",
        "static n-grams",
        "L_DM",
        "L_DM+L_N-gram",
        "L_DM+L_N-gram+lookup",
    ];
    let text: String = names
        .iter()
        .map(|name| format!("[[arm]]\npreset = \"{name}\"\n"))
        .collect();
    let arms = arms(&text);
    let [
        plain,
        lookup,
        stream,
        automaton,
        spd,
        ngrams,
        fixed,
        direct,
        hybrid,
        copying,
    ] = arms.as_slice()
    else {
        panic!("{arms:?}")
    };
    assert!(arms.iter().zip(names).all(|(arm, name)| arm.name == name));
    assert!(plain.is_plain() && !plain.changes() && plain.decode.verify.is_none());
    assert!(lookup.looks_up() && lookup.decode.draft == DraftSource::PromptLookup);
    assert!(!lookup.changes() && stream.changes());
    assert!(stream.looks_up() && stream.decode.lookup == Lookup::Stream && !stream.learns());
    assert!(automaton.looks_up() && automaton.changes() && !automaton.learns());
    assert_eq!(automaton.decode.lookup, Lookup::Automaton);
    assert_eq!(spd.decode.verify, Some(VerifyMode::Tli));
    assert!(!spd.changes() && !spd.uses_cache() && !spd.learns());
    assert!(ngrams.changes() && ngrams.inserts_ngrams() && !ngrams.learns());
    assert!(fixed.uses_cache() && !fixed.changes() && fixed.cache.source == CacheUse::Static);
    assert!(direct.learns() && direct.changes() && !direct.uses_cache());
    assert_eq!(
        (direct.learn.direct, direct.learn.ngram),
        (Some(DirectLoss::ReverseKl), None)
    );
    assert!(hybrid.learns() && hybrid.uses_cache());
    assert_eq!(hybrid.learn.ngram, Some(NgramLoss::Nll));
    assert_eq!(hybrid.decode.verify, Some(VerifyMode::Paper));
    assert!(copying.learns() && copying.uses_cache() && !copying.looks_up());
    assert_eq!(copying.decode.verify, Some(VerifyMode::Exact));
    assert_eq!(copying.decode.lookup, Lookup::Stream);
    assert_eq!(copying.decode.acceptance, Acceptance::Block);
}

#[test]
fn looking_up_leaves_a_trace() {
    let text = "[[arm]]\npreset = \"SpD_DM\"\nset = { \"decode.lookup\" = \"prompt\" }\n";
    assert!(arms(text)[0].changes());
}

#[test]
fn defaults_presets_stages_conditions_axes_and_arms_win_in_this_order() {
    let text = "include = [\"zoo.toml\"]\nname = \"x\"\n\
        [decode]\nk = 1\n[learn]\ndirect = \"nll\"\nevery = 1\nlr = 0.1\nlambda = 0.1\nema = 0.1\n\
        [grid]\ntarget = \"L\"\ntask = [\"a\", \"b\"]\n\"learn.ema\" = [0.5]\n\
        [[when]]\ntask = \"a\"\nset = { \"learn.lambda\" = 0.4, \"learn.ema\" = 0.4 }\n\
        [[when]]\ntask = [\"a\", \"b\"]\nstage = \"s\"\nset = { \"learn.tau\" = 0.5 }\n\
        [stage.s]\nprompts = { train = 9 }\nset = { \"learn.lr\" = 0.3, \"learn.lambda\" = 0.3 }\n\
        [[arm]]\npreset = \"L_DM\"\nset = { \"learn.replay_window\" = 80 }\n\
        [[arm]]\npreset = \"L_DM\"\nname = \"own\"\nset = { \"learn.ema\" = 0.6, \"decode.k\" = 6 }\n\
        sweep = { \"decode.k\" = [7] }\n";
    let plan = plan(text);
    let learn = |job: usize, arm: usize| plan.jobs[job].config.arms[arm].learn;
    // The preset over the defaults, which apply to all other keys.
    assert_eq!(
        (learn(0, 0).direct, learn(0, 0).every),
        (Some(DirectLoss::ReverseKl), 1)
    );
    assert_eq!(
        (learn(0, 0).lr, learn(0, 0).lambda, learn(1, 0).lambda),
        (0.3, 0.4, 0.3)
    );
    assert_eq!(
        (learn(0, 0).ema, learn(0, 1).ema, learn(1, 0).tau),
        (0.5, 0.6, 0.5)
    );
    assert_eq!(
        (learn(0, 0).replay_window, learn(0, 1).replay_window),
        (80, 64)
    );
    let swept = &plan.jobs[0].config.arms[1];
    assert_eq!((swept.decode.k, swept.name.as_str()), (7, "own (k = 7)"));
}

#[test]
fn sweeps_make_arms_that_know_what_they_were_made_from() {
    let text = format!(
        "{SMALL}[[arm]]\npreset = \"autoregressive\"\n\
         [[arm]]\npreset = \"SpD_DM\"\nsweep = {{}}\n\
         [[arm]]\npreset = \"L_DM\"\nsweep = {{ \"learn.lr\" = [1e-3, 0.5] }}\n\
         [sweep]\n\"decode.k\" = [1, 2]\n\"learn.direct\" = [\"nll\", \"forward-kl\"]\n"
    );
    let plan = plan(&text);
    let arms = &plan.jobs[0].config.arms;
    let names: Vec<&str> = arms.iter().map(|arm| arm.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "L_DM+L_N-gram (k = 1, direct = nll)",
            "L_DM+L_N-gram (k = 1, direct = forward-kl)",
            "L_DM+L_N-gram (k = 2, direct = nll)",
            "L_DM+L_N-gram (k = 2, direct = forward-kl)",
            "autoregressive",
            "SpD_DM",
            "L_DM (lr = 0.001)",
            "L_DM (lr = 0.5)",
        ]
    );
    let from = arms[3].swept_from.as_ref().unwrap();
    assert_eq!(from.arm, "L_DM+L_N-gram");
    let values = [
        ("decode.k".to_owned(), json!(2)),
        ("learn.direct".to_owned(), json!("forward-kl")),
    ];
    assert_eq!(from.values, values);
    assert_eq!(plan.experiment.arms_named("L_DM").count(), 2);
    assert_eq!(plan.experiment.arms_named("L_DM (lr = 0.5)").count(), 1);
    assert_eq!(arms[2].decode.k, 2);
}

#[test]
fn borrowers_follow_the_sweep_of_their_lender() {
    let text = "[[arm]]\npreset = \"L_DM\"\n[[arm]]\nname = \"b\"\nlearnt_by = \"L_DM\"\n\
        [sweep]\n\"decode.k\" = [1, 2]\n";
    let swept = arms(text);
    assert_eq!(swept[3].learnt_by.as_deref(), Some("L_DM (k = 2)"));
    let one = arms(&text.replace("preset = \"L_DM\"\n", "preset = \"L_DM\"\nsweep = {}\n"));
    assert_eq!(one[2].learnt_by.as_deref(), Some("L_DM"));
    let text = text.replace("\"L_DM\"\n[sweep]", "\"L_DM\"\nsweep = {}\n[sweep]");
    says(
        &refused(&text),
        &["arm `b`: there is no arm `L_DM` (one of L_DM (k = 1), L_DM (k = 2))"],
    );
}

#[test]
fn borrowing_is_checked() {
    let with = |more: &str| {
        refused(&format!(
            "[[arm]]\npreset = \"SpD_DM\"\n[[arm]]\npreset = \"L_DM\"\n[[arm]]\nname = \"b\"\n{more}\n"
        ))
    };
    says(
        &with("learnt_by = \"nobody\""),
        &["x.toml:12: arm.learnt_by: arm `b`: there is no arm `nobody`"],
    );
    says(
        &with("learnt_by = \"SpD_DM\""),
        &["`SpD_DM` neither learns nor caches"],
    );
    says(
        &with("learnt_by = \"b\""),
        &["`b` neither learns nor caches"],
    );
    let learns = with("learnt_by = \"L_DM\"\nset = { \"learn.objective\" = \"hybrid\" }");
    says(&learns, &["it learns itself"]);
    let head = with("learnt_by = \"L_DM\"\nset = { \"head.training\" = \"joint\" }");
    says(&head, &["head.training must be \"none\""]);
    let cache = with(
        "learnt_by = \"L_DM\"\nset = { \"cache.use\" = \"online\", \"decode.verify\" = \"paper\" }",
    );
    says(
        &cache,
        &["x.toml:15: cache.use: arm `b`: `L_DM` has no such n-grams"],
    );
    let narrower = with("learnt_by = \"L_DM\"\nset = { \"decode.draft_weights\" = \"int4\" }");
    let words = "x.toml:15: decode.draft_weights: arm `b`: it drafts with the engine of `L_DM`; must be \"f32\"";
    says(&narrower, &[words]);
    let costs = with("learnt_by = \"L_DM\"\nset = { \"decode.costs.round\" = 2.0 }");
    says(&costs, &["it decides by the costs of `L_DM`"]);
    let lookup = with("learnt_by = \"L_DM\"\nset = { \"decode.draft\" = \"prompt-lookup\" }");
    says(&lookup, &["it has no drafter to borrow"]);
}

#[test]
fn what_a_padded_drafter_cannot_learn_is_refused() {
    let with = |stream: bool, set: &str| {
        format!(
            "[models]\npad_stream = {stream}\ndrafter = {{ path = \"d\", pad_width = 2 }}\n\
             [[arm]]\npreset = \"L_DM\"\nset = {{ {set} }}\n"
        )
    };
    let blocks = refused(&with(false, "\"learn.blocks\" = 1"));
    says(&blocks, &["drafter is padded", "must be 0 instead of 1"]);
    let within = with(true, "\"learn.within\" = 8");
    says(
        &refused(&within),
        &["padded on the stream", "must be 0 instead of 8"],
    );
    assert_eq!(
        arms(&with(false, "\"learn.within\" = 8"))[0].learn.within,
        8
    );
}

#[test]
fn parts_that_do_not_fit_are_refused() {
    let with = |set: &str| refused(&format!("[[arm]]\nname = \"a\"\nset = {{ {set} }}\n"));
    says(
        &with("\"cache.use\" = \"online\""),
        &["x.toml:10: cache.use: arm `a`: verify = \"tli\" does not merge"],
    );
    says(
        &with("\"decode.policy\" = \"head\""),
        &["decode.policy", "head.training is \"none\""],
    );
    says(
        &with("\"decode.policy\" = \"throughput\""),
        &["decode.policy", "acceptance head"],
    );
    says(
        &with("\"head.training\" = \"offline\""),
        &["head.training", "needs head.path"],
    );
    says(
        &with(
            "\"head.training\" = \"interleaved\", \"learn.objective\" = \"hybrid\", \"learn.every\" = 1",
        ),
        &["head.training", "learn.every = 2"],
    );
    says(
        &with("\"decode.verify\" = \"slem\", \"learn.objective\" = \"hybrid\""),
        &["slem has no direct positions"],
    );
    says(
        &with(
            "\"learn.objective\" = \"hybrid\", \"learn.direct\" = \"none\", \"learn.ngram\" = \"none\"",
        ),
        &["nothing to learn from"],
    );
    says(
        &with("\"decode.draft\" = \"prompt-lookup\", \"learn.objective\" = \"hybrid\""),
        &["prompt-lookup has no drafter that could learn"],
    );
    says(
        &with("\"decode.draft\" = \"prompt-lookup\", \"head.training\" = \"joint\""),
        &["prompt-lookup has no drafter whose state"],
    );
    says(
        &with(
            "\"decode.verify\" = \"none\", \"cache.use\" = \"static\", \"learn.objective\" = \"alm\"",
        ),
        &[
            "cache.use: arm `a`",
            "learn.objective: arm `a`",
            "plain decoding",
        ],
    );
    says(
        &with("\"decode.verify\" = \"prompt-lookup\""),
        &[
            "decode.verify: unknown variant `prompt-lookup`, expected one of `paper`",
            "`slem`, `none`",
        ],
    );
}

#[test]
fn numbers_out_of_range_are_told_once_with_their_line() {
    let sections = "[decode]\nk = 65\nthreshold = 2\ngamma = -1\ntemperature = -1\n\
        top_p = 0\nmax_new_tokens = 0\nthreads = 0\n[decode.costs]\ndraft = [2, 1]\n\
        [learn]\nevery = 0\nlr = -1\nlambda = -1\ntau = 0\nema = 1\nreplay = 65\n\
        [learn.lora]\nrank = 1\nalpha = 0\nprojections = []\n\
        [head]\nsteps = 0\n";
    let text = refused(&format!(
        "[[arm]]\npreset = \"L_DM\"\n[[arm]]\npreset = \"SpD_DM\"\n{sections}"
    ));
    let keys = [
        "decode.k",
        "decode.threshold",
        "decode.gamma",
        "decode.temperature",
        "decode.max_new_tokens",
        "decode.threads",
        "decode.costs",
        "learn.every",
        "learn.lr",
        "learn.lambda",
        "learn.tau",
        "learn.ema",
        "learn.replay",
        "learn.lora.alpha",
        "learn.lora.projections",
        "head.steps",
    ];
    for key in keys {
        let told = text
            .lines()
            .filter(|line| line.contains(&format!(": {key}: ")))
            .count();
        assert_eq!(told, 1, "{key} in\n{text}");
    }
    says(&text, &["x.toml:13: decode.k: 65 is outside 1..=64"]);
}

#[test]
fn arms_of_a_cell_share_how_tokens_are_drawn() {
    for (key, value) in [
        ("temperature", "1.0"),
        ("top_k", "3"),
        ("top_p", "0.5"),
        ("min_p", "0.5"),
        ("repetition_penalty", "1.5"),
        ("max_new_tokens", "3"),
        ("weights", "\"int8\""),
        ("threads", "2"),
    ] {
        let text = refused(&format!(
            "[[arm]]\npreset = \"SpD_DM\"\n[[arm]]\npreset = \"L_DM\"\nset = {{ \"decode.{key}\" = {value} }}\n"
        ));
        says(
            &text,
            &[
                &format!("x.toml:12: decode.{key}: arm `L_DM` has"),
                "axis of the grid",
            ],
        );
    }
    // All other settings are their own.
    let own =
        "[[arm]]\npreset = \"SpD_DM\"\n[[arm]]\npreset = \"L_DM\"\nset = { \"decode.k\" = 9 }\n";
    assert_eq!(arms(own)[1].decode.k, 9);
}

#[test]
fn learning_is_switched_by_the_objective() {
    let own = arms(
        "[[arm]]\nname = \"a\"\nset = { \"learn.objective\" = \"alm\" }\n[[arm]]\nname = \"b\"\n",
    );
    assert_eq!(own[0].learn.objective, ObjectiveName::Alm);
    assert!(own[0].learns() && !own[1].learns());
}
