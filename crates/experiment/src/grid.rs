//! `[grid]`: cells from the product of axes.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::load::{Faults, Kind, Node, Place, Table};
use crate::settings::ModelsConfig;
use crate::summary::Axis;

/// Maximum number of cells; more are a mistake.
const MOST_CELLS: usize = 100_000;

/// Sections that an axis or a patch of cells may change.
pub(crate) const SECTIONS: [&str; 5] = ["decode", "learn", "cache", "head", "models"];

/// One value of an axis.
#[derive(Debug, Clone)]
pub(crate) struct Coordinate {
    pub(crate) axis: String,
    /// The value as written.
    pub(crate) label: String,
    pub(crate) value: Node,
}

/// One point of the grid.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    pub(crate) name: String,
    pub(crate) coordinates: Vec<Coordinate>,
}

impl Cell {
    /// The value on an axis, as written.
    pub(crate) fn label(&self, axis: &str) -> Option<&str> {
        let found = self.coordinates.iter().find(|own| own.axis == axis);
        found.map(|own| own.label.as_str())
    }
}

/// All cells, with their axes.
#[derive(Debug)]
pub(crate) struct Grid {
    pub(crate) axes: Vec<Axis>,
    pub(crate) cells: Vec<Cell>,
    /// Axes whose values come from the command line.
    pub(crate) overridden: BTreeSet<String>,
}

impl Grid {
    pub(crate) fn axis(&self, name: &str) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.name == name)
    }

    /// All names, for messages.
    pub(crate) fn axis_names(&self) -> String {
        let names: Vec<&str> = self.axes.iter().map(|axis| axis.name.as_str()).collect();
        names.join(", ")
    }
}

/// Reads the grid. `words` are the keys that `[[when]]` tables name; each may be an axis.
pub(crate) fn read(
    node: Option<&Node>,
    models: &ModelsConfig,
    words: &BTreeSet<&str>,
    faults: &mut Faults,
) -> Option<Grid> {
    let empty = Node::table(None);
    let node = node.unwrap_or(&empty);
    let reader = Reader { models, words };
    let products = match node.items() {
        [] => std::slice::from_ref(node),
        products => products,
    };
    let mut tables = Vec::new();
    for product in products {
        let Some(table) = product.as_table() else {
            let message = "expected a table of axes, or tables [[grid]] whose cells are united";
            faults.add(product.place.as_ref(), "grid", message);
            return None;
        };
        tables.push((product.place.as_ref(), reader.axes(table, faults)?));
    }
    same_axes(&tables, faults)?;
    let cells = cells(&tables, faults)?;
    let mut axes: Vec<Axis> = Vec::new();
    let mut overridden = BTreeSet::new();
    for coordinate in cells.iter().flat_map(|cell| &cell.coordinates) {
        let Coordinate { axis, label, value } = coordinate;
        if value
            .place
            .as_ref()
            .is_some_and(|place| place.line.is_none())
        {
            overridden.insert(axis.clone());
        }
        match axes.iter_mut().find(|known| known.name == *axis) {
            Some(known) if known.values.contains(label) => {}
            Some(known) => known.values.push(label.clone()),
            None => axes.push(Axis {
                name: axis.clone(),
                values: vec![label.clone()],
            }),
        }
    }
    Some(Grid {
        axes,
        cells,
        overridden,
    })
}

/// Axes of one product with their values.
type Axes = Vec<(String, Vec<Coordinate>)>;

struct Reader<'a> {
    models: &'a ModelsConfig,
    words: &'a BTreeSet<&'a str>,
}

impl Reader<'_> {
    fn axes(&self, table: &Table, faults: &mut Faults) -> Option<Axes> {
        let mut axes = Axes::new();
        let mut good = true;
        for (name, node) in table {
            let place = node.place.as_ref();
            let key = format!("grid.{name}");
            good &= self.is_axis(name, place, &key, faults);
            let values = node.items();
            if values.is_empty() {
                faults.add(place, &key, "an axis needs at least one value");
                good = false;
            }
            let mut own: Vec<Coordinate> = Vec::new();
            for value in values {
                let Some(label) = self.label(name, value, &key, faults) else {
                    good = false;
                    continue;
                };
                if own.iter().any(|other| other.label == label) {
                    let message = format!("the value {label} appears twice");
                    faults.add(value.place.as_ref(), &key, message);
                    good = false;
                }
                own.push(Coordinate {
                    axis: name.clone(),
                    label,
                    value: value.clone(),
                });
            }
            axes.push((name.clone(), own));
        }
        if !table.contains_key("seed") {
            let seed = Coordinate {
                axis: "seed".to_owned(),
                label: "1".to_owned(),
                value: Node::leaf(1),
            };
            axes.push(("seed".to_owned(), vec![seed]));
        }
        good.then_some(axes)
    }

    fn is_axis(&self, name: &str, place: Option<&Place>, key: &str, faults: &mut Faults) -> bool {
        let section = name.split_once('.').map(|(section, _)| section);
        let known = match section {
            Some(section) => SECTIONS.contains(&section),
            None => ["seed", "target", "task"].contains(&name) || self.words.contains(name),
        };
        if !known {
            let message = "no such axis: an axis is seed, target, task, a dotted key of decode, \
                learn, cache, head or models, or a word that some [[when]] names";
            faults.add(place, key, message);
        }
        known
    }

    /// A value as text; `None` if it is not valid for this axis.
    fn label(&self, axis: &str, node: &Node, key: &str, faults: &mut Faults) -> Option<String> {
        let mut refuse = |message: String| {
            faults.add(node.place.as_ref(), key, message);
            None
        };
        let Kind::Leaf(value) = &node.kind else {
            let message = "values of an axis are numbers, words or truths; for more, name them by \
                words and give these their meaning in [[when]]";
            return refuse(message.to_owned());
        };
        let label = show(value);
        match axis {
            "seed" if value.as_u64().is_none() => refuse(format!(
                "{value} is no seed: expected a whole number from 0"
            )),
            "target" if !self.models.targets.contains_key(&label) || !value.is_string() => {
                let known: Vec<&str> = self.models.targets.keys().map(String::as_str).collect();
                let known = known.join(", ");
                refuse(format!("target {value} is not in models.targets ({known})"))
            }
            "task" if !value.is_string() => refuse(format!("{value} is no name of a task")),
            _ if label.is_empty() => refuse("a value is empty".to_owned()),
            _ => Some(label),
        }
    }
}

