//! Instructions that work on an input, compose a text, or compute something.

use super::chat::with_input;
use super::chat_data::{ACTIONS, KINDS};
use super::words::{Choose, TOWNS, article, capitalized, listed};
use streams::StreamRng;

use super::Draft;

pub(super) fn tense(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (base, present, past, continuous) = r.pick(&ACTIONS);
    let (when, often) = (
        r.pick(&["yesterday", "last week", "two days ago", "on Sunday"]),
        r.pick(&[
            "every morning",
            "twice a week",
            "after lunch",
            "in the evening",
        ]),
    );
    let now = format!("{} {present} {often}.", p.name);
    match r.below(6) {
        0 => (
            with_input("Rewrite the sentence in the past tense.", &now),
            format!("{} {past} {often}.", p.name),
        ),
        1 => (
            with_input("Change the sentence to the future tense.", &now),
            format!("{} will {base} {often}.", p.name),
        ),
        2 => (
            with_input("Turn the statement into a question.", &now),
            format!("Does {} {base} {often}?", p.name),
        ),
        3 => (
            with_input(
                "Make the sentence negative.",
                format!("{} {past} {when}.", p.name),
            ),
            format!("{} did not {base} {when}.", p.name),
        ),
        4 => (
            with_input(
                "Rewrite the sentence so that it describes what is happening right now.",
                &now,
            ),
            format!("{} is {continuous} right now.", p.name),
        ),
        _ => (
            with_input(
                "Ask a question to which the sentence is the answer.",
                format!("{} {past} {when}.", p.name),
            ),
            format!("What did {} do {when}?", p.name),
        ),
    }
}

pub(super) fn order(r: &mut StreamRng) -> Draft {
    let n = r.within(5, 7);
    match r.below(4) {
        0 | 1 => {
            let mut numbers: Vec<i64> = (0..n).map(|_| r.within(2, 99)).collect();
            let input = listed_plain(&numbers);
            let down = r.flip();
            numbers.sort_unstable();
            if down {
                numbers.reverse();
            }
            let way = if down { "descending" } else { "ascending" };
            let instruction = r.one([
                format!("Sort the numbers in {way} order."),
                format!("Arrange these numbers in {way} order."),
            ]);
            (with_input(instruction, input), listed_plain(&numbers))
        }
        2 => {
            let kind = r.pick(&KINDS);
            let mut words = r.sample(&kind.1, 5);
            let input = words.join(", ");
            words.sort_unstable();
            (
                with_input(format!("Put the {} in alphabetical order.", kind.0), input),
                words.join(", "),
            )
        }
        _ => {
            let numbers: Vec<i64> = (0..n).map(|_| r.within(2, 99)).collect();
            let (low, high) = (
                numbers.iter().min().copied().unwrap_or(0),
                numbers.iter().max().copied().unwrap_or(0),
            );
            (
                with_input(
                    "Find the largest and the smallest number in the list.",
                    listed_plain(&numbers),
                ),
                format!("The largest number is {high} and the smallest is {low}."),
            )
        }
    }
}

