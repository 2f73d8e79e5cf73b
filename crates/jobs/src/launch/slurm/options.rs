//! The section `[launcher.slurm]`, whose keys become options of `sbatch`.

use serde_json::{Map, Value};

use crate::JobsError;

/// Options that the launcher sets itself, or that would change the folder, the log or the script of
/// its tasks.
const OURS: [&str; 11] = [
    "array",
    "chdir",
    "dependency",
    "error",
    "job-name",
    "kill-on-invalid-dep",
    "open-mode",
    "output",
    "parsable",
    "wait",
    "wrap",
];
/// Our own key: the number of tasks of one array that run at a time.
const MAX_RUNNING: &str = "max-running";

/// Advice for every key that is not valid.
const KEYS: &str = "a key becomes an option of sbatch: time = \"02:00:00\" is --time=02:00:00, \
                    requeue = true is --requeue";

/// Options of `sbatch` from `[launcher.slurm]`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SlurmOptions {
    /// Names without dashes, with values; a switch has none.
    options: Vec<(String, Option<String>)>,
    pub(super) max_running: Option<u64>,
    /// Keys that are `false`.
    refused: Vec<String>,
}

impl SlurmOptions {
    /// Parses the section: text and numbers become `--key=value`, `true` becomes `--key`, `false`
    /// is left out; `max-running = N` lets N tasks of an array run at a time. Underscores in keys
    /// stand for dashes.
    ///
    /// # Errors
    /// Another type of value, or a key that the launcher sets itself.
    pub fn new(section: &Map<String, Value>) -> Result<Self, JobsError> {
        let mut options = Self::default();
        for (written, value) in section {
            let refuse = |problem: &str| {
                JobsError::refused(format!("launcher.slurm.{written}: {problem}"), KEYS)
            };
            let key = written.replace('_', "-");
            let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if !key.chars().all(allowed) || key.len() < 2 || key.starts_with('-') {
                return Err(refuse("is not the long name of an option of sbatch"));
            }
            if OURS.contains(&key.as_str()) {
                return Err(refuse("is set by the launcher itself"));
            }
            if key == MAX_RUNNING {
                let number = value.as_u64().filter(|&n| n > 0);
                options.max_running = Some(number.ok_or_else(|| refuse("is not a number from 1"))?);
                continue;
            }
            match value {
                Value::Bool(false) => options.refused.push(key),
                Value::Bool(true) => options.options.push((key, None)),
                _ => {
                    let text = text(value).ok_or_else(|| refuse("is no text, number or truth"))?;
                    if text.contains(['\n', '\r', '\0']) {
                        return Err(refuse("has a line break"));
                    }
                    options.options.push((key, Some(text)));
                }
            }
        }
        Ok(options)
    }

    /// The options as arguments.
    pub(super) fn arguments(&self) -> impl Iterator<Item = String> {
        self.options.iter().map(|(key, value)| match value {
            Some(value) => format!("--{key}={value}"),
            None => format!("--{key}"),
        })
    }

    /// True for an option of the section, also if it is `false`.
    pub(super) fn names(&self, name: &str) -> bool {
        let mut keys = self.options.iter().map(|(key, _)| key).chain(&self.refused);
        keys.any(|key| key == name)
    }

    /// Argument with which the other programs address the same cluster.
    pub(super) fn cluster(&self) -> Option<String> {
        let (_, value) = self.options.iter().find(|(key, _)| key == "clusters")?;
        value.as_ref().map(|value| format!("--clusters={value}"))
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(section: Value) -> Result<SlurmOptions, JobsError> {
        SlurmOptions::new(section.as_object().unwrap())
    }

    #[test]
    fn keys_become_options() {
        let options = read(json!({
            "partition": "long",
            "cpus_per_task": 2,
            "requeue": true,
            "hold": false,
            "time": "01:00:00",
            "clusters": "east",
            "max_running": 4,
        }))
        .unwrap();
        let arguments: Vec<_> = options.arguments().collect();
        for argument in [
            "--partition=long",
            "--cpus-per-task=2",
            "--requeue",
            "--time=01:00:00",
        ] {
            assert!(arguments.iter().any(|a| a == argument), "{arguments:?}");
        }
        assert!(!arguments.iter().any(|a| a.contains("hold")) && options.names("hold"));
        assert_eq!(options.max_running, Some(4));
        assert_eq!(options.cluster().as_deref(), Some("--clusters=east"));
    }

    #[test]
    fn bad_keys_are_named() {
        for (section, problem) in [
            (json!({"array": "0-3"}), "launcher.slurm.array: is set by"),
            (
                json!({"job_name": "x"}),
                "launcher.slurm.job_name: is set by",
            ),
            (json!({"p": "x"}), "launcher.slurm.p: is not the long name"),
            (
                json!({"a b": "x"}),
                "launcher.slurm.a b: is not the long name",
            ),
            (json!({"gres": ["a"]}), "launcher.slurm.gres: is no text"),
            (
                json!({"gres": "a\nb"}),
                "launcher.slurm.gres: has a line break",
            ),
            (
                json!({"max-running": 0}),
                "launcher.slurm.max-running: is not",
            ),
        ] {
            let error = read(section).unwrap_err();
            assert!(error.to_string().starts_with(problem), "{error}");
            assert!(error.hint().is_some());
        }
    }
}
