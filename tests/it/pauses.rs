//! `make pauses`: what benches/pauses.py reads from a trace, and how its processes end.

use serde_json::json;

use crate::python::{printed, python};

/// Three turns of a core thread. In the first one, other tasks run from 10.25 s to 10.5 s. A switch from one
/// of them has its name, which has spaces. In the third one, it waits from 13.25 s until another core thread
/// ends that at 13.75 s, and it runs at 13.8125 s. The other one had no processor from 13.375 s to 13.5 s,
/// and waited for a sixteenth of a second itself. The second wait of this turn ends before the trace has its
/// begin, so it is time of other tasks.
const TRACE: &str = "\
   weir-worker-0  101    10.000000: syscalls:sys_exit_epoll_wait: 0x1
   weir-worker-0  101    10.250000:   sched:sched_switch: prev_comm=weir-worker-0 prev_pid=101 \
prev_prio=120 prev_state=R ==> next_comm=Web Content 2 next_pid=7 next_prio=120
   Web Content 2    7    10.500000:   sched:sched_switch: prev_comm=Web Content 2 prev_pid=7 \
prev_prio=120 prev_state=S ==> next_comm=weir-worker-0 next_pid=101 next_prio=120
   weir-worker-0  101    11.000000: syscalls:sys_enter_epoll_wait: epfd: 0x5
   Web Content 2    7    11.500000: PERF_RECORD_LOST lost 3
   weir-worker-0  101    12.000000: syscalls:sys_exit_epoll_wait: 0x1
   weir-worker-0  101    12.125000: syscalls:sys_enter_epoll_wait: epfd: 0x5
   swapper          0    12.500000: PERF_RECORD_LOST lost 40
   weir-worker-0  101    13.000000: syscalls:sys_exit_epoll_wait: 0x1
   weir-worker-0  101    13.249999: syscalls:sys_enter_futex: uaddr: 0x7, op: 0x80
   weir-worker-0  101    13.250000:   sched:sched_switch: prev_comm=weir-worker-0 prev_pid=101 \
prev_prio=120 prev_state=S ==> next_comm=swapper next_pid=0 next_prio=120
   weir-worker-1  102    13.375000:   sched:sched_switch: prev_comm=weir-worker-1 prev_pid=102 \
prev_prio=120 prev_state=R+ ==> next_comm=Web Content 2 next_pid=7 next_prio=120
   Web Content 2    7    13.500000:   sched:sched_switch: prev_comm=Web Content 2 prev_pid=7 \
prev_prio=120 prev_state=S ==> next_comm=weir-worker-1 next_pid=102 next_prio=120
   weir-worker-1  102    13.562500:   sched:sched_switch: prev_comm=weir-worker-1 prev_pid=102 \
prev_prio=120 prev_state=D ==> next_comm=swapper next_pid=0 next_prio=120
         swapper    0    13.625000: sched:sched_waking: comm=weir-worker-1 pid=102 prio=120 \
target_cpu=001
         swapper    0    13.625000:   sched:sched_switch: prev_comm=swapper prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=weir-worker-1 next_pid=102 next_prio=120
   weir-worker-1  102    13.750000: sched:sched_waking: comm=weir-worker-0 pid=101 prio=120 \
target_cpu=000
         swapper    0    13.812500:   sched:sched_switch: prev_comm=swapper prev_pid=0 \
prev_prio=120 prev_state=R ==> next_comm=weir-worker-0 next_pid=101 next_prio=120
   weir-worker-0  101    13.812501: syscalls:sys_exit_futex: 0x0
   weir-worker-1  102    13.937490: sched:sched_waking: comm=weir-worker-0 pid=101 prio=120 \
target_cpu=000
   weir-worker-0  101    13.937500:   sched:sched_switch: prev_comm=weir-worker-0 prev_pid=101 \
prev_prio=120 prev_state=S ==> next_comm=Web Content 2 next_pid=7 next_prio=120
   Web Content 2    7    13.968750:   sched:sched_switch: prev_comm=Web Content 2 prev_pid=7 \
prev_prio=120 prev_state=S ==> next_comm=weir-worker-0 next_pid=101 next_prio=120
   weir-worker-0  101    14.000000: syscalls:sys_enter_epoll_wait: epfd: 0x5
";

