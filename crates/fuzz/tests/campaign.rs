//! A short campaign over every reader: what CI runs. A long one is published under `results/fuzzing`.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use fuzz::page::Campaign;
use fuzz::{Corpus, LONGEST_S, readers};

/// Inputs for each reader.
const EXECUTIONS: &str = "300";

#[test]
fn every_seed_is_read() {
    for reader in readers::ALL {
        let corpus = Corpus::of(reader).unwrap();
        for (number, seed) in corpus.seeds().iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let read = (reader.read)(folder.path(), seed);
            read.unwrap_or_else(|e| panic!("{} seed {number}: {e:#}", reader.name));
        }
    }
}

#[test]
fn most_inputs_differ_from_their_seeds_and_repeat() {
    for reader in readers::ALL {
        let corpus = Corpus::of(reader).unwrap();
        let inputs: Vec<Vec<u8>> = (0..50).map(|index| corpus.input(7, index)).collect();
        let again: Vec<Vec<u8>> = (0..50).map(|index| corpus.input(7, index)).collect();
        assert_eq!(inputs, again, "{}", reader.name);
        let changed = inputs
            .iter()
            .filter(|input| !corpus.seeds().contains(input));
        assert!(changed.count() > 40, "{}", reader.name);
    }
}

#[test]
fn a_short_campaign_finds_nothing() {
    let output = Command::new(env!("CARGO_BIN_EXE_fuzz"))
        .args(["run", "--executions", EXECUTIONS])
        .output()
        .unwrap();
    let page = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{page}");
}

/// Inputs that once made a reader panic, hang or take gigabytes: `regressions/READER/WHAT`.
#[test]
fn what_failed_once_fails_no_more() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut tried = 0;
    for reader in readers::ALL {
        let Ok(files) = std::fs::read_dir(root.join(reader.name)) else {
            continue;
        };
        for file in files {
            let path = file.unwrap().path();
            let folder = tempfile::tempdir().unwrap();
            let input = std::fs::read(&path).unwrap();
            let begun = Instant::now();
            let _ = (reader.read)(folder.path(), &input);
            let seconds = begun.elapsed().as_secs_f64();
            assert!(seconds < LONGEST_S, "{}: {seconds} s", path.display());
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// The published page is what its numbers give.
#[test]
fn the_published_page_is_made_from_its_numbers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/fuzzing");
    let numbers = std::fs::read_to_string(folder.join("campaign.json")).unwrap();
    let campaign: Campaign = serde_json::from_str(&numbers).unwrap();
    let page = std::fs::read_to_string(folder.join("README.md")).unwrap();
    assert_eq!(page, campaign.markdown());
}
