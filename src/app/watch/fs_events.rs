//! File system events: the system's file notifications, as far as it has any to give.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use arc_swap::ArcSwap;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::watch_set::WatchSet;

/// Hears about places, and wakes whoever waits when one of them is in the watch set.
pub(super) struct FsEvents {
    watcher: Option<RecommendedWatcher>,
    places: BTreeSet<PathBuf>,
    /// Some place is not heard.
    degraded: bool,
    /// It was said that some place is not heard.
    complained: bool,
}

impl FsEvents {
    /// Watches nothing yet.
    pub(super) fn open(watch_set: Arc<ArcSwap<WatchSet>>, wake: SyncSender<()>) -> FsEvents {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| concerns(&watch_set.load(), &event)) {
                let _ = wake.try_send(());
            }
        });
        let mut events =
            FsEvents { watcher: None, places: BTreeSet::new(), degraded: true, complained: false };
        match watcher {
            Ok(watcher) => (events.watcher, events.degraded) = (Some(watcher), false),
            Err(error) => events.complain(&error),
        }
        events
    }

    /// They hear all that there is to hear.
    pub(super) fn is_complete(&self) -> bool {
        !self.degraded
    }

    /// Watches `watch_set` from now on, and nothing else.
    pub(super) fn watch(&mut self, watch_set: &WatchSet) {
        let Some(watcher) = &mut self.watcher else { return };
        for place in self.places.difference(&watch_set.places) {
            // It may have gone, and its watch with it.
            let _ = watcher.unwatch(place);
        }
        let mut failure = None;
        for place in &watch_set.places {
            // Those that are heard as well: a folder of the same name may be another one now.
            if let Err(error) = watcher.watch(place, RecursiveMode::NonRecursive)
                && !is_harmless(&error)
            {
                failure = Some(error);
            }
        }
        self.places.clone_from(&watch_set.places);
        self.degraded = failure.is_some() || watch_set.incomplete;
        match failure {
            Some(error) => self.complain(&error),
            None => self.complained = false,
        }
    }

    fn complain(&mut self, error: &notify::Error) {
        if !self.complained {
            tracing::warn!(
                %error,
                "no file notifications: watched files are read every second instead"
            );
        }
        self.complained = true;
    }
}

/// What has gone will be looked for again, and what may not be listened to does not change often:
/// the way to a folder, such as another user's home.
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

fn concerns(watch_set: &WatchSet, event: &Event) -> bool {
    match event.kind {
        // Our own looks are such events.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    // Without a path it tells that others were lost.
    event.paths.is_empty() || event.paths.iter().any(|path| watch_set.contains_event(path))
}
