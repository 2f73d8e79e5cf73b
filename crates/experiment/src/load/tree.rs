//! Values that know their place.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

/// Place of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    /// A file, or `--set key=value`.
    pub(crate) source: Arc<str>,
    /// Line in the file, from 1.
    pub(crate) line: Option<usize>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source)?;
        match self.line {
            Some(line) => write!(f, ":{line}"),
            None => Ok(()),
        }
    }
}

/// Keys in the order written.
pub(crate) type Table = IndexMap<String, Node>;

/// The key that says of what kind the model of a table is; `None` for other tables.
fn model_kind(table: &Table) -> Option<&'static str> {
    let kinds = ["path", "trace", "torch"];
    kinds.into_iter().find(|kind| table.contains_key(*kind))
}

/// A value and its place; values of presets have none.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    pub(crate) place: Option<Place>,
    pub(crate) kind: Kind,
}

/// Kind of a value.
#[derive(Debug, Clone)]
pub(crate) enum Kind {
    /// A text, number or boolean.
    Leaf(Value),
    /// A list.
    Array(Vec<Node>),
    /// A table.
    Table(Table),
}

impl Node {
    /// A value that is in no file.
    pub(crate) fn leaf(value: impl Into<Value>) -> Self {
        Self {
            place: None,
            kind: Kind::Leaf(value.into()),
        }
    }

    /// An empty table.
    pub(crate) fn table(place: Option<Place>) -> Self {
        Self {
            place,
            kind: Kind::Table(Table::new()),
        }
    }

    /// Its entries; `None` if it is not a table.
    pub(crate) fn as_table(&self) -> Option<&Table> {
        match &self.kind {
            Kind::Table(table) => Some(table),
            _ => None,
        }
    }

    pub(crate) fn as_table_mut(&mut self) -> Option<&mut Table> {
        match &mut self.kind {
            Kind::Table(table) => Some(table),
            _ => None,
        }
    }

    /// Its items; `None` if it is not a list.
    pub(crate) fn as_array(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::Array(items) => Some(items),
            _ => None,
        }
    }

    /// Its items; the value itself, alone, if it is not a list.
    pub(crate) fn items(&self) -> &[Node] {
        self.as_array().unwrap_or(std::slice::from_ref(self))
    }

    /// Its text; `None` if it is not a text.
    pub(crate) fn as_str(&self) -> Option<&str> {
        match &self.kind {
            Kind::Leaf(value) => value.as_str(),
            _ => None,
        }
    }

    /// The value at a path of keys and indices.
    pub(crate) fn get<S: AsRef<str>>(&self, path: &[S]) -> Option<&Node> {
        let Some((first, rest)) = path.split_first() else {
            return Some(self);
        };
        let child = match &self.kind {
            Kind::Leaf(_) => None,
            Kind::Array(items) => items.get(first.as_ref().parse::<usize>().ok()?),
            Kind::Table(table) => table.get(first.as_ref()),
        };
        child?.get(rest)
    }

    /// The value at a dotted key.
    pub(crate) fn at(&self, key: &str) -> Option<&Node> {
        self.get(&key.split('.').collect::<Vec<_>>())
    }

    /// The place of the value at a dotted key.
    pub(crate) fn place_at(&self, key: &str) -> Option<&Place> {
        self.at(key)?.place.as_ref()
    }

    /// The places of all dotted keys that have one.
    pub(crate) fn places(&self) -> BTreeMap<String, String> {
        let mut places = BTreeMap::new();
        self.collect_places("", &mut places);
        places
    }

    fn collect_places(&self, key: &str, places: &mut BTreeMap<String, String>) {
        if let Some(place) = self.place.as_ref().filter(|_| !key.is_empty()) {
            places.insert(key.to_owned(), place.to_string());
        }
        let inner = |name: &str| match key {
            "" => name.to_owned(),
            _ => format!("{key}.{name}"),
        };
        match &self.kind {
            Kind::Leaf(_) => {}
            Kind::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    item.collect_places(&inner(&index.to_string()), places);
                }
            }
            Kind::Table(table) => {
                for (name, item) in table {
                    item.collect_places(&inner(name), places);
                }
            }
        }
    }

    /// The place of the value at a path, or of the nearest one around it.
    pub(crate) fn nearest_place<S: AsRef<str>>(&self, path: &[S]) -> Option<&Place> {
        let inner = (1..=path.len()).rev().filter_map(|end| path.get(..end));
        let mut found = inner.filter_map(|path| self.get(path)?.place.as_ref());
        found.next().or(self.place.as_ref())
    }

    /// Removes the entry of a table at a path. Returns true if there was one.
    pub(crate) fn remove<S: AsRef<str>>(&mut self, path: &[S]) -> bool {
        match (path, self.as_table_mut()) {
            ([last], Some(table)) => table.shift_remove(last.as_ref()).is_some(),
            ([first, rest @ ..], Some(table)) => {
                let child = table.get_mut(first.as_ref());
                child.is_some_and(|child| child.remove(rest))
            }
            _ => false,
        }
    }

    /// Merges `other` into this: tables merge key by key, anything else replaces. A model of another
    /// kind replaces too, so that including a file swaps a folder for a recording or a worker.
    pub(crate) fn merge(&mut self, other: Node) {
        match (&mut self.kind, other.kind) {
            (Kind::Table(own), Kind::Table(theirs)) => {
                if let (Some(old), Some(new)) = (model_kind(own), model_kind(&theirs))
                    && old != new
                {
                    own.clear();
                }
                for (key, node) in theirs {
                    match own.get_mut(&key) {
                        Some(old) => old.merge(node),
                        None => {
                            own.insert(key, node);
                        }
                    }
                }
                if other.place.is_some() {
                    self.place = other.place;
                }
            }
            (own, theirs) => {
                *own = theirs;
                self.place = other.place;
            }
        }
    }

    /// Merges a value at a dotted key into this.
    pub(crate) fn put(&mut self, key: &str, value: Node) {
        let nested = key.rsplit('.').fold(value, |inner, key| {
            let mut outer = Node::table(inner.place.clone());
            if let Some(table) = outer.as_table_mut() {
                table.insert(key.to_owned(), inner);
            }
            outer
        });
        self.merge(nested);
    }

    /// The value without places.
    pub(crate) fn to_json(&self) -> Value {
        match &self.kind {
            Kind::Leaf(value) => value.clone(),
            Kind::Array(items) => items.iter().map(Node::to_json).collect(),
            Kind::Table(table) => Value::Object(
                table
                    .iter()
                    .map(|(key, node)| (key.clone(), node.to_json()))
                    .collect(),
            ),
        }
    }
}

