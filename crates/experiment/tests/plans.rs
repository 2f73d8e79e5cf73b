//! Cells, stages, jobs and selections of jobs.

use crate::common;

use std::path::Path;

use common::{Files, SMALL, plan, says, set, wrong};
use experiment::{Count, LauncherValue, OnStream, Plan, Segment};

const NONE: Count = Count::Number(0);

const STAGES: &str = r#"include = ["zoo.toml"]
name = "two"
[grid]
seed = [1, 2]
target = ["L", "Q"]
task = ["gsm8k", "xsum"]
[[when]]
task = "xsum"
prompts = { train = 7 }
[stage.held-out]
from = "stream"
exclusive = true
prompts = { test = "all" }
set = { "decode.threads" = 2 }
[stage.stream]
prompts = { train = 100 }
on_stream = "all"
[[arm]]
preset = "L_DM"
"#;

fn ids(plan: &Plan) -> Vec<String> {
    plan.jobs.iter().map(|job| job.config.to_string()).collect()
}

#[test]
fn stages_follow_what_they_start_from_and_cells_the_grid() {
    let plan = plan(STAGES);
    assert_eq!(plan.jobs.len(), 16);
    let ids = ids(&plan);
    assert_eq!(
        ids[..4],
        [
            "stream/seed=1,target=L,task=gsm8k",
            "stream/seed=1,target=L,task=xsum",
            "stream/seed=1,target=Q,task=gsm8k",
            "stream/seed=1,target=Q,task=xsum",
        ]
    );
    assert_eq!(ids[8], "held-out/seed=1,target=L,task=gsm8k");
    let (stream, held_out) = (&plan.jobs[1], &plan.jobs[9]);
    assert_eq!(held_out.config.from.as_deref(), Some("stream"));
    assert_eq!(held_out.config.cell, stream.config.cell);
    assert_eq!(
        (
            stream.config.from.clone(),
            stream.config.save,
            held_out.config.save
        ),
        (None, true, false)
    );
    assert_eq!(held_out.config.from.as_deref(), Some("stream"));
    assert!(held_out.config.exclusive && !stream.config.exclusive);
    assert_eq!(
        (stream.config.on_stream, held_out.config.on_stream),
        (OnStream::All, OnStream::Learning)
    );
    assert_eq!(
        (
            stream.config.decode().threads,
            held_out.config.decode().threads
        ),
        (1, 2)
    );
    // The number of a condition replaces that of a split that the stage uses.
    let counts = |job: usize| {
        let segment: &Segment = &plan.jobs[job].config.segments[0];
        (segment.train, segment.test)
    };
    assert_eq!(counts(0), (Count::Number(100), NONE));
    assert_eq!(counts(1), (Count::Number(7), NONE));
    assert_eq!(counts(9), (NONE, Count::All));
    // Only the models in use.
    let targets: Vec<&String> = stream.config.models.targets.keys().collect();
    assert_eq!(targets, ["L"]);
    assert_eq!(plan.jobs[15].config.seed, 2);
}

#[test]
fn unions_one_target_and_words() {
    let text = "name = \"x\"\n[models]\ndrafter = \"D\"\ntargets = { L = \"L\" }\n\
        [[grid]]\ntask = \"a\"\nsize = [\"small\", \"large one\"]\n[[grid]]\nsize = \"small\"\ntask = \"b\"\n\
        [[when]]\nsize = \"large one\"\nset = { \"models.drafter\" = \"big\", \"models.pad_stream\" = true }\n\
        [stage.s]\nprompts = { test = 3 }\n[[arm]]\npreset = \"SpD_DM\"\n";
    let plan = plan(text);
    let names = ids(&plan);
    assert_eq!(
        names,
        [
            "s/task=a,size=small,seed=1",
            "s/task=a,size=large-one,seed=1",
            "s/task=b,size=small,seed=1"
        ]
    );
    assert_eq!(
        plan.jobs[1].coordinates[1],
        ("size".to_owned(), "large one".to_owned())
    );
    let drafter = |job: usize| plan.jobs[job].config.models.drafter.path.clone();
    assert_eq!(
        (drafter(0).as_path(), drafter(1).as_path()),
        (Path::new("D"), Path::new("big"))
    );
    assert!(plan.jobs[1].config.models.pad_stream);
    assert_eq!(plan.jobs[0].config.segments[0].target, "L");
    assert_eq!(plan.experiment.axes[0].values, ["a", "b"]);
}

