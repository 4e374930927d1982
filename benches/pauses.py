"""Traces how long a core thread of weir is busy without a look at its connections.

Usage: pauses.py WEIR [SECONDS]

A core thread (`weir-worker-N`) waits in epoll_wait for its connections. Between two waits it reads, decides and
writes, and no other connection of the thread is served. This is one turn. The script puts 5 000 calls per second
on a weir that counts in memory, and traces all turns by the kernel's tracepoints, while

- 50 000 new counters per second are made, so that tables grow,
- and rules are reloaded, 10 000 of them.

It prints the longest turns. The time in which the scheduler ran another thread on the core is given apart: it says
how busy the machine was. Time in which the thread itself waited, for a lock or for memory, is part of the turn, up
to the instant at which another thread ended the wait. The longest waits are printed with what that thread did
meanwhile. Part of a turn is also time in which the processor did nothing for this machine: interrupts, and the
hypervisor. `steal` of /proc/stat counts only a part of that, in steps of 10 ms. So samples tell how long the thread
ran: what a turn has over its samples and waits, the machine has taken. And controls run before and after the load,
each for half as long: on each core a loop that does nothing but read the CPU time of its thread. Its longest step is
a pause of the machine.

It needs root, perf, and tracefs at /sys/kernel/tracing.
"""

import gc
import itertools
import multiprocessing
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

from turns import THREADS, Samples, longest_waits, lost_of, threads_of, turns_of
from weir_process import TIMEOUT, Weir

RATE = 5_000
# Calls per second that make counters, and counters of each.
NEW_CALLS = 5_000
NEW_COUNTERS = 10
RULES = 10_000
LONGEST = 5
# Seconds between two looks at what the hypervisor took.
SAMPLE = 0.1
# Samples of the threads.
SAMPLES_PER_SECOND = 8_000
# Steps of the control that are counted, in nanoseconds.
STEP_MIN = 100_000


class Processes:
    """Processes that have ended when the `with` block ends."""

    def __init__(self):
        self.started = []

    def start(self, command, **options):
        self.started.append(subprocess.Popen(command, **options))

    def are_done(self):
        """Whether all have ended. If one has failed, the script ends."""
        results = [process.poll() for process in self.started]
        for process, result in zip(self.started, results):
            if result:
                raise SystemExit(f"failed: {process.args}")
        return None not in results

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:
                # perf ends its own process at this signal.
                process.terminate()
        for process in self.started:
            try:
                process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def new_keys():
    """The keys of the descriptors that make counters."""
    return [f"new{number}" for number in range(NEW_COUNTERS)]


def steal():
    """Seconds that the hypervisor took from this machine so far."""
    fields = pathlib.Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return int(fields[8]) / os.sysconf("SC_CLK_TCK")


class StealSamples:
    """What the hypervisor took in each SAMPLE of a `with` block."""

    def __enter__(self):
        self.samples = []
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def _run(self):
        while not self.ended.wait(SAMPLE):
            self.samples.append((time.clock_gettime(time.CLOCK_MONOTONIC), steal()))

    def around(self, began, ended):
        """What it took in the samples from `began` to `ended`, on all cores. None: a sample is missing."""
        before = [taken for at, taken in self.samples if at <= began]
        after = [taken for at, taken in self.samples if at >= ended]
        return after[0] - before[-1] if before and after else None


def rule_file(folder, number):
    """Rules for the load, and RULES others that differ by `number`."""
    others = "".join(
        f"  - {{ key: other, value: v{rule}, rate_limit: {{ unit: hour, requests_per_unit: {number + rule + 1} }} }}\n"
        for rule in range(RULES)
    )
    limited = lambda key: f"  - {{ key: {key}, rate_limit: {{ unit: hour, requests_per_unit: 1000000 }} }}\n"
    tenant = "".join(map(limited, ["tenant", *new_keys()]))
    new = folder / "new.yaml"
    new.write_text(f"domain: bench\ndescriptors:\n{tenant}{others}")
    new.replace(folder / "rules.yaml")


def record_command(data, seconds):
    """The command that traces the core threads into the file `data`."""
    # The instants of the reloads have the same clock.
    command = ["perf", "record", "--quiet", "-k", "CLOCK_MONOTONIC", "-a", "-m", "4096", "-o", str(data)]
    # Of all threads of weir: one of them ends the wait of another.
    command += ["-e", "sched:sched_switch", "--filter", 'prev_comm ~ "weir*" || next_comm ~ "weir*"']
    command += ["-e", "sched:sched_waking", "--filter", 'comm ~ "weir*"']
    for event in ("sys_exit_epoll_wait", "sys_enter_epoll_wait", "sys_enter_futex", "sys_exit_futex"):
        command += ["-e", f"syscalls:{event}", "--filter", f'comm ~ "{THREADS}"']
    return [*command, "--", "sleep", str(seconds)]


def sample_command(data, pid, seconds):
    """The command that samples when the threads of a process run. The clock of a processor that the hypervisor has
    taken away stands still."""
    command = ["perf", "record", "--quiet", "-k", "CLOCK_MONOTONIC", "-m", "1024", "-o", str(data)]
    command += ["-e", "cpu-clock", "-F", str(SAMPLES_PER_SECOND), "-p", str(pid)]
    return [*command, "--", "sleep", str(seconds)]


def printed(data, fields):
    """The lines of `perf script`."""
    command = ["perf", "script", "-i", str(data), "--show-lost-events", "-F", fields]
    script = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return script.stdout.splitlines()


