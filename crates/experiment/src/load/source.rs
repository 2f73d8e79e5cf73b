//! TOML with the line of every value.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::faults::Faults;
use super::tree::{Kind, Node, Place, Table};
use crate::error::ExperimentError;

/// Reads a document. `source` is the name in its places. `lines` is false for text without lines,
/// such as an override.
pub(super) fn parse(text: &str, source: &str, lines: bool, faults: &mut Faults) -> Option<Node> {
    let reader = Reader {
        source: source.into(),
        lines: lines.then(|| text.match_indices('\n').map(|(at, _)| at).collect()),
    };
    let (document, mut errors) = DeTable::parse_recoverable(text);
    errors.sort_by_key(|error| error.span().map(|span| span.start));
    for error in &errors {
        let span = error.span().unwrap_or_default();
        match single_table(text, span.start) {
            Some((name, at)) => {
                let message = format!("`[{name}]` is one table, and there are several of them");
                let hint = format!("write [[{name}]], each time");
                faults.advise(Some(&reader.place(at..at)), name, message, &hint);
            }
            None => faults.add(Some(&reader.place(span)), "", error.message().trim_end()),
        }
    }
    if !errors.is_empty() {
        return None;
    }
    let place = reader.place(0..0);
    let root = reader.table(document.into_inner(), "", faults);
    Some(Node {
        place: Some(place),
        kind: Kind::Table(root),
    })
}

/// Tables that may occur several times in a file.
const LISTS: [&str; 3] = ["arm", "segment", "when"];

/// If the line at offset `at` is the header of a table of [`LISTS`], the list's name and the offset
/// of the first line `[NAME]`, which should be `[[NAME]]`. `None` if there is no such line.
fn single_table(text: &str, at: usize) -> Option<(&'static str, usize)> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let line = text.get(start..)?.lines().next()?;
    let is = |line: &str, head: &str| line.split('#').next().unwrap_or_default().trim() == head;
    let name = LISTS
        .into_iter()
        .find(|name| is(line, &format!("[{name}]")) || is(line, &format!("[[{name}]]")))?;
    let single = format!("[{name}]");
    let mut starts = std::iter::once(0).chain(text.match_indices('\n').map(|(end, _)| end + 1));
    let found = starts.find(|start| {
        let line = text.get(*start..).and_then(|rest| rest.lines().next());
        line.is_some_and(|line| is(line, &single))
    })?;
    Some((name, found))
}

/// The first fault of a file that is not TOML.
pub(super) fn no_toml(text: &str, path: &Path) -> ExperimentError {
    let (_, errors) = DeTable::parse_recoverable(text);
    let first = errors
        .iter()
        .min_by_key(|error| error.span().map(|span| span.start));
    let at = first
        .and_then(toml::de::Error::span)
        .unwrap_or_default()
        .start;
    ExperimentError::NotToml {
        path: path.to_path_buf(),
        line: text
            .get(..at)
            .map_or(1, |before| before.matches('\n').count() + 1),
        message: first
            .map(|error| error.message().trim_end().to_owned())
            .unwrap_or_default(),
    }
}

struct Reader {
    source: Arc<str>,
    /// Offsets of line ends; `None` for text without lines.
    lines: Option<Vec<usize>>,
}

impl Reader {
    fn place(&self, span: Range<usize>) -> Place {
        let before = |ends: &Vec<usize>| ends.partition_point(|end| *end < span.start) + 1;
        Place {
            source: self.source.clone(),
            line: self.lines.as_ref().map(before),
        }
    }

    fn table(&self, table: DeTable<'_>, prefix: &str, faults: &mut Faults) -> Table {
        let mut entries: Vec<_> = table.into_iter().collect();
        // The parser sorts by name; this restores the order of the file.
        entries.sort_by_key(|(key, _)| key.span().start);
        let mut own = Table::new();
        for (key, value) in entries {
            let place = self.place(key.span());
            let key = key.into_inner().into_owned();
            let inner = match prefix {
                "" => key.clone(),
                _ => format!("{prefix}.{key}"),
            };
            let kind = self.kind(value, &place, &inner, faults);
            let place = Some(place);
            own.insert(key, Node { place, kind });
        }
        own
    }

    fn kind(
        &self,
        value: Spanned<DeValue<'_>>,
        place: &Place,
        key: &str,
        faults: &mut Faults,
    ) -> Kind {
        let mut leaf = |value: Option<Value>, what: &str| {
            if value.is_none() {
                faults.add(Some(place), key, what);
            }
            Kind::Leaf(value.unwrap_or_default())
        };
        match value.into_inner() {
            DeValue::String(text) => Kind::Leaf(text.into_owned().into()),
            DeValue::Boolean(truth) => Kind::Leaf(truth.into()),
            DeValue::Integer(digits) => {
                let number = i64::from_str_radix(digits.as_str(), digits.radix()).ok();
                leaf(number.map(Value::from), "the number is too large")
            }
            DeValue::Float(digits) => {
                let number = digits.as_str().parse::<f64>().ok();
                let number = number.and_then(serde_json::Number::from_f64);
                leaf(number.map(Value::Number), "must be a finite number")
            }
            DeValue::Datetime(_) => leaf(None, "no key takes a date or a time; quote it"),
            DeValue::Array(items) => Kind::Array(
                items
                    .into_iter()
                    .map(|item| {
                        let place = self.place(item.span());
                        let kind = self.kind(item, &place, key, faults);
                        let place = Some(place);
                        Node { place, kind }
                    })
                    .collect(),
            ),
            DeValue::Table(table) => Kind::Table(self.table(table, key, faults)),
        }
    }
}
