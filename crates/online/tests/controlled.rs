//! Arms under a controller: their text does not change, and their knowledge survives.

use crate::{support, tail};

use std::collections::BTreeMap;

use adaptive_draft::{Controller, ControllerConfig, RoundCost, Way};
use distill_loss::{Chunk, Example, TeacherRow};
use experiment::JobConfig;
use lm::{EngineSettings, LanguageModel, WeightType};
use models::Engine;
use ngram_cache::CacheConfig;
use online::{ArmState, DraftingArm, OnlineError, Question, SavedState, StateFolder, Wanted};
use results::{CellReader, PromptRow};
use spec_decode::{Pair, Prompt, SessionConfig, StreamName, VerifyMode, argmax};
use support::{Lab, Run, execute, models, models_table};
use vocab_align::{DraftId, TargetId};

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
        .find(|job| job.config.stage == stage)
        .unwrap()
        .config
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
    // The seconds of every update are in the row of the answer before it, those before a checkpoint
    // and at the end included.
    let rows = run.prompts("stream");
    let updates = run.cell("stream").updates().unwrap();
    let late = updates.iter().filter(|update| update.arm == UNCONTROLLED);
    let mut seen = Vec::new();
    for update in late {
        let mut own = rows.iter().filter(|row| row.arm == UNCONTROLLED);
        let last = own.find(|row| row.prompt_index + 1 == update.prompts_seen);
        let charged = last.unwrap().learn_s;
        assert!(charged >= update.seconds, "{charged} s, {update:?}");
        seen.push(update.prompts_seen);
    }
    assert_eq!(seen, [16, 32, STREAMED as u32]);
    let charged = rows.iter().filter(|row| row.arm == "learns");
    let charged: f64 = charged.map(|row| row.learn_s).sum();
    let learnt = updates.iter().filter(|update| update.arm == "learns");
    let learnt: f64 = learnt.map(|update| update.seconds).sum();
    assert!(charged >= learnt, "{charged} s, {learnt} s");
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

/// A controller under which drafts have always lost much.
fn at_rest() -> Controller {
    let mut controller = Controller::new(ControllerConfig {
        learns: false,
        frozen: false,
        ..ControllerConfig::default()
    });
    controller.turn_to("L", "mini-math");
    for _ in 0..40 {
        let mut answer = controller.open();
        for _ in 0..40 {
            let k = if answer.speculates() { 4 } else { 0 };
            answer.observe(&RoundCost {
                positions: 1 + k,
                drafted: k,
                tokens: 1,
                draft: 0.1 * k as f64,
                rest: 1e-3,
            });
        }
        controller.close(answer, 1);
    }
    assert_eq!(controller.open_held_out().way(), Way::Plain);
    controller
}

/// Judging a block draws one number more than plain decoding does.
#[test]
fn an_answer_at_rest_has_the_tokens_of_plain_decoding_above_temperature_0() {
    let lab = Lab::new();
    let models_table = models_table(&[("L", "L-small")]);
    let text = format!(
        "name = \"rests\"\n{models_table}[grid]\ntask = [\"mini-math\"]\n\
         [stage.stream]\nexclusive = true\non_stream = \"all\"\nprompts = {{ train = 4 }}\n\
         [decode]\nmax_new_tokens = 24\ntemperature = 0.8\n\
         [[arm]]\npreset = \"autoregressive\"\n[[arm]]\nname = \"rests\"\npreset = \"SpD_DM\"\n\
         set = {{ \"decode.controller\" = true, \"decode.acceptance\" = \"block\" }}\n"
    );
    let (start, drafter) = (lab.path("start"), models().join("D"));
    let state = SavedState::folder_of(&start.join("state"), "rests");
    let wanted = Wanted {
        drafter: &drafter,
        part: None,
        pairs: &[],
        caches: CacheConfig::default(),
        text_bytes: 1 << 20,
        texts: |_| true,
    };
    let (mut folder, _) = StateFolder::open(&state, &wanted).unwrap();
    let known = ArmState {
        controller: Some(at_rest()),
        ..ArmState::default()
    };
    let written = folder.write(&known, &[], u64::MAX, |_| Ok::<_, OnlineError>(()));
    written.unwrap();
    drop(folder);

    let plan = lab.load(&text).unwrap();
    let out = lab.path("out");
    execute(&plan.jobs[0].config, &out, Some(&start)).unwrap();
    let rows = CellReader::open(&out).unwrap().prompts().unwrap();
    let of = |arm: &str| -> Vec<(Option<&str>, &str)> {
        let own = rows.iter().filter(|row| row.arm == arm);
        own.map(|row| (row.way.as_deref(), row.tokens_hash.as_str()))
            .collect()
    };
    let plain = of("autoregressive").into_iter();
    let plain: Vec<_> = plain.map(|(_, tokens)| (Some("plain"), tokens)).collect();
    assert_eq!(plain.len(), 4);
    assert_eq!(of("rests"), plain);
}

