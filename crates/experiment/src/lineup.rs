//! `[[arm]]` and `[sweep]`: the list of arms, independent of cells.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::arm::SweptFrom;
use crate::file::ArmFile;
use crate::grid::{SECTIONS, product, show};
use crate::load::{Faults, Node, Place, Table, read};
use crate::{patch, preset};

/// Maximum number of arms from one sweep; more are a mistake.
const MOST_ARMS: usize = 1000;

/// An arm as patches over the defaults of the file.
#[derive(Debug, Clone)]
pub(crate) struct ArmDef {
    pub(crate) name: String,
    pub(crate) place: Option<Place>,
    /// The preset's keys.
    pub(crate) preset: Node,
    /// Its own keys, including the values of the sweep.
    pub(crate) set: Node,
    pub(crate) learnt_by: Option<String>,
    pub(crate) swept_from: Option<SweptFrom>,
}

/// Reads the arms and expands sweeps. `defaults` decide which arms draft; only those take a sweep.
pub(crate) fn read_all(root: &Node, defaults: &Node, faults: &mut Faults) -> Option<Vec<ArmDef>> {
    let node = root.at("arm");
    let items = node
        .and_then(Node::as_array)
        .filter(|items| !items.is_empty());
    let Some(items) = items else {
        let message = match node.and_then(Node::as_table) {
            Some(_) => "expected tables [[arm]]; this is one table [arm]",
            None => "at least one arm is needed",
        };
        let hint = "write [[arm]] preset = \"L_DM+L_N-gram\"";
        faults.advise(root.place_at("arm"), "arm", message, hint);
        return None;
    };
    let general = root.at("sweep");
    let (mut arms, mut whole, mut swept) = (Vec::new(), true, false);
    for (i, item) in items.iter().enumerate() {
        let key = format!("arm.{i}");
        let Some((arm, own)) = one(item, &key, faults) else {
            whole = false;
            continue;
        };
        let sweep = match own {
            Some(own) => Some((own, format!("{key}.sweep"))),
            None if drafts(&arm, defaults) => {
                swept = true;
                general.map(|general| (general, "sweep".to_owned()))
            }
            None => None,
        };
        match sweep {
            Some((sweep, key)) => arms.extend(spell_out(&arm, sweep, &key, faults)?),
            None => arms.push(arm),
        }
    }
    if let Some(general) = general.filter(|_| !swept && whole) {
        let message = "no arm takes these values: none drafts without a sweep of its own";
        faults.add(general.place.as_ref(), "sweep", message);
    }
    let mut names = BTreeSet::new();
    for arm in &arms {
        if !names.insert(arm.name.as_str()) {
            let message = format!("two arms have the name `{}`", arm.name);
            faults.advise(
                arm.place.as_ref(),
                "arm",
                message,
                "give one of them a name",
            );
            whole = false;
        }
    }
    link(&mut arms, faults);
    whole.then_some(arms)
}

/// An arm and its own sweep, if any.
fn one<'a>(item: &'a Node, key: &str, faults: &mut Faults) -> Option<(ArmDef, Option<&'a Node>)> {
    let file: ArmFile = read(item, key, faults)?;
    let place = item.place.as_ref();
    let preset = match &file.preset {
        None => Some(Node::table(None)),
        Some(name) => {
            let found = preset::patch(name);
            if found.is_none() {
                let place = item.place_at("preset");
                let message = format!("there is no preset `{name}` (one of {})", preset::names());
                faults.add(place, &format!("{key}.preset"), message);
            }
            found
        }
    };
    let name = file
        .name
        .or(file.preset)
        .filter(|name| !name.trim().is_empty());
    if name.is_none() {
        faults.add(place, key, "an arm needs a name or a preset");
    }
    let arm = ArmDef {
        name: name?,
        place: item.place.clone(),
        preset: preset?,
        set: patch::of(item, key, false, faults),
        learnt_by: file.learnt_by,
        swept_from: None,
    };
    Some((arm, item.at("sweep")))
}

