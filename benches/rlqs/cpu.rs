//! CPU time by the scheduler's count, in seconds with nanosecond resolution.
//!
//! Linux brings the count of a thread up to date when it sleeps, and otherwise a few times per hundredth of
//! a second. A reading right after a sleep is exact.

use std::fs::{read_dir, read_to_string};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Context;

/// A sleep that brings the count up to date.
const NAP: Duration = Duration::from_micros(200);

/// Sleeps of which [`nap_cost`] is the mean.
const NAPS: u32 = 500;

/// CPU time of the calling thread, after a short sleep.
pub(crate) fn of_this_thread() -> anyhow::Result<f64> {
    thread::sleep(NAP);
    of_task(Path::new("/proc/thread-self"))
}

/// What one call of [`of_this_thread`] itself adds to the count.
pub(crate) fn nap_cost() -> anyhow::Result<f64> {
    let before = of_this_thread()?;
    let mut after = before;
    for _ in 0..NAPS {
        after = of_this_thread()?;
    }
    Ok((after - before) / f64::from(NAPS))
}

/// CPU time of the living threads of this process with one of `names`.
pub(crate) fn of_threads(names: &[&str]) -> anyhow::Result<f64> {
    sum("/proc/self/task", |name| names.contains(&name))
}

/// CPU time of the living threads of a process.
pub(crate) fn of_process(process: u32) -> anyhow::Result<f64> {
    sum(&format!("/proc/{process}/task"), |_| true)
}

fn sum(tasks: &str, is_counted: impl Fn(&str) -> bool) -> anyhow::Result<f64> {
    let mut seconds = 0.0;
    for task in read_dir(tasks)? {
        let task = task?.path();
        // A thread may have ended meanwhile.
        let Ok(name) = read_to_string(task.join("comm")) else { continue };
        if is_counted(name.trim_end()) {
            seconds += of_task(&task)?;
        }
    }
    Ok(seconds)
}

fn of_task(task: &Path) -> anyhow::Result<f64> {
    let text = read_to_string(task.join("schedstat"))?;
    Ok(text.split(' ').next().context("a first number")?.parse::<f64>()? / 1e9)
}
