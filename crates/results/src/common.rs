//! Configurations in which every arm is stored as its difference from the first one. Arms of a cell
//! have nearly everything in common, and manifests are the largest part of a published run beside
//! its rows.

use serde_json::{Map, Value};

/// Key of an object that stands for the first arm's value with some values replaced.
const SAME_BUT: &str = "same but";

/// Replaces every arm after the first by its difference from it.
pub(crate) fn leave_out(config: &mut Value) {
    change(config, |first, arm| {
        if first.is_object() {
            *arm = difference(first, arm).unwrap_or_else(|| same_but(Map::new()));
        }
    });
}

/// Reverses [`leave_out`].
pub(crate) fn put_back(config: &mut Value) {
    change(config, |first, arm| *arm = whole(first, arm));
}

fn change(config: &mut Value, change: impl Fn(&Value, &mut Value)) {
    let arms = config.get_mut("arms").and_then(Value::as_array_mut);
    if let Some([first, others @ ..]) = arms.map(Vec::as_mut_slice) {
        others.iter_mut().for_each(|arm| change(first, arm));
    }
}

fn same_but(values: Map<String, Value>) -> Value {
    Value::Object(Map::from_iter([(
        SAME_BUT.to_owned(),
        Value::Object(values),
    )]))
}

/// The difference of `value` from `first`; `None` if they are equal.
fn difference(first: &Value, value: &Value) -> Option<Value> {
    if first == value {
        return None;
    }
    match (first, value) {
        // A key that only `own` has is a difference; a missing key cannot be expressed.
        (Value::Object(first), Value::Object(own)) if first.keys().all(|k| own.contains_key(k)) => {
            let differ = own.iter().filter_map(|(key, own)| {
                let value = first
                    .get(key)
                    .map_or(Some(own.clone()), |f| difference(f, own));
                Some((key.clone(), value?))
            });
            Some(same_but(differ.collect()))
        }
        _ => Some(value.clone()),
    }
}

/// Reverses [`difference`]. A value that is not a difference is left as it is.
fn whole(first: &Value, value: &Value) -> Value {
    let values = match value {
        Value::Object(value) if value.len() == 1 => value.get(SAME_BUT),
        _ => None,
    };
    let (Value::Object(first), Some(Value::Object(values))) = (first, values) else {
        return value.clone();
    };
    let mut all = first.clone();
    for (key, value) in values {
        let value = all
            .get(key)
            .map_or_else(|| value.clone(), |first| whole(first, value));
        all.insert(key.clone(), value);
    }
    Value::Object(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn only_what_differs_is_kept() {
        let mut config = json!({ "seed": 1, "arms": [
            { "name": "a", "decode": { "k": 4, "costs": { "round": 0.1 } }, "learn": null },
            { "name": "b", "decode": { "k": 3, "costs": { "round": 0.1 } }, "learn": { "lr": 1 } },
            { "name": "c", "decode": { "k": 4, "costs": { "round": 0.1 } }, "learn": null, "learnt_by": "a" },
        ] });
        let before = config.clone();
        leave_out(&mut config);
        let kept = json!({ "same but":
            { "name": "b", "decode": { "same but": { "k": 3 } }, "learn": { "lr": 1 } } });
        let taught = json!({ "same but": { "name": "c", "learnt_by": "a" } });
        assert_eq!(config["arms"], json!([before["arms"][0], kept, taught]));
        put_back(&mut config);
        assert_eq!(config, before);
    }

    #[test]
    fn configurations_without_arms_stay_what_they_are() {
        for config in [json!(null), json!({ "arms": 3 }), json!({ "arms": [] })] {
            let mut changed = config.clone();
            leave_out(&mut changed);
            put_back(&mut changed);
            assert_eq!(changed, config);
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..3).prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[abc]", inner, 0..3)
                    .prop_map(|values| Value::Object(values.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn whatever_is_left_out_is_put_back(arms in prop::collection::vec(values(), 0..4)) {
            let config = json!({ "arms": arms });
            let mut changed = config.clone();
            leave_out(&mut changed);
            put_back(&mut changed);
            prop_assert_eq!(changed, config);
        }
    }
}
