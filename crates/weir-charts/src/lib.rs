//! The charts of `docs/`: each function takes the text of a CSV file and returns the SVG files beside it.
//!
//! plotters draws them. The palette has colours for light and dark pages. `make charts` writes all
//! files again, and a test fails if a file differs from what its CSV gives.

mod acceptance;
mod axis;
mod canvas;
mod lines;
mod modes;
mod number;
mod palette;
mod performance;
mod rows;
mod table;
#[cfg(test)]
mod tests;

pub use acceptance::acceptance;
pub use modes::modes;
pub use number::short;
pub use performance::performance;

/// An SVG file.
#[derive(Clone, Debug, PartialEq)]
pub struct ChartFile {
    /// The name of the file.
    pub name: &'static str,
    /// Its content.
    pub svg: String,
}
