//! Methods, operators and tests of Python and Jinja2 that minijinja and minijinja-contrib lack.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{Kwargs, Tuple, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat;

use super::repr::{is_namespace, repr};
use super::source::{EACH, METHOD, PERCENT};

/// Maximum length of a text made by a method, in bytes.
const MOST_TEXT: usize = 1 << 20;

/// Adds the methods, operators and tests.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.add_filter(PERCENT, percent);
    environment.add_filter(EACH, |items: Value| match items.is_none() {
        true => Err(wrong("none cannot be looped over")),
        false => Ok(items),
    });
    environment.add_test("mapping", |value: Value| {
        value.kind() == ValueKind::Map && !is_namespace(&value)
    });
    // Values with a length and an index operator are sequences: texts and maps too.
    environment.add_test("sequence", |value: Value| match value.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Undefined => true,
        ValueKind::Map => !is_namespace(&value),
        _ => false,
    });
    // In Jinja2 an undefined value counts as callable; the call then fails.
    let callable = |value: &Value| matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined);
    environment.add_test("callable", move |value: Value| callable(&value));
    environment.add_test(METHOD, move |value: Value, name: String| {
        match value.kind() {
            ValueKind::Map => true,
            _ => value.get_attr(&name).is_ok_and(|value| callable(&value)),
        }
    });
    // None is not iterable, and an undefined value is empty.
    environment.add_test("iterable", |value: Value| match value.kind() {
        ValueKind::None => false,
        _ => value.try_iter().is_ok(),
    });
    environment.add_test("in", |item: Value, list: Value| contains(&list, &item));
}

pub(super) fn wrong(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, message.into())
}

