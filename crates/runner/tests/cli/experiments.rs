//! Experiment files and results: errors, reports, publishing and continuing.

use super::support::{CELL, EXPERIMENT, TWO_STAGES, files, omnidraft, refused, run_with};
use predicates::prelude::*;
use predicates::str::contains;
use std::fs::File;
use std::path::Path;

#[test]
fn faulty_experiments_name_file_and_key_and_leave_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let told = |config: &str, extra: &[&str], parts: &[&str]| {
        refused(&mut run_with(config, extra, folder.path()), parts);
        let out = folder.path().join("out");
        assert!(!out.exists(), "a results folder was left behind");
    };
    let replaced = |from: &str, to: &str| EXPERIMENT.replace(from, to);
    told(
        &replaced("train = 2", "trian = 2"),
        &[],
        &["experiment.toml:8", "trian", "hint:"],
    );
    told(
        &replaced("\"SpD_DM\"", "\"SpD\""),
        &[],
        &["experiment.toml:14", "no preset `SpD`", "hint:"],
    );
    told(
        EXPERIMENT,
        &["--set", "decode.kk=3"],
        &["decode.kk", "hint:"],
    );
    told(
        EXPERIMENT,
        &["--set", "decode.k=0"],
        &["decode.k: 0 is outside 1..=64", "hint:"],
    );
    told(EXPERIMENT, &["--only", "taks=x"], &["taks", "task"]);
    told(EXPERIMENT, &["--stage", "steam"], &["steam", "stream"]);
    told(&replaced("mini-math", "maths"), &[], &["maths", "hint:"]);

    // A key of an included file.
    let included = folder.path().join("base.toml");
    std::fs::write(&included, "[learn]\nlerning_rate = 0.1\n").unwrap();
    told(
        &format!("include = [\"base.toml\"]\n{EXPERIMENT}"),
        &[],
        &["base.toml:2", "lerning_rate", "hint:"],
    );
    told(
        EXPERIMENT,
        &["--include", included.to_str().unwrap()],
        &["base.toml:2", "lerning_rate", "hint:"],
    );
    told(
        &format!("include = [\"nowhere.toml\"]\n{EXPERIMENT}"),
        &[],
        &["nowhere.toml", "experiment.toml:1", "hint:"],
    );
    // A value of the grid of a wrong type.
    told(
        &replaced("[grid]", "[grid]\nseed = [1, \"two\"]"),
        &[],
        &["experiment.toml:6", "grid.seed", "two", "hint:"],
    );
    told(
        &replaced("[grid]", "[grid]\n\"decode.k\" = [1, \"two\"]"),
        &[],
        &["experiment.toml:6", "decode.k", "two", "hint:"],
    );
    // An unknown metric is reported before hours of work, not after them.
    told(
        &format!("{EXPERIMENT}[report]\ncell = [\"acceptance\", \"speed\"]\n"),
        &[],
        &[
            "experiment.toml",
            "report.cell",
            "`speed`",
            "hint:",
            "speedup",
        ],
    );
    // Stages that start from missing stages, or from each other.
    told(
        &replaced("[stage.stream]", "[stage.stream]\nfrom = \"begin\""),
        &[],
        &["experiment.toml:8", "stage.stream.from", "begin", "hint:"],
    );
    let circle = "[stage.stream]\nfrom = \"b\"\n[stage.b]\nfrom = \"stream\"";
    told(
        &replaced("[stage.stream]", circle),
        &[],
        &["experiment.toml:", "circle", "stream", "b", "hint:"],
    );
    // Arms of one name, a sweep over nothing.
    told(
        &format!("{EXPERIMENT}[[arm]]\npreset = \"SpD_DM\"\n"),
        &[],
        &["experiment.toml:15", "two arms", "`SpD_DM`", "hint:"],
    );
    told(
        &format!("{EXPERIMENT}[sweep]\n\"decode.kk\" = [1, 2]\n"),
        &[],
        &["experiment.toml:16", "decode.kk", "hint:"],
    );
}

