//! Pages of synthetic experiments: every format, missing cells, errors.

use crate::support;

use report::model::{Entry, Section, Table};
use report::{ReportError, build, compare, write_report};
use serde_json::json;
use std::path::{Path, PathBuf};
use support::Experiment;

fn read(root: &Path, name: &str) -> String {
    std::fs::read_to_string(root.join("report").join(name)).unwrap()
}

fn tables(root: &Path) -> Vec<Table> {
    let sections = build(root).unwrap().page.sections;
    let tables = sections.into_iter().filter_map(|section| match section {
        Section::Table(table) => Some(table),
        Section::Figure(_) => None,
    });
    tables.collect()
}

fn table(root: &Path, id: &str) -> Table {
    let mut tables = tables(root).into_iter();
    tables.find(|table| table.id == id).unwrap()
}

/// The texts and numbers of a row.
fn words(row: &[Entry]) -> Vec<String> {
    let word = |entry: &Entry| match entry {
        Entry::Text { text } => text.clone(),
        Entry::Missing { reason } => reason.clone(),
        Entry::Numbers { numbers } => {
            let texts: Vec<&str> = numbers.iter().map(|number| number.text.as_str()).collect();
            texts.join(" ")
        }
    };
    row.iter().map(word).collect()
}

/// Two tasks, one target, two seeds, few prompts.
fn small() -> Experiment {
    let mut experiment = Experiment::table1();
    experiment.segments.truncate(2);
    for segment in &mut experiment.segments {
        (segment.train, segment.test) = (24, 6);
    }
    experiment
}

