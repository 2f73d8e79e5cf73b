//! Published results are small, and their pages are what their rows give.

use std::path::{Path, PathBuf};

use report::{build, compare};
use runner::cli::with_table;

/// Most bytes of `results/`.
const LARGEST: u64 = 30_000_000;

fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap().to_path_buf()
}

/// Folders of `results/` that hold an experiment.
fn published() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(repository().join("results")).unwrap();
    let folders = entries.map(|entry| entry.unwrap().path());
    let mut folders: Vec<PathBuf> = folders
        .filter(|folder| folder.join("experiment.json").is_file())
        .collect();
    folders.sort();
    folders
}

#[test]
fn pages_are_what_their_rows_give() {
    let folders = published();
    assert!(!folders.is_empty());
    let mut faults = Vec::new();
    for folder in folders {
        match compare(&folder) {
            Ok(differences) => faults.extend(
                differences
                    .into_iter()
                    .map(|d| format!("{}: {}", d.path.display(), d.what)),
            ),
            Err(error) => faults.push(format!("{}: {error}", folder.display())),
        }
    }
    assert!(
        faults.is_empty(),
        "\n  {}\n  `omnidraft report FOLDER` makes them again\n",
        faults.join("\n  ")
    );
}

#[test]
fn the_first_page_shows_the_quickstarts_table() {
    let root = repository();
    let page = std::fs::read_to_string(root.join("README.md")).unwrap();
    let folder = Path::new("results/quickstart");
    let table = build(&root.join(folder)).unwrap().first_table();
    let wanted = with_table(&page, folder, &table).unwrap();
    assert!(
        page == wanted,
        "`omnidraft report results/quickstart --into README.md` puts the table there"
    );
}

#[test]
fn results_are_small() {
    fn bytes(folder: &Path) -> u64 {
        let entries = std::fs::read_dir(folder).unwrap();
        let size = |path: PathBuf| match path.is_dir() {
            true => bytes(&path),
            false => std::fs::metadata(&path).unwrap().len(),
        };
        entries.map(|entry| size(entry.unwrap().path())).sum()
    }
    let size = bytes(&repository().join("results"));
    assert!(
        size < LARGEST,
        "results/ has {size} bytes, {LARGEST} are allowed"
    );
}
