//! Reads YAML into nodes with positions, for rule files and settings files.
//!
//! Scalars keep their source text (`value: 1.5` is the text `1.5`). Aliases are expanded under a
//! bound, and `<<` merges as in YAML 1.1, because files for envoyproxy/ratelimit use both.

use std::collections::HashMap;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

/// Most nodes in one file, after aliases are expanded.
const NODES_MAX: usize = 2_000_000;
/// Most bytes that expanded aliases may stand for, in one file.
const ALIAS_BYTES_MAX: usize = 64 << 20;
/// Deepest nesting. A rule tree of the maximum depth needs about half of it.
const DEPTH_MAX: usize = 128;

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
    let mut loader = Loader::new();
    // The parser removes only some byte order marks.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut fatal = None;
    for event in Parser::new_from_str(text) {
        let step = match event {
            Ok((event, span)) => loader.event(event, span),
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

/// A list or map that is not complete yet.
struct Open {
    at: Position,
    anchor: usize,
    body: Body,
}

enum Body {
    List(Vec<Node>),
    Map { entries: Vec<(Name, Node)>, name: Option<Name> },
}

/// Builds nodes from events, without recursion.
struct Loader {
    open: Vec<Open>,
    documents: Vec<Node>,
    anchors: HashMap<usize, Anchored>,
    nodes: usize,
    alias_bytes: usize,
    faults: Vec<Fault>,
}

/// The node of an anchor, and its size.
struct Anchored {
    node: Node,
    size: Size,
}

#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    bytes: usize,
    depth: usize,
}

impl Loader {
    fn new() -> Loader {
        Loader {
            open: Vec::new(),
            documents: Vec::new(),
            anchors: HashMap::new(),
            nodes: 0,
            alias_bytes: 0,
            faults: Vec::new(),
        }
    }

    fn event(&mut self, event: Event<'_>, span: Span) -> Result<(), Fault> {
        let at = position(span.start);
        match event {
            Event::DocumentStart(_) => self.anchors.clear(),
            Event::Scalar(text, style, anchor, tag) => {
                let text_tag =
                    tag.is_some_and(|tag| tag.is_yaml_core_schema() && tag.suffix == "str");
                let plain = style == ScalarStyle::Plain && !text_tag;
                let kind = NodeKind::Scalar(Scalar { text: text.into(), plain });
                self.complete(Node { at, kind }, anchor)?;
            }
            Event::SequenceStart(anchor, _) => self.start(at, anchor, Body::List(Vec::new()))?,
            Event::MappingStart(anchor, _) => {
                self.start(at, anchor, Body::Map { entries: Vec::new(), name: None })?;
            }
            Event::SequenceEnd | Event::MappingEnd => self.end()?,
            Event::Alias(anchor) => self.alias(anchor, at)?,
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Ok(())
    }

    fn start(&mut self, at: Position, anchor: usize, body: Body) -> Result<(), Fault> {
        if self.open.len() >= DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.open.push(Open { at, anchor, body });
        Ok(())
    }

    fn end(&mut self) -> Result<(), Fault> {
        let Some(Open { at, anchor, body }) = self.open.pop() else { return Ok(()) };
        let kind = match body {
            Body::List(items) => NodeKind::List(items),
            Body::Map { entries, .. } => NodeKind::Map(self.close_map(entries)),
        };
        self.complete(Node { at, kind }, anchor)
    }

    fn alias(&mut self, anchor: usize, at: Position) -> Result<(), Fault> {
        let Some(Anchored { node, size }) = self.anchors.get(&anchor) else {
            let hint = "place the alias after its anchor, outside of the anchored node";
            return Err(Fault { at, what: "the alias contains itself".to_owned(), hint });
        };
        if self.open.len() + size.depth > DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.alias_bytes += size.bytes;
        // The node itself is counted by `complete`.
        self.nodes += size.nodes - 1;
        if self.alias_bytes > ALIAS_BYTES_MAX || self.nodes > NODES_MAX {
            return Err(too_many(at));
        }
        // A problem inside the node keeps its own position; a problem of the whole node gets the
        // alias's.
        let node = Node { at, kind: node.kind.clone() };
        self.complete(node, 0)
    }

    /// Adds a finished node to the list, map or document that contains it.
    fn complete(&mut self, node: Node, anchor: usize) -> Result<(), Fault> {
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            return Err(too_many(node.at));
        }
        if anchor != 0 {
            let size = size(&node);
            // The copy kept for aliases counts too, because anchors can be nested.
            self.nodes += size.nodes;
            self.anchors.insert(anchor, Anchored { size, node: node.clone() });
        }
        match self.open.last_mut().map(|open| &mut open.body) {
            None => self.documents.push(node),
            Some(Body::List(items)) => items.push(node),
            Some(Body::Map { entries, name }) => match name.take() {
                Some(name) => entries.push((name, node)),
                None => match node.kind {
                    NodeKind::Scalar(Scalar { text, plain }) => {
                        *name = Some(Name { at: node.at, text, plain });
                    }
                    _ => {
                        let what = format!("the name of a field cannot be {}", node.noun());
                        let hint = "write `name: value`";
                        return Err(Fault { at: node.at, what, hint });
                    }
                },
            },
        }
        Ok(())
    }

    /// Applies `<<` and reports duplicate names.
    fn close_map(&mut self, entries: Vec<(Name, Node)>) -> Vec<(Name, Node)> {
        let mut own = Vec::with_capacity(entries.len());
        let mut inherited = Vec::new();
        let mut seen: HashMap<Arc<str>, Position> = HashMap::with_capacity(entries.len());
        for (name, node) in entries {
            if name.plain && &*name.text == "<<" {
                self.collect_merge(node, &mut inherited);
                continue;
            }
            if let Some(first) = seen.get(&name.text) {
                let what =
                    format!("`{}` is written twice here (first in line {})", name.text, first.line);
                let hint = "keep one of the two";
                self.faults.push(Fault { at: name.at, what, hint });
                continue;
            }
            seen.insert(Arc::clone(&name.text), name.at);
            own.push((name, node));
        }
        for (name, node) in inherited {
            if !seen.contains_key(&name.text) {
                seen.insert(Arc::clone(&name.text), name.at);
                own.push((name, node));
            }
        }
        own
    }

    fn collect_merge(&mut self, node: Node, inherited: &mut Vec<(Name, Node)>) {
        match node.kind {
            NodeKind::Map(entries) => inherited.extend(entries),
            NodeKind::List(items)
                if items.iter().all(|item| matches!(item.kind, NodeKind::Map(_))) =>
            {
                for item in items {
                    self.collect_merge(item, inherited);
                }
            }
            _ => {
                let what = format!("`<<` merges maps, and this is {}", node.noun());
                self.faults.push(Fault { at: node.at, what, hint: "write `<<: *name_of_a_map`" });
            }
        }
    }
}

fn size(node: &Node) -> Size {
    let inner = |nodes: &mut dyn Iterator<Item = &Node>| {
        let mut sum = Size { nodes: 1, bytes: 0, depth: 1 };
        for size in nodes.map(size) {
            sum.nodes += size.nodes;
            sum.bytes += size.bytes;
            sum.depth = sum.depth.max(size.depth + 1);
        }
        sum
    };
    match &node.kind {
        NodeKind::Scalar(scalar) => Size { nodes: 1, bytes: scalar.text.len(), depth: 0 },
        NodeKind::List(items) => inner(&mut items.iter()),
        NodeKind::Map(entries) => inner(&mut entries.iter().map(|(_, node)| node)),
    }
}

fn position(marker: saphyr_parser::Marker) -> Position {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    // The parser counts lines from 1 and columns from 0.
    Position { line: small(marker.line()), column: small(marker.col()).saturating_add(1) }
}

fn too_deep(at: Position) -> Fault {
    let what = format!("nested more than {DEPTH_MAX} levels deep");
    Fault { at, what, hint: "flatten the file" }
}

fn too_many(at: Position) -> Fault {
    let what = format!("more than {NODES_MAX} values in one file, aliases expanded");
    Fault { at, what, hint: "split the file, or write aliases out where they multiply each other" }
}
