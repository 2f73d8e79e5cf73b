//! Publishing: what pages need, and no more.

mod support;

use results::{CellReader, ResultsError, RoundRow, cells, publish};
use std::path::Path;
use support::Experiment;

fn files(root: &Path, below: &str) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(root.join(below))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn timed_cells_keep_rounds_and_others_lose_their_times() {
    let root = tempfile::tempdir().unwrap();
    let goal = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::table1();
    let cell = "target=L,task=gsm8k,seed=1";
    experiment
        .missing
        .push(("stream", "target=Q,task=xsum,seed=2".to_owned()));
    experiment.write(root.path());
    let unfinished = (&experiment.stages[0], experiment.jobs().pop().unwrap());
    drop(experiment.begin(root.path(), unfinished.0, &unfinished.1));
    std::fs::create_dir_all(root.path().join("stream").join(cell).join("state")).unwrap();
    std::fs::write(root.path().join("stream").join(cell).join("lock"), "").unwrap();

    let to = goal.path().join("published");
    let published = publish(root.path(), &to).unwrap();
    assert_eq!((published.cells, published.incomplete), (15, 1));
    assert!(published.bytes > 0);
    assert_eq!(
        files(&to, &format!("stream/{cell}")),
        [
            "manifest.json",
            "ngrams.jsonl",
            "prompts.parquet",
            "updates.parquet"
        ]
    );
    assert_eq!(
        files(&to, &format!("held-out/{cell}")),
        [
            "manifest.json",
            "ngrams.jsonl",
            "prompts.parquet",
            "rounds.parquet"
        ]
    );
    assert!(to.join("experiment.json").exists());

    let stream = CellReader::open(&to.join("stream").join(cell)).unwrap();
    assert!(
        stream
            .prompts()
            .unwrap()
            .iter()
            .all(|row| row.seconds == 0.0)
    );
    assert_eq!(stream.rounds::<RoundRow>().unwrap(), []);
    let timed = CellReader::open(&to.join("held-out").join(cell)).unwrap();
    assert!(timed.prompts().unwrap().iter().all(|row| row.seconds > 0.0));
    assert!(!timed.rounds::<RoundRow>().unwrap().is_empty());
    assert_eq!(cells(&to).unwrap().len(), 15);
    // Published again, the files are the same.
    assert_eq!(publish(root.path(), &to).unwrap(), published);
}

#[test]
fn a_folder_is_not_published_into_itself() {
    let root = tempfile::tempdir().unwrap();
    for to in [root.path().to_path_buf(), root.path().join("report")] {
        let error = publish(root.path(), &to).unwrap_err();
        assert!(matches!(error, ResultsError::IntoItself { .. }));
        assert!(error.hint().is_some());
    }
}
