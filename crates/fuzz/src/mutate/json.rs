//! Damage to a JSON document that leaves a JSON document.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Number, Value, json};

use super::{bytes, pick};

/// Changes one value, key or list of the document; if the input is no JSON, changes its bytes.
pub fn mutate(input: Vec<u8>, rng: &mut ChaCha8Rng) -> Vec<u8> {
    let Ok(mut document) = serde_json::from_slice::<Value>(&input) else {
        return bytes::mutate(input.clone(), &[input], rng);
    };
    change(&mut document, rng);
    document.to_string().into_bytes()
}

/// Changes one place of a document, each place as likely as any other.
pub fn change(document: &mut Value, rng: &mut ChaCha8Rng) {
    let mut place = rng.random_range(0..count(document));
    visit(document, &mut place, &mut |value| change_here(value, rng));
}

fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(fields) => fields.values().map(count).sum::<usize>(),
        _ => 0,
    }
}

/// Calls `change` at place number `left`, counted from the outside in.
fn visit(value: &mut Value, left: &mut usize, change: &mut impl FnMut(&mut Value)) -> bool {
    if *left == 0 {
        change(value);
        return true;
    }
    *left -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| visit(item, left, change)),
        Value::Object(fields) => fields.values_mut().any(|item| visit(item, left, change)),
        _ => false,
    }
}

fn change_here(value: &mut Value, rng: &mut ChaCha8Rng) {
    if rng.random_bool(0.3) {
        *value = hostile(rng);
        return;
    }
    match value {
        Value::Object(fields) => change_object(fields, rng),
        Value::Array(items) => change_list(items, rng),
        Value::String(text) => change_text(text, rng),
        Value::Number(number) => change_number(number, rng),
        Value::Bool(flag) => *flag = !*flag,
        Value::Null => *value = hostile(rng),
    }
}

/// A value that few readers expect.
fn hostile(rng: &mut ChaCha8Rng) -> Value {
    match rng.random_range(0..18) {
        0 => Value::Null,
        1 => json!(true),
        2 => json!(0),
        3 => json!(-1),
        4 => json!(1),
        5 => json!(u64::MAX),
        6 => json!(i64::MIN),
        7 => json!(4_294_967_296_u64),
        8 => json!(1e300),
        9 => json!(-0.5),
        10 => json!(""),
        11 => json!("\u{0}\u{feff}é日\u{1f600}"),
        12 => json!("a".repeat(20_000)),
        13 => json!([]),
        14 => json!({}),
        15 => json!([[[[[[[[1]]]]]]]]),
        16 => (0..100).fold(json!(1), |inner, _| json!([inner])),
        _ => json!("../../../../etc/nothing"),
    }
}

fn change_object(fields: &mut Map<String, Value>, rng: &mut ChaCha8Rng) {
    let keys: Vec<String> = fields.keys().cloned().collect();
    if keys.is_empty() {
        fields.insert("key".into(), hostile(rng));
        return;
    }
    let key = pick(&keys, rng).clone();
    let other = pick(&keys, rng).clone();
    match rng.random_range(0..4) {
        0 => drop(fields.remove(&key)),
        1 => {
            let value = fields.remove(&key).unwrap_or_default();
            let mut renamed = key;
            change_text(&mut renamed, rng);
            fields.insert(renamed, value);
        }
        2 => {
            let value = fields[&other].clone();
            fields.insert(key, value);
        }
        _ => drop(fields.insert(format!("{key}_"), hostile(rng))),
    }
}

fn change_list(items: &mut Vec<Value>, rng: &mut ChaCha8Rng) {
    if items.is_empty() {
        items.push(hostile(rng));
        return;
    }
    let (a, b) = (
        rng.random_range(0..items.len()),
        rng.random_range(0..items.len()),
    );
    match rng.random_range(0..5) {
        0 => drop(items.remove(a)),
        1 => items.push(items[a].clone()),
        2 => items.swap(a, b),
        3 => items.truncate(a),
        _ => items.insert(a, hostile(rng)),
    }
}

fn change_text(text: &mut String, rng: &mut ChaCha8Rng) {
    let ends: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
    let at = *ends
        .get(rng.random_range(0..ends.len().max(1)))
        .unwrap_or(&0);
    match rng.random_range(0..6) {
        0 => text.truncate(at),
        1 => text.insert(
            at,
            *pick(&['\u{0}', ' ', '\n', 'é', '▁', '<', '|', '\\'], rng),
        ),
        2 => text.push_str(&text.clone()),
        3 => *text = text.to_uppercase(),
        4 => *text = text.chars().rev().collect(),
        _ => drop((!text.is_empty()).then(|| text.remove(at))),
    }
}

fn change_number(number: &mut Number, rng: &mut ChaCha8Rng) {
    let value = number.as_f64().unwrap_or(0.0);
    let whole = number.as_i64();
    let changed = match (rng.random_range(0..6), whole) {
        (0, Some(whole)) => json!(whole.wrapping_add(1)),
        (1, Some(whole)) => json!(whole.wrapping_sub(1)),
        (2, Some(whole)) => json!(whole.wrapping_mul(2)),
        (3, Some(whole)) => json!(whole.wrapping_neg()),
        (4, Some(whole)) => json!(whole.wrapping_mul(1_000_003)),
        (0, None) => json!(-value),
        (1, None) => json!(value * 1e30),
        (2, None) => json!(value.round() as i64),
        _ => json!(value + 0.5),
    };
    if let Value::Number(changed) = changed {
        *number = changed;
    }
}
