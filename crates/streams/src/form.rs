//! Records of published benchmarks, by the fields that these have.
//!
//! | benchmark | fields | prompts of a record |
//! |---|---|---|
//! | Spec-Bench, MT-Bench, SPEED-Bench | `question_id`, `turns` | one a turn |
//! | HumanEval | `task_id`, `prompt`, `canonical_solution` | the beginning of the function |
//! | MBPP, sanitised or not | `task_id`, `text` or `prompt`, `test_list`, `code` | task and tests |
//! | CNN/DailyMail | `id`, `article`, `highlights` | the article and what is asked of it |
//! | any other | `id`, `prompt`, `reference` | the prompt |

use std::path::Path;

use crate::record::{Record, read, records};
use crate::{LineFault, Prompt, StreamError};

/// The words between a task of MBPP and its tests.
const TESTS: &str = "\nYour code should pass these tests:";
/// The words after an article of CNN/DailyMail, whose highlights have three sentences or four.
const SUMMARIZE: &str = "\n\nSummarize the above article in 3 sentences.";
/// The beginning of a turn whose text SPEED-Bench may not give away.
const WITHHELD: &str = "FULL BENCHMARK DATA SHOULD BE FETCHED FROM THE SOURCE";

/// Reads the prompts of a JSON-lines file, in file order. A file whose name ends in `.json` is read
/// as a JSON array, and either form may be compressed by gzip (`.gz`).
///
/// `id` (a text or a whole number) and a non-blank `prompt` are required. `reference` is optional.
/// Other fields and blank lines are ignored; a field that is null counts as missing.
///
/// Records with the fields of a published benchmark are read as that benchmark means them:
/// Spec-Bench, MT-Bench and SPEED-Bench (one prompt for each turn), HumanEval, MBPP and
/// CNN/DailyMail.
///
/// # Errors
/// Unreadable file, invalid UTF-8, malformed line, missing or empty field, repeated id, no record
/// at all. Each error names the file and the line.
pub fn load_prompts(path: &Path, task: &str) -> Result<Vec<Prompt>, StreamError> {
    parse_prompts(&read(path)?, path, task)
}

/// [`load_prompts`] on bytes already read; `path` is only named in errors.
///
/// # Errors
/// As [`load_prompts`].
pub fn parse_prompts(bytes: &[u8], path: &Path, task: &str) -> Result<Vec<Prompt>, StreamError> {
    let read = records(bytes, path, |record| prompts(record, task))?;
    Ok(read.into_iter().flatten().collect())
}

/// The prompts of a record. Those of turns after the first have `#2`, `#3` and so on after the
/// record's id.
pub(crate) fn prompts(record: &Record, task: &str) -> Result<Vec<Prompt>, StreamError> {
    let id = record.required(record.id_field())?;
    let has = |field: &str| record.field(field).is_some();
    let one = |prompt: String, reference: &str| -> Result<Vec<Prompt>, StreamError> {
        Ok(vec![Prompt {
            id: id.clone(),
            task: task.to_owned(),
            prompt,
            reference: record.optional(reference)?.unwrap_or_default(),
            earlier: Vec::new(),
        }])
    };
    let own = record.id_field() == "id";
    if own && has("prompt") {
        return one(record.required("prompt")?, "reference");
    }
    if has("turns") {
        return turns(record, &id, task);
    }
    if has("test_list") {
        return one(mbpp(record)?, "code");
    }
    if has("article") {
        let article = record.required("article")?;
        return one(format!("{}{SUMMARIZE}", article.trim()), "highlights");
    }
    let reference = match own {
        true => "reference",
        false => "canonical_solution",
    };
    one(record.required("prompt")?, reference)
}

/// A prompt for every turn of a conversation.
fn turns(record: &Record, id: &str, task: &str) -> Result<Vec<Prompt>, StreamError> {
    let turns = record.texts("turns")?.unwrap_or_default();
    if turns.is_empty() || turns.iter().any(|turn| turn.trim().is_empty()) {
        return Err(record.fault(LineFault::EmptyField("turns".to_owned())));
    }
    if turns
        .iter()
        .any(|turn| turn.trim_start().starts_with(WITHHELD))
    {
        return Err(record.fault(LineFault::Withheld));
    }
    // MT-Bench has answers to some of its questions, as a list; other benchmarks have something
    // else there, or nothing.
    let references = record.texts("reference").ok().flatten().unwrap_or_default();
    let prompt = |(at, turn): (usize, &String)| Prompt {
        id: match at {
            0 => id.to_owned(),
            at => format!("{id}#{}", at + 1),
        },
        task: task.to_owned(),
        prompt: turn.clone(),
        reference: references.get(at).cloned().unwrap_or_default(),
        earlier: turns[..at].to_vec(),
    };
    Ok(turns.iter().enumerate().map(prompt).collect())
}

/// The task and the tests that its answer should pass.
fn mbpp(record: &Record) -> Result<String, StreamError> {
    let field = match record.field("text") {
        Some(_) => "text",
        None => "prompt",
    };
    let tests = record.texts("test_list")?.unwrap_or_default();
    let lines = |text: &str| text.replace("\r\n", "\n");
    let mut prompt = lines(&record.required(field)?);
    prompt.push_str(TESTS);
    for test in tests {
        prompt.push('\n');
        prompt.push_str(&lines(&test));
    }
    Ok(prompt)
}