#[test]
fn every_format_of_table_1() {
    let root = tempfile::tempdir().unwrap();
    small().write(root.path());
    let summary = write_report(root.path()).unwrap();
    insta::assert_snapshot!("table1_md", read(root.path(), "report.md"));
    insta::assert_snapshot!("table1_csv", read(root.path(), "report.csv"));
    let tex = [
        "table-overview.tex",
        "table-acceptance.tex",
        "table-acceptance-paper.tex",
        "figure-curves.tex",
    ];
    let tex: Vec<String> = tex.iter().map(|name| read(root.path(), name)).collect();
    insta::assert_snapshot!("table1_tex", tex.join("\n"));
    let document = read(root.path(), "report.tex");
    for part in ["table-acceptance-paper.tex", "figure-curves.tex"] {
        assert!(document.contains(&format!("\\input{{{part}}}")), "{part}");
    }
    assert!(summary.markdown.starts_with("| target | arm"));
    assert_eq!(summary.warnings, [] as [String; 0]);
    let names = ["curves", "losses", "cache", "hits", "frequencies"];
    // A page in four formats, figures in two, and a LaTeX file for every table and figure.
    let of_latex = |path: &&PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.starts_with("table-") || name.starts_with("figure-")
    };
    let latex = summary.files.iter().filter(of_latex).count();
    assert_eq!(summary.files.len(), 4 + 2 * names.len() + latex);
    assert!(latex > names.len());
    for name in names {
        let svg = read(root.path(), &format!("{name}.svg"));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        let png = std::fs::read(root.path().join(format!("report/{name}.png"))).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        // Twice the logical size: the SVG's width and height.
        let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
        assert!(svg.starts_with(&format!(r#"<svg width="{}""#, width / 2)));
    }
}

#[test]
fn the_html_page_is_self_contained_and_has_every_number() {
    let root = tempfile::tempdir().unwrap();
    small().write(root.path());
    write_report(root.path()).unwrap();
    let html = read(root.path(), "report.html");
    for outside in ["http:", "https:", "src=", "@import", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    assert_eq!(html.matches("<svg").count(), 5);
    let mut numbers = 0;
    for table in tables(root.path()) {
        assert!(html.contains(&format!(r#"<section id="{}">"#, table.id)));
        for entry in table.rows.iter().flatten() {
            if let Entry::Numbers { numbers: own } = entry {
                for number in own {
                    let text = number.text.replace('<', "&lt;");
                    assert!(
                        html.contains(&format!(">{text}<")),
                        "{text} of {}",
                        table.id
                    );
                    assert!(number.cell.is_none() || !number.source.is_empty());
                    numbers += 1;
                }
            }
        }
    }
    assert!(numbers > 100, "{numbers}");
    let link = "../held-out/target=L,task=gsm8k,seed=1/manifest.json";
    assert!(html.contains(&format!(r#"<a href="{link}""#)));
    assert!(root.path().join("report").join(link).exists());
    assert!(html.contains("split=test: 6 prompts, 2 seeds of 2 cells"));
}

#[test]
fn the_same_rows_give_the_same_bytes() {
    let root = tempfile::tempdir().unwrap();
    small().write(root.path());
    write_report(root.path()).unwrap();
    assert_eq!(compare(root.path()).unwrap(), []);

    // Published rows give the same page, although stages that were not timed lose their times.
    let goal = tempfile::tempdir().unwrap();
    let to = goal.path().join("table1");
    results::publish(root.path(), &to, true).unwrap();
    let report = to.join("report");
    std::fs::create_dir(&report).unwrap();
    for entry in std::fs::read_dir(root.path().join("report")).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), report.join(entry.file_name())).unwrap();
    }
    assert_eq!(compare(&to).unwrap(), []);

    let page = report.join("report.md");
    let text = std::fs::read_to_string(&page).unwrap();
    std::fs::write(&page, text.replacen("L_DM", "L_MD", 1)).unwrap();
    std::fs::remove_file(report.join("cache.png")).unwrap();
    for old in ["drift.svg", "speed-2.png"] {
        std::fs::write(report.join(old), "old").unwrap();
    }
    let own = ["notes.txt", "notes.md", "speed-slide.png"];
    for name in own {
        std::fs::write(report.join(name), "mine").unwrap();
    }
    let mut differences: Vec<String> = compare(&to)
        .unwrap()
        .into_iter()
        .map(|d| format!("{}: {}", d.path.file_name().unwrap().display(), d.what))
        .collect();
    differences.sort();
    assert_eq!(differences.len(), 4, "{differences:?}");
    assert_eq!(differences[0], "cache.png: missing");
    assert_eq!(differences[1], "drift.svg: not made from these rows");
    assert!(differences[2].starts_with("report.md: differs from line"));
    assert_eq!(differences[3], "speed-2.png: not made from these rows");
    write_report(&to).unwrap();
    assert_eq!(compare(&to).unwrap(), []);
    assert!(!report.join("drift.svg").exists());
    for name in own {
        assert!(report.join(name).exists(), "{name}");
    }
}

#[test]
fn missing_cells_are_shown_and_counted() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = small();
    for seed in [1, 2] {
        let cell = format!("target=L,task=xsum,seed={seed}");
        experiment.missing.push(("held-out", cell));
    }
    experiment
        .missing
        .push(("stream", "target=L,task=xsum,seed=2".to_owned()));
    experiment.write(root.path());
    let stage = &experiment.stages[0];
    let jobs = experiment.jobs();
    drop(experiment.begin(root.path(), stage, jobs.last().unwrap()));

    let summary = write_report(root.path()).unwrap();
    assert!(
        summary.warnings[0].starts_with("Incomplete: 3 cells are"),
        "{:?}",
        summary.warnings
    );
    let missing: Vec<_> = table(root.path(), "missing")
        .rows
        .iter()
        .map(|r| words(r))
        .collect();
    assert_eq!(
        missing[0],
        ["stream", "target=L,task=xsum,seed=2", "interrupted"]
    );
    assert_eq!(
        missing[1],
        ["held-out", "target=L,task=xsum,seed=1", "not run"]
    );
    let acceptance = table(root.path(), "acceptance");
    let row = words(&acceptance.rows[1]);
    assert_eq!(row[..2], ["L", "SpD_DM"]);
    assert!(
        row[2].starts_with("0.") && row[3] == "missing" && row[4] == "–",
        "{row:?}"
    );
    assert!(read(root.path(), "report.html").contains("Incomplete: 3 cells"));
}

#[test]
fn claims_are_judged_by_paired_intervals() {
    let root = tempfile::tempdir().unwrap();
    small().write(root.path());
    let claims = table(root.path(), "claims");
    assert!(
        claims
            .lead
            .contains("holds where the 95% interval lies above 1.0100")
    );
    let verdicts: Vec<_> = claims
        .rows
        .iter()
        .map(|row| words(row)[6].clone())
        .collect();
    // Two claims in two tasks and over them: the learner is accepted more, the untrained is slower.
    assert_eq!(verdicts[..3], ["holds", "holds", "holds"]);
    assert_eq!(
        verdicts[3..],
        ["does not hold", "does not hold", "does not hold"]
    );
    let all = words(&claims.rows[2]);
    assert_eq!(
        [&all[2], &all[4], &all[5]],
        ["all, ratio of means", "2", "12"]
    );
    let Entry::Numbers { numbers } = &claims.rows[0][3] else {
        panic!("{:?}", claims.rows[0]);
    };
    assert!(
        numbers[0]
            .interval
            .as_deref()
            .unwrap()
            .ends_with(", two seeds")
    );

    // An effect smaller than the smallest one that counts is none; a single seed is noted.
    let mut experiment = small();
    experiment.seeds.truncate(1);
    experiment.report["smallest_effect"] = json!(0.999);
    let root = tempfile::tempdir().unwrap();
    experiment.write(root.path());
    let claims = table(root.path(), "claims");
    let verdicts: Vec<_> = claims
        .rows
        .iter()
        .map(|row| words(row)[6].clone())
        .collect();
    assert!(
        verdicts.contains(&"level, one seed".to_owned()),
        "{verdicts:?}"
    );
}

/// In a run without times, a claim about speed is unmeasured in every group and has one row.
#[test]
fn what_is_measured_nowhere_is_said_once() {
    let root = tempfile::tempdir().unwrap();
    let mut untimed = small();
    for stage in &mut untimed.stages {
        stage.exclusive = false;
    }
    untimed.write(root.path());
    let claims = table(root.path(), "claims");
    let rows: Vec<_> = claims.rows.iter().map(|row| words(row)).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    assert_eq!(rows[3][2], "all");
    assert_eq!(rows[3][6], "cannot tell: not measured");
}

#[test]
fn the_mean_is_that_of_the_tasks_and_ratios_are_paired() {
    let root = tempfile::tempdir().unwrap();
    small().write(root.path());
    let value = |entry: &Entry| match entry {
        Entry::Numbers { numbers } => numbers[0].clone(),
        other => panic!("{other:?}"),
    };
    let acceptance = table(root.path(), "acceptance");
    let row: Vec<_> = acceptance.rows[3][2..].iter().map(value).collect();
    assert!((row[2].value - (row[0].value + row[1].value) / 2.0).abs() < 1e-12);
    let ratios = table(root.path(), "ratios");
    let ratio = value(&ratios.rows[0][3]);
    let hybrid = value(&acceptance.rows[4][2]);
    assert!((ratio.value - hybrid.value / row[0].value).abs() < 1e-12);
    // Both arms were resampled with the same noise, so the paired interval is narrower than either
    // arm's.
    let width = |number: &report::model::Number| {
        let (low, high) = number.bounds.unwrap();
        (high - low) / number.value
    };
    assert!(width(&ratio) < width(&hybrid));
    let paper = row[0].against.as_deref().unwrap();
    assert!(paper.starts_with("paper 0.32, "), "{paper}");
}

#[test]
fn drift_has_recoveries_and_a_figure() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::target_drift();
    experiment.seeds.truncate(2);
    experiment.write(root.path());
    let summary = write_report(root.path()).unwrap();
    assert!(root.path().join("report/drift.svg").exists());
    assert!(summary.warnings.iter().all(|w| !w.starts_with("Not drawn")));
    let recovery = table(root.path(), "recovery");
    assert_eq!(recovery.rows.len(), 2 * 3);
    assert!(recovery.lead.contains("reaches 95%"));
    let columns = table(root.path(), "acceptance").head;
    let titles: Vec<&str> = columns.iter().map(|head| head.title.as_str()).collect();
    assert_eq!(titles, ["arm", "1 large", "2 small", "3 large", "mean"]);
    insta::assert_snapshot!("drift_md", read(root.path(), "report.md"));
}

#[test]
fn rows_of_a_segment_show_the_cache_at_its_end() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::target_drift();
    experiment.seeds.truncate(1);
    experiment.arms.retain(|arm| arm.hits > 0.0);
    experiment.report["cell"] = json!(["acceptance", "cache_ngrams"]);
    experiment.write(root.path());
    write_report(root.path()).unwrap();
    let ngrams = table(root.path(), "cache_ngrams");
    let ends: Vec<u32> = words(&ngrams.rows[0])[1..4]
        .iter()
        .map(|word| word.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(ends[0] > 0 && ends.is_sorted_by(|a, b| a < b), "{ends:?}");
}

#[test]
fn a_drift_is_compared_with_streams_that_never_switched() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::target_drift();
    experiment.seeds.truncate(1);
    let mut alone = experiment.stages[0].clone();
    alone.name = "alone";
    experiment.stages.insert(0, alone.clone());
    experiment.write(root.path());
    let mut single = experiment.clone();
    single.segments = vec![experiment.segments[1].clone()];
    std::fs::remove_dir_all(root.path().join("alone")).unwrap();
    single
        .begin(root.path(), &alone, &single.jobs()[0])
        .finish()
        .unwrap();
    write_report(root.path()).unwrap();
    let svg = read(root.path(), "drift.svg");
    assert!(svg.contains("saw nothing but that segment"), "{svg}");
    let recovery = table(root.path(), "recovery");
    assert_eq!(recovery.head.last().unwrap().title, "plateau alone");
    let alone = recovery.rows.iter().map(|row| words(row).pop().unwrap());
    let alone: Vec<String> = alone.collect();
    // The third segment has other prompts than the single stream, which is of another target.
    assert!(
        alone[..2].iter().all(|word| word.starts_with("0.")),
        "{alone:?}"
    );
    assert!(
        alone[3..].iter().all(|word| !word.starts_with("0.")),
        "{alone:?}"
    );
}

#[test]
fn sweeps_have_their_best_value_and_its_border() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::sweep();
    experiment
        .segments
        .iter_mut()
        .for_each(|s| (s.train, s.test) = (24, 6));
    experiment.write(root.path());
    write_report(root.path()).unwrap();
    assert!(root.path().join("report/sweep.svg").exists());
    let sweep = table(root.path(), "sweep");
    let first = words(&sweep.rows[0]);
    assert_eq!(first[..4], ["L_DM", "gsm8k", "acceptance", "decode.k = 1"]);
    assert_eq!(first[6], "at the border of decode.k");

    // In ratios the swept arm stands for its fastest variant.
    experiment.report["ratios"] = json!([["L_DM", "autoregressive"]]);
    let text = experiment.json().to_string();
    std::fs::write(root.path().join("experiment.json"), text).unwrap();
    let of = |id: &str| {
        let rows = table(root.path(), id).rows;
        let mut rows = rows.iter().map(|row| words(row));
        rows.find(|row| row.iter().any(|word| word == "speedup"))
    };
    let (ratio, best) = (of("ratios").unwrap(), of("sweep").unwrap());
    assert_eq!(ratio[0], "best L_DM / autoregressive");
    let number = |word: &str| word.split(['x', ' ']).next().unwrap().to_owned();
    assert_eq!(number(&ratio[2]), number(&best[4]));
    // Drafts shorter than one token are plain decoding, which is present and slower.
    assert_eq!(best[3], "decode.k = 1");
    assert_eq!(best[6], "");

    // The swept key as an axis of the page: variants have the name of the swept arm.
    experiment.report["columns"] = json!("decode.k");
    experiment.report["rows"] = json!(["task", "arm"]);
    let text = experiment.json().to_string();
    std::fs::write(root.path().join("experiment.json"), text).unwrap();
    let acceptance = table(root.path(), "acceptance");
    let titles: Vec<&str> = acceptance.head.iter().map(|h| h.title.as_str()).collect();
    assert_eq!(titles, ["task", "arm", "1", "2", "4", "8", "mean"]);
    assert_eq!(words(&acceptance.rows[1])[..2], ["gsm8k", "L_DM"]);
    assert!(
        words(&acceptance.rows[1])[2..]
            .iter()
            .all(|word| word.starts_with("0."))
    );
}

#[test]
fn a_picture_of_speed_names_the_arm_that_the_page_is_about() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::quickstart();
    experiment.report["figures"] = json!(["speed", "saved"]);
    experiment.write(root.path());
    let title = |id: &str| {
        let sections = build(root.path()).unwrap().page.sections.into_iter();
        let mut figures = sections.filter_map(|section| match section {
            Section::Figure(figure) => Some(figure),
            Section::Table(_) => None,
        });
        figures.find(|figure| figure.id == id).unwrap().message
    };
    // By default, the paper's method.
    assert!(title("speed").starts_with("Speed of L_DM + L_N-gram over"));
    // Otherwise the arm that the page divides by another one.
    experiment.report["ratios"] = json!([["L_DM", "SpD_DM"], ["L_DM+L_N-gram", "L_DM"]]);
    let text = experiment.json().to_string();
    std::fs::write(root.path().join("experiment.json"), text).unwrap();
    assert!(title("speed").starts_with("Speed of L_DM over"));
    assert!(title("saved").starts_with("Break-even of L_DM with"));
}

#[test]
fn without_columns_every_metric_has_one() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = small();
    experiment.report["columns"] = serde_json::Value::Null;
    experiment.report["rows"] = json!(["task", "arm"]);
    experiment.write(root.path());
    let values = table(root.path(), "values");
    let titles: Vec<&str> = values.head.iter().map(|h| h.title.as_str()).collect();
    let metrics = ["acceptance", "tokens/round", "speedup", "end to end"];
    assert_eq!(titles[..2], ["task", "arm"]);
    assert_eq!(titles[2..], metrics);
    assert_eq!(values.rows.len(), 2 * 5);
}

