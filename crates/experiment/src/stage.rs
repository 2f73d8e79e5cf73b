//! `[stage.NAME]`: the stages of every cell, in order.

use crate::file::StageFile;
use crate::grid::is_folder_name;
use crate::load::{Faults, Node, Place, read};
use crate::patch;

#[derive(Debug, Clone)]
pub(crate) struct StageDef {
    pub(crate) name: String,
    pub(crate) place: Option<Place>,
    pub(crate) file: StageFile,
    pub(crate) set: Node,
}

/// Names of folders beside those of the stages.
const TAKEN: [&str; 2] = ["report", "slurm"];

/// Reads the stages and orders each after the one that it starts from.
pub(crate) fn read_all(node: Option<&Node>, faults: &mut Faults) -> Option<Vec<StageDef>> {
    let table = node
        .and_then(Node::as_table)
        .filter(|table| !table.is_empty());
    let Some(table) = table else {
        let message = "at least one stage is needed";
        let hint = "write [stage.stream] with prompts = { train = 1000, test = \"all\" }";
        faults.advise(
            node.and_then(|node| node.place.as_ref()),
            "stage",
            message,
            hint,
        );
        return None;
    };
    let (mut stages, mut whole) = (Vec::new(), true);
    for (name, node) in table {
        let key = format!("stage.{name}");
        let place = node.place.as_ref();
        if !is_folder_name(name) || TAKEN.contains(&name.as_str()) {
            let message = format!(
                "`{name}` cannot name a folder of jobs: use letters, digits, . _ + -, the first \
                     neither . nor -; report and slurm are taken"
            );
            faults.add(place, &key, message);
            whole = false;
        }
        let Some(file) = read::<StageFile>(node, &key, faults) else {
            whole = false;
            continue;
        };
        stages.push(StageDef {
            name: name.clone(),
            place: node.place.clone(),
            set: patch::of(node, &key, true, faults),
            file,
        });
    }
    let sorted = sort(stages, table, faults)?;
    whole.then_some(sorted)
}

fn sort(
    mut waiting: Vec<StageDef>,
    table: &crate::load::Table,
    faults: &mut Faults,
) -> Option<Vec<StageDef>> {
    let names: Vec<String> = waiting.iter().map(|stage| stage.name.clone()).collect();
    let mut good = true;
    for stage in &waiting {
        let Some(from) = &stage.file.from else {
            continue;
        };
        let key = format!("stage.{}.from", stage.name);
        let node = table.get(&stage.name);
        let place = node.and_then(|node| node.place_at("from"));
        if from == &stage.name {
            faults.add(place, &key, "a stage cannot start from itself");
            good = false;
        } else if !names.contains(from) {
            let message = format!("there is no stage `{from}` (one of {})", names.join(", "));
            let hint = "`from` names another [stage.NAME] of the experiment";
            faults.advise(place, &key, message, hint);
            good = false;
        }
    }
    let mut sorted: Vec<StageDef> = Vec::new();
    while good && !waiting.is_empty() {
        let ready = waiting.iter().position(|stage| match &stage.file.from {
            None => true,
            Some(from) => sorted.iter().any(|done| done.name == *from),
        });
        match ready {
            Some(ready) => sorted.push(waiting.remove(ready)),
            None => {
                let names: Vec<&str> = waiting.iter().map(|stage| stage.name.as_str()).collect();
                let message = format!(
                    "stages start from each other in a circle: {}",
                    names.join(", ")
                );
                let place = waiting.first().and_then(|stage| stage.place.as_ref());
                let hint = "take away the `from` of the stage that comes first";
                faults.advise(place, "stage", message, hint);
                good = false;
            }
        }
    }
    good.then_some(sorted)
}
