//! Layout of tables in blocks that fit a page.
//!
//! A page of the article class is 70 to 74 digits of `\small` wide, whatever its font size, and
//! about 45 lines high. Columns that do not fit side by side go below each other, with the columns
//! that name the rows repeated; long texts are set in a column of a fixed width.

use super::words::{text, width};
use super::{Place, names_rows, only, plain};
use crate::model::{Entry, Number, Table};
use std::collections::BTreeSet;

/// Digits of `\small` per line.
pub(super) const LINE: f64 = 68.0;
/// Width of the space between two columns, in digits.
const GAP: f64 = 1.6;
/// Width of a character of `\scriptsize`, in digits of `\small`.
const SMALL: f64 = 0.85;
/// Width of a character of text, in digits: letters are wider than spaces, capitals wider than
/// both.
const LETTER: f64 = 1.1;
/// Number of lines of a float without its caption.
const HEIGHT: usize = 36;
/// Length from which a text may be broken into lines.
const BROKEN: f64 = 16.0;
/// Minimum width of a text column.
const LEAST: f64 = 8.0;
/// Maximum share of a line for the columns that name the rows.
const NAMES: f64 = 0.45;

/// A table as LaTeX: floats, each with some blocks.
pub(super) struct Laid {
    pub(super) floats: Vec<Vec<String>>,
    /// True if texts that cannot be broken are too wide for `\small`.
    pub(super) wide: bool,
}

/// A column on the page.
#[derive(Clone, Copy)]
struct Column {
    index: usize,
    width: f64,
    /// Width of its longest word.
    least: f64,
    /// True if its texts are broken into lines of that width.
    broken: bool,
    numeric: bool,
}

impl Laid {
    /// Lays a table out; `best` marks the numbers in bold.
    pub(super) fn new(table: &Table, best: &BTreeSet<Place>) -> Self {
        let mut floats: Vec<Vec<String>> = Vec::new();
        let mut used = HEIGHT;
        let chunks = chunks(table);
        let total = |columns: &Vec<Column>| {
            let widths = columns.iter().map(|column| column.width + GAP);
            widths.sum::<f64>() - GAP
        };
        let wide = chunks.iter().any(|columns| total(columns) > LINE);
        for columns in &chunks {
            let mut from = 0;
            while from < table.rows.len() {
                let room = match HEIGHT.saturating_sub(used + HEAD) {
                    // Too few lines for a block.
                    room if room < 6 => HEIGHT - HEAD,
                    room => room,
                };
                let mut lines = 0;
                let mut to = from;
                while to < table.rows.len() {
                    let own = lines_of(table, to, columns, to == from);
                    if to > from && lines + own > room {
                        break;
                    }
                    lines += own;
                    to += 1;
                }
                let block = block(table, best, columns, from..to, wide);
                match floats.last_mut() {
                    Some(float) if used + HEAD + lines <= HEIGHT => {
                        float.push(block);
                        used += HEAD + lines;
                    }
                    _ => {
                        floats.push(vec![block]);
                        used = HEAD + lines;
                    }
                }
                from = to;
            }
        }
        if floats.is_empty() {
            let columns = chunks.first().cloned().unwrap_or_default();
            floats.push(vec![block(table, best, &columns, 0..0, wide)]);
        }
        Self { floats, wide }
    }
}

/// Number of lines of a block's head and rules.
const HEAD: usize = 4;