def long_steps(readings):
    """The steps between readings of a clock that are counted, in nanoseconds."""
    before = next(readings)
    for now in readings:
        if now - before > STEP_MIN:
            yield now - before
        before = now


def longest_steps(core, seconds, results):
    """Puts the core and the longest steps of a loop on it into `results`, in nanoseconds of CPU time.

    The CPU time of a thread does not pass while another thread runs on its core.
    """
    gc.disable()
    os.sched_setaffinity(0, {core})
    read, clock = time.clock_gettime_ns, time.CLOCK_THREAD_CPUTIME_ID
    steps, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        steps += long_steps(read(clock) for _ in range(10_000))
    results.put((core, sorted(steps, reverse=True)))


def control(seconds):
    """The lines that show the longest steps of a loop on each core."""
    results = multiprocessing.Queue()
    cores = sorted(os.sched_getaffinity(0))
    loops = [multiprocessing.Process(target=longest_steps, args=(core, seconds, results)) for core in cores]
    for loop in loops:
        loop.start()
    found = sorted(results.get(timeout=seconds + TIMEOUT) for _ in loops)
    for loop in loops:
        loop.join()
    shown = lambda steps: ", ".join(str(step // 1000) for step in steps[:LONGEST]) or f"none over {STEP_MIN // 1000}"
    return [f"- core {core}: {shown(steps)}" for core, steps in found]


def measure(binary, seconds):
    """Runs the loads and returns the lines of the trace, the samples, and the instants of the reloads."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rule_file(folder, 0)
        data, sampled = folder / "perf.data", folder / "samples.data"
        settings = {"WEIR__STORE__MAX_COUNTERS": "20000000"}
        with Weir(binary, str(folder / "rules.yaml"), settings) as weir, Processes() as processes:
            address = "{}:{}".format(*weir.grpc)
            processes.start(record_command(data, seconds + 4))
            processes.start(sample_command(sampled, weir.pid, seconds + 4))
            bench = [binary, "bench", "--addr", address, "--domain", "bench", "--connections", "8"]
            processes.start(
                [*bench, "--rate", str(RATE), "--duration", str(seconds), "tenant=t{n}"], stdout=subprocess.DEVNULL)
            new = [f"{key}=n{{n}}" for key in new_keys()]
            processes.start(
                [*bench, "--rate", str(NEW_CALLS), "--keys", "10000000", "--duration", str(seconds), *new],
                stdout=subprocess.DEVNULL)
            reloads = []
            for number in range(1, 4):
                time.sleep(seconds / 4)
                processes.are_done()
                reloads.append(time.clock_gettime(time.CLOCK_MONOTONIC))
                rule_file(folder, number)
            while not processes.are_done():
                time.sleep(0.1)
        lines = printed(data, "comm,tid,time,event,trace")
        return lines, Samples(printed(sampled, "comm,tid,time"), SAMPLES_PER_SECOND), reloads


def main():
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 60
    before = control(seconds / 2)
    stolen = steal()
    with StealSamples() as steals:
        lines, samples, reloads = measure(sys.argv[1], seconds)
    stolen = steal() - stolen
    after = control(seconds / 2)
    threads = threads_of(lines)
    every = turns_of(threads)
    if not every:
        raise SystemExit("no turns were traced; perf needs root and tracefs")
    print("| thread | turns | p99, us | p99.99, us | longest, us | seconds after a reload began |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, thread in sorted(threads.items()):
        busy = sorted(turn[0] for turn in thread.turns)
        if not busy:
            continue
        at = lambda part: busy[min(len(busy) - 1, int(len(busy) * part))] * 1e6
        longest = max(thread.turns)
        since = [longest[2] - reload for reload in reloads if longest[2] >= reload]
        reloaded = f"{min(since):.2f}" if since else "before the first"
        print(f"| {name} | {len(busy)} | {at(0.99):.0f} | {at(0.9999):.0f} | {longest[0] * 1e6:.0f} | {reloaded} |")
    print(f"\nThe hypervisor took {stolen:.2f} s. The longest turns:\n")
    head = ["turn, us", "waits", "ran, by samples", "other threads on its core meanwhile"]
    print("| " + " | ".join([*head, "hypervisor, of all cores in that tenth of a second"]) + " |")
    print("| --- | --- | --- | --- | --- |")
    taken = lambda turn: steals.around(turn[2], turn[2] + turn[0] + turn[1])

    def row(turn):
        busy, preempted, began, waited, name = turn
        ran = samples.ran(name, began, began + busy + preempted)
        us = lambda value: "unknown" if value is None else f"{value * 1e6:.0f}"
        return "| " + " | ".join(map(us, [busy, waited, ran, preempted, taken(turn)])) + " |"

    print("\n".join(map(row, every[:LONGEST])))
    print("\nThose in whose tenth of a second the hypervisor took nothing, by its steps of 10 ms:\n")
    print("\n".join(map(row, itertools.islice((turn for turn in every if taken(turn) == 0), LONGEST))))
    print("\nThe longest waits of turns, us, with the thread that ended each and what it did meanwhile:")
    print("\n".join(longest_waits(threads, LONGEST)) or "none")
    print("\nThe longest steps of a loop that does nothing, without other threads on its core, us")
    print("\n".join(["before the load:", *before, "after it:", *after]))
    lost = lost_of(lines)
    print(f"\nLost events: {lost}")
    if lost:
        print("A turn with a lost event may be missing, or be shown as longer than it was.")


if __name__ == "__main__":
    main()
