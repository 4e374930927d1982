//! The chart of docs/guides/rlqs/: Envoys that share a quota, over time.

use std::collections::BTreeMap;

use plotters::chart::ChartBuilder;
use plotters::element::{PathElement, Polygon};
use plotters::style::Color;
use plotters::style::text_anchor::{HPos, VPos};

use crate::ChartFile;
use crate::axis::Axis;
use crate::canvas::{
    AREA_OPACITY, Area, EDGE, HEAD, IN_MEMORY, Legend, Mark, TEXT, file, style, text, width,
};
use crate::number::tick;
use crate::palette::{BLUE, GREEN, GRID, INK, MUTED, ORANGE};
use crate::table::Table;

const WIDTH: u32 = 720;
/// The height of a panel, with the gap below it.
const PANEL: i32 = 110;
const GAP: i32 = 16;
/// The space of the labels: left and right of the panels, above the first and below the last one.
const LEFT: i32 = 46;
const RIGHT: i32 = 84;
const ABOVE: i32 = 28;
const BELOW: i32 = 40;
/// Seconds between two labels, and requests per second.
const SECONDS: usize = 10;
const RATES: [f64; 3] = [0.0, 200.0, 400.0];

/// The seconds of a run.
#[derive(Default)]
struct Course<'a> {
    /// The name of each step with its first second.
    steps: Vec<(&'a str, usize)>,
    quota: f64,
    /// That of weir, if the file names it.
    commit: Option<&'a str>,
    envoys: BTreeMap<u32, Vec<Second>>,
}

#[derive(Clone, Copy)]
struct Second {
    admitted: f64,
    /// The rate at its start.
    assigned: f64,
}

/// The chart of the rows with the part `steps`.
///
/// # Errors
/// The line and the column without a number, or a file without such rows.
pub fn acceptance(csv: &str) -> Result<ChartFile, String> {
    let (table, mut course) = (Table::new(csv), Course::default());
    for row in table.rows() {
        if row.text("part")? != "steps" {
            continue;
        }
        let (step, second) = (row.text("step")?, row.number("second")?);
        if course.steps.last().is_none_or(|(name, _)| *name != step) {
            course.steps.push((step, second as usize));
        }
        course.quota = row.number("quota")?;
        course.commit = row.text("commit").ok();
        let seconds = course.envoys.entry(row.number("envoy")? as u32).or_default();
        if seconds.len() as f64 != second {
            return Err(format!("second {second} follows {} seconds", seconds.len()));
        }
        let (admitted, assigned) = (row.number("admitted")?, row.number("assigned")?);
        seconds.push(Second { admitted, assigned });
    }
    if course.envoys.is_empty() {
        return Err("no row of the part `steps`".to_owned());
    }
    Ok(ChartFile { name: "acceptance.svg", svg: course.chart() })
}

