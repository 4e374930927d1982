//! Reads files up to a bound: 1 MiB for certificates, keys, passwords, tokens and settings files.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Largest file in bytes that [`read`] accepts. It bounds the memory of a load.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of a file.
///
/// # Errors
///
/// I/O errors, a path that is no regular file, or a file larger than [`FILE_BYTES_MAX`] bytes.
pub fn read(path: &Path) -> io::Result<Vec<u8>> {
    read_up_to(path, FILE_BYTES_MAX)
}

/// The content of a file of at most `bytes_max` bytes.
///
/// # Errors
///
/// I/O errors, a path that is no regular file, or a larger file.
pub fn read_up_to(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    // Checked before opening, because opening a named pipe blocks until there is a writer.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let mut bytes = Vec::new();
    // One byte over the limit, to detect a longer file.
    File::open(path)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let what = match bytes_max {
            FILE_BYTES_MAX => "it is larger than 1 MiB".to_owned(),
            _ => format!("it is larger than {bytes_max} bytes"),
        };
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    Ok(bytes)
}

/// The first line of a text file, where a password or token is. Empty for an empty file.
///
/// # Errors
///
/// The errors of [`read`], and an error for a file that is not UTF-8.
pub fn first_line(path: &Path) -> io::Result<String> {
    let text = String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "it is not a text in UTF-8"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_regular_files_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "text").unwrap();
        assert_eq!(read(&path).unwrap(), b"text");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX).unwrap();
        assert_eq!(read(&path).unwrap().len() as u64, FILE_BYTES_MAX);
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("larger than 1 MiB"));
        assert!(read(folder.path()).unwrap_err().to_string().contains("regular file"));
        let pipe = folder.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        assert!(read(&pipe).unwrap_err().to_string().contains("regular file"));
        assert!(read(Path::new("/dev/zero")).is_err());
        fs::write(&path, "text").unwrap();
        assert_eq!(read_up_to(&path, 4).unwrap(), b"text");
        let error = read_up_to(&path, 3).unwrap_err();
        assert_eq!(error.to_string(), "it is larger than 3 bytes");
    }

    #[test]
    fn the_first_line_is_read_without_its_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        for (bytes, line) in [(&b"one\r\ntwo"[..], Some("one")), (b"", Some("")), (b"\xff", None)] {
            fs::write(file.path(), bytes).unwrap();
            assert_eq!(first_line(file.path()).ok().as_deref(), line);
        }
    }
}