/// A number, text or boolean as a label.
pub(crate) fn show(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn same_axes(tables: &[(Option<&Place>, Axes)], faults: &mut Faults) -> Option<()> {
    let names = |axes: &Axes| {
        axes.iter()
            .map(|(name, _)| name.clone())
            .collect::<BTreeSet<_>>()
    };
    let (_, first) = tables.first()?;
    let first = names(first);
    let mut same = true;
    for (place, axes) in tables {
        if names(axes) != first {
            let list = |names: BTreeSet<String>| names.into_iter().collect::<Vec<_>>().join(", ");
            let message = format!(
                "every [[grid]] has the same axes: this one has {}, the first {}",
                list(names(axes)),
                list(first.clone())
            );
            faults.add(*place, "grid", message);
            same = false;
        }
    }
    same.then_some(())
}

fn cells(tables: &[(Option<&Place>, Axes)], faults: &mut Faults) -> Option<Vec<Cell>> {
    let sizes = tables.iter().map(|(_, axes)| {
        let lengths = axes.iter().map(|(_, values)| values.len());
        lengths.fold(1, usize::saturating_mul)
    });
    let size = sizes.fold(0, usize::saturating_add);
    let (place, first) = tables.first()?;
    if size > MOST_CELLS {
        faults.add(
            *place,
            "grid",
            format!("makes {size} cells, more than {MOST_CELLS}"),
        );
        return None;
    }
    let order: Vec<&String> = first.iter().map(|(name, _)| name).collect();
    let (mut cells, mut known) = (Vec::new(), BTreeMap::new());
    for (place, axes) in tables {
        let values = |name: &String| axes.iter().find(|(own, _)| own == name);
        let values: Vec<Vec<Coordinate>> = order
            .iter()
            .filter_map(|name| values(name))
            .map(|(_, values)| values.clone())
            .collect();
        for coordinates in product(&values) {
            let part = |own: &Coordinate| {
                format!("{}={}", folder_name(&own.axis), folder_name(&own.label))
            };
            let name = coordinates.iter().map(part).collect::<Vec<_>>().join(",");
            let labels: Vec<String> = coordinates.iter().map(|own| own.label.clone()).collect();
            if let Some(other) = known.insert(name.clone(), labels.clone()) {
                let message = match other == labels {
                    true => format!("the cell {name} appears twice"),
                    false => format!(
                        "the cells {} and {} have one folder, {name}: folders spell anything but \
                         letters, digits and . _ + - as -",
                        other.join(", "),
                        labels.join(", ")
                    ),
                };
                faults.add(*place, "grid", message);
                return None;
            }
            cells.push(Cell { name, coordinates });
        }
    }
    Some(cells)
}

/// All choices of one value from each list; the last list varies fastest.
pub(crate) fn product<T: Clone>(lists: &[Vec<T>]) -> Vec<Vec<T>> {
    lists.iter().fold(vec![Vec::new()], |points, list| {
        let longer = |point: &Vec<T>| {
            let with = |value: &T| [point.as_slice(), std::slice::from_ref(value)].concat();
            list.iter().map(with).collect::<Vec<_>>()
        };
        points.iter().flat_map(longer).collect()
    })
}

/// A value as part of a folder's name.
pub(crate) fn folder_name(value: &str) -> String {
    let keep = |c: char| c.is_ascii_alphanumeric() || "._+-".contains(c);
    value
        .chars()
        .map(|c| if keep(c) { c } else { '-' })
        .collect()
}

/// True if a name is valid as a folder's name.
pub(crate) fn is_folder_name(name: &str) -> bool {
    !name.is_empty() && folder_name(name) == name && !name.starts_with(['.', '-'])
}
