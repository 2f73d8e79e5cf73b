//! `export`: drafters that learnt in a chat or a run, as models that can be read again.

use std::path::{Path, PathBuf};

use lm::{Adapter, Checkpoint, HostTensor, StoredType};
use online::{SavedState, file_name};

use super::support::{EXPERIMENT, files, omnidraft, refused, repository, run_with};

/// Three arms that learn: all weights, the last block, an adapter.
const LEARNERS: &str = r#"
[[arm]]
name = "all"
preset = "L_DM"
set = { "learn.ema" = 0.5 }
[[arm]]
name = "last"
preset = "L_DM"
set = { "learn.blocks" = 1 }
[[arm]]
name = "low"
preset = "L_DM"
set = { "learn.lora.rank" = 4 }
[learn]
every = 1
lr = 1e-2
[stage.held-out]
from = "stream"
prompts = { test = 1 }
"#;

fn export(source: &Path, to: &str, out: &Path) -> assert_cmd::Command {
    let mut command = omnidraft();
    command
        .arg("export")
        .arg(source)
        .args(["--to", to, "--out"]);
    command.arg(out);
    command
}

fn done(command: &mut assert_cmd::Command) -> String {
    let said = command.assert().success().get_output().stdout.clone();
    String::from_utf8(said).unwrap()
}

fn model(path: &Path) -> Checkpoint {
    Checkpoint::load(path).unwrap()
}

/// Weights after rounding to this type.
fn rounded(weights: &Checkpoint, stored: StoredType) -> Checkpoint {
    let mut weights = weights.clone();
    for HostTensor { data, .. } in weights.tensors.values_mut() {
        data.iter_mut().for_each(|x| *x = stored.rounded(*x));
    }
    weights
}

/// The run of the three arms, and the folder with their learnt state.
fn run(folder: &Path) -> (PathBuf, PathBuf) {
    let config = EXPERIMENT.replace("train = 2, test = 2", "train = 4") + LEARNERS;
    run_with(&config, &[], folder).assert().success();
    let run = folder.join("out");
    let cell = run.join("stream/task=mini-math,seed=1");
    (run, cell)
}

