//! A chart of lines between measured points.

use plotters::chart::ChartBuilder;
use plotters::element::{Circle, EmptyElement, PathElement, Rectangle};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use crate::axis::Axis;
use crate::canvas::{EDGE, HEAD, IN_MEMORY, Legend, Mark, TEXT, file, style, text, width};
use crate::number::tick;
use crate::palette::{BLUE, Colour, GREEN, GRID, MUTED, ORANGE};

const SIZE: (u32, u32) = (720, 360);
/// The space of the labels of an axis.
const BELOW: i32 = 46;
const LEFT: i32 = 60;

/// Colours and marks of the series. A dot is visible in a ring, so that equal points are.
const LOOKS: [(Colour, Mark); 3] = [(ORANGE, Mark::Ring), (BLUE, Mark::Dot), (GREEN, Mark::Square)];

/// A line.
pub(crate) struct Series<'a> {
    pub(crate) name: &'a str,
    pub(crate) points: Vec<(f64, f64)>,
}

/// The chart. `across` is the unit of the other axis. Both axes are logarithmic if the range of their values
/// asks for it, and the axis across has its labels at the points.
pub(crate) fn lines(title: &str, unit: &str, across: &str, series: &[Series]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let mut measured: Vec<f64> = points().map(|point| point.0).collect();
    measured.sort_by(f64::total_cmp);
    measured.dedup();
    let (low, high) = (measured[0], measured[measured.len() - 1]);
    // Half a mark is outside of the outermost points.
    let x = Axis::log(low / 1.08..high * 1.08, measured);
    let y = Axis::of(&points().map(|point| point.1).collect::<Vec<_>>());
    let looks = || series.iter().zip(LOOKS);
    let legend: Vec<Legend> = looks()
        .map(|(series, (colour, mark))| Legend { name: series.name, colour, mark })
        .collect();
    file((title, unit), &legend, SIZE, |area| {
        let (right, bottom) = (SIZE.0 as i32 - EDGE, SIZE.1 as i32 - EDGE);
        let mut chart = ChartBuilder::on(area)
            .margin_top(HEAD + TEXT / 2)
            .margin_right(2 * EDGE)
            .margin_bottom(EDGE)
            .x_label_area_size(BELOW)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(x, y)
            .expect(IN_MEMORY);
        chart
            .configure_mesh()
            .bold_line_style(GRID.rgb())
            .axis_style(MUTED.rgb())
            .x_label_style(style(TEXT, MUTED, HPos::Center, VPos::Top))
            .y_label_style(style(TEXT, MUTED, HPos::Right, VPos::Center))
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&|value| tick(*value))
            .draw()
            .expect(IN_MEMORY);
        let below = style(TEXT, MUTED, HPos::Left, VPos::Bottom);
        text(area, across, (right - EDGE - width(across), bottom), &below);
        for (series, (colour, mark)) in looks() {
            let colour = colour.rgb();
            // A ring is drawn first, and its line is wider than that of a dot over it.
            let thickness = if mark == Mark::Ring { 3 } else { 2 };
            let line = PathElement::new(series.points.clone(), colour.stroke_width(thickness));
            chart.draw_series([line]).expect(IN_MEMORY);
            let points = series.points.iter().copied();
            let drawn = match mark {
                Mark::Ring => {
                    let ring = |at| Circle::new(at, 6, colour.stroke_width(2));
                    chart.draw_series(points.map(ring)).map(drop)
                }
                Mark::Dot | Mark::Line | Mark::Area => {
                    let dot = |at| Circle::new(at, 3, colour.filled());
                    chart.draw_series(points.map(dot)).map(drop)
                }
                Mark::Square => {
                    let square = |at| {
                        EmptyElement::at(at) + Rectangle::new([(-4, -4), (4, 4)], colour.filled())
                    };
                    chart.draw_series(points.map(square)).map(drop)
                }
            };
            drawn.expect(IN_MEMORY);
        }
    })
}
