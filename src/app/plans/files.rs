//! The files of plans and customers: `plans.file` and `plans.customers_file`.

use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::app::texts;
use crate::app::watch::Digest;
use crate::bounded_file;
use crate::escape::one_line;
use crate::plans::{CustomerTable, PlanBook, Plans, count_lines, load_customers};
use crate::settings::{PlanSourceKind, PlansSettings};

/// Most bytes of `plans.file`.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Most bytes of `plans.customers_file` for each customer of `plans.max_customers`.
const LINE_BYTES: u64 = 256;

/// Bytes that are read at once.
const BUFFER_BYTES: usize = 1 << 20;

/// The most times that the files are read until they do not change meanwhile.
const READINGS_MAX: usize = 5;

/// What distinguishes a file from another one at the same path, and from itself with other content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct FileStamp {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// The paths of the files, and the bound of customers.
#[derive(Clone, Debug)]
pub(super) struct PlanFiles {
    file: PathBuf,
    customers_file: Option<PathBuf>,
    max_customers: usize,
}

impl PlanFiles {
    /// The files of the settings; `None` with another source.
    pub(super) fn of(settings: &PlansSettings) -> Option<PlanFiles> {
        let file = settings.file.clone().filter(|_| settings.source == PlanSourceKind::File)?;
        let (customers_file, max_customers) =
            (settings.customers_file.clone(), settings.max_customers);
        Some(PlanFiles { file, customers_file, max_customers })
    }

    pub(super) fn paths(&self) -> Vec<PathBuf> {
        [&self.file].into_iter().chain(&self.customers_file).cloned().collect()
    }

    /// A hash of the content of `plans.file`, and of the stamp of `plans.customers_file`, which may be
    /// too large to be read every few seconds.
    pub(super) fn digest(&self) -> Digest {
        let mut hasher = DefaultHasher::new();
        let content = bounded_file::read_up_to(&self.file, FILE_BYTES_MAX);
        content.map_err(|error| error.kind()).hash(&mut hasher);
        self.customers_file.as_deref().map(stamp).hash(&mut hasher);
        hasher.finish()
    }

    /// Reads the plans, and the customers into a table of `plans`. The files are read again if one of
    /// them changes meanwhile.
    ///
    /// # Errors
    ///
    /// All problems, one text each, with the setting and the path.
    pub(super) fn read(&self, plans: &Plans) -> Result<(PlanBook, CustomerTable), Vec<String>> {
        let stamps = || self.paths().iter().map(|path| stamp(path)).collect::<Vec<_>>();
        for _ in 0..READINGS_MAX {
            let before = stamps();
            let read = self.read_once(plans);
            if stamps() == before {
                return read;
            }
        }
        let what = "the files of plans change while they are read";
        let problem = problem("plans.file", &self.file, &what);
        Err(vec![format!("{problem}; put a new file in place by renaming it")])
    }

    /// The problem of a file without plans, while this number of plans is active.
    pub(super) fn without_plans(&self, active: usize) -> String {
        let what = format!("no plans, and {active} are active");
        let problem = problem("plans.file", &self.file, &what);
        format!("{problem}; write plans, or send SIGHUP to remove all of them")
    }

    fn read_once(&self, plans: &Plans) -> Result<(PlanBook, CustomerTable), Vec<String>> {
        let path = &self.file;
        let of_file = |what: &dyn std::fmt::Display| vec![problem("plans.file", path, what)];
        let bytes = bounded_file::read_up_to(path, FILE_BYTES_MAX);
        let bytes = bytes.map_err(|error| of_file(&error))?;
        let text = String::from_utf8(bytes)
            .map_err(|_| of_file(&"it is not UTF-8 text; save the file as UTF-8"))?;
        let (book, customers) = PlanBook::parse_yaml(&text, &path.to_string_lossy())
            .map_err(|problems| texts(&problems))?;
        let lines = match &self.customers_file {
            Some(path) => self.count(path).map_err(|what| of_customers(path, &what))?,
            None => 0,
        };
        let room = lines.saturating_add(customers.len()).min(self.max_customers);
        let mut table = plans.table(&book, room);
        if let Some(path) = &self.customers_file {
            let file = open(path).map_err(|what| of_customers(path, &what))?;
            load_customers(file, &mut table).map_err(|error| of_customers(path, &error))?;
        }
        // After those of the other file, so that they take precedence.
        for (customer, plan) in &customers {
            table.add(customer, plan).map_err(|what| of_file(&what))?;
        }
        let table = table.finish();
        Ok((book, table))
    }

    /// The number of lines of the customers' file, if it is not too large.
    fn count(&self, path: &Path) -> Result<usize, String> {
        let bytes_max = (self.max_customers as u64).saturating_mul(LINE_BYTES);
        let bytes = fs::metadata(path).map_err(|error| error.to_string())?.len();
        if bytes > bytes_max.saturating_add(BUFFER_BYTES as u64) {
            return Err(format!("{bytes} bytes are too many customers; raise plans.max_customers"));
        }
        let lines = BufReader::with_capacity(BUFFER_BYTES, open(path)?);
        count_lines(lines).map_err(|error| error.to_string())
    }
}

/// Opens a regular file.
fn open(path: &Path) -> Result<File, String> {
    // Checked before, because opening a named pipe would wait for a writer.
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    File::open(path).map_err(|error| error.to_string())
}

