"""A weir on free ports of loopback, as a process."""

import json
import os
import subprocess
import threading

# Seconds for the start and for the stop; a healthy weir needs one.
TIMEOUT = 60
# Variables that a `prefix` such as systemd-run needs. weir reads none of them.
KEPT_VARIABLES = ("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS")


class Weir:
    """A running weir, which ends with the `with` block. `prefix` is a command that runs the command behind it."""

    def __init__(self, binary, rules, settings=None, prefix=()):
        command = [*prefix, binary, "serve", "--rules", rules]
        for listener in ("grpc", "http", "admin"):
            command += [f"--{listener}-listen", "127.0.0.1:0"]
        variables = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
        variables |= {"WEIR__LOG__FORMAT": "json", **(settings or {})}
        self.process = subprocess.Popen(
            command, env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True,
        )
        self.pid = self.process.pid
        self.grpc, self.http, self.admin = self._addresses()
        # An unread pipe would stop the log, and with it the process.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def _addresses(self):
        """The addresses of the ports for gRPC, HTTP and admin, from the line `listening` of the log."""
        too_late = threading.Timer(TIMEOUT, self.process.kill)
        too_late.start()
        log = []
        try:
            for line in self.process.stderr:
                log.append(line)
                try:
                    fields = json.loads(line)
                except ValueError:
                    continue
                if isinstance(fields, dict) and {"grpc", "http", "admin"} <= fields.keys():
                    return tuple(address(fields[name]) for name in ("grpc", "http", "admin"))
        finally:
            too_late.cancel()
        self.process.wait()
        raise SystemExit(f"{self.process.args} does not listen; its log:\n{''.join(log)}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(TIMEOUT)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


def address(text):
    """`host:port` as a pair."""
    host, _, port = text.rpartition(":")
    return host, int(port)
