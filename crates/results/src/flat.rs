//! One table for a whole run: the rows of all cells, with columns that identify the cell.

use std::collections::BTreeSet;
use std::path::Path;

use crate::publish::cells;
use crate::{CellReader, ColumnData, HeadRow, PromptRow, ResultsError, RoundRow, Row, UpdateRow};

/// A column of a [`FlatTable`].
#[derive(Debug, Clone, PartialEq)]
pub struct FlatColumn {
    /// Its name.
    pub name: String,
    /// Meaning and unit, one line.
    pub doc: String,
    /// True if tables may lack it.
    optional: bool,
    /// The values. Unknown ones are the maximum number, NaN or an empty text.
    pub data: ColumnData,
}

impl FlatColumn {
    /// True if row `index` has no value: it was not recorded, or the quantity is undefined.
    pub fn is_null(&self, index: usize) -> bool {
        match &self.data {
            ColumnData::F64(values) => values.get(index).is_none_or(|value| value.is_nan()),
            ColumnData::U32(values) => self.optional && values.get(index) == Some(&u32::MAX),
            ColumnData::U64(values) => self.optional && values.get(index) == Some(&u64::MAX),
            ColumnData::Text(values) => {
                self.optional && values.get(index).is_none_or(String::is_empty)
            }
        }
    }

    /// The value of row `index` as text; `None` if there is none.
    pub fn text(&self, index: usize) -> Option<String> {
        if self.is_null(index) {
            return None;
        }
        match &self.data {
            ColumnData::Text(values) => values.get(index).cloned(),
            ColumnData::U32(values) => values.get(index).map(u32::to_string),
            ColumnData::U64(values) => values.get(index).map(u64::to_string),
            ColumnData::F64(values) => values.get(index).map(f64::to_string),
        }
    }
}

/// The kinds of rows of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlatKind {
    /// One row per answer.
    Prompts,
    /// One row per speculative round.
    Rounds,
    /// One row per update of a drafter.
    Updates,
    /// One row per training step of an acceptance head.
    Heads,
}

/// The rows of all cells of a run. The columns `stage`, `cell` and every axis of the grid come
/// first, then those of the table, except axes that it has itself.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FlatTable {
    /// The columns, all of the same length.
    pub columns: Vec<FlatColumn>,
}

impl FlatTable {
    /// Reads the run in `root`; `stage` restricts it to one stage.
    ///
    /// # Errors
    /// A folder that cannot be read or has no cell of that stage; a damaged table, with its file.
    pub fn read(root: &Path, kind: FlatKind, stage: Option<&str>) -> Result<Self, ResultsError> {
        let mut readers = Vec::new();
        for dir in cells(root)? {
            let reader = CellReader::open(&dir)?;
            if stage.is_none_or(|stage| reader.manifest().cell.stage == stage) {
                readers.push(reader);
            }
        }
        if readers.is_empty() {
            return Err(ResultsError::NoCells {
                path: root.to_path_buf(),
                stage: stage.map(str::to_owned),
            });
        }
        match kind {
            FlatKind::Prompts => Self::of::<PromptRow>(&readers, CellReader::prompts),
            FlatKind::Rounds => Self::of::<RoundRow>(&readers, CellReader::rounds),
            FlatKind::Updates => Self::of::<UpdateRow>(&readers, CellReader::updates),
            FlatKind::Heads => Self::of::<HeadRow>(&readers, CellReader::heads),
        }
    }

    fn of<R: Row>(
        readers: &[CellReader],
        read: impl Fn(&CellReader) -> Result<Vec<R>, ResultsError>,
    ) -> Result<Self, ResultsError> {
        let own: BTreeSet<&str> = R::COLUMNS.iter().map(|column| column.name).collect();
        let mut axes: Vec<&str> = Vec::new();
        for reader in readers {
            for (axis, _) in &reader.manifest().cell.coordinates {
                if !own.contains(axis.as_str()) && !axes.contains(&axis.as_str()) {
                    axes.push(axis);
                }
            }
        }
        let mut keys = vec![Vec::new(); 2 + axes.len()];
        let mut rows: Vec<R> = Vec::new();
        for reader in readers {
            let found = read(reader)?;
            let cell = &reader.manifest().cell;
            let values = [cell.stage.as_str(), &cell.name].into_iter();
            let values = values.chain(axes.iter().map(|axis| cell.coordinate(axis).unwrap_or("")));
            for (column, value) in keys.iter_mut().zip(values) {
                column.extend(std::iter::repeat_n(value.to_owned(), found.len()));
            }
            rows.extend(found);
        }
        let names = ["stage", "cell"].into_iter().chain(axes);
        let mut columns = Vec::new();
        for (name, values) in names.zip(keys) {
            let doc = match name {
                "stage" => "Stage of the experiment.".to_owned(),
                "cell" => "Cell of the grid, which is its folder's name.".to_owned(),
                axis => format!("Value of the axis `{axis}`."),
            };
            columns.push(FlatColumn {
                name: name.to_owned(),
                doc,
                optional: true,
                data: ColumnData::Text(values),
            });
        }
        for (column, data) in R::COLUMNS.iter().zip(R::to_columns(&rows)) {
            columns.push(FlatColumn {
                name: column.name.to_owned(),
                doc: column.doc.trim().to_owned(),
                optional: column.optional,
                data,
            });
        }
        Ok(Self { columns })
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.columns.first().map_or(0, |column| column.data.len())
    }

    /// True if there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
