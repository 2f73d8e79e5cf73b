//! Questions in SQL about the rows of runs. Builds with the feature `query` answer them.

#[cfg(feature = "query")]
mod sql;

use std::path::PathBuf;

use anyhow::Result;
use report::model::{Entry, Head, Table};

/// Largest number of decimals that tables for readers show.
const DECIMALS: usize = 4;

/// Rows that answer a question.
#[derive(Debug, Default)]
pub struct Answer {
    /// The columns, all of the same length.
    columns: Vec<Column>,
    /// Remarks about the rows that were asked, a sentence each.
    pub notes: Vec<String>,
}

/// A column of an [`Answer`].
#[derive(Debug)]
struct Column {
    name: String,
    numeric: bool,
    values: Vec<Option<Value>>,
}

/// A value of a [`Column`].
#[derive(Debug)]
#[cfg_attr(not(any(feature = "query", test)), expect(dead_code))]
enum Value {
    /// A number with a fraction.
    Float(f64),
    /// Any other value.
    Text(String),
}

impl Column {
    /// The values for a reader: numbers of a column have the same number of decimals.
    fn shown(&self) -> Vec<String> {
        let decimals = |value: &Value| match value {
            Value::Float(value) => shortest(*value),
            Value::Text(_) => 0,
        };
        let decimals = self.values.iter().flatten().map(decimals).max();
        let decimals = decimals.unwrap_or(0);
        let text = |value: &Option<Value>| match value {
            None => String::new(),
            Some(Value::Float(value)) => format!("{value:.decimals$}"),
            Some(Value::Text(text)) => text.clone(),
        };
        self.values.iter().map(text).collect()
    }

    /// The value of row `index` as it is; empty if there is none.
    fn exact(&self, index: usize) -> String {
        match self.values.get(index).and_then(Option::as_ref) {
            None => String::new(),
            Some(Value::Float(value)) => value.to_string(),
            Some(Value::Text(text)) => text.clone(),
        }
    }
}

/// Number of decimals that a value has, up to [`DECIMALS`].
fn shortest(value: f64) -> usize {
    let text = format!("{value:.DECIMALS$}");
    let digits = text.trim_end_matches('0');
    digits
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len())
}

impl Answer {
    /// Number of rows.
    fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.values.len())
    }

    /// The rows as they are, with a header line.
    pub fn csv(&self) -> Result<Vec<u8>> {
        let mut writer = ::csv::Writer::from_writer(Vec::new());
        writer.write_record(self.columns.iter().map(|column| &column.name))?;
        for row in 0..self.len() {
            writer.write_record(self.columns.iter().map(|column| column.exact(row)))?;
        }
        Ok(writer.into_inner()?)
    }

    /// The rows as a table of a page.
    pub fn table(&self) -> Table {
        let shown: Vec<Vec<String>> = self.columns.iter().map(Column::shown).collect();
        let row = |row: usize| {
            let entries = shown.iter().filter_map(|column| column.get(row));
            entries.map(Entry::text).collect()
        };
        let head = self.columns.iter().map(|column| Head {
            title: column.name.clone(),
            numeric: column.numeric,
        });
        Table {
            id: String::new(),
            title: String::new(),
            lead: String::new(),
            head: head.collect(),
            rows: (0..self.len()).map(row).collect(),
        }
    }

    /// The rows for a terminal.
    pub fn text(&self) -> String {
        let columns: Vec<(&Column, Vec<String>, usize)> = self
            .columns
            .iter()
            .map(|column| {
                let shown: Vec<String> =
                    column.shown().iter().map(|text| in_a_line(text)).collect();
                let all = shown.iter().chain(std::iter::once(&column.name));
                let width = all.map(|text| text.chars().count()).max().unwrap_or(0);
                (column, shown, width)
            })
            .collect();
        let line = |cells: Vec<String>| format!("{}\n", cells.join("  ").trim_end());
        let padded = |text: &str, column: &Column, width: usize| match column.numeric {
            true => format!("{text:>width$}"),
            false => format!("{text:<width$}"),
        };
        let head = columns
            .iter()
            .map(|(column, _, width)| padded(&column.name, column, *width));
        let mut text = line(head.collect());
        text.push_str(&line(
            columns
                .iter()
                .map(|(.., width)| "-".repeat(*width))
                .collect(),
        ));
        for row in 0..self.len() {
            let cells = columns.iter().map(|(column, shown, width)| {
                padded(shown.get(row).map_or("", String::as_str), column, *width)
            });
            text.push_str(&line(cells.collect()));
        }
        text
    }
}

fn in_a_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Answers a question about the runs in these folders.
///
/// # Errors
/// Folders without rows, SQL that is not understood or cannot be run, a build without the feature.
#[cfg(feature = "query")]
pub fn ask(runs: &[PathBuf], question: &str) -> Result<Answer> {
    sql::ask(runs, question)
}

/// Refuses, as this program is built without SQL.
///
/// # Errors
/// Always, with advice how to build it.
#[cfg(not(feature = "query"))]
pub fn ask(_: &[PathBuf], _: &str) -> Result<Answer> {
    anyhow::bail!(
        "this program is built without SQL\nhint: build it with `cargo build --release --locked --features query`; \
         `omnidraft rows` writes the same tables for other programs"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer() -> Answer {
        let float = |value: f64| Some(Value::Float(value));
        let text = |text: &str| Some(Value::Text(text.to_owned()));
        let column = |name: &str, numeric, values| Column {
            name: name.to_owned(),
            numeric,
            values,
        };
        Answer {
            columns: vec![
                column("arm", false, vec![text("a|b"), text("c\nd"), None]),
                column("rate", true, vec![float(0.5), float(1.0 / 3.0), None]),
                column("n", true, vec![text("12"), text("3"), text("4")]),
            ],
            notes: Vec::new(),
        }
    }

    #[test]
    fn columns_line_up_with_equal_decimals() {
        let text =
            "arm    rate   n\n---  ------  --\na|b  0.5000  12\nc d  0.3333   3\n              4\n";
        assert_eq!(answer().text(), text);
        let text = "| arm  |   rate |   n |\n|:-----|-------:|----:|\n| a\\|b | 0.5000 |  12 |\n\
                    | c d  | 0.3333 |   3 |\n|      |        |   4 |\n";
        assert_eq!(report::render::table_markdown(&answer().table()), text);
        assert_eq!(shortest(2.0), 0);
        assert_eq!(shortest(2.25), 2);
        assert_eq!(shortest(-0.00001), 0);
    }

    #[test]
    fn csv_has_the_values_as_they_are() {
        let text = String::from_utf8(answer().csv().unwrap()).unwrap();
        assert_eq!(
            text,
            "arm,rate,n\na|b,0.5,12\n\"c\nd\",0.3333333333333333,3\n,,4\n"
        );
    }
}
