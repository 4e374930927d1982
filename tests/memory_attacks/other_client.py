"""Another client beside an attack: 200 calls per second from its own address, each of which must be answered."""

import dataclasses
import multiprocessing
import queue
import time

from calls import RATE_LIMIT, request
from http2 import (
    DATA, DEFAULT_WINDOW, END_HEADERS, END_STREAM, GOAWAY, HEADERS, RST_STREAM, WINDOW_MAX, WINDOW_UPDATE,
    Connection, frame, header_block,
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
    """Sends calls in another process until `stop`."""

    def __init__(self, address):
        self.stopped, self.results = multiprocessing.Event(), multiprocessing.Queue()
        arguments = (address, self.stopped, self.results)
        self.process = multiprocessing.Process(target=call_until_stopped, args=arguments, daemon=True)
        self.process.start()

    def stop(self):
        self.stopped.set()
        try:
            result = self.results.get(timeout=6 * LAST_RESPONSES)
        except queue.Empty:
            result = Result(0, 0, 0.0, "it has no result")
        self.process.join(LAST_RESPONSES)
        self.process.kill()
        return result


def call_until_stopped(address, stopped, results):
    calls = Calls()
    try:
        calls.run(address, stopped)
    except OSError as error:
        calls.error = calls.error or str(error) or type(error).__name__
    results.put(calls.result())


class Calls:
    """The calls of one connection. They are due at fixed times, however slow the responses are."""

    def __init__(self):
        self.sent, self.error = 0, ""
        # By stream: the time at which the open call was due, and whether its message has arrived.
        self.due, self.has_message = {}, set()
        self.latencies = []

    def run(self, address, stopped):
        connection = Connection(address, source=ADDRESS)
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
