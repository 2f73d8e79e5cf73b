//! Small multiples: rows of panels that share a vertical axis, a legend above and a caption below.

use super::axis::Axis;
use super::frame::draw_row;
use super::panel::{COLUMN_GAP, PanelRow, Y_AXIS};
use super::scene::{Anchor, Item, Scene, label_width, wrap};
use super::style::{ArmStyle, BODY, INK, MUTED, SMALL, TITLE};
use crate::estimates::extent;

/// An entry of the legend.
#[derive(Debug, Clone, PartialEq)]
pub struct Legend {
    /// Text, with subscripts after `_`.
    pub label: String,
    /// Line shown before it.
    pub style: ArmStyle,
}

/// A figure of small multiples.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    pub title: String,
    /// Legend above the panels.
    pub legend: Vec<Legend>,
    pub rows: Vec<PanelRow>,
    pub x_label: String,
    /// True if both axes are logarithmic.
    pub log: bool,
    /// Paragraph below the panels.
    pub caption: String,
}

const MARGIN: f64 = 24.0;
const PANEL_TITLE: f64 = 24.0;
const NO_TITLE: f64 = 4.0;
const X_TICKS: f64 = 20.0;
const ROW_GAP: f64 = 14.0;
const LINE: f64 = 1.45;

impl Figure {
    /// Lays the figure out.
    pub fn scene(&self) -> Scene {
        let columns = self
            .rows
            .iter()
            .map(|row| row.panels.len())
            .max()
            .unwrap_or(1);
        let panel = match columns {
            0 | 1 => (780.0, 235.0),
            2 => (400.0, 215.0),
            3 => (290.0, 190.0),
            _ => (228.0, 170.0),
        };
        let body = columns.max(1) as f64 * (panel.0 + COLUMN_GAP) - COLUMN_GAP;
        let width = 2.0 * MARGIN + Y_AXIS + body;
        let mut scene = Scene::new(width, 0.0);
        let mut y = MARGIN;
        for line in wrap(&self.title, (TITLE, true), width - 2.0 * MARGIN) {
            y += TITLE;
            scene.label((MARGIN, y), &line, (TITLE, true), INK);
            y += TITLE * (LINE - 1.0);
        }
        if !self.legend.is_empty() {
            y = self.draw_legend(&mut scene, y + 18.0, width - 2.0 * MARGIN);
        }
        for row in &self.rows {
            y += ROW_GAP
                + if row.is_titled() {
                    PANEL_TITLE
                } else {
                    NO_TITLE
                };
            draw_row(
                &mut scene,
                row,
                &self.y_axis(row),
                self.log,
                (MARGIN + Y_AXIS, y),
                panel,
            );
            y += panel.1 + X_TICKS;
        }
        y += 16.0;
        let middle = MARGIN + Y_AXIS + body / 2.0;
        scene.text(
            (middle, y),
            &self.x_label,
            (BODY, false),
            INK,
            Anchor::Middle,
        );
        y += 14.0;
        for line in wrap(&self.caption, (SMALL, false), width - 2.0 * MARGIN) {
            y += SMALL * LINE;
            scene.label((MARGIN, y), &line, (SMALL, false), MUTED);
        }
        y += 3.0;
        scene.height = y + MARGIN * 0.75;
        scene
    }

    /// The vertical axis of a row. Rows of the same quantity share it, so that all its panels can
    /// be compared.
    fn y_axis(&self, row: &PanelRow) -> Axis {
        let alike = self
            .rows
            .iter()
            .filter(|other| other.y_label == row.y_label);
        let (low, high) = extent(alike.flat_map(PanelRow::values));
        if self.log {
            return Axis::log(low, high);
        }
        if row.from_zero {
            return Axis::widened(0.0, high, 5);
        }
        let pad = 0.06 * (high - low);
        Axis::exact(low - pad, high + pad, 5)
    }

    /// Draws the legend in lines of at most `width` and returns its last baseline.
    fn draw_legend(&self, scene: &mut Scene, top: f64, width: f64) -> f64 {
        const SWATCH: f64 = 24.0;
        const SPACE: f64 = 26.0;
        let (mut x, mut y) = (MARGIN, top);
        for entry in &self.legend {
            let wide = SWATCH + 7.0 + label_width(&entry.label, (BODY, false));
            if x > MARGIN && x + wide > MARGIN + width {
                (x, y) = (MARGIN, y + BODY * 1.7);
            }
            let middle = y - BODY * 0.33;
            scene.push(Item::Line {
                points: vec![(x, middle), (x + SWATCH, middle)],
                style: ArmStyle {
                    width: entry.style.width + 0.4,
                    ..entry.style
                },
            });
            scene.label((x + SWATCH + 7.0, y), &entry.label, (BODY, false), INK);
            x += wide + SPACE;
        }
        y
    }
}

