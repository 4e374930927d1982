//! The charts of docs/guides/modes/: the modes by request rate.

use crate::ChartFile;
use crate::lines::{Series, lines};
use crate::table::Table;

/// The modes, in the order of the legend.
const MODES: [&str; 3] = ["exact", "leased", "synced"];

/// The charts of sweep.csv.
///
/// # Errors
/// The line and the column without a number.
pub fn modes(sweep_csv: &str) -> Result<Vec<ChartFile>, String> {
    let table = Table::new(sweep_csv);
    let chart = |name, title: &str, unit: &str, column: &str| {
        let mut all = MODES.map(|name| Series { name, points: Vec::new() });
        for row in table.rows() {
            let mode = row.text("mode")?;
            let series = all.iter_mut().find(|series| series.name == mode);
            let series = series.ok_or_else(|| format!("an unknown mode `{mode}`"))?;
            series.points.push((row.number("rate")?, row.number(column)?));
        }
        if let Some(empty) = all.iter().find(|series| series.points.is_empty()) {
            return Err(format!("no row of the mode `{}`", empty.name));
        }
        Ok(ChartFile { name, svg: lines(title, unit, "requests per second", &all) })
    };
    Ok(vec![
        chart("calls.svg", "Script calls in Redis", "calls per second", "script_calls_per_second")?,
        chart("overrun.svg", "Admitted over the limit", "% of the limit", "overrun_percent")?,
    ])
}

#[test]
fn a_bad_sweep_is_an_error() {
    let head = "mode,rate,script_calls_per_second,overrun_percent\n";
    let read = |rows: &str| modes(&format!("{head}{rows}")).map(|files| files.len());
    let good = "exact,100,5,0\nleased,100,2,0\nsynced,100,1,3\n";
    assert_eq!(read(good), Ok(2));
    assert_eq!(read("exact,100,5,0\n"), Err("no row of the mode `leased`".to_owned()));
    assert_eq!(read("other,100,5,0\n"), Err("an unknown mode `other`".to_owned()));
    let bad = good.replace("leased,100", "leased,x");
    assert_eq!(read(&bad), Err("line 3: rate is `x`".to_owned()));
}
