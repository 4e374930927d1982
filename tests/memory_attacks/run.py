"""Attacks a weir in a memory cgroup, beside 200 calls per second of another client, and prints a table.

Usage: run.py WEIR

Exits with 1 when weir was killed, when the other client got an error, or when weir keeps much of the memory.
"""

import pathlib
import resource
import sys
import tempfile
import time

from attacks import ATTACKS
from calls import RULES
from cgroup import MemoryCgroup
from other_client import OtherClient
from weir_process import Weir

# The settings for a cgroup, by its memory in MiB and by the formula of docs/operating.md.
SETTINGS = {
    256: {"WEIR__GRPC__MAX_CLIENT_MEMORY": str(96 << 20), "WEIR__STORE__MAX_COUNTERS": "250000"},
    512: {"WEIR__GRPC__MAX_CLIENT_MEMORY": str(200 << 20), "WEIR__STORE__MAX_COUNTERS": "1000000"},
}
# Open files of this process and of weir: 10,000 connections, and some more.
FILES = 20_000
# Seconds of calls of the other client before an attack and after it, and until the last measurement.
BEFORE, AFTER, LATER = 2, 5, 60
# The memory that may remain, in MB and as a multiple of the memory before.
REMAINS_MB, REMAINS_TIMES = 16, 1.5
COLUMNS = "{:>4}  {:22}  {:>9}  {:>7}  {:>13}  {:>13}  {:>6}"


def memory(weir, name):
    """A field of the memory of weir in MB: VmRSS, or VmHWM for its maximum. 0 after its end."""
    try:
        lines = pathlib.Path(f"/proc/{weir.pid}/status").read_text().splitlines()
    except OSError:
        return 0.0
    found = (line for line in lines if line.startswith(f"{name}:"))
    # In KiB. A process that has ended and was not waited for has no such line.
    return next((int(line.split()[1]) * 1024 / 1e6 for line in found), 0.0)


def measure(binary, mib, name, rules):
    """Runs one attack. Prints its row, and returns what is wrong."""
    with MemoryCgroup(mib) as cgroup, Weir(binary, rules, SETTINGS[mib], cgroup.prefix) as weir:
        other = OtherClient(weir.grpc)
        time.sleep(BEFORE)
        before = memory(weir, "VmRSS")
        connections = ATTACKS[name](weir.grpc)
        time.sleep(AFTER)
        peak = memory(weir, "VmHWM")
        result = other.stop()
        for connection in connections:
            connection.close()
        time.sleep(LATER)
        after = memory(weir, "VmRSS")
        ended = weir.process.poll()
    answered = f"{result.answered}/{result.sent}"
    cells = (mib, name, f"{before:.0f}", f"{peak:.0f}", f"{after:.0f}", answered, f"{result.p99:.1f}")
    print(COLUMNS.format(*cells), flush=True)

    problems = []
    if ended is not None:
        problems.append(f"weir has ended with {ended}; -9 means that the kernel has killed it")
    if result.error or result.answered != result.sent:
        problems.append(f"the other client got an error: {result.error or 'no response'}")
    if after > REMAINS_TIMES * before + REMAINS_MB:
        problems.append(f"{after:.0f} MB remain, and {before:.0f} MB were used before")
    return [f"{mib} MiB, {name}: {problem}" for problem in problems]


def main():
    (binary,) = sys.argv[1:]
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        raise SystemExit(f"make memory-attacks needs {FILES} open files, and the limit is {hard}; see ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))

    print(COLUMNS.format("MiB", "attack", "MB before", "MB peak", "MB 60 s after", "answered/sent", "p99 ms"))
    problems = []
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as rules:
        rules.write(RULES)
        rules.flush()
        for mib in SETTINGS:
            for name in ATTACKS:
                problems += measure(binary, mib, name, rules.name)
    print("\n".join(problems) or "passed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
