//! Includes, merging, overrides, and the places of values.

use crate::common;

use common::{Files, SMALL, ZOO, plan, says, set, wrong, wrong_set};
use experiment::{CostsConfig, Count, DecodeConfig, ExperimentError, LoadOptions, Plan};
use lm::{Device, KvType};

const TAIL: &str = "[grid]\ntask = [\"gsm8k\"]\ntarget = [\"L\"]\n\
    [stage.stream]\nprompts = { train = 9 }\n[[arm]]\npreset = \"L_DM\"\n";

#[test]
fn later_files_win_and_own_keys_win_over_all() {
    let files = Files::new(&[
        (
            "one.toml",
            "[decode]\nk = 1\ngamma = 0.1\nthreads = 2\n[learn]\nevery = 3\n",
        ),
        (
            "deep/two.toml",
            "include = [\"three.toml\"]\n[decode]\nk = 2\ngamma = 0.2\n",
        ),
        (
            "deep/three.toml",
            "[decode]\nk = 3\nmin_p = 0.3\n[decode.costs]\nround = 0.5\n",
        ),
        (
            "x.toml",
            &format!(
                "include = [\"zoo.toml\", \"one.toml\", \"deep/two.toml\"]\nname = \"x\"\n\
                 [decode]\nk = 5\n{TAIL}"
            ),
        ),
    ]);
    let plan = files.load("x.toml", &[]).unwrap();
    let decode = &plan.jobs[0].config.arms[0].decode;
    assert_eq!((decode.k, decode.gamma, decode.threads), (5, 0.2, 2));
    assert_eq!((decode.min_p, decode.costs.round), (0.3, 0.5));
    assert_eq!(decode.costs.draft, CostsConfig::default().draft);
    assert_eq!(plan.jobs[0].config.arms[0].learn.every, 3);
}

#[test]
fn files_of_the_command_line_stand_between_includes_and_own_keys() {
    let files = Files::new(&[
        (
            "big.toml",
            "[models]\ntargets.L = \"hf:big/model\"\n[decode]\nk = 7\nthreads = 4\n",
        ),
        (
            "x.toml",
            &format!("include = [\"zoo.toml\"]\nname = \"x\"\n[decode]\nk = 5\n{TAIL}"),
        ),
    ]);
    let options = LoadOptions {
        overrides: Vec::new(),
        extra_includes: vec![files.path("big.toml")],
    };
    let plan = Plan::load(&files.path("x.toml"), &options).unwrap();
    let job = &plan.jobs[0].config;
    assert_eq!(job.models.targets["L"].path.to_str(), Some("hf:big/model"));
    assert_eq!((job.decode().k, job.decode().threads), (5, 4));
}

#[test]
fn a_model_that_is_only_a_path_replaces_a_padded_one() {
    let files = Files::new(&[(
        "x.toml",
        &SMALL.replace("[grid]", "[models]\ndrafter = \"hf:a/b\"\n[grid]"),
    )]);
    let plan = files.load("x.toml", &[]).unwrap();
    assert_eq!(plan.experiment.models.drafter.pad_width, 0);
}

#[test]
fn circles_and_missing_files_are_told() {
    let files = Files::new(&[
        ("a.toml", "include = [\"b.toml\"]\n"),
        ("b.toml", "\ninclude = [\"c.toml\"]\n"),
        ("c.toml", "include = [\"a.toml\"]\n"),
        ("x.toml", "\ninclude = [\"nothing.toml\"]\n"),
        ("own.toml", "include = [\"own.toml\"]\n"),
    ]);
    let error = files.load("a.toml", &[]).unwrap_err();
    assert!(
        matches!(&error, ExperimentError::Circle(chain) if chain.len() == 4),
        "{error}"
    );
    says(
        &files.say(&error),
        &["a.toml -> b.toml -> c.toml -> a.toml"],
    );
    assert!(matches!(
        files.load("own.toml", &[]).unwrap_err(),
        ExperimentError::Circle(_)
    ));
    let error = files.load("x.toml", &[]).unwrap_err();
    says(
        &files.say(&error),
        &["x.toml:2: include: nothing.toml: cannot be read"],
    );
    assert!(error.hint().unwrap().contains("relative"));
    // Including a file twice is not a cycle.
    let twice = Files::new(&[
        ("a.toml", "include = [\"zoo.toml\"]\n"),
        (
            "x.toml",
            &format!("include = [\"a.toml\", \"zoo.toml\"]\nname = \"x\"\n{TAIL}"),
        ),
    ]);
    twice.load("x.toml", &[]).unwrap();
}

