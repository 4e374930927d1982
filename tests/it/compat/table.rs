//! The text form of a table.
//!
//! ```text
//! # The claim that the table checks.
//! [env]
//! NAME=value
//! [rules file.yaml]
//! domain: ...
//! [requests]
//! # a remark
//! question => answer
//! ```

/// One file.
#[derive(Debug, Default)]
pub(crate) struct Table<'t> {
    /// The claim that it checks: the comment at its top.
    pub(crate) claim: String,
    /// The environment variables of the process.
    pub(crate) env: Vec<(&'t str, &'t str)>,
    /// The rule files of the process: name and text.
    pub(crate) rules: Vec<(&'t str, String)>,
    /// Requests and responses, in order.
    pub(crate) rows: Vec<Row<'t>>,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Row<'t> {
    /// The line number in the table, from 1.
    pub(crate) line: usize,
    pub(crate) question: &'t str,
    /// The text with single spaces.
    pub(crate) answer: String,
}

enum Section {
    Claim,
    Env,
    Rules,
    Requests,
}

impl<'t> Table<'t> {
    /// Parses a table. A mistake panics.
    pub(crate) fn parse(text: &'t str) -> Table<'t> {
        let mut table = Table::default();
        let mut section = Section::Claim;
        for (index, line) in text.lines().enumerate() {
            if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                section = table.open(title);
                continue;
            }
            match section {
                Section::Claim => table.claim += &format!("{line}\n"),
                Section::Env => table.env.extend(line.split_once('=')),
                Section::Rules => {
                    let file = table.rules.last_mut().expect("a rules section has a file");
                    file.1 += &format!("{line}\n");
                }
                Section::Requests => table.rows.extend(Row::parse(index + 1, line)),
            }
        }
        assert!(!table.rows.is_empty(), "a table without questions checks nothing: {text}");
        table
    }

    fn open(&mut self, title: &'t str) -> Section {
        match title.split_once(' ') {
            None if title == "env" => Section::Env,
            None if title == "requests" => Section::Requests,
            Some(("rules", file)) => {
                self.rules.push((file, String::new()));
                Section::Rules
            }
            _ => panic!("a table has no section [{title}]"),
        }
    }
}

impl<'t> Row<'t> {
    fn parse(line: usize, text: &'t str) -> Option<Row<'t>> {
        if text.trim().is_empty() || text.starts_with('#') {
            return None;
        }
        let (question, answer) =
            text.split_once("=>").unwrap_or_else(|| panic!("line {line} has no =>: {text}"));
        let answer: Vec<&str> = answer.split_whitespace().collect();
        Some(Row { line, question: question.trim(), answer: answer.join(" ") })
    }
}
