//! Tables as named, typed columns.

/// Description of a column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name in the journal and in parquet.
    pub name: &'static str,
    /// Value type.
    pub kind: ColumnKind,
    /// Meaning and unit, one line.
    pub doc: &'static str,
    /// True if tables without the column, of older programs, can be read.
    pub optional: bool,
}

/// Value type of a column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// UTF-8 text.
    Text,
    /// Unsigned 32-bit integer.
    U32,
    /// Unsigned 64-bit integer.
    U64,
    /// 64-bit float; NaN for an undefined quantity.
    F64,
}

impl ColumnKind {
    /// Name used in messages and documentation.
    pub fn name(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F64 => "f64",
        }
    }
}

/// The values of one column, one per row.
#[derive(Debug, Clone, PartialEq)]
pub enum ColumnData {
    /// Text values.
    Text(Vec<String>),
    /// `u32` values.
    U32(Vec<u32>),
    /// `u64` values.
    U64(Vec<u64>),
    /// `f64` values.
    F64(Vec<f64>),
}

impl ColumnData {
    /// Number of values.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Text(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Their type.
    pub(crate) fn kind(&self) -> ColumnKind {
        match self {
            Self::Text(_) => ColumnKind::Text,
            Self::U32(_) => ColumnKind::U32,
            Self::U64(_) => ColumnKind::U64,
            Self::F64(_) => ColumnKind::F64,
        }
    }

    /// `len` unknown values.
    pub(crate) fn unknown(kind: ColumnKind, len: usize) -> Self {
        match kind {
            ColumnKind::Text => Self::Text(vec![String::new(); len]),
            ColumnKind::U32 => Self::U32(vec![u32::MAX; len]),
            ColumnKind::U64 => Self::U64(vec![u64::MAX; len]),
            ColumnKind::F64 => Self::F64(vec![f64::NAN; len]),
        }
    }

    /// True if all values are unknown. Texts count as known, so that a column of texts is always
    /// written.
    pub(crate) fn is_unknown(&self) -> bool {
        match self {
            Self::Text(_) => false,
            Self::U32(values) => values.iter().all(|value| *value == u32::MAX),
            Self::U64(values) => values.iter().all(|value| *value == u64::MAX),
            Self::F64(values) => values.iter().all(|value| value.is_nan()),
        }
    }
}
