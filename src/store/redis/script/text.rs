//! The text of the scripts, assembled from the files in `lua/`: one script per kind of state, one for
//! quotas, and one library that has all of them as functions.
//!
//! Redis runs the whole text of a script in each call, and the text of a library once. So a script
//! has the parts that most calls do not need behind its first reply. A library has no globals while
//! Redis loads it, so its functions set the locals of `protocol.lua` in their first call.

use super::Script;

/// A file of `lua/`.
macro_rules! lua {
    ($file:literal) => {
        include_str!(concat!("../../../../lua/", $file, ".lua"))
    };
}

const PROTOCOL: &str = lua!("protocol");
const GLOBALS: &str = lua!("globals");
const FAST_PATH: &str = lua!("fast_path");
const SINGLE: &str = lua!("single");
const REPEATED: &str = lua!("repeated");
const DEQUE: &str = lua!("deque");
const RESERVATION: &str = lua!("reservation");
const RUNS: &str = lua!("runs");
const TIER: &str = lua!("tier");
const RESULT: &str = lua!("result");
const QUOTA: &str = lua!("quota");

/// What the scripts that run steps share.
const STEPS: [&str; 3] = [DEQUE, RESERVATION, RUNS];

/// Hexadecimal digits of the hash in a library's name.
const HASH_DIGITS: usize = 16;

/// The function library of this version of weir.
#[derive(Debug)]
pub struct Library {
    /// Its name. It contains a hash of the text, so a node may have the libraries of several
    /// versions.
    pub name: String,
    /// The text for `FUNCTION LOAD`.
    pub text: String,
}

impl Library {
    /// Assembles the library.
    pub(super) fn assemble() -> Library {
        // The text contains the name, so the hash is that of the text with another name.
        let hash = sha1_smol::Sha1::from(library("weir")).digest().to_string();
        let name = format!("weir_{}", &hash[..HASH_DIGITS]);
        Library { text: library(&name), name }
    }

    /// The name of the function that runs `script`. Names of functions are global, so it contains
    /// that of the library.
    pub(super) fn function(&self, script: Script) -> String {
        function(&self.name, script)
    }
}

/// The parts of one script that are not in every script.
struct ScriptParts {
    /// For the steps that have a fast path.
    fast: String,
    /// The reply to a call of one such step.
    single: &'static str,
    /// What the scripts that run steps share.
    shared: &'static [&'static str],
    /// For all calls.
    all: String,
    /// The reply to all other calls.
    result: &'static str,
}

fn parts(script: Script) -> ScriptParts {
    let steps = |fast: &[&str], all: &[&str]| {
        let (fast, all) = (lines(fast), lines(all));
        ScriptParts { fast, single: SINGLE, shared: &STEPS, all, result: RESULT }
    };
    match script {
        Script::FixedWindow => steps(&[lua!("fixed_window"), FAST_PATH], &[TIER, REPEATED]),
        Script::SlidingWindow => steps(&[lua!("sliding_window"), FAST_PATH], &[TIER]),
        Script::Gcra => steps(&[lua!("gcra"), FAST_PATH], &[TIER]),
        Script::Entries => steps(&[lua!("short_log")], &[lua!("entries")]),
        Script::Quota => {
            let result = "return settle(keys[1], runs[1])";
            let (fast, all) = (String::new(), lines(&[QUOTA]));
            ScriptParts { fast, single: "", shared: &[], all, result }
        }
    }
}

/// The text of one script.
pub(super) fn script(script: Script) -> String {
    let ScriptParts { fast, single, shared, all, result } = parts(script);
    let arguments = "local keys, runs = KEYS, ARGV";
    lines(&[PROTOCOL, GLOBALS, arguments, &fast, single, &lines(shared), &all, result])
}

/// The text of the library `name`, without comments, because every replica and backup has a copy.
fn library(name: &str) -> String {
    let functions: String = Script::ALL.into_iter().map(|script| register(name, script)).collect();
    let header = format!("#!lua name={name}");
    let globals = lines(&["local function take_globals()", GLOBALS, "end"]);
    let text = lines(&[&header, PROTOCOL, &globals, &lines(&STEPS), &functions]);
    let is_code = |line: &&str| !line.is_empty() && !line.trim_start().starts_with("--");
    text.lines().filter(is_code).flat_map(|line| [line, "\n"]).collect()
}

/// The part of the library `name` that registers one script as a function. The block bounds its
/// locals, whose names the scripts share.
fn register(name: &str, script: Script) -> String {
    let ScriptParts { fast, single, all, result, .. } = parts(script);
    let begin = format!(
        "redis.register_function('{}', function(keys, runs)\nif not call then take_globals() end",
        function(name, script)
    );
    lines(&["do", &fast, &all, &begin, single, result, "end)", "end"])
}

