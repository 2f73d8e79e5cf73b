//! Publishing copies what pages need, and no more.

use crate::support;

use results::{
    CellReader, JudgedRound, ResultsError, RoundRow, answer_ids, cell_facts, cells, looping,
    publish,
};
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
    publish(root.path(), &to, true).unwrap();
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
        ["manifest.json", "prompts.parquet", "rounds.parquet"]
    );
    assert!(to.join("experiment.json").exists());

    let stream = CellReader::open(&to.join("stream").join(cell)).unwrap();
    let run = CellReader::open(&root.path().join("stream").join(cell)).unwrap();
    assert_eq!(stream.manifest(), run.manifest());
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
    let table = to.join("stream").join(cell).join("prompts.parquet");
    let written = std::fs::read(&table).unwrap();
    publish(root.path(), &to, true).unwrap();
    assert_eq!(std::fs::read(&table).unwrap(), written);
}

#[test]
fn what_rounds_say_of_fresh_text_outlives_them() {
    let root = tempfile::tempdir().unwrap();
    let goal = tempfile::tempdir().unwrap();
    let mut experiment = Experiment::table1();
    experiment.stages[1].exclusive = false;
    experiment.write(root.path());
    let to = goal.path().join("published");
    publish(root.path(), &to, true).unwrap();
    let facts = |root: &Path| {
        let cell = root.join("held-out/target=L,task=gsm8k,seed=1");
        let reader = CellReader::open(&cell).unwrap();
        let rounds = reader.rounds::<JudgedRound>().unwrap();
        let facts = cell_facts(&reader.prompts().unwrap(), &rounds);
        (facts, rounds.len())
    };
    let ((made, rounds), (kept, left)) = (facts(root.path()), facts(&to));
    assert!(rounds > 0 && left == 0);
    assert!(made.values().any(|facts| facts.fresh.is_some()));
    assert_eq!(kept, made);
}

#[test]
fn answers_are_published_where_the_page_reads_them() {
    let root = tempfile::tempdir().unwrap();
    let goal = tempfile::tempdir().unwrap();
    Experiment::table1().write(root.path());
    let cell = "held-out/target=L,task=gsm8k,seed=1";
    let prompts = |root: &Path, cell: &str| {
        let reader = CellReader::open(&root.join(cell)).unwrap();
        reader.prompts().unwrap()
    };
    let made = prompts(root.path(), cell);

    let to = goal.path().join("as-they-are");
    publish(root.path(), &to, true).unwrap();
    let kept = prompts(&to, cell);
    for (kept, made) in kept.iter().zip(&made) {
        assert_eq!(kept.answer, made.answer);
        assert_eq!(kept.tokens_hash, made.tokens_hash[..8]);
    }
    // The page of this experiment shows its last stage.
    let streamed = prompts(&to, "stream/target=L,task=gsm8k,seed=1");
    assert!(streamed.iter().all(|row| row.answer.is_empty()));

    let to = goal.path().join("without");
    publish(root.path(), &to, false).unwrap();
    assert!(prompts(&to, cell).iter().all(|row| row.answer.is_empty()));

    // The same target, recorded.
    let manifest = root.path().join(cell).join("manifest.json");
    let mut changed: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&manifest).unwrap()).unwrap();
    changed["recorded"] = serde_json::json!({"L": {"source": "reference text, no model"}});
    std::fs::write(&manifest, changed.to_string()).unwrap();
    let to = goal.path().join("recorded");
    publish(root.path(), &to, true).unwrap();
    let renumbered = prompts(&to, cell);
    let mut numbers = std::collections::BTreeMap::new();
    for (row, made) in renumbered.iter().zip(&made) {
        let (ids, before) = (answer_ids(&row.answer), answer_ids(&made.answer));
        assert_eq!(ids.len(), before.len());
        assert_eq!(looping(&ids), looping(&before));
        for (id, before) in ids.into_iter().zip(before) {
            let next = numbers.len() as u32;
            assert_eq!(id, *numbers.entry(before).or_insert(next));
        }
    }
    assert!(renumbered[0].answer.starts_with("0 "));
    assert_ne!(renumbered[0].answer, made[0].answer);
}

#[test]
fn updates_are_published_where_a_figure_draws_them() {
    let root = tempfile::tempdir().unwrap();
    let goal = tempfile::tempdir().unwrap();
    Experiment::table1().write(root.path());
    let path = root.path().join("experiment.json");
    let mut experiment: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    for (figure, kept) in [("losses", true), ("drift", true), ("curves", false)] {
        experiment["report"]["figures"] = serde_json::json!([figure]);
        std::fs::write(&path, experiment.to_string()).unwrap();
        let to = goal.path().join(figure);
        publish(root.path(), &to, true).unwrap();
        let cell = "stream/target=L,task=gsm8k,seed=1";
        let updates = CellReader::open(&to.join(cell)).unwrap().updates().unwrap();
        assert_eq!(!updates.is_empty(), kept, "{figure}");
    }
}

#[test]
fn an_earlier_publication_is_replaced() {
    let root = tempfile::tempdir().unwrap();
    let goal = tempfile::tempdir().unwrap();
    let to = goal.path().join("published");
    Experiment::table1().write(root.path());
    let record = root.path().join("experiment.json");
    let mut experiment: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&record).unwrap()).unwrap();
    experiment["report"]["figures"] = serde_json::json!(["losses"]);
    std::fs::write(&record, experiment.to_string()).unwrap();
    publish(root.path(), &to, true).unwrap();
    let cell = "stream/target=L,task=gsm8k,seed=1";
    assert!(files(&to, cell).contains(&"updates.parquet".to_owned()));
    // The figure goes, and so does a cell.
    experiment["report"]["figures"] = serde_json::json!([]);
    std::fs::write(&record, experiment.to_string()).unwrap();
    let gone = "held-out/target=L,task=gsm8k,seed=1";
    std::fs::remove_dir_all(root.path().join(gone)).unwrap();
    publish(root.path(), &to, true).unwrap();
    assert!(!files(&to, cell).contains(&"updates.parquet".to_owned()));
    assert!(!to.join(gone).exists());
    // Another experiment does not take its place.
    experiment["name"] = "other".into();
    std::fs::write(&record, experiment.to_string()).unwrap();
    let error = publish(root.path(), &to, true).unwrap_err();
    assert!(error.to_string().contains("holds experiment"), "{error}");
    assert!(to.join(cell).exists());
    experiment["name"] = "table1".into();
    // A cell of another experiment is not published.
    let listed = |cells: &[&str]| {
        let job = |cell: &&str| {
            let (stage, cell) = cell.split_once('/').unwrap();
            serde_json::json!({ "stage": stage, "cell": cell })
        };
        cells.iter().map(job).collect::<Vec<_>>()
    };
    experiment["jobs"] = listed(&[cell]).into();
    std::fs::write(&record, experiment.to_string()).unwrap();
    publish(root.path(), &to, true).unwrap();
    assert_eq!(cells(&to).unwrap(), [to.join(cell)]);
}

#[test]
fn a_folder_is_not_published_into_itself() {
    let root = tempfile::tempdir().unwrap();
    for to in [root.path().to_path_buf(), root.path().join("report")] {
        let error = publish(root.path(), &to, true).unwrap_err();
        assert!(matches!(error, ResultsError::IntoItself { .. }));
        assert!(error.hint().is_some());
    }
    let goal = root.path().join("report");
    let absent = root.path().join("absent");
    publish(&absent, &goal, true).unwrap_err();
    assert!(!goal.exists());
}
