"""Another client beside an attack, with its own address: 200 calls per second on one connection, and each second
a new connection with a call and a probe. All must be answered."""

import dataclasses
import http.client
import multiprocessing
import queue
import time

from calls import RATE_LIMIT, request
from http2 import (
    DATA, DEFAULT_WINDOW, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, WINDOW_MAX, WINDOW_UPDATE,
    Connection, frame, header_block, tls_context,
)

ADDRESS = "127.0.0.2"
CALLS_PER_SECOND = 200
# Seconds to wait for the last responses.
LAST_RESPONSES = 10


@dataclasses.dataclass
class Result:
    sent: int
    answered: int
    # Milliseconds from the time at which a call was due.
    p99: float
    error: str


class OtherClient:
    """Sends calls and probes in other processes until `stop`."""

    def __init__(self, weir, tls):
        self.stopped = multiprocessing.Event()
        self.calls = Task(call_until_stopped, weir.grpc, tls, self.stopped)
        self.newcomers = Task(connect_until_stopped, weir.grpc, weir.http, tls, self.stopped)

    def stop(self):
        """The result of the calls, and the error of the first new connection or probe that failed."""
        self.stopped.set()
        result = self.calls.result() or Result(0, 0, 0.0, "it has no result")
        error = self.newcomers.result()
        return result, "it has no result" if error is None else error


class Task:
    """A process that puts one result into a queue."""

    def __init__(self, function, *arguments):
        self.results = multiprocessing.Queue()
        self.process = multiprocessing.Process(target=function, args=(*arguments, self.results), daemon=True)
        self.process.start()

    def result(self):
        """The result, or None if there is none in time."""
        try:
            result = self.results.get(timeout=6 * LAST_RESPONSES)
        except queue.Empty:
            result = None
        self.process.join(LAST_RESPONSES)
        self.process.kill()
        return result


def call_until_stopped(address, tls, stopped, results):
    calls = Calls()
    try:
        calls.run(address, tls, stopped)
    except OSError as error:
        calls.error = calls.error or text(error)
    results.put(calls.result())


def connect_until_stopped(grpc, probes, tls, stopped, results):
    error = ""
    while not stopped.wait(1):
        for what, attempt in (("call", lambda: call_once(grpc, tls)), ("probe", lambda: probe(probes))):
            try:
                attempt()
            except (OSError, http.client.HTTPException) as failure:
                error = error or f"a {what} on a new connection failed: {text(failure)}"
    results.put(error)


def call_once(address, tls):
    """One call on a new connection. Raises OSError without a response."""
    connection = Connection(address, source=ADDRESS, tls=tls_context() if tls else None)
    connection.send(frame(HEADERS, END_HEADERS, 1, header_block(RATE_LIMIT)))
    connection.send_data(1, request(1, b"newcomer"), END_STREAM)
    deadline = time.monotonic() + LAST_RESPONSES
    while time.monotonic() < deadline:
        kinds = [kind for kind, _, _ in connection.receive(1)]
        if DATA in kinds:
            return connection.close()
        if GOAWAY in kinds or RST_STREAM in kinds:
            raise ConnectionError("weir has refused the call")
    raise TimeoutError("no response")


def probe(address):
    connection = http.client.HTTPConnection(*address, timeout=LAST_RESPONSES, source_address=(ADDRESS, 0))
    try:
        connection.request("GET", "/livez")
        status = connection.getresponse().status
        if status != 200:
            raise ConnectionError(f"status {status}")
    finally:
        connection.close()


def text(error):
    return str(error) or type(error).__name__


class Calls:
    """The calls of one connection. They are due at fixed times, however slow the responses are."""

    def __init__(self):
        self.sent, self.error = 0, ""
        # By stream: the time at which the open call was due, and whether its message has arrived.
        self.due, self.has_message = {}, set()
        self.latencies = []

    def run(self, address, tls, stopped):
        connection = Connection(address, source=ADDRESS, tls=tls_context() if tls else None)
        connection.send(frame(WINDOW_UPDATE, 0, 0, (WINDOW_MAX - DEFAULT_WINDOW).to_bytes(4, "big")))
        block, message = header_block(RATE_LIMIT), request(1, b"other")
        start = time.monotonic()
        while not stopped.is_set():
            due = start + self.sent / CALLS_PER_SECOND
            wait = due - time.monotonic()
            if wait > 0:
                self.read(connection.receive(wait))
                continue
            stream = 2 * self.sent + 1
            self.sent += 1
            self.due[stream] = due
            connection.send(frame(HEADERS, END_HEADERS, stream, block))
            connection.send_data(stream, message, END_STREAM)
            self.read(connection.receive())
        deadline = time.monotonic() + LAST_RESPONSES
        while self.due and time.monotonic() < deadline:
            self.read(connection.receive(0.1))
        connection.close()

    def read(self, frames):
        for kind, flags, stream in frames:
            if kind == GOAWAY:
                self.error = self.error or "GOAWAY"
            elif kind == RST_STREAM and self.due.pop(stream, None):
                self.error = self.error or f"call {stream // 2} was reset"
            elif kind == DATA:
                self.has_message.add(stream)
            if kind in (DATA, HEADERS) and flags & END_STREAM:
                self.end(stream)

    def end(self, stream):
        due = self.due.pop(stream, None)
        # An error is a response of headers alone.
        if stream not in self.has_message:
            self.error = self.error or f"call {stream // 2} has failed"
        elif due is not None:
            self.latencies.append(time.monotonic() - due)
        self.has_message.discard(stream)

    def result(self):
        latencies = sorted(self.latencies)
        p99 = 1000 * latencies[len(latencies) * 99 // 100] if latencies else 0.0
        return Result(self.sent, len(latencies), p99, self.error)
