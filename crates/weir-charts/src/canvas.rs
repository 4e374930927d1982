//! The parts that all charts have: the file, title and legend, and texts of a known width.

use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, IntoDrawingArea};
use plotters::element::{Circle, PathElement, Rectangle};
use plotters::prelude::SVGBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, TextStyle};

use crate::palette::{Colour, INK, MUTED, dark_style};

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

/// The heights of text and of the title, in pixels.
pub(crate) const TEXT: i32 = 12;
const TITLE: i32 = 16;
/// The width of an average character, as a part of the height. Most fonts have less.
pub(crate) const EM: f64 = 0.6;
/// The space around a chart, in pixels.
pub(crate) const EDGE: i32 = 10;
/// The height of the title, the unit and the legend together.
pub(crate) const HEAD: i32 = 66;

/// Why no call of plotters fails.
pub(crate) const IN_MEMORY: &str = "a string can be written";

/// A name in the legend.
pub(crate) struct Legend<'a> {
    pub(crate) name: &'a str,
    pub(crate) colour: Colour,
    pub(crate) mark: Mark,
}

/// The form of a series.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Mark {
    /// A ring at each point, large enough for a dot in it.
    Ring,
    Dot,
    Square,
    /// A line without points.
    Line,
    /// The area below a line.
    Area,
}

/// The file of a chart: `paint` draws what is below its title, its unit and its legend.
pub(crate) fn file(
    (title, unit): (&str, &str),
    legend: &[Legend],
    size: (u32, u32),
    paint: impl FnOnce(&Area),
) -> String {
    let mut svg = String::new();
    let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    text(&area, title, (EDGE, EDGE), &style(TITLE, INK, HPos::Left, VPos::Top));
    text(&area, unit, (EDGE, EDGE + 20), &style(TEXT, MUTED, HPos::Left, VPos::Top));
    let mut left = EDGE;
    for item in legend {
        left = legend_item(&area, item, left) + 20;
    }
    paint(&area);
    area.present().expect(IN_MEMORY);
    drop(area);
    let (head, body) = svg.split_once(">\n").expect("the first element");
    format!("{head} role=\"img\">\n<title>{title}</title>\n{}{body}", dark_style(body))
        .replace(" \"/>", "\"/>")
}

/// Draws an item of the legend. Returns where it ends.
fn legend_item(area: &Area, item: &Legend, left: i32) -> i32 {
    let (middle, colour) = (HEAD - 14, item.colour.rgb());
    let names = left + 24;
    if item.mark == Mark::Area {
        let fill = Rectangle::new(
            [(left, middle - 5), (left + 18, middle + 5)],
            colour.mix(AREA_OPACITY).filled(),
        );
        area.draw(&fill).expect(IN_MEMORY);
        let edge = [(left, middle - 5), (left + 18, middle - 5)];
        area.draw(&PathElement::new(edge, colour.stroke_width(1))).expect(IN_MEMORY);
    } else {
        let line = PathElement::new([(left, middle), (left + 18, middle)], colour.stroke_width(2));
        area.draw(&line).expect(IN_MEMORY);
    }
    let at = (left + 9, middle);
    let drawn = match item.mark {
        Mark::Ring => area.draw(&Circle::new(at, 6, colour.stroke_width(2))),
        Mark::Dot => area.draw(&Circle::new(at, 3, colour.filled())),
        Mark::Square => {
            let corners = [(at.0 - 4, at.1 - 4), (at.0 + 4, at.1 + 4)];
            area.draw(&Rectangle::new(corners, colour.filled()))
        }
        Mark::Line | Mark::Area => Ok(()),
    };
    drawn.expect(IN_MEMORY);
    let start = style(TEXT, INK, HPos::Left, VPos::Center);
    text(area, item.name, (names, middle), &start);
    names + width(item.name)
}

/// The opacity of an area. A line is its edge.
pub(crate) const AREA_OPACITY: f64 = 0.25;

/// Writes a text, unless it is empty.
pub(crate) fn text(area: &Area, words: &str, at: (i32, i32), style: &TextStyle) {
    if words.is_empty() {
        return;
    }
    area.draw_text(words, style, at).expect(IN_MEMORY);
}

/// The style of a text of `size` pixels.
pub(crate) fn style(size: i32, colour: Colour, across: HPos, up: VPos) -> TextStyle<'static> {
    // The SVG backend divides by it.
    const POINTS: f64 = 1.24;
    let font = ("sans-serif", f64::from(size) * POINTS).into_font();
    font.color(&colour.rgb()).pos(Pos::new(across, up))
}

/// The width of a text, in pixels. It is an estimate, because viewers choose the font.
pub(crate) fn width(words: &str) -> i32 {
    (words.chars().count() as f64 * EM * f64::from(TEXT)).ceil() as i32
}
