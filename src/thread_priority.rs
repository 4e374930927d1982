//! The priority of a thread.

/// By how much a thread is lowered, in the steps of nice(1). On a processor that another thread wants too,
/// ten steps leave about a tenth of the time (sched(7)), so the work still progresses on a busy machine.
#[cfg(target_os = "linux")]
const STEPS: i32 = 10;

/// Lowers the priority of the calling thread and of the threads that it starts from now on, for long work
/// that no call waits for. If the system refuses, the thread keeps its priority.
///
/// On systems other than Linux, a priority is that of the whole process, so nothing is changed there.
pub(crate) fn lower() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::nice(STEPS);
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn only_the_calling_thread_is_lowered() {
        let priority = || rustix::process::getpriority_process(None).unwrap();
        let before = priority();
        let lowered = std::thread::spawn(move || {
            super::lower();
            priority()
        });
        assert_eq!(lowered.join().unwrap(), (before + super::STEPS).min(19));
        assert_eq!(priority(), before);
    }
}
