"""Steady requests of a few users through Envoy."""

import http.client
import threading
import time
from collections import namedtuple

# Requests per second of each user, 200 together, and what its rule in rules.yaml allows.
USERS = [
    ("alice", 10, "20 per second"),
    ("bob", 18, "20 per second"),
    ("carol", 40, "20 per second"),
    ("dave", 22, "20 per second"),
    ("crawler", 60, "30 per second, in bursts of 60"),
    ("internal", 50, "no limit"),
]
# Seconds that a response may take.
TIMEOUT = 2
# Seconds of delay after which requests that were due are left out.
BACKLOG = 0.5

Counts = namedtuple("Counts", "admitted denied failed")


class User(threading.Thread):
    """Sends requests of one user at a steady rate, on one connection."""

    def __init__(self, name, rate, port, stop):
        super().__init__(name=name, daemon=True)
        self.headers, self.interval, self.stop = {"x-user": name}, 1 / rate, stop
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)
        self.admitted = self.denied = self.failed = 0

    def run(self):
        due = time.monotonic()
        while not self.stop.wait(max(0, due - time.monotonic())):
            self.send()
            due = max(due + self.interval, time.monotonic() - BACKLOG)
        self.connection.close()

    def send(self):
        """Sends one request, and counts it by its response."""
        try:
            self.connection.request("GET", "/", headers=self.headers)
            response = self.connection.getresponse()
            response.read()
        except (OSError, http.client.HTTPException):
            self.connection.close()
            self.failed += 1
            return
        if response.status == 200:
            self.admitted += 1
        elif response.status == 429:
            self.denied += 1
        else:
            self.failed += 1


class Load:
    """All users. They send until `end`."""

    def __init__(self, port):
        self.stop = threading.Event()
        self.users = [User(name, rate, port, self.stop) for name, rate, _ in USERS]

    def start(self):
        for user in self.users:
            user.start()

    def counts(self):
        """The requests so far."""
        return Counts(*(sum(getattr(user, field) for user in self.users) for field in Counts._fields))

    def end(self):
        self.stop.set()
        for user in self.users:
            if user.is_alive():
                user.join()
