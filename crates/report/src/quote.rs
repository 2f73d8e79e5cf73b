//! Tables of published runs inside other pages: quotations are generated, not typed.
//!
//! A Markdown page requests a table in a comment, and the table follows it:
//!
//! ```text
//! <!-- quote: ../results/real-table1; acceptance; arm = L_DM | L_DM+L_N-gram; columns = arm | gsm8k -->
//! ...the table...
//! <!-- end -->
//! ```
//!
//! The path is relative to the page. For a results folder the second part is the id of a table, or
//! the first table if it is left out. For a Markdown file it is the heading above the table.
//! Further parts select rows by the entries of a column, and `columns` selects columns.
//!
//! `<!-- query: RUN -->` requests the answer to the `sql` block above it; only programs that have SQL
//! make it anew, others keep what is there.
//!
//! `<!-- verdicts: FOLDER | FOLDER -->` counts the groups of rows in which each claim of the paper
//! holds, in a column for each folder. In front of it stands the ratio of the means over all
//! groups, with its interval. Further parts select rows and columns as above.

use crate::ReportError;
use crate::estimates::distinct;
use crate::model::{Entry, Head, Table};
use crate::page::{Built, build};
use crate::render::table_markdown;
use crate::tables::claims::{Judged, Verdict};
use crate::tables::counted as of_noun;
use std::collections::btree_map::{BTreeMap, Entry as Place};
use std::path::{Path, PathBuf};

const END: &str = "<!-- end -->";

/// A function from folders of runs and SQL to the table that answers it, or to the fault.
pub type Ask<'a> = dyn Fn(&[PathBuf], &str) -> Result<Table, String> + 'a;

/// A Markdown page with all its quoted tables regenerated. Answers to SQL stay as they are without
/// `ask`.
///
/// # Errors
/// A page or folder that cannot be read, a quotation of a missing table, SQL that cannot be
/// answered, a quotation without an end.
pub fn quoted(path: &Path, ask: Option<&Ask<'_>>) -> Result<String, ReportError> {
    let page = std::fs::read_to_string(path).map_err(|source| ReportError::io(path, source))?;
    let base = path.parent().unwrap_or(Path::new(""));
    let mut sources = Sources {
        base,
        built: BTreeMap::new(),
    };
    let mut text = String::new();
    let mut lines = page.lines().enumerate();
    let mut sql = Sql::default();
    while let Some((index, line)) = lines.next() {
        text.push_str(line);
        text.push('\n');
        let Some(quote) = Quote::parse(line) else {
            sql.read(line);
            continue;
        };
        let wrong = |message: String| ReportError::Quote {
            path: path.to_path_buf(),
            line: index + 1,
            message,
        };
        if ask.is_none() && matches!(quote, Quote::Answer { .. }) {
            continue;
        }
        let answer = |runs: &[&str]| {
            let runs: Vec<PathBuf> = runs.iter().map(|run| base.join(run)).collect();
            let ask = ask.ok_or_else(|| "there is no SQL".to_owned())?;
            ask(&runs, sql.last()?)
        };
        let table = quote.table(&mut sources, answer)?.map_err(wrong)?;
        text.push_str(&table_markdown(&table));
        let closed = lines.by_ref().map(|(_, line)| line);
        let mut closed = closed.take_while(|line| Quote::parse(line).is_none());
        if !closed.any(|line| line == END) {
            return Err(wrong(format!("there is no line `{END}` below it")));
        }
        text.push_str(END);
        text.push('\n');
    }
    Ok(text)
}

/// True if a page has quotations.
pub fn quotes(page: &str) -> bool {
    page.lines().any(|line| Quote::parse(line).is_some())
}

/// The last `sql` block of the lines read so far.
#[derive(Default)]
struct Sql {
    text: Option<String>,
    open: bool,
}

impl Sql {
    fn read(&mut self, line: &str) {
        if line == "```sql" {
            self.text = Some(String::new());
            self.open = true;
        } else if line.starts_with("```") {
            self.open = false;
        } else if let Some(text) = self.text.as_mut().filter(|_| self.open) {
            text.push_str(line);
            text.push('\n');
        }
    }

    fn last(&self) -> Result<&str, String> {
        let none = || "there is no `sql` block above it".to_owned();
        self.text.as_deref().ok_or_else(none)
    }
}

/// The request in a comment.
#[derive(Debug, PartialEq, Eq)]
enum Quote<'a> {
    Table {
        from: &'a str,
        /// Id or heading.
        name: Option<&'a str>,
        /// Columns and the entries to keep.
        filters: Vec<(&'a str, Vec<&'a str>)>,
    },
    Answer {
        runs: Vec<&'a str>,
    },
    Verdicts {
        folders: Vec<&'a str>,
        /// Columns and the entries to keep.
        filters: Vec<(&'a str, Vec<&'a str>)>,
    },
}

