//! Writing a page's files, or comparing them with those that exist.

use crate::page::{Built, build};
use crate::{ReportError, render};
use experiment::{FigureName, ReportFormat};
use results::write_atomically;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Folder of the page inside a root folder.
const REPORT_DIR: &str = "report";

/// Result of writing a report.
#[derive(Debug, Clone, PartialEq)]
pub struct ReportSummary {
    /// The first table as Markdown, for the terminal.
    pub markdown: String,
    /// Warnings for the reader, shown before any number.
    pub warnings: Vec<String>,
    /// Files written.
    pub files: Vec<PathBuf>,
}

/// A file of a page that differs from the one that its rows give.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The file.
    pub path: PathBuf,
    /// Description of the difference.
    pub what: String,
}

/// Writes `report/` of a root folder; files of an earlier page that this one does not have are
/// removed.
///
/// # Errors
/// A folder without an experiment, a damaged cell, no complete cell, a file that cannot be written.
pub fn write_report(root: &Path) -> Result<ReportSummary, ReportError> {
    let built = build(root)?;
    let files = render(&built)?;
    let dir = root.join(REPORT_DIR);
    std::fs::create_dir_all(&dir).map_err(|source| ReportError::io(&dir, source))?;
    for name in present(&dir)?.difference(&files.keys().cloned().collect()) {
        let path = dir.join(name);
        std::fs::remove_file(&path).map_err(|source| ReportError::io(&path, source))?;
    }
    let mut written = Vec::new();
    for (name, bytes) in &files {
        let path = dir.join(name);
        write_atomically(&path, bytes)?;
        written.push(path);
    }
    Ok(ReportSummary {
        markdown: built.first_table(),
        warnings: built.page.warnings,
        files: written,
    })
}

/// Regenerates the page and compares it with the files in `report/`, byte for byte.
///
/// # Errors
/// As [`write_report`]; a difference is not an error.
pub fn compare(root: &Path) -> Result<Vec<Difference>, ReportError> {
    let files = render(&build(root)?)?;
    let dir = root.join(REPORT_DIR);
    let present = if dir.exists() {
        present(&dir)?
    } else {
        BTreeSet::new()
    };
    let mut differences = Vec::new();
    for (name, bytes) in &files {
        let path = dir.join(name);
        let what = match std::fs::read(&path) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => "missing".to_owned(),
            Err(source) => return Err(ReportError::io(&path, source)),
            Ok(found) if found == *bytes => continue,
            Ok(found) => first_difference(&found, bytes),
        };
        differences.push(Difference { path, what });
    }
    for name in &present {
        if !files.contains_key(name) {
            differences.push(Difference {
                path: dir.join(name),
                what: "not made from these rows".to_owned(),
            });
        }
    }
    Ok(differences)
}

/// Every file of a page by name.
fn render(built: &Built) -> Result<BTreeMap<String, Vec<u8>>, ReportError> {
    let mut files = BTreeMap::new();
    let formats = &built.experiment.report.formats;
    for format in formats {
        let (ending, text) = match format {
            ReportFormat::Md => ("md", render::markdown(&built.page)),
            ReportFormat::Tex => {
                let tables = render::latex(&built.page, &built.experiment.name);
                let tables = tables.into_iter();
                files.extend(tables.map(|(name, text)| (name, text.into_bytes())));
                continue;
            }
            ReportFormat::Html => ("html", render::html(&built.page)?),
            ReportFormat::Csv => {
                let failed = |error: csv::Error| ReportError::Making {
                    action: "render the csv page".to_owned(),
                    message: error.to_string(),
                };
                ("csv", render::csv(&built.page).map_err(failed)?)
            }
            ReportFormat::Svg => continue,
        };
        files.insert(format!("report.{ending}"), text.into_bytes());
    }
    for drawing in &built.drawings {
        let file = |ending: &str| format!("{}.{ending}", drawing.name);
        if formats.contains(&ReportFormat::Svg) {
            files.insert(file("svg"), drawing.svg.clone().into_bytes());
        }
        files.insert(file("png"), drawing.png()?);
    }
    Ok(files)
}

/// Names of the files in `dir` that may belong to a page.
fn present(dir: &Path) -> Result<BTreeSet<String>, ReportError> {
    let failed = |source| ReportError::io(dir, source);
    let mut names = BTreeSet::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name
            && of_a_page(name)
            && path.is_file()
        {
            names.insert(name.to_owned());
        }
    }
    Ok(names)
}

/// True for the name of a file that some page has; files with other names are somebody's own.
fn of_a_page(name: &str) -> bool {
    let Some((stem, ending)) = name.rsplit_once('.') else {
        return false;
    };
    match ending {
        "md" | "csv" | "html" => stem == "report",
        "tex" => stem == "report" || stem.starts_with("table-") || stem.starts_with("figure-"),
        "svg" | "png" => {
            // Figures of further sets are numbered: `speed-2`.
            let figure = match stem.rsplit_once('-') {
                Some((figure, number)) if number.parse::<usize>().is_ok() => figure,
                _ => stem,
            };
            serde_json::from_value::<FigureName>(figure.into()).is_ok()
        }
        _ => false,
    }
}

/// Description of the first difference of two files: the line of a text.
fn first_difference(found: &[u8], made: &[u8]) -> String {
    let (Ok(found), Ok(made)) = (std::str::from_utf8(found), std::str::from_utf8(made)) else {
        return "differs".to_owned();
    };
    let mut lines = found.lines().zip(made.lines()).enumerate();
    match lines.find(|(_, (found, made))| found != made) {
        Some((index, _)) => format!("differs from line {}", index + 1),
        None => "differs in length".to_owned(),
    }
}
