//! The kinds of patterns and their precedence.

/// A kind of pattern: a matcher of several values, but not of all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rules) enum PatternKind {
    /// A path with variables.
    Template,
    /// A regular expression.
    Regex,
    /// A network.
    Cidr,
    /// Literal parts with any text between them.
    Wildcard,
}

impl PatternKind {
    /// Every kind, most specific first. If patterns of several kinds accept a value, the kind that
    /// comes first here wins. An exact value precedes all patterns, and a node without a value
    /// follows them.
    pub(in crate::rules) const BY_PRECEDENCE: [PatternKind; 4] =
        [PatternKind::Template, PatternKind::Regex, PatternKind::Cidr, PatternKind::Wildcard];

    /// The position in [`PatternKind::BY_PRECEDENCE`].
    pub(in crate::rules) fn precedence(self) -> usize {
        let kinds = PatternKind::BY_PRECEDENCE;
        kinds.iter().position(|kind| *kind == self).unwrap_or(kinds.len())
    }
}
