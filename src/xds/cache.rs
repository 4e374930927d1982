//! The cache: the active rules in a file, for a start while the server is unreachable.
//!
//! The file has a line `weir-xds-cache 1 MICROS SHA1 SOURCE` and a response, encoded. `MICROS` is when it
//! was written, and `SHA1` is the checksum of the response. `SOURCE` is the server and the node. A file
//! that is damaged, or has another source, is not used.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use sha1_smol::Sha1;

use crate::bounded_file;
use crate::time::Micros;

/// The first words of the file: its kind and the version of its format.
const MAGIC: &str = "weir-xds-cache 1 ";

/// Most bytes of the first line, without the source.
const HEAD_BYTES_MAX: usize = 100;

/// The file of the cache.
#[derive(Clone, Debug)]
pub(super) struct Cache {
    path: PathBuf,
    /// The server and the node, on one line.
    source: String,
    bytes_max: usize,
}

impl Cache {
    /// The cache in the file `path`, for the rules that `server` has for this node. Responses of more
    /// than `bytes_max` bytes are not kept.
    pub(super) fn new(path: &Path, server: &str, node_id: &str, bytes_max: usize) -> Cache {
        // `Debug` escapes line ends and quotes.
        Cache { path: path.to_owned(), source: format!("{server:?} {node_id:?}"), bytes_max }
    }

    /// The encoded response, and when it was written. `None` without a file.
    ///
    /// # Errors
    /// A file that cannot be read, is larger than the bound, is damaged, or has another source.
    pub(super) fn read(&self) -> io::Result<Option<(Vec<u8>, Micros)>> {
        let bytes_max = (self.bytes_max + HEAD_BYTES_MAX + self.source.len()) as u64;
        let bytes = match bounded_file::read_up_to(&self.path, bytes_max) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read?,
        };
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, "it is not a cache of weir");
        let head_end = bytes.iter().position(|byte| *byte == b'\n').ok_or_else(damaged)?;
        let head = std::str::from_utf8(&bytes[..head_end]).map_err(|_| damaged())?;
        let mut parts = head.strip_prefix(MAGIC).ok_or_else(damaged)?.splitn(3, ' ');
        let (Some(micros), Some(sum), Some(source)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(damaged());
        };
        let micros = micros.parse::<u64>().map_err(|_| damaged())?;
        let invalid = |what: String| Err(io::Error::new(io::ErrorKind::InvalidData, what));
        let response = &bytes[head_end + 1..];
        if sum != checksum(response) {
            return invalid("its content does not have its checksum".to_owned());
        }
        if source != self.source {
            return invalid(format!("it is of another server or node: {source}"));
        }
        Ok(Some((response.to_vec(), Micros(micros))))
    }

    /// Replaces the file at once, so that a crash leaves the old one or the new one.
    ///
    /// # Errors
    /// The folder is missing or cannot be written, or the response is too large.
    pub(super) fn write(&self, response: &[u8], now: Micros) -> io::Result<()> {
        if response.len() > self.bytes_max {
            let what = format!("the rules are larger than {} bytes", self.bytes_max);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
        }
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let new = PathBuf::from(name);
        let mut file = File::create(&new)?;
        writeln!(file, "{MAGIC}{} {} {}", now.0, checksum(response), self.source)?;
        file.write_all(response)?;
        file.sync_all()?;
        fs::rename(&new, &self.path)
    }

    /// The path of the file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

fn checksum(response: &[u8]) -> String {
    Sha1::from(response).digest().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache_in(folder: &Path) -> Cache {
        Cache::new(&folder.join("rules"), "server:1", "node", 1_000)
    }

    /// A volume may be given to another process, or the settings may change.
    #[test]
    fn a_cache_of_another_source_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        cache_in(folder.path()).write(b"response", Micros(42)).unwrap();
        for (server, node) in [("server:2", "node"), ("server:1", "other"), ("server:1", "n\n")] {
            let other = Cache::new(&folder.path().join("rules"), server, node, 1_000);
            let error = other.read().unwrap_err().to_string();
            assert!(error.ends_with(r#"another server or node: "server:1" "node""#), "{error}");
        }
    }

    #[test]
    fn a_cache_is_read_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache_in(folder.path());
        assert_eq!(cache.read().unwrap(), None);
        for response in [&b"one\ntwo"[..], b"", &[7; 1_000]] {
            cache.write(response, Micros(42)).unwrap();
            assert_eq!(cache.read().unwrap(), Some((response.to_vec(), Micros(42))));
        }
        let names = fs::read_dir(folder.path()).unwrap();
        assert_eq!(names.count(), 1, "no other file stays");
        assert!(cache.write(&[7; 1_001], Micros(42)).is_err(), "it could not be read");
        let missing = cache_in(&folder.path().join("missing"));
        assert!(missing.write(b"one", Micros(42)).is_err());
        assert_eq!(missing.read().unwrap(), None);
    }

    #[test]
    fn a_damaged_or_large_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cache = cache_in(folder.path());
        cache.write(b"response", Micros(42)).unwrap();
        let good = fs::read(cache.path()).unwrap();
        for length in 0..good.len() {
            fs::write(cache.path(), &good[..length]).unwrap();
            assert!(cache.read().is_err(), "the first {length} bytes");
        }
        for index in 0..good.len() {
            let mut bad = good.clone();
            bad[index] ^= 1;
            fs::write(cache.path(), &bad).unwrap();
            // The time is not part of the checksum.
            let changed = cache.read().ok().flatten();
            assert!(changed.is_none_or(|(response, _)| response == b"response"), "byte {index}");
        }
        File::create(cache.path()).unwrap().set_len(1 << 40).unwrap();
        assert!(cache.read().unwrap_err().to_string().contains("larger than"));
    }
}