fn contains(list: &Value, item: &Value) -> Result<bool, Error> {
    if let (Some(text), Some(part)) = (list.as_str(), item.as_str()) {
        return Ok(text.contains(part));
    }
    for other in list.try_iter()? {
        if other == *item {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The operator `%`: formatting of a text, remainder of numbers.
fn percent(left: Value, right: Value) -> Result<Value, Error> {
    if let Some(text) = left.as_str() {
        let many: Option<Vec<Value>> = right
            .downcast_object_ref::<Tuple>()
            .map(|_| right.try_iter().map(Iterator::collect))
            .transpose()?;
        let (text, values) = shown(text, many.unwrap_or_else(|| vec![right]))?;
        return format(FormatStyle::Printf, &text, &values).map(Value::from);
    }
    let both = (i128::try_from(left.clone()), i128::try_from(right.clone()));
    if let (Ok(a), Ok(b), true) = (both.0, both.1, left.is_integer() && right.is_integer()) {
        let rest = a.checked_rem(b);
        let rest = rest.ok_or_else(|| wrong("a number is divided by zero"))?;
        let other_sign = rest != 0 && (rest < 0) != (b < 0);
        return Ok(Value::from(if other_sign { rest + b } else { rest }));
    }
    match (f64::try_from(left.clone()), f64::try_from(right.clone())) {
        (Ok(_), Ok(0.0)) => Err(wrong("a number is divided by zero")),
        (Ok(a), Ok(b)) => Ok(Value::from(a - (a / b).floor() * b)),
        _ => Err(wrong(format!(
            "tried to use % operator on unsupported types {} and {}",
            left.kind(),
            right.kind()
        ))),
    }
}

/// A format and its values, with `%r` replaced by `%s` of the value's `repr`.
fn shown(format: &str, mut values: Vec<Value>) -> Result<(String, Vec<Value>), Error> {
    let (mut out, mut rest, mut place) = (String::new(), format, 0);
    while let Some((before, behind)) = rest.split_once('%') {
        out.push_str(before);
        out.push('%');
        let letter = |c: char| c.is_ascii_alphabetic() && !"hlL".contains(c) || c == '%';
        let named = behind.starts_with('(');
        let from = if named {
            behind.find(')').unwrap_or(0)
        } else {
            0
        };
        let Some(end) = behind[from..].find(letter).map(|end| from + end) else {
            rest = behind;
            continue;
        };
        let (flags, kind) = (&behind[..end], &behind[end..=end]);
        out.push_str(flags);
        // Width and precision may be values too.
        place += flags.matches('*').count();
        match (kind, values.get_mut(place)) {
            ("r" | "a", Some(value)) if !named => {
                *value = Value::from(repr(value)?);
                out.push('s');
            }
            _ => out.push_str(kind),
        }
        place += usize::from(kind != "%" && !named);
        rest = &behind[end + 1..];
    }
    out.push_str(rest);
    Ok((out, values))
}

/// Methods of Python's strings and dicts.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str()
        && let Some(found) = text_method(text, name, args)?
    {
        return Ok(found);
    }
    pycompat::unknown_method_callback(state, value, name, args)
}

fn text_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let found = match name {
        "split" | "rsplit" => {
            let (separator, most) = split_arguments(args)?;
            match name {
                "split" => split(text, separator.as_deref(), most),
                _ => rsplit(text, separator.as_deref(), most),
            }
        }
        "partition" | "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            let ([before, after], found) = match name {
                "partition" => ([text, ""], text.split_once(filled(separator)?)),
                _ => (["", text], text.rsplit_once(filled(separator)?)),
            };
            match found {
                Some((before, after)) => triple(before, separator, after),
                None => triple(before, "", after),
            }
        }
        "index" | "rindex" => {
            let (part,): (&str,) = from_args(args)?;
            let at = match name {
                "index" => text.find(part),
                _ => text.rfind(part),
            };
            let at = at.ok_or_else(|| wrong(format!("{part:?} is not in the text")))?;
            Value::from(text[..at].chars().count())
        }
        "removeprefix" => {
            let (part,): (&str,) = from_args(args)?;
            Value::from(text.strip_prefix(part).unwrap_or(text))
        }
        "removesuffix" => {
            let (part,): (&str,) = from_args(args)?;
            Value::from(text.strip_suffix(part).unwrap_or(text))
        }
        "ljust" | "rjust" | "center" => {
            let (width, fill): (i64, Option<char>) = from_args(args)?;
            let (width, fill) = (usize::try_from(width).unwrap_or(0), fill.unwrap_or(' '));
            let room = room(text, width)?;
            let pad = |count: usize| fill.to_string().repeat(count);
            Value::from(match name {
                "ljust" => format!("{text}{}", pad(room)),
                "rjust" => format!("{}{text}", pad(room)),
                _ => centred(text, width, fill)?,
            })
        }
        "zfill" => {
            let (width,): (i64,) = from_args(args)?;
            let room = room(text, usize::try_from(width).unwrap_or(0))?;
            let (sign, digits) = match text.strip_prefix(['+', '-']) {
                Some(digits) => text.split_at(text.len() - digits.len()),
                None => ("", text),
            };
            Value::from(format!("{sign}{}{digits}", "0".repeat(room)))
        }
        "swapcase" => {
            let () = from_args(args)?;
            let swapped = |c: char| -> String {
                match c.is_uppercase() {
                    true => c.to_lowercase().collect(),
                    false => c.to_uppercase().collect(),
                }
            };
            Value::from(text.chars().map(swapped).collect::<String>())
        }
        "casefold" => {
            let () = from_args(args)?;
            // Case folding is lower case, except for letters that fold to several.
            Value::from(
                text.replace(['ß', 'ẞ'], "ss")
                    .to_lowercase()
                    .replace('ς', "σ"),
            )
        }
        "expandtabs" => {
            let (size, named): (Option<usize>, Kwargs) = from_args(args)?;
            let size = size.or(named.get("tabsize")?).unwrap_or(8);
            named.assert_all_used()?;
            Value::from(expanded(text, size)?)
        }
        "splitlines" => {
            let (keep, named): (Option<bool>, Kwargs) = from_args(args)?;
            let keep = keep.or(named.get("keepends")?).unwrap_or(false);
            named.assert_all_used()?;
            lines(text, keep)
        }
        "isdecimal" => {
            let () = from_args(args)?;
            let digit = |c: char| c.is_ascii_digit();
            Value::from(!text.is_empty() && text.chars().all(digit))
        }
        "isidentifier" => {
            let () = from_args(args)?;
            let mut chars = text.chars();
            let first = chars.next().is_some_and(|c| c.is_alphabetic() || c == '_');
            Value::from(first && chars.all(|c| c.is_alphanumeric() || c == '_'))
        }
        "istitle" => {
            let () = from_args(args)?;
            Value::from(is_title(text))
        }
        "join" => {
            let (items,): (&Value,) = from_args(args)?;
            let items = items.try_iter()?.map(|item| {
                let kind = item.kind();
                let text = item.as_str().map(str::to_owned);
                text.ok_or_else(|| wrong(format!("join: a text is needed, not a {kind}")))
            });
            Value::from(items.collect::<Result<Vec<_>, _>>()?.join(text))
        }
        _ => return Ok(None),
    };
    Ok(Some(found))
}

fn filled(separator: &str) -> Result<&str, Error> {
    match separator {
        "" => Err(wrong("empty separator")),
        separator => Ok(separator),
    }
}

fn triple(before: &str, separator: &str, after: &str) -> Value {
    Value::from(Tuple::from([before, separator, after].map(Value::from)))
}

