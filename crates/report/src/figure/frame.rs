//! One panel on the page: axes, shades, lines, marks.

use super::axis::Axis;
use super::font::text_width;
use super::panel::{COLUMN_GAP, Line, Panel, PanelRow, Y_AXIS, reference_style};
use super::scene::{Anchor, Color, Item, Scene, fit};
use super::style::{AXIS, ArmStyle, BODY, GRID, INK, MUTED, SHADE, SMALL};

pub fn draw_row(
    scene: &mut Scene,
    row: &PanelRow,
    axis: &Axis,
    log: bool,
    origin: (f64, f64),
    size: (f64, f64),
) {
    let label_x = origin.0 - Y_AXIS + SMALL;
    scene.vertical((label_x, origin.1 + size.1 / 2.0), &row.y_label, BODY, INK);
    for (column, panel) in row.panels.iter().enumerate() {
        let left = origin.0 + column as f64 * (size.0 + COLUMN_GAP);
        let frame = Frame {
            left,
            top: origin.1,
            width: size.0,
            height: size.1,
            x: if log {
                Axis::log(panel.x.0, panel.x.1)
            } else {
                Axis::exact(panel.x.0, panel.x.1, (size.0 / 75.0) as usize)
            },
            y: axis.clone(),
        };
        frame.draw(scene, row, panel, column == 0);
    }
}

/// A panel's place and axes.
struct Frame {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    x: Axis,
    y: Axis,
}

impl Frame {
    fn px(&self, x: f64) -> f64 {
        self.left + self.x.share(x) * self.width
    }

    fn py(&self, y: f64) -> f64 {
        self.top + (1.0 - self.y.share(y)) * self.height
    }

    fn draw(&self, scene: &mut Scene, row: &PanelRow, panel: &Panel, with_y_labels: bool) {
        self.draw_shades(scene, panel);
        self.draw_axes(scene, panel, with_y_labels);
        if let Some(title) = &panel.title {
            let title = fit(title, BODY, true, self.width);
            let at = (self.left, self.top - 9.0);
            scene.text(at, &title, (BODY, true), INK, Anchor::Start);
        }
        if panel.lines.is_empty() {
            let middle = (self.left + self.width / 2.0, self.top + self.height / 2.0);
            scene.text(
                middle,
                "not measured",
                (SMALL, false),
                MUTED,
                Anchor::Middle,
            );
            return;
        }
        if let Some(value) = row.reference {
            let y = self.py(value);
            scene.push(Item::Line {
                points: vec![(self.left, y), (self.left + self.width, y)],
                style: reference_style(),
            });
        }
        for line in &panel.lines {
            self.draw_bands(scene, line);
        }
        for level in &panel.levels {
            let ends = level.x.unwrap_or(panel.x);
            let y = self.py(level.y);
            scene.push(Item::Line {
                points: vec![(self.px(ends.0), y), (self.px(ends.1), y)],
                style: ArmStyle {
                    color: level.color,
                    width: 1.3,
                    dash: Some(level.dash),
                },
            });
        }
        // The first arms last, and thin lines over thick ones: if two coincide, both stay visible.
        let mut lines: Vec<&Line> = panel.lines.iter().rev().collect();
        lines.sort_by(|a, b| b.style.width.total_cmp(&a.style.width));
        for line in lines {
            self.draw_line(scene, line);
        }
        for mark in &panel.marks {
            scene.push(Item::Dot(self.px(mark.x), self.py(mark.y), 3.6, mark.color));
        }
    }

    fn draw_shades(&self, scene: &mut Scene, panel: &Panel) {
        for (index, shade) in panel.shades.iter().enumerate() {
            let (from, to) = (self.px(shade.from), self.px(shade.to));
            if index % 2 == 1 {
                scene.push(Item::Rect(from, self.top, to - from, self.height, SHADE));
            }
            if panel.title.is_none() && !shade.label.is_empty() {
                let label = fit(&shade.label, BODY, true, to - from - 6.0);
                let at = ((from + to) / 2.0, self.top - 9.0);
                scene.text(at, &label, (BODY, true), INK, Anchor::Middle);
            }
        }
        for shade in panel.shades.iter().skip(1) {
            let x = self.px(shade.from);
            let above = if shade.label.is_empty() { 0.0 } else { 20.0 };
            scene.push(Item::Line {
                points: vec![(x, self.top - above), (x, self.top + self.height)],
                style: ArmStyle {
                    color: AXIS,
                    width: 1.0,
                    dash: Some((3.0, 3.0)),
                },
            });
        }
    }

    fn draw_axes(&self, scene: &mut Scene, panel: &Panel, with_y_labels: bool) {
        let right = self.left + self.width;
        let bottom = self.top + self.height;
        for &tick in &self.y.ticks {
            let y = self.py(tick);
            scene.push(stroke(vec![(self.left, y), (right, y)], GRID));
            if with_y_labels {
                let at = (self.left - 7.0, y + SMALL * 0.36);
                let label = self.y.label(tick);
                scene.text(at, &label, (SMALL, false), MUTED, Anchor::End);
            }
        }
        let mut ticks = panel.words.clone();
        if ticks.is_empty() {
            ticks.extend(self.x.ticks.iter().map(|&tick| (tick, self.x.label(tick))));
        }
        for (tick, label) in ticks {
            let x = self.px(tick);
            scene.push(stroke(vec![(x, bottom), (x, bottom + 4.0)], AXIS));
            let at = bottom + 6.0 + SMALL;
            // At the ends labels turn inwards, so that those of two panels never meet.
            let half = text_width(&label, SMALL, false) / 2.0;
            let (x, anchor) = if x + half > right + 4.0 {
                (right + 4.0, Anchor::End)
            } else if x - half < self.left - 4.0 {
                (self.left - 4.0, Anchor::Start)
            } else {
                (x, Anchor::Middle)
            };
            scene.text((x, at), &label, (SMALL, false), MUTED, anchor);
        }
        scene.push(stroke(vec![(self.left, bottom), (right, bottom)], AXIS));
    }

    fn draw_bands(&self, scene: &mut Scene, line: &Line) {
        for band in line.bands.iter().filter(|band| band.len() > 1) {
            let upper = band.iter().map(|&(x, _, high)| (self.px(x), self.py(high)));
            let lower = band.iter().map(|&(x, low, _)| (self.px(x), self.py(low)));
            let points: Vec<_> = upper.chain(lower.rev()).collect();
            scene.push(Item::Area {
                points,
                color: line.style.color,
                alpha: 0.16,
            });
        }
    }

    fn draw_line(&self, scene: &mut Scene, line: &Line) {
        for piece in &line.pieces {
            let points: Vec<_> = piece
                .iter()
                .map(|&(x, y)| (self.px(x), self.py(y)))
                .collect();
            match points.as_slice() {
                [] => {}
                &[(x, y)] => scene.push(Item::Dot(x, y, line.style.width, line.style.color)),
                _ => scene.push(Item::Line {
                    points,
                    style: line.style,
                }),
            }
        }
    }
}

fn stroke(points: Vec<(f64, f64)>, color: Color) -> Item {
    let style = ArmStyle {
        color,
        width: 1.0,
        dash: None,
    };
    Item::Line { points, style }
}