impl<'a> Quote<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let inner = line.strip_prefix("<!-- ")?.strip_suffix(" -->")?;
        let (kind, rest) = inner.split_once(": ")?;
        let values = |text: &'a str| text.split('|').map(str::trim).collect();
        let mut parts = rest.split(';').map(str::trim);
        let from = parts.next()?;
        let (mut name, mut filters) = (None, Vec::new());
        for part in parts {
            match part.split_once(" = ") {
                Some((column, kept)) => filters.push((column.trim(), values(kept))),
                None => name = Some(part),
            }
        }
        Some(match kind {
            "query" => Self::Answer { runs: values(rest) },
            "verdicts" => Self::Verdicts {
                folders: values(from),
                filters,
            },
            "quote" => Self::Table {
                from,
                name,
                filters,
            },
            _ => return None,
        })
    }

    /// The table, or the fault of the quotation.
    fn table(
        &self,
        sources: &mut Sources<'_>,
        answer: impl Fn(&[&str]) -> Result<Table, String>,
    ) -> Result<Result<Table, String>, ReportError> {
        match self {
            Self::Answer { runs } => Ok(answer(runs)),
            Self::Table {
                from,
                name,
                filters,
            } => {
                let tables = sources.tables(from)?;
                Ok(chosen(&tables, from, *name).and_then(|table| kept(table, filters)))
            }
            Self::Verdicts { folders, filters } => {
                let mut all = Vec::new();
                for folder in folders {
                    all.push((title(folder), sources.built(folder)?.judged.clone()));
                }
                Ok(verdicts(&all).and_then(|table| kept(&table, filters)))
            }
        }
    }
}

/// The sources of quotations, each read once.
struct Sources<'a> {
    base: &'a Path,
    built: BTreeMap<String, Built>,
}

impl Sources<'_> {
    fn built(&mut self, folder: &str) -> Result<&Built, ReportError> {
        Ok(match self.built.entry(folder.to_owned()) {
            Place::Occupied(known) => known.into_mut(),
            Place::Vacant(new) => new.insert(build(&self.base.join(folder))?),
        })
    }

    /// The tables of a results folder, or of a Markdown file.
    fn tables(&mut self, from: &str) -> Result<Vec<Table>, ReportError> {
        if Path::new(from).extension().is_some_and(|end| end == "md") {
            let path = self.base.join(from);
            let read = std::fs::read_to_string(&path);
            return Ok(in_markdown(
                &read.map_err(|source| ReportError::io(&path, source))?,
            ));
        }
        Ok(self.built(from)?.tables().cloned().collect())
    }
}

fn title(folder: &str) -> String {
    let name = Path::new(folder).file_name();
    name.map_or_else(
        || folder.to_owned(),
        |name| name.to_string_lossy().into_owned(),
    )
}

fn chosen<'a>(tables: &'a [Table], from: &str, name: Option<&str>) -> Result<&'a Table, String> {
    let found = match name {
        None => tables.first(),
        Some(name) => tables.iter().find(|table| table.id == name),
    };
    found.ok_or_else(|| {
        let ids: Vec<&str> = tables.iter().map(|table| table.id.as_str()).collect();
        let name = name.unwrap_or("first");
        format!(
            "{from} has no table `{name}`, but these: {}",
            ids.join(", ")
        )
    })
}

/// The selected rows and columns.
fn kept(table: &Table, filters: &[(&str, Vec<&str>)]) -> Result<Table, String> {
    let place = |table: &Table, column: &str| {
        let found = table.head.iter().position(|head| head.title == column);
        let titles = || {
            let heads = table.head.iter().map(|head| head.title.as_str());
            heads.collect::<Vec<_>>().join(", ")
        };
        found.ok_or_else(|| format!("there is no column `{column}`, but these: {}", titles()))
    };
    let mut kept = table.clone();
    for (column, values) in filters {
        if *column == "columns" {
            let places = values.iter().map(|column| place(&kept, column));
            let places = places.collect::<Result<Vec<usize>, _>>()?;
            kept.head = picked(&kept.head, &places);
            for row in &mut kept.rows {
                *row = picked(row, &places);
            }
            continue;
        }
        let place = place(&kept, column)?;
        kept.rows.retain(|row| match row.get(place) {
            Some(Entry::Text { text }) => values.contains(&text.as_str()),
            _ => false,
        });
        if kept.rows.is_empty() {
            let values = values.join(" | ");
            return Err(format!("no row has {column} = {values}"));
        }
    }
    Ok(kept)
}

fn picked<T: Clone>(all: &[T], places: &[usize]) -> Vec<T> {
    let found = places.iter().filter_map(|&place| all.get(place));
    found.cloned().collect()
}

