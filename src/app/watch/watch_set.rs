//! The watch set: every path that may change together with the watched content.
//!
//! It contains every folder and link on the way to a watched path, the targets of links, and every
//! folder below the path. Every change of the content is an event at one of these paths: a swapped
//! link, a folder that is created, replaced or removed, and a write to a file.

use std::collections::{BTreeSet, VecDeque};
use std::ffi::OsString;
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Links followed on the way to one path; Linux has the same bound.
const LINKS_MAX: usize = 40;
/// Deepest folder below a watched one.
const DEPTH_MAX: usize = 16;
/// Most watched paths.
const PATHS_MAX: usize = 8_192;

/// The paths to watch.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WatchSet {
    /// Files and folders to watch.
    pub(super) paths: BTreeSet<PathBuf>,
    /// Paths of single entries of watched folders. An event at one of them may change the content.
    names: BTreeSet<PathBuf>,
    /// Watched folders in which an event at any entry may change the content.
    folders: BTreeSet<PathBuf>,
    /// Whether there are more paths than [`PATHS_MAX`].
    pub(super) incomplete: bool,
}

impl WatchSet {
    /// The watch set of `paths` as they exist now.
    pub(super) fn under(paths: &[PathBuf]) -> WatchSet {
        let mut watch_set = WatchSet::default();
        for path in paths {
            // Fails only without a working directory, and for the empty path.
            let Ok(path) = std::path::absolute(path) else { continue };
            let Some(real) = watch_set.follow(&path) else { continue };
            if real.is_dir() {
                watch_set.folder(real, 0);
            } else {
                // A file that is mounted alone causes no event in its folder.
                watch_set.add(real);
            }
        }
        watch_set
    }

    /// Whether an event at `path` may change the content.
    pub(super) fn contains_event(&self, path: &Path) -> bool {
        self.names.contains(path)
            || self.paths.contains(path)
            || path.parent().is_some_and(|parent| self.folders.contains(parent))
    }

    fn add(&mut self, path: PathBuf) {
        if self.paths.len() < PATHS_MAX {
            self.paths.insert(path);
        } else {
            self.incomplete = true;
        }
    }

    /// Resolves `path` link by link. None if it does not exist.
    fn follow(&mut self, path: &Path) -> Option<PathBuf> {
        let mut here = PathBuf::new();
        let mut ahead: VecDeque<OsString> = path.components().map(to_owned).collect();
        let mut links = 0;
        while let Some(next) = ahead.pop_front() {
            match Path::new(&next).components().next() {
                Some(Component::RootDir | Component::Prefix(_)) => {
                    here = PathBuf::from(next);
                    continue;
                }
                Some(Component::ParentDir) => {
                    here.pop();
                    continue;
                }
                Some(Component::CurDir) | None => continue,
                Some(Component::Normal(_)) => {}
            }
            let there = here.join(&next);
            self.add(here.clone());
            self.names.insert(there.clone());
            let about = fs::symlink_metadata(&there).ok()?;
            if about.is_symlink() {
                links += 1;
                if links > LINKS_MAX {
                    return None;
                }
                let target = fs::read_link(&there).ok()?;
                for component in target.components().rev() {
                    ahead.push_front(to_owned(component));
                }
            } else {
                here = there;
            }
        }
        Some(here)
    }

    /// Adds a folder and everything below it, except names that start with a dot.
    fn folder(&mut self, path: PathBuf, depth: usize) {
        self.add(path.clone());
        if depth > DEPTH_MAX || self.incomplete || !self.folders.insert(path.clone()) {
            return;
        }
        let Ok(entries) = fs::read_dir(&path) else { return };
        for entry in entries.flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            } else if kind.is_dir() {
                self.folder(entry.path(), depth + 1);
            } else if kind.is_symlink() && self.names.len() < PATHS_MAX {
                self.follow(&entry.path());
            }
        }
    }
}

fn to_owned(component: Component<'_>) -> OsString {
    component.as_os_str().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_a_config_map_are_watched() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        let path = |name: &str| root.join(name);
        fs::create_dir_all(path("mount/..1")).expect("a folder");
        fs::create_dir_all(path("mount/sub/.git")).expect("a folder");
        fs::write(path("mount/..1/a.yaml"), "").expect("a file");
        symlink("..1", path("mount/..data")).expect("a link");
        symlink("..data/a.yaml", path("mount/a.yaml")).expect("a link");
        symlink("mount", path("link")).expect("a link");

        let watch_set = WatchSet::under(&[path("link")]);
        for watched in ["", "mount", "mount/..1", "mount/sub"] {
            assert!(watch_set.paths.contains(&root.join(watched)), "{watched}: {watch_set:#?}");
        }
        assert!(!watch_set.paths.contains(&path("mount/sub/.git")));
        for concerns in ["link", "mount", "mount/..data", "mount/b.yaml", "mount/sub/c.yaml"] {
            assert!(watch_set.contains_event(&path(concerns)), "{concerns}");
        }
        assert!(watch_set.contains_event(&path("mount/..1/a.yaml")), "the file behind the links");
        assert!(!watch_set.contains_event(&path("other")), "a neighbour is not watched");

        let file = WatchSet::under(&[path("mount/a.yaml")]);
        assert!(file.paths.contains(&path("mount/..1/a.yaml")), "the file itself");
        assert!(file.contains_event(&path("mount/..data")));
        assert!(!file.contains_event(&path("mount/b.yaml")), "a neighbour is not watched");
    }

    #[test]
    fn the_existing_part_of_a_path_is_watched() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        let watch_set = WatchSet::under(&[root.join("a/b/c.yaml")]);
        assert!(watch_set.paths.contains(&root));
        assert!(watch_set.contains_event(&root.join("a")));
        assert!(!watch_set.contains_event(&root.join("b")));
    }

    #[test]
    fn circular_links_end() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        symlink("b", root.join("a")).expect("a link");
        symlink("a", root.join("b")).expect("a link");
        let watch_set = WatchSet::under(&[root.join("a")]);
        assert!(watch_set.contains_event(&root.join("b")));
        symlink(".", root.join("self")).expect("a link");
        assert!(WatchSet::under(&[root.join("self")]).paths.contains(&root));
    }
}
