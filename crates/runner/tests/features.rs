//! `cargo build` and then `cargo test` compile no dependency twice: features that tests add to a
//! dependency are named in the root manifest, so that the program has them too.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Features of every dependency from a registry, as cargo resolves them.
fn features(arguments: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(cargo)
        .args(["tree", "--locked", "--offline", "--prefix", "none"])
        .args(["--format", "{p}|{f}"])
        .args(arguments)
        .current_dir(root)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "cargo tree: {said}");
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        // Packages of the workspace have a path after their version.
        let Some((package, features)) = line.split_once('|').filter(|(p, _)| !p.contains('/'))
        else {
            continue;
        };
        let features = features.trim_end_matches(" (*)").split(',');
        let features = features.filter(|name| !name.is_empty());
        let known = found.entry(package.to_owned()).or_default();
        known.extend(features.map(str::to_owned));
    }
    found
}

#[test]
fn tests_want_no_features_that_the_program_lacks() {
    let program = features(&["-p", "runner", "-e", "no-dev"]);
    let tests = features(&["--workspace"]);
    assert!(program.len() > 100, "{} packages", program.len());
    let twice: Vec<String> = program
        .iter()
        .filter_map(|(package, own)| {
            let more: Vec<&String> = tests.get(package)?.difference(own).collect();
            (!more.is_empty()).then(|| format!("{package}: tests add {more:?}"))
        })
        .collect();
    assert!(twice.is_empty(), "\n  {}\n", twice.join("\n  "));
}
