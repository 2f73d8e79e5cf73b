//! Refused files, and their messages.

use crate::common;

use common::{SMALL, says, wrong};

/// The faults of `SMALL` followed by further lines.
fn small(more: &str) -> String {
    wrong(&format!("{SMALL}{more}"))
}

#[test]
fn arms_that_are_none() {
    says(
        &small("[[arm]]\npreset = \"L_DM+L_N-gram\"\n"),
        &["x.toml:10: arm: two arms have the name `L_DM+L_N-gram`"],
    );
    let text = small("[[arm]]\npreset = \"L_DN\"\n");
    says(
        &text,
        &[
            "x.toml:11: arm.1.preset: there is no preset `L_DN`",
            "`static n-grams`",
            "`L_DM`",
        ],
    );
    says(
        &small("[[arm]]\nset = { \"decode.k\" = 1 }\n"),
        &["arm.1: an arm needs a name or a preset"],
    );
    says(
        &small("[[arm]]\nname = \"x\"\nset = { \"models.drafter\" = \"y\" }\n"),
        &["arm.1.set.models: no such section"],
    );
    says(
        &wrong(&SMALL.replace("[[arm]]\npreset = \"L_DM+L_N-gram\"\n", "")),
        &["arm: at least one arm is needed"],
    );
}

#[test]
fn sweeps_over_what_does_not_exist() {
    says(
        &small("[sweep]\n\"decode.kk\" = [1]\n"),
        &["x.toml:11: decode.kk: unknown field `kk`"],
    );
    says(
        &small("[sweep]\nk = [1]\n"),
        &["x.toml:11: sweep.k: a sweep takes dotted keys"],
    );
    says(
        &small("[sweep]\n\"models.drafter\" = [1]\n"),
        &["sweep.models.drafter"],
    );
    says(
        &small("[sweep]\n\"decode.k\" = [1, \"a\"]\n"),
        &["x.toml:11: decode.k: invalid type: string \"a\""],
    );
    says(
        &small("[sweep]\n\"decode.k\" = [0]\n"),
        &["x.toml:11: decode.k: 0 is outside"],
    );
    says(
        &small("[sweep]\n\"decode.k\" = 3\n"),
        &["sweep.decode.k: expected a list"],
    );
    says(
        &small("[sweep]\n\"decode.k\" = [1, 1]\n"),
        &["two arms have the name `L_DM+L_N-gram (k = 1)`"],
    );
    says(
        &small("sweep = { \"learn.lrr\" = [1] }\n"),
        &["x.toml:10: learn.lrr: unknown field"],
    );
    says(
        &small("sweep = {}\n[sweep]\n\"decode.k\" = [1]\n"),
        &["sweep: no arm takes these values"],
    );
}

#[test]
fn names_that_are_no_folders() {
    for name in ["", "a b", "../a", ".", "a/b"] {
        says(
            &wrong(&SMALL.replace("\"small\"", &format!("{name:?}"))),
            &["x.toml:2: name: "],
        );
    }
    says(
        &wrong("include = [\"zoo.toml\"]\n"),
        &["missing field `name`", "stage", "arm"],
    );
    let text = wrong(&SMALL.replace("\"small\"", "3"));
    assert_eq!(text.matches("name").count(), 1, "{text}");
}

#[test]
fn models_that_are_missing() {
    let text = wrong(&SMALL.replace("include = [\"zoo.toml\"]\n", ""));
    says(&text, &["models: there is no such section"]);
    let text = small("[models]\ntargets.L = { path = \"x\", pad = 3 }\n");
    says(
        &text,
        &["x.toml:11: models.targets.L.pad: unknown field `pad`"],
    );
    says(
        &small("[models]\ntargets.L = { pad_width = 3 }\n"),
        &["models.targets.L", "`path`"],
    );
    says(
        &small("[models]\ntargets.L = 3\n"),
        &[
            "models.targets.L",
            "a model folder, {",
            "{ trace",
            "or { torch",
        ],
    );
    says(
        &small("[models]\ntargets.L = { path = \"x\", pad_width = -3 }\n"),
        &["pad_width", "-3"],
    );
    says(
        &small("[models]\ndraftr = \"x\"\n"),
        &["x.toml:11: models.draftr: unknown field"],
    );
}

#[test]
fn reports_of_what_is_not_there() {
    let report = |line: &str| small(&format!("[report]\n{line}\n"));
    says(
        &report("stage = \"held-out\""),
        &["x.toml:11: report.stage: there is no stage `held-out` (one of stream)"],
    );
    says(
        &report("rows = [\"target\", \"amr\"]"),
        &[
            "x.toml:11: report.rows.1: there is no axis `amr` (one of arm, target, task, stage, segment, seed)",
        ],
    );
    says(
        &report("paper_names = { L = \"Q\" }"),
        &["x.toml:11: report.paper_names: there is no report.paper"],
    );
    says(
        &report("columns = \"taks\""),
        &["report.columns: there is no axis `taks`"],
    );
    says(
        &report("rows = [\"task\"]\ncolumns = \"arm\""),
        &["report.columns: `arm` is an axis of the rows"],
    );
    says(
        &report("rows = [\"task\", \"arm\"]\ncolumns = \"task\""),
        &["report.columns: `task` is an axis of the rows"],
    );
    says(
        &report("ratios = [[\"L_DM+L_N-gram\", \"L_DM\"]]"),
        &["report.ratios.0.1: there is no arm `L_DM` (one of L_DM+L_N-gram)"],
    );
    says(
        &report("ratios = [[\"L_DM+L_N-gram\"]]"),
        &["report.ratios"],
    );
    says(
        &report("arms = [\"x\"]"),
        &["report.arms.0: there is no arm `x`"],
    );
    says(
        &report("formats = [\"pdf\"]"),
        &[
            "report.formats.0: unknown variant `pdf`",
            "`md`, `csv`, `tex`, `html`, `svg`",
        ],
    );
    says(
        &report("figures = [\"pie\"]"),
        &["report.figures.0: unknown variant `pie`"],
    );
    says(&report("cell = []"), &["report.cell: at least one metric"]);
    says(&report("cell = [\"\"]"), &["report.cell.0"]);
    says(
        &report("paper = \"paper/x.toml\""),
        &["x.toml:11: report.paper: paper/x.toml: no such file"],
    );
    says(&report("papr = 1"), &["report.papr: unknown field"]);
    says(
        &small("[launcher.slrm]\n"),
        &["launcher.slrm: unknown field"],
    );
    says(
        &small("[launcher.slurm]\ntime = [1]\n"),
        &["launcher.slurm.time"],
    );
}
