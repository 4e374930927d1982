"""The turns of core threads, and what they waited for, from the lines of `perf script`.

A turn is the time of a core thread between two waits for its connections.
"""

import bisect
import re

THREADS = "weir-worker*"

# The trace may have the end of a wait before its begin, by less than this many seconds.
EARLY_MAX = 1e-4

# The name of a task may have spaces.
LINE = re.compile(r"^\s*(.+?)\s+(\d+)\s+([\d.]+):\s+(\S+?):\s+(.*)$")
LOST = re.compile(r"PERF_RECORD_LOST lost (\d+)")
SWITCH = re.compile(r"prev_comm=(.+?) prev_pid=(\d+) prev_prio=\d+ prev_state=(\S+) ==> next_comm=(.+?) next_pid=(\d+)")
WAKING = re.compile(r"comm=(.+?) pid=(\d+)")


class Absence:
    """A time in which a thread did not run."""

    def __init__(self, since, is_ready, other):
        self.since = since
        # A thread that is not ready waits, until it is woken.
        self.ready_from = since if is_ready else None
        self.waker = None
        # Whether it waits in futex(2), as for a lock.
        self.is_futex = False
        # The task that ran instead of it, at first.
        self.other = other
        self.until = None

    def waited(self, since=0.0, until=float("inf")):
        """How long it waited, from `since` to `until`."""
        ready_from = self.until if self.ready_from is None else self.ready_from
        return max(0.0, min(ready_from, until) - max(self.since, since))

    def ready(self, since=0.0, until=float("inf")):
        """How long it could have run while its core ran another thread, from `since` to `until`."""
        if self.ready_from is None:
            return 0.0
        return max(0.0, min(self.until, until) - max(self.ready_from, since))


class Thread:
    """The turns of one thread, from its events in their order."""

    def __init__(self):
        self.began = None
        self.left = None
        self.is_in_futex = False
        # The last time at which another thread ended a wait that had not begun by the trace, and that thread.
        self.early = None
        self.absences = []
        self.preempted = 0.0
        self.waited = 0.0
        # Of each: how long it was busy, how long other tasks had its core, when it began, and how long it waited.
        self.turns = []
        # Absences within a turn in which it waited.
        self.waits = []

    def begin(self, now):
        self.began, self.left, self.preempted, self.waited = now, None, 0.0, 0.0

    def switched_out(self, now, state, other):
        self.left = Absence(now, state.startswith("R"), other)
        self.left.is_futex = self.is_in_futex
        if self.left.ready_from is None and self.early is not None and now - self.early[0] < EARLY_MAX:
            self.left.ready_from, self.left.waker = now, self.early[1]
        self.early = None

    def woken(self, now, waker):
        if self.left is None:
            self.early = (now, waker)
        elif self.left.ready_from is None:
            self.left.ready_from, self.left.waker = now, waker

    def switched_in(self, now):
        if self.left is None:
            return
        absence, self.left = self.left, None
        absence.until, self.early = now, None
        self.absences.append(absence)
        if self.began is None:
            return
        self.preempted += absence.ready()
        self.waited += absence.waited()
        if absence.waited() > 0:
            self.waits.append(absence)

    def end(self, now):
        if self.began is not None:
            self.turns.append((now - self.began - self.preempted, self.preempted, self.began, self.waited))
        self.began = None


def threads_of(lines):
    """Every thread of weir, by its name and its number."""
    threads = {}
    of = lambda name, pid: threads.setdefault(f"{name} {pid}", Thread())
    for line in lines:
        found = LINE.match(line)
        if not found:
            continue
        name, pid, now, event, fields = found.groups()
        now = float(now)
        if event.endswith("sched_switch"):
            switch = SWITCH.search(fields)
            if not switch:
                continue
            before, before_pid, state, after, after_pid = switch.groups()
            if before.startswith("weir"):
                of(before, before_pid).switched_out(now, state, after)
            if after.startswith("weir"):
                of(after, after_pid).switched_in(now)
        elif event.endswith("sched_waking"):
            woken = WAKING.search(fields)
            if woken:
                of(*woken.groups()).woken(now, f"{name} {pid}")
        elif event.endswith("futex"):
            of(name, pid).is_in_futex = "sys_enter" in event
        elif "sys_exit_epoll" in event:
            of(name, pid).begin(now)
        elif "sys_enter_epoll" in event:
            of(name, pid).end(now)
    return threads


def turns_of(threads):
    """The turns of every core thread of `threads` with its name, the longest first."""
    core = ((name, thread) for name, thread in threads.items() if name.startswith("weir-worker"))
    return sorted(((*turn, name) for name, thread in core for turn in thread.turns), reverse=True)


def longest_waits(threads, count):
    """The lines that show the longest waits within turns: who ended them, and what that thread did meanwhile."""
    waits = [
        (wait.waited(), name, wait)
        for name, thread in threads.items()
        if name.startswith("weir-worker")
        for wait in thread.waits
    ]
    waits.sort(key=lambda wait: wait[:2], reverse=True)
    return [_shown(name, wait, threads.get(wait.waker)) for _, name, wait in waits[:count]]


def _shown(name, wait, waker):
    us = lambda seconds: round(seconds * 1e6)
    place = " in futex(2)" if wait.is_futex else ""
    line = f"- {name} waited {us(wait.waited())}{place}, and ran {us(wait.ready())} later"
    if wait.waker is None:
        return f"{line}; no thread is known that ended it"
    line = f"{line}: {wait.waker} ended it"
    if waker is None:
        return line
    since, until = wait.since, wait.ready_from
    meanwhile = [absence for absence in waker.absences if absence.until > since and absence.since < until]
    ready = sum(absence.ready(since, until) for absence in meanwhile)
    waited = sum(absence.waited(since, until) for absence in meanwhile)
    others = sorted({absence.other for absence in meanwhile if absence.ready(since, until) > 0})
    instead = f" ({', '.join(others)} ran)" if others else ""
    return f"{line}, which ran {us(until - since - ready - waited)}, was ready {us(ready)}{instead}, and waited {us(waited)}"


class Samples:
    """When threads ran: samples of their processor's clock, `per_second` of them."""

    LINE = re.compile(r"^\s*(.+?)\s+(\d+)\s+([\d.]+):\s*$")

    def __init__(self, lines, per_second):
        self.per_second = per_second
        self.times = {}
        for line in lines:
            found = Samples.LINE.match(line)
            if found:
                self.times.setdefault(f"{found[1]} {found[2]}", []).append(float(found[3]))

    def ran(self, name, since, until):
        """How many seconds the thread ran, from `since` to `until`."""
        times = self.times.get(name, [])
        return (bisect.bisect_right(times, until) - bisect.bisect_left(times, since)) / self.per_second


def lost_of(lines):
    """The number of events that perf lost."""
    return sum(int(found[1]) for found in map(LOST.search, lines) if found)
