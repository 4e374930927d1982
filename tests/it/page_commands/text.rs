//! The pages of the repository: their texts, fenced blocks and commands.

use std::path::{Path, PathBuf};

/// A page.
pub(crate) struct Page {
    /// The path from the root of the repository.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// A fenced block of a page.
pub(crate) struct Block<'p> {
    /// The word after the opening fence; empty if there is none.
    pub(crate) language: &'p str,
    pub(crate) text: &'p str,
}

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every page.
pub(crate) fn pages() -> Vec<Page> {
    let mut paths = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
        .map(|name| root().join(name))
        .to_vec();
    for folder in ["docs", "examples", "fuzz", "helm", "lua", "proto"] {
        paths.extend(files(&root().join(folder), &["md"]));
    }
    paths.iter().map(|path| page(path)).collect()
}

fn page(path: &Path) -> Page {
    let name = path.strip_prefix(root()).expect("a path below the root");
    let text = std::fs::read_to_string(path).expect("a page is text");
    Page { name: name.to_string_lossy().into_owned(), text }
}

/// The files below `folder` with one of the extensions `ends`, without those that builds, fuzzing and
/// npm write.
pub(crate) fn files(folder: &Path, ends: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder exists") {
        let path = entry.expect("a readable folder").path();
        if path.is_dir() {
            if !["target", "corpus", "node_modules"].iter().any(|name| path.ends_with(name)) {
                found.extend(files(&path, ends));
            }
        } else if path.extension().is_some_and(|end| ends.iter().any(|it| end == *it)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

impl Page {
    /// The fenced blocks, in order.
    pub(crate) fn blocks(&self) -> Vec<Block<'_>> {
        // Every second part is between two fences.
        let parts = self.text.split("```").skip(1).step_by(2);
        let blocks = parts.filter_map(|part| part.split_once('\n'));
        blocks.map(|(language, text)| Block { language: language.trim(), text }).collect()
    }

    /// The commands of all `sh` blocks.
    pub(crate) fn commands(&self) -> Vec<String> {
        self.blocks().iter().flat_map(Block::commands).collect()
    }
}

impl Block<'_> {
    /// The commands of an `sh` block, without comments. Continued lines are joined.
    pub(crate) fn commands(&self) -> Vec<String> {
        if self.language != "sh" {
            return Vec::new();
        }
        let text = self.text.replace("\\\n", " ");
        let lines = text.lines().map(|line| line.split(" #").next().unwrap_or(line).trim());
        lines.filter(|line| !line.is_empty() && !line.starts_with('#')).map(str::to_owned).collect()
    }
}

/// Splits a line at blanks outside of quotes, as a shell does.
pub(crate) fn words(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    for letter in line.chars() {
        let word = words.last_mut().expect("there is always a word");
        match (quote, letter) {
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if open == letter => quote = None,
            (None, ' ' | '\t') => words.push(String::new()),
            _ => word.push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

#[test]
fn words_are_split_as_a_shell_does() {
    assert_eq!(
        words(r#"curl  -d '{"a": "b c"}' "x y"z"#),
        ["curl", "-d", r#"{"a": "b c"}"#, "x yz"]
    );
}

#[test]
fn commands_are_lines_of_sh_blocks() {
    let text = "```sh\n# first\na b   # why\n\nc \\\n  d\n```\ntext `x`\n```yaml\ne: f\n```\n";
    let page = Page { name: "p.md".to_owned(), text: text.to_owned() };
    assert_eq!(page.commands(), ["a b", "c    d"]);
    let languages: Vec<&str> = page.blocks().iter().map(|block| block.language).collect();
    assert_eq!(languages, ["sh", "yaml"]);
}
