//! File system events (inotify on Linux), filtered by the watch set.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use arc_swap::ArcSwap;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::watch_set::WatchSet;

/// A source of events that wakes the watcher when an event is in the watch set.
pub(super) struct FsEvents {
    watcher: Option<RecommendedWatcher>,
    paths: BTreeSet<PathBuf>,
    /// Whether some path has no working watch.
    degraded: bool,
    /// Whether the degraded state has been logged.
    logged: bool,
}

impl FsEvents {
    /// A source of events without watched paths.
    pub(super) fn open(watch_set: Arc<ArcSwap<WatchSet>>, wake: SyncSender<()>) -> FsEvents {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| is_relevant(&watch_set.load(), &event)) {
                let _ = wake.try_send(());
            }
        });
        let mut events =
            FsEvents { watcher: None, paths: BTreeSet::new(), degraded: true, logged: false };
        match watcher {
            Ok(watcher) => (events.watcher, events.degraded) = (Some(watcher), false),
            Err(error) => events.log_degraded(&error),
        }
        events
    }

    /// Whether every watched path has a working watch.
    pub(super) fn is_complete(&self) -> bool {
        !self.degraded
    }

    /// Watches `watch_set` from now on, and nothing else.
    pub(super) fn watch(&mut self, watch_set: &WatchSet) {
        let Some(watcher) = &mut self.watcher else { return };
        for path in self.paths.difference(&watch_set.paths) {
            // An error is harmless: a path that was deleted has lost its watch already.
            let _ = watcher.unwatch(path);
        }
        let mut failure = None;
        for path in &watch_set.paths {
            // Also for known paths: another folder of the same name may have replaced one.
            if let Err(error) = watcher.watch(path, RecursiveMode::NonRecursive)
                && !is_harmless(&error)
            {
                failure = Some(error);
            }
        }
        self.paths.clone_from(&watch_set.paths);
        self.degraded = failure.is_some() || watch_set.incomplete;
        match failure {
            Some(error) => self.log_degraded(&error),
            None => self.logged = false,
        }
    }

    fn log_degraded(&mut self, error: &notify::Error) {
        if !self.logged {
            tracing::warn!(
                %error,
                "no file notifications: watched files are read every second"
            );
        }
        self.logged = true;
    }
}

/// Whether the error does not degrade the watch. A missing path is looked up again. A path without
/// permission, such as another user's home on the way to a folder, rarely changes.
fn is_harmless(error: &notify::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    match &error.kind {
        notify::ErrorKind::PathNotFound => true,
        notify::ErrorKind::Io(error) => {
            matches!(error.kind(), NotFound | NotADirectory | PermissionDenied)
        }
        _ => false,
    }
}

fn is_relevant(watch_set: &WatchSet, event: &Event) -> bool {
    match event.kind {
        // The watcher's own reads cause such events.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    // An event without a path reports that others were lost.
    event.paths.is_empty() || event.paths.iter().any(|path| watch_set.contains_event(path))
}
