//! Builds nodes from the parts of a file in reading order, within the bounds of one file.

use std::collections::HashMap;
use std::sync::Arc;

use super::recent_texts::RecentTexts;
use super::{Fault, Name, Node, NodeKind, Position, Scalar};

/// Most nodes in one file, after aliases are expanded.
const NODES_MAX: usize = 2_000_000;
/// Most bytes that expanded aliases may stand for, in one file.
const ALIAS_BYTES_MAX: usize = 64 << 20;
/// Deepest nesting. A rule tree of the maximum depth needs about half of it.
const DEPTH_MAX: usize = 128;
/// Most names of a map that are compared one by one. With more, hashing is faster.
const LINEAR_SCAN_MAX: usize = 16;

/// The number of an anchor in its file; 0 is no anchor.
pub(super) type Anchor = usize;

/// A list or map that is not complete yet. Its content so far is the end of a stack of the loader, so
/// that complete ones take no more memory than they need.
struct Open {
    at: Position,
    anchor: Anchor,
    body: Body,
}

enum Body {
    List { first: usize },
    Map { first: usize, name: Option<Name> },
}

/// Builds nodes, without recursion.
#[derive(Default)]
pub(super) struct Loader {
    open: Vec<Open>,
    /// The items of all open lists.
    items: Vec<Node>,
    /// The entries of all open maps.
    entries: Vec<(Name, Node)>,
    pub(super) documents: Vec<Node>,
    anchors: HashMap<Anchor, Anchored>,
    texts: RecentTexts,
    nodes: usize,
    alias_bytes: usize,
    pub(super) faults: Vec<Fault>,
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
    /// A new document begins.
    pub(super) fn begin_document(&mut self) {
        self.anchors.clear();
    }

    /// Adds a scalar. `plain`: it has no quotes.
    pub(super) fn scalar(
        &mut self,
        at: Position,
        text: &str,
        plain: bool,
        anchor: Anchor,
    ) -> Result<(), Fault> {
        let text = self.texts.share(text);
        self.complete(Node { at, kind: NodeKind::Scalar(Scalar { text, plain }) }, anchor)
    }

    /// Begins a list.
    pub(super) fn begin_list(&mut self, at: Position, anchor: Anchor) -> Result<(), Fault> {
        let first = self.items.len();
        self.begin(at, anchor, Body::List { first })
    }

    /// Begins a map. Its names and values follow in turn.
    pub(super) fn begin_map(&mut self, at: Position, anchor: Anchor) -> Result<(), Fault> {
        let first = self.entries.len();
        self.begin(at, anchor, Body::Map { first, name: None })
    }

    fn begin(&mut self, at: Position, anchor: Anchor, body: Body) -> Result<(), Fault> {
        if self.open.len() >= DEPTH_MAX {
            return Err(too_deep(at));
        }
        self.open.push(Open { at, anchor, body });
        Ok(())
    }

    /// Ends the list or the map that began last.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        let Some(Open { at, anchor, body }) = self.open.pop() else { return Ok(()) };
        let kind = match body {
            Body::List { first } => NodeKind::List(self.items.split_off(first)),
            Body::Map { first, .. } => {
                let entries = self.entries.split_off(first);
                NodeKind::Map(self.close_map(entries))
            }
        };
        self.complete(Node { at, kind }, anchor)
    }

    /// Adds a copy of the node of an anchor.
    pub(super) fn alias(&mut self, anchor: Anchor, at: Position) -> Result<(), Fault> {
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
    fn complete(&mut self, node: Node, anchor: Anchor) -> Result<(), Fault> {
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
            Some(Body::List { .. }) => self.items.push(node),
            Some(Body::Map { name, .. }) => match name.take() {
                Some(name) => self.entries.push((name, node)),
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
        if has_few_different_names(&entries) {
            return entries;
        }
        let mut own = Vec::with_capacity(entries.len());
        let mut inherited = Vec::new();
        let mut seen: HashMap<Arc<str>, Position> = HashMap::with_capacity(entries.len());
        for (name, node) in entries {
            if name.merges() {
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

impl Name {
    fn merges(&self) -> bool {
        self.plain && &*self.text == "<<"
    }
}

/// Whether a map has at most [`LINEAR_SCAN_MAX`] names, each once, and no `<<`.
fn has_few_different_names(entries: &[(Name, Node)]) -> bool {
    let is_new = |(index, (name, _)): (usize, &(Name, Node))| {
        !name.merges() && entries[..index].iter().all(|(before, _)| before.text != name.text)
    };
    entries.len() <= LINEAR_SCAN_MAX && entries.iter().enumerate().all(is_new)
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

fn too_deep(at: Position) -> Fault {
    let what = format!("nested more than {DEPTH_MAX} levels deep");
    Fault { at, what, hint: "flatten the file" }
}

fn too_many(at: Position) -> Fault {
    let what = format!("more than {NODES_MAX} values in one file, aliases expanded");
    Fault { at, what, hint: "split the file, or write aliases out where they multiply each other" }
}
