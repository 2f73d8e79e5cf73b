//! Pages as one self-contained HTML file with sortable tables and inline figures.

use crate::ReportError;
use crate::model::Page;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, Value, context};

const PAGE: &str = include_str!("../templates/page.html");
const STYLE: &str = include_str!("../templates/page.css");
const SCRIPT: &str = include_str!("../templates/page.js");

/// The page. Links are relative to `ROOT/report/`.
///
/// # Errors
/// [`ReportError::Making`].
pub fn html(page: &Page) -> Result<String, ReportError> {
    let failed = |error: minijinja::Error| ReportError::Making {
        action: "render the html page".to_owned(),
        message: format!("{error:#}"),
    };
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(failed)?;
    environment.set_syntax(syntax);
    environment.add_filter("path", path);
    environment
        .add_template("page.html", PAGE)
        .map_err(failed)?;
    let template = environment.get_template("page.html").map_err(failed)?;
    template
        .render(context! { page => Serde(page), style => STYLE, script => SCRIPT })
        .map_err(failed)
}

/// A relative path as a link: characters with a meaning in URLs are encoded, and no character
/// remains that HTML would escape.
fn path(text: &str) -> Value {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => encoded.push(char::from(byte)),
            b'-' | b'.' | b'_' | b'/' | b'=' | b',' => encoded.push(char::from(byte)),
            other => encoded.push_str(&format!("%{other:02X}")),
        }
    }
    Value::from_safe_string(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_encoded() {
        let link = path("held-out/task=a b,k=1+2").to_string();
        assert_eq!(link, "held-out/task=a%20b,k=1%2B2");
    }
}
