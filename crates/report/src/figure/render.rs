//! A scene as SVG and PNG through plotters, with the embedded DejaVu Sans.

use super::dash::dashes;
use super::font::{LINE_HEIGHT, font, register_fonts};
use super::scene::{Anchor, Color, Item, Scene, Text};
use super::style::{ArmStyle, PAPER};
use crate::ReportError;
use plotters::coord::Shift;
use plotters::prelude::{
    BitMapBackend, Circle, DrawingArea, DrawingBackend, FontTransform, IntoDrawingArea,
    PathElement, Polygon, RGBAColor, RGBColor, SVGBackend, ShapeStyle, Text as PlotText,
};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color as _, TextStyle};

/// Scene units per SVG unit. plotters draws at integer positions, so the view box is finer than the
/// page.
const SVG_SCALE: f64 = 8.0;

/// Pixels of a published PNG per logical pixel.
const PNG_SCALE: usize = 2;

/// Samples per pixel and direction, since plotters fills polygons without antialiasing.
const SAMPLES: usize = 3;

/// SVG font sizes are plotters' sizes divided by this.
const SVG_FONT: f64 = 1.24;

/// A figure as vector graphics, and as a bitmap on request.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawing {
    /// Stem of the names of its files.
    pub name: String,
    /// Vector graphics.
    pub svg: String,
    scene: Scene,
}

impl Drawing {
    pub fn new(scene: Scene, name: &str) -> Result<Self, ReportError> {
        Ok(Self {
            name: name.to_owned(),
            svg: svg(&scene).map_err(|message| failed(name, message))?,
            scene,
        })
    }

    /// The bitmap, at twice the logical size.
    pub fn png(&self) -> Result<Vec<u8>, ReportError> {
        png(&self.scene).map_err(|message| failed(&self.name, message))
    }
}

fn failed(name: &str, message: String) -> ReportError {
    ReportError::Making {
        action: format!("draw {name}"),
        message,
    }
}

fn svg(scene: &Scene) -> Result<String, String> {
    let (width, height) = (scene.width.ceil(), scene.height.ceil());
    let fine = ((width * SVG_SCALE) as u32, (height * SVG_SCALE) as u32);
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, fine).into_drawing_area();
        Painter {
            area: &area,
            scale: SVG_SCALE,
            vector: true,
        }
        .paint(scene)?;
    }
    let page = format!(r#"width="{}" height="{}""#, fine.0, fine.1);
    Ok(text.replacen(&page, &format!(r#"width="{width}" height="{height}""#), 1))
}

fn png(scene: &Scene) -> Result<Vec<u8>, String> {
    let scale = (PNG_SCALE * SAMPLES) as f64;
    let size = (
        scene.width.ceil() as usize * PNG_SCALE,
        scene.height.ceil() as usize * PNG_SCALE,
    );
    let fine = (size.0 * SAMPLES, size.1 * SAMPLES);
    let mut samples = vec![0u8; fine.0 * fine.1 * 3];
    {
        let area = BitMapBackend::with_buffer(&mut samples, (fine.0 as u32, fine.1 as u32))
            .into_drawing_area();
        Painter {
            area: &area,
            scale,
            vector: false,
        }
        .paint(scene)?;
    }
    super::png::encode(&average(&samples, size), size)
}

/// Averages blocks of `SAMPLES` x `SAMPLES` RGB samples.
fn average(samples: &[u8], (width, height): (usize, usize)) -> Vec<u8> {
    let row = width * SAMPLES * 3;
    let count = (SAMPLES * SAMPLES) as u32;
    let mut pixels = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            for channel in 0..3 {
                let mut sum = 0;
                for dy in 0..SAMPLES {
                    let start = (y * SAMPLES + dy) * row + x * SAMPLES * 3 + channel;
                    sum += (0..SAMPLES)
                        .map(|dx| u32::from(samples[start + dx * 3]))
                        .sum::<u32>();
                }
                pixels.push(((sum + count / 2) / count) as u8);
            }
        }
    }
    pixels
}

/// Draws a scene on a plotters area of `scale` units per logical pixel.
struct Painter<'a, B: DrawingBackend> {
    area: &'a DrawingArea<B, Shift>,
    scale: f64,
    vector: bool,
}

