"""Child processes: their starts, their logs, and their end."""

import ctypes
import os
import signal
import subprocess
import sys
import time

# Seconds for a start, and for an orderly end.
START_TIMEOUT = 60
END_TIMEOUT = 10
# Seconds between two checks of a child that starts.
CHECK_INTERVAL = 0.05
# Lines of the log that an error shows.
LOG_LINES = 20


# Of linux/prctl.h: a signal for this process when its parent ends.
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with(parent):
    """Runs in a new child: it ends when its parent does, also by SIGKILL. Only Linux has this."""
    if LIBC is not None:
        LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        # The parent ended before the call.
        if os.getppid() != parent:
            os._exit(1)


class StartFailed(Exception):
    """A child cannot be started; the text has the end of its log."""


class Child:
    """One program. It can be started again with the same command."""

    def __init__(self, name, command, log, is_ready, variables=None):
        self.name, self.command, self.log = name, [str(word) for word in command], log
        self.is_ready, self.variables = is_ready, variables
        self.process, self.ended_at = None, None

    def start(self, ending=None):
        """Starts the process. With `ending`, also waits until it is ready, or until the demo must end."""
        # In a new session, Ctrl-C in a terminal does not reach the child. The demo ends all in order.
        parent = os.getpid()
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.variables,
                start_new_session=True, preexec_fn=lambda: end_with(parent),
            )
        self.ended_at = None
        deadline = time.monotonic() + START_TIMEOUT
        while ending is not None and not ending.requested and not self.is_ready():
            if not self.is_alive():
                raise StartFailed(f"{self.name} ended with {self.process.returncode}; {self.tail()}")
            if time.monotonic() > deadline:
                raise StartFailed(f"{self.name} is not ready after {START_TIMEOUT} s; {self.tail()}")
            time.sleep(CHECK_INTERVAL)

    def is_alive(self):
        return self.process is not None and self.process.poll() is None

    def pid(self):
        return self.process.pid

    def tail(self):
        """The end of the log, as a text for an error."""
        lines = self.log.read_text(errors="replace").splitlines()[-LOG_LINES:]
        return f"the end of {self.log}:\n" + "\n".join(lines)


class Children:
    """All children, in the order of their starts."""

    def __init__(self, folder, restart_after):
        self.folder, self.restart_after, self.all = folder, restart_after, []

    def add(self, name, command, is_ready, ending, variables=None):
        """Starts one more child and waits until it is ready. Its log begins empty."""
        log = self.folder / f"{name}.log"
        log.write_bytes(b"")
        child = Child(name, command, log, is_ready, variables)
        # Before the start, so that `end` ends it after a failure too.
        self.all.append(child)
        child.start(ending)
        return child

    def tend(self):
        """Starts ended children again after a pause. Returns sentences about what happened."""
        events = []
        for child in self.all:
            if child.is_alive():
                continue
            if child.ended_at is None:
                child.ended_at = time.monotonic()
                events.append(f"{child.name} has ended; it starts again in {self.restart_after:g} s")
            elif time.monotonic() >= child.ended_at + self.restart_after:
                child.start()
                events.append(f"{child.name} starts again as process {child.pid()}")
        return events

    def end(self):
        """Ends every child by its process id, in an orderly way first. Returns when none runs."""
        running = [child for child in self.all if child.is_alive()]
        for child in running:
            child.process.terminate()
        deadline = time.monotonic() + END_TIMEOUT
        for child in running:
            try:
                child.process.wait(max(0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.process.kill()
                child.process.wait()
