//! Tables and rows as the hub has them, and the records that they become.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::{FileFault, HubError};

/// A table of the hub.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Repository of the dataset.
    pub repo: &'static str,
    /// Its configuration.
    pub config: &'static str,
    /// Its split.
    pub split: &'static str,
    /// The columns that are read.
    pub columns: &'static [&'static str],
}

/// A row of a table.
#[derive(Debug)]
pub struct Row {
    repo: &'static str,
    place: String,
    pub(super) fields: Map<String, Value>,
}

impl Row {
    /// A row of `file`, counted from 0.
    pub fn new(table: &Table, file: &str, index: usize, fields: Map<String, Value>) -> Self {
        Self {
            repo: table.repo,
            place: format!("{file}, row {index}"),
            fields,
        }
    }

    pub(super) fn wrong(&self, message: String) -> HubError {
        FileFault::Table(message).of(self.repo, &self.place)
    }

    pub(super) fn text(&self, field: &str) -> Result<&str, HubError> {
        let text = self.fields.get(field).and_then(Value::as_str);
        text.ok_or_else(|| self.wrong(format!("`{field}` is not a text")))
    }

    /// The text of a field with `\n` as the only line end, as Python reads files.
    pub(super) fn lines(&self, field: &str) -> Result<String, HubError> {
        Ok(self.text(field)?.replace("\r\n", "\n"))
    }

    pub(super) fn take(&self, fields: &[&str]) -> Map<String, Value> {
        let field = |name: &&str| Some((name.to_string(), self.fields.get(*name)?.clone()));
        fields.iter().filter_map(field).collect()
    }
}

/// A record: one line of a task's file.
#[derive(Debug, Clone, Serialize)]
pub struct Record {
    /// Id, unique in its task.
    pub id: String,
    /// Text that the model is given.
    pub prompt: String,
    /// Published answer.
    pub reference: String,
    /// Further fields of the dataset, copied.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

/// Callback that gives [`convert`](super::convert) the rows of a table.
pub type Read<'a> =
    dyn FnMut(&Table, &mut dyn FnMut(Row) -> Result<(), HubError>) -> Result<(), HubError> + 'a;

/// A converted task.
#[derive(Debug)]
pub struct Converted {
    /// Description of the rule that made the split.
    pub rule: &'static str,
    /// Records that may be trained on.
    pub train: Vec<Record>,
    /// Held-out records.
    pub test: Vec<Record>,
    /// Ids of the training split, in its order.
    pub train_ids: Vec<String>,
    /// Ids of the test split, in its order.
    pub test_ids: Vec<String>,
    /// Number of records of the published split that the hub does not have.
    pub lost: usize,
}
