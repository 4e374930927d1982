"""Runs weir as in production on this machine, without containers: `make demo`.

Starts Redis, three instances of weir, an Envoy that calls them before every request, and users of which some
are over their limit. Prints the addresses of the live pages, and the decisions every few seconds. Ctrl-C ends
everything. After SIGKILL of this script, Linux ends the others; on another system they stay.

WEIR, ENVOY and REDIS_SERVER are paths of other programs. The logs are in target/demo.
"""

import argparse
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

import pages
from children import Children, StartFailed
from envoy_config import envoy_config
from load import USERS, Load
from ports import HOST, Ports

ROOT = Path(__file__).resolve().parents[2]
DEMO = ROOT / "examples" / "demo"
WEIRS = 3
# Seconds between two lines with decisions, and between two checks.
LINE_INTERVAL = 3
CHECK_INTERVAL = 0.1


class Ending:
    """Whether the demo must end: after a signal, or after a number of seconds."""

    def __init__(self):
        self.requested, self.deadline = False, None
        names = [signal.SIGINT, signal.SIGTERM]
        # `nohup` ignores SIGHUP, and the demo then outlives its terminal.
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            names.append(signal.SIGHUP)
        for name in names:
            signal.signal(name, self.request)

    def request(self, *_):
        # Only noted: an exception could come between the start of a child and the note of its process id.
        self.requested = True

    def after(self, seconds):
        self.deadline = seconds and time.monotonic() + seconds

    def is_due(self):
        return self.requested or (self.deadline is not None and time.monotonic() >= self.deadline)


def program(variable, places, how):
    """The path in the variable, else the first of the places that exists."""
    named = os.environ.get(variable)
    for place in [named] if named else places:
        if found := shutil.which(place):
            return found
    raise SystemExit(f"{variable}: {named or 'no program'} is not there; {how}")


def programs():
    """The paths of redis-server, weir and Envoy."""
    # The newest one that the tests have fetched.
    fetched = sorted((ROOT / "target" / "envoy").glob("*/bin/envoy"), reverse=True)
    return (
        program("REDIS_SERVER", ["redis-server", "valkey-server"], "install it, or run `make redis`"),
        program("WEIR", [ROOT / "target" / "release" / "weir"], "run `make build`"),
        program("ENVOY", [*fetched, "envoy"], "run `make demo`, which fetches it"),
    )


