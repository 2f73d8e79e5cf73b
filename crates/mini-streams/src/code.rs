//! Python tasks in MBPP's format: a sentence, three asserts, a reference function.
//!
//! The value an assert expects is computed here, in Rust, from the same definition the sentence states; the reference
//! is Python. That both agree is what running the asserts shows.

use super::words::Choose;
use streams::StreamRng;

use super::{Draft, code_lists, code_numbers, code_text};

/// The line between the sentence and the asserts.
pub(super) const TESTS_LINE: &str = "Your code should pass these tests:";

/// A task before it is written out. In `body`, `@` stands for the first parameter.
pub(super) struct Task {
    /// What the function does, as in "Write a function to ...".
    pub goal: String,
    /// Function name.
    pub name: String,
    /// Parameter names; the first replaces `@`.
    pub params: Vec<String>,
    /// Indented Python.
    pub body: String,
    /// Arguments and expected value of each assert, as Python.
    pub cases: Vec<(String, String)>,
}

pub(super) fn draw(r: &mut StreamRng) -> Draft {
    let task = match r.below(10) {
        0..=2 => code_numbers::filtered(r),
        3 => code_numbers::scalar(r),
        4 | 5 => code_lists::list(r),
        6 => code_lists::structured(r),
        7 => code_text::words(r),
        8 => code_text::characters(r),
        _ => code_text::whole(r),
    };
    let opener = r.pick(&[
        "Write a function to",
        "Write a python function to",
        "Write a function to",
    ]);
    let asserts: Vec<String> = task
        .cases
        .iter()
        .map(|(args, expected)| format!("assert {}({args}) == {expected}", task.name))
        .collect();
    let prompt = format!(
        "{opener} {}.\n{TESTS_LINE}\n{}",
        task.goal,
        asserts.join("\n")
    );
    let first = task.params.first().map_or("", String::as_str);
    let reference = format!(
        "def {}({}):\n{}",
        task.name,
        task.params.join(", "),
        task.body.replace('@', first)
    );
    (prompt, reference)
}

/// A parameter name for a list.
pub(super) fn list_name(r: &mut StreamRng) -> String {
    r.pick(&[
        "nums", "numbers", "values", "items", "arr", "lst", "data", "seq",
    ])
    .to_owned()
}

/// A task over one list of integers; `expect` gives the expected value as Python.
pub(super) fn over_list(
    r: &mut StreamRng,
    (low, high): (i64, i64),
    (goal, name, body): (String, &str, &str),
    expect: impl Fn(&[i64]) -> String,
) -> Task {
    let cases = (0..3)
        .map(|_| {
            let length = r.within(5, 8);
            let list: Vec<i64> = (0..length).map(|_| r.within(low, high)).collect();
            (ints(&list), expect(&list))
        })
        .collect();
    Task {
        goal,
        name: name.to_owned(),
        params: vec![list_name(r)],
        body: body.to_owned(),
        cases,
    }
}

/// A Python list of integers.
pub(super) fn ints(list: &[i64]) -> String {
    format!(
        "[{}]",
        list.iter()
            .map(i64::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// A Python list of strings.
pub(super) fn strings<T: AsRef<str>>(list: &[T]) -> String {
    format!(
        "[{}]",
        list.iter()
            .map(|s| quoted(s.as_ref()))
            .collect::<Vec<_>>()
            .join(", ")
    )
}

/// A Python string; the generators' texts hold no quote and no backslash.
pub(super) fn quoted(text: &str) -> String {
    format!("'{text}'")
}

/// `True` or `False`.
pub(super) fn boolean(value: bool) -> String {
    if value { "True" } else { "False" }.to_owned()
}
