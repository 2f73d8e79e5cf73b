//! `--set key=value`.

use super::faults::Faults;
use super::source;
use super::tree::{Kind, Node, Place, show_key};

/// Keys of an arm; other keys go into its `set`.
const ARM: [&str; 5] = ["preset", "name", "set", "learnt_by", "sweep"];

/// Applies an override to the merged files.
pub(super) fn apply(root: &mut Node, text: &str, faults: &mut Faults) {
    let place = Place {
        source: format!("--set {text}").into(),
        line: None,
    };
    let Some((path, value)) = split(text) else {
        let message = "expected KEY=VALUE, for example decode.k=3 or arm[L_DM].decode.k=3";
        faults.add(Some(&place), "", message);
        return;
    };
    let Some(value) = parse_value(value, &place, faults) else {
        return;
    };
    if let Err(message) = descend(root, &path, value, &mut Vec::new()) {
        faults.add(Some(&place), "", message);
    }
}

/// A step of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    /// Key of a table, or index of a list.
    Key(String),
    /// An item of a list, by its name.
    Named(String),
}

/// Path and value; `None` for a text that is not `key=value`.
fn split(text: &str) -> Option<(Vec<Step>, &str)> {
    let mut steps = Vec::new();
    let mut rest = text.trim_start();
    loop {
        let (word, behind) = word(rest)?;
        steps.push(Step::Key(word.to_owned()));
        rest = behind;
        while let Some(inner) = rest.strip_prefix('[') {
            let (name, behind) = inner.split_once(']')?;
            steps.push(Step::Named(name.to_owned()));
            rest = behind;
        }
        rest = rest.trim_start();
        if let Some(value) = rest.strip_prefix('=') {
            return Some((steps, value));
        }
        rest = rest.strip_prefix('.')?;
    }
}

/// A bare or quoted key, and the text after it.
fn word(text: &str) -> Option<(&str, &str)> {
    let (word, rest) = match text.strip_prefix('"') {
        Some(inner) => inner.split_once('"')?,
        None => text.split_at_checked(text.find(['.', '=', '['])?)?,
    };
    let word = word.trim();
    (!word.is_empty()).then_some((word, rest))
}

fn parse_value(text: &str, place: &Place, faults: &mut Faults) -> Option<Node> {
    let text = text.trim();
    let mut silent = Faults::default();
    let document = format!("v = {text}");
    let parsed = source::parse(&document, &place.source, false, &mut silent);
    let parsed = parsed.filter(|_| silent.is_empty());
    match parsed.and_then(|mut table| table.as_table_mut()?.shift_remove("v")) {
        Some(node) => Some(node),
        None if text.starts_with(['[', '{', '"', '\'']) => {
            let message = format!("`{text}` is no TOML value; names in lists need quotes: [\"L\"]");
            faults.add(Some(place), "", message);
            None
        }
        // A bare word is a string.
        None => Some(Node {
            place: Some(place.clone()),
            kind: Kind::Leaf(text.into()),
        }),
    }
}

/// Replaces the value at a path, which is `walked` so far.
fn descend(
    node: &mut Node,
    path: &[Step],
    value: Node,
    walked: &mut Vec<String>,
) -> Result<(), String> {
    let Some((step, rest)) = path.split_first() else {
        // An override replaces the value and does not merge.
        *node = value;
        return Ok(());
    };
    let here = show_key(walked);
    let place = value.place.clone();
    match (&mut node.kind, step) {
        (Kind::Table(table), Step::Key(key)) => {
            if here == "stage" && !table.contains_key(key) {
                let known: Vec<&str> = table.keys().map(String::as_str).collect();
                return Err(format!(
                    "there is no stage `{key}` (one of {})",
                    known.join(", ")
                ));
            }
            walked.push(key.clone());
            let fresh = || Node::table(place);
            descend(
                table.entry(key.clone()).or_insert_with(fresh),
                rest,
                value,
                walked,
            )
        }
        (Kind::Array(items), step) => {
            let index = match step {
                Step::Key(word) => word.parse().ok().filter(|index| *index < items.len()),
                Step::Named(name) => items.iter().position(|item| label(item) == Some(name)),
            };
            let Some(index) = index else {
                return Err(no_item(&here, step, items));
            };
            let item = &mut items[index];
            let of_arm = here == "arm";
            walked.push(index.to_string());
            let set = Step::Key("set".to_owned());
            match rest.first() {
                Some(Step::Key(key)) if of_arm && !ARM.contains(&key.as_str()) => {
                    let mut inner = vec![set];
                    inner.extend_from_slice(rest);
                    descend(item, &inner, value, walked)
                }
                _ => descend(item, rest, value, walked),
            }
        }
        (Kind::Table(_) | Kind::Leaf(_), Step::Named(_)) => {
            Err(format!("`{here}` is no list, so that [ ] picks nothing"))
        }
        (Kind::Leaf(_), Step::Key(_)) => {
            *node = Node::table(place);
            descend(node, path, value, walked)
        }
    }
}

fn no_item(list: &str, step: &Step, items: &[Node]) -> String {
    match (step, items.len()) {
        (_, 0) => format!("`{list}` is empty"),
        (Step::Key(word), count) => {
            format!("`{list}` has no item {word}: they are 0 to {}", count - 1)
        }
        (Step::Named(name), _) => {
            let names: Vec<&str> = items.iter().filter_map(label).collect();
            format!("`{list}` has no `{name}` (one of {})", names.join(", "))
        }
    }
}

/// Name of an item of a list.
fn label(item: &Node) -> Option<&str> {
    let table = item.as_table()?;
    let by = |key: &str| table.get(key).and_then(Node::as_str);
    by("name").or_else(|| by("preset")).or_else(|| by("task"))
}
