//! The content of panels, in data units.

use super::scene::Color;
use super::style::{ArmStyle, MUTED};

/// Space for the labels of a vertical axis, in logical pixels.
pub const Y_AXIS: f64 = 66.0;
/// Space between panels, in logical pixels.
pub const COLUMN_GAP: f64 = 28.0;

/// A line of a panel, interrupted between its pieces.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    pub style: ArmStyle,
    /// Pieces of (x, y) in data units.
    pub pieces: Vec<Vec<(f64, f64)>>,
    /// Pieces of (x, low, high), drawn as a translucent band under the lines.
    pub bands: Vec<Vec<(f64, f64, f64)>>,
}

impl Line {
    /// A line without points.
    pub fn new(style: ArmStyle) -> Self {
        Self {
            style,
            pieces: Vec::new(),
            bands: Vec::new(),
        }
    }
}

/// A labelled stretch of the horizontal axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Shade {
    pub from: f64,
    pub to: f64,
    /// Text above it.
    pub label: String,
}

/// A horizontal line at a value that is no curve of the panel: the paper's, a threshold, or the
/// speed of plain decoding on held-out prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    pub y: f64,
    /// Horizontal extent in data units; `None` for the whole panel.
    pub x: Option<(f64, f64)>,
    pub color: Color,
    /// Dash and gap.
    pub dash: (f64, f64),
}

/// A marked point.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mark {
    pub x: f64,
    pub y: f64,
    pub color: Color,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Panel {
    pub title: Option<String>,
    /// Horizontal range in data units.
    pub x: (f64, f64),
    /// Lines, the first one on top.
    pub lines: Vec<Line>,
    /// Stretches, every other one shaded; their labels are drawn if there is no title.
    pub shades: Vec<Shade>,
    pub marks: Vec<Mark>,
    /// Horizontal lines, below the others.
    pub levels: Vec<Level>,
    /// Words in place of numbers on the horizontal axis, with their positions.
    pub words: Vec<(f64, String)>,
}

/// A row of panels with one vertical axis.
#[derive(Debug, Clone, PartialEq)]
pub struct PanelRow {
    /// Label of the vertical axis, with its unit.
    pub y_label: String,
    pub from_zero: bool,
    /// A reference value, drawn as a line in [`reference_style`].
    pub reference: Option<f64>,
    pub panels: Vec<Panel>,
}

/// Style of [`PanelRow::reference`].
pub fn reference_style() -> ArmStyle {
    ArmStyle {
        color: MUTED,
        width: 1.2,
        dash: Some((5.0, 4.0)),
    }
}
