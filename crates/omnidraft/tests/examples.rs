//! Each example runs to its end and says what it promises.
//!
//! `cargo test` builds the examples into the folder beside that of the tests.

use std::path::PathBuf;
use std::process::Command;

/// Runs an example with these arguments; what it prints.
fn run(name: &str, arguments: &[&str]) -> String {
    let test = std::env::current_exe().expect("the path of this test");
    let built = test.ancestors().nth(2).expect("the folder of the build");
    let example = built.join("examples").join(name);
    assert!(
        example.is_file(),
        "{}: `cargo test -p omnidraft --examples` builds it",
        example.display()
    );
    let output = Command::new(&example).args(arguments).output();
    let output = output.expect("a process");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {said}");
    String::from_utf8(output.stdout).expect("text")
}

/// A model of the repository.
fn model(name: &str) -> String {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("../../models").join(name);
    path.to_string_lossy().into_owned()
}

#[test]
fn align() {
    let said = run("align", &[&model("D"), &model("L"), "unbelievable things"]);
    let mut lines = said.lines();
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("drafter: ")),
        "{said}"
    );
    assert!(
        lines
            .next()
            .is_some_and(|line| line.starts_with("target: ")),
        "{said}"
    );
    assert!(
        lines
            .next()
            .is_some_and(|line| line.contains("stand for a target token")),
        "{said}"
    );
    // Both columns spell the sentence.
    let spans: Vec<(&str, &str)> = lines.filter_map(|line| line.rsplit_once("  ")).collect();
    let column = |of: fn(&(&str, &str)) -> String| spans.iter().map(of).collect::<String>();
    let bare = |text: String| text.replace(['|', ' '], "");
    let expected = "unbelievablethings";
    assert_eq!(bare(column(|own| own.0.to_owned())), expected, "{said}");
    assert_eq!(bare(column(|own| own.1.to_owned())), expected, "{said}");
}

#[test]
fn two_models() {
    let said = run("two_models", &[&model("D"), &model("L"), "Add 2 and 3."]);
    assert!(said.contains(" rounds; "), "{said}");
    assert!(said.contains("n-grams learnt: "), "{said}");
}

#[test]
fn own_engine() {
    let said = run("own_engine", &[]);
    // "...: 96 tokens in 60 rounds"
    let rounds = |line: &str| -> usize {
        let words: Vec<&str> = line.split(' ').collect();
        words[words.len() - 2].parse().expect("a number of rounds")
    };
    let rounds: Vec<usize> = said.lines().map(rounds).collect();
    assert!(rounds[1] < rounds[0], "{said}");
}

#[test]
fn learn_online() {
    let said = run("learn_online", &[&model("D"), &model("L")]);
    assert_eq!(said.lines().count(), 4, "{said}");
    assert!(said.trim_end().ends_with("4 updates"), "{said}");
}

#[test]
fn batch() {
    let said = run("batch", &[&model("D"), &model("L")]);
    assert_eq!(
        said.lines().filter(|line| line.starts_with("> ")).count(),
        3,
        "{said}"
    );
}

#[test]
fn serve_embedded() {
    let said = run("serve_embedded", &[&model("D"), &model("L")]);
    assert!(said.contains("\"object\":\"chat.completion\""), "{said}");
}