#[test]
fn what_the_arms_of_a_run_learnt_becomes_models() {
    let folder = tempfile::tempdir().unwrap();
    let (run, cell) = run(folder.path());
    let base = model(&repository().join("models/D"));
    let learnt = |arm: &str| {
        let saved = SavedState::of_arm(&SavedState::folder_of(&cell.join("state"), arm)).unwrap();
        saved.learnt().join(file_name(""))
    };
    let tensors = |file: PathBuf| lm::read_safetensors(&file).unwrap();

    // The running mean is decoded with, so it is written; f32 keeps it exact.
    let out = folder.path().join("all");
    let said = done(export(&run, "hf", &out).args(["--arm", "all", "--type", "f32"]));
    assert!(
        said.contains("all weights, 4 updates and 4 answers, running mean"),
        "{said}"
    );
    let found = model(&out);
    assert!(found.tensors == tensors(learnt("all").join("mean.safetensors")));
    assert!(found.tensors != tensors(learnt("all").join("weights.safetensors")));
    for name in [
        "tokenizer.json",
        "chat_template.jinja",
        "generation_config.json",
        "omnidraft.json",
    ] {
        let bytes = |folder: &Path| std::fs::read(folder.join(name)).unwrap();
        assert_eq!(bytes(&out), bytes(&repository().join("models/D")), "{name}");
    }
    let card = std::fs::read_to_string(out.join("README.md")).unwrap();
    for part in [
        "`models/D`",
        "`target`",
        "mini-math",
        "| updates | 4 |",
        "commit ",
        "of the first 2 answers",
    ] {
        assert!(card.contains(part), "{part}: {card}");
    }
    let config = std::fs::read_to_string(out.join("config.json")).unwrap();
    assert!(config.contains(r#""torch_dtype": "float32""#), "{config}");

    // The last block over the drafter's own weights, in the drafter's own type; the cell's folder
    // works as well.
    let out = folder.path().join("last");
    let said = done(export(&cell, "hf", &out).args(["--arm", "last"]));
    assert!(
        said.contains("bfloat16 as the drafter's own, rounded by"),
        "{said}"
    );
    let mut whole = base.clone();
    let tail = tensors(learnt("last").join("weights.safetensors"));
    assert!(
        tail.len() < whole.tensors.len()
            && tail["model.norm.weight"] != whole.tensors["model.norm.weight"]
    );
    whole.tensors.extend(tail);
    assert!(model(&out).tensors == rounded(&whole, StoredType::Bf16).tensors);

    // An adapter, merged and by itself.
    let out = folder.path().join("merged");
    done(export(&run, "hf", &out).args(["--arm", "low", "--type", "f32"]));
    // A slash at the end of a path changes nothing.
    let alone = folder.path().join("adapter/");
    done(export(&run, "hf", &alone).args(["--arm", "low", "--adapter"]));
    let adapter = Adapter::load(&alone, &base.config).unwrap();
    assert_eq!(adapter.config.rank, 4);
    let mut whole = base.clone();
    whole.merge(&adapter).unwrap();
    assert!(model(&out).tensors == whole.tensors && whole.tensors != base.tensors);

    // The export works as a drafter.
    omnidraft()
        .args([
            "generate",
            "--target",
            "models/L",
            "--max-tokens",
            "4",
            "--prompt",
            "Hello",
        ])
        .arg("--drafter")
        .arg(&out)
        .assert()
        .success();

    let before = files(folder.path());
    let out = folder.path().join("no");
    refused(
        &mut export(&run, "hf", &out),
        &["more than one arm learnt: all, last, low", "hint:", "--arm"],
    );
    refused(
        export(&run, "hf", &out).args(["--arm", "none"]),
        &["--arm none", "all, last, low"],
    );
    refused(
        export(&run, "hf", &out).args(["--target", "x"]),
        &["--target x", "hint: target learnt"],
    );
    refused(
        export(&run, "hf", &out).args(["--task", "x"]),
        &["--task x", "mini-math"],
    );
    let all = ["--arm", "all"];
    refused(
        export(&run, "hf", &out)
            .args(all)
            .args(["--drafter", "models/L"]),
        &[
            "learnt by another drafter than models/L, which was models/D",
            "--drafter",
        ],
    );
    refused(
        export(&run, "hf", &out).args(all).arg("--adapter"),
        &["all weights learnt", "hint:"],
    );
    refused(
        export(&run, "hf", &out).args(all).args(["--type", "q8_0"]),
        &["--type"],
    );
    refused(
        export(&run, "gguf", &out)
            .args(all)
            .args(["--type", "bf16"]),
        &["--type"],
    );
    refused(
        export(&run, "gguf", &out).args(all),
        &["models/D/tokenizer.json", "byte_fallback", "hint:"],
    );
    refused(
        &mut export(&run.join("nothing"), "hf", &out),
        &["no such folder"],
    );
    refused(
        &mut export(&run.join("held-out/task=mini-math,seed=1"), "hf", &out),
        &["nothing that a drafter learnt", "hint:"],
    );
    refused(
        &mut export(&run, "hf", &alone),
        &["is there already", "hint:"],
    );
    let mean = learnt("all").join("mean.safetensors");
    super::support::shorten(&mean);
    refused(
        export(&run, "hf", &out).args(all),
        &["mean.safetensors", "hint:"],
    );
    std::fs::write(&mean, &before[&mean]).unwrap();
    assert!(files(folder.path()) == before);
}

#[cfg(feature = "serve")]
mod of_chats {
    use super::*;
    use lm::StoredCheckpoint;
    use models::ModelText;
    use vocab_align::TargetId;

    /// A chat whose drafter, the model L, learns from two answers, with further arguments.
    fn chat(state: &Path, more: &[&str]) {
        let mut command = omnidraft();
        command
            .args(["chat", "--target", "models/D", "--drafter", "models/L"])
            .args([
                "--max-tokens",
                "16",
                "--learn-every",
                "1",
                "--no-controller",
            ])
            .args(["--learning-rate", "0.001"])
            .args(more)
            .arg("--state")
            .arg(state)
            .write_stdin("Add 2 and 3.\n/reset\nSay something about rivers.\n");
        command.assert().success();
    }

    #[test]
    fn a_state_becomes_a_folder_and_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let state = folder.path().join("state");
        chat(&state, &[]);
        // The state names its drafter.
        let out = folder.path().join("hf");
        let said = done(&mut export(&state, "hf", &out));
        assert!(
            said.contains("models/L as it learnt to draft for D: all weights, 2 updates"),
            "{said}"
        );
        let exact = folder.path().join("exact");
        done(export(&state, "hf", &exact).args(["--type", "f32", "--drafter", "models/L"]));
        let exact = model(&exact);
        let base = model(&repository().join("models/L"));
        assert!(exact.tensors != base.tensors && exact.config == base.config);
        assert!(model(&out).tensors == rounded(&exact, StoredType::Bf16).tensors);

        let file = folder.path().join("learnt.gguf");
        let said = done(&mut export(&state, "gguf", &file));
        assert!(said.contains("matrices in F16"), "{said}");
        let back = folder.path().join("back");
        omnidraft()
            .arg("import")
            .arg(&file)
            .arg("--out")
            .arg(&back)
            .assert()
            .success();
        let halves = rounded(&exact, StoredType::F16);
        let found = model(&back);
        for (name, tensor) in &found.tensors {
            let expected = match tensor.shape.len() {
                1 => &exact.tensors[name],
                _ => &halves.tensors[name],
            };
            assert!(tensor == expected, "{name}");
        }
        let [before, after] = [repository().join("models/L"), back]
            .map(|path| ModelText::<TargetId>::load(&path).unwrap());
        let text = "It's 12345 o'clock, naïve one.\n\n  東京";
        let ids = |model: &ModelText<TargetId>| model.vocabulary.encode(text).unwrap();
        assert_eq!(ids(&before), ids(&after));
        let eight = folder.path().join("eight.gguf");
        done(export(&state, "gguf", &eight).args(["--type", "q8_0"]));
        let stored = StoredCheckpoint::open_gguf(&eight).unwrap();
        assert_eq!(stored.encoding(), Some(weights::Encoding::Q8_0));

        let before = files(folder.path());
        let out = folder.path().join("no");
        refused(
            export(&state, "hf", &out).args(["--target", "L"]),
            &["--target L", "hint: D learnt"],
        );
        refused(
            export(&state, "hf", &out).args(["--drafter", "models/D"]),
            &[
                "learnt by another drafter than",
                "models/D",
                "which was models/L",
                "hint:",
            ],
        );
        refused(export(&state, "hf", &out).args(["--arm", "x"]), &["--arm"]);
        refused(&mut export(&state, "gguf", &file), &["is there already"]);
        assert!(files(folder.path()) == before);
    }

    /// The knowledge of a run's arms is the start of a server, a chat and a recorded learner.
    #[test]
    fn an_arm_of_a_run_is_served_and_goes_on_learning() {
        let folder = tempfile::tempdir().unwrap();
        let (run, cell) = run(folder.path());
        let before = files(&run);
        for (arm, part) in [
            ("all", ["--learn-blocks", "0"]),
            ("last", ["--learn-blocks", "1"]),
            ("low", ["--adapter-rank", "4"]),
        ] {
            let state = folder.path().join(format!("of {arm}"));
            let said = done(export(&cell, "state", &state).args(["--arm", arm]));
            let quoted = format!("--state '{}'\n", state.display());
            assert!(
                said.contains("--target target=DIR") && said.ends_with(&quoted),
                "{said}"
            );
            let models = [
                "chat",
                "--target",
                "target=models/L",
                "--drafter",
                "models/D",
            ];
            let talk = |more: &[&str]| {
                let mut command = omnidraft();
                command.args(models).args(["--max-tokens", "8"]).args(more);
                command.args(["--learn-every", "1", "--no-controller"]);
                command.arg("--state").arg(&state);
                command.write_stdin("Add 2 and 3.\n");
                command
            };
            refused(
                &mut talk(&["--adapter-rank", "3"]),
                &["learnt, not an adapter of rank 3", "hint:"],
            );
            let updates = || {
                let out = tempfile::tempdir().unwrap();
                let said = done(&mut export(&state, "hf", &out.path().join("model")));
                let updates = said.split_once(" updates").unwrap().0;
                let updates = updates.rsplit(' ').next().unwrap();
                updates.parse::<u64>().unwrap()
            };
            assert_eq!(updates(), 4, "{arm}");
            talk(&part).assert().success();
            assert_eq!(updates(), 5, "{arm}");
        }
        // The run stays as it was.
        assert!(files(&run) == before);
        refused(
            export(&run, "state", &folder.path().join("no"))
                .args(["--arm", "all", "--type", "f32"]),
            &["--to state"],
        );
        // A state of an earlier version.
        let old = SavedState::folder_of(&cell.join("state"), "all");
        std::fs::remove_file(old.join("current")).unwrap();
        refused(
            export(&run, "hf", &folder.path().join("no")).args(["--arm", "all"]),
            &["no state of this version", "hint:"],
        );
    }

    #[test]
    fn blocks_and_adapters_of_a_state() {
        let folder = tempfile::tempdir().unwrap();
        let base = model(&repository().join("models/L"));
        let state = folder.path().join("blocks");
        chat(&state, &["--learn-blocks", "1"]);
        let out = folder.path().join("last");
        let said = done(export(&state, "hf", &out).args(["--type", "f32"]));
        assert!(said.contains("the last block"), "{said}");
        let found = model(&out);
        let changed = found
            .tensors
            .iter()
            .filter(|(name, own)| base.tensors[*name] != **own);
        let changed: Vec<&String> = changed.map(|(name, _)| name).collect();
        let of_tail = |name: &&String| name.contains("layers.3.") || *name == "model.norm.weight";
        assert!(
            !changed.is_empty() && changed.iter().all(of_tail),
            "{changed:?}"
        );

        let state = folder.path().join("adapters");
        chat(&state, &["--adapter-rank", "2"]);
        let alone = folder.path().join("adapter");
        let said = done(export(&state, "hf", &alone).arg("--adapter"));
        assert!(
            said.contains("an adapter of rank 2") && !said.contains("running mean"),
            "{said}"
        );
        Adapter::load(&alone, &base.config).unwrap();
        let merged = folder.path().join("merged");
        done(export(&state, "hf", &merged).args(["--target", "D"]));
        assert!(model(&merged).tensors != base.tensors);

        // Without learning there is no state.
        let state = folder.path().join("empty");
        chat(&state, &["--no-learn"]);
        let out = folder.path().join("no");
        refused(&mut export(&state, "hf", &out), &["no such folder"]);
        std::fs::create_dir(folder.path().join("bare")).unwrap();
        refused(
            &mut export(&folder.path().join("bare"), "hf", &out),
            &["nothing that a drafter learnt", "hint:"],
        );
        assert!(!out.exists());
    }
}