fn drafts(arm: &ArmDef, defaults: &Node) -> bool {
    let mut whole = defaults.clone();
    whole.merge(arm.preset.clone());
    whole.merge(arm.set.clone());
    whole.at("decode.verify").and_then(Node::as_str) != Some("none")
}

/// The arm for every combination of values.
fn spell_out(arm: &ArmDef, sweep: &Node, key: &str, faults: &mut Faults) -> Option<Vec<ArmDef>> {
    let Some(table) = sweep.as_table() else {
        faults.add(
            sweep.place.as_ref(),
            key,
            "expected dotted keys with lists of values",
        );
        return None;
    };
    let axes = sweep_axes(table, key, faults)?;
    let size = axes.iter().map(Vec::len).fold(1, usize::saturating_mul);
    if size > MOST_ARMS {
        let message = format!("makes {size} arms of `{}`, more than {MOST_ARMS}", arm.name);
        faults.add(sweep.place.as_ref(), key, message);
        return None;
    }
    let points = product(&axes);
    Some(points.iter().map(|point| with_values(arm, point)).collect())
}

fn sweep_axes<'a>(
    table: &'a Table,
    key: &str,
    faults: &mut Faults,
) -> Option<Vec<Vec<(&'a str, &'a Node)>>> {
    let (mut axes, mut good) = (Vec::new(), true);
    for (name, node) in table {
        let key = format!("{key}.{name}");
        let section = name.split_once('.').map(|(section, _)| section);
        if !section.is_some_and(|section| section != "models" && SECTIONS.contains(&section)) {
            let message = "a sweep takes dotted keys of decode, learn, cache or head";
            faults.add(node.place.as_ref(), &key, message);
            good = false;
        }
        match node.as_array() {
            Some(values) if !values.is_empty() => {
                axes.push(values.iter().map(|value| (name.as_str(), value)).collect());
            }
            _ => {
                faults.add(
                    node.place.as_ref(),
                    &key,
                    "expected a list of at least one value",
                );
                good = false;
            }
        }
    }
    good.then_some(axes)
}

fn with_values(arm: &ArmDef, values: &[(&str, &Node)]) -> ArmDef {
    let mut own = arm.clone();
    if values.is_empty() {
        return own;
    }
    let mut labels = Vec::new();
    for (key, value) in values {
        let last = key.rsplit('.').next().unwrap_or(key);
        labels.push(format!("{last} = {}", show(&value.to_json())));
        own.set.put(key, (*value).clone());
    }
    own.name = format!("{} ({})", arm.name, labels.join(", "));
    own.swept_from = Some(SweptFrom {
        arm: arm.name.clone(),
        values: values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), value.to_json()))
            .collect(),
    });
    own
}

/// Replaces a `learnt_by` that names a swept arm by the arm of its sweep with the same values.
fn link(arms: &mut [ArmDef], faults: &mut Faults) {
    let known: Vec<(String, Option<SweptFrom>)> = arms
        .iter()
        .map(|arm| (arm.name.clone(), arm.swept_from.clone()))
        .collect();
    for arm in arms {
        let Some(wanted) = &arm.learnt_by else {
            continue;
        };
        if known.iter().any(|(name, _)| name == wanted) {
            continue;
        }
        let family = |(name, from): &'_ (String, Option<SweptFrom>)| {
            let from = from.as_ref().filter(|from| from.arm == *wanted)?;
            Some((name.clone(), from.values.clone()))
        };
        let family: Vec<(String, Vec<(String, Value)>)> = known.iter().filter_map(family).collect();
        let own = arm.swept_from.as_ref().map(|from| &from.values);
        match family.iter().find(|(_, values)| Some(values) == own) {
            Some((name, _)) => arm.learnt_by = Some(name.clone()),
            None => {
                let names: Vec<&str> = match family.is_empty() {
                    true => known.iter().map(|(name, _)| name.as_str()).collect(),
                    false => family.iter().map(|(name, _)| name.as_str()).collect(),
                };
                let message = format!(
                    "arm `{}`: there is no arm `{wanted}` (one of {})",
                    arm.name,
                    names.join(", ")
                );
                faults.add(arm.place.as_ref(), "arm.learnt_by", message);
            }
        }
    }
}
