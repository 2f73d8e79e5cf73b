//! The embedded mini streams are the committed ones, correct, and free of near-duplicates.

use std::collections::{BTreeSet, HashSet};

use sha2::{Digest, Sha256};
use streams::{MiniTask, Prompt, Split};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Prompts of each half.
const MINI_TRAIN: usize = 400;
const MINI_TEST: usize = 60;

/// Two prompts of a stream share at most this part of their distinct word pairs (Jaccard index).
const MAX_SIMILARITY: f64 = 0.7;

fn all(task: MiniTask) -> Result<Vec<Prompt>> {
    Ok([task.prompts(Split::Train)?, task.prompts(Split::Test)?].concat())
}

/// SHA-256 of `datasets/TASK/SPLIT.jsonl`: published results name these prompts.
const CHECKSUMS: [(&str, &str); 8] = [
    (
        "mini-math/train",
        "dbf053df07449a86df790f334a027386605b485665e8f28bc8a36b403e416bba",
    ),
    (
        "mini-math/test",
        "9e156d1ad41637ce012ed79d4562587fc4ba40c49303de62ef2b6781148fe7d1",
    ),
    (
        "mini-code/train",
        "014d89ea7eace354f2bacb37b9720983b342a4b08b61a9064eab77786becc71d",
    ),
    (
        "mini-code/test",
        "0277183eadf24d360fbb8d0f2e40b8b7bf29b25793e2140b1e724f7a48c5dce3",
    ),
    (
        "mini-chat/train",
        "1b124de734164f8dcf7eaa4d16f1205629f9088d365853e8a725e22eb07fcf48",
    ),
    (
        "mini-chat/test",
        "dee3d950d651b17c1b411eee70c4aad34a279b483693b155308c3e5280b0e435",
    ),
    (
        "mini-news/train",
        "bdf0f7808e8229e38a10d942fb7ad590c8f41c35e681168552283af23f18abad",
    ),
    (
        "mini-news/test",
        "8ab2307e3082ee58664d4e24ba03f2bf18262aafc17d8f8f13dac543c9d57f9e",
    ),
];

#[test]
fn the_embedded_files_are_those_that_results_name() {
    let mut files = Vec::new();
    for task in MiniTask::ALL {
        for split in [Split::Train, Split::Test] {
            let checksum = hex::encode(Sha256::digest(task.embedded(split)));
            files.push((format!("{}/{}", task.name(), split.name()), checksum));
        }
    }
    let expected = CHECKSUMS.map(|(file, checksum)| (file.to_owned(), checksum.to_owned()));
    assert_eq!(files, expected);
}

#[test]
fn ids_and_prompts_are_unique_and_splits_disjoint() -> Result {
    let mut ids = HashSet::new();
    let mut texts = HashSet::new();
    for task in MiniTask::ALL {
        assert_eq!(task.prompts(Split::Train)?.len(), MINI_TRAIN);
        assert_eq!(task.prompts(Split::Test)?.len(), MINI_TEST);
        for p in all(task)? {
            assert!(!p.reference.trim().is_empty(), "{}", p.id);
            let unfilled = format!("{}{}", p.prompt, p.reference).contains(['{', '}']);
            assert!(
                !unfilled || task == MiniTask::Code,
                "{} holds a placeholder",
                p.id
            );
            assert!(ids.insert(p.id.clone()), "{} twice", p.id);
            assert!(texts.insert(p.prompt), "{} repeats a prompt", p.id);
        }
    }
    Ok(())
}

#[test]
fn no_two_prompts_of_a_stream_are_near_duplicates() -> Result {
    for task in MiniTask::ALL {
        let sets: Vec<(String, BTreeSet<String>)> = all(task)?
            .into_iter()
            .map(|p| (p.id, bigrams(&p.prompt)))
            .collect();
        for (i, (a, first)) in sets.iter().enumerate() {
            for (b, second) in &sets[i + 1..] {
                let shared = first.intersection(second).count() as f64;
                let union = (first.len() + second.len()) as f64 - shared;
                assert!(shared <= MAX_SIMILARITY * union, "{a} and {b}");
            }
        }
    }
    Ok(())
}

