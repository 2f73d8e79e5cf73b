//! Translation of templates for minijinja: features of Jinja2 and of transformers' extensions that
//! minijinja lacks are expressed differently.
//!
//! * `{% generation %}` and `{% endgeneration %}` mark what an assistant said, for training. Here
//!   they are blocks with variables of their own, as in Jinja2.
//! * Strings have all escapes of Python.
//! * To Jinja2, `a.items` of a map is its method even if the map has a key of that name.
//! * `a % b` formats a text if `a` is one, so the operator becomes the filter [`PERCENT`].
//! * `break` and `continue` are refused if they leave a block with variables or text of its own:
//!   minijinja does not leave the block.
//! * A loop over `none` is an error, so the items of every loop pass the filter [`EACH`].

use std::ops::Range;

/// The filter that replaces the operator `%`.
pub(super) const PERCENT: &str = "__percent";
/// The filter for the items of a loop, which refuses `none`.
pub(super) const EACH: &str = "__each";
/// The test that replaces `.NAME is callable` for methods of maps.
pub(super) const METHOD: &str = "__method";
/// Methods of Python's maps.
pub(super) const MAP_METHODS: [&str; 4] = ["items", "keys", "values", "get"];

/// A fault of a text: its line, from 1, and a message.
pub(super) type Fault = (usize, String);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Number,
    Name,
    Sign,
}

struct Word<'a> {
    kind: Kind,
    text: &'a str,
    /// Its place in the template.
    at: Range<usize>,
}

/// Words that are operators, not operands.
const OPERATORS: [&str; 8] = ["and", "or", "not", "if", "else", "in", "is", "elif"];

/// Translates a template.
pub(super) fn rewrite(source: &str) -> Result<String, Fault> {
    let mut out = String::with_capacity(source.len());
    let mut rest = 0;
    let mut open = Vec::new();
    while let Some(found) = source[rest..].find('{') {
        let at = rest + found;
        let opening = source[at..].get(..2).unwrap_or_default();
        match opening {
            "{#" => {
                let end = source[at..]
                    .find("#}")
                    .map_or(source.len(), |end| at + end + 2);
                out.push_str(&source[rest..end]);
                rest = end;
            }
            "{{" | "{%" => {
                out.push_str(&source[rest..at]);
                let (words, end) = words(source, at)?;
                let first = words.first().map(|word| word.text);
                if opening == "{%" {
                    enter(source, at, &words, &mut open)?;
                }
                out.push_str(&rewritten(source, at..end, &words)?);
                rest = end;
                if opening == "{%" && first == Some("raw") {
                    // Everything up to the end of the block is text.
                    let end = raw_end(source, end);
                    out.push_str(&source[rest..end]);
                    rest = end;
                }
            }
            _ => {
                out.push_str(&source[rest..=at]);
                rest = at + 1;
            }
        }
    }
    out.push_str(&source[rest..]);
    Ok(out)
}

/// Updates the stack of open loops and blocks after a tag.
fn enter<'a>(
    source: &str,
    at: usize,
    words: &[Word<'a>],
    open: &mut Vec<&'a str>,
) -> Result<(), Fault> {
    let Some(first) = words.first().map(|word| word.text) else {
        return Ok(());
    };
    let mut depth = 0;
    let given = words.iter().any(|word| {
        nest(&mut depth, word.text);
        word.text == "=" && depth == 0
    });
    match first {
        "for" | "with" | "generation" | "filter" | "autoescape" | "call" | "macro" | "block" => {
            open.push(first);
        }
        // The value is the text of the block.
        "set" if !given => open.push(first),
        "break" | "continue" => {
            if let Some(block) = open.last().filter(|block| **block != "for") {
                let message = format!("`{first}` out of a `{block}` block is not supported");
                return Err((line(source, at), message));
            }
        }
        _ => {
            let begun = first.strip_prefix("end");
            if let Some(at) = begun.and_then(|begun| open.iter().rposition(|block| *block == begun))
            {
                open.truncate(at);
            }
        }
    }
    Ok(())
}

/// Counts the brackets that are open after a word.
fn nest(depth: &mut usize, word: &str) {
    match word {
        "(" | "[" | "{" => *depth += 1,
        ")" | "]" | "}" => *depth = depth.saturating_sub(1),
        _ => {}
    }
}

/// Start of the tag that ends a raw block.
fn raw_end(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(found) = source[at..].find("{%") {
        at += found;
        let inner = source[at + 2..].trim_start_matches(['-', '+']).trim_start();
        if inner.starts_with("endraw") {
            return at;
        }
        at += 2;
    }
    source.len()
}

