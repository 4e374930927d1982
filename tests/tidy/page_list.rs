//! Compares docs/README.md, the list of all pages, with the pages in docs/.

use super::tree::pages;

#[test]
fn the_list_of_pages_is_complete() {
    let pages = pages();
    let list = pages.iter().find(|page| page.path == "docs/README.md").expect("the list");
    let inside = pages.iter().filter_map(|page| page.path.strip_prefix("docs/"));
    let names: Vec<&str> =
        inside.filter(|name| name.ends_with(".md") && *name != "README.md").collect();
    assert!(names.len() > 20, "the pages were not found: {names:?}");
    let is_listed = |name: &str| list.text.contains(&format!("]({name})"));
    let missing: Vec<&str> = names.into_iter().filter(|name| !is_listed(name)).collect();
    assert!(missing.is_empty(), "add to docs/README.md: {missing:?}");
}