#[test]
fn files_that_are_no_experiment_are_told_what_they_are() {
    let folder = tempfile::tempdir().unwrap();
    let run = |file: &str| {
        let mut command = omnidraft();
        command.args(["run", file]);
        command
    };
    let output = run("experiments/tabel1.toml").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("did you mean experiments/table1.toml?"),
        "{said}"
    );
    assert_eq!(said.matches("os error 2").count(), 1, "{said}");
    refused(
        &mut run("README.md"),
        &[
            "README.md: not an experiment file: line 3",
            "hint:",
            ".toml",
        ],
    );
    // A single table in place of a list of tables.
    for (text, line) in [
        (EXPERIMENT.replacen("[[arm]]", "[arm]", 1), 11),
        (
            EXPERIMENT.replace("[[arm]]\npreset = \"SpD", "[arm]\npreset = \"SpD"),
            13,
        ),
    ] {
        refused(
            &mut run_with(&text, &[], folder.path()),
            &[
                &format!("experiment.toml:{line}: arm: `[arm]` is one table"),
                "hint: write [[arm]]",
            ],
        );
    }
}

/// A page with empty parts and arms that would learn nothing give warnings, not errors.
#[test]
fn what_is_asked_for_in_vain_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let report = "[[arm]]\npreset = \"L_DM\"\n[report]\ncell = [\"speedup\"]\nfigures = [\"drift\", \"sweep\"]\n";
    let text = format!("{EXPERIMENT}{report}").replace("train = 2, test = 2", "test = 2");
    run_with(&text, &["--dry-run"], folder.path())
        .assert()
        .success()
        .stderr(
            contains(
                "warning: report.cell asks for speedup, and stage `stream` is not `exclusive`",
            )
            .and(contains("`drift` will not be drawn"))
            .and(contains("`sweep` will not be drawn"))
            .and(contains("nothing is learnt before them by `L_DM`")),
        );
}

/// The same mistake has the same message in a grid and in segments, before anything runs.
#[test]
fn more_prompts_than_there_are_and_leaks_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let told = |text: &str, extra: &[&str], parts: &[&str]| {
        for dry in [&[][..], &["--dry-run"]] {
            let extra = [extra, dry].concat();
            refused(&mut run_with(text, &extra, folder.path()), parts);
            assert!(!folder.path().join("out").exists());
        }
    };
    let many = ["--set", "stage.stream.prompts.train=99999"];
    told(
        EXPERIMENT,
        &many,
        &[
            "stage.stream.prompts.train",
            "99999 prompts",
            "`mini-math` has 400",
            "hint:",
        ],
    );
    let segment = |train: usize| {
        format!("[[segment]]\ntask = \"mini-math\"\nprompts = {{ train = {train} }}\n")
    };
    let text = EXPERIMENT.replace(
        "[grid]\ntask = \"mini-math\"\n",
        &(segment(300) + &segment(101)),
    );
    told(
        &text,
        &[],
        &[
            "experiment.toml:10: segment.1.prompts.train: 101 prompts after the 300",
            "`mini-math` has 400",
            "hint:",
        ],
    );
    let task = folder.path().join("data/sums");
    std::fs::create_dir_all(&task).unwrap();
    let line = |id: &str, prompt: &str| format!("{{\"id\": \"{id}\", \"prompt\": \"{prompt}\"}}\n");
    let train = line("a", "1+1") + &line("b", "1+2") + &line("c", "1+3");
    std::fs::write(task.join("train.jsonl"), train).unwrap();
    std::fs::write(
        task.join("test.jsonl"),
        line("b", "1+2") + &line("x", "1+3 ") + &line("d", "9"),
    )
    .unwrap();
    let data = folder.path().join("data");
    told(
        &EXPERIMENT.replace("mini-math", "sums"),
        &["--data-dir", data.to_str().unwrap()],
        &[
            "2 of the 3 held-out prompts of `sums`",
            "b, x (train: c)",
            "hint:",
        ],
    );
}

