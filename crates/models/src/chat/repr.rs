//! Python's notation of values.

use minijinja::value::{Tuple, ValueKind};
use minijinja::{Error, ErrorKind, Value};

use super::data::pairs;
use super::json::float;

/// Maximum length of the text of a value or of a template, in bytes: more than any context holds.
pub(super) const MOST_TEXT: usize = 16 << 20;
/// Maximum nesting of lists and maps.
const DEEPEST: usize = 200;

/// True if minijinja and Python write the value differently.
pub(super) fn is_own(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Number | ValueKind::Seq | ValueKind::Map
    )
}

/// True for a `namespace()`, which is not a map in Jinja2.
pub(super) fn is_namespace(value: &Value) -> bool {
    let object = value.as_object();
    object.is_some_and(|object| object.type_name().ends_with("::Namespace"))
}

/// Python's `str` of a value.
pub(super) fn written(value: &Value) -> Result<String, Error> {
    match is_own(value) {
        true => repr(value),
        false => Ok(value.to_string()),
    }
}

/// Python's `repr` of a value.
pub(super) fn repr(value: &Value) -> Result<String, Error> {
    let mut out = String::new();
    write(&mut out, value, 0)?;
    Ok(out)
}

fn write(out: &mut String, value: &Value, depth: usize) -> Result<(), Error> {
    if depth > DEEPEST || out.len() > MOST_TEXT {
        let message = "a value is too deep or too long to be written";
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let list = |out: &mut String, [open, close]: [char; 2]| -> Result<(), Error> {
        out.push(open);
        let mut count = 0;
        for item in value.try_iter()? {
            if count > 0 {
                out.push_str(", ");
            }
            write(out, &item, depth + 1)?;
            count += 1;
        }
        if (count, open) == (1, '(') {
            out.push(',');
        }
        out.push(close);
        Ok(())
    };
    match value.kind() {
        ValueKind::Undefined => out.push_str("Undefined"),
        ValueKind::String => quoted(out, value.as_str().unwrap_or_default()),
        ValueKind::Number if !value.is_integer() => {
            out.push_str(&float(f64::try_from(value.clone())?));
        }
        ValueKind::Seq => {
            let tuple = value.downcast_object_ref::<Tuple>().is_some();
            list(out, if tuple { ['(', ')'] } else { ['[', ']'] })?;
        }
        ValueKind::Map => {
            let entries = pairs(value);
            let namespace = is_namespace(value);
            if namespace && entries.len() > 1 {
                let message =
                    "a namespace of several values is written out, whose order is not kept";
                return Err(Error::new(ErrorKind::InvalidOperation, message));
            }
            out.push_str(if namespace { "<Namespace {" } else { "{" });
            for (i, (key, value)) in entries.iter().enumerate() {
                if i > 0 {
                    out.push_str(", ");
                }
                write(out, key, depth + 1)?;
                out.push_str(": ");
                write(out, value, depth + 1)?;
            }
            out.push_str(if namespace { "}>" } else { "}" });
        }
        _ => out.push_str(&value.to_string()),
    }
    Ok(())
}

/// A text in quotes.
fn quoted(out: &mut String, text: &str) {
    let quote = match text.contains('\'') && !text.contains('"') {
        true => '"',
        false => '\'',
    };
    out.push(quote);
    for c in text.chars() {
        match c {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c == quote || c == '\\' => out.extend(['\\', c]),
            c if is_printable(c) => out.push(c),
            c => out.push_str(&match u32::from(c) {
                code @ ..0x100 => format!("\\x{code:02x}"),
                code @ ..0x1_0000 => format!("\\u{code:04x}"),
                code => format!("\\U{code:08x}"),
            }),
        }
    }
    out.push(quote);
}

/// Python's `str.isprintable` of a character.
fn is_printable(c: char) -> bool {
    let layout = matches!(
        c,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0001}'..='\u{e007f}'
    );
    let space = c.is_whitespace() && c != ' ';
    c.is_ascii_graphic() || !layout && !space && unicode_names2::name(c).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_written_as_python_writes_them() {
        // Output of CPython 3.11.
        for (json, text) in [
            (r#""it's""#, r#""it's""#),
            (r#""it's \"q\"""#, r#"'it\'s "q"'"#),
            (
                r#""a\\b\n\t\u0001\u007f\u00a0\u00ad\u200b\u2028é漢😀\ue000""#,
                r"'a\\b\n\t\x01\x7f\xa0\xad\u200b\u2028é漢😀\ue000'",
            ),
            (
                r#"[1e20, 1e-7, 1.0, 1, null, true, {"z": [], "a": {}}]"#,
                "[1e+20, 1e-07, 1.0, 1, None, True, {'z': [], 'a': {}}]",
            ),
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            assert_eq!(repr(&value).unwrap(), text);
        }
        let one = Value::from(Tuple::from([Value::from("a")]));
        assert_eq!(repr(&one).unwrap(), "('a',)");
        let mut deep = Value::from(1);
        for _ in 0..1000 {
            deep = Value::from(vec![deep]);
        }
        assert!(repr(&deep).is_err());
    }
}
