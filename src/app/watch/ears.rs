//! The ears: the system's file notifications, as far as it has any to give.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use arc_swap::ArcSwap;
use notify::event::{AccessKind, AccessMode};
use notify::{Event, EventKind, RecommendedWatcher, RecursiveMode, Watcher};

use super::ground::Ground;

/// Hears about places, and wakes whoever waits when one of them concerns the ground.
pub(super) struct Ears {
    watcher: Option<RecommendedWatcher>,
    places: BTreeSet<PathBuf>,
    /// Some place is not heard.
    deaf: bool,
    /// It was said that some place is not heard.
    complained: bool,
}

impl Ears {
    /// Ears that hear nothing yet.
    pub(super) fn open(ground: Arc<ArcSwap<Ground>>, wake: SyncSender<()>) -> Ears {
        let watcher = notify::recommended_watcher(move |event: notify::Result<Event>| {
            if event.map_or(true, |event| concerns(&ground.load(), &event)) {
                let _ = wake.try_send(());
            }
        });
        let mut ears =
            Ears { watcher: None, places: BTreeSet::new(), deaf: true, complained: false };
        match watcher {
            Ok(watcher) => (ears.watcher, ears.deaf) = (Some(watcher), false),
            Err(error) => ears.complain(&error),
        }
        ears
    }

    /// They hear all that there is to hear.
    pub(super) fn are_sharp(&self) -> bool {
        !self.deaf
    }

    /// Hears `ground` from now on, and nothing else.
    pub(super) fn turn_to(&mut self, ground: &Ground) {
        let Some(watcher) = &mut self.watcher else { return };
        for place in self.places.difference(&ground.places) {
            // It may have gone, and its watch with it.
            let _ = watcher.unwatch(place);
        }
        let mut failure = None;
        for place in &ground.places {
            // Those that are heard as well: a folder of the same name may be another one now.
            if let Err(error) = watcher.watch(place, RecursiveMode::NonRecursive)
                && !is_harmless(&error)
            {
                failure = Some(error);
            }
        }
        self.places.clone_from(&ground.places);
        self.deaf = failure.is_some() || ground.incomplete;
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

fn concerns(ground: &Ground, event: &Event) -> bool {
    match event.kind {
        // Our own looks are such events.
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => {}
        EventKind::Access(_) => return false,
        _ => {}
    }
    // Without a path it tells that others were lost.
    event.paths.is_empty() || event.paths.iter().any(|path| ground.concerns(path))
}
