//! Tables in the format of the hub: parquet files of nullable columns, with texts, numbers and
//! lists of texts.

use std::sync::Arc;

use parquet::basic::{Compression, LogicalType, Repetition, Type as Physical, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int32Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::types::{Type, TypePtr};

enum Column {
    Texts(Vec<Option<String>>),
    Numbers(Vec<i32>),
    Lists(Vec<Option<Vec<String>>>),
}

/// Builder of a table.
#[derive(Default)]
pub struct Table {
    columns: Vec<(&'static str, Column)>,
    zstd: bool,
    group: Option<usize>,
}

impl Table {
    /// Adds a column of texts.
    pub fn texts<T: Into<String>>(
        self,
        name: &'static str,
        values: impl IntoIterator<Item = T>,
    ) -> Self {
        self.nullable_texts(name, values.into_iter().map(Some))
    }

    /// Adds a column of texts, some of them null.
    pub fn nullable_texts<T: Into<String>>(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<T>>,
    ) -> Self {
        let values = values.into_iter().map(|value| value.map(Into::into));
        self.columns.push((name, Column::Texts(values.collect())));
        self
    }

    /// Adds a column of numbers.
    pub fn numbers(mut self, name: &'static str, values: impl IntoIterator<Item = i32>) -> Self {
        let values = values.into_iter().collect();
        self.columns.push((name, Column::Numbers(values)));
        self
    }

    /// Adds a column of lists, some of them null.
    pub fn lists(
        mut self,
        name: &'static str,
        values: impl IntoIterator<Item = Option<Vec<String>>>,
    ) -> Self {
        let values = values.into_iter().collect();
        self.columns.push((name, Column::Lists(values)));
        self
    }

    /// Compresses with zstd instead of snappy.
    pub fn zstd(mut self) -> Self {
        self.zstd = true;
        self
    }

    /// Writes row groups of this many rows instead of a single one.
    pub fn in_groups_of(mut self, rows: usize) -> Self {
        self.group = Some(rows);
        self
    }

    /// The bytes of the file.
    pub fn parquet(&self) -> Vec<u8> {
        self.write().unwrap()
    }

    fn write(&self) -> Result<Vec<u8>, ParquetError> {
        let fields = self.columns.iter().map(|(name, column)| column.field(name));
        let schema = Type::group_type_builder("schema")
            .with_fields(fields.collect::<Result<_, _>>()?)
            .build()?;
        let compression = match self.zstd {
            true => Compression::ZSTD(ZstdLevel::default()),
            false => Compression::SNAPPY,
        };
        let properties = WriterProperties::builder()
            .set_compression(compression)
            .build();
        let mut writer =
            SerializedFileWriter::new(Vec::new(), Arc::new(schema), Arc::new(properties))?;
        let rows = self.columns.first().map_or(0, |(_, column)| column.len());
        let step = self.group.unwrap_or(rows).max(1);
        for first in (0..rows).step_by(step) {
            let mut group = writer.next_row_group()?;
            for (_, column) in &self.columns {
                column.write(&mut group, first..rows.min(first + step))?;
            }
            group.close()?;
        }
        writer.into_inner()
    }
}

impl Column {
    fn len(&self) -> usize {
        match self {
            Self::Texts(values) => values.len(),
            Self::Numbers(values) => values.len(),
            Self::Lists(values) => values.len(),
        }
    }

    /// Type of a column in the schema. Every column is nullable, as those of the hub are.
    fn field(&self, name: &str) -> Result<TypePtr, ParquetError> {
        let text = |name: &str| {
            Type::primitive_type_builder(name, Physical::BYTE_ARRAY)
                .with_repetition(Repetition::OPTIONAL)
                .with_logical_type(Some(LogicalType::String))
                .build()
        };
        let field = match self {
            Self::Texts(_) => text(name)?,
            Self::Numbers(_) => Type::primitive_type_builder(name, Physical::INT32)
                .with_repetition(Repetition::OPTIONAL)
                .build()?,
            Self::Lists(_) => {
                let list = Type::group_type_builder("list")
                    .with_repetition(Repetition::REPEATED)
                    .with_fields(vec![Arc::new(text("element")?)])
                    .build()?;
                Type::group_type_builder(name)
                    .with_repetition(Repetition::OPTIONAL)
                    .with_logical_type(Some(LogicalType::List))
                    .with_fields(vec![Arc::new(list)])
                    .build()?
            }
        };
        Ok(Arc::new(field))
    }

    fn write(
        &self,
        group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
        rows: std::ops::Range<usize>,
    ) -> Result<(), ParquetError> {
        let bytes = |text: &String| ByteArray::from(text.as_str());
        match self {
            Self::Texts(values) => {
                let values = &values[rows];
                let there: Vec<i16> = values.iter().map(|v| i16::from(v.is_some())).collect();
                let values: Vec<_> = values.iter().flatten().map(bytes).collect();
                put::<ByteArrayType>(group, &values, &there, None)
            }
            Self::Numbers(values) => {
                let values = &values[rows];
                put::<Int32Type>(group, values, &vec![1; values.len()], None)
            }
            Self::Lists(values) => {
                let (mut texts, mut there, mut repeats) = (Vec::new(), Vec::new(), Vec::new());
                for list in &values[rows] {
                    let entries = list.as_deref().unwrap_or_default();
                    if entries.is_empty() {
                        // 0: no list; 1: a list without entries.
                        there.push(i16::from(list.is_some()));
                        repeats.push(0);
                    }
                    for (index, text) in entries.iter().enumerate() {
                        texts.push(bytes(text));
                        there.push(3);
                        repeats.push(i16::from(index > 0));
                    }
                }
                put::<ByteArrayType>(group, &texts, &there, Some(&repeats))
            }
        }
    }
}

fn put<T: DataType>(
    group: &mut SerializedRowGroupWriter<'_, Vec<u8>>,
    values: &[T::T],
    there: &[i16],
    repeats: Option<&[i16]>,
) -> Result<(), ParquetError> {
    if let Some(mut column) = group.next_column()? {
        let writer = column.typed::<T>();
        writer.write_batch(values, Some(there), repeats)?;
        column.close()?;
    }
    Ok(())
}
