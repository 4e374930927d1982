"""Compares ways to count in Redis, and prints the tables of docs/design/redis-functions.md in Markdown.

Usage: redis_ways.py WEIR [BEFORE] [--rounds N] [--calls N]

The ways of a table take turns for N rounds. A figure is the median. The counters exist before they are measured.
weir's calls are recorded from WEIR, as functions and as scripts, and from BEFORE, an older build, in the form that it
prefers: a fixed window and a sliding_window_log of one tier. Redis is `redis-server`, without persistence.
"""

import argparse
import ast
import pathlib
import random
import socket
import statistics
import subprocess
import tempfile
import time

from weir_process import TIMEOUT, Weir

COUNTERS = 100_000
DEPTH = 16
# Counters of a call of the packed ones, and the hashes.
PER_CALL, HASHES = 55, 16
WINDOW_MS = "3600000"
RULES = """domain: bench
descriptors:
- key: fixed_window
  rate_limit: { unit: hour, requests_per_unit: 1000000 }
- key: sliding_window_log
  rate_limit: { unit: hour, requests_per_unit: 1000, algorithm: sliding_window_log }
"""

PLAIN = "local n = redis.call('INCRBY', KEYS[1], ARGV[1]) redis.call('PEXPIRE', KEYS[1], ARGV[2]) return n"
EACH = "for i = 1, #KEYS do redis.call('INCRBY', KEYS[i], '1') end"
STRINGS = "redis.call('MGET', unpack(KEYS)) for i = 1, #KEYS do redis.call('SETRANGE', KEYS[i], '2', ARGV[1]) end"
# ARGV[1] is the number of hashes in KEYS. The fields of each follow: their number, and their names.
PACKED = """
local at = 2
for i = 1, #KEYS do
  local fields, pairs_, last = {}, {}, at + ARGV[at]
  for j = at + 1, last do
    fields[#fields + 1] = ARGV[j]
    pairs_[#pairs_ + 1] = ARGV[j]
    pairs_[#pairs_ + 1] = ARGV[1]
  end
  redis.call('HMGET', KEYS[i], unpack(fields))
  redis.call('HSET', KEYS[i], unpack(pairs_))
  at = last + 1
end
"""


# Functions for the costs of FCALL itself.
LIBRARY = """#!lua name=ways
redis.register_function('nothing', function() return 1 end)
redis.register_function('add', function(keys, arguments) return redis.call('INCRBY', keys[1], arguments[1]) end)
"""
# Pause between two calls of a small fleet, in seconds.
PAUSE = 0.001
PAUSED_CALLS = 3_000


def encoded(*words):
    words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


class Connection:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(TIMEOUT)
        self.socket.connect(path)
        self.replies = self.socket.makefile("rb")

    def reply(self):
        line = self.replies.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise SystemExit(f"Redis replied: {rest.decode()}")
        if kind == b"$":
            return None if rest == b"-1" else self.replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def call(self, *words):
        self.socket.sendall(encoded(*words))
        return self.reply()

    def pipeline(self, commands):
        """Sends (bytes, replies) at once, and waits for all replies."""
        self.socket.sendall(b"".join(command for command, _ in commands))
        for _ in range(sum(replies for _, replies in commands)):
            self.reply()