#[test]
fn faults_of_included_files_name_these() {
    let files = Files::new(&[
        ("base.toml", "[decode]\n\nkk = 1\nk = \"two\"\n[lern]\n"),
        (
            "x.toml",
            &SMALL.replace("\"zoo.toml\"", "\"zoo.toml\", \"base.toml\""),
        ),
    ]);
    let error = files.load("x.toml", &[]).unwrap_err();
    let text = files.say(&error);
    says(
        &text,
        &[
            "base.toml:3: decode.kk: unknown field",
            "base.toml:4: decode.k: invalid type: string \"two\", expected a whole number",
            "base.toml:5: lern: unknown key",
            "x.toml: 3 faults",
        ],
    );
}

#[test]
fn syntax_errors_have_lines() {
    let text = wrong("name = \"x\"\n[grid\nseed = [1]\n");
    says(&text, &["x.toml:2"]);
    says(
        &wrong("name = \"x\"\nname = \"y\"\n"),
        &["x.toml:2", "duplicate"],
    );
    says(
        &wrong("name = 1979-05-27\n"),
        &["x.toml:1: name", "quote it"],
    );
    says(
        &wrong("[learn]\ntau = inf\n"),
        &["x.toml:2", "learn.tau", "finite"],
    );
    says(
        &wrong("include = \"zoo.toml\"\n"),
        &["x.toml:1: include", "list"],
    );
}

#[test]
fn dotted_and_nested_patches_are_one_thing() {
    let with = |set: &str| {
        let text = format!("{SMALL}{set}\n");
        plan(&text).jobs[0].config.arms[0].clone()
    };
    let dotted = with("set = { \"decode.k\" = 2, \"learn.lora.rank\" = 8 }");
    let nested = with("set.decode.k = 2\nset.learn.lora = { rank = 8 }");
    let mixed = with("set = { decode = { k = 2 }, \"learn.lora\" = { rank = 8 } }");
    assert_eq!(dotted, nested);
    assert_eq!(dotted, mixed);
    assert_eq!((dotted.decode.k, dotted.learn.lora.rank), (2, 8));
    assert_eq!(dotted.learn.lora.alpha, 32.0);
}

#[test]
fn overrides_reach_everything() {
    let text = format!(
        "{SMALL}[[arm]]\npreset = \"SpD_DM\"\nname = \"b = 2\"\n[[when]]\ntask = \"xsum\"\nprompts = {{ train = 7 }}\n"
    );
    let plan = set(
        &text,
        &[
            "grid.seed=[3, 4]",
            "grid.target=L",
            "decode.weights = bf16",
            "decode.draft_weights = int4",
            "stage.stream.prompts.train=50",
            "stage.stream.exclusive=true",
            "arm.0.set.decode.k=3",
            "arm[b = 2].decode.k=6",
            "arm[b = 2].name=c",
            "when.0.prompts.train=all",
            "models.targets.L.path=elsewhere",
            "learn.lora={ rank = 4 }",
            "title=A title",
        ],
    );
    let job = &plan.jobs[0].config;
    assert_eq!(job.cell, "target=L,task=gsm8k,seed=3");
    assert_eq!(plan.jobs.len(), 4);
    let decode = job.decode();
    assert_eq!(decode.engine().weights.name(), "bf16");
    assert_eq!(decode.drafter_engine(Device::Cpu).weights.name(), "int4");
    assert_eq!(
        decode.drafter_engine(Device::Cpu).threads,
        decode.engine().threads
    );
    // Beside integer weights of a processor, keys and values are in half precision.
    let kv = |device| decode.drafter_engine(device).kv;
    assert_eq!(
        (kv(Device::Cpu), kv(Device::Gpu(0))),
        (KvType::F16, KvType::F32)
    );
    let same = DecodeConfig {
        draft_weights: None,
        ..decode
    };
    assert_eq!(same.drafter_engine(Device::Cpu), same.engine());
    assert_eq!(job.segments[0].train, Count::Number(50));
    assert_eq!(plan.jobs[2].config.segments[0].train, Count::All);
    assert!(job.exclusive);
    assert_eq!((job.arms[0].decode.k, job.arms[1].decode.k), (3, 6));
    assert_eq!(job.arms[1].name, "c");
    assert_eq!(job.models.targets["L"].path.to_str(), Some("elsewhere"));
    assert_eq!(job.arms[0].learn.lora.rank, 4);
    assert_eq!(plan.experiment.title.as_deref(), Some("A title"));
}