/// Requirements that the drafter does not meet are reported before anything is loaded.
#[test]
fn more_than_the_drafter_has_to_learn_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let told = |set: &str, parts: &[&str]| {
        let learns = format!("\n[[arm]]\npreset = \"L_DM\"\nset = {{ {set} }}\n");
        let text = format!("{EXPERIMENT}{learns}");
        for dry in [&[][..], &["--dry-run"]] {
            refused(&mut run_with(&text, dry, folder.path()), parts);
            assert!(!folder.path().join("out").exists());
        }
    };
    let blocks = [
        "experiment.toml:",
        "learn.blocks: arm `L_DM`",
        "9",
        "hint: 1 to 2",
    ];
    told("\"learn.blocks\" = 9", &blocks);
    // Also after an arm whose name its own begins with, and after a sweep.
    let parts = ["learn.blocks: arm `L_DM+L_N-gram`", "hint: 1 to 2"];
    for sweep in ["", "\nsweep = { \"decode.k\" = [2, 3] }"] {
        let second = "[[arm]]\npreset = \"L_DM+L_N-gram\"\nset = { \"learn.blocks\" = 9";
        let both = format!("\"learn.blocks\" = 1 }}{sweep}\n{second}");
        told(&both, &parts);
    }
    // A value that only a sweep gives, of the arm or of all.
    let swept = [
        "experiment.toml:",
        "learn.blocks: arm `L_DM (blocks = 9)`",
        "hint: 1 to 2",
    ];
    for sweep in [
        "sweep = { \"learn.blocks\" = [1, 9]",
        "[sweep]\nlearn = { blocks = [1, 9]",
    ] {
        told(&format!("\"learn.every\" = 1 }}\n{sweep}"), &swept);
    }
    // Also in the second of two neighbours that have one name in the file.
    let first = "\"learn.every\" = 1 }\nsweep = { \"decode.k\" = [2] }";
    let second = "[[arm]]\npreset = \"L_DM\"\nsweep = { \"decode.k\" = [3] }";
    told(
        &format!("{first}\n{second}\nset = {{ \"learn.blocks\" = 9"),
        &["learn.blocks: arm `L_DM (k = 3)`", "hint: 1 to 2"],
    );
    let rank = ["experiment.toml:", "learn.lora.rank: arm `L_DM`", "hint:"];
    told("\"learn.lora.rank\" = 999", &rank);
    told(
        "\"learn.likely\" = 1e-3, \"learn.sampled\" = 100000",
        &[
            "experiment.toml:",
            "learn.sampled: arm `L_DM`",
            "100000",
            "hint:",
        ],
    );
    told(
        "\"learn.within\" = 16, \"learn.asynchronous\" = true",
        &[
            "experiment.toml:",
            "learn.within",
            "learn.asynchronous",
            "hint:",
        ],
    );
}

/// The line that is told is the one that gives the value, also if `[learn]` has a smaller one.
#[test]
fn more_to_learn_in_some_jobs_than_the_drafter_has_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let learns = "[[arm]]\npreset = \"L_DM\"\n[learn]\nblocks = 1\n";
    let grid = "task = \"mini-math\"";
    let stage = "prompts = { train = 2, test = 2 }";
    let nine = "set = { \"learn.blocks\" = 9 }";
    let when = format!("\n[[when]]\nstage = \"stream\"\n{nine}\n");
    for (place, added, more) in [
        (grid, "learn.blocks = [1, 9]", ""),
        (stage, nine, ""),
        ("", "", when.as_str()),
    ] {
        let config = match place {
            "" => EXPERIMENT.to_owned(),
            _ => EXPERIMENT.replace(place, &format!("{place}\n{added}")),
        };
        let config = format!("{config}{learns}{more}");
        let given = config.lines().position(|line| line.contains('9')).unwrap();
        let told = format!("experiment.toml:{}: learn.blocks: arm `L_DM`", given + 1);
        refused(
            &mut run_with(&config, &["--dry-run"], folder.path()),
            &[told.as_str(), "hint: 1 to 2"],
        );
    }
}

#[test]
fn faulty_streams_name_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let task = folder.path().join("data/sums");
    std::fs::create_dir_all(&task).unwrap();
    let good = "{\"id\": \"a\", \"prompt\": \"1+1\", \"reference\": \"2\"}\n";
    std::fs::write(task.join("test.jsonl"), good.replace("\"a\"", "\"z\"")).unwrap();
    let told = |train: &str, part: &str| {
        std::fs::write(task.join("train.jsonl"), train).unwrap();
        let config = EXPERIMENT.replace("mini-math", "sums");
        let data = folder.path().join("data");
        let extra = ["--data-dir", data.to_str().unwrap()];
        refused(
            &mut run_with(&config, &extra, folder.path()),
            &["train.jsonl", part],
        );
    };
    told(&format!("{good}{{\"id\": \"b\", \"prompt\": \"2+"), "2");
    told(&format!("{good}{good}"), "`a`");
    told("", "the stream is empty");
    let out = folder.path().join("out");
    assert!(!out.exists(), "a results folder was left behind");
}

