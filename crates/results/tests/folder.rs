//! A cell's folder: rows survive storage, damage is reported, a complete cell is not overwritten.

use crate::support;

use results::{
    CellReader, CellStatus, CellWriter, ColumnData, JudgedRound, PromptRow, ResultsError, RoundRow,
    Row, UpdateRow, is_complete,
};
use std::path::{Path, PathBuf};
use support::Experiment;

/// A writer in the first cell of the quickstart below `root`, with all rows recorded.
fn recorded(root: &Path) -> (CellWriter, PathBuf) {
    let experiment = Experiment::quickstart();
    let (stage, jobs) = (&experiment.stages[0], experiment.jobs());
    let dir = Experiment::cell_dir(root, stage, &jobs[0]);
    (experiment.begin(root, stage, &jobs[0]), dir)
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

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn parquet_holds_what_the_journal_held() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    let journal = CellReader::open(&dir).unwrap();
    assert_eq!(journal.manifest().status, CellStatus::Running);
    let rounds: Vec<RoundRow> = journal.rounds().unwrap();
    let prompts: Vec<PromptRow> = journal.prompts().unwrap();
    drop(writer); // Journals stay, with the last update too.
    let updates: Vec<UpdateRow> = CellReader::open(&dir).unwrap().updates().unwrap();
    assert_eq!((prompts.len(), updates.len()), (1840, 80));

    let manifest = recorded(root.path()).0.finish().unwrap();
    assert_eq!(manifest.status, CellStatus::Complete);
    assert_eq!(manifest.rows.unwrap().prompts, 1840);
    assert!(manifest.seconds.is_some_and(|seconds| seconds >= 0.0));
    let reader = CellReader::open(&dir).unwrap();
    assert_eq!(reader.manifest(), &manifest);
    assert_eq!(bits(&reader.rounds::<RoundRow>().unwrap()), bits(&rounds));
    assert_eq!(bits(&reader.prompts().unwrap()), bits(&prompts));
    assert_eq!(bits(&reader.updates().unwrap()), bits(&updates));
    assert_eq!(reader.heads().unwrap(), []);
    assert_eq!(reader.ngrams().unwrap().len(), 2 * 306);
    assert_eq!(
        names(&dir),
        [
            "manifest.json",
            "ngrams.jsonl",
            "prompts.parquet",
            "rounds.parquet",
            "updates.parquet"
        ]
    );
    let judged: Vec<JudgedRound> = reader.rounds().unwrap();
    assert_eq!(judged.len(), rounds.len());
    let same = |(few, all): (&JudgedRound, &RoundRow)| {
        (&few.arm, few.round, few.emitted) == (&all.arm, all.round, all.emitted)
    };
    assert!(judged.iter().zip(&rounds).all(same));
}

#[test]
fn an_unfinished_cell_is_cleared_and_run_again() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    writer.fail("the target would not load").unwrap();
    let failed = CellReader::open(&dir).unwrap();
    assert_eq!(failed.manifest().status, CellStatus::Failed);
    let error = failed.manifest().error.as_deref();
    assert_eq!(error, Some("the target would not load"));
    assert!(!is_complete(&dir).unwrap());
    std::fs::write(dir.join("lock"), "mine").unwrap();

    let (writer, _) = recorded(root.path());
    let manifest = writer.finish().unwrap();
    assert_eq!(manifest.error, None);
    assert_eq!(
        CellReader::open(&dir).unwrap().prompts().unwrap().len(),
        1840
    );
    assert!(dir.join("lock").exists());
    assert!(is_complete(&dir).unwrap());
}

#[test]
fn a_complete_cell_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    let manifest = writer.finish().unwrap();
    let error = CellWriter::create(&dir, &manifest).unwrap_err();
    assert!(matches!(error, ResultsError::Complete { .. }));
    assert!(error.hint().unwrap().contains("remove the folder"));
    assert!(is_complete(&dir).unwrap());
    assert!(!is_complete(root.path()).unwrap());
}

#[test]
fn a_dropped_writer_is_an_interrupted_cell() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    drop(writer);
    let reader = CellReader::open(&dir).unwrap();
    assert_eq!(reader.manifest().status, CellStatus::Interrupted);
    assert_eq!(reader.prompts().unwrap().len(), 1840);
}

#[test]
fn a_cut_off_last_line_is_left_out() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    drop(writer);
    let journal = dir.join("prompts.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    std::fs::write(&journal, &text[..text.len() - 40]).unwrap();
    let reader = CellReader::open(&dir).unwrap();
    assert_eq!(reader.prompts().unwrap().len(), 1839);
}

#[test]
fn a_damaged_line_is_an_error_with_its_number() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    drop(writer);
    let journal = dir.join("updates.jsonl");
    let text = std::fs::read_to_string(&journal).unwrap();
    let mut lines: Vec<&str> = text.lines().collect();
    lines[2] = r#"{"arm":"L_DM","seed":"one"}"#;
    std::fs::write(&journal, lines.join("\n") + "\n").unwrap();
    let error = CellReader::open(&dir).unwrap().updates().unwrap_err();
    let message = error.to_string();
    assert!(
        message.contains("updates.jsonl:3: malformed row: invalid type: string \"one\""),
        "{message}"
    );
}

#[test]
fn a_truncated_table_is_an_error_with_its_name() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    writer.finish().unwrap();
    let table = dir.join("prompts.parquet");
    let bytes = std::fs::read(&table).unwrap();
    for length in [0, 3, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&table, &bytes[..length]).unwrap();
        let error = CellReader::open(&dir).unwrap().prompts().unwrap_err();
        assert!(error.to_string().contains("prompts.parquet"), "{error}");
    }
    std::fs::remove_file(&table).unwrap();
    let error = CellReader::open(&dir).unwrap().prompts().unwrap_err();
    assert!(matches!(error, ResultsError::MissingTable { .. }));
}

#[test]
fn a_table_of_another_kind_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    writer.finish().unwrap();
    std::fs::copy(dir.join("updates.parquet"), dir.join("rounds.parquet")).unwrap();
    let error = CellReader::open(&dir)
        .unwrap()
        .rounds::<RoundRow>()
        .unwrap_err();
    assert!(
        matches!(
            error,
            ResultsError::Column {
                column: "split",
                ..
            }
        ),
        "{error}"
    );
    let other = tempfile::tempdir().unwrap();
    let (writer, short) = recorded(other.path());
    writer.finish().unwrap();
    let rows = CellReader::open(&short).unwrap().updates().unwrap();
    results::write_table(&short, &rows[1..]).unwrap();
    let error = CellReader::open(&short).unwrap().updates().unwrap_err();
    assert!(matches!(
        error,
        ResultsError::RowCount {
            found: 79,
            expected: 80,
            ..
        }
    ));
}

#[test]
fn manifests_are_checked() {
    let root = tempfile::tempdir().unwrap();
    let (writer, dir) = recorded(root.path());
    writer.finish().unwrap();
    assert!(matches!(
        CellReader::open(root.path()).unwrap_err(),
        ResultsError::NotACell { .. }
    ));
    let manifest = dir.join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, text.replace(r#""schema": 2"#, r#""schema": 99"#)).unwrap();
    assert!(matches!(
        CellReader::open(&dir).unwrap_err(),
        ResultsError::Schema { found: 99, .. }
    ));
    std::fs::write(
        &manifest,
        "{\n  \"schema\": 2,\n  \"status\": \"done\"\n}\n",
    )
    .unwrap();
    let message = CellReader::open(&dir).unwrap_err().to_string();
    assert!(message.contains("manifest.json:3: malformed"), "{message}");
}
