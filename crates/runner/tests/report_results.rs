//! The results folder: rows survive storage, damage is named, nothing existing is overwritten.

mod report_support;

use report_support::Run;
use runner::results::{
    ColumnData, PromptRow, ResultsError, RoundRow, Row, RunReader, RunStatus, RunWriter, UpdateRow,
};
use std::io::Write;
use std::path::Path;

fn quickstart(dir: &Path) -> RunWriter {
    let run = Run::quickstart();
    let mut writer = RunWriter::create(dir, &run.manifest()).unwrap();
    run.record(&mut writer);
    writer
}

/// Columns with floats as bits, so that NaN equals NaN.
fn bits<R: Row>(rows: &[R]) -> Vec<String> {
    let bits = |data| match data {
        ColumnData::F64(values) => format!(
            "{:?}",
            values.iter().map(|v| v.to_bits()).collect::<Vec<_>>()
        ),
        other => format!("{other:?}"),
    };
    R::to_columns(rows).into_iter().map(bits).collect()
}

#[test]
fn parquet_holds_what_the_journal_held() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let writer = quickstart(&path);
    drop(writer); // The journals stay.
    let journal = RunReader::open(&path).unwrap();
    let rounds: Vec<RoundRow> = journal.rounds().unwrap().rows;
    let prompts: Vec<PromptRow> = journal.prompts().unwrap().rows;
    let updates: Vec<UpdateRow> = journal.updates().unwrap().rows;
    assert_eq!(
        (rounds.len(), prompts.len(), updates.len()),
        (1600, 1840, 80)
    );

    let finished = dir.path().join("finished");
    let manifest = quickstart(&finished).finish(RunStatus::Complete).unwrap();
    assert_eq!(manifest.rows.unwrap().prompts, 1840);
    let reader = RunReader::open(&finished).unwrap();
    assert_eq!(reader.manifest(), &manifest);
    assert_eq!(reader.manifest().status, RunStatus::Complete);
    assert_eq!(bits(&reader.rounds().unwrap().rows), bits(&rounds));
    assert_eq!(bits(&reader.prompts().unwrap().rows), bits(&prompts));
    assert_eq!(bits(&reader.updates().unwrap().rows), bits(&updates));
    let left: Vec<_> = std::fs::read_dir(&finished)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".jsonl") || name.ends_with(".part"))
        .collect();
    assert_eq!(left, [] as [String; 0]);
}

#[test]
fn a_running_folder_is_marked_and_a_dropped_one_is_interrupted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    let writer = quickstart(&path);
    let status = || RunReader::open(&path).unwrap().manifest().status;
    assert_eq!(status(), RunStatus::Running);
    drop(writer);
    assert_eq!(status(), RunStatus::Interrupted);
}

#[test]
fn an_existing_folder_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    let error = RunWriter::create(dir.path(), &Run::quickstart().manifest()).unwrap_err();
    assert!(matches!(error, ResultsError::FolderExists { .. }));
    assert!(error.to_string().contains("hint: choose another folder"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_cut_off_last_line_is_left_out_and_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    drop(quickstart(&path));
    let journal = path.join("prompts.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, &text[..text.len() - 40]).unwrap();
    let table = RunReader::open(&path).unwrap().prompts().unwrap();
    assert_eq!(table.rows.len(), 1839);
    assert_eq!(
        table.warning.as_deref(),
        Some("prompts.jsonl:1840: cut off, left out")
    );
}

#[test]
fn a_damaged_line_is_an_error_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    drop(quickstart(&path));
    let journal = path.join("updates.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = r#"{"arm":"L_DM","seed":"one"}"#;
    std::fs::write(&journal, lines.join("\n") + "\n").unwrap();
    let error = RunReader::open(&path).unwrap().updates().unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("updates.jsonl:3: malformed row: invalid type: string \"one\""),
        "{message}"
    );
}

#[test]
fn a_truncated_parquet_file_is_an_error_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    quickstart(&path).finish(RunStatus::Complete).unwrap();
    let table = path.join("rounds.parquet");
    let bytes = std::fs::read(&table).unwrap();
    for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&table, &bytes[..length]).unwrap();
        let error = RunReader::open(&path).unwrap().rounds().unwrap_err();
        assert!(error.to_string().contains("rounds.parquet"), "{error}");
    }
    std::fs::remove_file(&table).unwrap();
    let error = RunReader::open(&path).unwrap().rounds().unwrap_err();
    assert!(matches!(error, ResultsError::MissingTable { .. }));
}

#[test]
fn a_table_of_another_run_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    quickstart(&path).finish(RunStatus::Complete).unwrap();
    std::fs::copy(path.join("updates.parquet"), path.join("rounds.parquet")).unwrap();
    let error = RunReader::open(&path).unwrap().rounds().unwrap_err();
    assert!(
        matches!(
            error,
            ResultsError::Column {
                column: "phase",
                ..
            }
        ),
        "{error}"
    );
    let empty = dir.path().join("empty");
    let writer = RunWriter::create(&empty, &Run::quickstart().manifest()).unwrap();
    writer.finish(RunStatus::Complete).unwrap();
    std::fs::copy(path.join("updates.parquet"), empty.join("updates.parquet")).unwrap();
    let error = RunReader::open(&empty).unwrap().updates().unwrap_err();
    assert!(matches!(
        error,
        ResultsError::RowCount {
            found: 80,
            expected: 0,
            ..
        }
    ));
}

#[test]
fn manifests_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run");
    assert!(matches!(
        RunReader::open(&path).unwrap_err(),
        ResultsError::NotAResultsFolder { .. }
    ));
    quickstart(&path).finish(RunStatus::Complete).unwrap();
    let manifest = path.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace(r#""schema": 1"#, r#""schema": 99"#)).unwrap();
    assert!(matches!(
        RunReader::open(&path).unwrap_err(),
        ResultsError::Schema { found: 99, .. }
    ));
    let mut file = std::fs::File::create(&manifest).unwrap();
    file.write_all(b"{\n  \"schema\": 1,\n  \"status\": \"done\"\n}\n")
        .unwrap();
    let message = RunReader::open(&path).unwrap_err().to_string();
    assert!(
        message.contains("manifest.json:3: malformed manifest"),
        "{message}"
    );
}
