//! The rows of the three tables. The structs are the schema: journal keys, parquet columns and documentation.

use serde::{Deserialize, Deserializer, Serialize, de::DeserializeOwned};

/// One column of a table, as documented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Name in the journal and in parquet.
    pub name: &'static str,
    /// Value type.
    pub kind: ColumnKind,
    /// Meaning and unit, one line.
    pub doc: &'static str,
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
    /// 64-bit float; NaN where a quantity is undefined.
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
    /// The index of the first column that is missing, has another type or length, or holds a value the row's
    /// type does not allow.
    fn from_columns(columns: Vec<ColumnData>) -> Result<Vec<Self>, usize>;
}

/// A field type that can be stored in a column.
trait Field: Sized + DeserializeOwned {
    const KIND: ColumnKind;
    fn pack(values: Vec<Self>) -> ColumnData;
    fn unpack(data: ColumnData) -> Option<Vec<Self>>;
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::deserialize(deserializer)
    }
}

fn read_field<'de, D: Deserializer<'de>, T: Field>(deserializer: D) -> Result<T, D::Error> {
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

macro_rules! text_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $text)] $variant,)+
        }

        impl $name {
            /// The text stored in the tables.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)+
                }
            }
        }

        impl Field for $name {
            const KIND: ColumnKind = ColumnKind::Text;
            fn pack(values: Vec<Self>) -> ColumnData {
                ColumnData::Text(values.into_iter().map(|v| v.as_str().to_owned()).collect())
            }
            fn unpack(data: ColumnData) -> Option<Vec<Self>> {
                let ColumnData::Text(values) = data else { return None };
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

text_enum! {
    /// Which part of a run a prompt belongs to.
    Phase {
        /// The stream the drafter may learn from.
        Train = "train",
        /// Held-out prompts, drafter frozen.
        Test = "test",
    }
}

text_enum! {
    /// Why a response ended.
    Finish {
        /// The target emitted an end token.
        End = "end",
        /// The token limit or the model's context was reached.
        Length = "length",
    }
}

macro_rules! row {
    (
        $(#[$meta:meta])*
        $name:ident in $table:literal {
            $(#[doc = $doc:literal] $field:ident: $type:ty,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $(
                #[doc = $doc]
                #[serde(deserialize_with = "read_field")]
                pub $field: $type,
            )+
        }

        impl Row for $name {
            const TABLE: &'static str = $table;
            const COLUMNS: &'static [Column] = &[
                $(Column {
                    name: stringify!($field),
                    kind: <$type as Field>::KIND,
                    doc: $doc,
                },)+
            ];

            fn to_columns(rows: &[Self]) -> Vec<ColumnData> {
                vec![$(
                    <$type as Field>::pack(rows.iter().map(|row| row.$field.clone()).collect()),
                )+]
            }

            fn from_columns(columns: Vec<ColumnData>) -> Result<Vec<Self>, usize> {
                let mut columns = columns.into_iter();
                let mut index = 0usize;
                let mut height = None;
                $(
                    let values = columns
                        .next()
                        .and_then(<$type as Field>::unpack)
                        .filter(|values| values.len() == *height.get_or_insert(values.len()))
                        .ok_or(index)?;
                    let mut $field = values.into_iter();
                    index += 1;
                )+
                let _ = index; // the last increment is never read
                let mut rows = Vec::with_capacity(height.unwrap_or(0));
                // All columns have the same length, so the first to run out ends the table.
                while let ($(Some($field),)+) = ($($field.next(),)+) {
                    rows.push(Self { $($field,)+ });
                }
                Ok(rows)
            }
        }
    };
}

row! {
    /// One speculative round: draft, translate, verify, commit. Plain decoding has one round per token with
    /// nothing drafted or proposed.
    RoundRow in "rounds" {
        /// Arm (method) of the run.
        arm: String,
        /// Seed of the repetition.
        seed: u64,
        /// Stream segment, counted from 0.
        segment: u32,
        /// `train` (the stream) or `test` (held-out prompts).
        phase: Phase,
        /// Position of the prompt within its segment and phase, counted from 0.
        prompt_index: u32,
        /// Round within the prompt, counted from 0.
        round: u32,
        /// Draft tokens proposed by the drafter before translation.
        draft_tokens: u32,
        /// Target tokens put to the target for verification, after translation.
        proposed: u32,
        /// Proposed target tokens that were accepted.
        accepted: u32,
        /// Target tokens committed: accepted ones plus the target's own token.
        emitted: u32,
        /// Bytes of text of the committed tokens; special tokens have none.
        emitted_bytes: u32,
        /// Proposed target tokens that came from the n-gram cache.
        ngrams_proposed: u32,
        /// Accepted target tokens that came from the n-gram cache.
        ngrams_accepted: u32,
        /// Expected acceptance: mean over the proposed tokens of sum min(p, q'); to four digits; NaN when nothing was proposed.
        expected_acceptance: f64,
        /// Seconds in the drafter's forwards and sampling, to the microsecond as those below.
        draft_s: f64,
        /// Seconds of translation to target tokens.
        translate_s: f64,
        /// Seconds of the target's forward and the acceptance test.
        verify_s: f64,
        /// Seconds of committing: caches rolled back, text re-tokenised, n-grams inserted.
        commit_s: f64,
    }
}

row! {
    /// One prompt and its response.
    PromptRow in "prompts" {
        /// Arm (method) of the run.
        arm: String,
        /// Seed of the repetition.
        seed: u64,
        /// Stream segment, counted from 0.
        segment: u32,
        /// `train` (the stream) or `test` (held-out prompts).
        phase: Phase,
        /// Name of the task, as shown in tables.
        task: String,
        /// Name of the target model, as shown in tables.
        target: String,
        /// Position of the prompt within its segment and phase, counted from 0.
        prompt_index: u32,
        /// The prompt's own identifier in its data file.
        prompt_id: String,
        /// Prompt length in target tokens.
        prompt_tokens: u32,
        /// Target tokens generated.
        new_tokens: u32,
        /// Bytes of text generated; special tokens have none.
        new_bytes: u32,
        /// Speculative rounds, one target forward each.
        rounds: u32,
        /// Draft tokens over all rounds.
        draft_tokens: u32,
        /// Proposed target tokens over all rounds.
        proposed: u32,
        /// Accepted target tokens over all rounds.
        accepted: u32,
        /// Accepted target tokens that came from the n-gram cache, over all rounds.
        ngram_hits: u32,
        /// Mean over the prompt's rounds of accepted / proposed (`stats::acceptance_rate`); NaN for plain decoding.
        acceptance_rate: f64,
        /// Seconds of decoding, prefill and learning apart.
        seconds: f64,
        /// Seconds of the prompt's prefill in target and drafter.
        prefill_s: f64,
        /// Seconds of learning that followed this prompt.
        learn_s: f64,
        /// Seconds of plain decoding of the same prompt in the same run; NaN when it was not measured.
        baseline_s: f64,
        /// Tokens that plain decoding generated in `baseline_s`; 0 when it was not measured.
        baseline_tokens: u32,
        /// Entries of the n-gram cache after the prompt.
        cache_ngrams: u32,
        /// Memory of the n-gram cache after the prompt, bytes.
        cache_bytes: u64,
        /// `end` or `length`.
        finish: Finish,
        /// SHA-256 over the generated target ids (little-endian u32), hexadecimal.
        tokens_hash: String,
    }
}

row! {
    /// One optimiser update of the drafter (Algorithm 2).
    UpdateRow in "updates" {
        /// Arm (method) of the run.
        arm: String,
        /// Seed of the repetition.
        seed: u64,
        /// Stream segment, counted from 0.
        segment: u32,
        /// Update within the arm and seed, counted from 0.
        update: u32,
        /// Prompts of the stream seen before this update.
        prompts_seen: u32,
        /// What was minimised: L_DM + lambda L_N-gram, or ALM.
        loss: f64,
        /// Direct term in nats per position, reverse KL (Eq. 3) unless configured otherwise; for ALM, divergence per chunk.
        loss_dm: f64,
        /// N-gram term in nats per draft token, negative log-likelihood (Eq. 4) unless configured otherwise.
        loss_ngram: f64,
        /// Positions that contributed to the direct term; for ALM, chunks.
        dm_positions: u32,
        /// Draft tokens that contributed to L_N-gram.
        ngram_tokens: u32,
        /// Norm of the gradient before clipping.
        grad_norm: f64,
        /// Seconds of the update.
        seconds: f64,
    }
}

row! {
    /// One turn of training of an acceptance head (Algorithms 3 and 4). The columns from `fresh` to `calibration_error` are of
    /// judged draft tokens the head has not been trained on.
    HeadRow in "heads" {
        /// Arm (method) of the run.
        arm: String,
        /// Seed of the repetition.
        seed: u64,
        /// Stream segment, counted from 0.
        segment: u32,
        /// First step of the turn within the arm and seed, counted from 0.
        step: u32,
        /// Prompts of the stream seen before this step.
        prompts_seen: u32,
        /// Judged draft tokens that step was taken on.
        examples: u32,
        /// Weighted cross-entropy on them before the step, nats (Eq. 6-7).
        loss: f64,
        /// Judged draft tokens that came in since the turn before.
        fresh: u32,
        /// Weighted cross-entropy on those, nats; NaN, as the next three, when there were none.
        fresh_loss: f64,
        /// Mean predicted acceptance.
        predicted: f64,
        /// Mean label min(1, p / q').
        accepted: f64,
        /// Mean distance between predicted and true acceptance over ten bins of prediction.
        calibration_error: f64,
        /// Seconds of the turn.
        seconds: f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn update(loss: f64) -> UpdateRow {
        UpdateRow {
            arm: "L_DM".into(),
            seed: 7,
            segment: 1,
            update: 3,
            prompts_seen: 32,
            loss,
            loss_dm: 1.5,
            loss_ngram: 0.0,
            dm_positions: 40,
            ngram_tokens: 0,
            grad_norm: 0.25,
            seconds: 0.125,
        }
    }

    #[test]
    fn rows_survive_transposition() {
        let rows = vec![update(1.0), update(2.0)];
        assert_eq!(
            UpdateRow::from_columns(UpdateRow::to_columns(&rows)),
            Ok(rows)
        );
    }

    #[test]
    fn a_wrong_column_is_named_by_its_index() {
        let mut columns = UpdateRow::to_columns(&[update(1.0)]);
        columns[5] = ColumnData::U32(vec![1]);
        assert_eq!(UpdateRow::from_columns(columns), Err(5));
        let mut columns = UpdateRow::to_columns(&[update(1.0)]);
        columns[2] = ColumnData::U32(vec![1, 2]);
        assert_eq!(UpdateRow::from_columns(columns), Err(2));
    }

    #[test]
    fn a_diverged_loss_survives_json() {
        let json = serde_json::to_string(&update(f64::NAN)).unwrap();
        assert!(json.contains(r#""loss":null"#), "{json}");
        let row: UpdateRow = serde_json::from_str(&json).unwrap();
        assert!(row.loss.is_nan());
    }

    #[test]
    fn the_schema_lists_every_field_once() {
        let json = serde_json::to_value(update(1.0)).unwrap();
        let names: Vec<_> = UpdateRow::COLUMNS.iter().map(|c| c.name).collect();
        let keys: std::collections::BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(keys.len(), names.len());
        assert!(
            json.as_object()
                .unwrap()
                .keys()
                .all(|k| keys.contains(k.as_str()))
        );
    }

    #[test]
    fn unknown_text_values_are_refused() {
        assert_eq!(Phase::unpack(ColumnData::Text(vec!["valid".into()])), None);
        assert_eq!(
            Finish::unpack(ColumnData::Text(vec!["end".into()])),
            Some(vec![Finish::End])
        );
    }
}
