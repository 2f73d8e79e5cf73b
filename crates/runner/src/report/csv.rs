//! Comma-separated values (RFC 4180) and the number formats of the report's files.

/// A table under construction.
#[derive(Debug)]
pub struct Csv {
    text: String,
}

impl Csv {
    /// Starts a table with its header.
    pub fn new(header: &[&str]) -> Self {
        let mut csv = Self {
            text: String::new(),
        };
        csv.row(header.iter().map(|name| (*name).to_owned()));
        csv
    }

    /// Appends a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        for (index, cell) in cells.into_iter().enumerate() {
            if index > 0 {
                self.text.push(',');
            }
            if cell.contains(['"', ',', '\n', '\r']) {
                self.text.push('"');
                self.text.push_str(&cell.replace('"', "\"\""));
                self.text.push('"');
            } else {
                self.text.push_str(&cell);
            }
        }
        self.text.push('\n');
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.text
    }
}

/// A number with four decimals, empty when undefined.
pub fn number(value: Option<f64>) -> String {
    value
        .filter(|v| v.is_finite())
        .map_or_else(String::new, |v| format!("{v:.4}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_and_quotes_are_quoted() {
        let mut csv = Csv::new(&["a", "b"]);
        csv.row(["x,y".to_owned(), "say \"hi\"".to_owned()]);
        assert_eq!(csv.into_text(), "a,b\n\"x,y\",\"say \"\"hi\"\"\"\n");
    }

    #[test]
    fn undefined_numbers_are_empty() {
        assert_eq!(number(Some(0.25)), "0.2500");
        assert_eq!(number(Some(f64::NAN)), "");
        assert_eq!(number(None), "");
    }
}
