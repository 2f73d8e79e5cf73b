//! Drawing: a display list (`scene`), a layout of small multiples on it ([`Figure`]), and two
//! renderings.
//!
//! The layout is computed once, in logical pixels and with the metrics of the embedded DejaVu Sans.
//! SVG and PNG show the same list, so that a layout without overlaps in one has none in the other.

mod axis;
mod dash;
mod font;
mod frame;
mod grid;
mod panel;
mod png;
mod render;
mod scene;
mod style;

pub use grid::{Figure, Legend};
pub use panel::{Level, Line, Mark, Panel, PanelRow, Shade, reference_style};
pub use render::Drawing;
pub use scene::Color;
pub use style::{ArmStyle, other_style, own_style};
