//! Records of a stream and the JSON-lines reader.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;

use flate2::read::MultiGzDecoder;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{LineFault, StreamError};

/// One prompt of a stream, without any chat template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prompt {
    /// Id, unique within its file.
    pub id: String,
    /// Name of the task that it was loaded from, for example `gsm8k` or `mini-math`.
    pub task: String,
    /// The text that the model is given.
    pub prompt: String,
    /// The published answer; empty if the record has none.
    pub reference: String,
    /// The questions before it in the same conversation, oldest first; empty except in benchmarks
    /// of several turns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<String>,
}

/// A text of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// Id, unique within the file.
    pub id: String,
    /// The text.
    pub text: String,
}

/// Reads the texts of a JSON-lines file: the field `field` of every record. Checks of tokenizers
/// and caches on real text use it.
///
/// # Errors
/// As [`load_prompts`](crate::load_prompts); an empty text is an error.
pub fn load_texts(path: &Path, field: &str) -> Result<Vec<Text>, StreamError> {
    records(&read(path)?, path, |record| {
        Ok(Text {
            id: record.required(record.id_field())?,
            text: record.required(field)?,
        })
    })
}

/// Largest size of a decompressed file, in bytes.
const MOST_BYTES: u64 = 4 << 30;
/// First bytes of a file compressed by gzip.
const GZIP: &[u8] = &[0x1f, 0x8b];

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, StreamError> {
    let failed = StreamError::read(path);
    let bytes = std::fs::read(path).map_err(failed)?;
    if path.extension().is_none_or(|extension| extension != "gz") {
        return Ok(bytes);
    }
    let mut text = Vec::new();
    let mut reader = MultiGzDecoder::new(&*bytes).take(MOST_BYTES + 1);
    reader.read_to_end(&mut text).map_err(failed)?;
    match text.len() as u64 > MOST_BYTES {
        true => Err(failed(std::io::Error::other(format!(
            "it holds more than {MOST_BYTES} bytes"
        )))),
        false => Ok(text),
    }
}

/// True if the file's name says that it holds one JSON array rather than lines.
fn is_array(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.trim_end_matches(".gz").ends_with(".json")
}

/// Fields that identify a record, in the order they are looked for.
const IDS: [&str; 3] = ["id", "question_id", "task_id"];

/// One parsed object, with the place that its errors name.
pub(crate) struct Record<'a> {
    path: &'a Path,
    line: usize,
    fields: Map<String, Value>,
}

impl Record<'_> {
    /// A field, unless it is null.
    pub(crate) fn field(&self, field: &str) -> Option<&Value> {
        self.fields.get(field).filter(|value| !value.is_null())
    }

    /// The field that identifies it.
    pub(crate) fn id_field(&self) -> &'static str {
        let mut known = IDS.into_iter().filter(|id| self.field(id).is_some());
        known.next().unwrap_or(IDS[0])
    }

    /// A list of texts; `None` if there is no such field.
    pub(crate) fn texts(&self, field: &str) -> Result<Option<Vec<String>>, StreamError> {
        let Some(value) = self.field(field) else {
            return Ok(None);
        };
        let texts = value.as_array().and_then(|items| {
            let texts = items.iter().map(|item| item.as_str().map(str::to_owned));
            texts.collect()
        });
        let wrong = || self.fault(LineFault::NotTexts(field.to_owned()));
        texts.ok_or_else(wrong).map(Some)
    }

    pub(crate) fn fault(&self, fault: LineFault) -> StreamError {
        fault.at(self.path, self.line)
    }

    /// A text that must be there and not be blank.
    pub(crate) fn required(&self, field: &str) -> Result<String, StreamError> {
        let fault = match self.optional(field)? {
            None => LineFault::MissingField(field.to_owned()),
            Some(text) if text.trim().is_empty() => LineFault::EmptyField(field.to_owned()),
            Some(text) => return Ok(text),
        };
        Err(self.fault(fault))
    }

    /// A text; `None` if there is no such field.
    pub(crate) fn optional(&self, field: &str) -> Result<Option<String>, StreamError> {
        match self.fields.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            // Exported tables have row numbers as ids.
            Some(Value::Number(number)) if IDS.contains(&field) && !number.is_f64() => {
                Ok(Some(number.to_string()))
            }
            Some(_) => Err(self.fault(LineFault::NotAString(field.to_owned()))),
        }
    }
}

/// Builds a value of every record of a file with `build`, and refuses repeated ids and empty files.
pub(crate) fn records<T>(
    bytes: &[u8],
    path: &Path,
    build: impl Fn(&Record) -> Result<T, StreamError>,
) -> Result<Vec<T>, StreamError> {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut first_lines: HashMap<String, usize> = HashMap::new();
    let mut out = Vec::new();
    let mut add = |line: usize, fields: Map<String, Value>| {
        let record = Record { path, line, fields };
        let id = record.required(record.id_field())?;
        if let Some(first_line) = first_lines.insert(id.clone(), line) {
            return Err(record.fault(LineFault::DuplicateId { id, first_line }));
        }
        out.push(build(&record)?);
        Ok(())
    };
    match is_array(path) {
        true => elements(bytes, path, &mut add)?,
        false => lines(bytes, path, &mut add)?,
    }
    if out.is_empty() {
        return Err(StreamError::EmptyStream(path.display().to_string()));
    }
    Ok(out)
}

type Add<'a> = &'a mut dyn FnMut(usize, Map<String, Value>) -> Result<(), StreamError>;