/// The tables of a Markdown file with the headings above them; all entries are text.
fn in_markdown(page: &str) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    let mut heading = String::new();
    let mut inside = false;
    for line in page.lines() {
        let Some(row) = line.strip_prefix('|') else {
            inside = false;
            if line.starts_with('#') {
                heading = line.trim_start_matches('#').trim().to_owned();
            }
            continue;
        };
        let row = row.strip_suffix('|').unwrap_or(row);
        let entries: Vec<&str> = row.split('|').map(str::trim).collect();
        match tables.last_mut().filter(|_| inside) {
            None => tables.push(Table {
                id: heading.clone(),
                title: heading.clone(),
                lead: String::new(),
                head: entries.iter().map(|title| Head::words(title)).collect(),
                rows: Vec::new(),
            }),
            // The line below the heads gives the alignment of columns.
            Some(table) if entries.iter().all(|rule| is_rule(rule)) => {
                for (head, rule) in table.head.iter_mut().zip(&entries) {
                    head.numeric = rule.ends_with(':');
                }
            }
            Some(table) => table
                .rows
                .push(entries.into_iter().map(Entry::text).collect()),
        }
        inside = true;
    }
    tables
}

fn is_rule(entry: &str) -> bool {
    entry.contains("--") && entry.chars().all(|c| matches!(c, '-' | ':'))
}

/// Number of groups of each folder in which each claim holds.
fn verdicts(folders: &[(String, Vec<Judged>)]) -> Result<Table, String> {
    let judged = folders.iter().flat_map(|(_, judged)| judged);
    let claims = distinct(judged.map(|own| (own.claim.as_str(), own.metric.as_str())));
    let title = |(title, judged): &(String, Vec<Judged>)| {
        let seeds = judged.iter().map(|judged| judged.seeds).max();
        format!("{title} ({})", of_noun(seeds.unwrap_or(0), "seed"))
    };
    let titles: Vec<String> = folders.iter().map(title).collect();
    let row = |&(claim, metric): &(&str, &str)| {
        let mut row = vec![
            ("claim", Entry::text(claim)),
            ("metric", Entry::text(metric)),
        ];
        for (title, (_, judged)) in titles.iter().zip(folders) {
            let own = |judged: &&Judged| judged.claim == claim && judged.metric == metric;
            let own: Vec<&Judged> = judged.iter().filter(own).collect();
            row.push((title.as_str(), Entry::text(counted(&own))));
        }
        row
    };
    let table = Table::of("verdicts", "", "", claims.iter().map(row).collect());
    table.ok_or_else(|| "none of these folders has claims of the paper".to_owned())
}

