//! The segments of a cell's stream: its task, or the `[[segment]]` tables of a drift stream.

use crate::count::PromptCounts;
use crate::file::{SegmentFile, StageFile};
use crate::grid::Cell;
use crate::job::Segment;
use crate::load::{Faults, Node, read};
use crate::settings::ModelsConfig;
use crate::stage::StageDef;

pub(crate) fn read_all(node: Option<&Node>, faults: &mut Faults) -> Option<Vec<SegmentFile>> {
    let Some(node) = node else {
        return Some(Vec::new());
    };
    let Some(items) = node.as_array() else {
        faults.add(
            node.place.as_ref(),
            "segment",
            "expected tables [[segment]]",
        );
        return None;
    };
    let items = items.iter().enumerate();
    items
        .map(|(i, item)| read(item, &format!("segment.{i}"), faults))
        .collect::<Vec<_>>()
        .into_iter()
        .collect()
}

/// Reports conflicts between cells and segments, and missing tasks or targets.
pub(crate) fn check(
    segments: &[SegmentFile],
    cells: &[Cell],
    models: &ModelsConfig,
    root: &Node,
    faults: &mut Faults,
) -> bool {
    let place = |key: &str| root.place_at(key);
    let has = |axis: &str| cells.iter().any(|cell| cell.label(axis).is_some());
    let mut good = true;
    let mut refuse = |place, key: &str, message: String| {
        faults.add(place, key, message);
        good = false;
    };
    match (segments.is_empty(), has("task")) {
        (true, false) => {
            let message = "has no axis `task`, and there is no [[segment]]".to_owned();
            refuse(place("grid"), "grid", message);
        }
        (false, true) => {
            let message = "there are tasks in [[segment]]: take away one of them".to_owned();
            refuse(place("grid.task").or(place("grid")), "grid.task", message);
        }
        _ => {}
    }
    let known: Vec<&str> = models.targets.keys().map(String::as_str).collect();
    let named = segments.iter().any(|segment| segment.target.is_some());
    if named && has("target") {
        let message = "there are targets in [[segment]]: take away one of them".to_owned();
        refuse(
            place("grid.target").or(place("grid")),
            "grid.target",
            message,
        );
    }
    for (i, segment) in segments.iter().enumerate() {
        let key = format!("segment.{i}.target");
        let place = place(&key).or(place(&format!("segment.{i}")));
        match &segment.target {
            Some(target) if !models.targets.contains_key(target) => {
                let known = known.join(", ");
                let message = format!("target `{target}` is not in models.targets ({known})");
                refuse(place, &key, message);
            }
            None if named && known.len() > 1 => {
                refuse(
                    place,
                    &key,
                    "is missing: other segments name theirs".to_owned(),
                );
            }
            _ => {}
        }
    }
    if !named && !has("target") && known.len() > 1 {
        let known = known.join(", ");
        let message = format!("is missing: models.targets has several ({known})");
        refuse(place("grid"), "grid.target", message);
    }
    good
}

/// Reports numbers of segments that do not exist or occur twice.
pub(crate) fn check_selection(stage: &StageDef, segments: usize, faults: &mut Faults) {
    let Some(selected) = &stage.file.segments else {
        return;
    };
    let mut tell = |message: &str| {
        let key = format!("stage.{}.segments", stage.name);
        faults.add(stage.place.as_ref(), &key, message);
    };
    if segments == 0 {
        tell("there are no [[segment]] tables to choose from");
    } else if selected.is_empty() || selected.iter().any(|n| !(1..=segments).contains(n)) {
        tell(&format!("must name some of the segments 1 to {segments}"));
    } else if !selected.is_sorted_by(|a, b| a < b) {
        tell("must rise: segments are streamed in the order of the file, each once");
    }
}

/// The segments of a cell of `stage`; `whens` are the numbers that `[[when]]` gives this cell.
pub(crate) fn of_cell(
    segments: &[SegmentFile],
    cell: &Cell,
    models: &ModelsConfig,
    stage: &StageFile,
    whens: &[PromptCounts],
) -> Vec<Segment> {
    let only = models.targets.keys().next();
    let target = cell.label("target").or(only.map(String::as_str));
    let target = target.unwrap_or_default();
    let counts = |own: PromptCounts| {
        let Some(stage) = stage.prompts else {
            return own;
        };
        let of_cell = whens
            .iter()
            .fold(stage, |counts, when| counts.narrowed(*when));
        of_cell.narrowed(own)
    };
    let segment = |task: &str, target: &str, own: PromptCounts| {
        let counts = counts(own);
        Segment {
            task: task.to_owned(),
            target: target.to_owned(),
            train: counts.train.unwrap_or_default(),
            test: counts.test.unwrap_or_default(),
            skip: 0,
        }
    };
    if segments.is_empty() {
        let task = cell.label("task").unwrap_or_default();
        return vec![segment(task, target, PromptCounts::default())];
    }
    let all = segments.iter().map(|own| {
        let target = own.target.as_deref().unwrap_or(target);
        segment(&own.task, target, own.prompts)
    });
    let (mut kept, mut left_out): (Vec<Segment>, Vec<Segment>) = (Vec::new(), Vec::new());
    for (i, mut own) in all.enumerate() {
        let selected = stage.segments.as_ref();
        if selected.is_none_or(|numbers| numbers.contains(&(i + 1))) {
            let earlier = left_out.iter().filter(|other| other.task == own.task);
            own.skip = earlier
                .map(|other| other.train.limit().unwrap_or(usize::MAX))
                .fold(0, usize::saturating_add);
            kept.push(own);
        } else {
            left_out.push(own);
        }
    }
    kept
}
