//! A page independent of its format: sections of tables, figures and text.

use serde::Serialize;

/// A page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// Title.
    pub title: String,
    /// One sentence under it.
    pub lead: String,
    /// Warnings for the reader, shown before any number.
    pub warnings: Vec<String>,
    /// The body.
    pub sections: Vec<Section>,
    /// Terms and their definitions.
    pub definitions: Vec<(String, String)>,
    /// Origin of the numbers: experiment, machine, program.
    pub provenance: Vec<(String, String)>,
}

/// A part of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Section {
    /// A table.
    Table(Table),
    /// A figure.
    Figure(FigurePart),
}

/// A figure of a page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FigurePart {
    /// Stem of the names of its files.
    pub id: String,
    /// Heading: the kind of figure.
    pub title: String,
    /// Its message, which is its own title.
    pub message: String,
    /// The drawing.
    pub svg: String,
}

/// A table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Table {
    /// Short name, unique on the page: anchors, CSV, LaTeX labels.
    pub id: String,
    /// Heading.
    pub title: String,
    /// Content and rules of the table, in a sentence or two.
    pub lead: String,
    /// Column heads.
    pub head: Vec<Head>,
    /// Rows, each with an entry per column.
    pub rows: Vec<Vec<Entry>>,
}

/// A column's head.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Head {
    /// Text.
    pub title: String,
    /// True if the column holds numbers.
    pub numeric: bool,
}

/// One entry of a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Entry {
    /// Words.
    Text {
        /// The words.
        text: String,
    },
    /// Numbers side by side.
    Numbers {
        /// The numbers, in the order that the table's lead gives.
        numbers: Vec<Number>,
    },
    /// No value, with the reason.
    Missing {
        /// `not run`, `not timed`, ...
        reason: String,
    },
}

/// A number with its interval and origin.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Number {
    /// Name of the metric; empty for other numbers.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// The value as displayed.
    pub text: String,
    /// The 95% interval as displayed.
    pub interval: Option<String>,
    /// The interval's ends.
    pub bounds: Option<(f64, f64)>,
    /// The paper's value.
    pub paper: Option<f64>,
    /// The paper's value and the difference from it, as displayed.
    pub against: Option<String>,
    /// Origin: rows, prompts and seeds, cells.
    pub source: String,
    /// Folder of its (first) cell, relative to the root.
    pub cell: Option<String>,
}

impl Table {
    /// A table of rows in which every entry has the title of its column beside it; the column is one
    /// of words if the first entry is. `None` without rows.
    pub(crate) fn of(
        id: impl Into<String>,
        title: impl Into<String>,
        lead: impl Into<String>,
        rows: Vec<Vec<(&str, Entry)>>,
    ) -> Option<Self> {
        let head = rows.first()?.iter().map(|(title, entry)| match entry {
            Entry::Text { .. } => Head::words(title),
            Entry::Numbers { .. } | Entry::Missing { .. } => Head::numbers(title),
        });
        Some(Self {
            id: id.into(),
            title: title.into(),
            lead: lead.into(),
            head: head.collect(),
            rows: rows
                .into_iter()
                .map(|row| row.into_iter().map(|(_, entry)| entry).collect())
                .collect(),
        })
    }
}

impl Head {
    /// A column of words.
    pub fn words(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            numeric: false,
        }
    }

    /// A column of numbers.
    pub fn numbers(title: &str) -> Self {
        Self {
            title: title.to_owned(),
            numeric: true,
        }
    }
}

impl Entry {
    /// Words.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    /// One number.
    pub fn number(number: Number) -> Self {
        Self::Numbers {
            numbers: vec![number],
        }
    }

    /// One number, or a dash if there is none.
    pub fn or_dash(number: Option<Number>) -> Self {
        number.map_or_else(|| Self::missing("–"), Self::number)
    }

    /// A count.
    pub fn count(value: usize) -> Self {
        Self::number(Number::plain(value as f64, value.to_string()))
    }

    /// A formatted number, or a dash if there is none.
    pub fn printed(value: Option<f64>, decimals: usize, unit: &str) -> Self {
        let value = value.filter(|value| value.is_finite());
        Self::or_dash(value.map(|v| Number::plain(v, format!("{v:.decimals$}{unit}"))))
    }

    /// Leaves out the paper's values as displayed.
    pub(crate) fn forget_paper(&mut self) {
        if let Self::Numbers { numbers } = self {
            numbers.iter_mut().for_each(|number| number.against = None);
        }
    }

    /// A missing value.
    pub fn missing(reason: &str) -> Self {
        Self::Missing {
            reason: reason.to_owned(),
        }
    }
}

impl Number {
    /// A number without interval, paper's value or origin.
    pub fn plain(value: f64, text: String) -> Self {
        Self {
            value,
            text,
            ..Self::default()
        }
    }
}
