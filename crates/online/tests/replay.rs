//! A recorded target answers like the model that it was recorded from, round for round, and the
//! learnt state is bit-identical.

use crate::support;

use std::path::{Path, PathBuf};

use models::ModelFolder;
use results::{PromptRow, RoundRow};
use serde_json::Value;
use streams::{DataSource, Split, StreamSpec};
use support::{Lab, Run, files, models, models_table, timeless};
use trace::{
    DEFAULT_TAIL, FORMAT, Record, Source, Template, TraceFile, TraceInfo, TraceWriter, Values,
    file_sha256,
};
use vocab_align::{TargetId, TokenId};

const ANSWER: usize = 16;
const TRAIN: usize = 12;
const TEST: usize = 4;

/// All presets, and other arms that read the target's logits.
fn experiment(models: &str) -> String {
    let presets = [
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
    let mut arms: String = presets
        .iter()
        .map(|preset| format!("[[arm]]\npreset = \"{preset}\"\n"))
        .collect();
    for (name, set) in [
        ("forward", "\"learn.direct\" = \"forward-kl\""),
        ("LK", "\"learn.direct\" = \"log-acceptance\""),
        ("NLL", "\"learn.direct\" = \"nll\""),
        ("approximate", "\"learn.ngram\" = \"approximate-kl\""),
        ("alm", "\"learn.objective\" = \"alm\""),
    ] {
        arms +=
            &format!("[[arm]]\nname = \"{name}\"\npreset = \"L_DM+L_N-gram\"\nset = {{ {set} }}\n");
    }
    arms +=
        "[[arm]]\nname = \"slem\"\npreset = \"SpD_DM\"\nset = { \"decode.verify\" = \"slem\" }\n";
    format!(
        "name = \"replay\"\n{models}[grid]\ntask = \"mini-math\"\nseed = [3]\n\
         [stage.stream]\nprompts = {{ train = {TRAIN} }}\non_stream = \"all\"\n\
         [stage.held-out]\nfrom = \"stream\"\nprompts = {{ test = {TEST} }}\n\
         [decode]\ntemperature = 0.0\nmax_new_tokens = {ANSWER}\n\
         [learn]\nevery = 2\nlr = 2e-3\nreplay = 2\n{arms}"
    )
}

fn table(trace: &Path, model: &str) -> String {
    let folder = models();
    format!(
        "[models]\ndrafter = \"{0}/D\"\ntargets.T = {{ trace = \"{1}\", tokenizer = \"{0}/{model}\" }}\n",
        folder.display(),
        trace.display()
    )
}

/// Records both splits of the experiment's streams; the path contains `{split}`.
fn record(lab: &Lab, model: &str, top: Option<usize>) -> PathBuf {
    let folder = models().join(model);
    let target: ModelFolder<TargetId> = ModelFolder::load(&folder).unwrap();
    let config = target.config();
    let name = format!("{model}-{}-{{split}}.parquet", top.unwrap_or(0));
    for (split, limit) in [(Split::Train, TRAIN), (Split::Test, TEST)] {
        let info = TraceInfo {
            format: FORMAT,
            source: Source::Model {
                name: model.to_owned(),
                sha256: String::new(),
                weights: "f32".to_owned(),
            },
            task: "mini-math".to_owned(),
            split: split.name().to_owned(),
            tokenizer_sha256: file_sha256(&folder.join("tokenizer.json")).unwrap(),
            template: Template::Chat,
            max_prompt_tokens: target.template.max_prompt_tokens(),
            vocab_size: config.vocab_size,
            context: config.max_context(),
            stop: target.stop_tokens().iter().map(|id| id.get()).collect(),
            max_tokens: ANSWER,
            tail: DEFAULT_TAIL,
            top: top.unwrap_or(config.vocab_size),
            values: match top {
                Some(_) => Values::LogProbs,
                None => Values::Logits,
            },
            temperature: 0.0,
            program: "test".to_owned(),
        };
        let path = lab.path(&name.replace("{split}", split.name()));
        let mut writer = TraceWriter::open(&path, &info).unwrap();
        let settings = lm::EngineSettings {
            context: Some(target.context_for(ANSWER + DEFAULT_TAIL)),
            ..lm::EngineSettings::new(lm::WeightType::F32, 1)
        };
        let mut engine = target.engine(settings).unwrap();
        let spec = StreamSpec::new("mini-math", split).limit(limit).shuffled();
        for prompt in spec.load(&DataSource::embedded(), 3).unwrap() {
            let count = |r: &models::Rendered| target.encode(r).map(|ids| ids.len());
            let fitted = target.template.fit(&prompt.prompt, count).unwrap();
            let ids = target.encode(&fitted.rendered).unwrap();
            let prompt_ids: Vec<u32> = ids.iter().map(|id| id.get()).collect();
            let asked = (&*prompt.id, &*fitted.rendered.text, &*prompt_ids);
            let record = trace::answer(&mut engine, asked, &info).unwrap();
            writer.push(&record).unwrap();
        }
        writer.finish().unwrap();
    }
    lab.path(&name)
}

/// Every row of a run, table by table, of the arms selected by `keep`.
fn rows(run: &Run, keep: impl Fn(&str) -> bool) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for stage in ["stream", "held-out"] {
        let cell = run.cell(stage);
        all.push(timeless(&cell.prompts().unwrap()));
        all.push(timeless(&cell.rounds::<RoundRow>().unwrap()));
        all.push(timeless(&cell.updates().unwrap()));
        all.push(timeless(&cell.ngrams().unwrap()));
    }
    for table in &mut all {
        table.retain(|row| keep(row["arm"].as_str().unwrap()));
    }
    all
}

