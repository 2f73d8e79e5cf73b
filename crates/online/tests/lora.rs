//! Learning with adapters, on a thread of its own, and across restarts.

use crate::support;

use std::path::{Path, PathBuf};

use distill_loss::Example;
use experiment::{LearnConfig, LoraSettings, ObjectiveName, Scope};
use online::{Learner, Learnt, LearntWeights, SavedState};
use results::Split;
use support::{Lab, Run, drafter, execute, learner, models_table};

fn example(seed: u32) -> Example {
    support::example(seed, (4..16).map(|i| (i..i + 1, 1)))
}

fn settings(rank: usize, asynchronous: bool) -> LearnConfig {
    LearnConfig {
        objective: ObjectiveName::Hybrid,
        every: 2,
        lr: 5e-3,
        asynchronous,
        lora: LoraSettings {
            rank,
            alpha: 8.0,
            ..LoraSettings::default()
        },
        ..LearnConfig::default()
    }
}

/// Pushes examples and flushes: all updates and the last weights.
fn study(learner: &mut Learner, examples: impl Iterator<Item = u32>) -> (Vec<f64>, LearntWeights) {
    let mut done: Vec<Learnt> = Vec::new();
    for seed in examples {
        done.extend(learner.push(example(seed)).unwrap());
    }
    done.extend(learner.flush().unwrap());
    let weights = done.last().unwrap().1.clone();
    (
        done.iter().map(|(update, _)| update.loss).collect(),
        weights,
    )
}

#[test]
fn every_adapter_goes_on_where_it_was_left() {
    for rank in [4, 32] {
        let fresh = || learner(settings(rank, false), 1).unwrap();
        let mut both = fresh();
        assert!(both.turn_to("L").unwrap());
        let (_, after_l) = study(&mut both, 0..10);
        assert!(both.turn_to("Q").unwrap());
        assert_eq!(both.weights().unwrap(), LearntWeights::Whole(drafter()));
        let (_, after_q) = study(&mut both, 20..26);
        assert_ne!(after_q, after_l);
        assert!(both.turn_to("L").unwrap());
        assert!(!both.turn_to("L").unwrap());
        assert_eq!(both.weights().unwrap(), after_l);
        let (later, _) = study(&mut both, 10..16);

        let mut alone = fresh();
        alone.turn_to("L").unwrap();
        let (losses, _) = study(&mut alone, 0..16);
        assert_eq!(losses[5..], later);
        assert!(later[2] < losses[0]);
    }
}

#[test]
fn without_adapters_there_is_one_drafter_for_all() {
    let mut learner = learner(settings(0, false), 1).unwrap();
    let (_, weights) = study(&mut learner, 0..4);
    assert!(!learner.turn_to("Q").unwrap());
    assert_eq!(learner.weights().unwrap(), weights);
    learner.push(example(9)).unwrap();
    assert!(learner.turn_to("L").is_err());
}

#[test]
fn weights_given_back_are_written_over() {
    for rank in [0, 4] {
        let run = |give_back: bool| {
            let mut learner = learner(settings(rank, false), 1).unwrap();
            let mut all = Vec::new();
            for seed in 0..8 {
                if let Some((_, weights)) = learner.push(example(seed)).unwrap() {
                    all.push(weights.clone());
                    if give_back {
                        learner.give_back(weights);
                    }
                }
            }
            all
        };
        assert_eq!(run(true), run(false));
    }
}

/// Examples that do not depend on the weights give the same updates on any thread.
#[test]
fn a_thread_of_its_own_learns_the_same() {
    for rank in [0, 4] {
        let run = |asynchronous| {
            let mut learner = learner(settings(rank, asynchronous), 1).unwrap();
            let studied = study(&mut learner, 0..21);
            assert_eq!(learner.weights().unwrap(), studied.1);
            studied
        };
        let (losses, weights) = run(true);
        assert_eq!(losses.len(), 11);
        assert_eq!((losses, weights), run(false));
    }
}

#[test]
fn errors_of_another_thread_surface() {
    let wild = LearnConfig {
        lr: 1e30,
        ..settings(0, true)
    };
    let mut learner = learner(wild, 1).unwrap();
    let mut pushed = (0..20).map(|seed| learner.push(example(seed)));
    let error = pushed.find_map(Result::err).expect("weights that overflow");
    let message = format!("{error:#}");
    assert!(
        message.contains("loss") || message.contains("norm"),
        "{message}"
    );
}

