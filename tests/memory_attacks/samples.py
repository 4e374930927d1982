"""The memory of a weir over time, a row per second in a file."""

import pathlib
import threading
import time

HEAD = "seconds\tMB\tphase\n"


class Samples:
    """Reads the memory each second in a thread until `stop`. `phase` goes into the rows."""

    def __init__(self, weir, path):
        self.weir, self.path, self.phase = weir, path, "before"
        self.found, self.stopped = [], threading.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        began = time.monotonic()
        with self.path.open("w") as file:
            file.write(HEAD)
            while True:
                resident = memory(self.weir, "VmRSS")
                self.found.append(resident)
                file.write(f"{time.monotonic() - began:.0f}\t{resident:.1f}\t{self.phase}\n")
                file.flush()
                if self.stopped.wait(1):
                    return

    def stop(self):
        """The least and the most of all samples, in MB."""
        self.stopped.set()
        self.thread.join()
        return min(self.found), max(self.found)


def memory(weir, name):
    """A field of the memory of weir in MB: VmRSS, or VmHWM for its maximum. 0 after its end."""
    try:
        lines = pathlib.Path(f"/proc/{weir.pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = (line for line in lines if line.startswith(f"{name}:"))
    # In KiB. A process that has ended and was not waited for has no such line.
    return next((int(line.split()[1]) * 1024 / 1e6 for line in found), 0.0)