/// Passes each object of a JSON-lines file to `add`.
fn lines(bytes: &[u8], path: &Path, add: Add<'_>) -> Result<(), StreamError> {
    if bytes.starts_with(GZIP) {
        return Err(LineFault::OtherFormat("compressed by gzip").at(path, 1));
    }
    for (index, raw) in bytes.split(|&b| b == b'\n').enumerate() {
        let line = index + 1;
        let text = std::str::from_utf8(raw)
            .map_err(|e| LineFault::InvalidUtf8(e.valid_up_to()).at(path, line))?;
        if text.trim().is_empty() {
            continue;
        }
        let fields = serde_json::from_str(text);
        let fields = fields.map_err(|source| match text.trim_start().starts_with('[') {
            true => LineFault::OtherFormat("a JSON array").at(path, line),
            false => StreamError::MalformedLine {
                path: path.to_owned(),
                line,
                source,
            },
        })?;
        add(line, fields)?;
    }
    Ok(())
}

/// Passes each object of a file that is one JSON array to `add`.
fn elements(bytes: &[u8], path: &Path, add: Add<'_>) -> Result<(), StreamError> {
    let (mut at, mut line, mut counted) = (0, 1, 0);
    // The next byte that is not white space, and its line.
    let mut next = |at: &mut usize| {
        while bytes.get(*at).is_some_and(u8::is_ascii_whitespace) {
            *at += 1;
        }
        line += bytes[counted..*at].iter().filter(|b| **b == b'\n').count();
        counted = *at;
        (bytes.get(*at).copied(), line)
    };
    let broken = |line, wanted| LineFault::BrokenArray(wanted).at(path, line);
    match next(&mut at) {
        (Some(b'['), _) => at += 1,
        (_, line) => return Err(broken(line, "`[` at the beginning")),
    }
    let mut first = true;
    loop {
        match next(&mut at) {
            (Some(b']'), _) => {
                at += 1;
                break;
            }
            (Some(b','), _) if !first => at += 1,
            (Some(_), _) if first => {}
            (_, line) => return Err(broken(line, "`,` or `]`")),
        }
        let (_, line) = next(&mut at);
        let mut element = serde_json::Deserializer::from_slice(&bytes[at..]).into_iter();
        let fields = match element.next() {
            Some(Ok(fields)) => fields,
            Some(Err(source)) => {
                return Err(StreamError::MalformedLine {
                    path: path.to_owned(),
                    line,
                    source,
                });
            }
            None => return Err(broken(line, "an object")),
        };
        at += element.byte_offset();
        add(line, fields)?;
        first = false;
    }
    match next(&mut at) {
        (None, _) => Ok(()),
        (Some(_), line) => Err(broken(line, "nothing after `]`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_prompts;

    fn read_as(name: &str, bytes: &[u8]) -> Result<Vec<Prompt>, StreamError> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        load_prompts(&path, "task")
    }

    fn compressed(text: &str) -> Vec<u8> {
        use std::io::Write;
        let mut writer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        writer.write_all(text.as_bytes()).unwrap();
        writer.finish().unwrap()
    }

    const LINES: &str =
        "{\"id\": 7, \"prompt\": \"a\", \"reference\": null}\n{\"id\": \"b\", \"prompt\": \"b\"}\n";
    const ARRAY: &str =
        "[\n {\"id\": 7, \"prompt\": \"a\"},\n {\"id\": \"b\",\n  \"prompt\": \"b\"}\n]\n";

    #[test]
    fn exported_tables_are_read() {
        for (name, bytes) in [
            ("train.jsonl", LINES.as_bytes().to_vec()),
            ("train.json", ARRAY.as_bytes().to_vec()),
            ("train.jsonl.gz", compressed(LINES)),
            ("train.json.gz", compressed(ARRAY)),
        ] {
            let read = read_as(name, &bytes).unwrap();
            let ids: Vec<&str> = read.iter().map(|prompt| prompt.id.as_str()).collect();
            assert_eq!((ids, &*read[0].reference), (vec!["7", "b"], ""), "{name}");
        }
        assert!(matches!(
            read_as("train.json", b"[]"),
            Err(StreamError::EmptyStream(_))
        ));
    }

    #[test]
    fn what_is_refused_is_named_with_its_line() {
        for (name, bytes, what) in [
            (
                "a.jsonl",
                compressed(LINES),
                "a.jsonl:1: is compressed by gzip",
            ),
            (
                "a.json",
                LINES.as_bytes().to_vec(),
                "a.json:1: not a JSON array: `[`",
            ),
            (
                "a.json",
                b"[\n{\"id\": 1}]".to_vec(),
                "a.json:2: field `prompt` is missing",
            ),
            (
                "a.json",
                b"[{\"id\": 1, \"prompt\": \"x\"}\n\n1]".to_vec(),
                "a.json:3: not a JSON array: `,`",
            ),
            ("a.json", b"[\n\n7]".to_vec(), "a.json:3: not a JSON object"),
            (
                "a.json",
                b"[{\"id\": 1, \"prompt\": \"x\"}]\n]".to_vec(),
                "a.json:2: not a JSON array: nothing",
            ),
            (
                "a.jsonl",
                b"{\"id\": null, \"prompt\": \"x\"}".to_vec(),
                "a.jsonl:1: field `id` is missing",
            ),
            (
                "a.jsonl.gz",
                LINES.as_bytes().to_vec(),
                "a.jsonl.gz: cannot be read",
            ),
        ] {
            let error = read_as(name, &bytes).unwrap_err().to_string();
            assert!(error.contains(what), "{error}");
        }
    }
}