fn listed_plain(numbers: &[i64]) -> String {
    numbers
        .iter()
        .map(i64::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

pub(super) fn convert(r: &mut StreamRng) -> Draft {
    let (from, to, factor) = r.pick(&[
        ("hours", "minutes", 60),
        ("minutes", "seconds", 60),
        ("weeks", "days", 7),
        ("kilometres", "metres", 1000),
        ("metres", "centimetres", 100),
        ("kilograms", "grams", 1000),
        ("litres", "millilitres", 1000),
        ("days", "hours", 24),
        ("dozens", "single pieces", 12),
        ("years", "months", 12),
        ("feet", "inches", 12),
        ("tonnes", "kilograms", 1000),
    ]);
    let n = r.within(2, 40);
    let result = n * factor;
    let instruction = r.one([
        format!("Convert {n} {from} to {to}."),
        format!("How many {to} are there in {n} {from}?"),
        format!("Express {n} {from} in {to} and show how you got the result."),
    ]);
    let unit = from.trim_end_matches('s');
    let (unit, number_of) = if from == "feet" {
        ("foot", "inches")
    } else {
        (unit, to)
    };
    (
        instruction,
        format!(
            "One {unit} is {factor} {number_of}, so {n} {from} are {n} x {factor} = {result} {to}."
        ),
    )
}

pub(super) fn extract(r: &mut StreamRng) -> Draft {
    let [p, q] = r.people();
    let (town, other) = (r.pick(&TOWNS), r.pick(&TOWNS));
    let day = r.pick(&[
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
    ]);
    let (hour, price) = (r.within(7, 19), r.within(4, 90));
    let thing = r.pick(&[
        "a used accordion",
        "a rowing boat",
        "two concert tickets",
        "a walnut table",
        "an old map",
        "a pair of skis",
    ]);
    let text = r.one([
        format!("On {day} at {hour}:30, {} met {} in {town} to sell {thing} for {price} euros.", p.name, q.name),
        format!("{} took the bus to {town} on {day}. At {hour}:30 {} was waiting there with {thing}, which cost {price} euros.", p.name, q.name),
        format!("\"Come to {town} on {day}, {hour}:30,\" wrote {} to {}, \"and bring {price} euros for {thing}.\"", p.name, q.name),
    ]);
    let (instruction, answer) = match r.below(6) {
        0 => (
            "Extract the names of the people from the text.",
            format!("{}, {}", p.name, q.name),
        ),
        1 => (
            "Which place is mentioned in the text?",
            format!("The text mentions {town}."),
        ),
        2 => (
            "What is the price named in the text?",
            format!("The price is {price} euros."),
        ),
        3 => (
            "Extract day and time from the text.",
            format!("Day: {day}\nTime: {hour}:30"),
        ),
        4 => (
            "What is being sold in the text?",
            format!("{} is being sold for {price} euros.", capitalized(thing))
                .replace("tickets is", "tickets are")
                .replace("skis is", "skis are"),
        ),
        _ => (
            "Fill in a form with the fields names, place, day, time and price.",
            format!(
                "Names: {}, {}\nPlace: {town}\nDay: {day}\nTime: {hour}:30\nPrice: {price} euros",
                p.name, q.name
            ),
        ),
    };
    if r.below(5) == 0 {
        let wrong = with_input(
            format!(
                "Is it true that the meeting takes place in {other}? Answer with the help of the text."
            ),
            text,
        );
        let verdict = if other == town {
            format!("Yes, it takes place in {town}.")
        } else {
            format!("No, it takes place in {town}, not in {other}.")
        };
        return (wrong, verdict);
    }
    (with_input(instruction, text), answer)
}

pub(super) fn sentiment(r: &mut StreamRng) -> Draft {
    let thing = r.pick(&[
        "hotel", "film", "soup", "concert", "phone", "bakery", "bus tour", "novel", "gym",
        "website", "lecture", "campsite",
    ]);
    let good = r.pick(&[
        "exceeded all my hopes",
        "was a pure delight",
        "made my whole week",
        "is worth every cent",
        "could hardly be better",
    ]);
    let bad = r.pick(&[
        "was a waste of time",
        "let me down badly",
        "is not worth the money",
        "ruined our evening",
        "was worse than I feared",
    ]);
    let plus = r.pick(&[
        "Everyone was friendly.",
        "I will certainly come back.",
        "My sister loved it too.",
        "I told all my friends.",
    ]);
    let minus = r.pick(&[
        "Nobody apologised.",
        "I will never come back.",
        "My sister was bored too.",
        "I want my money back.",
    ]);
    let instruction = r.pick(&[
        "Classify the sentiment of the review as positive, negative or mixed.",
        "Is this review positive, negative or mixed?",
        "Decide whether the writer is satisfied and explain briefly.",
    ]);
    let (input, label, why) = match r.below(3) {
        0 => (
            format!("The {thing} {good}. {plus}"),
            "Positive",
            good.to_owned(),
        ),
        1 => (
            format!("The {thing} {bad}. {minus}"),
            "Negative",
            bad.to_owned(),
        ),
        _ => (
            format!("Yesterday the {thing} {bad}, but on our first visit it {good}. {plus}"),
            "Mixed",
            format!("{bad} once but {good} another time"),
        ),
    };
    (
        with_input(instruction, input),
        format!("{label}. The writer says that the {thing} {why}."),
    )
}

pub(super) fn email(r: &mut StreamRng) -> Draft {
    let [p, q] = r.people();
    let (recipient, greeting) = r.pick(&[
        ("your landlord", "Hello"),
        ("a colleague", "Hi"),
        ("your teacher", "Dear teacher"),
        ("a hotel", "Dear team"),
        ("the city library", "Dear librarians"),
        ("your aunt", "Dear aunt"),
        ("a neighbour", "Hello"),
        ("the head of your club", "Hello"),
        ("a customer", "Dear customer"),
        ("your dentist", "Dear doctor"),
    ]);
    let (purpose, sentence) = r.pick(&[
        (
            "to ask for an appointment next week",
            "could I have an appointment next week?",
        ),
        (
            "to apologise for being late",
            "I am very sorry that I was late.",
        ),
        (
            "to say thank you for a gift",
            "thank you very much for the lovely gift.",
        ),
        (
            "to report a broken heater",
            "the heater has stopped working since last night.",
        ),
        (
            "to cancel a booking",
            "unfortunately I have to cancel my booking.",
        ),
        (
            "to invite them to a summer party",
            "I would like to invite you to our summer party.",
        ),
        (
            "to ask about a lost umbrella",
            "I think I left my umbrella with you; has anyone found it?",
        ),
        (
            "to congratulate them on an award",
            "congratulations on the award, you have earned it.",
        ),
        (
            "to ask for more time",
            "may I have three more days to finish?",
        ),
        (
            "to recommend a book",
            "I have just read a book that you would enjoy.",
        ),
    ]);
    let form = r.pick(&[
        "a short email",
        "a polite note",
        "a friendly message",
        "a text message",
    ]);
    let instruction = r.one([
        format!(
            "Write {form} to {recipient} {purpose}. Sign it as {}.",
            p.name
        ),
        format!(
            "You are {}. Compose {form} to {recipient} {purpose}.",
            p.name
        ),
        format!(
            "Help {} write {form} to {recipient} {purpose}. Mention {}.",
            p.name, q.name
        ),
    ]);
    let mention = if instruction.starts_with("Help") {
        format!("{} sends kind regards as well. ", q.name)
    } else {
        String::new()
    };
    let close = r.pick(&[
        "Best wishes",
        "Kind regards",
        "Many thanks",
        "Warm greetings",
    ]);
    (
        instruction,
        format!(
            "{greeting},\n\n{} {mention}I look forward to hearing from you.\n\n{close},\n{}",
            capitalized(sentence),
            p.name
        ),
    )
}

pub(super) fn story(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let hero = r.pick(&[
        "clockmaker",
        "young fisher",
        "ferry pilot",
        "shy baker",
        "lonely robot",
        "curious crow",
        "gardener",
        "night watchman",
    ]);
    let place = r.pick(&[
        "at the edge of a salt marsh",
        "in a town without mirrors",
        "on a floating market",
        "under an old observatory",
        "in the last house of the valley",
        "beside a frozen canal",
    ]);
    let object = r.pick(&[
        "a key that fits no door",
        "a letter addressed to nobody",
        "a jar full of light",
        "a map of the next day",
        "a whistle only cats can hear",
        "an egg made of glass",
    ]);
    let kind = r.pick(&[
        "a short story",
        "the opening of a story",
        "a bedtime story",
        "a mystery in a few sentences",
    ]);
    let instruction = r.one([
        format!(
            "Write {kind} about {} {hero} called {} who finds {object}.",
            article(hero),
            p.name
        ),
        format!("Invent {kind} that is set {place} and in which {object} plays a part."),
        format!("Tell {kind} with {} {hero} {place}.", article(hero)),
    ]);
    let turn = r.pick(&[
        "By morning everything had changed.",
        "It was warm to the touch and it hummed.",
        "Nobody else seemed to notice.",
        "From then on the evenings were never dull again.",
    ]);
    let end = r.one([
        format!(
            "{} smiled and decided to keep the secret a little longer.",
            p.name
        ),
        format!("And so {} set out to find whoever had lost it.", p.name),
        format!("Only then did {} understand what it was for.", p.name),
    ]);
    (
        instruction,
        format!(
            "{} lived {place} and worked as {} {hero}. One night {} came upon {object}. {turn} {end}",
            p.name,
            article(hero),
            p.they()
        ),
    )
}

pub(super) fn arithmetic(r: &mut StreamRng) -> Draft {
    match r.below(4) {
        0 => {
            let mut numbers: Vec<i64> = (0..3).map(|_| r.within(3, 60)).collect();
            let rest = (4 - numbers.iter().sum::<i64>() % 4) % 4;
            numbers.push(rest + 4 * r.within(1, 12));
            let sum: i64 = numbers.iter().sum();
            (
                with_input(
                    "Compute the average of the numbers.",
                    listed_plain(&numbers),
                ),
                format!(
                    "The sum is {sum} and there are 4 numbers, so the average is {sum} / 4 = {}.",
                    sum / 4
                ),
            )
        }
        1 => {
            let (a, b) = (r.within(12, 99), r.within(3, 19));
            (
                format!("What is {a} times {b}?"),
                format!("{a} times {b} is {}.", a * b),
            )
        }
        2 => {
            let (start, step) = (r.within(1, 30), r.within(2, 15));
            let terms: Vec<i64> = (0..5).map(|i| start + i * step).collect();
            (
                with_input(
                    "Continue the sequence with two more numbers.",
                    listed_plain(&terms),
                ),
                format!(
                    "Each number is {step} more than the one before, so the next two are {} and {}.",
                    start + 5 * step,
                    start + 6 * step
                ),
            )
        }
        _ => {
            let (percent, base) = (r.pick(&[5, 10, 20, 25, 50]), r.within(2, 45) * 20);
            (
                format!("Calculate {percent} percent of {base}."),
                format!(
                    "{percent} percent of {base} is {base} x {percent} / 100 = {}.",
                    base * percent / 100
                ),
            )
        }
    }
}

pub(super) fn grammar(r: &mut StreamRng) -> Draft {
    let p = r.person();
    let (base, present, past, _) = r.pick(&ACTIONS);
    let companions = r.sample(
        &[
            "the twins",
            "my cousins",
            "two students",
            "our neighbours",
            "the players",
        ],
        1,
    );
    let (wrong, right) = match r.below(5) {
        0 => (
            format!("{} {base} every day.", p.name),
            format!("{} {present} every day.", p.name),
        ),
        1 => (
            format!("{} {present} every day.", companions[0]),
            format!("{} {base} every day.", capitalized(companions[0])),
        ),
        2 => (
            format!("yesterday {} {base}", p.name),
            format!("Yesterday {} {past}.", p.name),
        ),
        3 => (
            format!("{} didn't {past} because of the rain.", p.name),
            format!("{} didn't {base} because of the rain.", p.name),
        ),
        _ => (
            format!("does {} {present}", p.name),
            format!("Does {} {base}?", p.name),
        ),
    };
    let instruction = r.pick(&[
        "Correct the mistakes in the sentence.",
        "Fix the grammar.",
        "Proofread this sentence.",
    ]);
    if r.below(4) == 0 {
        let names = r.sample(
            &[
                "milk", "candles", "string", "pepper", "soap", "stamps", "ink", "yeast", "nails",
                "vinegar",
            ],
            4,
        );
        return (
            with_input(
                "Write the items as one sentence that begins with \"We need\".",
                names.join("\n"),
            ),
            format!("We need {}.", listed(&names)),
        );
    }
    // A few verbs look the same in the past: then there is nothing to correct.
    let answer = if wrong == right {
        format!("The sentence is correct: {right}")
    } else {
        right
    };
    (with_input(instruction, wrong), answer)
}
