//! The embedded DejaVu Sans and its metrics.

use plotters::prelude::{FontDesc, FontFamily, FontStyle};
use plotters::style::register_font;
use std::sync::Once;

/// Registered name of the font. An SVG viewer without DejaVu Sans falls back along the list;
/// Verdana has nearly the same widths.
const FONT: &str = "DejaVu Sans, Verdana, sans-serif";

/// Line height over em of DejaVu Sans: for bitmaps, plotters takes a font's size as its line
/// height.
pub const LINE_HEIGHT: f64 = 1.164_062_5;

/// Makes the embedded fonts known to plotters.
pub fn register_fonts() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // The embedded fonts are valid; if one were not, drawing text would report it.
        let _ = register_font(FONT, FontStyle::Normal, dejavu::sans::regular());
        let _ = register_font(FONT, FontStyle::Bold, dejavu::sans::bold());
    });
}

/// Width of a text in logical pixels, without regard to subscripts.
pub fn text_width(text: &str, size: f64, bold: bool) -> f64 {
    register_fonts();
    // Measured at a large size, since the library rounds to whole pixels.
    const MEASURED: f64 = 200.0;
    let font = font(MEASURED * LINE_HEIGHT, bold);
    let (width, _) = font.box_size(text).unwrap_or((0, 0));
    f64::from(width) * size / MEASURED
}

/// The font at plotters' size.
pub fn font(size: f64, bold: bool) -> FontDesc<'static> {
    let style = if bold {
        FontStyle::Bold
    } else {
        FontStyle::Normal
    };
    FontDesc::new(FontFamily::Name(FONT), size, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_width_grows_linearly() {
        let narrow = text_width("acceptance", 10.0, false);
        assert!((text_width("acceptance", 20.0, false) - 2.0 * narrow).abs() < 1e-9);
        assert!(narrow > 50.0 && narrow < 70.0, "{narrow}");
    }
}