#[test]
fn a_run_is_reported_published_and_gone_on_with() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out");
    run_with(EXPERIMENT, &["--dry-run"], folder.path())
        .assert()
        .success()
        .stdout(
            contains("task=mini-math,seed=1")
                .and(contains("2 held-out prompts, 2 arms"))
                .and(contains("models/L: "))
                .and(contains("an estimate: about ")),
        )
        .stderr("");
    assert!(!out.exists(), "a dry run leaves nothing");

    let log = run_with(EXPERIMENT, &[], folder.path())
        .assert()
        .success()
        .stdout(
            contains("SpD_DM").and(contains("What each column means").or(contains("Each entry: "))),
        )
        .stderr(contains("started stream/").and(contains("finished stream/")))
        .stderr(contains("page: ").and(contains("out/report/report.md")));
    let log = String::from_utf8_lossy(&log.get_output().stderr).into_owned();
    assert!(!log.contains("INFO") && !log.contains('\u{1b}'), "{log}");
    assert!(out.join("report/report.md").is_file());
    let manifest = folder.path().join(CELL).join("manifest.json");
    let before = std::fs::read(&manifest).unwrap();

    // The same command again does nothing; with another seed it runs the missing jobs.
    let seeds = ["--set", "grid.seed=[1, 2]"];
    for extra in [&[][..], &seeds] {
        run_with(EXPERIMENT, extra, folder.path())
            .assert()
            .success()
            .stdout(contains("SpD_DM"));
    }
    assert!(before == std::fs::read(&manifest).unwrap());
    let status = |extra: &[&str]| {
        let mut command = omnidraft();
        command.arg("status").arg(&out).args(extra);
        let output = command.assert().success().get_output().stdout.clone();
        String::from_utf8(output).unwrap()
    };
    assert!(status(&[]).contains("stream"), "{}", status(&[]));
    let json: serde_json::Value = serde_json::from_str(&status(&["--json"])).unwrap();
    assert_eq!(json["name"], "small");
    assert_eq!(json["stages"][0]["complete"], 2);

    let published = folder.path().join("published");
    omnidraft()
        .arg("publish")
        .args([&out, &published])
        .assert()
        .success();
    for folder in [&out, &published] {
        // Rows of all cells in one table, distinguished by columns.
        let rows = |extra: &[&str]| {
            let mut command = omnidraft();
            command.arg("rows").arg(folder).args(extra);
            command
        };
        let text = rows(&[]).assert().success().get_output().stdout.clone();
        let text = String::from_utf8(text).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let names = reader.headers().unwrap().clone();
        let at = |name: &str| names.iter().position(|own| own == name).unwrap();
        assert_eq!((&names[0], &names[1]), ("stage", "cell"));
        let all: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let cell = |row: &csv::StringRecord| (row[at("arm")].to_owned(), row[1].to_owned());
        let cells: std::collections::BTreeSet<_> = all.iter().map(cell).collect();
        assert!(cells.len() > 1 && all.len() >= cells.len(), "{cells:?}");
        // A rate without any round has no value.
        let plain = all.iter().find(|row| &row[at("arm")] == "autoregressive");
        assert_eq!(&plain.unwrap()[at("acceptance_rate")], "");
        let file = folder.join("flat.parquet");
        let parquet = ["--table", "prompts", "--out", file.to_str().unwrap()];
        rows(&parquet)
            .assert()
            .success()
            .stderr(contains(format!("{} rows", all.len())));
        let reader = parquet::file::reader::SerializedFileReader::new(File::open(&file).unwrap());
        let meta = parquet::file::reader::FileReader::metadata(&reader.unwrap()).clone();
        assert_eq!(meta.file_metadata().num_rows(), all.len() as i64);
        assert_eq!(
            meta.file_metadata().schema_descr().num_columns(),
            names.len()
        );
        std::fs::remove_file(&file).unwrap();
        rows(&["--columns"])
            .assert()
            .success()
            .stdout(contains("acceptance_rate: Mean of"));
        refused(&mut rows(&["--stage", "nowhere"]), &["`nowhere`", "hint:"]);
        refused(
            &mut rows(&["--out", "rows.xls"]),
            &["rows.xls", "hint: give --format"],
        );
        let check = |folder: &Path| {
            let mut command = omnidraft();
            command.arg("report").arg(folder).arg("--check");
            command
        };
        check(folder).assert().success();
        let page = folder.join("report/report.md");
        let text = std::fs::read_to_string(&page).unwrap();
        std::fs::write(&page, text.replacen("SpD_DM", "SpD_XX", 1)).unwrap();
        refused(&mut check(folder), &["report.md", "line"]);
        let mut report = omnidraft();
        report.arg("report").arg(folder).assert().success();
        assert_eq!(std::fs::read_to_string(&page).unwrap(), text);
    }
}

