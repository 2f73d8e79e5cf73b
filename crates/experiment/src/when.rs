//! `[[when]]`: patches of some cells.

use std::collections::BTreeSet;

use crate::count::PromptCounts;
use crate::file::WhenFile;
use crate::grid::{Cell, Grid, show};
use crate::load::{Faults, Kind, Node, Place, read};
use crate::patch;

/// Keys that are not axes.
const OWN: [&str; 2] = ["set", "prompts"];
/// The condition on the stage, among the axes.
const STAGE: &str = "stage";

/// A patch and the conditions on its cells.
#[derive(Debug)]
pub(crate) struct When {
    pub(crate) place: Option<Place>,
    /// Axes with the values of the condition.
    conditions: Vec<Condition>,
    pub(crate) set: Node,
    pub(crate) prompts: PromptCounts,
}

#[derive(Debug)]
struct Condition {
    axis: String,
    values: Vec<(String, Option<Place>)>,
    place: Option<Place>,
}

/// All axes that a `[[when]]` names.
pub(crate) fn words(node: Option<&Node>) -> BTreeSet<&str> {
    let items = node.and_then(Node::as_array).unwrap_or_default();
    let tables = items.iter().filter_map(Node::as_table);
    let keys = tables.flat_map(|table| table.keys().map(String::as_str));
    keys.filter(|key| !OWN.contains(key)).collect()
}

pub(crate) fn read_all(node: Option<&Node>, faults: &mut Faults) -> Vec<When> {
    let Some(node) = node else {
        return Vec::new();
    };
    let Some(items) = node.as_array() else {
        faults.add(node.place.as_ref(), "when", "expected tables [[when]]");
        return Vec::new();
    };
    let items = items.iter().enumerate();
    items.filter_map(|(i, item)| one(item, i, faults)).collect()
}

fn one(node: &Node, index: usize, faults: &mut Faults) -> Option<When> {
    let key = format!("when.{index}");
    let file: WhenFile = read(node, &key, faults)?;
    let mut conditions = Vec::new();
    for (axis, value) in node.as_table()? {
        if OWN.contains(&axis.as_str()) {
            continue;
        }
        let mut values = Vec::new();
        for item in value.items() {
            match &item.kind {
                Kind::Leaf(leaf) => values.push((show(leaf), item.place.clone())),
                _ => faults.add(
                    item.place.as_ref(),
                    &format!("{key}.{axis}"),
                    "expected a value of the axis, or a list of values; patches go into set = { }",
                ),
            }
        }
        conditions.push(Condition {
            axis: axis.clone(),
            values,
            place: value.place.clone(),
        });
    }
    let place = node.place.as_ref();
    if conditions.is_empty() {
        faults.add(place, &key, "names no axis, so that it is for every cell");
    }
    let set = patch::of(node, &key, true, faults);
    if file.set.is_empty() && file.prompts == PromptCounts::default() {
        faults.add(place, &key, "changes nothing: neither set nor prompts");
    }
    Some(When {
        place: node.place.clone(),
        conditions,
        set,
        prompts: file.prompts,
    })
}

impl When {
    /// True if it applies to a cell of a stage.
    pub(crate) fn is_for(&self, stage: &str, cell: &Cell) -> bool {
        self.conditions.iter().all(|condition| {
            let own = match condition.axis.as_str() {
                STAGE => Some(stage),
                axis => cell.label(axis),
            };
            let mut values = condition.values.iter();
            own.is_some_and(|own| values.any(|(value, _)| value == own))
        })
    }

    /// True if it applies to cells of a stage.
    pub(crate) fn is_for_stage(&self, stage: &str) -> bool {
        let mut stages = self.conditions.iter().filter(|it| it.axis == STAGE);
        stages.all(|it| it.values.iter().any(|(value, _)| value == stage))
    }

    /// Reports axes and values that do not exist.
    pub(crate) fn check(&self, index: usize, grid: &Grid, stages: &[&str], faults: &mut Faults) {
        for Condition {
            axis,
            values,
            place,
        } in &self.conditions
        {
            let key = format!("when.{index}.{axis}");
            let known: Vec<&str> = match (axis.as_str(), grid.axis(axis)) {
                (STAGE, _) => stages.to_vec(),
                (_, Some(known)) => known.values.iter().map(String::as_str).collect(),
                (_, None) => {
                    let message = format!("no such axis (one of {}, stage)", grid.axis_names());
                    faults.add(place.as_ref(), &key, message);
                    continue;
                }
            };
            // The command line may leave out values that the file mentions.
            if grid.overridden.contains(axis) {
                continue;
            }
            for (value, place) in values {
                if !known.contains(&value.as_str()) {
                    let message = format!(
                        "no cell has the value {value} (one of {})",
                        known.join(", ")
                    );
                    let hint = "to run some of the cells, choose them with --only";
                    faults.advise(place.as_ref(), &key, message, hint);
                }
            }
        }
    }
}
