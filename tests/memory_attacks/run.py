"""Attacks a weir in a memory cgroup, beside 200 calls per second of another client, and prints a table.

Usage: run.py WEIR FOLDER

FOLDER gets a file per attack with the memory of each second. Exits with 1 when weir was killed, when the
other client got an error or slow responses, or when weir keeps much of the memory.
"""

import http.client
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

from attacks import ATTACKS
from calls import RULES
from cgroup import MemoryCgroup
from other_client import OtherClient
from samples import Samples, memory
from weir_process import Weir

# The settings for a cgroup, by its memory in MiB and by the formula of docs/operate/memory.md.
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
# Milliseconds of the calls of the other client.
P99_MAX = 500
COLUMNS = "{:>4}  {:22}  {:>9}  {:>6}  {:>6}  {:>7}  {:>13}  {:>9}  {:>13}  {:>6}"
HEAD = (
    "MiB", "attack", "MB before", "MB min", "MB max", "MB peak", "MB 60 s after", "open gRPC", "answered/sent",
    "p99 ms",
)


def open_connections(weir):
    """The connections to the gRPC port, as the metrics page says, or `-` without the page."""
    connection = http.client.HTTPConnection(*weir.admin, timeout=10)
    try:
        connection.request("GET", "/metrics")
        page = connection.getresponse().read().decode()
    except (OSError, http.client.HTTPException):
        return "-"
    finally:
        connection.close()
    found = re.search(r'^weir_connections_open\{listener="grpc"\} (\d+)', page, re.MULTILINE)
    return found[1] if found else "-"


def certificate(folder):
    """The settings for TLS with a new certificate."""
    cert, key = folder / "weir.crt", folder / "weir.key"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
         "-subj", "/CN=weir", "-addext", "subjectAltName=DNS:weir", "-days", "2", "-out", cert, "-keyout", key],
        check=True, capture_output=True,
    )
    return {"WEIR__GRPC__TLS_CERT": str(cert), "WEIR__GRPC__TLS_KEY": str(key)}


def measure(binary, mib, name, rules, tls_settings, rows):
    """Runs one attack. Prints its row, and returns what is wrong."""
    attack = ATTACKS[name]
    settings = SETTINGS[mib] | (tls_settings if attack.tls else {})
    with MemoryCgroup(mib) as cgroup, Weir(binary, rules, settings, cgroup.prefix) as weir:
        samples = Samples(weir, rows)
        other = OtherClient(weir, attack.tls)
        time.sleep(BEFORE)
        before = memory(weir, "VmRSS")
        samples.phase = "attack"
        connections = attack.run(weir)
        time.sleep(AFTER)
        peak, opened = memory(weir, "VmHWM"), open_connections(weir)
        result, newcomer_error = other.stop()
        for connection in connections:
            connection.close()
        samples.phase = "after"
        time.sleep(LATER)
        after = memory(weir, "VmRSS")
        ended = weir.process.poll()
        least, most = samples.stop()
    answered = f"{result.answered}/{result.sent}"
    megabytes = [f"{value:.0f}" for value in (before, least, most, peak, after)]
    print(COLUMNS.format(mib, name, *megabytes, opened, answered, f"{result.p99:.1f}"), flush=True)

    problems = []
    if ended is not None:
        problems.append(f"weir has ended with {ended}; -9 means that the kernel has killed it")
    if result.error or result.answered != result.sent or not result.sent:
        problems.append(f"the other client got an error: {result.error or 'no response'}")
    if newcomer_error:
        problems.append(f"the other client got an error: {newcomer_error}")
    if result.p99 > P99_MAX:
        problems.append(f"the p99 of the other client is {result.p99:.0f} ms, and {P99_MAX} ms are allowed")
    if after > REMAINS_TIMES * before + REMAINS_MB:
        problems.append(f"{after:.0f} MB remain, and {before:.0f} MB were used before")
    return [f"{mib} MiB, {name}: {problem}" for problem in problems]


def main():
    binary, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        raise SystemExit(f"make memory-attacks needs {FILES} open files, and the limit is {hard}; see ulimit -Hn")
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, hard))

    print(COLUMNS.format(*HEAD))
    problems = []
    with tempfile.TemporaryDirectory() as temporary:
        rules = pathlib.Path(temporary) / "rules.yaml"
        rules.write_text(RULES)
        tls_settings = certificate(pathlib.Path(temporary))
        for mib in SETTINGS:
            for name in ATTACKS:
                rows = folder / f"{mib}-{re.sub('[^a-z0-9]+', '-', name.lower())}.tsv"
                problems += measure(binary, mib, name, str(rules), tls_settings, rows)
    print(f"the memory of each second: {folder}/*.tsv")
    print("\n".join(problems) or "passed")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
