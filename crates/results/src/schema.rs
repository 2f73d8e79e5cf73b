//! Conversion of row structs to columns and back: the macros for [`crate::rows`].

use crate::column::{Column, ColumnData, ColumnKind};
use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

/// A row struct that is stored as a table.
pub trait Row: Serialize + DeserializeOwned + Clone {
    /// Name of the table, the stem of its files.
    const TABLE: &'static str;
    /// The columns in order.
    const COLUMNS: &'static [Column];
    /// Transposes rows into columns, in the order of [`Self::COLUMNS`].
    fn to_columns(rows: &[Self]) -> Vec<ColumnData>;
    /// Transposes columns back into rows.
    ///
    /// # Errors
    /// The index of the first column that is missing, has another type or length, or holds a value
    /// the row's type does not allow.
    fn from_columns(columns: Vec<ColumnData>) -> Result<Vec<Self>, usize>;
}

/// A field type that can be stored in a column.
pub(crate) trait Field: Sized + DeserializeOwned {
    const KIND: ColumnKind;
    /// True if a table may lack the column.
    const OPTIONAL: bool = false;
    fn pack(values: Vec<Self>) -> ColumnData;
    fn unpack(data: ColumnData) -> Option<Vec<Self>>;
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

pub(crate) fn read_field<'de, D: Deserializer<'de>, T: Field>(
    deserializer: D,
) -> Result<T, D::Error> {
    T::read(deserializer)
}

macro_rules! plain_field {
    ($type:ty, $kind:ident $(, $read:item)?) => {
        impl Field for $type {
            const KIND: ColumnKind = ColumnKind::$kind;
            fn pack(values: Vec<Self>) -> ColumnData {
                ColumnData::$kind(values)
            }
            fn unpack(data: ColumnData) -> Option<Vec<Self>> {
                match data {
                    ColumnData::$kind(values) => Some(values),
                    _ => None,
                }
            }
            $($read)?
        }
    };
}

plain_field!(String, Text);
plain_field!(u32, U32);
plain_field!(u64, U64);
plain_field!(
    f64,
    F64,
    // JSON has no NaN; serde_json writes `null` for it.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
    }
);

/// A value of a column that older tables lack; a value that cannot occur stands for an unknown one.
macro_rules! optional_field {
    ($type:ty, $kind:ident, $unknown:expr, $is_unknown:expr) => {
        impl Field for Option<$type> {
            const KIND: ColumnKind = ColumnKind::$kind;
            const OPTIONAL: bool = true;
            fn pack(values: Vec<Self>) -> ColumnData {
                let values = values.into_iter().map(|v| v.unwrap_or($unknown));
                ColumnData::$kind(values.collect())
            }
            fn unpack(data: ColumnData) -> Option<Vec<Self>> {
                let is_unknown: fn(&$type) -> bool = $is_unknown;
                let values = <$type>::unpack(data)?.into_iter();
                Some(values.map(|v| (!is_unknown(&v)).then_some(v)).collect())
            }
        }
    };
}

optional_field!(u32, U32, u32::MAX, |v| *v == u32::MAX);
optional_field!(f64, F64, f64::NAN, |v| v.is_nan());
optional_field!(String, Text, String::new(), |v| v.is_empty());

macro_rules! text_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize,
            serde::Deserialize,
        )]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// The text that is stored.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl crate::schema::Field for $name {
            const KIND: crate::ColumnKind = crate::ColumnKind::Text;
            fn pack(values: Vec<Self>) -> crate::ColumnData {
                crate::ColumnData::Text(values.into_iter().map(|v| v.as_str().to_owned()).collect())
            }
            fn unpack(data: crate::ColumnData) -> Option<Vec<Self>> {
                let crate::ColumnData::Text(values) = data else { return None };
                values
                    .iter()
                    .map(|text| match text.as_str() {
                        $($text => Some(Self::$variant),)+
                        _ => None,
                    })
                    .collect()
            }
        }
    };
}

macro_rules! row {
    (
        $(#[$meta:meta])*
        $name:ident in $table:literal {
            $(#[doc = $doc:literal] $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Default, PartialEq, serde::Serialize, serde::Deserialize)]
        pub struct $name {
            $(
                #[doc = $doc]
                #[serde(deserialize_with = "crate::schema::read_field")]
                pub $field: $type,
            )+
        }

        impl crate::Row for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [crate::Column] = &[
                $(crate::Column {
                    name: stringify!($field),
                    kind: <$type as crate::schema::Field>::KIND,
                    doc: $doc,
                    optional: <$type as crate::schema::Field>::OPTIONAL,
                },)+
            ];

            fn to_columns(rows: &[Self]) -> Vec<crate::ColumnData> {
                vec![$(
                    <$type as crate::schema::Field>::pack(rows.iter().map(|row| row.$field.clone()).collect()),
                )+]
            }

            fn from_columns(columns: Vec<crate::ColumnData>) -> Result<Vec<Self>, usize> {
                let mut columns = columns.into_iter();
                let mut index = 0usize;
                let mut height = None;
                $(
                    let values = columns
                        .next()
                        .and_then(<$type as crate::schema::Field>::unpack)
                        .filter(|values| values.len() == *height.get_or_insert(values.len()))
                        .ok_or(index)?;
                    let mut $field = values.into_iter();
                    index += 1;
                )+
                let _ = index; // the last increment is never read
                let mut rows = Vec::with_capacity(height.unwrap_or(0));
                // All columns have the same length, so that the first one to end is the end of the
                // table.
                while let ($(Some($field),)+) = ($($field.next(),)+) {
                    rows.push(Self { $($field,)+ });
                }
                Ok(rows)
            }
        }
    };
}

pub(crate) use {row, text_enum};