fn learns(arm: &str) -> bool {
    ![
        "autoregressive",
        "prompt-lookup",
        "stream-lookup",
        "automaton-lookup",
        "SpD_DM",
        "N-gram_pp",
        "static n-grams",
        "slem",
    ]
    .contains(&arm)
}

fn replays_bit_for_bit(model: &str) {
    let lab = Lab::new();
    let live = lab.run("live", &experiment(&models_table(&[("T", model)])));
    let whole = record(&lab, model, None);
    let replay = lab.run("whole", &experiment(&table(&whole, model)));
    let (a, b) = (rows(&live, |_| true), rows(&replay, |_| true));
    assert!(a.iter().any(|table| table.len() > TRAIN), "something ran");
    assert_eq!(a, b);
    // Weights, optimisers, caches: all files of the learnt state.
    let learnt = |run: &Run| {
        files(
            &run.root
                .join("stream")
                .join(&run.plan.jobs[0].config.cell)
                .join("state"),
        )
    };
    let (a, b) = (learnt(&live), learnt(&replay));
    assert!(
        a.keys().any(|name| name.ends_with("weights.safetensors")),
        "{:?}",
        a.keys()
    );
    assert!(a.keys().eq(b.keys()));
    let differ: Vec<_> = a.keys().filter(|name| a[*name] != b[*name]).collect();
    assert!(differ.is_empty(), "{differ:?}");

    // With 64 tokens per position: all arms that do not learn, and those that learn from tokens
    // alone.
    let part = record(&lab, model, Some(64));
    let replay = lab.run("part", &experiment(&table(&part, model)));
    let plain = |arm: &str| !learns(arm) || arm == "NLL";
    assert_eq!(rows(&live, plain), rows(&replay, plain));
    assert_eq!(
        live.prompts("stream")
            .iter()
            .map(tokens)
            .collect::<Vec<_>>(),
        replay
            .prompts("stream")
            .iter()
            .map(tokens)
            .collect::<Vec<_>>(),
        "the answers of arms that learn are the target's all the same"
    );
    assert!(replay.cell("stream").manifest().recorded.contains_key("T"));
}

fn tokens(row: &PromptRow) -> (String, u32, String) {
    (row.arm.clone(), row.prompt_index, row.tokens_hash.clone())
}