/// The ratio of the means over all groups, then the number of groups in which the claim holds.
fn counted(all: &[&Judged]) -> String {
    let groups = all.iter().filter(|judged| judged.group.is_some());
    let mut verdicts: Vec<Verdict> = groups.map(|judged| judged.verdict).collect();
    verdicts.retain(|verdict| !matches!(verdict, Verdict::Unchecked(_)));
    if verdicts.is_empty() {
        return "–".to_owned();
    }
    let count = |wanted: Verdict| verdicts.iter().filter(|own| **own == wanted).count();
    let whole = match all {
        [only] => Some(only),
        _ => all.iter().find(|judged| judged.group.is_none()),
    };
    let ratio = whole.and_then(|judged| judged.ratio.as_ref());
    let mut text = ratio.map_or_else(String::new, |ratio| {
        let interval = ratio.interval.as_ref();
        let interval = interval.map_or_else(String::new, |interval| format!(" ({interval})"));
        format!("{}{interval}, ", ratio.text)
    });
    let holds = count(Verdict::Holds);
    text.push_str(&format!("holds in {holds} of {}", verdicts.len()));
    for (verdict, said) in [
        (Verdict::Level, "level"),
        (Verdict::DoesNotHold, "against it"),
        (Verdict::CannotTell, "open"),
    ] {
        if count(verdict) > 0 {
            text.push_str(&format!(", {} {said}", count(verdict)));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Number;

    const CARD: &str = "# A model\n\n| a |\n|---|\n| 1 |\n\n## Its answers\n\n\
        | task | looping |\n|:-----|--------:|\n| x | 1% |\n| y | 2% |\n";

    fn written(dir: &Path, page: &str) -> PathBuf {
        std::fs::write(dir.join("card.md"), CARD).unwrap();
        let path = dir.join("page.md");
        std::fs::write(&path, page).unwrap();
        path
    }

    #[test]
    fn a_table_of_a_markdown_file_is_quoted_under_its_heading() {
        let dir = tempfile::tempdir().unwrap();
        let marker = "<!-- quote: card.md; Its answers; task = y -->";
        let path = written(
            dir.path(),
            &format!("before\n{marker}\nold\n{END}\nafter\n"),
        );
        let page = quoted(&path, None).unwrap();
        let table = "| task | looping |\n|:-----|--------:|\n| y    |      2% |\n";
        assert_eq!(page, format!("before\n{marker}\n{table}{END}\nafter\n"));
        // A second pass changes nothing.
        std::fs::write(&path, &page).unwrap();
        assert_eq!(quoted(&path, None).unwrap(), page);
        assert!(quotes(&page) && !quotes("| a |\n"));
    }

    #[test]
    fn columns_are_picked_in_order() {
        let dir = tempfile::tempdir().unwrap();
        let marker = "<!-- quote: card.md; Its answers; columns = looping | task -->";
        let path = written(dir.path(), &format!("{marker}\n{END}\n"));
        let page = quoted(&path, None).unwrap();
        assert!(page.contains("| looping | task |\n"), "{page}");
    }

    #[test]
    fn what_is_not_there_is_said_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let message = |marker: &str, end: &str| {
            let path = written(dir.path(), &format!("one\n{marker}\n{end}"));
            quoted(&path, None).unwrap_err().to_string()
        };
        let end = format!("{END}\n");
        for (marker, wanted) in [
            (
                "<!-- quote: card.md; Its sins -->",
                "no table `Its sins`, but these: A model, Its answers",
            ),
            (
                "<!-- quote: card.md; Its answers; task = z -->",
                "no row has task = z",
            ),
            (
                "<!-- quote: card.md; arm = z -->",
                "no column `arm`, but these: a",
            ),
        ] {
            let said = message(marker, &end);
            assert!(
                said.contains("page.md:2: ") && said.contains(wanted),
                "{said}"
            );
        }
        let unclosed = message("<!-- quote: card.md -->", "text\n");
        assert!(unclosed.contains("there is no line"), "{unclosed}");
        assert!(message("<!-- quote: no.md -->", &end).contains("no.md"));
        assert!(message("<!-- quote: folder -->", &end).contains("experiment.json"));
    }

    #[test]
    fn sql_is_answered_where_it_can_be() {
        let dir = tempfile::tempdir().unwrap();
        let page = |answer: &str| {
            format!(
                "```sql\nselect a\nfrom b\n```\n\n<!-- query: x | y -->\n{answer}{END}\nafter\n"
            )
        };
        let path = written(dir.path(), &page("old\n"));
        assert_eq!(quoted(&path, None).unwrap(), page("old\n"));
        assert!(quotes(&page("")));
        let ask = |runs: &[PathBuf], sql: &str| {
            assert_eq!(runs, [dir.path().join("x"), dir.path().join("y")]);
            assert_eq!(sql, "select a\nfrom b\n");
            Ok(in_markdown("| a |\n|--:|\n| 1 |\n").remove(0))
        };
        let table = "|   a |\n|----:|\n|   1 |\n";
        assert_eq!(quoted(&path, Some(&ask)).unwrap(), page(table));
        let refuse = |_: &[PathBuf], _: &str| Err("no column `a`".to_owned());
        let error = quoted(&path, Some(&refuse)).unwrap_err().to_string();
        assert!(error.ends_with("page.md:6: no column `a`"), "{error}");
        let path = written(dir.path(), &format!("<!-- query: x -->\n{END}\n"));
        let error = quoted(&path, Some(&refuse)).unwrap_err().to_string();
        assert!(error.contains("no `sql` block"), "{error}");
    }

    fn judged(group: Option<&str>, verdict: Verdict) -> Judged {
        Judged {
            claim: "More is more.".to_owned(),
            metric: "acceptance".to_owned(),
            group: group.map(str::to_owned),
            ratio: None,
            seeds: 2,
            prompts: 60,
            verdict,
        }
    }

    #[test]
    fn verdicts_are_counted_by_groups_of_rows() {
        let some = vec![
            judged(Some("x"), Verdict::Holds),
            judged(Some("y"), Verdict::CannotTell),
            judged(Some("z"), Verdict::DoesNotHold),
            judged(Some("u"), Verdict::Level),
            Judged {
                ratio: Some(Number {
                    interval: Some("1.02–1.09".to_owned()),
                    ..Number::plain(1.05, "1.05".to_owned())
                }),
                ..judged(None, Verdict::Holds)
            },
        ];
        let none = vec![judged(Some("all"), Verdict::Unchecked("not run"))];
        let table = verdicts(&[("live".to_owned(), some), ("trace".to_owned(), none)]).unwrap();
        let row: Vec<Entry> = ["More is more.", "acceptance"]
            .into_iter()
            .chain([
                "1.05 (1.02–1.09), holds in 1 of 4, 1 level, 1 against it, 1 open",
                "–",
            ])
            .map(Entry::text)
            .collect();
        assert_eq!(table.rows, [row]);
        assert_eq!(table.head[2].title, "live (2 seeds)");
        assert!(verdicts(&[]).is_err());
    }
}