#[test]
fn what_was_learnt_survives_a_restart() {
    for rank in [0, 4] {
        let folder = tempfile::tempdir().unwrap();
        let fresh = || learner(settings(rank, false), 1).unwrap();
        let mut whole = fresh();
        whole.turn_to("L/task: 1").unwrap();
        study(&mut whole, 0..6);
        whole.turn_to("Q").unwrap();
        study(&mut whole, 6..10);
        whole.save(folder.path(), "models/D").unwrap();

        let mut restarted = fresh();
        restarted.load(folder.path()).unwrap();
        for name in ["L/task: 1", "Q"] {
            whole.turn_to(name).unwrap();
            restarted.turn_to(name).unwrap();
            assert_eq!(restarted.weights().unwrap(), whole.weights().unwrap());
            let more = |learner: &mut Learner| study(learner, 30..34);
            assert_eq!(more(&mut restarted), more(&mut whole));
        }
        let mut other = learner(settings(if rank == 0 { 4 } else { 0 }, false), 1);
        assert!(other.as_mut().unwrap().load(folder.path()).is_err());
    }
}

/// The adapter of a whole run has no name, like the one that training begins with.
#[test]
fn an_adapter_without_a_name_survives_restarts() {
    for ema in [0.0, 0.9] {
        let config = LearnConfig {
            ema,
            ..settings(4, false)
        };
        let folder = tempfile::tempdir().unwrap();
        let [first, second] = ["first", "second"].map(|name| folder.path().join(name));
        let mut whole = learner(config, 1).unwrap();
        study(&mut whole, 0..6);
        whole.save(&first, "models/D").unwrap();
        let learnt = whole.weights().unwrap();

        let restarted = |from: &Path| {
            let mut restarted = learner(config, 1).unwrap();
            restarted.load(from).unwrap();
            assert!(!restarted.turn_to("").unwrap());
            assert_eq!(restarted.weights().unwrap(), learnt);
            restarted
        };
        let mut once = restarted(&first);
        once.save(&second, "models/D").unwrap();
        let twice = restarted(&second);
        let more = study(&mut whole, 30..34);
        for mut restarted in [once, twice] {
            assert_eq!(study(&mut restarted, 30..34), more);
        }
    }
}

#[test]
fn keys_name_what_has_an_adapter() {
    let named = |per, rank| {
        let settings = LoraSettings {
            per,
            rank,
            ..LoraSettings::default()
        };
        settings.key("L", "gsm8k")
    };
    assert_eq!(named(Scope::Target, 8), "L");
    assert_eq!(named(Scope::Task, 8), "L/gsm8k");
    assert_eq!(named(Scope::Run, 8), "");
    assert_eq!(named(Scope::Task, 0), "");
}

/// A drift stream over `segments`, greedy; `rest` is appended to `[learn]`.
fn text(segments: &[(&str, usize, usize)], stages: &str, rest: &str) -> String {
    let models = models_table(&[("L", "L-small"), ("Q", "Q")]);
    let segment = |(target, train, test): &(&str, usize, usize)| {
        format!(
            "[[segment]]\ntask = \"mini-math\"\ntarget = \"{target}\"\n\
             prompts = {{ train = {train}, test = {test} }}\n"
        )
    };
    let segments: String = segments.iter().map(segment).collect();
    format!(
        r#"
name = "lora"
{models}
{segments}
{stages}
[decode]
temperature = 0.0
max_new_tokens = 24
[[arm]]
preset = "autoregressive"
[[arm]]
name = "own"
preset = "L_DM+L_N-gram"
set = {{ "learn.lora.rank" = 8 }}
[[arm]]
name = "all"
preset = "L_DM+L_N-gram"
[learn]
every = 4
lr = 5e-3
{rest}
"#
    )
}

/// One stage: every segment's stream, then its held-out prompts.
const STREAM: &str = "[stage.stream]\nprompts = { train = 99, test = 99 }\n";
/// A second one, with held-out prompts alone.
const LATER: &str = "[stage.later]\nfrom = \"stream\"\nprompts = { test = 99 }\n";