#[test]
fn a_stage_that_is_not_exclusive_shows_no_speed() {
    let root = tempfile::tempdir().unwrap();
    let mut experiment = small();
    experiment
        .stages
        .iter_mut()
        .for_each(|stage| stage.exclusive = false);
    experiment.write(root.path());
    let summary = write_report(root.path()).unwrap();
    assert!(
        summary
            .warnings
            .iter()
            .any(|w| w.contains("its times mean nothing"))
    );
    let speedup = table(root.path(), "speedup");
    assert_eq!(words(&speedup.rows[1])[2], "not timed");
}

#[test]
fn mistakes_are_named_with_a_hint() {
    let root = tempfile::tempdir().unwrap();
    let error = write_report(root.path()).unwrap_err();
    assert!(matches!(error, ReportError::NotARoot { .. }));
    assert!(error.hint().unwrap().contains("runs/NAME"));

    let mut experiment = small();
    experiment.report["cell"] = json!(["acceptance", "accuracy"]);
    experiment.stages.clear();
    experiment.write(root.path());
    let error = write_report(root.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("report.cell: unknown name `accuracy`")
    );
    assert!(error.hint().unwrap().contains("tokens_per_round"));

    let axes = tempfile::tempdir().unwrap();
    let mut experiment = small();
    experiment.report["columns"] = json!("drafter");
    experiment.write(axes.path());
    let error = write_report(axes.path()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("report.columns: unknown name `drafter`")
    );
    assert_eq!(
        error.hint().unwrap(),
        "one of: arm, segment, stage, target, task"
    );

    std::fs::write(root.path().join("experiment.json"), "{\n  \"name\": 3\n}").unwrap();
    let error = write_report(root.path()).unwrap_err();
    assert!(
        error.to_string().contains("experiment.json:3: malformed"),
        "{error}"
    );

    let empty = tempfile::tempdir().unwrap();
    let experiment = small();
    std::fs::write(
        empty.path().join("experiment.json"),
        experiment.json().to_string(),
    )
    .unwrap();
    let error = write_report(empty.path()).unwrap_err();
    assert!(matches!(error, ReportError::Empty { .. }), "{error}");
    assert!(
        error
            .to_string()
            .contains("none of the 4 cells of stage held-out")
    );
}
