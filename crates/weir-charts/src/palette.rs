//! The colours of the charts, for light and for dark pages.

use plotters::style::RGBColor;

/// A colour, which depends on the page.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Colour {
    /// On a light page: red, green and blue in a byte each.
    pub(crate) light: u32,
    /// On a dark page.
    pub(crate) dark: u32,
}

/// Text, and lines that need no colour.
pub(crate) const INK: Colour = Colour { light: 0x1f_23_28, dark: 0xe6_ed_f3 };
/// Labels of axes.
pub(crate) const MUTED: Colour = Colour { light: 0x59_63_6e, dark: 0x9d_a7_b3 };
/// Lines behind the data.
pub(crate) const GRID: Colour = Colour { light: 0xd1_d9_e0, dark: 0x3d_44_4d };
/// The first series.
pub(crate) const BLUE: Colour = Colour { light: 0x00_72_b2, dark: 0x56_b4_e9 };
/// The second series. It differs from blue with every common kind of colour blindness.
pub(crate) const ORANGE: Colour = Colour { light: 0xbc_4c_00, dark: 0xe6_9f_00 };
/// The third series.
pub(crate) const GREEN: Colour = Colour { light: 0x00_7a_5e, dark: 0x2f_c3_9a };
/// What is measured for comparison.
pub(crate) const GREY: Colour = Colour { light: 0x6e_77_81, dark: 0x91_98_a1 };

/// All colours.
pub(crate) const ALL: [Colour; 7] = [INK, MUTED, GRID, BLUE, ORANGE, GREEN, GREY];

impl Colour {
    /// The colour on a light page. The style of the file replaces it on a dark one.
    pub(crate) fn rgb(self) -> RGBColor {
        let [_, red, green, blue] = self.light.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// The style that replaces the colours in `svg` on a dark page. Viewers without CSS show those of a
/// light page.
pub(crate) fn dark_style(svg: &str) -> String {
    let mut style = "<style>@media (prefers-color-scheme: dark) {\n".to_owned();
    for Colour { light, dark } in ALL {
        for property in ["fill", "stroke"] {
            // As plotters writes it.
            let attribute = format!("{property}=\"#{light:06X}\"");
            if svg.contains(&attribute) {
                style += &format!("[{attribute}] {{ {property}: #{dark:06X} }}\n");
            }
        }
    }
    style + "}</style>\n"
}
