"""The attacks. Each has a number of connections and calls, and ends at its deadline.

An attack returns its connections, which stay open until the memory is measured. weir may refuse a call, and
may close a connection: that is a defence, and the attack goes on with the next connection. The other client
is 127.0.0.2, so no attack uses that address.
"""

import dataclasses
import socket
import time
import typing

from calls import RATE_LIMIT, REFLECTION, WATCH, framed, list_services, request
from http2 import (
    DATA, END_HEADERS, END_STREAM, HEADERS, SEND_TIMEOUT, Connection, frame, header_block, literals, string,
    tls_context, two_letter_names,
)

# Seconds of one attack.
ATTACK_SECONDS = 60
# The calls between two reads of what has arrived.
READ_EVERY = 20
HEADERS_EXTRA = 400
TWO_ADDRESSES = ["127.0.0.1", "127.0.0.3"]
# Each may have `http.max_connections_per_peer` 256 connections, and together `http.max_connections` 1024.
FOUR_ADDRESSES = [*TWO_ADDRESSES, "127.0.0.4", "127.0.0.5"]
# Fields of the static table of HPACK, and the mark of a new field behind them that enters the dynamic table.
POST, HTTP_SCHEME, STORED_PATH, STORED_FIELD = b"\x83", b"\x86", b"\x44", b"\x40"
# The newest field of the dynamic table.
NEWEST_FIELD = b"\xbe"


def calls_with_many_headers(weir):
    block = header_block(RATE_LIMIT, HEADERS_EXTRA)
    return attack(weir.grpc, 25, 1000, lambda to, stream: to.send(frame(HEADERS, END_HEADERS, stream, block)))


def staying_watches(weir):
    block = header_block(WATCH, HEADERS_EXTRA)

    def call(to, stream):
        head = frame(HEADERS, END_HEADERS, stream, block)
        to.send(head + frame(DATA, END_STREAM, stream, framed(b"")))

    return attack(weir.grpc, 25, 1000, call)


def unread_responses(weir):
    """Calls of 256 descriptors. The client never opens the window for a response."""
    block, message = header_block(RATE_LIMIT), request(256, b"v")

    def call(to, stream):
        to.send(frame(HEADERS, END_HEADERS, stream, block))
        to.send_data(stream, message, END_STREAM)

    return attack(weir.grpc, 10, 1000, call, window=0)


def half_sent_bodies(weir):
    block = header_block(RATE_LIMIT)
    # A quarter of the message that the prefix announces.
    half = framed(bytes(60_000))[:15_005]

    def call(to, stream):
        to.send(frame(HEADERS, END_HEADERS, stream, block))
        to.send_data(stream, half)

    return attack(weir.grpc, 25, 60, call)


def stored_headers(weir):
    """The HPACK table has room for 107 paths of one letter. Each comes with 8 KiB of another header, so that it
    is alone in the buffer that it keeps."""
    rest = literals([(":authority", "weir"), ("content-type", "application/grpc"), ("x", 8100 * "x")])
    block = POST + HTTP_SCHEME + STORED_PATH + string("/") + rest
    flags = END_HEADERS | END_STREAM
    return attack(weir.grpc, 2000, 107, lambda to, stream: to.send(frame(HEADERS, flags, stream, block)))


def refused_streams(weir):
    """A header of 4000 bytes is stored. Then five bytes name 20 kB of headers, which are too large, and 1000
    such streams are one read of weir."""
    flags, streams = END_HEADERS | END_STREAM, 1000
    stored = header_block(RATE_LIMIT) + STORED_FIELD + string("x") + string(4000 * "x")

    def call(to, stream):
        if stream == 1:
            to.send(frame(HEADERS, flags, 1, stored))
        first = 3 + (stream - 1) * streams
        to.send(b"".join(frame(HEADERS, flags, first + 2 * i, 5 * NEWEST_FIELD) for i in range(streams)))

    return attack(weir.grpc, 100, 40, call)


def trailers_of_reflection(weir):
    """The response waits for the window, the request exceeds its maximum of 4096 bytes, and trailers follow."""
    block, trailers = header_block(REFLECTION), literals((name, "") for name in two_letter_names(480))

    def call(to, stream):
        to.send(frame(HEADERS, END_HEADERS, stream, block))
        to.send_data(stream, framed(list_services()))
        to.send_data(stream, framed(bytes(5000)))
        to.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, trailers))

    return attack(weir.grpc, 500, 16, call, window=0)


def idle_connections(weir):
    return attack(weir.grpc, 10_000, 0, None)


def idle_connections_of_two_addresses(weir):
    return attack(weir.grpc, 10_000, 0, None, sources=TWO_ADDRESSES)


def idle_tls_connections(weir):
    return attack(weir.grpc, 10_000, 0, None, tls=tls_context())


def half_bodies_of_http(weir):
    """9 kB of 200 kB for /json, from four addresses. weir closes them after 10 s, and others follow."""
    head = b"POST /json HTTP/1.1\r\nhost: localhost\r\ncontent-length: 200000\r\n\r\n"
    sent = head + b"{" + 9000 * b" "
    deadline, connections = time.monotonic() + ATTACK_SECONDS, []
    while time.monotonic() < deadline:
        source = FOUR_ADDRESSES[len(connections) % len(FOUR_ADDRESSES)]
        try:
            to = socket.create_connection(weir.http, SEND_TIMEOUT, source_address=(source, 0))
            connections.append(to)
            to.sendall(sent)
        except OSError:
            continue
        finally:
            # 200 per second are twice as many as weir closes.
            time.sleep(0.005)
    return connections


@dataclasses.dataclass
class Attack:
    run: typing.Callable
    # Whether the gRPC port has TLS, also for the other client.
    tls: bool = False


ATTACKS = {
    "calls with 400 headers": Attack(calls_with_many_headers),
    "health watches": Attack(staying_watches),
    "unread responses": Attack(unread_responses),
    "half-sent bodies": Attack(half_sent_bodies),
    "stored headers": Attack(stored_headers),
    "refused streams": Attack(refused_streams),
    "trailers of reflection": Attack(trailers_of_reflection),
    "idle connections": Attack(idle_connections),
    "idle, two addresses": Attack(idle_connections_of_two_addresses),
    "idle with TLS": Attack(idle_tls_connections, tls=True),
    "half bodies of HTTP/1": Attack(half_bodies_of_http),
}


def attack(address, connections, calls, call, window=None, sources=("127.0.0.1",), tls=None):
    """Opens `connections` from `sources` in turn and begins `calls` on each, one connection after the other."""
    deadline, open_connections = time.monotonic() + ATTACK_SECONDS, []
    for index in range(connections):
        if time.monotonic() > deadline:
            break
        try:
            to = Connection(address, window, sources[index % len(sources)], tls)
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
