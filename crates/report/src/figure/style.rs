//! Colours, line styles and the type scale of all figures.

use super::scene::Color;

/// Titles, legends and axis labels.
pub const INK: Color = Color(0x22, 0x26, 0x2B);
/// Secondary text: ticks and captions.
pub const MUTED: Color = Color(0x5B, 0x63, 0x6D);
pub const GRID: Color = Color(0xE3, 0xE6, 0xEA);
pub const AXIS: Color = Color(0x9A, 0xA1, 0xA9);
/// Every other segment of a drift figure.
pub const SHADE: Color = Color(0xEF, 0xF2, 0xF6);
/// Background.
pub const PAPER: Color = Color(0xFF, 0xFF, 0xFF);

/// Font size of titles, logical pixels.
pub const TITLE: f64 = 17.0;
/// Font size of panel titles, legends and axis labels, logical pixels.
pub const BODY: f64 = 12.5;
/// Font size of ticks and captions, logical pixels.
pub const SMALL: f64 = 11.0;

/// Style of an arm, the same in every figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ArmStyle {
    pub color: Color,
    pub width: f64,
    /// Dash and gap, `None` for a solid line.
    pub dash: Option<(f64, f64)>,
}

/// Colours of the other arms: those of Okabe and Ito's palette that the named arms do not use
/// (without yellow, which is invisible on white), a brown, then four of Tol's muted palette. Both
/// palettes are distinguishable with colour-blindness.
const OTHERS: [Color; 8] = [
    Color(0xCC, 0x79, 0xA7),
    Color(0x56, 0xB4, 0xE9),
    Color(0xE6, 0x9F, 0x00),
    Color(0x7A, 0x5C, 0x3E),
    Color(0x33, 0x22, 0x88),
    Color(0x99, 0x99, 0x33),
    Color(0x88, 0x22, 0x55),
    Color(0x44, 0xAA, 0x99),
];
/// Dashes of the other arms, once every colour is in use.
const DASHES: [Option<(f64, f64)>; 3] = [None, Some((6.0, 3.0)), Some((2.0, 2.5))];

/// The style of an arm of the paper's Table 1, the same in all runs; `None` for another name.
pub fn own_style(name: &str) -> Option<ArmStyle> {
    let solid = |color, width| ArmStyle {
        color,
        width,
        dash: None,
    };
    Some(match name {
        "autoregressive" => ArmStyle {
            color: Color(0x7F, 0x7F, 0x7F),
            width: 1.4,
            dash: Some((5.0, 4.0)),
        },
        "SpD_DM" => solid(Color(0x6B, 0x6F, 0x76), 1.8),
        "N-gram_pp" => solid(Color(0x00, 0x9E, 0x73), 1.8),
        "L_DM" => solid(Color(0x00, 0x72, 0xB2), 1.8),
        "L_DM+L_N-gram" => solid(Color(0xD5, 0x5E, 0x00), 2.8),
        _ => return None,
    })
}

/// The style of the `index`-th (from 0) other arm; the first 24 are all different.
pub fn other_style(index: usize) -> ArmStyle {
    ArmStyle {
        color: OTHERS[index % OTHERS.len()],
        width: 1.8,
        dash: DASHES[index / OTHERS.len() % DASHES.len()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_of_a_wide_table_are_told_apart() {
        let styles: Vec<ArmStyle> = (0..24).map(other_style).collect();
        for (index, style) in styles.iter().enumerate() {
            assert!(!styles[..index].contains(style), "arm {index}");
            for name in [
                "autoregressive",
                "SpD_DM",
                "N-gram_pp",
                "L_DM",
                "L_DM+L_N-gram",
            ] {
                let named = own_style(name).expect("an arm of Table 1");
                assert_ne!(named.color, style.color, "{name} and arm {index}");
            }
        }
    }
}
