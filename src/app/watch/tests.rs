//! Tests of the watcher on a real file system, with writes, renames, links and folders.

use std::fs::{self, create_dir, create_dir_all, read_to_string, remove_dir_all, rename, write};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use tempfile::TempDir;

use super::*;

/// Far longer than the detection of any change takes.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Longer than any test: half of the largest number of microseconds.
const NEVER: Micros = Micros(u64::MAX / 2);

/// Events without polls, and polls without events: together, one could hide that the other fails.
const BY_EVENTS: Timing =
    Timing { quiet: Micros(20_000), longest: Micros::SECOND, poll: NEVER, poll_degraded: NEVER };
const BY_POLLS: Timing = Timing {
    quiet: Micros(20_000),
    longest: Micros::SECOND,
    poll: Micros(20_000),
    poll_degraded: Micros(20_000),
};

/// A watched path, and its content after each reported change, as text.
struct Fixture {
    _watcher: Watcher,
    changes: Receiver<String>,
    _folder: TempDir,
    root: PathBuf,
}

/// Everything at `path`, as one text: `name=content` of each file, without dot names.
fn seen(path: &Path) -> String {
    if let Ok(text) = read_to_string(path) {
        return text;
    }
    let Ok(entries) = fs::read_dir(path) else { return "missing".to_owned() };
    let mut names: Vec<_> = entries.flatten().map(|entry| entry.file_name()).collect();
    names.sort();
    let shown = names.iter().filter_map(|name| name.to_str()).filter(|name| !name.starts_with('.'));
    shown.map(|name| format!("{name}={} ", seen(&path.join(name)))).collect()
}

fn digest(path: &Path) -> Digest {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    seen(path).hash(&mut hasher);
    hasher.finish()
}

