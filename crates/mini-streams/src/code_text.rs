//! Python tasks about strings.

use super::code::{Task, boolean, quoted, strings};
use super::words::Choose;
use streams::StreamRng;

const WORDS: [&str; 44] = [
    "river", "level", "orange", "stone", "apple", "window", "noon", "garden", "echo", "planet",
    "ink", "yellow", "radar", "umbrella", "night", "island", "kayak", "bottle", "engine",
    "thunder", "oak", "silver", "civic", "pepper", "autumn", "moss", "eagle", "lantern", "refer",
    "harbor", "ice", "puzzle", "meadow", "otter", "copper", "madam", "violin", "elm", "anchor",
    "breeze", "tunnel", "uncle", "frost", "mill",
];

/// A condition on a word: in words, name, Python on `w`, Rust.
type Condition = (String, &'static str, String, Box<dyn Fn(&str) -> bool>);

fn condition(r: &mut StreamRng) -> Condition {
    let k = r.within(4, 6) as usize;
    let c = r.pick(&['a', 'e', 'o', 'n', 'r', 'l']);
    match r.below(9) {
        0 => (
            "start with a vowel".into(),
            "vowel_start",
            "w[0] in 'aeiou'".into(),
            Box::new(|w| w.starts_with(vowel)),
        ),
        1 => (
            "end with a vowel".into(),
            "vowel_end",
            "w[-1] in 'aeiou'".into(),
            Box::new(|w| w.ends_with(vowel)),
        ),
        2 => (
            format!("have more than {k} letters"),
            "long",
            format!("len(w) > {k}"),
            Box::new(move |w| w.len() > k),
        ),
        3 => (
            format!("have at most {k} letters"),
            "short",
            format!("len(w) <= {k}"),
            Box::new(move |w| w.len() <= k),
        ),
        4 => (
            format!("contain the letter {c}"),
            "with_letter",
            format!("'{c}' in w"),
            Box::new(move |w| w.contains(c)),
        ),
        5 => (
            format!("do not contain the letter {c}"),
            "without_letter",
            format!("'{c}' not in w"),
            Box::new(move |w| !w.contains(c)),
        ),
        6 => (
            "are palindromes".into(),
            "palindrome",
            "w == w[::-1]".into(),
            Box::new(|w| w.chars().eq(w.chars().rev())),
        ),
        7 => (
            "have an even length".into(),
            "even_length",
            "len(w) % 2 == 0".into(),
            Box::new(|w| w.len() % 2 == 0),
        ),
        _ => (
            "contain a doubled letter".into(),
            "doubled",
            "any(a == b for a, b in zip(w, w[1:]))".into(),
            Box::new(|w| w.as_bytes().windows(2).any(|p| p[0] == p[1])),
        ),
    }
}

/// What to do with the words that meet a condition.
pub(super) fn words(r: &mut StreamRng) -> Task {
    let (text, label, p, holds) = condition(r);
    let source = r.pick(&["a list", "a list of strings", "a given list of words"]);
    let keep = |ws: &[&str]| -> Vec<String> {
        ws.iter()
            .filter(|w| holds(w))
            .map(|w| (*w).to_owned())
            .collect()
    };
    type Expect<'a> = Box<dyn Fn(&[&str]) -> String + 'a>;
    let (goal, verb, body, expect): (String, &str, String, Expect) = match r.below(8) {
        0 => (
            format!("count the words of {source} that {text}"),
            "count",
            format!("    return sum(1 for w in @ if {p})"),
            Box::new(|ws| keep(ws).len().to_string()),
        ),
        1 => (
            format!("select the words of {source} that {text}"),
            "select",
            format!("    return [w for w in @ if {p}]"),
            Box::new(|ws| strings(&keep(ws))),
        ),
        2 => (
            format!("delete from {source} all words that {text}"),
            "drop",
            format!("    return [w for w in @ if not ({p})]"),
            Box::new(|ws| strings(&ws.iter().filter(|w| !holds(w)).collect::<Vec<_>>())),
        ),
        3 => (
            format!("convert to upper case the words of {source} that {text}"),
            "upper",
            format!("    return [w.upper() if {p} else w for w in @]"),
            Box::new(|ws| {
                strings(
                    &ws.iter()
                        .map(|w| {
                            if holds(w) {
                                w.to_uppercase()
                            } else {
                                (*w).to_owned()
                            }
                        })
                        .collect::<Vec<_>>(),
                )
            }),
        ),
        4 => (
            format!("join with hyphens the words of {source} that {text}"),
            "join",
            format!("    return '-'.join(w for w in @ if {p})"),
            Box::new(|ws| quoted(&keep(ws).join("-"))),
        ),
        5 => (
            format!("find the total length of the words in {source} that {text}"),
            "length_of",
            format!(
                "    total = 0\n    for w in @:\n        if {p}:\n            total += len(w)\n    return total"
            ),
            Box::new(|ws| keep(ws).iter().map(String::len).sum::<usize>().to_string()),
        ),
        6 => (
            format!("check whether any word of {source} is among those that {text}"),
            "any",
            format!("    return any({p} for w in @)"),
            Box::new(|ws| boolean(!keep(ws).is_empty())),
        ),
        _ => (
            format!("sort alphabetically the words of {source} that {text}"),
            "sort",
            format!("    return sorted(w for w in @ if {p})"),
            Box::new(|ws| {
                let mut kept = keep(ws);
                kept.sort();
                strings(&kept)
            }),
        ),
    };
    let cases = (0..3)
        .map(|_| {
            let n = r.within(3, 5) as usize;
            let drawn = r.sample(&WORDS, n);
            (strings(&drawn), expect(&drawn))
        })
        .collect();
    let parameter = r.pick(&["words", "strings", "items", "names"]);
    Task {
        goal,
        name: format!("{verb}_{label}"),
        params: vec![parameter.to_owned()],
        body,
        cases,
    }
}

/// A kind of character: in words, name, Python on `c`, Rust.
type CharCondition = (String, &'static str, String, Box<dyn Fn(char) -> bool>);

/// What to do with the characters of a string that meet a condition.
pub(super) fn characters(r: &mut StreamRng) -> Task {
    let k = r.pick(&['e', 'o', 'n', 'r', 't']);
    let (what, label, p, holds): CharCondition = match r.below(7) {
        0 => (
            "vowels".into(),
            "vowels",
            "c in 'aeiouAEIOU'".into(),
            Box::new(|c| vowel(c.to_ascii_lowercase())),
        ),
        1 => (
            "consonants".into(),
            "consonants",
            "c.isalpha() and c not in 'aeiouAEIOU'".into(),
            Box::new(|c| c.is_ascii_alphabetic() && !vowel(c.to_ascii_lowercase())),
        ),
        2 => (
            "digits".into(),
            "digits",
            "c.isdigit()".into(),
            Box::new(|c| c.is_ascii_digit()),
        ),
        3 => (
            "upper case letters".into(),
            "capitals",
            "c.isupper()".into(),
            Box::new(|c| c.is_ascii_uppercase()),
        ),
        4 => (
            "lower case letters".into(),
            "small_letters",
            "c.islower()".into(),
            Box::new(|c| c.is_ascii_lowercase()),
        ),
        5 => (
            "characters other than letters and digits".into(),
            "symbols",
            "not c.isalnum()".into(),
            Box::new(|c| !c.is_ascii_alphanumeric()),
        ),
        _ => (
            format!("occurrences of the letter {k}"),
            "letter",
            format!("c == '{k}'"),
            Box::new(move |c| c == k),
        ),
    };
    let mark = r.pick(&['*', '_', '#']);
    let keep = |s: &str| -> String { s.chars().filter(|&c| holds(c)).collect() };
    type Expect<'a> = Box<dyn Fn(&str) -> String + 'a>;
    let (goal, verb, body, expect): (String, &str, String, Expect) = match r.below(7) {
        0 => (
            format!("count the {what} in a string"),
            "count",
            format!("    return sum(1 for c in @ if {p})"),
            Box::new(|s| keep(s).len().to_string()),
        ),
        1 => (
            format!("remove all {what} from a string"),
            "remove",
            format!("    return ''.join(c for c in @ if not ({p}))"),
            Box::new(|s| quoted(&s.chars().filter(|&c| !holds(c)).collect::<String>())),
        ),
        2 => (
            format!("extract the {what} of a string as a string"),
            "keep",
            format!("    return ''.join(c for c in @ if {p})"),
            Box::new(|s| quoted(&keep(s))),
        ),
        3 => (
            format!("replace the {what} of a string by {mark}"),
            "mask",
            format!(
                "    result = ''\n    for c in @:\n        result += '{mark}' if {p} else c\n    return result"
            ),
            Box::new(|s| {
                quoted(
                    &s.chars()
                        .map(|c| if holds(c) { mark } else { c })
                        .collect::<String>(),
                )
            }),
        ),
        4 => (
            format!("find the position of the first of the {what} in a string, or -1"),
            "first",
            format!(
                "    for i, c in enumerate(@):\n        if {p}:\n            return i\n    return -1"
            ),
            Box::new(|s| {
                s.chars()
                    .position(&holds)
                    .map_or("-1".to_owned(), |i| i.to_string())
            }),
        ),
        5 => (
            format!("move the {what} of a string to its end"),
            "move",
            format!(
                "    moved = ''.join(c for c in @ if {p})\n    rest = ''.join(c for c in @ if not ({p}))\n    return rest + moved"
            ),
            Box::new(|s| {
                quoted(&(s.chars().filter(|&c| !holds(c)).collect::<String>() + &keep(s)))
            }),
        ),
        _ => (
            format!("check whether a string has more than two {what}"),
            "many",
            format!(
                "    count = 0\n    for c in @:\n        if {p}:\n            count += 1\n    return count > 2"
            ),
            Box::new(|s| boolean(keep(s).len() > 2)),
        ),
    };
    let cases = (0..3)
        .map(|_| {
            let text = phrase(r);
            (quoted(&text), expect(&text))
        })
        .collect();
    Task {
        goal,
        name: format!("{verb}_{label}"),
        params: vec![text_name(r)],
        body,
        cases,
    }
}

/// Functions of a whole string.
pub(super) fn whole(r: &mut StreamRng) -> Task {
    let k = r.within(2, 4) as usize;
    type Expect = Box<dyn Fn(&str) -> String>;
    let (goal, name, body, expect): (String, &str, String, Expect) = match r.below(20) {
        0 => ("reverse the order of the words in a sentence".into(), "reverse_words", "    return ' '.join(@.split()[::-1])".into(), Box::new(|s| quoted(&s.split(' ').rev().collect::<Vec<_>>().join(" ")))),
        1 => ("reverse each word of a sentence but keep their order".into(), "flip_words", "    return ' '.join(w[::-1] for w in @.split())".into(), Box::new(|s| quoted(&s.split(' ').map(backwards).collect::<Vec<_>>().join(" ")))),
        2 => ("find the longest word of a sentence, the first one in a tie".into(), "longest_word", "    return max(@.split(), key=len)".into(), Box::new(|s| quoted(s.split(' ').rev().max_by_key(|w| w.len()).unwrap_or("")))),
        3 => ("find the length of the last word of a sentence".into(), "last_length", "    return len(@.split()[-1])".into(), Box::new(|s| s.split(' ').next_back().map_or(0, str::len).to_string())),
        4 => ("replace the spaces of a string by underscores".into(), "underscore", "    return @.replace(' ', '_')".into(), Box::new(|s| quoted(&s.replace(' ', "_")))),
        5 => ("build an acronym from the first letters of a sentence".into(), "acronym", "    return ''.join(w[0].upper() for w in @.split())".into(), Box::new(|s| quoted(&s.split(' ').map(|w| w[..1].to_uppercase()).collect::<String>()))),
        6 => ("swap upper and lower case in a string".into(), "swap_case", "    return @.swapcase()".into(), Box::new(|s| quoted(&s.chars().map(|c| if c.is_ascii_uppercase() { c.to_ascii_lowercase() } else { c.to_ascii_uppercase() }).collect::<String>()))),
        7 => (format!("repeat every character of a string {k} times"), "stretch", format!("    return ''.join(c * {k} for c in @)"), Box::new(move |s| quoted(&s.chars().flat_map(|c| std::iter::repeat_n(c, k)).collect::<String>()))),
        8 => (format!("take every character of a string whose index is a multiple of {k}"), "skip_characters", format!("    return @[::{k}]"), Box::new(move |s| quoted(&s.chars().step_by(k).collect::<String>()))),
        9 => (format!("shift every small letter of a string by {k} places in the alphabet"), "caesar", format!("    result = ''\n    for c in @:\n        if c.islower():\n            result += chr((ord(c) - 97 + {k}) % 26 + 97)\n        else:\n            result += c\n    return result"), Box::new(move |s| quoted(&s.chars().map(|c| shift(c, k)).collect::<String>()))),
        10 => ("find the lengths of the words of a sentence".into(), "word_lengths", "    return [len(w) for w in @.split()]".into(), Box::new(|s| super::code::ints(&s.split(' ').map(|w| w.len() as i64).collect::<Vec<_>>()))),
        11 => ("count the distinct characters of a string".into(), "distinct_characters", "    return len(set(@))".into(), Box::new(|s| s.chars().collect::<std::collections::BTreeSet<_>>().len().to_string())),
        12 => (format!("keep only the words of a sentence that have more than {} letters", k + 2), "long_words", format!("    return [w for w in @.split() if len(w) > {}]", k + 2), Box::new(move |s| strings(&s.split(' ').filter(|w| w.len() > k + 2).collect::<Vec<_>>()))),
        13 => ("sort the words of a sentence by their length".into(), "sort_by_length", "    return sorted(@.split(), key=len)".into(), Box::new(|s| { let mut ws: Vec<&str> = s.split(' ').collect(); ws.sort_by_key(|w| w.len()); strings(&ws) })),
        14 => ("check whether the first and the last character of a string are equal".into(), "same_ends", "    return @[0] == @[-1]".into(), Box::new(|s| boolean(s.chars().next() == s.chars().next_back()))),
        15 => ("count how often each vowel occurs in a string and return the counts in the order a, e, i, o, u".into(), "vowel_counts", "    return [@.lower().count(v) for v in 'aeiou']".into(), Box::new(|s| super::code::ints(&"aeiou".chars().map(|v| s.to_lowercase().matches(v).count() as i64).collect::<Vec<_>>()))),
        16 => (format!("insert a dash after every {k} characters of a string"), "dashes", format!("    return '-'.join(@[i:i + {k}] for i in range(0, len(@), {k}))"), Box::new(move |s| quoted(&s.as_bytes().chunks(k).map(String::from_utf8_lossy).collect::<Vec<_>>().join("-")))),
        17 => ("squeeze runs of equal characters into one".into(), "squeeze", "    result = @[0]\n    for c in @[1:]:\n        if c != result[-1]:\n            result += c\n    return result".into(), Box::new(|s| { let mut cs: Vec<char> = s.chars().collect(); cs.dedup(); quoted(&cs.into_iter().collect::<String>()) })),
        18 => ("capitalize the last letter of each word".into(), "capitalize_last", "    return ' '.join(w[:-1] + w[-1].upper() for w in @.split())".into(), Box::new(|s| quoted(&s.split(' ').map(|w| w[..w.len() - 1].to_owned() + &w[w.len() - 1..].to_uppercase()).collect::<Vec<_>>().join(" ")))),
        _ => ("find the alphabetically first word of a sentence".into(), "first_in_order", "    return min(@.lower().split())".into(), Box::new(|s| { let s = s.to_lowercase(); quoted(s.split(' ').min().unwrap_or("")) })),
    };
    let cases = (0..3)
        .map(|_| {
            let n = r.within(2, 4) as usize;
            let text = r.sample(&WORDS, n).join(" ");
            (quoted(&text), expect(&text))
        })
        .collect();
    Task {
        goal,
        name: name.to_owned(),
        params: vec![text_name(r)],
        body,
        cases,
    }
}

fn text_name(r: &mut StreamRng) -> String {
    r.pick(&["text", "s", "string", "sentence", "line"])
        .to_owned()
}

/// Two or three words with capitals, a digit or a sign here and there.
fn phrase(r: &mut StreamRng) -> String {
    let n = r.within(2, 3) as usize;
    let mut words = Vec::new();
    for word in r.sample(&WORDS, n) {
        words.push(match r.below(4) {
            0 => super::words::capitalized(word),
            1 => format!("{word}{}", r.within(1, 99)),
            2 => word.to_uppercase(),
            _ => word.to_owned(),
        });
    }
    words.join(r.pick(&[" ", "-", ", ", " + "]))
}

fn vowel(c: char) -> bool {
    "aeiou".contains(c)
}

fn backwards(word: &str) -> String {
    word.chars().rev().collect()
}

/// Moves a small letter `k` places on.
fn shift(c: char, k: usize) -> char {
    if c.is_ascii_lowercase() {
        char::from(b'a' + ((c as usize - 97 + k) % 26) as u8)
    } else {
        c
    }
}
