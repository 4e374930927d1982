//! The file of the decision log: lines are appended, and a full file is renamed.

use std::ffi::OsString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::RecorderError;

/// What to do about a path that cannot be used.
const FIX: &str = "write the path of a file in a folder that weir may write to, or `stdout`";

/// An open file of lines.
pub(super) struct LineFile {
    path: PathBuf,
    max_bytes: u64,
    file: File,
    length: u64,
}

/// Checks that `path` is in a folder, and is that of a file if it exists.
pub(super) fn check(path: &Path) -> Result<(), RecorderError> {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        _ => Path::new("."),
    };
    let is_folder = fs::metadata(folder).and_then(|found| match found.is_dir() {
        true => Ok(()),
        false => Err(ErrorKind::NotADirectory.into()),
    });
    let checked = is_folder.and_then(|()| check_kind(path));
    checked.map_err(|error| RecorderError::new(path, error, FIX))
}

/// Refuses what is no file. To open a pipe would wait for its reader.
fn check_kind(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_file() => Err(io::Error::other("it is no regular file")),
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    check_kind(path)?;
    // Other users of the host must not read the values of requests.
    let mut options = OpenOptions::new();
    let file = options.read(true).append(true).create(true).mode(0o600).open(path)?;
    let found = file.metadata()?;
    Ok((file, found))
}

impl LineFile {
    /// Opens the file at `path`, or creates it. It gets at most `max_bytes`, which is at least the
    /// length of a line.
    pub(super) fn open(path: &Path, max_bytes: u64) -> Result<LineFile, RecorderError> {
        let opened = open(path).and_then(|(file, found)| {
            let (path, length) = (path.to_owned(), found.len());
            let mut file = LineFile { path, max_bytes, file, length };
            file.end_torn_line()?;
            Ok(file)
        });
        opened.map_err(|error| RecorderError::new(path, error, FIX))
    }

    /// Appends whole lines. Returns the number of bytes that were appended, and the error that
    /// prevented the rest.
    pub(super) fn write(&mut self, lines: &[u8]) -> (usize, io::Result<()>) {
        let mut written = 0;
        let result = self.follow_path().and_then(|()| {
            while written < lines.len() {
                let rest = &lines[written..];
                let part = whole_lines(rest, self.max_bytes.saturating_sub(self.length));
                if part == 0 && self.length > 0 {
                    self.rotate()?;
                    continue;
                }
                // A line that is longer than the bound still has to go somewhere.
                let part = if part == 0 { first_line(rest) } else { part };
                self.append(&rest[..part])?;
                written += part;
            }
            Ok(())
        });
        (written, result)
    }

    fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let result = self.file.write_all(lines);
        match result {
            Ok(()) => self.length += lines.len() as u64,
            // A part of a line would spoil the next one.
            Err(_) => drop(self.file.set_len(self.length)),
        }
        result
    }

    /// Opens a new file if another program has moved or deleted this one, as logrotate does. One that
    /// was emptied gets its lines from the start.
    fn follow_path(&mut self) -> io::Result<()> {
        let own = self.file.metadata()?;
        let is_same = match fs::metadata(&self.path) {
            Ok(found) => (found.dev(), found.ino()) == (own.dev(), own.ino()),
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        self.length = own.len();
        if is_same { Ok(()) } else { self.reopen() }
    }

    /// Renames the full file, and opens a new one.
    fn rotate(&mut self) -> io::Result<()> {
        let mut old: OsString = self.path.clone().into();
        old.push(".1");
        fs::rename(&self.path, old)?;
        self.reopen()
    }

    fn reopen(&mut self) -> io::Result<()> {
        let (file, found) = open(&self.path)?;
        (self.file, self.length) = (file, found.len());
        self.end_torn_line()
    }

    /// Ends the last line of a file whose writer was killed, so that the next line is whole.
    fn end_torn_line(&mut self) -> io::Result<()> {
        let Some(last) = self.length.checked_sub(1) else { return Ok(()) };
        let mut byte = [0];
        self.file.read_exact_at(&mut byte, last)?;
        if byte == *b"\n" { Ok(()) } else { self.append(b"\n") }
    }
}

/// The length of the longest start of `lines` that has whole lines and at most `room` bytes.
fn whole_lines(lines: &[u8], room: u64) -> usize {
    let room = usize::try_from(room).unwrap_or(usize::MAX).min(lines.len());
    lines[..room].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1)
}