#[test]
fn turns_are_read_from_a_trace() {
    let program = "
import json, sys, turns
lines = sys.argv[1].splitlines()
threads = turns.threads_of(lines)
print(json.dumps([turns.turns_of(threads), turns.longest_waits(threads, 9), turns.lost_of(lines)]))
";
    // Each turn: busy, other tasks meanwhile, the start, the wait, and the thread.
    let name = "weir-worker-0 101";
    let turns = json!([
        [0.90625, 0.09375, 13.0, 0.5, name],
        [0.75, 0.25, 10.0, 0.0, name],
        [0.125, 0.0, 12.0, 0.0, name],
    ]);
    let wait = "- weir-worker-0 101 waited 500000 in futex(2), and ran 62500 later: \
        weir-worker-1 102 ended it, which ran 312500, was ready 125000 (Web Content 2 ran), and \
        waited 62500";
    assert_eq!(printed(program, &[TRACE]), json!([turns, [wait], 43]));
}

/// Samples of two threads, ten per second.
#[test]
fn samples_tell_how_long_a_thread_ran() {
    let program = "
import json, turns
line = lambda number: f'  weir-worker-{number % 2}  10{number % 2}  {number / 20:.6f}: '
samples = turns.Samples([*map(line, range(100)), 'something else'], 10)
spans = [(0.95, 2.0), (3.0, 3.0), (3.05, 3.06), (9.0, 9.5)]
print(json.dumps([samples.ran('weir-worker-0 100', *span) for span in spans]))
";
    assert_eq!(printed(program, &[]), json!([1.1, 0.1, 0.0, 0.0]));
}

/// Without one of these events, the script would print other turns and waits, or none.
#[test]
fn traces_have_the_events_of_turns_and_waits() {
    let program = "import json, pauses; print(json.dumps(pauses.record_command('file', 9)))";
    let command = printed(program, &[]).to_string();
    for event in
        ["switch", "waking", "enter_epoll_wait", "exit_epoll_wait", "enter_futex", "exit_futex"]
    {
        assert!(command.contains(&format!("_{event}\"")), "{event}: {command}");
    }
}

/// The reloads have the instants of this clock.
#[test]
fn traces_have_the_clock_of_the_reloads() {
    let program = "import json, pauses; print(json.dumps(pauses.record_command('file', 9)))";
    let command = printed(program, &[]);
    let command = command.as_array().expect("a list");
    let clock = command.iter().position(|word| word == "-k").expect("a clock");
    assert_eq!(command[clock + 1], "CLOCK_MONOTONIC");
    assert_eq!(command[command.len() - 2..], [json!("sleep"), json!("9")]);
}

/// A turn lies between two samples. What the hypervisor took meanwhile is the difference of these.
#[test]
fn the_hypervisor_has_a_part_of_a_turn() {
    let program = "
import json, pauses
samples = pauses.StealSamples()
samples.samples = [(1.0, 0.5), (2.0, 0.5), (3.0, 0.75), (4.0, 1.0)]
turns = [(2.5, 2.75), (1.5, 3.5), (0.5, 2.5), (3.5, 4.5)]
print(json.dumps([samples.around(*turn) for turn in turns]))
";
    assert_eq!(printed(program, &[]), json!([0.25, 0.5, null, null]));
}

/// The control: a loop on each core, whose longest steps are pauses of the machine.
#[test]
fn long_steps_of_the_control_are_pauses() {
    let program = "
import json, os, pauses
steps = list(pauses.long_steps(iter([5, 200_005, 200_010, 300_011])))
print(json.dumps([steps, len(pauses.control(0.01)) == len(os.sched_getaffinity(0))]))
";
    assert_eq!(printed(program, &[]), json!([[200_000, 100_001], true]));
}

/// The other process reads a pipe that stays open, so it would not end.
#[test]
fn a_failed_process_ends_the_others() {
    let program = "
import subprocess, sys, pauses
try:
    with pauses.Processes() as processes:
        other = [sys.executable, '-c', 'import sys; sys.stdin.read()']
        processes.start(other, stdin=subprocess.PIPE)
        processes.start([sys.executable, '-c', 'raise SystemExit(3)'])
        while not processes.are_done():
            pass
finally:
    print([process.poll() for process in processes.started])
";
    let output = python(program, &[]);
    // A process that a signal ends has its number, negated; 15 is SIGTERM.
    assert_eq!(String::from_utf8_lossy(&output.stdout), "[-15, 3]\n");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("failed: ") && errors.contains("SystemExit(3)"), "{errors}");
}
