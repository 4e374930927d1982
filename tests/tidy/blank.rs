//! Blanking: a Rust file with comments, literals and tests overwritten by spaces.

/// Overwrites comments, literals and the inline test module of `text` by spaces, so that words are
/// found only in code. Line numbers stay the same.
pub(crate) fn code(text: &str) -> String {
    let mut blanked = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        let length = literal(rest, &blanked);
        let (literal, tail) = rest.split_at(length);
        if literal.is_empty() {
            let next = rest.chars().next().expect("not empty");
            blanked.push(next);
            rest = &rest[next.len_utf8()..];
        } else {
            blanked.extend(literal.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = tail;
        }
    }
    without_tests(blanked)
}

/// The length of the comment or literal at the start of `rest`, or 0.
fn literal(rest: &str, before: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return rest.find("*/").map_or(rest.len(), |at| at + 2);
    }
    let in_name = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r').unwrap_or("");
    let hashes = raw.len() - raw.trim_start_matches('#').len();
    if !in_name && raw[hashes..].starts_with('"') {
        let end = format!("\"{}", "#".repeat(hashes));
        let start = rest.len() - raw.len() + hashes + 1;
        return rest[start..].find(&end).map_or(rest.len(), |at| start + at + end.len());
    }
    if rest.starts_with('"') {
        return quoted(rest, '"');
    }
    if rest.starts_with("'\\") {
        return quoted(rest, '\'');
    }
    // `'x'` is a character. `'x` without the second quote is a lifetime.
    let mut chars = rest.char_indices();
    match (chars.next(), chars.next(), chars.next()) {
        (Some((_, '\'')), Some(_), Some((at, '\''))) => at + 1,
        _ => 0,
    }
}

fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Tests are last in a file: the code ends where an inline test module starts.
fn without_tests(code: String) -> String {
    let mut from = 0;
    while let Some(at) = code[from..].find("#[cfg(test)]") {
        let start = from + at;
        from = start + "#[cfg(test)]".len();
        let item = code[from..].trim_start();
        let head = &item[..item.find(['{', ';']).unwrap_or(item.len())];
        if head.starts_with("mod ") && item[head.len()..].starts_with('{') {
            return code[..start].to_owned();
        }
    }
    code
}
