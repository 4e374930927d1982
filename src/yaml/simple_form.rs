//! Reads files in the simple form that most rule files have, with a fifth of the parser's instructions.
//!
//! The simple form: one document of block lists and maps, whose values are plain or quoted texts of one
//! line, or `[...]` and `{...}` of one line, in ASCII without tabs. Names have no quotes. Comments
//! may contain any text. Everything else is left to the parser, also what is doubtful and all that
//! is wrong: this reader reports nothing. A property test compares its nodes with those of the parser.

use super::Position;
use super::loader::Loader;

/// Longest name, in bytes. The parser's bound is 1,024.
const NAME_BYTES_MAX: usize = 128;

/// Loads a text. `None` if it is not in the simple form, or over a bound of the loader: then the loader
/// has a part of it and is of no further use.
pub(super) fn read(text: &str) -> Option<Loader> {
    let mut reader = SimpleReader {
        text,
        bytes: text.as_bytes(),
        at: 0,
        line: 1,
        line_start: 0,
        blocks: Vec::new(),
        begun: false,
        loader: Loader::default(),
    };
    reader.document()?;
    Some(reader.loader)
}

struct SimpleReader<'t> {
    text: &'t str,
    bytes: &'t [u8],
    /// The index of the next byte.
    at: usize,
    /// The number of the line, from 1.
    line: u32,
    /// The index of the first byte of the line.
    line_start: usize,
    /// The block lists and maps that are open, from the outermost.
    blocks: Vec<Block>,
    /// Whether the document has its outermost list or map.
    begun: bool,
    loader: Loader,
}

/// A list or map of more than one line.
#[derive(Clone, Copy)]
struct Block {
    /// The column of its dashes or names, from 0.
    column: usize,
    kind: BlockKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum BlockKind {
    List,
    Map,
    /// A map whose last name has no value yet.
    MapWithName,
}

impl<'t> SimpleReader<'t> {
    fn document(&mut self) -> Option<()> {
        let mut is_marked = false;
        while self.at < self.bytes.len() {
            self.skip_spaces();
            if !self.is_end_of_text() {
                if self.is_marker() {
                    if self.begun || is_marked {
                        return None;
                    }
                    is_marked = true;
                    self.at += 3;
                } else {
                    self.line()?;
                }
            }
            self.end_line()?;
        }
        self.close_blocks(|_| true)?;
        self.begun.then_some(())
    }

    /// Reads a line with content, from its first character.
    fn line(&mut self) -> Option<()> {
        let column = self.column();
        self.close_blocks(|block| block.column > column)?;
        let mut in_item = false;
        while self.peek() == Some(b'-') && self.peek_second() == Some(b' ') {
            let (column, dash) = (self.column(), self.position());
            self.at += 1;
            self.skip_spaces();
            if in_item {
                self.begin_list(column, dash)?;
            } else {
                self.next_item(column, dash)?;
            }
            in_item = true;
        }
        let (column, at) = (self.column(), self.position());
        let Some(name) = self.name() else {
            return if in_item { self.value(false) } else { None };
        };
        if in_item {
            self.begin_map(column, at)?;
        } else {
            self.next_name(column, at)?;
        }
        self.loader.scalar(at, name, true, 0).ok()?;
        // The colon.
        self.at += 1;
        self.skip_spaces();
        if self.is_end_of_text() {
            return Some(());
        }
        self.blocks.last_mut()?.kind = BlockKind::Map;
        self.value(false)
    }

    /// Prepares for the item of a list whose dash is the first character of a line.
    fn next_item(&mut self, column: usize, dash: Position) -> Option<()> {
        match self.blocks.last_mut() {
            Some(Block { column: known, kind: BlockKind::List }) if *known == column => Some(()),
            Some(Block { column: outer, kind: kind @ BlockKind::MapWithName })
                if *outer <= column =>
            {
                *kind = BlockKind::Map;
                // The parser's position of a list that is not indented is that of its first item.
                let at = if *outer == column { self.position() } else { dash };
                self.begin_list(column, at)
            }
            None if !self.begun => self.begin_list(column, dash),
            _ => None,
        }
    }

