//! Drawing: a display list (`scene`), small multiples laid out on it ([`Figure`]), and its two
//! renderings.
//!
//! Layout is computed once, in logical pixels and with the metrics of the embedded DejaVu Sans; SVG
//! and PNG show the same list, so a layout that is free of overlaps in one is free of them in the
//! other.

mod axis;
mod dash;
mod frame;
mod grid;
mod png;
mod render;
mod scene;
mod style;

pub use grid::{Figure, Legend, Level, Line, Mark, Panel, PanelRow, Shade, reference_style};
pub use render::Drawing;
pub use scene::Color;
pub use style::{ArmStyle, MUTED, other_style, own_style};
