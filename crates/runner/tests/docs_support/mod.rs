//! Pages of the repository, and their contents.

pub mod markdown;
pub mod shell;

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).unwrap().to_path_buf()
}

/// A page.
pub struct Page {
    /// Path, relative to the repository.
    pub name: String,
    /// Its Markdown.
    pub text: String,
}

impl Page {
    /// Reads a page by its path in the repository.
    pub fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(repository().join(name));
        Self {
            text: text.unwrap_or_else(|e| panic!("{name}: {e}")),
            name: name.to_owned(),
        }
    }

    /// The folder it lies in.
    pub fn folder(&self) -> PathBuf {
        let path = repository().join(&self.name);
        path.parent().unwrap().to_path_buf()
    }
}

/// All pages that describe the present state; logs and the changelog describe earlier ones.
pub fn pages() -> Vec<Page> {
    let mut names: Vec<String> = [
        "README.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
        "experiments/README.md",
        "datasets/README.md",
        "models/README.md",
    ]
    .map(str::to_owned)
    .to_vec();
    for file in files("docs", "md") {
        names.push(format!("docs/{file}"));
    }
    names.push("results/README.md".to_owned());
    for run in folders("results") {
        let readme = format!("results/{run}/README.md");
        let folder = repository().join(format!("results/{run}"));
        // A folder without an experiment has a page of commands of its time.
        if folder.join("experiment.json").is_file() && folder.join("README.md").is_file() {
            names.push(readme);
        }
    }
    for crate_name in folders("crates") {
        let readme = format!("crates/{crate_name}/README.md");
        if repository().join(&readme).is_file() {
            names.push(readme);
        }
    }
    names.iter().map(|name| Page::read(name)).collect()
}

/// Names of the files with this ending in a folder of the repository, sorted; empty without the
/// folder.
pub fn files(folder: &str, ending: &str) -> Vec<String> {
    listed(folder, |path| {
        path.is_file() && path.extension().is_some_and(|own| own == ending)
    })
}

/// Names of the folders in a folder of the repository, sorted.
pub fn folders(folder: &str) -> Vec<String> {
    listed(folder, Path::is_dir)
}

fn listed(folder: &str, wanted: impl Fn(&Path) -> bool) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(repository().join(folder)) else {
        return Vec::new();
    };
    let paths = entries.map(|entry| entry.unwrap().path());
    let name = |path: PathBuf| path.file_name().unwrap().to_string_lossy().into_owned();
    let mut names: Vec<String> = paths.filter(|path| wanted(path)).map(name).collect();
    names.sort();
    names
}