/// The columns of each block.
fn chunks(table: &Table) -> Vec<Vec<Column>> {
    let mut columns: Vec<Column> = (0..table.head.len())
        .map(|index| {
            let head = table.head.get(index);
            // Heads of number columns are stacked, one word per line.
            let title = head.map_or(0.0, |head| match head.numeric {
                true => widest_word(&head.title),
                false => LETTER * width(&head.title) as f64,
            });
            let word = head.map_or(LEAST, |head| LEAST.max(widest_word(&head.title)));
            let entries = table.rows.iter().filter_map(|row| row.get(index));
            Column {
                index,
                width: entries.clone().map(entry_width).fold(title, f64::max),
                least: entries.map(longest_word).fold(word, f64::max),
                broken: false,
                numeric: head.is_some_and(|head| head.numeric),
            }
        })
        .collect();
    let naming = (0..table.head.len())
        .take_while(|&column| names_rows(&table.head, column))
        .count();
    // A table of texts has no other columns.
    let naming = match naming == columns.len() {
        true => 1.min(naming),
        false => naming,
    };
    let widest_after = columns
        .iter()
        .skip(naming)
        .map(|column| match column.numeric {
            true => column.width,
            false => column.width.min(BROKEN),
        });
    let kept = widest_after.fold(0.0, f64::max) + GAP;
    let names = columns.get_mut(..naming).unwrap_or_default();
    shrink(names, (LINE - kept).min(NAMES * LINE));
    let named: f64 = columns.iter().take(naming).map(|own| own.width + GAP).sum();
    let room = LINE - named;
    for column in columns.iter_mut().skip(naming) {
        if !column.numeric && column.width + GAP > room {
            column.width = room - GAP;
            column.broken = true;
        }
    }
    let (names, others) = columns.split_at(naming);
    let mut chunks: Vec<Vec<Column>> = Vec::new();
    let mut used = LINE;
    for column in others {
        if used + column.width + GAP > LINE {
            chunks.push(names.to_vec());
            used = named;
        }
        used += column.width + GAP;
        if let Some(chunk) = chunks.last_mut() {
            chunk.push(*column);
        }
    }
    // Adjacent text columns that may be broken fit one block.
    let words = others.iter().all(|column| !column.numeric);
    if chunks.len() > 1 && words {
        let mut all = columns.clone();
        shrink(&mut all, LINE);
        chunks = vec![all];
    }
    if chunks.is_empty() {
        chunks.push(names.to_vec());
    }
    chunks
}

/// Narrows the widest text columns until all fit.
fn shrink(columns: &mut [Column], room: f64) {
    for _ in 0..1000 {
        let total: f64 = columns.iter().map(|column| column.width + GAP).sum();
        let mut words: Vec<&mut Column> = columns.iter_mut().collect();
        words.retain(|column| !column.numeric && column.width > column.least);
        let widest = words.into_iter().max_by(|a, b| a.width.total_cmp(&b.width));
        match widest.filter(|_| total > room) {
            Some(widest) => {
                widest.width = (widest.width - 1.0).max(widest.least);
                widest.broken = true;
            }
            None => return,
        }
    }
}

fn entry_width(entry: &Entry) -> f64 {
    match entry {
        Entry::Text { text } | Entry::Missing { reason: text } => LETTER * width(text) as f64,
        Entry::Numbers { numbers } => {
            let dots = 3 * numbers.len().saturating_sub(1);
            let texts: usize = numbers.iter().map(|number| width(&number.text)).sum();
            let intervals = numbers.iter().map(|number| match &number.interval {
                Some(interval) => SMALL * (width(interval) + 2) as f64,
                None => 0.0,
            });
            intervals.fold((texts + dots) as f64, f64::max)
        }
    }
}

fn longest_word(entry: &Entry) -> f64 {
    match entry {
        Entry::Text { text } | Entry::Missing { reason: text } => widest_word(text),
        Entry::Numbers { .. } => 0.0,
    }
}

fn widest_word(text: &str) -> f64 {
    let words = text
        .split_whitespace()
        .map(|word| LETTER * width(word) as f64);
    words.fold(0.0, f64::max)
}

/// Number of lines of a row. The `first` row of a block repeats the names that it shares with the
/// row before.
fn lines_of(table: &Table, row: usize, columns: &[Column], first: bool) -> usize {
    let before = row.checked_sub(1).and_then(|before| table.rows.get(before));
    let before = before.filter(|_| !first);
    let Some(row) = table.rows.get(row) else {
        return 0;
    };
    let lines = columns.iter().filter_map(|column| {
        let entry = row.get(column.index)?;
        if before.and_then(|before| before.get(column.index)) == Some(entry) {
            return None;
        }
        Some(match column.broken {
            true => (entry_width(entry) / (0.9 * column.width)).ceil() as usize,
            false => 1,
        })
    });
    lines.max().unwrap_or(1).max(1) + usize::from(has_intervals(row, columns))
}

