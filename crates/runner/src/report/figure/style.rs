//! Colours, line styles and the type scale of all figures.

use super::scene::Color;

/// Titles, axis labels and captions.
pub const INK: Color = Color(0x22, 0x26, 0x2B);
/// Secondary text: subtitles, ticks, captions.
pub const MUTED: Color = Color(0x5B, 0x63, 0x6D);
/// Grid lines.
pub const GRID: Color = Color(0xE3, 0xE6, 0xEA);
/// Axis lines.
pub const AXIS: Color = Color(0x9A, 0xA1, 0xA9);
/// Every other segment of a drift figure.
pub const SHADE: Color = Color(0xEF, 0xF2, 0xF6);
/// Background.
pub const PAPER: Color = Color(0xFF, 0xFF, 0xFF);

/// Font size of titles, logical pixels.
pub const TITLE: f64 = 17.0;
/// Font size of panel titles, legends and axis labels.
pub const BODY: f64 = 12.5;
/// Font size of ticks, subtitles and captions.
pub const SMALL: f64 = 11.0;

/// How an arm is drawn, the same in every figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmStyle {
    /// Line colour.
    pub color: Color,
    /// Line width.
    pub width: f64,
    /// Dash and gap, `None` for a solid line.
    pub dash: Option<(f64, f64)>,
}

/// Okabe and Ito's palette, which stays distinguishable with colour-blindness; yellow is left out, it vanishes on
/// white. Known arms keep their colour from run to run.
pub fn arm_style(name: &str, index: usize) -> ArmStyle {
    const OTHERS: [Color; 4] = [
        Color(0xCC, 0x79, 0xA7),
        Color(0x56, 0xB4, 0xE9),
        Color(0xE6, 0x9F, 0x00),
        Color(0x7A, 0x5C, 0x3E),
    ];
    let solid = |color, width| ArmStyle {
        color,
        width,
        dash: None,
    };
    match name {
        "autoregressive" => ArmStyle {
            color: Color(0x7F, 0x7F, 0x7F),
            width: 1.4,
            dash: Some((5.0, 4.0)),
        },
        "SpD_DM" => solid(Color(0x6B, 0x6F, 0x76), 1.8),
        "+ N-gram_pp" => solid(Color(0x00, 0x9E, 0x73), 1.8),
        "L_DM" => solid(Color(0x00, 0x72, 0xB2), 1.8),
        "L_DM + λ L_N-gram" | "L_DM + lambda L_N-gram" => solid(Color(0xD5, 0x5E, 0x00), 2.8),
        _ => solid(OTHERS[index % OTHERS.len()], 1.8),
    }
}
