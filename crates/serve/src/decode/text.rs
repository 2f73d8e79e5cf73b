//! Text of an answer that can be shown: whole characters, without stop strings.

use vocab_align::Utf8Stream;

/// Collects the bytes of an answer and returns text that can no longer change.
#[derive(Debug, Default)]
pub(crate) struct AnswerText {
    stops: Vec<String>,
    characters: Utf8Stream,
    /// Text that may be the beginning of a stop string.
    held: String,
    ended: bool,
}

impl AnswerText {
    /// A text that ends before the first of `stops`, none of which is empty.
    pub(crate) fn new(stops: Vec<String>) -> Self {
        Self {
            stops,
            ..Self::default()
        }
    }

    /// True if a stop string was met; nothing comes after it.
    pub(crate) fn ended(&self) -> bool {
        self.ended
    }

    /// Adds the bytes of a token; returns the text that can be shown now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        if self.ended {
            return String::new();
        }
        self.held.push_str(&self.characters.push(bytes));
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop));
        if let Some(at) = found.min() {
            self.ended = true;
            self.held.truncate(at);
            return std::mem::take(&mut self.held);
        }
        let kept = self.stops.iter().map(|stop| overlap(&self.held, stop));
        let kept = kept.max().unwrap_or(0);
        let behind = self.held.split_off(self.held.len() - kept);
        std::mem::replace(&mut self.held, behind)
    }

    /// The remaining text at the end of the answer.
    pub(crate) fn finish(&mut self) -> String {
        let mut rest = std::mem::take(&mut self.held);
        if !self.ended {
            rest.push_str(&self.characters.end());
        }
        rest
    }
}

/// Length in bytes of the longest suffix of `text` that is a proper prefix of `stop`.
fn overlap(text: &str, stop: &str) -> usize {
    let longest = text.len().min(stop.len().saturating_sub(1));
    (1..=longest)
        .rev()
        .find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], tokens: &[&[u8]]) -> (Vec<String>, String, bool) {
        let mut text = AnswerText::new(stops.iter().map(ToString::to_string).collect());
        let shown = tokens.iter().map(|token| text.push(token)).collect();
        let rest = text.finish();
        (shown, rest, text.ended())
    }

    #[test]
    fn half_a_character_waits_for_the_other_half() {
        let (shown, rest, _) = run(&[], &[b"a\xe2\x82", b"\xac!", b"\xff", b"\xe2"]);
        assert_eq!(shown, ["a", "€!", "\u{fffd}", ""]);
        assert_eq!(rest, "\u{fffd}");
    }

    #[test]
    fn what_may_become_a_stop_string_is_held_back() {
        let (shown, rest, ended) = run(&["END"], &[b"the E", b"N", b"T and EN", b"D of it"]);
        assert_eq!(shown, ["the ", "", "ENT and ", ""]);
        assert_eq!((rest.as_str(), ended), ("", true));
        let (shown, rest, ended) = run(&["ab", "xaby"], &[b"xa", b"q", b"xa"]);
        assert_eq!((shown.concat() + &rest, ended), ("xaqxa".into(), false));
        // The stop string that comes first in the text ends it, in whatever order they are given.
        let (shown, rest, _) = run(&["late", "so"], &[b"and so late"]);
        assert_eq!(shown.concat() + &rest, "and ");
    }

    #[test]
    fn pieces_are_the_text_whatever_the_tokens() {
        let text = "naïve €uro \u{1f600} stop here".as_bytes();
        for size in 1..=text.len() {
            let tokens: Vec<&[u8]> = text.chunks(size).collect();
            let (shown, rest, _) = run(&["stop", "ö"], &tokens);
            assert_eq!(shown.concat() + &rest, "naïve €uro \u{1f600} ", "{size}");
        }
    }
}
