//! Reads rule files and folders from disk, within bounds and in a fixed order.

use std::collections::HashSet;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::problem::{Location, Position, Report};

/// Most bytes of one file.
pub(in crate::rules) const FILE_BYTES_MAX: usize = 16 << 20;
/// Most files of one load.
const FILES_MAX: usize = 10_000;
/// Most bytes of all files of one load.
const ALL_FILES_BYTES_MAX: usize = 256 << 20;
/// Deepest nesting of folders below a given one.
const DEPTH_MAX: usize = 16;
/// The most times that all files are read until a second reading, of one file at a time, finds the same.
const READINGS_MAX: usize = 20;

/// The text of one rule file.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SourceFile {
    /// The path as the user named it; problems show it.
    pub name: Arc<str>,
    /// The content.
    pub text: String,
}

/// All rule files as read at one moment, not compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RuleFiles {
    pub(in crate::rules) files: Vec<SourceFile>,
    pub(in crate::rules) report: Report,
    /// Paths without a rule file.
    without_files: Vec<PathBuf>,
}

impl RuleFiles {
    /// Reads files with any name, and folders: their `*.yaml` and `*.yml`, recursively, without dot
    /// entries, in byte order of the paths below the folder.
    ///
    /// Symbolic links to files are followed, because Kubernetes mounts a ConfigMap with them. Links
    /// to folders are followed only where they are named, so that there is no cycle.
    ///
    /// Files may be replaced during a read, all at once when a link is swapped. Therefore all files
    /// are read until two reads are equal: the files had this content between the two. Files that
    /// keep changing are an error.
    pub fn read(paths: &[PathBuf]) -> RuleFiles {
        let mut rule_files = RuleFiles::read_once(paths);
        for _ in 1..READINGS_MAX {
            if rule_files.are_current(paths) {
                return rule_files;
            }
            rule_files = RuleFiles::read_once(paths);
        }
        let location =
            paths.first().map_or_else(|| Location::whole(&"".into()), |path| whole(path));
        let hint = "put new files in place by renaming, or all at once by a link";
        rule_files.report.error(location, "the rule files change while they are being read", hint);
        rule_files
    }

    /// Reads once. The files may be from different moments.
    fn read_once(paths: &[PathBuf]) -> RuleFiles {
        let mut files = Vec::new();
        let rest = RuleFiles::read_each(paths, &mut |file| files.push(file));
        RuleFiles { files, ..rest }
    }

    /// Whether another read finds the same. It has one file in memory at a time.
    fn are_current(&self, paths: &[PathBuf]) -> bool {
        let mut files = self.files.iter();
        let mut is_same = true;
        let again = RuleFiles::read_each(paths, &mut |file| is_same &= files.next() == Some(&file));
        is_same
            && files.next().is_none()
            && again.report == self.report
            && again.without_files == self.without_files
    }

    /// The [`digest`](Self::digest) of the files that are read once. It has one file in memory at a time.
    pub fn read_digest(paths: &[PathBuf]) -> u64 {
        let mut hasher = DefaultHasher::new();
        let rest = RuleFiles::read_each(paths, &mut |file| file.hash(&mut hasher));
        rest.finish_digest(hasher)
    }

    /// Reads once and calls `each` with every file. The result has everything else.
    fn read_each(paths: &[PathBuf], each: &mut dyn FnMut(SourceFile)) -> RuleFiles {
        let mut rule_files = RuleFiles::default();
        let mut found = Vec::new();
        for path in paths {
            let before = found.len();
            find(path, &mut found, &mut rule_files.report);
            if found.len() == before {
                rule_files.without_files.push(path.clone());
            }
        }
        read(found, &mut rule_files.report, each);
        rule_files
    }

    /// A hash of the names, the texts and the read errors of all files.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.files.iter().for_each(|file| file.hash(&mut hasher));
        self.finish_digest(hasher)
    }

    /// Adds all but the files to a digest.
    fn finish_digest(&self, mut hasher: DefaultHasher) -> u64 {
        self.without_files.hash(&mut hasher);
        for problem in self.report.problems() {
            problem.to_string().hash(&mut hasher);
        }
        hasher.finish()
    }

    /// The paths without a rule file: missing files, and folders without rule files.
    pub fn without_files(&self) -> &[PathBuf] {
        &self.without_files
    }
}