/// A job over so many prompts whose only arm learns under a controller, and where it is.
fn one_learns(prompts: usize, learn: &str) -> (Lab, JobConfig) {
    let lab = Lab::new();
    let models_table = models_table(&[("L", "L-small")]);
    let text = format!(
        "name = \"one\"\n{models_table}[grid]\ntask = [\"mini-math\"]\n\
         [stage.stream]\nexclusive = true\nprompts = {{ train = {prompts} }}\n\
         [decode]\ncontroller = true\n[learn]\n{learn}\n\
         [[arm]]\npreset = \"L_DM\"\n"
    );
    let mut plan = lab.load(&text).unwrap();
    (lab, plan.jobs.remove(0).config)
}

/// The one that ran beside decoding, and the one from the examples after it.
#[test]
fn both_updates_at_the_end_of_a_stream_are_charged() {
    let (lab, job) = one_learns(3, "every = 2\nasynchronous = true");
    let drafter = tail::folder();
    let mut arm = DraftingArm::new(&job.arms[0], &[], &drafter, None, &job).unwrap();
    arm.turn_to("L", "mini-math").unwrap();
    let mut engine = tail::engine(0);
    // The third one comes while the others are learnt from.
    let examples = [0, 1, 2].map(|seed| tail::example(seed, &mut engine));
    let mut updates = Vec::new();
    for example in examples {
        updates.extend(arm.learn(example).unwrap());
    }
    updates.extend(arm.flush().unwrap());
    assert_eq!(updates.len(), 2);
    let state = lab.path("state");
    arm.save(&state, &drafter.path, &[]).unwrap();
    let saved = SavedState::of_arm(&state).unwrap();
    let ledger = saved.known().controller.as_ref().unwrap().ledger();
    assert_eq!(ledger.updates, 2);
    let seconds: f64 = updates.iter().map(|update| update.seconds).sum();
    assert!(ledger.learning >= seconds);
}

/// A text that a drafter writes by itself, as an example.
fn own_text(engine: &mut Engine) -> Example {
    let (mut ids, mut logits) = (vec![300], Vec::new());
    let columns = engine.vocab_size();
    while ids.len() < 16 {
        engine.truncate(0);
        engine.forward(&ids, &mut logits).unwrap();
        let row = &logits[logits.len() - columns..];
        ids.push(argmax(row).unwrap() as u32);
    }
    let chunk = |i: usize| {
        let law = (0..columns as u32).map(|c| if c == ids[i] { -0.1 } else { -9.1 });
        Chunk {
            law: Some(TeacherRow::new(law)),
            log_prob: -0.1,
            draft: i..i + 1,
            targets: 1,
            own: None,
            special: false,
        }
    };
    Example {
        chunks: (1..ids.len()).map(chunk).collect(),
        shared: (0..columns as u32).collect(),
        ids: ids.clone(),
        ..Example::default()
    }
}

/// The weights are exchanged for the time of an answer with the first ones.
#[test]
fn after_an_answer_that_fails_the_first_weights_are_still_the_first() {
    let (_lab, job) = one_learns(1, "every = 1\nlr = 0.1\nblocks = 1");
    let drafter = tail::folder();
    let mut arm = DraftingArm::new(&job.arms[0], &[], &drafter, None, &job).unwrap();
    arm.turn_to("L", "mini-math").unwrap();
    let mut engine = tail::engine(0);
    // At this rate the first update spoils what the drafter knew.
    arm.learn(tail::example(0, &mut engine)).unwrap();
    let update = arm.learn(own_text(&mut engine)).unwrap().unwrap();
    let agreed = update.agreed.unwrap();
    assert!(agreed.learner < agreed.frozen, "{agreed:?}");

    let pair = Pair::shared(drafter.vocabulary.retag());
    let session = SessionConfig::new(VerifyMode::Tli, 8);
    let ids = tail::example(1, &mut engine).ids;
    let mut drafts = |from: usize, context: Option<usize>| {
        let prompt = || ids[from..from + 6].iter().copied();
        let draft: Vec<DraftId> = prompt().map(DraftId).collect();
        let target: Vec<TargetId> = prompt().map(TargetId).collect();
        let question = Question {
            pair: &pair,
            session: &session,
            prompt: Prompt {
                draft: &draft,
                target: &target,
            },
            name: StreamName::new(1, 0),
            streamed: false,
            padded: false,
        };
        let settings = EngineSettings {
            context,
            ..EngineSettings::new(WeightType::F32, 1)
        };
        let mut target = drafter.engine(settings).unwrap();
        let answered = arm.answer(&job.arms[0], &mut target, &question)?;
        // The first one: a later round may rest, by the clock.
        let mut rounds = answered.generation.rounds.into_iter();
        Ok::<_, OnlineError>(rounds.next().map(|round| round.draft))
    };
    let prompts = [0, 6, 12];
    let first = prompts.map(|from| drafts(from, None).unwrap());
    // The prompt is longer than this target's cache.
    assert!(drafts(0, Some(4)).is_err());
    assert_eq!(prompts.map(|from| drafts(from, None).unwrap()), first);
}
