//! Methods and filters of Python and Jinja2 that minijinja and its compatibility crate lack.

use minijinja::formatting::{FormatStyle, format};
use minijinja::value::{ArgType, Kwargs, Rest, Tuple, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::{filters, globals, pycompat};

use super::json::to_json;
use super::repr::{repr, written};
use super::source::{METHOD, PERCENT};

/// Longest text that a method makes, in bytes.
const MOST_TEXT: usize = 1 << 20;

/// Adds all of it.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.set_unknown_method_callback(method);
    environment.add_filter("tojson", to_json);
    environment.add_filter(PERCENT, percent);
    environment.add_filter("striptags", filters::striptags);
    environment.add_filter("wordcount", |text: String| {
        let word = |c: char| c.is_alphanumeric() || c == '_';
        let words = text.split(|c| !word(c)).filter(|word| !word.is_empty());
        words.count()
    });
    environment.add_filter("center", |text: String, width: Option<usize>| {
        centred(&text, width.unwrap_or(80), ' ')
    });
    environment.add_filter("truncate", truncate);
    environment.add_filter("wordwrap", word_wrap);
    environment.add_filter("filesizeformat", file_size);
    environment.add_filter("urlencode", url_encode);
    environment.add_filter("xmlattr", xml_attributes);
    environment.add_filter("string", |value: Value| written(&value));
    environment.add_function("joiner", globals::joiner);
    environment.add_function("cycler", |items: Rest<Value>| globals::cycler(items.0));
    // To Jinja2, what is not defined can be called too; it fails then.
    let callable = |value: &Value| matches!(value.kind(), ValueKind::Plain | ValueKind::Undefined);
    environment.add_test("callable", move |value: Value| callable(&value));
    environment.add_test(METHOD, move |value: Value, name: String| {
        match value.kind() {
            ValueKind::Map => true,
            _ => value.get_attr(&name).is_ok_and(|value| callable(&value)),
        }
    });
    environment.add_test("in", |item: Value, list: Value| contains(&list, &item));
}

