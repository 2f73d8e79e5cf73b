//! The templates of a model folder, from the same files that transformers reads.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::CHAT_TEMPLATES;
use crate::TemplateError;
use crate::template::CHAT_TEMPLATE_FILE;

/// Name of the template that is used by default.
pub(super) const DEFAULT: &str = "default";
/// Name of the template for conversations with tools.
pub(super) const TOOLS: &str = "tool_use";
/// File of the template of multimodal models.
const OF_PROCESSOR: &str = "chat_template.json";
const TOKENIZER_CONFIG: &str = "tokenizer_config.json";

/// The text of a template and its file, for messages.
pub(super) struct Source {
    pub(super) origin: String,
    pub(super) text: String,
}

/// The templates of a folder by name, one of which is [`DEFAULT`]; empty if the folder has none.
pub(super) fn sources(folder: &Path) -> Result<BTreeMap<String, Source>, TemplateError> {
    let mut found = BTreeMap::new();
    let own = folder.join(CHAT_TEMPLATE_FILE);
    if own.is_file() {
        found.insert(DEFAULT.to_owned(), read(&own)?);
    }
    let named = folder.join(CHAT_TEMPLATES);
    if named.is_dir() {
        let failed = |source| TemplateError::Read {
            path: named.clone(),
            source,
        };
        for entry in std::fs::read_dir(&named).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(name) = name.strip_suffix(".jinja") {
                found.insert(name.to_owned(), read(&path)?);
            }
        }
    }
    for file in [TOKENIZER_CONFIG, OF_PROCESSOR] {
        if found.is_empty() {
            let path = folder.join(file);
            let value: Option<Value> = super::read_json(&path)?;
            if let Some(value) = value {
                found = in_key(&path, &value["chat_template"])?;
            }
        }
    }
    if !found.is_empty() && !found.contains_key(DEFAULT) {
        let names: Vec<&str> = found.keys().map(String::as_str).collect();
        return Err(TemplateError::NoDefault {
            path: folder.to_owned(),
            names: names.join(", "),
        });
    }
    Ok(found)
}

fn read(path: &Path) -> Result<Source, TemplateError> {
    let text = std::fs::read_to_string(path).map_err(|source| TemplateError::Read {
        path: path.to_owned(),
        source,
    })?;
    Ok(Source {
        origin: path.display().to_string(),
        text,
    })
}

/// One template, or several by name: an object, or a list of objects with `name` and `template`.
fn in_key(path: &Path, value: &Value) -> Result<BTreeMap<String, Source>, TemplateError> {
    let source = |name: &str, text: &Value| {
        let text = text.as_str()?;
        let origin = format!("{}: chat_template", path.display());
        let text = text.to_owned();
        Some((name.to_owned(), Source { origin, text }))
    };
    let found: Option<BTreeMap<_, _>> = match value {
        Value::Null => Some(BTreeMap::new()),
        Value::String(_) => source(DEFAULT, value).map(|one| BTreeMap::from([one])),
        Value::Array(list) => {
            let each = list.iter();
            each.map(|entry| source(entry["name"].as_str()?, &entry["template"]))
                .collect()
        }
        Value::Object(named) => {
            let each = named.iter();
            each.map(|(name, text)| source(name, text)).collect()
        }
        _ => None,
    };
    found.ok_or_else(|| TemplateError::ChatTemplate {
        origin: path.display().to_string(),
        line: None,
        message: "chat_template must be a text, or a list of objects with `name` and `template`"
            .to_owned(),
        kind: crate::TemplateFault::Syntax,
    })
}