fn bigrams(text: &str) -> BTreeSet<String> {
    let text = text.to_lowercase();
    let words: Vec<&str> = text
        .split(|c: char| !c.is_alphanumeric())
        .filter(|w| !w.is_empty())
        .collect();
    words.windows(2).map(|w| w.join(" ")).collect()
}

#[test]
fn arithmetic_is_right_and_ends_in_the_answer() -> Result {
    let mut annotations = 0;
    for p in all(MiniTask::Math)? {
        let mut last = None;
        for part in p.reference.split("<<").skip(1) {
            let (annotation, shown) = part.split_once(">>").ok_or("unclosed annotation")?;
            let (expression, result) = annotation.split_once('=').ok_or("no result")?;
            let result: f64 = result.parse()?;
            assert!(
                result > 0.0 && result.fract() == 0.0,
                "{}: {annotation}",
                p.id
            );
            assert_eq!(evaluate(expression)?, result, "{}: {annotation}", p.id);
            let digits: String = shown.chars().take_while(char::is_ascii_digit).collect();
            assert_eq!(
                digits.parse::<f64>()?,
                result,
                "{}: shown as {digits}",
                p.id
            );
            last = Some(result);
            annotations += 1;
        }
        let (_, answer) = p.reference.rsplit_once("\n#### ").ok_or("no answer line")?;
        assert_eq!(Some(answer.parse::<f64>()?), last, "{}", p.id);
    }
    assert!(
        annotations > 2 * MINI_TRAIN,
        "only {annotations} annotations"
    );
    Ok(())
}

/// Value of sums of products, from the left; with the usual precedence.
fn evaluate(expression: &str) -> Result<f64> {
    let (mut sum, mut sign) = (0.0, 1.0);
    for token in split_keeping(expression, &['+', '-']) {
        match token {
            "+" => sign = 1.0,
            "-" => sign = -1.0,
            term => sum += sign * product(term)?,
        }
    }
    Ok(sum)
}

fn product(term: &str) -> Result<f64> {
    let (mut value, mut divide) = (1.0, false);
    for token in split_keeping(term, &['*', '/']) {
        match token {
            "*" => divide = false,
            "/" => divide = true,
            number if divide => value /= number.parse::<f64>()?,
            number => value *= number.parse::<f64>()?,
        }
    }
    Ok(value)
}

fn split_keeping<'a>(text: &'a str, operators: &[char]) -> Vec<&'a str> {
    text.split_inclusive(operators)
        .flat_map(|part| match part.strip_suffix(operators) {
            Some(operand) => vec![operand, &part[operand.len()..]],
            None => vec![part],
        })
        .collect()
}

#[test]
fn the_evaluator_of_this_test_knows_arithmetic() -> Result {
    assert_eq!(evaluate("12*3")?, 36.0);
    assert_eq!(evaluate("80*25/100")?, 20.0);
    assert_eq!(evaluate("10-2-3")?, 5.0);
    assert_eq!(evaluate("1+2+30")?, 33.0);
    Ok(())
}

#[test]
fn forms_are_those_of_the_four_tasks() -> Result {
    for p in all(MiniTask::Code)? {
        let lines: Vec<&str> = p.prompt.lines().collect();
        assert_eq!(lines.len(), 5, "{}", p.id);
        assert_eq!(lines[1], "Your code should pass these tests:");
        let after_def = p.reference.strip_prefix("def ").ok_or("no function")?;
        let call = format!(
            "assert {}(",
            after_def.split('(').next().unwrap_or_default()
        );
        assert!(lines[2..].iter().all(|l| l.starts_with(&call)), "{}", p.id);
        assert!(!p.reference.contains('@'), "{}", p.id);
    }
    for p in all(MiniTask::News)? {
        let instruction = "\n\nSummarize the above article in 1 sentence.";
        let article = p.prompt.strip_suffix(instruction).ok_or("no instruction")?;
        assert!((6..=10).contains(&article.lines().count()), "{}", p.id);
        assert!(
            p.reference.ends_with('.') && !p.reference.contains('\n'),
            "{}",
            p.id
        );
    }
    let with_input = all(MiniTask::Chat)?
        .iter()
        .filter(|p| p.prompt.contains("\n\n"))
        .count();
    assert!((100..350).contains(&with_input), "{with_input}");
    Ok(())
}