impl Fixture {
    /// Watches `watched` below a new folder that `lay` has filled.
    fn new(watched: &str, timing: Timing, lay: impl FnOnce(&Path)) -> Fixture {
        let folder = TempDir::new().expect("a temporary folder");
        let root = folder.path().canonicalize().expect("it exists");
        lay(&root);
        let path = root.join(watched);
        let (report, changes) = channel();
        let (looked, shown, known) = (path.clone(), path.clone(), digest(&path));
        // The first check comes after the thread has set up its watches.
        let (listening, listens) = channel();
        let look = move || {
            let digest = digest(&looked);
            let _ = listening.send(());
            digest
        };
        let changed = move || {
            let _ = report.send(seen(&shown));
        };
        let watcher = Watcher::start("watch-test", vec![path], timing, known, look, changed);
        let watcher = watcher.expect("a thread");
        listens.recv_timeout(TIMEOUT).expect("the first look");
        Fixture { _watcher: watcher, changes, _folder: folder, root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Waits until the watcher has reported a state that `holds`.
    fn wait_for(&self, what: &str, holds: impl Fn(&str) -> bool) {
        let mut last = None;
        while !last.as_deref().is_some_and(&holds) {
            let state = self.changes.recv_timeout(TIMEOUT);
            last = Some(state.unwrap_or_else(|_| panic!("{what}: the last state was {last:?}")));
        }
    }
}

/// A change of content: the watched path, the files before, the change, and the content after.
struct Change {
    name: &'static str,
    watched: &'static str,
    lay: fn(&Path),
    change: fn(&Path),
    seen: &'static str,
}

fn put(path: PathBuf, text: &str) {
    write(&path, text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
}

fn folder_with_a(root: &Path) {
    create_dir(root.join("d")).expect("a folder");
    put(root.join("d/a"), "1");
}

fn config_map(root: &Path) {
    create_dir_all(root.join("d/..1")).expect("a folder");
    put(root.join("d/..1/a"), "1");
    symlink("..1", root.join("d/..data")).expect("a link");
    symlink("..data/a", root.join("d/a")).expect("a link");
}

/// Updates a ConfigMap as the kubelet does: creates a new folder, creates a new link beside the old
/// one, renames the link, deletes the old folder.
fn next_config_map(root: &Path) {
    create_dir(root.join("d/..2")).expect("a folder");
    put(root.join("d/..2/a"), "2");
    symlink("..2", root.join("d/..data_tmp")).expect("a link");
    rename(root.join("d/..data_tmp"), root.join("d/..data")).expect("a rename");
    remove_dir_all(root.join("d/..1")).expect("the old one");
}

const CHANGES: [Change; 13] = [
    Change {
        name: "written in place",
        watched: "d",
        lay: folder_with_a,
        change: |root| put(root.join("d/a"), "2"),
        seen: "a=2 ",
    },
    Change {
        name: "renamed over",
        watched: "d",
        lay: folder_with_a,
        change: |root| {
            put(root.join("new"), "2");
            rename(root.join("new"), root.join("d/a")).expect("a rename");
        },
        seen: "a=2 ",
    },
    Change {
        name: "added",
        watched: "d",
        lay: folder_with_a,
        change: |root| put(root.join("d/b"), "2"),
        seen: "a=1 b=2 ",
    },
    Change {
        name: "deleted",
        watched: "d",
        lay: folder_with_a,
        change: |root| fs::remove_file(root.join("d/a")).expect("it is there"),
        seen: "",
    },
    Change {
        name: "in a new folder below",
        watched: "d",
        lay: folder_with_a,
        change: |root| {
            create_dir_all(root.join("d/e/f")).expect("folders");
            put(root.join("d/e/f/b"), "2");
        },
        seen: "a=1 e=f=b=2   ",
    },
    Change {
        name: "folder replaced",
        watched: "d",
        lay: folder_with_a,
        change: |root| {
            create_dir(root.join("new")).expect("a folder");
            put(root.join("new/a"), "2");
            rename(root.join("d"), root.join("old")).expect("a rename");
            rename(root.join("new"), root.join("d")).expect("a rename");
        },
        seen: "a=2 ",
    },
    Change {
        name: "folder of the folder replaced",
        watched: "x/d",
        lay: |root| {
            create_dir(root.join("x")).expect("a folder");
            folder_with_a(&root.join("x"));
        },
        change: |root| {
            create_dir_all(root.join("new/d")).expect("folders");
            put(root.join("new/d/a"), "2");
            rename(root.join("x"), root.join("old")).expect("a rename");
            rename(root.join("new"), root.join("x")).expect("a rename");
        },
        seen: "a=2 ",
    },
    Change {
        name: "made after the watcher",
        watched: "d/e",
        lay: |_| {},
        change: |root| {
            create_dir_all(root.join("d/e")).expect("folders");
            put(root.join("d/e/a"), "1");
        },
        seen: "a=1 ",
    },
    Change {
        name: "ConfigMap",
        watched: "d",
        lay: config_map,
        change: next_config_map,
        seen: "a=2 ",
    },
    Change {
        name: "one file of a ConfigMap",
        watched: "d/a",
        lay: config_map,
        change: next_config_map,
        seen: "2",
    },
    Change {
        name: "root link swapped",
        watched: "current/sub/d",
        lay: |root| {
            create_dir_all(root.join("v1/sub")).expect("folders");
            folder_with_a(&root.join("v1/sub"));
            symlink("v1", root.join("current")).expect("a link");
        },
        change: |root| {
            create_dir_all(root.join("v2/sub/d")).expect("folders");
            put(root.join("v2/sub/d/a"), "2");
            symlink("v2", root.join("next")).expect("a link");
            rename(root.join("next"), root.join("current")).expect("a rename");
        },
        seen: "a=2 ",
    },
    Change {
        name: "written behind a link to a file",
        watched: "d",
        lay: |root| {
            create_dir_all(root.join("far")).expect("a folder");
            create_dir_all(root.join("d")).expect("a folder");
            put(root.join("far/a"), "1");
            symlink(root.join("far/a"), root.join("d/a")).expect("a link");
        },
        change: |root| put(root.join("far/a"), "2"),
        seen: "a=2 ",
    },
    Change {
        name: "by an editor that writes beside it",
        watched: "d",
        lay: folder_with_a,
        change: |root| {
            put(root.join("d/.a.swp"), "scratch");
            put(root.join("d/.a.new"), "2");
            rename(root.join("d/.a.new"), root.join("d/a")).expect("a rename");
            fs::remove_file(root.join("d/.a.swp")).expect("it is there");
        },
        seen: "a=2 ",
    },
];

#[test]
fn every_change_is_seen_by_events_and_by_polls() {
    for timing in [BY_EVENTS, BY_POLLS] {
        for change in &CHANGES {
            let fixture = Fixture::new(change.watched, timing, change.lay);
            (change.change)(&fixture.root);
            let what = format!("{}, {timing:?}", change.name);
            fixture.wait_for(&what, |now| now == change.seen);
        }
    }
}

#[test]
fn a_recreated_folder_is_watched_again() {
    let fixture = Fixture::new("d", BY_EVENTS, folder_with_a);
    for round in 0..5 {
        remove_dir_all(fixture.path("d")).expect("it is there");
        fixture.wait_for("removed", |now| now == "missing");
        create_dir(fixture.path("d")).expect("a folder");
        fixture.wait_for("made", |now| now.is_empty());
        let text = format!("{round}");
        put(fixture.path("d/a"), &text);
        fixture.wait_for("written", |now| now == format!("a={text} "));
        put(fixture.path("d/a"), "again");
        fixture.wait_for("written in place", |now| now == "a=again ");
    }
}

#[test]
fn repeated_config_map_swaps_are_seen() {
    let fixture = Fixture::new("d", BY_EVENTS, config_map);
    for round in 2..6 {
        let [old, new] = [round - 1, round].map(|number| fixture.path(&format!("d/..{number}")));
        create_dir(&new).expect("a folder");
        put(new.join("a"), &round.to_string());
        symlink(&new, fixture.path("d/..data_tmp")).expect("a link");
        rename(fixture.path("d/..data_tmp"), fixture.path("d/..data")).expect("a rename");
        remove_dir_all(old).expect("the old one");
        fixture.wait_for("swapped", |now| now == format!("a={round} "));
    }
}

#[test]
fn a_touch_is_not_a_change() {
    let fixture = Fixture::new("d", BY_EVENTS, folder_with_a);
    // By renaming, which is atomic.
    let swap = |name: &str, text: &str| {
        put(fixture.path("new"), text);
        rename(fixture.path("new"), fixture.path(name)).expect("a rename");
    };
    swap("d/a", "1");
    swap("d/.hidden", "x");
    let file = fs::File::open(fixture.path("d/a")).expect("it is there");
    file.set_modified(std::time::SystemTime::UNIX_EPOCH).expect("a touch");
    swap("d/b", "2");
    let first = fixture.changes.recv_timeout(TIMEOUT).expect("reported");
    assert_eq!(first, "a=1 b=2 ");
}

#[test]
fn a_change_before_the_start_is_reported() {
    let folder = TempDir::new().expect("a temporary folder");
    let file = folder.path().join("a");
    put(file.clone(), "1");
    let known = contents(std::slice::from_ref(&file));
    put(file.clone(), "2");
    let (report, changes) = channel();
    let changed = move || {
        let _ = report.send(());
    };
    let _watcher = Watcher::of_files("watch-test", vec![file.clone()], known, changed);
    changes.recv_timeout(TIMEOUT).expect("reported");
    put(file, "3");
    changes.recv_timeout(TIMEOUT).expect("reported again");
}

#[test]
fn a_dropped_watcher_ends() {
    let fixture = Fixture::new("d", BY_EVENTS, folder_with_a);
    let Fixture { _watcher: watcher, changes, .. } = fixture;
    drop(watcher);
    // The thread owns the other end.
    assert!(
        changes
            .recv_timeout(TIMEOUT)
            .is_err_and(|error| { error == std::sync::mpsc::RecvTimeoutError::Disconnected })
    );
}
