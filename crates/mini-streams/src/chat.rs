//! Instructions in Alpaca's format: an instruction, sometimes an input after a blank line, and an answer.

use super::chat_data::{ADVICE, KINDS, PAIRS, SUBJECTS, SYNONYMS};
use super::words::{Choose, capitalized, number_word};
use streams::StreamRng;

use super::{Draft, chat_tasks};

pub(super) fn draw(r: &mut StreamRng) -> Draft {
    let families: [fn(&mut StreamRng) -> Draft; 20] = [
        subject,
        subject,
        subject,
        advice,
        advice,
        compare,
        odd_one_out,
        sort_into_groups,
        synonym,
        chat_tasks::tense,
        chat_tasks::tense,
        chat_tasks::order,
        chat_tasks::convert,
        chat_tasks::extract,
        chat_tasks::sentiment,
        chat_tasks::email,
        chat_tasks::email,
        chat_tasks::story,
        chat_tasks::arithmetic,
        chat_tasks::grammar,
    ];
    r.pick(&families)(r)
}

/// An instruction with an input.
pub(super) fn with_input(instruction: impl AsRef<str>, input: impl AsRef<str>) -> String {
    format!("{}\n\n{}", instruction.as_ref(), input.as_ref())
}

fn bullets<T: AsRef<str>>(items: &[T]) -> String {
    items
        .iter()
        .map(|item| format!("- {}", item.as_ref()))
        .collect::<Vec<_>>()
        .join("\n")
}

fn numbered<T: AsRef<str>>(items: &[T]) -> String {
    items
        .iter()
        .enumerate()
        .map(|(i, item)| format!("{}. {}", i + 1, item.as_ref()))
        .collect::<Vec<_>>()
        .join("\n")
}

fn subject(r: &mut StreamRng) -> Draft {
    let (name, definition, facts) = r.pick(&SUBJECTS);
    let title = capitalized(name);
    let facts = r.sample(&facts, 3);
    match r.below(8) {
        0 => (
            format!("What are {name}?"),
            format!("{title} are {definition}. {}", facts[0]),
        ),
        1 => (format!("Name three facts about {name}."), numbered(&facts)),
        2 => (
            format!("Describe {name} in two or three sentences."),
            format!("{title} are {definition}. {} {}", facts[0], facts[1]),
        ),
        3 => (
            format!("Write a short paragraph about {name} for a school magazine."),
            format!(
                "Have you ever thought about {name}? They are {definition}. {} There is always something new to learn about them.",
                facts.join(" ")
            ),
        ),
        4 => (
            format!("Explain to a six-year-old what {name} are."),
            format!(
                "Imagine someone asks you about {name}. You could say: they are {definition}. And here is something fun: {}",
                lower_first(facts[0])
            ),
        ),
        5 => (
            format!("Make up a quiz question about {name} and give the answer."),
            format!("Question: What do we call {definition}?\nAnswer: {title}."),
        ),
        6 => (
            with_input(
                "Turn the notes into a fluent paragraph.",
                format!(
                    "topic: {name}; what: {definition}; note: {}",
                    facts[0].trim_end_matches('.')
                ),
            ),
            format!("{title} are {definition}. {}", facts[0]),
        ),
        _ => (
            format!("Give one reason why {name} are interesting."),
            format!(
                "One reason why {name} are interesting is this: {}",
                lower_first(facts[0])
            ),
        ),
    }
}

fn lower_first(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|c| c.to_lowercase().chain(chars).collect())
        .unwrap_or_default()
}

fn advice(r: &mut StreamRng) -> Draft {
    let (activity, tips) = r.pick(&ADVICE);
    let n = r.within(3, 5);
    let chosen = r.sample(&tips, n as usize);
    let word = number_word(n);
    match r.below(5) {
        0 => (
            format!("Give {word} tips for {activity}."),
            numbered(&chosen),
        ),
        1 => (
            format!("List {word} things to keep in mind when {activity}."),
            bullets(&chosen),
        ),
        2 => (
            format!("I would like some advice on {activity}. What do you suggest?"),
            format!(
                "Here is what usually helps with {activity}: {}",
                chosen.join(" ")
            ),
        ),
        3 => (
            format!("Create a checklist for {activity}."),
            chosen
                .iter()
                .map(|tip| format!("[ ] {tip}"))
                .collect::<Vec<_>>()
                .join("\n"),
        ),
        _ => (
            with_input(
                "Which topic do these pieces of advice belong to?",
                chosen.join(" "),
            ),
            format!("They are advice on {activity}."),
        ),
    }
}