#[test]
fn a_model_can_be_an_axis() {
    let text = SMALL.replace(
        "[stage.stream]",
        "\"models.drafter\" = [\"models/D\", \"models/E\"]\n[stage.stream]",
    );
    let plan = plan(&text);
    assert_eq!(
        plan.jobs[1].config.cell,
        "target=L,task=gsm8k,models.drafter=models-E,seed=1"
    );
    assert_eq!(
        plan.jobs[1].config.models.drafter.path,
        Path::new("models/E")
    );
}

#[test]
fn drift_is_one_job_with_segments() {
    let text = "include = [\"zoo.toml\"]\nname = \"drift\"\n[grid]\nseed = [1, 2]\n\
        [stage.stream]\nprompts = { train = \"all\", test = 5 }\n[stage.after]\nfrom = \"stream\"\nprompts = { test = \"all\" }\n\
        [[segment]]\ntask = \"gsm8k\"\ntarget = \"L\"\nprompts = { train = 300, test = 0 }\n\
        [[segment]]\ntask = \"xsum\"\ntarget = \"Q\"\n[[arm]]\npreset = \"L_DM\"\n";
    let drift = plan(text);
    assert_eq!(
        ids(&drift),
        [
            "stream/seed=1",
            "stream/seed=2",
            "after/seed=1",
            "after/seed=2"
        ]
    );
    let counts = |job: usize, i: usize| {
        let segment = &drift.jobs[job].config.segments[i];
        (segment.train, segment.test)
    };
    assert_eq!(counts(0, 0), (Count::Number(300), NONE));
    assert_eq!(counts(0, 1), (Count::All, Count::Number(5)));
    assert_eq!(counts(2, 0), (NONE, NONE));
    assert_eq!(counts(2, 1), (NONE, Count::All));
    assert_eq!(drift.jobs[0].config.models.targets.len(), 2);
    // Without numbers in the stage, the segments give them.
    let own = text
        .replace("prompts = { train = \"all\", test = 5 }\n", "")
        .replace(
            "[[segment]]\ntask = \"xsum\"\n",
            "[[segment]]\ntask = \"xsum\"\nprompts = { test = 2 }\n",
        );
    let own = plan(&own);
    assert_eq!(own.jobs[0].config.segments[0].train, Count::Number(300));
    assert_eq!(own.jobs[0].config.segments[1].train, NONE);
}

#[test]
fn a_stage_may_leave_segments_out() {
    let text = "include = [\"zoo.toml\"]\nname = \"drift\"\n[stage.stream]\nprompts = { train = 5 }\n\
        [stage.alone]\nsegments = [2, 3]\nprompts = { train = 5 }\n\
        [[segment]]\ntask = \"gsm8k\"\ntarget = \"L\"\nprompts = { train = 300 }\n\
        [[segment]]\ntask = \"xsum\"\ntarget = \"L\"\n\
        [[segment]]\ntask = \"gsm8k\"\ntarget = \"Q\"\n[[arm]]\npreset = \"L_DM\"\n";
    let drift = plan(text);
    let skips = |job: usize| -> Vec<usize> {
        let segments = &drift.jobs[job].config.segments;
        segments.iter().map(|segment| segment.skip).collect()
    };
    assert_eq!(skips(0), [0, 0, 0]);
    assert_eq!(skips(1), [0, 300]);
    for (numbers, why) in [
        ("[]", "must name some of the segments 1 to 3"),
        ("[0]", "must name some of the segments 1 to 3"),
        ("[4]", "must name some of the segments 1 to 3"),
        ("[2, 2]", "must rise"),
        ("[3, 2]", "must rise"),
    ] {
        says(
            &wrong(&text.replace("[2, 3]", numbers)),
            &["stage.alone.segments", why],
        );
    }
    let small = SMALL.replace("[stage.stream]", "[stage.stream]\nsegments = [1]");
    says(&wrong(&small), &["no [[segment]] tables"]);
}