impl PanelRow {
    fn is_titled(&self) -> bool {
        self.panels.iter().any(|panel| {
            panel.title.is_some() || panel.shades.iter().any(|shade| !shade.label.is_empty())
        })
    }

    /// Values of its lines, bands, levels and reference.
    fn values(&self) -> impl Iterator<Item = f64> {
        let lines = self.panels.iter().flat_map(|panel| &panel.lines);
        let points = lines.clone().flat_map(|line| line.pieces.iter().flatten());
        let bands = lines.flat_map(|line| line.bands.iter().flatten());
        let ends = bands.flat_map(|band| [band.1, band.2]);
        let levels = self.panels.iter().flat_map(|panel| &panel.levels);
        let points = points.map(|point| point.1).chain(ends);
        let levels = levels.map(|level| level.y);
        points.chain(levels).chain(self.reference)
    }
}

#[cfg(test)]
mod tests {
    use super::super::font::text_width;
    use super::super::panel::{Line, Panel};
    use super::super::style::own_style;
    use super::*;

    /// (left, top, right, bottom) of a text.
    fn bounds(text: &super::super::scene::Text) -> (f64, f64, f64, f64) {
        let width = text_width(&text.text, text.size, text.bold);
        let shift = match text.anchor {
            Anchor::Start => 0.0,
            Anchor::Middle => width / 2.0,
            Anchor::End => width,
        };
        let (ascent, descent) = (0.74 * text.size, 0.22 * text.size);
        if text.vertical {
            let bottom = text.y + shift;
            return (text.x - ascent, bottom - width, text.x + descent, bottom);
        }
        let left = text.x - shift;
        (left, text.y - ascent, left + width, text.y + descent)
    }

    fn figure(columns: usize, rows: usize) -> Figure {
        let style = own_style("L_DM").expect("an arm of Table 1");
        let panel = Panel {
            title: Some("a task with a very long name, a target with another".to_owned()),
            x: (0.0, 8000.0),
            lines: vec![Line {
                style,
                pieces: vec![vec![(1.0, 0.1), (8000.0, 12_345.0)]],
                bands: Vec::new(),
            }],
            ..Panel::default()
        };
        let row = PanelRow {
            y_label: "acceptance rate".to_owned(),
            from_zero: true,
            reference: Some(1.0),
            panels: vec![panel; columns],
        };
        let legend = |label: &str| Legend {
            label: label.to_owned(),
            style,
        };
        Figure {
            title: "L_DM says something with L_N-gram that is long, ".repeat(4),
            legend: ["SpD_DM", "+ N-gram_pp", "L_DM + λ L_N-gram"]
                .repeat(4)
                .into_iter()
                .map(legend)
                .collect(),
            rows: vec![row; rows],
            x_label: "prompts seen".to_owned(),
            log: false,
            caption: "L_DM and (L_N-gram) of words that wrap ".repeat(12),
        }
    }

    #[test]
    fn no_text_touches_another_or_the_edge() {
        for (columns, rows) in [(1, 2), (2, 2), (3, 1), (4, 4)] {
            let scene = figure(columns, rows).scene();
            let texts: Vec<_> = scene
                .items
                .iter()
                .filter_map(|item| match item {
                    Item::Text(text) => Some((text, bounds(text))),
                    _ => None,
                })
                .collect();
            assert!(texts.len() > 20);
            for (index, (text, a)) in texts.iter().enumerate() {
                let inside = a.0 >= 0.0 && a.1 >= 0.0 && a.2 <= scene.width && a.3 <= scene.height;
                assert!(inside, "{text:?} leaves the page");
                for (other, b) in &texts[index + 1..] {
                    let apart = a.2 <= b.0 + 0.5 || b.2 <= a.0 + 0.5 || a.3 <= b.1 || b.3 <= a.1;
                    // A subscript sits beside its symbol, lowered.
                    assert!(apart, "{text:?} and {other:?} overlap");
                }
            }
        }
    }

    #[test]
    fn rows_of_one_quantity_share_their_axis() {
        let mut figure = figure(1, 2);
        figure.rows[1].panels[0].lines.clear();
        assert_eq!(
            figure.y_axis(&figure.rows[0]),
            figure.y_axis(&figure.rows[1])
        );
        figure.rows[1].y_label = "speedup (x)".to_owned();
        assert_ne!(
            figure.y_axis(&figure.rows[0]),
            figure.y_axis(&figure.rows[1])
        );
    }
}
