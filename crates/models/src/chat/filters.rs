//! Filters of Jinja2 that minijinja lacks or implements differently.

use minijinja::value::{ArgType, Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Value};
use minijinja_contrib::filters;

use super::json::to_json;
use super::python::{centred, wrong};
use super::repr::{MOST_TEXT, written};

/// Adds the filters.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("tojson", to_json);
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
    environment.add_filter("int", int);
    environment.add_filter("float", float);
    environment.add_filter("join", join);
    for name in ["length", "count"] {
        environment.add_filter(name, length);
    }
}

/// Jinja2's `length`; 0 for undefined values.
fn length(value: Value) -> Result<usize, Error> {
    let counted = || value.try_iter().ok().map(Iterator::count);
    let found = match value.kind() {
        ValueKind::Undefined => Some(0),
        ValueKind::None => None,
        _ => value.len().or_else(counted),
    };
    let kind = value.kind();
    found.ok_or_else(|| wrong(format!("cannot calculate length of value of type {kind}")))
}

/// Jinja2's `int`; the default for a value that is not a number.
fn int(
    value: Value,
    default: Option<Value>,
    base: Option<u32>,
    named: Kwargs,
) -> Result<Value, Error> {
    let default = default.or(named.get("default")?);
    let base = base.or(named.get("base")?).unwrap_or(10);
    named.assert_all_used()?;
    if !(2..=36).contains(&base) {
        return Err(wrong(format!("int: base {base} is not in 2..=36")));
    }
    let whole = value.as_str().and_then(|text| whole(text, base));
    let found = match value.is_integer() {
        true => Some(value),
        false => whole.or_else(|| {
            let number = number(&value).filter(|number| number.abs() < 1e38)?;
            Some(Value::from(number.trunc() as i128))
        }),
    };
    Ok(found.or(default).unwrap_or_else(|| 0.into()))
}

/// Jinja2's `float`; the default for a value that is not a number.
fn float(value: Value, default: Option<Value>, named: Kwargs) -> Result<Value, Error> {
    let default = default.or(named.get("default")?);
    named.assert_all_used()?;
    let found = number(&value).map(Value::from).or(default);
    Ok(found.unwrap_or_else(|| 0.0.into()))
}

/// A number, or the number in a text.
fn number(value: &Value) -> Option<f64> {
    match (value.as_str(), value.kind()) {
        (Some(text), _) => text.trim().parse().ok(),
        (None, ValueKind::Bool) => Some(f64::from(u8::from(value.is_true()))),
        (None, _) => f64::try_from(value.clone()).ok(),
    }
}

/// An integer as Python's `int` parses it.
fn whole(text: &str, base: u32) -> Option<Value> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let lower = digits.to_lowercase();
    let prefix = match base {
        2 => "0b",
        8 => "0o",
        16 => "0x",
        _ => "",
    };
    let digits = lower.strip_prefix(prefix).unwrap_or(&lower);
    let parts: Vec<&str> = digits.split('_').collect();
    if parts
        .iter()
        .any(|part| part.is_empty() || part.starts_with(['+', '-']))
    {
        return None;
    }
    let found = i128::from_str_radix(&parts.concat(), base).ok()?;
    Some(Value::from(sign * found))
}

/// Jinja2's `join`, of the items or of an attribute of each.
fn join(
    value: Value,
    between: Option<String>,
    attribute: Option<Value>,
    named: Kwargs,
) -> Result<String, Error> {
    let between = between.or(named.get("d")?).unwrap_or_default();
    let attribute = attribute.or(named.get("attribute")?);
    named.assert_all_used()?;
    let mut text = String::new();
    for (i, item) in value.try_iter()?.enumerate() {
        if i > 0 {
            text.push_str(&between);
        }
        let shown = match &attribute {
            None => written(&item)?,
            Some(attribute) => written(&of_path(&item, attribute)?)?,
        };
        text.push_str(&shown);
        if text.len() > MOST_TEXT {
            return Err(wrong("join makes a text that is too long"));
        }
    }
    Ok(text)
}

/// The value of an attribute, or of a path of attributes with dots.
fn of_path(item: &Value, attribute: &Value) -> Result<Value, Error> {
    let Some(path) = attribute.as_str() else {
        return item.get_item(attribute);
    };
    let mut found = item.clone();
    for name in path.split('.') {
        found = match name.parse::<usize>() {
            Ok(index) => found.get_item_by_index(index)?,
            Err(_) => found.get_attr(name)?,
        };
    }
    Ok(found)
}

/// Arguments that may be given by position or by name.
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

/// Jinja2's `wordwrap`, with breaks at white space and after hyphens.
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
        // Counted along, so that a line of any length is read once.
        let (mut now, mut chars, mut blank) = (String::new(), 0, true);
        for chunk in chunks(paragraph, hyphens) {
            let (more, space) = (chunk.chars().count(), chunk.trim().is_empty());
            if chars + more > width && !blank {
                lines.push(now.trim_end().to_owned());
                (now, chars, blank) = (String::new(), 0, true);
            }
            if now.is_empty() && !lines.is_empty() && space {
                continue;
            }
            now.push_str(&chunk);
            chars += more;
            blank &= space;
            if break_long && chars > width && !blank {
                // `now` ends with a word, and so does `rest` after every cut: `blank` stays false.
                let mut rest = now.as_str();
                while chars > width {
                    let end = rest.char_indices().nth(width);
                    let (cut, left) = rest.split_at(end.map_or(rest.len(), |(end, _)| end));
                    lines.push(cut.trim_end().to_owned());
                    (rest, chars) = (left, chars - width);
                }
                now = rest.to_owned();
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

/// Alternating words and white space.
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