#[test]
fn the_reference_of_keys_is_printed() {
    omnidraft()
        .arg("config")
        .assert()
        .success()
        .stdout(experiment::reference::markdown());
}

#[test]
fn a_stage_may_go_on_from_one_that_taught_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let later = "[stage.held-out]\nfrom = \"stream\"\nprompts = { test = 1 }\n";
    run_with(&format!("{EXPERIMENT}{later}"), &[], folder.path())
        .assert()
        .success();
}

#[test]
fn an_edited_experiment_is_refused_over_its_results() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{EXPERIMENT}{TWO_STAGES}");
    run_with(&text, &["--stage", "stream"], folder.path())
        .assert()
        .success();
    let out = folder.path().join("out");
    let before = files(&out);
    let cell = "stream/task=mini-math,seed=1";
    let told = |text: &str, extra: &[&str], parts: &[&str]| {
        refused(&mut run_with(text, extra, folder.path()), parts);
        assert!(files(&out) == before, "something was written");
    };
    let edited = text.replace("max_new_tokens = 8", "max_new_tokens = 9");
    let key = "decode.max_new_tokens was 8, is 9";
    told(&edited, &[], &[cell, key, "edited", "hint:", "--out"]);
    // The stages after the edited one are refused too, and so is an override.
    let later = ["--stage", "held-out"];
    let key = "decode.k was 4, is 3";
    told(
        &text,
        &["--set", "decode.k=3"],
        &[cell, key, "edited", "hint:"],
    );
    told(&edited, &later, &[cell, "edited", "hint:"]);
    let renamed = text.replace("\"small\"", "\"other\"");
    told(&renamed, &[], &["`small`", "`other`", "hint:"]);

    // A folder that is not a run.
    let strange = folder.path().join("strange");
    std::fs::create_dir(&strange).unwrap();
    std::fs::write(strange.join("thesis.tex"), "").unwrap();
    let mut command = run_with(&text, &[], folder.path());
    refused(
        command.arg("--out").arg(&strange),
        &["cannot be used multiple times"],
    );
    let mut command = omnidraft();
    command
        .arg("run")
        .arg(folder.path().join("experiment.toml"));
    refused(
        command.arg("--out").arg(&strange),
        &["strange", "experiment.json", "hint:"],
    );
    refused(
        omnidraft().arg("status").arg(&strange),
        &["strange", "experiment.json", "hint:"],
    );
    assert_eq!(files(&strange).len(), 1);
}

#[test]
fn results_of_another_program_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    run_with(EXPERIMENT, &[], folder.path()).assert().success();
    let out = folder.path().join("out");
    let path = folder.path().join(CELL).join("manifest.json");
    let whole: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let write = |manifest: &serde_json::Value| std::fs::write(&path, manifest.to_string()).unwrap();
    let told = |parts: &[&str]| {
        let before = files(&out);
        refused(&mut run_with(EXPERIMENT, &[], folder.path()), parts);
        assert!(files(&out) == before, "something was written");
    };

    let mut other = whole.clone();
    other["schema"] = 999.into();
    write(&other);
    told(&["mini-math", "layout 999", "hint:", "--out"]);
    refused(
        omnidraft().arg("report").arg(&out),
        &["manifest.json", "999", "hint:"],
    );

    other = whole.clone();
    other["build"]["version"] = "9.9.9".into();
    write(&other);
    told(&["mini-math", "version 9.9.9", "hint:", "--out"]);

    other = whole.clone();
    other["build"]["git_commit"] = "0123456789".into();
    write(&other);
    told(&["mini-math", "0123456789", "hint:", "--accept-other-build"]);
    run_with(EXPERIMENT, &["--accept-other-build"], folder.path())
        .assert()
        .success();

    std::fs::write(&path, "{").unwrap();
    told(&["manifest.json, line 1", "hint:", "remove"]);
    write(&whole);
    let record = out.join("experiment.json");
    let text = std::fs::read_to_string(&record).unwrap();
    let other = text.replacen("\"schema\": 1", "\"schema\": 77", 1);
    assert_ne!(other, text);
    std::fs::write(&record, other).unwrap();
    told(&["experiment.json", "layout 77", "hint:"]);
}
