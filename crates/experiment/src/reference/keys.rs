//! Tables of keys and lists of names from the schema of a type.

use std::fmt::Write;

use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde_json::Value;

use super::fields::fields;

/// The keys of a type, which have this prefix in patches: the table with key, type, default and
/// meaning, and the allowed names, key by key.
pub(super) fn of<T: JsonSchema + for<'de> Deserialize<'de>>(prefix: &str) -> String {
    let schema = SchemaGenerator::default()
        .into_root_schema_for::<T>()
        .to_value();
    let required = schema.get("required").and_then(Value::as_array);
    let empty = Value::Null;
    let dot = if prefix.is_empty() { "" } else { "." };
    let mut table = "\n| key | type | default | meaning |\n|---|---|---|---|\n".to_owned();
    let mut choices = String::new();
    for key in fields::<T>() {
        let property = schema.get("properties").and_then(|all| all.get(*key));
        let property = property.unwrap_or(&empty);
        let named = Value::from(*key);
        let default = match property.get("default") {
            _ if required.is_some_and(|required| required.contains(&named)) => {
                "required".to_owned()
            }
            None | Some(Value::Null) => "left out".to_owned(),
            Some(Value::Object(inner)) if inner.is_empty() => "`{}`".to_owned(),
            Some(Value::Object(_)) => "below".to_owned(),
            Some(value) => format!("`{}`", toml(value)),
        };
        let meaning = description(property).replace('|', "\\|");
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "| `{key}` | {} | {default} | {meaning} |",
            kind(property, &schema)
        );
        let names = names(property, &schema);
        if !names.is_empty() {
            let _ = write!(choices, "\n`{prefix}{dot}{key}`:\n\n");
        }
        for (name, meaning) in names {
            let _ = writeln!(choices, "- `{name}`: {meaning}");
        }
    }
    table + &choices
}

/// The target of a `$ref`.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let target = schema.get("$ref").and_then(Value::as_str);
    let target = target.and_then(|path| path.strip_prefix('#'));
    target.and_then(|path| root.pointer(path)).unwrap_or(schema)
}

/// The schema without an alternative `null`, which only means that the key may be left out.
fn present<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let own = resolve(schema, root);
    let Some(choices) = own.get("anyOf").and_then(Value::as_array) else {
        return own;
    };
    let mut real = choices.iter().filter(|choice| !is_null(choice));
    match (real.next(), real.next()) {
        (Some(only), None) => resolve(only, root),
        _ => own,
    }
}

fn is_null(schema: &Value) -> bool {
    schema.get("type").and_then(Value::as_str) == Some("null")
}

fn kind(schema: &Value, root: &Value) -> String {
    let schema = present(schema, root);
    if schema.get("oneOf").is_some() {
        return "one of the names below".to_owned();
    }
    // Types with a format of their own have a title.
    if let (Some(title), Some(_)) = (schema.get("title"), schema.get("anyOf")) {
        return title.as_str().unwrap_or_default().to_owned();
    }
    let word = match schema.get("type") {
        Some(Value::Array(types)) => types
            .iter()
            .filter_map(Value::as_str)
            .find(|t| *t != "null"),
        Some(one) => one.as_str(),
        None => None,
    };
    match word {
        Some("string") => "text".to_owned(),
        Some("boolean") => "true or false".to_owned(),
        Some("array") => match (schema.get("items"), schema.get("prefixItems")) {
            (Some(items), _) => format!("list of {}", plural(&kind(items, root))),
            (None, Some(_)) => "pair".to_owned(),
            _ => "list".to_owned(),
        },
        Some("object") => "table".to_owned(),
        Some(word) => word.to_owned(),
        None => "any value".to_owned(),
    }
}

fn plural(kind: &str) -> String {
    match kind {
        "text" => "texts".to_owned(),
        "any value" => "values".to_owned(),
        "one of the names below" => "the names below".to_owned(),
        other => format!("{other}s"),
    }
}

fn names(schema: &Value, root: &Value) -> Vec<(String, String)> {
    let schema = present(schema, root);
    if let Some(items) = schema.get("items") {
        return names(items, root);
    }
    let choices = schema.get("oneOf").and_then(Value::as_array);
    choices
        .into_iter()
        .flatten()
        .filter_map(|choice| {
            let name = choice.get("const")?.as_str()?.to_owned();
            Some((name, description(choice)))
        })
        .collect()
}

fn description(schema: &Value) -> String {
    let text = schema.get("description").and_then(Value::as_str);
    let words: Vec<&str> = text.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

/// A value in TOML syntax.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(toml).collect();
            format!("[{}]", items.join(", "))
        }
        other => other.to_string(),
    }
}
