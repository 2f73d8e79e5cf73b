//! JSON and numbers in Python's notation.

use std::io::{self, Write};

use minijinja::value::Kwargs;
use minijinja::{Error, ErrorKind, Value};
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Maximum indent of `tojson`, in spaces.
const MOST_INDENT: usize = 64;

/// A number in the notation of Python's `repr`: the shortest digits that identify it, with an
/// exponent if that is below -4 or above 15.
pub(super) fn float(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    match plain.contains('.') {
        true => plain,
        false => format!("{plain}.0"),
    }
}

/// Python's `json.dumps` with the arguments of transformers' filter.
pub(super) fn to_json(value: &Value, options: Kwargs) -> Result<String, Error> {
    let failed = |message: String| Error::new(ErrorKind::InvalidOperation, message);
    let ascii = options
        .get::<Option<bool>>("ensure_ascii")?
        .unwrap_or(false);
    let sorted = options.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let indent: Option<Value> = options.get("indent")?;
    let separators: Option<Vec<String>> = options.get("separators")?;
    options.assert_all_used()?;
    let indent = match indent.filter(|indent| !indent.is_none()) {
        None => None,
        Some(indent) => match (indent.as_str(), indent.as_usize()) {
            (Some(text), _) => Some(text.to_owned()),
            (None, Some(width)) if width <= MOST_INDENT => Some(" ".repeat(width)),
            _ => {
                let message = format!("tojson: an indent of {indent} is not in 0..={MOST_INDENT}");
                return Err(failed(message));
            }
        },
    };
    let [item, key] = match separators.as_deref() {
        None => [if indent.is_some() { "," } else { ", " }, ": "].map(str::to_owned),
        Some([item, key]) => [item.clone(), key.clone()],
        Some(other) => {
            let message = format!("tojson: {} separators, there are two", other.len());
            return Err(failed(message));
        }
    };
    let style = Style {
        ascii,
        indent,
        item,
        key,
        depth: 0,
        filled: false,
    };
    let mut out = Vec::new();
    let mut writer = Serializer::with_formatter(&mut out, style);
    let written = match sorted {
        false => value.serialize(&mut writer),
        true => serde_json::to_value(value).and_then(|mut json| {
            json.sort_all_objects();
            json.serialize(&mut writer)
        }),
    };
    written.map_err(|e| failed(e.to_string()))?;
    String::from_utf8(out).map_err(|e| failed(e.to_string()))
}

/// The layout of JSON.
struct Style {
    ascii: bool,
    indent: Option<String>,
    item: String,
    key: String,
    depth: usize,
    /// True if the present list or object is not empty.
    filled: bool,
}

impl Style {
    fn begin<W: ?Sized + Write>(&mut self, out: &mut W, sign: &[u8]) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        out.write_all(sign)
    }

    fn end<W: ?Sized + Write>(&mut self, out: &mut W, sign: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.filled {
            self.line(out)?;
        }
        self.filled = true;
        out.write_all(sign)
    }

    fn entry<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(self.item.as_bytes())?;
        }
        self.filled = true;
        self.line(out)
    }

    fn line<W: ?Sized + Write>(&self, out: &mut W) -> io::Result<()> {
        let Some(indent) = &self.indent else {
            return Ok(());
        };
        out.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| out.write_all(indent.as_bytes()))
    }
}

impl Formatter for Style {
    fn write_f64<W: ?Sized + Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        out.write_all(float(value).as_bytes())
    }

    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        if !self.ascii {
            return out.write_all(fragment.as_bytes());
        }
        for c in fragment.chars() {
            match c {
                '\u{7f}'.. => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        write!(out, "\\u{unit:04x}")?;
                    }
                }
                c => write!(out, "{c}")?,
            }
        }
        Ok(())
    }

    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.entry(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.begin(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.end(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.entry(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(self.key.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_pythons() {
        for (value, text) in [
            (1.0, "1.0"),
            (1e20, "1e+20"),
            (1e-7, "1e-07"),
            (1.5e300, "1.5e+300"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (-0.0, "-0.0"),
            (f64::INFINITY, "inf"),
            (0.1, "0.1"),
        ] {
            assert_eq!(float(value), text);
        }
    }
}
