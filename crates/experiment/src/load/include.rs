//! Files that include files.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::faults::Faults;
use super::near::SLIPS;
use super::source;
use super::tree::{Node, Place, normalise};
use crate::error::ExperimentError;

/// Reads a file with all its includes; `extra` files are the last of these. `open` are the files
/// that include it, as they were named and by their real paths.
pub(super) fn file(
    path: &Path,
    extra: &[PathBuf],
    included_by: Option<&Place>,
    open: &mut Vec<(PathBuf, PathBuf)>,
    faults: &mut Faults,
) -> Result<Node, ExperimentError> {
    let unreadable = |source: std::io::Error| ExperimentError::Read {
        near: near(path).filter(|_| source.kind() == ErrorKind::NotFound),
        path: path.to_path_buf(),
        included_by: included_by.map(Place::to_string),
        source,
    };
    let real = path.canonicalize().map_err(unreadable)?;
    if let Some(start) = open.iter().position(|(_, other)| *other == real) {
        let circle = open.drain(start..).map(|(shown, _)| shown);
        return Err(ExperimentError::Circle(
            circle.chain([path.to_path_buf()]).collect(),
        ));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let parsed = source::parse(&text, &path.display().to_string(), true, faults);
    let Some(mut own) = parsed else {
        return match path.extension().is_some_and(|ending| ending == "toml") {
            true => Ok(Node::table(None)),
            // Otherwise each of its lines would be a fault.
            false => Err(source::no_toml(&text, path)),
        };
    };
    normalise(&mut own);
    let mut files = included(&mut own, path, faults);
    files.extend(extra.iter().map(|path| (path.clone(), None)));
    let mut merged = Node::table(own.place.clone());
    open.push((path.to_path_buf(), real));
    for (inner, place) in files {
        merged.merge(file(&inner, &[], place.as_ref(), open, faults)?);
    }
    open.pop();
    merged.merge(own);
    Ok(merged)
}

/// The file in the folder of `path` whose name is most similar to its name, if it is similar
/// enough.
fn near(path: &Path) -> Option<PathBuf> {
    let folder = path.parent()?;
    let listed = match folder.as_os_str().is_empty() {
        true => Path::new("."),
        false => folder,
    };
    let wanted = path.file_stem()?.to_string_lossy();
    let slips = |other: &PathBuf| {
        let stem = other.file_stem()?.to_string_lossy();
        let slips = strsim::damerau_levenshtein(&wanted, &stem);
        (slips <= SLIPS && 2 * slips < wanted.chars().count()).then_some(slips)
    };
    let files = std::fs::read_dir(listed).ok()?.flatten();
    let files = files.map(|entry| folder.join(entry.file_name()));
    let files = files.filter(|file| file.extension().is_some_and(|ending| ending == "toml"));
    let near = files.filter_map(|file| Some((slips(&file)?, file)));
    near.min().map(|(_, file)| file)
}

/// Removes and returns the list of included files of a file.
fn included(own: &mut Node, path: &Path, faults: &mut Faults) -> Vec<(PathBuf, Option<Place>)> {
    let list = own
        .as_table_mut()
        .and_then(|table| table.shift_remove("include"));
    let Some(list) = list else {
        return Vec::new();
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut files = Vec::new();
    match list.as_array() {
        Some(items) => {
            for item in items {
                match item.as_str() {
                    Some(name) => files.push((folder.join(name), item.place.clone())),
                    None => faults.add(item.place.as_ref(), "include", "expected a file name"),
                }
            }
        }
        None => faults.advise(
            list.place.as_ref(),
            "include",
            "expected a list of files",
            "write include = [\"base.toml\"]",
        ),
    }
    files
}