fn compare(r: &mut StreamRng) -> Draft {
    let (a, b, both, first, second) = r.pick(&PAIRS);
    let (a_cap, b_cap) = (capitalized(a), capitalized(b));
    match r.below(4) {
        0 => (
            format!("Compare {a} and {b}."),
            format!(
                "{a_cap} and {b} both {both}. The difference is that {a} {first}, while {b} {second}."
            ),
        ),
        1 => (
            format!("What is the difference between {a} and {b}?"),
            format!("{a_cap} {first}, whereas {b} {second}."),
        ),
        2 => (
            format!("What do {a} and {b} have in common?"),
            format!("{a_cap} and {b} both {both}."),
        ),
        _ => (
            format!("Write one sentence about {a} and one about {b}."),
            format!("{a_cap} {first}. {b_cap} {second}."),
        ),
    }
}

fn odd_one_out(r: &mut StreamRng) -> Draft {
    let kinds = r.sample(&KINDS, 2);
    let n = r.within(3, 4) as usize;
    let mut words = r.sample(&kinds[0].1, n);
    let odd = r.pick(&kinds[1].1);
    words.push(odd);
    r.shuffle(&mut words);
    let question = r.pick(&[
        "Find the odd one out.",
        "Which word does not belong with the others?",
        "Identify the item that does not fit in the list and say why.",
    ]);
    let answer = format!(
        "{} does not belong: the others are {}, but {odd} is one of the {}.",
        capitalized(odd),
        kinds[0].0,
        kinds[1].0
    );
    (with_input(question, words.join(", ")), answer)
}

fn sort_into_groups(r: &mut StreamRng) -> Draft {
    let kinds = r.sample(&KINDS, 2);
    let (n, m) = (r.within(2, 4) as usize, r.within(2, 4) as usize);
    let (first, second) = (r.sample(&kinds[0].1, n), r.sample(&kinds[1].1, m));
    let mut all = [first.clone(), second.clone()].concat();
    r.shuffle(&mut all);
    let (a, b) = (kinds[0].0, kinds[1].0);
    let instruction = r.one([
        format!("Sort these words into {a} and {b}."),
        format!("Divide the list into two groups: {a} and {b}."),
    ]);
    let keep = |group: &[&str]| {
        all.iter()
            .copied()
            .filter(|w| group.contains(w))
            .collect::<Vec<_>>()
            .join(", ")
    };
    let answer = format!(
        "{}: {}\n{}: {}",
        capitalized(a),
        keep(&first),
        capitalized(b),
        keep(&second)
    );
    (with_input(instruction, all.join(", ")), answer)
}

fn synonym(r: &mut StreamRng) -> Draft {
    let (word, first, second, opposite) = r.pick(&SYNONYMS);
    match r.below(4) {
        0 => (
            format!("Give two synonyms of the word \"{word}\"."),
            format!("Two synonyms of \"{word}\" are \"{first}\" and \"{second}\"."),
        ),
        1 => (
            format!("What is the opposite of \"{word}\"?"),
            format!("The opposite of \"{word}\" is \"{opposite}\"."),
        ),
        2 => {
            let mut words = [first, opposite, second];
            r.shuffle(&mut words);
            (
                with_input(
                    format!("Which of these words does not mean the same as \"{word}\"?"),
                    words.join(", "),
                ),
                format!(
                    "\"{}\" does not mean the same as \"{word}\"; it is the opposite.",
                    capitalized(opposite)
                ),
            )
        }
        _ => {
            let mut pairs: Vec<(&str, &str)> =
                r.sample(&SYNONYMS, 3).iter().map(|s| (s.0, s.3)).collect();
            r.shuffle(&mut pairs);
            let words: Vec<&str> = pairs.iter().map(|p| p.0).collect();
            let answers: Vec<String> = pairs.iter().map(|(a, b)| format!("{a} - {b}")).collect();
            (
                with_input("Write the opposite next to each word.", words.join(", ")),
                answers.join("\n"),
            )
        }
    }
}
