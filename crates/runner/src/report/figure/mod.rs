//! Drawing: a display list ([`Scene`]), small multiples laid out on it ([`Figure`]), and its two renderings.
//!
//! Layout is computed once, in logical pixels and with the metrics of the embedded DejaVu Sans; SVG and PNG show the
//! same list, so a layout that is free of overlaps in one is free of them in the other.

mod axis;
mod grid;
mod render;
mod scene;
mod style;

pub use grid::{Figure, Legend, Line, Mark, Panel, PanelRow, Shade, reference_style};
pub use render::write_figure;
pub use style::{ArmStyle, other_style, own_style};