#[test]
fn a_recorded_llama_replays_bit_for_bit() {
    replays_bit_for_bit("L");
}

#[test]
fn a_recorded_qwen_replays_bit_for_bit() {
    replays_bit_for_bit("Q");
}

#[test]
fn what_a_recording_cannot_answer_is_told() {
    let lab = Lab::new();
    let trace = record(&lab, "L", Some(8));
    let told = |text: &str, parts: &[&str]| {
        let error = match lab.load(text) {
            Err(error) => error.to_string(),
            Ok(plan) => {
                let job = &plan.jobs[0];
                let out = lab.path("refused");
                let error = support::execute(&job.config, &out, None).unwrap_err();
                format!("{error:#}")
            }
        };
        for part in parts {
            assert!(error.contains(part), "{part}: {error}");
        }
    };
    let good = experiment(&table(&trace, "L"));
    let with = |from: &str, to: &str| good.replace(from, to);
    told(
        &with("temperature = 0.0", "temperature = 0.5"),
        &["decode.temperature", "recorded", "greedy"],
    );
    told(
        &with(
            "temperature = 0.0",
            "temperature = 0.0\nrepetition_penalty = 1.2",
        ),
        &["decode.repetition_penalty"],
    );
    told(
        &with("temperature = 0.0", "temperature = 0.0\nignore_eos = true"),
        &["decode.ignore_eos", "recorded"],
    );
    told(
        &with("temperature = 0.0", "temperature = 0.0\ncontroller = true"),
        &["decode.controller", "recorded"],
    );
    told(
        &experiment(&table(&trace, "Q")),
        &["L-8-train.parquet", "tokenizer"],
    );
    told(
        &with(&format!("max_new_tokens = {ANSWER}"), "max_new_tokens = 40"),
        &["up to 16 tokens, 40 are asked for"],
    );
    told(
        &with(&format!("train = {TRAIN}"), "train = 40"),
        &["L-8-train.parquet", "no row for this prompt"],
    );
    told(&with("L-8-", "M-8-"), &["M-8-train.parquet"]);
    let drafter = with("drafter = \"", "drafter = { trace = \"x\", tokenizer = \"");
    let drafter = drafter.replacen("/D\"\n", "/D\" }\n", 1);
    told(&drafter, &["models.drafter", "recording"]);
}

#[test]
fn a_tail_that_is_too_short_is_told_and_not_made_up() {
    let lab = Lab::new();
    let trace = record(&lab, "L", Some(8));
    // The same trace without its tails: rounds at the end of an answer read beyond them.
    for split in ["train", "test"] {
        let path = PathBuf::from(trace.to_str().unwrap().replace("{split}", split));
        let mut file = TraceFile::open(&path).unwrap();
        let info = TraceInfo {
            tail: 0,
            ..file.info().clone()
        };
        let records: Vec<Record> = (0..file.entries().len())
            .map(|row| file.record(row).unwrap())
            .collect();
        std::fs::remove_file(&path).unwrap();
        let mut writer = TraceWriter::open(&path, &info).unwrap();
        for mut record in records {
            let kept = record.answer.len();
            record.tail.clear();
            if let trace::Law::Top {
                top,
                ids,
                log_probs,
                rest,
                ..
            } = &mut record.law
            {
                ids.truncate(kept * *top);
                log_probs.truncate(kept * *top);
                rest.truncate(kept);
            }
            writer.push(&record).unwrap();
        }
        writer.finish().unwrap();
    }
    let plan = lab.load(&experiment(&table(&trace, "L"))).unwrap();
    let out = lab.path("short");
    let error = support::execute(&plan.jobs[0].config, &out, None).unwrap_err();
    let told = format!("{error:#}");
    assert!(told.contains("not recorded"), "{told}");
    let hint = error
        .chain()
        .map(online::passed_on)
        .find_map(|cause| cause.downcast_ref::<trace::TraceError>()?.hint());
    assert!(hint.unwrap().contains("--tail"));
}