fn has_intervals(row: &[Entry], columns: &[Column]) -> bool {
    let mut entries = columns.iter().filter_map(|column| row.get(column.index));
    entries.any(|entry| interval(entry).is_some())
}

/// The interval of an entry with a single number.
fn interval(entry: &Entry) -> Option<&str> {
    only(entry)?.interval.as_deref()
}

fn block(
    table: &Table,
    best: &BTreeSet<Place>,
    columns: &[Column],
    rows: std::ops::Range<usize>,
    wide: bool,
) -> String {
    // Fixed widths scale with the font size.
    let digits = match wide {
        true => (LINE + 4.0) / SMALL,
        false => LINE + 4.0,
    };
    let shape: String = columns
        .iter()
        .map(|column| match (column.numeric, column.broken) {
            (true, _) => "r".to_owned(),
            (false, false) => "l".to_owned(),
            (false, true) => format!("p{{{:.2}\\linewidth}}", column.width / digits),
        })
        .collect();
    let heads: Vec<String> = columns
        .iter()
        .filter_map(|column| {
            let head = table.head.get(column.index)?;
            let words: Vec<String> = head.title.split_whitespace().map(text).collect();
            Some(match head.numeric && words.len() > 1 {
                true => format!("\\shortstack[r]{{{}}}", words.join("\\\\")),
                false => text(&head.title),
            })
        })
        .collect();
    let mut out = format!(
        "\\begin{{tabular}}{{@{{}}{shape}@{{}}}}\n\\toprule\n{} \\\\\n\\midrule\n",
        heads.join(" & ")
    );
    let mut before: Vec<String> = Vec::new();
    for index in rows {
        let Some(row) = table.rows.get(index) else {
            continue;
        };
        let naming = columns
            .iter()
            .take_while(|column| names_rows(&table.head, column.index))
            .count();
        let names: Vec<String> = columns
            .iter()
            .take(naming.saturating_sub(1))
            .filter_map(|column| row.get(column.index).map(plain))
            .collect();
        // Names shared by several rows are printed in the first of them.
        let common = names
            .iter()
            .zip(&before)
            .take_while(|(a, b)| a == b)
            .count();
        if common < names.len() && !before.is_empty() {
            out.push_str("\\addlinespace\n");
        }
        let cells: Vec<String> = columns
            .iter()
            .enumerate()
            .filter_map(|(place, column)| {
                let entry = row.get(column.index)?;
                let bold = |number: usize| best.contains(&(index, column.index, number));
                Some(match place < common {
                    true => String::new(),
                    false => cell(entry, bold, column.broken),
                })
            })
            .collect();
        out.push_str(&format!("{} \\tabularnewline\n", cells.join(" & ")));
        if has_intervals(row, columns) {
            let below = columns.iter().filter_map(|column| row.get(column.index));
            let below: Vec<String> = below
                .map(|entry| match interval(entry) {
                    Some(interval) => format!("{{\\scriptsize[{}]}}", text(interval)),
                    None => String::new(),
                })
                .collect();
            out.push_str(&format!("{} \\tabularnewline\n", below.join(" & ")));
        }
        before = names;
    }
    out.push_str("\\bottomrule\n\\end{tabular}");
    out
}

fn cell(entry: &Entry, bold: impl Fn(usize) -> bool, broken: bool) -> String {
    let words = match entry {
        Entry::Text { text: words } | Entry::Missing { reason: words } => text(words),
        Entry::Numbers { numbers } => {
            let number = |(place, number): (usize, &Number)| {
                let text = text(&number.text);
                match bold(place) {
                    true => format!("\\textbf{{{text}}}"),
                    false => text,
                }
            };
            let numbers: Vec<String> = numbers.iter().enumerate().map(number).collect();
            numbers.join(" $\\cdot$ ")
        }
    };
    match broken {
        true => format!("\\raggedright {words}"),
        false => words,
    }
}