class Redis:
    """A Redis that ends with the `with` block."""

    def __init__(self, folder):
        self.path, self.port = f"{folder}/redis.sock", free_port()
        command = ["redis-server", "--port", str(self.port), "--bind", "127.0.0.1", "--unixsocket", self.path]
        self.process = subprocess.Popen(
            [*command, "--save", "", "--dir", str(folder)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        ends = time.monotonic() + TIMEOUT
        while not self.listens():
            if self.process.poll() is not None or time.monotonic() > ends:
                raise SystemExit("redis-server does not start")
            time.sleep(0.01)

    def listens(self):
        try:
            return Connection(self.path).call("PING") == b"PONG"
        except OSError:
            return False

    def cpu_us(self):
        """CPU time so far, by the count of the scheduler."""
        threads = pathlib.Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e3

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(TIMEOUT)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def recorded(redis, binary, folder, functions, algorithm="fixed_window"):
    """The words of weir's call for one step: `FCALL` or `EVALSHA`."""
    monitor = Connection(redis.path)
    monitor.call("MONITOR")
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    settings = {
        "WEIR__STORE__KIND": "redis", "WEIR__REDIS__URL": f"redis://127.0.0.1:{redis.port}",
        "WEIR__STORE__TIMEOUT": "1s",
    }
    # An older build has no such setting, and no functions.
    settings |= {"WEIR__REDIS__FUNCTIONS": functions} if functions else {}
    with Weir(binary, rules, settings) as weir:
        address = ":".join(map(str, weir.grpc))
        call = [binary, "call", "--addr", address, "--domain", "bench", f"{algorithm}=u0"]
        ends = time.monotonic() + TIMEOUT
        # The fallback decides until weir is connected to Redis.
        while "fallback" in subprocess.run(call, check=True, stdout=subprocess.PIPE, text=True).stdout:
            if time.monotonic() > ends:
                raise SystemExit(f"{binary} does not count in Redis")
        while True:
            line = monitor.replies.readline().decode("latin-1").strip()
            if not line:
                raise SystemExit(f"{binary} made no call of one step")
            _, _, words = line.partition("] ")
            words = [ast.literal_eval("b" + word) for word in split(words)]
            if words and words[0].upper() in (b"FCALL", b"EVALSHA") and words[2] == b"1":
                return words


def split(line):
    """The quoted words of a line of MONITOR."""
    words, start, at = [], None, 0
    while at < len(line):
        if line[at] == "\\":
            at += 1
        elif line[at] == '"':
            if start is None:
                start = at
            else:
                words.append(line[start:at + 1])
                start = None
        at += 1
    return words


def with_key(words, number):
    """A recorded call on another counter."""
    return encoded(*words[:3], words[3] + b"%d" % number, *words[4:])


def measured(redis, ways, calls, depth, steps=1, pause=0):
    """CPU and the time of `INFO commandstats` in us per step, of one round of each way."""
    figures = {}
    for name, way in ways.items():
        connection = Connection(redis.path)
        connection.call("FLUSHALL", "SYNC")
        commands = [way(number) for number in range(calls)]
        for at in range(0, len(commands), 100):
            connection.pipeline(commands[at:at + 100])
        connection.call("CONFIG", "RESETSTAT")
        before = redis.cpu_us()
        for at in range(0, len(commands), depth):
            if pause:
                time.sleep(pause)
            connection.pipeline(commands[at:at + depth])
        cpu = redis.cpu_us() - before
        stats = connection.call("INFO", "commandstats").decode().splitlines()
        stats = [line for line in stats if line.startswith("cmdstat_") and not line.startswith("cmdstat_info")]
        # What a script calls is in its own time.
        nested = any(line.startswith(("cmdstat_fcall", "cmdstat_evalsha")) for line in stats)
        used = [line for line in stats if not nested or line.startswith(("cmdstat_fcall:", "cmdstat_evalsha:"))]
        usec = sum(int(line.split("usec=")[1].split(",")[0]) for line in used)
        figures[name] = (cpu / calls / steps, usec / calls / steps)
    return figures


def medians(redis, ways, rounds, calls, depth, steps=1, pause=0):
    all_rounds, names = [], list(ways)
    for _ in range(rounds):
        all_rounds.append(measured(redis, ways, calls, depth, steps, pause))
        # No way has the same predecessor in all rounds.
        ways = dict(reversed(ways.items()))
    return {
        name: tuple(statistics.median(figures[name][index] for figures in all_rounds) for index in (0, 1))
        for name in names
    }


def one_step(redis, calls_of_weir, rounds, calls):
    connection = Connection(redis.path)
    plain = connection.call("SCRIPT", "LOAD", PLAIN)
    key = lambda number: b"weir:{1}:%d" % (number % COUNTERS)
    incr = lambda number: encoded("INCRBY", key(number), "1") + encoded("PEXPIRE", key(number), WINDOW_MS)
    bits = lambda number: encoded(
        "BITFIELD", key(number), "INCRBY", "u56", "16", "1", "GET", "u56", "72", "GET", "u56", "128",
    )
    ways = {name: lambda number, words=words: (with_key(words, number % COUNTERS), 1)
            for name, words in calls_of_weir.items()}
    ways |= {
        "`EVALSHA` of `INCRBY` and `PEXPIRE`":
            lambda number: (encoded("EVALSHA", plain, "1", key(number), "1", WINDOW_MS), 1),
        "`BITFIELD` with `INCRBY` and `GET`": lambda number: (bits(number), 1),
        "`INCRBY` with `PEXPIRE`": lambda number: (incr(number), 2),
    }
    single = medians(redis, ways, rounds, calls, 1)
    many = medians(redis, ways, rounds, calls, DEPTH)
    print(f"One step, {rounds} rounds of {calls} calls, us:\n")
    print(f"| way | `commandstats`, one call at a time | CPU of Redis | `commandstats`, pipelines of {DEPTH} | "
          "CPU of Redis |")
    print("| --- | --- | --- | --- | --- |")
    for name in single:
        print(f"| {name} | {single[name][1]:.2f} | {single[name][0]:.2f} | {many[name][1]:.2f} | "
              f"{many[name][0]:.2f} |")


def paused(redis, call_of_weir, rounds, calls):
    """One call at a time, at once after the reply to the one before, and after a pause."""
    Connection(redis.path).call("FUNCTION", "LOAD", "REPLACE", LIBRARY)
    key = lambda number: b"weir:{1}:%d" % (number % COUNTERS)
    function = lambda name: lambda number: (encoded("FCALL", name, "1", key(number), "1"), 1)
    ways = {
        "`FCALL` of weir, `fixed_window`": lambda number: (with_key(call_of_weir, number % COUNTERS), 1),
        "`FCALL` of a function that calls `INCRBY`": function("add"),
        "`FCALL` of a function that does nothing": function("nothing"),
        "`INCRBY` with `PEXPIRE`": lambda number: (
            encoded("INCRBY", key(number), "1") + encoded("PEXPIRE", key(number), WINDOW_MS), 2,
        ),
        "`PING`": lambda _: (encoded("PING"), 1),
    }
    at_once = medians(redis, ways, rounds, calls, 1)
    after_pause = medians(redis, ways, rounds, calls, 1, pause=PAUSE)
    print(f"\nOne call at a time, {rounds} rounds of {calls} calls, us:\n")
    print(f"| way | `commandstats`, at once | CPU of Redis | `commandstats`, after {1e3 * PAUSE:g} ms | CPU of Redis |")
    print("| --- | --- | --- | --- | --- |")
    for name in ways:
        figures = (at_once[name][1], at_once[name][0], after_pause[name][1], after_pause[name][0])
        print(f"| {name} |" + "".join(f" {figure:.2f} |" for figure in figures))


def packed(redis, rounds, calls):
    connection = Connection(redis.path)
    load = lambda text: connection.call("SCRIPT", "LOAD", text)
    strings, each, hashes = load(STRINGS), load(EACH), load(PACKED)
    numbers = random.Random(1)
    chosen = [[numbers.randrange(COUNTERS) for _ in range(PER_CALL)] for _ in range(calls)]
    value = b"f\1" + 21 * b"\1"

    def of_strings(number):
        keys = [b"weir:{1}:%d" % counter for counter in chosen[number]]
        return encoded("EVALSHA", strings, len(keys), *keys, value[2:16]), 1

    def of_numbers(number):
        keys = [b"weir:{1}:%d" % counter for counter in chosen[number]]
        return encoded("EVALSHA", each, len(keys), *keys), 1

    def of_hashes(count):
        def call(number):
            by_hash = {}
            for counter in chosen[number]:
                by_hash.setdefault(counter % count, []).append(b"%d" % counter)
            words = [value]
            for fields in by_hash.values():
                words += [len(fields), *fields]
            keys = [b"weir:{1}:h%d" % one for one in by_hash]
            return encoded("EVALSHA", hashes, len(keys), *keys, *words), 1
        return call

    ways = {
        "`MGET` and a `SETRANGE` for each, as weir does": of_strings,
        "`INCRBY` for each": of_numbers,
        f"`HMGET` and `HSET` for each of {HASHES} hashes": of_hashes(HASHES),
        "`HMGET` and `HSET` of one hash": of_hashes(1),
    }
    print(f"\nScripts without logic, {PER_CALL} of {COUNTERS} random counters per call, {rounds} rounds of "
          f"{calls} calls, us of Redis per counter:\n")
    print("| the script reads and writes with | us |\n| --- | --- |")
    for name, (cpu, _) in medians(redis, ways, rounds, calls, DEPTH, PER_CALL).items():
        print(f"| {name} | {cpu:.2f} |")


def tracked(redis, rounds, calls):
    """A read of a counter that Redis tracks, before the call that writes it."""
    connection = Connection(redis.path)
    plain = connection.call("SCRIPT", "LOAD", PLAIN)
    key = lambda number: b"weir:{1}:%d" % (number % 1_000)
    count = lambda number: encoded("EVALSHA", plain, "1", key(number), "1", WINDOW_MS)
    read = lambda number: encoded("GET", key(number)) + count(number)
    figures = {"the call alone": [], "after a read": [], "after a read that is tracked": []}
    for _ in range(rounds):
        for name, values in figures.items():
            messages, caller = Connection(redis.path), Connection(redis.path)
            caller.call("FLUSHALL", "SYNC")
            if name == "after a read that is tracked":
                messages.call("SUBSCRIBE", "__redis__:invalidate")
                other = Connection(redis.path)
                found = [line for line in other.call("CLIENT", "LIST").decode().splitlines() if "sub=1" in line]
                caller.call("CLIENT", "TRACKING", "ON", "REDIRECT", found[0].split("id=")[1].split()[0])
            before = redis.cpu_us()
            for at in range(0, calls, DEPTH):
                numbers = range(at, at + DEPTH)
                single = name == "the call alone"
                caller.pipeline([(count(n), 1) if single else (read(n), 2) for n in numbers])
            values.append((redis.cpu_us() - before) / calls)
    print(f"\nClient-side tracking, 1000 counters, {rounds} rounds of {calls} calls, us of Redis per call:\n")
    print("| a plain `EVALSHA` | us |\n| --- | --- |")
    for name, values in figures.items():
        print(f"| {name} | {statistics.median(values):.2f} |")


def main():
    arguments = argparse.ArgumentParser(usage=__doc__)
    arguments.add_argument("weir")
    arguments.add_argument("before", nargs="?")
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--calls", type=int, default=60_000)
    options = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder, Redis(folder) as redis:
        folder = pathlib.Path(folder)
        of_weir = {}
        for algorithm in ("fixed_window", "sliding_window_log"):
            if options.before:
                name = f"the build before, `{algorithm}`"
                of_weir[name] = recorded(redis, options.before, folder, None, algorithm)
            for form, functions in (("EVALSHA", "off"), ("FCALL", "auto")):
                name = f"`{form}`, `{algorithm}`"
                of_weir[name] = recorded(redis, options.weir, folder, functions, algorithm)
        one_step(redis, of_weir, options.rounds, options.calls)
        paused(redis, of_weir["`FCALL`, `fixed_window`"], options.rounds, min(options.calls, PAUSED_CALLS))
        packed(redis, options.rounds, max(1, options.calls // PER_CALL))
        tracked(redis, options.rounds, options.calls)


main()
