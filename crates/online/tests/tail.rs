//! Learning in the last blocks alone, from the states that decoding computed.

use crate::support;

use distill_loss::{Chunk, Example, TeacherRow};
use experiment::{LearnConfig, ObjectiveName};
use lm::{Checkpoint, EngineSettings, LanguageModel, Tail, WeightType};
use models::{Engine, ModelFolder, Packed};
use online::{Learner, LearntWeights, OnlineError};
use results::{RoundRow, UpdateRow};
use support::{Lab, models, models_table};
use vocab_align::DraftId;

pub(crate) fn folder() -> ModelFolder<DraftId> {
    ModelFolder::load(&models().join("D")).unwrap()
}

fn drafter() -> Checkpoint {
    folder().checkpoint().unwrap()
}

/// A learner of the losses that `config` names.
fn learner(config: LearnConfig, seed: u64) -> Result<Learner, OnlineError> {
    Learner::new(&drafter(), config, seed)
}

fn settings(blocks: usize) -> LearnConfig {
    LearnConfig {
        objective: ObjectiveName::Hybrid,
        every: 2,
        lr: 3e-3,
        replay: 2,
        replay_window: 8,
        ema: 0.5,
        blocks,
        ..LearnConfig::default()
    }
}

pub(crate) fn engine(blocks: usize) -> Engine {
    let settings = EngineSettings::new(WeightType::F32, 1);
    let mut engine = folder().engine(settings).unwrap();
    if blocks > 0 {
        engine.keep_states(blocks).unwrap();
    }
    engine
}

pub(crate) fn example(seed: u32, engine: &mut Engine) -> Example {
    let ids: Vec<u32> = (0..24)
        .map(|i| 300 + (seed * 7 + i * i * 3) % 900)
        .collect();
    let shared = (300..1200).collect();
    let chunk = |draft: std::ops::Range<usize>| {
        let law = (300..1200).map(|c| if c == ids[draft.start] { -0.1 } else { -9.1 });
        Chunk {
            law: (draft.len() == 1).then(|| TeacherRow::new(law)),
            log_prob: -0.3,
            draft,
            targets: 1,
            own: None,
            special: false,
        }
    };
    let mut chunks: Vec<Chunk> = (8..20).map(|i| chunk(i..i + 1)).collect();
    chunks.push(chunk(20..23));
    let mut example = Example {
        ids: ids.clone(),
        shared,
        chunks,
        ..Example::default()
    };
    assert_eq!(example.read(), &ids[..22]);
    if let Ok(states) = engine.states_of(example.read()) {
        example.states = states.to_vec();
    }
    example
}

/// The losses, and the final weights.
fn study(learner: &mut Learner, seeds: std::ops::Range<u32>) -> (Vec<f64>, LearntWeights) {
    let mut engine = engine(learner.needs().blocks);
    let mut losses = Vec::new();
    for seed in seeds {
        if let Some((update, weights)) = learner.push(example(seed, &mut engine)).unwrap() {
            losses.push(update.loss);
            weights.load_into(&mut engine).unwrap();
            learner.give_back(weights);
        }
    }
    (losses, learner.weights().unwrap())
}

#[test]
fn the_last_blocks_learn_and_nothing_else_moves() {
    let (losses, weights) = study(&mut learner(settings(1), 1).unwrap(), 0..24);
    assert!(losses[11] < 0.8 * losses[0], "{losses:?}");
    let LearntWeights::Tail(tail) = &weights else {
        panic!("all weights")
    };
    assert_eq!(tail.blocks(), 1);
    // The same examples begin at the same loss if all weights learn.
    let (of_all, all) = study(&mut learner(settings(0), 1).unwrap(), 0..24);
    assert!((of_all[0] - losses[0]).abs() < 1e-4 * losses[0]);
    assert!(matches!(all, LearntWeights::Whole(_)));

    // Weights packed by a server equal those that the engine loads.
    let options = EngineSettings::new(WeightType::Int8, 1);
    let packed = Packed::new(&drafter(), options).unwrap();
    let mut packed = packed.with_tail(tail, options).unwrap();
    let mut merged = drafter();
    tail.write_over(&mut merged).unwrap();
    let mut logits = [Vec::new(), Vec::new()];
    let mut one = folder().engine(options).unwrap();
    one.swap_weights(&mut packed).unwrap();
    let mut other = folder().engine_with(&merged, options).unwrap();
    one.forward(&[5, 6, 7], &mut logits[0]).unwrap();
    other.forward(&[5, 6, 7], &mut logits[1]).unwrap();
    assert_eq!(logits[0], logits[1]);
}

