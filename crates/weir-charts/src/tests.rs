//! The charts of the committed CSV files: their texts, their colours, and the committed SVG files.

use std::fs;
use std::path::{Path, PathBuf};

use crate::palette::{ALL, GRID, INK, MUTED};
use crate::{ChartFile, acceptance, modes, performance};

mod text_boxes;

use text_boxes::{boxes, size};

/// Backgrounds of pages: GitHub and the themes of mdBook.
const LIGHT_PAGES: [u32; 2] = [0xff_ff_ff, 0xe1_e1_db];
const DARK_PAGES: [u32; 3] = [0x0d_11_17, 0x16_19_23, 0x21_28_30];

/// The charts of a CSV file.
type Charts = fn(&str) -> Result<Vec<ChartFile>, String>;

/// Each CSV file, and its charts.
const SOURCES: [(&str, Charts); 3] = [
    ("guides/modes/sweep.csv", modes),
    ("design/performance/figures.csv", performance),
    ("guides/rlqs/acceptance.csv", |csv| Ok(vec![acceptance(csv)?])),
];

/// The charts, with the paths of their files.
fn charts() -> Vec<(PathBuf, String)> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut files = Vec::new();
    for (csv, charts) in SOURCES {
        let path = docs.join(csv);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{csv}: {error}"));
        let drawn = charts(&text).unwrap_or_else(|error| panic!("{csv}: {error}"));
        assert!(!drawn.is_empty(), "{csv} has no chart");
        files.extend(drawn.into_iter().map(|chart| (path.with_file_name(chart.name), chart.svg)));
    }
    files
}

/// `make charts` sets `WEIR_WRITE_DOCS`, and the test writes the files instead of comparing them.
#[test]
fn committed_charts_match() {
    for (path, svg) in charts() {
        if std::env::var_os("WEIR_WRITE_DOCS").is_some() {
            fs::write(&path, &svg).expect("a file that can be written");
        }
        let committed = fs::read_to_string(&path).unwrap_or_default();
        let matches = committed == svg;
        assert!(matches, "{} differs from its CSV file; run `make charts`", path.display());
    }
}

#[test]
fn no_text_touches_another() {
    let committed = charts().into_iter().map(|(path, svg)| (path.display().to_string(), svg));
    for (path, svg) in committed.chain(invented()) {
        let (texts, (width, height)) = (boxes(&svg), size(&svg));
        assert!(texts.len() > 5, "{path}: {} texts", texts.len());
        for (at, one) in texts.iter().enumerate() {
            let inside = one.left >= 0.0 && one.top >= 0.0;
            let inside = inside && one.right <= width && one.bottom <= height;
            assert!(inside, "{path}: `{}` is outside", one.words);
            for other in &texts[..at] {
                assert!(!one.touches(other), "{path}: `{}` and `{}`", one.words, other.words);
            }
        }
    }
}

/// Charts that no committed file has: services through Envoy, and a short step.
fn invented() -> Vec<(String, String)> {
    let mut figures = "figure,median,rounds\n".to_owned();
    for (at, name) in ["baseline", "weir, leased", "envoyproxy/ratelimit"].into_iter().enumerate() {
        for what in ["CPU s of the service", "CPU s of Redis"] {
            figures += &format!("\"through Envoy, 2000: {what}: {name}\",{at}.25,1\n");
        }
    }
    let mut course = "part,step,quota,second,envoy,admitted,assigned\n".to_owned();
    for second in 0..60 {
        let step = match second {
            0 => "A",
            1 => "F again",
            _ => "F once more",
        };
        for envoy in 1..=3 {
            course += &format!("steps,{step},300,{second},{envoy},100,100\n");
        }
    }
    let mut files = performance(&figures).expect("good figures");
    files.push(acceptance(&course).expect("a good course"));
    files.into_iter().map(|file| (file.name.to_owned(), file.svg)).collect()
}

#[test]
fn text_and_marks_have_contrast() {
    for colour in ALL {
        let least = match colour {
            INK | MUTED => 4.5,
            // Lines behind the data, which is readable without them.
            GRID => 1.0,
            _ => 3.0,
        };
        for page in LIGHT_PAGES {
            let ratio = contrast(colour.light, page);
            assert!(ratio >= least, "{:06x} on {page:06x}: {ratio:.2}", colour.light);
        }
        for page in DARK_PAGES {
            let ratio = contrast(colour.dark, page);
            assert!(ratio >= least, "{:06x} on {page:06x}: {ratio:.2}", colour.dark);
        }
    }
    assert_eq!(contrast(0, 0xff_ff_ff), 21.0);
    assert!((contrast(0x77_77_77, 0xff_ff_ff) - 4.48).abs() < 0.005);
}

/// The contrast of two colours as WCAG 2 defines it.
fn contrast(one: u32, other: u32) -> f64 {
    let luminance = |colour: u32| {
        let [_, red, green, blue] = colour.to_be_bytes().map(|byte| {
            let part = f64::from(byte) / 255.0;
            if part <= 0.040_45 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * red + 0.7152 * green + 0.0722 * blue
    };
    let (one, other) = (luminance(one), luminance(other));
    (one.max(other) + 0.05) / (one.min(other) + 0.05)
}

/// Every colour of a chart has another value on a dark page, and no chart has a background.
#[test]
fn each_colour_changes_on_a_dark_page() {
    for (path, svg) in charts() {
        let (style, body) = svg.split_once("</style>").expect("a style");
        for property in ["fill", "stroke"] {
            let start = format!(" {property}=\"#");
            for (at, _) in body.match_indices(&start) {
                let colour = &body[at + start.len()..][..6];
                let rule = format!("[{property}=\"#{colour}\"] {{ {property}: #");
                assert!(style.contains(&rule), "{}: no `{rule}`", path.display());
            }
        }
        let (width, height) = size(&svg);
        let whole = format!("width=\"{width}\" height=\"{height}\"");
        assert!(!body.contains(&whole), "{}: a background", path.display());
    }
}