/// Numbers of drafted and accepted tokens on held-out prompts of a segment, by prompt.
fn held_out(run: &Run, stage: &str, arm: &str, segment: u32) -> Vec<(u32, u32, u32)> {
    let rows = run.prompts(stage).into_iter();
    let own =
        rows.filter(|row| row.arm == arm && row.segment == segment && row.split == Split::Test);
    own.map(|r| (r.rounds, r.proposed, r.accepted)).collect()
}

/// Folder of the only job of a stage.
fn folder_of(run: &Run, stage: &str) -> PathBuf {
    let job = run.plan.jobs.iter().find(|job| job.config.stage == stage);
    run.root.join(stage).join(&job.unwrap().config.cell)
}

/// Files of n-grams of all arms of a job.
fn ngrams(job: &Path) -> Vec<PathBuf> {
    let arms = SavedState::of_job(&job.join("state")).unwrap();
    let files = arms.iter().flat_map(|arm| arm.files().unwrap());
    files
        .filter(|path| path.extension().is_some_and(|end| end == "bin"))
        .collect()
}

#[test]
fn a_target_finds_its_adapter_and_its_cache_again() {
    let lab = Lab::new();
    let segments = [("L", 24, 6), ("Q", 24, 6), ("L", 0, 6)];
    let run = lab.run("out", &text(&segments, &format!("{STREAM}{LATER}"), ""));
    let own = held_out(&run, "stream", "own", 0);
    assert_eq!(own.len(), 6);
    assert_eq!(own, held_out(&run, "stream", "own", 2));
    let all = |segment| held_out(&run, "stream", "all", segment);
    assert_ne!(all(0), all(2));

    // Another job continues from the files.
    assert_eq!(held_out(&run, "later", "own", 0), own);
    assert_eq!(
        held_out(&run, "later", "own", 1),
        held_out(&run, "stream", "own", 1)
    );
    assert_eq!(held_out(&run, "later", "all", 0), all(2));
    assert_eq!(held_out(&run, "later", "all", 2), all(2));
}

#[test]
fn a_later_stage_finds_the_adapter_of_a_whole_run() {
    let lab = Lab::new();
    let per_run = "\"learn.lora.rank\" = 8, \"learn.lora.per\" = \"run\"";
    let text = text(&[("L", 12, 6)], &format!("{STREAM}{LATER}"), "")
        .replace("\"learn.lora.rank\" = 8", per_run);
    let run = lab.run("out", &text);
    let own = held_out(&run, "stream", "own", 0);
    assert_eq!(held_out(&run, "later", "own", 0), own);
    let state = folder_of(&run, "stream").join("state");
    let saved = SavedState::of_arm(&SavedState::folder_of(&state, "own")).unwrap();
    assert_eq!(saved.names().unwrap(), [""]);
}

#[test]
fn adapters_are_packed_as_the_drafter_decodes() {
    let segments = [("L", 8, 3), ("Q", 8, 3), ("L", 0, 3)];
    let drafted = |more: &str| {
        let lab = Lab::new();
        let with = format!("\"learn.lora.rank\" = 8, {more}");
        let text = text(&segments, &format!("{STREAM}{LATER}"), "")
            .replace("\"learn.lora.rank\" = 8", &with);
        let run = lab.run("out", &text);
        let own = held_out(&run, "stream", "own", 0);
        assert_eq!(own, held_out(&run, "stream", "own", 2), "{more}");
        assert_eq!(own, held_out(&run, "later", "own", 0), "{more}");
        (own, held_out(&run, "stream", "own", 1))
    };
    let int4 = "\"decode.draft_weights\" = \"int4\"";
    drafted(int4);
    let last = drafted(&format!("{int4}, \"learn.blocks\" = 1"));
    // Adapters of one block draft differently from adapters of all blocks.
    assert_ne!(last, drafted("\"learn.blocks\" = 2"));
}

