//! Word problems that follow one quantity through a random chain of events.

use super::math::{Work, calc};
use super::words::{Choose, Person};
use streams::StreamRng;

use super::Draft;

/// What the chain counts, where it starts, and a second person.
struct Scene {
    person: Person,
    friend: Person,
    thing: &'static str,
}

/// Three to five events, each with its sentence and its calculation.
pub(super) fn draw(r: &mut StreamRng) -> Draft {
    let [person, friend] = r.people();
    let thing = r.pick(&[
        "stickers",
        "acorns",
        "beads",
        "trading cards",
        "pencils",
        "balloons",
        "pebbles",
        "ribbons",
        "tokens",
        "buttons",
        "paper cranes",
        "badges",
        "toy cars",
        "tulip bulbs",
        "jigsaw pieces",
        "chestnuts",
    ]);
    let scene = Scene {
        person,
        friend,
        thing,
    };
    let mut have = r.within(12, 60);
    let time = r.pick(&["week", "school year", "holidays", "morning"]);
    let mut sentences = vec![r.one([
        format!("{} starts the {time} with {have} {thing}.", person.name),
        format!("There are {have} {thing} in {}'s drawer.", person.name),
        format!("{} has collected {have} {thing}.", person.name),
        format!("In the beginning {} had {have} {thing}.", person.name),
    ])];
    let mut work = Work::default();
    let mut last = usize::MAX;
    for _ in 0..r.within(3, 5) {
        // Kinds 0 and 1, 4 and 5 are the same event, drawn twice as often: none follows itself.
        let mut kind = r.below(8);
        if kind / 2 == last {
            kind = (kind + 2) % 8;
        }
        last = kind / 2;
        let (sentence, line, value) = event(r, &scene, kind, have);
        sentences.push(sentence);
        work.say(line);
        have = value;
    }
    sentences.push(r.one([
        format!("How many {thing} does {} have now?", person.name),
        format!("How many {thing} are left for {} in the end?", person.name),
        format!(
            "What is the number of {thing} {} owns after all this?",
            person.name
        ),
    ]));
    (sentences.join(" "), work.answer(have))
}

/// One event on `have` things: sentence, solution line, new number (always positive).
fn event(r: &mut StreamRng, scene: &Scene, kind: usize, have: i64) -> (String, String, i64) {
    let Scene {
        person,
        friend,
        thing,
    } = scene;
    let (name, they, other) = (person.name, person.they_cap(), friend.name);
    match kind {
        0 | 1 if have > 12 => {
            let n = r.within(3, have / 2);
            let step = calc('-', &[have, n]);
            let sentence = r.one([
                format!("{they} gives {n} to {other}."),
                format!("Then {n} of them get lost on the way to school."),
                format!("{they} swaps {n} of the {thing} for a whistle."),
                format!("A puppy ruins {n} of them."),
            ]);
            (
                sentence,
                format!("After that {name} has {} {thing}.", step.text),
                step.value,
            )
        }
        2 if have <= 150 => {
            let k = r.within(2, 3);
            let step = calc('*', &[have, k]);
            let times = if k == 2 { "doubles" } else { "triples" };
            let sentence = r.one([
                format!("Over the next month {} {times} that number.", name),
                format!("With the help of {other}, {name} {times} the collection."),
            ]);
            (
                sentence,
                format!("The collection grows to {} {thing}.", step.text),
                step.value,
            )
        }
        3 if have % 2 == 0 && have > 20 => {
            let step = calc('/', &[have, 2]);
            let sentence = r.one([
                format!("{they} puts half of the {thing} in a raffle and loses them."),
                format!("Half of them go to {other} as a present."),
            ]);
            (
                sentence,
                format!("{name} keeps {} {thing}.", step.text),
                step.value,
            )
        }
        4 | 5 => {
            let (packs, size) = (r.within(2, 6), r.within(4, 12));
            let bought = calc('*', &[packs, size]);
            let total = calc('+', &[have, bought.value]);
            let sentence = r.one([
                format!("{they} buys {packs} packs with {size} {thing} in each."),
                format!(
                    "{other} brings {packs} bags of {size} {thing} and leaves them all with {name}."
                ),
                format!(
                    "For a good report {name} receives {packs} boxes holding {size} {thing} apiece."
                ),
            ]);
            let line = format!(
                "The new ones number {}, which makes {} {thing}.",
                bought.text, total.text
            );
            (sentence, line, total.value)
        }
        _ => {
            let n = r.within(5, 35);
            let step = calc('+', &[have, n]);
            let sentence = r.one([
                format!("On Friday {name} finds {n} more."),
                format!("{other} adds {n} from the attic."),
                format!("{they} wins another {n} at a fair."),
                format!("An older cousin passes on {n} {thing}."),
            ]);
            (
                sentence,
                format!("That brings {name} to {} {thing}.", step.text),
                step.value,
            )
        }
    }
}