/// Reads the files that were found, each once.
fn read(mut found: Vec<PathBuf>, report: &mut Report, each: &mut dyn FnMut(SourceFile)) {
    if found.len() > FILES_MAX {
        let what = format!("{} rule files; at most {FILES_MAX} are read", found.len());
        report.error(whole(&found[FILES_MAX]), what, "join files, or name fewer folders");
        found.truncate(FILES_MAX);
    }
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for path in found.into_iter().filter(|path| seen.insert(path.clone())) {
        let Some(file) = read_file(&path, report) else { continue };
        bytes += file.text.len();
        if bytes > ALL_FILES_BYTES_MAX {
            let what = format!("rule files of more than {} MiB in all", ALL_FILES_BYTES_MAX >> 20);
            report.error(Location::whole(&file.name), what, "name fewer folders");
            break;
        }
        each(file);
    }
}

/// Adds the files of one path that the user named.
fn find(path: &Path, found: &mut Vec<PathBuf>, report: &mut Report) {
    match fs::metadata(path) {
        Ok(about) if about.is_dir() => {
            let mut below = Vec::new();
            list(path, 0, &mut below, report);
            if below.is_empty() {
                let what = "the folder has no rule files, so nothing from it is limited";
                report.warn(whole(path), what, "put *.yaml or *.yml files into it");
            }
            below.sort_by(|a, b| {
                a.as_os_str().as_encoded_bytes().cmp(b.as_os_str().as_encoded_bytes())
            });
            found.extend(below);
        }
        Ok(_) => found.push(path.to_path_buf()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let what = "there is no such file or folder, so nothing from it is limited";
            report.warn(whole(path), what, "create it, or name another with `--rules`");
        }
        Err(error) => unreadable(path, &error, report),
    }
}

fn list(folder: &Path, depth: usize, found: &mut Vec<PathBuf>, report: &mut Report) {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) => return unreadable(folder, &error, report),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return unreadable(folder, &error, report),
        };
        // The list has one file more than the bound, so that the caller reports too many files.
        if found.len() > FILES_MAX {
            return;
        }
        let path = entry.path();
        let hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        let folder_itself = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if hidden {
            continue;
        } else if folder_itself && depth < DEPTH_MAX {
            list(&path, depth + 1, found, report);
        } else if folder_itself {
            let what = format!("folders nested more than {DEPTH_MAX} deep");
            report.error(whole(&path), what, "name the inner folder itself");
        } else if is_rule_file(&path) {
            found.push(path);
        }
    }
}

fn is_rule_file(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
        && !path.is_dir()
}

fn read_file(path: &Path, report: &mut Report) -> Option<SourceFile> {
    match read_bytes(path) {
        Ok(None) => {
            let what = format!("the file is larger than {} MiB", FILE_BYTES_MAX >> 20);
            report.error(whole(path), what, "split it");
            report.incomplete = true;
            None
        }
        Ok(Some(bytes)) => match String::from_utf8(bytes) {
            Ok(text) => Some(SourceFile { name: name(path), text }),
            Err(error) => {
                let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
                let at = end_of(&String::from_utf8_lossy(valid));
                let location = at.in_file(&name(path));
                report.error(location, "this is not UTF-8 text", "save the file as UTF-8");
                report.incomplete = true;
                None
            }
        },
        Err(error) => {
            unreadable(path, &error, report);
            None
        }
    }
}

/// The content of a file; `None` when it is too large.
fn read_bytes(path: &Path) -> std::io::Result<Option<Vec<u8>>> {
    // Checked before the open: opening a named pipe would wait for a writer.
    let about = fs::metadata(path)?;
    if !about.is_file() {
        return Err(std::io::Error::other("it is not a regular file"));
    }
    // With room for the file and the end: a growing buffer would take up to twice the memory.
    let room = usize::try_from(about.len()).unwrap_or(usize::MAX).min(FILE_BYTES_MAX) + 1;
    let mut bytes = Vec::with_capacity(room);
    File::open(path)?.take(FILE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok((bytes.len() <= FILE_BYTES_MAX).then_some(bytes))
}

fn end_of(text: &str) -> Position {
    let line = text.matches('\n').count() + 1;
    let column = text.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: small(line), column: small(column) }
}

fn unreadable(path: &Path, error: &std::io::Error, report: &mut Report) {
    report.error(
        whole(path),
        format!("cannot be read: {error}"),
        "check its permissions and its kind",
    );
    report.incomplete = true;
}

fn whole(path: &Path) -> Location {
    Location::whole(&name(path))
}

fn name(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}
