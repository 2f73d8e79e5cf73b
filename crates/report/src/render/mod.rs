//! A page in each of its formats.

mod csv;
mod html;
mod latex;
mod markdown;

pub use csv::csv;
pub use html::html;
pub use latex::latex;
pub use markdown::{markdown, table_markdown};

use crate::model::Number;

/// A number with its interval and the paper's value: `0.33 (0.31–0.35; paper 0.42, −0.09)`.
fn in_words(number: &Number) -> String {
    let behind: Vec<&str> = [&number.interval, &number.against]
        .into_iter()
        .flatten()
        .map(String::as_str)
        .collect();
    if behind.is_empty() {
        number.text.clone()
    } else {
        format!("{} ({})", number.text, behind.join("; "))
    }
}
