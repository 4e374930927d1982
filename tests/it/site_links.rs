//! The links of the site that mdBook makes of docs/: book/links.py leads them to pages of the site,
//! or to GitHub.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

use crate::page_commands::text::root;

/// The address of the repository, where files outside of docs/ are.
const REPOSITORY: &str = "https://github.com/weir-rs/weir/";

/// A chapter as mdBook sends it.
fn chapter(path: &str, content: &str, below: &[Value]) -> Value {
    json!({ "Chapter": {
        "name": path, "content": content, "number": null, "sub_items": below, "path": path,
        "source_path": path, "parent_names": [],
    } })
}

/// The items of a book, as book/links.py returns them.
fn rewritten(items: &[Value]) -> Value {
    let output = ran(items);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "book/links.py: {}: {error}", output.status);
    let mut book: Value = serde_json::from_slice(&output.stdout).expect("the script prints a book");
    book["items"].take()
}

/// The end of book/links.py for the items of a book.
fn ran(items: &[Value]) -> Output {
    let book = json!([{ "root": root(), "renderer": "html" }, { "items": items }]);
    let mut child = Command::new("python3")
        .args(["-B", "book/links.py"])
        .current_dir(root())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("python3, which `make test` needs");
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(book.to_string().as_bytes()).expect("the script reads the book");
    drop(stdin);
    child.wait_with_output().expect("the script ends")
}

#[test]
fn links_out_of_the_docs_lead_to_github() {
    let pairs = [
        ("[a](../../examples/weir.yaml)", "[a](GITHUB/blob/main/examples/weir.yaml)"),
        ("[a](../../examples)", "[a](GITHUB/tree/main/examples)"),
        (
            "[a](../../CONTRIBUTING.md#how-we-write), [b](istio.md)",
            "[a](GITHUB/blob/main/CONTRIBUTING.md#how-we-write), [b](istio.md)",
        ),
        ("[a](../README.md#start)", "[a](../index.md#start)"),
        ("[a](istio.md#a), [b](#here)", "[a](istio.md#a), [b](#here)"),
        ("[a](https://a.example/b.md)", "[a](https://a.example/b.md)"),
        ("```\n[a](../../examples)\n```", "```\n[a](../../examples)\n```"),
    ];
    let (before, after): (Vec<&str>, Vec<String>) =
        pairs.into_iter().map(|(old, new)| (old, new.replace("GITHUB/", REPOSITORY))).unzip();
    let below = chapter("start/below.md", before[0], &[]);
    let items = rewritten(&[
        json!("Separator"),
        json!({ "PartTitle": "Start" }),
        chapter("start/page.md", &before.join("\n\n"), &[below]),
    ]);
    assert_eq!(items[0], "Separator");
    assert_eq!(items[2]["Chapter"]["content"], after.join("\n\n"));
    assert_eq!(items[2]["Chapter"]["sub_items"][0]["Chapter"]["content"], after[0]);
}

#[test]
fn a_link_that_leads_nowhere_fails_the_site() {
    let page = "start/page.md";
    for target in ["missing.md", "../operate/missing.md#a", "../../missing.md"] {
        let output = ran(&[chapter(page, &format!("[a]({target})"), &[])]);
        assert!(!output.status.success(), "{target}");
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(error.trim(), format!("docs/{page}: {target} leads nowhere"));
    }
}

#[test]
fn every_link_of_the_site_leads_somewhere() {
    let docs = root().join("docs");
    let summary = read_to_string(docs.join("SUMMARY.md")).expect("docs/SUMMARY.md");
    let paths = summary.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let paths: Vec<&str> = paths.collect();
    assert!(paths.len() > 20, "only {} chapters", paths.len());
    let text = |path: &&str| read_to_string(docs.join(path)).expect("a page of docs/SUMMARY.md");
    let chapters: Vec<Value> = paths.iter().map(|path| chapter(path, &text(path), &[])).collect();
    let on_site: HashSet<String> =
        paths.iter().map(|path| path.replace("README.md", "index.md")).collect();
    let mut github = 0;
    for item in rewritten(&chapters).as_array().expect("a list") {
        let page = item["Chapter"]["source_path"].as_str().expect("a path");
        let content = item["Chapter"]["content"].as_str().expect("a text");
        for target in content.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if let Some(view) = path.strip_prefix(REPOSITORY) {
                let file = view.split_once("/main/").map(|(_, file)| root().join(file));
                github += usize::from(file.is_some_and(|file| file.exists()));
            } else if !path.is_empty() && !path.contains("://") {
                let folder = Path::new(page).parent().expect("a page is in a folder");
                let leads = match path.ends_with(".md") {
                    true => on_site.contains(&joined(folder, path)),
                    false => docs.join(joined(folder, path)).exists(),
                };
                assert!(leads, "docs/{page}: {target} is not on the site");
            }
        }
    }
    assert!(github > 20, "only {github} links lead to files on GitHub");
}

/// A relative link in a folder of docs/, as a path in docs/.
fn joined(folder: &Path, link: &str) -> String {
    let mut parts: Vec<&str> = folder.iter().filter_map(|part| part.to_str()).collect();
    for part in link.split('/') {
        match part {
            "." => {}
            ".." => assert!(parts.pop().is_some(), "{link} leaves docs/"),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
