//! A chart with a row per value: bars, or dots on an axis.

use plotters::chart::ChartBuilder;
use plotters::element::{Circle, EmptyElement, Rectangle, Text};
use plotters::style::text_anchor::{HPos, VPos};
use plotters::style::{Color, TRANSPARENT};

use crate::axis::Axis;
use crate::canvas::{EDGE, IN_MEMORY, TEXT, file, style, text, width};
use crate::number::{grouped, short, tick};
use crate::palette::{Colour, GRID, INK, MUTED};

const WIDTH: u32 = 720;
/// The height of the title and the unit.
const TOP: i32 = 56;
/// The height of a row.
const ROW: i32 = 22;
/// The space of the labels below a logarithmic axis.
const BELOW: i32 = 28;
/// The gap before a value.
const GAP: i32 = 8;

/// A value with its name.
#[derive(Debug, PartialEq)]
pub(crate) struct Measured {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) colour: Colour,
}

impl Measured {
    /// The value as text.
    fn label(&self) -> String {
        grouped(&short(self.value))
    }
}

/// Rows below each other, with a name that may be empty.
#[derive(Debug, PartialEq)]
pub(crate) struct Group {
    pub(crate) name: &'static str,
    pub(crate) rows: Vec<Measured>,
}

/// The form of a value.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Form {
    /// Bars, from 0. Their values are beside them, so they need no axis.
    Bars,
    /// Dots on an axis, which is logarithmic unless a value is 0. Lengths would mean nothing there.
    Dots,
}

/// The chart.
pub(crate) fn rows(title: &str, unit: &str, form: Form, groups: &[Group]) -> String {
    let lines: Vec<Option<&Measured>> = groups
        .iter()
        .enumerate()
        .flat_map(|(at, group)| {
            // An empty line is between groups.
            (at > 0).then_some(None).into_iter().chain(group.rows.iter().map(Some))
        })
        .collect();
    let measured = || lines.iter().flatten();
    let values: Vec<f64> = measured().map(|row| row.value).collect();
    let widest = |of: fn(&Measured) -> String| measured().map(|row| width(&of(row))).max();
    let names = widest(|row| row.name.clone()).unwrap_or_default();
    let numbers = widest(Measured::label).unwrap_or_default();
    let headings = groups.iter().map(|group| width(group.name)).max().unwrap_or_default();
    let left = headings + names + 2 * GAP;
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    let (x, unit) = match (form, Axis::log_of(&values)) {
        (Form::Bars, _) => (Axis::linear(most, Vec::new()), unit.to_owned()),
        (Form::Dots, Some(axis)) => (axis, format!("{unit}, on a logarithmic axis")),
        (Form::Dots, None) => (Axis::of(&values), unit.to_owned()),
    };
    // The first row is at the top.
    let middle = |line: usize| (lines.len() - line) as f64 - 0.5;
    let with_name = |line: &usize| lines[*line].is_some();
    let at = (0..lines.len()).filter(with_name).map(middle).collect();
    let y = Axis::linear(lines.len() as f64, at);
    let below = if form == Form::Dots { BELOW } else { EDGE };
    let height = TOP + lines.len() as i32 * ROW + below;
    file((title, &unit), &[], (WIDTH, height as u32), |area| {
        let mut line = 0;
        for group in groups {
            let style = style(TEXT, INK, HPos::Left, VPos::Center);
            text(area, group.name, (EDGE, TOP + line * ROW + ROW / 2), &style);
            line += group.rows.len() as i32 + 1;
        }
        let mut chart = ChartBuilder::on(area)
            .margin_top(TOP)
            .margin_left(EDGE)
            .margin_right(EDGE + numbers + GAP)
            .x_label_area_size(below)
            .y_label_area_size(left)
            .build_cartesian_2d(x, y)
            .expect(IN_MEMORY);
        let name = |value: &f64| {
            let line = lines.len() - (value + 0.5).round() as usize;
            lines[line].map_or_else(String::new, |row| row.name.clone())
        };
        chart
            .configure_mesh()
            .disable_y_mesh()
            .bold_line_style(GRID.rgb())
            .axis_style(TRANSPARENT)
            .x_label_style(style(TEXT, MUTED, HPos::Center, VPos::Top))
            .y_label_style(style(TEXT, INK, HPos::Right, VPos::Center))
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&name)
            .draw()
            .expect(IN_MEMORY);
        for (line, row) in lines.iter().enumerate() {
            let Some(row) = row else { continue };
            let (y, fill) = (middle(line), row.colour.rgb().filled());
            let drawn = match form {
                Form::Bars => {
                    let bar = Rectangle::new([(0.0, y - 0.4), (row.value, y + 0.4)], fill);
                    chart.draw_series([bar]).map(drop)
                }
                Form::Dots => {
                    let dot = Circle::new((row.value, y), 5, fill);
                    chart.draw_series([dot]).map(drop)
                }
            };
            drawn.expect(IN_MEMORY);
            let style = style(TEXT, INK, HPos::Left, VPos::Center);
            let number = EmptyElement::at((row.value, y)) + Text::new(row.label(), (GAP, 0), style);
            chart.draw_series([number]).expect(IN_MEMORY);
        }
    })
}
