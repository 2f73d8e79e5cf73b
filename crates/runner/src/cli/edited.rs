//! Differences between a job and the configuration of the results in its folder.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::anyhow;
use experiment::{JobConfig, Plan};
use jobs::JobsError;
use serde_json::Value;

/// Maximum number of differences in a message.
const SHOWN: usize = 3;

/// The error of a refused folder; for an edited job, with the keys that differ.
pub(super) fn explained(error: JobsError, plan: &Plan) -> anyhow::Error {
    let what = match &error {
        JobsError::Edited { id, path } => {
            let is_it = |job: &&experiment::Job| {
                job.config.stage == id.stage() && job.config.cell == id.cell()
            };
            let job = plan.jobs.iter().find(is_it);
            job.and_then(|job| differences(path, &job.config))
        }
        _ => None,
    };
    match what {
        Some(what) => anyhow!(error).context(what),
        None => error.into(),
    }
}

/// A change of one value: its key, the old and the new value.
type Change = (String, String, String);

fn differences(folder: &Path, config: &JobConfig) -> Option<String> {
    let manifest = results::Manifest::read(folder).ok()?;
    let before = JobConfig::from_json(&manifest.config).ok()?.to_json();
    let now = config.to_json();
    let mut changes = Vec::new();
    walk(
        "",
        &without_arms(&before),
        &without_arms(&now),
        &mut changes,
    );
    let mut texts: Vec<String> = changes
        .into_iter()
        // These follow from the earlier stage.
        .filter(|(key, ..)| key != "from_sha256" && key != "models")
        .map(|(key, before, now)| format!("{key} was {before}, is {now}"))
        .collect();
    texts.extend(of_arms(&by_name(&before), &by_name(&now)));
    if texts.is_empty() {
        let from = config.from.as_ref()?;
        return Some(format!("stage `{from}`, which it starts from, was edited"));
    }
    let more = match texts.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("; {more} more"),
    };
    texts.truncate(SHOWN);
    Some(format!("{}{more}", texts.join("; ")))
}

/// Changes of arms; a change of all arms is listed once.
fn of_arms(before: &BTreeMap<&str, &Value>, now: &BTreeMap<&str, &Value>) -> Vec<String> {
    let mut texts = Vec::new();
    let mut changed: BTreeMap<Change, Vec<&str>> = BTreeMap::new();
    let mut common = 0;
    for (name, arm) in now {
        let Some(old) = before.get(name) else {
            texts.push(format!("arm `{name}` is new"));
            continue;
        };
        common += 1;
        let mut changes = Vec::new();
        walk("", old, arm, &mut changes);
        for change in changes {
            changed.entry(change).or_default().push(name);
        }
    }
    let gone = before.keys().filter(|name| !now.contains_key(*name));
    texts.extend(gone.map(|name| format!("arm `{name}` is gone")));
    for ((key, before, now), names) in changed {
        let of = match names.len() == common {
            true => String::new(),
            false => {
                let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
                format!(" of {}", names.join(", "))
            }
        };
        texts.push(format!("{key}{of} was {before}, is {now}"));
    }
    texts
}

fn without_arms(job: &Value) -> Value {
    let mut job = job.clone();
    if let Some(fields) = job.as_object_mut() {
        fields.remove("arms");
    }
    job
}

fn by_name(job: &Value) -> BTreeMap<&str, &Value> {
    let arms = job["arms"].as_array().into_iter().flatten();
    arms.filter_map(|arm| Some((arm["name"].as_str()?, arm)))
        .collect()
}

fn walk(key: &str, before: &Value, now: &Value, changes: &mut Vec<Change>) {
    if before == now {
        return;
    }
    if let (Some(old), Some(new)) = (before.as_object(), now.as_object()) {
        let names: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            let inner = match key {
                "" => name.clone(),
                _ => format!("{key}.{name}"),
            };
            walk(&inner, &before[name], &now[name], changes);
        }
        return;
    }
    let show = |value: &Value| match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    };
    changes.push((key.to_owned(), show(before), show(now)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_change_that_all_arms_have_is_told_once() {
        let arms = |k: [u32; 2], lambda: f64| {
            json!({ "arms": [
                { "name": "a", "decode": { "k": k[0] } },
                { "name": "b", "decode": { "k": k[1] }, "learn": { "lambda": lambda } },
            ]})
        };
        let told = |before: &Value, now: &Value| of_arms(&by_name(before), &by_name(now));
        let before = arms([4, 4], 0.2);
        assert_eq!(told(&before, &arms([3, 3], 0.2)), ["decode.k was 4, is 3"]);
        assert_eq!(
            told(&before, &arms([4, 4], 0.3)),
            ["learn.lambda of `b` was 0.2, is 0.3"]
        );
        let other = json!({ "arms": [{ "name": "a", "decode": { "k": 4 } }, { "name": "c" }] });
        assert_eq!(told(&before, &other), ["arm `c` is new", "arm `b` is gone"]);
    }
}
