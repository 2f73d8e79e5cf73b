//! Id lists of a published split.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::StreamError;

/// A split file: named lists of ids, with the rule that chose them.
///
/// Every list is an id list and must hold strings (`train` and `test` in `paper_split.json`);
/// values that are no lists are commentary.
#[derive(Debug, Clone)]
pub struct PaperSplit {
    path: PathBuf,
    lists: BTreeMap<String, Vec<String>>,
}

impl PaperSplit {
    /// Name of the split file in a task's folder.
    pub const FILE: &'static str = "paper_split.json";

    /// Reads a split file.
    ///
    /// # Errors
    /// A file that cannot be read or is not a JSON object; a list with other values than strings;
    /// an id in both `train` and `test`.
    pub fn load(path: &Path) -> Result<Self, StreamError> {
        let bytes = std::fs::read(path).map_err(StreamError::read(path))?;
        let malformed = |source| StreamError::MalformedSplit {
            path: path.to_owned(),
            source,
        };
        let entries: BTreeMap<String, Value> = serde_json::from_slice(&bytes).map_err(malformed)?;
        let mut lists = BTreeMap::new();
        for (name, value) in entries {
            if value.is_array() {
                let ids: Vec<String> = serde_json::from_value(value).map_err(malformed)?;
                lists.insert(name, ids);
            }
        }
        let split = Self {
            path: path.to_owned(),
            lists,
        };
        split.refuse_overlap()?;
        Ok(split)
    }

    fn refuse_overlap(&self) -> Result<(), StreamError> {
        let (Some(train), Some(test)) = (self.lists.get("train"), self.lists.get("test")) else {
            return Ok(());
        };
        let test: HashSet<&String> = test.iter().collect();
        match train.iter().find(|id| test.contains(id)) {
            None => Ok(()),
            Some(id) => Err(StreamError::TestLeak {
                id: id.clone(),
                data: format!("{}:train", self.path.display()),
                split: self.path.display().to_string(),
            }),
        }
    }

    /// The ids of one list, in the file's order.
    ///
    /// # Errors
    /// There is no list of that name.
    pub fn ids(&self, list: &str) -> Result<&[String], StreamError> {
        self.lists
            .get(list)
            .map(Vec::as_slice)
            .ok_or_else(|| StreamError::UnknownList {
                path: self.path.clone(),
                list: list.to_owned(),
                known: self.lists.keys().cloned().collect(),
            })
    }

    /// The records of one list, in the list's order; `key` gives a record's id and `data` names
    /// their origin in errors.
    ///
    /// # Errors
    /// No such list; an id that is listed twice, or that no record has.
    pub fn pick<T>(
        &self,
        list: &str,
        records: Vec<T>,
        key: impl Fn(&T) -> &str,
        data: &str,
    ) -> Result<Vec<T>, StreamError> {
        let ids = self.ids(list)?;
        let mut seen = HashSet::with_capacity(ids.len());
        if let Some(id) = ids.iter().find(|id| !seen.insert(id.as_str())) {
            return Err(StreamError::RepeatedId {
                id: id.clone(),
                split: self.name(list),
            });
        }
        let mut by_id: HashMap<String, T> = records
            .into_iter()
            .map(|r| (key(&r).to_owned(), r))
            .collect();
        let take = |id: &String| {
            by_id.remove(id).ok_or_else(|| StreamError::UnknownId {
                id: id.clone(),
                split: self.name(list),
                data: data.to_owned(),
            })
        };
        ids.iter().map(take).collect()
    }

    /// `FILE:LIST`, for messages.
    fn name(&self, list: &str) -> String {
        format!("{}:{list}", self.path.display())
    }
}
