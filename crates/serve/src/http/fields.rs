//! The fields of a request, read one by one: errors give the name of the field, and fields that are
//! neither read nor known to be harmless are refused.

use std::cell::RefCell;
use std::collections::BTreeSet;

use lm::is_inert;
use serde_json::{Map, Value};

use crate::error::ApiError;

/// Fields that change nothing of an answer.
const IGNORED: &[&str] = &[
    "cache_prompt",
    "cache_salt",
    "chat_id",
    "id",
    "message_id",
    "metadata",
    "parallel_tool_calls",
    "prediction",
    "priority",
    "prompt_cache_key",
    "prompt_cache_retention",
    "request_id",
    "safety_identifier",
    "service_tier",
    "session_id",
    "store",
];

/// Fields that would change the answer, each with the one value that is accepted, since the server
/// behaves like that anyway.
const ONE_VALUE: &[(&str, &str)] = &[
    ("add_special_tokens", "true"),
    ("best_of", "1"),
    ("detokenize", "true"),
    ("do_sample", "true"),
    ("length_penalty", "1"),
    ("modalities", "[\"text\"]"),
    ("repeat_penalty", "1"),
    ("response_format", "{\"type\":\"text\"}"),
    ("skip_special_tokens", "true"),
    ("spaces_between_special_tokens", "true"),
    ("tfs_z", "1"),
    ("typical_p", "1"),
    ("verbosity", "\"medium\""),
];

/// The fields of a JSON object, with a record of those that were read.
pub(super) struct Fields<'a> {
    object: &'a Map<String, Value>,
    /// Dotted name of the object followed by a dot, or empty.
    prefix: String,
    read: RefCell<BTreeSet<&'static str>>,
}

impl<'a> Fields<'a> {
    /// The fields of a body.
    pub(super) fn of(body: &'a Value) -> Result<Self, ApiError> {
        let object = body.as_object();
        let object = object.ok_or_else(|| ApiError::Malformed("it must be an object".into()))?;
        Ok(Self::within(object, String::new()))
    }

    pub(super) fn within(object: &'a Map<String, Value>, prefix: String) -> Self {
        Self {
            object,
            prefix,
            read: RefCell::default(),
        }
    }

    /// An error about a field.
    pub(super) fn error(&self, field: &str, message: impl Into<String>) -> ApiError {
        ApiError::invalid(format!("{}{field}", self.prefix), message)
    }

    fn wrong(&self, field: &str, value: &Value, wanted: &str) -> ApiError {
        let shown: String = value.to_string().chars().take(100).collect();
        self.error(field, format!("{field} must be {wanted}, not {shown}"))
    }

    /// The value of a field; `None` if it is absent or null.
    pub(super) fn value(&self, field: &'static str) -> Option<&'a Value> {
        self.read.borrow_mut().insert(field);
        self.object.get(field).filter(|value| !value.is_null())
    }

    fn read<T>(
        &self,
        field: &'static str,
        wanted: &str,
        of: impl FnOnce(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, ApiError> {
        let value = self.value(field);
        let read = value.map(|value| of(value).ok_or_else(|| self.wrong(field, value, wanted)));
        read.transpose()
    }

    pub(super) fn text(&self, field: &'static str) -> Result<Option<&'a str>, ApiError> {
        self.read(field, "a text", Value::as_str)
    }

    pub(super) fn flag(&self, field: &'static str) -> Result<Option<bool>, ApiError> {
        self.read(field, "true or false", Value::as_bool)
    }

    pub(super) fn number(&self, field: &'static str) -> Result<Option<f64>, ApiError> {
        self.read(field, "a number", Value::as_f64)
    }

    /// An integer of 64 bits.
    pub(super) fn whole(&self, field: &'static str) -> Result<Option<i64>, ApiError> {
        self.read(field, "a whole number of 64 bits", whole)
    }

    pub(super) fn object(
        &self,
        field: &'static str,
    ) -> Result<Option<&'a Map<String, Value>>, ApiError> {
        self.read(field, "an object", Value::as_object)
    }

    pub(super) fn list(&self, field: &'static str) -> Result<Option<&'a [Value]>, ApiError> {
        let list = |value: &'a Value| value.as_array().map(Vec::as_slice);
        self.read(field, "a list", list)
    }

    /// One text or a list of texts.
    pub(super) fn texts(&self, field: &'static str) -> Result<Vec<String>, ApiError> {
        let texts = self.read(field, "a text or a list of texts", |value| match value {
            Value::String(text) => Some(vec![text.clone()]),
            Value::Array(list) => list
                .iter()
                .map(|text| Some(text.as_str()?.to_owned()))
                .collect(),
            _ => None,
        });
        Ok(texts?.unwrap_or_default())
    }

    /// A count between two bounds, both inclusive.
    pub(super) fn count(
        &self,
        field: &'static str,
        least: usize,
        most: usize,
    ) -> Result<Option<usize>, ApiError> {
        let found = self.whole(field)?;
        let count = |found: i64| {
            let count = usize::try_from(found).ok();
            let count = count.filter(|n| (least..=most).contains(n));
            count.ok_or_else(|| {
                self.error(
                    field,
                    format!("{field}: {found} is not in {least}..={most}"),
                )
            })
        };
        found.map(count).transpose()
    }

    /// Refuses a field that was not read, unless it changes nothing.
    pub(super) fn finish(&self) -> Result<(), ApiError> {
        let read = self.read.borrow();
        for (field, value) in self.object {
            let known = read.contains(field.as_str()) || IGNORED.contains(&field.as_str());
            let usual = ONE_VALUE.iter().find(|(name, _)| name == field);
            // For these fields false and 0 are values of their own.
            let said = usual.is_some() && (value.is_boolean() || value.is_number());
            let usual = usual.and_then(|(_, usual)| serde_json::from_str(usual).ok());
            let usual = usual.is_some_and(|usual: Value| same(&usual, value));
            if !known && !usual && (said || !is_inert(value)) {
                let short: String = field.chars().take(100).collect();
                return Err(self.error(&short, format!("`{short}` is not supported")));
            }
        }
        Ok(())
    }
}

/// An integer, also if it is written with a decimal point.
fn whole(value: &Value) -> Option<i64> {
    let pointed = || {
        let number = value.as_f64()?;
        let fits = number.fract() == 0.0 && number.abs() < 9e15;
        fits.then_some(number as i64)
    };
    value.as_i64().or_else(pointed)
}

fn same(usual: &Value, value: &Value) -> bool {
    usual == value || usual.is_number() && usual.as_f64() == value.as_f64()
}
