//! What arms may say about how long they draft, and that they do it.

use std::path::Path;
use std::process::Command;

use adaptive_draft::Head;
use runner::config::RunConfig;
use runner::results::{Phase, RunReader};

fn text(arms: &str, rest: &str) -> String {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../models");
    let models = models.display();
    format!(
        "name = \"t\"\narms = [{arms}]\nmodels = {{ drafter = \"{models}/D\", targets = {{ t = \"{models}/L-small\" }} }}\n{rest}"
    )
}

const SEGMENT: &str = "[[segments]]\ntask = \"mini-math\"\ntrain = 12\ntest = 3\n";

fn load(arms: &str, rest: &str) -> anyhow::Result<RunConfig> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("run.toml");
    std::fs::write(&path, text(arms, &format!("{SEGMENT}{rest}")))?;
    RunConfig::load(&path, &[])
}

fn arm(keys: &str) -> String {
    format!("{{ name = \"a\", verify = \"tli\", {keys} }}")
}

#[test]
fn unknown_and_impossible_values_name_their_key() {
    let refused = |arms: &str, rest: &str, parts: &[&str]| {
        let message = format!("{:#}", load(arms, rest).unwrap_err());
        for part in parts {
            assert!(message.contains(part), "{message}");
        }
    };
    refused(&arm("policy = \"x\""), "", &["policy", "throughput"]);
    refused(&arm("head = \"x\""), "", &["head", "interleaved"]);
    refused(&arm("k = 0"), "", &["arms: `a`", "k = 0"]);
    refused(&arm("gamma = 1.5"), "", &["arms: `a`", "gamma = 1.5"]);
    refused(&arm("policy = \"head\""), "", &["arms: `a`", "head"]);
    refused(&arm("policy = \"throughput\""), "", &["arms: `a`", "head"]);
    refused(&arm("head = \"offline\""), "", &["head.path"]);
    let interleaved = arm("learn = \"direct\", head = \"interleaved\"");
    refused(&interleaved, "[learn]\nevery = 1\n", &["learn.every"]);
    let plain = arm("");
    refused(
        &plain,
        "[decode]\nentropy_scale = 0.0\n",
        &["decode.entropy_scale"],
    );
    refused(
        &plain,
        "[decode.costs]\nverify = []\n",
        &["decode.costs", "verify"],
    );
    refused(&plain, "[decode.costs]\ndraft = [-1.0]\n", &["draft = -1"]);
    refused(
        &plain,
        "[head]\nreject_weight = 0.0\n",
        &["head.reject_weight"],
    );
    refused(&plain, "[head]\nsteps = 0\n", &["head.steps"]);
    refused(
        "{ name = \"p\", verify = \"prompt-lookup\", policy = \"throughput\", score = \"position\" }",
        "",
        &["prompt-lookup"],
    );
    let borrower = "{ name = \"b\", verify = \"tli\", learnt_by = \"a\", policy = \"head\" }";
    let lender = arm("learn = \"direct\"");
    refused(&format!("{lender}, {borrower}"), "", &["arms: `b`", "head"]);
    let lender = arm("learn = \"direct\", head = \"joint\"");
    assert!(load(&format!("{lender}, {borrower}"), "").is_ok());
    assert!(load(&arm("policy = \"throughput\", score = \"position\""), "").is_ok());
}