fn stamp(path: &Path) -> Option<FileStamp> {
    let about = fs::metadata(path).ok()?;
    let (device, inode, bytes) = (about.dev(), about.ino(), about.len());
    Some(FileStamp { device, inode, bytes, modified: (about.mtime(), about.mtime_nsec()) })
}

fn of_customers(path: &Path, what: &dyn std::fmt::Display) -> Vec<String> {
    vec![problem("plans.customers_file", path, what)]
}

fn problem(setting: &str, path: &Path, what: &dyn std::fmt::Display) -> String {
    let text = format!("{setting}: {}: {what}", path.display());
    one_line(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plans::PlansConfig;

    const PLANS: &str = "plans: { free: { calls: 1 } }\ncustomers: { acme: free }\n";

    /// Files in a folder, and the result of reading them.
    struct Fixture {
        folder: tempfile::TempDir,
        files: PlanFiles,
    }

    impl Fixture {
        fn new(plans: &str, customers: Option<&[u8]>, max_customers: usize) -> Fixture {
            let folder = tempfile::tempdir().expect("a temporary folder");
            let path = |name: &str| folder.path().join(name);
            fs::write(path("plans.yaml"), plans).expect("a file");
            if let Some(bytes) = customers {
                fs::write(path("customers.csv"), bytes).expect("a file");
            }
            let customers_file = customers.map(|_| path("customers.csv"));
            let files = PlanFiles { file: path("plans.yaml"), customers_file, max_customers };
            Fixture { folder, files }
        }

        /// The numbers of plans and of customers, or the first problem without the folder.
        fn read(&self) -> Result<(usize, usize), String> {
            let config = PlansConfig { max_customers: 10, asks_per_customer: false };
            let read = self.files.read(&Plans::new(config));
            let folder = format!("{}/", self.folder.path().display());
            read.map(|(book, table)| (book.len(), table.len()))
                .map_err(|problems| problems[0].replace(&folder, ""))
        }
    }

    #[test]
    fn plans_and_customers_of_both_files_are_read() {
        for (customers, number) in [(None, 1), (Some(&b"a,free\nb,free\n"[..]), 3)] {
            assert_eq!(Fixture::new(PLANS, customers, 10).read(), Ok((1, number)));
        }
        let doubled = Fixture::new(PLANS, Some(&b"acme,gone\n"[..]), 10);
        let config = PlansConfig { max_customers: 10, asks_per_customer: false };
        let (_, table) = doubled.files.read(&Plans::new(config)).expect("valid");
        assert_eq!(table.len(), 1, "plans.file takes precedence");
    }

    #[test]
    fn problems_name_the_setting_and_the_place() {
        let large = vec![b'\n'; 10 * 256 + (1 << 20) + 1];
        for (plans, customers, problem) in [
            ("plans: 5", None, "plans.yaml:1:8: `plans` must be a map"),
            (
                PLANS,
                Some(&b"a,free\nb\n"[..]),
                "plans.customers_file: customers.csv: line 2: the plan is missing",
            ),
            (PLANS, Some(&b"1,a\n2,a\n3,a\n4,a\n5,a\n6,a\n7,a\n8,a\n9,a\n10,a\n11,a\n"[..]), {
                "plans.customers_file: customers.csv: line 11: more than 10 customers; raise \
                 plans.max_customers"
            }),
            (PLANS, Some(&b"1,a\n2,a\n3,a\n4,a\n5,a\n6,a\n7,a\n8,a\n9,a\n10,a\n"[..]), {
                "plans.file: plans.yaml: more than 10 customers; raise plans.max_customers"
            }),
            (PLANS, Some(&large[..]), "are too many customers; raise plans.max_customers"),
        ] {
            let found = Fixture::new(plans, customers, 10).read().expect_err(problem);
            assert!(found.contains(problem), "{found}");
        }
        let fixture = Fixture::new(PLANS, Some(&b""[..]), 10);
        fs::remove_file(fixture.folder.path().join("customers.csv")).expect("it exists");
        let found = fixture.read().expect_err("it is gone");
        assert!(found.starts_with("plans.customers_file: customers.csv: No such file"), "{found}");
        fs::remove_file(fixture.folder.path().join("plans.yaml")).expect("it exists");
        let found = fixture.read().expect_err("it is gone");
        assert!(found.starts_with("plans.file: plans.yaml: No such file"), "{found}");
        fs::create_dir(fixture.folder.path().join("plans.yaml")).expect("a folder");
        let found = fixture.read().expect_err("a folder");
        assert!(found.contains("it is not a regular file"), "{found}");
    }

    #[test]
    fn the_digest_changes_with_either_file() {
        let fixture = Fixture::new(PLANS, Some(&b"a,free\n"[..]), 10);
        let first = fixture.files.digest();
        assert_eq!(fixture.files.digest(), first);
        let path = |name: &str| fixture.folder.path().join(name);
        fs::write(path("customers.csv"), "a,free\nb,free\n").expect("a file");
        let second = fixture.files.digest();
        assert_ne!(second, first);
        fs::write(path("plans.yaml"), "plans: {}").expect("a file");
        let third = fixture.files.digest();
        assert!(third != second && third != first);
        // The same size, as a file of the same length that was renamed over it.
        fs::write(path("next.csv"), "a,free\nc,free\n").expect("a file");
        fs::rename(path("next.csv"), path("customers.csv")).expect("a rename");
        assert_ne!(fixture.files.digest(), third);
    }
}
