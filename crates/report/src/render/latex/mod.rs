//! Tables for a paper in booktabs style, one file each, as wide as a page.
//!
//! ```text
//! report.tex      a document with all of them
//! table-ID.tex    one table, to be \input into another document
//! figure-ID.tex   one figure, with its caption
//! ```

mod layout;
mod words;

use crate::model::{Entry, FigurePart, Head, Number, Page, Section, Table};
use layout::Laid;
use std::collections::{BTreeMap, BTreeSet};
use words::{label, text};

/// Number of floats after which a new page begins, since LaTeX limits the number of deferred
/// floats.
const FLOATS: usize = 12;

/// The page's files by name. `experiment` is the prefix of all labels, so that two reports fit one
/// document.
pub fn latex(page: &Page, experiment: &str) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut inputs = Vec::new();
    let mut add = |name: String, text: String| {
        inputs.push((
            name.clone(),
            text.matches("\\begin{table}").count() + text.matches("\\begin{figure}").count(),
        ));
        files.insert(name, text);
    };
    for section in &page.sections {
        match section {
            Section::Table(table) => {
                let bare = without_paper(table);
                add(
                    format!("table-{}.tex", table.id),
                    of_table(&bare, experiment),
                );
                if let Some(paper) = of_paper(table) {
                    add(
                        format!("table-{}.tex", paper.id),
                        of_table(&paper, experiment),
                    );
                }
            }
            Section::Figure(figure) => add(
                format!("figure-{}.tex", figure.id),
                of_figure(figure, experiment),
            ),
        }
    }
    files.insert("report.tex".to_owned(), document(page, &inputs));
    files
}

/// A document with all floats: files, each with its number of floats.
fn document(page: &Page, inputs: &[(String, usize)]) -> String {
    let mut document = format!(
        "% {}\n% Made by `omnidraft report`: everything, to look at. Another document takes single files by \\input; they need\n\
         % \\usepackage{{booktabs}}, figures \\usepackage{{graphicx}} and a \\graphicspath to this folder.\n",
        page.title
    );
    for warning in &page.warnings {
        document.push_str(&format!("% {warning}\n"));
    }
    document.push_str(
        "\\documentclass[11pt,a4paper]{article}\n\\usepackage{booktabs,graphicx}\n\\begin{document}\n",
    );
    let mut waiting = 0;
    for (name, floats) in inputs {
        if waiting > 0 && waiting + floats > FLOATS {
            document.push_str("\\clearpage\n");
            waiting = 0;
        }
        waiting += floats;
        document.push_str(&format!("\\input{{{name}}}\n"));
    }
    document.push_str("\\end{document}\n");
    document
}

fn of_figure(figure: &FigurePart, experiment: &str) -> String {
    format!(
        "\\begin{{figure}}\n\\centering\n\\includegraphics[width=\\linewidth]{{{}.png}}\n\\caption{{{}}}\n\\label{{fig:{}}}\n\\end{{figure}}\n",
        figure.id,
        text(&figure.message),
        label(experiment, &figure.id)
    )
}

/// The table without the paper's numbers, which have a table of their own.
fn without_paper(table: &Table) -> Table {
    let mut table = table.clone();
    let entries = table.rows.iter_mut().flatten();
    entries.for_each(Entry::forget_paper);
    table
}

/// The number of an entry with a single one.
fn only(entry: &Entry) -> Option<&Number> {
    match entry {
        Entry::Numbers { numbers } if numbers.len() == 1 => numbers.first(),
        _ => None,
    }
}

/// The paper's value of an entry with a single number, and its text.
fn papers(entry: &Entry) -> Option<(f64, &str)> {
    let one = only(entry)?;
    // `paper 0.42, -0.39`
    let against = one.against.as_deref()?;
    let text = against.strip_prefix("paper ").unwrap_or(against);
    Some((one.paper?, text.split(',').next().unwrap_or(text)))
}

