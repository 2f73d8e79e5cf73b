//! A page before it has a format: sections of tables, figures and text.

use serde::Serialize;

/// A page.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page {
    /// Title.
    pub title: String,
    /// One sentence under it.
    pub lead: String,
    /// What has to be known before any number is read.
    pub warnings: Vec<String>,
    /// The body.
    pub sections: Vec<Section>,
    /// Terms and their definitions.
    pub definitions: Vec<(String, String)>,
    /// What was run, on what, by what.
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
    /// Stem of its files.
    pub id: String,
    /// What it is, as its heading.
    pub title: String,
    /// What it says, as its own title has it.
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
    /// What it says and by which rule; a sentence or two.
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
    /// Whether the column holds numbers.
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
        /// In the order that the table's lead names.
        numbers: Vec<Number>,
    },
    /// Nothing there, and why.
    Missing {
        /// `not run`, `not timed`, ...
        reason: String,
    },
}

/// A number with what stands behind it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Number {
    /// Name of the metric, empty for numbers that are none.
    pub metric: String,
    /// The value.
    pub value: f64,
    /// The value as printed.
    pub text: String,
    /// The 95% interval as printed.
    pub interval: Option<String>,
    /// The interval's ends.
    pub bounds: Option<(f64, f64)>,
    /// The paper's value.
    pub paper: Option<f64>,
    /// The paper's value and our difference from it, as printed.
    pub against: Option<String>,
    /// Where it comes from: rows, prompts and seeds, cells.
    pub source: String,
    /// Folder of its (first) cell, from the root.
    pub cell: Option<String>,
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

    /// A count.
    pub fn count(value: usize) -> Self {
        Self::number(Number::plain(value as f64, value.to_string()))
    }

    /// A number as printed, or why there is none.
    pub fn printed(value: Option<f64>, decimals: usize, unit: &str) -> Self {
        match value.filter(|value| value.is_finite()) {
            Some(value) => Self::number(Number::plain(value, format!("{value:.decimals$}{unit}"))),
            None => Self::missing("–"),
        }
    }

    /// Nothing.
    pub fn missing(reason: &str) -> Self {
        Self::Missing {
            reason: reason.to_owned(),
        }
    }
}

impl Number {
    /// A number with nothing behind it but the table's own lead.
    pub fn plain(value: f64, text: String) -> Self {
        Self {
            metric: String::new(),
            value,
            text,
            interval: None,
            bounds: None,
            paper: None,
            against: None,
            source: String::new(),
            cell: None,
        }
    }
}