    /// Prepares for a name of a map that is the first text of a line.
    fn next_name(&mut self, column: usize, at: Position) -> Option<()> {
        // The items of a list may be as far left as the names around it.
        if let Some(Block { kind: BlockKind::List, .. }) = self.blocks.last() {
            self.close_block()?;
        }
        match self.blocks.last_mut() {
            Some(Block { column: known, kind: kind @ BlockKind::Map }) if *known == column => {
                *kind = BlockKind::MapWithName;
                Some(())
            }
            Some(Block { column: outer, kind: kind @ BlockKind::MapWithName })
                if *outer < column =>
            {
                *kind = BlockKind::Map;
                self.begin_map(column, at)
            }
            None if !self.begun => self.begin_map(column, at),
            _ => None,
        }
    }

    fn begin_list(&mut self, column: usize, at: Position) -> Option<()> {
        self.begun = true;
        self.blocks.push(Block { column, kind: BlockKind::List });
        self.loader.begin_list(at, 0).ok()
    }

    /// Begins a map whose first name follows.
    fn begin_map(&mut self, column: usize, at: Position) -> Option<()> {
        self.begun = true;
        self.blocks.push(Block { column, kind: BlockKind::MapWithName });
        self.loader.begin_map(at, 0).ok()
    }

    /// Closes the innermost blocks that `is_over` holds for.
    fn close_blocks(&mut self, is_over: impl Fn(&Block) -> bool) -> Option<()> {
        while self.blocks.last().is_some_and(&is_over) {
            self.close_block()?;
        }
        Some(())
    }

    /// `None` if the block is a map with a name that has no value.
    fn close_block(&mut self) -> Option<()> {
        let block = self.blocks.pop()?;
        if block.kind == BlockKind::MapWithName {
            return None;
        }
        self.loader.end().ok()
    }

    /// Reads a value that ends in this line. `in_flow`: it is inside of brackets.
    fn value(&mut self, in_flow: bool) -> Option<()> {
        let at = self.position();
        match self.peek()? {
            b'{' | b'[' => self.flow(),
            quote @ (b'\'' | b'"') => {
                let text = self.quoted(quote)?;
                self.loader.scalar(at, text, false, 0).ok()
            }
            _ => {
                let text = self.plain(in_flow)?;
                self.loader.scalar(at, text, true, 0).ok()
            }
        }
    }

    /// Reads a list or map in brackets. The loader bounds the recursion.
    fn flow(&mut self) -> Option<()> {
        let at = self.position();
        let is_map = self.peek() == Some(b'{');
        let end = if is_map {
            self.loader.begin_map(at, 0).ok()?;
            b'}'
        } else {
            self.loader.begin_list(at, 0).ok()?;
            b']'
        };
        self.at += 1;
        self.skip_spaces();
        if self.peek() != Some(end) {
            loop {
                if is_map {
                    let at = self.position();
                    let name = self.name()?;
                    self.loader.scalar(at, name, true, 0).ok()?;
                    // The colon.
                    self.at += 1;
                    self.skip_spaces();
                }
                self.value(true)?;
                self.skip_spaces();
                match self.peek()? {
                    b',' => self.at += 1,
                    byte if byte == end => break,
                    _ => return None,
                }
                self.skip_spaces();
            }
        }
        self.at += 1;
        self.loader.end().ok()
    }

    /// Reads a name up to its colon, which a space or the end of the line follows. Without one, `None`,
    /// and nothing is read.
    fn name(&mut self) -> Option<&'t str> {
        let rest = &self.bytes[self.at..];
        let is_letter = |byte: &u8| byte.is_ascii_alphabetic() || *byte == b'_';
        let is_inner = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./".contains(byte);
        rest.first().filter(|byte| is_letter(byte))?;
        let length = rest.iter().take(NAME_BYTES_MAX).take_while(|byte| is_inner(byte)).count();
        let is_name = rest.get(length) == Some(&b':')
            && matches!(rest.get(length + 1), None | Some(b' ' | b'\n' | b'\r'));
        is_name.then(|| self.take(length))
    }