#[test]
fn n_grams_are_kept_over_a_switch_or_dropped() {
    let lab = Lab::new();
    let segments = [("L", 12, 0), ("Q", 6, 0), ("L", 1, 0)];
    let arms = "[[arm]]\nname = \"kept\"\npreset = \"N-gram_pp\"\n[[arm]]\nname = \"dropped\"\n\
        preset = \"N-gram_pp\"\nset = { \"cache.keep\" = false }\n";
    let run = lab.run("out", &format!("{}{arms}", text(&segments, STREAM, "")));
    let cached = |arm: &str, segment: u32| -> Vec<u32> {
        let rows = run.prompts("stream").into_iter();
        let own = rows.filter(|row| row.arm == arm && row.segment == segment);
        own.map(|row| row.cache_ngrams).collect()
    };
    for segment in [0, 1] {
        assert_eq!(cached("kept", segment), cached("dropped", segment));
    }
    assert!(cached("kept", 2) >= cached("kept", 0)[11..].to_vec());
    assert!(cached("dropped", 2)[0] <= cached("kept", 0)[2]);
}

#[test]
fn a_stage_streams_a_segment_as_if_the_others_had_been() {
    let lab = Lab::new();
    let stages =
        format!("{STREAM}[stage.alone]\nsegments = [2]\nprompts = {{ train = 99, test = 99 }}\n");
    let run = lab.run("out", &text(&[("L", 6, 0), ("L", 4, 2)], &stages, ""));
    let prompts = |stage: &str, segment: u32| -> Vec<String> {
        let rows = run.prompts(stage).into_iter();
        let own = rows.filter(|row| row.arm == "all" && row.segment == segment);
        own.map(|row| row.prompt_id).collect()
    };
    assert_eq!(prompts("alone", 0).len(), 6);
    assert_eq!(prompts("alone", 0), prompts("stream", 1));
}

#[test]
fn cells_of_a_grid_keep_what_they_learnt_apart() {
    let lab = Lab::new();
    let stages = "[grid]\ntask = \"mini-math\"\ntarget = [\"L\", \"Q\"]\n\
         [stage.stream]\nprompts = { train = 14, test = 4 }\n\
         [stage.later]\nfrom = \"stream\"\nprompts = { test = 4 }\n";
    // The running mean is decoded with.
    let run = lab.run("out", &text(&[], stages, "ema = 0.8\nreplay = 2"));
    let held_out = |stage: &str, target: &str, arm: &str| {
        let rows = run.prompts(stage).into_iter();
        let own =
            rows.filter(|row| row.arm == arm && row.target == target && row.split == Split::Test);
        own.map(|r| (r.rounds, r.proposed, r.accepted))
            .collect::<Vec<_>>()
    };
    for arm in ["own", "all"] {
        let (l, q) = (held_out("stream", "L", arm), held_out("stream", "Q", arm));
        assert_eq!(l.len(), 4);
        assert_ne!(l, q);
        assert_eq!(held_out("later", "L", arm), l, "{arm}");
        assert_eq!(held_out("later", "Q", arm), q, "{arm}");
    }
}

#[test]
fn an_asynchronous_run_records_every_update() {
    let lab = Lab::new();
    let segments = [("L", 14, 2)];
    let run = lab.run("out", &text(&segments, STREAM, "asynchronous = true"));
    let updates = run.cell("stream").updates().unwrap();
    for arm in ["own", "all"] {
        let own: Vec<_> = updates.iter().filter(|row| row.arm == arm).collect();
        let numbers: Vec<u32> = own.iter().map(|row| row.update).collect();
        assert_eq!(numbers, [0, 1, 2, 3], "{arm}");
        assert_eq!(own[3].prompts_seen, 14);
    }
    // The target's tokens do not depend on the drafter's learning.
    let rows = run.prompts("stream");
    let tokens = |arm: &str| -> Vec<_> {
        let own = rows.iter().filter(|row| row.arm == arm);
        let held_out = own.filter(|row| row.split == Split::Test);
        held_out.map(|row| row.tokens_hash.as_str()).collect()
    };
    assert_eq!(tokens("own"), tokens("autoregressive"));
    assert_eq!(tokens("all"), tokens("autoregressive"));
}

#[test]
fn a_rank_without_room_is_refused_before_anything_is_written() {
    let lab = Lab::new();
    let wide = text(&[("L", 4, 0)], STREAM, "")
        .replace("\"learn.lora.rank\" = 8", "\"learn.lora.rank\" = 129");
    let plan = lab.load(&wide).unwrap();
    let out = lab.path("x");
    let error = execute(&plan.jobs[0].config, &out, None).unwrap_err();
    let message = format!("{error:#}");
    assert!(
        message.contains("learn.lora.rank of a run): a LoRA rank of 129 is outside 1..=128"),
        "{message}"
    );
    assert!(!out.join("prompts.parquet").exists());
}