fn function(library: &str, script: Script) -> String {
    let kind = match script {
        Script::FixedWindow => "fixed_window",
        Script::SlidingWindow => "sliding_window",
        Script::Gcra => "gcra",
        Script::Entries => "entries",
        Script::Quota => "quota",
    };
    format!("{library}_{kind}")
}

/// The texts, each on its own lines.
fn lines(texts: &[&str]) -> String {
    texts.iter().flat_map(|text| [text.trim_end(), "\n"]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words that begin a block of Lua, without those of loops, whose `do` counts, minus those
    /// that end one.
    fn open_blocks(text: &str) -> i64 {
        let code = text.lines().map(|line| line.split("--").next().unwrap_or_default());
        let words = code.flat_map(|line| line.split(|c: char| !c.is_alphanumeric() && c != '_'));
        words
            .map(|word| match word {
                "do" | "function" | "if" | "repeat" => 1,
                "end" | "until" => -1,
                _ => 0,
            })
            .sum()
    }

    #[test]
    fn every_block_of_every_text_ends() {
        for script in Script::ALL {
            assert_eq!(open_blocks(&super::script(script)), 0, "{script:?}");
        }
        assert_eq!(open_blocks(&Library::assemble().text), 0);
    }

    #[test]
    fn a_script_replies_before_the_parts_for_few_calls() {
        let is_sorted = |script, fast: &[&str], general: &[&str]| {
            let text = super::script(script);
            let order = [
                &[
                    "local call, pcall, pack, parse",
                    "= redis.call, redis.pcall",
                    "local keys, runs = KEYS, ARGV",
                ],
                fast,
                &[
                    "local function run_one",
                    "if #keys == 1 and",
                    "local function deque",
                    "local function reservations",
                    "local function run_all",
                ],
                general,
                &["return run_all("],
            ];
            order.concat().iter().map(|part| text.find(part).expect(part)).is_sorted()
        };
        let general = ["local function general", "run_repeated = function"];
        assert!(is_sorted(Script::FixedWindow, &["local function take_one"], &general));
        assert!(is_sorted(Script::Entries, &[], &["local function run_general"]));
        assert!(!script(Script::Quota).contains("run_all"), "it runs no steps");
    }

    #[test]
    fn the_library_has_shared_parts_once() {
        let Library { name, text } = Library::assemble();
        assert!(text.starts_with(&format!("#!lua name={name}\nlocal ")), "{text}");
        assert_eq!(name.len(), "weir_".len() + HASH_DIGITS);
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        assert!(name.chars().all(is_word), "Redis accepts no other characters: {name}");
        let count = |part: &str| text.matches(part).count();
        let once = ["local function ttl", "local function deque", "local function run_all"];
        assert_eq!(once.map(count), [1; 3]);
        assert_eq!(count("redis.register_function('"), Script::ALL.len());
        assert_eq!(count("if not call then take_globals() end\n"), Script::ALL.len());
        for script in Script::ALL {
            assert_eq!(count(&format!("('{}'", function(&name, script))), 1, "{script:?}");
        }
        // These globals exist in scripts only.
        assert_eq!(["KEYS", "ARGV"].map(count), [0; 2]);
    }

    /// Outside its functions, a library may use no globals but `redis.register_function`. The lines
    /// there are those without indentation.
    #[test]
    fn the_library_uses_no_globals_while_it_loads() {
        let text = Library::assemble().text;
        let outside = text.lines().filter(|line| !line.starts_with(' '));
        let assigned = outside.filter(|line| {
            let is_function = line.starts_with("local function") || line.contains("function(keys");
            !is_function && !line.starts_with("if ") && !line.starts_with("return ")
        });
        // `take_globals` has these two in its body.
        let globals: Vec<&str> = GLOBALS.lines().filter(|line| !line.starts_with("--")).collect();
        for line in assigned.filter(|line| !globals.contains(line)) {
            let used = ["redis.", "struct.", "math.", "string.", "table.", ":rep(", ":format("];
            assert!(!used.iter().any(|global| line.contains(global)), "{line}");
        }
    }

    #[test]
    fn the_name_of_the_library_hashes_its_text() {
        let Library { name, text } = Library::assemble();
        let unnamed = text.replace(&name, "weir");
        assert_eq!(unnamed, library("weir"));
        let hash = sha1_smol::Sha1::from(unnamed).digest().to_string();
        assert_eq!(name, format!("weir_{}", &hash[..HASH_DIGITS]));
    }
}
