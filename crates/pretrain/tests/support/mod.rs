//! The real data, for tests that can use them.

use std::path::PathBuf;

use streams::DATA_ENV;

/// The folder of the real tasks. If there is none, prints that the test is skipped.
pub fn real_tasks() -> Option<PathBuf> {
    let folder = std::env::var_os(DATA_ENV).filter(|folder| !folder.is_empty());
    if folder.is_none() {
        println!("skipped: {DATA_ENV} is not set");
    }
    Some(PathBuf::from(folder?).join("datasets"))
}
