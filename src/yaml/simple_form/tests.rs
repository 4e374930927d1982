//! Compares the reader of the simple form with the parser.

use proptest::prelude::*;

use crate::yaml::{parse_any, parse_simple};

/// Whether the text is in the simple form. If it is, the parser must find the same nodes.
fn is_simple(text: &str) -> bool {
    let Some(simple) = parse_simple(text) else { return false };
    let parsed = parse_any(text);
    assert_eq!(format!("{simple:#?}"), format!("{parsed:#?}"), "{text}");
    true
}

/// The forms that rule files use are read without the parser.
#[test]
fn usual_files_are_in_the_simple_form() {
    for text in [
        "a: b",
        "---\na: b\n",
        "# c\n\na: b # c\n# c",
        "a: b\r\nc:\r\n- d\r\n",
        "a:\n- b\n- c\nd: e\n",
        "a:\n  - b: c\n    d: e\n  - b: f\ng: h\n",
        "a:\n- b: c\n  d:\n  - e: f\n  - e: g\nh: i\n",
        "a:\n- - b\n  - c\n-   - d\n",
        "- a\n- b: c\n",
        "- { a: b, c: { d: [e, f g,h], i: {} } }\n- []",
        "a: 'b # c: d'\ne: \"f\"\ng: ['h', \"i\"]",
        "a: -1\nb: http://c:80/d?e=f&g=*\nh: i j  k   # l",
        "a: b\na: c\n",
        "a: { b: c, b: d }",
        "a: ~\nb: null\n",
        "a:   # é\n  b: c\n",
    ] {
        assert!(is_simple(text), "{text}");
    }
    let long = "x".repeat(3_000);
    for text in [
        format!("- {{ a: {long}, b: c }}\n- {long}\n- '{long}'"),
        format!("a: {long}\nb: {{ c: {long} }}\nd: [{long}]\n"),
    ] {
        assert!(is_simple(&text), "the parser bounds names only");
    }
}

/// Texts that mean something else to the parser, or are wrong.
#[test]
fn everything_else_is_left_to_the_parser() {
    for text in [
        "",
        "# c",
        "a",
        "a:",
        "a: b\n  c",
        "a: b\n  c: d",
        "a:\n  b: c\n d: e",
        "a: &b c",
        "a: *b",
        "a: !c d",
        "a: |\n  b",
        "a: >\n  b",
        "a: 'b''c'",
        "a: \"b\\n\"",
        "a: 'b\n  c'",
        "a: b: c",
        "a: 'b': c",
        "a: [b,\n c]",
        "a: [b, c,]",
        "a: [b: c]",
        "a: {b}",
        "a: {b:c}",
        "a: {b: }",
        "a: [b]c",
        "a: [b]#c",
        "a: 'b'#c",
        "a: 'b' c",
        "a: b#c",
        "a: [b -]",
        "'a': b",
        "<<: a",
        "? a",
        "-\n  a: b",
        "- - b\n- a\n c: d",
        "a: b\n- c",
        "- a\nb: c",
        "a: b\n---\nc: d",
        "a: b\n...",
        "%YAML 1.1\n---\na: b",
        "a:\tb",
        "\ta: b",
        "a: b\rc: d",
        "a: é",
        "a: b\u{0}",
        "a: b #\u{0}",
        "a: b # \u{feff}",
        "a: %b",
        "a: @b",
        "a: `b",
        "a: ,b",
        "a: -",
        "a: ]",
    ] {
        assert!(!is_simple(text), "{text:?}");
    }
    let deep = format!("a: {}{}", "[".repeat(200), "]".repeat(200));
    assert!(!is_simple(&deep), "the parser reports it");
}

/// A line of almost simple YAML, with an indentation that often fits.
fn line() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        8 => "[ab]",
        2 => "[a-c/.:#,'\"{}\\[\\]&*!|>%@~?=-]{1,3}",
        1 => "a b|a  #b|a #b|'a'|\"b\"|''|-1|a:b|a: b|é|\t",
    ];
    let flow = prop_oneof![
        6 => "\\{ ?(a: (b|\\[c, d\\]|\\{\\}), ?)?b: 'c'\\}",
        2 => "\\[(a|b: c|'d'|-|\\{\\}|, )*\\]",
        1 => "\\{[ab:, {}\\[\\]'-]*\\}",
    ];
    let value = prop_oneof![4 => word.clone(), 2 => flow, 3 => Just(String::new())];
    let dashes = prop_oneof![4 => "", 4 => "- ", 1 => "- - ", 1 => "-  ", 1 => "-"];
    let name = prop_oneof![6 => "[a-d]: ?", 3 => "", 1 => "a :|a:b|'a': |<<: |\\? "];
    let end =
        prop_oneof![8 => "\n", 1 => " \n", 1 => " # c\n", 1 => "#\n", 1 => "\r\n", 1 => "\n\n"];
    (0..4_usize, dashes, name, value, end).prop_map(|(indent, dashes, name, value, end)| {
        format!("{}{dashes}{name}{value}{end}", "  ".repeat(indent))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    /// What the reader accepts, the parser accepts with the same nodes at the same positions.
    #[test]
    fn the_parser_finds_the_same_nodes(lines in prop::collection::vec(line(), 1..8)) {
        is_simple(&lines.concat());
    }

    #[test]
    fn any_characters_are_read_alike(text in "[ab:#,'\"{}\\[\\]&*!|>%?~\\\\ \n\r\t-]{0,16}") {
        is_simple(&text);
    }
}
