//! Deserialisation of a section, with all of its faults at once.

use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::faults::Faults;
use super::tree::{Node, show_key};

/// Reads the section at `key`. Wrong values are reported and left out, so that one run reports all
/// of them; `None` if too little is left.
pub(crate) fn read<T: DeserializeOwned>(node: &Node, key: &str, faults: &mut Faults) -> Option<T> {
    let mut node = node.clone();
    let mut removed: Vec<Vec<String>> = Vec::new();
    loop {
        let error = match serde_path_to_error::deserialize(node.to_json()) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let path: Vec<String> = error
            .path()
            .iter()
            .map_while(|segment| match segment {
                Segment::Map { key } => Some(key.clone()),
                Segment::Seq { index } => Some(index.to_string()),
                _ => None,
            })
            .collect();
        let place = node.nearest_place(&path).cloned();
        let whole = match show_key(&path) {
            inner if inner.is_empty() => key.to_owned(),
            inner if key.is_empty() => inner,
            inner => format!("{key}.{inner}"),
        };
        let message = plain(&error.inner().to_string());
        // A key with a wrong value is not reported as missing as well.
        let missing = message.strip_prefix("missing field `");
        let missing = missing.and_then(|rest| rest.strip_suffix('`'));
        let missing = missing.map(|field| [path.as_slice(), &[field.to_owned()]].concat());
        if !missing.is_some_and(|path| removed.contains(&path)) {
            faults.add(place.as_ref(), &whole, message);
        }
        // Indices after a removed item would be wrong, so the whole list is removed.
        let list = path.iter().position(|part| part.parse::<usize>().is_ok());
        let gone = path.get(..list.unwrap_or(path.len())).unwrap_or_default();
        if gone.is_empty() || !node.remove(gone) {
            return None;
        }
        removed.push(gone.to_vec());
    }
}

/// A message without names of Rust types.
fn plain(message: &str) -> String {
    let types = [
        ("usize", "a whole number from 0"),
        ("u64", "a whole number from 0"),
        ("f64", "a number"),
        ("a boolean", "true or false"),
        ("a map", "a table"),
        ("a sequence", "a list"),
    ];
    for (rust, word) in types {
        if let Some(start) = message
            .strip_suffix(rust)
            .filter(|start| start.ends_with("expected "))
        {
            return format!("{start}{word}");
        }
    }
    message.to_owned()
}

/// Like [`read`], for a section that may be left out.
pub(crate) fn read_or_default<T: DeserializeOwned + Default>(
    node: Option<&Node>,
    key: &str,
    faults: &mut Faults,
) -> Option<T> {
    match node {
        None => Some(T::default()),
        Some(node) => read(node, key, faults),
    }
}