/// The paper's values of a table, in the rows and columns that have any.
fn of_paper(table: &Table) -> Option<Table> {
    let has = |row: &Vec<Entry>| row.iter().any(|entry| papers(entry).is_some());
    let rows: Vec<&Vec<Entry>> = table.rows.iter().filter(|row| has(row)).collect();
    if rows.is_empty() {
        return None;
    }
    let kept: Vec<usize> = (0..table.head.len())
        .filter(|&column| {
            let mut entries = rows.iter().filter_map(|row| row.get(column));
            table.head.get(column).is_some_and(|head| !head.numeric)
                || entries.any(|entry| papers(entry).is_some())
        })
        .collect();
    let pick = |row: &Vec<Entry>| {
        let entries = kept.iter().filter_map(|&column| row.get(column));
        let entries = entries.map(|entry| match (papers(entry), entry) {
            (Some((value, text)), _) => Entry::number(Number::plain(value, text.to_owned())),
            (None, Entry::Text { text }) => Entry::text(text.clone()),
            (None, _) => Entry::missing("\u{2013}"),
        });
        entries.collect::<Vec<_>>()
    };
    Some(Table {
        id: format!("{}-paper", table.id),
        title: format!("{}, the paper's values", table.title),
        lead: "They are of the paper's own models.".to_owned(),
        head: kept
            .iter()
            .filter_map(|&column| table.head.get(column).cloned())
            .collect(),
        rows: rows.into_iter().map(pick).collect(),
    })
}

fn of_table(table: &Table, experiment: &str) -> String {
    let laid = Laid::new(table, &best(table));
    let mut out = String::new();
    let caption = format!("{}. {}", text(&table.title), text(&table.lead));
    for (number, float) in laid.floats.iter().enumerate() {
        if number > 0 && number.is_multiple_of(FLOATS) {
            out.push_str("\\clearpage\n");
        }
        let size = match laid.wide {
            true => "\\scriptsize",
            false => "\\small",
        };
        out.push_str(&format!(
            "\\begin{{table}}\n\\centering{size}\\setlength{{\\tabcolsep}}{{4pt}}\n"
        ));
        match number {
            0 => out.push_str(&format!(
                "\\caption{{{caption}}}\n\\label{{tab:{}}}\n",
                label(experiment, &table.id)
            )),
            _ => out.push_str(&format!(
                "\\addtocounter{{table}}{{-1}}\n\\caption{{{} (continued)}}\n",
                text(&table.title)
            )),
        }
        out.push_str(&float.join("\n\\par\\medskip\n"));
        out.push_str("\n\\end{table}\n");
    }
    out
}

/// True for metrics of which a larger value is better.
fn more_is_better(metric: &str) -> bool {
    metric.contains("speedup")
        || matches!(
            metric,
            "acceptance"
                | "fresh_acceptance"
                | "tokens_per_round"
                | "bytes_per_round"
                | "tokens_per_s"
        )
}

/// Row, column, and position in the entry of a number.
type Place = (usize, usize, usize);

/// The numbers that are best among comparable arms: rows that differ only in the arm.
fn best(table: &Table) -> BTreeSet<Place> {
    let mut best = BTreeSet::new();
    let Some(arm) = table.head.iter().position(|head| head.title == "arm") else {
        return best;
    };
    let group = |row: &[Entry]| -> Vec<String> {
        let labels = row.iter().zip(&table.head).enumerate();
        let labels = labels.filter(|(column, (_, head))| *column != arm && !head.numeric);
        labels.map(|(_, (entry, _))| plain(entry)).collect()
    };
    let mut groups: BTreeMap<_, Vec<(usize, &Number)>> = BTreeMap::new();
    for (index, row) in table.rows.iter().enumerate() {
        for (column, entry) in row.iter().enumerate() {
            let Entry::Numbers { numbers } = entry else {
                continue;
            };
            for (place, number) in numbers.iter().enumerate() {
                if more_is_better(&number.metric) && number.value.is_finite() {
                    let members = groups.entry((group(row), column, place)).or_default();
                    members.push((index, number));
                }
            }
        }
    }
    for ((_, column, place), members) in groups {
        let values = members.iter().map(|(_, number)| number);
        let most = values.max_by(|a, b| a.value.total_cmp(&b.value));
        let Some(most) = most.filter(|_| members.len() > 1) else {
            continue;
        };
        // Numbers with equal text count as equal.
        let alike = members.iter().filter(|(_, own)| own.text == most.text);
        best.extend(alike.map(|(index, _)| (*index, column, place)));
    }
    best
}

/// Text of an entry, for comparisons.
fn plain(entry: &Entry) -> String {
    match entry {
        Entry::Text { text } | Entry::Missing { reason: text } => text.clone(),
        Entry::Numbers { numbers } => {
            let texts: Vec<&str> = numbers.iter().map(|number| &*number.text).collect();
            texts.join(" ")
        }
    }
}

/// True for a column before all numbers, which names its row.
fn names_rows(head: &[Head], column: usize) -> bool {
    head.iter().take(column + 1).all(|head| !head.numeric)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
