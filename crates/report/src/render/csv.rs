//! Every number of a page as comma-separated values, one per line.

use crate::model::{Entry, Page, Section, Table};

/// The columns.
const COLUMNS: [&str; 10] = [
    "table", "row", "column", "metric", "value", "low", "high", "paper", "text", "cell",
];

/// The page as CSV. The overview repeats other tables and is left out.
pub fn csv(page: &Page) -> Result<String, ::csv::Error> {
    let mut writer = ::csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS)?;
    for section in &page.sections {
        match section {
            Section::Table(table) if table.id != "overview" => write(table, &mut writer)?,
            _ => {}
        }
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| ::csv::Error::from(std::io::Error::other(error.to_string())))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn write(table: &Table, writer: &mut ::csv::Writer<Vec<u8>>) -> Result<(), ::csv::Error> {
    for row in &table.rows {
        let words = |entry: &Entry| match entry {
            Entry::Text { text } => Some(text.clone()),
            _ => None,
        };
        // The texts at the beginning of a row are its name.
        let named = row.iter().map_while(words).collect::<Vec<_>>();
        for (entry, head) in row.iter().zip(&table.head).skip(named.len()) {
            let label = named.join(" / ");
            let line = |metric: &str, numbers: [Option<f64>; 4], text: &str, cell: &str| {
                let mut record = vec![table.id.clone(), label.clone(), head.title.clone()];
                record.push(metric.to_owned());
                record.extend(numbers.map(number));
                record.extend([text.to_owned(), cell.to_owned()]);
                record
            };
            match entry {
                Entry::Text { text } | Entry::Missing { reason: text } => {
                    writer.write_record(line("", [None; 4], text, ""))?;
                }
                Entry::Numbers { numbers } => {
                    for number in numbers {
                        let (low, high) = number.bounds.unzip();
                        let values = [Some(number.value), low, high, number.paper];
                        let cell = number.cell.as_deref().unwrap_or("");
                        writer.write_record(line(&number.metric, values, &number.text, cell))?;
                    }
                }
            }
        }
    }
    Ok(())
}

/// At most six decimals; empty for an undefined value.
fn number(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else {
        return String::new();
    };
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_undefined_ones_empty() {
        assert_eq!(number(Some(0.25)), "0.25");
        assert_eq!(number(Some(3.0)), "3");
        assert_eq!(number(Some(100.0)), "100");
        assert_eq!(number(Some(f64::NAN)), "");
        assert_eq!(number(None), "");
    }
}