fn line(source: &str, at: usize) -> usize {
    source[..at].matches('\n').count() + 1
}

/// The words of the tag that begins at `start`, and the end of the tag.
fn words(source: &str, start: usize) -> Result<(Vec<Word<'_>>, usize), Fault> {
    let closing = match &source[start..start + 2] {
        "{{" => "}}",
        _ => "%}",
    };
    let bytes = source.as_bytes();
    let mut at = start + 2;
    if matches!(bytes.get(at), Some(b'-' | b'+')) {
        at += 1;
    }
    let (mut words, mut depth) = (Vec::new(), 0);
    while at < bytes.len() {
        let rest = &source[at..];
        let stripped = rest.strip_prefix(['-', '+']).unwrap_or(rest);
        if depth == 0 && (rest.starts_with(closing) || stripped.starts_with(closing)) {
            let end = at + rest.len() - stripped.len();
            let end = if rest.starts_with(closing) { at } else { end };
            return Ok((words, end + 2));
        }
        let c = rest.chars().next().unwrap_or_default();
        let (kind, len) = match c {
            '\'' | '"' => match text_end(rest, c) {
                Some(len) => (Kind::Text, len),
                None => break,
            },
            c if c.is_alphabetic() || c == '_' => {
                let word = |c: char| !(c.is_alphanumeric() || c == '_');
                (Kind::Name, rest.find(word).unwrap_or(rest.len()))
            }
            c if c.is_ascii_digit() => {
                let number = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
                (Kind::Number, rest.find(number).unwrap_or(rest.len()))
            }
            c => (Kind::Sign, c.len_utf8()),
        };
        let text = &rest[..len];
        nest(&mut depth, text);
        if !c.is_whitespace() {
            let at = at..at + len;
            words.push(Word { kind, text, at });
        }
        at += len;
    }
    // The parser reports a tag without an end.
    Ok((Vec::new(), source.len()))
}

/// Length of the quoted text at the beginning of `rest`.
fn text_end(rest: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (i, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(i + 1),
            _ => {}
        }
    }
    None
}

