//! A display list in logical pixels.

use super::font::text_width;
use super::style::ArmStyle;

/// An RGB colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Color(pub u8, pub u8, pub u8);

/// Horizontal anchor of a text at its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    Start,
    Middle,
    End,
}

/// A run of text in one style, on one baseline.
#[derive(Debug, Clone, PartialEq)]
pub struct Text {
    /// Anchor position, x.
    pub x: f64,
    /// Baseline, y.
    pub y: f64,
    pub text: String,
    /// Em size.
    pub size: f64,
    pub bold: bool,
    pub color: Color,
    /// Anchor at `x` (or at `y` if vertical).
    pub anchor: Anchor,
    /// True if it reads from bottom to top.
    pub vertical: bool,
}

/// One thing to draw.
#[derive(Debug, Clone, PartialEq)]
pub enum Item {
    /// A filled rectangle: left, top, width, height.
    Rect(f64, f64, f64, f64, Color),
    /// A line through points.
    Line {
        points: Vec<(f64, f64)>,
        style: ArmStyle,
    },
    /// A translucent polygon.
    Area {
        points: Vec<(f64, f64)>,
        color: Color,
        /// Opacity from 0 to 1.
        alpha: f64,
    },
    /// A filled circle with a white rim: centre, radius.
    Dot(f64, f64, f64, Color),
    Text(Text),
}

/// A display list with its size.
#[derive(Debug, Clone, PartialEq)]
pub struct Scene {
    pub width: f64,
    pub height: f64,
    /// Items in drawing order.
    pub items: Vec<Item>,
}

/// Size of a subscript, relative to the em.
const SUBSCRIPT: f64 = 0.74;

impl Scene {
    pub fn new(width: f64, height: f64) -> Self {
        Self {
            width,
            height,
            items: Vec::new(),
        }
    }

    pub fn push(&mut self, item: Item) {
        self.items.push(item);
    }

    /// Adds a horizontal text; `bold` is part of its font.
    pub fn text(
        &mut self,
        at: (f64, f64),
        text: &str,
        (size, bold): (f64, bool),
        color: Color,
        anchor: Anchor,
    ) {
        self.push(Item::Text(Text {
            x: at.0,
            y: at.1,
            text: text.to_owned(),
            size,
            bold,
            color,
            anchor,
            vertical: false,
        }));
    }

    /// Adds a text that reads upwards, centred on `at`.
    pub fn vertical(&mut self, at: (f64, f64), text: &str, size: f64, color: Color) {
        self.text(at, text, (size, false), color, Anchor::Middle);
        if let Some(Item::Text(text)) = self.items.last_mut() {
            text.vertical = true;
        }
    }

    /// Adds a text with subscripts (`L_DM` becomes L with a lowered DM).
    pub fn label(&mut self, at: (f64, f64), text: &str, (size, bold): (f64, bool), color: Color) {
        let mut x = at.0;
        for (piece, lowered) in pieces(text) {
            let (size, drop) = if lowered {
                (size * SUBSCRIPT, size * 0.22)
            } else {
                (size, 0.0)
            };
            // SVG viewers drop leading spaces, so these are added to the position.
            let visible = piece.trim_start();
            let wide = text_width(&piece, size, bold);
            if !visible.is_empty() {
                let indent = wide - text_width(visible, size, bold);
                let (at, text) = ((x + indent, at.1 + drop), visible.trim_end());
                self.text(at, text, (size, bold), color, Anchor::Start);
            }
            x += wide;
        }
    }
}

/// Width of the output of [`Scene::label`].
pub fn label_width(text: &str, (size, bold): (f64, bool)) -> f64 {
    pieces(text)
        .into_iter()
        .map(|(piece, lowered)| {
            let size = if lowered { size * SUBSCRIPT } else { size };
            text_width(&piece, size, bold)
        })
        .sum()
}

/// Symbols of the paper with a subscript; other underscores stay.
const SYMBOLS: [&str; 3] = ["L_", "SpD_", "N-gram_"];

/// Splits a text into (piece, is subscript): the part after the underscore of a symbol, up to the
/// end of the name, is a subscript.
fn pieces(text: &str) -> Vec<(String, bool)> {
    let mut pieces: Vec<(String, bool)> = Vec::new();
    let mut plain = String::new();
    for word in text.split_inclusive([' ', '+', '/']) {
        let start = word.len() - word.trim_start_matches('(').len();
        let symbol = SYMBOLS.iter().find(|s| word[start..].starts_with(**s));
        let Some(symbol) = symbol else {
            plain.push_str(word);
            continue;
        };
        let name = start + symbol.len();
        let tail = word[name..]
            .find(|c: char| !c.is_alphanumeric() && c != '-')
            .unwrap_or(word.len() - name);
        plain.push_str(&word[..name - 1]);
        pieces.push((std::mem::take(&mut plain), false));
        pieces.push((word[name..name + tail].to_owned(), true));
        plain.push_str(&word[name + tail..]);
    }
    if !plain.is_empty() {
        pieces.push((plain, false));
    }
    pieces
}

/// Breaks a text at spaces into lines of at most `width`.
pub fn wrap(text: &str, font: (f64, bool), width: f64) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let longer = if line.is_empty() {
            word.to_owned()
        } else {
            format!("{line} {word}")
        };
        if line.is_empty() || label_width(&longer, font) <= width {
            line = longer;
        } else {
            lines.push(std::mem::replace(&mut line, word.to_owned()));
        }
    }
    lines.push(line);
    lines
}

/// The text, shortened with an ellipsis to fit into `width`.
pub fn fit(text: &str, size: f64, bold: bool, width: f64) -> String {
    if text_width(text, size, bold) <= width {
        return text.to_owned();
    }
    let mut kept: Vec<char> = text.chars().collect();
    while kept.pop().is_some() {
        let short = format!("{}…", kept.iter().collect::<String>().trim_end());
        if text_width(&short, size, bold) <= width {
            return short;
        }
    }
    String::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subscripts_end_with_their_word() {
        let split = pieces("L_DM + λ L_N-gram");
        let expected = [
            ("L", false),
            ("DM", true),
            (" + λ L", false),
            ("N-gram", true),
        ];
        assert_eq!(split, expected.map(|(p, l)| (p.to_owned(), l)));
        let split = pieces("L_DM+L_N-gram");
        let expected = [("L", false), ("DM", true), ("+L", false), ("N-gram", true)];
        assert_eq!(split, expected.map(|(p, l)| (p.to_owned(), l)));
        assert_eq!(pieces("x86_64"), [("x86_64".to_owned(), false)]);
        let split = pieces("(L_DM).");
        let expected = [("(L", false), ("DM", true), (").", false)];
        assert_eq!(split, expected.map(|(p, l)| (p.to_owned(), l)));
    }

    #[test]
    fn wrapped_lines_fit() {
        let text = "one two three four five six seven eight nine ten";
        let font = (11.0, false);
        let lines = wrap(text, font, 90.0);
        assert!(lines.len() > 2);
        assert!(lines.iter().all(|line| label_width(line, font) <= 90.0));
        assert_eq!(lines.join(" "), text);
    }

    #[test]
    fn shortened_text_fits() {
        let short = fit("MBPP+HumanEval", 11.0, false, 50.0);
        assert!(short.ends_with('…') && text_width(&short, 11.0, false) <= 50.0);
        assert_eq!(fit("XSum", 11.0, false, 50.0), "XSum");
    }
}
