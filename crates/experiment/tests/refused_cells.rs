//! Refused grids, stages, conditions and segments, and their messages.

use crate::common;

use common::{SMALL, says, wrong, wrong_set};

/// The faults of `SMALL` followed by further lines.
fn small(more: &str) -> String {
    wrong(&format!("{SMALL}{more}"))
}

#[test]
fn wrong_types_in_the_grid() {
    let with =
        |line: &str| wrong(&SMALL.replace("[stage.stream]", &format!("{line}\n[stage.stream]")));
    says(
        &with("seed = [1, \"two\"]"),
        &["x.toml:6: grid.seed: \"two\" is no seed"],
    );
    says(&with("seed = [1.5]"), &["x.toml:6: grid.seed"]);
    says(&with("seed = [-1]"), &["x.toml:6: grid.seed"]);
    says(&with("seed = []"), &["x.toml:6: grid.seed: an axis needs"]);
    says(
        &with("seed = [1, 1]"),
        &["x.toml:6: grid.seed: the value 1 appears twice"],
    );
    says(
        &with("\"decode.k\" = [1, \"two\"]"),
        &["x.toml:6: decode.k: invalid type: string \"two\""],
    );
    says(
        &with("\"decode.k\" = [\n1,\n\"two\"]"),
        &["x.toml:8: decode.k"],
    );
    says(
        &with("\"decode.kk\" = [1]"),
        &["x.toml:6: decode.kk: unknown field"],
    );
    says(
        &with("\"dekode.k\" = [1]"),
        &["x.toml:6: grid.dekode.k: no such axis"],
    );
    says(&with("taks = [1]"), &["x.toml:6: grid.taks: no such axis"]);
    says(
        &with("\"decode.k\" = [[1]]"),
        &["x.toml:6: grid.decode.k", "numbers, words"],
    );
    says(
        &wrong_set(SMALL, &["grid=[]"]),
        &["--set grid=[]: grid: expected a table of axes"],
    );
    let text = wrong(&SMALL.replace("\"Q\"]", "\"R\"]"));
    says(
        &text,
        &["x.toml:4: grid.target: target \"R\" is not in models.targets (L, Q)"],
    );
    says(
        &wrong(&SMALL.replace("\"gsm8k\"", "3")),
        &["x.toml:5: grid.task: 3 is no name"],
    );
}

#[test]
fn cells_of_one_name() {
    let with = |line: &str| wrong(&SMALL.replace("task = [\"gsm8k\", \"xsum\"]", line));
    says(
        &with("task = [\"a b\", \"a/b\"]"),
        &["grid:", "have one folder", "task=a-b"],
    );
    let union =
        "[[grid]]\ntask = [\"a\", \"b\"]\ntarget = \"L\"\n[[grid]]\ntask = [\"b\"]\ntarget = \"L\"";
    let text = SMALL.replace(
        "[grid]\ntarget = [\"L\", \"Q\"]\ntask = [\"gsm8k\", \"xsum\"]",
        union,
    );
    says(
        &wrong(&text),
        &["the cell task=b,target=L,seed=1 appears twice"],
    );
    let text = text.replace("task = [\"b\"]\n", "task = [\"b\"]\n\"decode.k\" = [1]\n");
    says(
        &wrong(&text),
        &["x.toml:6: grid: every [[grid]] has the same axes"],
    );
    let many: Vec<String> = (0..400).map(|i| i.to_string()).collect();
    let many = many.join(", ");
    let text = SMALL.replace(
        "[grid]",
        &format!("[grid]\nseed = [{many}]\n\"decode.k\" = [{many}]"),
    );
    says(&wrong(&text), &["more than 100000"]);
}

#[test]
fn stages_that_start_from_nothing() {
    let stage = |text: &str| {
        wrong(&SMALL.replace("[stage.stream]\nprompts = { train = 100, test = 20 }", text))
    };
    let head = "[stage.a]\nprompts = { test = 1 }\n";
    says(
        &stage(&format!("{head}from = \"b\"")),
        &["x.toml:8: stage.a.from: there is no stage `b` (one of a)"],
    );
    says(
        &stage(&format!("{head}from = \"a\"")),
        &["stage.a.from: a stage cannot start from itself"],
    );
    let circle = format!("{head}from = \"b\"\n[stage.b]\nprompts = {{ test = 1 }}\nfrom = \"a\"");
    says(
        &stage(&circle),
        &["stage: stages start from each other in a circle: a, b"],
    );
    says(&stage(""), &["stage: at least one stage is needed"]);
    says(
        &stage("[stage.a]"),
        &["x.toml:6: stage.a.prompts: the stage answers no prompts"],
    );
    says(
        &stage("[stage.a]\nprompts = { train = 0 }"),
        &["stage.a.prompts"],
    );
    says(
        &stage("[stage.a]\nprompts = { train = \"some\" }"),
        &["stage.a.prompts.train", "\"all\""],
    );
    says(
        &stage("[stage.\"a/b\"]\nprompts = { train = 1 }"),
        &["stage.a/b", "cannot name a folder"],
    );
    says(
        &stage("[stage.report]\nprompts = { train = 1 }"),
        &["cannot name a folder"],
    );
    says(
        &stage("[stage.a]\nprompts = { train = 1 }\nset = { \"lern.lr\" = 1 }"),
        &["stage.a.set.lern: no such section"],
    );
    says(
        &stage("[stage.a]\nprompts = { train = 1 }\nset = { \"learn.lrr\" = 1 }"),
        &["x.toml:8: learn.lrr: unknown field"],
    );
    says(
        &stage("[stage.a]\nprompts = { train = 1 }\non_stream = \"none\""),
        &["stage.a.on_stream: unknown variant"],
    );
}

