//! The committed mini streams are what their generators write, correct, and free of near-duplicates.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use mini_streams::{
    MAX_SIMILARITY, MINI_SEED, MINI_TEST, MINI_TRAIN, generate, to_jsonl, write_mini,
};
use streams::{MiniTask, Prompt, Split};

type Result<T = (), E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../datasets")
}

fn all(task: MiniTask) -> Result<Vec<Prompt>> {
    Ok([task.prompts(Split::Train)?, task.prompts(Split::Test)?].concat())
}

#[test]
#[ignore = "rewrites datasets/mini-*; run it after changing a generator"]
fn rewrite_the_committed_streams() -> Result {
    write_mini(&committed(), MINI_SEED)?;
    Ok(())
}

#[test]
fn the_written_files_are_the_committed_and_the_embedded_ones() -> Result {
    let folder = tempfile::tempdir()?;
    let files = write_mini(folder.path(), MINI_SEED)?;
    assert_eq!(files.len(), 8);
    for file in files {
        let name = file.strip_prefix(folder.path())?;
        let same = std::fs::read(&file)? == std::fs::read(committed().join(name))?;
        assert!(same, "{} differs from the committed file", name.display());
    }
    for task in MiniTask::ALL {
        for split in [Split::Train, Split::Test] {
            let written = folder
                .path()
                .join(task.name())
                .join(format!("{}.jsonl", split.name()));
            let same = std::fs::read_to_string(written)? == task.embedded(split);
            assert!(
                same,
                "{} {} differs from the embedded file",
                task.name(),
                split.name()
            );
        }
    }
    Ok(())
}

#[test]
fn another_seed_gives_another_stream() -> Result {
    for seed in [1, 2] {
        for task in MiniTask::ALL {
            let (train, test) = generate(task, seed)?;
            assert_eq!((train.len(), test.len()), (MINI_TRAIN, MINI_TEST));
            assert!(to_jsonl(&train)? != task.embedded(Split::Train));
        }
    }
    Ok(())
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

/// Value of sums of products, from the left; independent of the generator's arithmetic.
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
