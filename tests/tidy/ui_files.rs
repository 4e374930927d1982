//! Checks the files of the live page in `ui/`: no text of a request can become markup or a script, nothing
//! is loaded from elsewhere, and the page stays small.

use std::path::{Path, PathBuf};

/// The most bytes of all files together.
const BYTES_MAX: usize = 100_000;

/// The most lines of a script.
const LINES_MAX: usize = 300;

/// Words that turn texts into markup or scripts, that the policy of the page forbids, or that keep data. With
/// the reason. Their case matters.
const BANNED: &[(&str, &str)] = &[
    ("innerHTML", "use text nodes"),
    ("outerHTML", "use text nodes"),
    ("insertAdjacent", "use append"),
    ("document.write", "use append"),
    ("createContextualFragment", "use el of dom.js"),
    ("DOMParser", "use el of dom.js"),
    ("srcdoc", "no frames"),
    ("setHTML", "use text nodes"),
    ("eval(", "the policy forbids it"),
    ("new Function", "the policy forbids it"),
    ("import(", "name modules at the head of a file"),
    ("javascript:", "use a listener"),
    (".style", "use a class of style.css"),
    ("style=", "use a class of style.css"),
    ("<style", "use style.css"),
    ("cssText", "use a class of style.css"),
    ("window.open", "use a link"),
    ("postMessage", "no other page talks to this one"),
    ("document.cookie", "the token is in sessionStorage"),
    ("indexedDB", "the token is in sessionStorage"),
    ("XMLHttpRequest", "use api.js"),
    ("EventSource", "use live.js"),
    ("sendBeacon", "use api.js"),
    ("WebSocket", "use live.js"),
    ("@import", "one file of styles"),
    ("url(", "styles load nothing"),
    ("//cdn", "load nothing from elsewhere"),
    ("alert(", "use a message of the view"),
];

/// Addresses that name a vocabulary and load nothing.
const VOCABULARIES: &[&str] = &["http://www.w3.org/2000/svg"];

/// Ids and attributes of the page that tests and documentation use.
const IDS: &str = "token token-save theme counter-domain counter-descriptor counter-show \
                   counter-delete counter-result try-domain try-descriptor try-hits \
                   try-limit try-run try-result rules-order rules-filter limited-list \
                   quotas-list health-problems";

/// The views, each with a link and a section.
const VIEWS: &str = "health rules limited counter try quotas";

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
}

/// The name and the text of each file.
fn files() -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder()).expect("the folder ui/");
    let mut files = Vec::new();
    for entry in entries.map(|entry| entry.expect("a readable folder")) {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(entry.path().is_file(), "ui/{name}: the folder has one level");
        let text = std::fs::read_to_string(entry.path()).expect("a file of text");
        files.push((name, text));
    }
    files.sort();
    files
}

/// The problems of one file.
fn problems(name: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let place = format!("ui/{name}:{}", number + 1);
        let banned = BANNED.iter().filter(|(word, _)| line.contains(word));
        problems.extend(banned.map(|(word, why)| format!("{place}: not `{word}`; {why}")));
        let bare = VOCABULARIES.iter().fold(line.to_owned(), |line, known| line.replace(known, ""));
        if bare.contains("http://") || bare.contains("https://") {
            problems.push(format!(
                "{place}: an address of another server; the page loads nothing else"
            ));
        }
        if has_handler(line) && !name.ends_with(".js") {
            problems.push(format!("{place}: a listener in markup; add it in a script"));
        }
        if line.contains("<script") && !line.contains(" src=\"ui/") {
            problems.push(format!("{place}: a script in markup; move it to a file"));
        }
    }
    let lines = text.lines().count();
    if name.ends_with(".js") && lines > LINES_MAX {
        problems.push(format!("ui/{name}: {lines} lines, at most {LINES_MAX}; split it by noun"));
    }
    if name.ends_with(".js") && !text.starts_with("// ") {
        problems.push(format!("ui/{name}:1: start with `// ` and what this file does"));
    }
    problems
}

/// Whether markup has an attribute such as `onclick=`.
fn has_handler(line: &str) -> bool {
    line.match_indices(" on").any(|(at, _)| {
        let rest = &line[at + 3..];
        let end = rest.find(|c: char| !c.is_ascii_lowercase()).unwrap_or(rest.len());
        end > 0 && rest[end..].starts_with('=')
    })
}

#[test]
fn the_page_is_only_its_own_files() {
    let files = files();
    assert!(files.len() > 10, "the files were not found");
    let all: Vec<String> = files.iter().flat_map(|(name, text)| problems(name, text)).collect();
    assert!(all.is_empty(), "{}", all.join("\n"));
    let bytes: usize = files.iter().map(|(_, text)| text.len()).sum();
    assert!(bytes < BYTES_MAX, "ui/ has {bytes} bytes, at most {BYTES_MAX}");
}

/// Files are named by the page or by a script that it loads.
#[test]
fn every_file_of_the_page_is_used() {
    let files = files();
    for (name, _) in files.iter().filter(|(name, _)| name != "index.html") {
        let named = [format!("\"ui/{name}\""), format!("\"./{name}\"")];
        let is_used = files.iter().any(|(_, text)| named.iter().any(|one| text.contains(one)));
        assert!(is_used, "no file of ui/ loads {name}");
    }
    for (name, text) in &files {
        for loaded in text.split(" from \"./").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(folder().join(loaded).is_file(), "ui/{name} loads {loaded}, which is missing");
        }
    }
}

#[test]
fn the_page_has_its_ids() {
    let page = std::fs::read_to_string(folder().join("index.html")).expect("the page");
    for id in IDS.split_whitespace() {
        let found = page.matches(&format!(" id=\"{id}\"")).count();
        assert_eq!(found, 1, "#{id}");
    }
    for view in VIEWS.split_whitespace() {
        assert!(page.contains(&format!("<a data-view=\"{view}\" href=\"#/{view}\"")), "{view}");
        assert!(page.contains(&format!("<section id=\"view-{view}\"")), "{view}");
    }
    assert!(page.contains("<html lang=\"en\" data-connection=\"connecting\""), "the state");
}

#[test]
fn harmful_code_of_a_page_is_found() {
    let found = |name: &str, text: &str| problems(name, text).len();
    for line in [
        "node.innerHTML = text;",
        "eval(text);",
        "<p style=\"color: red\">",
        "<script>go()</script>",
        "<script src=\"//cdn.example/x.js\"></script>",
        "<button onclick=\"go()\">",
        "<a href=\"https://weir.example\">",
        "background: url(x.png);",
    ] {
        assert!(found("index.html", line) > 0, "{line}");
    }
    assert_eq!(found("x.js", "node.append(text);"), 1, "no first sentence");
    assert_eq!(found("x.js", "// A noun.\nel(\"a\", { onclick: go });"), 0);
    assert_eq!(found("x.js", "// A noun.\nconst NS = \"http://www.w3.org/2000/svg\";"), 0);
    assert_eq!(found("x.js", &format!("// A noun.{}", "\n".repeat(301))), 1);
    assert_eq!(found("index.html", "<script type=\"module\" src=\"ui/app.js\"></script>"), 0);
    assert_eq!(found("index.html", "<p>turn on a = b</p>"), 0, "prose");
}
