//! The paper's numbers in `experiments/paper`.

use std::path::{Path, PathBuf};

fn files() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../experiments/paper");
    let entries = std::fs::read_dir(dir).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn every_file_loads_and_names_its_source() {
    assert!(files().len() >= 20);
    for path in files() {
        let data = report::load_paper(&path).unwrap();
        let stem = path.file_stem().unwrap().to_str().unwrap();
        let plain = |text: &str| text.to_lowercase().replace([' ', '-'], "");
        let (source, stem) = (plain(&data.source), plain(stem));
        assert!(source.starts_with(&stem), "{stem}: {source}");
        assert!(!data.value.is_empty() || !data.claim.is_empty(), "{stem}");
        // The form that is embedded into experiment.json reads back the same.
        let json = serde_json::to_value(&data).unwrap();
        let again: report::PaperData = serde_json::from_value(json).unwrap();
        assert_eq!(again, data);
    }
}

#[test]
fn table_1_is_whole() {
    let table = files()
        .into_iter()
        .find(|path| path.ends_with("table1.toml"));
    let data = report::load_paper(&table.unwrap()).unwrap();
    assert_eq!(data.value.len(), 2 * 4 * 4);
    let at = [("target", "L"), ("task", "gsm8k"), ("arm", "L_DM+L_N-gram")];
    let at = at.map(|(a, v)| (a.to_owned(), v.to_owned())).into();
    assert_eq!(data.value(&at, results::Metric::Acceptance), Some(0.42));
    assert_eq!(data.value(&at, results::Metric::Speedup), Some(1.70));
}
