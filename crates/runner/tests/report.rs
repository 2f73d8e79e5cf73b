//! Reports of synthetic runs: tables by snapshot, figures by their files, missing parts by their notes.

mod report_support;

use report_support::{Part, Run};
use runner::report::{ReportError, TABLE_COLUMNS, write_report};
use runner::results::{RunStatus, RunWriter, StreamKind};
use std::path::Path;

fn read(dir: &Path, name: &str) -> String {
    std::fs::read_to_string(dir.join("report").join(name)).unwrap()
}

#[test]
fn the_table_of_the_quickstart() {
    let dir = tempfile::tempdir().unwrap();
    Run::quickstart().write(dir.path());
    let summary = write_report(dir.path()).unwrap();
    let csv = read(dir.path(), "table.csv");
    assert_eq!(csv.lines().next(), Some(TABLE_COLUMNS.join(",").as_str()));
    assert_eq!(read(dir.path(), "table.md"), summary.markdown);
    assert_eq!(summary.notes, [] as [String; 0]);
    insta::assert_snapshot!("table_md", summary.markdown);
    insta::assert_snapshot!("table_csv", csv);
    insta::assert_snapshot!("drift_recovery_csv", read(dir.path(), "drift_recovery.csv"));
}

#[test]
fn the_columns_are_the_documented_ones() {
    assert_eq!(
        TABLE_COLUMNS.join(","),
        "target,task,method,temperature,prompts,acceptance_rate,block_efficiency,bytes_per_step,ngram_hits,\
         speedup_measured,speedup_low,speedup_high,speedup_modelled,draft_length"
    );
}

#[test]
fn speedup_and_its_interval_follow_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    Run::quickstart().write(dir.path());
    for row in write_report(dir.path()).unwrap().rows {
        let speedup = row.speedup.unwrap();
        match row.interval {
            None => assert!(row.reference && speedup == 1.0, "{row:?}"),
            Some(interval) => {
                assert!(interval.low < speedup && speedup < interval.high, "{row:?}")
            }
        }
    }
}

#[test]
fn every_figure_is_written_twice() {
    let dir = tempfile::tempdir().unwrap();
    Run::quickstart().write(dir.path());
    let summary = write_report(dir.path()).unwrap();
    for stem in ["curves", "drift", "losses", "cache"] {
        let svg = read(dir.path(), &format!("{stem}.svg"));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        let path = dir.path().join("report").join(format!("{stem}.png"));
        let png = std::fs::read(&path).unwrap();
        assert!(png.starts_with(b"\x89PNG"));
        // Twice the logical size: the SVG's width and height.
        let width = u32::from_be_bytes(png[16..20].try_into().unwrap());
        assert!(svg.starts_with(&format!(r#"<svg width="{}""#, width / 2)));
        assert!(summary.files.contains(&path));
    }
}

#[test]
fn plotted_points_are_published() {
    let dir = tempfile::tempdir().unwrap();
    Run::quickstart().write(dir.path());
    write_report(dir.path()).unwrap();
    let drift = read(dir.path(), "drift.csv");
    let seen: Vec<u32> = drift
        .lines()
        .skip(1)
        .filter(|line| line.contains(",SpD_DM,"))
        .map(|line| line.split(',').nth(3).unwrap().parse().unwrap())
        .collect();
    // Window 20, so each of the two segments of 160 prompts starts after 7.
    assert_eq!(seen.len(), 2 * 154);
    assert_eq!((seen[0], seen[154], seen[307]), (7, 167, 320));
}

#[test]
fn a_second_report_replaces_the_first() {
    let dir = tempfile::tempdir().unwrap();
    Run::quickstart().write(dir.path());
    let first = write_report(dir.path()).unwrap();
    std::fs::write(dir.path().join("report/drift.svg"), "old").unwrap();
    assert_eq!(write_report(dir.path()).unwrap(), first);
    assert_ne!(read(dir.path(), "drift.svg"), "old");
}

/// One short segment with one arm.
fn small(arm: usize, train: u32, test: u32) -> Run {
    Run {
        name: "small",
        streams: StreamKind::Independent,
        seeds: vec![1],
        arms: vec![arm],
        parts: vec![Part {
            task: "code",
            target: "mini-llama",
            train,
            test,
            ease: 1.0,
        }],
    }
}

#[test]
fn what_is_missing_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    small(1, 20, 0).write(dir.path());
    let summary = write_report(dir.path()).unwrap();
    let notes = summary.notes.join("\n");
    for expected in [
        "No test prompts",
        "No plain decoding arm",
        "no arm of this run learnt",
    ] {
        assert!(notes.contains(expected), "{expected}: {notes}");
        assert!(summary.markdown.contains(expected));
    }
    // The rows carry their own baseline, so the speedup is still measured.
    assert!(summary.rows[0].speedup.is_some());
    assert!(dir.path().join("report/curves.svg").exists());
    for absent in ["drift.svg", "losses.svg", "cache.svg"] {
        assert!(!dir.path().join("report").join(absent).exists(), "{absent}");
    }
}

#[test]
fn plain_decoding_alone_has_a_table_and_no_curves() {
    let dir = tempfile::tempdir().unwrap();
    small(0, 12, 3).write(dir.path());
    let summary = write_report(dir.path()).unwrap();
    assert_eq!(summary.rows.len(), 1);
    assert_eq!(summary.rows[0].acceptance_rate, None);
    assert!(
        summary
            .notes
            .iter()
            .any(|note| note.starts_with("No curves"))
    );
}

#[test]
fn test_prompts_alone_have_a_table() {
    let dir = tempfile::tempdir().unwrap();
    small(4, 0, 5).write(dir.path());
    assert_eq!(write_report(dir.path()).unwrap().rows[0].prompts, 5);
}

#[test]
fn a_run_without_prompts_has_nothing_to_report() {
    let dir = tempfile::tempdir().unwrap();
    let run = small(1, 0, 0);
    let writer = RunWriter::create(dir.path(), &run.manifest()).unwrap();
    writer.finish(RunStatus::Failed).unwrap();
    let error = write_report(dir.path()).unwrap_err();
    assert!(matches!(
        error,
        ReportError::Empty {
            status: "failed",
            ..
        }
    ));
}

#[test]
fn an_interrupted_run_says_so_at_the_top() {
    let dir = tempfile::tempdir().unwrap();
    let run = small(1, 20, 4);
    let mut writer = RunWriter::create(dir.path(), &run.manifest()).unwrap();
    run.record(&mut writer);
    drop(writer);
    let summary = write_report(dir.path()).unwrap();
    assert!(
        summary
            .markdown
            .contains("> This run is not complete (status `interrupted`)")
    );
}