/// A dotted key in TOML syntax.
pub(crate) fn show_key<S: AsRef<str>>(path: &[S]) -> String {
    let bare = |key: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        !key.is_empty() && key.chars().all(plain)
    };
    let parts: Vec<String> = path
        .iter()
        .map(AsRef::as_ref)
        .map(|key| match bare(key) {
            true => key.to_owned(),
            false => format!("{key:?}"),
        })
        .collect();
    parts.join(".")
}

/// Normalises patches: dotted keys of every `set` become nested tables, nested tables of `grid` and
/// `sweep` become dotted keys.
pub(crate) fn normalise(root: &mut Node) {
    let Some(root) = root.as_table_mut() else {
        return;
    };
    for (key, node) in root {
        match key.as_str() {
            "sweep" => flatten(node),
            "grid" => each(node, flatten),
            "stage" => each_entry(node, |stage| entry(stage, "set", expand)),
            "when" => each(node, |when| {
                conditions(when);
                entry(when, "set", expand);
            }),
            "arm" => each(node, |arm| {
                entry(arm, "set", expand);
                entry(arm, "sweep", flatten);
            }),
            _ => {}
        }
    }
}

/// Applies `change` to the items of a list, or to a single table.
fn each(node: &mut Node, change: impl Fn(&mut Node)) {
    match &mut node.kind {
        Kind::Array(items) => items.iter_mut().for_each(change),
        _ => change(node),
    }
}

fn each_entry(node: &mut Node, change: impl Fn(&mut Node)) {
    if let Some(table) = node.as_table_mut() {
        table.values_mut().for_each(change);
    }
}

fn entry(node: &mut Node, key: &str, change: impl Fn(&mut Node)) {
    if let Some(inner) = node.as_table_mut().and_then(|table| table.get_mut(key)) {
        change(inner);
    }
}

/// Turns the nested axes of a `[[when]]` into dotted keys.
fn conditions(when: &mut Node) {
    let Some(table) = when.as_table_mut() else {
        return;
    };
    let mut axes = Node::table(None);
    let Some(inner) = axes.as_table_mut() else {
        return;
    };
    for key in table.keys().cloned().collect::<Vec<_>>() {
        if key != "set" && key != "prompts" {
            inner.extend(table.shift_remove(&key).map(|node| (key, node)));
        }
    }
    flatten(&mut axes);
    when.merge(axes);
}

fn expand(node: &mut Node) {
    let mut whole = Node::table(node.place.clone());
    let Some(table) = node.as_table_mut() else {
        return;
    };
    for (key, value) in std::mem::take(table) {
        whole.put(&key, value);
    }
    whole.place = node.place.clone();
    *node = whole;
}

fn flatten(node: &mut Node) {
    fn collect(prefix: &str, node: Node, flat: &mut Table) {
        match node.kind {
            Kind::Table(table) if !table.is_empty() => {
                for (key, inner) in table {
                    collect(&format!("{prefix}.{key}"), inner, flat);
                }
            }
            kind => {
                let node = Node { kind, ..node };
                flat.insert(prefix.to_owned(), node);
            }
        }
    }
    if let Some(table) = node.as_table_mut() {
        let mut flat = Table::new();
        for (key, inner) in std::mem::take(table) {
            collect(&key, inner, &mut flat);
        }
        *table = flat;
    }
}
