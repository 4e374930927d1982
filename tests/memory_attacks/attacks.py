"""The attacks. Each has a number of connections and calls, and ends at its deadline.

An attack returns its connections, which stay open until the memory is measured. weir may refuse a call, and
may close a connection: that is a defence, and the attack goes on with the next connection.
"""

import time

from calls import RATE_LIMIT, WATCH, framed, request
from http2 import DATA, END_HEADERS, END_STREAM, HEADERS, Connection, frame, header_block

# Seconds of one attack.
ATTACK_SECONDS = 60
# The calls between two reads of what has arrived.
READ_EVERY = 20
HEADERS_EXTRA = 400


def calls_with_many_headers(address):
    block = header_block(RATE_LIMIT, HEADERS_EXTRA)
    return attack(address, 25, 1000, lambda to, stream: to.send(frame(HEADERS, END_HEADERS, stream, block)))


def staying_watches(address):
    block = header_block(WATCH, HEADERS_EXTRA)

    def call(to, stream):
        head = frame(HEADERS, END_HEADERS, stream, block)
        to.send(head + frame(DATA, END_STREAM, stream, framed(b"")))

    return attack(address, 25, 1000, call)


def unread_responses(address):
    """Calls of 256 descriptors. The client never opens the window for a response."""
    block, message = header_block(RATE_LIMIT), request(256, b"v")

    def call(to, stream):
        to.send(frame(HEADERS, END_HEADERS, stream, block))
        to.send_data(stream, message, END_STREAM)

    return attack(address, 10, 1000, call, window=0)


def half_sent_bodies(address):
    block = header_block(RATE_LIMIT)
    # A quarter of the message that the prefix announces.
    half = framed(bytes(60_000))[:15_005]

    def call(to, stream):
        to.send(frame(HEADERS, END_HEADERS, stream, block))
        to.send_data(stream, half)

    return attack(address, 25, 60, call)


def idle_connections(address):
    return attack(address, 10_000, 0, None)


ATTACKS = {
    "calls with 400 headers": calls_with_many_headers,
    "health watches": staying_watches,
    "unread responses": unread_responses,
    "half-sent bodies": half_sent_bodies,
    "idle connections": idle_connections,
}


def attack(address, connections, calls, call, window=None):
    """Opens `connections` and begins `calls` on each, one connection after the other."""
    deadline, open_connections = time.monotonic() + ATTACK_SECONDS, []
    for _ in range(connections):
        if time.monotonic() > deadline:
            break
        try:
            to = Connection(address, window)
            open_connections.append(to)
            for number in range(calls):
                if time.monotonic() > deadline:
                    break
                call(to, 2 * number + 1)
                if number % READ_EVERY == 0:
                    to.receive()
        except OSError:
            # weir has refused or closed the connection, or does not read it any more.
            continue
    return open_connections