#[test]
fn jobs_are_chosen_by_coordinates_and_stage() {
    let all = plan(STAGES);
    let some = all
        .clone()
        .only(&[("target", "L"), ("task", "xsum")])
        .unwrap();
    assert_eq!(some.jobs.len(), 4);
    let either = all
        .clone()
        .only(&[("target", "L"), ("target", "Q")])
        .unwrap();
    assert_eq!(either.jobs.len(), 16);
    let some = some.stage("held-out").unwrap();
    assert_eq!(
        ids(&some),
        [
            "held-out/seed=1,target=L,task=xsum",
            "held-out/seed=2,target=L,task=xsum"
        ]
    );
    assert_eq!(some.jobs[0].config.from.as_deref(), Some("stream"));
    let no = |wanted: &[(&str, &str)]| all.clone().only(wanted).unwrap_err().to_string();
    says(
        &no(&[("model", "L")]),
        &["no axis `model` (one of seed, target, task)"],
    );
    says(
        &no(&[("target", "X")]),
        &["axis `target` has no value `X` (one of L, Q)"],
    );
    says(
        &all.clone().stage("x").unwrap_err().to_string(),
        &["no stage `x` (one of stream, held-out)"],
    );
    let union = "name = \"x\"\n[models]\ndrafter = \"D\"\ntargets = { L = \"L\", Q = \"Q\" }\n\
        [[grid]]\ntask = \"a\"\ntarget = \"L\"\n[[grid]]\ntask = \"b b\"\ntarget = \"Q\"\n\
        [stage.s]\nprompts = { test = 3 }\n[[arm]]\npreset = \"SpD_DM\"\n";
    let union = plan(union);
    let none = union
        .clone()
        .only(&[("task", "a"), ("target", "Q")])
        .unwrap_err()
        .to_string();
    says(
        &none,
        &[
            "no job is left of task=a, target=Q",
            "task = a, b b; target = L, Q",
        ],
    );
    assert_eq!(
        union.clone().only(&[("task", "b-b")]).unwrap().jobs.len(),
        1
    );
    assert_eq!(union.only::<&str>(&[]).unwrap().jobs.len(), 2);
}

#[test]
fn parts_of_a_grid_from_the_command_line_need_no_conditions() {
    let plan = set(STAGES, &["grid.task=[\"gsm8k\"]"]);
    assert_eq!(plan.jobs.len(), 8);
}

#[test]
fn an_arm_without_state_cannot_begin_to_adapt_in_a_later_stage() {
    for (key, value) in [
        ("decode.lookup", "\"prompt\""),
        ("decode.policy", "\"throughput\""),
    ] {
        let text = STAGES
            .replace("\"decode.threads\" = 2", &format!("\"{key}\" = {value}"))
            .replace("preset = \"L_DM\"", "preset = \"SpD_DM\"");
        says(
            &common::wrong(&text),
            &[key, "arm `SpD_DM`: is not what it was in stage `stream`"],
        );
    }
}

#[test]
fn what_is_learnt_must_fit_the_stage_that_starts_from_it() {
    for (key, value) in [
        ("learn.objective", "\"none\""),
        ("learn.lora.rank", "4"),
        ("head.training", "\"joint\""),
    ] {
        let text = STAGES.replace("\"decode.threads\" = 2", &format!("\"{key}\" = {value}"));
        let section: Vec<&str> = key.split('.').take(2).collect();
        says(
            &common::wrong(&text),
            &[
                "x.toml",
                &section.join("."),
                "arm `L_DM`: is not what it was in stage `stream`",
            ],
        );
    }
}

#[test]
fn the_report_knows_stage_arms_and_paper() {
    let text = format!(
        "{STAGES}[sweep]\n\"decode.k\" = [1, 2]\n[report]\nrows = [\"target\", \"arm\"]\ncolumns = \"task\"\n\
         ratios = [[\"L_DM (k = 1)\", \"L_DM\"]]\npaper = \"paper/p.toml\"\nformats = [\"md\", \"html\"]\n\
         [launcher.slurm]\npartition = \"gpu\"\ncpus-per-task = 2\nrequeue = true\n"
    );
    let files = Files::new(&[("x.toml", &text), ("paper/p.toml", "")]);
    let plan = files.load("x.toml", &[]).unwrap();
    let report = &plan.experiment.report;
    assert_eq!(report.stage.as_deref(), Some("held-out"));
    assert_eq!(
        report.paper.as_deref(),
        Some(files.path("paper/p.toml").as_path())
    );
    assert_eq!(report.ratios[0].1, "L_DM");
    let slurm = &plan.experiment.launcher.slurm;
    assert_eq!(slurm["cpus-per-task"], LauncherValue::Number(2));
    assert_eq!(slurm["requeue"], LauncherValue::Flag(true));
    assert_eq!(slurm["partition"], LauncherValue::Text("gpu".to_owned()));
}
