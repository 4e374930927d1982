"""Counts the instructions of a call that weir decides from memory, by the part of the program that they are in.

Usage: instructions.py WEIR [SECONDS]

A weir that counts in memory runs in callgrind, a tool of valgrind, beside a closed loop of 8 connections with 32 calls
each on 100 000 counters of fixed_window. callgrind counts every instruction of the process, but none of the kernel,
and knows neither caches nor waiting. An instruction belongs to the source file of its line, also if the compiler put
it into the code of another function. One of a general library belongs to the function that has it.

It needs valgrind, and a binary with line numbers, as `make build` makes it.
"""

import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile

from weir_process import Weir

KEYS = 100_000
RULES = "domain: bench\ndescriptors:\n- { key: tenant, rate_limit: { unit: hour, requests_per_unit: 1000000 } }\n"

# The first pattern that matches says the part. It is looked for in the path of the file, and then, for code of general
# libraries, in the name of the function that has it, with `/` for `::`.
PARTS = [
    ("copies and comparisons of memory", r"/sysdeps/.*mem(cpy|move|set|cmp)"),
    ("allocation", r"jemalloc|_rjem|/malloc/"),
    ("HTTP/2", r"weir[-_]http2"),
    ("from a stream of HTTP/2 to a request and back", r"/server/(grpc|listener|acceptor)|/server/rls/handler"),
    ("decoding and encoding", r"/server/rls/|/proto[/.]|prost|/generated/|/out/envoy|/src/descriptor"),
    ("counters", r"/store[/.]|/step[/.]|/algorithm[/.]|/sharded|/time[/.]|/app/background"),
    ("rules and decisions", r"/(rules|limiter|decision|limit|modes|plans)[/.]|/key[/.]|siphasher|/app/service"),
    ("metrics and log", r"/telemetry|/usage|/histogram|/atomic_count|/request_log|/sampling|/decision_record"),
    ("waiting for sockets", r"tokio|mio[-/]|socket2|epoll|futures"),
]
GENERAL = re.compile(r"^\?\?\?$|/rustc/|/(bytes|smallvec|hashbrown|arc-swap|crossbeam[a-z-]*)-\d")
OTHER = "other"

NAME = re.compile(r"^(fl|fi|fe|fn|cfn|cfi|cfl)=\((\d+)\)(?: (.*))?$")
COST = re.compile(r"^(?:[+-]?\d+|\*)(?: \d+)?$")


def costs_of(lines):
    """The instructions per source file and function, from the lines of a file of callgrind."""
    costs, files, functions = collections.Counter(), {}, {}
    file = function = None
    is_call = False
    for line in lines:
        named = NAME.match(line)
        if named:
            kind, number, text = named.groups()
            names = functions if kind in ("fn", "cfn") else files
            if text is not None:
                names[number] = text
            if kind == "fn":
                function = names[number]
            elif kind in ("fl", "fi", "fe"):
                file = names[number]
        elif line.startswith("calls="):
            # The next line has the cost of the called function, which has its own lines.
            is_call = True
        elif COST.match(line):
            if not is_call:
                costs[file, function] += int((line.split() + ["0"])[1])
            is_call = False
    return costs


def part_of(file, function):
    """The part of the program that a line of `file` in `function` belongs to."""
    function = "/" + function.replace("::", "/")
    texts = [function] if GENERAL.search(file) else [file, function]
    found = (part for text in texts for part, pattern in PARTS if re.search(pattern, text))
    return next(found, OTHER)


def table(costs, calls):
    """The lines of the table: each part with its instructions per call."""
    parts = collections.Counter()
    for (file, function), cost in costs.items():
        parts[part_of(file, function)] += cost
    total = sum(parts.values())
    yield "| part | instructions per call | of all, % |"
    yield "| --- | --- | --- |"
    for part, cost in parts.most_common():
        yield f"| {part} | {cost / calls:.0f} | {100 * cost / total:.0f} |"
    yield f"| all | {total / calls:.0f} | 100 |"


def load(binary, grpc, seconds):
    """Puts load on weir, and returns the number of calls that it decided."""
    command = [binary, "bench", "--addr", "{}:{}".format(*grpc), "--domain", "bench", "--keys", str(KEYS), "--json"]
    command += ["--warmup", "0", "--duration", str(seconds), "tenant=t{n}"]
    report = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    return json.loads(report.stdout)["decided"]


def set_counting(pid, state):
    """Switches the counting of callgrind `on` or `off`."""
    control = ["callgrind_control", "-i", state, str(pid)]
    subprocess.run(control, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main():
    binary = sys.argv[1]
    seconds = int(sys.argv[2]) if len(sys.argv) > 2 else 20
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        rules, out = folder / "rules.yaml", folder / "callgrind.out"
        rules.write_text(RULES)
        valgrind = ["valgrind", "--quiet", "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={out}"]
        with Weir(binary, str(rules), prefix=valgrind) as weir:
            # Makes the counters.
            load(binary, weir.grpc, seconds)
            set_counting(weir.pid, "on")
            calls = load(binary, weir.grpc, seconds)
            set_counting(weir.pid, "off")
        costs = costs_of(out.read_text().splitlines())
    print("\n".join(table(costs, calls)))


if __name__ == "__main__":
    main()