    /// Reads a text in quotes without escapes.
    fn quoted(&mut self, quote: u8) -> Option<&'t str> {
        let rest = &self.bytes[self.at + 1..];
        let is_inner = |byte: &u8| matches!(byte, b' '..=b'~') && *byte != quote && *byte != b'\\';
        let length = rest.iter().take_while(|byte| is_inner(byte)).count();
        // A second quote is an escaped one, a colon makes the text a name.
        let is_end =
            matches!(rest.get(length + 1), None | Some(b' ' | b'\n' | b'\r' | b',' | b']' | b'}'));
        if rest.get(length) != Some(&quote) || !is_end {
            return None;
        }
        self.at += 1;
        let text = self.take(length);
        self.at += 1;
        Some(text)
    }

    /// Reads a text without quotes, without the spaces after it.
    fn plain(&mut self, in_flow: bool) -> Option<&'t str> {
        let start = self.at;
        match self.peek()? {
            b'-' if self.peek_second().is_some_and(|byte| byte.is_ascii_alphanumeric()) => {}
            byte if byte.is_ascii_alphanumeric() || b"_/.+$^~=(\\".contains(&byte) => {}
            _ => return None,
        }
        let mut end = start;
        loop {
            match self.peek() {
                None | Some(b'\n' | b'\r') => break,
                Some(b' ') => {
                    self.skip_spaces();
                    if matches!(self.peek(), Some(b'-')) {
                        return None;
                    }
                    if self.is_end_of_text() {
                        break;
                    }
                    continue;
                }
                Some(b',' | b'[' | b']' | b'{' | b'}') if in_flow => break,
                Some(b':') => {
                    let next = self.peek_second()?;
                    if !next.is_ascii_graphic() || (in_flow && b",[]{}".contains(&next)) {
                        return None;
                    }
                }
                Some(b'#') => return None,
                Some(byte) if byte.is_ascii_graphic() => {}
                Some(_) => return None,
            }
            self.at += 1;
            end = self.at;
        }
        Some(&self.text[start..end])
    }

    /// Reads spaces, a comment, and the end of the line or file.
    fn end_line(&mut self) -> Option<()> {
        self.skip_spaces();
        if self.peek() == Some(b'#') {
            if self.at > self.line_start && self.bytes[self.at - 1] != b' ' {
                return None;
            }
            // 0xef begins a byte order mark.
            let is_comment = |byte: &u8| !matches!(byte, b'\n' | b'\r' | 0 | 0xef);
            let rest = &self.bytes[self.at..];
            self.at += rest.iter().take_while(|byte| is_comment(byte)).count();
        }
        if self.peek() == Some(b'\r') && self.peek_second() == Some(b'\n') {
            self.at += 1;
        }
        match self.peek() {
            None => return Some(()),
            Some(b'\n') => self.at += 1,
            Some(_) => return None,
        }
        self.line = self.line.saturating_add(1);
        self.line_start = self.at;
        Some(())
    }

    /// Whether a comment or the end of the line is next.
    fn is_end_of_text(&self) -> bool {
        matches!(self.peek(), None | Some(b'\n' | b'\r' | b'#'))
    }

    /// Whether the line begins with the marker of a document.
    fn is_marker(&self) -> bool {
        self.at == self.line_start && self.bytes[self.at..].starts_with(b"---")
    }

    fn take(&mut self, length: usize) -> &'t str {
        let start = self.at;
        self.at += length;
        &self.text[start..self.at]
    }

    fn skip_spaces(&mut self) {
        while self.peek() == Some(b' ') {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn peek_second(&self) -> Option<u8> {
        self.bytes.get(self.at + 1).copied()
    }

    /// The column of the next byte, from 0. All bytes of the line before it are ASCII.
    fn column(&self) -> usize {
        self.at - self.line_start
    }

    fn position(&self) -> Position {
        let column = u32::try_from(self.column()).unwrap_or(u32::MAX).saturating_add(1);
        Position { line: self.line, column }
    }
}

#[cfg(test)]
mod tests;
