//! A short campaign over every reader: what CI runs. A long one is published under `results/fuzzing`.

use std::process::Command;

use fuzz::{Corpus, Outcome, readers};

/// Inputs for each reader.
const EXECUTIONS: &str = "300";

#[test]
fn every_seed_is_read() {
    for reader in readers::ALL {
        let corpus = Corpus::of(reader).unwrap();
        for (number, seed) in corpus.seeds().iter().enumerate() {
            let folder = tempfile::tempdir().unwrap();
            let outcome = (reader.read)(folder.path(), seed);
            assert_eq!(outcome, Outcome::Accepted, "{} seed {number}", reader.name);
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
