//! What was measured, on what machine and when: the table under Method of the page.

use std::fmt::Write;

use anyhow::{Context, ensure};

use crate::envoy_ratelimit;
use crate::machine;
use crate::options::Options;
use crate::page::PAGE;

/// Where the rows begin.
const HEAD: &str = "\n## Method\n\n| | |\n| --- | --- |\n";

/// The row with the commit.
const BUILD: &str = "weir";

/// Rows, each with a name and a value.
pub(crate) struct Facts(Vec<(String, String)>);

impl Facts {
    /// The facts of a measurement that begins now. `envoy` is the version of Envoy that it has.
    pub(crate) fn of_this_run(options: &Options, envoy: Option<&str>) -> anyhow::Result<Facts> {
        let rows = machine::facts().into_iter();
        let mut facts = Facts(rows.map(|(name, value)| (name.to_owned(), value)).collect());
        if let Some(commit) = &options.before_commit {
            facts.set("weir, the build before", commit);
        }
        facts.set_pauses(options);
        if let Some(program) = &options.envoy_ratelimit {
            facts.set("envoyproxy/ratelimit", &envoy_ratelimit::version(program)?);
        }
        if let Some(version) = envoy {
            facts.set("Envoy", version);
        }
        Ok(facts)
    }

    /// The facts of the page in `docs`, whose figures are not measured again. The longest turn may be a new one.
    pub(crate) fn of_page(options: &Options) -> anyhow::Result<Facts> {
        let file = options.docs.join(PAGE);
        let page = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let (_, rest) = page.split_once(HEAD).context("the page has no table under Method")?;
        let rows = rest.lines().map_while(|line| line.strip_prefix("| ")?.strip_suffix(" |"));
        let row = |line: &str| {
            let (name, value) = line.split_once(" | ").context("a row of Method has one column")?;
            Ok((name.to_owned(), value.to_owned()))
        };
        let mut facts = Facts(rows.map(row).collect::<anyhow::Result<_>>()?);
        ensure!(!facts.0.is_empty(), "the table under Method is empty");
        facts.set_pauses(options);
        Ok(facts)
    }

    /// Says that the figures of `part` are those of `measured`, if their build is not that of the page.
    pub(crate) fn set_part(&mut self, part: &str, measured: &Facts) {
        let row = format!("{BUILD}, {part}");
        self.0.retain(|(name, _)| *name != row);
        let [build, date] = [BUILD, "date"].map(|name| measured.value(name).unwrap_or_default());
        if self.value(BUILD) != Some(build) {
            self.set(&row, &format!("{build}, {date}"));
        }
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    fn set_pauses(&mut self, options: &Options) {
        if let Some(commit) = &options.pauses_commit {
            self.set("weir, the longest turn of a core thread", commit);
        }
    }

    /// Replaces the value of a row, or adds the row.
    fn set(&mut self, name: &str, value: &str) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, old)) => value.clone_into(old),
            None => self.0.push((name.to_owned(), value.to_owned())),
        }
    }

    /// The rows in Markdown.
    pub(crate) fn rows(&self) -> anyhow::Result<String> {
        let mut rows = String::new();
        for (name, value) in &self.0 {
            writeln!(rows, "| {name} | {value} |")?;
        }
        Ok(rows)
    }
}
