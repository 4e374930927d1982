//! Paths in Rust code.

/// The segments of the path at the start of `code`: of `a::b`, or of each branch of `a::{b, c::d}`.
pub(crate) fn paths(code: &str) -> Vec<Vec<&str>> {
    let end = code.find(|c: char| !super::is_word(c) && c != ':').unwrap_or(code.len());
    let names = code[..end].split("::").map(|name| name.trim_end_matches(':'));
    let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
    let Some(group) = code[end..].strip_prefix('{') else { return vec![names] };
    let below = branches(group).into_iter().flat_map(|branch| paths(branch.trim()));
    below.map(|path| [&names[..], &path[..]].concat()).collect()
}

/// The parts of a group, up to its closing brace, that commas separate.
fn branches(group: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => {
                parts.push(&group[start..at]);
                break;
            }
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&group[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts
}

#[test]
fn nested_groups_are_separate_paths() {
    assert_eq!(paths("a::b(c)"), [["a", "b"]]);
    let nested = paths("a::{b, c::{d, e}};");
    assert_eq!(nested, [vec!["a", "b"], vec!["a", "c", "d"], vec!["a", "c", "e"]]);
}