fn omnidraft(folder: &Path, args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_omnidraft"))
        .current_dir(folder)
        .args(args)
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const ARMS: &str = r#"
    "autoregressive",
    { name = "constant", verify = "tli", k = 3 },
    { name = "adapt only", verify = "tli", policy = "head", gamma = 0.2, k = 6, head = "joint" },
    { name = "joint", verify = "paper", cache = true, learn = "hybrid", policy = "head", k = 6, head = "joint" },
    { name = "interleaved", verify = "tli", learn = "direct", head = "interleaved" },
    { name = "throughput", verify = "exact", learnt_by = "interleaved", policy = "throughput", k = 6 },
    { name = "by position", verify = "tli", policy = "throughput", score = "position" },
    { name = "entropy", verify = "tli", policy = "entropy", threshold = 0.5 },
    { name = "offline", verify = "tli", policy = "head", head = "offline" }
"#;

/// Every kind of arm in one run, from the head's file to the report.
#[test]
fn a_run_with_every_policy_keeps_its_tokens_and_tells_of_its_heads() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[decode]\ntemperature = 0.0\nmax_new_tokens = 24\n[learn]\nevery = 4\n";
    std::fs::write(
        folder.path().join("run.toml"),
        text(
            ARMS,
            &format!("{SEGMENT}{settings}[head]\npath = \"h.safetensors\"\n"),
        ),
    )
    .unwrap();
    let trained = text("\"autoregressive\"", &format!("{SEGMENT}{settings}"));
    std::fs::write(folder.path().join("train.toml"), trained).unwrap();
    let said = omnidraft(
        folder.path(),
        &[
            "head",
            "train.toml",
            "--prompts",
            "20",
            "--epochs",
            "2",
            "--out",
            "h.safetensors",
        ],
    );
    assert!(said.contains("calibration error"), "{said}");
    let head = Head::load(&folder.path().join("h.safetensors")).unwrap();
    assert_eq!((head.features(), head.hidden()), (130, 32));

    let run = |out: &str, sets: &[&str]| {
        let mut args = vec!["run", "run.toml", "--out", out];
        args.extend(sets.iter().flat_map(|set| ["--set", set]));
        omnidraft(folder.path(), &args);
        RunReader::open(&folder.path().join(out)).unwrap()
    };
    let reader = run("out", &["state.save=true"]);
    let prompts = reader.prompts().unwrap().rows;
    let plain = |index| {
        let mut rows = prompts.iter().filter(|r| r.arm == "autoregressive");
        rows.find(|r| (r.phase, r.prompt_index) == (Phase::Test, index))
    };
    for row in prompts.iter().filter(|row| row.phase == Phase::Test) {
        let same = plain(row.prompt_index).map(|r| &r.tokens_hash);
        assert_eq!(same, Some(&row.tokens_hash), "{}", row.arm);
    }
    // Another process knows as much: heads, and what throughput rules have seen.
    let held_out = |reader: &RunReader| -> Vec<_> {
        let prompts = reader.prompts().unwrap().rows.into_iter();
        let of = prompts.filter(|row| row.phase == Phase::Test);
        of.map(|r| (r.arm, r.prompt_index, r.rounds, r.draft_tokens, r.accepted))
            .collect()
    };
    let held = r#"segments=[{task="mini-math",train=0,test=3}]"#;
    let later = run("later", &[r#"state.load="out/state""#, held]);
    assert_eq!(held_out(&later), held_out(&reader));
    let heads = reader.heads().unwrap().rows;
    let steps = |arm: &str| heads.iter().filter(|row| row.arm == arm).count();
    // 12 prompts: a turn with each of three updates, or behind every prompt without one.
    assert_eq!((steps("adapt only"), steps("joint")), (3, 3));
    assert_eq!((steps("interleaved"), steps("offline")), (9, 0));
    let rounds = reader.rounds().unwrap().rows;
    let longest = |arm: &str| {
        rounds
            .iter()
            .filter(|r| r.arm == arm)
            .map(|r| r.draft_tokens)
            .max()
    };
    assert_eq!(longest("constant"), Some(3));
    assert!(longest("adapt only") <= Some(6));
    let table = std::fs::read_to_string(folder.path().join("out/report/table.md")).unwrap();
    assert!(table.contains("Acceptance heads") && table.contains("drafted/step"));
    let manifest = reader.manifest();
    assert!(
        manifest
            .inputs
            .iter()
            .any(|input| input.role == "acceptance head")
    );
    assert_eq!(manifest.config["decode"]["costs"]["round"], 0.0);
}

#[test]
fn costs_of_an_experiment_are_measured_as_its_configuration_wants_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.toml");
    let settings = "[decode]\nmax_new_tokens = 16\n";
    std::fs::write(
        &path,
        text("\"autoregressive\"", &format!("{SEGMENT}{settings}")),
    )
    .unwrap();
    let said = omnidraft(
        folder.path(),
        &["costs", "run.toml", "--prompts", "4", "-k", "4"],
    );
    let whole = text("\"autoregressive\"", &format!("{SEGMENT}{settings}{said}"));
    std::fs::write(&path, whole).unwrap();
    let costs = RunConfig::load(&path, &[]).unwrap().decode.costs;
    assert_eq!(costs.verify.len(), 5, "{said}");
    assert!(costs.draft.len() == 4 && costs.draft[0] > 0.0, "{said}");
    assert!(costs.verify[0] == 1.0, "{said}");
    for list in [&costs.draft, &costs.verify] {
        assert!(list.windows(2).all(|pair| pair[0] <= pair[1]), "{said}");
    }
}