/// The padded drafter needs weights that the learner, which is already at the next update, cannot
/// provide.
#[test]
fn an_update_after_every_prompt_leaves_padded_models_their_weights() {
    let lab = Lab::new();
    let models = support::models();
    let padded = format!(
        "name = \"padded\"\n[models]\npad_stream = true\n\
         drafter = {{ path = \"{0}/D\", pad_width = 32 }}\n\
         targets.t = {{ path = \"{0}/L-small\", pad_width = 32 }}\n\
         [grid]\ntask = \"mini-math\"\n[stage.stream]\nprompts = {{ train = 6, test = 2 }}\n\
         [decode]\ntemperature = 0.0\nmax_new_tokens = 12\n\
         [learn]\nevery = 1\nasynchronous = true\n[[arm]]\npreset = \"L_DM\"\n",
        models.display()
    );
    let run = lab.run("out", &padded);
    assert_eq!(run.prompts("stream").len(), 8);
    assert_eq!(run.cell("stream").updates().unwrap().len(), 6);
}

#[test]
fn n_grams_of_other_vocabularies_are_not_passed_over() {
    let lab = Lab::new();
    let stages = "[grid]\ntask = \"mini-math\"\ntarget = [\"L\"]\n\
         [stage.stream]\nprompts = { train = 4 }\n\
         [stage.later]\nfrom = \"stream\"\nprompts = { test = 1 }\n";
    let run = lab.run("out", &text(&[], stages, ""));
    let (later, start) = (&run.plan.jobs[1], folder_of(&run, "stream"));
    let again = |out: &str| execute(&later.config, &lab.path(out), Some(&start));
    let files = ngrams(&start);
    assert_eq!(files.len(), 2);
    again("right").unwrap();
    // The name of a file for another target.
    let name = files[0].file_name().unwrap().to_string_lossy().into_owned();
    let last = if name.ends_with("0.bin") {
        "1.bin"
    } else {
        "0.bin"
    };
    let other = files[0].with_file_name(format!("{}{last}", &name[..name.len() - 5]));
    std::fs::rename(&files[0], &other).unwrap();
    let message = format!("{:#}", again("wrong").unwrap_err());
    assert!(
        message.contains("other vocabularies") && message.contains(&name),
        "{message}"
    );
    // The right name, but n-grams whose tokens do not spell their bytes.
    let mut cache = ngram_cache::NgramCache::load(&other).unwrap();
    let ids = [vocab_align::DraftId(300), vocab_align::DraftId(301)];
    cache.insert(&ids, vocab_align::TargetId(400));
    std::fs::remove_file(&other).unwrap();
    cache.save(&files[0]).unwrap();
    let message = format!("{:#}", again("spoilt").unwrap_err());
    assert!(message.contains(&name), "{message}");
}

#[test]
fn a_job_of_one_target_starts_where_two_have_learnt() {
    let lab = Lab::new();
    let stages = "[stage.stream]\nprompts = { train = 99 }\n\
         [stage.later]\nfrom = \"stream\"\nsegments = [1]\nprompts = { test = 99 }\n";
    let run = lab.run("out", &text(&[("L", 4, 1), ("Q", 4, 0)], stages, ""));
    assert_eq!(held_out(&run, "later", "all", 0).len(), 1);
    let (later, start) = (&run.plan.jobs[1], folder_of(&run, "stream"));
    let files = ngrams(&start);
    // Of two arms with two targets.
    assert_eq!(files.len(), 4);
    let mut refused = 0;
    for (number, file) in files.iter().enumerate() {
        let aside = lab.path("aside");
        std::fs::rename(file, &aside).unwrap();
        let out = lab.path(&format!("without-{number}"));
        if let Err(error) = execute(&later.config, &out, Some(&start)) {
            let message = format!("{error:#}");
            assert!(message.contains("other vocabularies"), "{message}");
            refused += 1;
        }
        std::fs::rename(&aside, file).unwrap();
    }
    // Those of the target that the job has.
    assert_eq!(refused, 2);
}