#[test]
fn overrides_reach_dotted_axes_sweeps_and_quoted_names() {
    let text = SMALL.replace("[stage", "\"decode.k\" = [1, 2]\n[stage")
        + "[sweep]\n\"learn.every\" = [1, 2]\n";
    let zoo = ZOO.replace("targets = {", "targets = { \"Q2.5\" = \"models/Q2.5\",");
    let files = Files::new(&[("x.toml", &text), ("zoo.toml", &zoo)]);
    let plan = files
        .load(
            "x.toml",
            &[
                "grid.decode.k=[3]",
                "sweep.\"learn.every\"=[4, 5, 6]",
                "models.targets.\"Q2.5\"=models/other",
                "grid.target=[\"Q2.5\"]",
            ],
        )
        .unwrap();
    assert_eq!(plan.jobs.len(), 2);
    assert_eq!(
        plan.jobs[0].config.cell,
        "target=Q2.5,task=gsm8k,decode.k=3,seed=1"
    );
    assert_eq!(plan.jobs[0].config.arms.len(), 3);
    assert_eq!(
        plan.jobs[0].config.models.targets["Q2.5"].path.to_str(),
        Some("models/other")
    );
}

#[test]
fn overrides_that_miss_are_told() {
    for (text, words) in [
        ("decode.k", "KEY=VALUE"),
        ("=3", "KEY=VALUE"),
        ("decode..k=3", "KEY=VALUE"),
        ("arm[L_DM.decode.k=3", "KEY=VALUE"),
        ("decode.kk=3", "unknown field `kk`"),
        ("decod.k=3", "decod: unknown key"),
        (
            "stage.strem.prompts.train=3",
            "there is no stage `strem` (one of stream)",
        ),
        ("arm.5.name=x", "`arm` has no item 5: they are 0 to 0"),
        (
            "arm[L_DN].decode.k=3",
            "`arm` has no `L_DN` (one of L_DM+L_N-gram)",
        ),
        ("grid[x]=3", "`grid` is no list"),
        ("grid.target=[L]", "names in lists need quotes"),
        ("grid.seed=[\"a\"]", "grid.seed: \"a\" is no seed"),
        ("seeds=[1]", "seeds: unknown key"),
        (
            "decode.draft_weights=int3",
            "decode.draft_weights: unknown variant `int3`, expected one of `f32`",
        ),
        ("decode.k=many", "decode.k: invalid type: string \"many\""),
    ] {
        let message = wrong_set(SMALL, &[text]);
        says(&message, &[&format!("--set {text}"), words]);
    }
}

#[test]
fn several_overrides_are_refused_at_once() {
    let message = wrong_set(SMALL, &["decode.kk=1", "learn.lrr=2", "arm.9.name=x"]);
    // Paths without a target end the processing of the rest.
    says(&message, &["arm.9.name"]);
    let message = wrong_set(SMALL, &["decode.kk=1", "learn.lrr=2"]);
    says(
        &message,
        &[
            "--set decode.kk=1: decode.kk",
            "--set learn.lrr=2: learn.lrr",
            "2 faults",
        ],
    );
}

#[test]
fn a_wrong_name_is_answered_with_the_nearest_known_one() {
    let files = Files::new(&[("small.toml", SMALL)]);
    for (set, near) in [
        ("decode.polcy=head", "did you mean `policy`?"),
        ("decode.policy=heda", "did you mean `head`?"),
        ("decod.k=3", "did you mean `decode`?"),
        ("stage.strem.prompts.train=3", "did you mean `stream`?"),
        (
            "arm[L_DN+L_N-gram].decode.k=3",
            "did you mean `L_DM+L_N-gram`?",
        ),
    ] {
        let error = files.load("small.toml", &[set]).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some(near), "{set}: {error}");
    }
    // A name that is like none of the known ones gets the list of all.
    let error = files.load("small.toml", &["decode.colour=3"]).unwrap_err();
    assert!(error.hint().unwrap().contains("omnidraft config"));
}