fn rewritten(source: &str, tag: Range<usize>, words: &[Word<'_>]) -> Result<String, Fault> {
    // Replacements of ranges of the source.
    let mut edits: Vec<(Range<usize>, String)> = Vec::new();
    for word in words.iter().filter(|word| word.kind == Kind::Text) {
        if word.text.contains('\\') {
            let text = unescaped(&word.text[1..word.text.len() - 1])
                .map_err(|message| (line(source, word.at.start), message))?;
            edits.push((word.at.clone(), quoted(&text)));
        }
    }
    if source[tag.start..].starts_with("{%")
        && let Some(first) = words.first()
    {
        match first.text {
            "generation" => edits.push((first.at.clone(), "with".to_owned())),
            "endgeneration" => edits.push((first.at.clone(), "endwith".to_owned())),
            "for" => {
                if let Some(items) = looped(words) {
                    edits.push((items.start..items.start, "(".to_owned()));
                    edits.push((items.end..items.end, format!(")|{EACH}")));
                }
            }
            _ => {}
        }
    }
    for (i, dot) in words.iter().enumerate() {
        let Some([name, is, rest @ ..]) = words.get(i + 1..).filter(|_| dot.text == ".") else {
            continue;
        };
        let negated = rest.first().is_some_and(|word| word.text == "not");
        let callable = rest.get(usize::from(negated));
        if let Some(callable) = callable.filter(|word| word.text == "callable")
            && MAP_METHODS.contains(&name.text)
            && is.text == "is"
        {
            edits.push((dot.at.start..name.at.end, String::new()));
            let test = format!("{METHOD}(\"{}\")", name.text);
            edits.push((callable.at.clone(), test));
        }
    }
    for (i, word) in words.iter().enumerate() {
        if word.text != "%" || word.kind != Kind::Sign || i == 0 {
            continue;
        }
        let Some(left) = operand_before(words, i) else {
            continue;
        };
        let right = operand_after(words, i + 1);
        let (Some(first), Some(last)) = (words.get(i + 1), words.get(right.wrapping_sub(1))) else {
            continue;
        };
        // `a % b` is `(a)|__percent(b)`.
        let start = words[left].at.start;
        edits.push((start..start, "(".to_owned()));
        edits.push((word.at.clone(), format!(")|{PERCENT}(")));
        let end = last.at.end.max(first.at.start);
        edits.push((end..end, ")".to_owned()));
    }
    edits.sort_by_key(|(at, text)| (at.start, text != ")", at.end));
    let mut out = String::new();
    let mut at = tag.start;
    for (range, text) in edits {
        out.push_str(&source[at..range.start.max(at)]);
        out.push_str(&text);
        at = at.max(range.end);
    }
    out.push_str(&source[at..tag.end]);
    Ok(out)
}

/// Range of the expression that a loop iterates over.
fn looped(words: &[Word<'_>]) -> Option<Range<usize>> {
    let mut depth = 0;
    let mut items: Option<Range<usize>> = None;
    let mut begun = false;
    for word in words.iter().skip(1) {
        nest(&mut depth, word.text);
        match word.text {
            "in" if depth == 0 && !begun => {
                begun = true;
                continue;
            }
            "if" | "recursive" if depth == 0 && word.kind == Kind::Name => break,
            _ => {}
        }
        // The sign for white space control is not part of the expression.
        if begun {
            let start = items.as_ref().map_or(word.at.start, |items| items.start);
            items = Some(start..word.at.end);
        }
    }
    items
}

/// The first word of the operand that ends before the word `i`, if the operator before it binds
/// less tightly than `%`.
fn operand_before(words: &[Word<'_>], i: usize) -> Option<usize> {
    let of = |i: usize| words[i].text;
    let mut at = i;
    loop {
        at = at.checked_sub(1)?;
        match words[at].kind {
            Kind::Text | Kind::Number => {}
            Kind::Name if OPERATORS.contains(&of(at)) => return None,
            Kind::Name => {}
            Kind::Sign if [")", "]", "}"].contains(&of(at)) => {
                at = opener(words, at)?;
                // A call or a subscript belongs to the word before it.
                let before = at.checked_sub(1);
                let callee = before.filter(|before| {
                    let word = of(*before);
                    let value = words[*before].kind != Kind::Sign && !OPERATORS.contains(&word);
                    value || [")", "]"].contains(&word)
                });
                if callee.is_some() {
                    continue;
                }
            }
            Kind::Sign => return None,
        }
        // An attribute or a filter belongs to the word before it.
        match at.checked_sub(1).map(of) {
            Some("." | "|") => at -= 1,
            Some("*" | "/" | "%" | "-" | "+" | "~") => {
                let sign = at - 1;
                let additive = ["-", "+", "~"].contains(&of(sign));
                let binary = sign.checked_sub(1).is_some_and(|before| {
                    words[before].kind != Kind::Sign || [")", "]", "}"].contains(&of(before))
                });
                return (additive && binary).then_some(at);
            }
            _ => return Some(at),
        }
    }
}

/// Index after the last word of the operand that begins with the word `i`.
fn operand_after(words: &[Word<'_>], i: usize) -> usize {
    let of = |i: usize| words.get(i).map(|word| word.text);
    let mut at = i;
    while matches!(of(at), Some("-" | "+")) {
        at += 1;
    }
    at = match of(at) {
        Some("(" | "[" | "{") => closer(words, at) + 1,
        Some(_) => at + 1,
        None => return at,
    };
    loop {
        match of(at) {
            Some("(" | "[") => at = closer(words, at) + 1,
            Some("." | "|") => at += 2,
            _ => return at.min(words.len()),
        }
    }
}

/// The opening bracket of the closing one at `i`.
fn opener(words: &[Word<'_>], i: usize) -> Option<usize> {
    let mut depth = 0;
    (0..=i).rev().find(|at| {
        match words[*at].text {
            ")" | "]" | "}" => depth += 1,
            "(" | "[" | "{" => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// The closing bracket of the opening one at `i`; the last word if there is none.
fn closer(words: &[Word<'_>], i: usize) -> usize {
    let mut depth = 0;
    let found = (i..words.len()).find(|at| {
        nest(&mut depth, words[*at].text);
        depth == 0
    });
    found.unwrap_or(words.len().saturating_sub(1))
}

/// A text with Python's escapes resolved.
fn unescaped(text: &str) -> Result<String, String> {
    // Characters above U+FFFF arrive as two surrogates.
    let mut units: Vec<u16> = Vec::new();
    let add = |units: &mut Vec<u16>, c: char| units.extend_from_slice(c.encode_utf16(&mut [0; 2]));
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        if c != '\\' {
            add(&mut units, c);
            continue;
        }
        let hex = |chars: &mut std::iter::Peekable<std::str::Chars<'_>>, len: usize| {
            let digits: String = (0..len)
                .map_while(|_| chars.next_if(char::is_ascii_hexdigit))
                .collect();
            let whole = digits.len() == len;
            whole
                .then(|| u32::from_str_radix(&digits, 16).ok())
                .flatten()
        };
        match chars.next() {
            Some('\n') => {}
            Some(c @ ('\\' | '\'' | '"')) => add(&mut units, c),
            Some('a') => add(&mut units, '\x07'),
            Some('b') => add(&mut units, '\x08'),
            Some('f') => add(&mut units, '\x0c'),
            Some('n') => add(&mut units, '\n'),
            Some('r') => add(&mut units, '\r'),
            Some('t') => add(&mut units, '\t'),
            Some('v') => add(&mut units, '\x0b'),
            Some(c @ ('x' | 'u' | 'U')) => {
                let len = match c {
                    'x' => 2,
                    'u' => 4,
                    _ => 8,
                };
                let code = hex(&mut chars, len);
                let code = code.ok_or_else(|| format!("`\\{c}` needs {len} hexadecimal digits"))?;
                match char::from_u32(code) {
                    Some(c) => add(&mut units, c),
                    None if code < 0x1_0000 => units.push(code as u16),
                    None => return Err(format!("`\\{c}{code:08x}` is no character")),
                }
            }
            Some('N') => {
                let rest: String = chars.clone().collect();
                let name = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
                let (name, _) = name.ok_or("`\\N` needs a name in braces")?;
                let found = unicode_names2::character(name);
                let found = found.ok_or_else(|| format!("`\\N{{{name}}}` is no character"))?;
                add(&mut units, found);
                chars.by_ref().take(name.chars().count() + 2).for_each(drop);
            }
            Some(first @ '0'..='7') => {
                let mut code = first.to_digit(8).unwrap_or_default();
                for _ in 0..2 {
                    let Some(digit) = chars.next_if(|c| c.is_digit(8)) else {
                        break;
                    };
                    code = code * 8 + digit.to_digit(8).unwrap_or_default();
                }
                add(&mut units, char::from_u32(code).unwrap_or_default());
            }
            Some(other) => {
                add(&mut units, '\\');
                add(&mut units, other);
            }
            None => return Err("a text ends in a backslash".to_owned()),
        }
    }
    String::from_utf16(&units).map_err(|_| "half of a character".to_owned())
}

/// A text in quotes, escaped for minijinja.
fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_strings_and_percent_signs() {
        for (from, to) in [
            (
                "{% generation %}a{%- endgeneration -%}",
                "{% with %}a{%- endwith -%}",
            ),
            ("{{ 'a\\\nb' }}", "{{ \"ab\" }}"),
            (r"{{ '\101\d\u00e9' }}", "{{ \"A\\\\dé\" }}"),
            (r"{{ '\N{EURO SIGN}' }}", "{{ \"€\" }}"),
            (r"{{ '\ud83d\ude00' }}", "{{ \"😀\" }}"),
            ("{{ '%s' % x }}", "{{ ('%s' )|__percent( x) }}"),
            (
                "{{ 1 + a.b(c)[0] % 2 == 1 }}",
                "{{ 1 + (a.b(c)[0] )|__percent( 2) == 1 }}",
            ),
            (
                "{{ a.items is not callable }}",
                "{{ a is not __method(\"items\") }}",
            ),
            ("{{ a * b % c }}", "{{ a * b % c }}"),
            ("{% if x %}%}{% endif %}", "{% if x %}%}{% endif %}"),
            (
                "{% raw %}{{ '\\q' % 1 }}{% endraw %}{{ a }}",
                "{% raw %}{{ '\\q' % 1 }}{% endraw %}{{ a }}",
            ),
            (
                "{# 'a % b #}{{ {'a': {'b': 1}} }}",
                "{# 'a % b #}{{ {'a': {'b': 1}} }}",
            ),
            (
                "{{ '%s' % ('a' % ()) }}",
                "{{ ('%s' )|__percent( (('a' )|__percent( ()))) }}",
            ),
        ] {
            assert_eq!(rewrite(from).unwrap(), to, "{from}");
        }
        assert_eq!(rewrite("\n{{ '\\x4' }}").unwrap_err().0, 2);
        assert!(rewrite("{{ '\\N{NO SUCH}' }}").is_err());
    }
}
