//! News in XSum's format: an article of 6 to 10 sentences, one per line, and a one-sentence summary.

use std::collections::{BTreeMap, BTreeSet};

use super::news_events::{CLOSINGS, EVENTS, Event};
use super::words::{Choose, SURNAMES, TOWNS};
use streams::StreamRng;

use super::Draft;

/// What follows the article in the prompt, as in the staged XSum prompts.
pub(super) const INSTRUCTION: &str = "\n\nSummarize the above article in 1 sentence.";

/// Draws until a summary tells nothing that the article does not; the first draw usually does.
pub(super) fn draw(r: &mut StreamRng) -> Draft {
    let mut draft = report(r);
    for _ in 0..50 {
        if draft.1.is_some() {
            break;
        }
        draft = report(r);
    }
    let (article, summary) = draft;
    (
        format!("{article}{INSTRUCTION}"),
        summary.unwrap_or_default(),
    )
}

/// An article and, where one of the event's summaries fits what was told, that summary.
fn report(r: &mut StreamRng) -> (String, Option<String>) {
    let event = &EVENTS[r.below(EVENTS.len())];
    let cast = cast(r, event);
    let mut told = vec![r.pick(event.lead)];
    // Lead, 4 to 7 of the slots in their order, 1 or 2 closing sentences: 6 to 10 in all.
    let wanted = r.within(4, 7) as usize;
    let slots: Vec<usize> = (0..event.body.len()).collect();
    let mut chosen = r.sample(&slots, wanted);
    chosen.sort_unstable();
    for slot in chosen {
        told.push(r.pick(event.body[slot]));
    }
    let closings = r.within(1, 2) as usize;
    told.extend(r.sample(CLOSINGS, closings));
    let known: BTreeSet<&str> = told.iter().flat_map(|text| keys(text)).collect();
    let fitting: Vec<&str> = event
        .summary
        .iter()
        .copied()
        .filter(|s| keys(s).all(|key| known.contains(key)))
        .collect();
    let article: Vec<String> = told.iter().map(|text| fill(text, &cast)).collect();
    let summary = if fitting.is_empty() {
        None
    } else {
        Some(fill(r.pick(&fitting), &cast))
    };
    (article.join("\n"), summary)
}

/// The placeholders of a text.
fn keys(text: &str) -> impl Iterator<Item = &str> {
    text.split('{')
        .skip(1)
        .filter_map(|part| part.split_once('}').map(|(key, _)| key))
}

/// Values for the placeholders of an event.
fn cast(r: &mut StreamRng, event: &Event) -> BTreeMap<&'static str, String> {
    let mut cast = BTreeMap::new();
    let towns = r.sample(&TOWNS, 3);
    for (key, town) in ["town", "town2", "town3"].into_iter().zip(towns) {
        cast.insert(key, town.to_owned());
    }
    let people = r.people::<4>();
    let surnames = r.sample(&SURNAMES, 4);
    let keys = [
        ("name", "last", "they"),
        ("name2", "last2", "they2"),
        ("name3", "last3", "they3"),
        ("name4", "last4", "they4"),
    ];
    for ((person, surname), (full, last, they)) in people.into_iter().zip(surnames).zip(keys) {
        cast.insert(full, format!("{} {surname}", person.name));
        cast.insert(last, surname.to_owned());
        cast.insert(they, person.they().to_owned());
    }
    let weekday = [
        "Monday",
        "Tuesday",
        "Wednesday",
        "Thursday",
        "Friday",
        "Saturday",
        "Sunday",
    ];
    cast.insert("day", r.pick(&weekday).to_owned());
    cast.insert("day2", r.pick(&weekday).to_owned());
    cast.insert(
        "month",
        r.pick(&[
            "January",
            "March",
            "April",
            "June",
            "July",
            "September",
            "October",
            "November",
        ])
        .to_owned(),
    );
    cast.insert("age", r.within(19, 78).to_string());
    cast.insert("k", r.within(3, 9).to_string());
    cast.insert("n", r.within(12, 95).to_string());
    cast.insert("m", (r.within(11, 98) * 10).to_string());
    cast.insert("year", r.within(1890, 1985).to_string());
    cast.insert("money", format!("£{},000", r.within(12, 940)));
    cast.insert("prize", format!("£{},500", r.within(1, 20)));
    for (key, values) in event.choices {
        cast.insert(key, r.pick(values).to_owned());
    }
    cast
}

/// Replaces `{key}` by its value.
fn fill(text: &str, cast: &BTreeMap<&'static str, String>) -> String {
    let mut out = String::with_capacity(text.len() + 32);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((key, tail)) = after.split_once('}') else {
            rest = after;
            break;
        };
        out.push_str(cast.get(key).map_or(key, String::as_str));
        rest = tail;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_every_event_has_a_value() {
        let mut rng = StreamRng::new(5, "placeholders");
        for event in EVENTS {
            let cast = cast(&mut rng, event);
            let texts = event
                .lead
                .iter()
                .chain(event.body.iter().copied().flatten())
                .chain(event.summary)
                .chain(CLOSINGS);
            for text in texts {
                for key in keys(text) {
                    assert!(cast.contains_key(key), "{{{key}}} in: {text}");
                }
            }
            assert!(event.body.len() >= 7, "an article takes up to 7 slots");
        }
    }
}
