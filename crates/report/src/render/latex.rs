//! Tables for a paper: booktabs, one float a table.

use crate::model::{Entry, Number, Page, Section, Table};

/// The page's tables and figures, to be `\input` into a document that uses booktabs and graphicx.
pub fn latex(page: &Page) -> String {
    let mut text = format!(
        "% {}\n% Made by `omnidraft report`. Needs \\usepackage{{booktabs,graphicx}}.\n",
        page.title
    );
    for warning in &page.warnings {
        text.push_str(&format!("% {warning}\n"));
    }
    for section in &page.sections {
        match section {
            Section::Table(table) => text.push_str(&of_table(table)),
            Section::Figure(figure) => text.push_str(&format!(
                "\n\\begin{{figure}}\n\\centering\n\\includegraphics[width=\\linewidth]{{{}.png}}\n\\caption{{{}}}\n\\label{{fig:{}}}\n\\end{{figure}}\n",
                figure.id, escape(&figure.message), figure.id
            )),
        }
    }
    text
}

fn of_table(table: &Table) -> String {
    let columns: String = table
        .head
        .iter()
        .map(|head| if head.numeric { 'r' } else { 'l' })
        .collect();
    let head: Vec<String> = table.head.iter().map(|head| escape(&head.title)).collect();
    let mut text = format!(
        "\n\\begin{{table}}\n\\centering\n\\caption{{{}. {}}}\n\\label{{tab:{}}}\n\\begin{{tabular}}{{{columns}}}\n\\toprule\n{} \\\\\n\\midrule\n",
        escape(&table.title),
        escape(&table.lead),
        table.id,
        head.join(" & ")
    );
    for row in &table.rows {
        let entries: Vec<String> = row.iter().map(entry).collect();
        text.push_str(&format!("{} \\\\\n", entries.join(" & ")));
    }
    text.push_str("\\bottomrule\n\\end{tabular}\n\\end{table}\n");
    text
}

fn entry(entry: &Entry) -> String {
    match entry {
        Entry::Text { text } => escape(text),
        Entry::Missing { reason } => escape(reason),
        Entry::Numbers { numbers } => {
            let numbers: Vec<String> = numbers.iter().map(number).collect();
            numbers.join(" ")
        }
    }
}

fn number(number: &Number) -> String {
    let mut text = escape(&number.text);
    if let Some(interval) = &number.interval {
        text.push_str(&format!(" {{\\scriptsize[{}]}}", escape(interval)));
    }
    if let Some(against) = &number.against {
        text.push_str(&format!(" {{\\scriptsize({})}}", escape(against)));
    }
    text
}

/// Text in LaTeX's terms.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        let replaced = match character {
            '\\' => "\\textbackslash{}",
            '&' => "\\&",
            '%' => "\\%",
            '$' => "\\$",
            '#' => "\\#",
            '_' => "\\_",
            '{' => "\\{",
            '}' => "\\}",
            '~' => "\\textasciitilde{}",
            '^' => "\\textasciicircum{}",
            '–' => "--",
            '\u{2212}' => "$-$",
            '≤' => "$\\leq$",
            '→' => "$\\to$",
            '·' => "$\\cdot$",
            'λ' => "$\\lambda$",
            '␣' => "\\textvisiblespace{}",
            '⏎' => "$\\hookleftarrow$",
            '⇥' => "$\\mapsto$",
            '\n' => " ",
            other => {
                escaped.push(other);
                continue;
            }
        };
        escaped.push_str(replaced);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn special_characters_are_escaped() {
        assert_eq!(escape("L_DM & 5% {a}"), "L\\_DM \\& 5\\% \\{a\\}");
        assert_eq!(escape("0.1–0.2 → λ"), "0.1--0.2 $\\to$ $\\lambda$");
    }
}
