//! JSON values for templates.

use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr, Serde, ValueKind};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat;
use serde_json::Value as Json;

use super::source::MAP_METHODS;

/// JSON whose objects keep the order of their keys; a template writes them in that order.
pub type TemplateValue = Value;

/// Variables for a template, by name.
pub type TemplateVariables = BTreeMap<String, TemplateValue>;

/// Template variables from parsed JSON.
pub fn template_variables(json: &serde_json::Map<String, Json>) -> TemplateVariables {
    let entries = json.iter();
    entries
        .map(|(name, value)| (name.clone(), of_json(value)))
        .collect()
}

/// A template value from parsed JSON.
pub(super) fn of_json(json: &Json) -> TemplateValue {
    Value::from(Serde(json))
}

/// A client's message for [`Message::whole`](super::Message::whole): without null values and
/// without the keys `beside`, which a model does not read. The arguments of a tool call, which
/// arrive as JSON in a text, are parsed.
pub fn whole_message(sent: &TemplateValue, beside: &[&str]) -> TemplateValue {
    let entries = pairs(sent).into_iter();
    let entries = entries.filter(|(key, value)| {
        !value.is_none() && key.as_str().is_none_or(|key| !beside.contains(&key))
    });
    let entries = entries.map(|(key, value)| match key.as_str() {
        Some("tool_calls") if value.kind() == ValueKind::Seq => {
            let calls = value.try_iter().into_iter().flatten();
            (key, calls.map(|call| opened(&call)).collect())
        }
        _ => (key, value),
    });
    Value::from_pairs(entries)
}

/// A tool call with parsed arguments.
fn opened(call: &Value) -> Value {
    with(call, "function", |function| {
        with(function, "arguments", |arguments| {
            let read = arguments
                .as_str()
                .and_then(|text| serde_json::from_str(text).ok());
            let read = read.filter(|read: &Value| read.kind() == ValueKind::Map);
            read.unwrap_or_else(|| arguments.clone())
        })
    })
}

/// A map with one value replaced.
fn with(map: &Value, name: &str, changed: impl Fn(&Value) -> Value) -> Value {
    if map.kind() != ValueKind::Map {
        return map.clone();
    }
    let entries = pairs(map).into_iter().map(|(key, value)| {
        let value = match key.as_str() == Some(name) {
            true => changed(&value),
            false => value,
        };
        (key, value)
    });
    Value::from_pairs(entries)
}

/// The entries of a map; empty for other values.
pub(super) fn pairs(map: &Value) -> Vec<(Value, Value)> {
    if map.kind() != ValueKind::Map {
        return Vec::new();
    }
    let keys = map.try_iter().into_iter().flatten();
    let entry = |key: Value| {
        let value = map.get_item(&key).ok()?;
        Some((key, value))
    };
    keys.filter_map(entry).collect()
}

/// A map whose methods exist whatever its keys are, as in Python: the schema of a tool may have a
/// key `items`.
#[derive(Debug)]
struct Map(Value);

impl Object for Map {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let found = self.0.get_item(key).ok();
        found.filter(|found| !found.is_undefined())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.try_iter().into_iter().flatten().collect())
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        let own = Value::from_dyn_object(Arc::clone(self));
        match self.get_value(&Value::from(method)) {
            Some(value) if !MAP_METHODS.contains(&method) => value.call(state, args),
            _ => pycompat::unknown_method_callback(state, &own, method, args),
        }
    }
}

/// JSON for a template, with Python's methods on its maps.
pub(super) fn value(json: &Value) -> Value {
    match json.kind() {
        ValueKind::Seq => {
            let items = json.try_iter().into_iter().flatten();
            items.map(|item| value(&item)).collect()
        }
        ValueKind::Map => {
            let entries = pairs(json).into_iter();
            let entries = entries.map(|(key, item)| (key, value(&item)));
            Value::from_object(Map(Value::from_pairs(entries)))
        }
        _ => json.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_keep_their_order_and_arguments_are_read() {
        let sent: Value = serde_json::from_str(
            r#"{"role": "assistant", "content": null, "id": "x", "tool_calls": [
                {"type": "function", "function": {"name": "f", "arguments": "{\"z\": 1, \"a\": [2]}"}},
                {"function": {"name": "g", "arguments": "not json"}}, 7]}"#,
        )
        .unwrap();
        let whole = whole_message(&sent, &["id"]);
        assert_eq!(
            serde_json::to_string(&whole).unwrap(),
            r#"{"role":"assistant","tool_calls":[{"type":"function","function":{"name":"f","arguments":{"z":1,"a":[2]}}},{"function":{"name":"g","arguments":"not json"}},7]}"#
        );
        assert!(pairs(&Value::from(3)).is_empty());
    }
}
