//! The boxes of the texts of an SVG file. Their widths are estimates, because viewers choose the font.

use crate::canvas::EM;

/// A text, and its box in pixels.
pub(super) struct TextBox {
    pub(super) words: String,
    pub(super) left: f64,
    pub(super) right: f64,
    pub(super) top: f64,
    pub(super) bottom: f64,
}

impl TextBox {
    pub(super) fn touches(&self, other: &TextBox) -> bool {
        let across = self.left < other.right && other.left < self.right;
        across && self.top < other.bottom && other.top < self.bottom
    }
}

/// The width and the height of the file.
pub(super) fn size(svg: &str) -> (f64, f64) {
    let head = svg.lines().next().expect("a line");
    (number(head, "width"), number(head, "height"))
}

/// The boxes of all texts.
pub(super) fn boxes(svg: &str) -> Vec<TextBox> {
    svg.split("<text ").skip(1).map(text_box).collect()
}

fn text_box(element: &str) -> TextBox {
    let (attributes, rest) = element.split_once('>').expect("the end of a start tag");
    let (words, _) = rest.split_once("</text>").expect("an end tag");
    let words = words.trim().to_owned();
    assert!(!words.is_empty() && !words.contains('&'), "{words}");
    assert!(!attributes.contains("transform"), "`{words}` is rotated");
    let [x, y, font] = ["x", "y", "font-size"].map(|name| number(attributes, name));
    let width = words.chars().count() as f64 * EM * font;
    let left = match attribute(attributes, "text-anchor") {
        "start" => x,
        "middle" => x - width / 2.0,
        "end" => x - width,
        other => panic!("an unknown anchor `{other}`"),
    };
    // The shifts that plotters writes for its three positions.
    let top = match attribute(attributes, "dy") {
        "0.76em" => y,
        "0.5ex" => y - font / 2.0,
        "-0.5ex" => y - font,
        other => panic!("an unknown shift `{other}`"),
    };
    TextBox { words, left, right: left + width, top, bottom: top + font }
}

fn number(attributes: &str, name: &str) -> f64 {
    let text = attribute(attributes, name);
    text.parse().unwrap_or_else(|_| panic!("{name} is `{text}`"))
}

fn attribute<'a>(attributes: &'a str, name: &str) -> &'a str {
    let start = format!(" {name}=\"");
    // The first attribute has no space before it.
    let (_, rest) = attributes
        .split_once(&start)
        .or_else(|| attributes.split_once(start.trim_start()))
        .unwrap_or_else(|| panic!("no {name}: {attributes}"));
    rest.split_once('"').expect("the end of a value").0
}

#[test]
fn overlaps_are_found() {
    let text = |x: u8, y: u8, anchor: &str| {
        format!(
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.5ex\" text-anchor=\"{anchor}\" font-size=\"10\">\n\
             four\n</text>\n"
        )
    };
    let touch = |one: String, other: String| {
        let texts = boxes(&(one + &other));
        texts[0].touches(&texts[1])
    };
    assert!(touch(text(50, 50, "start"), text(60, 55, "start")));
    assert!(!touch(text(50, 50, "start"), text(60, 61, "start")));
    assert!(!touch(text(50, 50, "start"), text(75, 50, "start")));
    assert!(touch(text(50, 50, "start"), text(55, 50, "middle")));
    assert!(!touch(text(50, 50, "start"), text(49, 50, "end")));
}
