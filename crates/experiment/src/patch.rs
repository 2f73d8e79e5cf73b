//! Patches: the key `set`.

use crate::grid::SECTIONS;
use crate::load::{Faults, Node};

/// The patch of a table; keys of unknown sections are reported. `models` is true if it may change
/// them.
pub(crate) fn of(node: &Node, key: &str, models: bool, faults: &mut Faults) -> Node {
    let mut patch = match node.at("set") {
        Some(set) if set.as_table().is_some() => set.clone(),
        _ => return Node::table(None),
    };
    let place = patch.place.clone();
    let Some(table) = patch.as_table_mut() else {
        return patch;
    };
    table.retain(|section, inner| {
        let known = SECTIONS.contains(&section.as_str()) && (models || section != "models");
        let place = inner.place.as_ref().or(place.as_ref());
        let whole = format!("{key}.set.{section}");
        if !known {
            let end = if models { " and models" } else { "" };
            let message =
                format!("no such section: a patch changes decode, learn, cache, head{end}");
            faults.add(place, &whole, message);
        } else if inner.as_table().is_none() {
            let message = format!("`{section}` is a section: name a key of it, \"{section}.KEY\"");
            faults.add(place, &whole, message);
            return false;
        }
        known
    });
    patch
}