impl Course<'_> {
    fn chart(&self) -> String {
        let title =
            format!("One quota of {} requests per second, divided among Envoys", self.quota);
        let legend = [
            Legend { name: "assigned", colour: BLUE, mark: Mark::Area },
            Legend { name: "admitted", colour: ORANGE, mark: Mark::Line },
            Legend { name: "quota", colour: GREEN, mark: Mark::Line },
        ];
        let panels = self.envoys.len() as i32 + 1;
        let height = HEAD + ABOVE + panels * PANEL + BELOW;
        let unit = "requests per second";
        let unit = self.commit.map_or(unit.to_owned(), |commit| format!("{unit}, weir {commit}"));
        file((&title, &unit), &legend, (WIDTH, height as u32), |area| {
            self.step_names(area);
            let count = self.seconds();
            let totals: Vec<f64> = (0..count).map(|second| self.total(second)).collect();
            self.panel(area, 0, "all Envoys", &[], &totals);
            for (at, (envoy, seconds)) in self.envoys.iter().enumerate() {
                let assigned: Vec<f64> = seconds.iter().map(|second| second.assigned).collect();
                let admitted: Vec<f64> = seconds.iter().map(|second| second.admitted).collect();
                let name = format!("Envoy {envoy}");
                self.panel(area, at as i32 + 1, &name, &assigned, &admitted);
            }
            let bottom = style(TEXT, MUTED, HPos::Right, VPos::Bottom);
            text(area, "seconds", (WIDTH as i32 - RIGHT, height - EDGE / 2), &bottom);
        })
    }

    /// The seconds that all Envoys have.
    fn seconds(&self) -> usize {
        self.envoys.values().map(Vec::len).min().unwrap_or_default()
    }

    fn total(&self, second: usize) -> f64 {
        self.envoys.values().map(|seconds| seconds[second].admitted).sum()
    }

    /// The names of the steps, above their first seconds. A name that would touch another is above it.
    fn step_names(&self, area: &Area) {
        let first = EDGE + LEFT;
        let pixels = f64::from(WIDTH as i32 - RIGHT - first) / self.seconds() as f64;
        // Where each of the two lines of names is free.
        let mut free = [0; 2];
        for (name, second) in &self.steps {
            let left = first + (*second as f64 * pixels) as i32;
            let line = usize::from(free[0] > left);
            free[line] = left + width(name) + TEXT / 2;
            let style = style(TEXT, INK, HPos::Left, VPos::Bottom);
            text(area, name, (left, HEAD + ABOVE - line as i32 * (TEXT + 2)), &style);
        }
    }

    /// A panel: what was assigned, if anything, and what was admitted. The panel of all has the quota.
    fn panel(&self, area: &Area, at: i32, name: &str, assigned: &[f64], admitted: &[f64]) {
        let (count, end) = (self.seconds(), RATES[RATES.len() - 1]);
        let is_last = at as usize == self.envoys.len();
        let top = HEAD + ABOVE + at * PANEL;
        let below = if is_last { BELOW } else { 0 };
        let (_, height) = area.dim_in_pixel();
        let bottom = height as i32 - top - (PANEL - GAP) - below;
        let labels = (0..=count).step_by(SECONDS).map(|second| second as f64).collect();
        let mut chart = ChartBuilder::on(area)
            .margin_top(top)
            .margin_left(EDGE)
            .margin_right(RIGHT)
            .margin_bottom(bottom)
            .x_label_area_size(below)
            .y_label_area_size(LEFT)
            .build_cartesian_2d(
                Axis::linear(count as f64, labels),
                Axis::linear(end, RATES.to_vec()),
            )
            .expect(IN_MEMORY);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .bold_line_style(GRID.rgb())
            .axis_style(MUTED.rgb())
            .x_label_style(style(TEXT, MUTED, HPos::Center, VPos::Top))
            .y_label_style(style(TEXT, MUTED, HPos::Right, VPos::Center))
            .x_label_formatter(&|value| tick(*value))
            .y_label_formatter(&|value| tick(*value))
            .draw()
            .expect(IN_MEMORY);
        let of_steps = self.steps.iter().map(|(_, second)| {
            let second = *second as f64;
            PathElement::new([(second, 0.0), (second, end)], MUTED.rgb().stroke_width(1))
        });
        chart.draw_series(of_steps).expect(IN_MEMORY);
        if !assigned.is_empty() {
            let steps = steps(assigned, end);
            let last = count as f64;
            let closed = [&[(0.0, 0.0)], &steps[..], &[(last, 0.0)]].concat();
            let fill = BLUE.rgb().mix(AREA_OPACITY).filled();
            chart.draw_series([Polygon::new(closed, fill)]).expect(IN_MEMORY);
            let edge = PathElement::new(steps, BLUE.rgb().stroke_width(1));
            chart.draw_series([edge]).expect(IN_MEMORY);
        } else {
            let ends = [(0.0, self.quota), (count as f64, self.quota)];
            let line = PathElement::new(ends, GREEN.rgb().stroke_width(2));
            chart.draw_series([line]).expect(IN_MEMORY);
        }
        // What was admitted in a second is at its middle.
        let points = admitted.iter().enumerate();
        let points = points.map(|(at, rate)| (at as f64 + 0.5, rate.min(end)));
        let line = PathElement::new(points.collect::<Vec<_>>(), ORANGE.rgb().stroke_width(2));
        chart.draw_series([line]).expect(IN_MEMORY);
        let middle = top + (PANEL - GAP) / 2;
        let start = style(TEXT, INK, HPos::Left, VPos::Center);
        text(area, name, (WIDTH as i32 - RIGHT + 6, middle), &start);
    }
}

/// The corners of a line with a value for each second, from the start of the second to its end.
fn steps(values: &[f64], most: f64) -> Vec<(f64, f64)> {
    let mut corners: Vec<(f64, f64)> = Vec::new();
    for (second, value) in values.iter().enumerate() {
        let (start, value) = (second as f64, value.min(most));
        // A point within a level part is no corner.
        if corners.last().is_some_and(|(_, last)| *last == value) {
            corners.pop();
        } else {
            corners.push((start, value));
        }
        corners.push((start + 1.0, value));
    }
    corners
}

#[test]
fn steps_have_only_corners() {
    let found = steps(&[5.0, 5.0, 5.0, 0.0, f64::INFINITY], 9.0);
    let expected = [(0.0, 5.0), (3.0, 5.0), (3.0, 0.0), (4.0, 0.0), (4.0, 9.0), (5.0, 9.0)];
    assert_eq!(found, expected);
}

#[test]
fn a_bad_course_is_an_error() {
    let head = "part,step,quota,second,envoy,admitted,assigned\n";
    let read = |rows: &str| acceptance(&format!("{head}{rows}")).map(|file| file.name);
    let good = "steps,A,300,0,1,90,100\nsteps,B,300,1,1,100,100\n";
    assert_eq!(read(good), Ok("acceptance.svg"));
    assert_eq!(read(""), Err("no row of the part `steps`".to_owned()));
    assert_eq!(read("control,A,300,0,1,9,9\n"), Err("no row of the part `steps`".to_owned()));
    let missing = good.replace("B,300,1", "B,300,2");
    assert_eq!(read(&missing), Err("second 2 follows 1 seconds".to_owned()));
}