class Demo:
    """The processes of the demo, and their addresses."""

    def __init__(self, folder, restart_after):
        self.redis_program, self.weir_program, self.envoy_program = programs()
        self.folder, self.children = folder, Children(folder, restart_after)
        ports = self.ports = Ports()
        self.redis = ports.take(6379)
        self.weirs = [ports.take(8081) for _ in range(WEIRS)]
        self.admins = [ports.take(6070) for _ in range(WEIRS)]
        self.ingress, self.service, self.envoy_admin = ports.take(10000), ports.take(10001), ports.take(9901)
        self.load = Load(self.ingress)

    def start(self, ending):
        self.start_redis(ending)
        for number in range(WEIRS):
            self.start_weir(number, ending)
        self.start_envoy(ending)
        if not ending.requested:
            self.load.start()

    def add(self, name, command, is_ready, ending, variables=None):
        if not ending.requested:
            self.children.add(name, command, is_ready, ending, variables)
            self.write_addresses()

    def start_redis(self, ending):
        # Counters need no disk: a restart only sets them to zero.
        command = [
            self.redis_program, "--bind", HOST, "--port", self.redis, "--dir", self.folder, "--save", "",
            "--appendonly", "no", "--daemonize", "no",
        ]
        self.add("redis", command, lambda: pages.redis_answers(self.redis), ending)

    def start_weir(self, number, ending):
        admin = self.admins[number]
        command = [
            self.weir_program, "serve", "--rules", DEMO / "rules.yaml", "--redis-url", f"redis://{HOST}:{self.redis}",
            "--grpc-listen", f"{HOST}:{self.weirs[number]}", "--admin-listen", f"{HOST}:{admin}",
            "--http-listen", f"{HOST}:0",
        ]
        variables = {
            # Envoy waits 100 ms for a decision.
            "WEIR__STORE__TIMEOUT": "50ms",
            "WEIR__FALLBACK__INSTANCES": str(WEIRS),
            "WEIR__GRPC__WORKERS": "2",
            # The demo ends without waiting for load balancers.
            "WEIR__DRAIN__DELAY": "0s",
        }
        self.add(f"weir-{number + 1}", command, lambda: pages.weir_reaches_redis(admin), ending, variables)

    def start_envoy(self, ending):
        example = (ROOT / "examples" / "compose" / "envoy.yaml").read_text()
        config = self.folder / "envoy.yaml"
        config.write_text(envoy_config(example, self.weirs, self.ingress, self.envoy_admin, self.service))
        command = [
            self.envoy_program, "--config-path", config, "--concurrency", "2", "--log-level", "warn",
            # Without hot restart, several Envoys can run at the same time.
            "--disable-hot-restart",
        ]
        self.add("envoy", command, lambda: pages.envoy_serves(self.envoy_admin), ending)

    def write_addresses(self):
        """Writes the addresses and the process ids, for scripts."""
        addresses = {
            "envoy": f"{HOST}:{self.ingress}",
            "admin": [f"{HOST}:{port}" for port in self.admins],
            "pids": {child.name: child.pid() for child in self.children.all},
        }
        # Readers never see a part of the file.
        part = self.folder / "addresses.json.part"
        part.write_text(json.dumps(addresses, indent=2) + "\n")
        part.replace(self.folder / "addresses.json")

    def end(self):
        self.load.end()
        self.children.end()

    def introduction(self):
        live = "  ".join(f"http://{HOST}:{port}/" for port in self.admins)
        metrics = "  ".join(f"http://{HOST}:{port}/metrics" for port in self.admins)
        users = "\n".join(f"  {name:<10}{rate:>3} per second; allowed: {allowed}" for name, rate, allowed in USERS)
        pids = {child.name: child.pid() for child in self.children.all}
        again = f"it starts again after {self.children.restart_after:g} s"
        return f"""
live pages  {live}
metrics     {metrics}
Envoy       http://{HOST}:{self.ingress}/
logs        {self.folder}

Users send {sum(rate for _, rate, _ in USERS)} requests per second through Envoy:
{users}

Try in another terminal:
  curl -i -H 'x-user: guest' http://{HOST}:{self.ingress}/     # the fourth within a minute gets 429
  {self.weir_program} explain --addr http://{HOST}:{self.admins[0]} --domain demo user=carol
  {self.weir_program} top --addr http://{HOST}:{self.admins[0]}
  kill {pids['redis']}           # Redis ends: each weir counts in its memory; {again}
  kill -STOP {pids['redis']}     # Redis hangs, until kill -CONT {pids['redis']}
  kill {pids['weir-1']}           # a weir ends: Envoy calls the others; {again}

Ctrl-C ends everything.
"""


def watch(demo, ending):
    """Prints a line with the decisions every few seconds, and what happens to the processes, until the end."""
    began = time.monotonic()
    before, fallback_before, line_at = demo.load.counts(), [0] * WEIRS, began
    while not ending.is_due():
        time.sleep(CHECK_INTERVAL)
        for event in demo.children.tend():
            demo.write_addresses()
            say(f"  {event}")
        now = time.monotonic()
        if now < line_at + LINE_INTERVAL:
            continue
        counts, seconds = demo.load.counts(), now - line_at
        fallback = [pages.fallback_decisions(port) for port in demo.admins]
        # A weir that started again counts from zero.
        by_fallback = sum(max(0, new - old) for new, old in zip(fallback, fallback_before))
        rates = [round((new - old) / seconds) for new, old in zip(counts, before)]
        alive = {child.name: child.is_alive() for child in demo.children.all}
        say(
            f"{now - began:4.0f} s  admitted {rates[0]:3}/s  denied {rates[1]:3}/s  failed {rates[2]:3}/s  "
            f"by fallback {by_fallback / seconds:3.0f}/s  redis {'up' if alive['redis'] else 'down'}  "
            f"weirs {sum(alive[f'weir-{number + 1}'] for number in range(WEIRS))} of {WEIRS}"
        )
        before, fallback_before, line_at = counts, fallback, now


def say(text):
    print(text, flush=True)


def seconds(text):
    number = float(text)
    if not number > 0:
        raise argparse.ArgumentTypeError("write a number over 0")
    return number


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=seconds, help="end after this time under load")
    parser.add_argument("--folder", type=Path, default=ROOT / "target" / "demo", help="folder of the logs")
    parser.add_argument(
        "--restart-after", type=seconds, default=15, metavar="SECONDS", help="pause before an ended process starts again",
    )
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    ending = Ending()
    demo = Demo(folder, options.restart_after)
    try:
        demo.start(ending)
        if not ending.requested:
            say(demo.introduction())
            ending.after(options.seconds)
            watch(demo, ending)
    except StartFailed as failure:
        sys.exit(f"demo: {failure}")
    finally:
        demo.end()
    counts = demo.load.counts()
    say(f"all processes have ended; {counts.admitted} admitted, {counts.denied} denied, {counts.failed} failed")


if __name__ == "__main__":
    main()
