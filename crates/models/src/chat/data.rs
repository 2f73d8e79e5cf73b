//! JSON as a template sees it.

use std::sync::Arc;

use minijinja::value::{Enumerator, Object, ObjectRepr};
use minijinja::{Error, State, Value};
use minijinja_contrib::pycompat;
use serde_json::Value as Json;

use super::source::MAP_METHODS;

/// A map whose methods are there whatever its keys are, as those of Python's are: the schema of a tool
/// may well have a key `items`.
#[derive(Debug)]
struct Map(Vec<(Value, Value)>);

impl Object for Map {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Map
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let found = self.0.iter().find(|(own, _)| own == key);
        found.map(|(_, value)| value.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.0.iter().map(|(key, _)| key.clone()).collect())
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

/// A value of a template.
pub(super) fn value(json: &Json) -> Value {
    match json {
        Json::Array(items) => items.iter().map(value).collect(),
        Json::Object(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, item)| (Value::from(key.as_str()), value(item)));
            Value::from_object(Map(entries.collect()))
        }
        Json::Null => Value::from(()),
        Json::Bool(on) => Value::from(*on),
        Json::String(text) => Value::from(text.as_str()),
        Json::Number(number) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), ..) => Value::from(whole),
            (None, Some(whole), _) => Value::from(whole),
            (None, None, real) => Value::from(real.unwrap_or(f64::NAN)),
        },
    }
}
