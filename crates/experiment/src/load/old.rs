//! What older files said, and what to write now.

use super::faults::Faults;
use super::tree::Node;

/// A list, not a text.
pub(super) const INCLUDE: &str = "write include = [\"base.toml\"]";

/// Sections and keys at the top of older files.
const TOP: [(&str, &str); 6] = [
    ("seeds", "seeds are an axis now: [grid] seed = [1, 2, 3]"),
    (
        "streams",
        "independent streams are the cells of [grid] task = [...]; a continual stream is written as [[segment]] tables",
    ),
    (
        "on_stream",
        "on_stream belongs to a stage: [stage.stream] on_stream = \"learning\"",
    ),
    (
        "arms",
        "every arm is a table now: [[arm]] preset = \"L_DM\", with set = { \"decode.k\" = 3 } for what it changes",
    ),
    (
        "segments",
        "independent streams are an axis: [grid] task = [\"gsm8k\"], with [stage.stream] prompts = { train = 1000 }; a continual stream is [[segment]] task = \"gsm8k\", prompts = { train = 300 }",
    ),
    (
        "state",
        "a stage hands over what was learnt: [stage.held-out] from = \"stream\"",
    ),
];

/// Keys inside sections.
const INNER: [(&str, &str); 14] = [
    ("segment.train", SEGMENT),
    ("segment.test", SEGMENT),
    (
        "segment.gamma",
        "write [[when]] task = \"gsm8k\", set = { \"decode.gamma\" = 0.7 }",
    ),
    (
        "arm.verify",
        "write set = { \"decode.verify\" = \"paper\" }, or preset = \"N-gram_pp\"",
    ),
    (
        "arm.cache",
        "write set = { \"cache.use\" = \"online\" }; limits are cache.eviction and cache.max_entries",
    ),
    (
        "arm.learn",
        "write set = { \"learn.objective\" = \"hybrid\" }; other keys of learn go there too",
    ),
    ("arm.head", "write set = { \"head.training\" = \"joint\" }"),
    ("arm.k", "write set = { \"decode.k\" = 3 }"),
    ("arm.policy", "write set = { \"decode.policy\" = \"head\" }"),
    (
        "arm.threshold",
        "write set = { \"decode.threshold\" = 0.05 }",
    ),
    ("arm.gamma", "write set = { \"decode.gamma\" = 0.7 }"),
    ("arm.score", "write set = { \"decode.score\" = \"head\" }"),
    ("arm.decode", PATCH),
    ("stage.decode", PATCH),
];

const SEGMENT: &str = "write prompts = { train = 300, test = 0 }";
const PATCH: &str = "write set = { \"decode.k\" = 3 }";

/// Refuses what older files say at their top.
pub(super) fn find(root: &mut Node, faults: &mut Faults) {
    let Some(table) = root.as_table_mut() else {
        return;
    };
    for (key, hint) in TOP {
        if let Some(node) = table.shift_remove(key) {
            let message = "is no key any more";
            faults.advise(node.place.as_ref(), key, message, hint);
        }
    }
}

/// Advice for an unknown key inside a section; indices and names of stages are left out of `key`.
pub(super) fn hint(key: &str) -> Option<&'static str> {
    let mut parts: Vec<&str> = key
        .split('.')
        .filter(|part| part.parse::<usize>().is_err())
        .collect();
    if parts.first() == Some(&"stage") && parts.len() > 2 {
        parts.remove(1);
    }
    let key = parts.join(".");
    let found = INNER.into_iter().find(|(old, _)| *old == key);
    found.map(|(_, hint)| hint)
}
