//! Pages as Markdown, aligned so that they read as plain text as well.

use super::in_words;
use crate::model::{Entry, Head, Page, Section, Table};

/// The page.
pub fn markdown(page: &Page) -> String {
    let mut text = format!("# {}\n\n{}\n", page.title, page.lead);
    for warning in &page.warnings {
        text.push_str(&format!("\n> {warning}\n"));
    }
    for section in &page.sections {
        match section {
            Section::Table(table) => {
                text.push_str(&format!("\n## {}\n\n{}\n\n", table.title, table.lead));
                text.push_str(&table_markdown(table));
            }
            Section::Figure(figure) => {
                let (title, message, id) = (&figure.title, &figure.message, &figure.id);
                text.push_str(&format!("\n## {title}\n\n![{message}]({id}.png)\n"));
            }
        }
    }
    text.push_str("\n## How to read it\n\n");
    for (term, definition) in &page.definitions {
        text.push_str(&format!("- **{term}**: {definition}.\n"));
    }
    text.push_str("\n## Provenance\n\n");
    for (what, value) in &page.provenance {
        text.push_str(&format!("- {what}: {value}\n"));
    }
    text
}

/// A table.
pub fn table_markdown(table: &Table) -> String {
    let entry = |entry: &Entry| match entry {
        Entry::Text { text } | Entry::Missing { reason: text } => escape(text),
        Entry::Numbers { numbers } => {
            let numbers: Vec<String> = numbers.iter().map(in_words).collect();
            escape(&numbers.join(" · "))
        }
    };
    let rows: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| row.iter().map(entry).collect())
        .collect();
    aligned(&table.head, &rows)
}

fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

fn aligned(head: &[Head], rows: &[Vec<String>]) -> String {
    let titles: Vec<String> = head.iter().map(|head| escape(&head.title)).collect();
    let width = |column: usize| {
        let column = std::iter::once(&titles)
            .chain(rows)
            .filter_map(|row| row.get(column));
        column
            .map(|text| text.chars().count())
            .max()
            .unwrap_or(0)
            .max(3)
    };
    let columns: Vec<(usize, bool)> = head
        .iter()
        .enumerate()
        .map(|(column, head)| (width(column), head.numeric))
        .collect();
    let line = |row: &[String]| {
        let cells = row.iter().zip(&columns).map(|(text, &(width, numeric))| {
            if numeric {
                format!(" {text:>width$} ")
            } else {
                format!(" {text:<width$} ")
            }
        });
        format!("|{}|\n", cells.collect::<Vec<_>>().join("|"))
    };
    let rule = columns.iter().map(|&(width, numeric)| {
        let dashes = "-".repeat(width);
        if numeric {
            format!("-{dashes}:")
        } else {
            format!(":{dashes}-")
        }
    });
    let mut text = line(&titles);
    text.push_str(&format!("|{}|\n", rule.collect::<Vec<_>>().join("|")));
    for row in rows {
        text.push_str(&line(row));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_bars_are_escaped() {
        let head = [Head::words("method"), Head::numbers("x")];
        let text = aligned(&head, &[vec![escape("a|b"), "1".to_owned()]]);
        assert_eq!(
            text,
            "| method |   x |\n|:-------|----:|\n| a\\|b   |   1 |\n"
        );
    }
}
