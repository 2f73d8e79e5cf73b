//! Reader of the parquet files that the hub converts its datasets to.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::reader::RowIter;
use parquet::schema::types::Type;
use serde_json::{Map, Value};

/// The rows of a parquet file, with the named columns. A column may hold texts, numbers, or lists
/// of them.
pub(crate) fn read_rows(
    path: &Path,
    columns: &[&str],
) -> Result<impl Iterator<Item = Result<Map<String, Value>, ParquetError>>, ParquetError> {
    let reader = SerializedFileReader::new(File::open(path)?)?;
    let schema = reader.metadata().file_metadata().schema();
    let fields: Vec<Arc<Type>> = columns
        .iter()
        .map(|name| {
            let found = schema.get_fields().iter().find(|f| f.name() == *name);
            let missing = || ParquetError::General(format!("there is no column `{name}`"));
            found.cloned().ok_or_else(missing)
        })
        .collect::<Result<_, _>>()?;
    let wanted = Type::group_type_builder(schema.name())
        .with_fields(fields)
        .build()?;
    let rows = RowIter::from_file_into(Box::new(reader)).project(Some(wanted))?;
    Ok(rows.map(|row| {
        Ok(match row?.to_json_value() {
            Value::Object(fields) => fields,
            _ => Map::new(),
        })
    }))
}