/// The length of the first line.
fn first_line(lines: &[u8]) -> usize {
    lines.iter().position(|byte| *byte == b'\n').map_or(lines.len(), |end| end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten bytes, with the newline.
    fn line(number: usize) -> Vec<u8> {
        format!("line {number:4}\n").into_bytes()
    }

    fn lines(numbers: std::ops::Range<usize>) -> Vec<u8> {
        numbers.flat_map(line).collect()
    }

    /// A folder with a log of at most `max_bytes`.
    fn log(max_bytes: u64) -> (tempfile::TempDir, PathBuf, LineFile) {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("decisions.log");
        let file = LineFile::open(&path, max_bytes).expect("a new file");
        (folder, path, file)
    }

    fn read(path: &Path) -> Vec<u8> {
        fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    fn written(file: &mut LineFile, lines: &[u8]) {
        let (bytes, result) = file.write(lines);
        result.expect("it can be written");
        assert_eq!(bytes, lines.len());
    }

    #[test]
    fn a_full_file_is_renamed_between_lines() {
        let (folder, path, mut file) = log(35);
        let old = folder.path().join("decisions.log.1");
        written(&mut file, &lines(0..3));
        assert!(!old.exists(), "there is room for no more than a line");
        written(&mut file, &line(3));
        assert_eq!((read(&old), read(&path)), (lines(0..3), line(3)));
        // One batch may fill several files. The last two stay.
        written(&mut file, &lines(4..12));
        assert_eq!((read(&old), read(&path)), (lines(6..9), lines(9..12)));
        drop(file);
        let mut file = LineFile::open(&path, 35).expect("the same file");
        written(&mut file, &line(12));
        assert_eq!((read(&old), read(&path)), (lines(9..12), line(12)), "the length was read");
    }

    #[test]
    fn a_moved_deleted_or_emptied_file_is_no_end() {
        let (folder, path, mut file) = log(1_000);
        written(&mut file, &line(0));
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).expect("a rename");
        written(&mut file, &line(1));
        assert_eq!((read(&moved), read(&path)), (line(0), line(1)));
        fs::remove_file(&path).expect("a file");
        written(&mut file, &line(2));
        assert_eq!(read(&path), line(2));
        OpenOptions::new().write(true).truncate(true).open(&path).expect("a file");
        written(&mut file, &line(3));
        assert_eq!(read(&path), line(3));
    }

    #[test]
    fn only_the_owner_may_read_a_new_file() {
        let (_folder, path, mut file) = log(15);
        let mode = || fs::metadata(&path).expect("a file").mode() & 0o777;
        assert_eq!(mode(), 0o600);
        written(&mut file, &lines(0..2));
        assert_eq!(mode(), 0o600, "also after the rename of a full one");
    }

    #[test]
    fn a_torn_line_is_ended() {
        let (_folder, path, file) = log(1_000);
        drop(file);
        for (before, after) in [("", ""), ("whole\n", "whole\n"), ("torn", "torn\n")] {
            fs::write(&path, before).expect("a file");
            let mut file = LineFile::open(&path, 1_000).expect("the same file");
            written(&mut file, &line(0));
            assert_eq!(read(&path), [after.as_bytes(), &line(0)].concat());
        }
    }

    #[test]
    fn an_unusable_path_is_an_error() {
        let (folder, path, mut file) = log(1_000);
        let missing = folder.path().join("missing/decisions.log");
        let socket = folder.path().join("socket");
        let _socket = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let below = path.join("decisions.log");
        for wrong in [folder.path(), &missing, &socket, &below] {
            for error in [LineFile::open(wrong, 1_000).map(drop), check(wrong)] {
                let error = error.expect_err("no file").to_string();
                assert!(error.starts_with("log.decisions.path: cannot write `"), "{error}");
                assert!(error.ends_with(FIX), "{error}");
            }
        }
        assert!(check(&path).is_ok() && check(Path::new("new.log")).is_ok());
        // The folder is gone: lines are lost, and later ones are written when it is back.
        let away = folder.path().with_extension("away");
        fs::rename(folder.path(), &away).expect("a rename");
        let (bytes, result) = file.write(&line(0));
        assert_eq!((bytes, result.expect_err("no folder").kind()), (0, ErrorKind::NotFound));
        fs::rename(&away, folder.path()).expect("a rename");
        written(&mut file, &line(1));
        assert_eq!(read(&path), line(1));
    }
}
