//! Small files: certificates, keys, secrets. Read whole, or not at all.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Nobody's certificates are larger.
pub const LARGEST: u64 = 1 << 20;

/// What a file holds.
///
/// # Errors
///
/// Those of the system, and that it is no regular file or larger than [`LARGEST`] bytes.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    // Looked at before it is opened: opening a named pipe would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    // One byte more than may be, so that a longer file shows.
    File::open(path)?.take(LARGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it is larger than 1 MiB"));
    }
    Ok(bytes)
}

/// The first line of a text: how a file holds a password or a token. Empty if there is none.
///
/// # Errors
///
/// Those of [`read`], and that it is no text.
pub fn first_line(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not a text in UTF-8"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_small_file_is_refused_and_not_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "text").unwrap();
        assert_eq!(read(&path).unwrap(), b"text");
        File::create(&path).unwrap().set_len(LARGEST).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, LARGEST);
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("larger than 1 MiB"));
        assert!(read(folder.path()).unwrap_err().to_string().contains("regular file"));
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(read(&pipe).unwrap_err().to_string().contains("regular file"));
        assert!(read(Path::new("/dev/zero")).is_err());
    }

    #[test]
    fn a_secret_is_the_first_line() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, line) in [(&b"one\r\ntwo"[..], Some("one")), (b"", Some("")), (b"\xff", None)] {
            fs::write(file.path(), bytes).unwrap();
            assert_eq!(first_line(file.path()).ok().as_deref(), line);
        }
    }
}