impl<B: DrawingBackend> Painter<'_, B> {
    fn paint(&self, scene: &Scene) -> Result<(), String> {
        register_fonts();
        self.area.fill(&rgb(PAPER)).map_err(text_of)?;
        for item in &scene.items {
            match item {
                Item::Rect(x, y, w, h, color) => self.polygon(
                    &[(*x, *y), (x + w, *y), (x + w, y + h), (*x, y + h)],
                    rgb(*color).to_rgba(),
                ),
                Item::Area {
                    points,
                    color,
                    alpha,
                } => self.polygon(points, rgb(*color).mix(*alpha)),
                Item::Line { points, style } => match style.dash {
                    None => self.line(points, *style),
                    Some(dash) => dashes(points, dash)
                        .iter()
                        .try_for_each(|dash| self.line(dash, *style)),
                },
                Item::Dot(x, y, radius, color) => self
                    .circle(*x, *y, radius + 1.2, PAPER)
                    .and_then(|()| self.circle(*x, *y, *radius, *color)),
                Item::Text(text) => self.text(text),
            }?;
        }
        self.area.present().map_err(text_of)
    }

    fn at(&self, (x, y): (f64, f64)) -> (i32, i32) {
        (
            (x * self.scale).round() as i32,
            (y * self.scale).round() as i32,
        )
    }

    fn polygon(&self, points: &[(f64, f64)], color: RGBAColor) -> Result<(), String> {
        let points: Vec<_> = points.iter().map(|&point| self.at(point)).collect();
        self.area
            .draw(&Polygon::new(points, color.filled()))
            .map_err(text_of)
    }

    fn circle(&self, x: f64, y: f64, radius: f64, color: Color) -> Result<(), String> {
        let radius = (radius * self.scale).round() as i32;
        self.area
            .draw(&Circle::new(self.at((x, y)), radius, rgb(color).filled()))
            .map_err(text_of)
    }

    fn line(&self, points: &[(f64, f64)], style: ArmStyle) -> Result<(), String> {
        let ArmStyle { color, width, .. } = style;
        if self.vector {
            let style = ShapeStyle {
                color: rgb(color).to_rgba(),
                filled: false,
                stroke_width: (width * self.scale).round() as u32,
            };
            let points: Vec<_> = points.iter().map(|&point| self.at(point)).collect();
            return self
                .area
                .draw(&PathElement::new(points, style))
                .map_err(text_of);
        }
        // One quadrilateral per segment with round joints: plotters' own thick paths grow spikes at
        // sharp turns.
        let half = width / 2.0;
        for pair in points.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let length = (x1 - x0).hypot(y1 - y0);
            if length > 0.0 {
                let (nx, ny) = (-(y1 - y0) / length * half, (x1 - x0) / length * half);
                let corners = [
                    (x0 + nx, y0 + ny),
                    (x1 + nx, y1 + ny),
                    (x1 - nx, y1 - ny),
                    (x0 - nx, y0 - ny),
                ];
                self.polygon(&corners, rgb(color).to_rgba())?;
            }
        }
        if points.len() > 2 {
            for &(x, y) in &points[1..points.len() - 1] {
                self.circle(x, y, half, color)?;
            }
        }
        Ok(())
    }

    fn text(&self, text: &Text) -> Result<(), String> {
        let em = text.size * self.scale;
        // Size that plotters needs for this em, and offset of the baseline from the top of the
        // text.
        let (size, ascent) = if self.vector {
            (em * SVG_FONT, 0.76 * em)
        } else {
            (em * LINE_HEIGHT, em * LINE_HEIGHT / 2.0)
        };
        let mut position = (text.x * self.scale, text.y * self.scale);
        let mut font = font(size, text.bold);
        if text.vertical {
            position.0 -= ascent;
            font = font.transform(FontTransform::Rotate270);
        } else {
            position.1 -= ascent;
        }
        let anchor = match text.anchor {
            Anchor::Start => HPos::Left,
            Anchor::Middle => HPos::Center,
            Anchor::End => HPos::Right,
        };
        let color = rgb(text.color);
        let style = TextStyle::from(font)
            .color(&color)
            .pos(Pos::new(anchor, VPos::Top));
        let position = (position.0.round() as i32, position.1.round() as i32);
        self.area
            .draw(&PlotText::new(text.text.as_str(), position, style))
            .map_err(text_of)
    }
}

fn rgb(color: Color) -> RGBColor {
    RGBColor(color.0, color.1, color.2)
}

fn text_of<E: std::error::Error + Send + Sync>(
    error: plotters::drawing::DrawingAreaErrorKind<E>,
) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_averaged() {
        let mut samples = vec![0; SAMPLES * SAMPLES * 3];
        samples[0] = 90;
        assert_eq!(average(&samples, (1, 1)), [10, 0, 0]);
    }
}
