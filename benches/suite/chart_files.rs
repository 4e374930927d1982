//! The files of the charts beside the page.

use std::fs;
use std::io;
use std::path::Path;

use weir_charts::ChartFile;

/// Writes the charts into a folder, which has no other charts. A chart whose figures were not measured would
/// show those of an earlier run, so it is deleted.
pub(crate) fn write(folder: &Path, charts: &[ChartFile]) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let is_chart = path.extension().is_some_and(|end| end == "svg");
        if is_chart && !charts.iter().any(|chart| path.ends_with(chart.name)) {
            fs::remove_file(path)?;
        }
    }
    for chart in charts {
        fs::write(folder.join(chart.name), &chart.svg)?;
    }
    Ok(())
}