#[test]
fn conditions_that_match_nothing() {
    let when = |text: &str| small(&format!("[[when]]\n{text}\n"));
    let set = "set = { \"decode.gamma\" = 0.7 }";
    says(
        &when(&format!("task = \"gsm8\"\n{set}")),
        &["x.toml:11: when.0.task: no cell has the value gsm8 (one of gsm8k, xsum)"],
    );
    says(
        &when(&format!("taks = \"gsm8k\"\n{set}")),
        &["x.toml:11: when.0.taks: no such axis (one of target, task, seed, stage)"],
    );
    says(
        &when(&format!("stage = \"held-out\"\n{set}")),
        &["when.0.stage: no cell has the value held-out"],
    );
    says(&when(set), &["when.0: names no axis"]);
    says(&when("task = \"xsum\""), &["when.0: changes nothing"]);
    says(
        &when("task = \"xsum\"\nset = { \"decode.gama\" = 1 }"),
        &["x.toml:12: decode.gama: unknown field"],
    );
    says(
        &when("task = \"xsum\"\nset = { \"decode.gamma\" = 7 }"),
        &["x.toml:12: decode.gamma: 7 is outside"],
    );
    says(
        &when("task = \"xsum\"\nset = { decode = 7 }"),
        &["`decode` is a section"],
    );
    says(&when("task = \"xsum\"\nset = 7"), &["when.0.set"]);
    says(
        &when("task = \"xsum\"\nprompts = { tset = 7 }"),
        &["when.0.prompts.tset: unknown field"],
    );
    let only_train = SMALL.replace(", test = 20", "");
    let text = wrong(&format!(
        "{only_train}[[when]]\ntask = \"xsum\"\nprompts = {{ test = 7 }}\n"
    ));
    says(&text, &["when.0.prompts.test: no stage has prompts.test"]);
    let later = "[stage.later]\nfrom = \"stream\"\nprompts = { test = 5 }\n";
    let of_later = "[[when]]\nstage = \"later\"\nprompts = { train = 7 }\n";
    says(
        &small(&format!("{later}{of_later}")),
        &["when.0.prompts.train: no stage has prompts.train"],
    );
    let drift = only_train.replace("task = [\"gsm8k\", \"xsum\"]\n", "");
    says(
        &wrong(&format!(
            "{drift}[[segment]]\ntask = \"a\"\nprompts = {{ test = 7 }}\n"
        )),
        &["segment.0.prompts.test: no stage has prompts.test"],
    );
}

#[test]
fn segments_beside_a_grid() {
    let drift = SMALL.replace("task = [\"gsm8k\", \"xsum\"]\n", "");
    let segment = "[[segment]]\ntask = \"a\"\n";
    says(
        &small(segment),
        &["x.toml:5: grid.task: there are tasks in [[segment]]"],
    );
    says(&wrong(&drift), &["grid: has no axis `task`"]);
    let named = format!("{drift}[[segment]]\ntask = \"a\"\ntarget = \"L\"\n");
    says(
        &wrong(&named),
        &["grid.target: there are targets in [[segment]]"],
    );
    let none = drift.replace("target = [\"L\", \"Q\"]\n", "");
    says(
        &wrong(&format!("{none}{segment}")),
        &["grid.target: is missing: models.targets has several (L, Q)"],
    );
    let some = format!("{none}{segment}[[segment]]\ntask = \"b\"\ntarget = \"L\"\n");
    says(
        &wrong(&some),
        &["segment.0.target: is missing: other segments name theirs"],
    );
    let unknown = format!("{none}[[segment]]\ntask = \"b\"\ntarget = \"M\"\n");
    says(
        &wrong(&unknown),
        &["x.toml:10: segment.0.target: target `M` is not in models.targets"],
    );
    says(
        &wrong(&format!("{drift}[[segment]]\ntarget = \"L\"\n")),
        &["segment.0: missing field `task`"],
    );
    let empty = format!("{drift}[[segment]]\ntask = \"a\"\nprompts = {{ train = 0, test = 0 }}\n");
    says(
        &wrong(&empty),
        &["stage.stream.prompts: no prompts are left"],
    );
    // The stage takes its numbers from the segments, so there is none to replace.
    let own = drift.replace("prompts = { train = 100, test = 20 }\n", "");
    let own = format!("{own}[[segment]]\ntask = \"a\"\nprompts = {{ train = 30 }}\n");
    says(
        &wrong(&format!(
            "{own}[[when]]\ntarget = \"L\"\nprompts = {{ train = 7 }}\n"
        )),
        &["when.0.prompts.train: no stage has prompts.train"],
    );
}

#[test]
fn a_controller_without_a_clock() {
    let arm = "[[arm]]\npreset = \"L_DM\"\nset = { \"decode.controller\" = true }\n";
    let text = wrong(
        &format!("{SMALL}{arm}").replace("preset = \"L_DM\"", "name = \"own\"\npreset = \"L_DM\""),
    );
    says(
        &text,
        &[
            "decode.controller: arm `own`: a controller decides by seconds, and stage `stream` is not timed",
        ],
    );
    let plain = "[[arm]]\nname = \"own\"\nset = { \"decode.verify\" = \"none\", \"decode.controller\" = true }\n";
    says(&small(plain), &["decode.controller", "plain decoding"]);
    let lookup = "[[arm]]\nname = \"own\"\npreset = \"prompt-lookup\"\nset = { \"decode.controller\" = true }\n";
    says(
        &small(lookup),
        &["decode.controller", "no drafter that could rest"],
    );
}
