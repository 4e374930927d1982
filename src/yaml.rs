//! Reads YAML into nodes with positions, for rule files and settings files.
//!
//! Scalars keep their source text (`value: 1.5` is the text `1.5`). Aliases are expanded under a
//! bound, and `<<` merges as in YAML 1.1, because files for envoyproxy/ratelimit use both.

use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use self::loader::Loader;

mod loader;
mod recent_texts;
mod simple_form;

/// A position in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// Line number, from 1.
    pub line: u32,
    /// Column number, from 1, in characters.
    pub column: u32,
}

/// One value with its position.
#[derive(Clone, Debug)]
pub struct Node {
    /// The position of the first character.
    pub at: Position,
    /// The content of the value.
    pub kind: NodeKind,
}

/// The content of a value.
#[derive(Clone, Debug)]
pub enum NodeKind {
    /// A single value.
    Scalar(Scalar),
    /// `[a, b]`, or lines that start with `-`.
    List(Vec<Node>),
    /// `name: value`, in the order of the file; every name occurs once.
    Map(Vec<(Name, Node)>),
}

/// A text, number, boolean or null, undecided.
#[derive(Clone, Debug)]
pub struct Scalar {
    /// The source text, without quotes.
    pub text: Arc<str>,
    /// Written without quotes, so it may also be a number, a boolean or null.
    pub plain: bool,
}

/// The left side of `name: value`.
#[derive(Clone, Debug)]
pub struct Name {
    /// The position of the first character.
    pub at: Position,
    /// The name's text, without quotes.
    pub text: Arc<str>,
    plain: bool,
}

impl Scalar {
    /// Whether the text is empty or one of YAML's words for null.
    pub fn is_null(&self) -> bool {
        self.plain && matches!(&*self.text, "" | "~" | "null" | "Null" | "NULL")
    }
}

impl Node {
    /// Whether the node is a scalar for which [`Scalar::is_null`] holds.
    pub fn is_null(&self) -> bool {
        matches!(&self.kind, NodeKind::Scalar(scalar) if scalar.is_null())
    }

    /// The kind of the node in words, for messages.
    pub fn noun(&self) -> &'static str {
        match &self.kind {
            NodeKind::Scalar(scalar) if scalar.is_null() => "nothing",
            NodeKind::Scalar(_) => "a single value",
            NodeKind::List(_) => "a list",
            NodeKind::Map(_) => "a map",
        }
    }
}

/// The content of a file.
#[derive(Debug)]
pub struct Parsed {
    /// One node per document.
    pub documents: Vec<Node>,
    /// All problems of the syntax.
    pub faults: Vec<Fault>,
    /// False if a syntax error ended the reading, so that the rest of the file is unknown.
    pub complete: bool,
}

/// A syntax problem.
#[derive(Debug)]
pub struct Fault {
    /// The position of the problem.
    pub at: Position,
    /// The problem.
    pub what: String,
    /// The fix.
    pub hint: &'static str,
}

/// Reads the documents of a file. A syntax error ends the reading.
pub fn parse(text: &str) -> Parsed {
    // The parser removes only some byte order marks.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    parse_simple(text).unwrap_or_else(|| parse_any(text))
}

/// Reads a file in the simple form; `None` if it is not.
fn parse_simple(text: &str) -> Option<Parsed> {
    let loader = simple_form::read(text)?;
    Some(Parsed { documents: loader.documents, faults: loader.faults, complete: true })
}

/// Whether both readers find the same in a text that both read.
#[cfg(any(test, feature = "fuzz"))]
pub fn readers_agree(text: &str) -> bool {
    let any = || format!("{:?}", parse_any(text));
    parse_simple(text).is_none_or(|simple| format!("{simple:?}") == any())
}

/// Reads a file in any form.
fn parse_any(text: &str) -> Parsed {
    let mut loader = Loader::default();
    let mut fatal = None;
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => load(&mut loader, event, span),
            Err(error) => {
                let at = position(*error.marker());
                let hint = "fix the YAML here or just above (indentation, quotes, brackets)";
                Err(Fault { at, what: error.info().to_owned(), hint })
            }
        };
        if let Err(fault) = step {
            fatal = Some(fault);
            break;
        }
    }
    let complete = fatal.is_none();
    let faults = loader.faults.into_iter().chain(fatal).collect();
    Parsed { documents: loader.documents, faults, complete }
}

/// Adds an event of the parser.
fn load(loader: &mut Loader, event: Event<'_>, span: Span) -> Result<(), Fault> {
    let at = position(span.start);
    match event {
        Event::DocumentStart(_) => loader.begin_document(),
        Event::Scalar(text, style, anchor, tag) => {
            let text_tag = tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
            loader.scalar(at, &text, style == ScalarStyle::Plain && !text_tag, anchor)?;
        }
        Event::SequenceStart(anchor, _) => loader.begin_list(at, anchor)?,
        Event::MappingStart(anchor, _) => loader.begin_map(at, anchor)?,
        Event::SequenceEnd | Event::MappingEnd => loader.end()?,
        Event::Alias(anchor) => loader.alias(anchor, at)?,
        Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
    }
    Ok(())
}

fn position(marker: saphyr_parser::Marker) -> Position {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    // The parser counts lines from 1 and columns from 0.
    Position { line: small(marker.line()), column: small(marker.col()).saturating_add(1) }
}