fn wrong(message: impl Into<String>) -> Error {
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

/// The operator `%`: a text is filled in, of numbers it is the rest.
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

/// A format and its values, in which `%r` is a `%s` of what `repr` writes.
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
        // The width and the precision may be values too.
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

/// Methods of Python's texts and maps.
fn method(state: &mut State, value: &Value, name: &str, args: &[Value]) -> Result<Value, Error> {
    match value.as_str() {
        Some(text) => match text_method(text, name, args)? {
            Some(found) => Ok(found),
            None => pycompat::unknown_method_callback(state, value, name, args),
        },
        None => pycompat::unknown_method_callback(state, value, name, args),
    }
}

fn text_method(text: &str, name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let found = match name {
        "rsplit" => {
            let (separator, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            rsplit(text, separator, most, &named)?
        }
        "split" => {
            let (separator, most, named): (Option<Value>, Option<i64>, Kwargs) = from_args(args)?;
            split(text, separator, most, &named)?
        }
        "partition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.split_once(filled(separator)?) {
                Some((before, after)) => triple(before, separator, after),
                None => triple(text, "", ""),
            }
        }
        "rpartition" => {
            let (separator,): (&str,) = from_args(args)?;
            match text.rsplit_once(filled(separator)?) {
                Some((before, after)) => triple(before, separator, after),
                None => triple("", "", text),
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
            // Folded is lower, but for letters that are written as several.
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

/// The number of characters that a text lacks to this width.
fn room(text: &str, width: usize) -> Result<usize, Error> {
    match width > MOST_TEXT {
        true => Err(wrong(format!("a text of {width} characters is too long"))),
        false => Ok(width.saturating_sub(text.chars().count())),
    }
}

/// Python puts the odd character to the left where the width is odd.
fn centred(text: &str, width: usize, fill: char) -> Result<String, Error> {
    let room = room(text, width)?;
    let left = room / 2 + (room & width & 1);
    let pad = |count: usize| fill.to_string().repeat(count);
    Ok(format!("{}{text}{}", pad(left), pad(room - left)))
}

/// The arguments of `split` and `rsplit`: the separator, and how often at most.
fn split_arguments(
    separator: Option<Value>,
    most: Option<i64>,
    named: &Kwargs,
) -> Result<(Option<String>, usize), Error> {
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

fn split(
    text: &str,
    separator: Option<Value>,
    most: Option<i64>,
    named: &Kwargs,
) -> Result<Value, Error> {
    let (separator, most) = split_arguments(separator, most, named)?;
    let Some(separator) = separator else {
        let (mut parts, mut rest) = (Vec::new(), text.trim_start());
        while !rest.is_empty() {
            match rest.find(char::is_whitespace) {
                Some(end) if parts.len() < most => {
                    parts.push(Value::from(&rest[..end]));
                    rest = rest[end..].trim_start();
                }
                _ => {
                    // What is left over keeps the space at its end.
                    parts.push(Value::from(rest));
                    break;
                }
            }
        }
        return Ok(parts.into_iter().collect());
    };
    let parts = text.splitn(most.saturating_add(1), separator.as_str());
    Ok(parts.map(Value::from).collect())
}

fn rsplit(
    text: &str,
    separator: Option<Value>,
    most: Option<i64>,
    named: &Kwargs,
) -> Result<Value, Error> {
    let (separator, most) = split_arguments(separator, most, named)?;
    let mut parts: Vec<Value> = Vec::new();
    match separator {
        Some(separator) => {
            let found = text.rsplitn(most.saturating_add(1), separator.as_str());
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
    Ok(parts.into_iter().collect())
}

/// Lines as Python cuts them.
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

/// Arguments that may be given by their place or by their name.
struct Arguments {
    placed: Vec<Value>,
    named: Option<Kwargs>,
}

impl Arguments {
    fn new(given: Rest<ValueOrKwargs>) -> Result<Self, Error> {
        let mut placed = given.into_values();
        let named = placed.pop_if(|last| last.is_kwargs());
        let named = named.map(Kwargs::try_from).transpose()?;
        Ok(Self { placed, named })
    }

    fn get<T>(&self, place: usize, name: &str) -> Result<Option<T>, Error>
    where
        T: for<'a> ArgType<'a, Output = T>,
    {
        let placed = self.placed.get(place).filter(|value| !value.is_none());
        match (placed, &self.named) {
            (Some(value), _) => T::from_value(Some(value)).map(Some),
            (None, Some(named)) => named.get(name),
            (None, None) => Ok(None),
        }
    }

    fn finish(&self, most: usize) -> Result<(), Error> {
        if self.placed.len() > most {
            return Err(Error::from(ErrorKind::TooManyArguments));
        }
        self.named.as_ref().map_or(Ok(()), Kwargs::assert_all_used)
    }
}

/// Jinja2's `truncate`.
fn truncate(text: String, given: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let given = Arguments::new(given)?;
    let length = given.get(0, "length")?.unwrap_or(255_usize);
    let kill_words = given.get(1, "killwords")?.unwrap_or(false);
    let end: Option<String> = given.get(2, "end")?;
    let end = end.unwrap_or_else(|| "...".to_owned());
    let leeway = given.get(3, "leeway")?.unwrap_or(5_usize);
    given.finish(4)?;
    let Some(room) = length.checked_sub(end.chars().count()) else {
        let message = format!("truncate: {length} characters are fewer than those of the end");
        return Err(wrong(message));
    };
    if text.chars().count() <= length.saturating_add(leeway) {
        return Ok(text);
    }
    let cut: String = text.chars().take(room).collect();
    let kept = match kill_words {
        true => cut.as_str(),
        false => cut.rsplit_once(' ').map_or(cut.as_str(), |(kept, _)| kept),
    };
    Ok(format!("{kept}{end}"))
}

/// Jinja2's `wordwrap` for texts of words that break at white space and behind hyphens.
fn word_wrap(text: String, given: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let given = Arguments::new(given)?;
    let width = given.get(0, "width")?.unwrap_or(79_usize).max(1);
    let break_long = given.get(1, "break_long_words")?.unwrap_or(true);
    let line: Option<String> = given.get(2, "wrapstring")?;
    let line = line.unwrap_or_else(|| "\n".to_owned());
    let hyphens = given.get(3, "break_on_hyphens")?.unwrap_or(true);
    given.finish(4)?;
    let mut wrapped = Vec::new();
    for paragraph in text.lines() {
        let mut lines = Vec::new();
        let mut now = String::new();
        for chunk in chunks(paragraph, hyphens) {
            let len = |text: &str| text.chars().count();
            if len(&now) + len(&chunk) > width && !now.trim().is_empty() {
                lines.push(std::mem::take(&mut now).trim_end().to_owned());
            }
            if now.is_empty() && !lines.is_empty() && chunk.trim().is_empty() {
                continue;
            }
            now.push_str(&chunk);
            while break_long && len(&now) > width && !now.trim().is_empty() {
                let cut: String = now.chars().take(width).collect();
                now = now[cut.len()..].to_owned();
                lines.push(cut.trim_end().to_owned());
            }
        }
        let last = now.trim_end();
        if !last.is_empty() {
            lines.push(last.to_owned());
        }
        wrapped.push(lines.join(&line));
    }
    Ok(wrapped.join(&line))
}

/// Words and the white space between them, in turn.
fn chunks(text: &str, hyphens: bool) -> Vec<String> {
    let mut chunks: Vec<String> = Vec::new();
    let mut before = None;
    for c in text.chars() {
        let space = c.is_whitespace();
        let hyphen = hyphens
            && c.is_alphabetic()
            && chunks.last().is_some_and(|chunk| {
                let mut back = chunk.chars().rev();
                back.next() == Some('-') && back.next().is_some_and(char::is_alphabetic)
            });
        match chunks.last_mut() {
            Some(chunk) if before == Some(space) && !hyphen => chunk.push(c),
            _ => chunks.push(c.to_string()),
        }
        before = Some(space);
    }
    chunks
}

/// Jinja2's `filesizeformat`.
fn file_size(size: f64, binary: Option<bool>, named: Kwargs) -> Result<String, Error> {
    let binary = binary.or(named.get("binary")?).unwrap_or(false);
    named.assert_all_used()?;
    let base = if binary { 1024.0 } else { 1000.0 };
    if size == 1.0 {
        return Ok("1 Byte".to_owned());
    }
    if size < base {
        return Ok(format!("{} Bytes", size.trunc()));
    }
    let names = ["k", "M", "G", "T", "P", "E", "Z", "Y"];
    let mut unit = base;
    for (i, name) in names.iter().enumerate() {
        if size < unit * base || i + 1 == names.len() {
            let name = match binary {
                true => format!("{}i", name.to_uppercase()),
                false => (*name).to_owned(),
            };
            return Ok(format!("{:.1} {name}B", size / unit));
        }
        unit *= base;
    }
    Ok(String::new())
}

/// Jinja2's `urlencode`: of a text, or of pairs.
fn url_encode(value: Value) -> Result<String, Error> {
    let encoded = |text: &str, kept: &str| -> String {
        let each = text.bytes().map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'.' | b'-' | b'~' => {
                char::from(byte).to_string()
            }
            byte if kept.as_bytes().contains(&byte) => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        });
        each.collect()
    };
    if value.kind() != ValueKind::Map && (value.as_str().is_some() || value.try_iter().is_err()) {
        return Ok(encoded(&written(&value)?, "/"));
    }
    let part = |value: &Value| -> Result<String, Error> {
        Ok(encoded(&written(value)?, "").replace("%20", "+"))
    };
    let mut pairs = Vec::new();
    for item in value.try_iter()? {
        let (key, of_key) = match value.kind() {
            ValueKind::Map => (item.clone(), value.get_item(&item)?),
            _ => (item.get_item_by_index(0)?, item.get_item_by_index(1)?),
        };
        pairs.push(format!("{}={}", part(&key)?, part(&of_key)?));
    }
    Ok(pairs.join("&"))
}

/// Jinja2's `xmlattr`: the entries of a map as attributes of a tag.
fn xml_attributes(value: Value, space: Option<bool>, named: Kwargs) -> Result<String, Error> {
    let space = space.or(named.get("autospace")?).unwrap_or(true);
    named.assert_all_used()?;
    if value.kind() != ValueKind::Map {
        return Err(wrong(format!(
            "xmlattr: a map is needed, not a {}",
            value.kind()
        )));
    }
    let escaped = |value: &Value| -> Result<String, Error> {
        let text = written(value)?.replace('&', "&amp;").replace('<', "&lt;");
        let text = text.replace('>', "&gt;").replace('\'', "&#39;");
        Ok(text.replace('"', "&#34;"))
    };
    let mut attributes = Vec::new();
    for key in value.try_iter()? {
        let of_key = value.get_item(&key)?;
        if of_key.is_none() || of_key.is_undefined() {
            continue;
        }
        let name = written(&key)?;
        if name.contains(|c: char| c.is_whitespace() || "/>=".contains(c)) {
            return Err(wrong(format!(
                "xmlattr: {name:?} is no name of an attribute"
            )));
        }
        attributes.push(format!("{}=\"{}\"", escaped(&key)?, escaped(&of_key)?));
    }
    let lead = if space && !attributes.is_empty() {
        " "
    } else {
        ""
    };
    Ok(format!("{lead}{}", attributes.join(" ")))
}
