//! Records of a stream and the JSON-lines reader.

use std::collections::HashMap;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::StreamError;

/// One prompt of a stream, without any chat template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Unique within its file.
    pub id: String,
    /// The task it was loaded as, for example `gsm8k` or `mini-math`.
    pub task: String,
    /// The text the model is asked.
    pub prompt: String,
    /// The published answer; empty where the record has none.
    pub reference: String,
}

/// Reads the prompts of a JSON-lines file in file order.
///
/// `id` and a non-blank `prompt` are required, `reference` is optional, other fields and blank lines are ignored.
///
/// # Errors
/// Unreadable file, invalid UTF-8, malformed line, missing or empty field, repeated id, no record at all; each names
/// the file and the line.
pub fn load_prompts(path: &Path, task: &str) -> Result<Vec<Prompt>, StreamError> {
    parse_prompts(&read(path)?, path, task)
}

/// [`load_prompts`] on bytes already read; `path` is only named in errors.
///
/// # Errors
/// As [`load_prompts`].
pub fn parse_prompts(bytes: &[u8], path: &Path, task: &str) -> Result<Vec<Prompt>, StreamError> {
    records(bytes, path, |record| {
        Ok(Prompt {
            id: record.required("id")?,
            task: task.to_owned(),
            prompt: record.required("prompt")?,
            reference: record.optional("reference")?.unwrap_or_default(),
        })
    })
}

/// Reads `(id, text)` pairs of a JSON-lines file, the text taken from `field`; what tokenizer and cache replays need.
///
/// # Errors
/// As [`load_prompts`]; an empty text is an error.
pub fn load_texts(path: &Path, field: &str) -> Result<Vec<(String, String)>, StreamError> {
    records(&read(path)?, path, |record| {
        Ok((record.required("id")?, record.required(field)?))
    })
}

fn read(path: &Path) -> Result<Vec<u8>, StreamError> {
    std::fs::read(path).map_err(|source| StreamError::Read {
        path: path.to_owned(),
        source,
    })
}

/// One parsed line with what its errors must name.
struct Record<'a> {
    path: &'a Path,
    line: usize,
    fields: Map<String, Value>,
}

impl Record<'_> {
    fn required(&self, field: &str) -> Result<String, StreamError> {
        let (path, line) = (self.path, self.line);
        let text = self
            .optional(field)?
            .ok_or_else(|| StreamError::MissingField {
                path: path.to_owned(),
                line,
                field: field.to_owned(),
            })?;
        if text.trim().is_empty() {
            return Err(StreamError::EmptyField {
                path: path.to_owned(),
                line,
                field: field.to_owned(),
            });
        }
        Ok(text)
    }

    fn optional(&self, field: &str) -> Result<Option<String>, StreamError> {
        match self.fields.get(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(_) => Err(StreamError::NotAString {
                path: self.path.to_owned(),
                line: self.line,
                field: field.to_owned(),
            }),
        }
    }
}

/// Parses every non-blank line with `build` and refuses repeated ids and empty files.
fn records<T>(
    bytes: &[u8],
    path: &Path,
    build: impl Fn(&Record) -> Result<T, StreamError>,
) -> Result<Vec<T>, StreamError> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut first_lines: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    for (index, raw) in bytes.split(|&b| b == b'\n').enumerate() {
        let line = index + 1;
        let text = std::str::from_utf8(raw).map_err(|e| StreamError::InvalidUtf8 {
            path: path.to_owned(),
            line,
            byte: e.valid_up_to(),
        })?;
        if text.trim().is_empty() {
            continue;
        }
        let fields = serde_json::from_str(text).map_err(|source| StreamError::MalformedLine {
            path: path.to_owned(),
            line,
            source,
        })?;
        let record = Record { path, line, fields };
        let id = record.required("id")?;
        if let Some(first_line) = first_lines.insert(id.clone(), line) {
            return Err(StreamError::DuplicateId {
                path: path.to_owned(),
                line,
                first_line,
                id,
            });
        }
        out.push(build(&record)?);
    }
    if out.is_empty() {
        return Err(StreamError::EmptyStream {
            stream: path.display().to_string(),
        });
    }
    Ok(out)
}