#[test]
fn it_goes_on_where_it_was_saved_and_refuses_another_cut() {
    // Examples to replay are not kept, so nothing is replayed.
    let config = |blocks| LearnConfig {
        replay: 0,
        ..settings(blocks)
    };
    let saved = tempfile::tempdir().unwrap();
    let mut whole = learner(config(1), 1).unwrap();
    study(&mut whole, 0..6);
    whole.save(saved.path(), "models/D").unwrap();
    let mut again = learner(config(1), 1).unwrap();
    again.load(saved.path()).unwrap();
    assert_eq!(again.weights().unwrap(), whole.weights().unwrap());
    assert_eq!(study(&mut again, 6..12), study(&mut whole, 6..12));

    for (blocks, named) in [(0, "all weights"), (2, "the last 2 blocks")] {
        let mut other = learner(config(blocks), 1).unwrap();
        let error = format!("{:#}", other.load(saved.path()).unwrap_err());
        for part in [
            "weights.safetensors",
            "holds the last block",
            named,
            "learn.blocks = 1",
        ] {
            assert!(error.contains(part), "{error}");
        }
        // Its own files are not mistaken for the last block's.
        let folder = tempfile::tempdir().unwrap();
        other.save(folder.path(), "models/D").unwrap();
        let error = format!("{:#}", again.load(folder.path()).unwrap_err());
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn an_update_that_fails_changes_nothing() {
    for blocks in [0, 1] {
        let config = LearnConfig {
            replay: 0,
            ..settings(blocks)
        };
        let mut hurt = learner(config, 1).unwrap();
        let mut well = learner(config, 1).unwrap();
        assert_eq!(study(&mut hurt, 0..4), study(&mut well, 0..4));
        let mut odd = example(9, &mut engine(blocks));
        odd.chunks[0].law = Some(TeacherRow::new((300..1200).map(|_| f32::NAN)));
        hurt.push(odd.clone()).unwrap();
        let error = hurt.push(odd).unwrap_err();
        assert!(matches!(error, OnlineError::Diverged(_)), "{error}");
        assert_eq!(study(&mut hurt, 4..8), study(&mut well, 4..8));
    }
}

/// The weights that are compared must be those that draft.
#[test]
fn where_a_running_mean_drafts_nothing_is_compared_with_the_first_weights() {
    let compared = |ema: f64| {
        let config = LearnConfig {
            every: 1,
            replay: 0,
            ema,
            ..settings(1)
        };
        let (mut learner, mut engine) = (learner(config, 1).unwrap(), engine(1));
        learner.push(example(0, &mut engine)).unwrap();
        let (update, _) = learner.push(example(1, &mut engine)).unwrap().unwrap();
        update.agreed.is_some()
    };
    assert_eq!([0.0, 0.5].map(compared), [true, false]);
}

#[test]
fn what_cannot_learn_is_refused() {
    let error = |blocks| {
        let made = learner(settings(blocks), 1);
        format!("{:#}", made.err().unwrap())
    };
    let told = error(9);
    assert!(
        told.starts_with("--learn-blocks (learn.blocks of a run)"),
        "{told}"
    );
    // An example of an engine that kept no states.
    let mut learner = learner(settings(1), 1).unwrap();
    let mut blind = engine(0);
    learner.push(example(0, &mut blind)).unwrap();
    let error = learner.push(example(1, &mut blind)).unwrap_err();
    assert!(error.to_string().contains("states"), "{error}");
    // Blocks of another model.
    let other = ModelFolder::<DraftId>::load(&models().join("L-small")).unwrap();
    let tail = Tail::of(&other.checkpoint().unwrap(), 1).unwrap();
    assert!(engine(1).load_tail(&tail).is_err());
}

/// A greedy stream: the same tokens as plain decoding, and more of them accepted than before
/// learning.
#[test]
fn an_arm_learns_by_its_last_block() {
    let lab = Lab::new();
    let text = format!(
        r#"
name = "tail"
{models}
[grid]
seed = [1]
target = ["L"]
task = ["mini-math"]
[stage.stream]
prompts = {{ train = 40 }}
[stage.held-out]
from = "stream"
prompts = {{ test = 10 }}
[decode]
temperature = 0.0
max_new_tokens = 32
[learn]
lr = 2e-3
every = 2
replay = 8
[[arm]]
preset = "autoregressive"
[[arm]]
name = "untaught"
preset = "N-gram_pp"
[[arm]]
name = "last block"
preset = "L_DM+L_N-gram"
set = {{ "learn.blocks" = 1, "learn.products" = "bf16", "learn.likely" = 1e-3, "learn.sampled" = 200 }}
"#,
        models = models_table(&[("L", "L-small")])
    );
    let run = lab.run("tail", &text);
    let answers = run.prompts("held-out");
    let of = |arm: &str| {
        answers
            .iter()
            .filter(|row| row.arm == arm)
            .collect::<Vec<_>>()
    };
    let plain = of("autoregressive");
    for arm in ["untaught", "last block"] {
        for (own, plain) in of(arm).iter().zip(&plain) {
            assert_eq!(own.answer, plain.answer, "{arm}");
        }
    }
    let rounds = |arm: &str| {
        let rows: Vec<RoundRow> = run.cell("held-out").rounds().unwrap();
        rows.iter().filter(|row| row.arm == arm).count()
    };
    let (before, after) = (rounds("untaught"), rounds("last block"));
    assert!(after * 20 < before * 19, "{after} rounds after {before}");
}

/// Parts of answers give the same training data as whole answers, each position once, and drafts
/// continue with the new weights.
#[test]
fn an_answer_is_learnt_from_before_it_ends() {
    let lab = Lab::new();
    let text = format!(
        r#"
name = "parts"
{models}
[grid]
task = ["mini-math"]
[stage.stream]
prompts = {{ train = 12 }}
[decode]
temperature = 0.0
max_new_tokens = 40
[learn]
every = 1
lr = 0.0
[[arm]]
preset = "autoregressive"
[[arm]]
name = "whole"
preset = "L_DM+L_N-gram"
[[arm]]
name = "parts"
preset = "L_DM+L_N-gram"
set = {{ "learn.within" = 10 }}
[[arm]]
name = "last block"
preset = "L_DM+L_N-gram"
set = {{ "learn.within" = 10, "learn.blocks" = 1 }}
[[arm]]
name = "it learns"
preset = "L_DM+L_N-gram"
set = {{ "learn.within" = 10, "learn.blocks" = 1, "learn.lr" = 2e-3 }}
"#,
        models = models_table(&[("L", "L-small")])
    );
    let run = lab.run(
        "parts",
        &text.replace("[stage.stream]\n", "[stage.stream]\non_stream = \"all\"\n"),
    );
    let updates = run.cell("stream").updates().unwrap();
    let of = |arm: &str| {
        updates
            .iter()
            .filter(|row| row.arm == arm)
            .collect::<Vec<_>>()
    };
    let positions = |arm: &str| -> (u32, u32) {
        let rows = of(arm);
        let sum = |count: fn(&UpdateRow) -> u32| rows.iter().map(|row| count(row)).sum();
        (sum(|row| row.dm_positions), sum(|row| row.ngram_tokens))
    };
    assert_eq!(of("whole").len(), 12);
    for arm in ["parts", "last block"] {
        assert!(of(arm).len() > 24, "{arm}: {} updates", of(arm).len());
        assert_eq!(positions(arm), positions("whole"), "{arm}");
        assert_eq!(of(arm).last().unwrap().prompts_seen, 12, "{arm}");
    }
    let rows = run.prompts("stream");
    let text = |arm: &str| -> Vec<String> {
        let rows = rows.iter().filter(|row| row.arm == arm);
        rows.map(|row| row.tokens_hash.clone()).collect()
    };
    let rounds = |arm: &str| -> u32 {
        rows.iter()
            .filter(|row| row.arm == arm)
            .map(|row| row.rounds)
            .sum()
    };
    for arm in ["whole", "parts", "last block", "it learns"] {
        assert_eq!(text(arm), text("autoregressive"), "{arm}");
    }
    assert_eq!(rounds("parts"), rounds("whole"));
    assert_ne!(rounds("it learns"), rounds("whole"));
}