/// Number of characters that a text is shorter than the width.
fn room(text: &str, width: usize) -> Result<usize, Error> {
    match width > MOST_TEXT {
        true => Err(wrong(format!("a text of {width} characters is too long"))),
        false => Ok(width.saturating_sub(text.chars().count())),
    }
}

/// Python puts the odd character to the left if the width is odd.
pub(super) fn centred(text: &str, width: usize, fill: char) -> Result<String, Error> {
    let room = room(text, width)?;
    let left = room / 2 + (room & width & 1);
    let pad = |count: usize| fill.to_string().repeat(count);
    Ok(format!("{}{text}{}", pad(left), pad(room - left)))
}

/// The arguments of `split` and `rsplit`: the separator, and the maximum number of splits.
fn split_arguments(args: &[Value]) -> Result<(Option<String>, usize), Error> {
    let (separator, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
    let separator = match separator {
        Some(separator) => Some(separator),
        None => named.get("sep")?,
    };
    let most = most.or(named.get("maxsplit")?).unwrap_or(-1);
    named.assert_all_used()?;
    let separator = match separator.filter(|separator| !separator.is_none()) {
        None => None,
        Some(value) => match value.as_str() {
            Some(text) => Some(filled(text)?.to_owned()),
            None => return Err(wrong(format!("a {} is no separator", value.kind()))),
        },
    };
    Ok((separator, usize::try_from(most).unwrap_or(usize::MAX)))
}

fn split(text: &str, separator: Option<&str>, most: usize) -> Value {
    let Some(separator) = separator else {
        let (mut parts, mut rest) = (Vec::new(), text.trim_start());
        while !rest.is_empty() {
            match rest.find(char::is_whitespace) {
                Some(end) if parts.len() < most => {
                    parts.push(Value::from(&rest[..end]));
                    rest = rest[end..].trim_start();
                }
                _ => {
                    // The rest keeps the white space at its end.
                    parts.push(Value::from(rest));
                    break;
                }
            }
        }
        return parts.into_iter().collect();
    };
    let parts = text.splitn(most.saturating_add(1), separator);
    parts.map(Value::from).collect()
}

fn rsplit(text: &str, separator: Option<&str>, most: usize) -> Value {
    let mut parts: Vec<Value> = Vec::new();
    match separator {
        Some(separator) => {
            let found = text.rsplitn(most.saturating_add(1), separator);
            parts.extend(found.map(Value::from));
        }
        None => {
            let mut rest = text.trim_end();
            while !rest.is_empty() {
                match rest.rfind(char::is_whitespace) {
                    Some(at) if parts.len() < most => {
                        let after = rest[at..].trim_start();
                        parts.push(Value::from(after));
                        rest = rest[..at].trim_end();
                    }
                    _ => {
                        parts.push(Value::from(rest));
                        break;
                    }
                }
            }
        }
    }
    parts.reverse();
    parts.into_iter().collect()
}

/// Splits lines as Python does.
fn lines(text: &str, keep: bool) -> Value {
    let ends = |c: char| {
        matches!(
            c,
            '\n' | '\r' | '\x0b' | '\x0c' | '\x1c'..='\x1e' | '\u{85}' | '\u{2028}' | '\u{2029}'
        )
    };
    let (mut lines, mut rest) = (Vec::new(), text);
    while !rest.is_empty() {
        let (line, end) = match rest.find(ends) {
            None => (rest.len(), rest.len()),
            Some(at) if rest[at..].starts_with("\r\n") => (at, at + 2),
            Some(at) => (at, at + rest[at..].chars().next().map_or(1, char::len_utf8)),
        };
        lines.push(Value::from(&rest[..if keep { end } else { line }]));
        rest = &rest[end..];
    }
    lines.into_iter().collect()
}

fn expanded(text: &str, size: usize) -> Result<String, Error> {
    let (mut out, mut column) = (String::new(), 0);
    for c in text.chars() {
        match c {
            '\t' => {
                let width = size.saturating_sub(column % size.max(1));
                out.push_str(&" ".repeat(room("", width)?));
                column += width;
            }
            '\n' | '\r' => {
                out.push(c);
                column = 0;
            }
            c => {
                out.push(c);
                column += 1;
            }
        }
        if out.len() > MOST_TEXT {
            return Err(wrong("expandtabs makes a text that is too long"));
        }
    }
    Ok(out)
}

fn is_title(text: &str) -> bool {
    let (mut cased, mut inside) = (false, false);
    for c in text.chars() {
        let (upper, lower) = (c.is_uppercase(), c.is_lowercase());
        if upper && inside || lower && !inside {
            return false;
        }
        inside = upper || lower;
        cased |= inside;
    }
    cased
}
